//! The form of what an open file has read: boxes in the array's axes, of which a chunk shape can be derived.
//!
//! Reads that continue each other are joined to runs of the file. A run is cut into boxes, and boxes that are neighbours along one axis are
//! joined, until they have [`UNIT_BYTES`]: a program that reads one row after the other has read a plane. What remains is a count for each
//! shape of box. Uses nothing.
//!
//! Invariant: the memory of a handle is limited, whatever it reads: `MAX_OPEN` boxes and `MAX_KINDS` shapes.

use std::ops::Range;

/// Boxes of this many bytes are not joined any more: a chunk need not be larger.
pub const UNIT_BYTES: u64 = 1 << 20;
/// The most boxes that may still be joined.
const MAX_OPEN: usize = 8;
/// The most shapes that are counted one by one.
pub const MAX_KINDS: usize = 8;
/// Arrays with more axes have no boxes.
pub const MAX_RANK: usize = 8;

/// How often boxes of one shape were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoxKind {
    /// The lengths along the axes of the file, the slowest first.
    pub shape: Vec<u64>,
    /// How many of them there were.
    pub count: u64,
}

/// A box of elements.
type IndexBox = Vec<Range<u64>>;

/// The boxes that were read of one array.
#[derive(Debug)]
pub struct ReadBoxes {
    /// The shape of the array as the file has it.
    shape: Vec<u64>,
    item_bytes: u64,
    /// Runs are cut at multiples of this many bytes: whole rows or planes, as many as fit into a unit.
    step_bytes: u64,
    /// The bytes of the last run, which is not a box yet.
    run: Range<u64>,
    /// The last boxes, which may still grow.
    open: Vec<IndexBox>,
    kinds: Vec<BoxKind>,
    others: u64,
}

fn elements(shape: impl IntoIterator<Item = u64>) -> u64 {
    shape.into_iter().fold(1, u64::saturating_mul)
}

fn volume(found: &IndexBox) -> u64 {
    elements(found.iter().map(|range| range.end - range.start))
}

/// Joins two boxes that differ along one axis at most, if they touch there.
fn join(found: &mut IndexBox, other: &IndexBox) -> bool {
    let mut different = found.iter_mut().zip(other).filter(|(one, other)| **one != **other);
    let Some((one, other)) = different.next() else { return true };
    if different.next().is_some() || other.start > one.end || one.start > other.end {
        return false;
    }
    (one.start, one.end) = (one.start.min(other.start), one.end.max(other.end));
    true
}

impl ReadBoxes {
    /// Creates the boxes of an array with this shape, as its file has it. `None` if it has too many axes, or no elements.
    pub fn new(shape: Vec<u64>, item_bytes: u64) -> Option<Self> {
        if shape.is_empty() || shape.len() > MAX_RANK || shape.contains(&0) || item_bytes == 0 {
            return None;
        }
        let bytes_after =
            |axis: usize| elements(shape.iter().skip(axis + 1).copied()).saturating_mul(item_bytes);
        let step_bytes =
            (0..shape.len()).map(bytes_after).find(|bytes| *bytes <= UNIT_BYTES).unwrap_or(item_bytes);
        let (run, open, kinds) = (0..0, Vec::new(), Vec::new());
        Some(ReadBoxes { shape, item_bytes, step_bytes, run, open, kinds, others: 0 })
    }

    /// Adds bytes of the file that were read.
    pub fn add(&mut self, read: &Range<u64>) {
        if read.is_empty() {
            return;
        }
        if self.run.is_empty() || read.start != self.run.end {
            self.end_run();
            self.run = read.clone();
        } else {
            self.run.end = read.end;
        }
        if self.run.end - self.run.start >= UNIT_BYTES {
            let cut = self.run.end - self.run.end % self.step_bytes;
            if cut > self.run.start {
                self.add_run(self.run.start..cut);
                self.run.start = cut;
            }
        }
    }

    fn end_run(&mut self) {
        let run = std::mem::replace(&mut self.run, 0..0);
        if !run.is_empty() {
            self.add_run(run);
        }
    }

    fn add_run(&mut self, bytes: Range<u64>) {
        let whole = elements(self.shape.iter().copied());
        let run = bytes.start / self.item_bytes..bytes.end.div_ceil(self.item_bytes).min(whole);
        if run.start >= run.end {
            return;
        }
        let mut boxes = Vec::new();
        cut(&self.shape, run, &mut Vec::new(), &mut boxes);
        for found in boxes {
            self.add_box(found);
        }
    }

    fn add_box(&mut self, found: IndexBox) {
        let most = (UNIT_BYTES / self.item_bytes).max(1);
        let mut last = found;
        while let Some(before) = self.open.last_mut()
            && volume(before) < most
            && join(before, &last)
        {
            // It has grown, so it may fit to the one before it.
            match self.open.pop() {
                Some(grown) => last = grown,
                None => break,
            }
        }
        self.open.push(last);
        if self.open.len() > MAX_OPEN {
            let first = self.open.remove(0);
            self.count(&first);
        }
    }

    fn count(&mut self, found: &IndexBox) {
        let shape: Vec<u64> = found.iter().map(|range| range.end - range.start).collect();
        if let Some(kind) = self.kinds.iter_mut().find(|kind| kind.shape == shape) {
            kind.count += 1;
        } else if self.kinds.len() < MAX_KINDS {
            self.kinds.push(BoxKind { shape, count: 1 });
        } else {
            self.others += 1;
        }
    }

    /// Ends all boxes. Returns how often each shape was read, the largest part of the bytes first, and how many boxes of other shapes
    /// there were.
    pub fn finish(&mut self) -> (Vec<BoxKind>, u64) {
        self.end_run();
        for found in std::mem::take(&mut self.open) {
            self.count(&found);
        }
        let mut kinds = self.kinds.clone();
        kinds.sort_by_key(|kind| {
            std::cmp::Reverse(elements(kind.shape.iter().copied()).saturating_mul(kind.count))
        });
        (kinds, self.others)
    }
}

/// Cuts a run of elements into boxes: a part of the first row or plane, the whole ones, and a part of the last. `before` has the indices
/// along the axes before the first one of `shape`.
fn cut(shape: &[u64], run: Range<u64>, before: &mut Vec<u64>, boxes: &mut Vec<IndexBox>) {
    let Some((_, rest)) = shape.split_first() else { return };
    let step = elements(rest.iter().copied());
    let (first, last) = (run.start.div_ceil(step), run.end / step);
    if first > last {
        // It lies within one step.
        before.push(last);
        cut(rest, run.start - last * step..run.end - last * step, before, boxes);
        before.pop();
        return;
    }
    if run.start < first * step {
        before.push(first - 1);
        cut(rest, run.start - (first - 1) * step..step, before, boxes);
        before.pop();
    }
    if first < last {
        let fixed = before.iter().map(|index| *index..index + 1);
        boxes.push(
            fixed.chain(std::iter::once(first..last)).chain(rest.iter().map(|length| 0..*length)).collect(),
        );
    }
    if run.end > last * step {
        before.push(last);
        cut(rest, 0..run.end - last * step, before, boxes);
        before.pop();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)] // Lists of one range.
    use super::*;

    const SHAPE: [u64; 3] = [12, 180, 360];

    /// Returns the shapes that reads of elements amount to, with their counts.
    fn shapes(reads: impl IntoIterator<Item = Range<u64>>) -> Vec<(Vec<u64>, u64)> {
        let mut boxes = ReadBoxes::new(SHAPE.to_vec(), 4).unwrap();
        reads.into_iter().for_each(|read| boxes.add(&(4 * read.start..4 * read.end)));
        let (kinds, others) = boxes.finish();
        assert_eq!(others, 0);
        kinds.into_iter().map(|kind| (kind.shape, kind.count)).collect()
    }

    fn at(t: u64, y: u64, x: u64) -> u64 {
        (t * SHAPE[1] + y) * SHAPE[2] + x
    }

    #[test]
    fn reads_have_a_form() {
        let point = |t| at(t, 7, 9)..at(t, 7, 9) + 1;
        assert_eq!(shapes((0..12).map(point)), [(vec![12, 1, 1], 1)], "a series");
        assert_eq!(shapes([at(3, 0, 0)..at(4, 0, 0)]), [(vec![1, 180, 360], 1)], "a plane");
        let pieces = |t| (at(t, 0, 0)..at(t + 1, 0, 0)).step_by(1000).map(|from| from..from + 1000);
        // 64,800 elements are not a multiple of 1,000, so the last piece is longer than the plane.
        assert_eq!(
            shapes(pieces(3).take(64).chain([at(3, 0, 0) + 64_000..at(4, 0, 0)])),
            [(vec![1, 180, 360], 1)]
        );
        let window = |t: u64| (20..30).map(move |y| at(t, y, 40)..at(t, y, 60));
        assert_eq!(shapes(window(2)), [(vec![1, 10, 20], 1)]);
        assert_eq!(shapes((2..5).flat_map(window)), [(vec![3, 10, 20], 1)]);
        assert_eq!(shapes((0..12).map(point).chain(window(2))), [(vec![1, 10, 20], 1), (vec![12, 1, 1], 1)]);
        assert_eq!(shapes([at(1, 179, 350)..at(2, 1, 10)]), [(vec![1, 1, 360], 1), (vec![1, 1, 10], 2)]);
    }

    #[test]
    fn the_whole_file_is_read_in_units() {
        let all = at(12, 0, 0);
        let reads = (0..all).step_by(1024).map(|from| from..(from + 1024).min(all));
        let found = shapes(reads);
        assert!(found.iter().all(|(shape, _)| shape[1..] == [180, 360]), "{found:?}");
        assert_eq!(found.iter().map(|(shape, count)| shape[0] * count).sum::<u64>(), 12, "{found:?}");
    }

    #[test]
    fn memory_is_limited_whatever_is_read() {
        let mut boxes = ReadBoxes::new(SHAPE.to_vec(), 4).unwrap();
        for number in 0..10_000_u64 {
            let from = 4 * (number * 7919 % at(11, 0, 0));
            boxes.add(&(from..from + 4 * (1 + number % 300)));
            assert!(boxes.open.len() <= MAX_OPEN && boxes.kinds.len() <= MAX_KINDS);
        }
        assert!(boxes.finish().1 > 0);
        assert!(ReadBoxes::new(vec![1; 9], 4).is_none() && ReadBoxes::new(vec![3, 0], 4).is_none());
        assert!(ReadBoxes::new(vec![u64::MAX, u64::MAX], 8).is_some());
    }
}
