//! Changes of names. `create.rs`, `remove.rs` and `rename.rs` are the operations, and this file has the part that they share.
//!
//! Invariant: names change one after the other, in each member of a catalogue for itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::hierarchy::OpenArrays;
use crate::mount::fs::array_files::open::ArrayFiles;
use crate::mount::fs::entity::{Entity, EntityKind};
use crate::mount::fs::entries::Entries;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::InodeTable;
use crate::mount::fs::names::make::Promotions;
use crate::mount::fs::names::open::ScratchFiles;
use crate::mount::fs::names::permissions::NodePermissions;
use crate::mount::fs::names::table::{ChangingNames, NameTable};
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::open_file::HandleTable;
use crate::mount::fs::request::RequestLog;
use crate::mount::fs::stat::FileAttributes;
use crate::mount::fs::virtual_files::sidecar_edit::Drafts;
use crate::mount::journal::intents::NameIntents;
use crate::mount::options::Options;
use crate::store::member_name;

/// How long a change of a name waits for the lock of an array.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);

/// Makes, removes and renames names.
pub struct NameChanges {
    pub(in crate::mount::fs) nodes: Arc<NodeCache>,
    pub(in crate::mount::fs) inodes: Arc<InodeTable>,
    pub(in crate::mount::fs) arrays: Arc<OpenArrays>,
    pub(in crate::mount::fs) handles: Arc<HandleTable>,
    pub(in crate::mount::fs) table: Arc<NameTable>,
    pub(in crate::mount::fs) entries: Arc<Entries>,
    pub(in crate::mount::fs) attributes: Arc<FileAttributes>,
    pub(in crate::mount::fs) drafts: Arc<Drafts>,
    pub(in crate::mount::fs) array_files: Arc<ArrayFiles>,
    pub(in crate::mount::fs) scratch_files: Arc<ScratchFiles>,
    pub(in crate::mount::fs) promotions: Arc<Promotions>,
    pub(in crate::mount::fs) permissions: Arc<NodePermissions>,
    pub(in crate::mount::fs) intents: Arc<NameIntents>,
    pub(in crate::mount::fs) log: Arc<RequestLog>,
    pub(in crate::mount::fs) options: Arc<Options>,
}

impl NameChanges {
    /// Returns the names that the store does not have.
    pub fn table(&self) -> &NameTable {
        &self.table
    }

    /// Returns the path of a folder's inode, which no change of names alters.
    pub(super) fn path_of(&self, folder: u64) -> FsResult<Arc<str>> {
        Ok(self.inodes.live(folder)?.entity.path.clone())
    }

    /// Locks the changes of names in a folder, and returns the path of its group, by the folder's inode.
    pub(super) fn lock_group(&self, folder: u64) -> FsResult<(Arc<str>, ChangingNames)> {
        let locked = self.table.lock_changes(&self.path_of(folder)?);
        Ok((self.group_to_change(folder)?, locked))
    }

    /// Returns whether two paths are in the same member of a catalogue. In other mounts they always are.
    pub(super) fn is_one_member(&self, one: &str, other: &str) -> bool {
        self.nodes.store().catalogue().is_none() || member_name(one) == member_name(other)
    }

    /// Returns the path of the group in which a name is about to change, by its folder's inode. The caller has locked all changes
    /// of names.
    pub(super) fn group_to_change(&self, folder: u64) -> FsResult<Arc<str>> {
        let inode = self.inodes.live(folder)?;
        if !self.options.writable || self.nodes.store_at(&inode.entity.path).writer().is_none() {
            return Err(Failure::Errno(libc::EROFS));
        }
        let is_root_array = self.nodes.is_root_array(&inode.entity.path, Blocking::Yes)?;
        if inode.entity.kind != EntityKind::Group || is_root_array {
            return Err(Failure::Errno(libc::EPERM));
        }
        if self.inodes.number_of(&inode.entity) != folder {
            // The folder was removed or renamed, or its member has left, and another one may have taken its place. On ESTALE, the kernel looks a
            // member's path up again.
            let is_member = self.nodes.store().catalogue().is_some();
            return Err(Failure::Errno(if is_member { libc::ESTALE } else { libc::ENOENT }));
        }
        // The daemon before this one may have died in a change of a name here.
        self.entries.remove_leftovers_soon(&inode.entity.path);
        Ok(inode.entity.path.clone())
    }

    /// Returns whether programs may remove and rename a node.
    pub(super) fn may_delete(&self, path: &str) -> bool {
        self.options.delete && self.nodes.admits_delete(path)
    }

    /// Returns what a name in a folder stands for.
    pub(super) fn find_name(&self, folder: u64, name: &str) -> FsResult<Option<Entity>> {
        self.entries.find(&self.inodes.live(folder)?.entity, name, Blocking::Yes)
    }

    /// Locks an array against other programs, unless `is_ours` returns that this mount has its lock. Fails if another program has the array
    /// open for writing. Waits a moment before that: a thread of this daemon that stores what a former one has left, or that closes the last
    /// file, has the lock, too, and may not have recorded that the array is open, or that it is not.
    pub(super) fn lock_against_others(
        &self,
        path: &str,
        is_ours: impl Fn() -> bool,
    ) -> FsResult<Option<Box<dyn Send + Sync>>> {
        let store = self.nodes.store_at(path);
        let Some(writer) = store.writer() else { return Err(Failure::Errno(libc::EROFS)) };
        let deadline = Instant::now() + LOCK_PATIENCE;
        while !is_ours() {
            match writer.lock(path) {
                Ok(None) if Instant::now() < deadline => std::thread::sleep(LOCK_PATIENCE / 25),
                Ok(None) => {
                    return Err(Error::busy(path, "another program has this array open for writing").into());
                }
                Ok(lock) => return Ok(lock),
                // The array has no folder of its own, and nothing to lock.
                Err(Error::Stale { .. }) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}
