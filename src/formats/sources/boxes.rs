//! Boxes of a variable's elements: in which order they are read, and where they go in an array's file.
//!
//! Uses its neighbours.

use std::ops::Range;

use super::variable::{SourceVariable, refused};
use crate::error::Result;

/// The most bytes of a box. A file says how large its chunks are, and a box has at least one of them.
const MAX_BOX_BYTES: u64 = 1 << 30;

/// A box of elements: the first index and the count on each axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementBox {
    /// The first index on each axis.
    pub start: Vec<u64>,
    /// The count on each axis.
    pub count: Vec<u64>,
}

impl ElementBox {
    /// Returns the box with indices that count from an origin.
    pub fn relative_to(&self, origin: &[u64]) -> ElementBox {
        let start = self.start.iter().zip(origin).map(|(start, origin)| start - origin).collect();
        ElementBox { start, count: self.count.clone() }
    }

    /// Returns the bytes of the elements of the box, of `item_bytes` each.
    pub fn bytes(&self, item_bytes: u64) -> u64 {
        self.count.iter().fold(item_bytes, |bytes, &count| bytes.saturating_mul(count))
    }

    /// Fails if the elements of the box, of `item_bytes` each, would take too much memory. `path` is the variable's in the file `name`.
    pub fn check_size(&self, item_bytes: u64, path: &str, name: &str) -> Result<()> {
        let bytes = self.bytes(item_bytes);
        if bytes <= MAX_BOX_BYTES {
            return Ok(());
        }
        let reason = format!("'/{path}': a chunk of {bytes} bytes is longer than {MAX_BOX_BYTES} bytes");
        Err(refused(name, reason))
    }
}

/// Returns boxes that cover a variable once, in order. Each has at most `limit_bytes`, unless one chunk of the file has more: boxes end
/// where chunks do, so that each chunk is decoded once.
pub fn parts(variable: &SourceVariable, limit_bytes: u64) -> impl Iterator<Item = ElementBox> + use<> {
    let shape = variable.shape.clone();
    let mut size = variable.chunks.clone().unwrap_or_else(|| vec![1; shape.len()]);
    size.resize(shape.len(), 1);
    let mut bytes = variable.item_bytes();
    for (size, &length) in size.iter_mut().zip(&shape) {
        *size = (*size).clamp(1, length.max(1));
        bytes = bytes.saturating_mul(*size);
    }
    // Grows from the fastest axis on, by whole chunks.
    for (size, &length) in size.iter_mut().zip(&shape).rev() {
        let step = *size;
        let chunks = (limit_bytes / bytes.max(1)).clamp(1, length.div_ceil(step).max(1));
        *size = step.saturating_mul(chunks).min(length.max(1));
        bytes = (bytes / step).saturating_mul(*size);
        if *size < length {
            break;
        }
    }
    let is_empty = shape.contains(&0);
    let mut next = (!is_empty).then(|| vec![0; shape.len()]);
    std::iter::from_fn(move || {
        let start = next.take()?;
        let ends = start.iter().zip(&size).zip(&shape);
        let count = ends.map(|((&start, &size), &length)| size.min(length - start)).collect();
        let mut after = start.clone();
        for ((index, &size), &length) in after.iter_mut().zip(&size).zip(&shape).rev() {
            *index += size;
            if *index < length {
                next = Some(after);
                break;
            }
            *index = 0;
        }
        Some(ElementBox { start, count })
    })
}

/// The place of a variable's elements in the flat file of an array.
pub struct Destination {
    item_bytes: u64,
    /// Bytes from one index to the next on each axis of the array.
    strides: Vec<u64>,
    shape: Vec<u64>,
    origin: Vec<u64>,
}

impl Destination {
    /// Places a variable in an array of a shape, from `origin` on.
    pub fn new(variable: &SourceVariable, shape: &[u64], origin: &[u64]) -> Self {
        Destination::for_items(variable.item_bytes(), shape, origin)
    }

    /// Places elements of `item_bytes` each in an array of a shape, from `origin` on.
    pub fn for_items(item_bytes: u64, shape: &[u64], origin: &[u64]) -> Self {
        let mut strides = vec![item_bytes; shape.len()];
        let mut stride = item_bytes;
        for (place, &length) in strides.iter_mut().zip(shape).rev() {
            *place = stride;
            stride = stride.saturating_mul(length);
        }
        Destination { item_bytes, strides, shape: shape.to_vec(), origin: origin.to_vec() }
    }

    /// Calls `write` with the offset and the bytes of each run of a box.
    pub fn write(
        &self,
        part: &ElementBox,
        bytes: &[u8],
        write: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.each_run(part, &mut |offset, run| write(offset, bytes.get(run).unwrap_or_default()))
    }

    /// Calls `found` for each run of a box: its offset in the file, and its range in the bytes of the box.
    pub fn each_run(
        &self,
        part: &ElementBox,
        found: &mut dyn FnMut(u64, Range<usize>) -> Result<()>,
    ) -> Result<()> {
        // Axes that the box covers in full join the run of the axis before them.
        let mut run_bytes = self.item_bytes;
        let mut outer = 0;
        for (axis, (&count, &length)) in part.count.iter().zip(&self.shape).enumerate().rev() {
            run_bytes = run_bytes.saturating_mul(count);
            outer = axis;
            if count != length {
                break;
            }
        }
        let run = usize::try_from(run_bytes).unwrap_or(usize::MAX);
        let runs = part.count.iter().take(outer).fold(1u64, |runs, &count| runs.saturating_mul(count));
        let place = |list: &[u64], axis: usize| list.get(axis).copied().unwrap_or(0);
        let mut index = vec![0; outer];
        let mut start = 0usize;
        for _ in 0..if run == 0 { 0 } else { runs } {
            let mut offset = 0;
            for (axis, stride) in self.strides.iter().enumerate() {
                offset +=
                    (place(&self.origin, axis) + place(&part.start, axis) + place(&index, axis)) * stride;
            }
            let end = start.saturating_add(run);
            found(offset, start..end)?;
            start = end;
            for (index, &count) in index.iter_mut().zip(&part.count).rev() {
                *index += 1;
                if *index < count {
                    break;
                }
                *index = 0;
            }
        }
        Ok(())
    }
}
