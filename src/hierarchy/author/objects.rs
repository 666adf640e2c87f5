//! Removing a node where a store has no folders: object by object. Uses `store`.
//!
//! Another program may make a node of the same name as soon as the documents are gone. So what goes is listed with its versions before
//! they go, and nothing but these versions is deleted. What is left then, of writers that did not know that the array was gone, goes as
//! long as there is no document at the name: a new node has one before its chunks.

use std::ops::ControlFlow;

use crate::error::{Error, Result};
use crate::store::{ObjectVersion, Precondition, Store, Writer, join};

/// The documents of a node, the one that makes it first.
const DOCUMENTS: [&str; 5] = ["zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"];
/// The most objects that are listed before the documents go: some 100 bytes of memory each.
const MAX_LISTED: usize = 1_000_000;
/// How many objects are looked at in one batch.
const BATCH_OBJECTS: usize = 1000;

/// One version of an object.
struct Listed {
    key: String,
    version: ObjectVersion,
}

/// Removes a node with all below it.
pub(super) fn remove(store: &dyn Store, writer: &dyn Writer, path: &str) -> Result<()> {
    let (documents, objects) = (documents(store, path)?, below(store, path, MAX_LISTED)?);
    if let Some((Listed { key, version }, others)) = documents.split_first() {
        // One that was replaced meanwhile is of a node that stays.
        writer.delete(key, Precondition::Version(*version))?;
        delete(writer, others)?;
    }
    delete(writer, &objects)?;
    loop {
        let left = below(store, path, BATCH_OBJECTS)?;
        // In this order: what was listed before there was a document is not the new node's.
        if left.is_empty() || !self::documents(store, path)?.is_empty() || delete(writer, &left)? == 0 {
            return Ok(());
        }
    }
}

/// Deletes these versions; returns how many of them there were still.
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

/// The objects below a node, without its own documents.
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

/// The objects at keys, where there are any.
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

/// The documents of a node.
fn documents(store: &dyn Store, path: &str) -> Result<Vec<Listed>> {
    let keys: Vec<String> = DOCUMENTS.iter().map(|name| join(path, name)).collect();
    versions(store, &keys)
}
