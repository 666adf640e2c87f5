//! Which open files of an array go through the kernel's page cache.
//!
//! A file that is open for writing only goes past it: nobody can map it, and each byte is spared a copy and its page. The
//! kernel drops its pages of a range before it sends a direct write to that range, but a read that is on its way at
//! that moment may bring back what was there before, and older kernels do not look again. Hence the invariant: while a
//! file is written past the page cache, no open file of it is read through it.

use std::sync::Arc;

use parking_lot::Mutex;

/// The open files of one array, by their way.
#[derive(Debug, Default)]
pub struct PageCacheUsers(Mutex<Users>);

#[derive(Debug, Default)]
struct Users {
    cached: usize,
    direct_writers: usize,
    /// A file was opened for reading beside a direct writer: what its memory maps left in the page cache is not to be kept.
    is_doubtful: bool,
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
    /// Reads past the page cache, and may write.
    Direct,
}

impl Way {
    /// The way of a file that is opened now. `may_pass`: it is for writing only, and the kernel keeps its page cache in line with
    /// direct writes.
    pub fn new(users: &Arc<PageCacheUsers>, may_pass: bool) -> Way {
        let mut held = users.0.lock();
        let kind = match may_pass {
            true if held.cached == 0 => Kind::DirectWriter,
            false if held.direct_writers > 0 => Kind::Direct,
            _ => Kind::Cached,
        };
        match kind {
            Kind::Cached => held.cached += 1,
            Kind::DirectWriter => held.direct_writers += 1,
            Kind::Direct => held.is_doubtful = true,
        }
        let keeps_cache = !held.is_doubtful;
        if held.direct_writers == 0 {
            held.is_doubtful = false;
        }
        drop(held);
        Way { users: users.clone(), kind, keeps_cache }
    }

    /// Whether reads and writes pass the page cache.
    pub fn is_direct(&self) -> bool {
        self.kind != Kind::Cached
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        let mut held = self.users.0.lock();
        match self.kind {
            Kind::Cached => held.cached -= 1,
            Kind::DirectWriter => held.direct_writers -= 1,
            Kind::Direct => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_reads_through_the_page_cache_what_is_written_past_it() {
        let users = Arc::new(PageCacheUsers::default());
        let writer = Way::new(&users, true);
        assert!(writer.is_direct() && writer.keeps_cache);
        let beside = Way::new(&users, false);
        assert!(beside.is_direct() && !beside.keeps_cache);
        let second = Way::new(&users, true);
        assert!(second.is_direct());
        drop((writer, second));
        let after = Way::new(&users, false);
        assert!(!after.is_direct() && !after.keeps_cache, "what was mapped beside a direct writer goes");
        let late_writer = Way::new(&users, true);
        assert!(!late_writer.is_direct(), "it has a reader that the kernel answers");
        assert!(Way::new(&users, false).keeps_cache);
        drop((after, late_writer));
        drop(beside);
        assert!(Way::new(&users, true).is_direct());
    }
}
