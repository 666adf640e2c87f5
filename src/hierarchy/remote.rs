//! Nodes of a remote store, where each document costs a round trip: few requests, in large batches. Uses `tree` and `group_cache`.
//!
//! A group in consolidated metadata is listed from there, and nothing else is requested. A node that was added since is found by
//! its name, as in a group that the service does not list.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::lineage::{Lineage, parent};
use super::node::{Checked, Child, Node, NodeVersion};
use super::tree::Tree;
use crate::error::{Error, Result};
use crate::store::join;

/// How many children of a group are read in one batch.
const BATCH_CHILDREN: usize = 512;

/// A node and its version, from the same documents.
#[derive(Debug)]
pub struct RemoteNode {
    /// The node.
    pub node: Node,
    /// Its version.
    pub version: NodeVersion,
}

/// The nodes below a group.
#[derive(Debug)]
pub struct RemoteChildren {
    /// The nodes by name, sorted.
    pub nodes: Vec<(String, RemoteNode)>,
    /// Whether other names are not nodes.
    pub is_complete: bool,
    /// The reason why the service does not list the group.
    pub unlisted: Option<Error>,
    /// When it was read.
    pub checked_at: Instant,
}

impl RemoteNode {
    /// Returns the node as a child of a group.
    pub fn child(&self, name: String) -> Child {
        Child { name, is_group: matches!(self.node, Node::Group { .. }) }
    }
}

impl Tree {
    /// Returns the node at a path. Groups above that were last read more than `max_age` ago are read in the same batch.
    pub fn remote_node(&self, path: &str, max_age: Duration) -> Checked<Option<RemoteNode>> {
        if let Some(member) = self.member(path) {
            return match member.unopened(path, self.store()) {
                Some(node) => {
                    let version = NodeVersion::of_unopened(&node);
                    Checked { found: Some(RemoteNode { node, version }), checked_at: Instant::now() }
                }
                None => member.remote_node(path, max_age),
            };
        }
        let paths: Vec<&str> = std::iter::successors(Some(path), |path| parent(path)).collect();
        let groups_above = paths.get(1..).unwrap_or_default();
        let store = self.store().as_ref();
        if groups_above.iter().any(|group| self.groups.has_copies(group)) {
            // Consolidated metadata probably has the node.
            let above = self.above_for(parent(path), max_age);
            let own = || self.groups.read(store, path, max_age);
            return self.found(path, &above, own, above.checked_at);
        }
        // The first document of that format is nearly always there, and enough.
        let format = groups_above.iter().find_map(|group| self.groups.format(group));
        let mut looked = self.groups.read_many(store, &paths, format, max_age);
        let checked_at = looked.iter().map(|looked| looked.at).min().unwrap_or_else(Instant::now);
        let above = looked.split_off(looked.len().min(1));
        let own = looked.pop().and_then(|looked| looked.documents);
        let above = Lineage::new(groups_above, above);
        self.found(path, &above, || own, checked_at)
    }

    fn found(
        &self,
        path: &str,
        above: &Lineage,
        own: impl FnOnce() -> Option<super::documents::Documents>,
        checked_at: Instant,
    ) -> Checked<Option<RemoteNode>> {
        let found = self.find_with(path, above, true, own);
        let found = found.map(|found| RemoteNode { node: found.remote_node(), version: found.version() });
        Checked { found, checked_at }
    }

    /// Returns the nodes below a group. The documents of the group and of those above are at most `max_age` old.
    pub fn remote_children(&self, path: &str, max_age: Duration) -> Result<RemoteChildren> {
        self.remote_children_under(path, &self.above_for(Some(path), max_age))
    }

    /// As [`Tree::remote_children`], for a caller that has the lineage already.
    pub(super) fn remote_children_under(&self, path: &str, above: &Lineage) -> Result<RemoteChildren> {
        if let Some(member) = self.member(path) {
            return member.remote_children_under(path, above);
        }
        if let Some(error) = above.unread() {
            return Err(error.clone());
        }
        let is_copied = above.is_copied(path);
        let mut names = BTreeSet::new();
        let mut unlisted = None;
        if is_copied || above.is_fertile() {
            names.extend(above.copied_names(path));
        }
        if !is_copied && above.is_fertile() {
            match self.add_folders(path, &mut names) {
                Err(error @ Error::Unlisted { .. }) => unlisted = Some(error),
                listed => listed?,
            }
        }
        let names = Vec::from_iter(names);
        let mut children = RemoteChildren {
            nodes: Vec::new(),
            is_complete: !is_copied && unlisted.is_none(),
            unlisted,
            checked_at: above.checked_at,
        };
        for names in names.chunks(BATCH_CHILDREN) {
            self.read_children(path, names, above, &mut children.nodes);
        }
        Ok(children)
    }

    /// Adds the nodes below a group that have these names.
    fn read_children(
        &self,
        path: &str,
        names: &[String],
        above: &Lineage,
        nodes: &mut Vec<(String, RemoteNode)>,
    ) {
        let store = self.store().as_ref();
        let paths: Vec<String> = names.iter().map(|name| join(path, name)).collect();
        let asked = paths.iter().map(String::as_str).filter(|path| above.copy(path).is_none());
        let asked: Vec<&str> = asked.collect();
        let looked = self.groups.read_many(store, &asked, above.parent_format(), Duration::ZERO);
        let mut documents: HashMap<&str, _> = asked.into_iter().zip(looked).collect();
        for (name, path) in names.iter().zip(&paths) {
            let own = || documents.remove(path.as_str()).and_then(|looked| looked.documents);
            if let Some(found) = self.find_with(path, above, true, own) {
                let node = RemoteNode { node: found.remote_node(), version: found.version() };
                nodes.push((name.clone(), node));
            }
        }
    }
}
