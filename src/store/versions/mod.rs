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

pub use super::{Transaction, Versions};

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    /// It is the snapshot with this ID.
    Snapshot(String),
    /// The branch has another snapshot than the transaction began from: nothing was published.
    BranchMoved,
}
