//! The names of companion files: those in a folder, and what a name stands for.
//!
//! This file uses `formats` to ask what a format can express. `companions.rs` makes the files.

use std::collections::HashSet;
use std::sync::Arc;

use crate::formats::detached::data_names;
use crate::formats::views::FLAT;
use crate::formats::{Alias, CompanionPlace, Format, JSON, Role, in_folder_of};
use crate::hierarchy::{Child, Node, OpenArrays, View};
use crate::mount::fs::entity::{Entity, EntityKind};
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::parts::MountParts;
use crate::mount::fs::virtual_files::companions::expressed;
use crate::mount::fs::virtual_files::slices::{self, NamedSlice, SliceFile, SliceNames};
use crate::mount::fs::virtual_files::subjects::{Freshness, Subjects};
use crate::mount::fs::virtual_files::views::{self, PlaneFolders};
use crate::store::join;

/// The companion files of a mount, by name.
pub struct CompanionNames {
    nodes: Arc<NodeCache>,
    arrays: Arc<OpenArrays>,
    subjects: Arc<Subjects>,
    planes: PlaneFolders,
    slices: SliceNames,
    /// The name of the root's file, if the root is an array.
    root_name: Arc<str>,
}

impl CompanionNames {
    /// Creates the names of a mount's companion files.
    pub fn new(parts: &MountParts, subjects: Arc<Subjects>) -> Self {
        let (nodes, arrays, root_name) = (parts.nodes.clone(), parts.arrays.clone(), parts.root_name.clone());
        let planes = PlaneFolders::new(nodes.clone(), arrays.clone(), root_name.clone());
        let slices = SliceNames::new(nodes.clone(), subjects.clone(), root_name.clone());
        CompanionNames { nodes, arrays, subjects, planes, slices, root_name }
    }

    /// Returns the folders of planes.
    pub fn planes(&self) -> &PlaneFolders {
        &self.planes
    }

    /// Returns the file with a name next to the nodes in a group's folder: a sidecar, or one in a format that is listed there.
    pub fn sibling_file(&self, group: &str, name: &str, blocking: Blocking) -> FsResult<Option<Entity>> {
        for format in self.sibling_formats() {
            if let Some(file) =
                self.file_in(format, CompanionPlace::NextToNode, None, group, name, blocking)?
            {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    /// Returns the files next to the nodes in the folder of a group with these children.
    pub fn sibling_files(&self, group: &str, children: &[Child]) -> FsResult<Vec<(String, Entity)>> {
        let mut files = Vec::new();
        for format in self.sibling_formats() {
            files.extend(self.files_in(format, CompanionPlace::NextToNode, None, group, children)?);
        }
        Ok(files)
    }

    fn sibling_formats(&self) -> impl Iterator<Item = &'static Format> {
        [JSON].into_iter().chain(self.subjects.listed().iter().copied())
    }

    /// Returns the companion file with a name in a group's folder.
    pub fn file_in(
        &self,
        format: &'static Format,
        place: CompanionPlace,
        view: Option<&View>,
        group: &str,
        name: &str,
        blocking: Blocking,
    ) -> FsResult<Option<Entity>> {
        let entity = |path: &str| file(format, place, view, path);
        let stem = name.strip_suffix(format.suffix).filter(|stem| !stem.is_empty());
        if stem.is_none()
            && let Some(path) = self.aliased_node(format, view, group, name, blocking)?
        {
            return Ok(Some(entity(&path)));
        }
        if format.group_file == Some(name) && !self.nodes.is_root_array(group, blocking)? {
            return Ok(Some(entity(group)));
        }
        let Some(stem) = stem.filter(|stem| has_name(format, place, stem)) else { return Ok(None) };
        let is_mirror = format.role == Role::Detached && place == CompanionPlace::FormatFolder;
        let escaped = if is_mirror { data_names::array_name(stem) } else { None };
        let repeated = format.repeated_end().map(|end| format!("{stem}{end}"));
        for name in escaped.as_deref().into_iter().chain([stem]).chain(repeated.as_deref()) {
            if let Some(path) = self.node_in(format, view, group, name, blocking)? {
                return Ok(Some(entity(&path)));
            }
        }
        // The root group has its file in its own folder, because no folder is above it.
        let is_root_name = *stem == *self.root_name || repeated.as_deref() == Some(&*self.root_name);
        let is_root = group.is_empty() && is_root_name && format.group_file.is_none();
        Ok((is_root && self.has_file(format, view, "", blocking)?).then(|| entity("")))
    }

    /// Returns the path of the node in a group's folder that has a file with this name in a format, if the name has one of the format's
    /// other suffixes.
    fn aliased_node(
        &self,
        format: &Format,
        view: Option<&View>,
        group: &str,
        name: &str,
        blocking: Blocking,
    ) -> FsResult<Option<String>> {
        for alias in format.aliases {
            let Some(stem) = name.strip_suffix(alias.suffix).filter(|stem| !stem.is_empty()) else {
                continue;
            };
            let is_root = group.is_empty() && *stem == *self.root_name;
            let found = match self.node_in(format, view, group, stem, blocking)? {
                None if is_root && self.has_file(format, view, "", blocking)? => Some(String::new()),
                found => found,
            };
            let Some(path) = found else { continue };
            if self.nodes.get(&path, blocking)?.node.as_deref().is_some_and(alias.is_for) {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// Returns the other names of the file of the node with a name.
    fn aliases(&self, format: &Format, path: &str, name: &str) -> FsResult<Vec<String>> {
        if format.aliases.is_empty() {
            return Ok(Vec::new());
        }
        let cached = self.nodes.get(path, Blocking::Yes)?;
        let is_for = |alias: &&Alias| cached.node.as_deref().is_some_and(alias.is_for);
        Ok(format.aliases.iter().filter(is_for).map(|alias| format!("{name}{}", alias.suffix)).collect())
    }

    /// Returns whether the file of a node below a group is listed.
    fn is_listed(&self, format: &Format, path: &str) -> FsResult<bool> {
        let cached = self.nodes.get(path, Blocking::Yes)?;
        Ok(cached.node.as_deref().is_none_or(format.is_listed))
    }

    /// Returns the path of the node with a name in a group's folder, if it has a file next to it in this format.
    fn node_in(
        &self,
        format: &Format,
        view: Option<&View>,
        group: &str,
        name: &str,
        blocking: Blocking,
    ) -> FsResult<Option<String>> {
        let Some(path) = self.nodes.path_in(group, name, &self.root_name, blocking)? else { return Ok(None) };
        let cached = self.nodes.get(&path, blocking)?;
        let is_next_to_it = cached.is_array() || format.group_file.is_none();
        Ok((is_next_to_it && self.has_file(format, view, &path, blocking)?).then_some(path))
    }

    /// Returns the companion files in the folder of a group with these children.
    pub fn files_in(
        &self,
        format: &'static Format,
        place: CompanionPlace,
        view: Option<&View>,
        group: &str,
        children: &[Child],
    ) -> FsResult<Vec<(String, Entity)>> {
        let entity = |path: &str| file(format, place, view, path);
        if self.nodes.is_root_array(group, Blocking::Yes)? {
            let name = format!("{}{}", self.root_name, format.suffix);
            let file = self.file_in(format, place, view, "", &name, Blocking::Yes)?;
            let name = format!("{}{}", format.stem(&self.root_name), format.suffix);
            let mut files: Vec<_> = file.map(|file| (name, file)).into_iter().collect();
            if format.role == Role::Detached && place == CompanionPlace::FormatFolder && !files.is_empty() {
                files.push((format.stem(&self.root_name).into_owned(), own_file(view, "")));
            }
            return Ok(files);
        }
        let group_file = format.group_file.map(|name| (name.to_owned(), entity(group)));
        let mut files: Vec<_> = group_file.into_iter().collect();
        for child in children.iter().filter(|child| !child.is_group || format.group_file.is_none()) {
            let path = join(group, &child.name);
            let stem = format.stem(&child.name);
            let name = format!("{stem}{}", format.suffix);
            if format.group_file == Some(&name)
                || !has_name(format, place, &child.name)
                || ((format.role != Role::Sidecar || view.is_some())
                    && !(self.is_listed(format, &path)?
                        && self.has_file(format, view, &path, Blocking::Yes)?))
            {
                continue;
            }
            if format.role == Role::Detached && place == CompanionPlace::FormatFolder {
                files.push((stem.into_owned(), own_file(view, &path)));
            }
            files.push((name, entity(&path)));
            let aliases = self.aliases(format, &path, &child.name)?;
            files.extend(aliases.into_iter().map(|name| (name, entity(&path))));
        }
        if group.is_empty() && format.group_file.is_none() {
            let name = format.file_name(&self.root_name);
            let root_file = self.file_in(format, place, view, "", &name, Blocking::Yes)?;
            if let Some(file) = root_file.filter(|file| file.path.is_empty()) {
                files.push((name, file));
                let aliases = self.aliases(format, "", &self.root_name)?;
                files.extend(aliases.into_iter().map(|name| (name, entity(""))));
            }
        }
        Ok(files)
    }

    /// Returns what a name in a group's folder below `__formats__/NAME/`, or below the folder of a view, stands for. Files win over
    /// groups of the same name, and both over the folder of views.
    pub fn child_of_folder(
        &self,
        format: &'static Format,
        view: Option<&View>,
        group: &str,
        name: &str,
        blocking: Blocking,
    ) -> FsResult<Option<Entity>> {
        if let Some(&View::Planes(axis)) = view {
            return self.planes.child_of_group(format, axis, group, name, blocking);
        }
        if view == Some(&View::Slices) {
            return self.child_of_slices(format, group, name, blocking);
        }
        let place = if format == FLAT { CompanionPlace::NextToNode } else { CompanionPlace::FormatFolder };
        let mut file = None;
        for format in in_folder_of(format) {
            file = match file {
                None => self.file_in(format, place, view, group, name, blocking)?,
                found => found,
            };
        }
        let file = match file {
            None if format == FLAT => self.file_in(JSON, place, view, group, name, blocking)?,
            None if format.role == Role::Detached => match data_names::array_name(name) {
                Some(name) => {
                    self.node_in(format, view, group, &name, blocking)?.map(|path| own_file(view, &path))
                }
                None => None,
            },
            file => file,
        };
        if file.is_some() {
            return Ok(file);
        }
        if !self.nodes.is_root_array(group, blocking)? {
            let path = join(group, name);
            if let Some(Node::Group { .. }) = self.nodes.get(&path, blocking)?.node.as_deref() {
                return Ok(Some(group_folder(format, view, path)));
            }
        }
        Ok(if view.is_none() { views::folder_in(format, group, name) } else { None })
    }

    /// Returns the entries of a group's folder below `__formats__/NAME/`, or below the folder of a view.
    pub fn names_of_folder(
        &self,
        format: &'static Format,
        view: Option<&View>,
        group: &str,
    ) -> FsResult<Vec<(String, Entity)>> {
        if let Some(&View::Planes(axis)) = view {
            return self.planes.names_of_group(format, axis, group);
        }
        let children = self.nodes.members(group)?;
        if let Some(slices @ View::Slices) = view {
            let groups = children.into_iter().filter(|child| child.is_group);
            let folder = |child: Child| {
                let path = join(group, &child.name);
                (child.name, group_folder(format, Some(slices), path))
            };
            return Ok(groups.map(folder).collect());
        }
        let place = if format == FLAT { CompanionPlace::NextToNode } else { CompanionPlace::FormatFolder };
        let mut names = self.files_in(format, place, view, group, &children)?;
        for other in in_folder_of(format).skip(1) {
            let real: HashSet<String> = names.iter().map(|(name, _)| name.clone()).collect();
            let files = self.files_in(other, place, view, group, &children)?;
            names.extend(files.into_iter().filter(|(name, _)| !real.contains(name)));
        }
        if format == FLAT {
            let real: HashSet<String> = names.iter().map(|(name, _)| name.clone()).collect();
            let sidecars = self.files_in(JSON, place, view, group, &children)?;
            names.extend(sidecars.into_iter().filter(|(name, _)| !real.contains(name)));
        }
        let taken: HashSet<String> = names.iter().map(|(name, _)| name.clone()).collect();
        for child in children.into_iter().filter(|child| child.is_group && !taken.contains(&child.name)) {
            let path = join(group, &child.name);
            names.push((child.name, group_folder(format, view, path)));
        }
        Ok(names)
    }

    /// Returns what a name in a group's folder of slices stands for. Slices win over groups of the same name.
    fn child_of_slices(
        &self,
        format: &'static Format,
        group: &str,
        name: &str,
        blocking: Blocking,
    ) -> FsResult<Option<Entity>> {
        for SliceFile { format, place, name } in slices::files(format, name) {
            let found = self.slices.find(group, &name, blocking)?;
            let Some(NamedSlice { path, view }) = found else { continue };
            let cached = self.nodes.get(&path, blocking)?;
            // The sidecar of a group describes no elements.
            let is_described = cached.is_array() || format.group_file.is_none();
            if is_described && self.has_file(format, Some(&view), &path, blocking)? {
                return Ok(Some(file(format, place, Some(&view), &path)));
            }
        }
        if self.nodes.is_root_array(group, blocking)? {
            return Ok(None);
        }
        let path = join(group, name);
        let is_group = matches!(self.nodes.get(&path, blocking)?.node.as_deref(), Some(Node::Group { .. }));
        Ok(is_group.then(|| group_folder(format, Some(&View::Slices), path)))
    }

    /// Returns whether the node at a path, or a view of it, has a file in a format. If that depends on other nodes, the answer may
    /// need the store, and views have no file.
    fn has_file(
        &self,
        format: &Format,
        view: Option<&View>,
        path: &str,
        blocking: Blocking,
    ) -> FsResult<bool> {
        let cached = self.nodes.get(path, blocking)?;
        let Some(node) = expressed(format, view, &cached, &self.arrays) else { return Ok(false) };
        let place = CompanionPlace::FormatFolder;
        match format.check {
            None if format.refuses.is_none() => Ok(true),
            None if blocking == Blocking::No => Err(Failure::WouldBlock),
            None => {
                let Some(shown) = self.arrays.shown(view, node) else { return Ok(false) };
                let entity = Entity { kind: EntityKind::Array, view: view.cloned(), path: path.into() };
                let subject = self.subjects.for_entity(&entity, place, node, &shown, Freshness::Recent);
                Ok(format.refuses.and_then(|refuses| refuses(&subject)).is_none())
            }
            Some(_) if view.is_some() => Ok(false),
            Some(_) if blocking == Blocking::No => Err(Failure::WouldBlock),
            Some(check) => Ok(check(&self.subjects.for_node(path, place, node, Freshness::Recent))?),
        }
    }
}

/// Returns the entity of a node's file in a format.
fn file(format: &'static Format, place: CompanionPlace, view: Option<&View>, path: &str) -> Entity {
    Entity { kind: EntityKind::Companion(format, place), view: view.cloned(), path: path.into() }
}

/// Returns the entity of an array's own file, or of a view's.
fn own_file(view: Option<&View>, path: &str) -> Entity {
    match view {
        Some(_) => file(FLAT, CompanionPlace::NextToNode, view, path),
        None => Entity::new(EntityKind::Array, path),
    }
}

/// Returns whether a node of this name can have a file in this format at this place.
fn has_name(format: &Format, place: CompanionPlace, name: &str) -> bool {
    let is_own = format.role == Role::Sidecar || format == FLAT;
    is_own || place == CompanionPlace::FormatFolder || format.listed_name(name).is_some()
}

fn group_folder(format: &'static Format, view: Option<&View>, path: String) -> Entity {
    Entity { kind: EntityKind::FormatFolder(format), view: view.cloned(), path: path.into() }
}
