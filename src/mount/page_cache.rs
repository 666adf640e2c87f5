//! Which open files of an array go through the kernel's page cache.
//!
//! A file that is open for writing only goes past it: nobody can map it, and each byte is spared a copy and its page. The
//! kernel drops its pages of a range before it sends a direct write to that range, but a read that is on its way at
//! that moment may bring back what was there before, and older kernels do not look again. Hence the invariant: while a
//! file is written past the page cache, no open file of it is read through it. Memory maps always are; what they bring back,
//! `overwritten.rs` keeps from being stored. And all open files of an inode, or none, are those that the kernel reads by itself
//! (`passthrough.rs`).
//!
//! What the page cache holds is kept at each open(2), or dropped by its answer (`page_drops.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::mount::overwritten::Overwritten;
use crate::mount::page_drops::{PageDrop, PageDrops};
use crate::store::ObjectVersion;

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
    /// Of its pages, and why.
    pub drops: Arc<PageDrops>,
}

#[derive(Debug, Default)]
struct Users {
    cached: usize,
    direct_writers: usize,
    /// Those that may have mapped the file although they, or others, write past the page cache.
    direct: usize,
    backed: usize,
    /// Of the object behind those.
    version: Option<ObjectVersion>,
}

/// The way of an open file. Dropping it tells that it was closed.
#[derive(Debug)]
pub struct Way {
    users: Arc<PageCacheUsers>,
    kind: Kind,
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
    Backed(ObjectVersion),
}

impl PageCacheUsers {
    /// Where somebody may have mapped the file although it is written past the page cache: what was written so.
    pub fn overwritten(&self) -> Option<&Overwritten> {
        self.is_mixed.load(Ordering::Acquire).then_some(&self.overwritten)
    }
}

impl Way {
    /// The way of a file that is opened now; `None` where other open files of the same inode have the kernel read another object, or
    /// another version of it: it takes one for all of them. And what is to be dropped before that open is answered.
    pub fn new(users: &Arc<PageCacheUsers>, wish: Wish) -> Option<(Way, Option<PageDrop>)> {
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
                held.direct += 1;
                users.is_mixed.store(true, Ordering::Release);
                // Memory maps may leave there what they read beside a direct writer.
                users.drops.note_reason();
            }
        }
        drop(held);
        Some((Way { users: users.clone(), kind }, users.drops.due()))
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
            Kind::DirectWriter => {
                held.direct_writers -= 1;
                if held.direct > 0 {
                    self.users.drops.note_reason();
                }
            }
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
            let (way, drop) = Way::new(&users, wish).unwrap();
            (way, drop.map(PageDrop::done).is_none())
        };
        let (writer, keeps) = open(Wish::PassWrites);
        assert!(writer.is_direct() && keeps);
        let (beside, keeps) = open(Wish::Cached);
        assert!(beside.is_direct() && !keeps);
        let (second, _) = open(Wish::PassWrites);
        assert!(second.is_direct());
        drop((writer, second));
        let (after, keeps) = open(Wish::Cached);
        assert!(!after.is_direct() && !keeps, "what was mapped beside a direct writer goes");
        let (late_writer, _) = open(Wish::PassWrites);
        assert!(!late_writer.is_direct(), "it has a reader that the kernel answers");
        assert!(open(Wish::Cached).1);
        drop((after, late_writer));
        drop(beside);
        assert!(open(Wish::PassWrites).0.is_direct());
    }

    #[test]
    fn the_kernel_reads_one_object_for_all_files_of_an_inode_or_none() {
        let users = Arc::new(PageCacheUsers::default());
        let version =
            |size_bytes| Wish::Backed(ObjectVersion { device: 1, inode: 2, mtime_ns: 3, size_bytes });
        let open = |wish| Way::new(&users, wish).map(|(way, _)| way);
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
}
