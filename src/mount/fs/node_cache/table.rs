//! The table of the cache: nodes and listings by path, and which of them are removed when they take too much memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::node::{CachedNode, HEAVY_BYTES};
use crate::formats::JSON;
use crate::hierarchy::Child;

/// How many paths are cached before expired ones are removed.
const SWEEP_AT: usize = 4096;
/// How many listings are cached before all are removed.
const MAX_LISTINGS: usize = 1024;
/// Above this many paths, entries without a node are removed, too: any user can look up names that do not exist.
const NEGATIVE_LIMIT: usize = 65_536;
/// The most memory that the documents of all heavy nodes take. A node that alone takes more is kept without others.
pub(super) const MAX_HEAVY_BYTES: usize = 64 << 20;
/// The most memory that all other nodes of stores on this machine take. A listing of many arrays reads each of them once, and their documents would fill the memory.
pub(super) const MAX_LIGHT_BYTES: usize = 32 << 20;

/// The children of a group in a remote store.
pub(super) struct CachedListing {
    /// Sorted by name.
    pub children: Vec<Child>,
    /// Whether the group has no other nodes.
    pub is_complete: bool,
    /// When the store was read.
    pub read_at: Instant,
}

impl CachedListing {
    pub fn is_recent(&self, revalidate: Duration) -> bool {
        self.read_at.elapsed() < revalidate
    }

    fn has(&self, name: &str) -> bool {
        self.children.binary_search_by(|child| child.name.as_str().cmp(name)).is_ok()
    }

    /// Returns whether a name is known not to be a node. If the listing is not complete, only names of sidecars are known.
    pub fn excludes(&self, name: &str) -> bool {
        let is_complete =
            self.is_complete || name.strip_suffix(JSON.suffix).is_some_and(|stem| self.has(stem));
        is_complete && !self.has(name)
    }
}

/// The entries, and how much memory they take.
pub(super) struct NodeTable {
    /// The nodes.
    pub by_path: HashMap<Arc<str>, Arc<CachedNode>>,
    /// The children of groups of a remote store.
    pub listings: HashMap<Arc<str>, Arc<CachedListing>>,
    sweep_at: usize,
    /// The memory of the nodes, without the documents of heavy ones.
    pub light_bytes: usize,
    /// The heavy nodes, the ones that were read last at the end.
    pub heavy: Vec<HeavyNode>,
}

/// A node whose documents take much memory.
pub(super) struct HeavyNode {
    path: Arc<str>,
    memory_bytes: usize,
}

impl NodeTable {
    /// Creates an empty table.
    pub fn new() -> Self {
        let (by_path, listings, heavy) = (HashMap::new(), HashMap::new(), Vec::new());
        NodeTable { by_path, listings, sweep_at: SWEEP_AT, light_bytes: 0, heavy }
    }

    /// Adds a node, in place of the one that has its path.
    pub fn put(&mut self, path: &str, cached: Arc<CachedNode>) {
        self.light_bytes += cached.light_bytes();
        if let Some(former) = self.by_path.insert(path.into(), cached) {
            self.light_bytes = self.light_bytes.saturating_sub(former.light_bytes());
        }
    }

    /// Removes a node.
    pub fn remove(&mut self, path: &str) {
        if let Some(former) = self.by_path.remove(path) {
            self.light_bytes = self.light_bytes.saturating_sub(former.light_bytes());
        }
    }

    /// Adds the children of a group.
    pub fn put_listing(&mut self, path: &str, listing: CachedListing) {
        if self.listings.len() >= MAX_LISTINGS {
            self.listings.clear();
        }
        self.listings.insert(path.into(), Arc::new(listing));
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.by_path.clear();
        self.heavy.clear();
        self.light_bytes = 0;
        self.listings.clear();
    }

    /// Removes expired nodes if there are many. If those of stores on this machine still take too much memory, removes all of these: they are
    /// read again when they are needed.
    pub fn sweep(&mut self, revalidate: Duration) {
        if self.by_path.len() < self.sweep_at && self.light_bytes <= MAX_LIGHT_BYTES {
            return;
        }
        let keeps_negative = self.by_path.len() < NEGATIVE_LIMIT;
        self.by_path.retain(|_, cached| {
            (keeps_negative || cached.node.is_some()) && !cached.valid_for(revalidate).is_zero()
        });
        self.light_bytes = self.by_path.values().map(|cached| cached.light_bytes()).sum();
        // Half of the limit stays free, so that the next sweep is far away.
        if self.light_bytes > MAX_LIGHT_BYTES / 2 {
            self.by_path.retain(|_, cached| cached.is_remote);
            self.heavy.retain(|heavy| self.by_path.contains_key(&heavy.path));
            self.light_bytes = 0;
        }
        self.sweep_at = SWEEP_AT.max(2 * self.by_path.len());
    }

    /// Counts the documents of a node, and removes other heavy nodes above the limit. They are read again when they are needed.
    pub fn limit_heavy(&mut self, path: &str, memory_bytes: usize) {
        self.heavy.retain(|heavy| *heavy.path != *path);
        if memory_bytes <= HEAVY_BYTES {
            return;
        }
        let mut all = memory_bytes + self.heavy.iter().map(|heavy| heavy.memory_bytes).sum::<usize>();
        while all > MAX_HEAVY_BYTES && !self.heavy.is_empty() {
            let oldest = self.heavy.remove(0);
            self.remove(&oldest.path);
            all -= oldest.memory_bytes;
        }
        self.heavy.push(HeavyNode { path: path.into(), memory_bytes });
    }
}
