//! Slabs that sequential readers received in full and keep themselves (in the kernel's page cache). No reader is
//! expected to ask for them, so readahead does not decode them.
//!
//! Uses `sync.rs`. Without this set, four readers that each read a quarter of an array decoded up to 1.3 times the
//! array, because each went on to decode what the next one had received. The set is a guess: a reader that asks for a
//! slab in it gets the slab, and shows that the guess no longer holds ([`ConsumedSlabs::forget_if_asked`]).

use std::ops::Range;

use crate::array::sync::Mutex;

/// The most ranges that are kept. The oldest go first.
const MAX_RANGES: usize = 64;

/// Slabs by their numbers.
#[derive(Default)]
pub struct ConsumedSlabs {
    /// Not empty; they neither overlap nor touch. The range that grew last is the last.
    ranges: Mutex<Vec<Range<u64>>>,
}

impl ConsumedSlabs {
    /// Adds slabs.
    pub fn add(&self, mut new: Range<u64>) {
        if new.is_empty() {
            return;
        }
        let mut ranges = self.ranges.lock();
        ranges.retain(|range| {
            let is_apart = range.end < new.start || new.end < range.start;
            if !is_apart {
                new = range.start.min(new.start)..range.end.max(new.end);
            }
            is_apart
        });
        if ranges.len() >= MAX_RANGES {
            ranges.remove(0);
        }
        ranges.push(new);
    }

    /// Returns whether a slab is in the set.
    pub fn contains(&self, slab: u64) -> bool {
        self.ranges.lock().iter().any(|range| range.contains(&slab))
    }

    /// Clears the set and returns `true` if a slab that a reader asks for is in it, because readers do not keep slabs
    /// then.
    pub fn forget_if_asked(&self, slab: u64) -> bool {
        let mut ranges = self.ranges.lock();
        let was_consumed = ranges.iter().any(|range| range.contains(&slab));
        if was_consumed {
            ranges.clear();
        }
        was_consumed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_and_are_cleared_together() {
        let consumed = ConsumedSlabs::default();
        for range in [4..6, 0..2, 3..3, 8..9] {
            consumed.add(range);
        }
        let found: Vec<u64> = (0..10).filter(|&slab| consumed.contains(slab)).collect();
        assert_eq!(found, [0, 1, 4, 5, 8]);
        consumed.add(2..4);
        assert_eq!(*consumed.ranges.lock(), [8..9, 0..6]);
        assert!(!consumed.forget_if_asked(7) && consumed.contains(5));
        assert!(consumed.forget_if_asked(5) && !consumed.contains(8));
        for slab in 0..200 {
            consumed.add(2 * slab..2 * slab + 1);
        }
        assert_eq!(consumed.ranges.lock().len(), MAX_RANGES);
        assert!(consumed.contains(398) && !consumed.contains(0));
    }
}
