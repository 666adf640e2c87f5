//! Cache modes: which handles of an array use the kernel's page cache.
//!
//! A file that is open for writing only bypasses it: the file cannot be mapped, and each byte saves a copy and its page. The kernel
//! drops its pages of a range before it sends a direct write to that range, but a concurrent read may bring back the old bytes, and
//! older kernels do not check again. Memory maps always use the page cache; `direct_writes.rs` keeps the old bytes that they bring
//! back from being stored. At each open(2) the page cache is either kept, or dropped by the reply (`page_drops.rs`).
//!
//! Invariants: while a file is written directly, no handle reads it through the page cache; of the handles of one inode, either all
//! use FUSE passthrough or none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::array::{Array, Readahead};
use crate::mount::fs::page_cache::direct_writes::DirectWrites;
use crate::mount::fs::page_cache::page_drops::{PageDrop, PageDrops};
use crate::mount::journal::record::BackingVersion;
use crate::store::Object;

/// The cache modes that the kernel and the options of the mount allow.
#[derive(Debug)]
pub struct CachePolicy {
    /// Whether everything bypasses the page cache (`direct-io`).
    is_direct: bool,
    /// Whether there is read-ahead for sequential readers (`prefetch`).
    reads_ahead: bool,
    /// Whether the kernel drops cached pages that a direct write replaces.
    allows_direct_writes: AtomicBool,
    /// Whether the kernel may read objects itself (FUSE passthrough).
    uses_passthrough: AtomicBool,
}

/// The way in which a file is opened.
pub struct ChosenMode {
    /// The cache mode of its handle.
    pub cache_mode: CacheMode,
    /// The page drop that goes with the reply.
    pub page_drop: Option<PageDrop>,
    /// The object that the kernel reads itself.
    pub backing: Option<Arc<dyn Object>>,
}

impl CachePolicy {
    /// Creates the policy that the options `direct-io` and `prefetch` ask for, before the kernel has said what it can do.
    pub fn new(is_direct: bool, reads_ahead: bool) -> Self {
        let (allows_direct_writes, uses_passthrough) = (AtomicBool::new(false), AtomicBool::new(false));
        CachePolicy { is_direct, reads_ahead, allows_direct_writes, uses_passthrough }
    }

    /// Returns whether everything bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Returns the read-ahead for the arrays in a file. The kernel has none for files that bypass its page cache, so replies are
    /// prepared for these.
    pub fn readahead(&self, is_direct: bool) -> Readahead {
        match (self.reads_ahead, is_direct) {
            (false, _) => Readahead::Off,
            (true, false) => Readahead::Chunks,
            (true, true) => Readahead::Replies,
        }
    }

    /// Lets files that are open for writing only bypass the page cache. This needs a kernel that drops the pages that a direct write
    /// replaces.
    pub fn allow_direct_writes(&self) {
        self.allows_direct_writes.store(true, Ordering::Relaxed);
    }

    /// Sets whether the kernel may read objects itself (FUSE passthrough).
    pub fn set_passthrough(&self, are_backed: bool) {
        self.uses_passthrough.store(are_backed, Ordering::Relaxed);
    }

    /// Chooses how an array's file is opened. Returns `None` in the case of [`CacheMode::new`].
    pub fn choose(
        &self,
        users: &Arc<PageCacheUsers>,
        array: &Array,
        only_writes: bool,
    ) -> Option<ChosenMode> {
        let uses_passthrough = self.uses_passthrough.load(Ordering::Relaxed);
        // If the object cannot be opened, the file is opened without passthrough, and a read reports the reason.
        let object = if uses_passthrough { array.sole_object().unwrap_or_default() } else { None };
        let requested = match &object {
            Some(object) => RequestedMode::Passthrough(BackingVersion::of(&object.version())),
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
    /// The direct writes, recorded while handles exist that may map the file.
    pub direct_writes: DirectWrites,
    /// The drops of its pages, and the reasons for them.
    pub drops: Arc<PageDrops>,
}

#[derive(Debug, Default)]
struct UserCounts {
    cached: usize,
    direct_writers: usize,
    /// The handles that may map the file although it is written directly, by them or by others.
    direct: usize,
    passthrough: usize,
    /// The version of the object that passthrough handles read.
    version: Option<BackingVersion>,
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
    /// Reads bypass the page cache, and so do writes.
    Direct,
}

/// The cache mode of a handle from before a restart of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormerMode {
    /// It uses the page cache.
    Cached,
    /// It bypasses the page cache, for writing only.
    DirectWriter,
    /// It bypasses the page cache, and may be mapped.
    Direct,
    /// The kernel reads this version of an object itself.
    Passthrough(BackingVersion),
}

/// The cache mode that an open asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedMode {
    /// Use the page cache.
    Cached,
    /// Bypass the page cache, for writing only.
    DirectWriter,
    /// Bypass the page cache always, as `direct-io` demands.
    Direct,
    /// FUSE passthrough to this version of an object.
    Passthrough(BackingVersion),
}

impl CacheMode {
    /// Chooses the cache mode of a new handle, and returns the page drop that must precede the reply to its open. Returns `None` if
    /// other handles of the inode use passthrough to another object or version: the kernel uses one object for all of them.
    pub fn new(
        users: &Arc<PageCacheUsers>,
        requested: RequestedMode,
    ) -> Option<(CacheMode, Option<PageDrop>)> {
        let mut counts = users.users.lock();
        if counts.passthrough > 0 && counts.version.map(RequestedMode::Passthrough) != Some(requested) {
            return None;
        }
        // A handle that would read through the page cache next to a direct writer bypasses it, and a writer next to cached readers
        // uses it: otherwise a reader could bring back old bytes.
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
                // Next to a direct writer, memory maps may leave outdated pages.
                users.drops.mark_outdated();
            }
        }
        drop(counts);
        Some((CacheMode { users: users.clone(), kind }, users.drops.due()))
    }

    /// Counts a handle from before a restart of the daemon. Returns its cache mode.
    pub fn restore(users: &Arc<PageCacheUsers>, mode: FormerMode) -> CacheMode {
        let mut counts = users.users.lock();
        let kind = match mode {
            FormerMode::DirectWriter => {
                counts.direct_writers += 1;
                ModeKind::DirectWriter
            }
            FormerMode::Passthrough(version) => {
                counts.passthrough += 1;
                counts.version = Some(version);
                ModeKind::Passthrough
            }
            FormerMode::Direct => {
                counts.direct += 1;
                users.direct_writes.begin_maps();
                ModeKind::Direct
            }
            FormerMode::Cached => {
                counts.cached += 1;
                ModeKind::Cached
            }
        };
        CacheMode { users: users.clone(), kind }
    }

    /// Returns whether reads and writes bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.kind != ModeKind::Cached
    }

    /// Returns whether the kernel reads the object itself.
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
    use crate::store::ObjectVersion;

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
        let version =
            |number| RequestedMode::Passthrough(BackingVersion::of(&ObjectVersion::numbered(number)));
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
