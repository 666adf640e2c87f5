//! Owners and modes of nodes that exist: of a group, and of an array that nobody has seen yet. Uses `store`.

use std::ops::ControlFlow;

use super::place::writer;
use crate::error::Result;
use crate::hierarchy::DOCUMENT_NAMES;
use crate::store::{Posix, Store, join};

/// Gives a group's folder and documents another mode, not the nodes below it; `false` where the store has no modes to set. What
/// belongs to another user than the folder does stays as it is.
pub fn give_group(store: &dyn Store, path: &str, like: &Posix) -> Result<bool> {
    let writer = writer(store)?;
    if !writer.set_permissions(path, like.uid, like)? {
        return Ok(false);
    }
    for name in DOCUMENT_NAMES {
        writer.set_permissions(&join(path, name), like.uid, like)?;
    }
    Ok(true)
}

/// Gives a node's folder with all in it another owner and mode, where `owner` owns it; `false` where the store has none to set.
pub fn give_all(store: &dyn Store, path: &str, owner: u32, like: &Posix) -> Result<bool> {
    let writer = writer(store)?;
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        if !writer.set_permissions(&folder, owner, like)? {
            return Ok(false);
        }
        let mut outcome = Ok(());
        store.each_name(&folder, &mut |entry| {
            let key = join(&folder, &entry.name);
            if entry.is_folder {
                folders.push(key);
                return ControlFlow::Continue(());
            }
            outcome = writer.set_permissions(&key, owner, like).map(drop);
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        outcome?;
    }
    Ok(true)
}
