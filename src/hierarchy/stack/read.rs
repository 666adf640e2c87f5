//! Reading: from selected elements of a part to those of targets.
//!
//! Uses `parts.rs`, `targets.rs`, `means.rs` and `array`. Invariants: a read fills all of its output or fails. What it needs in
//! addition to its output is not longer than the output, and a mean needs at most [`MEAN_BYTES`] at a time, unless one mean is of more.

use std::sync::Arc;

use super::means::MeanInput;
use super::parts::{PartSource, StackPart};
use super::targets::OpenTargets;
use crate::array::{AxisSelection, Blocking, Engine};
use crate::cancellation::Cancellation;
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::metadata::data_type::numeric::NumericType;

/// How many bytes of elements are read for means at a time.
const MEAN_BYTES: u64 = 8 << 20;
/// The most bytes of elements that one mean is made of.
const MAX_MEAN_BYTES: u64 = 1 << 30;

/// How the elements of a virtual array are read.
#[derive(Clone, Copy)]
pub struct StackReader<'a> {
    /// The targets.
    pub targets: &'a OpenTargets,
    /// What opens them.
    pub engine: &'a Arc<Engine>,
    /// The key that errors have.
    pub key: &'a str,
    /// Whether the read may wait.
    pub blocking: Blocking,
    /// Ends the read.
    pub cancellation: &'a Cancellation,
}

/// Selected elements of each axis.
type Selection = Vec<AxisSelection>;

/// A part of an output: `count` elements from `first` on along an axis.
#[derive(Clone, Copy)]
struct OutputShare {
    axis: usize,
    first: u64,
    count: u64,
}

impl StackReader<'_> {
    /// Fills `out` with the bytes from `offset` in the flat file of a part. Returns `false` only if the read must not block and would
    /// have to.
    pub fn read_flat(&self, part: &StackPart, offset: u64, out: &mut [u8]) -> Result<bool> {
        let item = part.item_bytes as u64;
        let end = offset.saturating_add(out.len() as u64);
        let elements = offset / item..end.div_ceil(item);
        let whole_bytes = (elements.end - elements.start).saturating_mul(item);
        if whole_bytes == out.len() as u64 {
            return self.read_elements(part, elements.start, out);
        }
        let mut whole = self.buffer(whole_bytes)?;
        let is_read = self.read_elements(part, elements.start, &mut whole)?;
        let skipped = (offset % item) as usize;
        if let Some(bytes) = whole.get(skipped..skipped + out.len()) {
            out.copy_from_slice(bytes);
        }
        Ok(is_read)
    }

    /// Fills `out` with elements from `first` on, in order C.
    fn read_elements(&self, part: &StackPart, first: u64, out: &mut [u8]) -> Result<bool> {
        let mut at = first;
        let mut rest = out;
        while !rest.is_empty() {
            let left = (rest.len() / part.item_bytes) as u64;
            let (selection, count) = first_box(&part.shape, at, left);
            if count == 0 {
                return Err(Error::InvalidValue(format!("{}: a read past the end", self.key)));
            }
            let (head, tail) = rest.split_at_mut(count as usize * part.item_bytes);
            if !self.read(part, &selection, head)? {
                return Ok(false);
            }
            (at, rest) = (at + count, tail);
        }
        Ok(true)
    }

    /// Fills `out` with selected elements, in order C.
    fn read(&self, part: &StackPart, selection: &[AxisSelection], out: &mut [u8]) -> Result<bool> {
        if out.is_empty() {
            return Ok(true);
        }
        self.cancellation.check(self.key)?;
        match &part.source {
            PartSource::Target(state) => {
                let open = match self.blocking {
                    Blocking::Yes => self.targets.open(state, self.engine, self.key)?,
                    Blocking::No => match self.targets.try_open(state) {
                        Some(open) => open,
                        None => return Ok(false),
                    },
                };
                let is_read = open.read(selection, out, self.blocking, self.cancellation)?;
                if self.blocking == Blocking::Yes {
                    // A chunk that was missing because the array had gone is not fill value.
                    self.targets.check(state, self.key)?;
                }
                Ok(is_read)
            }
            PartSource::Slice { base, axes } => {
                let mut given = selection.iter();
                let one = AxisSelection { start: 0, step: 1, count: 1 };
                let of_base = axes.iter().map(|axis| {
                    let wanted = if axis.is_dropped { Some(&one) } else { given.next() };
                    composed(axis.selection, *wanted.unwrap_or(&one))
                });
                self.read(base, &of_base.collect::<Selection>(), out)
            }
            PartSource::Concat { layers, ends, axis } => {
                let Some(along) = selection.get(*axis).copied() else { return Ok(false) };
                let mut place = 0;
                while place < along.count {
                    let element = along.element(place);
                    let layer = ends.partition_point(|end| *end <= element);
                    let start =
                        layer.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
                    let (Some(of_layer), Some(&end)) = (layers.get(layer), ends.get(layer)) else {
                        return Err(Error::InvalidValue(format!("{}: a read past the end", self.key)));
                    };
                    let step = along.step.unsigned_abs().max(1);
                    let room = if along.step < 0 { element - start } else { end - 1 - element };
                    let count = (room / step + 1).min(along.count - place);
                    let part_of = AxisSelection { start: element - start, step: along.step, count };
                    let mut inner = selection.to_vec();
                    if let Some(slot) = inner.get_mut(*axis) {
                        *slot = part_of;
                    }
                    let share = OutputShare { axis: *axis, first: place, count };
                    let read = |out: &mut [u8]| self.read(of_layer, &inner, out);
                    if !self.read_share(selection, share, part.item_bytes, out, &read)? {
                        return Ok(false);
                    }
                    place += count;
                }
                Ok(true)
            }
            PartSource::Stack { layers, axis } => {
                let Some(along) = selection.get(*axis).copied() else { return Ok(false) };
                let mut inner = selection.to_vec();
                inner.remove(*axis);
                for place in 0..along.count {
                    let layer =
                        usize::try_from(along.element(place)).ok().and_then(|layer| layers.get(layer));
                    let layer = layer
                        .ok_or_else(|| Error::InvalidValue(format!("{}: a read past the end", self.key)))?;
                    let share = OutputShare { axis: *axis, first: place, count: 1 };
                    let read = |out: &mut [u8]| self.read(layer, &inner, out);
                    if !self.read_share(selection, share, part.item_bytes, out, &read)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            PartSource::Convert { base, converter } => {
                let elements = (out.len() / part.item_bytes) as u64;
                let mut of_base = self.buffer(elements * base.item_bytes as u64)?;
                if !self.read(base, selection, &mut of_base)? {
                    return Ok(false);
                }
                converter.convert(&of_base, out).map_err(|error| Error::corrupt(self.key, error.reason))?;
                Ok(true)
            }
            PartSource::Mean { base, factors, numeric } => {
                self.read_means(Means { base, factors, numeric: *numeric }, selection, out)
            }
        }
    }

    /// Has `read` fill a part of an output, in place if it is contiguous there.
    fn read_share(
        &self,
        selection: &[AxisSelection],
        share: OutputShare,
        item_bytes: usize,
        out: &mut [u8],
        read: &dyn Fn(&mut [u8]) -> Result<bool>,
    ) -> Result<bool> {
        let product = |axes: &[AxisSelection]| axes.iter().map(|axis| axis.count as usize).product::<usize>();
        let (before, rest) = selection.split_at(share.axis.min(selection.len()));
        let Some((along, after)) = rest.split_first() else { return Ok(false) };
        let (outer, row) = (product(before), product(after) * item_bytes);
        let (whole, first, length) =
            (along.count as usize * row, share.first as usize * row, share.count as usize * row);
        if outer == 1 {
            return out.get_mut(first..first + length).map_or(Ok(false), read);
        }
        let mut bytes = self.buffer((outer * length) as u64)?;
        if !read(&mut bytes)? {
            return Ok(false);
        }
        for (from, to) in bytes.chunks_exact(length.max(1)).zip(out.chunks_exact_mut(whole.max(1))) {
            if let Some(to) = to.get_mut(first..first + length) {
                to.copy_from_slice(from);
            }
        }
        Ok(true)
    }

    fn read_means(&self, means: Means<'_>, selection: &[AxisSelection], out: &mut [u8]) -> Result<bool> {
        let Means { base, factors, numeric } = means;
        let cells = selection.iter().zip(factors).zip(&base.shape).map(|((wanted, factor), length)| {
            let start = wanted.start.saturating_mul(*factor);
            let end = wanted.start.saturating_add(wanted.count).saturating_mul(*factor).min(*length);
            AxisSelection { start, step: 1, count: end.saturating_sub(start) }
        });
        let cells: Selection = cells.collect();
        let elements = cells.iter().map(|cell| cell.count).try_fold(1_u64, u64::checked_mul);
        let bytes = elements.and_then(|elements| elements.checked_mul(base.item_bytes as u64));
        let is_small = bytes.is_some_and(|bytes| bytes <= MEAN_BYTES);
        // An axis with steps is read element by element, and a long one in halves.
        let stepped = selection.iter().position(|axis| axis.count > 1 && axis.step != 1);
        let long = selection.iter().position(|axis| axis.count > 1).filter(|_| !is_small);
        if let Some(axis) = stepped.or(long) {
            let Some(along) = selection.get(axis).copied() else { return Ok(false) };
            let at_most = if stepped.is_some() { 1 } else { along.count.div_ceil(2) };
            let mut place = 0;
            while place < along.count {
                let count = at_most.min(along.count - place);
                let mut inner = selection.to_vec();
                if let Some(slot) = inner.get_mut(axis) {
                    let step = if count == 1 { 1 } else { along.step };
                    *slot = AxisSelection { start: along.element(place), step, count };
                }
                let share = OutputShare { axis, first: place, count };
                let read = |out: &mut [u8]| self.read_means(means, &inner, out);
                if !self.read_share(selection, share, base.item_bytes, out, &read)? {
                    return Ok(false);
                }
                place += count;
            }
            return Ok(true);
        }
        let Some(bytes) = bytes.filter(|bytes| *bytes <= MAX_MEAN_BYTES) else {
            let reason = format!("one mean is of more than {MAX_MEAN_BYTES} bytes of elements");
            return Err(Error::TooLarge { key: self.key.to_owned(), reason });
        };
        let mut of_base = self.buffer(bytes)?;
        if !self.read(base, &cells, &mut of_base)? {
            return Ok(false);
        }
        let counts: Vec<u64> = cells.iter().map(|cell| cell.count).collect();
        MeanInput { numeric, elements: &of_base, counts: &counts, factors }.means(out);
        Ok(true)
    }

    fn buffer(&self, bytes: u64) -> Result<Buffer> {
        let buffer = usize::try_from(bytes).ok().and_then(Buffer::transient);
        let out_of_memory = || std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        buffer.ok_or_else(|| Error::store(self.key, "read", out_of_memory()))
    }
}

/// The means of boxes of a part.
#[derive(Clone, Copy)]
struct Means<'a> {
    base: &'a StackPart,
    factors: &'a [u64],
    numeric: NumericType,
}

/// Returns the elements `inner` of the elements `outer`.
fn composed(outer: AxisSelection, inner: AxisSelection) -> AxisSelection {
    let step = outer.step.saturating_mul(inner.step);
    AxisSelection { start: outer.element(inner.start), step, count: inner.count }
}

/// Returns the longest box that begins at an element and is contiguous in order C, with at most `left` elements, and how many it has.
fn first_box(shape: &[u64], at: u64, left: u64) -> (Selection, u64) {
    let mut selection: Selection = Vec::with_capacity(shape.len());
    let mut rest = at;
    // The numbers of the element along the axes, from the last one on.
    for &length in shape.iter().rev() {
        let length = length.max(1);
        selection.push(AxisSelection { start: rest % length, step: 1, count: 1 });
        rest /= length;
    }
    let mut count = u64::from(rest == 0).min(left);
    for (axis, &length) in selection.iter_mut().zip(shape.iter().rev()) {
        // The axes after this one are whole.
        let fits = (left / count.max(1)).min(length - axis.start.min(length));
        if fits == 0 {
            break;
        }
        axis.count = fits;
        count *= fits;
        if axis.start != 0 || fits != length {
            break;
        }
    }
    selection.reverse();
    (selection, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Boxes that follow each other cover a range, and are few.
    #[test]
    fn boxes_of_ranges() {
        for shape in [vec![3, 4, 5], vec![7], vec![1, 1, 6], vec![2, 3, 1, 4]] {
            let total: u64 = shape.iter().product();
            for first in 0..total {
                for end in first..=total {
                    let (mut at, mut boxes) = (first, 0);
                    while at < end {
                        let (selection, count) = first_box(&shape, at, end - at);
                        let elements: u64 = selection.iter().map(|axis| axis.count).product();
                        assert!(count > 0 && elements == count, "{shape:?} {first}..{end} at {at}");
                        let mut number = 0;
                        for (axis, length) in selection.iter().zip(&shape) {
                            assert!(axis.is_inside(*length));
                            number = number * length + axis.start;
                        }
                        assert_eq!(number, at);
                        (at, boxes) = (at + count, boxes + 1);
                    }
                    assert!(boxes < 2 * shape.len(), "{shape:?} {first}..{end}: {boxes} boxes");
                }
            }
        }
        assert_eq!(first_box(&[], 0, 1), (vec![], 1));
        assert_eq!(first_box(&[2], 2, 1).1, 0);
    }
}
