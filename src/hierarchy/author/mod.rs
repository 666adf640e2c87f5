//! Creates, renames and removes nodes, and resizes arrays. Readers see each change in one step.
//!
//! Spec: v3 core "Hierarchy" and "Node names", v2 "Hierarchies". Uses `store`, `metadata` and its neighbours in `hierarchy`.
//!
//! Invariants: after a crash there is the old node or the new one, and never half of one. In a folder store, one rename(2) creates or
//! removes a node. In other stores, the main document of a node is written last and removed first. (The main document of an incomplete
//! node is removed last, because it keeps other programs from its name.) Readers do not see what a dead writer leaves, and the next
//! writer in that group removes it. Consolidated metadata (`copies.rs`) changes after a node is created, and before one is removed, so it
//! never names a missing node. If it cannot be changed, the change of the node is undone, so readers of consolidated metadata see every
//! node. No node replaces another. Several arrays get other lengths together (`lengths.rs`).

pub mod consolidate;
mod content;
mod copies;
mod dimensions;
mod interrupted;
mod lengths;
mod new_tree;
mod objects;
mod permissions;
mod place;
mod resize;
mod writers;

use std::sync::Arc;

use super::attributes::remove_leftovers;
use super::lineage::parent;
use super::{Node, Tree};
use crate::error::{Error, Result};
use crate::metadata::ZarrFormat;
use crate::metadata::author::NodeDocument;
use crate::store::overlay::OverlayStore;
use crate::store::{
    Announce, Info, ObjectPart, ObjectVersion, Precondition, PutOptions, StagedFolder, Store, Writer, join,
};
pub use content::NewArray;
pub use dimensions::{dimension_names, has_named_siblings};
pub use interrupted::end_interrupted;
pub use lengths::{LengthChange, NewLengths, ResizedArray};
pub use new_tree::NewTree;
pub use objects::{AnnouncePut, DocumentPut, take_back};
pub use permissions::{give_all, give_group};
pub use place::{Place, check_name, names};
use place::{refuse_n5, writer};
pub use resize::{Resized, replace_shape, resize, update_copies};
pub use writers::{WriterLocks, keep_writers_out};

/// A new node that no reader sees yet. Its documents and chunks are being written.
pub struct NewNode {
    store: Arc<dyn Store>,
    /// Its path when it is complete.
    path: String,
    /// The folder that has it until then, in a folder store.
    staged: Option<StagedFolder>,
    documents: Vec<NodeDocument>,
    like: Info,
    /// The documents that are already at its path, in a store without folders.
    put: Vec<(String, ObjectVersion)>,
    /// The documents of the nodes below it, each with the path of its node relative to this one.
    below: Vec<(String, NodeDocument)>,
    is_published: bool,
}

impl NewNode {
    /// Writes the documents of a node where no reader sees them. In a store without folders, [`NewNode::path_for_chunks`] or
    /// [`NewNode::publish`] writes them.
    pub fn begin(store: &Arc<dyn Store>, place: &Place, documents: Vec<NodeDocument>) -> Result<Self> {
        let (path, like) = (place.path.clone(), place.like);
        let writer = writer(store.as_ref())?;
        let group = parent(&path).unwrap_or("");
        remove_leftovers(writer, group);
        // A service would be asked once more for each node.
        if !store.is_remote() {
            end_interrupted(store.as_ref(), group)?;
        }
        // The root is not in a group, so there is no folder to create it in.
        let staged = if path.is_empty() { None } else { writer.stage(group, &like)? };
        let store = store.clone();
        let (put, below) = (Vec::new(), Vec::new());
        let node = NewNode { store, path, staged, documents, like, put, below, is_published: false };
        if let Some(staged) = &node.staged {
            node.put_documents(&staged.key, Precondition::Any, None)?;
        }
        Ok(node)
    }

    /// Returns the path that the chunks of the node have before [`NewNode::publish`]. In a store without folders that is the node's own
    /// path, and its documents are written now. `announce` gets the mark of each before.
    pub fn path_for_chunks(&mut self, announce: Option<AnnouncePut<'_>>) -> Result<&str> {
        if self.staged.is_none() {
            self.put = self.put_documents(&self.path, Precondition::Missing, announce)?;
        }
        if let Some(staged) = &mut self.staged {
            // The array that is written there has its own lock.
            staged.lock = Box::new(());
        }
        Ok(self.staged.as_ref().map_or(&self.path, |staged| &staged.key))
    }

    /// Gives the node, with everything in it, the owner and the mode of another document.
    pub fn give(&mut self, like: &Info) -> Result<()> {
        if let (Some(staged), Some(before), Some(posix)) = (&self.staged, self.like.posix, &like.posix) {
            give_all(self.store.as_ref(), &staged.key, before.uid, posix)?;
        }
        self.like = *like;
        Ok(())
    }

    /// Shows the node to all readers in one step, and adds it to consolidated metadata above. Durable when this returns.
    pub fn publish(mut self) -> Result<()> {
        let writer = writer(self.store.as_ref())?;
        let group = parent(&self.path).unwrap_or("");
        match &self.staged {
            Some(staged) => {
                let renamed = writer.rename_folder(&staged.key, &self.path);
                renamed.map_err(|error| place::taken(error, &self.path))?;
            }
            None if self.put.is_empty() => {
                self.put = self.put_documents(&self.path, Precondition::Missing, None)?;
            }
            None => {}
        }
        self.is_published = true;
        let synced = match &self.staged {
            Some(staged) => writer.sync(&[staged.key.clone(), self.path.clone()], group),
            None => Ok(()),
        };
        synced
            .and_then(|()| {
                let own = self.documents.iter().map(|document| (String::new(), document.clone()));
                let documents: Vec<_> = own.chain(self.below.iter().cloned()).collect();
                copies::add_all(self.store.as_ref(), writer, &self.path, &documents)
            })
            .inspect_err(|_| self.take_back(writer))
    }

    /// Removes the node again, if it is not durable or could not be added to consolidated metadata.
    fn take_back(&self, writer: &dyn Writer) {
        let store = self.store.as_ref();
        let removed = copies::remove(store, writer, &self.path).and_then(|()| match &self.staged {
            Some(_) => remove_without_copies(store, &self.path),
            None => objects::remove_put(store, writer, &self.path, &self.put),
        });
        if let Err(error) = removed {
            log::warn!(
                "{}: cannot be taken back, though not all consolidated metadata has it: {error}",
                self.path
            );
        }
    }

    /// Writes the documents, the main one last. Returns their keys and versions.
    fn put_documents(
        &self,
        folder: &str,
        precondition: Precondition,
        announce: Option<AnnouncePut<'_>>,
    ) -> Result<Vec<(String, ObjectVersion)>> {
        let writer = writer(self.store.as_ref())?;
        // Missing folders are created, except above the group.
        let within = if self.staged.is_some() { folder } else { parent(folder).unwrap_or("") };
        let mut versions = Vec::new();
        let mut put_all = || {
            for document in &self.documents {
                let key = join(folder, document.name);
                let send = |mark| announce.map_or(Ok(()), |announce| announce(&key, mark));
                let announce = announce.is_some().then_some(Announce(&send));
                let options = PutOptions { precondition, announce, ..PutOptions::new(within, &self.like) };
                let put = writer.put(&key, &[ObjectPart::Bytes(document.text.as_bytes())], &options);
                let version = put.map_err(|error| place::taken(error, &self.path))?;
                versions.push((key.clone(), version));
                writer.sync(&[key], within)?;
            }
            Ok(())
        };
        let put = put_all();
        if put.is_err() {
            // A staged folder is removed as a whole.
            for (key, version) in versions.iter().rev().filter(|_| self.staged.is_none()) {
                if let Err(error) = writer.delete(key, Precondition::Version(*version)) {
                    log::warn!("{key}: {error}");
                }
            }
        }
        put.map(|()| versions)
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
            None if !self.put.is_empty() => {
                objects::remove_put(self.store.as_ref(), writer, &self.path, &self.put)
            }
            None => Ok(()),
        };
        if let Err(error) = removed {
            log::warn!("{}: {error}", self.path);
        }
    }
}

/// Creates a node without chunks.
pub fn create(store: &Arc<dyn Store>, place: &Place, documents: Vec<NodeDocument>) -> Result<()> {
    NewNode::begin(store, place, documents)?.publish()
}

/// Removes a node with everything below it. Fails for the root.
pub fn remove(store: &Arc<dyn Store>, path: &str) -> Result<()> {
    let writer = writer(store.as_ref())?;
    let group =
        parent(path).ok_or_else(|| Error::Usage("the root of a store cannot be removed".to_owned()))?;
    refuse_n5(store, path)?;
    remove_leftovers(writer, group);
    copies::remove(store.as_ref(), writer, path)
        .and_then(|()| remove_without_copies(store.as_ref(), path))
        .inspect_err(|_| copies::restore(store, writer, path))
}

/// Removes what a process that has died has left of an array without documents. Removes no objects if there is a node
/// at the path, or anywhere below it.
pub fn remove_remains(store: &Arc<dyn Store>, path: &str) -> Result<()> {
    objects::remove_remains(store.as_ref(), writer(store.as_ref())?, path)
}

/// Updates the consolidated metadata in an overlay, before the overlay forgets its changes of a node and of everything below it.
pub fn forget_copies(store: &OverlayStore, path: &str) -> Result<()> {
    copies::forget(store, writer(store)?, path)
}

/// Removes a node with everything below it, and leaves consolidated metadata as it is.
pub fn remove_without_copies(store: &dyn Store, path: &str) -> Result<()> {
    let writer = writer(store)?;
    if writer.remove_folder(path)? {
        return writer.sync(&[path.to_owned()], parent(path).unwrap_or(""));
    }
    objects::remove(store, writer, path)
}

/// Returns the format of the node at a path; `None` for a group without a document.
pub fn zarr_format(store: &Arc<dyn Store>, path: &str) -> Result<Option<ZarrFormat>> {
    Ok(match Tree::new(store.clone()).node(path)? {
        Some(Node::Array { metadata, .. }) => Some(metadata.zarr_format),
        Some(Node::Group { metadata, .. }) => metadata.zarr_format,
        Some(Node::Broken { .. }) | None => None,
    })
}

/// Renames a node with everything below it, in one step. Only for folder stores.
pub fn rename(store: &Arc<dyn Store>, from: &str, place: &Place) -> Result<()> {
    let to = place.path.as_str();
    let writer = writer(store.as_ref())?;
    let group =
        parent(from).ok_or_else(|| Error::Usage("the root of a store cannot be renamed".to_owned()))?;
    if to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
        return Err(Error::Usage(format!("'{to}' is inside '{from}'")));
    }
    refuse_n5(store, from)?;
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

/// Undoes a rename that is not durable, or that some consolidated metadata does not have.
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
