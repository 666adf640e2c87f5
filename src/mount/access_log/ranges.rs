//! The ranges that an open file has read, condensed: adjacent reads are one range, and there are at most [`MAX_RANGES`].
//!
//! Uses nothing.

use std::ops::Range;

/// The most ranges of one line. The rest is counted.
pub const MAX_RANGES: usize = 16;

/// Ranges of a file that do not touch each other.
#[derive(Debug, Default)]
pub struct MergedRanges {
    /// Not sorted.
    ranges: Vec<Range<u64>>,
    /// How many ranges were left out.
    more: u64,
    /// The last range that was left out.
    last_more: Range<u64>,
}

fn touch(range: &Range<u64>, other: &Range<u64>) -> bool {
    // Both comparisons are made at once: there is nothing to predict in scattered reads.
    (other.start <= range.end) & (range.start <= other.end)
}

/// Extends `range` by another one that touches it. Returns whether it does.
fn extend(range: &mut Range<u64>, by: &Range<u64>) -> bool {
    let touches = touch(range, by);
    if touches {
        (range.start, range.end) = (range.start.min(by.start), range.end.max(by.end));
    }
    touches
}

impl MergedRanges {
    /// Adds a range that was read.
    pub fn add(&mut self, read: &Range<u64>) {
        if read.is_empty() {
            return;
        }
        // Most reads continue the one before, which is at the end; most others touch none.
        let is_last = self.ranges.last().is_some_and(|last| touch(last, read));
        if is_last || self.ranges.iter().fold(false, |any, range| any | touch(range, read)) {
            self.join(read);
        } else if self.ranges.len() < MAX_RANGES {
            self.ranges.push(read.clone());
        } else if self.last_more.is_empty() || !extend(&mut self.last_more, read) {
            self.more += 1;
            self.last_more = read.clone();
        }
    }

    /// Joins a range that was read with those that it touches.
    fn join(&mut self, read: &Range<u64>) {
        let mut joined = read.clone();
        self.ranges.retain(|range| !extend(&mut joined, range));
        self.ranges.push(joined);
    }

    /// Returns the ranges in the order of the file.
    pub fn sorted(&self) -> Vec<Range<u64>> {
        let mut ranges = self.ranges.clone();
        ranges.sort_by_key(|range| range.start);
        ranges
    }

    /// Returns how many further ranges there were.
    pub fn more(&self) -> u64 {
        self.more
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init)] // Lists of one range.
    use super::*;

    #[test]
    fn adjacent_reads_are_one_range_and_the_rest_is_counted() {
        let mut ranges = MergedRanges::default();
        for start in [0, 10, 30, 20, 50, 45, 45] {
            ranges.add(&(start..start + 10));
        }
        ranges.add(&(7..7));
        assert_eq!(ranges.sorted(), [0..40, 45..60]);
        for number in 0..20 {
            ranges.add(&(1000 + 20 * number..1010 + 20 * number));
        }
        assert_eq!((ranges.sorted().len(), ranges.more()), (MAX_RANGES, 6));
        ranges.add(&(1010 + 20 * 19..2000));
        assert_eq!(ranges.more(), 6, "it continues the last one");
        ranges.add(&(0..1275));
        assert_eq!(ranges.sorted(), [0..1275], "what it touches is one range with it");
    }
}
