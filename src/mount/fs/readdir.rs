//! Listing folders: opendir takes a snapshot, readdir serves it.

use std::collections::HashSet;
use std::sync::Arc;

use crate::hierarchy::attributes;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::handle::{FolderEntry, OpenFile};
use crate::mount::fs::inode::{Entity, Kind};
use crate::mount::fs::open_files::Folder;
use crate::mount::fs::virtual_files::companions;
use crate::mount::fs::{
    CONFIG, FileSystem, GROUP_SIDECAR, LAST_ERROR, MAX_NAME_BYTES, SIDECAR_SUFFIX, STATS, Stat, UNSAVED,
    parent,
};
use crate::store::join;

/// The entries of an open folder.
pub struct Listing(Arc<dyn OpenFile>);

impl Listing {
    /// The entries, `.` and `..` first.
    pub fn entries(&self) -> &[FolderEntry] {
        self.0.entries().unwrap_or_default()
    }
}

impl FileSystem {
    /// Opens a folder with a snapshot of its entries. Blocks on the store.
    pub fn open_folder(&self, inode: u64) -> FsResult<u64> {
        let inode = self.inode(inode)?;
        let folder = &inode.entity;
        let mut names = match folder.kind {
            Kind::Group => {
                self.remove_leftovers(&folder.path);
                self.names_of_group(&folder.path)?
            }
            Kind::JsonFolder => self.names_of_json_folder(&folder.path)?,
            Kind::Formats => companions::names_of_formats(),
            Kind::FormatFolder(format) => companions::names_of_folder(&self.context(), format, &folder.path)?,
            Kind::Internals => vec![
                (STATS.to_owned(), Entity::new(Kind::Stats, "")),
                (CONFIG.to_owned(), Entity::new(Kind::Config, "")),
                (UNSAVED.to_owned(), Entity::new(Kind::DirtyReport, "")),
                (LAST_ERROR.to_owned(), Entity::new(Kind::LastError, "")),
            ],
            _ => return Err(Failure::Errno(libc::ENOTDIR)),
        };
        names.retain(|(name, _)| is_showable(name, &folder.path));
        names.sort_by(|a, b| a.0.cmp(&b.0));
        let dots = [(".".to_owned(), folder.clone()), ("..".to_owned(), parent_folder(folder))];
        let entry = |(name, entity): (String, Entity)| {
            let inode = self.inodes.of(&entity).number;
            FolderEntry { name, entity, inode }
        };
        let entries = dots.into_iter().chain(names).map(entry).collect();
        Ok(self.handles.add(Folder(entries)))
    }

    /// Removes the temporary files of crashed writers from a group's folder, once in the life of a writable
    /// mount. (An array's folder is cleaned when the array is opened for writing.)
    pub fn remove_leftovers(&self, group: &str) {
        if let Some(writer) = self.nodes.store().writer().filter(|_| self.options.writable)
            && self.searched.lock().insert(group.into())
        {
            attributes::remove_leftovers(writer, group);
        }
    }

    /// The entries of an open folder.
    pub fn listing(&self, handle: u64) -> FsResult<Listing> {
        let folder = self.file(handle)?;
        if folder.entries().is_some() { Ok(Listing(folder)) } else { Err(Failure::Errno(libc::EBADF)) }
    }

    /// The attributes of an entry, for readdirplus.
    pub fn entry_attributes(&self, entry: &FolderEntry, blocking: Blocking) -> FsResult<Stat> {
        // A lookup makes a companion file, listing its folder does not.
        let blocking = if matches!(entry.entity.kind, Kind::Companion(_)) { Blocking::No } else { blocking };
        self.stat_entity(&entry.entity, blocking)
    }

    fn names_of_group(&self, group: &str) -> FsResult<Vec<(String, Entity)>> {
        if group.is_empty() && self.nodes.root_is_array(Blocking::Yes)? {
            return Ok(vec![
                (self.root_name.clone(), Entity::new(Kind::Array, "")),
                (format!("{}{SIDECAR_SUFFIX}", self.root_name), Entity::new(Kind::Sidecar, "")),
            ]);
        }
        let children = self.nodes.children(group)?;
        let real: HashSet<&str> = children.iter().map(|child| child.name.as_str()).collect();
        let mut names = Vec::with_capacity(2 * children.len() + 1);
        for child in &children {
            let path: Arc<str> = join(group, &child.name).into();
            if child.is_group {
                names.push((child.name.clone(), Entity::new(Kind::Group, path)));
                continue;
            }
            names.push((child.name.clone(), Entity::new(Kind::Array, path.clone())));
            let sidecar = format!("{}{SIDECAR_SUFFIX}", child.name);
            if !real.contains(sidecar.as_str()) && sidecar != GROUP_SIDECAR {
                names.push((sidecar, Entity::new(Kind::Sidecar, path)));
            }
        }
        if !real.contains(GROUP_SIDECAR) {
            names.push((GROUP_SIDECAR.to_owned(), Entity::new(Kind::GroupSidecar, group)));
        }
        Ok(names)
    }

    fn names_of_json_folder(&self, group: &str) -> FsResult<Vec<(String, Entity)>> {
        if group.is_empty() && self.nodes.root_is_array(Blocking::Yes)? {
            let name = format!("{}{SIDECAR_SUFFIX}", self.root_name);
            return Ok(vec![(name, Entity::new(Kind::JsonSidecar, ""))]);
        }
        let children = self.nodes.children(group)?;
        let mut names = vec![(GROUP_SIDECAR.to_owned(), Entity::new(Kind::JsonGroupSidecar, group))];
        let mut taken: HashSet<String> = HashSet::from([GROUP_SIDECAR.to_owned()]);
        // Sidecars first: in this folder they win over a group of the same name.
        for child in children.iter().filter(|child| !child.is_group) {
            let name = format!("{}{SIDECAR_SUFFIX}", child.name);
            if taken.insert(name.clone()) {
                names.push((name, Entity::new(Kind::JsonSidecar, join(group, &child.name))));
            }
        }
        for child in children.iter().filter(|child| child.is_group) {
            if taken.insert(child.name.clone()) {
                names.push((child.name.clone(), Entity::new(Kind::JsonFolder, join(group, &child.name))));
            }
        }
        Ok(names)
    }
}

/// Whether Linux can show this name; a name that cannot be shown is logged and left out.
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

/// The parent folder of a folder.
fn parent_folder(entity: &Entity) -> Entity {
    match entity.kind {
        Kind::JsonFolder if entity.path.is_empty() => Entity::new(Kind::Formats, ""),
        Kind::JsonFolder => Entity::new(Kind::JsonFolder, parent(&entity.path)),
        Kind::FormatFolder(_) if entity.path.is_empty() => Entity::new(Kind::Formats, ""),
        Kind::FormatFolder(_) => Entity::new(entity.kind, parent(&entity.path)),
        Kind::Group => Entity::new(Kind::Group, parent(&entity.path)),
        _ => Entity::new(Kind::Group, ""),
    }
}
