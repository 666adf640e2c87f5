//! The cache of the hierarchy's nodes. An entry is compared with the store after `revalidate`.
//!
//! The cache stands between the file system and `hierarchy::Tree`, which reads the store at each call. `node.rs` has its entries,
//! `table.rs` what is kept of them, and `root.rs` the root while the store does not respond.
//!
//! Invariants: no entry that is older than `revalidate`, or was made from older documents of groups above it, is returned; the
//! kernel's copy expires with the entry here ([`CachedNode::valid_for`]), so that the two delays do not add up; a failure of the
//! store is never cached.

mod node;
mod root;
mod table;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::Error;
use crate::hierarchy::{Checked, Child, Node, RemoteChildren, RemoteNode, Tree};
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::store::{MemberRights, MemberState, ObjectVersion, Store, join, member_name};

pub use node::CachedNode;
use root::{Looked, RootLook};
use table::{CachedListing, NodeTable};

/// The cached nodes, by path.
pub struct NodeCache {
    tree: Tree,
    revalidate: Duration,
    /// The same for remote members of a catalogue, if it is another.
    revalidate_remote: Option<Duration>,
    table: Mutex<NodeTable>,
    root: RootLook,
    /// When the store, if it keeps versions, last followed its branch.
    followed_at: Mutex<Option<Instant>>,
}

impl NodeCache {
    /// Creates an empty cache over a store's tree.
    pub fn new(tree: Tree, revalidate: Duration) -> Self {
        NodeCache::with_remote_members(tree, revalidate, None)
    }

    /// Creates an empty cache over the tree of a store, which may be a catalogue with remote members.
    pub fn with_remote_members(
        tree: Tree,
        revalidate: Duration,
        revalidate_remote: Option<Duration>,
    ) -> Self {
        let (table, followed_at) = (Mutex::new(NodeTable::new()), Mutex::default());
        NodeCache { tree, revalidate, revalidate_remote, table, root: RootLook::default(), followed_at }
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.tree.store()
    }

    /// Returns the store that has a path: in a catalogue, the member's, which has the same keys.
    pub fn store_at(&self, path: &str) -> Arc<dyn Store> {
        self.tree.store_at(path)
    }

    /// Returns whether programs may make nodes in a group, as far as that depends on the member of a catalogue that it is in.
    pub fn admits_create(&self, path: &str) -> bool {
        self.rights(path).is_none_or(|rights| rights.create)
    }

    /// Returns whether programs may remove and rename a node, as far as that depends on the member of a catalogue that it is in.
    pub fn admits_delete(&self, path: &str) -> bool {
        self.rights(path).is_none_or(|rights| rights.delete)
    }

    fn rights(&self, path: &str) -> Option<MemberRights> {
        let catalogue = self.store().catalogue()?;
        Some(member_name(path).map_or_else(MemberRights::default, |name| catalogue.rights(name)))
    }

    /// Returns a text that changes with the definition of the member of a catalogue that a path is in, the same in every process.
    pub fn member_mark(&self, path: &str) -> Option<String> {
        self.store_at(path).mark()
    }

    /// Returns the node at a path for the attributes of its folder, and for its name. That of a remote member of a catalogue may be as
    /// old as the member: a service that does not respond must not hold up a listing of the members. While the store does not respond,
    /// that of the root is the last one that is known.
    pub fn get_folder(self: &Arc<Self>, path: &str, blocking: Blocking) -> FsResult<Arc<CachedNode>> {
        if path.is_empty() && self.store().catalogue().is_none() {
            return self.get_root(blocking);
        }
        let Some(catalogue) = self.store().catalogue().filter(|_| member_name(path) == Some(path)) else {
            return self.get(path, blocking);
        };
        if !matches!(catalogue.state(path), Some(MemberState::Open)) || !self.store_at(path).is_remote() {
            return self.get(path, blocking);
        }
        let known =
            self.peek(path).filter(|cached| matches!(cached.node.as_deref(), Some(Node::Group { .. })));
        let known = known.map(|known| known.with_read_at(Instant::now()));
        Ok(Arc::new(known.unwrap_or_else(|| CachedNode::folder(path))))
    }

    /// Returns the root for the attributes of its folder. Every path into the mount begins with them, and so does a listing of the folder
    /// that the mount is in. If they waited for a store that is away, nobody could list the mounts of the machine, read the reports of
    /// this one, or unmount it.
    fn get_root(self: &Arc<Self>, blocking: Blocking) -> FsResult<Arc<CachedNode>> {
        let revalidate = self.revalidate("");
        let known = match self.peek("") {
            Some(known) if !known.valid_for(revalidate).is_zero() => return Ok(known),
            // Without a delay, nothing may be old.
            Some(known) if !revalidate.is_zero() => known,
            _ => return self.get("", blocking),
        };
        if blocking == Blocking::No {
            return Err(Failure::WouldBlock);
        }
        let nodes = self.clone();
        // What it finds is in the table, failures too.
        let look = move || drop(nodes.get("", Blocking::Yes));
        match self.root.within_patience(&known, look) {
            Ok(Looked::NotYet(last)) => Ok(Arc::new(last.with_read_at(Instant::now()))),
            Ok(Looked::Since(began_at)) => match self.peek("") {
                Some(found) if found.read_at >= began_at => Ok(found),
                // The look has failed, or has found what was read just before.
                _ => self.get("", blocking),
            },
            // No thread can be started.
            Err(_) => self.get("", blocking),
        }
    }

    /// Returns the maximum age of an entry for this path.
    pub fn revalidate(&self, path: &str) -> Duration {
        match self.revalidate_remote {
            Some(remote) if self.store_at(path).is_remote() => remote,
            _ => self.revalidate,
        }
    }

    /// Returns the node at a path, at most `revalidate` old.
    pub fn get(&self, path: &str, blocking: Blocking) -> FsResult<Arc<CachedNode>> {
        let previous = self.peek(path);
        match previous {
            Some(cached) if !cached.valid_for(self.revalidate(path)).is_zero() => Ok(cached),
            previous => match self.known_absent(path) {
                Some(absent) => Ok(absent),
                None if blocking == Blocking::No => Err(Failure::WouldBlock),
                None => self.refresh(path, previous, self.revalidate(path)),
            },
        }
    }

    /// Returns an entry without a node if the listing of the group shows that the path has none.
    fn known_absent(&self, path: &str) -> Option<Arc<CachedNode>> {
        let (group, name) = path.rsplit_once('/').unwrap_or(("", path));
        let listing = self.table.lock().listings.get(group).cloned()?;
        let is_absent =
            !path.is_empty() && listing.is_recent(self.revalidate(path)) && listing.excludes(name);
        is_absent.then(|| Arc::new(CachedNode::absent(listing.read_at)))
    }

    /// Returns the node at a path for an open(2) that only reads. It is compared with the store now; with a remote store, where
    /// that costs a round trip, only if it is older than `revalidate`.
    pub fn get_for_reader(&self, path: &str) -> FsResult<Arc<CachedNode>> {
        let recent = self.peek(path).filter(|cached| !cached.valid_for(self.revalidate(path)).is_zero());
        match recent.filter(|_| self.store_at(path).is_remote()) {
            Some(cached) => Ok(cached),
            None => self.current(path),
        }
    }

    /// Returns the node at a path, compared with the store now.
    pub fn current(&self, path: &str) -> FsResult<Arc<CachedNode>> {
        self.refresh(path, self.peek(path), Duration::ZERO)
    }

    /// Returns the cached node at a path, of any age.
    pub fn peek(&self, path: &str) -> Option<Arc<CachedNode>> {
        self.table.lock().by_path.get(path).cloned()
    }

    /// Returns the current version of the documents at a path.
    pub fn version(&self, path: &str) -> FsResult<Option<ObjectVersion>> {
        Ok(self.tree.version(path)?.map(|found| found.version))
    }

    /// Returns the children of a group, as the store lists them now. Those of a remote store are at most `revalidate` old, and
    /// their nodes are in the cache afterwards.
    pub fn children(&self, path: &str) -> FsResult<Vec<Child>> {
        if !self.store_at(path).is_remote() {
            return Ok(self.tree.children(path)?);
        }
        let known = self.table.lock().listings.get(path).cloned();
        if let Some(listing) = known.filter(|listing| listing.is_recent(self.revalidate(path))) {
            return Ok(listing.children.clone());
        }
        let RemoteChildren { nodes, is_complete, checked_at, .. } =
            self.tree.remote_children(path, self.revalidate(path))?;
        let (mut children, mut is_whole) = (Vec::new(), true);
        for (name, found) in nodes {
            let child_path = join(path, &name);
            children.push(found.child(name));
            is_whole &= !self.insert_remote(&child_path, found, checked_at).is_failure;
        }
        if !is_whole {
            return Ok(children);
        }
        let listing = CachedListing { children: children.clone(), is_complete, read_at: checked_at };
        self.table.lock().put_listing(path, listing);
        Ok(children)
    }

    /// Returns whether a path is the root and the root is an array. Its folder has the files of this array only.
    pub fn is_root_array(&self, path: &str, blocking: Blocking) -> FsResult<bool> {
        if !path.is_empty() {
            return Ok(false);
        }
        let root = self.get("", blocking)?;
        match root.node.as_deref() {
            // The archive has changed, so it is unknown what the root is.
            Some(Node::Broken { error: error @ Error::Stale { .. }, .. }) => Err(error.clone().into()),
            _ => Ok(root.is_array()),
        }
    }

    /// Returns the path of the node with a name in the folder of a group. The folder of a root that is an array has this array
    /// alone, by the name `root_name`.
    pub fn path_in(
        &self,
        group: &str,
        name: &str,
        root_name: &str,
        blocking: Blocking,
    ) -> FsResult<Option<String>> {
        if !self.is_root_array(group, blocking)? {
            return Ok(Some(join(group, name)));
        }
        Ok((name == root_name).then(String::new))
    }

    /// Returns the nodes in the folder of a group, as the store lists them now. Blocks on the store.
    pub fn members(&self, group: &str) -> FsResult<Vec<Child>> {
        if self.is_root_array(group, Blocking::Yes)? { Ok(Vec::new()) } else { self.children(group) }
    }

    /// Makes a store that keeps versions show the newest snapshot of its branch, at most once in `revalidate`.
    pub fn follow_branch(&self) -> FsResult<()> {
        let Some(versions) = self.store().versions() else { return Ok(()) };
        let Some(branch) = versions.branch() else { return Ok(()) };
        let mut followed_at = self.followed_at.lock();
        if followed_at.is_none_or(|at| at.elapsed() >= self.revalidate) {
            versions.follow(branch)?;
            *followed_at = Some(Instant::now());
        }
        Ok(())
    }

    /// Removes all entries: the next lookup reads the store.
    pub fn expire(&self) {
        self.tree.forget();
        self.table.lock().clear();
    }

    /// Removes one path. Its next lookup reads the store, also for the groups above it.
    pub fn forget(&self, path: &str) {
        self.tree.forget();
        let mut table = self.table.lock();
        table.remove(path);
        table.listings.clear();
    }

    /// Reads a node, unless the cached one is unchanged. Groups above it may be `max_age` old.
    fn refresh(
        &self,
        path: &str,
        previous: Option<Arc<CachedNode>>,
        max_age: Duration,
    ) -> FsResult<Arc<CachedNode>> {
        if self.store_at(path).is_remote() {
            let Checked { found, checked_at } = self.tree.remote_node(path, max_age);
            return Ok(match found {
                Some(found) => self.insert_remote(path, found, checked_at),
                None => self.insert(path, CachedNode::absent(checked_at)),
            });
        }
        let Checked { found, checked_at: read_at } = self.tree.version_for(path, max_age)?;
        let Some(found) = found else { return Ok(self.insert(path, CachedNode::absent(read_at))) };
        let version = Some(found.version);
        let cached = match previous {
            Some(previous) if previous.settled_version() == version => previous.with_read_at(read_at),
            _ => {
                let Checked { found: node, checked_at } = self.tree.node_for(path, max_age)?;
                // As long as there is a record of lengths, the node is read again at each look, so that its end is seen.
                let record = node.as_ref().and_then(|found| found.lengths_record);
                let is_settled = found.is_settled() && record.is_none();
                let version = record.map_or(version, |record| Some(ObjectVersion::hashed((version, record))));
                let (node, read_at) = (node.map(|found| Arc::new(found.node)), read_at.min(checked_at));
                let memory_bytes = node.as_ref().map_or(0, |node| node.memory_bytes());
                let is_failure = node.as_ref().is_some_and(|node| could_not_be_read(node));
                CachedNode { node, version, read_at, is_settled, is_failure, is_remote: false, memory_bytes }
            }
        };
        Ok(self.insert(path, cached))
    }

    /// Caches a node of a remote store. A node that has not changed stays the same one.
    fn insert_remote(&self, path: &str, found: RemoteNode, read_at: Instant) -> Arc<CachedNode> {
        let (version, is_settled) = (Some(found.version.version), found.version.is_settled());
        let is_failure = could_not_be_read(&found.node);
        let cached = match self.peek(path) {
            Some(previous) if previous.settled_version() == version => previous.with_read_at(read_at),
            _ => {
                let (memory_bytes, node) = (found.node.memory_bytes(), Some(Arc::new(found.node)));
                CachedNode { node, version, read_at, is_settled, is_failure, is_remote: true, memory_bytes }
            }
        };
        self.insert(path, cached)
    }

    fn insert(&self, path: &str, cached: CachedNode) -> Arc<CachedNode> {
        let cached = Arc::new(cached);
        let mut table = self.table.lock();
        // Of two refreshes at the same time, the one that began later counts.
        if let Some(newer) = table.by_path.get(path).filter(|kept| kept.read_at > cached.read_at) {
            return newer.clone();
        }
        let revalidate = self.revalidate_remote.map_or(self.revalidate, |remote| remote.max(self.revalidate));
        table.sweep(revalidate);
        table.put(path, cached.clone());
        table.limit_heavy(path, cached.memory_bytes);
        cached
    }
}

/// Returns whether a node is broken because the store failed, and not because of its documents.
fn could_not_be_read(node: &Node) -> bool {
    matches!(node, Node::Broken { error: Error::Store { .. } | Error::Stale { .. }, .. })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::node::{ENTRY_BYTES, NODE_BYTES};
    use super::table::{MAX_HEAVY_BYTES, MAX_LIGHT_BYTES};
    use super::*;
    use crate::error::Result;
    use crate::store::MemoryStore;
    use crate::test_store::{Hook, Hooked, Request};

    /// A group with arrays whose attributes take 20 MiB each when they are parsed.
    fn store() -> MemoryStore {
        let store = MemoryStore::new();
        let attributes: Vec<String> = (0..120_000).map(|n| format!(r#""a{n:06}":{n}"#)).collect();
        let attributes = attributes.join(",");
        store.put("zarr.json", br#"{"zarr_format":3,"node_type":"group"}"#.to_vec()).unwrap();
        for number in 0..8 {
            let document = format!(
                r#"{{"zarr_format":3,"node_type":"array","shape":[4],"data_type":"uint8","fill_value":0,
                "chunk_grid":{{"name":"regular","configuration":{{"chunk_shape":[4]}}}},
                "chunk_key_encoding":{{"name":"default"}},"codecs":[{{"name":"bytes"}}],"attributes":{{{attributes}}}}}"#
            );
            store.put(&format!("x{number}/zarr.json"), document.into_bytes()).unwrap();
        }
        store
    }

    #[derive(Default)]
    struct Requests(AtomicUsize);

    impl Hook for Requests {
        fn before(&self, _: &Request<'_>) -> Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    /// `du` looks up each sidecar by its name, and the store must not be searched for a node of that name.
    #[test]
    fn a_name_without_a_folder_costs_one_request() {
        for is_documented in [true, false] {
            let objects = MemoryStore::new();
            if is_documented {
                objects.put("g/zarr.json", br#"{"zarr_format":3,"node_type":"group"}"#.to_vec()).unwrap();
            }
            objects.put("g/a/b/c", Vec::new()).unwrap();
            let store = Hooked::new(Arc::new(objects), Requests::default());
            let nodes = NodeCache::new(Tree::new(store.clone()), Duration::from_secs(600));
            for (name, expected) in [("first.json", None), ("second.json", Some(1))] {
                let before = store.0.load(Ordering::Relaxed);
                assert!(nodes.get(&format!("g/{name}"), Blocking::Yes).unwrap().node.is_none());
                let requests = store.0.load(Ordering::Relaxed) - before;
                assert!(expected.is_none_or(|expected| requests == expected), "{name}: {requests} requests");
            }
            // Whoever opens a file compares all groups above it.
            let before = store.0.load(Ordering::Relaxed);
            assert!(nodes.current("g/third.json").unwrap().node.is_none());
            assert!(store.0.load(Ordering::Relaxed) > before + 3);
        }
    }

    /// What depends on an old document of a group expires with that document.
    #[test]
    fn the_delays_of_a_node_and_of_the_groups_above_do_not_add_up() {
        let nodes = NodeCache::new(Tree::new(Arc::new(store())), Duration::from_secs(600));
        nodes.get("first.json", Blocking::Yes).unwrap();
        let between = Instant::now();
        assert!(nodes.get("second.json", Blocking::Yes).unwrap().read_at <= between);
        assert!(nodes.current("third.json").unwrap().read_at >= between);
    }

    /// `ls -lR` of a large store reads each node once.
    #[test]
    fn the_memory_of_many_nodes_has_a_limit() {
        let nodes = NodeCache::new(Tree::new(Arc::new(store())), Duration::from_secs(600));
        let light = NodeCache::new(Tree::new(Arc::new(MemoryStore::new())), Duration::from_secs(600));
        let array = nodes.get("x0", Blocking::Yes).unwrap();
        for number in 0..3 * MAX_LIGHT_BYTES / NODE_BYTES / 16 {
            let mut cached = array.with_read_at(Instant::now());
            cached.memory_bytes = 16 * NODE_BYTES;
            light.insert(&format!("x{number}"), cached);
            let table = light.table.lock();
            let bytes: usize = table.by_path.values().map(|cached| cached.light_bytes()).sum();
            assert_eq!(bytes, table.light_bytes);
            assert!(bytes <= MAX_LIGHT_BYTES + 17 * NODE_BYTES + ENTRY_BYTES, "{bytes} bytes");
        }
        // One of a remote store would cost a round trip.
        light.insert("remote", CachedNode { is_remote: true, ..array.with_read_at(Instant::now()) });
        for number in 0..3 * MAX_LIGHT_BYTES / NODE_BYTES / 16 {
            let mut cached = array.with_read_at(Instant::now());
            cached.memory_bytes = 16 * NODE_BYTES;
            light.insert(&format!("x{number}"), cached);
        }
        assert!(light.peek("remote").is_some());
        let last = format!("x{}", 3 * MAX_LIGHT_BYTES / NODE_BYTES / 16 - 1);
        assert!(light.peek(&last).is_some());
        light.forget(&last);
        assert!(light.peek(&last).is_none());
        light.expire();
        assert_eq!(light.table.lock().light_bytes, 0);
    }

    #[test]
    fn long_documents_are_read_again_instead_of_kept() {
        let nodes = NodeCache::new(Tree::new(Arc::new(store())), Duration::from_secs(600));
        let attributes_of = |path: &str| match nodes.get(path, Blocking::Yes).unwrap().node.as_deref() {
            Some(Node::Array { metadata, .. }) => metadata.attributes.len(),
            _ => 0,
        };
        for path in (0..8).chain(0..8).map(|number| format!("x{number}")) {
            assert_eq!(attributes_of(&path), 120_000, "{path}");
            let table = nodes.table.lock();
            let kept = table.by_path.values().filter_map(|cached| cached.node.as_deref());
            let kept: usize = kept.map(Node::memory_bytes).sum();
            assert!(kept <= MAX_HEAVY_BYTES && table.heavy.len() < 8, "{kept} bytes after {path}");
        }
        nodes.forget("x7");
        assert_eq!(attributes_of("x7"), 120_000);
        nodes.expire();
        assert!(nodes.table.lock().heavy.is_empty());
    }
}
