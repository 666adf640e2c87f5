//! The form of what an open file has read: boxes in the array's axes, from which a chunk shape can be derived.
//!
//! Reads that continue each other are joined to runs of the file. A run is cut into boxes, and boxes that are neighbours along one axis are
//! joined, until they have [`UNIT_BYTES`]: a program that reads one row after the other has read a plane. What remains is a count for each
//! shape of box. Uses nothing.
//!
//! Invariants: the memory of a handle is limited, whatever it reads: `MAX_OPEN` boxes and `MAX_KINDS` shapes. A read of a shape that was read
//! before allocates nothing: the session thread records it before the reply.

use std::collections::VecDeque;
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
    /// How many boxes have it.
    pub count: u64,
}

/// A number for each axis of the file, the slowest first.
type PerAxis = [u64; MAX_RANK];

/// A box of elements. Along the axes that the array does not have it is one element long.
#[derive(Clone, Copy, Debug)]
struct IndexBox {
    starts: PerAxis,
    lengths: PerAxis,
}

impl IndexBox {
    fn volume(&self) -> u64 {
        elements(&self.lengths)
    }

    /// Returns the axis along which another box touches this one and alone differs from it.
    fn axis_to_join(&self, other: &IndexBox) -> Option<usize> {
        let differs = |&axis: &usize| {
            self.starts[axis] != other.starts[axis] || self.lengths[axis] != other.lengths[axis]
        };
        let mut different = (0..MAX_RANK).filter(differs);
        // A box that does not differ at all touches itself along any axis.
        let axis = different.next().unwrap_or(0);
        let touches = other.starts[axis] <= self.end(axis) && self.starts[axis] <= other.end(axis);
        (different.next().is_none() && touches).then_some(axis)
    }

    fn end(&self, axis: usize) -> u64 {
        self.starts[axis] + self.lengths[axis]
    }

    /// Extends the box along an axis by another one that touches it there.
    fn extend(&mut self, axis: usize, other: &IndexBox) {
        let end = self.end(axis).max(other.end(axis));
        self.starts[axis] = self.starts[axis].min(other.starts[axis]);
        self.lengths[axis] = end - self.starts[axis];
    }
}

/// The shape of an array as its file has it.
#[derive(Debug)]
struct FileShape {
    rank: usize,
    lengths: PerAxis,
    /// How many elements an index along each axis has.
    steps: PerAxis,
    /// How many elements there are.
    elements: u64,
}

impl FileShape {
    fn new(shape: &[u64]) -> Self {
        let (mut lengths, mut steps) = ([1; MAX_RANK], [1; MAX_RANK]);
        for (axis, &length) in shape.iter().enumerate().take(MAX_RANK) {
            lengths[axis] = length;
            steps[axis] = elements(shape.get(axis + 1..).unwrap_or_default());
        }
        FileShape { rank: shape.len().min(MAX_RANK), lengths, steps, elements: elements(shape) }
    }

    /// Cuts a run of elements into boxes: a part of the first row or plane, the whole ones, and a part of the last.
    fn cut(&self, run: Range<u64>, put: &mut dyn FnMut(&IndexBox)) {
        self.cut_from(0, run, &mut IndexBox { starts: [0; MAX_RANK], lengths: [1; MAX_RANK] }, put);
    }

    /// The same for the axes from `axis` on. `found` has the indices along the axes before; what it has along the others afterwards is
    /// not defined.
    fn cut_from(
        &self,
        mut axis: usize,
        mut run: Range<u64>,
        found: &mut IndexBox,
        put: &mut dyn FnMut(&IndexBox),
    ) {
        // Most runs lie within one row, or one plane.
        while axis < self.rank {
            let step = self.steps[axis];
            let index = run.start / step;
            let start = index * step;
            let is_whole = run.start == start && run.end - start == step;
            if run.end - start > step || is_whole {
                break;
            }
            found.starts[axis] = index;
            run = run.start - start..run.end - start;
            axis += 1;
        }
        if axis == self.rank {
            return;
        }
        let step = self.steps[axis];
        let (first, last) = (run.start.div_ceil(step), run.end / step);
        if run.start < first * step {
            let mut part = *found;
            part.starts[axis] = first - 1;
            self.cut_from(axis + 1, run.start - (first - 1) * step..step, &mut part, put);
        }
        if run.end > last * step {
            let mut part = *found;
            part.starts[axis] = last;
            self.put_whole(axis, first..last, found, put);
            self.cut_from(axis + 1, 0..run.end - last * step, &mut part, put);
        } else {
            self.put_whole(axis, first..last, found, put);
        }
    }

    /// Puts a box of whole rows, or planes.
    fn put_whole(
        &self,
        axis: usize,
        indices: Range<u64>,
        found: &mut IndexBox,
        put: &mut dyn FnMut(&IndexBox),
    ) {
        if indices.start < indices.end {
            (found.starts[axis], found.lengths[axis]) = (indices.start, indices.end - indices.start);
            found.lengths[axis + 1..].copy_from_slice(&self.lengths[axis + 1..]);
            put(found);
        }
    }
}

/// The boxes that were read of one array.
#[derive(Debug)]
pub struct ReadBoxes {
    shape: FileShape,
    item_bytes: u64,
    /// Runs are cut at multiples of this many bytes: whole rows or planes, as many as fit into a unit.
    step_bytes: u64,
    /// The bytes of the last run, which is not a box yet.
    run: Range<u64>,
    counts: BoxCounts,
}

/// The boxes, and how often each shape was read.
#[derive(Debug)]
struct BoxCounts {
    rank: usize,
    /// Boxes of this many elements are not joined any more.
    unit_elements: u64,
    /// The last boxes, which may still grow.
    open: VecDeque<IndexBox>,
    kinds: Vec<BoxKind>,
    others: u64,
}

fn elements(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |product, &length| product.saturating_mul(length))
}

impl ReadBoxes {
    /// Creates the boxes of an array with this shape, as its file has it. `None` if it has too many axes, or no elements.
    pub fn new(shape: &[u64], item_bytes: u64) -> Option<Self> {
        if shape.is_empty() || shape.len() > MAX_RANK || shape.contains(&0) || item_bytes == 0 {
            return None;
        }
        let bytes_after = |axis: usize| elements(&shape[axis + 1..]).saturating_mul(item_bytes);
        let step_bytes =
            (0..shape.len()).map(bytes_after).find(|bytes| *bytes <= UNIT_BYTES).unwrap_or(item_bytes);
        let counts = BoxCounts {
            rank: shape.len(),
            unit_elements: (UNIT_BYTES / item_bytes).max(1),
            open: VecDeque::with_capacity(MAX_OPEN),
            kinds: Vec::new(),
            others: 0,
        };
        Some(ReadBoxes { shape: FileShape::new(shape), item_bytes, step_bytes, run: 0..0, counts })
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
        let run = bytes.start / self.item_bytes..bytes.end.div_ceil(self.item_bytes).min(self.shape.elements);
        if run.start < run.end {
            let counts = &mut self.counts;
            self.shape.cut(run, &mut |found| counts.add(found));
        }
    }

    /// Ends all boxes. Returns how often each shape was read, the largest part of the bytes first, and how many boxes of other shapes
    /// there were.
    pub fn finish(&mut self) -> (Vec<BoxKind>, u64) {
        self.end_run();
        self.counts.finish()
    }
}

impl BoxCounts {
    fn add(&mut self, found: &IndexBox) {
        if let Some(before) = self.open.back_mut()
            && let Some(axis) = before.axis_to_join(found)
            && before.volume() < self.unit_elements
        {
            before.extend(axis, found);
            self.join_last();
            return;
        }
        if self.open.len() >= MAX_OPEN
            && let Some(first) = self.open.pop_front()
        {
            self.count(&first);
        }
        self.open.push_back(*found);
    }

    /// Joins the last box, which has grown, with those before it that it fits to now.
    fn join_last(&mut self) {
        while let Some(last) = self.open.pop_back() {
            match self.open.back_mut().and_then(|before| Some((before.axis_to_join(&last)?, before))) {
                Some((axis, before)) if before.volume() < self.unit_elements => before.extend(axis, &last),
                _ => {
                    self.open.push_back(last);
                    return;
                }
            }
        }
    }

    fn count(&mut self, found: &IndexBox) {
        let shape = &found.lengths[..self.rank];
        if let Some(kind) = self.kinds.iter_mut().find(|kind| kind.shape == shape) {
            kind.count += 1;
        } else if self.kinds.len() < MAX_KINDS {
            self.kinds.push(BoxKind { shape: shape.to_vec(), count: 1 });
        } else {
            self.others += 1;
        }
    }

    fn finish(&mut self) -> (Vec<BoxKind>, u64) {
        while let Some(first) = self.open.pop_front() {
            self.count(&first);
        }
        let mut kinds = self.kinds.clone();
        kinds.sort_by_key(|kind| std::cmp::Reverse(elements(&kind.shape).saturating_mul(kind.count)));
        (kinds, self.others)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)] // Lists of one range.
    use super::*;

    const SHAPE: [u64; 3] = [12, 180, 360];

    /// Returns the shapes that reads of elements amount to, with their counts.
    fn shapes(reads: impl IntoIterator<Item = Range<u64>>) -> Vec<(Vec<u64>, u64)> {
        let mut boxes = ReadBoxes::new(&SHAPE, 4).unwrap();
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
        let mut boxes = ReadBoxes::new(&SHAPE, 4).unwrap();
        for number in 0..10_000_u64 {
            let from = 4 * (number * 7919 % at(11, 0, 0));
            boxes.add(&(from..from + 4 * (1 + number % 300)));
            assert!(boxes.counts.open.len() <= MAX_OPEN && boxes.counts.kinds.len() <= MAX_KINDS);
        }
        assert!(boxes.finish().1 > 0);
        assert!(ReadBoxes::new(&[1; 9], 4).is_none() && ReadBoxes::new(&[3, 0], 4).is_none());
        assert!(ReadBoxes::new(&[u64::MAX, u64::MAX], 8).is_some());
    }
}
