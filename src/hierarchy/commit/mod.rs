//! Commits the changes of an overlay: as one snapshot of a base that keeps versions, or into a base that keeps none (`into_base.rs`).
//!
//! Uses `store` (its `overlay/publish.rs` publishes and forgets), `metadata`, and `author/` for what is removed. What is
//! sent is first what there is while writers go on, then, with writers kept out, what they have changed meanwhile (`sender.rs`).
//!
//! Invariants: all changes are published in one snapshot, or none. A change is sent only in place of the version that it was made
//! from; else it is a conflict, which is told, and the overlay keeps all of its changes. Where others have published first, all is
//! compared with their snapshot again.

mod forms;
mod into_base;
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
pub use into_base::{Kept, Tally, into_base};
pub use sender::Conflict;
use sender::Sender;

/// How often a commit begins again because others have published first.
const MAX_ATTEMPTS: usize = 20;

/// A commit to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The message of the snapshot.
    pub message: String,
    /// The branch; `None` is the one that is followed.
    pub branch: Option<String>,
}

/// What became of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The branch has all changes already, or there are none.
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
    /// As programs are told it.
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

/// Refuses a request that cannot be fulfilled, and returns its branch.
pub fn check(store: &OverlayStore, request: &Request) -> Result<String> {
    if request.message.trim().is_empty() {
        return Err(Error::Usage("a commit has a message: give one with --message".to_owned()));
    }
    store.versions()?;
    request.branch.clone().or_else(|| store.branch()).ok_or_else(|| {
        Error::Usage(
            "a tag or a snapshot is shown, which stays as it is: name the branch with --branch".to_owned(),
        )
    })
}

/// Commits all changes. `hold` is called when most of them are sent: it stores what writers have still in memory, and returns what
/// keeps them from writing, until the overlay takes nothing any more. `sent` counts objects as they are sent.
pub fn commit<Held>(
    store: &OverlayStore,
    request: &Request,
    sent: &AtomicU64,
    mut hold: impl FnMut() -> Result<Held>,
) -> Result<Outcome> {
    let branch = check(store, request)?;
    store.settle()?;
    for _ in 0..MAX_ATTEMPTS {
        if let Some(outcome) = attempt(store, &branch, &request.message, sent, &mut hold)? {
            return Ok(outcome);
        }
        log::debug!("others have published on {branch} meanwhile: comparing again");
    }
    Err(Error::busy("", format!("others keep publishing on {branch}; gave up after {MAX_ATTEMPTS} attempts")))
}

/// One attempt; `None` where others have published first.
fn attempt<Held>(
    store: &OverlayStore,
    branch: &str,
    message: &str,
    sent: &AtomicU64,
    hold: &mut impl FnMut() -> Result<Held>,
) -> Result<Option<Outcome>> {
    let versions = store.versions()?;
    let recording = store.record();
    let mut sender = Sender::new(store, versions.begin(branch)?, sent);
    sender.send_all()?;
    if let Some(conflicts) = sender.take_conflicts() {
        return Ok(Some(Outcome::Conflicts(conflicts)));
    }
    let held = hold()?;
    let frozen = store.freeze()?;
    drop(held);
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
