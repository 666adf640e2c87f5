//! Sets the owners and modes of a group, and of a new node that no reader has seen yet. Uses `store`.

use std::ops::ControlFlow;

use super::place::writer;
use crate::error::Result;
use crate::hierarchy::DOCUMENT_NAMES;
use crate::store::{Posix, Store, join};

/// Gives a group's folder and documents another mode, and leaves the nodes below it as they are. Files of other users than the folder's
/// owner are left as well. Returns `false` if the store has no modes.
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

/// Gives everything in a node's folder that `owner` owns another owner and mode. Returns `false` if the store has no modes.
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
