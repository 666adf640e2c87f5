//! Which open files of an array go through the kernel's page cache.
//!
//! A file that is open for writing only goes past it: nobody can map it, and each byte is spared a copy and its page. The
//! kernel drops its pages of a range before it sends a direct write to that range, but a read that is on its way at
//! that moment may bring back what was there before, and older kernels do not look again. Hence the invariant: while a
//! file is written past the page cache, no open file of it is read through it. Memory maps always are; what they bring back,
//! `overwritten.rs` keeps from being stored. And all open files of an inode, or none, are those that the kernel reads by itself
//! (`passthrough.rs`).
//!
//! The kernel drops what it has of a file when it handles the answer to an open(2) that says so. Until such an answer is on its
//! way, and for a moment behind it, whoever opens the file is told to drop it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::mount::overwritten::Overwritten;
use crate::store::Validator;

/// The open files of one array, by their way.
#[derive(Debug, Default)]
pub struct PageCacheUsers {
    /// Held by whoever opens the array, from his comparison of what was read with the store until his way is known: what he finds to
    /// be old the next one neither uses nor keeps.
    pub opening: Mutex<()>,
    users: Mutex<Users>,
    /// What was written past the page cache beside those who may have mapped the file, while there are any.
    overwritten: Overwritten,
    is_mixed: AtomicBool,
}

#[derive(Debug, Default)]
struct Users {
    cached: usize,
    direct_writers: usize,
    /// Those that may have mapped the file although they, or others, write past the page cache.
    direct: usize,
    backed: usize,
    /// Of the object behind those.
    version: Option<Validator>,
    /// What the page cache has is not to be kept: it is no longer what is stored, or memory maps left it there beside a direct writer.
    is_doubtful: bool,
    /// When the kernel was last told to drop what it has for a reason.
    told_at: Option<Instant>,
}

/// The way of an open file. Dropping it tells that it was closed.
#[derive(Debug)]
pub struct Way {
    users: Arc<PageCacheUsers>,
    kind: Kind,
    /// What the page cache has may be kept.
    pub keeps_cache: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Cached,
    DirectWriter,
    /// The kernel reads its object by itself.
    Backed,
    /// Reads past the page cache, and may write.
    Direct,
}

/// How a file would best be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Through the page cache.
    Cached,
    /// Past it: for writing only, where the kernel keeps its page cache in line with direct writes.
    PassWrites,
    /// Past it, whatever it does: it was asked for.
    Direct,
    /// Left to the kernel, which reads this version of an object by itself.
    Backed(Validator),
}

impl PageCacheUsers {
    /// What the page cache has is no longer what is stored.
    pub fn note_change(&self) {
        self.users.lock().is_doubtful = true;
    }

    /// Where somebody may have mapped the file although it is written past the page cache: what was written so.
    pub fn overwritten(&self) -> Option<&Overwritten> {
        self.is_mixed.load(Ordering::Acquire).then_some(&self.overwritten)
    }
}

impl Way {
    /// The way of a file that is opened now; `None` where other open files of the same inode have the kernel read another object, or
    /// another version of it: it takes one for all of them. What the kernel was told longer than `drop_time` ago it has done.
    pub fn new(users: &Arc<PageCacheUsers>, wish: Wish, drop_time: Duration) -> Option<Way> {
        let mut held = users.users.lock();
        if held.backed > 0 && held.version.map(Wish::Backed) != Some(wish) {
            return None;
        }
        let kind = match wish {
            Wish::PassWrites if held.cached == 0 => Kind::DirectWriter,
            Wish::Backed(version) if held.cached == 0 && held.direct_writers == 0 => {
                held.version = Some(version);
                Kind::Backed
            }
            Wish::Direct => Kind::Direct,
            _ if held.direct_writers > 0 => Kind::Direct,
            _ => Kind::Cached,
        };
        match kind {
            Kind::Cached => held.cached += 1,
            Kind::DirectWriter => held.direct_writers += 1,
            Kind::Backed => held.backed += 1,
            Kind::Direct => {
                held.is_doubtful = true;
                held.direct += 1;
                users.is_mixed.store(true, Ordering::Release);
            }
        }
        let has_dropped = held.told_at.is_none_or(|at| at.elapsed() >= drop_time);
        let keeps_cache = !held.is_doubtful && has_dropped;
        drop(held);
        Some(Way { users: users.clone(), kind, keeps_cache })
    }

    /// The answer to its open is about to be sent, and tells the kernel to drop what it has.
    pub fn note_told(&self) {
        let mut held = self.users.users.lock();
        if held.is_doubtful {
            held.told_at = Some(Instant::now());
            held.is_doubtful = held.direct_writers > 0;
        }
    }

    /// Whether reads and writes pass the page cache.
    pub fn is_direct(&self) -> bool {
        self.kind != Kind::Cached
    }

    /// Whether the kernel is to read its object by itself.
    pub fn is_backed(&self) -> bool {
        self.kind == Kind::Backed
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        let mut held = self.users.users.lock();
        match self.kind {
            Kind::Cached => held.cached -= 1,
            Kind::DirectWriter => held.direct_writers -= 1,
            Kind::Backed => held.backed -= 1,
            Kind::Direct => {
                held.direct -= 1;
                if held.direct == 0 {
                    self.users.is_mixed.store(false, Ordering::Release);
                    self.users.overwritten.clear();
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
    fn nobody_reads_through_the_page_cache_what_is_written_past_it() {
        let users = Arc::new(PageCacheUsers::default());
        let open = |wish| {
            let way = Way::new(&users, wish, Duration::ZERO).unwrap();
            way.note_told();
            way
        };
        let writer = open(Wish::PassWrites);
        assert!(writer.is_direct() && writer.keeps_cache);
        let beside = open(Wish::Cached);
        assert!(beside.is_direct() && !beside.keeps_cache);
        let second = open(Wish::PassWrites);
        assert!(second.is_direct());
        drop((writer, second));
        let after = open(Wish::Cached);
        assert!(!after.is_direct() && !after.keeps_cache, "what was mapped beside a direct writer goes");
        let late_writer = open(Wish::PassWrites);
        assert!(!late_writer.is_direct(), "it has a reader that the kernel answers");
        assert!(open(Wish::Cached).keeps_cache);
        drop((after, late_writer));
        drop(beside);
        assert!(open(Wish::PassWrites).is_direct());
    }

    #[test]
    fn the_kernel_reads_one_object_for_all_files_of_an_inode_or_none() {
        let users = Arc::new(PageCacheUsers::default());
        let version = |size_bytes| Wish::Backed(Validator { device: 1, inode: 2, mtime_ns: 3, size_bytes });
        let open = |wish| Way::new(&users, wish, Duration::ZERO);
        let cached = open(Wish::Cached).unwrap();
        assert!(!open(version(4)).unwrap().is_backed());
        drop(cached);
        let backed = open(version(4)).unwrap();
        assert!(backed.is_backed() && open(version(4)).unwrap().is_backed());
        assert!(open(version(5)).is_none() && open(Wish::Cached).is_none());
        drop(backed);
        assert!(open(version(5)).unwrap().is_backed());
        assert!(!open(Wish::Cached).unwrap().is_direct());
    }

    #[test]
    fn who_opens_before_the_kernel_has_dropped_its_pages_drops_them_too() {
        let users = Arc::new(PageCacheUsers::default());
        let open = |drop_time| Way::new(&users, Wish::Cached, drop_time).unwrap();
        let long = Duration::from_secs(3600);
        assert!(open(long).keeps_cache, "there was no reason to drop anything");
        users.note_change();
        assert!(!open(Duration::ZERO).keeps_cache, "and nobody tells the kernel");
        let told = open(Duration::ZERO);
        assert!(!told.keeps_cache);
        told.note_told();
        let behind = open(long);
        assert!(!behind.keeps_cache, "the kernel may not have handled the answer");
        let told_at = users.users.lock().told_at;
        behind.note_told();
        assert_eq!(users.users.lock().told_at, told_at, "one after the other would never keep it again");
        assert!(open(Duration::ZERO).keeps_cache);
    }
}
