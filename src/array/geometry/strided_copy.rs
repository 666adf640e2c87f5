//! Pieces: the part of one chunk that lies in one box of the file, as nested loops over byte runs.
//!
//! `grid.rs` makes them. Uses nothing.

/// The part of one chunk that lies in one box of the file: nested loops over byte runs.
#[derive(Debug)]
pub struct StridedCopy<'a> {
    /// Number of the chunk in C order over the grid.
    pub chunk: u64,
    /// Where the piece begins in the decoded chunk.
    pub chunk_offset: usize,
    /// Where it begins in the range that was asked for.
    pub range_offset: usize,
    /// Bytes that are contiguous in both.
    pub run: usize,
    /// The loops around the run, outermost first.
    pub loops: &'a [Loop],
}

/// One loop of a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loop {
    /// How often.
    pub count: usize,
    /// Step in the decoded chunk, bytes.
    pub chunk_stride: usize,
    /// Step in the range, bytes.
    pub range_stride: usize,
}

impl StridedCopy<'_> {
    /// Calls `copy(chunk offset, range offset)` for every run.
    pub fn for_each_run(&self, mut copy: impl FnMut(usize, usize)) {
        fn nest(loops: &[Loop], chunk: usize, range: usize, copy: &mut impl FnMut(usize, usize)) {
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

    /// The bytes of the chunk from the first to behind the last run.
    pub fn chunk_extent(&self) -> usize {
        self.loops.iter().map(|l| (l.count - 1) * l.chunk_stride).sum::<usize>() + self.run
    }

    /// All bytes of the piece.
    pub fn total_bytes(&self) -> usize {
        self.loops.iter().map(|l| l.count).product::<usize>() * self.run
    }

    /// Copies the piece out of a chunk. `chunk` is the decoded chunk from `skipped` bytes on.
    pub fn gather(&self, chunk: &[u8], skipped: usize, range: &mut [u8]) {
        let run = self.run;
        self.for_each_run(|from, to| {
            let from = from - skipped;
            range[to..to + run].copy_from_slice(&chunk[from..from + run]);
        });
    }

    /// Writes one repeated item (`item` bytes long pattern, phase by file position) into the piece's place.
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

/// Longer runs are as well copied piece by piece.
const MOST_BYTES_OF_A_SHORT_RUN: usize = 512;
/// So many chunks are read at once: more streams than a processor follows would cost what this saves.
const MOST_ALIKE: usize = 8;

/// Pieces that differ only in where they begin, such as those of the chunks in a row: gathered together, run by run of each, so
/// that short runs fill the range from its beginning to its end.
#[derive(Default)]
pub struct CopyBatch<'a> {
    run: usize,
    loops: Vec<Loop>,
    /// Of each: the decoded chunk, where the piece begins in it, where in the range.
    pieces: Vec<(&'a [u8], usize, usize)>,
}

impl<'a> CopyBatch<'a> {
    /// Copies a piece out of a decoded chunk, now or when [`CopyBatch::finish`] is called at the latest.
    pub fn gather(&mut self, piece: &StridedCopy<'_>, chunk: &'a [u8], range: &mut [u8]) {
        if piece.run > MOST_BYTES_OF_A_SHORT_RUN || piece.loops.is_empty() {
            return piece.gather(chunk, 0, range);
        }
        let is_alike = piece.run == self.run && piece.loops == self.loops;
        if !is_alike || self.pieces.len() == MOST_ALIKE {
            self.finish(range);
            self.run = piece.run;
            self.loops.clear();
            self.loops.extend_from_slice(piece.loops);
        }
        self.pieces.push((chunk, piece.chunk_offset, piece.range_offset));
    }

    /// Copies those that were not yet.
    pub fn finish(&mut self, range: &mut [u8]) {
        let run = self.run;
        let all = StridedCopy { chunk: 0, chunk_offset: 0, range_offset: 0, run, loops: &self.loops };
        all.for_each_run(|from, to| {
            for (chunk, chunk_offset, range_offset) in &self.pieces {
                let (from, to) = (chunk_offset + from, range_offset + to);
                range[to..to + run].copy_from_slice(&chunk[from..from + run]);
            }
        });
        self.pieces.clear();
    }
}

/// Repeats `item` over `out`, beginning `phase` bytes into the item.
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
        fn pieces_gathered_together_are_what_they_are_one_by_one(
            run in prop_oneof![1usize..40, 500usize..530],
            rows in 1usize..4,
            chunks in 1usize..20,
            longer in 0usize..20,
        ) {
            // A row of chunks side by side; in one of them the rows are further apart.
            let rows_of = |chunk: usize| run + usize::from(chunk == longer);
            let decoded: Vec<Vec<u8>> = (0..chunks)
                .map(|chunk| (0..rows * (run + 1)).map(|byte| (chunk * 31 + byte * 7) as u8).collect())
                .collect();
            let (mut together, mut one_by_one) = (vec![0; chunks * rows * run], vec![0; chunks * rows * run]);
            let mut alike = CopyBatch::default();
            for (number, chunk) in decoded.iter().enumerate() {
                let rows = Loop { count: rows, chunk_stride: rows_of(number), range_stride: chunks * run };
                let (chunk_offset, range_offset) = (0, number * run);
                let piece = StridedCopy { chunk: number as u64, chunk_offset, range_offset, run, loops: &[rows] };
                alike.gather(&piece, chunk, &mut together);
                piece.gather(chunk, 0, &mut one_by_one);
            }
            alike.finish(&mut together);
            prop_assert_eq!(together, one_by_one);
        }
    }
}
