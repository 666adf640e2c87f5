//! What is stored outside an array: objects of a longer one, and the parts of chunks after its end.
//!
//! Uses its neighbours in `array`, `store` and `error`. An array that is made longer shows what is stored there, so
//! whatever makes one shorter, or longer, removes it: such elements are fill value.
//!
//! Invariant: what is removed was looked at first, then the document, and only what is still as it was looked at is removed. Another
//! program that makes the array longer replaces the document before it stores elements there, so that it loses none.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::array::cache::Content;
use crate::array::geometry::grid::{Axis, each_index, numbers};
use crate::array::geometry::strided_copy::fill_items;
use crate::array::source::replacement::{Encoded, Target};
use crate::array::sync::Mutex;
use crate::array::sync::atomic::Ordering;
use crate::array::write::whole_objects::{REMOTE_THREADS, THREADS_PER_CORE, for_each};
use crate::array::{Array, Engine, Inner, Layout};
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::metadata::ArrayMetadata;
use crate::store::{Info, ObjectVersion, Precondition, Store};

/// How often the objects are listed again: a folder that loses names while it is listed may hide some.
const MAX_PASSES: usize = 8;
/// How many objects are looked at together.
const MAX_KEYS: usize = 1024;

impl Array {
    /// Deletes the objects that have elements only outside `inside`, which the array's document need not know about. `metadata`
    /// is that of an array that has them all. Only objects are deleted that were there before `may_delete` last returned, so that it can
    /// tell whether another program has begun to use them. Returns how many there were.
    pub fn delete_outside(
        engine: &Arc<Engine>,
        store: &Arc<dyn Store>,
        path: &str,
        metadata: ArrayMetadata,
        inside: &[u64],
        may_delete: &dyn Fn() -> Result<()>,
    ) -> Result<u64> {
        let array = Array::open(engine, store, path, Arc::new(metadata), Layout::default())?;
        let inner = &array.inner;
        let mut deleted = 0;
        for _ in 0..MAX_PASSES {
            let before = deleted;
            let mut keys: Vec<String> = Vec::new();
            let mut failure = None;
            let mut delete = |keys: &mut Vec<String>| -> Result<()> {
                let objects = inner.with_versions(std::mem::take(keys))?;
                may_delete()?;
                deleted += inner.delete_objects(objects)?;
                Ok(())
            };
            let mut found = |object| {
                let index = numbers(inner.source.object_axes(), object);
                let starts =
                    index.iter().zip(inner.source.object_axes()).map(|(&i, axis)| axis.span(i).start);
                if !starts.zip(inside).any(|(start, &end)| start >= end) {
                    return ControlFlow::Continue(());
                }
                let noted = inner.key_of_object(object).and_then(|key| {
                    keys.push(key);
                    if keys.len() < MAX_KEYS { Ok(()) } else { delete(&mut keys) }
                });
                match noted {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        failure = Some(error);
                        ControlFlow::Break(())
                    }
                }
            };
            let mut unlisted = None;
            inner.each_stored_object(&mut found, &mut |_, error| unlisted = Some(error.clone()));
            if let Some(error) = failure.or(unlisted) {
                return Err(error);
            }
            delete(&mut keys)?;
            if deleted == before {
                break;
            }
        }
        Ok(deleted)
    }

    /// Makes the elements after the end of the array fill value, in all objects that are stored and were there before `may_clear` last
    /// returned. Durable when this returns. Returns how many chunks changed.
    pub fn clear_padding(
        engine: &Arc<Engine>,
        store: &Arc<dyn Store>,
        path: &str,
        metadata: &ArrayMetadata,
        may_clear: &(dyn Fn() -> Result<Info> + Sync),
    ) -> Result<u64> {
        let array = Array::open(engine, store, path, Arc::new(metadata.clone()), Layout::default())?;
        let Some(padded) = array.inner.padded(usize::MAX)? else { return Ok(0) };
        let inner = &padded.inner;
        let inside: Vec<u64> = array.inner.grid.axes().iter().map(Axis::extent).collect();
        let mut objects = Vec::new();
        let mut unlisted = None;
        let mut found = |object| {
            let index = numbers(inner.source.object_axes(), object);
            if !is_inside(inner.source.object_axes(), &index, &inside) {
                objects.push(object);
            }
            ControlFlow::Continue(())
        };
        inner.each_stored_object(&mut found, &mut |_, error| unlisted = Some(error.clone()));
        if let Some(error) = unlisted {
            return Err(error);
        }
        inner.clear_objects(&objects, &inside, may_clear)
    }
}

/// Where the last chunk of an axis ends.
fn end_of_last(axis: &Axis) -> u64 {
    match axis.count().checked_sub(1) {
        Some(last) => axis.span(last).start.saturating_add(axis.span(last).length),
        None => axis.extent(),
    }
}

impl Inner {
    /// The array whose first `axes` axes, of its file, end where their last chunks do: what is stored in these chunks outside this array is inside
    /// it. `None` where that is nothing.
    pub(in crate::array) fn padded(&self, axes: usize) -> Result<Option<Arc<Array>>> {
        let order = self.source.keys().axis_order();
        let mut shape = order.served(&self.metadata.shape);
        let ends = self.source.object_axes().iter().map(end_of_last);
        shape.iter_mut().zip(ends).take(axes).for_each(|(length, end)| *length = end);
        let shape = order.own(&shape);
        if shape == self.metadata.shape {
            return Ok(None);
        }
        let padded = ArrayMetadata { shape, ..ArrayMetadata::clone(&self.metadata) };
        if padded.flat_size().is_none() {
            let reason = "its chunks end after the largest array";
            return Err(Error::unsupported(&self.metadata.document_key, reason));
        }
        let writing = Arc::default();
        let padded = Arc::new(padded);
        Array::build(&self.engine, &self.store, &self.path, padded, self.served_as, writing).map(Some)
    }

    /// Whether an object has room for elements after the end of the array.
    pub(in crate::array) fn is_padded(&self, object: u64) -> bool {
        let inside: Vec<u64> = self.grid.axes().iter().map(Axis::extent).collect();
        let index = numbers(self.source.object_axes(), object);
        let ends = self.source.object_axes().iter().zip(&index).map(|(axis, &i)| axis.span(i));
        ends.zip(inside).any(|(span, end)| span.start + span.length > end)
    }

    /// Objects with the versions that they have now; those that are not there are left out.
    pub(in crate::array) fn with_versions(&self, keys: Vec<String>) -> Result<Vec<(String, ObjectVersion)>> {
        let found = self.store.head_many(&keys.iter().map(String::as_str).collect::<Vec<_>>());
        let versions =
            keys.into_iter().zip(found).map(|(key, found)| Ok(found?.map(|info| (key, info.version))));
        Ok(versions.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// Deletes objects, durably, if they still have these versions. Returns how many had.
    pub(in crate::array) fn delete_objects(&self, objects: Vec<(String, ObjectVersion)>) -> Result<u64> {
        let Some(writer) = self.store.writer() else {
            return Err(Error::ReadOnly(format!("{} does not support writing", self.store.describe())));
        };
        // One key for each folder that lost names.
        let mut folders: BTreeMap<String, String> = BTreeMap::new();
        let mut deleted = 0;
        for (key, version) in objects {
            match writer.delete(&key, Precondition::Version(version)) {
                // Another program has stored it since. It is the next one's to decide about.
                Err(Error::Changed { .. }) => continue,
                is_deleted => deleted += u64::from(is_deleted?),
            }
            let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
            folders.insert(folder, key);
        }
        if !folders.is_empty() {
            writer.sync(&folders.into_values().collect::<Vec<_>>(), &self.path)?;
        }
        Ok(deleted)
    }

    /// As [`Inner::clear_object`], durably, of those that are stored: several at a time, since most of the time is spent in waiting.
    pub(in crate::array) fn clear_objects(
        &self,
        objects: &[u64],
        inside: &[u64],
        may_clear: &(dyn Fn() -> Result<Info> + Sync),
    ) -> Result<u64> {
        let Some(writer) = self.store.writer() else {
            return Err(Error::ReadOnly(format!("{} does not support writing", self.store.describe())));
        };
        let cores = self.engine.workers.count().max(1);
        let most = if self.store.is_remote() { REMOTE_THREADS } else { THREADS_PER_CORE * cores };
        // What is read, what is left of it, and that encoded.
        let threads = self.threads(self.object_bytes().saturating_mul(3), most);
        let cleared: Mutex<Vec<(String, u64)>> = Mutex::default();
        let outcome = for_each(objects.len() as u64, threads, "clear", |place| {
            let Some(&object) = objects.get(place as usize) else { return Ok(()) };
            let key = self.key_of_object(object)?;
            let chunks = self.clear_object((object, &key), inside, may_clear)?;
            if chunks > 0 {
                cleared.lock().push((key, chunks));
            }
            Ok(())
        });
        let cleared = cleared.into_inner();
        let keys: Vec<String> = cleared.iter().map(|(key, _)| key.clone()).collect();
        if !keys.is_empty() {
            writer.sync(&keys, &self.path)?;
        }
        outcome.map(|()| cleared.iter().map(|(_, chunks)| chunks).sum())
    }

    /// Fills the part of an edge chunk past the array with the fill value.
    pub(in crate::array) fn fill_padding(&self, index: &[u64], bytes: &mut [u8]) {
        let axes = self.grid.axes().iter().zip(index);
        let kept: Vec<(u64, u64)> = axes
            .map(|(axis, &i)| {
                let span = axis.span(i);
                (span.length, span.length.min(axis.extent() - span.start))
            })
            .collect();
        if kept.iter().any(|(length, inside)| length != inside) {
            clear_after(&kept, &self.fill, bytes);
        }
    }

    /// Makes the parts of an object outside `inside` fill value, in the store, if that is still what was read before `may_clear` returned:
    /// else `Changed`. Returns how many chunks have other bytes now.
    fn clear_object(
        &self,
        (object, key): (u64, &str),
        inside: &[u64],
        may_clear: &dyn Fn() -> Result<Info>,
    ) -> Result<u64> {
        let Some(old) = self.store.head_object(key)?.map(|info| info.version) else { return Ok(0) };
        // What was transferred for readers may be older.
        self.store.forget_transfers(key);
        let mut encoded = Encoded::new();
        let mut outcome = Ok(());
        let _ = each_index(self.grid.axes(), &self.source.chunk_ranges(object), &mut |chunk| {
            match self.cleared_chunk(chunk, old, inside) {
                Ok(Some(bytes)) => {
                    let index = self.grid.index(chunk);
                    outcome = self
                        .source
                        .encode(&self.load_context(), &index, &Arc::new(bytes))
                        .map(|one| drop(encoded.insert(chunk, one)));
                }
                Ok(None) => {}
                Err(error) => outcome = Err(error),
            }
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        outcome?;
        if encoded.is_empty() {
            return Ok(0);
        }
        let like = may_clear()?;
        let Some(writer) = self.store.writer() else {
            return Err(Error::ReadOnly(self.store.describe()));
        };
        let target = Target {
            store: self.store.as_ref(),
            writer,
            within: &self.path,
            like: &like,
            precondition: Precondition::Version(old),
            is_zero: false,
        };
        self.source.rewrite(&self.load_context(), &target, object, &encoded)?;
        self.engine.objects_stored.fetch_add(1, Ordering::Relaxed);
        self.engine.chunks_encoded.fetch_add(encoded.len() as u64, Ordering::Relaxed);
        Ok(encoded.len() as u64)
    }

    /// A chunk of an object in version `old`, with fill value outside `inside`; `None` if that is what it has.
    fn cleared_chunk(&self, number: u64, old: ObjectVersion, inside: &[u64]) -> Result<Option<Buffer>> {
        let index = self.grid.index(number);
        if is_inside(self.grid.axes(), &index, inside) {
            return Ok(None);
        }
        let (content, version) = self.load_base(&index)?;
        if version != Some(old) {
            return Err(Error::Changed { key: self.source.key(&self.load_context(), &index)? });
        }
        let Content::Chunk(stored) = content else { return Ok(None) };
        let mut cleared = Buffer::new(stored.len());
        cleared.copy_from_slice(&stored);
        let axes: Vec<(u64, u64)> = (self.grid.axes().iter().zip(&index).zip(inside))
            .map(|((axis, &i), &end)| {
                let span = axis.span(i);
                (span.length, end.saturating_sub(span.start).min(span.length))
            })
            .collect();
        clear_after(&axes, &self.fill, &mut cleared);
        Ok((cleared[..] != stored[..]).then_some(cleared))
    }
}

fn is_inside(axes: &[Axis], index: &[u64], inside: &[u64]) -> bool {
    let spans = axes.iter().zip(index).map(|(axis, &i)| axis.span(i));
    spans.zip(inside).all(|(span, &end)| span.start + span.length <= end)
}

/// Fills what comes after the first elements of each axis, which are given as (length, first elements).
fn clear_after(axes: &[(u64, u64)], fill: &[u8], bytes: &mut [u8]) {
    let Some((&(length, kept), rest)) = axes.split_first() else { return };
    let step = bytes.len() / (length.max(1) as usize);
    let (kept, cleared) = bytes.split_at_mut(step * kept as usize);
    fill_items(cleared, fill, 0);
    if rest.iter().any(|(length, inside)| length != inside) && step > 0 {
        kept.chunks_exact_mut(step).for_each(|part| clear_after(rest, fill, part));
    }
}
