//! Index arithmetic: the chunks that a range of the flat file touches, and where its bytes lie in them.
//!
//! Spec: v3 core "Chunk grids", v3 "Regular chunk grid". Uses `error`, `metadata` and `strided_copy`; no I/O.
//!
//! An axis is a list of runs of equally long chunks. A regular grid has one run per axis, a rectilinear grid has
//! several, and one arithmetic covers both. A range of the flat file is cut into at most `2 × rank - 1` boxes, and a
//! box into one [`StridedCopy`] per chunk: nested loops over byte runs that are contiguous in the file and in the
//! chunk.
//!
//! Invariants: all offsets fit u64, because `product(shape) × item size` fits i64 (`metadata` checks it). A chunk in
//! memory always has its full nominal shape, also at the edge of the array.

use std::cell::Cell;
use std::collections::HashSet;
use std::ops::{ControlFlow, Range};

use crate::array::geometry::strided_copy::StridedCopy;
use crate::metadata::ChunkGrid;
use walk::Walk;

mod walk;

/// Consecutive chunks of equal length on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Number of the first chunk.
    first: u64,
    /// First element of the first chunk.
    start: u64,
    /// Length of each chunk in elements, at least 1.
    length: u64,
}

/// One axis of a grid: its extent, and its chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    extent: u64,
    count: u64,
    runs: Vec<Run>,
}

/// An axis with more chunks is only cut evenly.
const MAX_UNEVEN_CHUNKS: u64 = 4096;

/// The position of a chunk on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Number of the chunk on the axis.
    pub index: u64,
    /// Its first element.
    pub start: u64,
    /// Its nominal length in elements.
    pub length: u64,
}

impl Axis {
    /// An axis of `extent` elements with chunks given as runs of (length, count). Chunks that begin after the extent
    /// are left out. `None` if the chunks end before the extent.
    pub fn new(extent: u64, lengths: &[(u64, u64)]) -> Option<Axis> {
        let mut runs: Vec<Run> = Vec::new();
        let (mut start, mut count) = (0u64, 0u64);
        for &(length, repeats) in lengths {
            if start >= extent {
                break;
            }
            if length == 0 || repeats == 0 {
                continue;
            }
            let used = repeats.min((extent - start).div_ceil(length));
            runs.push(Run { first: count, start, length });
            count += used;
            start = start.saturating_add(length.saturating_mul(used));
        }
        (start >= extent).then_some(Axis { extent, count, runs })
    }

    /// The same extent, with every chunk cut into parts of `length`, which must divide each chunk.
    pub fn subdivided(&self, length: u64) -> Option<Axis> {
        if self.runs.iter().any(|run| length == 0 || run.length % length != 0) {
            return None;
        }
        if self.runs.is_empty() {
            return Some(self.clone());
        }
        Axis::new(self.extent, &[(length, self.extent.div_ceil(length))])
    }

    /// The same extent, with every chunk cut into parts of at most `length`; the last part of a chunk may be shorter.
    /// If that would need many runs, `length` is rounded down to a divisor of the chunks.
    pub fn cut(&self, length: u64) -> Axis {
        let length = length.max(1);
        let is_even = self.runs.iter().all(|run| run.length.is_multiple_of(length));
        if !is_even && self.count > MAX_UNEVEN_CHUNKS {
            let divides = |n: &u64| self.runs.iter().all(|run| run.length.is_multiple_of(*n));
            return self.cut((1..=length.min(self.longest())).rev().find(divides).unwrap_or(1));
        }
        let mut lengths = Vec::new();
        for (at, run) in self.runs.iter().enumerate() {
            let chunks = self.runs.get(at + 1).map_or(self.count, |next| next.first) - run.first;
            match (run.length / length, run.length % length) {
                (copies, 0) => lengths.push((length, copies * chunks)),
                (copies, rest) => (0..chunks).for_each(|_| lengths.extend([(length, copies), (rest, 1)])),
            }
        }
        Axis::new(self.extent, &lengths).unwrap_or_else(|| self.clone())
    }

    /// Elements on the axis.
    pub fn extent(&self) -> u64 {
        self.extent
    }

    /// Chunks on the axis.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The length of the longest chunk, 0 if there is none.
    pub fn longest(&self) -> u64 {
        self.runs.iter().map(|run| run.length).max().unwrap_or(0)
    }

    /// The chunk that holds an element.
    pub fn locate(&self, element: u64) -> Span {
        let at = self.runs.partition_point(|run| run.start <= element).saturating_sub(1);
        self.runs.get(at).map_or(Span { index: 0, start: 0, length: 0 }, |run| {
            let step = element.saturating_sub(run.start) / run.length;
            Span { index: run.first + step, start: run.start + step * run.length, length: run.length }
        })
    }

    /// The chunk with a number.
    pub fn span(&self, index: u64) -> Span {
        let at = self.runs.partition_point(|run| run.first <= index).saturating_sub(1);
        self.runs.get(at).map_or(Span { index, start: 0, length: 0 }, |run| Span {
            index,
            start: run.start + (index - run.first) * run.length,
            length: run.length,
        })
    }

    /// Whether one chunk covers exactly the axis.
    fn is_whole(&self) -> bool {
        self.count == 1 && self.longest() == self.extent
    }
}

/// Per-axis numbers of the chunk that has this number in C order over the axes.
pub fn numbers(axes: &[Axis], number: u64) -> Vec<u64> {
    let mut rest = number;
    let mut index = vec![0; axes.len()];
    for (slot, axis) in index.iter_mut().zip(axes).rev() {
        *slot = rest % axis.count().max(1);
        rest /= axis.count().max(1);
    }
    index
}

/// Calls `each` with the numbers of the chunks in these per-axis ranges, until it breaks.
pub fn each_index(
    axes: &[Axis],
    ranges: &[Range<u64>],
    each: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let axes: Vec<(&Axis, &Range<u64>)> = axes.iter().zip(ranges).collect();
    each_number(&axes, 0, each)
}

/// [`each_index`] over the remaining axes; `before` is the number that the axes before them make.
fn each_number(
    axes: &[(&Axis, &Range<u64>)],
    before: u64,
    each: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let Some(((axis, range), rest)) = axes.split_first() else { return each(before) };
    (*range).clone().try_for_each(|number| each_number(rest, before * axis.count() + number, each))
}

/// The axes of an array's chunk grid. `None` if the chunks do not cover the array.
pub fn axes(shape: &[u64], grid: &ChunkGrid) -> Option<Vec<Axis>> {
    match grid {
        ChunkGrid::Regular(chunk) => shape
            .iter()
            .zip(chunk)
            .map(|(&extent, &length)| Axis::new(extent, &[(length, u64::MAX)]))
            .collect(),
        ChunkGrid::Rectilinear(lengths) => {
            shape.iter().zip(lengths).map(|(&extent, runs)| Axis::new(extent, runs)).collect()
        }
    }
}

/// Merged dimensions of the flat file: an axis that one chunk covers exactly is merged into the axis before it.
#[derive(Clone, Debug)]
struct Dimension {
    /// The axis that has several chunks.
    axis: usize,
    /// Bytes of the file per step of that axis.
    file_stride: u64,
    /// Bytes per step that are contiguous in the file and in the chunk.
    step: u64,
}

/// A grid over an array of items, in served (C) order.
#[derive(Clone, Debug)]
pub struct Grid {
    axes: Vec<Axis>,
    item_bytes: u64,
    dimensions: Vec<Dimension>,
}

impl Grid {
    /// A grid over `axes` with items of `item_bytes` (at least 1).
    pub fn new(axes: Vec<Axis>, item_bytes: u64) -> Grid {
        let mut dimensions: Vec<Dimension> = Vec::new();
        let mut stride = item_bytes;
        let mut step = item_bytes;
        for (axis, cut) in axes.iter().enumerate().rev() {
            dimensions.push(Dimension { axis, file_stride: stride, step });
            stride = stride.saturating_mul(cut.extent());
            if cut.is_whole() && dimensions.len() == 1 && axis > 0 {
                // The whole axis is one contiguous step of the axis before it.
                step = stride;
                dimensions.clear();
            }
        }
        dimensions.reverse();
        Grid { axes, item_bytes, dimensions }
    }

    /// The axes.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Length of the flat file in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.axes.iter().map(Axis::extent).product::<u64>().saturating_mul(self.item_bytes)
    }

    /// Bytes per item.
    pub fn item_bytes(&self) -> u64 {
        self.item_bytes
    }

    /// Number of chunks.
    pub fn chunks(&self) -> u64 {
        self.axes.iter().map(Axis::count).product()
    }

    /// Per-axis numbers of the chunk with this number in C order.
    pub fn index(&self, chunk: u64) -> Vec<u64> {
        numbers(&self.axes, chunk)
    }

    /// Shape of the largest chunk.
    pub fn largest_chunk_shape(&self) -> Vec<u64> {
        self.axes.iter().map(Axis::longest).collect()
    }

    /// The first chunks that a range touches, each once, in the order in which the range needs them; at most `most`.
    pub fn chunks_of(&self, offset: u64, length: u64, most: usize) -> Vec<u64> {
        let mut chunks: Vec<u64> = Vec::new();
        let mut seen = HashSet::new();
        let _ = self.for_each_copy(offset, length, &mut |copy: &StridedCopy<'_>| {
            if chunks.len() == most {
                return Err(());
            }
            if chunks.last() != Some(&copy.chunk) && seen.insert(copy.chunk) {
                chunks.push(copy.chunk);
            }
            Ok(())
        });
        chunks
    }

    /// The chunk that holds a byte of the file.
    pub fn chunk_at(&self, offset: u64) -> Option<u64> {
        self.chunks_of(offset, 1, 1).first().copied()
    }

    /// The chunks with the lowest numbers, from `first` on, that a range touches, in order; at most `most`. The time
    /// depends on `most`, not on how many chunks the range touches.
    pub fn lowest_chunks(&self, offset: u64, length: u64, first: u64, most: usize) -> Vec<u64> {
        let mut chunks: Vec<u64> = Vec::new();
        let end = Cell::new(u64::MAX);
        let _ = self.walk(offset, length, (first, &end), &mut |copy: &StridedCopy<'_>| {
            // Each box visits its chunks in order. Boxes may have chunks in common.
            if chunks.last().is_none_or(|&last| last < copy.chunk) {
                chunks.push(copy.chunk);
            } else if let Err(at) = chunks.binary_search(&copy.chunk) {
                chunks.insert(at, copy.chunk);
            }
            chunks.truncate(most);
            if chunks.len() == most {
                end.set(chunks.last().map_or(first, |last| last + 1));
            }
            Ok::<(), ()>(())
        });
        chunks
    }

    /// Calls `visit` for each copy of the file's bytes `[offset, offset + length)`, which must lie in the file, until
    /// it fails.
    pub fn for_each_copy<E>(
        &self,
        offset: u64,
        length: u64,
        visit: &mut dyn FnMut(&StridedCopy<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.walk(offset, length, (0, &Cell::new(u64::MAX)), visit)
    }

    /// Like [`Grid::for_each_copy`], but only for chunks with these numbers. The time depends on how many these are.
    pub fn for_each_copy_in<E>(
        &self,
        offset: u64,
        length: u64,
        chunks: Range<u64>,
        visit: &mut dyn FnMut(&StridedCopy<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.walk(offset, length, (chunks.start, &Cell::new(chunks.end)), visit)
    }

    /// Visits the copies of the chunks from number `first` up to the end number, which `visit` may lower.
    fn walk<E>(
        &self,
        offset: u64,
        length: u64,
        (first, end): (u64, &Cell<u64>),
        visit: &mut dyn FnMut(&StridedCopy<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if length == 0 {
            return Ok(());
        }
        Walk::new(self, offset, (first, end), visit).range(offset, offset + length)
    }
}
