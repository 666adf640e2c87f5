//! Walks over the copies of a range of the flat file: cuts the range into boxes, and a box into one copy per chunk.
//!
//! Uses `grid.rs`, of which it is a part, and `strided_copy.rs`.

use std::cell::Cell;

use crate::array::geometry::grid::{Axis, Dimension, Grid, Span};
use crate::array::geometry::strided_copy::{Loop, StridedCopy};

/// One walk over the copies of a range.
pub(in crate::array) struct Walk<'a, E> {
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
    spans: Vec<Span>,
    loops: Vec<Loop>,
    visit: &'a mut dyn FnMut(&StridedCopy<'_>) -> Result<(), E>,
}

impl<'a, E> Walk<'a, E> {
    /// A walk over a range that begins at `start`, for chunks with numbers from `first` to before `end`.
    pub(in crate::array) fn new(
        grid: &'a Grid,
        start: u64,
        (first, end): (u64, &'a Cell<u64>),
        visit: &'a mut dyn FnMut(&StridedCopy<'_>) -> Result<(), E>,
    ) -> Self {
        let chunks_below =
            |dimension: &Dimension| grid.axes.iter().skip(dimension.axis + 1).map(Axis::count).product();
        let dimensions = grid.dimensions.len();
        Walk {
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
    pub(in crate::array) fn range(&mut self, start: u64, end: u64) -> Result<(), E> {
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

    /// Units of the box per element of the axis: bytes in the last dimension, elements elsewhere.
    fn chunk(&self, level: usize) -> u64 {
        if level + 1 == self.grid.dimensions.len() { self.grid.dimensions[level].step } else { 1 }
    }

    /// The copy between the current box and the current chunk, which has this number.
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
                    self.loops.push(Loop {
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

    /// Bytes in the current chunk per element of the dimension's axis.
    fn chunk_stride(&self, level: usize) -> u64 {
        let axis = self.grid.dimensions[level].axis;
        self.spans[axis + 1..].iter().map(|span| span.length).product::<u64>() * self.grid.item_bytes
    }
}
