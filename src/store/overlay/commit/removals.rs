//! Commits of removed nodes. Uses `census.rs`, `folder/` and the traits of `store`.
//!
//! A folder of the base is removed in the overlay by one line that hides all of it, without a look at its chunks. A commit removes
//! the same nodes from the base only if their documents have the digest that they had ([`census`]), and no object is newer than
//! the removal.

use super::census::{DOCUMENTS, census, info_without_owner, is_committable, newer_object};
use super::target::CommitTarget;
use crate::error::{Error, Result};
use crate::store::overlay::folder::Removal;
use crate::store::{Info, Store, Writer, join};

/// How many names are tried for a folder that may not be removed.
const MAX_KEPT_NAMES: u32 = 100;

/// What the base has of the nodes that a removal hides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalState {
    /// The nodes are gone.
    Gone,
    /// The nodes that were removed, or the rest of them after a commit that was killed.
    Same,
    /// Other nodes: another program has changed or added some.
    Changed,
}

/// Renames the folder `aside` to a visible name next to `path`. Returns the name.
fn keep_under_another_name(writer: &dyn Writer, aside: &str, path: &str) -> Result<String> {
    for number in 1..=MAX_KEPT_NAMES {
        let name = format!("{path}.removed-{number}");
        match writer.rename_folder(aside, &name) {
            Err(Error::Changed { .. }) => {}
            renamed => return renamed.map(|()| name),
        }
    }
    Err(Error::Changed { key: path.to_owned() })
}

impl CommitTarget<'_> {
    /// Returns what the target has of the nodes that were removed.
    pub fn find_removed(&self, removal: &Removal) -> Result<RemovalState> {
        let (path, hidden) = (&removal.path, removal.hidden);
        let found = match census(self.store, path)? {
            None => RemovalState::Gone,
            Some(now) if now == hidden.from || !is_committable(self.store) => RemovalState::Same,
            Some(_) if hidden.is_begun && !has_documents(self.store, path)? => RemovalState::Same,
            Some(_) => RemovalState::Changed,
        };
        // The objects of a base with versions have no times of their own.
        let at = hidden.at.filter(|_| found == RemovalState::Same && self.base.versions().is_none());
        match at {
            Some(at) if newer_object(self.store, path, at)?.is_some() => Ok(RemovalState::Changed),
            _ => Ok(found),
        }
    }

    /// Removes the folder of a removal from the base, unless an object in it is newer than the removal. Returns whether it was removed;
    /// `None` in a base without folders. First the folder loses its name, so that no program puts anything into it meanwhile.
    pub fn remove_folder(&self, removal: &Removal) -> Result<Option<bool>> {
        let (writer, base, path) = (self.writer()?, self.store, removal.path.as_str());
        // A remote store has no folders.
        if base.is_remote() {
            return Ok(None);
        }
        let like = base.head(path)?.unwrap_or_else(info_without_owner);
        let Some(staged) = writer.stage(path.rsplit_once('/').map_or("", |(above, _)| above), &like)? else {
            return Ok(None);
        };
        let aside = join(&staged.key, "removed");
        let names = [path.to_owned(), staged.key.clone()];
        let is_newer = || match removal.hidden.at {
            Some(at) => Ok(newer_object(base, &aside, at)?.is_some()),
            None => Ok(false),
        };
        if let Err(error) = writer.rename_folder(path, &aside) {
            writer.remove_folder(&staged.key)?;
            return Err(error);
        }
        let found = writer.sync(&names, "").and_then(|()| is_newer());
        if !matches!(found, Ok(false)) {
            match writer.rename_folder(&aside, path) {
                // Another program has created a node there since. Objects that may be newer than the removal are kept.
                Err(Error::Changed { .. }) => {
                    let kept = keep_under_another_name(writer, &aside, path)?;
                    let base = base.describe();
                    log::warn!("{base}: {path} was made anew while it was removed; what it had is {kept}");
                }
                back => back?,
            }
            writer.remove_folder(&staged.key)?;
            writer.sync(&names, "")?;
            return found.map(|_| Some(false));
        }
        writer.remove_folder(&staged.key)?;
        writer.sync(&names, "").map(|()| Some(true))
    }
}

/// Returns whether a store has a document of the node at a path. A commit removes documents before the rest of a node.
pub fn has_documents(store: &dyn Store, path: &str) -> Result<bool> {
    let keys = DOCUMENTS.map(|name| join(path, name));
    let found = store.head_many(&keys.each_ref().map(String::as_str));
    let found: Vec<Option<Info>> = found.into_iter().collect::<Result<_>>()?;
    Ok(found.iter().any(Option::is_some))
}
