//! A block of an array, as runs of bytes.
//!
//! Uses nothing.

/// Blocks of one shape in arrays of one shape, both in C order, as runs that are contiguous in both.
#[derive(Clone, Debug)]
pub struct CopyRegion {
    /// Bytes that follow each other in the block and in the array.
    run_bytes: usize,
    /// (count, stride in bytes in the array) of the axes outside a run, slowest first.
    axes: Vec<(usize, usize)>,
    /// Bytes in the array from a block to its neighbour, per axis.
    block_strides: Vec<usize>,
    /// Blocks per axis.
    blocks: Vec<usize>,
}

impl CopyRegion {
    /// Blocks of shape `block` in arrays of shape `array`, which it divides; the product of `array` and the
    /// item size fits usize.
    pub fn new(array: &[usize], block: &[usize], item_size: usize) -> CopyRegion {
        if array.contains(&0) {
            // Without elements there are no blocks, and the strides might overflow.
            return CopyRegion {
                run_bytes: 0,
                axes: Vec::new(),
                block_strides: Vec::new(),
                blocks: Vec::new(),
            };
        }
        let mut axes = Vec::new();
        let mut block_strides = Vec::new();
        let mut run_bytes = item_size;
        let mut stride = item_size;
        let mut is_run = true;
        for (&length, &part) in array.iter().zip(block).rev() {
            block_strides.push(stride * part);
            if is_run {
                run_bytes *= part;
                is_run = part == length;
            } else if part != 1 {
                axes.push((part, stride));
            }
            stride *= length;
        }
        axes.reverse();
        block_strides.reverse();
        let blocks = array.iter().zip(block).map(|(length, part)| length / part.max(&1)).collect();
        CopyRegion { run_bytes, axes, block_strides, blocks }
    }

    /// Returns where block number `index` (C order) starts in the array, in bytes.
    pub fn start(&self, index: usize) -> usize {
        let mut rest = index;
        let mut start = 0;
        for (&count, &stride) in self.blocks.iter().zip(&self.block_strides).rev() {
            start += rest % count.max(1) * stride;
            rest /= count.max(1);
        }
        start
    }

    /// Returns whether a block is one run.
    pub fn is_one_run(&self) -> bool {
        self.axes.is_empty()
    }

    /// Calls `run` with the start in the array and the length of each run of the block that starts at `start`.
    pub fn for_each_run(&self, start: usize, mut run: impl FnMut(usize, usize)) {
        let mut position = vec![0; self.axes.len()];
        let mut at = start;
        loop {
            run(at, self.run_bytes);
            let mut axes = position.iter_mut().zip(&self.axes).rev();
            loop {
                let Some((index, &(count, stride))) = axes.next() else { return };
                *index += 1;
                at += stride;
                if *index < count {
                    break;
                }
                *index = 0;
                at -= count * stride;
            }
        }
    }

    /// Copies a block into the array.
    pub fn scatter(&self, start: usize, block: &[u8], array: &mut [u8]) {
        let mut rest = block;
        self.for_each_run(start, |at, length| {
            if let (Some((run, tail)), Some(target)) =
                (rest.split_at_checked(length), array.get_mut(at..at + length))
            {
                target.copy_from_slice(run);
                rest = tail;
            }
        });
    }

    /// Copies a block out of the array.
    pub fn gather(&self, start: usize, array: &[u8], block: &mut [u8]) {
        let mut filled = 0;
        self.for_each_run(start, |at, length| {
            if let (Some(source), Some(target)) =
                (array.get(at..at + length), block.get_mut(filled..filled + length))
            {
                target.copy_from_slice(source);
                filled += length;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_cover_the_array_once(
            axes in prop::collection::vec((1usize..4, 1usize..5), 0..5),
            item in 1usize..4,
        ) {
            let block: Vec<usize> = axes.iter().map(|axis| axis.0).collect();
            let array: Vec<usize> = axes.iter().map(|axis| axis.0 * axis.1).collect();
            let region = CopyRegion::new(&array, &block, item);
            let size = array.iter().product::<usize>() * item;
            let block_size = block.iter().product::<usize>() * item;
            let source: Vec<u8> = (0..size).map(|at| at as u8).collect();
            let mut copy = vec![0; size];
            let mut seen = vec![0; size];
            for index in 0..axes.iter().map(|axis| axis.1).product::<usize>() {
                let mut bytes = vec![0; block_size];
                let start = region.start(index);
                region.gather(start, &source, &mut bytes);
                region.scatter(start, &bytes, &mut copy);
                let mut total = 0;
                region.for_each_run(start, |at, length| {
                    total += length;
                    seen[at..at + length].iter_mut().for_each(|count| *count += 1);
                });
                prop_assert_eq!(total, block_size);
                prop_assert!(!region.is_one_run() || total == region.run_bytes);
                // The first element of each row of the block, by the definition.
                let mut rest = index;
                let origin: Vec<usize> = axes.iter().rev().map(|axis| {
                    let at = rest % axis.1 * axis.0;
                    rest /= axis.1;
                    at
                }).collect();
                let flat = origin.iter().rev().zip(&array).fold(0, |sum, (at, length)| sum * length + at);
                prop_assert_eq!(start, flat * item);
            }
            prop_assert_eq!(copy, source);
            prop_assert!(seen.iter().all(|&count| count == 1));
        }
    }
}
