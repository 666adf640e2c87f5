//! Sets of byte positions: the bytes of a dirty chunk that were written.
//!
//! Uses nothing. A small set is a list of ranges. Scattered writes of single bytes would make as many ranges as bytes,
//! so a set of more than [`MAX_RANGES`] ranges becomes one bit per byte.

use std::ops::Range;

/// A set of more ranges is stored as bits.
const MAX_RANGES: usize = 256;
/// Positions per word of bits.
const WORD: usize = u64::BITS as usize;

/// A set of positions.
#[derive(Clone, Debug)]
pub struct ByteRanges {
    positions: BytePositions,
    total: usize,
}

#[derive(Clone, Debug)]
enum BytePositions {
    /// Sorted and not empty; they neither overlap nor touch.
    Ranges(Vec<Range<usize>>),
    /// Bit `i % 64` of word `i / 64`. Words past the end are 0.
    Bits(Vec<u64>),
}

impl Default for ByteRanges {
    fn default() -> Self {
        ByteRanges { positions: BytePositions::Ranges(Vec::new()), total: 0 }
    }
}

impl ByteRanges {
    /// Adds a range.
    pub fn insert(&mut self, new: Range<usize>) {
        if new.is_empty() {
            return;
        }
        match &mut self.positions {
            BytePositions::Bits(words) => self.total += set_bits(words, new),
            BytePositions::Ranges(ranges) => {
                // Ranges that overlap or touch the new one merge with it.
                let first = ranges.partition_point(|range| range.end < new.start);
                let last = ranges.partition_point(|range| range.start <= new.end);
                let joined = ranges.get(first..last).unwrap_or_default();
                let start = joined.first().map_or(new.start, |range| range.start.min(new.start));
                let end = joined.last().map_or(new.end, |range| range.end.max(new.end));
                let before: usize = joined.iter().map(Range::len).sum();
                self.total = self.total - before + (end - start);
                ranges.splice(first..last, std::iter::once(start..end));
                if ranges.len() > MAX_RANGES {
                    let mut words = Vec::new();
                    for range in ranges.drain(..) {
                        set_bits(&mut words, range);
                    }
                    self.positions = BytePositions::Bits(words);
                }
            }
        }
    }

    /// Returns the memory that the set takes in addition to the struct itself.
    pub fn memory_bytes(&self) -> usize {
        match &self.positions {
            BytePositions::Ranges(_) => 0, // a page at most
            BytePositions::Bits(words) => words.capacity() * size_of::<u64>(),
        }
    }

    /// Returns how many positions the set has.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Returns the ranges below `length` that are not in the set, in order.
    pub fn gaps(&self, length: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut at = 0;
        let mut next_range = 0;
        std::iter::from_fn(move || {
            while at < length {
                let gap = match &self.positions {
                    BytePositions::Ranges(ranges) => {
                        let from = at;
                        let next = ranges.get(next_range);
                        next_range += 1;
                        at = next.map_or(length, |range| range.end);
                        from..next.map_or(length, |range| range.start)
                    }
                    BytePositions::Bits(words) => {
                        let from = find(words, at, length, false);
                        at = find(words, from, length, true);
                        from..at
                    }
                };
                let gap = gap.start..gap.end.min(length);
                if !gap.is_empty() {
                    return Some(gap);
                }
            }
            None
        })
    }

    /// Calls `with` for each range of the set below `length`, in order.
    pub fn each(&self, length: usize, mut with: impl FnMut(Range<usize>)) {
        let mut at = 0;
        for gap in self.gaps(length) {
            with(at..gap.start);
            at = gap.end;
        }
        with(at..length);
    }
}

/// Sets the bits of a range. Returns how many were clear before.
fn set_bits(words: &mut Vec<u64>, range: Range<usize>) -> usize {
    let needed = range.end.div_ceil(WORD);
    if words.len() < needed {
        words.resize(needed, 0);
    }
    let mut added = 0;
    for (number, word) in words.iter_mut().enumerate().take(needed).skip(range.start / WORD) {
        let from = range.start.saturating_sub(number * WORD);
        let to = (range.end - number * WORD).min(WORD);
        let below = |end: usize| if end == WORD { u64::MAX } else { (1 << end) - 1 };
        let mask = below(to) & !below(from);
        added += (mask & !*word).count_ones() as usize;
        *word |= mask;
    }
    added
}

/// Returns the first position from `from` on with a bit equal to `is_set`; `length` if there is none.
fn find(words: &[u64], from: usize, length: usize, is_set: bool) -> usize {
    let mut at = from;
    while at < length {
        let word = words.get(at / WORD).copied().unwrap_or(0);
        let wanted = if is_set { word } else { !word } >> (at % WORD);
        if wanted != 0 {
            return (at + wanted.trailing_zeros() as usize).min(length);
        }
        at = (at / WORD + 1) * WORD;
    }
    length
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Compares a set with a list of flags, in both forms.
    fn compare(ranges: &[(usize, usize)], as_bits: bool) {
        let mut set = ByteRanges::default();
        if as_bits {
            set.positions = BytePositions::Bits(Vec::new());
        }
        let mut naive = [false; 430];
        for &(start, length) in ranges {
            set.insert(start..start + length);
            naive[start..start + length].fill(true);
            assert_eq!(set.total(), naive.iter().filter(|&&is_in| is_in).count());
            for end in [430, 300, 64, 0] {
                let mut flags = vec![true; end];
                let mut last_end = None;
                for gap in set.gaps(end) {
                    assert!(last_end.is_none_or(|last| last < gap.start), "gaps are as long as can be");
                    last_end = Some(gap.end);
                    flags[gap].fill(false);
                }
                assert_eq!(flags, naive[..end]);
            }
        }
    }

    proptest! {
        #[test]
        fn as_a_naive_set(ranges in proptest::collection::vec((0usize..400, 0usize..30), 0..30), as_bits: bool) {
            compare(&ranges, as_bits);
        }
    }

    #[test]
    fn scattered_writes_cost_a_bit_per_byte() {
        let mut set = ByteRanges::default();
        for at in (0..1 << 20).step_by(2) {
            set.insert(at..at + 1);
        }
        assert!(matches!(set.positions, BytePositions::Bits(ref words) if words.len() == (1 << 20) / WORD));
        assert_eq!((set.total(), set.gaps(1 << 20).count()), (1 << 19, 1 << 19));
        set.insert(0..1 << 20);
        assert_eq!((set.total(), set.gaps(1 << 20).count()), (1 << 20, 0));
    }
}
