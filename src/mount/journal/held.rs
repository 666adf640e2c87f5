//! Descriptors that outlive a daemon, such as those of locks of writers. `daemon/restart/` decides what holds them. Uses `store`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::store::LockKeeper;

/// The longest name of a held descriptor.
pub const MAX_NAME_BYTES: usize = 200;

/// The name of the descriptor with what is written and not stored.
pub const UNSTORED: &str = "unstored";

/// Descriptors by their names, as the next daemon gets them.
pub type HeldDescriptors = BTreeMap<String, OwnedFd>;

/// Keeps descriptors for the next daemon of a session.
///
/// A name has 1 to [`MAX_NAME_BYTES`] ASCII letters, digits, `.`, `_` and `-`. Names that begin with `zarrfs.` are the daemon's
/// own. All names together may have up to 100 KiB.
pub trait DescriptorHolder: Send + Sync {
    /// Gives a descriptor under a name to the holder, which outlives this process. It replaces an earlier one with that name. After
    /// this returns, the next daemon gets the descriptor, no matter how this one ends. Fails if too many are held. Does nothing if
    /// the session can no longer be continued.
    fn hold(&self, name: &str, file: BorrowedFd<'_>) -> io::Result<()>;

    /// Gives a descriptor up; does nothing if there is none with this name. The holder closes it some time later, so a lock
    /// (flock(2)) must be unlocked explicitly first: otherwise it stays until then.
    fn release(&self, name: &str);
}

/// The descriptors of a session: what the daemon before has given to the holder and this one has not taken yet, and the holder.
pub struct SessionDescriptors {
    holder: Arc<dyn DescriptorHolder>,
    former: Mutex<HeldDescriptors>,
}

impl SessionDescriptors {
    /// Creates those of a session. The holder goes on holding what the daemon before had, `former`.
    pub fn new(holder: Arc<dyn DescriptorHolder>, former: HeldDescriptors) -> Arc<Self> {
        Arc::new(SessionDescriptors { holder, former: Mutex::new(former) })
    }

    /// Returns whether the daemon before has left a descriptor with this name that was not taken.
    pub fn has(&self, name: &str) -> bool {
        self.former.lock().contains_key(name)
    }

    /// Ends the locks that were not taken. Nothing is taken meanwhile: a caller that looked for a lock between its removal from here and its end would find the array
    /// locked.
    pub fn end_locks(&self) {
        let mut former = self.former.lock();
        for (name, file) in std::mem::take(&mut *former) {
            let _ = File::from(file).unlock();
            self.holder.release(&name);
        }
    }
}

impl DescriptorHolder for SessionDescriptors {
    fn hold(&self, name: &str, file: BorrowedFd<'_>) -> io::Result<()> {
        self.holder.hold(name, file)
    }

    fn release(&self, name: &str) {
        self.holder.release(name);
    }
}

impl LockKeeper for SessionDescriptors {
    fn keep(&self, name: &str, file: BorrowedFd<'_>) -> io::Result<()> {
        self.holder.hold(name, file)
    }

    fn release(&self, name: &str) {
        self.holder.release(name);
    }

    fn take(&self, name: &str) -> Option<OwnedFd> {
        self.former.lock().remove(name)
    }
}

/// Returns whether a descriptor may have this name.
pub fn is_valid_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_allowed)
}
