//! The dirty chunks of one array: writers fill them, readers read them, and write-back makes them clean.
//!
//! Which chunks are dirty is here; their bytes are in `dirty_content.rs`. Uses `dirty.rs`, `unstored_log/recorder.rs` and `resources.rs`,
//! `served/`, and `memory`, `store` and `error`. The invariants are those of `dirty.rs`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::array::cache::CachedContent;
use crate::array::geometry::copy_plan::CopyPlan;
use crate::array::geometry::strided_copy::StridedCopy;
use crate::array::served::ServedArray;
use crate::array::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::array::sync::{Mutex, OwnedMutexGuard};
use crate::array::workers::Workers;
use crate::array::write::dirty::{
    ChunkState, DirtyChunk, DirtyMap, DirtyObject, FlushScope, UnsyncedKeys, ZeroMark,
};
use crate::array::write::dirty_content::DirtyContent;
use crate::array::write::resources::WriteResources;
use crate::array::write::unstored_log::recorder::ChunkRecorder;
use crate::array::write::unstored_log::{Kind, Recorded};
use crate::error::Result;
use crate::memory::Buffer;
use crate::store::ObjectVersion;

/// How long a session thread waits for the locks of chunks. Another thread may just be copying an accepted write. A
/// thread that holds a lock while it reads the store is not waited for longer.
const LOCK_PATIENCE: Duration = Duration::from_micros(200);

/// How many objects are visited before the map's lock, for which writers wait, is released.
const LOOKS_PER_LOCK: usize = 4096;

/// Where a reader finds the bytes of a chunk.
pub enum ChunkSource {
    /// In the cache or the store.
    Stored(CachedContent),
    /// In a dirty chunk with its base loaded.
    Dirty(Arc<DirtyChunk>),
    /// All of it is zero, since a truncation to 0.
    Zero,
}

/// What a lookup that does not wait finds among the dirty chunks.
pub enum DirtyLookup {
    /// The chunk is not dirty: the cache or the store has it.
    Clean,
    /// The chunk's bytes.
    Ready(ChunkSource),
    /// The chunk is dirty, and a reader would have to wait for it.
    WouldBlock,
}

/// Something that is not in the store yet.
#[derive(Clone, Copy, Debug)]
pub enum Unsaved {
    /// The dirty chunk with this number.
    Chunk(u64),
    /// The object with this number, which is zero since a truncation.
    ZeroObject(u64),
}

/// The dirty chunks of one array.
pub struct DirtyChunks {
    served: Arc<ServedArray>,
    content: DirtyContent,
    recorder: ChunkRecorder,
    /// Shared with the arrays from which this one grew.
    state: Arc<DirtyState>,
}

#[derive(Default)]
struct DirtyState {
    chunks: Mutex<DirtyMap>,
    /// The array was once opened for writing, so readers look for dirty chunks first.
    is_written: AtomicBool,
    /// How many parts of chunks were written.
    copies: AtomicU64,
    unsynced: UnsyncedKeys,
}

impl DirtyChunks {
    /// Creates an empty set of dirty chunks.
    pub fn new(served: &Arc<ServedArray>, workers: &Arc<Workers>, resources: &Arc<WriteResources>) -> Self {
        DirtyChunks {
            served: Arc::clone(served),
            content: DirtyContent::new(served, workers, resources),
            recorder: ChunkRecorder::new(served, resources),
            state: Arc::default(),
        }
    }

    /// Returns the same dirty chunks, in an array that continues this one.
    pub fn successor(&self, served: &Arc<ServedArray>) -> Self {
        DirtyChunks {
            served: Arc::clone(served),
            content: self.content.successor(served),
            recorder: self.recorder.successor(served),
            state: Arc::clone(&self.state),
        }
    }

    /// Returns the array.
    pub fn served(&self) -> &Arc<ServedArray> {
        &self.served
    }

    /// Returns what provides the bytes of the chunks.
    pub fn content(&self) -> &DirtyContent {
        &self.content
    }

    /// Returns whether the array was ever opened for writing. If not, no chunk is dirty.
    pub fn is_written(&self) -> bool {
        self.state.is_written.load(Ordering::Acquire)
    }

    /// Makes readers look for dirty chunks from now on.
    pub fn mark_written(&self) {
        self.state.is_written.store(true, Ordering::Release);
    }

    /// Returns a number that changes with each write.
    pub fn copies(&self) -> u64 {
        self.state.copies.load(Ordering::Acquire)
    }

    /// Returns whether something is not yet in the store.
    pub fn is_dirty(&self) -> bool {
        let chunks = self.state.chunks.lock();
        !chunks.dirty.is_empty() || chunks.zero.is_some()
    }

    /// Returns whether all of the array is zero since a truncation, and the store does not know it yet.
    pub fn is_zeroed(&self) -> bool {
        self.state.chunks.lock().zero.is_some()
    }

    /// Returns whether an object is zero, whatever the store has.
    pub fn is_zero(&self, object: u64) -> bool {
        self.state.chunks.lock().is_zero(object)
    }

    // --- reading ---

    /// Returns where a reader finds a chunk. `stored` gives a chunk that is not dirty.
    pub fn find(&self, number: u64, stored: impl Fn() -> Result<CachedContent>) -> Result<ChunkSource> {
        loop {
            let (dirty, is_zero) = {
                let chunks = self.state.chunks.lock();
                let is_zero = chunks.zero.is_some() && chunks.is_zero(self.served.object_of(number));
                (chunks.dirty.get(&number).cloned(), is_zero)
            };
            match dirty {
                None if is_zero => return Ok(ChunkSource::Zero),
                None => return stored().map(ChunkSource::Stored),
                Some(chunk) => {
                    let mut state = chunk.lock();
                    if state.is_retired {
                        continue;
                    }
                    self.content.complete(number, &mut state, is_zero)?;
                    drop(state);
                    return Ok(ChunkSource::Dirty(chunk));
                }
            }
        }
    }

    /// Finds a chunk as [`DirtyChunks::find`] does, without the store and without waiting.
    pub fn try_find(&self, number: u64) -> DirtyLookup {
        let chunks = self.state.chunks.lock();
        if let Some(chunk) = chunks.dirty.get(&number) {
            let is_ready = |state: &ChunkState| !state.is_retired && self.content.is_complete(number, state);
            return match chunk.try_lock() {
                Some(state) if is_ready(&state) => DirtyLookup::Ready(ChunkSource::Dirty(Arc::clone(chunk))),
                _ => DirtyLookup::WouldBlock,
            };
        }
        if chunks.zero.is_some() && chunks.is_zero(self.served.object_of(number)) {
            return DirtyLookup::Ready(ChunkSource::Zero);
        }
        DirtyLookup::Clean
    }

    // --- writing ---

    /// Makes the chunks of a plan dirty and locks them, by their places in the plan. `None` if one is locked for long,
    /// or has just been stored; then nothing is written.
    pub fn lock_soon(&self, plan: &CopyPlan) -> Option<Vec<OwnedMutexGuard<ChunkState>>> {
        let mut brought = vec![0; plan.chunks().len()];
        let _ = plan.for_each_copy(|place, copy| {
            if let Some(bytes) = brought.get_mut(place) {
                *bytes += copy.total_bytes();
            }
            Ok::<(), ()>(())
        });
        let chunks: Vec<Arc<DirtyChunk>> =
            plan.chunks().iter().zip(brought).map(|(&number, bytes)| self.chunk(number, bytes)).collect();
        let deadline = Instant::now() + LOCK_PATIENCE;
        let locks = chunks.iter().map(|chunk| chunk.try_lock_arc_until(deadline));
        locks.map(|state| state.filter(|state| !state.is_retired)).collect()
    }

    /// Copies a part of `data` to its chunk, which the log of unstored bytes has, if there is one. Returns the chunk's
    /// size in bytes if this write completes it, else 0.
    pub fn write(&self, copy: &StridedCopy<'_>, data: &[u8], recorded: Option<&Recorded>) -> u64 {
        self.with_chunk(copy.chunk, copy.total_bytes(), |state| {
            self.write_locked(copy, data, state, recorded)
        })
    }

    /// Runs `change` on a dirty chunk, for a write that brings `request_bytes` of it.
    pub fn with_chunk<T>(
        &self,
        number: u64,
        request_bytes: usize,
        change: impl FnOnce(&mut ChunkState) -> T,
    ) -> T {
        loop {
            let chunk = self.chunk(number, request_bytes);
            let mut state = chunk.lock();
            if !state.is_retired {
                let changed = change(&mut state);
                self.content.count(&mut state);
                return changed;
            }
        }
    }

    /// Copies a part of `data` to its chunk, which is locked. Returns what [`DirtyChunks::write`] returns.
    pub fn write_locked(
        &self,
        copy: &StridedCopy<'_>,
        data: &[u8],
        state: &mut ChunkState,
        recorded: Option<&Recorded>,
    ) -> u64 {
        let was_written = state.written.total();
        state.put(copy, data, recorded);
        self.state.copies.fetch_add(1, Ordering::AcqRel);
        self.content.count(state);
        let inside_bytes = self.served.grid().inside_bytes(copy.chunk);
        let became_full = was_written < inside_bytes && state.written.total() >= inside_bytes;
        if became_full { inside_bytes as u64 } else { 0 }
    }

    /// Returns the dirty chunk with this number, for a write that brings `request_bytes` of it.
    fn chunk(&self, number: u64, request_bytes: usize) -> Arc<DirtyChunk> {
        let mut chunks = self.state.chunks.lock();
        let chunk = chunks
            .dirty
            .entry(number)
            .or_insert_with(|| Arc::new(DirtyChunk::new(self.content.empty_chunk(number, request_bytes))));
        Arc::clone(chunk)
    }

    // --- the log of unstored bytes ---

    /// Returns what records the array in the log of unstored bytes, if there is one.
    pub fn recorder(&self) -> &ChunkRecorder {
        &self.recorder
    }

    /// Records that the array has nothing that is not stored, if the log says otherwise and it is so.
    pub fn record_clean(&self) {
        self.recorder.record_clean_if_marked(&self.state.chunks.lock());
    }

    /// Records everything that is not stored. Returns whether all of it is recorded: not if something was written meanwhile.
    pub fn record_unstored(&self) -> bool {
        let copies = self.copies();
        let zero = {
            let chunks = self.state.chunks.lock();
            chunks.zero.as_ref().map(|mark| mark.settled.iter().copied().collect())
        };
        self.recorder.record_unstored(&self.all(), zero, || self.copies() == copies)
    }

    /// Ends the loss, because all handles that may have written what is lost have reported it.
    pub fn end_loss(&self) {
        self.recorder.end_loss(&self.state.chunks.lock());
    }

    /// Changes the zero mark, as a former daemon has recorded it.
    pub fn restore_zero(&self, change: impl FnOnce(&mut Option<ZeroMark>)) {
        change(&mut self.state.chunks.lock().zero);
    }

    // --- all chunks ---

    /// Drops the bases of dirty chunks; they are loaded again when needed.
    pub fn forget_bases(&self) {
        for (_, chunk) in self.all() {
            let mut state = chunk.lock();
            if !state.is_retired && state.base.take().is_some() {
                self.content.count(&mut state);
            }
        }
    }

    /// Sets the parts of dirty chunks after the end of the array to the fill value, where they were loaded from the
    /// store.
    pub fn clear_bases(&self) {
        for (number, chunk) in self.all() {
            let mut state = chunk.lock();
            if !state.is_retired && state.base.is_some() {
                let index = self.served.grid().index(number);
                let bytes = Arc::make_mut(&mut state.bytes);
                self.served.grid().fill_padding(&index, self.served.fill(), bytes);
            }
        }
    }

    /// Returns the dirty chunks by number. Writers wait for the map, so only a copy is made under its lock.
    pub fn all(&self) -> Vec<(u64, Arc<DirtyChunk>)> {
        let chunks = self.state.chunks.lock();
        chunks.dirty.iter().map(|(&number, chunk)| (number, Arc::clone(chunk))).collect()
    }

    /// Drops all dirty chunks: from now on the array is zero, or it has ended. The caller holds the lock of write-back.
    pub fn drop_all(&self, zero: Option<ZeroMark>) {
        let record = self.recorder.record_replacement(zero.is_some());
        self.replace_all(zero.map(|mark| ZeroMark { _record: record, ..mark }));
        self.recorder.free();
    }

    /// Drops all dirty chunks without a record of that.
    pub fn replace_all(&self, zero: Option<ZeroMark>) {
        let forgotten: Vec<_> = {
            let mut chunks = self.state.chunks.lock();
            chunks.zero = zero;
            self.state.copies.fetch_add(1, Ordering::AcqRel);
            chunks.dirty.drain().collect()
        };
        // A write that still reaches one of these chunks counts as earlier than this.
        for (_, chunk) in forgotten {
            let mut state = chunk.lock();
            state.is_retired = true;
            self.content.end_count(&mut state);
        }
    }

    // --- write-back ---

    /// Returns the objects to store, in order.
    pub fn objects_to_store(&self, scope: FlushScope) -> Vec<DirtyObject> {
        let is_zeroed = self.is_zeroed();
        let mut objects: HashMap<u64, DirtyObject> = HashMap::new();
        for (number, chunk) in self.all() {
            let object = self.served.object_of(number);
            let of_object = objects.entry(object).or_insert_with(|| DirtyObject::without_chunks(object));
            of_object.chunks.push((number, chunk));
        }
        match scope {
            FlushScope::Settled(delay) => objects.retain(|_, object| object.is_settled(delay)),
            FlushScope::Full => objects.retain(|_, object| self.is_full_object(object)),
            // Full chunks gain nothing by waiting for more writes. Without a full chunk, any chunk has to go.
            FlushScope::ToMakeRoom => {
                let full = objects.values().filter(|object| self.is_full_object(object));
                let full: HashSet<u64> = full.map(|object| object.object).collect();
                if !full.is_empty() {
                    objects.retain(|object, _| full.contains(object));
                }
            }
            FlushScope::Everything if is_zeroed => self.add_zero_objects(&mut objects),
            FlushScope::Everything => {}
        }
        let mut objects: Vec<DirtyObject> = objects.into_values().collect();
        objects.sort_unstable_by_key(|object| object.object);
        objects
    }

    /// Adds the objects that are zero since a truncation. No other thread changes the mark while this thread stores.
    fn add_zero_objects(&self, objects: &mut HashMap<u64, DirtyObject>) {
        let count = self.served.levels().objects();
        for first in (0..count).step_by(LOOKS_PER_LOCK) {
            let chunks = self.state.chunks.lock();
            for object in (first..count).take(LOOKS_PER_LOCK) {
                if chunks.is_zero(object) {
                    objects.entry(object).or_insert_with(|| DirtyObject::without_chunks(object));
                }
            }
        }
    }

    /// Returns whether all chunks of an object are dirty and full.
    fn is_full_object(&self, object: &DirtyObject) -> bool {
        let is_full = |number: u64, chunk: &DirtyChunk| {
            chunk.try_lock().is_some_and(|state| self.content.is_full(number, &state))
        };
        object.chunks.iter().all(|(number, chunk)| is_full(*number, chunk))
            && self.served.levels().chunk_count(object.object) == object.chunks.len() as u64
    }

    /// Records that an object is stored. This precedes retiring any of its chunks: a reader that looks afterwards must
    /// find the stored object.
    pub fn mark_stored(&self, object: u64, key: &str) {
        self.state.unsynced.add([key.to_owned()]);
        let mut chunks = self.state.chunks.lock();
        if let Some(mark) = chunks.zero.as_mut() {
            mark.settled.insert(object);
            self.recorder.record(Kind::ZeroStored, object);
        }
    }

    /// Makes a chunk clean, because all of its bytes are in the store. `keep` takes them.
    pub fn retire(&self, number: u64, state: &mut ChunkState, keep: impl FnOnce(Arc<Buffer>)) {
        self.content.end_count(state);
        keep(std::mem::take(&mut state.bytes));
        // A thread that waits for this lock finds the chunk retired and looks again; by then the map no longer has it.
        state.is_retired = true;
        let mut chunks = self.state.chunks.lock();
        chunks.dirty.remove(&number);
        self.recorder.record_clean(&chunks);
    }

    /// Records that a chunk was stored while a writer wrote to it. The bytes that were written before are those of
    /// `version` now.
    pub fn keep_rest(&self, state: &mut ChunkState, version: Option<Option<ObjectVersion>>) {
        state.written = state.since.take().unwrap_or_default();
        state.base = version;
        self.content.count(state);
    }

    /// Removes the zero mark, if everything was stored since.
    pub fn end_zero(&self) {
        let mut chunks = self.state.chunks.lock();
        let objects = self.served.levels().objects();
        if chunks.zero.as_ref().is_some_and(|mark| mark.settled.len() as u64 >= objects) {
            chunks.zero = None;
            self.recorder.record(Kind::ZeroEnded, 0);
            self.recorder.record_clean(&chunks);
        }
    }

    /// Returns the keys that were put or deleted since the last sync.
    pub fn unsynced(&self) -> &UnsyncedKeys {
        &self.state.unsynced
    }

    /// Returns the time of the last write to the dirty chunk that has had none for the longest time. `None` if none is dirty. Chunks that
    /// are locked at this moment do not count.
    pub fn oldest_write(&self) -> Option<Instant> {
        // A chunk is not locked under the map's lock.
        let chunks: Vec<Arc<DirtyChunk>> = self.state.chunks.lock().dirty.values().cloned().collect();
        chunks.iter().filter_map(|chunk| Some(chunk.try_lock()?.last_write)).min()
    }

    /// Calls `visit` with each dirty chunk, and then with each object that is zero since a truncation.
    pub fn each_unsaved(&self, visit: &mut dyn FnMut(Unsaved)) {
        let chunks = self.state.chunks.lock();
        chunks.dirty.keys().for_each(|&number| visit(Unsaved::Chunk(number)));
        if chunks.zero.is_some() {
            let objects = 0..self.served.levels().objects();
            objects
                .filter(|object| chunks.is_zero(*object))
                .for_each(|object| visit(Unsaved::ZeroObject(object)));
        }
    }
}
