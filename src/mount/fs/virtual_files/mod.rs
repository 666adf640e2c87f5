//! Files that have no counterpart in the store: sidecars, companion files, metrics and configuration.
//!
//! Uses `hierarchy`, `formats` and `array` through a `Context`, the parts of a file system that these files
//! are made from.

pub mod companions;
pub mod generated;
pub mod sidecar_edit;

use std::sync::Arc;

use crate::error::Result;
use crate::formats::{self, Place, Subject};
use crate::hierarchy::{Child, Node, OpenArrays};
use crate::mount::fs::FileSystem;
use crate::mount::fs::error::{Blocking, FsResult};
use crate::mount::fs::inode::InodeTable;
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::permissions::Permissions;
use crate::mount::options::Options;
use crate::store::Audience;

/// The parts of a file system that virtual files are made from.
#[derive(Clone, Copy)]
pub(in crate::mount::fs) struct Context<'a> {
    options: &'a Options,
    pub(in crate::mount::fs) nodes: &'a NodeCache,
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
            arrays: &self.arrays,
            inodes: &self.inodes,
            permissions: &self.permissions,
            root_name: &self.root_name,
        }
    }
}

impl<'a> Context<'a> {
    /// What a companion file of a node is made of.
    pub(in crate::mount::fs) fn subject(&self, path: &'a str, place: Place, node: &'a Node) -> Subject<'a> {
        let ctx = *self;
        let audience: Arc<Audience> = Arc::default();
        audience.admit(ctx.permissions.readers(Some(node)));
        Subject {
            arrays: ctx.arrays,
            audience,
            path,
            root_name: ctx.root_name,
            node,
            place,
            open_array: Box::new(move |path| {
                ctx.shared_array(path).map_err(|failure| failure.into_error(path))
            }),
            open_array_to_read: Box::new(move |path| {
                let open = || -> FsResult<_> {
                    let shared = ctx.shared_array(path)?;
                    let cached = ctx.nodes.get(path, Blocking::Yes)?;
                    shared.audience.admit(ctx.permissions.readers(cached.node.as_deref()));
                    Ok(shared)
                };
                open().map_err(|failure| failure.into_error(path))
            }),
            find_node: Box::new(move |path| ctx.node_for(node, path)),
            children: Box::new(move |path| ctx.children(path).map_err(|failure| failure.into_error(path))),
            beside: &ctx.options.formats,
            is_node: Box::new(move |path| {
                let cached =
                    ctx.nodes.get(path, Blocking::Yes).map_err(|failure| failure.into_error(path))?;
                Ok(cached.node.is_some())
            }),
        }
    }

    /// The node at a path, if all that may read `reader` may read its documents. Blocks on the store.
    fn node_for(&self, reader: &Node, path: &str) -> Result<Option<Arc<Node>>> {
        let found = self.nodes.for_reader(path).map_err(|failure| failure.into_error(path))?;
        let Some(node) = found.node.clone() else { return Ok(None) };
        let documents = formats::json::documents_info(&self.subject(path, Place::Mirror, &node))?;
        let of_node = self.permissions.readers_of(&documents);
        let is_open = self.permissions.readers(Some(reader)).may_all_read(&of_node);
        Ok(is_open.then_some(node))
    }

    /// Whether a path is the root, and the root an array: a folder with the files of this array alone.
    pub(in crate::mount::fs) fn is_root_array(&self, path: &str, blocking: Blocking) -> FsResult<bool> {
        Ok(path.is_empty() && self.nodes.get("", blocking)?.is_array())
    }

    /// What is in the folder of a group, as the store lists it now. Blocks on the store.
    pub(in crate::mount::fs) fn children(&self, group: &str) -> FsResult<Vec<Child>> {
        if self.is_root_array(group, Blocking::Yes)? { Ok(Vec::new()) } else { self.nodes.children(group) }
    }
}
