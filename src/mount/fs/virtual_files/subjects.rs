//! The subjects of companion files: a node or a view of it, its array, and the nodes and arrays around it.
//!
//! This file uses `hierarchy` and `formats`.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::error::Result;
use crate::formats::{self, CompanionPlace, Format, Subject, Surroundings, views as view_files};
use crate::hierarchy::{Child, Node, OpenArrays, SharedArray, View};
use crate::mount::fs::arrays::ServedArrays;
use crate::mount::fs::attributes::permissions::Permissions;
use crate::mount::fs::entity::Entity;
use crate::mount::fs::error::Blocking;
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::parts::MountParts;
use crate::store::Audience;

/// How old the nodes around a subject may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// At most `revalidate`, as what stat(2) and lookups return.
    Recent,
    /// Compared with the store now, as what open(2) gives.
    Now,
}

/// The nodes and arrays of a mount, as companion files need them.
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
    /// Creates the subjects of a mount.
    pub fn new(parts: &MountParts) -> Self {
        Subjects {
            nodes: parts.nodes.clone(),
            arrays: parts.arrays.clone(),
            served: parts.served.clone(),
            permissions: parts.permissions.clone(),
            listed: parts.options.formats.clone(),
            root_name: parts.root_name.clone(),
        }
    }

    /// Returns the formats whose files are listed next to the nodes' own.
    pub fn listed(&self) -> &[&'static Format] {
        &self.listed
    }

    /// Returns the subject of a companion file of a node.
    pub fn for_node<'a>(
        &'a self,
        path: &'a str,
        place: CompanionPlace,
        node: &'a Node,
        freshness: Freshness,
    ) -> Subject<'a> {
        self.subject(None, path, place, node, node, freshness)
    }

    /// Returns the subject of a companion file of a node, or of a view of it. `shown` is the node as the view shows it.
    pub fn for_entity<'a>(
        &'a self,
        entity: &'a Entity,
        place: CompanionPlace,
        node: &'a Node,
        shown: &'a Node,
        freshness: Freshness,
    ) -> Subject<'a> {
        self.subject(entity.view.as_ref(), &entity.path, place, node, shown, freshness)
    }

    fn subject<'a>(
        &'a self,
        view: Option<&View>,
        path: &'a str,
        place: CompanionPlace,
        node: &'a Node,
        shown: &'a Node,
        freshness: Freshness,
    ) -> Subject<'a> {
        let audience: Arc<Audience> = Arc::default();
        audience.admit(self.permissions.readers(Some(node)));
        let array_file = if path.is_empty() { &self.root_name } else { path };
        let rank = match node {
            Node::Array { metadata, .. } => metadata.shape.len(),
            Node::Group { .. } | Node::Broken { .. } => 0,
        };
        let own_view = view.and_then(|view| view.of_array(rank, self.arrays.layout()));
        let neighbour_view = view.and_then(View::of_neighbours);
        Subject {
            arrays: &self.arrays,
            audience,
            path,
            root_name: &self.root_name,
            node: shown,
            view: view.map(|view| (view.clone(), node)),
            view_file: view.map(|view| view_files::own_file(view, array_file, node)),
            place,
            surroundings: Box::new(ReaderSurroundings {
                subjects: self,
                node,
                path,
                own_view,
                neighbour_view,
                freshness,
                known: Mutex::default(),
                oldest: Mutex::default(),
            }),
            formats: formats::FORMATS,
            listed: &self.listed,
            walk: Default::default(),
        }
    }

    /// Returns what users that may read `reader` see of the node at a path: the node, if all of them may read its documents. Blocks on the
    /// store.
    fn node_for_readers_of(&self, reader: &Node, path: &str, freshness: Freshness) -> Result<KnownNode> {
        let found = match freshness {
            Freshness::Recent => self.nodes.get(path, Blocking::Yes),
            Freshness::Now => self.nodes.get_for_reader(path),
        };
        let found = found.map_err(|failure| failure.into_error(path))?;
        let known = KnownNode { path: path.to_owned(), node: None, read_at: found.read_at };
        let Some(node) = found.node.clone() else { return Ok(known) };
        let documents = formats::node_documents_info(self.nodes.store_at(path).as_ref(), path, &node)?;
        let node_readers = self.permissions.readers_of(&documents);
        let is_open = self.permissions.readers(Some(reader)).all_may_read(&node_readers);
        Ok(KnownNode { node: is_open.then_some(node), ..known })
    }
}

/// The other nodes, as far as the readers of a node may see them.
struct ReaderSurroundings<'a> {
    subjects: &'a Subjects,
    node: &'a Node,
    path: &'a str,
    /// The view of the node's own array.
    own_view: Option<View>,
    /// The view of the nodes next to it.
    neighbour_view: Option<View>,
    freshness: Freshness,
    /// The nodes that were looked up last. Several formats ask for the same groups above a node, and each answer compares their documents
    /// with the store.
    known: Mutex<Vec<KnownNode>>,
    /// When the oldest of the nodes that were looked up was read.
    oldest: Mutex<Option<Instant>>,
}

/// A node that was looked up for a file.
struct KnownNode {
    path: String,
    /// `None` if the readers of the file may not see it, or there is none.
    node: Option<Arc<Node>>,
    /// When it was read or compared with the store.
    read_at: Instant,
}

/// How many nodes are known at a time. A file may have thousands of nodes, which must not stay in memory.
const MAX_KNOWN: usize = 8;

impl ReaderSurroundings<'_> {
    fn stored_node(&self, path: &str) -> Result<Option<Arc<Node>>> {
        if let Some(known) = self.known.lock().iter().find(|known| known.path == path) {
            return Ok(known.node.clone());
        }
        let found = self.subjects.node_for_readers_of(self.node, path, self.freshness)?;
        let node = found.node.clone();
        let mut oldest = self.oldest.lock();
        *oldest = Some(oldest.map_or(found.read_at, |oldest| oldest.min(found.read_at)));
        let mut known = self.known.lock();
        if known.len() >= MAX_KNOWN {
            known.remove(0);
        }
        known.push(found);
        Ok(node)
    }
}

impl Surroundings for ReaderSurroundings<'_> {
    fn open_array(&self, path: &str) -> Result<Arc<SharedArray>> {
        let layout = self.subjects.arrays.layout();
        // A slice of a neighbour is in the neighbour's own file.
        let neighbour = || self.neighbour_view.as_ref().and_then(|view| view.of_array(0, layout));
        let view = if path == self.path { self.own_view.clone() } else { neighbour() };
        self.subjects.served.shared_array(view, path).map_err(|failure| failure.into_error(path))
    }

    fn open_view(&self, view: View, path: &str) -> Result<Arc<SharedArray>> {
        self.subjects.served.shared_array(Some(view), path).map_err(|failure| failure.into_error(path))
    }

    fn open_array_to_read(&self, path: &str) -> Result<Arc<SharedArray>> {
        self.subjects.served.array_for_readers(path).map_err(|failure| failure.into_error(path))
    }

    fn node(&self, path: &str) -> Result<Option<Arc<Node>>> {
        let found = self.stored_node(path)?;
        Ok(match (&self.neighbour_view, found) {
            (Some(view), Some(found)) => self.subjects.arrays.shown(Some(view), &found),
            (_, found) => found,
        })
    }

    fn whole_node(&self, path: &str) -> Result<Option<Arc<Node>>> {
        match self.neighbour_view {
            Some(View::Slice(_)) => self.stored_node(path),
            _ => self.node(path),
        }
    }

    fn children(&self, path: &str) -> Result<Vec<Child>> {
        self.subjects.nodes.members(path).map_err(|failure| failure.into_error(path))
    }

    fn is_node(&self, path: &str) -> Result<bool> {
        let cached = self.subjects.nodes.get(path, Blocking::Yes);
        Ok(cached.map_err(|failure| failure.into_error(path))?.node.is_some())
    }

    fn oldest_checked_at(&self) -> Option<Instant> {
        *self.oldest.lock()
    }
}
