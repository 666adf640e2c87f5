//! A lazy tree of nodes over a store.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::metadata::{ArrayMetadata, GroupMetadata};
use crate::store::{Info, Store};

/// One node as it stands in the store now.
#[derive(Clone, Debug)]
pub enum Node {
    /// A group, with owner, mode and time of its folder.
    Group {
        /// Its document (empty for an implicit group).
        metadata: Arc<GroupMetadata>,
        /// Its folder.
        info: Info,
    },
    /// An array, with owner, mode and time of its metadata document.
    Array {
        /// Its document.
        metadata: Arc<ArrayMetadata>,
        /// The document's own attributes in the store.
        info: Info,
    },
    /// A node whose document is there but cannot be served: it stays listed as an array file with an error.
    Broken {
        /// Why, with the key.
        error: Error,
        /// The document's attributes in the store.
        info: Info,
        /// Shape × item size where those two could still be read, so that the size shown is true.
        size_bytes: Option<u64>,
        /// The document as far as it is JSON, for the sidecar.
        document: Option<serde_json::Value>,
    },
}

/// One name below a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Last segment of the path.
    pub name: String,
    /// A group (folder), or an array or broken node (file).
    pub is_group: bool,
}

/// The hierarchy of one store.
pub struct Tree {
    store: Arc<dyn Store>,
}

impl Tree {
    /// A tree over a store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Tree { store }
    }

    /// The store behind it.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The node at a path (`""` is the root), read from the store at each call; `None` when there is none.
    pub fn node(&self, _path: &str) -> Result<Option<Node>> {
        Ok(None)
    }

    /// The names below a group, sorted. Opens the documents of these children only, never of theirs.
    pub fn children(&self, _path: &str) -> Result<Vec<Child>> {
        Ok(Vec::new())
    }
}
