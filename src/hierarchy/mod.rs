//! The hierarchy: which groups and arrays a store holds, found lazily.
//!
//! Spec: v3 core "Hierarchy", v2 "Hierarchies". Uses `store` and `metadata`; reads documents, never chunks.

pub mod tree;

pub use tree::{Child, Node, Tree};
