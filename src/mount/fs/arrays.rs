//! The arrays of inodes: taken from the table of open arrays, and compared with the store.
//!
//! Uses `hierarchy` for the table. This module knows what a change means for the kernel: which inode goes, and which pages.

use std::sync::Arc;

use parking_lot::MutexGuard;

use crate::array::Array;
use crate::cancellation::Cancellation;
use crate::formats::virtual_file::VirtualFile;
use crate::hierarchy::{Node, Reconciled, SharedArray, View};
use crate::mount::fs::FileSystem;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::{Entity, Inode};
use crate::mount::fs::node_cache::CachedNode;
use crate::mount::fs::virtual_files::Context;
use crate::store::Readers;

/// An array that a file shows beside the array's own file.
pub struct ArrayInUse {
    /// The inode of the array's own file.
    pub inode: Arc<Inode>,
    /// The users that may read the array.
    pub readers: Arc<Readers>,
}

impl Context<'_> {
    /// Brings the inode of an array in line with the store: unchanged, grown in place, or replaced by another
    /// array. In the last case the old handles get ESTALE.
    pub(super) fn reconcile(&self, entity: &Entity, cached: &CachedNode, blocking: Blocking) -> FsResult<()> {
        let Some(inode) = self.inodes.existing(entity) else { return Ok(()) };
        let Some(shared) = &inode.shared else { return Ok(()) };
        let note_new_size = || inode.page_cache_users.drops.note_new_size();
        match self.arrays.reconcile(shared, cached.state(), blocking == Blocking::Yes, note_new_size) {
            Reconciled::Current => {}
            Reconciled::Replaced => self.inodes.retire(&inode),
            Reconciled::WouldBlock => return Err(Failure::WouldBlock),
        }
        Ok(())
    }

    /// The open array at a path, or a view of it, for another file that shows its bytes. Blocks on the store.
    pub(super) fn shared_array(&self, view: Option<View>, path: &str) -> FsResult<Arc<SharedArray>> {
        let cached = self.nodes.get(path, Blocking::Yes)?;
        let entity = Entity::of_array(view, path);
        self.reconcile(&entity, &cached, Blocking::Yes)?;
        let inode = self.inodes.of(&entity);
        let shared = inode.shared.as_ref().ok_or(Failure::Errno(libc::ESTALE))?;
        self.arrays.open(shared, cached.state())?;
        Ok(shared.clone())
    }
}

impl FileSystem {
    /// Compares the array of open handles with the store, once per `revalidate`: an array that was removed or
    /// replaced must not be read as fill values.
    pub(super) fn recheck(&self, inode: &Inode) -> FsResult<()> {
        let Some(shared) = &inode.shared else { return Ok(()) };
        if !shared.is_check_due(self.nodes.revalidate()) {
            return Ok(());
        }
        let Some(open) = shared.current() else { return Ok(()) };
        if self.nodes.version(&inode.entity.path)? != open.version {
            let cached = self.nodes.current(&inode.entity.path)?;
            self.context().reconcile(&inode.entity, &cached, Blocking::Yes)?;
        }
        Ok(())
    }

    /// Compares the chunks that readers have seen with the store, for an open(2) of a file that shows them. The next open
    /// of the array's own file waits until the returned lock is released.
    pub(super) fn revalidate<'a>(
        &self,
        inode: &'a Inode,
        shared: &SharedArray,
        array: &Array,
        cancellation: &Cancellation,
    ) -> FsResult<MutexGuard<'a, ()>> {
        // The kernel has no pages of a file that was never opened.
        let is_first = shared.note_check();
        let opening = inode.page_cache_users.opening.lock();
        // Also with direct I/O: changed chunks must leave the chunk cache.
        if !array.revalidate(cancellation)? && !is_first {
            inode.page_cache_users.drops.note_reason();
        }
        Ok(opening)
    }

    /// The part of open(2) that concerns the arrays of a virtual file. ESTALE where one of them was replaced.
    pub(super) fn use_arrays(
        &self,
        file: &VirtualFile,
        cancellation: &Cancellation,
    ) -> FsResult<Vec<ArrayInUse>> {
        let mut used: Vec<ArrayInUse> = Vec::new();
        for shared in file.arrays() {
            let inode = self.inodes.of(&Entity::of_array(shared.view, shared.path.clone()));
            if used.iter().any(|array| Arc::ptr_eq(&array.inode, &inode)) {
                continue;
            }
            let cached = self.nodes.current(&shared.path)?;
            self.context().reconcile(&inode.entity, &cached, Blocking::Yes)?;
            if shared.is_stale() {
                return Err(Failure::Errno(libc::ESTALE));
            }
            let readers = shared.audience.admit(self.permissions.readers(cached.node.as_deref()));
            self.store_what_view_shows(shared)?;
            drop(self.revalidate(&inode, shared, &*self.array_of(&inode)?, cancellation)?);
            used.push(ArrayInUse { inode, readers });
        }
        Ok(used)
    }
}

impl FileSystem {
    /// Stores what was written to the array that a view is of: views read the store.
    fn store_what_view_shows(&self, shared: &SharedArray) -> FsResult<()> {
        if shared.view.is_some()
            && let Some(open) = self.arrays.current(None, &shared.path)
            && let Ok(array) = &open.array
        {
            array.flush()?;
        }
        Ok(())
    }
}

/// The size of an array in stat(2); `None` where it is unknown.
pub(super) fn shown_size(cached: &CachedNode) -> Option<u64> {
    match cached.node.as_deref() {
        Some(Node::Array { metadata, .. }) => metadata.flat_size(),
        Some(Node::Broken { size_bytes, .. }) => *size_bytes,
        Some(Node::Group { .. }) | None => None,
    }
}
