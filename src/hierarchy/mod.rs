//! The hierarchy: which groups and arrays a store holds, found lazily.
//!
//! Spec: v3 core "Hierarchy", v2 "Hierarchies". Uses `store`, `metadata` and `array`. Reads documents and no chunks, and writes
//! documents (`attributes.rs`; `author/`, which also clears the chunks outside a resized array).
//!
//! `documents.rs` reads one folder, `group_cache.rs` remembers groups, `lineage.rs` knows what the groups above a node say about it,
//! `lengths_record.rs` which lengths readers see while a command changes them, and `tree.rs` combines them. `remote.rs` does the same with few round trips, and `walk.rs` visits every node. `open_arrays.rs` has the open
//! arrays, `views.rs` other views of them, and `slices.rs` parts of them. `cache_fill.rs` fills a disk cache. `stack/` puts
//! arrays of other stores together. `commit/` writes the changes of an
//! overlay back, or makes a snapshot of them.

pub mod attributes;
pub mod author;
pub mod cache_fill;
pub mod commit;
mod documents;
mod group_cache;
mod lengths_record;
mod lineage;
mod node;
mod open_arrays;
mod remote;
pub mod slices;
pub mod stack;
pub mod tree;
mod views;
mod walk;

#[cfg(test)]
mod tests;
#[cfg(all(test, feature = "remote"))]
mod two_programs;

pub use documents::DOCUMENT_NAMES;
pub use lineage::MAX_DEPTH;
pub use node::{Checked, Child, FoundNode, Node};
pub use open_arrays::{NodeState, OpenArray, OpenArrays, Reconciled, SharedArray};
pub use remote::{RemoteChildren, RemoteNode};
pub use stack::open_store;
pub use tree::Tree;
pub use views::View;
pub use walk::{Visit, Walk};
