//! Removes a node from a store without folders, object by object. Uses `store`.
//!
//! Another program may create a node of the same name as soon as the documents are gone. So the objects are listed with their versions
//! before the documents are deleted, and only these versions are deleted. Writers that do not yet know that the array is gone may add
//! objects. These are deleted as long as there is no document at the path: a new node has one before its chunks.

use std::ops::ControlFlow;

use crate::error::{Error, Result};
use crate::store::{ObjectVersion, Precondition, Store, Writer, join};

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

/// Returns the documents of a node.
fn documents(store: &dyn Store, path: &str) -> Result<Vec<Listed>> {
    let keys: Vec<String> = DOCUMENTS.iter().map(|name| join(path, name)).collect();
    versions(store, &keys)
}
