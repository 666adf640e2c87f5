//! Stores that keep versions: what such a store is asked beside objects. Uses `error` and the traits of `store`.
//!
//! A store of versions shows one **snapshot**. It is not written itself: changes go into a [`Transaction`] over the newest
//! snapshot of a branch, and become one new snapshot of it. `in_memory.rs` is such a store for tests.
//!
//! Invariants: a snapshot never changes, and has an object in the same [`ObjectVersion`](super::ObjectVersion) as the snapshot
//! before it unless the object was changed between them. A snapshot that carries a mark was published by exactly one
//! [`Transaction::commit`] with that mark.

mod choice;
#[cfg(test)]
pub mod in_memory;

pub use choice::{DEFAULT_BRANCH, SnapshotInfo, VersionChoice};

use super::Store;
use crate::error::Result;

/// The half of a store that has snapshots and branches.
pub trait Versions: Send + Sync {
    /// The branch that the store follows; `None` where a tag or a snapshot is shown.
    fn branch(&self) -> Option<&str>;

    /// The ID of the snapshot that is shown.
    fn snapshot(&self) -> String;

    /// A transaction over the newest snapshot of a branch.
    fn begin(&self, branch: &str) -> Result<Box<dyn Transaction>>;

    /// The snapshot that carries a mark, among the recent ones of a branch.
    fn find_mark(&self, branch: &str, mark: &str) -> Result<Option<String>>;

    /// Shows the newest snapshot of a branch from now on, to every reader, whatever was shown before: a commit to another
    /// branch, or over a tag, has the store go on there. An object that is open stays as it is.
    fn follow(&self, branch: &str) -> Result<()>;
}

/// A snapshot to be. Reads see the snapshot that it begins from, and what was written into the transaction since;
/// [`Store::writer`] is there. Nobody else sees anything of it before [`Transaction::commit`]. One that is dropped is gone.
pub trait Transaction: Store {
    /// Publishes all that was written as one snapshot of the branch, which carries the mark. After an error the outcome may be
    /// unknown: [`Versions::find_mark`] tells.
    fn commit(self: Box<Self>, message: &str, mark: &str) -> Result<Published>;
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    /// It is the snapshot with this ID.
    Snapshot(String),
    /// The branch has another snapshot than the transaction began from: nothing was published.
    BranchMoved,
}
