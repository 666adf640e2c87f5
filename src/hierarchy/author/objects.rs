//! Removes a node from a store without folders, object by object. Uses `store`.
//!
//! Another program may create a node of the same name as soon as the documents are gone. So the objects are listed with their versions
//! before the documents are deleted, and only these versions are deleted. Writers that do not yet know that the array is gone may add
//! objects. These are deleted as long as there is no document at the path: a new node has one before its chunks.
//!
//! The documents of a new node are at its path while its elements are written. So a process that dies leaves a node that is not complete. It has
//! recorded the marks of its documents before it put them ([`AnnouncePut`]), and another process takes the node back ([`take_back`]). Only a document
//! with such a mark is removed, and only in the version that has it. The rest of the node is removed only if no other program's document makes
//! a node at this path.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::copies;
use super::place::writer;
use crate::error::{Error, Result};
use crate::store::{ObjectVersion, Precondition, Store, VersionDigest, Writer, join};

/// The names of a node's documents. A document that makes a node comes before the others.
const DOCUMENTS: [&str; 5] = ["zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"];
/// How many of them make a node.
const NODE_DOCUMENTS: usize = 3;
/// The most objects that are listed before the documents are deleted. Each takes about 100 bytes of memory.
const MAX_LISTED: usize = 1_000_000;
/// How many objects are looked up in one batch.
const BATCH_OBJECTS: usize = 1000;

/// One version of an object.
struct Listed {
    key: String,
    version: ObjectVersion,
}

/// Removes a node with everything below it.
pub(super) fn remove(store: &dyn Store, writer: &dyn Writer, path: &str) -> Result<()> {
    let (documents, objects) = (documents(store, path)?, below(store, path, MAX_LISTED)?);
    if let Some((Listed { key, version }, others)) = documents.split_first() {
        // If the document was replaced meanwhile, this fails and the node stays.
        writer.delete(key, Precondition::Version(*version))?;
        delete(writer, others)?;
    }
    delete(writer, &objects)?;
    remove_left(store, writer, path)
}

/// Removes the objects that are left of a node without its documents. Does nothing if there is a node at the path or below it.
pub(super) fn remove_remains(store: &dyn Store, writer: &dyn Writer, path: &str) -> Result<()> {
    // In this order: objects that were listed before there was a document do not belong to a new node.
    let (objects, documents) = (below(store, path, MAX_LISTED)?, documents(store, path)?);
    let makes_node = |Listed { key, .. }: &Listed| {
        let name = key.rsplit('/').next().unwrap_or(key);
        DOCUMENTS.iter().take(NODE_DOCUMENTS).any(|document| *document == name)
    };
    if objects.iter().chain(&documents).any(makes_node) {
        return Ok(());
    }
    delete(writer, &documents)?;
    delete(writer, &objects)?;
    remove_left(store, writer, path)
}

/// Removes the objects that writers, which do not know that the array is gone, add to it.
fn remove_left(store: &dyn Store, writer: &dyn Writer, path: &str) -> Result<()> {
    loop {
        let left = below(store, path, BATCH_OBJECTS)?;
        // The order matters: objects that were listed before there was a document do not belong to a new node.
        if left.is_empty() || !self::documents(store, path)?.is_empty() || delete(writer, &left)? == 0 {
            return Ok(());
        }
    }
}

/// Deletes these versions; returns how many were still there.
fn delete(writer: &dyn Writer, objects: &[Listed]) -> Result<usize> {
    let mut deleted = 0;
    for Listed { key, version } in objects {
        match writer.delete(key, Precondition::Version(*version)) {
            Ok(is_deleted) => deleted += usize::from(is_deleted),
            Err(Error::Changed { .. }) => log::debug!("{key}: was replaced meanwhile, and stays"),
            Err(error) => return Err(error),
        }
    }
    Ok(deleted)
}

/// Lists the objects below a node, without its own documents.
fn below(store: &dyn Store, path: &str, at_most: usize) -> Result<Vec<Listed>> {
    let (mut keys, mut folders) = (Vec::new(), vec![path.to_owned()]);
    while let Some(folder) = folders.pop() {
        store.each_name(&folder, &mut |entry| {
            let key = join(&folder, &entry.name);
            if entry.is_folder {
                folders.push(key);
            } else if folder != path || !DOCUMENTS.contains(&entry.name.as_str()) {
                keys.push(key);
            }
            if keys.len() < at_most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if keys.len() >= at_most {
            break;
        }
    }
    versions(store, &keys)
}

/// Returns the objects that exist at these keys.
fn versions(store: &dyn Store, keys: &[String]) -> Result<Vec<Listed>> {
    let mut listed = Vec::new();
    for batch in keys.chunks(BATCH_OBJECTS) {
        let names: Vec<&str> = batch.iter().map(String::as_str).collect();
        for (key, found) in batch.iter().zip(store.head_many(&names)) {
            listed.extend(found?.map(|info| Listed { key: key.clone(), version: info.version }));
        }
    }
    Ok(listed)
}

/// A callback that gets the key and the mark of a document before it is put at the path of a new node. An error from it ends the put.
pub type AnnouncePut<'a> = &'a (dyn Fn(&str, VersionDigest) -> Result<()> + Sync);

/// A document that a process may have put before it died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentPut {
    /// Its key.
    pub key: String,
    /// The mark of the put.
    pub mark: VersionDigest,
}

/// Removes a node that a process has not completed, if some of these documents are still the ones that it has put. Returns whether anything
/// was removed.
pub fn take_back(store: &Arc<dyn Store>, path: &str, puts: &[DocumentPut]) -> Result<bool> {
    let (store, writer) = (store.as_ref(), writer(store.as_ref())?);
    let mut ours = Vec::new();
    for DocumentPut { key, mark } in puts {
        if let Some(found) = store.head_object(key)?
            && writer.has_mark(key, found.version, *mark)?
        {
            ours.push((key.clone(), found.version));
        }
    }
    if ours.is_empty() {
        return Ok(false);
    }
    log::warn!("{path}: a daemon that has died had not completed it: it is removed");
    let is_ours = |key: &str| ours.iter().any(|(of_ours, _)| of_ours == key);
    if makes_node(store, path)?.iter().all(|key| is_ours(key)) {
        copies::remove(store, writer, path)?;
        remove_put(store, writer, path, &ours)?;
        return Ok(true);
    }
    for (key, version) in &ours {
        match writer.delete(key, Precondition::Version(*version)) {
            Ok(_) | Err(Error::Changed { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Returns the keys of the documents at a path that make a node.
fn makes_node(store: &dyn Store, path: &str) -> Result<Vec<String>> {
    let keys: Vec<String> =
        DOCUMENTS.iter().take(NODE_DOCUMENTS).map(|document| join(path, document)).collect();
    Ok(versions(store, &keys)?.into_iter().map(|found| found.key).collect())
}

/// Removes the objects at the path of a node with these documents, unless one of them has changed. The documents go last, because they keep the
/// name: without them another program could create a node there, and the objects of that node must not be removed.
pub(super) fn remove_put(
    store: &dyn Store,
    writer: &dyn Writer,
    path: &str,
    put: &[(String, ObjectVersion)],
) -> Result<()> {
    for (key, version) in put {
        let now = || Ok(store.head_object(key)?.map(|info| info.version));
        Precondition::Version(*version).check(key, now)?;
    }
    remove_below(store, writer, path, &|key| !put.iter().any(|(put, _)| put == key))?;
    for (key, version) in put.iter().rev() {
        writer.delete(key, Precondition::Version(*version))?;
    }
    Ok(())
}

/// Removes the objects below a folder, at any depth, whose keys satisfy `is_removed`.
fn remove_below(
    store: &dyn Store,
    writer: &dyn Writer,
    folder: &str,
    is_removed: &dyn Fn(&str) -> bool,
) -> Result<()> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let mut outcome = Ok(());
        store.each_name(&folder, &mut |entry| {
            let key = join(&folder, &entry.name);
            if entry.is_folder {
                folders.push(key);
            } else if is_removed(&key) {
                outcome = writer.delete(&key, Precondition::Any).map(drop);
            }
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        outcome?;
    }
    Ok(())
}

/// Returns the documents of a node.
fn documents(store: &dyn Store, path: &str) -> Result<Vec<Listed>> {
    let keys: Vec<String> = DOCUMENTS.iter().map(|name| join(path, name)).collect();
    versions(store, &keys)
}
