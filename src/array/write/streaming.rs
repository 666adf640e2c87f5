//! Storing full chunks while their writer continues, and how far the writer may get ahead.
//!
//! Uses `resources.rs`, `geometry/` and `sync.rs`. A chunk that is written in full gains nothing by waiting for more
//! writes. When enough of them are dirty, a thread stores the objects that have only full chunks, while the program
//! writes the next.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::array::geometry::grid::Grid;
use crate::array::geometry::strips::slab;
use crate::array::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::array::write::resources::{RoomWait, WriteResources};

/// How much is stored at a time, at least.
const ENOUGH_BYTES: u64 = 8 << 20;
/// How far a writer gets ahead of the chunks that are being stored, beyond a slab; at least another slab, so that one
/// fills while the disk takes the other.
const LEAD_BYTES: u64 = 32 << 20;
/// A writer below the limit waits this long for room. A store that hangs delays the write, but does not fail it.
const LEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// The chunks of an array that became full and are not stored, and how much of an array may be dirty meanwhile.
pub struct FullChunks {
    resources: Arc<WriteResources>,
    /// While full chunks are stored, a writer waits if more than this is dirty.
    lead_bytes: u64,
    /// Shared with the arrays from which this one grew.
    state: Arc<FullState>,
}

#[derive(Default)]
struct FullState {
    /// Bytes of chunks that became full since a thread last took them.
    bytes: AtomicU64,
    /// Whether a thread is storing them.
    is_storing: AtomicBool,
}

/// A thread's right to store the full chunks of an array. Dropping it ends that, however the thread ends, so that
/// writers stop waiting for it.
pub struct StoringGuard {
    resources: Arc<WriteResources>,
    state: Arc<FullState>,
}

impl FullChunks {
    /// Creates an empty count for an array with this grid.
    pub fn new(grid: &Grid, resources: &Arc<WriteResources>) -> Self {
        let slab_bytes = slab(grid).map_or(u64::MAX, |slab| slab.bytes);
        let lead_bytes = slab_bytes.saturating_add(slab_bytes.max(LEAD_BYTES));
        FullChunks { resources: Arc::clone(resources), lead_bytes, state: Arc::default() }
    }

    /// Returns the full chunks of an array that continues this one.
    pub fn successor(&self, grid: &Grid) -> Self {
        FullChunks { state: Arc::clone(&self.state), ..FullChunks::new(grid, &self.resources) }
    }

    /// Counts bytes of chunks that became full. If they are enough, and no thread stores them, returns a guard, with
    /// which the caller starts one.
    pub fn add(&self, bytes: u64) -> Option<StoringGuard> {
        if bytes == 0 {
            return None;
        }
        let is_enough = self.state.bytes.fetch_add(bytes, Ordering::AcqRel) + bytes >= ENOUGH_BYTES;
        if !is_enough || self.state.is_storing.swap(true, Ordering::AcqRel) {
            return None;
        }
        Some(StoringGuard { resources: Arc::clone(&self.resources), state: Arc::clone(&self.state) })
    }

    /// Returns whether a writer should wait for chunks that are being stored, or store some itself. Their memory is
    /// then used again, and a writer far ahead of the store gains nothing in the end.
    pub fn is_crowded(&self) -> bool {
        self.resources.is_over_dirty_limit()
            || (self.is_storing() && self.resources.own_dirty_bytes() > self.lead_bytes)
    }

    fn is_storing(&self) -> bool {
        self.state.is_storing.load(Ordering::Acquire)
    }

    /// Waits while other threads store and make room. Returns whether there is room.
    pub fn wait_for_room(&self) -> bool {
        let started = Instant::now();
        self.resources.wait_for_room(|| {
            if !self.is_crowded() || !self.is_storing() {
                return RoomWait::Over;
            }
            // Above the limit, the writer can only wait for the thread that stores.
            if self.resources.is_over_dirty_limit() {
                return RoomWait::UntilChange;
            }
            match LEAD_TIMEOUT.saturating_sub(started.elapsed()) {
                Duration::ZERO => RoomWait::Over,
                left => RoomWait::AtMost(left),
            }
        });
        !self.resources.is_over_dirty_limit()
    }
}

impl StoringGuard {
    /// Takes the bytes that became full. Returns whether they are enough for one more pass.
    pub fn has_enough(&self) -> bool {
        self.state.bytes.swap(0, Ordering::AcqRel) >= ENOUGH_BYTES
    }
}

impl Drop for StoringGuard {
    fn drop(&mut self) {
        self.state.is_storing.store(false, Ordering::Release);
        self.resources.notify_room();
    }
}
