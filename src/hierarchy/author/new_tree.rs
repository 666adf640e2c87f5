//! A new group with everything below it, which is written where no reader sees it and then shown in one step.
//!
//! Uses `array` and its neighbours. In a folder store, the whole tree gets its name by one rename(2). In other stores the group's document is
//! written first, as that of an array is (`content.rs`), because it keeps other programs from the name.

use std::sync::Arc;

use super::place::writer;
use super::{NewNode, Place, parent};
use crate::array::{Array, Engine, Layout};
use crate::error::{Error, Result};
use crate::metadata::author::NodeDocument;
use crate::metadata::parse_array;
use crate::store::{ObjectPart, Precondition, PutOptions, Store, join};

/// A group that is being written. If it is dropped before [`NewTree::publish`], it is removed with everything in it.
pub struct NewTree {
    node: Option<NewNode>,
    store: Arc<dyn Store>,
    path: String,
    /// Its path until it is published. Users do not know it.
    written_at: String,
    /// The array that is being written.
    open: Option<Arc<Array>>,
}

impl NewTree {
    /// Begins a group with these documents.
    pub fn begin(store: &Arc<dyn Store>, place: &Place, documents: Vec<NodeDocument>) -> Result<Self> {
        let mut node = NewNode::begin(store, place, documents)?;
        let written_at = match &node.staged {
            // Its lock stays, because only parts of the tree have their own.
            Some(staged) => staged.key.clone(),
            None => node.path_for_chunks(None)?.to_owned(),
        };
        Ok(NewTree {
            node: Some(node),
            store: store.clone(),
            path: place.path.clone(),
            written_at,
            open: None,
        })
    }

    /// Adds a group. Those that it is in must be there.
    pub fn add_group(&mut self, path: &str, documents: Vec<NodeDocument>) -> Result<()> {
        self.put(path, documents)
    }

    /// Adds an array. Its elements are then written in this layout until [`NewTree::finish_array`].
    pub fn add_array(
        &mut self,
        engine: &Arc<Engine>,
        path: &str,
        documents: Vec<NodeDocument>,
        layout: Layout,
    ) -> Result<Arc<Array>> {
        let stale = || Error::Stale { key: path.to_owned() };
        let main = documents.last().cloned().ok_or_else(stale)?;
        self.put(path, documents)?;
        let at = join(&self.written_at, path);
        let metadata = parse_array(&join(&at, main.name), main.text.as_bytes())?.ok_or_else(stale)?;
        let array = Array::open(engine, &self.store, &at, Arc::new(metadata), layout)?;
        array.writer().open_for_writing()?;
        self.open = Some(Arc::clone(&array));
        Ok(array)
    }

    /// Stores the elements of the array that was added last.
    pub fn finish_array(&mut self) -> Result<()> {
        let Some(array) = self.open.as_ref() else { return Ok(()) };
        array.writer().sync()?;
        array.writer().close_for_writing();
        self.open = None;
        Ok(())
    }

    /// Shows the tree to all readers, and adds it to consolidated metadata above. Durable when this returns.
    pub fn publish(mut self) -> Result<()> {
        self.finish_array()?;
        self.node.take().map_or(Ok(()), NewNode::publish)
    }

    /// Returns the text of an error with the path that users know.
    pub fn shown(&self, error: &Error) -> String {
        let text = error.to_string();
        if self.written_at.is_empty() { text } else { text.replace(&self.written_at, &self.path) }
    }

    /// Writes the documents of a node below the group, the main one last.
    fn put(&mut self, path: &str, documents: Vec<NodeDocument>) -> Result<()> {
        let Some(node) = &mut self.node else { return Ok(()) };
        let writer = writer(self.store.as_ref())?;
        let at = join(&self.written_at, path);
        let within = if self.written_at.is_empty() { parent(&at).unwrap_or("") } else { &self.written_at };
        for document in documents {
            let key = join(&at, document.name);
            let precondition = if node.staged.is_some() { Precondition::Any } else { Precondition::Missing };
            let options = PutOptions { precondition, ..PutOptions::new(within, &node.like) };
            writer.put(&key, &[ObjectPart::Bytes(document.text.as_bytes())], &options)?;
            writer.sync(&[key], within)?;
            node.below.push((path.to_owned(), document));
        }
        Ok(())
    }
}

impl Drop for NewTree {
    fn drop(&mut self) {
        let node = self.node.take();
        let Some(array) = self.open.take() else { return };
        // Nothing is stored any more when the folder goes.
        let gone = array.writer().end(|| {
            drop(node);
            Ok(())
        });
        if let Err(error) = gone {
            log::warn!("{}: {error}", self.path);
        }
        array.writer().close_for_writing();
    }
}
