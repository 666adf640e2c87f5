//! The gate of requests: changes wait for a commit, and nothing comes in after the end of the mount.
//!
//! This file uses nothing of the crate but its errors.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::mount::fs::error::{Blocking, Failure, FsResult};

/// The gate of a mount.
#[derive(Default)]
pub struct RequestGate {
    /// Held for reading by each request that changes something, for writing by a commit.
    changes: RwLock<()>,
    /// Whether the daemon is about to exit, so that all requests fail.
    has_ended: AtomicBool,
}

impl RequestGate {
    /// Lets a request change something, after a commit that is storing earlier changes.
    pub fn enter(&self, blocking: Blocking) -> FsResult<RwLockReadGuard<'_, ()>> {
        match blocking {
            Blocking::Yes => Ok(self.changes.read()),
            Blocking::No => self.changes.try_read().ok_or(Failure::WouldBlock),
        }
    }

    /// Lets a write in. A page of a memory map is taken at any time, because the kernel cannot keep it for long.
    pub fn enter_to_write(
        &self,
        is_page: bool,
        blocking: Blocking,
    ) -> FsResult<Option<RwLockReadGuard<'_, ()>>> {
        if is_page { Ok(None) } else { self.enter(blocking).map(Some) }
    }

    /// Keeps requests from changing anything until the lock is released.
    pub fn freeze(&self) -> RwLockWriteGuard<'_, ()> {
        self.changes.write()
    }

    /// Keeps requests from changing anything until the lock is released. `None` if one that has begun takes longer than this.
    pub fn freeze_within(&self, timeout: Duration) -> Option<RwLockWriteGuard<'_, ()>> {
        self.changes.try_write_for(timeout)
    }

    /// Makes all reads fail from now on, and all writes except pages of memory maps. So exactly the writes with a successful reply
    /// are stored at the end. The kernel has given up a page that it sends, so that no later request could read it.
    pub fn end_service(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }

    /// Fails with ENOTCONN after the end, as every request to a dead daemon does. A write checks this when its chunks are dirty: if
    /// the check passes, they were dirty before the end began.
    pub fn ensure_serving(&self) -> FsResult<()> {
        if self.has_ended.load(Ordering::SeqCst) { Err(Failure::Errno(libc::ENOTCONN)) } else { Ok(()) }
    }
}
