//! Files that have no counterpart in the store: sidecars, companion files, metrics and configuration.
//!
//! Uses `hierarchy`, `formats` and `array` through a `Context`, the parts of a file system that these files
//! are made from.

pub mod companion_names;
pub mod companions;
pub mod generated;
pub mod sidecar_edit;
pub mod views;

use std::sync::Arc;

use crate::error::Result;
use crate::formats::{self, Place, Subject, views as view_files};
use crate::hierarchy::{Child, Node, OpenArrays, View};
use crate::mount::fs::FileSystem;
use crate::mount::fs::error::{Blocking, FsResult};
use crate::mount::fs::inode::{Entity, InodeTable};
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
        self.subject_in((None, path), place, node, node)
    }

    /// What a companion file of a node, or of a view of it, is made of. `shown` is what the view makes of the node.
    pub(in crate::mount::fs) fn subject_of(
        &self,
        entity: &'a Entity,
        place: Place,
        node: &'a Node,
        shown: &'a Node,
    ) -> Subject<'a> {
        self.subject_in((entity.view, &entity.path), place, node, shown)
    }

    fn subject_in(
        &self,
        (view, path): (Option<View>, &'a str),
        place: Place,
        node: &'a Node,
        shown: &'a Node,
    ) -> Subject<'a> {
        let ctx = *self;
        let audience: Arc<Audience> = Arc::default();
        audience.admit(ctx.permissions.readers(Some(node)));
        let array_file = if path.is_empty() { ctx.root_name } else { path };
        let rank = match node {
            Node::Array { metadata, .. } => metadata.shape.len(),
            Node::Group { .. } | Node::Broken { .. } => 0,
        };
        let of_own = view.and_then(|view| view.of_array(rank, ctx.arrays.layout()));
        // Beside a plane are the neighbours of its array.
        let of_others = view.filter(|view| !matches!(view, View::Planes(_) | View::Plane { .. }));
        Subject {
            arrays: ctx.arrays,
            audience,
            path,
            root_name: ctx.root_name,
            node: shown,
            view: view.map(|view| (view, node)),
            view_file: view.map(|view| view_files::own_file(view, array_file, node)),
            place,
            open_array: Box::new(move |other| {
                let view = if other == path { of_own } else { of_others };
                ctx.shared_array(view, other).map_err(|failure| failure.into_error(other))
            }),
            find_node: Box::new(move |path| {
                let found = ctx.node_for(node, path)?;
                Ok(match (of_others, found) {
                    (Some(view), Some(found)) => ctx.arrays.shown(Some(view), &found),
                    (_, found) => found,
                })
            }),
            open_array_to_read: Box::new(move |path| {
                let open = || -> FsResult<_> {
                    let shared = ctx.shared_array(None, path)?;
                    let cached = ctx.nodes.get(path, Blocking::Yes)?;
                    shared.audience.admit(ctx.permissions.readers(cached.node.as_deref()));
                    Ok(shared)
                };
                open().map_err(|failure| failure.into_error(path))
            }),
            children: Box::new(move |path| ctx.children(path).map_err(|failure| failure.into_error(path))),
            beside: &ctx.options.formats,
            is_node: Box::new(move |path| {
                let cached =
                    ctx.nodes.get(path, Blocking::Yes).map_err(|failure| failure.into_error(path))?;
                Ok(cached.node.is_some())
            }),
        }
    }

    /// Where the bytes of an entity are that shows those of an array.
    pub(in crate::mount::fs) fn array_view(&self, entity: &Entity, node: &Node) -> Option<View> {
        let Node::Array { metadata, .. } = node else { return entity.view };
        entity.view?.of_array(metadata.shape.len(), self.arrays.layout())
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
