//! A lazy tree of nodes over a store.
//!
//! Spec: v3 core "Hierarchy" and "Node names", v2 "Hierarchies". Uses the files in this folder. Rules:
//!
//! - A node's own documents take precedence (`documents.rs` has their order). Without them, the nearest consolidated metadata above
//!   that has the node is used, even for nodes without a folder.
//! - In a remote store, consolidated metadata takes precedence (`remote.rs`): one request replaces one for each node.
//! - A folder without documents is an **implicit group** if it contains a folder. The root without documents always is one. So a
//!   folder full of stores can be mounted. Folders whose names begin with `.` or `__` are not implicit groups.
//! - In a catalogue, each member is a folder of the root (a tree of its own), or, while it cannot be opened, a broken node.
//! - Nothing is below an array. Files are not nodes. Zip archives in a folder of stores are folders here (`store/zip/archives.rs`).
//! - A name in a v3 group does not begin with `__` and does not consist of dots. A name is not that of a document, has at most 255 bytes
//!   and no NUL. Nodes with other names are ignored, with a warning if no filesystem could show the name.
//! - A node whose documents cannot be read or parsed is [`Node::Broken`]. So is a link that leads out of the store or back up to
//!   a group that it is in, and a group nested deeper than [`MAX_DEPTH`](super::MAX_DEPTH). Neighbours are not affected.
//! - While a command changes the lengths of several arrays, they have their old ones (`lengths_record.rs`).
//!
//! Invariant: [`Tree::node`] finds a node if and only if [`Tree::children`] of its parent names it.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::documents::{self, Content, Documents, Fault};
use super::group_cache::GroupCache;
use super::lineage::{Lineage, parent};
use super::node::{
    Checked, Child, FoundNode, Node, NodeSource, NodeVersion, group_without_document, is_hidden, is_node_name,
};
use crate::error::{Error, Result};
use crate::metadata::ArrayMetadata;
use crate::store::{
    Info, MemberState, ObjectVersion, Posix, Readers, Store, is_key, join, member_name, store_at,
};

/// The hierarchy of one store.
pub struct Tree {
    store: Arc<dyn Store>,
    pub(super) groups: GroupCache,
    /// How old documents in `groups` may be, unless a caller says otherwise.
    max_age: Duration,
    /// In a catalogue, the trees of its members, by name.
    members: Mutex<HashMap<String, Arc<Tree>>>,
}

impl Tree {
    /// Returns the tree of a store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Tree { store, groups: GroupCache::new(), max_age: Duration::ZERO, members: Mutex::default() }
    }

    /// Returns a tree for a caller that uses every node once: groups of a remote store are read once.
    pub fn for_one_look(store: Arc<dyn Store>) -> Self {
        Tree { max_age: Duration::MAX, ..Tree::new(store) }
    }

    /// Forgets the groups that were read.
    pub fn forget(&self) {
        self.groups.clear();
        self.members.lock().clear();
    }

    /// Returns its store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns the store that has a path: in a catalogue, the member's, which has the same keys.
    pub fn store_at(&self, path: &str) -> Arc<dyn Store> {
        store_at(&self.store, path)
    }

    /// Returns the node at a path (`""` is the root), as it is in the store now; `None` if there is none. Fails only if not even the root
    /// of the store can be looked at.
    pub fn node(&self, path: &str) -> Result<Option<Node>> {
        if let Some(member) = self.member(path) {
            return member
                .unopened(path, &self.store)
                .map_or_else(|| member.node(path), |node| Ok(Some(node)));
        }
        if self.store.is_remote() {
            return Ok(self.remote_node(path, self.max_age).found.map(|found| found.node));
        }
        self.node_under(path, &self.above(parent(path)))
    }

    /// As [`Tree::node`], with groups above that are at most `max_age` old.
    pub fn node_for(&self, path: &str, max_age: Duration) -> Result<Checked<Option<FoundNode>>> {
        if let Some(member) = self.member(path) {
            return match member.unopened(path, &self.store) {
                Some(node) => {
                    let found = FoundNode { node, lengths_record: None };
                    Ok(Checked { found: Some(found), checked_at: Instant::now() })
                }
                None => member.node_for(path, max_age),
            };
        }
        let above = self.above_for(parent(path), max_age);
        let checked_at = above.checked_at.min(Instant::now());
        let Some(found) = self.find(path, &above) else { return Ok(Checked { found: None, checked_at }) };
        let lengths_record = found.lengths_record;
        let node = self.node_of(path, found)?;
        Ok(Checked { found: Some(FoundNode { node, lengths_record }), checked_at })
    }

    /// As [`Tree::node`], for a caller that has the lineage already.
    pub(super) fn node_under(&self, path: &str, above: &Lineage) -> Result<Option<Node>> {
        if let Some(member) = self.member(path) {
            let unopened = member.unopened(path, &self.store);
            return unopened.map_or_else(|| member.node_under(path, above), |node| Ok(Some(node)));
        }
        self.find(path, above).map(|found| self.node_of(path, found)).transpose()
    }

    /// Returns a node that was found, with owner, mode and time.
    fn node_of(&self, path: &str, found: NodeSource) -> Result<Node> {
        if self.store.is_remote() {
            return Ok(found.remote_node());
        }
        let folder = self.store.head(path);
        let document = self.store.head_object(&found.key).ok().flatten();
        // If stat fails on the folder, it is unknown which users may search it.
        let is_closed = folder.is_err();
        let folder = folder.ok().flatten();
        let under_folder = |info: Info| {
            if is_closed { info.with_mode(|posix| posix.mode & 0o700) } else { under_folder(info, folder) }
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
        Ok(match found.content {
            Content::Group(metadata) => Node::Group { metadata, info: folder.unwrap_or(info.as_folder()) },
            Content::Array(metadata) => Node::Array { metadata, info: under_folder(info) },
            Content::Broken(Fault { error, size_bytes, document }) => {
                Node::Broken { error, info: under_folder(info), size_bytes, document }
            }
        })
    }

    /// Returns the children of a group, sorted by name; nothing else has children. Opens the documents of these children only.
    pub fn children(&self, path: &str) -> Result<Vec<Child>> {
        self.children_under(path, &self.above(Some(path)))
    }

    /// Returns the children whose names begin with `start`. Opens the documents of these children only. Not for remote stores.
    pub fn children_named(&self, path: &str, start: &str) -> Result<Vec<Child>> {
        if let Some(member) = self.member(path) {
            return member.children_named(path, start);
        }
        if let Some(mut members) = self.member_names(path) {
            members.retain(|member| member.name.starts_with(start));
            return Ok(members);
        }
        let above = self.above(Some(path));
        let names = self.names_under(path, &above)?.into_iter().filter(|name| name.starts_with(start));
        Ok(self.named(path, names, &above))
    }

    /// As [`Tree::children`], for a caller that has the lineage already.
    pub(super) fn children_under(&self, path: &str, above: &Lineage) -> Result<Vec<Child>> {
        if let Some(member) = self.member(path) {
            return member.children_under(path, above);
        }
        if let Some(members) = self.member_names(path) {
            return Ok(members);
        }
        if self.store.is_remote() {
            let found = self.remote_children_under(path, above)?;
            return Ok(found.nodes.into_iter().map(|(name, found)| found.child(name)).collect());
        }
        Ok(self.named(path, self.names_under(path, above)?, above))
    }

    /// Returns the nodes below a group that have these names.
    fn named(&self, path: &str, names: impl IntoIterator<Item = String>, above: &Lineage) -> Vec<Child> {
        let child = |name: String| {
            let found = self.find(&join(path, &name), above)?;
            Some(Child { name, is_group: matches!(found.content, Content::Group(_)) })
        };
        names.into_iter().filter_map(child).collect()
    }

    /// Returns the names below a group that may be nodes, sorted.
    pub(super) fn names_under(&self, path: &str, above: &Lineage) -> Result<BTreeSet<String>> {
        if let Some(error) = above.unread().filter(|_| is_key(path)) {
            return Err(error.clone());
        }
        if !above.is_fertile() {
            return Ok(BTreeSet::new());
        }
        let mut names = BTreeSet::from_iter(above.copied_names(path));
        self.add_folders(path, &mut names)?;
        Ok(names)
    }

    /// Adds the names of all folders in a folder. If the store does not list all of them, the known ones are added before this fails.
    pub(super) fn add_folders(&self, path: &str, names: &mut BTreeSet<String>) -> Result<()> {
        self.store.each_name(path, &mut |entry| {
            if entry.is_folder {
                names.insert(entry.name);
            }
            ControlFlow::Continue(())
        })
    }

    /// Returns the version of the node at a path, which changes with the version, owner and mode of its documents and its folder; `None` if
    /// nothing is there. Opens a document only if the node has none of its own. Groups above are not read, so a folder below an array
    /// has a version although it is not a node.
    pub fn version(&self, path: &str) -> Result<Option<NodeVersion>> {
        Ok(self.version_for(path, Duration::ZERO)?.found)
    }

    /// As [`Tree::version`], with groups above that are at most `max_age` old.
    pub fn version_for(&self, path: &str, max_age: Duration) -> Result<Checked<Option<NodeVersion>>> {
        let now = |found| Ok(Checked { found, checked_at: Instant::now() });
        if !is_key(path) {
            return now(None);
        }
        if let Some(member) = self.member(path) {
            return match member.unopened(path, &self.store) {
                Some(node) => now(Some(NodeVersion::of_unopened(&node))),
                None => member.version_for(path, max_age),
            };
        }
        if self.store.is_remote() {
            let Checked { found, checked_at } = self.remote_node(path, max_age.max(self.max_age));
            return Ok(Checked { found: found.map(|found| found.version), checked_at });
        }
        let began_at = Instant::now();
        let folder = self.store.head(path);
        // Nothing can be in a folder that is not there. Programs look up many such names, those of all sidecars for instance.
        let has_folder = path.is_empty() || !matches!(folder, Ok(None));
        let mut parts: Vec<Info> = folder.ok().flatten().into_iter().collect();
        if has_folder && let Ok(Some(documents)) = documents::look(self.store.as_ref(), path) {
            parts.extend(documents);
            return Ok(Checked { found: Some(NodeVersion::combined(&parts, "")), checked_at: began_at });
        }
        let above = self.above_for(parent(path), max_age);
        let checked_at = above.checked_at.min(began_at);
        let own = || self.groups.read(self.store.as_ref(), path, max_age);
        let found = self.find_with(path, &above, has_folder, own);
        let Some(found) = found else { return Ok(Checked { found: None, checked_at }) };
        parts.extend(self.store.head_object(&found.key).ok().flatten());
        let error = match found.content {
            Content::Broken(fault) => fault.error.to_string(),
            _ => String::new(),
        };
        Ok(Checked { found: Some(NodeVersion::combined(&parts, &error)), checked_at })
    }

    /// Returns the node at `path` and all above it; nothing for `None`.
    pub(super) fn above(&self, path: Option<&str>) -> Lineage {
        let max_age = if self.store.is_remote() { self.max_age } else { Duration::ZERO };
        self.above_for(path, max_age)
    }

    /// As [`Tree::above`], with documents that are at most `max_age` old.
    pub(super) fn above_for(&self, path: Option<&str>, max_age: Duration) -> Lineage {
        if let Some(member) = path.and_then(|path| self.member(path)) {
            return member.above_for(path, max_age);
        }
        Lineage::below(path, self.store.as_ref(), &self.groups, max_age)
    }

    /// Returns the tree of the member that a path is in, if the store is a catalogue.
    pub(super) fn member(&self, path: &str) -> Option<Arc<Tree>> {
        let store = self.store.catalogue()?.store_at(path)?;
        let name = member_name(path)?;
        let mut members = self.members.lock();
        if let Some(tree) = members.get(name).filter(|tree| Arc::ptr_eq(&tree.store, &store)) {
            return Some(tree.clone());
        }
        let tree = Arc::new(Tree { max_age: self.max_age, ..Tree::new(store) });
        members.insert(name.to_owned(), tree.clone());
        Some(tree)
    }

    /// Returns the members of a catalogue, if the path is its root. Those that cannot be opened are shown as files.
    fn member_names(&self, path: &str) -> Option<Vec<Child>> {
        let catalogue = self.store.catalogue().filter(|_| path.is_empty())?;
        let child = |name: String| {
            let is_group = !matches!(catalogue.state(&name)?, MemberState::Failed(_));
            Some(Child { name, is_group })
        };
        Some(catalogue.names().into_iter().filter_map(child).collect())
    }

    /// In the tree of a member: returns what its folder is while the member is not open. Waits for nothing.
    pub(super) fn unopened(&self, path: &str, catalogue: &Arc<dyn Store>) -> Option<Node> {
        let name = member_name(path).filter(|name| *name == path)?;
        let (version, catalogue) = (ObjectVersion::numbered(0), catalogue.catalogue()?);
        let info = Info { size_bytes: 0, modified: None, version, posix: None };
        match catalogue.state(name)? {
            MemberState::Open => None,
            MemberState::Opening => {
                Some(Node::Group { metadata: Arc::new(group_without_document(path)), info })
            }
            MemberState::Failed(error) => {
                // The reason may name what is in folders that others may not search.
                let file = Posix::default_for_object();
                let mode = catalogue.root_mode(name, Readers::for_posix(&file));
                let info = Info { posix: Some(Posix { mode, ..file }), ..info };
                Some(Node::Broken { error, info, size_bytes: None, document: None })
            }
        }
    }

    fn find(&self, path: &str, above: &Lineage) -> Option<NodeSource> {
        self.find_with(path, above, true, || self.groups.read(self.store.as_ref(), path, self.max_age))
    }

    /// As [`Tree::find`]; `own` reads the node's own documents. Without `may_have_folder`, the node can only be in consolidated metadata.
    pub(super) fn find_with(
        &self,
        path: &str,
        above: &Lineage,
        may_have_folder: bool,
        own: impl FnOnce() -> Option<Documents>,
    ) -> Option<NodeSource> {
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_root = path.is_empty();
        if let Some(error) = above.unread().filter(|_| is_key(path) && !is_hidden(name)) {
            let content = Content::Broken(Fault::unread(error.clone()));
            return Some(NodeSource::without_document(path, content));
        }
        if !is_key(path) || !above.is_fertile() || !(is_root || is_node_name(name, above.parent_format())) {
            return None;
        }
        // In a remote store, one document with consolidated metadata saves a request for each node, so it takes precedence.
        let first = self.store.is_remote().then(|| above.copy(path)).flatten();
        let own = if first.is_none() && may_have_folder { own() } else { None };
        let mut found = match own {
            // Many programs have private folders with such names, which are nodes only if they have a document.
            Some(Documents { content: Content::Broken(fault), .. })
                if is_hidden(name) && matches!(fault.error, Error::Store { .. }) =>
            {
                return None;
            }
            Some(found) => {
                let (info, infos) = (found.info(), found.versions.infos().collect());
                let mut source =
                    NodeSource { content: found.content, key: found.key, info, infos, lengths_record: None };
                // At a service this would be another request for each array.
                if !self.store.is_remote() {
                    self.keep_old_length(&mut source, above);
                }
                source
            }
            None => match first.or_else(|| above.copy(path)) {
                Some(copy) => NodeSource::of_copy(copy, path),
                None if !may_have_folder => return None,
                None => NodeSource::without_document(path, self.implicit_group(path, name)?),
            },
        };
        if matches!(found.content, Content::Group(_))
            && let Some(error) = above.objection(self.store.as_ref(), path)
        {
            found.content = Content::Broken(Fault::unread(error));
        }
        Some(found)
    }

    /// Shows the old length of an array while a command gives it another one together with other arrays, and if that command was killed.
    fn keep_old_length(&self, source: &mut NodeSource, above: &Lineage) {
        let Content::Array(metadata) = &mut source.content else { return };
        let Some(record) = above.lengths_record(self.store.as_ref(), &self.groups) else { return };
        if let Some(shape) = record.old_shape(metadata, source.info.as_ref()) {
            *metadata = Arc::new(ArrayMetadata { shape, ..ArrayMetadata::clone(metadata) });
        }
        source.lengths_record = Some(record.info.version);
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
            // Without a document and a listing, nothing shows that there is a group.
            Ok(()) | Err(Error::Unlisted { .. }) => has_folders.then(group),
            Err(error) => Some(Content::Broken(Fault::unread(error))),
        }
    }
}

/// Removes the permissions of users who cannot search the folder of a document. The folder of an array is not shown, so the mode of the
/// array's file combines the permissions of the two.
fn under_folder(document: Info, folder: Option<Info>) -> Info {
    let Some(folder) = folder.and_then(|folder| folder.posix) else { return document };
    document
        .with_mode(|document| Readers::for_posix(document).that_may_search(&Readers::for_posix(&folder)).mode)
}
