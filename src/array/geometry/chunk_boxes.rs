//! Boxes of neighbouring chunks, and the ranges of the flat file that hold their elements.
//!
//! The elements of one chunk are short runs of the file. A box has enough neighbours to make the runs long. Uses
//! `grid`.

use std::ops::Range;

use crate::array::geometry::axis::Axis;

/// A grid of chunks, or a part of it, cut into boxes.
pub struct ChunkBoxes {
    /// The chunks that are cut into boxes, by their numbers on each axis.
    chunks: Vec<Range<u64>>,
    /// Chunks of a box on each axis. The last box of an axis may have fewer.
    shape: Vec<u64>,
}

impl ChunkBoxes {
    /// Cuts chunks into boxes with runs of at least `run_bytes` in the file, as far as boxes of `box_bytes` allow that.
    /// A box has at least one chunk.
    pub fn new(axes: &[Axis], chunks: Vec<Range<u64>>, item_bytes: u64, limits: BoxLimits) -> Self {
        let mut shape = vec![1; axes.len()];
        let chunk_bytes = axes.iter().map(Axis::longest).product::<u64>().saturating_mul(item_bytes);
        let (mut box_bytes, mut stride) = (chunk_bytes.max(1), item_bytes.max(1));
        for ((slot, axis), range) in shape.iter_mut().zip(axes).zip(&chunks).rev() {
            let count = (range.end - range.start).max(1);
            let wanted = limits.run_bytes.div_ceil(stride.saturating_mul(axis.longest()).max(1));
            let allowed = limits.box_bytes / box_bytes;
            *slot = wanted.min(allowed).clamp(1, count);
            box_bytes = box_bytes.saturating_mul(*slot);
            // Only whole rows of the file are contiguous.
            stride = stride.saturating_mul(axis.extent());
            if *slot < axis.count() || stride >= limits.run_bytes {
                break;
            }
        }
        ChunkBoxes { chunks, shape }
    }

    /// Returns how many boxes there are.
    pub fn count(&self) -> u64 {
        self.counts().product()
    }

    fn counts(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.chunks.iter().zip(&self.shape).map(|(range, &length)| (range.end - range.start).div_ceil(length))
    }

    /// Returns the most chunks of a box.
    pub fn chunks_per_box(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Returns the chunks of the box with this number, by their numbers on each axis. Boxes are in the order of the
    /// file.
    pub fn get(&self, number: u64) -> Vec<Range<u64>> {
        let mut rest = number;
        let axes = self.chunks.iter().zip(&self.shape).zip(self.counts().collect::<Vec<_>>()).rev();
        let mut ranges: Vec<Range<u64>> = axes
            .map(|((range, length), count)| {
                let start = range.start + rest % count.max(1) * length;
                rest /= count.max(1);
                start..(start + length).min(range.end)
            })
            .collect();
        ranges.reverse();
        ranges
    }
}

/// What a box should be.
#[derive(Clone, Copy)]
pub struct BoxLimits {
    /// Longer runs gain nothing.
    pub run_bytes: u64,
    /// The most bytes of a box of several chunks.
    pub box_bytes: u64,
}

/// Calls `visit` with the offset and the length of each range of the file that a box of chunks has, in order, until it
/// fails. No range is longer than `longest`.
pub fn for_each_range<E>(
    axes: &[Axis],
    chunks: &[Range<u64>],
    item_bytes: u64,
    longest: u64,
    visit: &mut dyn FnMut(u64, u64) -> Result<(), E>,
) -> Result<(), E> {
    let mut loops: Vec<(Range<u64>, u64)> = Vec::with_capacity(axes.len());
    let mut stride = item_bytes;
    for (axis, range) in axes.iter().zip(chunks).rev() {
        let elements = axis.span(range.start).start..axis.elements(range.end.saturating_sub(1)).end;
        loops.push((elements, stride));
        stride = stride.saturating_mul(axis.extent());
    }
    // The innermost axes, up to the first that the box does not cover, make one range.
    let (mut start, mut length) = (0, item_bytes);
    let mut inner = 0;
    for (elements, stride) in &loops {
        start = elements.start * stride;
        length = (elements.end - elements.start) * stride;
        inner += 1;
        let is_whole = axes.get(axes.len() - inner).is_some_and(|axis| *elements == (0..axis.extent()));
        if !is_whole {
            break;
        }
    }
    let outer: Vec<(Range<u64>, u64)> = loops.split_off(inner);
    let mut cut = |offset: u64| {
        let mut done = 0;
        while done < length {
            let now = longest.max(1).min(length - done);
            visit(offset + start + done, now)?;
            done += now;
        }
        Ok(())
    };
    each_offset(&outer, 0, &mut cut)
}

/// Calls `visit` with each offset that these loops, innermost first, make.
fn each_offset<E>(
    loops: &[(Range<u64>, u64)],
    offset: u64,
    visit: &mut dyn FnMut(u64) -> Result<(), E>,
) -> Result<(), E> {
    match loops.split_last() {
        None => visit(offset),
        Some(((elements, stride), rest)) => {
            elements.clone().try_for_each(|element| each_offset(rest, offset + element * stride, visit))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::array::geometry::axis::each_index;
    use crate::array::geometry::grid::Grid;

    fn all(axes: &[Axis]) -> Vec<Range<u64>> {
        axes.iter().map(|axis| 0..axis.count()).collect()
    }

    proptest! {
        /// Every chunk is in one box, and the ranges of a box have exactly its elements.
        #[test]
        fn boxes_and_ranges_cover_a_file_once(
            lengths in prop::collection::vec((0u64..9, 1u64..5), 0..4),
            run_bytes in 1u64..200,
            box_bytes in 1u64..2000,
            longest in 1u64..50,
        ) {
            let axes: Vec<Axis> =
                lengths.iter().map(|&(extent, length)| Axis::new(extent, &[(length, u64::MAX)]).unwrap()).collect();
            let grid = Grid::new(axes.clone(), 2);
            let boxes = ChunkBoxes::new(&axes, all(&axes), 2, BoxLimits { run_bytes, box_bytes });
            let (mut chunks, mut bytes) = (HashSet::new(), HashSet::new());
            for number in 0..boxes.count() {
                let ranges = boxes.get(number);
                let mut inside = HashSet::new();
                let _ = each_index(&axes, &ranges, &mut |chunk| {
                    assert!(chunks.insert(chunk));
                    inside.insert(chunk);
                    std::ops::ControlFlow::Continue(())
                });
                prop_assert!(inside.len() as u64 <= boxes.chunks_per_box());
                for_each_range(&axes, &ranges, 2, longest, &mut |offset, length| {
                    assert!(length <= longest && (offset..offset + length).all(|byte| bytes.insert(byte)));
                    grid.for_each_copy(offset, length, &mut |copy| {
                        assert!(inside.contains(&copy.chunk));
                        Ok::<(), ()>(())
                    })
                }).unwrap();
            }
            prop_assert_eq!(chunks.len() as u64, grid.chunks());
            prop_assert_eq!(bytes.len() as u64, grid.size_bytes());
        }
    }

    #[test]
    fn neighbours_make_runs_long() {
        let axis = |extent, length| Axis::new(extent, &[(length, u64::MAX)]).unwrap();
        let shape = |axes: &[Axis], run_bytes, box_bytes| {
            ChunkBoxes::new(axes, all(axes), 4, BoxLimits { run_bytes, box_bytes }).shape
        };
        let axes = [axis(512, 64), axis(512, 64), axis(512, 64)];
        assert_eq!(shape(&axes, 1024, u64::MAX), [1, 1, 4]);
        assert_eq!(shape(&axes, 64 << 10, u64::MAX), [1, 1, 8]);
        assert_eq!(shape(&axes, 200 << 10, u64::MAX), [1, 2, 8]);
        assert_eq!(shape(&axes, 200 << 10, 9 << 20), [1, 1, 8]);
        assert_eq!(shape(&axes, 200 << 10, 1), [1, 1, 1]);
        assert_eq!(shape(&[axis(1 << 20, 16)], 64 << 10, u64::MAX), [1024]);
    }
}
