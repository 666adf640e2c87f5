//! Listing folders: opendir takes a snapshot, readdir serves it. The names of planes, which may be any number, are made one by one.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use crate::formats::views::FLAT;
use crate::formats::{self, Role};
use crate::hierarchy::Child;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::handle::{FolderEntry, OpenFile};
use crate::mount::fs::inode::{Entity, Kind};
use crate::mount::fs::open_files::Folder;
use crate::mount::fs::virtual_files::companion_names;
use crate::mount::fs::virtual_files::views::{self, PlaneNames};
use crate::mount::fs::{
    COMMIT, CONFIG, FileSystem, LAST_ERROR, MAX_NAME_BYTES, SLOW, STATS, Stat, UNSAVED, parent,
};
use crate::store::join;

/// The entries of an open folder.
pub struct Listing(Arc<dyn OpenFile>);

impl Listing {
    /// The entries, `.` and `..` first.
    pub fn entries(&self) -> &[FolderEntry] {
        self.0.entries().unwrap_or_default()
    }

    /// The entry with this number: those of [`Listing::entries`], and then the planes of a folder of planes.
    pub fn entry(&self, number: u64) -> Option<Cow<'_, FolderEntry>> {
        let known = self.entries();
        let first = usize::try_from(number).ok().and_then(|number| known.get(number));
        match first {
            Some(entry) => Some(Cow::Borrowed(entry)),
            None => self.0.plane(number.checked_sub(known.len() as u64)?).map(Cow::Owned),
        }
    }
}

impl FileSystem {
    /// As [`FileSystem::open_folder`], for a thread, 0 if unknown: it sees all that is there.
    pub fn open_folder_by(&self, inode: u64, thread: u32) -> FsResult<u64> {
        self.end_expected(inode, thread);
        self.open_folder(inode)
    }

    /// Opens a folder with a snapshot of its entries. Blocks on the store.
    pub fn open_folder(&self, inode: u64) -> FsResult<u64> {
        let inode = self.inode(inode)?;
        let folder = &inode.entity;
        let mut names = match folder.kind {
            Kind::Group => {
                if self.options.writable {
                    self.leftovers.remove_soon(self.nodes.store(), &folder.path);
                }
                self.names_of_group(&folder.path)?
            }
            Kind::Formats => {
                let folder = |format| Entity::new(Kind::FormatFolder(format), "");
                formats::FORMATS.iter().map(|format| (format.name.to_owned(), folder(format))).collect()
            }
            Kind::FormatFolder(format) => {
                companion_names::names_of_folder(&self.context(), format, (folder.view, &folder.path))?
            }
            Kind::Views(format) => views::names_of_views(format),
            Kind::PlanesFolder(_) => Vec::new(),
            Kind::Internals => self.own_files(),
            _ => return Err(Failure::Errno(libc::ENOTDIR)),
        };
        names.retain(|(name, _)| is_showable(name, &folder.path));
        names.sort_by(|a, b| a.0.cmp(&b.0));
        let dots = [(".".to_owned(), folder.clone()), ("..".to_owned(), parent_folder(folder))];
        let entry = |(name, entity): (String, Entity)| {
            let inode = self.inodes.number_of(&entity);
            FolderEntry { name, entity, inode }
        };
        let entries = dots.into_iter().chain(names).map(entry).collect();
        let planes = PlaneNames::of(&self.context(), folder, Blocking::Yes)?;
        Ok(self.handles.add(Folder { entries, planes }))
    }

    /// The mount's own files.
    fn own_files(&self) -> Vec<(String, Entity)> {
        let file = |name: &str, kind| (name.to_owned(), Entity::new(kind, ""));
        let mut files = vec![
            file(STATS, Kind::Stats),
            file(CONFIG, Kind::Config),
            file(UNSAVED, Kind::DirtyReport),
            file(LAST_ERROR, Kind::LastError),
            file(SLOW, Kind::SlowRequests),
        ];
        files.extend(self.takes_commits().then(|| file(COMMIT, Kind::Commit)));
        files
    }

    /// The entries of an open folder.
    pub fn listing(&self, handle: u64) -> FsResult<Listing> {
        let folder = self.file(handle)?;
        if folder.entries().is_some() { Ok(Listing(folder)) } else { Err(Failure::Errno(libc::EBADF)) }
    }

    /// The attributes of an entry, for readdirplus.
    pub fn entry_attributes(&self, entry: &FolderEntry, blocking: Blocking) -> FsResult<Stat> {
        // A lookup makes a companion file, listing its folder does not. A sidecar needs only the documents.
        let blocking = match entry.entity.kind {
            Kind::Companion(format, _) if format.role != Role::Sidecar => Blocking::No,
            _ => blocking,
        };
        self.stat_entity(&entry.entity, blocking)
    }

    /// The inode of an entry that the kernel is told of.
    pub fn inode_of_entry(&self, entry: &FolderEntry) -> u64 {
        if entry.entity.is_transient() { self.inodes.look_up(&entry.entity) } else { entry.inode }
    }

    fn names_of_group(&self, group: &str) -> FsResult<Vec<(String, Entity)>> {
        let ctx = self.context();
        let children = ctx.children(group)?;
        let generated = companion_names::files_beside(&ctx, group, &children)?;
        let node = |child: Child| {
            let kind = if child.is_group { Kind::Group } else { Kind::Array };
            let path = join(group, &child.name);
            (child.name, Entity::new(kind, path))
        };
        let mut names: Vec<_> = children.into_iter().map(node).collect();
        if ctx.is_root_array(group, Blocking::Yes)? {
            names.push((self.root_name.clone(), Entity::new(Kind::Array, "")));
        }
        let real: HashSet<String> = names.iter().map(|(name, _)| name.clone()).collect();
        names.extend(generated.into_iter().filter(|(name, _)| !real.contains(name)));
        self.names.list(group, &mut names);
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
        Kind::FormatFolder(format) if entity.path.is_empty() => match entity.view {
            Some(_) => Entity::new(Kind::Views(format), ""),
            None => Entity::new(Kind::Formats, ""),
        },
        Kind::FormatFolder(_) => Entity { path: parent(&entity.path).into(), ..entity.clone() },
        Kind::PlanesFolder(format) => {
            let path = parent(&entity.path).into();
            Entity { kind: Kind::FormatFolder(format), view: entity.view, path }
        }
        Kind::Views(format) if format != FLAT => Entity::new(Kind::FormatFolder(format), ""),
        Kind::Group => Entity::new(Kind::Group, parent(&entity.path)),
        _ => Entity::new(Kind::Group, ""),
    }
}
