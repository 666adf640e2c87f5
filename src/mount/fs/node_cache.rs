//! A cache of the hierarchy's nodes, revalidated after `revalidate` seconds.
//!
//! It stands between the file system and `hierarchy::Tree`, which reads the store at each call. Invariants:
//! no entry older than `revalidate` is returned; the kernel's copy expires when the entry here does
//! ([`CachedNode::valid_for`]), so that the two delays do not add up; a failure of the store is never cached.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::hierarchy::{Child, Node, NodeState, Tree};
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::store::{ObjectVersion, Store};

/// A node as it was in the store.
#[derive(Debug)]
pub struct CachedNode {
    /// The node; `None` if there is none.
    pub node: Option<Arc<Node>>,
    /// The version of its documents, taken before they were read.
    pub version: Option<ObjectVersion>,
    /// When the store was read.
    pub read_at: Instant,
    /// The documents were old enough when they were read: any later change shows in their version.
    is_settled: bool,
}

impl CachedNode {
    /// How long this entry may still be used.
    pub fn valid_for(&self, revalidate: Duration) -> Duration {
        revalidate.saturating_sub(self.read_at.elapsed())
    }

    /// The node and its version.
    pub fn state(&self) -> NodeState<'_> {
        NodeState { node: self.node.as_deref(), version: self.version, read_at: self.read_at }
    }

    /// Whether the node is shown as a file.
    pub fn is_array(&self) -> bool {
        matches!(self.node.as_deref(), Some(Node::Array { .. } | Node::Broken { .. }))
    }

    /// A copy with a new time of reading.
    fn again(&self, read_at: Instant) -> Self {
        CachedNode { node: self.node.clone(), version: self.version, read_at, is_settled: self.is_settled }
    }
}

/// How many paths are cached before expired ones are removed.
const SWEEP_AT: usize = 4096;
/// Above this many paths, entries without a node are removed too: any user can look up names that do not
/// exist.
const NEGATIVE_LIMIT: usize = 65_536;

/// Nodes by path.
pub struct NodeCache {
    tree: Tree,
    revalidate: Duration,
    table: Mutex<NodeTable>,
}

struct NodeTable {
    by_path: HashMap<Arc<str>, Arc<CachedNode>>,
    sweep_at: usize,
}

impl NodeCache {
    /// A cache over a store's tree.
    pub fn new(tree: Tree, revalidate: Duration) -> Self {
        let table = NodeTable { by_path: HashMap::new(), sweep_at: SWEEP_AT };
        NodeCache { tree, revalidate, table: Mutex::new(table) }
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.tree.store()
    }

    /// The maximum age of an entry.
    pub fn revalidate(&self) -> Duration {
        self.revalidate
    }

    /// The node at a path, at most `revalidate` old.
    pub fn get(&self, path: &str, blocking: Blocking) -> FsResult<Arc<CachedNode>> {
        let previous = self.peek(path);
        match previous {
            Some(cached) if !cached.valid_for(self.revalidate).is_zero() => Ok(cached),
            _ if blocking == Blocking::No => Err(Failure::WouldBlock),
            previous => self.look(path, previous),
        }
    }

    /// The node at a path, for an open(2) that only reads. Compared with the store now; with a remote store, to which that is
    /// a round trip, if it was not for the time of `revalidate`.
    pub fn for_reader(&self, path: &str) -> FsResult<Arc<CachedNode>> {
        let recent = self.peek(path).filter(|cached| !cached.valid_for(self.revalidate).is_zero());
        match recent.filter(|_| self.tree.store().is_remote()) {
            Some(cached) => Ok(cached),
            None => self.current(path),
        }
    }

    /// The node at a path, compared with the store now. For open(2).
    pub fn current(&self, path: &str) -> FsResult<Arc<CachedNode>> {
        self.look(path, self.peek(path))
    }

    /// The cached node at a path, of any age.
    pub fn peek(&self, path: &str) -> Option<Arc<CachedNode>> {
        self.table.lock().by_path.get(path).cloned()
    }

    /// The current version of the documents at a path.
    pub fn version(&self, path: &str) -> FsResult<Option<ObjectVersion>> {
        Ok(self.tree.version(path)?.map(|found| found.version))
    }

    /// The children of a group, as the store lists them now.
    pub fn children(&self, path: &str) -> FsResult<Vec<Child>> {
        Ok(self.tree.children(path)?)
    }

    /// Removes all entries: the next lookup reads the store.
    pub fn expire(&self) {
        self.table.lock().by_path.clear();
    }

    /// Removes one path: its next lookup reads the store.
    pub fn forget(&self, path: &str) {
        self.table.lock().by_path.remove(path);
    }

    /// Reads a node, unless the cached one is unchanged.
    fn look(&self, path: &str, previous: Option<Arc<CachedNode>>) -> FsResult<Arc<CachedNode>> {
        let read_at = Instant::now();
        let mut read = None;
        let found = if self.tree.store().is_remote() {
            let (node, version) = self.tree.remote_node(path).unzip();
            read = Some(node);
            version
        } else {
            self.tree.version(path)?
        };
        let version = found.map(|found| found.version);
        let cached = match previous {
            Some(previous) if previous.version == version && previous.is_settled => previous.again(read_at),
            _ => {
                let is_settled = found.is_none_or(|found| found.is_settled());
                let node = match read {
                    Some(node) => node,
                    None => self.tree.node(path)?,
                };
                CachedNode { node: node.map(Arc::new), version, read_at, is_settled }
            }
        };
        let cached = Arc::new(cached);
        let mut table = self.table.lock();
        if table.by_path.len() >= table.sweep_at {
            let revalidate = self.revalidate;
            let keeps_negative = table.by_path.len() < NEGATIVE_LIMIT;
            table.by_path.retain(|_, cached| {
                (keeps_negative || cached.node.is_some()) && !cached.valid_for(revalidate).is_zero()
            });
            table.sweep_at = SWEEP_AT.max(2 * table.by_path.len());
        }
        table.by_path.insert(path.into(), cached.clone());
        Ok(cached)
    }
}
