//! A lock of a file or folder that ends when its holder says so.
//!
//! Manual pages: flock(2), fork(2).

use std::fs::{File, TryLockError};

/// A file or folder that is locked until this value is dropped.
///
/// The kernel keeps such a lock until the last descriptor of the open file is closed. A child process has copies of all descriptors between
/// fork(2) and execve(2), so closing the file is not enough while another thread starts a program.
#[derive(Debug)]
pub struct HeldLock {
    file: File,
    /// Another process has the lock, too.
    is_shared: bool,
}

impl HeldLock {
    /// Locks a file. Fails with `WouldBlock` if another open file has the lock.
    pub fn acquire(file: File) -> Result<HeldLock, TryLockError> {
        file.try_lock()?;
        Ok(HeldLock::of_locked(file))
    }

    /// Takes over a file that the caller has locked, or could not lock because the filesystem has no locks.
    pub fn of_locked(file: File) -> HeldLock {
        HeldLock { file, is_shared: false }
    }

    /// Ends the lock before this value is dropped.
    pub fn end(&self) {
        let _ = self.file.unlock();
    }

    /// Leaves the file locked when this value is dropped: another process has the lock, too.
    pub fn shared(mut self) -> HeldLock {
        self.is_shared = true;
        self
    }

    /// Returns the file.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        if !self.is_shared {
            self.end();
        }
    }
}

/// Calls `work` while a child process has copies of all descriptors that this process has now.
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub fn with_copied_descriptors(work: impl FnOnce()) {
    use super::{Fork, child_end, exit_at_once, fork, signal_child};

    /// The child, which ends with this value, after a panic, too.
    struct CopyHolder(u32);

    impl Drop for CopyHolder {
        fn drop(&mut self) {
            signal_child(self.0, libc::SIGKILL).unwrap();
            child_end(self.0, true).unwrap();
        }
    }

    match fork().unwrap() {
        Fork::Child => {
            std::thread::sleep(std::time::Duration::from_secs(60));
            exit_at_once(0);
        }
        Fork::Parent(child) => {
            let _child = CopyHolder(child);
            work();
        }
    }
}
