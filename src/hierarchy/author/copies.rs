//! Updates consolidated metadata when nodes change: entries are added and removed in every group above that has it.
//!
//! Spec: see `metadata/documents/consolidated.rs`. Uses `attributes` for reading documents, `store` and `metadata`.
//!
//! Invariants: a document is replaced whole, and only if it still is the version that the change was made from. An entry that is equal as
//! JSON is not replaced. Entries are added in the outermost group first and removed there last: its document is the longest, and the first
//! to exceed the limit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::hierarchy::Tree;
use crate::hierarchy::attributes::read;
use crate::hierarchy::lineage::parent;
use crate::metadata::MAX_DOCUMENT_BYTES;
use crate::metadata::author::NodeDocument;
use crate::metadata::json::{self, edit};
use crate::store::overlay::OverlayStore;
use crate::store::{ObjectPart, Precondition, PutOptions, Store, Writer, join};

/// How long to try again while other programs change the document.
const WAIT: Duration = Duration::from_secs(10);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// Members of a JSON object that are set, or removed.
type Members = Vec<(String, Option<String>)>;

/// The form of consolidated metadata.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Consolidation {
    /// v3: in the group's `zarr.json`, by path.
    Inline,
    /// v2: in `.zmetadata`, by key.
    Zmetadata,
}

impl Consolidation {
    fn document(self) -> &'static str {
        match self {
            Consolidation::Inline => "zarr.json",
            Consolidation::Zmetadata => ".zmetadata",
        }
    }

    fn place(self) -> &'static [&'static str] {
        match self {
            Consolidation::Inline => &["consolidated_metadata", "metadata"],
            Consolidation::Zmetadata => &["metadata"],
        }
    }

    /// Returns the entry for a document of the node at `relative`; `None` if this form does not contain it.
    fn entry(self, relative: &str, document: &NodeDocument) -> Result<Option<(String, Option<String>)>> {
        let is_v3 = document.name == "zarr.json";
        if is_v3 != (self == Consolidation::Inline) || document.name == ".zmetadata" {
            return Ok(None);
        }
        if !is_v3 {
            return Ok(Some((join(relative, document.name), Some(document.text.clone()))));
        }
        // The consolidated metadata of a group is not an entry of a group above.
        let without_copy = edit::set(&document.text, &[("consolidated_metadata".to_owned(), None)]);
        let text = without_copy.map_err(|fault| fault.into_error(document.name))?;
        Ok(Some((relative.to_owned(), Some(text))))
    }
}

/// Adds a node to the consolidated metadata above it.
pub fn add(store: &dyn Store, writer: &dyn Writer, path: &str, documents: &[NodeDocument]) -> Result<()> {
    let documents: Vec<(String, NodeDocument)> =
        documents.iter().map(|document| (String::new(), document.clone())).collect();
    add_all(store, writer, path, &documents)
}

/// Adds a node and the nodes below it. Each document comes with the path of its node relative to the first.
pub fn add_all(
    store: &dyn Store,
    writer: &dyn Writer,
    path: &str,
    documents: &[(String, NodeDocument)],
) -> Result<()> {
    places(path).into_iter().rev().try_for_each(|(group, relative, kind)| {
        let mut members = Members::new();
        for (below, document) in documents {
            let relative = if below.is_empty() { relative.to_owned() } else { join(relative, below) };
            members.extend(kind.entry(&relative, document)?);
        }
        change(store, writer, (group, kind), &|_| Ok(members.clone()))
    })
}

/// Adds nodes of one group. Readers of consolidated metadata see all of them in one step. Each document comes with the name of its node.
pub fn add_members(
    store: &dyn Store,
    writer: &dyn Writer,
    group: &str,
    documents: &[(String, NodeDocument)],
) -> Result<()> {
    // The same groups have any node of the group.
    let member = join(group, "-");
    places(&member).into_iter().rev().try_for_each(|(above, relative, kind)| {
        let below = parent(relative).unwrap_or("");
        let mut members = Members::new();
        for (name, document) in documents {
            members.extend(kind.entry(&join(below, name), document)?);
        }
        change(store, writer, (above, kind), &|stored| {
            // A node that has no entry gets none.
            let known = json::parse_object(stored.as_bytes()).map_err(|fault| fault.into_error(above))?;
            Ok(members.iter().filter(|(name, _)| known.contains_key(name)).cloned().collect())
        })
    })
}

/// Adds the entries of a node again after its removal has failed. If that fails too, it is logged.
pub fn restore(store: &Arc<dyn Store>, writer: &dyn Writer, path: &str) {
    let restored =
        documents_below(store, path).and_then(|documents| add_all(store.as_ref(), writer, path, &documents));
    if let Err(error) = restored {
        log::warn!("{path}: consolidated metadata does not have it any more: {error}");
    }
}

/// Removes a node, with everything below it, from the consolidated metadata above.
pub fn remove(store: &dyn Store, writer: &dyn Writer, path: &str) -> Result<()> {
    places(path).into_iter().try_for_each(|(group, relative, kind)| {
        let key = join(group, kind.document());
        change(store, writer, (group, kind), &|stored| {
            Ok(names_below(stored, relative, &key)?.into_iter().map(|name| (name, None)).collect())
        })
    })
}

/// Gives the consolidated metadata in an overlay the entries of the base for a node and for everything below it, because the overlay is
/// about to forget its changes there. A document that is then equal to the base's is forgotten too.
pub fn forget(store: &OverlayStore, writer: &dyn Writer, path: &str) -> Result<()> {
    let changed = store.folder().changes()?;
    places(path).into_iter().try_for_each(|(group, relative, kind)| {
        let key = join(group, kind.document());
        let Some(changed) = changed.iter().find(|change| change.key == key) else { return Ok(()) };
        let base = if store.folder().is_hidden(&key)? { None } else { read(store.base().as_ref(), &key)? };
        let base = base.map(|(text, _)| text).unwrap_or_default();
        let copy = edit::find(&base, kind.place()).filter(|copy| copy.starts_with('{')).unwrap_or("{}");
        change(store, writer, (group, kind), &|stored| {
            let mut members: Members =
                names_below(stored, relative, &key)?.into_iter().map(|name| (name, None)).collect();
            for name in names_below(copy, relative, &key)? {
                let text = edit::find(copy, &[&name]).map(str::to_owned);
                members.retain(|(other, _)| *other != name);
                members.push((name, text));
            }
            Ok(members)
        })?;
        let parsed = |text: &str| json::parse(text.as_bytes()).ok();
        match read(store, &key)? {
            Some((text, _)) if parsed(&text).is_some_and(|now| parsed(&base) == Some(now)) => {
                store.folder().forget(std::slice::from_ref(changed))
            }
            _ => Ok(()),
        }
    })
}

/// Returns the names of the entries for a node and for everything below it.
fn names_below(copy: &str, relative: &str, key: &str) -> Result<Vec<String>> {
    let below = format!("{relative}/");
    let members = json::parse_object(copy.as_bytes()).map_err(|fault| fault.into_error(key))?;
    let names = members.keys().filter(|name| *name == relative || name.starts_with(&below));
    Ok(names.cloned().collect())
}

/// Returns the documents of a node and of everything below it, each with the path of its node relative to the first.
pub fn documents_below(store: &Arc<dyn Store>, path: &str) -> Result<Vec<(String, NodeDocument)>> {
    let mut documents = Vec::new();
    for visit in Tree::for_one_look(store.clone()).walk(path, usize::MAX) {
        let below = visit.path.strip_prefix(path).unwrap_or_default().trim_start_matches('/').to_owned();
        for name in ["zarr.json", ".zarray", ".zgroup", ".zattrs"] {
            if let Some((text, _)) = read(store.as_ref(), &join(&visit.path, name))? {
                documents.push((below.clone(), NodeDocument { name, text }));
            }
        }
    }
    Ok(documents)
}

/// Returns where consolidated metadata may have a node: the group, from the nearest to the root; the node's path relative to it; the form.
fn places(path: &str) -> Vec<(&str, &str, Consolidation)> {
    let mut places = Vec::new();
    let mut above = parent(path);
    while let Some(group) = above {
        let relative = path.strip_prefix(group).unwrap_or(path).trim_start_matches('/');
        places.extend([Consolidation::Inline, Consolidation::Zmetadata].map(|kind| (group, relative, kind)));
        above = parent(group);
    }
    places
}

/// Returns the members that differ from the stored ones as JSON.
fn different(stored: &str, members: Members, key: &str) -> Result<Members> {
    let has = json::parse_object(stored.as_bytes()).map_err(|fault| fault.into_error(key))?;
    let is_same = |(name, text): &(String, Option<String>)| match (has.get(name), text) {
        (None, None) => true,
        (Some(has), Some(text)) => json::parse(text.as_bytes()).is_ok_and(|new| new == *has),
        _ => false,
    };
    Ok(members.into_iter().filter(|member| !is_same(member)).collect())
}

/// Changes the entries in the consolidated metadata of a group, if it has any.
fn change(
    store: &dyn Store,
    writer: &dyn Writer,
    (group, kind): (&str, Consolidation),
    members: &dyn Fn(&str) -> Result<Members>,
) -> Result<()> {
    let key = join(group, kind.document());
    let started = Instant::now();
    loop {
        let found = match read(store, &key) {
            Err(error @ Error::Metadata { .. }) if kind == Consolidation::Zmetadata => {
                log::warn!("ignoring the consolidated metadata: {error}");
                return Ok(());
            }
            other => other?,
        };
        let Some((text, info)) = found else { return Ok(()) };
        let stored = edit::find(&text, kind.place()).filter(|stored| stored.starts_with('{'));
        let Some(stored) = stored else { return Ok(()) };
        let members = different(stored, members(stored)?, &key)?;
        if members.is_empty() {
            return Ok(());
        }
        let changed = edit::set(stored, &members).map_err(|fault| fault.into_error(&key))?;
        let text = edit::replace(&text, kind.place(), &changed)
            .ok_or_else(|| Error::metadata(&key, "the copies have no place in it"))?;
        if text.len() as u64 > MAX_DOCUMENT_BYTES {
            let reason = format!("{} bytes, more than {MAX_DOCUMENT_BYTES}", text.len());
            return Err(Error::TooLarge { key, reason });
        }
        let lock = match writer.lock(&key) {
            Err(Error::Stale { .. }) => None,
            lock => lock?,
        };
        if lock.is_some() {
            let precondition = Precondition::Version(info.version);
            let options = PutOptions { precondition, ..PutOptions::new(group, &info) };
            match writer.put(&key, &[ObjectPart::Bytes(text.as_bytes())], &options) {
                Err(Error::Changed { .. }) => {}
                put => return put.and_then(|_| writer.sync(std::slice::from_ref(&key), group)),
            }
        }
        drop(lock);
        if started.elapsed() > WAIT {
            return Err(Error::busy(key, "other programs keep changing it"));
        }
        std::thread::sleep(PAUSE);
    }
}
