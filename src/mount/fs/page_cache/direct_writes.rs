//! What was written past the page cache, where memory maps may still have what was there before.
//!
//! Uses nothing of the crate. The kernel drops its pages of a range before it sends a write that passes them. A memory map that
//! touches such a page until the write has arrived brings back what was there before; when something else in that page was
//! written through the map, the kernel sends the whole page, and with it bytes that an fsync(2) may have acknowledged since.
//! Hence the invariant: of a page that comes from a map, no byte is taken that was written past the page cache after the page
//! was read. Whoever writes the same byte through the map at that moment races with the other writer, and was first.

use std::ops::Range;

use parking_lot::Mutex;

/// The most ranges that are known at once. The kernel drops its pages again behind the write, so that old ones do not matter.
const MAX_RANGES: usize = 4096;

/// The ranges of one file.
#[derive(Debug, Default)]
pub struct DirectWrites {
    /// Held from the look at the ranges until what is written is in the array.
    pub writing: Mutex<()>,
    /// Sorted; they neither overlap nor touch.
    ranges: Mutex<Vec<Range<u64>>>,
}

impl DirectWrites {
    /// Something is, or was, written past the page cache.
    pub fn insert(&self, new: Range<u64>) {
        let mut ranges = self.ranges.lock();
        let first = ranges.partition_point(|range| range.end < new.start);
        let behind = ranges.partition_point(|range| range.start <= new.end);
        let joined = ranges.get(first..behind).unwrap_or_default();
        let start = joined.first().map_or(new.start, |range| range.start.min(new.start));
        let end = joined.last().map_or(new.end, |range| range.end.max(new.end));
        ranges.splice(first..behind, std::iter::once(start..end));
        if ranges.len() > MAX_RANGES {
            ranges.clear();
            ranges.push(new);
        }
    }

    /// The kernel reads pages: they will have what was written.
    pub fn remove(&self, read: Range<u64>) {
        let mut ranges = self.ranges.lock();
        let first = ranges.partition_point(|range| range.end <= read.start);
        let behind = ranges.partition_point(|range| range.start < read.end).max(first);
        let cut = ranges.get(first..behind).unwrap_or_default();
        let before = cut.first().map(|range| range.start..read.start);
        let after = cut.last().map(|range| read.end..range.end);
        let left: Vec<Range<u64>> =
            [before, after].into_iter().flatten().filter(|range| !range.is_empty()).collect();
        ranges.splice(first..behind, left);
    }

    /// What of a page that comes from a map is taken.
    pub fn outside(&self, page: Range<u64>) -> Vec<Range<u64>> {
        let ranges = self.ranges.lock();
        let first = ranges.partition_point(|range| range.end <= page.start);
        let (mut outside, mut at) = (Vec::new(), page.start);
        for range in ranges.iter().skip(first).take_while(|range| range.start < page.end) {
            if at < range.start {
                outside.push(at..range.start);
            }
            at = range.end;
        }
        if at < page.end {
            outside.push(at..page.end);
        }
        outside
    }

    /// No map is left.
    pub fn clear(&self) {
        self.ranges.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beside a set of single bytes, over all that a few small ranges can do to each other.
    #[test]
    fn holds_what_was_written_since_it_was_read() {
        let mut state = 1u64;
        let mut below = |end: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % end
        };
        let direct_writes = DirectWrites::default();
        let mut bytes = [false; 64];
        for _ in 0..20_000 {
            let start = below(64);
            let range = start..start + below(65 - start);
            match below(3) {
                0 if !range.is_empty() => {
                    direct_writes.insert(range.clone());
                    range.for_each(|at| bytes[at as usize] = true);
                }
                1 if !range.is_empty() => {
                    direct_writes.remove(range.clone());
                    range.for_each(|at| bytes[at as usize] = false);
                }
                _ => {
                    let outside: Vec<u64> =
                        direct_writes.outside(range.clone()).into_iter().flatten().collect();
                    let expected: Vec<u64> = range.filter(|&at| !bytes[at as usize]).collect();
                    assert_eq!(outside, expected);
                }
            }
        }
    }

    #[test]
    fn knows_no_more_ranges_than_it_should() {
        let direct_writes = DirectWrites::default();
        (0..3 * MAX_RANGES as u64).for_each(|n| direct_writes.insert(4 * n..4 * n + 1));
        assert!(direct_writes.ranges.lock().len() <= MAX_RANGES);
        direct_writes.clear();
        assert_eq!(direct_writes.outside(0..100).first(), Some(&(0..100)));
    }
}
