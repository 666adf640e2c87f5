//! Removing what is stored outside an array: objects of a longer array, and the parts of chunks after its end.
//!
//! Uses its neighbours in `array`, `store` and `error`. An array that becomes longer shows what is stored there, so
//! code that changes an array's length removes it: new elements are fill value.
//!
//! Invariant: the versions of the objects are read first, then the document is checked, and only objects that still
//! have these versions are changed. Another program that makes the array longer replaces the document before it stores
//! elements there, so it loses nothing.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::array::cache::CachedContent;
use crate::array::geometry::axis::{Axis, each_index, numbers};
use crate::array::geometry::grid::{KeptElements, clear_after};
use crate::array::served::ServedArray;
use crate::array::source::replacement::Encoded;
use crate::array::sync::Mutex;
use crate::array::write::resources::WriteResources;
use crate::array::write::write_back::object_writer::{NewObject, ObjectWriter, THREADS_PER_CORE};
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::metadata::ArrayMetadata;
use crate::store::{Info, ObjectVersion, Precondition};

/// How often the objects are listed: a folder that loses names while it is listed may hide some.
const MAX_PASSES: usize = 8;
/// How many objects are looked up together.
const MAX_KEYS: usize = 1024;

/// The stored elements outside a box at the origin of an array. The array has them all, so it may be longer than its
/// document says.
pub struct OutsideElements<'a> {
    objects: ObjectWriter,
    /// Where the box ends on each served axis.
    inside: &'a [u64],
    /// Decoding threads.
    cores: usize,
}

impl<'a> OutsideElements<'a> {
    /// Selects the elements of an array outside the first `inside` elements of each served axis. Changes use up to
    /// `cores` threads, or more where they wait.
    pub fn new(
        served: &Arc<ServedArray>,
        resources: &Arc<WriteResources>,
        inside: &'a [u64],
        cores: usize,
    ) -> Self {
        OutsideElements { objects: ObjectWriter::new(served, resources), inside, cores: cores.max(1) }
    }

    fn served(&self) -> &ServedArray {
        self.objects.served()
    }

    /// Deletes the objects that do not have an element inside. An object is deleted only if it was there before
    /// `may_delete` last returned, so `may_delete` can check whether another program has begun to use it. Returns how
    /// many objects were deleted.
    pub fn delete_objects(&self, may_delete: &dyn Fn() -> Result<()>) -> Result<u64> {
        let mut deleted = 0;
        for _ in 0..MAX_PASSES {
            let deleted_now = self.delete_listed(may_delete)?;
            deleted += deleted_now;
            if deleted_now == 0 {
                break;
            }
        }
        Ok(deleted)
    }

    /// Lists the objects once, and deletes those that do not have an element inside.
    fn delete_listed(&self, may_delete: &dyn Fn() -> Result<()>) -> Result<u64> {
        let served = self.served();
        let mut deleted = 0;
        let mut keys: Vec<String> = Vec::new();
        let mut delete = |keys: &mut Vec<String>| -> Result<()> {
            let objects = served.with_versions(std::mem::take(keys))?;
            may_delete()?;
            deleted += self.objects.delete(objects)?;
            Ok(())
        };
        served.listing().try_each(|object| {
            let axes = served.levels().object_axes();
            let starts = numbers(axes, object).into_iter().zip(axes).map(|(i, axis)| axis.span(i).start);
            if starts.zip(self.inside).any(|(start, &end)| start >= end) {
                keys.push(served.key_of_object(object)?);
                if keys.len() == MAX_KEYS {
                    delete(&mut keys)?;
                }
            }
            Ok(())
        })?;
        delete(&mut keys)?;
        Ok(deleted)
    }

    /// Sets the elements outside to the fill value, in all stored objects that were there before `may_clear` last
    /// returned. The change is durable when this returns. Returns how many chunks changed.
    pub fn clear(&self, may_clear: &(dyn Fn() -> Result<Info> + Sync)) -> Result<u64> {
        let axes = self.served().levels().object_axes();
        let mut objects = Vec::new();
        self.served().listing().try_each(|object| {
            if !is_inside(axes, &numbers(axes, object), self.inside) {
                objects.push(object);
            }
            Ok(())
        })?;
        self.clear_objects(&objects, may_clear)
    }

    /// Does the same for these objects only, several at a time, because most of the time is spent waiting for the
    /// store.
    pub fn clear_objects(
        &self,
        objects: &[u64],
        may_clear: &(dyn Fn() -> Result<Info> + Sync),
    ) -> Result<u64> {
        let writer = self.objects.writer()?;
        let most = self.objects.storing_threads(self.cores, THREADS_PER_CORE);
        // A thread has an object's chunks as they were read, as they are cleared, and encoded.
        let threads = self.objects.threads_within(self.served().object_bytes().saturating_mul(3), most);
        let cleared: Mutex<Vec<(String, u64)>> = Mutex::default();
        let outcome = self.objects.for_each(objects.len() as u64, threads, "clear", |place| {
            let Some(&object) = objects.get(place as usize) else { return Ok(()) };
            let key = self.served().key_of_object(object)?;
            let chunks = self.clear_object(object, &key, may_clear)?;
            if chunks > 0 {
                cleared.lock().push((key, chunks));
            }
            Ok(())
        });
        let cleared = cleared.into_inner();
        let keys: Vec<String> = cleared.iter().map(|(key, _)| key.clone()).collect();
        if !keys.is_empty() {
            writer.sync(&keys, self.served().path())?;
        }
        outcome.map(|()| cleared.iter().map(|(_, chunks)| chunks).sum())
    }

    /// Sets the elements of an object outside to the fill value. Fails with `Changed` if the object is no longer the
    /// one that was read before `may_clear` returned. Returns how many chunks have other bytes now.
    fn clear_object(&self, object: u64, key: &str, may_clear: &dyn Fn() -> Result<Info>) -> Result<u64> {
        let served = self.served();
        let Some(old) = served.store().head_object(key)?.map(|info| info.version) else { return Ok(0) };
        // What was transferred for readers may be older.
        served.store().forget_transfers(key);
        let mut encoded = Encoded::new();
        let mut outcome = Ok(());
        let _ = each_index(served.grid().axes(), &served.levels().chunk_ranges(object), &mut |chunk| {
            outcome = self.clear_chunk(chunk, old, &mut encoded);
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        outcome?;
        if encoded.is_empty() {
            return Ok(0);
        }
        let like = may_clear()?;
        let precondition = Precondition::Version(old);
        let new = NewObject { object, encoded: &encoded, like: &like, precondition, is_zero: false };
        self.objects.put(&new)?;
        Ok(encoded.len() as u64)
    }

    /// Encodes a chunk of an object in version `old` with fill value outside, unless it has that already.
    fn clear_chunk(&self, number: u64, old: ObjectVersion, encoded: &mut Encoded) -> Result<()> {
        let (served, source) = (self.served(), self.served().source());
        let (ctx, index) = (served.load_context(), served.grid().index(number));
        let axes = served.grid().axes();
        if is_inside(axes, &index, self.inside) {
            return Ok(());
        }
        self.objects.resources().record_base();
        let loaded = source.load(&ctx, &index)?;
        if loaded.version != Some(old) {
            return Err(Error::Changed { key: served.key_of_chunk(&index)? });
        }
        let CachedContent::Chunk(stored) = loaded.content else { return Ok(()) };
        let mut cleared = Buffer::new(stored.len());
        cleared.copy_from_slice(&stored);
        let kept: Vec<KeptElements> = (axes.iter().zip(&index).zip(self.inside))
            .map(|((axis, &i), &end)| {
                let span = axis.span(i);
                let kept = end.saturating_sub(span.start).min(span.length);
                KeptElements { length: span.length, kept }
            })
            .collect();
        clear_after(&kept, served.fill(), &mut cleared);
        if cleared[..] != stored[..] {
            encoded.insert(number, source.encode(&ctx, &index, &Arc::new(cleared))?);
        }
        Ok(())
    }
}

/// Returns the array with the first `axes` axes of its file extended to where their last chunks end, so that all that
/// these chunks store lies inside. `None` if they end there already.
pub fn padded(served: &ServedArray, axes: usize) -> Result<Option<Arc<ServedArray>>> {
    let order = served.source().keys().axis_order();
    let mut shape = order.served(&served.metadata().shape);
    let ends = served.levels().object_axes().iter().map(end_of_last);
    shape.iter_mut().zip(ends).take(axes).for_each(|(length, end)| *length = end);
    let shape = order.own(&shape);
    if shape == served.metadata().shape {
        return Ok(None);
    }
    // The document keeps its own shape.
    let padded = ArrayMetadata { shape, ..ArrayMetadata::clone(served.metadata()) };
    if padded.flat_size().is_none() {
        let reason = "its chunks end after the largest array";
        return Err(Error::unsupported(served.document_key(), reason));
    }
    served.reopened(Arc::new(padded)).map(|padded| Some(Arc::new(padded)))
}

/// Returns where the last chunk of an axis ends.
fn end_of_last(axis: &Axis) -> u64 {
    match axis.count().checked_sub(1) {
        Some(last) => axis.span(last).start.saturating_add(axis.span(last).length),
        None => axis.extent(),
    }
}

fn is_inside(axes: &[Axis], index: &[u64], inside: &[u64]) -> bool {
    let spans = axes.iter().zip(index).map(|(axis, &i)| axis.span(i));
    spans.zip(inside).all(|(span, &end)| span.start + span.length <= end)
}
