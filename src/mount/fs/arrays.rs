//! The open arrays of inodes: built at the first open, compared with the store, grown in place or replaced.
//!
//! Uses `array` and `store`. Chunks are read with the rights of this process into caches that all readers
//! share. So chunks must be readable by every user that may read the array's file.

use std::sync::Arc;
use std::time::Instant;

use crate::array::Array;
use crate::hierarchy::Node;
use crate::metadata::ArrayMetadata;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::{Entity, Inode, OpenArray};
use crate::mount::fs::node_cache::CachedNode;
use crate::mount::fs::{FileSystem, flat_size};
use crate::mount::options::Options;

impl FileSystem {
    /// The array of an inode, built at the first call; fails where the array cannot be served.
    pub(super) fn built_array(&self, inode: &Inode, cached: &CachedNode) -> FsResult<Arc<Array>> {
        let Some(Node::Array { metadata, .. }) = &cached.node else {
            return Err(Failure::Errno(libc::ESTALE));
        };
        let mut slot = inode.open_array.write();
        let open = match &*slot {
            Some(open) => open.clone(),
            None => {
                let array = self.context().build_array(&inode.entity.path, metadata, &inode.audience);
                let (metadata, version) = (metadata.clone(), cached.version);
                let open = Arc::new(OpenArray { metadata, version, read_at: cached.read_at, array });
                *slot = Some(open.clone());
                open
            }
        };
        drop(slot);
        Ok(open.array.clone()?)
    }

    /// Compares the array of open handles with the store, once per `revalidate`: an array that was removed or
    /// replaced must not be read as fill values.
    pub(super) fn recheck(&self, inode: &Inode) -> FsResult<()> {
        let now = Instant::now();
        {
            let mut checked_at = inode.checked_at.lock();
            if checked_at.is_some_and(|at| now.duration_since(at) < self.nodes.revalidate()) {
                return Ok(());
            }
            *checked_at = Some(now);
        }
        let Some(open) = inode.open_array() else { return Ok(()) };
        if self.nodes.version(&inode.entity.path)? != open.version {
            let cached = self.nodes.current(&inode.entity.path)?;
            self.reconcile(&inode.entity, &cached, Blocking::Yes)?;
        }
        Ok(())
    }

    /// Brings the inode of an array in line with the store: unchanged, grown in place, or replaced by another
    /// array. In the last case the old handles get ESTALE.
    pub(super) fn reconcile(&self, entity: &Entity, cached: &CachedNode, blocking: Blocking) -> FsResult<()> {
        let Some(inode) = self.inodes.existing(entity) else { return Ok(()) };
        let is_news = |old: &OpenArray| match &cached.node {
            Some(Node::Array { metadata, .. }) => {
                !Arc::ptr_eq(metadata, &old.metadata) && cached.read_at > old.read_at
            }
            _ => true,
        };
        if !inode.open_array().is_some_and(|old| is_news(&old)) {
            return Ok(());
        }
        // The rest may wait for a flush to finish.
        if blocking == Blocking::No {
            return Err(Failure::WouldBlock);
        }
        let _one_at_a_time = self.reconciling.lock();
        let Some(old) = inode.open_array().filter(|old| is_news(old)) else { return Ok(()) };
        let Some(Node::Array { metadata, .. }) = &cached.node else {
            self.inodes.retire(&inode);
            return Ok(());
        };
        let array = match (difference(&old.metadata, metadata, &self.options), &old.array) {
            // Data written to the previous folder does not belong into this one.
            (_, Ok(array)) if array.is_displaced() => {
                self.inodes.retire(&inode);
                return Ok(());
            }
            (Difference::None, _) => old.array.clone(),
            (Difference::Grown, Ok(array)) => array.grown(metadata.clone(), self.options.layout),
            (Difference::Grown, Err(_)) => {
                self.context().build_array(&entity.path, metadata, &inode.audience)
            }
            (Difference::Other, Ok(_) | Err(_)) => {
                self.inodes.retire(&inode);
                return Ok(());
            }
        };
        if array.is_err() {
            self.inodes.retire(&inode);
            return Ok(());
        }
        if array
            .as_ref()
            .is_ok_and(|array| old.array.as_ref().is_ok_and(|old| old.size_bytes() != array.size_bytes()))
        {
            inode.page_cache_users.drops.note_new_size();
        }
        let (metadata, version) = (metadata.clone(), cached.version);
        let new = OpenArray { metadata, version, read_at: cached.read_at, array };
        *inode.open_array.write() = Some(Arc::new(new));
        Ok(())
    }
}

/// How the metadata of an array differs from the metadata that its handles were opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    /// No difference in the served bytes.
    None,
    /// Longer along the slowest axis of the file: all previous bytes keep their place.
    Grown,
    /// Another array.
    Other,
}

fn difference(old: &ArrayMetadata, new: &ArrayMetadata, options: &Options) -> Difference {
    if !old.is_stored_as(new) || old.shape.len() != new.shape.len() {
        return Difference::Other;
    }
    if old.shape == new.shape {
        return Difference::None;
    }
    let slowest = match options.layout.order {
        crate::array::Order::C => 0,
        crate::array::Order::F => old.shape.len().saturating_sub(1),
    };
    let mut axes = old.shape.iter().zip(&new.shape).enumerate();
    let has_grown =
        axes.all(|(axis, (before, after))| before == after || (axis == slowest && before < after));
    if has_grown { Difference::Grown } else { Difference::Other }
}

/// The size of an array in stat(2); `None` where it is unknown.
pub(super) fn shown_size(cached: &CachedNode) -> Option<u64> {
    match &cached.node {
        Some(Node::Array { metadata, .. }) => flat_size(metadata),
        Some(Node::Broken { size_bytes, .. }) => *size_bytes,
        Some(Node::Group { .. }) | None => None,
    }
}
