//! Strided copies between one chunk and one box of the file.
//!
//! `grid.rs` makes them. Uses nothing.

/// The part of one chunk that lies in one box of the file: nested loops over contiguous byte runs.
#[derive(Debug)]
pub struct StridedCopy<'a> {
    /// Number of the chunk in C order over the grid.
    pub chunk: u64,
    /// Where the copy begins in the decoded chunk.
    pub chunk_offset: usize,
    /// Where the copy begins in the requested range.
    pub range_offset: usize,
    /// Bytes that are contiguous in the chunk and in the range.
    pub run: usize,
    /// The loops around the run, outermost first.
    pub loops: &'a [CopyLoop],
}

/// One loop of a strided copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyLoop {
    /// How many iterations.
    pub count: usize,
    /// Step in the decoded chunk, in bytes.
    pub chunk_stride: usize,
    /// Step in the range, in bytes.
    pub range_stride: usize,
}

impl StridedCopy<'_> {
    /// Calls `copy(chunk offset, range offset)` for each run.
    pub fn for_each_run(&self, mut copy: impl FnMut(usize, usize)) {
        fn nest(loops: &[CopyLoop], chunk: usize, range: usize, copy: &mut impl FnMut(usize, usize)) {
            match loops {
                [] => copy(chunk, range),
                [last] => {
                    for i in 0..last.count {
                        copy(chunk + i * last.chunk_stride, range + i * last.range_stride);
                    }
                }
                [first, rest @ ..] => {
                    for i in 0..first.count {
                        nest(rest, chunk + i * first.chunk_stride, range + i * first.range_stride, copy);
                    }
                }
            }
        }
        nest(self.loops, self.chunk_offset, self.range_offset, &mut copy);
    }

    /// Returns the bytes of the chunk from the first run to the end of the last run.
    pub fn chunk_extent(&self) -> usize {
        self.loops.iter().map(|l| (l.count - 1) * l.chunk_stride).sum::<usize>() + self.run
    }

    /// Returns all bytes of the copy.
    pub fn total_bytes(&self) -> usize {
        self.loops.iter().map(|l| l.count).product::<usize>() * self.run
    }

    /// Copies from a chunk into the range. `chunk` is the decoded chunk without its first `skipped` bytes.
    pub fn gather(&self, chunk: &[u8], skipped: usize, range: &mut [u8]) {
        let run = self.run;
        self.for_each_run(|from, to| {
            let from = from - skipped;
            range[to..to + run].copy_from_slice(&chunk[from..from + run]);
        });
    }

    /// Fills the copy's bytes of the range with the repeated `item`. The offset in the file gives the phase.
    pub fn fill(&self, range_start: u64, item: &[u8], range: &mut [u8]) {
        let uniform = item.iter().all(|byte| Some(byte) == item.first());
        let value = item.first().copied().unwrap_or(0);
        self.for_each_run(|_, to| {
            let out = &mut range[to..to + self.run];
            if uniform {
                out.fill(value);
            } else {
                let phase = ((range_start + to as u64) % item.len() as u64) as usize;
                fill_items(out, item, phase);
            }
        });
    }
}

/// Longer runs are as fast when copied chunk by chunk.
const MAX_SHORT_RUN_BYTES: usize = 512;
/// How many chunks are read at once. More streams than a processor prefetches would cost what batching saves.
const MAX_BATCH: usize = 8;

/// Copies that differ only in their offsets, such as those of a row of chunks. They are made together, run by run, so
/// short runs fill the range from its beginning to its end.
#[derive(Default)]
pub struct CopyBatch<'a> {
    run: usize,
    loops: Vec<CopyLoop>,
    /// For each copy: the decoded chunk, the offset in the chunk, the offset in the range.
    copies: Vec<(&'a [u8], usize, usize)>,
}

impl<'a> CopyBatch<'a> {
    /// Copies from a decoded chunk, now or in [`CopyBatch::finish`].
    pub fn gather(&mut self, copy: &StridedCopy<'_>, chunk: &'a [u8], range: &mut [u8]) {
        if copy.run > MAX_SHORT_RUN_BYTES || copy.loops.is_empty() {
            return copy.gather(chunk, 0, range);
        }
        let is_same_shape = copy.run == self.run && copy.loops == self.loops;
        if !is_same_shape || self.copies.len() == MAX_BATCH {
            self.finish(range);
            self.run = copy.run;
            self.loops.clear();
            self.loops.extend_from_slice(copy.loops);
        }
        self.copies.push((chunk, copy.chunk_offset, copy.range_offset));
    }

    /// Makes the copies that are still pending.
    pub fn finish(&mut self, range: &mut [u8]) {
        let run = self.run;
        let all = StridedCopy { chunk: 0, chunk_offset: 0, range_offset: 0, run, loops: &self.loops };
        all.for_each_run(|from, to| {
            for (chunk, chunk_offset, range_offset) in &self.copies {
                let (from, to) = (chunk_offset + from, range_offset + to);
                range[to..to + run].copy_from_slice(&chunk[from..from + run]);
            }
        });
        self.copies.clear();
    }
}

/// Repeats `item` over `out`, starting `phase` bytes into the item.
pub fn fill_items(out: &mut [u8], item: &[u8], phase: usize) {
    if item.is_empty() {
        return;
    }
    let head = out.len().min(item.len());
    for (i, byte) in out.iter_mut().take(head).enumerate() {
        *byte = item[(phase + i) % item.len()];
    }
    let mut done = head;
    while done < out.len() {
        let more = done.min(out.len() - done);
        let (from, to) = out.split_at_mut(done);
        to[..more].copy_from_slice(&from[..more]);
        done += more;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_batch_copies_like_single_copies(
            run in prop_oneof![1usize..40, 500usize..530],
            rows in 1usize..4,
            chunks in 1usize..20,
            longer in 0usize..20,
        ) {
            // A row of chunks side by side. In one of them the rows are further apart.
            let rows_of = |chunk: usize| run + usize::from(chunk == longer);
            let decoded: Vec<Vec<u8>> = (0..chunks)
                .map(|chunk| (0..rows * (run + 1)).map(|byte| (chunk * 31 + byte * 7) as u8).collect())
                .collect();
            let (mut together, mut one_by_one) = (vec![0; chunks * rows * run], vec![0; chunks * rows * run]);
            let mut batch = CopyBatch::default();
            for (number, chunk) in decoded.iter().enumerate() {
                let rows = CopyLoop { count: rows, chunk_stride: rows_of(number), range_stride: chunks * run };
                let (chunk_offset, range_offset) = (0, number * run);
                let copy = StridedCopy { chunk: number as u64, chunk_offset, range_offset, run, loops: &[rows] };
                batch.gather(&copy, chunk, &mut together);
                copy.gather(chunk, 0, &mut one_by_one);
            }
            batch.finish(&mut together);
            prop_assert_eq!(together, one_by_one);
        }
    }
}
