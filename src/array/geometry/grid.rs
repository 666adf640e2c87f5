//! Index arithmetic: the chunks that a range of the flat file touches, and where its bytes lie in them.
//!
//! Spec: v3 core "Chunk grids". Uses `axis` and `strided_copy`; no I/O.
//!
//! A range of the flat file is cut into at most `2 × rank - 1` boxes, and a box into one [`StridedCopy`] per chunk:
//! nested loops over byte runs that are contiguous in the file and in the chunk.
//!
//! Invariants: all offsets fit u64, because `product(shape) × item size` fits i64 (`metadata` checks it). A chunk in
//! memory always has its full nominal shape, also at the edge of the array.

use std::cell::Cell;
use std::collections::HashSet;
use std::ops::Range;

use crate::array::geometry::axis::{Axis, ChunkSpan, numbers};
use crate::array::geometry::strided_copy::{CopyLoop, StridedCopy, fill_items};

/// Merged dimensions of the flat file: an axis that one chunk covers exactly is merged into the axis before it.
#[derive(Clone, Debug)]
struct MergedDimension {
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
    dimensions: Vec<MergedDimension>,
}

impl Grid {
    /// Creates a grid over `axes` with items of `item_bytes` (at least 1).
    pub fn new(axes: Vec<Axis>, item_bytes: u64) -> Grid {
        let mut dimensions: Vec<MergedDimension> = Vec::new();
        let mut stride = item_bytes;
        let mut step = item_bytes;
        for (axis, cut) in axes.iter().enumerate().rev() {
            dimensions.push(MergedDimension { axis, file_stride: stride, step });
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

    /// Returns the axes.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Returns the length of the flat file in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.axes.iter().map(Axis::extent).product::<u64>().saturating_mul(self.item_bytes)
    }

    /// Returns the bytes per item.
    pub fn item_bytes(&self) -> u64 {
        self.item_bytes
    }

    /// Returns how many chunks there are.
    pub fn chunks(&self) -> u64 {
        self.axes.iter().map(Axis::count).product()
    }

    /// Returns the per-axis numbers of the chunk with this number in C order.
    pub fn index(&self, chunk: u64) -> Vec<u64> {
        numbers(&self.axes, chunk)
    }

    /// Returns the shape of the largest chunk.
    pub fn largest_chunk_shape(&self) -> Vec<u64> {
        self.axes.iter().map(Axis::longest).collect()
    }

    /// Returns the bytes of the largest chunk.
    pub fn largest_chunk_bytes(&self) -> u64 {
        self.axes.iter().map(Axis::longest).product::<u64>().saturating_mul(self.item_bytes)
    }

    /// Returns the bytes of the chunk with these per-axis numbers, which include those past the edge of the array.
    pub fn chunk_bytes(&self, index: &[u64]) -> usize {
        let lengths = self.axes.iter().zip(index).map(|(axis, &i)| axis.span(i).length);
        lengths.product::<u64>() as usize * self.item_bytes as usize
    }

    /// Returns how many bytes of a chunk lie in the array.
    pub fn inside_bytes(&self, chunk: u64) -> usize {
        let inside = self.axes.iter().zip(self.index(chunk)).map(|(axis, i)| {
            let elements = axis.elements(i);
            elements.end - elements.start
        });
        inside.product::<u64>() as usize * self.item_bytes as usize
    }

    /// Fills the part of a chunk that lies past the edge of the array with `fill`, which is one item.
    pub fn fill_padding(&self, index: &[u64], fill: &[u8], chunk: &mut [u8]) {
        let kept: Vec<KeptElements> = (self.axes.iter().zip(index))
            .map(|(axis, &i)| {
                let span = axis.span(i);
                KeptElements { length: span.length, kept: span.length.min(axis.extent() - span.start) }
            })
            .collect();
        if kept.iter().any(|axis| axis.kept != axis.length) {
            clear_after(&kept, fill, chunk);
        }
    }

    /// Returns the first chunks that a range touches, each once, in the order in which the range needs them; at most
    /// `most`.
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

    /// Returns the chunk that holds a byte of the file.
    pub fn chunk_at(&self, offset: u64) -> Option<u64> {
        self.chunks_of(offset, 1, 1).first().copied()
    }

    /// Returns the chunks with the lowest numbers, from `first` on, that a range touches, in order; at most `most`. The
    /// time depends on `most`, not on how many chunks the range touches.
    pub fn lowest_chunks(&self, offset: u64, length: u64, first: u64, most: usize) -> Vec<u64> {
        let mut chunks: Vec<u64> = Vec::new();
        let end = Cell::new(u64::MAX);
        let _ = self.walk(offset, length, first, &end, &mut |copy: &StridedCopy<'_>| {
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
        self.walk(offset, length, 0, &Cell::new(u64::MAX), visit)
    }

    /// Calls `visit` as [`Grid::for_each_copy`] does, but only for chunks with these numbers. The time depends on how
    /// many these are.
    pub fn for_each_copy_in<E>(
        &self,
        offset: u64,
        length: u64,
        chunks: Range<u64>,
        visit: &mut dyn FnMut(&StridedCopy<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.walk(offset, length, chunks.start, &Cell::new(chunks.end), visit)
    }

    /// Visits the copies of the chunks from number `first` up to the end number, which `visit` may lower.
    fn walk<E>(
        &self,
        offset: u64,
        length: u64,
        first: u64,
        end: &Cell<u64>,
        visit: &mut dyn FnMut(&StridedCopy<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if length == 0 {
            return Ok(());
        }
        CopyWalk::new(self, offset, first, end, visit).range(offset, offset + length)
    }
}

/// Along one axis of a chunk, the elements that are kept when the rest is cleared.
#[derive(Clone, Copy, Debug)]
pub struct KeptElements {
    /// Elements of the chunk.
    pub length: u64,
    /// How many of the first ones are kept.
    pub kept: u64,
}

/// Fills what comes after the kept elements of each axis.
pub fn clear_after(axes: &[KeptElements], fill: &[u8], bytes: &mut [u8]) {
    let Some((axis, rest)) = axes.split_first() else { return };
    let step = bytes.len() / (axis.length.max(1) as usize);
    let (kept, cleared) = bytes.split_at_mut(step * axis.kept as usize);
    fill_items(cleared, fill, 0);
    if rest.iter().any(|axis| axis.kept != axis.length) && step > 0 {
        kept.chunks_exact_mut(step).for_each(|part| clear_after(rest, fill, part));
    }
}

/// One walk over the copies of a range.
struct CopyWalk<'a, E> {
    grid: &'a Grid,
    start: u64,
    /// The numbers of the chunks to visit: from `first` to before `end`.
    first: u64,
    end: &'a Cell<u64>,
    /// For each merged dimension, how many chunks one step of its chunk index skips.
    chunks_below: Vec<u64>,
    /// The box, per merged dimension: in elements of its axis, in the last dimension in bytes.
    low: Vec<u64>,
    high: Vec<u64>,
    /// The current chunk, per axis.
    spans: Vec<ChunkSpan>,
    loops: Vec<CopyLoop>,
    visit: &'a mut dyn FnMut(&StridedCopy<'_>) -> Result<(), E>,
}

impl<'a, E> CopyWalk<'a, E> {
    /// Creates a walk over a range that begins at `start`, for chunks with numbers from `first` to before `end`.
    fn new(
        grid: &'a Grid,
        start: u64,
        first: u64,
        end: &'a Cell<u64>,
        visit: &'a mut dyn FnMut(&StridedCopy<'_>) -> Result<(), E>,
    ) -> Self {
        let chunks_below = |dimension: &MergedDimension| {
            grid.axes.iter().skip(dimension.axis + 1).map(Axis::count).product()
        };
        let dimensions = grid.dimensions.len();
        CopyWalk {
            grid,
            start,
            first,
            end,
            chunks_below: grid.dimensions.iter().map(chunks_below).collect(),
            low: vec![0; dimensions],
            high: vec![0; dimensions],
            // Merged axes have one chunk, which covers them.
            spans: grid.axes.iter().map(|axis| axis.span(0)).collect(),
            loops: Vec::with_capacity(dimensions),
            visit,
        }
    }

    /// Visits the copies of the range `start..end`, which is not empty.
    fn range(&mut self, start: u64, end: u64) -> Result<(), E> {
        self.cut(0, start, end, 0)
    }

    /// Cuts `[from, to)`, relative to a sub-block of dimension `level`, into boxes. `base` is where that sub-block
    /// begins in the file.
    fn cut(&mut self, level: usize, from: u64, to: u64, base: u64) -> Result<(), E> {
        let Some(dimension) = self.grid.dimensions.get(level) else {
            // Rank 0: one item in one chunk.
            if self.first > 0 || self.end.get() == 0 {
                return Ok(());
            }
            let copy = StridedCopy {
                chunk: 0,
                chunk_offset: from as usize,
                range_offset: 0,
                run: (to - from) as usize,
                loops: &[],
            };
            return (self.visit)(&copy);
        };
        if level + 1 == self.grid.dimensions.len() {
            self.low[level] = from;
            self.high[level] = to;
            return self.chunks(0, 0, base + from);
        }
        let stride = dimension.file_stride;
        let (mut first, from_rest) = (from / stride, from % stride);
        let (last, to_rest) = (to / stride, to % stride);
        if first == last {
            self.fix(level, first);
            return self.cut(level + 1, from_rest, to_rest, base + first * stride);
        }
        if from_rest > 0 {
            self.fix(level, first);
            self.cut(level + 1, from_rest, stride, base + first * stride)?;
            first += 1;
        }
        if first < last {
            self.low[level] = first;
            self.high[level] = last;
            self.all_below(level + 1);
            self.chunks(0, 0, base + first * stride)?;
        }
        if to_rest > 0 {
            self.fix(level, last);
            self.cut(level + 1, 0, to_rest, base + last * stride)?;
        }
        Ok(())
    }

    fn fix(&mut self, level: usize, element: u64) {
        self.low[level] = element;
        self.high[level] = element + 1;
    }

    fn all_below(&mut self, level: usize) {
        let last = self.grid.dimensions.len() - 1;
        for (at, dimension) in self.grid.dimensions.iter().enumerate().skip(level) {
            let extent = self.grid.axes[dimension.axis].extent();
            self.low[at] = 0;
            self.high[at] = if at == last { extent * dimension.step } else { extent };
        }
    }

    /// Visits the chunks that the box touches in the order of their numbers, from dimension `level` on. `before` is the
    /// number that the axes before it make; `file_offset` is where the box begins.
    fn chunks(&mut self, level: usize, before: u64, file_offset: u64) -> Result<(), E> {
        let Some(dimension) = self.grid.dimensions.get(level) else {
            return self.copy(before, file_offset);
        };
        let chunk = self.chunk(level);
        let axis = &self.grid.axes[dimension.axis];
        let before = before * axis.count();
        let below = self.chunks_below[level].max(1);
        let mut span = axis.locate(self.low[level] / chunk);
        let first = (self.first / below).saturating_sub(before);
        if first >= axis.count() {
            return Ok(());
        }
        if span.index < first {
            span = axis.span(first);
        }
        while span.start * chunk < self.high[level] && (before + span.index) * below < self.end.get() {
            self.spans[dimension.axis] = span;
            self.chunks(level + 1, before + span.index, file_offset)?;
            if span.index + 1 >= axis.count() {
                break;
            }
            span = axis.span(span.index + 1);
        }
        Ok(())
    }

    /// Returns the units of the box per element of the axis: bytes in the last dimension, elements elsewhere.
    fn chunk(&self, level: usize) -> u64 {
        if level + 1 == self.grid.dimensions.len() { self.grid.dimensions[level].step } else { 1 }
    }

    /// Visits the copy between the current box and the current chunk, which has this number.
    fn copy(&mut self, chunk: u64, box_offset: u64) -> Result<(), E> {
        let grid = self.grid;
        let last = grid.dimensions.len() - 1;
        self.loops.clear();
        let (mut chunk_offset, mut file_offset, mut run) = (0u64, box_offset, 0u64);
        for (level, dimension) in grid.dimensions.iter().enumerate() {
            let span = self.spans[dimension.axis];
            let chunk = self.chunk(level);
            let low = self.low[level].max(span.start * chunk);
            let high = self.high[level].min((span.start + span.length).saturating_mul(chunk));
            let inside = low - span.start * chunk;
            if level == last {
                chunk_offset += inside;
                file_offset += low - self.low[level];
                run = high - low;
            } else {
                let stride = self.chunk_stride(level);
                chunk_offset += inside * stride;
                file_offset += (low - self.low[level]) * dimension.file_stride;
                if high - low > 1 {
                    self.loops.push(CopyLoop {
                        count: (high - low) as usize,
                        chunk_stride: stride as usize,
                        range_stride: dimension.file_stride as usize,
                    });
                }
            }
        }
        let copy = StridedCopy {
            chunk,
            chunk_offset: chunk_offset as usize,
            range_offset: (file_offset - self.start) as usize,
            run: run as usize,
            loops: &self.loops,
        };
        (self.visit)(&copy)
    }

    /// Returns the bytes in the current chunk per element of the dimension's axis.
    fn chunk_stride(&self, level: usize) -> u64 {
        let axis = self.grid.dimensions[level].axis;
        self.spans[axis + 1..].iter().map(|span| span.length).product::<u64>() * self.grid.item_bytes
    }
}
