//! A node of the cache, with what decides how long it may be used.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::hierarchy::{Node, NodeState};
use crate::metadata::GroupMetadata;
use crate::store::{Info, ObjectVersion};

/// A node whose documents take more memory than this is heavy.
pub(super) const HEAVY_BYTES: usize = 64 << 10;
/// About how much memory an entry takes without the documents of its node.
pub(super) const ENTRY_BYTES: usize = 256;
/// About how much memory a node takes in addition to its documents.
pub(super) const NODE_BYTES: usize = 1024;

/// A node as it was in the store.
#[derive(Debug)]
pub struct CachedNode {
    /// The node; `None` if there is none.
    pub node: Option<Arc<Node>>,
    /// The version of its documents, taken before they were read.
    pub version: Option<ObjectVersion>,
    /// When the store was read.
    pub read_at: Instant,
    /// Whether the documents were old enough when they were read for any later change to show in their version.
    pub(super) is_settled: bool,
    /// Whether the store failed to say what is there. It is asked again at the next lookup.
    pub(super) is_failure: bool,
    /// Whether it is of a remote store, where reading it again costs a round trip.
    pub(super) is_remote: bool,
    /// The memory that its documents take.
    pub(super) memory_bytes: usize,
}

impl CachedNode {
    /// Returns how long this entry may still be used.
    pub fn valid_for(&self, revalidate: Duration) -> Duration {
        if self.is_failure {
            return Duration::ZERO;
        }
        revalidate.saturating_sub(self.read_at.elapsed())
    }

    /// Returns the node and its version, as open arrays take them.
    pub fn node_state(&self) -> NodeState<'_> {
        NodeState { node: self.node.as_deref(), version: self.version, read_at: self.read_at }
    }

    /// Returns the version of its documents, if the same version later means the same node.
    pub fn settled_version(&self) -> Option<ObjectVersion> {
        self.version.filter(|_| self.is_settled && !self.is_failure)
    }

    /// Returns whether the node is shown as a file.
    pub fn is_array(&self) -> bool {
        matches!(self.node.as_deref(), Some(Node::Array { .. } | Node::Broken { .. }))
    }

    /// Returns an entry without a node.
    pub fn absent(read_at: Instant) -> Self {
        CachedNode {
            node: None,
            version: None,
            read_at,
            is_settled: true,
            is_failure: false,
            is_remote: false,
            memory_bytes: 0,
        }
    }

    /// Returns an entry for the folder of a group of which nothing was read.
    pub(super) fn folder(path: &str) -> Self {
        let info = Info { size_bytes: 0, modified: None, version: ObjectVersion::numbered(0), posix: None };
        let metadata = GroupMetadata {
            zarr_format: None,
            document_key: path.to_owned(),
            attributes: serde_json::Map::new(),
            attributes_error: None,
            consolidated: None,
        };
        let node = Node::Group { metadata: Arc::new(metadata), info };
        CachedNode { node: Some(Arc::new(node)), ..CachedNode::absent(Instant::now()) }
    }

    /// Returns about how much memory the entry takes, without the documents of a heavy node. One of a remote store does not count: a listing
    /// reads the nodes of a group together, and programs then look at each.
    pub(super) fn light_bytes(&self) -> usize {
        if self.is_remote {
            return 0;
        }
        let node_bytes = if self.node.is_some() { NODE_BYTES } else { 0 };
        let documents = if self.memory_bytes > HEAVY_BYTES { 0 } else { self.memory_bytes };
        ENTRY_BYTES + node_bytes + documents
    }

    /// Returns a copy with a new time of reading.
    pub(super) fn with_read_at(&self, read_at: Instant) -> Self {
        CachedNode {
            node: self.node.clone(),
            version: self.version,
            read_at,
            is_settled: self.is_settled,
            is_failure: self.is_failure,
            is_remote: self.is_remote,
            memory_bytes: self.memory_bytes,
        }
    }
}
