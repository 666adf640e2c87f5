//! Which requests may run: changes wait for a commit, and the end of the mount lets nothing more in.
//!
//! Uses nothing of the crate but its errors.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::mount::fs::error::{Blocking, Failure, FsResult};

/// The gate of a mount.
#[derive(Default)]
pub struct RequestGate {
    /// Held for reading by a program that changes something, for writing by a commit.
    changes: RwLock<()>,
    /// The daemon is about to exit: all requests fail.
    has_ended: AtomicBool,
}

impl RequestGate {
    /// Lets a program change something. It waits while a commit stores what was written before.
    pub fn enter(&self, blocking: Blocking) -> FsResult<RwLockReadGuard<'_, ()>> {
        match blocking {
            Blocking::Yes => Ok(self.changes.read()),
            Blocking::No => self.changes.try_read().ok_or(Failure::WouldBlock),
        }
    }

    /// As [`RequestGate::enter`], for a write. A page of a memory map is taken at any time: it is part of what is in memory.
    pub fn enter_to_write(
        &self,
        is_page: bool,
        blocking: Blocking,
    ) -> FsResult<Option<RwLockReadGuard<'_, ()>>> {
        if is_page { Ok(None) } else { self.enter(blocking).map(Some) }
    }

    /// Keeps programs from changing anything until the lock is released.
    pub fn freeze(&self) -> RwLockWriteGuard<'_, ()> {
        self.changes.write()
    }

    /// From now on reads fail, and writes fail except for pages of memory maps: exactly the writes with a
    /// successful reply are stored at the end. A page that the kernel has given up cannot be read again.
    pub fn end_service(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }

    /// Fails with ENOTCONN, as every request to a dead daemon does. A write checks this once its chunks are
    /// dirty: if the check passes, they were dirty before the end began.
    pub fn ensure_serving(&self) -> FsResult<()> {
        if self.has_ended.load(Ordering::SeqCst) { Err(Failure::Errno(libc::ENOTCONN)) } else { Ok(()) }
    }
}
