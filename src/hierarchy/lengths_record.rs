//! The record of a change that gives the arrays of a group other lengths (`author/lengths.rs` writes it), and what readers see while it is there.
//!
//! Uses `store` and `metadata`. The record has the documents of the arrays as they were and as they become. It is written before the first
//! document is replaced, and deleted after the last one.
//!
//! Invariants: as long as the record is there, readers of a store on this machine see the old length of every array in it, so that deleting it
//! makes all of them longer in one step. A record changes only documents that its owner could have changed ([`LengthsRecord::is_trusted`]).

use serde_json::Value;

use crate::error::{Error, Result};
use crate::metadata::author::with_shape;
use crate::metadata::{ArrayMetadata, parse_array};
use crate::store::{Info, Store, join};
use crate::sys;

/// The object that records a change of lengths while documents are replaced.
pub const RECORD: &str = ".zarrfs-lengths.json";
/// The most bytes of it. A longer one is not written, and one that others wrote is not read.
pub const MAX_RECORD_BYTES: u64 = 32 << 20;
/// The documents of arrays that a record may name.
const NAMES: [&str; 2] = ["zarr.json", ".zarray"];

/// A document in the record.
pub struct RecordedDocument {
    /// Its key.
    pub key: String,
    /// Its text before the change.
    pub old: String,
    /// Its text after the change.
    pub new: String,
}

impl RecordedDocument {
    /// Returns the shape in one of its texts.
    fn shape(&self, text: &str) -> Option<Vec<u64>> {
        Some(parse_array(&self.key, text.as_bytes()).ok()??.shape)
    }

    /// Returns the old and the new shape.
    fn shapes(&self) -> Option<(Vec<u64>, Vec<u64>)> {
        let shapes = (self.shape(&self.old)?, self.shape(&self.new)?);
        (shapes.0.len() == shapes.1.len() && shapes.0 != shapes.1).then_some(shapes)
    }

    /// Returns what a document becomes if the change is undone; `None` if it does not have the new shape. Attributes that were edited since stay.
    pub fn undone(&self, text: &str) -> Option<String> {
        if text == self.new {
            return Some(self.old.clone());
        }
        let (old, new) = self.shapes()?;
        if self.shape(text)? == new { with_shape(text, &old).ok() } else { None }
    }

    /// Returns whether a document has the old shape.
    pub fn is_old(&self, text: &str) -> bool {
        text == self.old || self.shapes().is_some_and(|(old, _)| self.shape(text) == Some(old))
    }
}

/// A change of lengths that has begun.
pub struct LengthsRecord {
    /// The info of the record.
    pub info: Info,
    /// The documents that change.
    pub documents: Vec<RecordedDocument>,
}

impl LengthsRecord {
    /// Reads the record of a group; `None` if no change has begun there.
    pub fn read(store: &dyn Store, group: &str) -> Result<Option<Self>> {
        let key = join(group, RECORD);
        let Some(content) = store.content(&key, MAX_RECORD_BYTES)? else { return Ok(None) };
        let documents = documents(&content.bytes, group)
            .ok_or_else(|| Error::metadata(&key, "not a record of lengths"))?;
        Ok(Some(LengthsRecord { info: content.info, documents }))
    }

    /// Returns whether the record may change a document. In a folder where every user may create files, any user can leave a record, and the
    /// next command of an administrator must not write that user's text into the documents of others.
    pub fn is_trusted(&self, document: &Info) -> bool {
        let Some(owner) = self.info.posix.map(|posix| posix.uid) else { return true };
        [0, sys::effective_ids().0].contains(&owner) || document.posix.is_some_and(|posix| posix.uid == owner)
    }

    /// Returns the shape that readers see instead of an array's own, if its document is replaced already.
    pub fn old_shape(&self, metadata: &ArrayMetadata, document: Option<&Info>) -> Option<Vec<u64>> {
        let recorded = self.documents.iter().find(|recorded| recorded.key == metadata.document_key)?;
        if !document.is_some_and(|document| self.is_trusted(document)) {
            return None;
        }
        let (old, new) = recorded.shapes()?;
        // Another shape is another program's.
        (metadata.shape == new).then_some(old)
    }
}

/// Reads the documents in a record. Their keys end with the name of an array and of its document. What comes before is the path of the group, which
/// is another one where a part of the store is opened.
fn documents(bytes: &[u8], group: &str) -> Option<Vec<RecordedDocument>> {
    let record: Value = serde_json::from_slice(bytes).ok()?;
    let mut documents = Vec::new();
    for document in record.get("documents")?.as_array()? {
        let text = |name: &str| Some(document.get(name)?.as_str()?.to_owned());
        let key = text("key")?;
        let (path, name) = key.rsplit_once('/')?;
        let array = path.rsplit('/').next()?;
        if !NAMES.contains(&name) || matches!(array, "" | "." | "..") {
            return None;
        }
        let key = join(&join(group, array), name);
        documents.push(RecordedDocument { key, old: text("old")?, new: text("new")? });
    }
    Some(documents)
}
