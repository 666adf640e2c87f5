//! Keeps writers out of nodes that a command removes or renames.
//!
//! Uses `array`, `store` and its neighbours in `hierarchy`. A mount that has an array open for writing holds the lock of its folder. In a store
//! without locks, writers are not kept out.

use std::sync::Arc;

use crate::array::lock_folder;
use crate::error::{Error, Result};
use crate::hierarchy::{Node, Tree};
use crate::store::Store;

/// The most locks that are held at a time. Each is an open folder.
const MAX_LOCKS: usize = 256;

/// Locks that exclude writers until this is dropped.
pub struct WriterLocks {
    _held: Vec<Box<dyn Send + Sync>>,
}

/// Locks the array at a path, or the arrays in a group. Fails with `Busy` if a program has one open for writing. In a group with more
/// arrays than `MAX_LOCKS`, the rest is only checked.
pub fn keep_writers_out(store: &Arc<dyn Store>, path: &str) -> Result<WriterLocks> {
    let mut held = Vec::new();
    let Some(writer) = store.writer().filter(|_| !store.is_remote()) else {
        return Ok(WriterLocks { _held: held });
    };
    for visit in Tree::for_one_look(store.clone()).walk(path, usize::MAX) {
        if !matches!(visit.node, Ok(Node::Array { .. })) {
            continue;
        }
        match lock_folder(writer, &visit.path) {
            Ok(Some(lock)) if held.len() < MAX_LOCKS => held.push(lock),
            Ok(Some(_)) => {}
            Ok(None) => {
                return Err(Error::busy(visit.path, "another program has this array open for writing"));
            }
            // It has no folder of its own.
            Err(Error::Stale { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(WriterLocks { _held: held })
}
