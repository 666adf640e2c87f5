//! Index arithmetic of slices: the chunks that a slice of an array touches, and where its elements lie in them.
//!
//! Uses `grid` alone; no I/O. A slice has, on each axis, elements at equal distances ([`AxisSelection`]). Its output
//! has the selected elements in served order. The output is made in [`SelectionBlock`]s, which are contiguous in it,
//! and a block is made of [`Piece`]s, one for each chunk.
//!
//! Invariants: the blocks of a selection follow each other in its output and together are all of it; the pieces of a
//! block are all of it, and belong to different chunks.

use std::ops::Range;

use crate::array::geometry::axis::Axis;
use crate::array::geometry::grid::Grid;

/// The selected elements of one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AxisSelection {
    /// The first one.
    pub start: u64,
    /// The distance from each to the next; negative if they go backwards.
    pub step: i64,
    /// How many there are. All of them must lie on the axis.
    pub count: u64,
}

impl AxisSelection {
    /// Returns whether all elements lie on an axis of this length.
    pub fn is_inside(&self, extent: u64) -> bool {
        let Some(steps) = self.count.checked_sub(1) else { return true };
        let reach = i128::from(self.start) + i128::from(steps) * i128::from(self.step);
        self.start < extent && (0..i128::from(extent)).contains(&reach)
    }

    /// Returns the element at a place in the output.
    pub fn element(&self, place: u64) -> u64 {
        self.start.wrapping_add_signed((place as i64).wrapping_mul(self.step))
    }

    /// Returns the first place with an element in the same chunk as that of `place`.
    fn first_place_in_chunk(&self, axis: &Axis, place: u64) -> u64 {
        let span = axis.locate(self.element(place));
        let step = self.step.unsigned_abs().max(1);
        let before = if self.step < 0 {
            self.start.saturating_sub((span.start + span.length).saturating_sub(1))
        } else {
            span.start.saturating_sub(self.start)
        };
        before.div_ceil(step).min(place)
    }

    /// Returns the first place after `place` with an element in another chunk; at most `end`.
    fn next_chunk_place(&self, axis: &Axis, place: u64, end: u64) -> u64 {
        let element = self.element(place);
        let span = axis.locate(element);
        let step = self.step.unsigned_abs().max(1);
        let left = if self.step < 0 {
            element.saturating_sub(span.start)
        } else {
            (span.start + span.length).saturating_sub(element + 1)
        };
        (place + left / step + 1).min(end)
    }
}

/// A slice of the elements of a grid, its axes in served order.
#[derive(Clone, Debug)]
pub struct GridSelection {
    grid: Grid,
    axes: Vec<AxisSelection>,
}

/// A range of places on each axis; those of one block are contiguous in the output.
pub type SelectionBlock = Vec<Range<u64>>;

/// The elements of one chunk that a block has.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Number of the chunk.
    pub chunk: u64,
    /// Where the first element begins in the chunk, in bytes.
    chunk_offset: i64,
    /// Where it begins in the block, in bytes.
    block_offset: usize,
    /// Bytes that are contiguous in the chunk and in the block.
    run: usize,
    /// The loops around the run, outermost first.
    loops: Vec<PieceLoop>,
}

/// Steps may go backwards in the chunk.
#[derive(Clone, Copy, Debug)]
struct PieceLoop {
    count: usize,
    chunk_stride: i64,
    block_stride: usize,
}

/// Calls `visit(chunk offset, block offset)` for each turn of these loops.
fn nest(loops: &[PieceLoop], chunk: i64, block: usize, visit: &mut impl FnMut(i64, usize)) {
    let Some((first, rest)) = loops.split_first() else { return visit(chunk, block) };
    for i in 0..first.count {
        nest(rest, chunk + i as i64 * first.chunk_stride, block + i * first.block_stride, visit);
    }
}

impl Piece {
    /// Returns the bytes of the chunk from the lowest to the highest element.
    pub fn chunk_range(&self) -> Range<usize> {
        let (mut low, mut high) = (self.chunk_offset, self.chunk_offset + self.run as i64);
        for of_loop in &self.loops {
            let reach = (of_loop.count as i64 - 1) * of_loop.chunk_stride;
            low += reach.min(0);
            high += reach.max(0);
        }
        low.max(0) as usize..high.max(0) as usize
    }

    /// Returns the bytes that are contiguous in the chunk and in the block.
    pub fn run_bytes(&self) -> usize {
        self.run
    }

    /// Returns all bytes of the piece.
    pub fn total_bytes(&self) -> usize {
        self.loops.iter().map(|of_loop| of_loop.count).product::<usize>() * self.run
    }

    /// Calls `copy(chunk offset, block offset)` for each run.
    pub fn for_each_run(&self, mut copy: impl FnMut(usize, usize)) {
        nest(&self.loops, self.chunk_offset, self.block_offset, &mut |chunk, block| {
            copy(chunk as usize, block);
        });
    }

    /// Copies from the chunk, without its first `skipped` bytes, into the block.
    pub fn gather(&self, chunk: &[u8], skipped: usize, block: &mut [u8]) {
        // A plane across the fastest axis has one element in each run, and a call of memcpy(3) would take longer than the copy.
        match (self.run, self.loops.split_last()) {
            (1, Some((last, outer))) => self.gather_items::<1>(outer, *last, chunk, skipped, block),
            (2, Some((last, outer))) => self.gather_items::<2>(outer, *last, chunk, skipped, block),
            (4, Some((last, outer))) => self.gather_items::<4>(outer, *last, chunk, skipped, block),
            (8, Some((last, outer))) => self.gather_items::<8>(outer, *last, chunk, skipped, block),
            (run, _) => self.for_each_run(|from, to| {
                let from = from - skipped;
                block[to..to + run].copy_from_slice(&chunk[from..from + run]);
            }),
        }
    }

    /// As [`Piece::gather`], for runs of N bytes.
    fn gather_items<const N: usize>(
        &self,
        outer: &[PieceLoop],
        last: PieceLoop,
        chunk: &[u8],
        skipped: usize,
        block: &mut [u8],
    ) {
        nest(outer, self.chunk_offset - skipped as i64, self.block_offset, &mut |mut from, mut to| {
            for _ in 0..last.count {
                let run = &chunk[from as usize..from as usize + N];
                block[to..to + N].copy_from_slice(run);
                from += last.chunk_stride;
                to += last.block_stride;
            }
        });
    }

    /// Calls `fill` with each run of whole elements of the block.
    pub fn fill(&self, block: &mut [u8], fill: impl Fn(&mut [u8])) {
        self.for_each_run(|_, to| fill(&mut block[to..to + self.run]));
    }
}

impl GridSelection {
    /// Creates a selection with one part for each axis of the grid.
    pub fn new(grid: &Grid, axes: Vec<AxisSelection>) -> Self {
        GridSelection { grid: grid.clone(), axes }
    }

    /// Returns the bytes of an element.
    pub fn item_bytes(&self) -> u64 {
        self.grid.item_bytes()
    }

    /// Returns the bytes of the output.
    pub fn size_bytes(&self) -> u64 {
        self.bytes_after(0)
    }

    /// Returns the bytes of the output for one place on the axis before `axis`.
    fn bytes_after(&self, axis: usize) -> u64 {
        let counts = self.axes.iter().skip(axis).map(|axis| axis.count);
        counts.fold(self.grid.item_bytes(), u64::saturating_mul)
    }

    /// Returns the ranges of the file that follow each other in the output, if each of them is of at least `least`
    /// bytes or if there is only one: their length, and where they begin.
    pub fn long_ranges(&self, least: u64) -> Option<(u64, impl Iterator<Item = u64> + '_)> {
        let mut run = self.grid.item_bytes();
        let mut outer = self.axes.len();
        for (selected, axis) in self.axes.iter().zip(self.grid.axes()).rev() {
            if selected.count > 1 && selected.step != 1 {
                break;
            }
            outer -= 1;
            run = run.saturating_mul(selected.count);
            if selected.count != axis.extent() {
                break;
            }
        }
        // The stride of each axis in the file, in bytes.
        let mut strides = vec![0; self.axes.len()];
        let mut stride = self.grid.item_bytes();
        for (slot, axis) in strides.iter_mut().zip(self.grid.axes()).rev() {
            *slot = stride;
            stride = stride.saturating_mul(axis.extent());
        }
        let counts: Vec<u64> = self.axes.iter().take(outer).map(|axis| axis.count).collect();
        let ranges = counts.iter().fold(1, |ranges: u64, count| ranges.saturating_mul(*count));
        let offset_of = move |number: u64| {
            let mut rest = number;
            let mut offset = 0;
            for (place, (selected, stride)) in self.axes.iter().zip(&strides).enumerate().rev() {
                let count = counts.get(place).copied().unwrap_or(1).max(1);
                offset += selected.element(rest % count) * stride;
                rest /= count;
            }
            offset
        };
        (ranges <= 1 || run >= least).then(|| (run, (0..ranges).map(offset_of)))
    }

    /// Returns the range of the file that has all elements of the output in their order, if there is one.
    pub fn single_range(&self) -> Option<Range<u64>> {
        if self.size_bytes() == 0 {
            return Some(0..0);
        }
        let (length, mut offsets) = self.long_ranges(u64::MAX)?;
        let offset = offsets.next()?;
        Some(offset..offset.saturating_add(length))
    }

    /// Returns where the first element of a block begins in the file, in bytes.
    pub fn file_offset(&self, block: &SelectionBlock) -> u64 {
        let axes = self.axes.iter().zip(self.grid.axes()).zip(block);
        let element = axes.fold(0u64, |number, ((selected, axis), places)| {
            number.saturating_mul(axis.extent()).saturating_add(selected.element(places.start))
        });
        element.saturating_mul(self.grid.item_bytes())
    }

    /// Returns the blocks that these elements of the output make, in order; at most `2 × rank - 1`. `elements` must lie in the
    /// output.
    pub fn blocks_of(&self, elements: Range<u64>) -> Vec<SelectionBlock> {
        let mut blocks = Vec::new();
        if !elements.is_empty() {
            self.cut(0, elements, &mut Vec::new(), &mut blocks);
        }
        blocks
    }

    /// Cuts elements into blocks. They are counted from the beginning of the places `outer` on the first axes.
    fn cut(
        &self,
        axis: usize,
        elements: Range<u64>,
        outer: &mut Vec<Range<u64>>,
        blocks: &mut Vec<SelectionBlock>,
    ) {
        let row = self.bytes_after(axis + 1) / self.grid.item_bytes().max(1);
        if axis >= self.axes.len() || row == 0 {
            blocks.push(outer.clone());
            return;
        }
        let (mut first, last) = (elements.start / row, elements.end / row);
        let (begins_inside, ends_inside) = (elements.start % row, elements.end % row);
        let mut part = |places: Range<u64>, elements: Range<u64>| {
            outer.push(places);
            self.cut(axis + 1, elements, outer, blocks);
            outer.pop();
        };
        if first == last {
            return part(first..first + 1, begins_inside..ends_inside);
        }
        if begins_inside > 0 {
            part(first..first + 1, begins_inside..row);
            first += 1;
        }
        if first < last {
            part(first..last, 0..row);
        }
        if ends_inside > 0 {
            part(last..last + 1, 0..ends_inside);
        }
    }

    /// Returns the blocks, each of at most `most` bytes and, if possible, of at least `least` and of whole chunks along
    /// the axis where it ends.
    pub fn blocks(&self, least: u64, most: u64) -> impl Iterator<Item = SelectionBlock> + '_ {
        let fits = |&axis: &usize| self.bytes_after(axis + 1) <= most;
        // Of the axes before this one, a block has one place each; of those after it, all.
        let cut = (0..self.axes.len()).find(fits).unwrap_or(self.axes.len().saturating_sub(1));
        let row = self.bytes_after(cut + 1).max(1);
        let counts: Vec<u64> = self.axes.iter().map(|axis| axis.count).collect();
        let outer = counts.iter().take(cut).fold(1, |rows: u64, count| rows.saturating_mul(*count));
        let cut_count = counts.get(cut).copied().unwrap_or(1);
        let (mut number, mut place) = (0, 0);
        std::iter::from_fn(move || {
            if number >= outer || counts.contains(&0) {
                return None;
            }
            let end = self.end_of_block(cut, place, least / row, (most / row).max(1));
            let mut block: SelectionBlock = counts.iter().map(|count| 0..*count).collect();
            let mut rest = number;
            for (range, count) in block.iter_mut().zip(&counts).take(cut).rev() {
                *range = rest % count..rest % count + 1;
                rest /= count;
            }
            if let Some(range) = block.get_mut(cut) {
                *range = place..end;
            }
            (number, place) = if end < cut_count { (number, end) } else { (number + 1, 0) };
            Some(block)
        })
    }

    /// Returns where a block ends that begins at `place` of the axis along which blocks are cut.
    fn end_of_block(&self, cut: usize, place: u64, least: u64, most: u64) -> u64 {
        let (Some(selected), Some(axis)) = (self.axes.get(cut), self.grid.axes().get(cut)) else { return 1 };
        let limit = selected.count.min(place.saturating_add(most));
        let wanted = place.saturating_add(least.max(1)).min(limit);
        let end = selected.next_chunk_place(axis, wanted - 1, selected.count);
        if end <= limit {
            return end;
        }
        let before = selected.first_place_in_chunk(axis, limit);
        if before > place { before } else { limit }
    }

    /// Returns the pieces of a block, in the order of the block.
    pub fn pieces<'a>(&'a self, block: &'a SelectionBlock) -> impl Iterator<Item = Piece> + 'a {
        let first: Vec<u64> = block.iter().map(|range| range.start).collect();
        let mut next = block.iter().all(|range| !range.is_empty()).then_some(first);
        std::iter::from_fn(move || {
            let starts = next.take()?;
            let ends = self.ends(block, &starts);
            next = following(block, &starts, &ends);
            Some(self.piece(block, &starts, &ends))
        })
    }

    fn ends(&self, block: &SelectionBlock, starts: &[u64]) -> Vec<u64> {
        let axes = self.axes.iter().zip(self.grid.axes()).zip(block).zip(starts);
        axes.map(|(((selected, axis), range), start)| selected.next_chunk_place(axis, *start, range.end))
            .collect()
    }

    fn piece(&self, block: &SelectionBlock, starts: &[u64], ends: &[u64]) -> Piece {
        let item = self.grid.item_bytes();
        let (mut chunk, mut weight) = (0u64, 1u64);
        let (mut chunk_offset, mut block_offset) = (0i64, 0usize);
        let (mut chunk_stride, mut block_stride) = (item as i64, item as usize);
        let mut run = item as usize;
        let mut loops: Vec<PieceLoop> = Vec::new();
        let places = starts.iter().zip(ends).zip(block);
        for ((selected, axis), ((start, end), range)) in
            self.axes.iter().zip(self.grid.axes()).zip(places).rev()
        {
            let element = selected.element(*start);
            let span = axis.locate(element);
            let count = (end - start) as usize;
            chunk += span.index * weight;
            weight *= axis.count();
            chunk_offset += (element - span.start) as i64 * chunk_stride;
            block_offset += (start - range.start) as usize * block_stride;
            let stride = selected.step.wrapping_mul(chunk_stride);
            if loops.is_empty() && stride == run as i64 && block_stride == run {
                run *= count;
            } else if count > 1 {
                loops.push(PieceLoop { count, chunk_stride: stride, block_stride });
            }
            chunk_stride = chunk_stride.saturating_mul(span.length as i64);
            block_stride = block_stride.saturating_mul((range.end - range.start) as usize);
        }
        loops.reverse();
        Piece { chunk, chunk_offset, block_offset, run, loops }
    }
}

/// Returns the start of the piece after the one from `starts` to `ends`, as an odometer counts.
fn following(block: &SelectionBlock, starts: &[u64], ends: &[u64]) -> Option<Vec<u64>> {
    let turned = ends.iter().zip(block).rposition(|(end, range)| *end < range.end)?;
    let mut next = starts.to_vec();
    for (axis, (next, (end, range))) in next.iter_mut().zip(ends.iter().zip(block)).enumerate().skip(turned) {
        *next = if axis == turned { *end } else { range.start };
    }
    Some(next)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns an axis of chunks of two lengths, and a selection on it.
    fn axis() -> impl Strategy<Value = (Axis, AxisSelection)> {
        (1u64..14, 1u64..5, 1u64..5).prop_flat_map(|(extent, first, rest)| {
            let axis = Axis::new(extent, &[(first, 2), (rest, u64::MAX)]).unwrap();
            (Just(axis), 0..extent, -5i64..6, 0u64..15).prop_map(move |(axis, start, step, count)| {
                let step = if step == 0 { 1 } else { step };
                let room = if step > 0 { extent - 1 - start } else { start };
                let count = count.min(room / step.unsigned_abs() + 1);
                (axis, AxisSelection { start, step, count })
            })
        })
    }

    /// Returns the bytes of a chunk of a file.
    fn chunk_of(grid: &Grid, file: &[u8], number: u64) -> Vec<u8> {
        let mut chunk = vec![0; grid.largest_chunk_bytes() as usize];
        let _ = grid.for_each_copy::<()>(0, file.len() as u64, &mut |copy| {
            if copy.chunk == number {
                copy.for_each_run(|at, from| {
                    chunk[at..at + copy.run].copy_from_slice(&file[from..from + copy.run]);
                });
            }
            Ok(())
        });
        chunk
    }

    proptest! {
        #[test]
        fn a_slice_has_the_selected_elements_in_order(
            axes in proptest::collection::vec(axis(), 0..4),
            item in 1u64..10,
            (least, more) in (0u64..60, 0u64..60),
        ) {
            let (axes, selected): (Vec<Axis>, Vec<AxisSelection>) = axes.into_iter().unzip();
            let grid = Grid::new(axes, item);
            let size = grid.size_bytes() as usize;
            let file: Vec<u8> = (0..size).map(|byte| (byte * 7 + byte / 251) as u8).collect();
            // The elements one by one.
            let mut expected = Vec::new();
            let total: u64 = selected.iter().map(|axis| axis.count).product();
            for number in 0..total {
                let (mut rest, mut offset, mut stride) = (number, 0, item);
                for (selected, axis) in selected.iter().zip(grid.axes()).rev() {
                    offset += selected.element(rest % selected.count) * stride;
                    rest /= selected.count;
                    stride *= axis.extent();
                }
                expected.extend_from_slice(&file[offset as usize..(offset + item) as usize]);
            }
            let selection = GridSelection::new(&grid, selected);
            prop_assert_eq!(selection.size_bytes(), expected.len() as u64);
            if let Some(range) = selection.single_range() {
                prop_assert_eq!(&file[range.start as usize..range.end as usize], &expected[..]);
            }
            let (from, to) = (least.min(total), (least + more).min(total));
            let mut part = Vec::new();
            for block in selection.blocks_of(from..to) {
                let elements: u64 = block.iter().map(|places| places.end - places.start).product();
                let mut bytes = vec![0; (elements * item) as usize];
                let at = part.len();
                for piece in selection.pieces(&block) {
                    let chunk = chunk_of(&grid, &file, piece.chunk);
                    piece.gather(&chunk, 0, &mut bytes);
                }
                part.extend_from_slice(&bytes);
                let first = selection.file_offset(&block) as usize;
                prop_assert_eq!(&part[at..at + item as usize], &file[first..first + item as usize]);
            }
            prop_assert_eq!(&part[..], &expected[(from * item) as usize..(to * item) as usize]);
            if let Some((run, offsets)) = selection.long_ranges(least).filter(|_| !expected.is_empty()) {
                let found: Vec<u8> =
                    offsets.flat_map(|at| file[at as usize..(at + run) as usize].to_vec()).collect();
                prop_assert_eq!(&found, &expected);
            }
            let mut found = Vec::new();
            let most = (least + more).max(item);
            for block in selection.blocks(least, most) {
                let length = block.iter().map(|range| range.end - range.start).product::<u64>() * item;
                prop_assert!(length <= most, "{} of {}", length, most);
                let mut out = vec![0; length as usize];
                let mut chunks = Vec::new();
                for piece in selection.pieces(&block) {
                    chunks.push(piece.chunk);
                    let chunk = chunk_of(&grid, &file, piece.chunk);
                    let part = piece.chunk_range();
                    piece.gather(&chunk[part.clone()], part.start, &mut out);
                }
                let pieces = chunks.len();
                chunks.sort_unstable();
                chunks.dedup();
                prop_assert_eq!(chunks.len(), pieces);
                found.extend(out);
            }
            prop_assert_eq!(found, expected);
        }
    }
}
