//! Which slabs sequential readers were given in full, where those keep what they are given (the kernel's page cache): nobody
//! will ask for them, so nothing of them is decoded ahead.
//!
//! Uses nothing. It is a guess and no more: whoever asks for such a slab all the same is served, and shows that the guess is
//! over ([`Consumed::forget_if_asked`]).

use std::ops::Range;

use crate::array::sync::Mutex;

/// The most ranges that are remembered; the oldest go first.
const MAX_RANGES: usize = 64;

/// Slabs by their numbers.
#[derive(Default)]
pub struct Consumed {
    /// Not empty; they neither overlap nor touch. The one that grew last is the last.
    ranges: Mutex<Vec<Range<u64>>>,
}

impl Consumed {
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

    /// Whether a slab is among them.
    pub fn contains(&self, slab: u64) -> bool {
        self.ranges.lock().iter().any(|range| range.contains(&slab))
    }

    /// A reader asks for a slab. If it is among them, they are no longer kept, and all are forgotten; whether that was so.
    pub fn forget_if_asked(&self, slab: u64) -> bool {
        let mut ranges = self.ranges.lock();
        let was_passed = ranges.iter().any(|range| range.contains(&slab));
        if was_passed {
            ranges.clear();
        }
        was_passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_grow_together_and_are_forgotten_together() {
        let passed = Consumed::default();
        for range in [4..6, 0..2, 3..3, 8..9] {
            passed.add(range);
        }
        let found: Vec<u64> = (0..10).filter(|&slab| passed.contains(slab)).collect();
        assert_eq!(found, [0, 1, 4, 5, 8]);
        passed.add(2..4);
        assert_eq!(*passed.ranges.lock(), [8..9, 0..6]);
        assert!(!passed.forget_if_asked(7) && passed.contains(5));
        assert!(passed.forget_if_asked(5) && !passed.contains(8));
        for slab in 0..200 {
            passed.add(2 * slab..2 * slab + 1);
        }
        assert_eq!(passed.ranges.lock().len(), MAX_RANGES);
        assert!(passed.contains(398) && !passed.contains(0));
    }
}
