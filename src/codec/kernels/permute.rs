//! Copying an array with its dimensions in another order.
//!
//! Dimensions that stay neighbours are joined first, and what is contiguous on both sides becomes one wider
//! element. The remainder is a transposition of two axes, the one that is contiguous in the source and the one
//! that is contiguous in the target, done in square tiles through a small buffer, so that each cache line is
//! touched once for any strides (powers of two would share one cache set). Uses nothing.

/// One axis of the copy: its length, and its strides in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PermutedAxis {
    length: usize,
    from: usize,
    to: usize,
}

/// The two axes that are transposed in tiles.
#[derive(Clone, Copy, Debug)]
struct TileAxes {
    /// The axis that is contiguous in the source.
    source: PermutedAxis,
    /// The axis that is contiguous in the target.
    target: PermutedAxis,
}

/// A prepared copy, for one shape and one order.
#[derive(Clone, Debug)]
pub struct Permute {
    /// Bytes per (widened) element.
    width: usize,
    /// `None` if source and target are the same bytes.
    tile: Option<TileAxes>,
    /// All other axes.
    outer: Vec<PermutedAxis>,
    /// Bytes on either side.
    size: usize,
}

impl Permute {
    /// Creates the permutation of an array of `shape` in C order to one with axis i = the source's axis `order[i]`.
    /// The product of the shape and the item size fits usize; `order` is a permutation.
    pub fn new(shape: &[usize], order: &[usize], item_size: usize) -> Permute {
        if item_size == 0 || shape.contains(&0) {
            return Permute { width: item_size, tile: None, outer: Vec::new(), size: 0 };
        }
        let mut strides = vec![0; shape.len()];
        let mut elements = 1;
        for (stride, &length) in strides.iter_mut().zip(shape).rev() {
            *stride = elements;
            elements *= length;
        }
        let size = elements * item_size;
        let mut permute = Permute { width: item_size, tile: None, outer: Vec::new(), size };
        let axes = order.iter().filter_map(|&axis| Some((*shape.get(axis)?, *strides.get(axis)?)));
        permute.set_axes(join(axes.collect()));
        permute
    }

    /// Splits joined axes (length and source stride, in the target's order) into element, tile and outer axes.
    fn set_axes(&mut self, mut joined: Vec<(usize, usize)>) {
        let mut widening = 1;
        if joined.last().is_some_and(|last| last.1 == 1) {
            widening = joined.pop().map_or(1, |last| last.0);
        }
        self.width *= widening;
        let mut axes = Vec::with_capacity(joined.len());
        let mut to = 1;
        for (length, from) in joined.into_iter().rev() {
            axes.push(PermutedAxis { length, from: from / widening, to });
            to *= length;
        }
        // `axes` runs from the fastest in the target to the slowest.
        if axes.is_empty() {
            return;
        }
        let fastest_in_target = axes.remove(0);
        let least_stride = axes.iter().enumerate().min_by_key(|(_, axis)| axis.from).map(|(at, _)| at);
        let fastest_in_source = match least_stride {
            Some(at) => axes.remove(at),
            None => PermutedAxis { length: 1, from: 1, to: 1 },
        };
        self.tile = Some(TileAxes { source: fastest_in_source, target: fastest_in_target });
        axes.reverse();
        self.outer = axes;
    }

    /// Returns whether source and target are the same bytes.
    pub fn is_identity(&self) -> bool {
        self.tile.is_none()
    }

    /// Copies. Both sides have the size of the shape it was made for.
    pub fn copy(&self, from: &[u8], to: &mut [u8]) {
        if from.len() != self.size || to.len() != self.size || self.size == 0 {
            return;
        }
        let Some(tile) = self.tile else { return to.copy_from_slice(from) };
        match self.width {
            1 => self.copy_elements::<1, 64>(tile, from, to),
            2 => self.copy_elements::<2, 32>(tile, from, to),
            3 => self.copy_elements::<3, 32>(tile, from, to),
            4 => self.copy_elements::<4, 32>(tile, from, to),
            6 => self.copy_elements::<6, 16>(tile, from, to),
            8 => self.copy_elements::<8, 16>(tile, from, to),
            12 => self.copy_elements::<12, 16>(tile, from, to),
            16 => self.copy_elements::<16, 8>(tile, from, to),
            _ => self.copy_wide(tile, from, to),
        }
    }

    /// Calls `plane` with the source and target offset (in elements) of each position of the outer axes.
    fn for_each_plane(&self, mut plane: impl FnMut(usize, usize)) {
        let mut position = vec![0; self.outer.len()];
        let (mut from, mut to) = (0, 0);
        loop {
            plane(from, to);
            let mut axes = position.iter_mut().zip(&self.outer).rev();
            loop {
                let Some((at, axis)) = axes.next() else { return };
                *at += 1;
                from += axis.from;
                to += axis.to;
                if *at < axis.length {
                    break;
                }
                *at = 0;
                from -= axis.length * axis.from;
                to -= axis.length * axis.to;
            }
        }
    }

    fn copy_elements<const WIDTH: usize, const TILE: usize>(
        &self,
        TileAxes { source, target }: TileAxes,
        from: &[u8],
        to: &mut [u8],
    ) {
        let (from, _) = from.as_chunks::<WIDTH>();
        let (to, _) = to.as_chunks_mut::<WIDTH>();
        let mut tile = [[[0; WIDTH]; TILE]; TILE];
        self.for_each_plane(|from_plane, to_plane| {
            for s in (0..source.length).step_by(TILE) {
                let rows = TILE.min(source.length - s);
                for t in (0..target.length).step_by(TILE) {
                    let columns = TILE.min(target.length - t);
                    let from_tile = from_plane + s * source.from + t * target.from;
                    let to_tile = to_plane + s * source.to + t * target.to;
                    for (column, line) in tile.iter_mut().take(columns).enumerate() {
                        let start = from_tile + column * target.from;
                        gather(from, start, source.from, &mut line[..rows]);
                    }
                    for row in 0..rows {
                        let start = to_tile + row * source.to;
                        let Some(line) = to.get_mut(start..start + columns) else { return };
                        match <&mut [[u8; WIDTH]; TILE]>::try_from(&mut *line) {
                            Ok(whole) => turn(whole, &tile, row), // unrolled, since its length is known
                            Err(_) => turn(line, &tile, row),
                        }
                    }
                }
            }
        });
    }

    fn copy_wide(&self, TileAxes { source, target }: TileAxes, from: &[u8], to: &mut [u8]) {
        let width = self.width;
        self.for_each_plane(|from_plane, to_plane| {
            for s in 0..source.length {
                let from_row = from_plane + s * source.from;
                let to_row = (to_plane + s * source.to) * width;
                let Some(row) = to.get_mut(to_row..to_row + target.length * width) else { return };
                for (t, element) in row.chunks_exact_mut(width).enumerate() {
                    let start = (from_row + t * target.from) * width;
                    if let Some(bytes) = from.get(start..start + width) {
                        element.copy_from_slice(bytes);
                    }
                }
            }
        });
    }
}

/// Copies every `stride`th element from `start` on.
fn gather<const WIDTH: usize>(from: &[[u8; WIDTH]], start: usize, stride: usize, line: &mut [[u8; WIDTH]]) {
    if stride == 1 {
        if let Some(run) = from.get(start..start + line.len()) {
            line.copy_from_slice(run);
        }
        return;
    }
    let source = from.get(start..).unwrap_or_default().iter().step_by(stride);
    line.iter_mut().zip(source).for_each(|(element, value)| *element = *value);
}

/// Writes row `row` of a tile that was gathered column by column.
#[inline(always)]
fn turn<const WIDTH: usize, const TILE: usize>(
    line: &mut [[u8; WIDTH]],
    tile: &[[[u8; WIDTH]; TILE]; TILE],
    row: usize,
) {
    if row < TILE {
        line.iter_mut().zip(tile).for_each(|(element, column)| *element = column[row]);
    }
}

/// Drops axes of length 1 and joins neighbours that are neighbours in the source too: (length, source stride).
fn join(axes: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    let mut joined: Vec<(usize, usize)> = Vec::with_capacity(axes.len());
    for (length, stride) in axes.into_iter().filter(|axis| axis.0 != 1) {
        match joined.last_mut() {
            Some(last) if last.1 == length * stride => *last = (last.0 * length, stride),
            _ => joined.push((length, stride)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    /// Permutes element by element, by the definition.
    fn naive(shape: &[usize], order: &[usize], item: usize, from: &[u8]) -> Vec<u8> {
        let rank = shape.len();
        let target: Vec<usize> = order.iter().map(|&axis| shape[axis]).collect();
        let mut to = Vec::with_capacity(from.len());
        for flat in 0..shape.iter().product::<usize>() {
            let mut rest = flat;
            let mut source = vec![0; rank];
            for axis in (0..rank).rev() {
                source[order[axis]] = rest % target[axis];
                rest /= target[axis];
            }
            let at = source.iter().zip(shape).fold(0, |sum, (&at, &length)| sum * length + at);
            to.extend_from_slice(&from[at * item..(at + 1) * item]);
        }
        to
    }

    fn cases() -> impl Strategy<Value = (Vec<usize>, Vec<usize>, usize)> {
        let shapes = prop_oneof![
            prop::collection::vec(0usize..6, 0..6),
            prop::collection::vec(1usize..70, 0..4),
            prop::collection::vec(prop_oneof![Just(1usize), Just(2), Just(33)], 0..5),
        ];
        let items = prop_oneof![Just(1usize), Just(2), Just(4), Just(8), Just(16), 0usize..21];
        (shapes, items).prop_flat_map(|(shape, item)| {
            let order: Vec<usize> = (0..shape.len()).collect();
            (Just(shape), Just(order).prop_shuffle(), Just(item))
        })
    }

    proptest! {
        #[test]
        fn equals_the_definition((shape, order, item) in cases()) {
            let size = shape.iter().product::<usize>() * item;
            let from: Vec<u8> = (0..size).map(|at| (at * 7 + at / 251) as u8).collect();
            let mut to = vec![0; size];
            let permute = Permute::new(&shape, &order, item);
            permute.copy(&from, &mut to);
            prop_assert_eq!(&to, &naive(&shape, &order, item, &from));
            if permute.is_identity() {
                prop_assert_eq!(&from, &to);
            }
        }
    }

    #[test]
    fn an_order_that_moves_no_byte_is_the_identity() {
        assert!(Permute::new(&[3, 4], &[0, 1], 2).is_identity());
        assert!(Permute::new(&[1, 4, 1, 5], &[2, 1, 3, 0], 2).is_identity());
        assert!(Permute::new(&[], &[], 8).is_identity());
        assert!(!Permute::new(&[2, 4], &[1, 0], 2).is_identity());
    }
}
