//! The plan of one request: which parts of the grid it touches, and the copies between them and the range.
//!
//! Uses `grid.rs` and `strided_copy.rs`; no I/O. A request walks the grid once, to make its plan. All later steps (the
//! look into the cache, the load of what is missing, the copy) go through the plan. A request with very many copies is
//! planned in batches, so the memory of a plan has a limit.

use std::ops::Range;

use crate::array::geometry::grid::Grid;
use crate::array::geometry::strided_copy::{CopyLoop, StridedCopy};

/// A plan with more copies is made in batches.
pub const MAX_COPIES: usize = 4096;

/// The copies of a range of the flat file, or of a batch of its chunks. Its memory is used again by the next plan.
#[derive(Debug, Default)]
pub struct CopyPlan {
    range: Range<u64>,
    /// Chunks of the grid, each once, in the order of their numbers.
    chunks: Vec<u64>,
    copies: Vec<PlannedCopy>,
    loops: Vec<CopyLoop>,
    /// The first chunk that no batch had so far; `None` if the plan has the last one.
    next: Option<u64>,
}

/// A [`StridedCopy`] with its loops in the plan.
#[derive(Debug)]
struct PlannedCopy {
    chunk: u64,
    chunk_offset: usize,
    range_offset: usize,
    run: usize,
    loops: Range<u32>,
}

impl CopyPlan {
    /// Plans a range, which lies in the file. If there are too many copies, the plan is empty and the first batch is to
    /// be made.
    pub fn make(&mut self, grid: &Grid, range: Range<u64>) {
        self.clear(range.clone());
        let made = grid.for_each_copy(range.start, range.end - range.start, &mut |copy| {
            self.add(copy);
            if self.copies.len() > MAX_COPIES { Err(()) } else { Ok(()) }
        });
        if made.is_err() {
            self.begin_batches();
        }
    }

    /// Makes the plan empty; the first batch is to be made.
    pub fn begin_batches(&mut self) {
        self.clear(self.range.clone());
        self.next = Some(0);
    }

    /// Plans the next batch, of at most `most` chunks. Returns `false` if no chunk is left.
    pub fn make_next_batch(&mut self, grid: &Grid, most: usize) -> bool {
        let Some(first) = self.next else { return false };
        let range = self.range.clone();
        self.clear(range.clone());
        let (offset, length) = (range.start, range.end - range.start);
        let chunks = grid.lowest_chunks(offset, length, first, most.max(1));
        let Some(last) = chunks.last().copied() else { return false };
        let _ = grid.for_each_copy_in(offset, length, first..last + 1, &mut |copy| {
            self.add(copy);
            Ok::<(), ()>(())
        });
        self.next = (chunks.len() >= most).then_some(last + 1);
        true
    }

    fn clear(&mut self, range: Range<u64>) {
        self.range = range;
        self.chunks.clear();
        self.copies.clear();
        self.loops.clear();
        self.next = None;
    }

    fn add(&mut self, copy: &StridedCopy<'_>) {
        // Each box visits its chunks in order. Boxes may have chunks in common.
        if self.chunks.last().is_none_or(|&last| last < copy.chunk) {
            self.chunks.push(copy.chunk);
        } else if let Err(at) = self.chunks.binary_search(&copy.chunk) {
            self.chunks.insert(at, copy.chunk);
        }
        let first = self.loops.len() as u32;
        self.loops.extend_from_slice(copy.loops);
        self.copies.push(PlannedCopy {
            chunk: copy.chunk,
            chunk_offset: copy.chunk_offset,
            range_offset: copy.range_offset,
            run: copy.run,
            loops: first..self.loops.len() as u32,
        });
    }

    /// Returns the range of the flat file.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Returns whether the plan has all copies of its range.
    pub fn is_complete(&self) -> bool {
        self.next.is_none()
    }

    /// Returns the chunks, each once, in the order of their numbers.
    pub fn chunks(&self) -> &[u64] {
        &self.chunks
    }

    /// Returns the only copy, if all bytes of the range are contiguous in one chunk: the chunk, and the bytes in it.
    pub fn single_run(&self) -> Option<(u64, Range<usize>)> {
        match self.copies.as_slice() {
            [copy] if copy.loops.is_empty() && self.is_complete() => {
                Some((copy.chunk, copy.chunk_offset..copy.chunk_offset + copy.run))
            }
            _ => None,
        }
    }

    /// Calls `visit` for each copy, with the place of its chunk in [`CopyPlan::chunks`], until it fails.
    pub fn for_each_copy<E>(
        &self,
        mut visit: impl FnMut(usize, &StridedCopy<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut place = 0;
        for copy in &self.copies {
            // Usually the next copy is of the same chunk or of the next one.
            place = match self.chunks.get(place..) {
                Some([chunk, ..]) if *chunk == copy.chunk => place,
                Some([_, chunk, ..]) if *chunk == copy.chunk => place + 1,
                _ => self.chunks.partition_point(|chunk| *chunk < copy.chunk),
            };
            let loops = self.loops.get(copy.loops.start as usize..copy.loops.end as usize);
            let copy = StridedCopy {
                chunk: copy.chunk,
                chunk_offset: copy.chunk_offset,
                range_offset: copy.range_offset,
                run: copy.run,
                loops: loops.unwrap_or_default(),
            };
            visit(place, &copy)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::array::geometry::axis::Axis;

    fn bytes_of(plan: &CopyPlan) -> Vec<(u64, usize, usize, usize)> {
        let mut found = Vec::new();
        let _ = plan.for_each_copy(|place, copy| {
            assert_eq!(plan.chunks().get(place), Some(&copy.chunk));
            copy.for_each_run(|inside, at| found.push((copy.chunk, inside, at, copy.run)));
            Ok::<(), ()>(())
        });
        found
    }

    proptest! {
        #[test]
        fn plans_have_the_copies_of_a_walk(
            shape in prop::collection::vec(1u64..9, 1..4),
            chunk_shape in prop::collection::vec(1u64..5, 3),
            at in (0.0..1.0, 0.0..1.0),
            most in 1usize..6,
        ) {
            let axes =
                shape.iter().zip(&chunk_shape).map(|(&n, &c)| Axis::new(n, &[(c, u64::MAX)]).unwrap()).collect();
            let grid = Grid::new(axes, 2);
            let size = grid.size_bytes();
            let start = (size as f64 * at.0) as u64;
            let range = start..start + ((size - start) as f64 * at.1) as u64;
            let mut expected = Vec::new();
            let _ = grid.for_each_copy(range.start, range.end - range.start, &mut |copy| {
                copy.for_each_run(|inside, at| expected.push((copy.chunk, inside, at, copy.run)));
                Ok::<(), ()>(())
            });
            let mut plan = CopyPlan::default();
            plan.make(&grid, range);
            prop_assert!(plan.is_complete() && plan.chunks().is_sorted_by(|a, b| a < b));
            prop_assert_eq!(&bytes_of(&plan), &expected);
            plan.begin_batches();
            let mut found = Vec::new();
            while plan.make_next_batch(&grid, most) {
                prop_assert!(plan.chunks().len() <= most);
                found.extend(bytes_of(&plan));
            }
            found.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn many_copies_are_planned_in_batches() {
        let grid = Grid::new(vec![Axis::new(10_000, &[(1, u64::MAX)]).unwrap()], 1);
        let mut plan = CopyPlan::default();
        plan.make(&grid, 0..10_000);
        assert!(!plan.is_complete() && plan.chunks().is_empty());
        let mut chunks = 0;
        while plan.make_next_batch(&grid, 3000) {
            chunks += plan.chunks().len();
        }
        assert!(plan.is_complete() && chunks == 10_000);
    }
}
