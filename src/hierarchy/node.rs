//! Nodes: what is at a path of a store, its version, and which names nodes have.
//!
//! Spec: v3 core "Node names". Uses `documents.rs` and `lineage.rs`. `tree.rs` finds nodes.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::documents::{self, Content, DOCUMENT_NAMES, Fault};
use super::lineage::ConsolidatedCopy;
use crate::error::Error;
use crate::metadata::{ArrayMetadata, Document, GroupMetadata, ZarrFormat};
use crate::store::{Info, ObjectVersion, is_key};

/// The longest name that a filesystem can show, in bytes.
pub(super) const NAME_MAX_BYTES: usize = 255;

/// One node as it is in the store now.
#[derive(Clone, Debug)]
pub enum Node {
    /// A group, with owner, mode and time of its folder.
    Group {
        /// Its document (empty for an implicit group).
        metadata: Arc<GroupMetadata>,
        /// The info of its folder, or of the document that describes it if it has no folder.
        info: Info,
    },
    /// An array, with owner, mode and time of its metadata document.
    Array {
        /// Its document.
        metadata: Arc<ArrayMetadata>,
        /// Owner, mode and time of the document, with the permissions of users that may search its folder.
        info: Info,
    },
    /// A node that cannot be served. It is listed as the file of an array, and reading it fails.
    Broken {
        /// The reason, with the key.
        error: Error,
        /// Owner, mode and time of the document, else of the folder, else of the root.
        info: Info,
        /// Shape × item size, if both could be read all the same.
        size_bytes: Option<u64>,
        /// The document, if it is JSON, for the sidecar.
        document: Option<serde_json::Value>,
    },
}

impl Node {
    /// Returns about how much memory its documents take.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Node::Group { metadata, .. } => metadata.memory_bytes(),
            Node::Array { metadata, .. } => metadata.memory_bytes(),
            Node::Broken { document, .. } => {
                let members = document.as_ref().and_then(|document| document.as_object());
                members.map_or(0, crate::metadata::json::memory_bytes)
            }
        }
    }

    /// Returns its owner, mode and time.
    pub fn info(&self) -> &Info {
        let (Node::Group { info, .. } | Node::Array { info, .. } | Node::Broken { info, .. }) = self;
        info
    }
}

/// One name below a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// The last segment of its path.
    pub name: String,
    /// Whether it is a group, which is shown as a folder. Arrays and broken nodes are shown as files.
    pub is_group: bool,
}

/// The version of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeVersion {
    /// Changes when one of its documents or its folder changes.
    pub version: ObjectVersion,
    /// When the newest of them was changed, if that is known.
    modified: Option<SystemTime>,
}

impl NodeVersion {
    /// Returns one version that changes when any part changes.
    pub(super) fn combined(parts: &[Info], text: &str) -> Self {
        let owner = |part: &Info| part.posix.map(|posix| (posix.uid, posix.gid, posix.mode));
        let parts_of_version: Vec<_> = parts.iter().map(|part| (part.version, owner(part))).collect();
        let version = ObjectVersion::hashed((parts_of_version, text));
        NodeVersion { version, modified: parts.iter().filter_map(|part| part.modified).max() }
    }

    /// Returns the version of a member of a catalogue that is not open.
    pub(super) fn of_unopened(node: &Node) -> Self {
        match node {
            Node::Broken { error, .. } => NodeVersion::combined(&[], &error.to_string()),
            _ => NodeVersion::combined(&[], "opening"),
        }
    }

    /// Returns whether its documents are old enough that any later change gives another version.
    pub fn is_settled(&self) -> bool {
        documents::is_settled(self.modified)
    }
}

/// What was found, and when.
#[derive(Clone, Copy, Debug)]
pub struct Checked<T> {
    /// What was found.
    pub found: T,
    /// When the oldest document was read, or compared with the store, that it depends on.
    pub checked_at: Instant,
}

/// A node, and how long it may be kept.
#[derive(Clone, Debug)]
pub struct FoundNode {
    /// The node.
    pub node: Node,
    /// The version of the record of a change of lengths in its group (`lengths_record.rs`). Without the record, the array may have another length
    /// although its documents are the same.
    pub lengths_record: Option<ObjectVersion>,
}

/// A node as it was found, and the documents that it comes from.
pub(super) struct NodeSource {
    pub(super) content: Content,
    /// The document, or the folder of an implicit group.
    pub(super) key: String,
    /// The info of the document, if it was read.
    pub(super) info: Option<Info>,
    /// The infos of all documents that the content comes from.
    pub(super) infos: Vec<Info>,
    /// As in [`FoundNode`].
    pub(super) lengths_record: Option<ObjectVersion>,
}

impl NodeSource {
    /// Returns a node without a document that was read.
    pub(super) fn without_document(path: &str, content: Content) -> Self {
        NodeSource { content, key: path.to_owned(), info: None, infos: Vec::new(), lengths_record: None }
    }

    /// Returns a node that is described by consolidated metadata.
    pub(super) fn of_copy(copy: ConsolidatedCopy, path: &str) -> Self {
        let content = match copy.document {
            Some(Ok(Document::Group(group))) => Content::Group(Arc::new(group)),
            Some(Ok(Document::Array(array))) => Content::Array(Arc::new(array)),
            Some(Err(error)) => Content::Broken(Fault::unread(error)),
            None => Content::Group(Arc::new(group_without_document(path))),
        };
        NodeSource {
            content,
            key: copy.carrier_key,
            info: copy.carrier,
            infos: Vec::from_iter(copy.carrier),
            lengths_record: None,
        }
    }

    /// Returns the node of a store without owners, modes and folders. Its mtime is that of its newest document.
    pub(super) fn remote_node(&self) -> Node {
        let version = ObjectVersion::numbered(0);
        let unknown = Info { size_bytes: 0, modified: None, version, posix: None };
        let newest = self.infos.iter().filter_map(|info| info.modified).max();
        let info = self.info.unwrap_or(unknown);
        let info = Info { modified: info.modified.max(newest), ..info };
        match self.content.clone() {
            Content::Group(metadata) => Node::Group { metadata, info },
            Content::Array(metadata) => Node::Array { metadata, info },
            Content::Broken(Fault { error, size_bytes, document }) => {
                Node::Broken { error, info, size_bytes, document }
            }
        }
    }

    /// Returns the version, which changes when a document changes.
    pub(super) fn version(&self) -> NodeVersion {
        match &self.content {
            Content::Broken(fault) => NodeVersion::combined(&self.infos, &fault.error.to_string()),
            _ => NodeVersion::combined(&self.infos, ""),
        }
    }
}

/// Returns the metadata of an implicit group.
pub(super) fn group_without_document(path: &str) -> GroupMetadata {
    GroupMetadata {
        zarr_format: None,
        document_key: path.to_owned(),
        attributes: serde_json::Map::new(),
        attributes_error: None,
        consolidated: None,
    }
}

/// Returns whether a folder with this name is a node only if it has a document.
pub(super) fn is_hidden(name: &str) -> bool {
    name.starts_with('.') || name.starts_with("__")
}

/// Returns whether a child of a group of this format can have this name.
pub(super) fn is_node_name(name: &str, parent: Option<ZarrFormat>) -> bool {
    if DOCUMENT_NAMES.contains(&name) {
        return false;
    }
    if name.len() > NAME_MAX_BYTES || name.is_empty() || !is_key(name) {
        log::warn!(
            "ignoring a node with a name that no file can have: {:.100}…",
            name.escape_debug().to_string()
        );
        return false;
    }
    parent != Some(ZarrFormat::V3) || !(name.starts_with("__") || name.bytes().all(|byte| byte == b'.'))
}
