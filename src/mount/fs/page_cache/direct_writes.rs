//! Direct writes to a file that may be mapped: ranges whose old bytes memory maps may still hold.
//!
//! This file uses nothing else of the crate. The kernel drops its pages of a range before it sends a direct write. A memory map
//! that touches such a page before the write arrives brings back the old bytes. When something else in that page is written through
//! the map, the kernel sends the whole page, with outdated bytes that may replace bytes that an fsync(2) has acknowledged since.
//!
//! Invariant: of a page that comes from a map, no byte is stored that was written directly after the page was read. A program that
//! writes the same byte through the map at that moment races with the direct writer; its write counts as the earlier one.
//!
//! The file may be opened for mapping while a direct write is in progress. So a write asks for maps after its bytes are in the
//! array, and a page waits for every direct write that is in progress.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};

/// The maximum number of ranges. The kernel drops its pages again after the write, so old ranges do not matter.
const MAX_RANGES: usize = 4096;

/// The ranges of one file.
#[derive(Debug, Default)]
pub struct DirectWrites {
    /// Held for reading by direct writes, from before their bytes are in the array until their ranges are recorded.
    in_progress: RwLock<()>,
    /// Whether handles exist that may map the file. Otherwise no range is recorded.
    has_maps: AtomicBool,
    /// Sorted, disjoint and not adjacent.
    ranges: Mutex<Vec<Range<u64>>>,
}

impl DirectWrites {
    /// Begins to record ranges, when the first handle that may map the file is opened.
    pub fn begin_maps(&self) {
        self.has_maps.store(true, Ordering::SeqCst);
    }

    /// Forgets all ranges, when no handle is left that may map the file.
    pub fn end_maps(&self) {
        self.has_maps.store(false, Ordering::SeqCst);
        self.ranges.lock().clear();
    }

    /// Runs `put`, which puts the bytes of a direct write of this range into the array. Returns `None` if it would wait for a page
    /// and must not.
    pub fn write<T>(&self, range: Range<u64>, may_wait: bool, put: impl FnOnce() -> T) -> Option<T> {
        let _in_progress = if may_wait { self.in_progress.read() } else { self.in_progress.try_read()? };
        let outcome = put();
        // A page that was read meanwhile may hold the old or the new bytes.
        if self.has_maps.load(Ordering::SeqCst) {
            self.insert(range);
        }
        Some(outcome)
    }

    /// Runs `put` with the parts of a map's page that may be stored. Returns `None` if it would wait for a direct write and must not.
    pub fn write_page<T>(
        &self,
        page: Range<u64>,
        may_wait: bool,
        put: impl FnOnce(Vec<Range<u64>>) -> T,
    ) -> Option<T> {
        if !self.has_maps.load(Ordering::SeqCst) {
            // The file is written through the page cache only.
            return Some(put(vec![page]));
        }
        let _alone = if may_wait { self.in_progress.write() } else { self.in_progress.try_write()? };
        Some(put(self.outside(page)))
    }

    /// Records that the kernel reads these pages, which get the current bytes.
    pub fn record_page_read(&self, pages: Range<u64>) {
        if self.has_maps.load(Ordering::SeqCst) {
            self.remove(pages);
        }
    }

    fn insert(&self, new: Range<u64>) {
        let mut ranges = self.ranges.lock();
        let first = ranges.partition_point(|range| range.end < new.start);
        let after = ranges.partition_point(|range| range.start <= new.end);
        let joined = ranges.get(first..after).unwrap_or_default();
        let start = joined.first().map_or(new.start, |range| range.start.min(new.start));
        let end = joined.last().map_or(new.end, |range| range.end.max(new.end));
        ranges.splice(first..after, std::iter::once(start..end));
        if ranges.len() > MAX_RANGES {
            ranges.clear();
            ranges.push(new);
        }
    }

    fn remove(&self, read: Range<u64>) {
        let mut ranges = self.ranges.lock();
        let first = ranges.partition_point(|range| range.end <= read.start);
        let after = ranges.partition_point(|range| range.start < read.end).max(first);
        let cut = ranges.get(first..after).unwrap_or_default();
        let before = cut.first().map(|range| range.start..read.start);
        let rest = cut.last().map(|range| read.end..range.end);
        let left: Vec<Range<u64>> =
            [before, rest].into_iter().flatten().filter(|range| !range.is_empty()).collect();
        ranges.splice(first..after, left);
    }

    fn outside(&self, page: Range<u64>) -> Vec<Range<u64>> {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the ranges with a set of bytes, in random operations.
    #[test]
    fn ranges_are_a_set_of_bytes() {
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
    fn the_number_of_ranges_is_limited() {
        let direct_writes = DirectWrites::default();
        (0..3 * MAX_RANGES as u64).for_each(|n| direct_writes.insert(4 * n..4 * n + 1));
        assert!(direct_writes.ranges.lock().len() <= MAX_RANGES);
        direct_writes.end_maps();
        assert_eq!(direct_writes.outside(0..100).first(), Some(&(0..100)));
    }
}
