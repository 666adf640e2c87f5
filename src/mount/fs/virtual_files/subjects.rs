//! What companion files are made of: a node, what a view makes of it, its array, and the nodes and arrays around it.
//!
//! Uses `hierarchy` and `formats`.

use std::sync::Arc;

use crate::error::Result;
use crate::formats::{self, CompanionPlace, Format, Subject, Surroundings, views as view_files};
use crate::hierarchy::{Child, Node, OpenArrays, SharedArray, View};
use crate::mount::fs::arrays::ServedArrays;
use crate::mount::fs::error::Blocking;
use crate::mount::fs::inode::Entity;
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::permissions::Permissions;
use crate::store::Audience;

/// The nodes and arrays of a mount, as the makers of companion files need them.
pub struct Subjects {
    nodes: Arc<NodeCache>,
    arrays: Arc<OpenArrays>,
    served: Arc<ServedArrays>,
    permissions: Arc<Permissions>,
    /// The formats whose files are listed next to the nodes' own.
    listed: Vec<&'static Format>,
    /// The name of the root's file, if the root is an array.
    root_name: Arc<str>,
}

impl Subjects {
    /// Over these nodes and arrays.
    pub fn new(
        nodes: Arc<NodeCache>,
        arrays: Arc<OpenArrays>,
        served: Arc<ServedArrays>,
        permissions: Arc<Permissions>,
        listed: Vec<&'static Format>,
        root_name: Arc<str>,
    ) -> Self {
        Subjects { nodes, arrays, served, permissions, listed, root_name }
    }

    /// The formats whose files are listed next to the nodes' own.
    pub fn listed(&self) -> &[&'static Format] {
        &self.listed
    }

    /// What a companion file of a node is made of.
    pub fn of_node<'a>(&'a self, path: &'a str, place: CompanionPlace, node: &'a Node) -> Subject<'a> {
        self.of(None, path, place, node, node)
    }

    /// What a companion file of a node, or of a view of it, is made of. `shown` is what the view makes of the node.
    pub fn of_entity<'a>(
        &'a self,
        entity: &'a Entity,
        place: CompanionPlace,
        node: &'a Node,
        shown: &'a Node,
    ) -> Subject<'a> {
        self.of(entity.view, &entity.path, place, node, shown)
    }

    fn of<'a>(
        &'a self,
        view: Option<View>,
        path: &'a str,
        place: CompanionPlace,
        node: &'a Node,
        shown: &'a Node,
    ) -> Subject<'a> {
        let audience: Arc<Audience> = Arc::default();
        audience.admit(self.permissions.readers(Some(node)));
        let array_file = if path.is_empty() { &self.root_name } else { path };
        let rank = match node {
            Node::Array { metadata, .. } => metadata.shape.len(),
            Node::Group { .. } | Node::Broken { .. } => 0,
        };
        let of_own = view.and_then(|view| view.of_array(rank, self.arrays.layout()));
        // Next to a plane are the neighbours of its array.
        let of_others = view.filter(|view| !matches!(view, View::Planes(_) | View::Plane { .. }));
        Subject {
            arrays: &self.arrays,
            audience,
            path,
            root_name: &self.root_name,
            node: shown,
            view: view.map(|view| (view, node)),
            view_file: view.map(|view| view_files::own_file(view, array_file, node)),
            place,
            surroundings: Box::new(OfReaders { subjects: self, node, path, of_own, of_others }),
            formats: formats::FORMATS,
            listed: &self.listed,
        }
    }

    /// The node at a path, if all that may read `reader` may read its documents. Blocks on the store.
    fn node_for(&self, reader: &Node, path: &str) -> Result<Option<Arc<Node>>> {
        let found = self.nodes.get_for_reader(path).map_err(|failure| failure.into_error(path))?;
        let Some(node) = found.node.clone() else { return Ok(None) };
        let documents = formats::documents_info(&self.of_node(path, CompanionPlace::FormatFolder, &node))?;
        let of_node = self.permissions.readers_of(&documents);
        let is_open = self.permissions.readers(Some(reader)).all_may_read(&of_node);
        Ok(is_open.then_some(node))
    }
}

/// What the readers of a node may see of the other nodes.
struct OfReaders<'a> {
    subjects: &'a Subjects,
    node: &'a Node,
    path: &'a str,
    /// The view of the node's own array.
    of_own: Option<View>,
    /// The view of the arrays next to it.
    of_others: Option<View>,
}

impl Surroundings for OfReaders<'_> {
    fn open_array(&self, path: &str) -> Result<Arc<SharedArray>> {
        let view = if path == self.path { self.of_own } else { self.of_others };
        self.subjects.served.shared_array(view, path).map_err(|failure| failure.into_error(path))
    }

    fn open_array_to_read(&self, path: &str) -> Result<Arc<SharedArray>> {
        self.subjects.served.array_to_read(path).map_err(|failure| failure.into_error(path))
    }

    fn node(&self, path: &str) -> Result<Option<Arc<Node>>> {
        let found = self.subjects.node_for(self.node, path)?;
        Ok(match (self.of_others, found) {
            (Some(view), Some(found)) => self.subjects.arrays.shown(Some(view), &found),
            (_, found) => found,
        })
    }

    fn children(&self, path: &str) -> Result<Vec<Child>> {
        self.subjects.nodes.members(path).map_err(|failure| failure.into_error(path))
    }

    fn is_node(&self, path: &str) -> Result<bool> {
        let cached = self.subjects.nodes.get(path, Blocking::Yes);
        Ok(cached.map_err(|failure| failure.into_error(path))?.node.is_some())
    }
}
