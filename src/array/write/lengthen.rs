//! Making an array longer along its slowest served axis while it is open for writing.
//!
//! Uses its neighbours in `array`, `metadata`, `store` and `error`. All bytes of the file keep their place. What the store has after the
//! end of the array becomes fill value before the document says that it is inside, so a crash at any step leaves the old array, or the
//! longer one with fill values.
//!
//! What is after the end may be what another program has just grown by, and nothing locks it out. So what is there is looked at first, then
//! the document, and only what is still as it was is removed (`clear.rs`). The document is replaced last, on the condition that it is the
//! one that was looked at.

use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::json;

use crate::array::geometry::grid::numbers;
use crate::array::{Array, Inner};
use crate::error::{Error, Result};
use crate::metadata::{ArrayMetadata, ChunkGrid};
use crate::store::ObjectVersion;

/// Up to so many new objects are asked for by their keys; for more the array is listed.
const MAX_KEYS: u64 = 1024;

impl Array {
    /// The array's metadata with the least shape, longer along the slowest axis of the file, that has `size_bytes`. `TooLarge` where there is no
    /// such shape.
    pub fn longer(&self, size_bytes: u64) -> Result<ArrayMetadata> {
        let metadata = &self.inner.metadata;
        let refused = |reason: &str| {
            let reason = format!("{reason}, so its file has no more than {} bytes", self.size_bytes());
            Error::TooLarge { key: metadata.document_key.clone(), reason }
        };
        let axes = self.inner.grid.axes();
        let Some((slowest, others)) = axes.split_first() else {
            return Err(refused("the array has no dimensions"));
        };
        if !matches!(metadata.chunk_grid, ChunkGrid::Regular(_)) {
            return Err(refused("the array's rectilinear grid lists each chunk"));
        }
        if others.iter().any(|axis| axis.extent() == 0) {
            return Err(refused("another dimension of the array is 0 long"));
        }
        let too_long = || refused("an array has at most 2^63-1 bytes");
        let mut lengths = others.iter().map(|axis| axis.extent());
        let slab_bytes =
            lengths.try_fold(self.inner.grid.item_bytes(), u64::checked_mul).ok_or_else(too_long)?;
        let length = size_bytes.div_ceil(slab_bytes).max(slowest.extent());
        let mut shape = metadata.shape.clone();
        let axis = self.inner.source.keys().axis_order().axes().first().copied();
        *axis.and_then(|axis| shape.get_mut(axis)).ok_or_else(too_long)? = length;
        let longer = self.inner.with_shape(shape);
        if longer.flat_size().is_none() { Err(too_long()) } else { Ok(longer) }
    }

    /// Whether every byte of the fill value is zero.
    pub fn fills_with_zeros(&self) -> bool {
        self.inner.fill.iter().all(|&byte| byte == 0)
    }

    /// Whether all of the array is zero since a truncation, and the store does not know it yet.
    pub fn is_zeroed(&self) -> bool {
        self.inner.writing.chunks.lock().zero.is_some()
    }

    /// Makes the array as long as [`Array::longer`] said, while it is open for writing. `replace` replaces the document. Dirty chunks, writers
    /// and lock move to the array that is returned. `Changed` where the array is zeroed: then it must be flushed first.
    pub fn lengthen(
        &self,
        metadata: Arc<ArrayMetadata>,
        replace: impl FnOnce() -> Result<()>,
    ) -> Result<Arc<Array>> {
        let inner = &self.inner;
        let key = metadata.document_key.clone();
        let writing = Arc::clone(&inner.writing);
        let longer =
            Array::build(&inner.engine, &inner.store, &inner.path, metadata, inner.served_as, writing)?;
        // Nothing is stored meanwhile, so nothing is stored by an array that the document does not describe.
        let _storing = inner.writing.storing.lock();
        if self.is_zeroed() {
            return Err(Error::Changed { key });
        }
        if !inner.stores() {
            return Err(Error::Stale { key });
        }
        let ahead = inner.objects_ahead(&longer.inner)?;
        inner.check_document()?;
        inner.delete_objects(ahead)?;
        inner.clear_end()?;
        replace()?;
        inner.writing.chunks.lock().unsynced.insert(key);
        longer.inner.succeed(inner)?;
        longer.inner.served.note_change();
        Ok(longer)
    }
}

impl Inner {
    /// Whether no other array has grown from this one.
    pub(in crate::array) fn stores(&self) -> bool {
        self.writing.opened.lock().as_ref().is_some_and(|opened| opened.array == self.number)
    }

    /// The metadata with another shape.
    fn with_shape(&self, shape: Vec<u64>) -> ArrayMetadata {
        let mut metadata = ArrayMetadata::clone(&self.metadata);
        metadata.document.insert("shape".to_owned(), json!(shape));
        ArrayMetadata { shape, ..metadata }
    }

    /// Makes what the store has after the end of the array fill value in the objects that hold the end. Nothing else stores chunks of
    /// the array meanwhile.
    fn clear_end(&self) -> Result<()> {
        let is_clear = self.writing.opened.lock().as_ref().is_some_and(|opened| opened.is_end_clear);
        if is_clear {
            return Ok(());
        }
        if let Some(padded) = self.padded(1)? {
            let inside: Vec<u64> = self.grid.axes().iter().map(|axis| axis.extent()).collect();
            let axes = self.source.object_axes();
            let in_row: u64 = axes.iter().skip(1).map(|axis| axis.count()).product();
            let last_row: Vec<u64> =
                (self.source.objects().saturating_sub(in_row)..self.source.objects()).collect();
            padded.inner.clear_objects(&last_row, &inside, &|| self.check_document())?;
        }
        self.clear_bases();
        // From now on all that this array stores after its end is fill value.
        if let Some(opened) = self.writing.opened.lock().as_mut() {
            opened.is_end_clear = true;
        }
        Ok(())
    }

    /// The keys and versions of stored objects that `longer` has, and the array has not.
    fn objects_ahead(&self, longer: &Inner) -> Result<Vec<(String, ObjectVersion)>> {
        let new = self.source.objects()..longer.source.objects();
        let mut objects = Vec::new();
        if new.end.saturating_sub(new.start) <= MAX_KEYS {
            objects.extend(new);
        } else {
            let mut unlisted = None;
            let mut found = |object| {
                if new.contains(&object) {
                    objects.push(object);
                }
                ControlFlow::Continue(())
            };
            longer.each_stored_object(&mut found, &mut |_, error| unlisted = Some(error.clone()));
            if let Some(error) = unlisted {
                return Err(error);
            }
        }
        let keys = objects.into_iter().map(|object| longer.key_of_object(object));
        self.with_versions(keys.collect::<Result<Vec<String>>>()?)
    }

    /// The key of an object.
    pub(in crate::array) fn key_of_object(&self, object: u64) -> Result<String> {
        self.source.keys().key(self.store.as_ref(), &numbers(self.source.object_axes(), object))
    }

    /// Makes the parts of dirty chunks after the end of the array fill value, where they were loaded from the store.
    fn clear_bases(&self) {
        let chunks: Vec<_> = self
            .writing
            .chunks
            .lock()
            .dirty
            .iter()
            .map(|(&number, chunk)| (number, Arc::clone(chunk)))
            .collect();
        for (number, chunk) in chunks {
            let mut state = chunk.lock();
            if !state.is_retired && state.base.is_some() {
                let bytes = Arc::make_mut(&mut state.bytes);
                self.fill_padding(&self.grid.index(number), bytes);
            }
        }
    }
}
