//! Tests of the grid arithmetic against a version that looks at every byte.

use std::ops::Range;

use proptest::prelude::*;

use crate::array::geometry::axis::{Axis, axes};
use crate::array::geometry::grid::Grid;
use crate::array::geometry::strided_copy::{StridedCopy, fill_items};
use crate::metadata::ChunkGrid;

/// For each byte of the file: (chunk number, byte in the chunk).
fn naive(shape: &[u64], cuts: &[Vec<u64>], item: u64) -> Vec<(u64, u64)> {
    let total: u64 = shape.iter().product::<u64>() * item;
    (0..total)
        .map(|byte| {
            let (mut rest, phase) = (byte / item, byte % item);
            let mut element = vec![0; shape.len()];
            for axis in (0..shape.len()).rev() {
                element[axis] = rest % shape[axis];
                rest /= shape[axis];
            }
            let (mut chunk, mut inside) = (0, 0);
            for axis in 0..shape.len() {
                let mut start = 0;
                let mut number = 0;
                while start + cuts[axis][number] <= element[axis] {
                    start += cuts[axis][number];
                    number += 1;
                }
                let mut end = 0;
                let covering = cuts[axis]
                    .iter()
                    .take_while(|length| {
                        let before = end;
                        end += **length;
                        before < shape[axis]
                    })
                    .count();
                chunk = chunk * covering as u64 + number as u64;
                inside = inside * cuts[axis][number] + (element[axis] - start);
            }
            (chunk, inside * item + phase)
        })
        .collect()
}

fn by_pieces(grid: &Grid, from: u64, length: u64) -> Vec<(u64, u64)> {
    let mut bytes = vec![(u64::MAX, u64::MAX); length as usize];
    grid.for_each_copy(from, length, &mut |copy: &StridedCopy<'_>| {
        copy.for_each_run(|inside, to| {
            assert!(inside + copy.run <= copy.chunk_offset + copy.chunk_extent());
            for i in 0..copy.run {
                assert_eq!(bytes[to + i], (u64::MAX, u64::MAX), "a byte given twice");
                bytes[to + i] = (copy.chunk, (inside + i) as u64);
            }
        });
        Ok::<(), ()>(())
    })
    .expect("no copy fails");
    bytes
}

fn axis_cut() -> impl Strategy<Value = (u64, Vec<u64>)> {
    prop_oneof![
        // A regular axis, perhaps with an edge chunk or a chunk longer than the axis.
        (1u64..9, 1u64..11)
            .prop_map(|(extent, length)| { (extent, vec![length; extent.div_ceil(length) as usize]) }),
        // The whole axis in one chunk.
        (1u64..9).prop_map(|extent| (extent, vec![extent])),
        // An irregular axis.
        proptest::collection::vec(1u64..5, 1..5).prop_map(|cuts| (cuts.iter().sum(), cuts)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn copies_match_the_naive_bytes(
        cuts in proptest::collection::vec(axis_cut(), 0..5),
        item in 1u64..9,
        window in (0.0f64..1.0, 0.0f64..1.0),
    ) {
        let shape: Vec<u64> = cuts.iter().map(|(extent, _)| *extent).collect();
        let lengths: Vec<Vec<u64>> = cuts.iter().map(|(_, lengths)| lengths.clone()).collect();
        let expected = naive(&shape, &lengths, item);
        let runs = lengths.iter().map(|axis| axis.iter().map(|&length| (length, 1)).collect()).collect();
        let grid = Grid::new(axes(&shape, &ChunkGrid::Rectilinear(runs)).expect("covered"), item);
        prop_assert_eq!(grid.size_bytes(), expected.len() as u64);
        let total = expected.len() as f64;
        let (a, b) = ((window.0 * total) as u64, (window.1 * total) as u64);
        let (from, to) = (a.min(b), a.max(b));
        prop_assert_eq!(by_pieces(&grid, from, to - from), &expected[from as usize..to as usize]);
        prop_assert_eq!(by_pieces(&grid, 0, expected.len() as u64), expected);
    }

    #[test]
    fn batches_of_chunks_visit_each_copy_once(
        cuts in proptest::collection::vec(axis_cut(), 0..5),
        window in (0.0f64..1.0, 0.0f64..1.0),
        most in 1usize..7,
    ) {
        let shape: Vec<u64> = cuts.iter().map(|(extent, _)| *extent).collect();
        let runs = cuts.iter().map(|(_, axis)| axis.iter().map(|&length| (length, 1)).collect()).collect();
        let grid = Grid::new(axes(&shape, &ChunkGrid::Rectilinear(runs)).expect("covered"), 2);
        let (a, b) = ((window.0 * grid.size_bytes() as f64) as u64, (window.1 * grid.size_bytes() as f64) as u64);
        let (from, length) = (a.min(b), a.max(b) - a.min(b));
        let copies = |numbers: Range<u64>| {
            let mut copies = Vec::new();
            grid.for_each_copy_in(from, length, numbers, &mut |copy: &StridedCopy<'_>| {
                copies.push((copy.chunk, copy.range_offset, copy.chunk_offset, copy.total_bytes()));
                Ok::<(), ()>(())
            })
            .expect("no copy fails");
            copies
        };
        let (mut found, mut next) = (Vec::new(), 0);
        loop {
            let chunks = grid.lowest_chunks(from, length, next, most);
            let Some(last) = chunks.last() else { break };
            let of_batch = copies(next..last + 1);
            let mut of_copies: Vec<u64> = of_batch.iter().map(|copy| copy.0).collect();
            of_copies.sort_unstable();
            of_copies.dedup();
            prop_assert_eq!(&of_copies, &chunks);
            found.extend(of_batch);
            next = last + 1;
        }
        let mut all = copies(0..u64::MAX);
        all.sort_unstable();
        found.sort_unstable();
        prop_assert_eq!(found, all);
        let mut first = grid.chunks_of(from, length, most);
        prop_assert!(first.len() <= most);
        first.sort_unstable();
        first.dedup();
        prop_assert_eq!(first.len(), most.min(grid.lowest_chunks(from, length, 0, usize::MAX).len()));
    }

    #[test]
    fn an_axis_locates_what_it_spans(extent in 1u64..500, length in 1u64..50) {
        let axis = Axis::new(extent, &[(length, u64::MAX)]).expect("covered");
        prop_assert_eq!(axis.count(), extent.div_ceil(length));
        for element in 0..extent {
            let span = axis.locate(element);
            prop_assert_eq!(span.index, element / length);
            prop_assert_eq!(axis.span(span.index), span);
        }
        let parts = axis.subdivided(length).expect("divides itself");
        prop_assert_eq!(parts, axis);
    }

    #[test]
    fn items_are_repeated_from_any_phase(item in proptest::collection::vec(any::<u8>(), 1..9), phase in 0usize..9, length in 0usize..70) {
        let phase = phase % item.len();
        let mut out = vec![0; length];
        fill_items(&mut out, &item, phase);
        let expected: Vec<u8> = (0..length).map(|i| item[(phase + i) % item.len()]).collect();
        prop_assert_eq!(out, expected);
    }
}

#[test]
fn a_grid_that_ends_before_the_array_is_refused() {
    assert!(axes(&[10], &ChunkGrid::Rectilinear(vec![vec![(3, 2)]])).is_none());
    assert!(axes(&[10], &ChunkGrid::Regular(vec![0])).is_none());
    assert_eq!(axes(&[0], &ChunkGrid::Regular(vec![0])).map(|axes| axes[0].count()), Some(0));
    // A huge chunk and a huge repeat count do not overflow.
    let axis = Axis::new(1 << 62, &[(1, 5), (1 << 61, u64::MAX)]).expect("covered");
    assert_eq!(axis.locate((1 << 62) - 1).index, 6);
}
