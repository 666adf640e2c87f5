//! Which handles of an array use the kernel's page cache.
//!
//! A file that is open for writing only bypasses it: the file cannot be mapped, and each byte saves a copy
//! and its page. The kernel drops its pages of a range before it sends a direct write to that range, but a
//! concurrent read may bring back the old bytes, and older kernels do not check again. Hence the invariant:
//! while a file is written directly, no handle reads it through the page cache. Memory maps always do;
//! `direct_writes.rs` keeps the old bytes that they bring back from being stored. Another invariant: of the
//! handles of one inode either all use FUSE passthrough, or none.
//!
//! At each open(2) the page cache is either kept, or dropped by the reply (`page_drops.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::array::{Array, Readahead};
use crate::mount::fs::page_cache::direct_writes::DirectWrites;
use crate::mount::fs::page_cache::page_drops::{PageDrop, PageDrops};
use crate::store::{Object, ObjectVersion};

/// Which cache modes the kernel and the options of the mount allow.
#[derive(Debug)]
pub struct CachePolicy {
    /// `direct-io`: everything bypasses the page cache.
    is_direct: bool,
    /// `prefetch`: sequential readers are read ahead of.
    reads_ahead: bool,
    /// The kernel invalidates cached pages when a direct write replaces them.
    allows_direct_writes: AtomicBool,
    /// The kernel may read objects itself (FUSE passthrough).
    uses_passthrough: AtomicBool,
}

/// How a file is opened.
pub struct ChosenMode {
    /// The cache mode of its handle.
    pub cache_mode: CacheMode,
    /// The page drop that goes with the reply.
    pub page_drop: Option<PageDrop>,
    /// The object that the kernel reads itself.
    pub backing: Option<Arc<dyn Object>>,
}

impl CachePolicy {
    /// As `direct-io` and `prefetch` say, until it is known what the kernel can do.
    pub fn new(is_direct: bool, reads_ahead: bool) -> Self {
        let (allows_direct_writes, uses_passthrough) = (AtomicBool::new(false), AtomicBool::new(false));
        CachePolicy { is_direct, reads_ahead, allows_direct_writes, uses_passthrough }
    }

    /// Whether everything bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// How the arrays in a file are read ahead: the kernel does not for files that bypass its page cache.
    pub fn readahead(&self, is_direct: bool) -> Readahead {
        match (self.reads_ahead, is_direct) {
            (false, _) => Readahead::Off,
            (true, false) => Readahead::Chunks,
            (true, true) => Readahead::Replies,
        }
    }

    /// Lets files that are open for writing only bypass the page cache. Needs a kernel that keeps the page
    /// cache in line with direct writes.
    pub fn allow_direct_writes(&self) {
        self.allows_direct_writes.store(true, Ordering::Relaxed);
    }

    /// Sets whether the kernel may read objects itself (FUSE passthrough).
    pub fn set_passthrough(&self, are_backed: bool) {
        self.uses_passthrough.store(are_backed, Ordering::Relaxed);
    }

    /// How an array's file is opened. `None` as for [`CacheMode::new`].
    pub fn choose(
        &self,
        users: &Arc<PageCacheUsers>,
        array: &Array,
        only_writes: bool,
    ) -> Option<ChosenMode> {
        let uses_passthrough = self.uses_passthrough.load(Ordering::Relaxed);
        // If this fails, a read reports the reason.
        let object = if uses_passthrough { array.sole_object().unwrap_or_default() } else { None };
        let requested = match &object {
            Some(object) => RequestedMode::Passthrough(object.version()),
            None if only_writes && self.allows_direct_writes.load(Ordering::Relaxed) => {
                RequestedMode::DirectWriter
            }
            None if self.is_direct => RequestedMode::Direct,
            None => RequestedMode::Cached,
        };
        let (cache_mode, page_drop) = CacheMode::new(users, requested)?;
        let backing = object.filter(|_| cache_mode.is_passthrough());
        Some(ChosenMode { cache_mode, page_drop, backing })
    }
}

/// The open handles of one array, counted by cache mode.
#[derive(Debug, Default)]
pub struct PageCacheUsers {
    /// Serialises opens of the array, from the comparison with the store until the cache mode is chosen: an
    /// open must not use or keep data that a concurrent open found to be outdated.
    pub opening: Mutex<()>,
    users: Mutex<UserCounts>,
    /// Direct writes, recorded while handles exist that may map the file.
    pub direct_writes: DirectWrites,
    /// Drops of its pages, and the reasons for them.
    pub drops: Arc<PageDrops>,
}

#[derive(Debug, Default)]
struct UserCounts {
    cached: usize,
    direct_writers: usize,
    /// Handles that may map the file although it is written directly, by them or by others.
    direct: usize,
    passthrough: usize,
    /// The version of the object that passthrough handles read.
    version: Option<ObjectVersion>,
}

/// The cache mode of a handle. Dropping it counts the handle as closed.
#[derive(Debug)]
pub struct CacheMode {
    users: Arc<PageCacheUsers>,
    kind: ModeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModeKind {
    Cached,
    DirectWriter,
    /// The kernel reads the object itself.
    Passthrough,
    /// Reads bypass the page cache; may write.
    Direct,
}

/// The cache mode that an open asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedMode {
    /// Through the page cache.
    Cached,
    /// Bypass it: for writing only, where the kernel keeps its page cache in line with direct writes.
    DirectWriter,
    /// Bypass it always, as `direct-io` demands.
    Direct,
    /// FUSE passthrough to this version of an object.
    Passthrough(ObjectVersion),
}

impl CacheMode {
    /// Chooses the cache mode of a new handle, and returns the page drop that must precede the reply to its
    /// open. `None` if other handles of the inode use passthrough to another object or version: the kernel
    /// uses one object for all of them.
    pub fn new(
        users: &Arc<PageCacheUsers>,
        requested: RequestedMode,
    ) -> Option<(CacheMode, Option<PageDrop>)> {
        let mut counts = users.users.lock();
        if counts.passthrough > 0 && counts.version.map(RequestedMode::Passthrough) != Some(requested) {
            return None;
        }
        let kind = match requested {
            RequestedMode::DirectWriter if counts.cached == 0 => ModeKind::DirectWriter,
            RequestedMode::Passthrough(version) if counts.cached == 0 && counts.direct_writers == 0 => {
                counts.version = Some(version);
                ModeKind::Passthrough
            }
            RequestedMode::Direct => ModeKind::Direct,
            _ if counts.direct_writers > 0 => ModeKind::Direct,
            _ => ModeKind::Cached,
        };
        match kind {
            ModeKind::Cached => counts.cached += 1,
            ModeKind::DirectWriter => counts.direct_writers += 1,
            ModeKind::Passthrough => counts.passthrough += 1,
            ModeKind::Direct => {
                counts.direct += 1;
                users.direct_writes.begin_maps();
                // Memory maps may leave outdated pages next to a direct writer.
                users.drops.mark_outdated();
            }
        }
        drop(counts);
        Some((CacheMode { users: users.clone(), kind }, users.drops.due()))
    }

    /// Whether reads and writes bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.kind != ModeKind::Cached
    }

    /// Whether the kernel reads the object itself.
    pub fn is_passthrough(&self) -> bool {
        self.kind == ModeKind::Passthrough
    }
}

impl Drop for CacheMode {
    fn drop(&mut self) {
        let mut counts = self.users.users.lock();
        match self.kind {
            ModeKind::Cached => counts.cached -= 1,
            ModeKind::DirectWriter => {
                counts.direct_writers -= 1;
                if counts.direct > 0 {
                    self.users.drops.mark_outdated();
                }
            }
            ModeKind::Passthrough => counts.passthrough -= 1,
            ModeKind::Direct => {
                counts.direct -= 1;
                if counts.direct == 0 {
                    self.users.direct_writes.end_maps();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn direct_writes_exclude_cached_reads() {
        let users = Arc::new(PageCacheUsers::default());
        let open = |requested| {
            let (cache_mode, drop) = CacheMode::new(&users, requested).unwrap();
            (cache_mode, drop.map(PageDrop::done).is_none())
        };
        let (writer, keeps) = open(RequestedMode::DirectWriter);
        assert!(writer.is_direct() && keeps);
        let (mapped, keeps) = open(RequestedMode::Cached);
        assert!(mapped.is_direct() && !keeps);
        let (second, _) = open(RequestedMode::DirectWriter);
        assert!(second.is_direct());
        drop((writer, second));
        let (after, keeps) = open(RequestedMode::Cached);
        assert!(!after.is_direct() && !keeps, "pages mapped next to a direct writer are dropped");
        let (late_writer, _) = open(RequestedMode::DirectWriter);
        assert!(!late_writer.is_direct(), "it has a reader that uses the page cache");
        assert!(open(RequestedMode::Cached).1);
        drop((after, late_writer));
        drop(mapped);
        assert!(open(RequestedMode::DirectWriter).0.is_direct());
    }

    #[test]
    fn passthrough_is_one_object_for_all_handles_of_an_inode() {
        let users = Arc::new(PageCacheUsers::default());
        let version = |size_bytes| RequestedMode::Passthrough(ObjectVersion::numbered(size_bytes));
        let open = |requested| CacheMode::new(&users, requested).map(|(cache_mode, _)| cache_mode);
        let cached = open(RequestedMode::Cached).unwrap();
        assert!(!open(version(4)).unwrap().is_passthrough());
        drop(cached);
        let passthrough = open(version(4)).unwrap();
        assert!(passthrough.is_passthrough() && open(version(4)).unwrap().is_passthrough());
        assert!(open(version(5)).is_none() && open(RequestedMode::Cached).is_none());
        drop(passthrough);
        assert!(open(version(5)).unwrap().is_passthrough());
        assert!(!open(RequestedMode::Cached).unwrap().is_direct());
    }
}
