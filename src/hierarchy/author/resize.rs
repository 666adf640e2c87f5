//! Changes the shape of an array.
//!
//! Uses `array`, `store`, `metadata` and its neighbours. The document is replaced in one step, if it still is the one that was read.
//! Elements outside the array become fill value: before that step if the array gets longer along any axis, and after it if the array
//! gets shorter. So a crash leaves the old array or the new one, and discarded elements never come back.

use std::sync::Arc;

use super::interrupted::end_interrupted;
use super::{copies, refuse_n5, writer};
use crate::array::{Engine, clear_padding, delete_outside};
use crate::error::{Error, Result};
use crate::hierarchy::attributes::{read, remove_leftovers};
use crate::hierarchy::lineage::parent;
use crate::metadata::author::{NodeDocument, with_shape};
use crate::metadata::{ArrayMetadata, ZarrFormat, parse_array, read_only_n5};
use crate::store::{Info, ObjectPart, Precondition, PutOptions, Store, join};

/// The names of the documents that have a shape.
const NAMES: [&str; 2] = ["zarr.json", ".zarray"];

/// The outcome of a resize.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resized {
    /// How many objects outside the array were deleted.
    pub deleted_objects: u64,
    /// How many chunks had elements outside the array that are fill value now.
    pub cleared_chunks: u64,
}

/// Gives an array another shape. If it is shorter along any axis, elements are lost, and `discard` must allow that.
pub fn resize(
    engine: &Arc<Engine>,
    store: &Arc<dyn Store>,
    path: &str,
    shape: &[u64],
    discard: bool,
) -> Result<Resized> {
    let writer = writer(store.as_ref())?;
    refuse_n5(store, path)?;
    let busy = || Error::busy(path, "another program writes to the array");
    let _lock = writer.lock(path)?.ok_or_else(busy)?;
    remove_leftovers(writer, path);
    if !store.is_remote() {
        end_interrupted(store.as_ref(), parent(path).unwrap_or(""))?;
    }
    let stored = Stored::read(store, path)?;
    let old = &stored.metadata;
    if let Some(proposal) = old.proposals().first() {
        let reason = format!("resizing: the {proposal} is a proposal, so the array is read-only");
        return Err(Error::unsupported(&old.document_key, reason));
    }
    if old.shape.len() != shape.len() {
        let (is, wanted) = (old.shape.len(), shape.len());
        return Err(Error::Usage(format!("'{path}' has {is} dimensions, and the new shape {wanted}")));
    }
    let larger: Vec<u64> = old.shape.iter().zip(shape).map(|(&old, &new)| old.max(new)).collect();
    let (is_shorter, is_longer) = (larger != shape, larger != old.shape);
    if is_shorter && !discard {
        let sentence = "the new shape is shorter: '--discard' deletes the elements outside it";
        return Err(Error::Usage(format!("'{path}' has the shape {:?}, and {sentence}", old.shape)));
    }
    // A document that cannot be parsed must not be found after elements are deleted.
    let key = &old.document_key;
    let text = with_shape(&stored.text, shape).map_err(|fault| fault.into_error(key))?;
    parse_array(key, text.as_bytes())?;
    let longer = ArrayMetadata { shape: larger, ..old.clone() };
    let mut resized = Resized::default();
    if is_longer {
        resized.clear(engine, &stored, &longer)?;
    }
    let precondition = Precondition::Version(stored.info.version);
    let options = PutOptions { precondition, ..PutOptions::new(path, &stored.info) };
    writer.put(key, &[ObjectPart::Bytes(text.as_bytes())], &options)?;
    writer.sync(std::slice::from_ref(key), path)?;
    copies::add(store.as_ref(), writer, path, &[NodeDocument { name: stored.name, text }])?;
    if is_shorter {
        resized.clear(engine, &Stored::read(store, path)?, &longer)?;
    }
    Ok(resized)
}

/// The document of an array, as it was read.
pub(super) struct Stored<'a> {
    store: &'a Arc<dyn Store>,
    path: &'a str,
    pub(super) name: &'static str,
    pub(super) text: String,
    pub(super) info: Info,
    pub(super) metadata: ArrayMetadata,
}

impl<'a> Stored<'a> {
    /// Reads the array's own document.
    pub(super) fn read(store: &'a Arc<dyn Store>, path: &'a str) -> Result<Self> {
        for name in NAMES {
            let key = join(path, name);
            if let Some((text, info)) = read(store.as_ref(), &key)?
                && let Some(metadata) = parse_array(&key, text.as_bytes())?
            {
                return Ok(Stored { store, path, name, text, info, metadata });
            }
        }
        Err(Error::Usage(format!(
            "'{path}' has no document of its own that describes an array of Zarr v2 or v3"
        )))
    }

    /// Fails if another program has replaced the document.
    fn check(&self) -> Result<Info> {
        let key = &self.metadata.document_key;
        let now = self.store.head_object(key)?.filter(|now| now.version == self.info.version);
        now.ok_or_else(|| Error::Changed { key: key.clone() })
    }
}

impl Resized {
    /// Removes everything outside the array and inside `longer`.
    pub(super) fn clear(
        &mut self,
        engine: &Arc<Engine>,
        stored: &Stored<'_>,
        longer: &ArrayMetadata,
    ) -> Result<()> {
        let Stored { store, path, metadata, .. } = stored;
        let may_delete = || stored.check().map(drop);
        self.deleted_objects +=
            delete_outside(engine, store, path, longer.clone(), &metadata.shape, &may_delete)?;
        self.cleared_chunks += clear_padding(engine, store, path, metadata, &|| stored.check())?;
        Ok(())
    }
}

/// Replaces the shape in the document of an array that the caller has locked. Fails with `Changed` if the document no longer describes
/// `now`. A crash may undo this until the document's key is synced.
pub fn replace_shape(store: &dyn Store, path: &str, now: &ArrayMetadata, shape: &[u64]) -> Result<()> {
    let writer = writer(store)?;
    if now.zarr_format == ZarrFormat::N5 {
        return Err(read_only_n5(path));
    }
    let key = &now.document_key;
    let changed = || Error::Changed { key: key.clone() };
    let (text, info) = read(store, key)?.ok_or_else(changed)?;
    let stored = parse_array(key, text.as_bytes())?.ok_or_else(changed)?;
    if stored.shape != now.shape || !stored.is_stored_as(now) {
        return Err(changed());
    }
    let text = with_shape(&text, shape).map_err(|fault| fault.into_error(key))?;
    parse_array(key, text.as_bytes())?;
    let options =
        PutOptions { precondition: Precondition::Version(info.version), ..PutOptions::new(path, &info) };
    writer.put(key, &[ObjectPart::Bytes(text.as_bytes())], &options).map(drop)
}

/// Updates the copies of an array's document in the consolidated metadata above it.
pub fn update_copies(store: &dyn Store, path: &str) -> Result<()> {
    for name in NAMES {
        if let Some((text, _)) = read(store, &join(path, name))? {
            return copies::add(store, writer(store)?, path, &[NodeDocument { name, text }]);
        }
    }
    Ok(())
}
