//! The hierarchy: which groups and arrays a store holds, found lazily.
//!
//! Spec: v3 core "Hierarchy", v2 "Hierarchies". Uses `store` and `metadata`; reads documents, never chunks, and writes
//! attributes only (`attributes.rs`).
//! `documents.rs` reads what one folder says, `group_cache.rs` remembers groups, `lineage.rs` knows what the groups
//! above a node say of it, `tree.rs` puts them together, `walk.rs` goes through it all.

pub mod attributes;
mod documents;
mod group_cache;
mod lineage;
pub mod tree;
mod walk;

#[cfg(test)]
mod tests;

pub use lineage::MAX_DEPTH;
pub use tree::{Child, Node, Tree};
pub use walk::{Visit, Walk};
