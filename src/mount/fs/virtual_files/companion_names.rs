//! The names of companion files: which there are in a folder, and what a name stands for.
//!
//! Uses `formats` for what a format can express. `companions.rs` makes the files.

use std::collections::HashSet;

use crate::formats::detached::data_names;
use crate::formats::views::FLAT;
use crate::formats::{Format, JSON, Place, Role};
use crate::hierarchy::{Child, Node, View};
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::{Entity, Kind};
use crate::mount::fs::virtual_files::companions::expressed;
use crate::mount::fs::virtual_files::{Context, views};
use crate::store::join;

/// The file beside nodes with a name in a group's folder: a sidecar, or in a format that is listed there.
pub(in crate::mount::fs) fn file_beside(
    ctx: &Context<'_>,
    group: &str,
    name: &str,
    blocking: Blocking,
) -> FsResult<Option<Entity>> {
    for format in formats_beside(ctx) {
        if let Some(file) = file_in(ctx, (format, Place::Beside), (None, group), name, blocking)? {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// The files beside nodes in the folder of a group with these children.
pub(in crate::mount::fs) fn files_beside(
    ctx: &Context<'_>,
    group: &str,
    children: &[Child],
) -> FsResult<Vec<(String, Entity)>> {
    let mut files = Vec::new();
    for format in formats_beside(ctx) {
        files.extend(files_in(ctx, (format, Place::Beside), (None, group), children)?);
    }
    Ok(files)
}

fn formats_beside<'a>(ctx: &Context<'a>) -> impl Iterator<Item = &'static Format> + 'a {
    [JSON].into_iter().chain(ctx.options.formats.iter().copied())
}

/// The companion file with a name in a group's folder.
pub(in crate::mount::fs) fn file_in(
    ctx: &Context<'_>,
    (format, place): (&'static Format, Place),
    (view, group): (Option<View>, &str),
    name: &str,
    blocking: Blocking,
) -> FsResult<Option<Entity>> {
    let entity = |path: &str| file(format, place, view, path);
    let stem = name.strip_suffix(format.suffix).filter(|stem| !stem.is_empty());
    if format.group_file == Some(name) && !ctx.is_root_array(group, blocking)? {
        return Ok(Some(entity(group)));
    }
    let Some(stem) = stem.filter(|stem| has_name(format, place, stem)) else { return Ok(None) };
    let is_mirror = format.role == Role::Detached && place == Place::Mirror;
    let escaped = if is_mirror { data_names::array_name(stem) } else { None };
    for name in escaped.as_deref().into_iter().chain([stem]) {
        if let Some(path) = node_in(ctx, format, (view, group), name, blocking)? {
            return Ok(Some(entity(&path)));
        }
    }
    // The root group has its file in its own folder, for want of another.
    let is_root = group.is_empty() && stem == ctx.root_name && format.group_file.is_none();
    Ok((is_root && has_file(ctx, (format, view), "", blocking)?).then(|| entity("")))
}

/// A node's file in a format.
fn file(format: &'static Format, place: Place, view: Option<View>, path: &str) -> Entity {
    Entity { kind: Kind::Companion(format, place), view, path: path.into() }
}

/// An array's own file, or that of a view of it.
fn own_file(view: Option<View>, path: &str) -> Entity {
    match view {
        Some(_) => file(FLAT, Place::Beside, view, path),
        None => Entity::new(Kind::Array, path),
    }
}

/// Whether a node of this name can have such a file there.
fn has_name(format: &Format, place: Place, name: &str) -> bool {
    let is_own = format.role == Role::Sidecar || format == FLAT;
    is_own || place == Place::Mirror || format.name_beside(name).is_some()
}

/// The path of the node with a name in a group's folder, if it has a file beside it in this format.
fn node_in(
    ctx: &Context<'_>,
    format: &Format,
    (view, group): (Option<View>, &str),
    name: &str,
    blocking: Blocking,
) -> FsResult<Option<String>> {
    let is_root = ctx.is_root_array(group, blocking)?;
    if is_root && name != ctx.root_name {
        return Ok(None);
    }
    let path = if is_root { String::new() } else { join(group, name) };
    let cached = ctx.nodes.get(&path, blocking)?;
    let is_beside = cached.is_array() || format.group_file.is_none();
    Ok((is_beside && has_file(ctx, (format, view), &path, blocking)?).then_some(path))
}

/// The companion files in the folder of a group with these children.
pub(in crate::mount::fs) fn files_in(
    ctx: &Context<'_>,
    (format, place): (&'static Format, Place),
    (view, group): (Option<View>, &str),
    children: &[Child],
) -> FsResult<Vec<(String, Entity)>> {
    let entity = |path: &str| file(format, place, view, path);
    if ctx.is_root_array(group, Blocking::Yes)? {
        let name = format!("{}{}", ctx.root_name, format.suffix);
        let file = file_in(ctx, (format, place), (view, ""), &name, Blocking::Yes)?;
        let name = format!("{}{}", format.stem(ctx.root_name), format.suffix);
        let mut files: Vec<_> = file.map(|file| (name, file)).into_iter().collect();
        if format.role == Role::Detached && place == Place::Mirror && !files.is_empty() {
            files.push((format.stem(ctx.root_name).into_owned(), own_file(view, "")));
        }
        return Ok(files);
    }
    let of_group = format.group_file.map(|name| (name.to_owned(), entity(group)));
    let mut files: Vec<_> = of_group.into_iter().collect();
    for child in children.iter().filter(|child| !child.is_group || format.group_file.is_none()) {
        let path = join(group, &child.name);
        let stem = format.stem(&child.name);
        let name = format!("{stem}{}", format.suffix);
        if format.group_file == Some(&name)
            || !has_name(format, place, &child.name)
            || ((format.role != Role::Sidecar || view.is_some())
                && !has_file(ctx, (format, view), &path, Blocking::Yes)?)
        {
            continue;
        }
        if format.role == Role::Detached && place == Place::Mirror {
            files.push((stem.into_owned(), own_file(view, &path)));
        }
        files.push((name, entity(&path)));
    }
    if group.is_empty() && format.group_file.is_none() {
        let name = format!("{}{}", ctx.root_name, format.suffix);
        let of_root = file_in(ctx, (format, place), (view, ""), &name, Blocking::Yes)?;
        files.extend(of_root.filter(|file| file.path.is_empty()).map(|file| (name, file)));
    }
    Ok(files)
}

/// What a name in a group's folder below `__formats__/NAME/`, or below the folder of a view, stands for. Files win over
/// groups of the same name, and both over the folder of views.
pub(in crate::mount::fs) fn child_of_folder(
    ctx: &Context<'_>,
    format: &'static Format,
    (view, group): (Option<View>, &str),
    name: &str,
    blocking: Blocking,
) -> FsResult<Option<Entity>> {
    if let Some(View::Planes(axis)) = view {
        return views::child_of_planes_group(ctx, (format, axis), group, name, blocking);
    }
    let place = if format == FLAT { Place::Beside } else { Place::Mirror };
    let file = match file_in(ctx, (format, place), (view, group), name, blocking)? {
        None if format == FLAT => file_in(ctx, (JSON, place), (view, group), name, blocking)?,
        None if format.role == Role::Detached => match data_names::array_name(name) {
            Some(name) => {
                node_in(ctx, format, (view, group), &name, blocking)?.map(|path| own_file(view, &path))
            }
            None => None,
        },
        file => file,
    };
    if file.is_some() {
        return Ok(file);
    }
    if !ctx.is_root_array(group, blocking)? {
        let path = join(group, name);
        if let Some(Node::Group { .. }) = ctx.nodes.get(&path, blocking)?.node.as_deref() {
            return Ok(Some(group_folder(format, view, path)));
        }
    }
    Ok(if view.is_none() { views::folder_in(format, group, name) } else { None })
}

fn group_folder(format: &'static Format, view: Option<View>, path: String) -> Entity {
    Entity { kind: Kind::FormatFolder(format), view, path: path.into() }
}

/// The entries of such a folder.
pub(in crate::mount::fs) fn names_of_folder(
    ctx: &Context<'_>,
    format: &'static Format,
    (view, group): (Option<View>, &str),
) -> FsResult<Vec<(String, Entity)>> {
    if let Some(View::Planes(axis)) = view {
        return views::names_of_planes_group(ctx, (format, axis), group);
    }
    let children = ctx.children(group)?;
    let place = if format == FLAT { Place::Beside } else { Place::Mirror };
    let mut names = files_in(ctx, (format, place), (view, group), &children)?;
    if format == FLAT {
        let real: HashSet<String> = names.iter().map(|(name, _)| name.clone()).collect();
        let sidecars = files_in(ctx, (JSON, place), (view, group), &children)?;
        names.extend(sidecars.into_iter().filter(|(name, _)| !real.contains(name)));
    }
    let taken: HashSet<String> = names.iter().map(|(name, _)| name.clone()).collect();
    for child in children.into_iter().filter(|child| child.is_group && !taken.contains(&child.name)) {
        let path = join(group, &child.name);
        names.push((child.name, group_folder(format, view, path)));
    }
    Ok(names)
}

/// Whether the node at a path, or what a view makes of it, has a file in a format. Where other nodes count, too, that may need the
/// store, and views have no file.
fn has_file(
    ctx: &Context<'_>,
    (format, view): (&Format, Option<View>),
    path: &str,
    blocking: Blocking,
) -> FsResult<bool> {
    let cached = ctx.nodes.get(path, blocking)?;
    let Some(node) = expressed((format, view), &cached, ctx.arrays) else { return Ok(false) };
    match format.check {
        None if format.refuses.is_none() => Ok(true),
        None if blocking == Blocking::No => Err(Failure::WouldBlock),
        None => {
            let Some(shown) = ctx.arrays.shown(view, node) else { return Ok(false) };
            let entity = Entity { kind: Kind::Array, view, path: path.into() };
            let subject = ctx.subject_of(&entity, Place::Mirror, node, &shown);
            Ok(format.refuses.and_then(|refuses| refuses(&subject)).is_none())
        }
        Some(_) if view.is_some() => Ok(false),
        Some(_) if blocking == Blocking::No => Err(Failure::WouldBlock),
        Some(check) => Ok(check(&ctx.subject(path, Place::Mirror, node))?),
    }
}
