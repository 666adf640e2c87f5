//! Removing names: unlink and rmdir.
//!
//! Invariants: a handle of an array that is removed gets ESTALE, and what it wrote and did not store is dropped; a folder is
//! removed only if the store has nothing in it either.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use super::{Caller, Entry};
use crate::array::{Array, Blocking};
use crate::error::Error;
use crate::formats::{Place, Role};
use crate::hierarchy::{DOCUMENT_NAMES, author};
use crate::mount::fs::error::{Failure, FsResult};
use crate::mount::fs::inode::{Entity, Inode, Kind};
use crate::mount::fs::{FileSystem, parent};
use crate::store::{is_temporary_name, join};

impl FileSystem {
    /// unlink(2): a scratch file, an array or its sidecar, or a generated file that another will replace.
    pub fn unlink(&self, folder: u64, name: &str, caller: Caller) -> FsResult<()> {
        let _changing = self.names.changing.lock();
        let group = self.group_to_change(folder)?;
        let path = join(&group, name);
        let entity = self.find_name(folder, name)?.ok_or(Failure::Errno(libc::ENOENT))?;
        match entity.kind {
            Kind::Scratch(_) => {
                log::info!("/{path}: this scratch file was removed");
                self.remove_name(&group, name);
                Ok(())
            }
            Kind::Array if self.options.delete => self.remove_array(&entity.path, caller, "unlink"),
            Kind::Companion(format, Place::Beside) if entity.view.is_none() => {
                let is_array = self.nodes.current(&entity.path)?.is_array();
                match (format.role, self.options.delete) {
                    (Role::Sidecar, true) if is_array => self.remove_array(&entity.path, caller, "unlink"),
                    (Role::Sidecar, _) | (_, true) => {
                        self.vacate(&group, name, &entity);
                        Ok(())
                    }
                    _ => Err(Failure::Errno(libc::EPERM)),
                }
            }
            Kind::Group => Err(Failure::Errno(libc::EISDIR)),
            _ => {
                log::debug!("unlink of /{path}: the store determines the names");
                Err(Failure::Errno(libc::EPERM))
            }
        }
    }

    /// rmdir(2): an empty group.
    pub fn remove_folder(&self, folder: u64, name: &str) -> FsResult<()> {
        let _changing = self.names.changing.lock();
        let group = self.group_to_change(folder)?;
        if !self.options.delete {
            return Err(Failure::Errno(libc::EPERM));
        }
        let entity = self.find_name(folder, name)?.ok_or(Failure::Errno(libc::ENOENT))?;
        let path = join(&group, name);
        match entity.kind {
            Kind::Group => {}
            Kind::Internals | Kind::Formats | Kind::Views(_) => return Err(Failure::Errno(libc::EPERM)),
            _ => return Err(Failure::Errno(libc::ENOTDIR)),
        }
        if self.names.has_files(&path) || !self.nodes.children(&path)?.is_empty() {
            return Err(Failure::Errno(libc::ENOTEMPTY));
        }
        if let Some(other) = self.other_file(&path)? {
            let reason = format!("the store has '{other}' in it, which is no array or group");
            return self.refuse(("rmdir", &path), libc::ENOTEMPTY, reason);
        }
        let removed = author::remove(self.nodes.store(), &path);
        self.nodes.expire();
        removed.map_err(|error| self.note_names("rmdir", &path, error.into()))?;
        for entry in self.names.remove_group(&path) {
            self.end_entry(Some(entry));
        }
        self.retire_below(&path);
        Ok(())
    }

    /// A file or folder that a group's folder in the store has beside its documents.
    fn other_file(&self, path: &str) -> FsResult<Option<String>> {
        let mut other = None;
        self.nodes.store().each_name(path, &mut |entry| {
            if DOCUMENT_NAMES.contains(&entry.name.as_str()) || is_temporary_name(&entry.name) {
                return ControlFlow::Continue(());
            }
            other = Some(entry.name.clone());
            ControlFlow::Break(())
        })?;
        Ok(other)
    }

    /// Removes an array with its sidecar, and ends its handles.
    fn remove_array(&self, path: &str, caller: Caller, request: &str) -> FsResult<()> {
        let removed = self.try_remove_array(path, caller);
        self.nodes.expire();
        removed.map_err(|failure| self.note_names(request, path, failure))
    }

    fn try_remove_array(&self, path: &str, caller: Caller) -> FsResult<()> {
        if path.is_empty() {
            return Err(Failure::Errno(libc::EPERM));
        }
        self.check_permission(path, caller)?;
        let open = self.arrays.current(None, path).and_then(|open| open.array.clone().ok());
        let _lock = match &open {
            Some(array) if array.has_writers() || array.is_dirty() => None,
            _ => self.lock_against_others(path)?,
        };
        self.leave_over(path);
        let remove = || author::remove(self.nodes.store(), path);
        match open {
            None => remove()?,
            Some(array) => {
                if array.end(remove)? {
                    log::warn!(
                        "/{path}: removed while it was open: what was written and not stored yet is dropped"
                    );
                }
            }
        }
        self.retire_below(path);
        Ok(())
    }

    /// Fails where the user may not write the node's document.
    pub(super) fn check_permission(&self, path: &str, caller: Caller) -> FsResult<()> {
        let cached = self.nodes.current(path)?;
        let node = cached.node.as_deref().ok_or(Failure::Errno(libc::ENOENT))?;
        match self.permissions.lets_write(node.info(), (caller.uid, caller.gid)) {
            true => Ok(()),
            false => Err(Failure::Errno(libc::EACCES)),
        }
    }

    /// The lock of an array; fails where another program writes it.
    pub(super) fn lock_against_others(&self, path: &str) -> FsResult<Option<Box<dyn Send + Sync>>> {
        let Some(writer) = self.nodes.store().writer() else { return Err(Failure::Errno(libc::EROFS)) };
        match writer.lock(path) {
            Ok(None) => Err(Error::busy(path, "another program has this array open for writing").into()),
            Ok(lock) => Ok(lock),
            // It has no folder of its own.
            Err(Error::Stale { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// What a name in a folder stands for.
    pub(super) fn find_name(&self, folder: u64, name: &str) -> FsResult<Option<Entity>> {
        self.child(&self.inode(folder)?.entity, name, Blocking::Yes)
    }

    /// Takes a generated file away until another is made in its place, for a while.
    pub(super) fn vacate(&self, group: &str, name: &str, entity: &Entity) {
        let before = self.names.insert(group, name, Entry::Vacant(Instant::now()));
        self.end_entry(before);
        if let Some(inode) = self.inodes.existing(entity) {
            // The kernel marks an inode whose name was removed.
            self.inodes.retire(&inode);
        }
    }

    /// The names of an array that is removed stay in the listings that are open: `rm -r` removes each name that it has listed.
    fn leave_over(&self, path: &str) {
        let group = parent(path);
        let folder = Entity::new(Kind::Group, group);
        for (handle, listing) in self.handles.listings(&folder) {
            for entry in listing.entries().unwrap_or_default() {
                if *entry.entity.path != *path || matches!(entry.entity.kind, Kind::Array | Kind::Group) {
                    continue;
                }
                self.leave_name_over((group, &entry.name), handle);
            }
        }
    }

    fn leave_name_over(&self, (group, name): (&str, &str), handle: u64) {
        match self.names.remove(group, name) {
            Some(Entry::LeftOver(file, mut handles)) => {
                handles.push(handle);
                self.names.insert(group, name, Entry::LeftOver(file, handles));
            }
            before => {
                self.end_entry(before);
                let (uid, gid) = crate::sys::effective_ids();
                let file = self.new_file((0o644, Caller { uid, gid, thread: 0 }));
                file.set_place(group, name);
                self.inodes.look_up(&file.entity());
                self.names.insert(group, name, Entry::LeftOver(file, vec![handle]));
            }
        }
    }

    /// Retires the inodes of a node and of all below it: the kernel keeps what it knows of them apart from what comes in their place.
    pub(super) fn retire_below(&self, path: &str) {
        for inode in self.inodes.below(path) {
            self.inodes.retire(&inode);
        }
    }

    /// The open arrays of a node and below it.
    pub(super) fn open_below(&self, path: &str) -> Vec<(Arc<Inode>, Arc<Array>)> {
        let open = |inode: Arc<Inode>| {
            let array = inode.open_array()?.array.clone().ok()?;
            Some((inode, array))
        };
        self.inodes.below(path).into_iter().filter_map(open).collect()
    }
}
