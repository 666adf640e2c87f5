//! Commits the changes of an overlay: as one snapshot of a base that keeps versions, or into a base without versions (`into_base.rs`).
//!
//! Uses `store` (its `overlay/commit` publishes and forgets), `metadata`, and `author/` to remove nodes. Most changes are sent while
//! programs go on writing. Then writers are kept out, and the changes that they have made meanwhile are sent (`sender.rs`).
//!
//! Invariants: all changes are published in one snapshot, or none are. A change is sent only in place of the version that it was made
//! from. Otherwise it is reported as a conflict, and the overlay keeps all of its changes. If another program has published first, all
//! changes are compared with its snapshot.

mod forms;
mod into_base;
#[cfg(test)]
mod into_base_tests;
pub mod nodes;
mod sender;
#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicU64;

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::store::overlay::OverlayStore;
use crate::store::versions::CommitOutcome;
pub use forms::Forms;
pub use into_base::{KeptChanges, Tally, into_base};
pub use sender::Conflict;
use sender::Sender;

/// How often a commit begins again after another program has published first.
const MAX_ATTEMPTS: usize = 20;

/// A request to commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The message of the snapshot.
    pub message: String,
    /// The branch; `None` for the one that is followed.
    pub branch: Option<String>,
}

/// The outcome of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There are no changes, or the branch already has all of them.
    Nothing,
    /// All changes are in a snapshot, and the overlay has forgotten them.
    Published {
        /// The ID of the snapshot.
        snapshot: String,
        /// The branch.
        branch: String,
        /// How many objects and nodes were changed.
        changes: u64,
    },
    /// Nothing was published.
    Conflicts(Vec<Conflict>),
}

impl Outcome {
    /// Returns the outcome as JSON, for programs.
    pub fn to_json(&self) -> Value {
        match self {
            Outcome::Nothing => json!({"snapshot": null, "changes": 0}),
            Outcome::Published { snapshot, branch, changes } => {
                json!({"snapshot": snapshot, "branch": branch, "changes": changes})
            }
            Outcome::Conflicts(conflicts) => {
                let conflict = |one: &Conflict| json!({"key": one.key, "reason": one.reason});
                json!({"snapshot": null, "conflicts": conflicts.iter().map(conflict).collect::<Vec<_>>()})
            }
        }
    }
}

/// Returns the branch of a request. Fails if the request is incomplete.
pub fn check(store: &OverlayStore, request: &Request) -> Result<String> {
    if request.message.trim().is_empty() {
        return Err(Error::Usage("a commit has a message: give one with --message".to_owned()));
    }
    store.publisher().versions()?;
    request.branch.clone().or_else(|| store.publisher().branch()).ok_or_else(|| {
        Error::Usage(
            "a tag or a snapshot is shown, which stays as it is: name the branch with --branch".to_owned(),
        )
    })
}

/// Commits all changes. `hold` is called when most of them are sent. It stores dirty chunks, and returns a value that keeps programs from
/// writing; the value is dropped when the overlay itself keeps writers out. `sent` counts objects as they are sent.
pub fn commit<WriteFreeze>(
    store: &OverlayStore,
    request: &Request,
    sent: &AtomicU64,
    mut hold: impl FnMut() -> Result<WriteFreeze>,
) -> Result<Outcome> {
    let branch = check(store, request)?;
    store.publisher().settle()?;
    for _ in 0..MAX_ATTEMPTS {
        if let Some(outcome) = attempt(store, &branch, &request.message, sent, &mut hold)? {
            return Ok(outcome);
        }
        log::debug!("others have published on {branch} meanwhile: comparing again");
    }
    Err(Error::busy("", format!("others keep publishing on {branch}; gave up after {MAX_ATTEMPTS} attempts")))
}

/// Makes one attempt; returns `None` if another program has published first.
fn attempt<WriteFreeze>(
    store: &OverlayStore,
    branch: &str,
    message: &str,
    sent: &AtomicU64,
    hold: &mut impl FnMut() -> Result<WriteFreeze>,
) -> Result<Option<Outcome>> {
    let versions = store.publisher().versions()?;
    let recording = store.publisher().record();
    let mut sender = Sender::new(store, versions.begin(branch)?, sent);
    sender.send_all()?;
    if let Some(conflicts) = sender.take_conflicts() {
        return Ok(Some(Outcome::Conflicts(conflicts)));
    }
    let write_freeze = hold()?;
    let frozen = store.publisher().freeze()?;
    drop(write_freeze);
    if !sender.send_recorded(&frozen.changed_since(recording))? {
        sender = Sender::new(store, versions.begin(branch)?, sent).for_frozen();
        sender.send_all()?;
    }
    if let Some(conflicts) = sender.take_conflicts() {
        return Ok(Some(Outcome::Conflicts(conflicts)));
    }
    let (transaction, changes) = sender.end();
    if changes == 0 {
        frozen.forget(branch)?;
        return Ok(Some(Outcome::Nothing));
    }
    Ok(match frozen.publish(transaction, branch, message)? {
        CommitOutcome::BranchMoved => None,
        CommitOutcome::Snapshot(snapshot) => {
            let branch = branch.to_owned();
            Some(Outcome::Published { snapshot, branch, changes })
        }
    })
}
