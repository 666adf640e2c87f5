//! The chunks along one axis, and numbers of chunks over several axes.
//!
//! Spec: v3 core "Chunk grids", v3 "Regular chunk grid". Uses `metadata`; no I/O. An axis is a list of runs of equally
//! long chunks. A regular grid has one run for each axis, a rectilinear grid has several, and one arithmetic covers
//! both.

use std::ops::{ControlFlow, Range};

use crate::metadata::ChunkGrid;

/// Consecutive chunks of equal length on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AxisRun {
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
    runs: Vec<AxisRun>,
}

/// An axis with more chunks than this is only cut evenly.
const MAX_UNEVEN_CHUNKS: u64 = 4096;

/// The position of a chunk on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSpan {
    /// Number of the chunk on the axis.
    pub index: u64,
    /// Its first element.
    pub start: u64,
    /// Its nominal length in elements.
    pub length: u64,
}

impl Axis {
    /// Creates an axis of `extent` elements with chunks given as runs of (length, count). Chunks that begin after the
    /// extent are left out. `None` if the chunks end before the extent.
    pub fn new(extent: u64, lengths: &[(u64, u64)]) -> Option<Axis> {
        let mut runs: Vec<AxisRun> = Vec::new();
        let (mut start, mut count) = (0u64, 0u64);
        for &(length, repeats) in lengths {
            if start >= extent {
                break;
            }
            if length == 0 || repeats == 0 {
                continue;
            }
            let used = repeats.min((extent - start).div_ceil(length));
            runs.push(AxisRun { first: count, start, length });
            count += used;
            start = start.saturating_add(length.saturating_mul(used));
        }
        (start >= extent).then_some(Axis { extent, count, runs })
    }

    /// Returns the same extent, with every chunk cut into parts of `length`, which must divide each chunk.
    pub fn subdivided(&self, length: u64) -> Option<Axis> {
        if self.runs.iter().any(|run| length == 0 || run.length % length != 0) {
            return None;
        }
        if self.runs.is_empty() {
            return Some(self.clone());
        }
        Axis::new(self.extent, &[(length, self.extent.div_ceil(length))])
    }

    /// Returns the same extent, with every chunk cut into parts of at most `length`; the last part of a chunk may be
    /// shorter. If that would need many runs, `length` is rounded down to a divisor of the chunks.
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

    /// Returns how many elements the axis has.
    pub fn extent(&self) -> u64 {
        self.extent
    }

    /// Returns how many chunks the axis has.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the length of the longest chunk, 0 if there is none.
    pub fn longest(&self) -> u64 {
        self.runs.iter().map(|run| run.length).max().unwrap_or(0)
    }

    /// Returns the chunk that holds an element.
    pub fn locate(&self, element: u64) -> ChunkSpan {
        let at = self.runs.partition_point(|run| run.start <= element).saturating_sub(1);
        self.runs.get(at).map_or(ChunkSpan { index: 0, start: 0, length: 0 }, |run| {
            let step = element.saturating_sub(run.start) / run.length;
            ChunkSpan { index: run.first + step, start: run.start + step * run.length, length: run.length }
        })
    }

    /// Returns the chunk with a number.
    pub fn span(&self, index: u64) -> ChunkSpan {
        let at = self.runs.partition_point(|run| run.first <= index).saturating_sub(1);
        self.runs.get(at).map_or(ChunkSpan { index, start: 0, length: 0 }, |run| ChunkSpan {
            index,
            start: run.start + (index - run.first) * run.length,
            length: run.length,
        })
    }

    /// Returns the elements of the chunk with a number that lie on the axis.
    pub fn elements(&self, index: u64) -> Range<u64> {
        let span = self.span(index);
        span.start..span.start.saturating_add(span.length).min(self.extent)
    }

    /// Returns the numbers of the chunks that hold these elements, at least one.
    pub fn chunks_of(&self, elements: &Range<u64>) -> Range<u64> {
        self.locate(elements.start).index..self.locate(elements.end.saturating_sub(1)).index + 1
    }

    /// Returns whether one chunk covers exactly the axis.
    pub fn is_whole(&self) -> bool {
        self.count == 1 && self.longest() == self.extent
    }
}

/// Returns the per-axis numbers of the chunk that has this number in C order over the axes.
pub fn numbers(axes: &[Axis], number: u64) -> Vec<u64> {
    let mut rest = number;
    let mut index = vec![0; axes.len()];
    for (slot, axis) in index.iter_mut().zip(axes).rev() {
        *slot = rest % axis.count().max(1);
        rest /= axis.count().max(1);
    }
    index
}

/// Returns the number, in C order over the axes, of the chunk with these per-axis numbers.
pub fn number_of(axes: &[Axis], index: &[u64]) -> u64 {
    axes.iter().zip(index).fold(0, |number, (axis, &i)| number * axis.count() + i)
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

/// Does the same for the remaining axes; `before` is the number that the axes before them make.
fn each_number(
    axes: &[(&Axis, &Range<u64>)],
    before: u64,
    each: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let Some(((axis, range), rest)) = axes.split_first() else { return each(before) };
    (*range).clone().try_for_each(|number| each_number(rest, before * axis.count() + number, each))
}

/// Returns the axes of an array's chunk grid. `None` if the chunks do not cover the array.
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
