//! Making an array longer along its slowest served axis while it is open for writing.
//!
//! Uses its neighbours in `array`, `metadata`, `store` and `error`. All bytes of the file keep their place. What the
//! store has after the end of the array becomes fill value before the document says that it is inside. A crash at any
//! step leaves the old array, or the longer one with fill values.
//!
//! What lies after the end may be rows that another program has just appended, and no lock excludes that program. So
//! the objects' versions are read first, then the document is checked, and only what still has its version is removed
//! (`clear.rs`). The document is replaced last, on the condition that it is the one that was checked.

use std::sync::Arc;

use crate::array::geometry::axis::Axis;
use crate::array::served::ServedArray;
use crate::array::write::ArrayWriter;
use crate::array::write::clear::{OutsideElements, padded};
use crate::error::{Error, Result};
use crate::metadata::{ArrayMetadata, ChunkGrid};
use crate::store::ObjectVersion;

/// Up to this many new objects are looked up by key. Beyond it, the array is listed.
const MAX_KEYS: u64 = 1024;

/// Returns the array's metadata with the smallest shape that has `size_bytes`, longer along the slowest axis of the
/// file. Fails with `TooLarge` if there is no such shape.
pub fn longer(served: &ServedArray, size_bytes: u64) -> Result<ArrayMetadata> {
    let metadata = served.metadata();
    let refused = |reason: &str| {
        let reason = format!("{reason}, so its file has no more than {} bytes", served.size_bytes());
        Error::TooLarge { key: metadata.document_key.clone(), reason }
    };
    let Some((slowest, others)) = served.grid().axes().split_first() else {
        return Err(refused("the array has no dimensions"));
    };
    if !matches!(metadata.chunk_grid, ChunkGrid::Regular(_)) {
        return Err(refused("the array's rectilinear grid lists each chunk"));
    }
    if others.iter().any(|axis| axis.extent() == 0) {
        return Err(refused("another dimension of the array is 0 long"));
    }
    let too_long = || refused("an array has at most 2^63-1 bytes");
    let mut lengths = others.iter().map(Axis::extent);
    let slab_bytes = lengths.try_fold(served.grid().item_bytes(), u64::checked_mul).ok_or_else(too_long)?;
    let length = size_bytes.div_ceil(slab_bytes).max(slowest.extent());
    let mut shape = metadata.shape.clone();
    let axis = served.source().keys().axis_order().axes().first().copied();
    *axis.and_then(|axis| shape.get_mut(axis)).ok_or_else(too_long)? = length;
    let longer = served.metadata_with_shape(shape);
    if longer.flat_size().is_none() { Err(too_long()) } else { Ok(longer) }
}

impl ArrayWriter {
    /// Makes the array as long as `longer` said, while it is open for writing. `replace` replaces the document. Dirty
    /// chunks, handles and lock move to `longer`. Fails with `Changed` if the array is zeroed: then it must be flushed
    /// first.
    pub fn lengthen(&self, longer: &Arc<ArrayWriter>, replace: impl FnOnce() -> Result<()>) -> Result<()> {
        let key = longer.served.document_key().to_owned();
        let session = &self.write_back.session;
        // Nothing is stored meanwhile, so nothing is stored by an array that the document does not describe.
        let _storing = self.write_back.storing().lock();
        if self.is_zeroed() {
            return Err(Error::Changed { key });
        }
        if !session.is_current_writer() {
            return Err(Error::Stale { key });
        }
        let ahead = self.objects_ahead(&longer.served)?;
        session.check_document()?;
        self.write_back.objects.delete(ahead)?;
        self.clear_end()?;
        replace()?;
        self.dirty.unsynced().add([key]);
        longer.succeed(self)
    }

    /// Sets what the store has after the end of the array to the fill value, in the objects that hold the end. The
    /// caller makes sure that no chunk of the array is stored meanwhile.
    fn clear_end(&self) -> Result<()> {
        let (served, session) = (&self.served, &self.write_back.session);
        if session.is_end_clear() {
            return Ok(());
        }
        if let Some(padded) = padded(served, 1)? {
            let inside: Vec<u64> = served.grid().axes().iter().map(Axis::extent).collect();
            let levels = served.levels();
            let objects_per_row: u64 = levels.object_axes().iter().skip(1).map(Axis::count).product();
            let last_row: Vec<u64> =
                (levels.objects().saturating_sub(objects_per_row)..levels.objects()).collect();
            let cores = self.workers.count();
            let outside = OutsideElements::new(&padded, &self.shared.resources, &inside, cores);
            outside.clear_objects(&last_row, &|| session.check_document())?;
        }
        self.dirty.clear_bases();
        // From now on all that this array stores after its end is fill value.
        session.set_end_clear(true);
        Ok(())
    }

    /// Returns the keys and versions of stored objects that `longer` has, and the array has not.
    fn objects_ahead(&self, longer: &ServedArray) -> Result<Vec<(String, ObjectVersion)>> {
        let new = self.served.levels().objects()..longer.levels().objects();
        let mut objects = Vec::new();
        if new.end.saturating_sub(new.start) <= MAX_KEYS {
            objects.extend(new);
        } else {
            longer.listing().try_each(|object| {
                if new.contains(&object) {
                    objects.push(object);
                }
                Ok(())
            })?;
        }
        let keys = objects.into_iter().map(|object| longer.key_of_object(object));
        longer.with_versions(keys.collect::<Result<Vec<String>>>()?)
    }
}
