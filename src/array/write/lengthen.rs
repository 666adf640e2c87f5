//! Making an array longer along its slowest served axis while it is open for writing.
//!
//! Uses its neighbours in `array`, `metadata`, `store` and `error`. All bytes of the file keep their place. What the store has after the
//! end of the array becomes fill value before the document says that it is inside, so a crash at any step leaves the old array, or the
//! longer one with fill values.
//!
//! Nothing locks a remote store: what is after the end there may be what another program has just grown by. So objects are only deleted
//! after the document was replaced, which fails where another was first, and if they are those that were there before. What shares an
//! object with the array's end stays.

use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::json;

use crate::array::geometry::grid::numbers;
use crate::array::sync::atomic::Ordering;
use crate::array::write::dirty::WriteSession;
use crate::array::{Array, Inner};
use crate::error::{Error, Result};
use crate::metadata::{ArrayMetadata, ChunkGrid};
use crate::store::{ObjectVersion, Precondition};

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

    /// Whether what [`Array::lengthen`] adds is fill value, whatever was stored there.
    pub fn grows_by_fill(&self) -> bool {
        !self.inner.store.is_remote()
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
        if inner.store.is_remote() {
            replace()?;
            // The array is longer now, whatever becomes of these.
            inner.delete_objects(ahead).unwrap_or_else(|error| log::error!("{error}"));
        } else {
            inner.delete_objects(ahead)?;
            inner.clear_end()?;
            replace()?;
        }
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
        self.clear_last_objects()?;
        self.clear_bases();
        // From now on only this array stores chunks, and their parts after its end are fill value.
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
        let key_of = |object| {
            let index = numbers(longer.source.object_axes(), object);
            longer.source.keys().key(self.store.as_ref(), &index)
        };
        let keys = objects.into_iter().map(key_of).collect::<Result<Vec<String>>>()?;
        let found = self.store.head_many(&keys.iter().map(String::as_str).collect::<Vec<_>>());
        let ahead =
            keys.into_iter().zip(found).map(|(key, found)| Ok(found?.map(|info| (key, info.version))));
        Ok(ahead.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// Deletes objects, durably, if they have these versions.
    fn delete_objects(&self, objects: Vec<(String, ObjectVersion)>) -> Result<()> {
        let Some(writer) = self.store.writer().filter(|_| !objects.is_empty()) else { return Ok(()) };
        for (key, version) in &objects {
            match writer.delete(key, Precondition::Version(*version)) {
                Err(Error::Changed { .. }) if self.store.is_remote() => {}
                deleted => drop(deleted?),
            }
        }
        writer.sync(&objects.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), &self.path)
    }

    /// Makes the rest of the objects at the end of the slowest axis fill value in the store.
    fn clear_last_objects(&self) -> Result<()> {
        let axes = self.source.object_axes();
        let (Some(slowest), Some(extent)) =
            (axes.first(), self.grid.axes().first().map(|axis| axis.extent()))
        else {
            return Ok(());
        };
        let Some(last) = slowest.count().checked_sub(1) else { return Ok(()) };
        let end = slowest.span(last).start.saturating_add(slowest.span(last).length);
        if end == extent {
            return Ok(());
        }
        let mut shape = self.source.keys().axis_order().served(&self.metadata.shape);
        shape.first_mut().into_iter().for_each(|length| *length = end);
        let shape = self.source.keys().axis_order().own(&shape);
        // Its document is that of the array.
        let padded = Arc::new(ArrayMetadata { shape, ..ArrayMetadata::clone(&self.metadata) });
        if padded.flat_size().is_none() {
            let reason = "its chunks end after the largest array";
            return Err(Error::unsupported(&self.metadata.document_key, reason));
        }
        let padded =
            Array::build(&self.engine, &self.store, &self.path, padded, self.served_as, Arc::default())?;
        let padded = &padded.inner;
        {
            let opened = self.writing.opened.lock();
            let Some(opened) = opened.as_ref() else { return Ok(()) };
            let session = WriteSession {
                writers: 1,
                // The array's own lock excludes others.
                _lock: Box::new(()),
                document: opened.document.clone(),
                version: opened.version,
                array: padded.number,
                folder: opened.folder,
                is_end_clear: true,
            };
            *padded.writing.opened.lock() = Some(session);
        }
        let inside: Vec<u64> = self.grid.axes().iter().map(|axis| axis.extent()).collect();
        let in_row: u64 = axes.iter().skip(1).map(|axis| axis.count()).product();
        for object in last * in_row..(last + 1) * in_row {
            if let Err(error) = Inner::clear_object(padded, object, &inside) {
                // What was not stored must not be stored later: programs write there.
                let counted = padded.writing.zero();
                self.engine.dirty_bytes.fetch_sub(counted, Ordering::AcqRel);
                self.engine.room.notify();
                return Err(error);
            }
        }
        Ok(())
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
