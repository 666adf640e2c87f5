//! Dirty chunks: what was written and is not yet in the store.
//!
//! Uses its neighbours in `array`.
//!
//! Invariants:
//! - Only bytes in `written` were given by a writer; the others of a chunk are its **base** (what the store has), or
//!   undefined until they are needed. A chunk written in full is never read first.
//! - A chunk leaves the map only when what was stored is what it holds (its generation has not moved), or by
//!   [`WriteState::zero`]. From then on it is *retired*: whoever still has it looks in the map again.
//! - Who holds the states of several chunks (a write that is accepted) waits for nothing, and before only briefly for the next of them.
//! - The chunks' map is never held while waiting for the state of a chunk, which may be held during a read of the store.
//! - An array that grew in place goes on with its predecessor's [`WriteState`]; the predecessor stores nothing any more.
//! - The memory counted for a chunk is what it takes: the pages that were written to where its buffer is sparse, else the whole
//!   buffer, and what says which bytes were written.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::array::geometry::byte_ranges::ByteRanges;
use crate::array::sync::Mutex;
use crate::array::sync::atomic::AtomicBool;
use crate::array::write::streaming::FullChunks;
use crate::error::Error;
use crate::memory::{Buffer, MIN_PAGES_BYTES};
use crate::store::ObjectVersion;

/// What a dirty chunk takes beside its bytes. Of a long one it is nothing; of one byte it is nearly all.
const CHUNK_OVERHEAD_BYTES: usize = 768;

/// The memory of sparse buffers is counted by these.
const PAGE_BYTES: usize = 4096;

/// How long the timer waits after its first failure, and at most.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// One chunk with bytes that are not in the store.
pub struct DirtyChunk {
    /// Its content. Locked while the chunk is encoded, so that a stored chunk is never half of a write, and from before a write is
    /// answered until it is copied.
    pub state: Mutex<ChunkState>,
}

/// The content of a dirty chunk.
pub struct ChunkState {
    /// The chunk's bytes, as served. Shared while they are being stored as they are.
    pub bytes: Arc<Buffer>,
    /// Those that were written.
    pub written: ByteRanges,
    /// The version of the object that the other bytes are from, once they were filled in.
    pub base: Option<Option<ObjectVersion>>,
    /// Counts writes.
    pub generation: u64,
    /// When it was written last.
    pub last_write: Instant,
    /// It is no longer in the map.
    pub is_retired: bool,
    /// The pages of a sparse buffer that were written to.
    pub touched: ByteRanges,
    /// Bytes counted for it in the engine.
    pub counted: u64,
}

/// Every byte of the array is zero unless it was written since (what setting the size to 0 means here).
#[derive(Default)]
pub struct ZeroMark {
    /// Objects that have been stored since.
    pub settled: HashSet<u64>,
}

/// The dirty chunks of an array.
#[derive(Default)]
pub struct DirtyMap {
    /// By number.
    pub dirty: HashMap<u64, Arc<DirtyChunk>>,
    /// Set by [`WriteState::zero`].
    pub zero: Option<ZeroMark>,
    /// Keys put or deleted since the last sync.
    pub unsynced: BTreeSet<String>,
}

/// What a writer found when it opened the array.
pub struct Opened {
    /// How many handles write.
    pub writers: usize,
    /// Keeps other writers out for as long as it is held.
    pub _lock: Box<dyn Send + Sync>,
    /// The metadata document's bytes, as they were last found to describe this array.
    pub document: Vec<u8>,
    /// Its version then; `None` where it is to be looked at again.
    pub version: Option<ObjectVersion>,
    /// The number of the array that stores: one that grew is followed by another.
    pub array: u64,
    /// Device and inode of the array's folder, where the store has such.
    pub folder: Option<(u64, u64)>,
}

/// A failed write-back, counted, so that every handle is told once (as errseq_t in the kernel).
#[derive(Default)]
pub struct Failures {
    /// How many there were.
    pub count: u64,
    /// The last.
    pub last: Option<Error>,
    /// How often in a row the timer has failed.
    pub in_a_row: u32,
    /// When they were logged last, if nothing got through since.
    pub logged_at: Option<Instant>,
    /// The timer tries no earlier than this.
    pub retry_at: Option<Instant>,
}

/// The writing half of an array.
#[derive(Default)]
pub struct WriteState {
    /// Present while somebody writes or something is dirty.
    pub opened: Mutex<Option<Opened>>,
    /// The dirty chunks.
    pub chunks: Mutex<DirtyMap>,
    /// Serialises write-back: one thread stores chunks at a time.
    pub storing: Mutex<()>,
    /// Serialises directory fsyncs: a second fsync(2) waits for the first.
    pub syncing: Mutex<()>,
    /// It was opened for writing at some time: readers look for dirty chunks first.
    pub is_written: AtomicBool,
    /// DirtyMap that were written in full.
    pub full: FullChunks,
    /// What went wrong.
    pub failures: Mutex<Failures>,
}

impl WriteState {
    /// Counts a failure.
    pub fn fail(&self, error: &Error) {
        let mut failures = self.failures.lock();
        failures.count += 1;
        failures.last = Some(error.clone());
    }

    /// Whether the timer should leave it for now.
    pub fn waits(&self, now: Instant) -> bool {
        self.failures.lock().retry_at.is_some_and(|at| now < at)
    }

    /// Notes how the timer fared: after each failure it waits longer.
    pub fn note_timer(&self, succeeded: bool, now: Instant) {
        let mut failures = self.failures.lock();
        if succeeded {
            (failures.in_a_row, failures.retry_at) = (0, None);
        } else {
            failures.in_a_row = (failures.in_a_row + 1).min(6);
            failures.retry_at = Some(now + (FIRST_RETRY * 2u32.pow(failures.in_a_row - 1)).min(LAST_RETRY));
        }
    }

    /// Forgets all dirty chunks and marks the array as zero. Gives the bytes that they were counted with.
    pub fn zero(&self) -> u64 {
        let _storing = self.storing.lock();
        let forgotten: Vec<_> = {
            let mut chunks = self.chunks.lock();
            chunks.zero = Some(ZeroMark::default());
            chunks.dirty.drain().collect()
        };
        // A write that reached one of them by now came before the zeros.
        let mut counted = 0;
        for (_, chunk) in forgotten {
            let mut state = chunk.state.lock();
            state.is_retired = true;
            counted += std::mem::take(&mut state.counted);
        }
        counted
    }
}

impl ChunkState {
    /// A chunk of which nothing is written yet.
    pub fn new(bytes: Buffer) -> Self {
        ChunkState {
            bytes: Arc::new(bytes),
            written: ByteRanges::default(),
            touched: ByteRanges::default(),
            base: None,
            generation: 0,
            last_write: Instant::now(),
            is_retired: false,
            counted: 0,
        }
    }

    /// Notes bytes that were written.
    pub fn insert(&mut self, range: Range<usize>) {
        if self.bytes.is_sparse() && !range.is_empty() {
            self.touched.insert(range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES));
        }
        self.written.insert(range);
    }

    /// The memory that it takes.
    pub fn memory_bytes(&self) -> u64 {
        let is_sparse = self.bytes.is_sparse() && self.base.is_none();
        let bytes = if is_sparse { self.touched.total() * PAGE_BYTES } else { self.bytes.len() };
        let beside = if self.bytes.len() < MIN_PAGES_BYTES { CHUNK_OVERHEAD_BYTES } else { 0 };
        (bytes + self.written.memory_bytes() + beside) as u64
    }
}

impl DirtyMap {
    /// Whether an object's bytes are zero rather than what the store has.
    pub fn is_zero(&self, object: u64) -> bool {
        self.zero.as_ref().is_some_and(|mark| !mark.settled.contains(&object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_counts_the_memory_that_it_takes() {
        const MIB: usize = 1 << 20;
        let mut sparse = ChunkState::new(Buffer::sparse(MIB));
        assert_eq!(sparse.memory_bytes(), 0);
        sparse.insert(10..20);
        sparse.insert(3 * PAGE_BYTES - 1..3 * PAGE_BYTES + 1);
        assert_eq!(sparse.memory_bytes(), 3 * PAGE_BYTES as u64);
        sparse.base = Some(None);
        assert_eq!(sparse.memory_bytes(), MIB as u64, "once it is complete");
        let mut scattered = ChunkState::new(Buffer::new(MIB));
        (0..MIB).step_by(2).for_each(|at| scattered.insert(at..at + 1));
        assert!(scattered.memory_bytes() >= (MIB + MIB / 8 - 64) as u64, "and which bytes were written");
        assert_eq!(ChunkState::new(Buffer::sparse(100)).memory_bytes(), 868, "too short to be sparse");
    }
}
