//! A lazy tree of nodes over a store.
//!
//! Spec: v3 core "Hierarchy" and "Node names", v2 "Hierarchies". Uses the files in this folder. Rules:
//!
//! - A node's own documents win (`documents.rs` has their order); where it has none, the consolidated metadata of
//!   the nearest group above that lists the node is used, also for nodes that have no folder at all.
//! - On a remote store that metadata comes first (`remote.rs`): one request instead of one for each node.
//! - A folder without documents is an **implicit group** if it has a folder in it; the root always is a group then.
//!   That mounts a folder full of stores. Names that begin with `.` or `__` are never implicit groups.
//! - Nothing is below an array. Files are not nodes, zip archives neither.
//! - Names: in v3 groups none that begin with `__` and none of dots alone; nowhere names of documents, nor names
//!   over 255 bytes or with NUL, which no filesystem could show (these are logged).
//! - A node with documents that cannot be read or understood is [`Node::Broken`]; so is a link that leads out of the
//!   store or back up to a group it is in, and a group nested deeper than [`MAX_DEPTH`](super::MAX_DEPTH). Its
//!   neighbours are not affected.
//!
//! Invariant: [`Tree::node`] finds a node if and only if [`Tree::children`] of its parent names it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::documents::{self, Content, DOCUMENT_NAMES, Documents, Fault};
use super::group_cache::GroupCache;
use super::lineage::{ConsolidatedCopy, Lineage, parent};
use crate::error::{Error, Result};
use crate::metadata::{ArrayMetadata, Document, GroupMetadata, ZarrFormat};
use crate::store::{Info, ObjectVersion, Readers, Store, is_key, join};

/// The longest name that a filesystem can show, in bytes.
const NAME_MAX_BYTES: usize = 255;

/// One node as it is in the store now.
#[derive(Clone, Debug)]
pub enum Node {
    /// A group, with owner, mode and time of its folder.
    Group {
        /// Its document (empty for an implicit group).
        metadata: Arc<GroupMetadata>,
        /// Its folder; where it has none, the document that describes it.
        info: Info,
    },
    /// An array, with owner, mode and time of its metadata document.
    Array {
        /// Its document.
        metadata: Arc<ArrayMetadata>,
        /// Owner, mode and time of the document, with the permissions of users that may search its folder.
        info: Info,
    },
    /// A node with a document that cannot be served: it stays listed as an array file with an error.
    Broken {
        /// Why, with the key.
        error: Error,
        /// Owner, mode and time of the document, or of the folder, or of the root: the first that can be read.
        info: Info,
        /// Shape × item size where those two could still be read, so that the size shown is true.
        size_bytes: Option<u64>,
        /// The document as far as it is JSON, for the sidecar.
        document: Option<serde_json::Value>,
    },
}

impl Node {
    /// About how much memory its documents take.
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

    /// Owner, mode and time.
    pub fn info(&self) -> &Info {
        let (Node::Group { info, .. } | Node::Array { info, .. } | Node::Broken { info, .. }) = self;
        info
    }
}

/// One name below a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Last segment of the path.
    pub name: String,
    /// A group (folder), or an array or broken node (file).
    pub is_group: bool,
}

/// The version of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeVersion {
    /// Differs when any of its documents does, or its folder.
    pub version: ObjectVersion,
    /// When the newest of them was changed, if known.
    modified: Option<SystemTime>,
}

impl NodeVersion {
    /// Whether all of them are old enough that any later change gives another version.
    pub fn is_settled(&self) -> bool {
        documents::is_settled(self.modified)
    }
}

/// The hierarchy of one store.
pub struct Tree {
    store: Arc<dyn Store>,
    pub(super) groups: GroupCache,
    /// The same for `groups`, unless a caller says otherwise.
    max_age: Duration,
}

/// What was found at the path of a node.
pub(super) struct NodeSource {
    content: Content,
    /// The document, or the folder of an implicit group.
    key: String,
    /// What the store tells of the document, if it was read.
    info: Option<Info>,
    /// The same of all documents that the content comes from.
    infos: Vec<Info>,
}

impl Tree {
    /// A tree over a store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Tree { store, groups: GroupCache::new(), max_age: Duration::ZERO }
    }

    /// A tree for a caller that looks at every node once: groups of a remote store are read once.
    pub fn for_one_look(store: Arc<dyn Store>) -> Self {
        Tree { max_age: Duration::MAX, ..Tree::new(store) }
    }

    /// Forgets the groups that were read.
    pub fn forget(&self) {
        self.groups.clear();
    }

    /// Its store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The node at a path (`""` is the root), as it is in the store at this moment; `None` when there is none.
    /// Fails only where not even the root of the store can be looked at.
    pub fn node(&self, path: &str) -> Result<Option<Node>> {
        if self.store.is_remote() {
            return Ok(self.remote_node(path, self.max_age).node.map(|found| found.node));
        }
        self.node_under(path, &self.above(parent(path)))
    }

    /// As [`Tree::node`], for a caller that has the lineage already.
    pub(super) fn node_under(&self, path: &str, above: &Lineage) -> Result<Option<Node>> {
        let Some(found) = self.find(path, above) else { return Ok(None) };
        if self.store.is_remote() {
            return Ok(Some(found.remote_node()));
        }
        let folder = self.store.head(path);
        let document = self.store.head_object(&found.key).ok().flatten();
        // Which users may search a folder is unknown if stat failed on it.
        let is_closed = folder.is_err();
        let folder = folder.ok().flatten();
        let under_folder = |info: Info| match is_closed {
            true => info.with_mode(|posix| posix.mode & 0o700),
            false => under_folder(info, folder),
        };
        let info = match (document, folder) {
            (Some(info), _) | (None, Some(info)) => info,
            (None, None) => {
                let root = self.store.head("")?;
                root.ok_or_else(|| {
                    Error::store("", "look at", std::io::Error::from(std::io::ErrorKind::NotFound))
                })?
            }
        };
        Ok(Some(match found.content {
            Content::Group(metadata) => Node::Group { metadata, info: folder.unwrap_or(info.as_folder()) },
            Content::Array(metadata) => Node::Array { metadata, info: under_folder(info) },
            Content::Broken(Fault { error, size_bytes, document }) => {
                Node::Broken { error, info: under_folder(info), size_bytes, document }
            }
        }))
    }

    /// The names below a group, sorted; none below anything else. Opens the documents of these children only, never
    /// of theirs.
    pub fn children(&self, path: &str) -> Result<Vec<Child>> {
        self.children_under(path, &self.above(Some(path)))
    }

    /// Those of [`Tree::children`] of a store on this machine whose names begin with `start`. Opens no documents of others.
    pub fn children_named(&self, path: &str, start: &str) -> Result<Vec<Child>> {
        let above = self.above(Some(path));
        let names = self.names_under(path, &above)?.into_iter().filter(|name| name.starts_with(start));
        Ok(self.named(path, names, &above))
    }

    /// As [`Tree::children`], for a caller that has the lineage already.
    pub(super) fn children_under(&self, path: &str, above: &Lineage) -> Result<Vec<Child>> {
        if self.store.is_remote() {
            let found = self.remote_children_under(path, above)?;
            return Ok(found.nodes.into_iter().map(|(name, found)| found.child(name)).collect());
        }
        Ok(self.named(path, self.names_under(path, above)?, above))
    }

    /// Those of the names below a group that are nodes.
    fn named(&self, path: &str, names: impl IntoIterator<Item = String>, above: &Lineage) -> Vec<Child> {
        let child = |name: String| {
            let found = self.find(&join(path, &name), above)?;
            Some(Child { name, is_group: matches!(found.content, Content::Group(_)) })
        };
        names.into_iter().filter_map(child).collect()
    }

    /// The names below a group that may be nodes, sorted.
    pub(super) fn names_under(&self, path: &str, above: &Lineage) -> Result<BTreeSet<String>> {
        if !above.is_fertile() {
            return Ok(BTreeSet::new());
        }
        let mut names = BTreeSet::from_iter(above.copied_names(path));
        self.add_folders(path, &mut names)?;
        Ok(names)
    }

    /// Adds the names of all folders in a folder. Where the store does not say all of them, those that are known are added before
    /// the error.
    pub(super) fn add_folders(&self, path: &str, names: &mut BTreeSet<String>) -> Result<()> {
        self.store.each_name(path, &mut |entry| {
            if entry.is_folder {
                names.insert(entry.name);
            }
            ControlFlow::Continue(())
        })
    }

    /// The version of the node at a path: the same as long as its documents and its folder have the
    /// same versions, owner and mode. Nearly always opens nothing. `None` when there is nothing; the groups above are
    /// not consulted, so that a folder below an array has a version though it is no node.
    pub fn version(&self, path: &str) -> Result<Option<NodeVersion>> {
        if !is_key(path) {
            return Ok(None);
        }
        if self.store.is_remote() {
            return Ok(self.remote_node(path, self.max_age).node.map(|found| found.version));
        }
        let mut parts: Vec<Info> = self.store.head(path).ok().flatten().into_iter().collect();
        if let Ok(Some(documents)) = documents::look(self.store.as_ref(), path) {
            parts.extend(documents);
            return Ok(Some(combined(&parts, "")));
        }
        let Some(found) = self.find(path, &self.above(parent(path))) else { return Ok(None) };
        parts.extend(self.store.head_object(&found.key).ok().flatten());
        let error = match found.content {
            Content::Broken(fault) => fault.error.to_string(),
            _ => String::new(),
        };
        Ok(Some(combined(&parts, &error)))
    }

    /// The node at `path` and all above it; nothing for `None`.
    pub(super) fn above(&self, path: Option<&str>) -> Lineage {
        self.above_for(path, self.max_age)
    }

    /// As [`Tree::above`]; in a remote store at most `max_age` old.
    pub(super) fn above_for(&self, path: Option<&str>, max_age: Duration) -> Lineage {
        Lineage::below(path, self.store.as_ref(), &self.groups, max_age)
    }

    fn find(&self, path: &str, above: &Lineage) -> Option<NodeSource> {
        self.find_with(path, above, || self.groups.read(self.store.as_ref(), path, self.max_age))
    }

    /// As [`Tree::find`]; `own` reads the node's own documents.
    pub(super) fn find_with(
        &self,
        path: &str,
        above: &Lineage,
        own: impl FnOnce() -> Option<Documents>,
    ) -> Option<NodeSource> {
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_root = path.is_empty();
        if let Some(error) = above.unread().filter(|_| is_key(path) && !is_hidden(name)) {
            let content = Content::Broken(Fault::unread(error.clone()));
            return Some(NodeSource { content, key: path.to_owned(), info: None, infos: Vec::new() });
        }
        if !is_key(path) || !above.is_fertile() || !(is_root || is_node_name(name, above.parent_format())) {
            return None;
        }
        // One document of a remote store tells of all nodes below it: it counts more than their own documents.
        let first = self.store.is_remote().then(|| above.copy(path)).flatten();
        let own = if first.is_none() { own() } else { None };
        let mut found = match own {
            // Many programs have private folders with such names: one without a document is not a node.
            Some(Documents { content: Content::Broken(fault), .. })
                if is_hidden(name) && matches!(fault.error, Error::Store { .. }) =>
            {
                return None;
            }
            Some(found) => {
                let (info, infos) = (found.info(), found.seen.infos().collect());
                NodeSource { content: found.content, key: found.key, info, infos }
            }
            None => match first.or_else(|| above.copy(path)) {
                Some(copy) => from_copy(copy, path),
                None => {
                    let content = self.implicit_group(path, name)?;
                    NodeSource { content, key: path.to_owned(), info: None, infos: Vec::new() }
                }
            },
        };
        if matches!(found.content, Content::Group(_))
            && let Some(error) = above.objection(self.store.as_ref(), path)
        {
            found.content = Content::Broken(Fault::unread(error));
        }
        Some(found)
    }

    fn implicit_group(&self, path: &str, name: &str) -> Option<Content> {
        let group = || Content::Group(Arc::new(group_without_document(path)));
        if path.is_empty() {
            return Some(group());
        }
        if is_hidden(name) {
            return None;
        }
        let mut has_folders = false;
        let listed = self.store.each_name(path, &mut |entry| {
            has_folders = entry.is_folder;
            if has_folders { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match listed {
            // Without a document and without a listing, nothing shows that there is a group.
            Ok(()) | Err(Error::Unlisted { .. }) => has_folders.then(group),
            Err(error) => Some(Content::Broken(Fault::unread(error))),
        }
    }
}

fn from_copy(copy: ConsolidatedCopy, path: &str) -> NodeSource {
    let content = match copy.document {
        Some(Ok(Document::Group(group))) => Content::Group(Arc::new(group)),
        Some(Ok(Document::Array(array))) => Content::Array(Arc::new(array)),
        Some(Err(error)) => Content::Broken(Fault::unread(error)),
        None => Content::Group(Arc::new(group_without_document(path))),
    };
    NodeSource { content, key: copy.carrier_key, info: copy.carrier, infos: Vec::from_iter(copy.carrier) }
}

impl NodeSource {
    /// The node where there are no owners, modes and folders: as new as the newest of its documents.
    pub fn remote_node(&self) -> Node {
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

    /// Differs when a document does.
    pub fn version(&self) -> NodeVersion {
        match &self.content {
            Content::Broken(fault) => combined(&self.infos, &fault.error.to_string()),
            _ => combined(&self.infos, ""),
        }
    }
}

fn group_without_document(path: &str) -> GroupMetadata {
    GroupMetadata {
        zarr_format: None,
        document_key: path.to_owned(),
        attributes: serde_json::Map::new(),
        attributes_error: None,
        consolidated: None,
    }
}

fn is_hidden(name: &str) -> bool {
    name.starts_with('.') || name.starts_with("__")
}

/// Whether a child of a group of this version can have this name.
fn is_node_name(name: &str, parent: Option<ZarrFormat>) -> bool {
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

/// The permissions of a document, without those of users that cannot search its folder. The folder of an array
/// is not shown, so the array's file must combine both.
fn under_folder(document: Info, folder: Option<Info>) -> Info {
    let Some(folder) = folder.and_then(|folder| folder.posix) else { return document };
    document
        .with_mode(|document| Readers::for_posix(document).that_may_search(&Readers::for_posix(&folder)).mode)
}

/// One version that differs when any part does.
fn combined(parts: &[Info], text: &str) -> NodeVersion {
    let owner = |part: &Info| part.posix.map(|posix| (posix.uid, posix.gid, posix.mode));
    let parts_of_version: Vec<_> = parts.iter().map(|part| (part.version, owner(part))).collect();
    let version = ObjectVersion::hashed((parts_of_version, text));
    NodeVersion { version, modified: parts.iter().filter_map(|part| part.modified).max() }
}
