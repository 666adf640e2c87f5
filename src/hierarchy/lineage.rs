//! The groups above a node: what they say about the nodes below them. Uses `documents` and `group_cache`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::documents::{Content, Documents, Seen};
use super::group_cache::{GroupCache, Looked};
use crate::error::Error;
use crate::metadata::{self, Document, GroupMetadata, ZarrFormat};
use crate::store::{FileId, Info, Store, join};

/// The deepest that groups are nested. Bounds the work that a hostile store can cause.
pub const MAX_DEPTH: usize = 128;

/// Everything above a node, nearest first; the last is the root. Empty above the root itself.
pub(super) struct Lineage {
    ancestors: Vec<Ancestor>,
    /// When the store was asked for the one that it was not asked for the longest.
    pub checked_at: Instant,
}

struct Ancestor {
    path: String,
    kind: Kind,
    /// The documents that say so.
    seen: Seen,
    /// What the folder is, where the store can tell.
    folder: Option<FileId>,
}

enum Kind {
    /// A group, and the key of the document that holds its consolidated metadata if it has any.
    Group(Arc<GroupMetadata>),
    /// Below an array, or a node that cannot be read, there are no nodes.
    Barren,
    /// A service could not be asked what it is, and so not what is below it.
    Unread(Error),
    /// No document of its own.
    Undocumented,
}

/// A node as a group above it has it in its consolidated metadata.
pub(super) struct ConsolidatedCopy {
    /// The node's metadata; `None` for a group that only the paths of nodes below it name.
    pub document: Option<Result<Document, Error>>,
    /// The key of the document that holds the copy.
    pub carrier_key: String,
    /// What the store tells of that document.
    pub carrier: Option<Info>,
}

impl Lineage {
    /// What is above the children of the node at `path`: that node and all above it. `None` above the root.
    /// They are at most `max_age` old.
    pub fn below(path: Option<&str>, store: &dyn Store, groups: &GroupCache, max_age: Duration) -> Self {
        let paths: Vec<&str> = std::iter::successors(path, |path| parent(path)).collect();
        Self::of(&paths, groups.read_many(store, &paths, None, max_age), store)
    }

    /// The same of documents that were read: these paths lead up to the root.
    pub fn of(paths: &[&str], looked: Vec<Looked>, store: &dyn Store) -> Self {
        let checked_at = looked.iter().map(|looked| looked.at).min().unwrap_or_else(Instant::now);
        let ancestor = |(path, looked): (&&str, Looked)| {
            let (kind, seen) = match looked.documents {
                Some(Documents { content: Content::Group(group), seen, .. }) => (Kind::Group(group), seen),
                Some(Documents { content: Content::Broken(fault), seen, .. })
                    if store.is_remote() && matches!(fault.error, Error::Store { .. }) =>
                {
                    (Kind::Unread(fault.error), seen)
                }
                Some(Documents { seen, .. }) => (Kind::Barren, seen),
                None => (Kind::Undocumented, Seen::default()),
            };
            Ancestor { path: (*path).to_owned(), kind, seen, folder: folder_identity(store, path) }
        };
        Lineage { ancestors: paths.iter().zip(looked).map(ancestor).collect(), checked_at }
    }

    /// Whether there can be nodes here: all above are groups, and no link leads back to one of them.
    pub fn is_fertile(&self) -> bool {
        let is_met_again = |(index, ancestor): (usize, &Ancestor)| {
            let above = self.ancestors.iter().skip(index + 1);
            ancestor.folder.is_some() && above.into_iter().any(|other| other.folder == ancestor.folder)
        };
        let is_barren = |ancestor: &Ancestor| matches!(ancestor.kind, Kind::Barren | Kind::Unread(_));
        !self.ancestors.iter().any(is_barren) && !self.ancestors.iter().enumerate().any(is_met_again)
    }

    /// Why it is unknown whether there are nodes here: nothing is missing because a service did not answer.
    pub fn unread(&self) -> Option<&Error> {
        self.ancestors.iter().find_map(|ancestor| match &ancestor.kind {
            Kind::Unread(error) => Some(error),
            _ => None,
        })
    }

    /// The version of the nearest group; `None` where it has no document.
    pub fn parent_format(&self) -> Option<ZarrFormat> {
        match &self.ancestors.first()?.kind {
            Kind::Group(group) => group.zarr_format,
            _ => None,
        }
    }

    /// Why a group at `path` cannot be entered, if so.
    pub fn objection(&self, store: &dyn Store, path: &str) -> Option<Error> {
        if self.ancestors.len() > MAX_DEPTH {
            return Some(Error::unsupported(path, format!("groups nested more than {MAX_DEPTH} deep")));
        }
        let folder = folder_identity(store, path)?;
        let same = self.ancestors.iter().find(|ancestor| ancestor.folder == Some(folder))?;
        let name = if same.path.is_empty() { "the root" } else { &same.path };
        Some(Error::unsupported(path, format!("a link that leads back up to {name}")))
    }

    /// The node at `path` in the nearest consolidated metadata that has it.
    pub fn copy(&self, path: &str) -> Option<ConsolidatedCopy> {
        self.carriers(path).find_map(|(ancestor, group, relative)| {
            let carrier_key = carrier_key(ancestor, group);
            let carrier = ancestor.seen.info(&carrier_key);
            match metadata::consolidated_node(group, relative) {
                Some(document) => Some(ConsolidatedCopy { document: Some(document), carrier_key, carrier }),
                None if metadata::consolidated_children(group, relative).is_empty() => None,
                None => Some(ConsolidatedCopy { document: None, carrier_key, carrier }),
            }
        })
    }

    /// Whether consolidated metadata tells of the nearest of these, which is at `path`: then of all below it.
    pub fn is_copied(&self, path: &str) -> bool {
        self.carriers(path).any(|(_, _, relative)| relative.is_empty()) || self.copy(path).is_some()
    }

    /// The names that consolidated metadata knows below the nearest of these, which is at `path`.
    pub fn copied_names<'a>(&'a self, path: &'a str) -> impl Iterator<Item = String> + 'a {
        let carriers = self.carriers(path);
        carriers
            .flat_map(|(_, group, relative)| metadata::consolidated_children(group, relative))
            .map(|(name, _)| name)
    }

    /// The groups with consolidated metadata, and what `path` is called below each.
    fn carriers<'a>(
        &'a self,
        path: &'a str,
    ) -> impl Iterator<Item = (&'a Ancestor, &'a GroupMetadata, &'a str)> {
        self.ancestors.iter().filter_map(move |ancestor| match &ancestor.kind {
            Kind::Group(group) if group.consolidated.is_some() => {
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

fn folder_identity(store: &dyn Store, path: &str) -> Option<FileId> {
    if store.is_remote() {
        return None;
    }
    store.head(path).ok()??.file()
}

/// The path of the group that a node is in; `None` for the root.
pub(super) fn parent(path: &str) -> Option<&str> {
    match path.rsplit_once('/') {
        Some((parent, _)) => Some(parent),
        None if path.is_empty() => None,
        None => Some(""),
    }
}
