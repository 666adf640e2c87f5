//! The hierarchy: which groups and arrays a store holds, found lazily.
//!
//! Spec: v3 core "Hierarchy", v2 "Hierarchies". Uses `store`, `metadata` and `array`; reads documents, never chunks,
//! and writes documents only (`attributes.rs`; `author/`, which also has chunks outside of a resized array cleared).
//! `documents.rs` reads one folder, `group_cache.rs` remembers groups, `lineage.rs` knows what the groups
//! above a node say about it, `tree.rs` combines them, `remote.rs` does so with few round trips, `walk.rs` visits every node. `open_arrays.rs` has the
//! arrays that are open, `views.rs` what else can be made of them. `commit/` has the changes of an overlay become a version, or writes
//! them back.

pub mod attributes;
pub mod author;
pub mod commit;
mod documents;
mod group_cache;
mod lineage;
mod open_arrays;
mod remote;
pub mod tree;
mod views;
mod walk;

#[cfg(test)]
mod tests;
#[cfg(all(test, feature = "remote"))]
mod two_programs;

pub use documents::DOCUMENT_NAMES;
pub use lineage::MAX_DEPTH;
pub use open_arrays::{NodeState, OpenArray, OpenArrays, Reconciled, SharedArray};
pub use remote::{Found, RemoteChildren, RemoteNode};
pub use tree::{Child, Node, Tree};
pub use views::View;
pub use walk::{Visit, Walk};
