//! Changes of an overlay that become a snapshot of its base. Uses its neighbours in `overlay`, and `versions`.
//!
//! Writers pass a gate (`gate.rs`). It is closed while the last changes are sent and published, so that what is forgotten afterwards is what
//! was published. Before a transaction is published, a mark is noted in the folder, durably. Where a crash, or a reply that was
//! lost, leaves open whether it was published, the gate stays closed until the base has said whether a snapshot carries that
//! mark. So each change is published once.
//!
//! Invariant: while a mark is noted in the folder, nothing else changes there.

use std::io;
use std::time::{Duration, Instant};

use parking_lot::{RwLockReadGuard, RwLockWriteGuard};

use super::gate::{Gate, Pending, Recorded, Unsettled};
use super::{OverlayStore, failed};
use crate::error::{Error, Result};
use crate::store::versions::{CommitOutcome, Transaction, Versions};
use crate::store::{Precondition, Store};

/// How long a failed question for the outcome is not repeated.
const QUESTION_INTERVAL: Duration = Duration::from_secs(1);

/// Records what is changed, until it is dropped.
pub struct Recording<'a>(&'a OverlayStore);

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        *self.0.shared.recorded.lock() = None;
    }
}

/// What a writer changes.
#[derive(Clone, Copy)]
pub(super) enum Changing<'a> {
    Object(&'a str),
    Folder,
}

/// Keeps writers out of an overlay.
pub struct Frozen<'a> {
    store: &'a OverlayStore,
    gate: RwLockWriteGuard<'a, Gate>,
}

impl OverlayStore {
    /// Lets a writer in. It waits while a commit is published.
    pub(super) fn enter(&self, changing: Changing<'_>) -> Result<RwLockReadGuard<'_, Gate>> {
        loop {
            let gate = self.shared.gate.read();
            if gate.unsettled.is_none() {
                if let Some(recorded) = self.shared.recorded.lock().as_mut() {
                    match changing {
                        Changing::Object(key) => drop(recorded.keys.insert(key.to_owned())),
                        Changing::Folder => recorded.has_folders = true,
                    }
                }
                return Ok(gate);
            }
            drop(gate);
            self.settle()?;
        }
    }

    /// Finds out what became of a commit whose outcome is not known, and forgets what it has published.
    pub fn settle(&self) -> Result<()> {
        let mut gate = self.shared.gate.write();
        self.settle_in(&mut gate)
    }

    fn settle_in(&self, gate: &mut Gate) -> Result<()> {
        let Some(unsettled) = &mut gate.unsettled else { return Ok(()) };
        if let Some((at, error)) = &unsettled.asked
            && at.elapsed() < QUESTION_INTERVAL
        {
            return Err(error.clone());
        }
        match self.find_outcome(&unsettled.pending, unsettled.is_of_another) {
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

    /// The snapshot that a pending commit has become, if it has; then nothing is pending any more.
    fn find_outcome(&self, pending: &Pending, is_of_another: bool) -> Result<Option<String>> {
        let (versions, branch) = (self.versions()?, pending.branch.as_str());
        let snapshot = versions.find_mark(branch, &pending.mark)?;
        if snapshot.is_some() {
            if !is_of_another || versions.branch() == Some(branch) {
                self.follow(branch)?;
            }
            self.forget_all()?;
        }
        Pending::remove(&self.shared.folder.path).map_err(failed("", "remove the mark of the commit"))?;
        Ok(snapshot)
    }

    /// The branch that is followed: that of the last commit, or the one that the base was opened with.
    pub fn branch(&self) -> Option<String> {
        let of_commit = self.shared.followed.lock().clone();
        of_commit.or_else(|| self.shared.root.versions()?.branch().map(str::to_owned))
    }

    /// Has the base show the newest snapshot of a branch.
    fn follow(&self, branch: &str) -> Result<()> {
        self.versions()?.follow(branch)?;
        self.shared.root.forget_transfers("");
        *self.shared.followed.lock() = Some(branch.to_owned());
        self.note_branch()
    }

    /// Forgets all changes, which the base has.
    fn forget_all(&self) -> Result<()> {
        // A folder that is shown again has the new nodes; without its lines first, it would be seen empty.
        for removal in self.removals()? {
            self.forget_removal(&removal)?;
        }
        self.forget(&self.changes()?)?;
        let documents = &self.shared.folder.documents;
        let Some(writer) = documents.writer() else { return Ok(()) };
        for entry in documents.list("")? {
            match entry.is_folder {
                true => drop(writer.remove_folder(&entry.name)?),
                false => drop(writer.delete(&entry.name, Precondition::Any)?),
            }
        }
        Ok(())
    }

    /// The half of the base that has snapshots.
    pub fn versions(&self) -> Result<&dyn Versions> {
        let none =
            || Error::Usage(format!("{} keeps no versions: nothing can be committed to it", self.describe()));
        self.shared.root.versions().ok_or_else(none)
    }

    /// Records what is changed from now on, for a commit that sends while writers go on.
    pub fn record(&self) -> Recording<'_> {
        // After those that are writing.
        let _gate = self.shared.gate.write();
        *self.shared.recorded.lock() = Some(Recorded::default());
        Recording(self)
    }

    /// Keeps writers out, after those that are writing.
    pub fn freeze(&self) -> Result<Frozen<'_>> {
        let mut gate = self.shared.gate.write();
        self.settle_in(&mut gate)?;
        Ok(Frozen { store: self, gate })
    }
}

impl Frozen<'_> {
    /// What was changed since the recording began.
    pub fn changed_since(&self, recording: Recording<'_>) -> Recorded {
        recording.0.shared.recorded.lock().take().unwrap_or_default()
    }

    /// Publishes a transaction that has all changes of the overlay, and forgets them. An error means that nothing was published,
    /// or that this is not known, which writers are told until it is.
    pub fn publish(
        mut self,
        transaction: Box<dyn Transaction>,
        branch: &str,
        message: &str,
    ) -> Result<CommitOutcome> {
        let folder = &self.store.shared.folder.path;
        let noted = Pending::new(branch).and_then(|pending| pending.note(folder).map(|()| pending));
        let pending = noted.map_err(|error| {
            let _ = Pending::remove(folder);
            Error::store("", "note the mark of the commit", error)
        })?;
        self.gate.unsettled = Some(Unsettled { pending: pending.clone(), is_of_another: false, asked: None });
        let published = transaction.commit(message, &pending.mark);
        if let Ok(CommitOutcome::Snapshot(_)) = &published {
            let forgotten =
                self.store.follow(branch).and_then(|()| self.store.forget_all()).and_then(|()| {
                    Pending::remove(folder).map_err(failed("", "remove the mark of the commit"))
                });
            match forgotten {
                Ok(()) => self.gate.unsettled = None,
                // Settled by the next writer.
                Err(error) => log::warn!("what was committed is still in the overlay: {error}"),
            }
            return published;
        }
        // Also after a reply that says that nothing was published: an earlier one may have been lost.
        match (self.store.find_outcome(&pending, false), published) {
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

    /// Forgets changes that the newest snapshot of a branch has already.
    pub fn forget(self, branch: &str) -> Result<()> {
        self.store.follow(branch)?;
        self.store.forget_all()
    }
}
