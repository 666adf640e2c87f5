//! The groups above a node: what they say about the nodes below them. Uses `documents`, `group_cache` and `lengths_record`.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::documents::{Content, DocumentVersions, Documents};
use super::group_cache::{CachedLookup, GroupCache};
use super::lengths_record::LengthsRecord;
use crate::error::Error;
use crate::metadata::{self, Document, GroupMetadata, ZarrFormat};
use crate::store::{FileId, Info, Store, join};

/// The deepest nesting of groups. It bounds the work that a hostile store can cause.
pub const MAX_DEPTH: usize = 128;

/// Everything above a node, nearest first; the last is the root. Empty above the root itself.
pub(super) struct Lineage {
    ancestors: Vec<Ancestor>,
    /// When the documents were read that were read first.
    pub checked_at: Instant,
    /// The record of a change of lengths in the nearest group, once it was looked for.
    lengths: OnceLock<Option<Arc<LengthsRecord>>>,
}

struct Ancestor {
    path: String,
    kind: AncestorKind,
    versions: DocumentVersions,
    /// The identity of the folder, if the store has one.
    folder: Option<FileId>,
}

/// What a folder above a node is.
enum AncestorKind {
    /// A group, and the key of the document that holds its consolidated metadata if it has any.
    Group(Arc<GroupMetadata>),
    /// An array, or a broken node. Nodes cannot be below it.
    Barren,
    /// Its documents could not be read, or another store or archive has taken the place of this one, so it is unknown what is below.
    Unread(Error),
    /// A folder without documents.
    Undocumented,
}

/// A node as a group above it has it in its consolidated metadata.
pub(super) struct ConsolidatedCopy {
    /// The node's metadata; `None` for a group that is named only in the paths of nodes below it.
    pub document: Option<Result<Document, Error>>,
    /// The key of the document that holds the copy.
    pub carrier_key: String,
    /// The info of that document.
    pub carrier: Option<Info>,
}

impl Lineage {
    /// Reads what is above the children of the node at `path`: that node and all above it. `None` is above the root. The documents are
    /// at most `max_age` old.
    pub fn below(path: Option<&str>, store: &dyn Store, groups: &GroupCache, max_age: Duration) -> Self {
        let paths: Vec<&str> = std::iter::successors(path, |path| parent(path)).collect();
        Self::new(&paths, groups.read_many(store, &paths, None, max_age))
    }

    /// Returns the lineage of documents that were read. The paths lead up to the root.
    pub fn new(paths: &[&str], looked: Vec<CachedLookup>) -> Self {
        let checked_at = looked.iter().map(|looked| looked.at).min().unwrap_or_else(Instant::now);
        let ancestor = |(path, looked): (&&str, CachedLookup)| {
            let (kind, versions) = match looked.documents {
                Some(Documents { content: Content::Group(group), versions, .. }) => {
                    (AncestorKind::Group(group), versions)
                }
                Some(Documents { content: Content::Broken(fault), versions, .. })
                    if matches!(fault.error, Error::Store { .. } | Error::Stale { .. }) =>
                {
                    (AncestorKind::Unread(fault.error), versions)
                }
                Some(Documents { versions, .. }) => (AncestorKind::Barren, versions),
                None => (AncestorKind::Undocumented, DocumentVersions::default()),
            };
            Ancestor { path: (*path).to_owned(), kind, versions, folder: looked.identity }
        };
        let ancestors = paths.iter().zip(looked).map(ancestor).collect();
        Lineage { ancestors, checked_at, lengths: OnceLock::new() }
    }

    /// Returns the record of a change of lengths in the nearest group. It is looked for once, at the first call: after a document of the group
    /// was read, so that a document that is replaced already is not taken for one without a record.
    pub fn lengths_record(&self, store: &dyn Store, groups: &GroupCache) -> Option<&Arc<LengthsRecord>> {
        let group = self.ancestors.first()?;
        self.lengths.get_or_init(|| groups.lengths_record(store, &group.path)).as_ref()
    }

    /// Returns whether nodes can be here: all above are groups, and no link leads back to one of them.
    pub fn is_fertile(&self) -> bool {
        let is_met_again = |(index, ancestor): (usize, &Ancestor)| {
            let above = self.ancestors.iter().skip(index + 1);
            ancestor.folder.is_some() && above.into_iter().any(|other| other.folder == ancestor.folder)
        };
        let is_barren =
            |ancestor: &Ancestor| matches!(ancestor.kind, AncestorKind::Barren | AncestorKind::Unread(_));
        !self.ancestors.iter().any(is_barren) && !self.ancestors.iter().enumerate().any(is_met_again)
    }

    /// Returns the error that leaves it unknown which nodes are here.
    pub fn unread(&self) -> Option<&Error> {
        self.ancestors.iter().find_map(|ancestor| match &ancestor.kind {
            AncestorKind::Unread(error) => Some(error),
            _ => None,
        })
    }

    /// Returns the format of the nearest group; `None` if it has no document.
    pub fn parent_format(&self) -> Option<ZarrFormat> {
        match &self.ancestors.first()?.kind {
            AncestorKind::Group(group) => group.zarr_format,
            _ => None,
        }
    }

    /// Returns the reason why a group at `path` cannot be entered, if there is one.
    pub fn objection(&self, store: &dyn Store, path: &str) -> Option<Error> {
        if self.ancestors.len() > MAX_DEPTH {
            return Some(Error::unsupported(path, format!("groups nested more than {MAX_DEPTH} deep")));
        }
        let folder = store.folder_id(path).ok()??;
        let same = self.ancestors.iter().find(|ancestor| ancestor.folder == Some(folder))?;
        let name = if same.path.is_empty() { "the root" } else { &same.path };
        Some(Error::unsupported(path, format!("a link that leads back up to {name}")))
    }

    /// Returns the node at `path` from the nearest consolidated metadata that has it.
    pub fn copy(&self, path: &str) -> Option<ConsolidatedCopy> {
        self.carriers(path).find_map(|(ancestor, group, relative)| {
            let carrier_key = carrier_key(ancestor, group);
            let carrier = ancestor.versions.info(&carrier_key);
            match metadata::consolidated_node(group, relative) {
                Some(document) => Some(ConsolidatedCopy { document: Some(document), carrier_key, carrier }),
                None if metadata::consolidated_children(group, relative).is_empty() => None,
                None => Some(ConsolidatedCopy { document: None, carrier_key, carrier }),
            }
        })
    }

    /// Returns whether consolidated metadata has the nearest group, which is at `path`. Then it has everything below it too.
    pub fn is_copied(&self, path: &str) -> bool {
        self.carriers(path).any(|(_, _, relative)| relative.is_empty()) || self.copy(path).is_some()
    }

    /// Returns the names that consolidated metadata has below the nearest group, which is at `path`.
    pub fn copied_names<'a>(&'a self, path: &'a str) -> impl Iterator<Item = String> + 'a {
        let carriers = self.carriers(path);
        carriers
            .flat_map(|(_, group, relative)| metadata::consolidated_children(group, relative))
            .map(|(name, _)| name)
    }

    /// Returns the groups with consolidated metadata, each with `path` relative to it.
    fn carriers<'a>(
        &'a self,
        path: &'a str,
    ) -> impl Iterator<Item = (&'a Ancestor, &'a GroupMetadata, &'a str)> {
        self.ancestors.iter().filter_map(move |ancestor| match &ancestor.kind {
            AncestorKind::Group(group) if group.consolidated.is_some() => {
                let below = path.strip_prefix(ancestor.path.as_str())?;
                Some((ancestor, &**group, below.trim_start_matches('/')))
            }
            _ => None,
        })
    }
}

fn carrier_key(ancestor: &Ancestor, group: &GroupMetadata) -> String {
    match group.zarr_format {
        Some(ZarrFormat::V2) => join(&ancestor.path, ".zmetadata"),
        _ => group.document_key.clone(),
    }
}

/// Returns the path of the group that a node is in; `None` for the root.
pub(super) fn parent(path: &str) -> Option<&str> {
    match path.rsplit_once('/') {
        Some((parent, _)) => Some(parent),
        None if path.is_empty() => None,
        None => Some(""),
    }
}
