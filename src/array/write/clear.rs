//! What is stored outside an array: objects of a longer one, and the parts of chunks after its end.
//!
//! Uses its neighbours in `array`, `store` and `error`. An array that is made longer shows what is stored there, so
//! a command that makes one shorter, or longer, removes it: such elements are fill value.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::array::cache::Content;
use crate::array::geometry::grid::{Axis, each_index, numbers};
use crate::array::geometry::strided_copy::{StridedCopy, fill_items};
use crate::array::{Array, Engine, Inner, Layout};
use crate::error::{Error, Result};
use crate::metadata::ArrayMetadata;
use crate::store::{Precondition, Store};

/// How often the objects are listed again: a folder that loses names while it is listed may hide some.
const MAX_PASSES: usize = 8;

impl Array {
    /// Deletes the objects that have elements only outside `inside`, which the array's document need not know about. `metadata`
    /// is that of an array that has them all. Returns how many there were.
    pub fn delete_outside(
        engine: &Arc<Engine>,
        store: &Arc<dyn Store>,
        path: &str,
        metadata: ArrayMetadata,
        inside: &[u64],
    ) -> Result<u64> {
        let Some(writer) = store.writer() else {
            return Err(Error::ReadOnly(format!("{} does not support writing", store.describe())));
        };
        let array = Array::open(engine, store, path, Arc::new(metadata), Layout::default())?;
        let inner = &array.inner;
        let mut deleted = 0;
        for _ in 0..MAX_PASSES {
            let before = deleted;
            // One key for each folder that lost names.
            let mut folders: BTreeMap<String, String> = BTreeMap::new();
            let mut failure = None;
            let mut found = |object| {
                let index = numbers(inner.source.object_axes(), object);
                let starts =
                    index.iter().zip(inner.source.object_axes()).map(|(&i, axis)| axis.span(i).start);
                if !starts.zip(inside).any(|(start, &end)| start >= end) {
                    return ControlFlow::Continue(());
                }
                let removed = inner.source.keys().key(store.as_ref(), &index).and_then(|key| {
                    let is_removed = writer.delete(&key, Precondition::Any)?;
                    deleted += u64::from(is_removed);
                    let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
                    folders.insert(folder, key);
                    Ok(())
                });
                match removed {
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
            writer.sync(&folders.into_values().collect::<Vec<_>>(), path)?;
            if deleted == before {
                break;
            }
        }
        Ok(deleted)
    }

    /// Makes the elements after the end of the array fill value, in all chunks that are stored. The array must be described by
    /// the document in the store, and no one else may write to it. Durable when this returns. Returns how many chunks changed.
    pub fn clear_padding(
        engine: &Arc<Engine>,
        store: &Arc<dyn Store>,
        path: &str,
        metadata: &ArrayMetadata,
    ) -> Result<u64> {
        let inside = &metadata.shape;
        let array = Array::open(engine, store, path, Arc::new(metadata.clone()), Layout::default())?;
        let ends = array.inner.source.object_axes().iter().map(end_of_last);
        let shape: Vec<u64> = ends.collect();
        if shape == *inside {
            return Ok(0);
        }
        let padded = ArrayMetadata { shape, ..metadata.clone() };
        if padded.flat_size().is_none() {
            let reason = "its chunks end after the largest array";
            return Err(Error::unsupported(&metadata.document_key, reason));
        }
        let array = Array::open(engine, store, path, Arc::new(padded), Layout::default())?;
        array.open_for_writing()?;
        let cleared = Inner::clear(&array.inner, inside);
        let cleared = cleared.and_then(|cleared| array.sync().map(|()| cleared));
        array.close_for_writing();
        cleared
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
    fn clear(inner: &Arc<Inner>, inside: &[u64]) -> Result<u64> {
        let mut objects = Vec::new();
        let mut unlisted = None;
        let mut found = |object| {
            let index = numbers(inner.source.object_axes(), object);
            if !inner.is_inside(inner.source.object_axes(), &index, inside) {
                objects.push(object);
            }
            ControlFlow::Continue(())
        };
        inner.each_stored_object(&mut found, &mut |_, error| unlisted = Some(error.clone()));
        if let Some(error) = unlisted {
            return Err(error);
        }
        let mut cleared = 0;
        for object in objects {
            let mut outcome = Ok(());
            let _ = each_index(inner.grid.axes(), &inner.source.chunk_ranges(object), &mut |chunk| {
                match Inner::clear_chunk(inner, chunk, inside) {
                    Ok(is_cleared) => {
                        cleared += u64::from(is_cleared);
                        outcome = inner.make_room();
                    }
                    Err(error) => outcome = Err(error),
                }
                if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            outcome?;
        }
        Ok(cleared)
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

    /// Makes the parts of one object outside `inside` fill value, in the store.
    pub(in crate::array) fn clear_object(inner: &Arc<Inner>, object: u64, inside: &[u64]) -> Result<()> {
        let mut outcome = Ok(false);
        let _ = each_index(inner.grid.axes(), &inner.source.chunk_ranges(object), &mut |chunk| {
            match (Inner::clear_chunk(inner, chunk, inside), &mut outcome) {
                (Ok(is_cleared), Ok(is_any)) => *is_any |= is_cleared,
                (Err(error), outcome) => *outcome = Err(error),
                (Ok(_), Err(_)) => {}
            }
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if outcome? { inner.store_all() } else { Ok(()) }
    }

    fn is_inside(&self, axes: &[Axis], index: &[u64], inside: &[u64]) -> bool {
        let spans = axes.iter().zip(index).map(|(axis, &i)| axis.span(i));
        spans.zip(inside).all(|(span, &end)| span.start + span.length <= end)
    }

    /// Makes the part of a chunk outside `inside` fill value; returns whether it was not.
    fn clear_chunk(inner: &Arc<Inner>, number: u64, inside: &[u64]) -> Result<bool> {
        let index = inner.grid.index(number);
        if inner.is_inside(inner.grid.axes(), &index, inside) {
            return Ok(false);
        }
        let (Content::Chunk(stored), _) = inner.load_base(&index)? else { return Ok(false) };
        let mut cleared = stored.to_vec();
        let axes: Vec<(u64, u64)> = (inner.grid.axes().iter().zip(&index).zip(inside))
            .map(|((axis, &i), &end)| {
                let span = axis.span(i);
                (span.length, end.saturating_sub(span.start).min(span.length))
            })
            .collect();
        clear_after(&axes, &inner.fill, &mut cleared);
        if cleared == **stored {
            return Ok(false);
        }
        let run = cleared.len();
        let all = StridedCopy { chunk: number, chunk_offset: 0, range_offset: 0, run, loops: &[] };
        Inner::take_copy(inner, &all, &cleared);
        Ok(true)
    }
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
