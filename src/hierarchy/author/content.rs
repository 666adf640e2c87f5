//! A new array with its elements, which are written where no reader sees them and then shown in one step.
//!
//! Uses `array` and its neighbours.

use std::sync::Arc;

use super::{AnnouncePut, NewNode, Place};
use crate::array::{Array, Engine, Layout};
use crate::error::{Error, Result};
use crate::metadata::author::NodeDocument;
use crate::metadata::parse_array;
use crate::store::{Info, Store, join};

/// An array that is being written. If it is dropped before [`NewArray::publish`], it is removed.
pub struct NewArray {
    node: Option<NewNode>,
    array: Arc<Array>,
    /// Its path until it is published. Users do not know it.
    written_at: String,
    path: String,
}

impl NewArray {
    /// Begins an array whose elements are written in this layout.
    pub fn begin(
        engine: &Arc<Engine>,
        store: &Arc<dyn Store>,
        place: &Place,
        documents: Vec<NodeDocument>,
        layout: Layout,
    ) -> Result<Self> {
        Self::begin_announced(engine, store, place, documents, layout, None)
    }

    /// Does [`NewArray::begin`]. In a store without folders, `announce` gets the mark of each document before it is put, so that another process
    /// can take the array back if this one dies ([`take_back`](super::take_back)).
    pub fn begin_announced(
        engine: &Arc<Engine>,
        store: &Arc<dyn Store>,
        place: &Place,
        documents: Vec<NodeDocument>,
        layout: Layout,
        announce: Option<AnnouncePut<'_>>,
    ) -> Result<Self> {
        let path = place.path.clone();
        let metadata = match documents.last() {
            Some(main) => parse_array(&join(&path, main.name), main.text.as_bytes())?,
            None => None,
        };
        let metadata = metadata.ok_or_else(|| Error::Stale { key: path.clone() })?;
        // An array that cannot be served is not created.
        drop(Array::open(engine, store, &path, Arc::new(metadata), layout)?);
        let main = documents.last().cloned();
        let mut node = NewNode::begin(store, place, documents)?;
        let written_at = node.path_for_chunks(announce)?.to_owned();
        let stale = || Error::Stale { key: written_at.clone() };
        let main = main.ok_or_else(stale)?;
        let metadata = parse_array(&join(&written_at, main.name), main.text.as_bytes())?.ok_or_else(stale)?;
        let array = Array::open(engine, store, &written_at, Arc::new(metadata), layout)?;
        // Another process does not continue it.
        array.writer().unstored().record_nothing();
        array.writer().open_for_writing()?;
        Ok(NewArray { node: Some(node), array, written_at, path })
    }

    /// Returns whether no reader sees it before [`NewArray::publish`]: in a store with folders, it has another path until then.
    pub fn is_hidden(&self) -> bool {
        self.written_at != self.path
    }

    /// Returns the array, to write its elements.
    pub fn array(&self) -> &Arc<Array> {
        &self.array
    }

    /// Gives it the owner and the mode of another document.
    pub fn give(&mut self, like: &Info) -> Result<()> {
        // Chunks that are stored later would have the previous owner.
        self.array.writer().sync()?;
        self.node.as_mut().map_or(Ok(()), |node| node.give(like))
    }

    /// Stores the elements, and shows the array to all readers. Durable when this returns.
    pub fn publish(mut self) -> Result<()> {
        self.array.writer().sync()?;
        self.array.writer().close_for_writing();
        match self.node.take() {
            Some(node) => node.publish(),
            None => Ok(()),
        }
    }

    /// Returns the text of an error with the path that users know.
    pub fn shown(&self, error: &Error) -> String {
        error.to_string().replace(&self.written_at, &self.path)
    }
}

impl Drop for NewArray {
    fn drop(&mut self) {
        let Some(node) = self.node.take() else { return };
        let gone = self.array.writer().end(|| {
            drop(node);
            Ok(())
        });
        if let Err(error) = gone {
            log::warn!("{}: {error}", self.path);
        }
        self.array.writer().close_for_writing();
    }
}
