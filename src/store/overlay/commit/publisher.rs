//! Snapshots that are made of an overlay's changes. Uses `gate.rs`, `folder/` and `versions`.
//!
//! Writers pass a gate (`gate.rs`). It is closed while the last changes are sent and published, so that exactly the published changes
//! are forgotten afterwards. Before a transaction is published, its mark is written into the folder, durably. If the process dies, or the
//! reply is lost, it is not known whether the transaction was published. Then the gate stays closed until the base has said whether
//! a snapshot carries that mark. So each change is published once.
//!
//! Invariant: while a mark is in the folder, nothing else changes there.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::gate::{CommitGate, PendingCommit, RecordedChanges, UnsettledCommit};
use crate::error::{Error, Result};
use crate::store::Store;
use crate::store::overlay::folder::{Folder, store_error};
use crate::store::versions::{CommitOutcome, Transaction, Versions};

/// How long the base is not asked again after it failed to say the outcome.
const ASKING_INTERVAL: Duration = Duration::from_secs(1);

/// Makes snapshots of an overlay's changes, and keeps writers out meanwhile.
pub struct Publisher {
    /// The base, with the permissions of this program.
    base: Arc<dyn Store>,
    folder: Arc<Folder>,
    gate: RwLock<CommitGate>,
    /// The changes since a commit began to send.
    recorded: Mutex<Option<RecordedChanges>>,
    /// The branch of the last commit.
    followed: Mutex<Option<String>>,
}

/// Records changes until it is dropped.
pub struct Recording<'a>(&'a Publisher);

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        *self.0.recorded.lock() = None;
    }
}

/// What a writer is about to change.
#[derive(Clone, Copy)]
pub enum WriteScope<'a> {
    /// The object at a key.
    Object(&'a str),
    /// A folder with everything below it.
    Folder,
}

/// Keeps writers out of an overlay until it is dropped.
pub struct Frozen<'a> {
    publisher: &'a Publisher,
    gate: RwLockWriteGuard<'a, CommitGate>,
}

impl Publisher {
    /// Returns the publisher of the overlay in `folder`.
    pub(in crate::store::overlay) fn open(
        base: Arc<dyn Store>,
        folder: Arc<Folder>,
        is_written: bool,
    ) -> Result<Self> {
        let gate = if is_written { CommitGate::read(folder.path())? } else { CommitGate::default() };
        let (recorded, followed) = (Mutex::default(), Mutex::default());
        let publisher = Publisher { base, folder, gate: RwLock::new(gate), recorded, followed };
        if is_written {
            publisher.settle()?;
            publisher.record_branch()?;
        }
        Ok(publisher)
    }

    /// Records the branch that is followed. A commit without a mount goes to that branch.
    fn record_branch(&self) -> Result<()> {
        match self.base.versions() {
            Some(_) => self.folder.record_branch(self.branch().as_deref()),
            None => Ok(()),
        }
    }

    /// Lets a writer in. Waits while a commit is being published.
    pub(in crate::store::overlay) fn enter(
        &self,
        scope: WriteScope<'_>,
    ) -> Result<RwLockReadGuard<'_, CommitGate>> {
        loop {
            let gate = self.gate.read();
            if gate.unsettled.is_none() {
                if let Some(recorded) = self.recorded.lock().as_mut() {
                    match scope {
                        WriteScope::Object(key) => drop(recorded.keys.insert(key.to_owned())),
                        WriteScope::Folder => recorded.has_folders = true,
                    }
                }
                return Ok(gate);
            }
            drop(gate);
            self.settle()?;
        }
    }

    /// Finds the outcome of a commit, if it is not known. If the commit was published, its changes are forgotten.
    pub fn settle(&self) -> Result<()> {
        let mut gate = self.gate.write();
        self.settle_in(&mut gate)
    }

    fn settle_in(&self, gate: &mut CommitGate) -> Result<()> {
        let Some(unsettled) = &mut gate.unsettled else { return Ok(()) };
        if let Some((at, error)) = &unsettled.asked
            && at.elapsed() < ASKING_INTERVAL
        {
            return Err(error.clone());
        }
        match self.find_outcome(&unsettled.pending, unsettled.is_inherited) {
            Ok(_) => gate.unsettled = None,
            Err(error) => {
                let reason = format!(
                    "it is not known whether the last commit was published, and nothing is written until it is: {error}"
                );
                let error = Error::store("", "", io::Error::other(reason));
                unsettled.asked = Some((Instant::now(), error.clone()));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns the snapshot that a pending commit has become; `None` if it was not published. Afterwards it is no longer pending.
    fn find_outcome(&self, pending: &PendingCommit, is_inherited: bool) -> Result<Option<String>> {
        let (versions, branch) = (self.versions()?, pending.branch.as_str());
        let snapshot = versions.find_mark(branch, &pending.mark)?;
        if snapshot.is_some() {
            if !is_inherited || versions.branch() == Some(branch) {
                self.follow(branch)?;
            }
            self.folder.forget_all()?;
        }
        self.remove_mark()?;
        Ok(snapshot)
    }

    fn remove_mark(&self) -> Result<()> {
        PendingCommit::remove(self.folder.path()).map_err(store_error("", "remove the mark of the commit"))
    }

    /// Returns the branch that is followed: that of the last commit, or else the one that the base was opened with.
    pub fn branch(&self) -> Option<String> {
        let last = self.followed.lock().clone();
        last.or_else(|| self.base.versions()?.branch().map(str::to_owned))
    }

    /// Makes the base show the newest snapshot of a branch.
    fn follow(&self, branch: &str) -> Result<()> {
        self.versions()?.follow(branch)?;
        self.base.forget_transfers("");
        *self.followed.lock() = Some(branch.to_owned());
        self.record_branch()
    }

    /// Returns the half of the base that has snapshots.
    pub fn versions(&self) -> Result<&dyn Versions> {
        let none = || {
            let base = self.base.describe();
            Error::Usage(format!("{base} keeps no versions: nothing can be committed to it"))
        };
        self.base.versions().ok_or_else(none)
    }

    /// Records changes from now on, for a commit that sends while programs go on writing.
    pub fn record(&self) -> Recording<'_> {
        // Waits for writes that have begun.
        let _gate = self.gate.write();
        *self.recorded.lock() = Some(RecordedChanges::default());
        Recording(self)
    }

    /// Keeps writers out, once the writes that have begun are done.
    pub fn freeze(&self) -> Result<Frozen<'_>> {
        let mut gate = self.gate.write();
        self.settle_in(&mut gate)?;
        Ok(Frozen { publisher: self, gate })
    }
}

impl Frozen<'_> {
    /// Returns the changes since the recording began.
    pub fn changed_since(&self, recording: Recording<'_>) -> RecordedChanges {
        recording.0.recorded.lock().take().unwrap_or_default()
    }

    /// Publishes a transaction that has all changes of the overlay, and forgets them. An error means that nothing was published, or that
    /// this is not known. In the second case writers fail until it is.
    pub fn publish(
        mut self,
        transaction: Box<dyn Transaction>,
        branch: &str,
        message: &str,
    ) -> Result<CommitOutcome> {
        let (publisher, folder) = (self.publisher, self.publisher.folder.path());
        let recorded =
            PendingCommit::new(branch).and_then(|pending| pending.record(folder).map(|()| pending));
        let pending = recorded.map_err(|error| {
            let _ = PendingCommit::remove(folder);
            Error::store("", "record the mark of the commit", error)
        })?;
        self.gate.unsettled =
            Some(UnsettledCommit { pending: pending.clone(), is_inherited: false, asked: None });
        let published = transaction.commit(message, &pending.mark);
        if let Ok(CommitOutcome::Snapshot(_)) = &published {
            let forgotten = publisher.follow(branch).and_then(|()| publisher.folder.forget_all());
            match forgotten.and_then(|()| publisher.remove_mark()) {
                Ok(()) => self.gate.unsettled = None,
                // The next writer settles it.
                Err(error) => log::warn!("what was committed is still in the overlay: {error}"),
            }
            return published;
        }
        // The base is asked even if the reply says that nothing was published, because the reply to an earlier request may have been lost.
        match (publisher.find_outcome(&pending, false), published) {
            (Ok(Some(snapshot)), _) => {
                self.gate.unsettled = None;
                Ok(CommitOutcome::Snapshot(snapshot))
            }
            (Ok(None), published) => {
                self.gate.unsettled = None;
                published
            }
            (Err(error), Ok(_)) => Err(error),
            (Err(unknown), Err(error)) => {
                let reason = format!("{error}; whether the commit was published is not known: {unknown}");
                Err(Error::store("", "", io::Error::other(reason)))
            }
        }
    }

    /// Forgets changes that the newest snapshot of a branch already has.
    pub fn forget(self, branch: &str) -> Result<()> {
        self.publisher.follow(branch)?;
        self.publisher.folder.forget_all()
    }
}
