//! Stores that keep versions, and the outcome of a commit. Uses `error` and the traits of `store`.
//!
//! A store of versions shows one **snapshot**. It cannot be written directly: changes go into a [`Transaction`] over the newest
//! snapshot of a branch, and become one new snapshot of that branch. `in_memory.rs` is a store of versions for tests.
//!
//! Invariants: a snapshot never changes. An object that did not change between two snapshots has the same
//! [`ObjectVersion`](super::ObjectVersion) in both. A snapshot that carries a mark was published by exactly one
//! [`Transaction::commit`] with that mark.

mod choice;
#[cfg(test)]
pub mod in_memory;

pub use choice::{DEFAULT_BRANCH, SnapshotInfo, VersionChoice};

pub use super::{Transaction, Versions};

/// The outcome of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// The transaction is now the snapshot with this ID.
    Snapshot(String),
    /// The branch no longer ends in the snapshot from which the transaction began: nothing was published.
    BranchMoved,
}
