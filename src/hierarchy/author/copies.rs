//! Consolidated metadata in step with the nodes below: entries come and go in every group above that has a copy.
//!
//! Spec: see `metadata/consolidated.rs`. Uses `attributes` for reading documents, `store` and `metadata`.
//!
//! Invariants: a copy is replaced whole, and only if it still is the version that the change was made from. A copy that says the same in
//! other words stays. Entries come in the outermost group first and go there last: its copy is the longest, and the first that finds
//! no room.

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

/// How long to wait for another writer.
const WAIT: Duration = Duration::from_secs(10);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(5);

/// Members of an object that are set, or removed.
type Members = Vec<(String, Option<String>)>;

/// A copy of documents in a group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// In the group's `zarr.json`, by path.
    Inline,
    /// `.zmetadata`, by key.
    Zmetadata,
}

impl Kind {
    fn document(self) -> &'static str {
        match self {
            Kind::Inline => "zarr.json",
            Kind::Zmetadata => ".zmetadata",
        }
    }

    fn place(self) -> &'static [&'static str] {
        match self {
            Kind::Inline => &["consolidated_metadata", "metadata"],
            Kind::Zmetadata => &["metadata"],
        }
    }

    /// The entry of a document of the node at `relative`; `None` if such copies have none of it.
    fn entry(self, relative: &str, document: &NodeDocument) -> Result<Option<(String, Option<String>)>> {
        let is_v3 = document.name == "zarr.json";
        if is_v3 != (self == Kind::Inline) || document.name == ".zmetadata" {
            return Ok(None);
        }
        if !is_v3 {
            return Ok(Some((join(relative, document.name), Some(document.text.clone()))));
        }
        // A group's own copy is not copied again.
        let without_copy = edit::set(&document.text, &[("consolidated_metadata".to_owned(), None)]);
        let text = without_copy.map_err(|fault| fault.into_error(document.name))?;
        Ok(Some((relative.to_owned(), Some(text))))
    }
}

/// Adds a node to the copies above it.
pub fn add(store: &dyn Store, writer: &dyn Writer, path: &str, documents: &[NodeDocument]) -> Result<()> {
    let documents: Vec<(String, NodeDocument)> =
        documents.iter().map(|document| (String::new(), document.clone())).collect();
    add_all(store, writer, path, &documents)
}

/// Adds a node and those below it, whose documents come with their paths from it.
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

/// Puts back what the copies have lost of a node that stays, after a failure. Another failure is logged.
pub fn restore(store: &Arc<dyn Store>, writer: &dyn Writer, path: &str) {
    let restored =
        documents_below(store, path).and_then(|documents| add_all(store.as_ref(), writer, path, &documents));
    if let Err(error) = restored {
        log::warn!("{path}: consolidated metadata does not have it any more: {error}");
    }
}

/// Removes a node, and all below it, from the copies above.
pub fn remove(store: &dyn Store, writer: &dyn Writer, path: &str) -> Result<()> {
    places(path).into_iter().try_for_each(|(group, relative, kind)| {
        let key = join(group, kind.document());
        change(store, writer, (group, kind), &|stored| {
            Ok(names_below(stored, relative, &key)?.into_iter().map(|name| (name, None)).collect())
        })
    })
}

/// Gives the copies above a node, where the overlay has changed them, the entries that the store below has of it and of all below it,
/// as the overlay is to have nothing there any more. A document that then says what the store's says is forgotten.
pub fn forget(store: &OverlayStore, writer: &dyn Writer, path: &str) -> Result<()> {
    let changed = store.changes()?;
    places(path).into_iter().try_for_each(|(group, relative, kind)| {
        let key = join(group, kind.document());
        let Some(changed) = changed.iter().find(|change| change.key == key) else { return Ok(()) };
        let base = if store.is_hidden(&key)? { None } else { read(store.base().as_ref(), &key)? };
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
                store.forget(std::slice::from_ref(changed))
            }
            _ => Ok(()),
        }
    })
}

/// The names of a node and of those below it in a copy.
fn names_below(copy: &str, relative: &str, key: &str) -> Result<Vec<String>> {
    let below = format!("{relative}/");
    let members = json::parse_object(copy.as_bytes()).map_err(|fault| fault.into_error(key))?;
    let names = members.keys().filter(|name| *name == relative || name.starts_with(&below));
    Ok(names.cloned().collect())
}

/// The documents of a node and of all below it, with their paths from it.
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

/// Where there may be copies of a node: the group, from the next one to the root; the node's path from there; the kind.
fn places(path: &str) -> Vec<(&str, &str, Kind)> {
    let mut places = Vec::new();
    let mut above = parent(path);
    while let Some(group) = above {
        let relative = path.strip_prefix(group).unwrap_or(path).trim_start_matches('/');
        places.extend([Kind::Inline, Kind::Zmetadata].map(|kind| (group, relative, kind)));
        above = parent(group);
    }
    places
}

/// The members that a copy does not have so already, in these or other words.
fn different(stored: &str, members: Members, key: &str) -> Result<Members> {
    let has = json::parse_object(stored.as_bytes()).map_err(|fault| fault.into_error(key))?;
    let is_same = |(name, text): &(String, Option<String>)| match (has.get(name), text) {
        (None, None) => true,
        (Some(has), Some(text)) => json::parse(text.as_bytes()).is_ok_and(|new| new == *has),
        _ => false,
    };
    Ok(members.into_iter().filter(|member| !is_same(member)).collect())
}

/// Changes the entries of a copy, if there is one.
fn change(
    store: &dyn Store,
    writer: &dyn Writer,
    (group, kind): (&str, Kind),
    members: &dyn Fn(&str) -> Result<Members>,
) -> Result<()> {
    let key = join(group, kind.document());
    let started = Instant::now();
    loop {
        let found = match read(store, &key) {
            Err(error @ Error::Metadata { .. }) if kind == Kind::Zmetadata => {
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
