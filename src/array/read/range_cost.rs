//! When chunks that are not compressed are loaded into the cache for a slice.
//!
//! Uses nothing else of the crate.

use std::sync::atomic::{AtomicU64, Ordering};

/// What reading ranges of uncompressed chunks for slices has cost, as the number of bytes that could have been loaded in that time.
///
/// One plane after the other, across the fastest axis, needs the same chunks each time, and a system call for each of its elements. A single
/// plane may need far less than its chunks. Nobody knows what a program reads next. So ranges are read until they have cost as much as
/// loading the missing chunks, which are then loaded and paid for: loading never takes longer than the reading of ranges before it.
#[derive(Default)]
pub struct RangeCost(AtomicU64);

impl RangeCost {
    /// Returns whether to load `missing_bytes` into the cache instead of reading ranges that cost `range_bytes`.
    pub fn prefers_loading(&self, range_bytes: u64, missing_bytes: u64) -> bool {
        let pay = |spent: u64| spent.saturating_add(range_bytes).checked_sub(missing_bytes);
        if self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay).is_ok() {
            return true;
        }
        self.0.fetch_add(range_bytes, Ordering::Relaxed);
        false
    }
}
