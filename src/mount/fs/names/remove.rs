//! Removing names: unlink and rmdir.
//!
//! Invariants: a handle of a removed array gets ESTALE, and what was written and not stored is dropped; a folder is removed only if
//! it has nothing else in the store, either.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::array::Array;
use crate::formats::{CompanionPlace, Role};
use crate::hierarchy::{DOCUMENT_NAMES, author};
use crate::mount::fs::entity::{Entity, EntityKind};
use crate::mount::fs::entries::parent;
use crate::mount::fs::error::{Failure, FsResult};
use crate::mount::fs::inode::Inode;
use crate::mount::fs::names::changes::NameChanges;
use crate::mount::fs::names::scratch::Caller;
use crate::store::{is_temporary_name, join};

impl NameChanges {
    /// Does unlink(2) of a scratch file, of an array or its sidecar, or of a generated file that another one is about to replace.
    pub fn unlink(&self, folder: u64, name: &str, caller: Caller) -> FsResult<()> {
        let (group, _changing) = self.lock_group(folder)?;
        let path = join(&group, name);
        let found = self.find_name(folder, name)?;
        let has_begun = self.intents.has_begun(caller.request);
        if has_begun && found.as_ref().is_none_or(|found| found.kind == EntityKind::Group) {
            let array = name.strip_suffix(".json").map_or_else(|| path.clone(), |stem| join(&group, stem));
            return self.finish_removal(&array);
        }
        let Some(entity) = found else { return Err(Failure::Errno(libc::ENOENT)) };
        match entity.kind {
            EntityKind::Scratch(_) => {
                log::info!("/{path}: this scratch file was removed");
                self.table.remove(&group, name);
                Ok(())
            }
            EntityKind::Array if self.may_delete(&entity.path) => {
                self.remove_array(&entity.path, caller, "unlink")
            }
            EntityKind::Companion(format, CompanionPlace::NextToNode) if entity.view.is_none() => {
                let is_array = self.nodes.current(&entity.path)?.is_array();
                match (format.role, self.may_delete(&entity.path)) {
                    (Role::Sidecar, true) if is_array => self.remove_array(&entity.path, caller, "unlink"),
                    (Role::Sidecar, _) | (_, true) => {
                        self.table.vacate(&group, name, &entity);
                        Ok(())
                    }
                    _ => Err(Failure::Errno(libc::EPERM)),
                }
            }
            EntityKind::Group => Err(Failure::Errno(libc::EISDIR)),
            _ => {
                log::debug!("unlink of /{path}: the store determines the names");
                Err(Failure::Errno(libc::EPERM))
            }
        }
    }

    /// Does rmdir(2) of an empty group.
    pub fn remove_folder(&self, folder: u64, name: &str, caller: Caller) -> FsResult<()> {
        let (group, _changing) = self.lock_group(folder)?;
        if !self.may_delete(&group) {
            return Err(Failure::Errno(libc::EPERM));
        }
        let path = join(&group, name);
        let Some(entity) = self.find_name(folder, name)? else {
            // A daemon that has died has removed it for this request.
            let has_begun = self.intents.has_begun(caller.request);
            return if has_begun { Ok(()) } else { Err(Failure::Errno(libc::ENOENT)) };
        };
        match entity.kind {
            EntityKind::Group => {}
            EntityKind::Internals | EntityKind::Formats | EntityKind::Views(_) => {
                return Err(Failure::Errno(libc::EPERM));
            }
            _ => return Err(Failure::Errno(libc::ENOTDIR)),
        }
        if self.table.has_files(&path) || !self.nodes.children(&path)?.is_empty() {
            return Err(Failure::Errno(libc::ENOTEMPTY));
        }
        if let Some(other) = self.hidden_file(&path)? {
            let reason = format!("the store has '{other}' in it, which is not an array or group");
            return self.log.refuse_name("rmdir", &path, libc::ENOTEMPTY, reason);
        }
        self.intents.begin(caller.request);
        let removed = author::remove(&self.nodes.store_at(&path), &path);
        self.nodes.expire();
        removed.map_err(|error| self.log.record_failed_name("rmdir", &path, error.into()))?;
        self.table.remove_group(&path);
        self.end_nodes(&path);
        Ok(())
    }

    /// Removes what a daemon that has died has left of an array. In a store without folders, the documents go first, and objects
    /// without a document look like a group.
    fn finish_removal(&self, path: &str) -> FsResult<()> {
        let removed = author::remove_remains(&self.nodes.store_at(path), path);
        self.nodes.expire();
        removed.map_err(|error| self.log.record_failed_name("unlink", path, error.into()))?;
        self.end_nodes(path);
        Ok(())
    }

    /// Retires the inodes of a node that is gone, and of all nodes below it. Returns the arrays that are open.
    pub(super) fn end_nodes(&self, path: &str) -> Vec<(Arc<Inode>, Arc<Array>)> {
        self.drafts.forget_errors(path);
        self.inodes.retire_below(path)
    }

    /// Returns the name of a file or folder that a group's folder in the store has in addition to its documents.
    fn hidden_file(&self, path: &str) -> FsResult<Option<String>> {
        let mut hidden = None;
        self.nodes.store_at(path).each_name(path, &mut |entry| {
            if DOCUMENT_NAMES.contains(&entry.name.as_str()) || is_temporary_name(&entry.name) {
                return ControlFlow::Continue(());
            }
            hidden = Some(entry.name.clone());
            ControlFlow::Break(())
        })?;
        Ok(hidden)
    }

    /// Removes an array with its sidecar, and ends its handles.
    fn remove_array(&self, path: &str, caller: Caller, request: &str) -> FsResult<()> {
        let removed = self.try_remove_array(path, caller);
        self.nodes.expire();
        removed.map_err(|failure| self.log.record_failed_name(request, path, failure))
    }

    fn try_remove_array(&self, path: &str, caller: Caller) -> FsResult<()> {
        if path.is_empty() {
            return Err(Failure::Errno(libc::EPERM));
        }
        self.permissions.check_writable(path, caller)?;
        let open = || self.arrays.current(None, path).and_then(|open| open.array.clone().ok());
        let is_ours =
            || open().is_some_and(|array| array.writer().has_writers() || array.writer().is_dirty());
        let _lock = self.lock_against_others(path, is_ours)?;
        let open = open();
        self.keep_for_listings(path);
        self.intents.begin(caller.request);
        let store = self.nodes.store_at(path);
        let remove = || author::remove(&store, path);
        match open {
            None => remove()?,
            Some(array) => {
                if array.writer().end(remove)? {
                    log::warn!(
                        "/{path}: removed while it was open: what was written and not stored yet is dropped"
                    );
                }
            }
        }
        self.end_nodes(path);
        Ok(())
    }

    /// Keeps the names of a removed array's files for the listings that are open: `rm -r` removes each name that it has listed.
    fn keep_for_listings(&self, path: &str) {
        let group = parent(path);
        let folder = Entity::new(EntityKind::Group, group);
        for (handle, listing) in self.handles.listings(&folder) {
            for entry in listing.entries().unwrap_or_default() {
                if *entry.entity.path != *path
                    || matches!(entry.entity.kind, EntityKind::Array | EntityKind::Group)
                {
                    continue;
                }
                self.table.keep_for_listing(group, &entry.name, handle);
            }
        }
    }
}
