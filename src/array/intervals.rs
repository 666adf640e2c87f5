//! Sets of bytes as sorted intervals: which bytes of a dirty unit were written.
//!
//! Uses nothing. Invariant: the intervals are sorted, not empty, and neither overlap nor touch.

use std::ops::Range;

/// A set of positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals {
    ranges: Vec<Range<usize>>,
    total: usize,
}

impl Intervals {
    /// Adds a range.
    pub fn insert(&mut self, new: Range<usize>) {
        if new.is_empty() {
            return;
        }
        // Those that overlap or touch it become one with it.
        let first = self.ranges.partition_point(|range| range.end < new.start);
        let behind = self.ranges.partition_point(|range| range.start <= new.end);
        let joined = self.ranges.get(first..behind).unwrap_or_default();
        let start = joined.first().map_or(new.start, |range| range.start.min(new.start));
        let end = joined.last().map_or(new.end, |range| range.end.max(new.end));
        let before: usize = joined.iter().map(Range::len).sum();
        self.total = self.total - before + (end - start);
        self.ranges.splice(first..behind, std::iter::once(start..end));
    }

    /// How many positions are in it.
    pub fn total(&self) -> usize {
        self.total
    }

    /// The ranges below `length` that are not in it, in order.
    pub fn gaps(&self, length: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let starts = std::iter::once(0).chain(self.ranges.iter().map(|range| range.end));
        let ends = self.ranges.iter().map(|range| range.start).chain(std::iter::once(length));
        starts.zip(ends).map(move |(start, end)| start..end.min(length)).filter(|range| !range.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn as_a_naive_set(ranges in proptest::collection::vec((0usize..100, 0usize..30), 0..30)) {
            let mut set = Intervals::default();
            let mut naive = [false; 130];
            for (start, length) in ranges {
                set.insert(start..start + length);
                naive[start..start + length].fill(true);
                prop_assert_eq!(set.total(), naive.iter().filter(|&&is_in| is_in).count());
                let mut gaps = [true; 130];
                for gap in set.gaps(130) {
                    gaps[gap].fill(false);
                }
                prop_assert_eq!(gaps, naive);
                prop_assert!(set.ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }
    }
}
