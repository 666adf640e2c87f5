//! The entries of folders: what a name stands for, and the listing of a folder, which is a snapshot taken by opendir(3).
//!
//! The names of planes are made one by one, since an array may have any number of them. Invariant: a real node wins over a
//! generated name.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use crate::error::Error;
use crate::formats::views::{FLAT, VIEWS};
use crate::formats::{self, FOLDER};
use crate::hierarchy::{Child, Node};
use crate::metadata::ZarrFormat;
use crate::mount::fs::entity::{Entity, EntityKind};
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::{InodeTable, is_at_or_below};
use crate::mount::fs::names::leftovers::Leftovers;
use crate::mount::fs::names::table::{KnownName, NameTable};
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::open_file::{FolderEntry, OpenFile};
use crate::mount::fs::parts::MountParts;
use crate::mount::fs::virtual_files::companion_names::CompanionNames;
use crate::mount::fs::virtual_files::generated::GeneratedFiles;
use crate::mount::fs::virtual_files::internals::{INTERNALS, InternalFiles};
use crate::mount::fs::virtual_files::views::{self, PlaneNames};
use crate::mount::journal::record::Content;
use crate::store::join;

/// The longest file name on Linux, in bytes.
pub const MAX_NAME_BYTES: usize = 255;

/// The entries of the folders of a mount.
pub struct Entries {
    nodes: Arc<NodeCache>,
    inodes: Arc<InodeTable>,
    names: Arc<NameTable>,
    companion_names: Arc<CompanionNames>,
    internal_files: Arc<InternalFiles>,
    leftovers: Leftovers,
    /// The name of the root's file, if the root is an array.
    root_name: Arc<str>,
}

impl Entries {
    /// Creates the entries of a mount's folders.
    pub fn new(
        parts: &MountParts,
        generated: &GeneratedFiles,
        names: Arc<NameTable>,
        internal_files: Arc<InternalFiles>,
    ) -> Self {
        Entries {
            nodes: parts.nodes.clone(),
            inodes: parts.inodes.clone(),
            names,
            companion_names: generated.companion_names.clone(),
            internal_files,
            leftovers: Leftovers::default(),
            root_name: parts.root_name.clone(),
        }
    }

    /// Returns what a name in a folder stands for.
    pub fn find(&self, folder: &Entity, name: &str, blocking: Blocking) -> FsResult<Option<Entity>> {
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Ok(None);
        }
        match folder.kind {
            EntityKind::Group => self.find_in_group(&folder.path, name, blocking),
            EntityKind::Formats => {
                let own = formats::find(name).filter(|format| format.folder.is_none());
                Ok(own.map(|format| Entity::new(EntityKind::FormatFolder(format), "")))
            }
            EntityKind::FormatFolder(format) => self.companion_names.child_of_folder(
                format,
                folder.view.as_ref(),
                &folder.path,
                name,
                blocking,
            ),
            EntityKind::Views(format) => Ok(views::child_of_views(format, name)),
            EntityKind::PlanesFolder(_) => {
                let planes = PlaneNames::in_folder(&self.nodes, folder, blocking)?;
                Ok(planes.and_then(|planes| planes.find(name)))
            }
            EntityKind::Internals => Ok(self.internal_files.find(name).map(|kind| Entity::new(kind, ""))),
            _ => Ok(None),
        }
    }

    fn find_in_group(&self, group: &str, name: &str, blocking: Blocking) -> FsResult<Option<Entity>> {
        if group.is_empty()
            && let Some(internals) = self.known_internals(name)
        {
            return Ok(Some(internals));
        }
        if let Some(path) = self.nodes.path_in(group, name, &self.root_name, blocking)? {
            match self.nodes.get_folder(&path, blocking)?.node.as_deref() {
                Some(Node::Group { .. }) => return Ok(Some(Entity::new(EntityKind::Group, path))),
                // The archive that the node was in has changed, or a group above cannot be read, so it is unknown what has this name.
                Some(Node::Broken { error, .. })
                    if matches!(error, Error::Stale { .. }) || is_of_group_above(error, &path) =>
                {
                    return Err(error.clone().into());
                }
                Some(Node::Array { .. } | Node::Broken { .. }) => {
                    return Ok(Some(Entity::new(EntityKind::Array, path)));
                }
                None => {}
            }
        }
        match self.names.find(group, name) {
            Some(KnownName::File(entity)) => return Ok(Some(entity)),
            Some(KnownName::Vacant) => return Ok(None),
            None => {}
        }
        let generated = self.companion_names.sibling_file(group, name, blocking)?;
        Ok(generated.or_else(|| if group.is_empty() { unlisted_root_entry(name) } else { None }))
    }

    /// Returns the folder of the mount's reports, once it was looked up, or if no node can have its name: in a v3 group, `__` is reserved.
    /// Elsewhere the first lookup asks the store for a node with this name, which would come first. Programs that watch a mount must not
    /// cost it requests, or wait for a store that does not respond.
    fn known_internals(&self, name: &str) -> Option<Entity> {
        let entity = Entity::new(EntityKind::Internals, "");
        let is_reserved = || {
            self.nodes.peek("").is_some_and(|root| match root.node.as_deref() {
                Some(Node::Group { metadata, .. }) => metadata.zarr_format == Some(ZarrFormat::V3),
                _ => false,
            })
        };
        (name == INTERNALS && (self.inodes.find(&entity).is_some() || is_reserved())).then_some(entity)
    }

    /// Returns whether a name in a folder is free for a file that this thread creates.
    pub fn is_expected(&self, folder: u64, name: &str, thread: u32) -> bool {
        !self.names.is_empty()
            && self.inodes.live(folder).is_ok_and(|inode| {
                inode.entity.kind == EntityKind::Group
                    && self.names.is_expected(thread, &inode.entity.path, name)
            })
    }

    /// Removes the files that killed writers have left in a group's folder soon, unless this mount has done so before.
    pub fn remove_leftovers_soon(&self, group: &str) {
        self.leftovers.remove_soon(self.nodes.store(), group);
    }

    /// Takes a snapshot of a folder's entries. Blocks on the store. With `may_clean`, files that killed writers have left in the
    /// folder are removed afterwards.
    pub fn list(&self, folder: &Entity, may_clean: bool) -> FsResult<Folder> {
        let mut names = match folder.kind {
            EntityKind::Group => {
                if may_clean {
                    self.remove_leftovers_soon(&folder.path);
                }
                self.names_of_group(&folder.path)?
            }
            EntityKind::Formats => {
                let formats = formats::FORMATS.iter().filter(|format| format.folder.is_none());
                formats
                    .map(|format| (format.name.to_owned(), Entity::new(EntityKind::FormatFolder(format), "")))
                    .collect()
            }
            EntityKind::FormatFolder(format) => {
                self.companion_names.names_of_folder(format, folder.view.as_ref(), &folder.path)?
            }
            EntityKind::Views(format) => views::names_of_views(format),
            EntityKind::PlanesFolder(_) => Vec::new(),
            EntityKind::Internals => {
                let own = self.internal_files.names();
                own.map(|(name, kind)| (name.to_owned(), Entity::new(kind, ""))).collect()
            }
            _ => return Err(Failure::Errno(libc::ENOTDIR)),
        };
        names.retain(|(name, _)| is_showable(name, &folder.path));
        names.sort_by(|a, b| a.0.cmp(&b.0));
        let dots = [(".".to_owned(), folder.clone()), ("..".to_owned(), parent_folder(folder))];
        let entries = dots
            .into_iter()
            .chain(names)
            .map(|(name, entity)| FolderEntry { name, inode: self.inodes.number_of(&entity), entity })
            .collect();
        let planes = PlaneNames::in_folder(&self.nodes, folder, Blocking::Yes)?;
        Ok(Folder { entries, planes })
    }

    fn names_of_group(&self, group: &str) -> FsResult<Vec<(String, Entity)>> {
        let children = self.nodes.members(group)?;
        let generated = self.companion_names.sibling_files(group, &children)?;
        let mut names: Vec<_> = children
            .into_iter()
            .map(|Child { name, is_group, .. }| {
                let kind = if is_group { EntityKind::Group } else { EntityKind::Array };
                let path = join(group, &name);
                (name, Entity::new(kind, path))
            })
            .collect();
        if self.nodes.is_root_array(group, Blocking::Yes)? {
            names.push((self.root_name.to_string(), Entity::new(EntityKind::Array, "")));
        }
        let real: HashSet<String> = names.iter().map(|(name, _)| name.clone()).collect();
        names.extend(generated.into_iter().filter(|(name, _)| !real.contains(name)));
        self.names.list(group, &mut names);
        Ok(names)
    }
}

/// Returns the entity of a name that the root has and does not list.
fn unlisted_root_entry(name: &str) -> Option<Entity> {
    match name {
        INTERNALS => Some(Entity::new(EntityKind::Internals, "")),
        FOLDER => Some(Entity::new(EntityKind::Formats, "")),
        VIEWS => Some(Entity::new(EntityKind::Views(FLAT), "")),
        _ => None,
    }
}

/// An open folder: a snapshot of its entries.
pub struct Folder {
    entries: Vec<FolderEntry>,
    /// The names of planes, if this is a folder of planes.
    planes: Option<PlaneNames>,
}

impl OpenFile for Folder {
    fn entries(&self) -> Option<&[FolderEntry]> {
        Some(&self.entries)
    }

    fn is_report(&self) -> bool {
        self.entries.first().is_some_and(|folder| folder.entity.kind.is_report())
    }

    fn plane(&self, number: u64) -> Option<FolderEntry> {
        self.planes.as_ref()?.entry(number)
    }

    fn content(&self) -> Content {
        let mut hasher = crc32fast::Hasher::new();
        for entry in &self.entries {
            hasher.update(entry.name.as_bytes());
            hasher.update(b"/");
        }
        Content::Folder { fingerprint: (self.entries.len() as u64) << 32 | u64::from(hasher.finalize()) }
    }
}

/// The entries of an open folder.
pub struct Listing(Arc<dyn OpenFile>);

impl Listing {
    /// Returns the entries of an open folder. Fails with EBADF for a file.
    pub fn new(folder: Arc<dyn OpenFile>) -> FsResult<Self> {
        if folder.entries().is_some() { Ok(Listing(folder)) } else { Err(Failure::Errno(libc::EBADF)) }
    }

    /// Returns the entries, `.` and `..` first, without planes.
    pub fn entries(&self) -> &[FolderEntry] {
        self.0.entries().unwrap_or_default()
    }

    /// Returns the entry with this number: first come those of [`Listing::entries`], then planes.
    pub fn entry(&self, number: u64) -> Option<Cow<'_, FolderEntry>> {
        let known = self.entries();
        let first = usize::try_from(number).ok().and_then(|number| known.get(number));
        match first {
            Some(entry) => Some(Cow::Borrowed(entry)),
            None => self.0.plane(number.checked_sub(known.len() as u64)?).map(Cow::Owned),
        }
    }
}

/// Returns whether Linux can show this name, and logs a name that it cannot show.
fn is_showable(name: &str, folder: &str) -> bool {
    let is_showable = !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name != "."
        && name != ".."
        && !name.contains(['/', '\0']);
    if !is_showable {
        log::debug!("/{folder}: the name {name:?} cannot be shown and is left out");
    }
    is_showable
}

/// Returns the parent of a folder.
fn parent_folder(entity: &Entity) -> Entity {
    match entity.kind {
        EntityKind::FormatFolder(format) if entity.path.is_empty() => match entity.view {
            Some(_) => Entity::new(EntityKind::Views(format), ""),
            None => Entity::new(EntityKind::Formats, ""),
        },
        EntityKind::FormatFolder(_) => Entity { path: parent(&entity.path).into(), ..entity.clone() },
        EntityKind::PlanesFolder(format) => {
            let path = parent(&entity.path).into();
            Entity { kind: EntityKind::FormatFolder(format), view: entity.view.clone(), path }
        }
        EntityKind::Views(format) if format != FLAT => Entity::new(EntityKind::FormatFolder(format), ""),
        EntityKind::Group => Entity::new(EntityKind::Group, parent(&entity.path)),
        _ => Entity::new(EntityKind::Group, ""),
    }
}

/// Returns the parent of a path. The root is its own parent.
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Returns whether an error is of a document of a group above a node, and not of the node's own ones. Their keys may be those of another store.
fn is_of_group_above(error: &Error, path: &str) -> bool {
    let Some(key) = error.key().filter(|_| matches!(error, Error::Store { .. })) else { return false };
    let group = key.rsplit_once('/').map_or("", |(group, _)| group);
    !is_at_or_below(key, path) && (group.is_empty() || is_at_or_below(path, group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_groups_above_are_distinguished_from_own_ones() {
        let is_above = |key: &str| {
            is_of_group_above(
                &Error::store(key, "read", std::io::ErrorKind::PermissionDenied.into()),
                "g/h/t",
            )
        };
        assert!(["zarr.json", "g/zarr.json", "g/.zgroup", "g/h/.zmetadata"].into_iter().all(is_above));
        let others =
            ["g/h/t", "g/h/t/zarr.json", "https://example.org/t/zarr.json", "gh/zarr.json", "g/h2/zarr.json"];
        assert!(!others.into_iter().any(is_above));
        assert!(!is_of_group_above(&Error::metadata("g/zarr.json", "is not JSON"), "g/h/t"));
    }
}
