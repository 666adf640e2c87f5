//! The elements that are read: all of a selection, or those of a limited number of chunks. Uses `array`.
//!
//! A selection that touches few chunks is read as it is. For a larger one the store lists its objects: elements that are not stored have
//! the fill value without being read. If too many chunks are left, some of them stand for all: the chunks are divided into equal parts,
//! and one chunk of each part is read.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::ProgressBar;
use parking_lot::Mutex;
use zarrfs::array::{Array, AxisSelection};
use zarrfs::cancellation::Cancellation;
use zarrfs::error::Error;

/// Limits on what is read.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Chunks.
    pub chunks: u64,
    /// Bytes of decoded chunks.
    pub bytes: u64,
    /// Objects that are listed.
    pub objects: usize,
}

impl Limits {
    pub const LOCAL: Limits = Limits { chunks: 16_384, bytes: 512 << 20, objects: 200_000 };
    /// Each chunk costs a request, and a thousand names cost one.
    pub const REMOTE: Limits = Limits { chunks: 256, bytes: 64 << 20, objects: 10_000 };
    pub const NONE: Limits = Limits { chunks: u64::MAX, bytes: u64::MAX, objects: 10_000_000 };
}

/// A selection on each axis.
pub type Region = Vec<AxisSelection>;

/// The chunks of a selection that are read.
pub struct Plan {
    chunk_shape: Vec<u64>,
    /// The parts of the selection that may be stored, and the number of chunks up to the end of each.
    parts: Vec<(Region, u128)>,
    /// How many chunks are read.
    pub read: u64,
    /// Chunks of the selection that may be stored.
    pub chunks: u128,
    /// Elements of the selection.
    pub elements: u128,
    /// Elements of the selection that are not stored, if the store was listed.
    pub missing: u128,
}

impl Plan {
    /// Plans the reading of a selection, in which steps must not be negative.
    pub fn new(array: &Array, selection: &[AxisSelection], limits: Limits) -> Self {
        let plan = Plan::of_parts(array, selection, vec![selection.to_vec()], limits);
        if plan.is_exact() && limits.chunks != u64::MAX {
            return plan;
        }
        let Some(regions) = stored_regions(array, selection, limits.objects) else { return plan };
        let stored: u128 = regions.iter().map(|part| count(part)).sum();
        let plan = Plan::of_parts(array, selection, regions, limits);
        Plan { missing: plan.elements.saturating_sub(stored), ..plan }
    }

    /// Plans the reading of parts of a selection.
    pub fn of_parts(array: &Array, selection: &[AxisSelection], parts: Vec<Region>, limits: Limits) -> Plan {
        let chunk_shape = array.chunk_shape();
        let item = array.metadata().data_type.item_size().unwrap_or(1) as u64;
        let chunk_bytes = chunk_shape.iter().fold(item, |bytes, &length| bytes.saturating_mul(length)).max(1);
        let most = limits.chunks.min((limits.bytes / chunk_bytes).max(1));
        let mut chunks = 0u128;
        let parts: Vec<(Region, u128)> = parts
            .into_iter()
            .map(|part| {
                chunks = chunks.saturating_add(touched(&part, &chunk_shape));
                (part, chunks)
            })
            .collect();
        Plan {
            parts,
            read: u64::try_from(chunks).unwrap_or(u64::MAX).min(most),
            chunks,
            elements: count(selection),
            missing: 0,
            chunk_shape,
        }
    }

    /// Returns whether every element that may be stored is read.
    pub fn is_exact(&self) -> bool {
        u128::from(self.read) == self.chunks
    }

    /// Returns the elements of the chunk that is read in the part with this number.
    fn piece(&self, place: u64) -> Option<Region> {
        let (low, high) = (self.stratum(place), self.stratum(place + 1));
        // Multiples of the golden ratio avoid any period that the chunks may have.
        let offset = if self.is_exact() { 0.0 } else { (place as f64 * 0.618_033_988_749_895).fract() };
        let number = low + ((high - low) as f64 * offset) as u128;
        let number = number.min(high.saturating_sub(1));
        let at = self.parts.partition_point(|(_, end)| *end <= number);
        let before = at.checked_sub(1).and_then(|at| self.parts.get(at)).map_or(0, |(_, end)| *end);
        let (part, _) = self.parts.get(at)?;
        let mut rest = number - before;
        let mut piece = Vec::with_capacity(part.len());
        for (axis, &length) in part.iter().zip(&self.chunk_shape).rev() {
            let of_axis = u128::from(touched_on_axis(axis, length)).max(1);
            piece.push(nth(axis, length, (rest % of_axis) as u64));
            rest /= of_axis;
        }
        piece.reverse();
        Some(piece)
    }

    /// Returns the first chunk of the part with this number. There are as many equal parts as chunks that are read.
    fn stratum(&self, place: u64) -> u128 {
        let (place, read) = (u128::from(place), u128::from(self.read.max(1)));
        self.chunks / read * place + self.chunks % read * place / read
    }

    /// Reads on several threads. Calls `each` with a piece, the number of the first of its elements, and the bytes.
    pub fn read(
        &self,
        array: &Array,
        threads: usize,
        bar: &ProgressBar,
        each: &(dyn Fn(&Region, u64, &[u8]) + Sync),
    ) -> Result<(), Error> {
        let next = AtomicU64::new(0);
        let failed: Mutex<Option<Error>> = Mutex::new(None);
        let item = array.metadata().data_type.item_size().unwrap_or(1).max(1);
        std::thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(|| {
                    while failed.lock().is_none() {
                        let place = next.fetch_add(1, Ordering::Relaxed);
                        let Some(piece) = (place < self.read).then(|| self.piece(place)).flatten() else {
                            return;
                        };
                        let mut first = 0;
                        let outcome = array.read_slice(&piece, &Cancellation::never(), &mut |bytes| {
                            each(&piece, first, bytes);
                            first += (bytes.len() / item) as u64;
                            Ok::<_, Error>(ControlFlow::Continue(()))
                        });
                        if let Err(error) = outcome {
                            failed.lock().get_or_insert(error);
                        }
                        bar.inc(1);
                    }
                });
            }
        });
        failed.into_inner().map_or(Ok(()), Err)
    }
}

/// Returns the stored parts of a selection, in order; `None` if the store cannot list, or if there are more than `most`.
pub fn stored_regions(array: &Array, selection: &[AxisSelection], most: usize) -> Option<Vec<Region>> {
    let mut regions = Vec::new();
    let mut listed = 0;
    let outcome = array.each_stored(&mut |region| {
        listed += 1;
        regions.extend(intersection(selection, &region));
        if listed > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    if outcome.is_err() || listed > most {
        return None;
    }
    regions.sort_by(|a, b| a.iter().map(|axis| axis.start).cmp(b.iter().map(|axis| axis.start)));
    Some(regions)
}

/// Returns the elements of a selection that lie in a region.
pub fn intersection(selection: &[AxisSelection], region: &[Range<u64>]) -> Option<Region> {
    let axis = |(axis, range): (&AxisSelection, &Range<u64>)| {
        let step = axis.step.unsigned_abs().max(1);
        let first = range.start.saturating_sub(axis.start).div_ceil(step);
        let end = range.end.saturating_sub(axis.start).div_ceil(step).min(axis.count);
        (first < end).then(|| AxisSelection {
            start: axis.start + first * step,
            step: axis.step,
            count: end - first,
        })
    };
    selection.iter().zip(region).map(axis).collect()
}

/// Returns the same elements in ascending order.
pub fn ascending(selection: &[AxisSelection]) -> Region {
    let axis = |axis: &AxisSelection| {
        if axis.step >= 0 {
            return *axis;
        }
        let reach = axis.count.saturating_sub(1).saturating_mul(axis.step.unsigned_abs());
        AxisSelection { start: axis.start.saturating_sub(reach), step: axis.step.saturating_neg(), ..*axis }
    };
    selection.iter().map(axis).collect()
}

/// Returns the number of elements of a selection.
pub fn count(selection: &[AxisSelection]) -> u128 {
    selection.iter().fold(1, |count, axis| count.saturating_mul(u128::from(axis.count)))
}

/// Returns the number of chunks that a selection touches.
pub fn touched(selection: &[AxisSelection], chunk_shape: &[u64]) -> u128 {
    let axes = selection.iter().zip(chunk_shape);
    axes.fold(1, |chunks, (axis, &length)| chunks.saturating_mul(u128::from(touched_on_axis(axis, length))))
}

fn touched_on_axis(axis: &AxisSelection, length: u64) -> u64 {
    let (length, step) = (length.max(1), axis.step.unsigned_abs().max(1));
    if axis.count == 0 || step > length {
        return axis.count;
    }
    (axis.start + (axis.count - 1) * step) / length - axis.start / length + 1
}

/// Returns the elements of an axis in the touched chunk with this number.
fn nth(axis: &AxisSelection, length: u64, number: u64) -> AxisSelection {
    let (length, step) = (length.max(1), axis.step.unsigned_abs().max(1));
    if step > length {
        return AxisSelection { start: axis.start + number * step, step: 1, count: 1 };
    }
    let start = (axis.start / length + number) * length;
    let chunk = start..start.saturating_add(length);
    let found = intersection(&[*axis], &[chunk]).and_then(|found| found.first().copied());
    found.unwrap_or(AxisSelection { start: axis.start, step: 1, count: 0 })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn axis(start: u64, step: i64, count: u64) -> AxisSelection {
        AxisSelection { start, step, count }
    }

    #[test]
    fn the_chunks_of_an_axis_have_all_its_elements() {
        for (start, step, count) in [(0, 1, 25), (3, 2, 9), (7, 11, 4), (0, 10, 3), (24, 1, 1), (5, 1, 0)] {
            let axis = axis(start, step, count);
            let chunks = touched_on_axis(&axis, 10);
            let elements: Vec<u64> = (0..chunks)
                .map(|number| nth(&axis, 10, number))
                .flat_map(|piece| (0..piece.count).map(move |i| piece.start + i * piece.step.unsigned_abs()))
                .collect();
            let expected: Vec<u64> = (0..count).map(|i| start + i * step.unsigned_abs()).collect();
            assert_eq!(elements, expected, "{axis:?}");
        }
    }

    #[test]
    fn selections_are_cut() {
        let within = |start, end| intersection(&[axis(3, 4, 5), axis(0, 1, 2)], &[start..end, 0..9]);
        assert_eq!(within(8, 16), Some(vec![axis(11, 4, 2), axis(0, 1, 2)]));
        assert_eq!(within(20, 30), None);
        assert_eq!(ascending(&[axis(9, -2, 4)]), [axis(3, 2, 4)]);
        assert_eq!(touched(&[axis(0, 1, 25), axis(5, 1, 10)], &[10, 10]), 6);
    }

    #[test]
    fn a_sample_has_each_chunk_once_at_most() {
        let parts = vec![(vec![axis(0, 1, 1000)], 100)];
        for read in [1, 7, 99, 100] {
            let plan = Plan {
                chunk_shape: vec![10],
                parts: parts.clone(),
                read,
                chunks: 100,
                elements: 1000,
                missing: 0,
            };
            let mut starts: Vec<u64> = (0..read).map(|place| plan.piece(place).unwrap()[0].start).collect();
            starts.sort_unstable();
            starts.dedup();
            assert_eq!(starts.len() as u64, read);
            assert!(starts.iter().all(|start| start % 10 == 0 && *start < 1000));
        }
    }
}
