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

use crate::array::Engine;
use crate::hierarchy::OpenArrays;
use crate::mount::fs::FileSystem;
use crate::mount::fs::inode::InodeTable;
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::permissions::Permissions;
use crate::mount::options::Options;

/// The parts of a file system that virtual files are made from.
pub(in crate::mount::fs) struct Context<'a> {
    options: &'a Options,
    pub(in crate::mount::fs) nodes: &'a NodeCache,
    engine: &'a Arc<Engine>,
    pub(in crate::mount::fs) arrays: &'a OpenArrays,
    pub(in crate::mount::fs) inodes: &'a InodeTable,
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
            arrays: &self.arrays,
            inodes: &self.inodes,
            permissions: &self.permissions,
            root_name: &self.root_name,
        }
    }
}
