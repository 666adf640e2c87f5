//! Dirty chunks: written, and not yet in the store.
//!
//! Uses `geometry/`, `cache/`, `memory` and `store`. `dirty_chunks.rs` has all that happens to them.
//!
//! Invariants:
//! - Only the bytes in `written` come from a writer. The others are the chunk's **base** (what the store has), or
//!   undefined until they are needed. A chunk that is written in full is never read first.
//! - A chunk leaves the map only when exactly its content was stored (its generation has not changed), or when the
//!   array is truncated to 0 or ends. It is then *retired*: a thread that still holds it looks in the map again.
//! - A thread that holds the locks of several chunks (for a write that it accepts) waits for nothing. While it takes
//!   them, it waits only briefly for the next one.
//! - No thread holds the map's lock while it waits for a chunk's lock, which another thread may hold during a read of
//!   the store.
//! - An array that grew continues with its predecessor's dirty chunks; the predecessor stores nothing any more.
//! - What is written is recorded in the log of unstored bytes, if there is one, under the chunk's lock or before it is
//!   taken. A chunk refers to its first record.
//! - A chunk counts with the memory that it takes: the written pages of a sparse buffer, else the whole buffer; and the
//!   record of which bytes were written.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::array::cache::{CachedContent, LoadedContent};
use crate::array::geometry::byte_ranges::ByteRanges;
use crate::array::geometry::strided_copy::{StridedCopy, fill_items};
use crate::array::sync::Mutex;
use crate::array::write::unstored_log::{Recorded, Segment, UnstoredLog};
use crate::memory::{Buffer, MIN_PAGES_BYTES};
use crate::store::ObjectVersion;

/// The memory of a dirty chunk in addition to its bytes. It does not matter for a long chunk; for one byte it is nearly
/// all.
const CHUNK_OVERHEAD_BYTES: usize = 768;

/// The memory of a sparse buffer is counted in these.
const PAGE_BYTES: usize = 4096;

/// A chunk with bytes that are not in the store. It is locked while it is encoded, so that half a write is never
/// stored. A write locks it before the reply, and until the bytes are copied.
pub type DirtyChunk = Mutex<ChunkState>;

/// The content of a dirty chunk.
pub struct ChunkState {
    /// The chunk's bytes, as served. Shared while they are stored uncompressed.
    pub bytes: Arc<Buffer>,
    /// The bytes that were written.
    pub written: ByteRanges,
    /// The version of the object from which the other bytes come, once they are loaded.
    pub base: Option<Option<ObjectVersion>>,
    /// The bytes that were written since the chunk was last encoded for a remote store: what a put under way does not
    /// store.
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
    /// What the log of unstored bytes has of it.
    pub records: ChunkRecords,
}

/// The records of a chunk in the log of unstored bytes.
#[derive(Default)]
pub struct ChunkRecords {
    /// The segment of the first record that is not in the store.
    first: Option<Arc<Segment>>,
    /// The number of the last record.
    last: u64,
    /// What was encoded, and is being stored.
    encoded: Option<EncodedRecords>,
}

struct EncodedRecords {
    /// The last record that it has.
    last: u64,
    /// The segment of the first record after it.
    next: Option<Arc<Segment>>,
}

impl ChunkRecords {
    /// Adds a record, with which the chunk was changed just now.
    pub fn add(&mut self, recorded: &Recorded) {
        let segment = recorded.segment();
        self.first.get_or_insert_with(|| Arc::clone(segment));
        self.last = self.last.max(recorded.last_number());
        if let Some(encoded) = &mut self.encoded {
            encoded.next.get_or_insert_with(|| Arc::clone(segment));
        }
    }

    /// Records that the chunk is encoded as it is now.
    pub fn begin_storing(&mut self, log: &UnstoredLog) {
        if self.first.is_some() {
            // A record with a lower number may still be on its way to the chunk.
            self.encoded = Some(EncodedRecords { last: log.last_stored(self.last), next: None });
        }
    }

    /// Records that what was encoded is in the store. Returns its last record; `None` if it has none.
    pub fn end_storing(&mut self) -> Option<u64> {
        let encoded = self.encoded.take()?;
        self.first = encoded.next;
        Some(encoded.last)
    }

    /// Returns whether its first record is in a segment before this one.
    pub fn begin_before(&self, segment: u64) -> bool {
        self.first.as_ref().is_some_and(|first| first.number() < segment)
    }

    /// Replaces the records by those of the chunk as it is now.
    pub fn replace(&mut self, first: &Recorded, last: &Recorded) {
        let was_changed = self.encoded.as_ref().is_some_and(|encoded| encoded.next.is_some());
        self.first = Some(Arc::clone(first.segment()));
        self.last = last.last_number();
        if let Some(encoded) = &mut self.encoded {
            if was_changed {
                encoded.next = self.first.clone();
            } else {
                encoded.last = self.last;
            }
        }
    }
}

/// Every byte of the array is zero unless it was written since: the effect of truncating the file to 0.
#[derive(Default)]
pub struct ZeroMark {
    /// Objects that were stored since.
    pub settled: HashSet<u64>,
    /// Keeps the record of the truncation, and all later ones, in the log of unstored bytes.
    pub _record: Option<Arc<Segment>>,
}

/// The dirty chunks of an array.
#[derive(Default)]
pub struct DirtyMap {
    /// Dirty chunks by number.
    pub dirty: HashMap<u64, Arc<DirtyChunk>>,
    /// Set by a truncation to 0.
    pub zero: Option<ZeroMark>,
}

/// Keys that were put or deleted since the last sync.
#[derive(Default)]
pub struct UnsyncedKeys {
    keys: Mutex<BTreeSet<String>>,
}

impl UnsyncedKeys {
    /// Adds keys.
    pub fn add(&self, keys: impl IntoIterator<Item = String>) {
        self.keys.lock().extend(keys);
    }

    /// Takes all keys.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.keys.lock()).into_iter().collect()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.keys.lock().is_empty()
    }
}

/// Dirty chunks of one object.
pub struct DirtyObject {
    /// The object's number.
    pub object: u64,
    /// The chunks, by number. Empty for an object of a zeroed array that no writer has touched since.
    pub chunks: Vec<(u64, Arc<DirtyChunk>)>,
}

/// Selects the dirty chunks to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushScope {
    /// All of them, and the rest of a zeroed array.
    Everything,
    /// If the dirty limit is exceeded: the full chunks, or all dirty chunks if none is full.
    ToMakeRoom,
    /// The full chunks.
    Full,
    /// The chunks without a write for this long.
    Settled(Duration),
}

impl ChunkState {
    /// Creates a chunk without written bytes.
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
            records: ChunkRecords::default(),
        }
    }

    /// Records written bytes.
    fn insert(&mut self, range: Range<usize>) {
        if self.bytes.is_sparse() && !range.is_empty() {
            self.touched.insert(range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES));
        }
        if let Some(since) = &mut self.since {
            since.insert(range.clone());
        }
        self.written.insert(range);
    }

    /// Copies a writer's bytes to the chunk, which the log of unstored bytes has, if there is one.
    pub fn put(&mut self, copy: &StridedCopy<'_>, data: &[u8], recorded: Option<&Recorded>) {
        let bytes = Arc::make_mut(&mut self.bytes);
        copy.for_each_run(|inside, from| {
            bytes[inside..inside + copy.run].copy_from_slice(&data[from..from + copy.run]);
        });
        // Runs that are adjacent in the chunk form one range.
        let mut joined = 0..0;
        copy.for_each_run(|inside, _| {
            if joined.end != inside {
                self.insert(joined.clone());
                joined.start = inside;
            }
            joined.end = inside + copy.run;
        });
        self.insert(joined);
        self.record_change(recorded);
    }

    /// Copies bytes that a writer of a former daemon wrote to the chunk. Those after its end are left out.
    pub fn put_former(&mut self, start: usize, data: &[u8], recorded: Option<&Recorded>) {
        let end = start.saturating_add(data.len()).min(self.bytes.len());
        if let Some(out) = Arc::make_mut(&mut self.bytes).get_mut(start..end) {
            out.copy_from_slice(data.get(..out.len()).unwrap_or_default());
            self.insert(start..end);
            self.record_change(recorded);
        }
    }

    fn record_change(&mut self, recorded: Option<&Recorded>) {
        if let Some(recorded) = recorded {
            self.records.add(recorded);
        }
        self.generation += 1;
        self.last_write = Instant::now();
    }

    /// Copies the base's bytes to where no writer has written. If `base` is `None`, it is all zeros. `fill` is one
    /// element of a base that is not stored.
    pub fn merge(&mut self, mut base: Option<LoadedContent>, fill: &[u8]) {
        let ChunkState { bytes, written, .. } = &mut *self;
        if bytes.is_sparse()
            && let Some(LoadedContent { content: CachedContent::Chunk(base), version }) = &mut base
            && base.len() == bytes.len()
            && let Some(whole) = Arc::get_mut(base)
        {
            // The base's buffer becomes the chunk's: that copies less, and frees the sparse buffer's pages.
            written.each(bytes.len(), |range| {
                if let (Some(to), Some(from)) = (whole.get_mut(range.clone()), bytes.get(range)) {
                    to.copy_from_slice(from);
                }
            });
            *bytes = Arc::clone(base);
            self.base = Some(*version);
            return;
        }
        let bytes = Arc::make_mut(bytes);
        for gap in written.gaps(bytes.len()) {
            let Some(out) = bytes.get_mut(gap.clone()) else { continue };
            match base.as_ref().map(|base| &base.content) {
                None => out.fill(0),
                Some(CachedContent::Chunk(base)) => {
                    if let Some(from) = base.get(gap) {
                        out.copy_from_slice(from);
                    }
                }
                Some(_) => fill_items(out, fill, gap.start % fill.len()),
            }
        }
        self.base = Some(base.and_then(|base| base.version));
    }

    /// Returns the memory that the chunk takes.
    pub fn memory_bytes(&self) -> u64 {
        let is_sparse = self.bytes.is_sparse() && self.base.is_none();
        let bytes = if is_sparse { self.touched.total() * PAGE_BYTES } else { self.bytes.len() };
        let overhead = if self.bytes.len() < MIN_PAGES_BYTES { CHUNK_OVERHEAD_BYTES } else { 0 };
        let since = self.since.as_ref().map_or(0, ByteRanges::memory_bytes);
        (bytes + self.written.memory_bytes() + since + overhead) as u64
    }
}

impl DirtyObject {
    /// Creates an object without dirty chunks.
    pub fn without_chunks(object: u64) -> Self {
        DirtyObject { object, chunks: Vec::new() }
    }

    /// Returns whether all its chunks were last written to at least `delay` ago.
    pub fn is_settled(&self, delay: Duration) -> bool {
        let now = Instant::now();
        let is_settled = |state: &ChunkState| now.duration_since(state.last_write) >= delay;
        self.chunks.iter().all(|(_, chunk)| chunk.try_lock().is_some_and(|state| is_settled(&state)))
    }
}

impl DirtyMap {
    /// Returns whether an object is zero, whatever the store has.
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
