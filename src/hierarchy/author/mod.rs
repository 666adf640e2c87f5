//! Making, renaming and removing nodes, and making arrays longer or shorter: each in one step for every reader.
//!
//! Spec: v3 core "Hierarchy" and "Node names", v2 "Hierarchies". Uses `store`, `metadata` and its neighbours in `hierarchy`.
//!
//! Invariants: after a crash there is the old node or the new one, never half of one. In a folder store a node comes and goes
//! by one rename(2); elsewhere its main document is written last and removed first; that of a node that was not completed is removed
//! last, because it keeps others from the name. What a dead writer leaves is not seen, and the next one in that group removes it.
//! Consolidated copies follow (`copies.rs`): after a node was made, before one is removed, so that a copy never names a node that is
//! not there. Where they cannot follow, the change is taken back: no node is made that readers of the copies do not see. No node
//! replaces another.

mod content;
mod copies;
mod dimensions;
mod objects;
mod permissions;
mod place;
mod resize;
mod writers;

use std::ops::ControlFlow;
use std::sync::Arc;

use super::attributes::remove_leftovers;
use super::lineage::parent;
use super::{Node, Tree};
use crate::error::{Error, Result};
use crate::metadata::ZarrFormat;
use crate::metadata::author::NodeDocument;
use crate::store::overlay::OverlayStore;
use crate::store::{
    Info, ObjectPart, ObjectVersion, Precondition, PutOptions, StagedFolder, Store, Writer, join,
};
pub use content::NewArray;
pub use dimensions::{dimension_names, has_named_siblings};
pub use permissions::{give_all, give_group};
use place::writer;
pub use place::{Place, check_name, names};
pub use resize::{Resized, replace_shape, resize, update_copies};
pub use writers::{WriterLocks, keep_writers_out};

/// A new node whose documents and chunks are written, and that no reader sees yet.
pub struct NewNode {
    store: Arc<dyn Store>,
    /// Its path when it is complete.
    path: String,
    /// Where a folder store has it until then.
    staged: Option<StagedFolder>,
    documents: Vec<NodeDocument>,
    like: Info,
    /// The documents that are at its path already, in a store without folders.
    made: Vec<(String, ObjectVersion)>,
    is_published: bool,
}

impl NewNode {
    /// Writes the documents of a node where no reader sees them. In a store without folders they are written later, or at
    /// [`NewNode::path_for_chunks`].
    pub fn begin(store: &Arc<dyn Store>, place: &Place, documents: Vec<NodeDocument>) -> Result<Self> {
        let (path, like) = (place.path.clone(), place.like);
        let writer = writer(store.as_ref())?;
        let group = parent(&path).unwrap_or("");
        remove_leftovers(writer, group);
        // The root has no group in which it could be made.
        let staged = match path.is_empty() {
            true => None,
            false => writer.stage(group, &like)?,
        };
        let store = store.clone();
        let made = Vec::new();
        let node = NewNode { store, path, staged, documents, like, made, is_published: false };
        if let Some(staged) = &node.staged {
            node.put_documents(&staged.key, Precondition::Any)?;
        }
        Ok(node)
    }

    /// Where the chunks of the node are written before [`NewNode::publish`]. A store without folders has them at the node's own
    /// path, so that its documents are written now.
    pub fn path_for_chunks(&mut self) -> Result<&str> {
        if self.staged.is_none() {
            self.made = self.put_documents(&self.path, Precondition::Missing)?;
        }
        if let Some(staged) = &mut self.staged {
            // The array's own lock takes its place.
            staged.lock = Box::new(());
        }
        Ok(self.staged.as_ref().map_or(&self.path, |staged| &staged.key))
    }

    /// Gives the node, and all in it, the owner and the mode of another document. No reader has seen it yet.
    pub fn give(&mut self, like: &Info) -> Result<()> {
        if let (Some(staged), Some(before), Some(posix)) = (&self.staged, self.like.posix, &like.posix) {
            give_all(self.store.as_ref(), &staged.key, before.uid, posix)?;
        }
        self.like = *like;
        Ok(())
    }

    /// Shows the node to all readers, in one step, and in the consolidated copies of the groups above. Durable when this returns.
    pub fn publish(mut self) -> Result<()> {
        let writer = writer(self.store.as_ref())?;
        let group = parent(&self.path).unwrap_or("");
        match &self.staged {
            Some(staged) => {
                let renamed = writer.rename_folder(&staged.key, &self.path);
                renamed.map_err(|error| place::taken(error, &self.path))?;
            }
            None if self.made.is_empty() => {
                self.made = self.put_documents(&self.path, Precondition::Missing)?;
            }
            None => {}
        }
        self.is_published = true;
        let synced = match &self.staged {
            Some(staged) => writer.sync(&[staged.key.clone(), self.path.clone()], group),
            None => Ok(()),
        };
        synced
            .and_then(|()| copies::add(self.store.as_ref(), writer, &self.path, &self.documents))
            .inspect_err(|_| self.take_back(writer))
    }

    /// Removes the node again, which is not durable, or which some copies do not have.
    fn take_back(&self, writer: &dyn Writer) {
        let store = self.store.as_ref();
        let removed = copies::remove(store, writer, &self.path).and_then(|()| match &self.staged {
            Some(_) => remove_without_copies(store, &self.path),
            None => self.remove_objects(writer),
        });
        if let Err(error) = removed {
            log::warn!(
                "{}: cannot be taken back, though not all consolidated metadata has it: {error}",
                self.path
            );
        }
    }

    /// Removes what is at the node's path. The documents go last, because they keep the name: without them another program could make
    /// a node there, and nothing of it may be removed.
    fn remove_objects(&self, writer: &dyn Writer) -> Result<()> {
        for (key, version) in &self.made {
            let now = || Ok(self.store.head_object(key)?.map(|info| info.version));
            Precondition::Version(*version).check(key, now)?;
        }
        remove_below(self.store.as_ref(), writer, &self.path, &|key| {
            !self.made.iter().any(|(made, _)| made == key)
        })?;
        for (key, version) in self.made.iter().rev() {
            writer.delete(key, Precondition::Version(*version))?;
        }
        Ok(())
    }

    /// Puts the documents, the main one last, and returns their keys and versions.
    fn put_documents(
        &self,
        folder: &str,
        precondition: Precondition,
    ) -> Result<Vec<(String, ObjectVersion)>> {
        let writer = writer(self.store.as_ref())?;
        // Folders on the way are made, but not above the group.
        let within = if self.staged.is_some() { folder } else { parent(folder).unwrap_or("") };
        let mut made = Vec::new();
        let mut put_all = || {
            for document in &self.documents {
                let key = join(folder, document.name);
                let options = PutOptions { precondition, ..PutOptions::new(within, &self.like) };
                let put = writer.put(&key, &[ObjectPart::Bytes(document.text.as_bytes())], &options);
                let version = put.map_err(|error| place::taken(error, &self.path))?;
                made.push((key.clone(), version));
                writer.sync(&[key], within)?;
            }
            Ok(())
        };
        let put = put_all();
        if put.is_err() {
            // A folder that nobody sees goes as a whole.
            for (key, version) in made.iter().rev().filter(|_| self.staged.is_none()) {
                if let Err(error) = writer.delete(key, Precondition::Version(*version)) {
                    log::warn!("{key}: {error}");
                }
            }
        }
        put.map(|()| made)
    }
}

impl Drop for NewNode {
    fn drop(&mut self) {
        if self.is_published {
            return;
        }
        let Some(writer) = self.store.writer() else { return };
        let removed = match &self.staged {
            Some(staged) => writer.remove_folder(&staged.key).map(drop),
            None if !self.made.is_empty() => self.remove_objects(writer),
            None => Ok(()),
        };
        if let Err(error) = removed {
            log::warn!("{}: {error}", self.path);
        }
    }
}

/// Makes a node without chunks.
pub fn create(store: &Arc<dyn Store>, place: &Place, documents: Vec<NodeDocument>) -> Result<()> {
    NewNode::begin(store, place, documents)?.publish()
}

/// Removes a node with all below it. The root stays.
pub fn remove(store: &Arc<dyn Store>, path: &str) -> Result<()> {
    let writer = writer(store.as_ref())?;
    let group = parent(path).ok_or_else(|| Error::Usage("the root of a store is not removed".to_owned()))?;
    remove_leftovers(writer, group);
    copies::remove(store.as_ref(), writer, path)
        .and_then(|()| remove_without_copies(store.as_ref(), path))
        .inspect_err(|_| copies::restore(store, writer, path))
}

/// Before an overlay forgets its changes of a node and of all below it: brings the consolidated copies above in step.
pub fn forget_copies(store: &OverlayStore, path: &str) -> Result<()> {
    copies::forget(store, writer(store)?, path)
}

/// Removes a node with all below it. Consolidated copies are left as they are.
pub fn remove_without_copies(store: &dyn Store, path: &str) -> Result<()> {
    let writer = writer(store)?;
    if writer.remove_folder(path)? {
        return writer.sync(&[path.to_owned()], parent(path).unwrap_or(""));
    }
    objects::remove(store, writer, path)
}

/// Removes the objects below a folder that are of those to go, however deep they are.
fn remove_below(
    store: &dyn Store,
    writer: &dyn Writer,
    folder: &str,
    goes: &dyn Fn(&str) -> bool,
) -> Result<()> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let mut outcome = Ok(());
        store.each_name(&folder, &mut |entry| {
            let key = join(&folder, &entry.name);
            if entry.is_folder {
                folders.push(key);
            } else if goes(&key) {
                outcome = writer.delete(&key, Precondition::Any).map(drop);
            }
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        outcome?;
    }
    Ok(())
}

/// The version of the node at a path; `None` for a group without a document.
pub fn zarr_format(store: &Arc<dyn Store>, path: &str) -> Result<Option<ZarrFormat>> {
    Ok(match Tree::new(store.clone()).node(path)? {
        Some(Node::Array { metadata, .. }) => Some(metadata.zarr_format),
        Some(Node::Group { metadata, .. }) => metadata.zarr_format,
        Some(Node::Broken { .. }) | None => None,
    })
}

/// Renames a node with all below it, in one step. Only in a folder store.
pub fn rename(store: &Arc<dyn Store>, from: &str, place: &Place) -> Result<()> {
    let to = place.path.as_str();
    let writer = writer(store.as_ref())?;
    let group = parent(from).ok_or_else(|| Error::Usage("the root of a store is not renamed".to_owned()))?;
    if to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
        return Err(Error::Usage(format!("'{to}' is inside '{from}'")));
    }
    let documents = copies::documents_below(store, from)?;
    let renamed = copies::remove(store.as_ref(), writer, from)
        .and_then(|()| writer.rename_folder(from, to).map_err(|error| place::taken(error, to)));
    if let Err(error) = renamed {
        copies::restore(store, writer, from);
        return Err(error);
    }
    writer
        .sync(&[from.to_owned()], group)
        .and_then(|()| writer.sync(&[to.to_owned()], parent(to).unwrap_or("")))
        .and_then(|()| copies::add_all(store.as_ref(), writer, to, &documents))
        .inspect_err(|_| rename_back(store, writer, (from, to)))
}

/// Takes a renaming back that is not durable, or that some copies could not follow.
fn rename_back(store: &Arc<dyn Store>, writer: &dyn Writer, (from, to): (&str, &str)) {
    let renamed = copies::remove(store.as_ref(), writer, to)
        .and_then(|()| writer.rename_folder(to, from))
        .and_then(|()| writer.sync(&[to.to_owned()], parent(to).unwrap_or("")))
        .and_then(|()| writer.sync(&[from.to_owned()], parent(from).unwrap_or("")));
    match renamed {
        Ok(()) => copies::restore(store, writer, from),
        Err(error) => {
            log::warn!("{to}: was {from}, though not all consolidated metadata says so: {error}");
        }
    }
}

#[cfg(all(test, feature = "remote"))]
mod in_turns;
#[cfg(test)]
mod tests;
