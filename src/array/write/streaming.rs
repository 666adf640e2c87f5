//! Stores full chunks beside their writer: while a program writes an array from end to end, its full chunks are encoded
//! already.
//!
//! Uses its neighbours in `array`, and `memory`. A chunk that is written in full gains nothing by waiting. When enough
//! of them are dirty, a thread stores the objects that have only such chunks. A failure leaves them dirty and is
//! counted like any other failure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::array::Inner;
use crate::array::geometry::strips;
use crate::array::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::array::sync::{self, Condvar, Mutex};
use crate::array::write::dirty::ChunkState;
use crate::array::write::write_back::{DirtyChunks, Which};
use crate::memory::Buffer;

/// How much is stored at a time, at least.
const ENOUGH_BYTES: u64 = 8 << 20;
/// How far a writer gets ahead of the chunks that are being stored, beyond a slab; at least another slab, so that one
/// fills while the disk takes the other.
const LEAD_BYTES: u64 = 32 << 20;
/// A writer below the limit waits this long for room. A store that hangs delays the write, but does not fail it.
const LEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// Requests of this length come from programs that write whole chunks.
const MIN_FULL_REQUEST_BYTES: usize = 16 << 10;

/// The full chunks of an array.
#[derive(Default)]
pub struct FullChunks {
    /// Bytes of chunks that became full since the last look.
    bytes: AtomicU64,
    /// A thread is storing them.
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

/// Clears `is_storing` however the thread ends, so that writers stop waiting for it.
struct StoringGuard(Arc<Inner>);

impl Drop for StoringGuard {
    fn drop(&mut self) {
        self.0.writing.full.is_storing.store(false, Ordering::Release);
        self.0.engine.room.notify();
    }
}

impl Inner {
    /// Records that chunks with this many bytes became full. When they are enough, a new thread stores them.
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
        let storing = StoringGuard(Arc::clone(inner));
        let run = move || {
            let task_inner = &storing.0;
            // A failure is counted. The next close or fsync reports it.
            while task_inner.writing.full.bytes.swap(0, Ordering::AcqRel) >= ENOUGH_BYTES
                && task_inner.store_dirty(Which::Full).is_ok()
            {}
        };
        // Without this thread, the timer, a close or the dirty limit stores them.
        if let Err(error) = sync::spawn("full-chunks".to_owned(), run) {
            log::debug!("cannot start the thread that stores full chunks: {error}");
        }
    }

    /// Whether a writer should wait for chunks that are being stored, or store some itself. Their memory is then used
    /// again, and a writer far ahead of the store gains nothing in the end.
    pub(in crate::array) fn is_crowded(&self) -> bool {
        let dirty_bytes = self.engine.dirty_bytes.load(Ordering::Acquire);
        let is_storing = self.writing.full.is_storing.load(Ordering::Acquire);
        let most_beside_storing = || {
            let slab = self.slab_bytes();
            slab.saturating_add(slab.max(LEAD_BYTES))
        };
        dirty_bytes > self.engine.dirty_limit_bytes() || (is_storing && dirty_bytes > most_beside_storing())
    }

    /// Waits while other threads store and make room. Returns whether there is room.
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

    /// Whether all chunks of an object are dirty and full.
    pub(in crate::array) fn is_full(&self, object: u64, chunks: &DirtyChunks) -> bool {
        let is_full = |number: u64, state: &ChunkState| state.written.total() >= self.inside_bytes(number);
        chunks.iter().all(|(number, chunk)| chunk.try_lock().is_some_and(|state| is_full(*number, &state)))
            && self.source.chunk_count(object) == chunks.len() as u64
    }

    /// Keeps only the full objects among those to store, if there are any.
    pub(in crate::array) fn prefer_full(&self, objects: &mut HashMap<u64, DirtyChunks>) {
        let full: HashSet<u64> = objects
            .iter()
            .filter(|(object, chunks)| self.is_full(**object, chunks))
            .map(|(&object, _)| object)
            .collect();
        if !full.is_empty() {
            objects.retain(|object, _| full.contains(object));
        }
    }

    /// A buffer for a chunk's first write, which brings `request_bytes` of it.
    ///
    /// A writer of long requests with a slab within the dirty limit fills the chunk, so it gets a recycled buffer. Other
    /// writers get a buffer that takes memory only where it is touched.
    pub(in crate::array) fn first_buffer(&self, length: usize, request_bytes: usize) -> Buffer {
        let is_filled = request_bytes >= length.min(MIN_FULL_REQUEST_BYTES)
            && self.slab_bytes() <= self.engine.dirty_limit_bytes();
        if !is_filled {
            return Buffer::sparse(length);
        }
        let buffer = self.load_context().buffer(length);
        if let Some(untouched) = buffer.untouched() {
            // Provides the memory on another thread: the writer waits for each reply and leaves a processor idle.
            self.engine.workers.ahead(Box::new(move || untouched.provide()));
        }
        buffer
    }
}
