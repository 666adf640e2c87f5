//! Dirty chunks: written, and not yet in the store.
//!
//! Uses its neighbours in `array`, `error`, `memory` and `store`.
//!
//! Invariants:
//! - Only the bytes in `written` come from a writer. The others are the chunk's **base** (what the store has), or
//!   undefined until they are needed. A chunk that is written in full is never read first.
//! - A chunk leaves the map only when exactly its content was stored (its generation has not changed), or by
//!   [`WriteState::zero`]. It is then *retired*: a thread that still holds it looks in the map again.
//! - A thread that holds the locks of several chunks (for a write that it accepts) waits for nothing. While it takes
//!   them, it waits only briefly for the next one.
//! - No thread holds the map's lock while it waits for a chunk's lock, which another thread may hold during a read of
//!   the store.
//! - An array that grew continues with its predecessor's [`WriteState`]; the predecessor stores nothing any more.
//! - A chunk counts with the memory that it takes: the written pages of a sparse buffer, else the whole buffer; and the
//!   record of which bytes were written.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::array::geometry::byte_ranges::ByteRanges;
use crate::array::sync::Mutex;
use crate::array::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::array::write::streaming::FullChunks;
use crate::error::Error;
use crate::memory::{Buffer, MIN_PAGES_BYTES};
use crate::store::{FileId, ObjectVersion};

/// The memory of a dirty chunk beside its bytes. It does not matter for a long chunk; for one byte it is nearly all.
const CHUNK_OVERHEAD_BYTES: usize = 768;

/// The memory of a sparse buffer is counted in these.
const PAGE_BYTES: usize = 4096;

/// The timer's shortest and longest wait after failures.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// A chunk with bytes that are not in the store. It is locked while it is encoded, so that half a write is never stored. A
/// write locks it before the reply, and until the bytes are copied.
pub type DirtyChunk = Mutex<ChunkState>;

/// The content of a dirty chunk.
pub struct ChunkState {
    /// The chunk's bytes, as served. Shared while they are stored uncompressed.
    pub bytes: Arc<Buffer>,
    /// The bytes that were written.
    pub written: ByteRanges,
    /// The version of the object from which the other bytes come, once they are loaded.
    pub base: Option<Option<ObjectVersion>>,
    /// The bytes that were written since the chunk was last encoded for a remote store: what a put under way does not store.
    pub since: Option<ByteRanges>,
    /// Counts the writes.
    pub generation: u64,
    /// The time of the last write.
    pub last_write: Instant,
    /// The chunk is no longer in the map.
    pub is_retired: bool,
    /// The written pages of a sparse buffer.
    pub touched: ByteRanges,
    /// The bytes that the engine counts for this chunk.
    pub counted: u64,
}

/// Every byte of the array is zero unless it was written since: the effect of truncating the file to 0.
#[derive(Default)]
pub struct ZeroMark {
    /// Objects that were stored since.
    pub settled: HashSet<u64>,
}

/// The dirty chunks of an array.
#[derive(Default)]
pub struct DirtyMap {
    /// Dirty chunks by number.
    pub dirty: HashMap<u64, Arc<DirtyChunk>>,
    /// Set by [`WriteState::zero`].
    pub zero: Option<ZeroMark>,
    /// Keys put or deleted since the last sync.
    pub unsynced: BTreeSet<String>,
}

/// What the array looked like when it was opened for writing.
pub struct WriteSession {
    /// How many handles have it open for writing.
    pub writers: usize,
    /// Excludes other writers while it lives.
    pub _lock: Box<dyn Send + Sync>,
    /// The bytes of the metadata document, when it last described this array.
    pub document: Vec<u8>,
    /// The document's version at that time; `None` if it must be read again.
    pub version: Option<ObjectVersion>,
    /// The number of the array that stores. It changes when the array grows.
    pub array: u64,
    /// Device and inode of the array's folder, if the store has them.
    pub folder: Option<FileId>,
    /// What the store has after the array's end is known to be fill value, as long as nobody else replaces the document.
    pub is_end_clear: bool,
}

/// Failed write-backs, counted so that each handle reports them once (like errseq_t in the kernel).
#[derive(Default)]
pub struct Failures {
    /// How many failures there were.
    pub count: u64,
    /// The last failure.
    pub last: Option<Error>,
    /// How many times in a row the timer has failed.
    pub in_a_row: u32,
    /// When failures were last logged; reset by a success.
    pub logged_at: Option<Instant>,
    /// The timer does not try again before this time.
    pub retry_at: Option<Instant>,
}

/// The writing half of an array.
#[derive(Default)]
pub struct WriteState {
    /// Present while the array has a writer or a dirty chunk.
    pub opened: Mutex<Option<WriteSession>>,
    /// The dirty chunks.
    pub chunks: Mutex<DirtyMap>,
    /// Serialises write-back: one thread stores chunks at a time.
    pub storing: Mutex<()>,
    /// Serialises directory fsyncs: a second fsync(2) waits for the first.
    pub syncing: Mutex<()>,
    /// The array was once opened for writing, so readers look for dirty chunks first.
    pub is_written: AtomicBool,
    /// How many parts of chunks were written.
    pub copies: AtomicU64,
    /// Chunks that were written in full.
    pub full: FullChunks,
    /// Failures of write-back.
    pub failures: Mutex<Failures>,
    /// The node is about to be removed or renamed: writes fail.
    pub refuses_writes: AtomicBool,
    /// The node was removed or renamed: nothing is stored any more.
    pub has_ended: AtomicBool,
    /// Something was written that was not stored by then.
    pub has_lost: AtomicBool,
}

impl WriteState {
    /// Counts a failure.
    pub fn fail(&self, error: &Error) {
        let mut failures = self.failures.lock();
        failures.count += 1;
        failures.last = Some(error.clone());
    }

    /// Whether the timer should skip the array for now.
    pub fn waits(&self, now: Instant) -> bool {
        self.failures.lock().retry_at.is_some_and(|at| now < at)
    }

    /// Records a success or failure of the timer. The timer waits longer after each failure.
    pub fn note_timer(&self, succeeded: bool, now: Instant) {
        let mut failures = self.failures.lock();
        if succeeded {
            (failures.in_a_row, failures.retry_at) = (0, None);
        } else {
            failures.in_a_row = (failures.in_a_row + 1).min(6);
            failures.retry_at = Some(now + (FIRST_RETRY * 2u32.pow(failures.in_a_row - 1)).min(LAST_RETRY));
        }
    }

    /// Drops all dirty chunks and marks the array as zero. Returns the bytes that were counted for the chunks.
    pub fn zero(&self) -> u64 {
        let _storing = self.storing.lock();
        self.drop_dirty(Some(ZeroMark::default()))
    }

    /// Drops all dirty chunks. Returns the bytes that were counted for them. The caller holds the lock of write-back.
    pub fn drop_dirty(&self, zero: Option<ZeroMark>) -> u64 {
        let forgotten: Vec<_> = {
            let mut chunks = self.chunks.lock();
            chunks.zero = zero;
            self.copies.fetch_add(1, Ordering::AcqRel);
            chunks.dirty.drain().collect()
        };
        // A write that still reaches one of these chunks precedes this.
        let mut counted = 0;
        for (_, chunk) in forgotten {
            let mut state = chunk.lock();
            state.is_retired = true;
            counted += std::mem::take(&mut state.counted);
        }
        counted
    }
}

impl ChunkState {
    /// A chunk without writes.
    pub fn new(bytes: Buffer) -> Self {
        ChunkState {
            bytes: Arc::new(bytes),
            written: ByteRanges::default(),
            touched: ByteRanges::default(),
            base: None,
            since: None,
            generation: 0,
            last_write: Instant::now(),
            is_retired: false,
            counted: 0,
        }
    }

    /// Records written bytes.
    pub fn insert(&mut self, range: Range<usize>) {
        if self.bytes.is_sparse() && !range.is_empty() {
            self.touched.insert(range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES));
        }
        if let Some(since) = &mut self.since {
            since.insert(range.clone());
        }
        self.written.insert(range);
    }

    /// The memory that the chunk takes.
    pub fn memory_bytes(&self) -> u64 {
        let is_sparse = self.bytes.is_sparse() && self.base.is_none();
        let bytes = if is_sparse { self.touched.total() * PAGE_BYTES } else { self.bytes.len() };
        let beside = if self.bytes.len() < MIN_PAGES_BYTES { CHUNK_OVERHEAD_BYTES } else { 0 };
        let since = self.since.as_ref().map_or(0, ByteRanges::memory_bytes);
        (bytes + self.written.memory_bytes() + since + beside) as u64
    }
}

impl DirtyMap {
    /// Whether an object is zero, whatever the store has.
    pub fn is_zero(&self, object: u64) -> bool {
        self.zero.as_ref().is_some_and(|mark| !mark.settled.contains(&object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dirty_chunk_counts_its_memory() {
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
