//! The gate of requests: changes wait for a commit, or for the end of a member that leaves, and nothing comes in after the end of the
//! mount.
//!
//! Each member of a catalogue has a gate of its own, so that one with a store that does not respond holds up nobody else. This file
//! uses nothing of the crate but its errors and the names of members.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::lock_api::{ArcRwLockReadGuard, ArcRwLockWriteGuard};
use parking_lot::{Mutex, RawRwLock, RwLock};

use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::store::member_name;

/// Held by a request that changes something. A request takes it once: it would wait for itself if a commit came in between.
pub struct Entered {
    _member: Option<ArcRwLockReadGuard<RawRwLock, ()>>,
    _whole: Option<ArcRwLockReadGuard<RawRwLock, ()>>,
}

/// Keeps requests from changing anything, in a member or in the whole mount, while it is held.
pub type Closed = ArcRwLockWriteGuard<RawRwLock, ()>;

/// One value for each member of a catalogue; in other mounts, one for everything.
pub struct ByMember<T> {
    /// The value for paths in no member.
    other: Arc<T>,
    /// The values of members, if the store is a catalogue. Those of members that have left stay.
    members: Option<Mutex<HashMap<String, Arc<T>>>>,
}

impl<T: Default> ByMember<T> {
    /// Creates the values of a mount.
    pub fn new(is_catalogue: bool) -> Self {
        ByMember { other: Arc::default(), members: is_catalogue.then(Mutex::default) }
    }

    /// Returns the value for a path.
    pub fn at(&self, path: &str) -> Arc<T> {
        self.of_member(path).unwrap_or_else(|| self.other.clone())
    }

    /// Returns the value of the member that a path is in, if it is in one.
    fn of_member(&self, path: &str) -> Option<Arc<T>> {
        let (members, name) = (self.members.as_ref()?, member_name(path)?);
        let mut members = members.lock();
        if let Some(known) = members.get(name) {
            return Some(known.clone());
        }
        Some(members.entry(name.to_owned()).or_default().clone())
    }
}

/// The gate of a mount.
pub struct RequestGate {
    /// Held for reading by each request that changes something, for writing by a commit.
    changes: Arc<RwLock<()>>,
    /// The same for each member of a catalogue. A reload that ends a member holds it for writing.
    in_members: ByMember<RwLock<()>>,
    /// Whether the daemon is about to exit, so that all requests fail.
    has_ended: AtomicBool,
}

impl RequestGate {
    /// Creates the gate of a mount.
    pub fn new(is_catalogue: bool) -> Self {
        RequestGate {
            changes: Arc::default(),
            in_members: ByMember::new(is_catalogue),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Lets a request change something at a path, after a commit that is storing earlier changes, or after the end of the member.
    pub fn enter(&self, path: &str, blocking: Blocking) -> FsResult<Entered> {
        if blocking == Blocking::Yes {
            return Ok(self.wait_to_enter(path));
        }
        let member = self.in_members.of_member(path).map(|member| member.try_read_arc());
        match (member, self.changes.try_read_arc()) {
            (None, Some(whole)) => Ok(Entered { _member: None, _whole: Some(whole) }),
            (Some(Some(member)), Some(whole)) => Ok(Entered { _member: Some(member), _whole: Some(whole) }),
            _ => Err(Failure::WouldBlock),
        }
    }

    /// Does [`RequestGate::enter`] for a request that may wait.
    pub fn wait_to_enter(&self, path: &str) -> Entered {
        // The member's first: what waits for the end of a member must not hold up a request for the whole mount.
        let member = self.in_members.of_member(path).map(|member| member.read_arc());
        Entered { _member: member, _whole: Some(self.changes.read_arc()) }
    }

    /// Lets a write in. A page of a memory map waits for no commit, because the kernel cannot keep it for long. It does wait for the end of
    /// its member, because it could not be stored afterwards if the member stayed.
    pub fn enter_to_write(&self, path: &str, is_page: bool, blocking: Blocking) -> FsResult<Entered> {
        if !is_page {
            return self.enter(path, blocking);
        }
        let Some(member) = self.in_members.of_member(path) else {
            return Ok(Entered { _member: None, _whole: None });
        };
        let entered = if blocking == Blocking::Yes { Some(member.read_arc()) } else { member.try_read_arc() };
        Ok(Entered { _member: Some(entered.ok_or(Failure::WouldBlock)?), _whole: None })
    }

    /// Keeps requests from changing anything until the lock is released.
    pub fn freeze(&self) -> Closed {
        self.changes.write_arc()
    }

    /// Keeps requests from changing anything until the lock is released. `None` if one that has begun takes longer than this.
    pub fn freeze_within(&self, timeout: Duration) -> Option<Closed> {
        self.changes.try_write_arc_for(timeout)
    }

    /// Keeps requests from changing anything in a member until the lock is released. `None` if one that has begun takes longer than this.
    pub fn close_member(&self, name: &str, timeout: Duration) -> Option<Closed> {
        self.in_members.at(name).try_write_arc_for(timeout)
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
