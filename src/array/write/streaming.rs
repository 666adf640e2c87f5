//! Storing units while others are still being written: whoever writes an array from end to end has its chunks encoded
//! beside the stream.
//!
//! Uses its neighbours in `array`. A unit that was written in full will not get better by waiting; once enough of them have
//! come together, a thread stores the objects that consist of such units only. What fails stays dirty and is counted
//! like any other failure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::array::Inner;
use crate::array::geometry::strips;
use crate::array::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::array::sync::{self, Condvar, Mutex};
use crate::array::write::dirty::UnitState;
use crate::array::write::write_back::{DirtyUnits, Which};
use crate::memory::Buffer;

/// So much is stored at a time, at least.
const ENOUGH_BYTES: u64 = 8 << 20;
/// A writer gets so far ahead of the units that are being stored, beyond a slab, or by another slab: while the disk has one, the
/// next is filled.
const LEAD_BYTES: u64 = 32 << 20;
/// A writer that could go on waits this long for room: a store that hangs costs it the wait, not the write.
const LEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// Pieces of a unit this long come from writers that write the whole of it.
const MIN_PIECE_BYTES: usize = 16 << 10;

/// The units of an array that were written in full.
#[derive(Default)]
pub struct FullUnits {
    /// Bytes of those that became full since it was looked last.
    bytes: AtomicU64,
    /// A thread stores them.
    is_storing: AtomicBool,
}

/// Wakes writers that wait for room: after each change that may end a wait (fewer dirty bytes of any array, the end of a thread
/// that stores full units), [`RoomSignal::notify`] is called.
#[derive(Default)]
pub struct RoomSignal {
    /// Held while a writer looks whether there is room, so that no change is missed.
    lock: Mutex<()>,
    changed: Condvar,
}

impl RoomSignal {
    pub(in crate::array) fn notify(&self) {
        drop(self.lock.lock());
        self.changed.notify_all();
    }
}

/// A thread that stores them; however it ends, writers do not wait for it any more.
struct Storing(Arc<Inner>);

impl Drop for Storing {
    fn drop(&mut self) {
        self.0.writing.full.is_storing.store(false, Ordering::Release);
        self.0.engine.room.notify();
    }
}

impl Inner {
    /// Notes that units of so many bytes became full; enough of them are stored by a thread of their own.
    pub(in crate::array) fn note_full(inner: &Arc<Inner>, bytes: u64) {
        let full = &inner.writing.full;
        if bytes == 0 {
            return;
        }
        if full.bytes.fetch_add(bytes, Ordering::AcqRel) + bytes < ENOUGH_BYTES
            || full.is_storing.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let storing = Storing(Arc::clone(inner));
        let run = move || {
            let task_inner = &storing.0;
            // A failure is counted, and told by the next close or fsync.
            while task_inner.writing.full.bytes.swap(0, Ordering::AcqRel) >= ENOUGH_BYTES
                && task_inner.store_dirty(Which::Full).is_ok()
            {}
        };
        // Without a thread the timer, a close or the limit stores them.
        if let Err(error) = sync::spawn("full-units".to_owned(), run) {
            log::debug!("no thread to store units beside their writer: {error}");
        }
    }

    /// Whether a writer is to wait for units that are being stored, or has to store some itself: what they leave is used
    /// again, and nobody is faster in the end by being far ahead of them.
    pub(in crate::array) fn is_crowded(&self) -> bool {
        let dirty_bytes = self.engine.dirty_bytes.load(Ordering::Acquire);
        let is_storing = self.writing.full.is_storing.load(Ordering::Acquire);
        let most_beside_storing = || {
            let slab = self.slab_bytes();
            slab.saturating_add(slab.max(LEAD_BYTES))
        };
        dirty_bytes > self.engine.dirty_limit_bytes() || (is_storing && dirty_bytes > most_beside_storing())
    }

    /// Waits while what others store makes room; whether there is any.
    pub(in crate::array) fn waits_for_room(&self) -> bool {
        let started = Instant::now();
        let room = &self.engine.room;
        let mut lock = room.lock.lock();
        while self.is_crowded() && self.writing.full.is_storing.load(Ordering::Acquire) {
            let left = LEAD_TIMEOUT.saturating_sub(started.elapsed());
            if self.engine.is_over_dirty_limit() {
                room.changed.wait(&mut lock);
            } else if left.is_zero() {
                break;
            } else {
                let _ = room.changed.wait_for(&mut lock, left);
            }
        }
        drop(lock);
        !self.engine.is_over_dirty_limit()
    }

    fn slab_bytes(&self) -> u64 {
        strips::slab(&self.grid).map_or(u64::MAX, |slab| slab.bytes)
    }

    /// Whether all units of an object are dirty, and written in full.
    pub(in crate::array) fn is_full(&self, object: u64, units: &DirtyUnits) -> bool {
        let is_full = |number: u64, state: &UnitState| state.written.total() >= self.inside_bytes(number);
        units.iter().all(|(number, unit)| unit.state.try_lock().is_some_and(|state| is_full(*number, &state)))
            && self.source.unit_count(object) == units.len() as u64
    }

    /// Leaves of objects that are to make room those that are full, if there are any.
    pub(in crate::array) fn prefer_full(&self, objects: &mut HashMap<u64, DirtyUnits>) {
        let full: HashSet<u64> = objects
            .iter()
            .filter(|(object, units)| self.is_full(**object, units))
            .map(|(&object, _)| object)
            .collect();
        if !full.is_empty() {
            objects.retain(|object, _| full.contains(object));
        }
    }

    /// A buffer for a unit that is written for the first time, by a request that brings `piece_bytes` of it.
    ///
    /// A writer of long pieces, whose slab may be dirty as a whole, fills the unit: it gets a used buffer. Others get one
    /// that takes memory only where it is touched.
    pub(in crate::array) fn first_buffer(&self, length: usize, piece_bytes: usize) -> Buffer {
        let is_filled = piece_bytes >= length.min(MIN_PIECE_BYTES)
            && self.slab_bytes() <= self.engine.dirty_limit_bytes();
        if !is_filled {
            return Buffer::sparse(length);
        }
        let buffer = self.place().buffer(length);
        if let Some(untouched) = buffer.untouched() {
            // Beside the writer, who waits for each answer and leaves a processor idle.
            self.engine.workers.ahead(Box::new(move || untouched.provide()));
        }
        buffer
    }
}
