//! Files that have no counterpart in the store: sidecars, companion files, metrics and configuration.
//!
//! Uses `hierarchy`, `formats` and `array` through a `Context`, the parts of a file system that these files
//! are made from.

pub mod companions;
pub mod generated;
pub mod node_sidecar;
pub mod sidecar;
pub mod sidecar_edit;
pub mod snippets;

use std::sync::Arc;

use crate::array::{Array, Engine};
use crate::error::Error;
use crate::metadata::ArrayMetadata;
use crate::mount::fs::FileSystem;
use crate::mount::fs::inode::InodeTable;
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::permissions::Permissions;
use crate::mount::options::Options;
use crate::store::{Audience, Store};

/// The parts of a file system that virtual files are made from.
pub(in crate::mount::fs) struct Context<'a> {
    options: &'a Options,
    nodes: &'a NodeCache,
    engine: &'a Arc<Engine>,
    inodes: &'a InodeTable,
    permissions: &'a Permissions,
    /// The name of the root's file, if the root is an array.
    root_name: &'a str,
}

impl FileSystem {
    /// The parts that virtual files are made from.
    pub(in crate::mount::fs) fn context(&self) -> Context<'_> {
        Context {
            options: &self.options,
            nodes: &self.nodes,
            engine: &self.engine,
            inodes: &self.inodes,
            permissions: &self.permissions,
            root_name: &self.root_name,
        }
    }
}

impl Context<'_> {
    /// Builds the array's codec chain; fails where the array cannot be served.
    pub(in crate::mount::fs) fn build_array(
        &self,
        path: &str,
        metadata: &Arc<ArrayMetadata>,
        audience: &Arc<Audience>,
    ) -> Result<Arc<Array>, Error> {
        let store = self.store_for(path, audience);
        Array::open(self.engine, &store, path, metadata.clone(), self.options.layout)
    }

    /// The store, restricted to objects that all readers of the array may read.
    pub(in crate::mount::fs) fn store_for(&self, path: &str, audience: &Arc<Audience>) -> Arc<dyn Store> {
        let store = self.nodes.store();
        store.for_audience(path, audience).unwrap_or_else(|| store.clone())
    }
}
