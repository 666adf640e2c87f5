//! Writing: from a range of the flat file to dirty chunks, and reading dirty chunks.
//!
//! Uses its neighbours in `array`, `codec`, `memory`, `store` and `error`. `write_back.rs` stores the dirty chunks.

pub mod clear;
pub mod dirty;
pub mod dirty_report;
pub mod encode;
pub mod end;
pub mod flush_all;
pub mod lengthen;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod merge_tests;
pub mod semaphore;
pub mod store_object;
pub mod streaming;
pub mod whole_objects;
pub mod write_back;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod write_tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::array::cache::{Content, Loaded};
use crate::array::geometry::copy_plan::CopyPlan;
use crate::array::geometry::strided_copy::{StridedCopy, fill_items};
use crate::array::source::MAX_CHUNK_BYTES;
use crate::array::sync::OwnedMutexGuard;
use crate::array::sync::atomic::Ordering;
use crate::array::write::dirty::{ChunkState, DirtyChunk, WriteSession};
use crate::array::{Array, Inner};
use crate::error::{Error, Result};
use crate::metadata::{ArrayMetadata, DataType, MAX_DOCUMENT_BYTES, parse_array};
use crate::store::{FileId, ObjectVersion, Writer};

/// The most objects of an array that can be zeroed.
const MAX_ZEROED_OBJECTS: u64 = 1 << 24;

/// How long a session thread waits for the locks of chunks. Another thread may just be copying an accepted write. A
/// thread that holds a lock while it reads the store is not waited for longer.
const STATE_PATIENCE: Duration = Duration::from_micros(200);

/// A write to more chunks goes to a thread that may wait, because all their locks are held during the copy.
const MAX_CHUNKS_WITHOUT_WAITING: usize = 1024;

/// How long an open waits for another writer's lock.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);

/// Where a reader finds the bytes of a chunk.
pub(in crate::array) enum Present {
    /// In the cache or the store.
    Stored(Content),
    /// In a dirty chunk with its base loaded.
    Dirty(Arc<DirtyChunk>),
    /// Nowhere: all of it is zero since a truncation to 0.
    Zero,
}

impl Array {
    /// Prepares the array for one more writer: takes the lock that excludes other writers, and removes the unfinished
    /// files of dead writers. Pair it with [`Array::close_for_writing`].
    pub fn open_for_writing(&self) -> Result<()> {
        let inner = &self.inner;
        let document_key = inner.metadata.document_key.as_str();
        let mut opened = inner.writing.opened.lock();
        if let Some(opened) = opened.as_mut() {
            opened.writers += 1;
            return Ok(());
        }
        let Some(writer) = inner.store.writer() else {
            return Err(Error::ReadOnly(format!("{} does not support writing", inner.store.describe())));
        };
        if let Some(codec) = inner.skipped_codecs.first().or(inner.metadata.skipped.first()) {
            let reason = format!("writing: codec \"{codec}\" is unknown and was skipped for reading");
            return Err(Error::unsupported(document_key, reason));
        }
        if inner.chunk_bytes() > MAX_CHUNK_BYTES {
            let reason =
                format!("writing chunks of {} bytes (at most {MAX_CHUNK_BYTES})", inner.chunk_bytes());
            return Err(Error::unsupported(document_key, reason));
        }
        let Some(lock) = lock_folder(writer, &inner.path)? else {
            let busy = std::io::Error::new(
                std::io::ErrorKind::ResourceBusy,
                "another writer has this array open, here or in another mount: close it there first",
            );
            return Err(Error::store(document_key, "lock", busy));
        };
        let Some(info) = inner.store.head_object(document_key)? else {
            let reason =
                format!("{document_key} is missing: an array is written only if it has its own document");
            return Err(Error::ReadOnly(reason));
        };
        let document = inner.store.get(document_key, MAX_DOCUMENT_BYTES)?;
        let document = document.filter(|document| inner.is_described_by(document));
        let document = document.ok_or_else(|| Error::Stale { key: document_key.to_owned() })?;
        // A new chunk gets a key like those that are stored.
        let keys = inner.source.keys();
        keys.encoding(inner.store.as_ref(), inner.source.object_axes().len())?;
        let folder = inner.folder_identity()?;
        let removed = writer.remove_unfinished(&inner.path)?;
        if removed > 0 {
            log::warn!("{document_key}: removed {removed} unfinished files of a dead writer");
        }
        inner.writing.is_written.store(true, Ordering::Release);
        let version = Some(info.version);
        *opened = Some(WriteSession {
            writers: 1,
            _lock: lock,
            document,
            version,
            array: inner.number,
            folder,
            is_end_clear: false,
        });
        inner.engine.register(&self.inner);
        Ok(())
    }

    /// Ends one writer. After the last one, the lock is released once nothing is dirty.
    pub fn close_for_writing(&self) {
        if let Some(opened) = self.inner.writing.opened.lock().as_mut() {
            opened.writers = opened.writers.saturating_sub(1);
        }
        self.inner.let_go_if_idle();
    }

    /// Whether the array is open for writing.
    pub fn has_writers(&self) -> bool {
        self.writers() > 0
    }

    /// How many handles have it open for writing.
    pub fn writers(&self) -> usize {
        self.inner.writing.opened.lock().as_ref().map_or(0, |opened| opened.writers)
    }

    /// Whether another folder has replaced the one that is written to.
    pub fn is_displaced(&self) -> bool {
        let written = self.inner.writing.opened.lock().as_ref().map(|opened| opened.folder);
        written.is_some_and(|folder| self.inner.folder_identity().is_ok_and(|now| now != folder))
    }

    /// Writes `data` at `offset`. The range must lie in the file. The bytes are dirty until [`Array::flush`]. If more
    /// than the limit is dirty, stores some of it first; if that fails and leaves no room, the write fails as a whole.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_write(offset, data)?;
        self.inner.make_room()?;
        self.take(offset, data);
        Ok(())
    }

    /// Begins a write without waiting: makes its chunks dirty and locks them. From then on nothing can fail, so the writer
    /// may continue before [`PendingWrite::copy`]: readers of the bytes wait for the locks. `None` if the write would have
    /// to wait; then nothing is written.
    pub fn try_begin_write<'a>(&self, offset: u64, data: &'a [u8]) -> Result<Option<PendingWrite<'a>>> {
        self.check_write(offset, data)?;
        if self.inner.is_crowded() {
            return Ok(None);
        }
        let mut plan = CopyPlan::default();
        plan.make(&self.inner.grid, offset..offset + data.len() as u64);
        if !plan.is_complete() || plan.chunks().len() > MAX_CHUNKS_WITHOUT_WAITING {
            return Ok(None);
        }
        let states = lock_soon(&self.inner.chunks_to_write(&plan));
        Ok(states.map(|states| PendingWrite { array: Arc::clone(&self.inner), data, plan, states }))
    }

    /// Like [`Array::write_at`], for pages of a memory map. Never fails because storing fails, since the kernel would
    /// drop the page for good. The failure is counted, and the next flush reports it.
    pub fn write_page(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_write(offset, data)?;
        let _ = self.inner.make_room();
        self.take(offset, data);
        Ok(())
    }

    /// Makes every byte zero and keeps the size. Fails if the array has too many objects to keep track of.
    pub fn zero(&self) -> Result<()> {
        if self.inner.source.objects() > MAX_ZEROED_OBJECTS {
            let reason = format!("setting an array of more than {MAX_ZEROED_OBJECTS} objects to zero");
            return Err(Error::unsupported(&self.inner.metadata.document_key, reason));
        }
        let counted = self.inner.writing.zero();
        self.inner.engine.dirty_bytes.fetch_sub(counted, Ordering::AcqRel);
        self.inner.engine.room.notify();
        Ok(())
    }

    /// Whether these bytes can be written there: the file ends after them, and the data type has their values.
    pub fn check_write(&self, offset: u64, data: &[u8]) -> Result<()> {
        if self.inner.writing.refuses_writes.load(Ordering::Acquire) {
            return Err(Error::Stale { key: self.inner.metadata.document_key.clone() });
        }
        let end = offset.checked_add(data.len() as u64);
        if end.is_none_or(|end| end > self.size_bytes()) {
            return Err(self.past_the_end(offset, data.len()));
        }
        self.check_values(data)
    }

    /// Whether the data type has the values of these bytes.
    pub fn check_values(&self, data: &[u8]) -> Result<()> {
        self.inner.check_elements(data)
    }

    fn take(&self, offset: u64, data: &[u8]) {
        let inner = &self.inner;
        let _ = inner.grid.for_each_copy(offset, data.len() as u64, &mut |copy: &StridedCopy<'_>| {
            Inner::take_copy(inner, copy, data);
            Ok::<(), ()>(())
        });
    }
}

/// A write that has begun and cannot fail any more. It holds the locks of its chunks. Dropping it writes nothing.
#[must_use = "nothing is written before it is copied"]
pub struct PendingWrite<'a> {
    array: Arc<Inner>,
    data: &'a [u8],
    plan: CopyPlan,
    /// The locks, by the places of chunks in the plan.
    states: Vec<OwnedMutexGuard<ChunkState>>,
}

impl PendingWrite<'_> {
    /// Copies the bytes into the chunks and lets others use them.
    pub fn copy(mut self) {
        let mut full_bytes = 0;
        let _ = self.plan.for_each_copy(|place, copy| {
            if let Some(state) = self.states.get_mut(place) {
                full_bytes += self.array.put_copy(copy, self.data, state);
            }
            Ok::<(), ()>(())
        });
        drop(self.states);
        Inner::note_full(&self.array, full_bytes);
    }
}

/// The locks of all these chunks; `None` if one is held for long, or a chunk is retired.
fn lock_soon(chunks: &[Arc<DirtyChunk>]) -> Option<Vec<OwnedMutexGuard<ChunkState>>> {
    let deadline = Instant::now() + STATE_PATIENCE;
    chunks.iter().map(|chunk| chunk.try_lock_arc_until(deadline).filter(|state| !state.is_retired)).collect()
}

/// Locks a folder. Waits a moment for a writer that has just closed its last file: the kernel reports the release of a
/// file only after close(2).
pub fn lock_folder(writer: &dyn Writer, folder: &str) -> Result<Option<Box<dyn Send + Sync>>> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match writer.lock(folder)? {
            None if Instant::now() < deadline => std::thread::sleep(LOCK_PATIENCE / 25),
            lock => return Ok(lock),
        }
    }
}

impl Inner {
    /// What the array's folder is, if the store can tell.
    pub(in crate::array) fn folder_identity(&self) -> Result<Option<FileId>> {
        if self.store.is_remote() {
            return Ok(None);
        }
        Ok(self.store.head(&self.path)?.and_then(|folder| folder.file()))
    }

    /// Whether a document still describes the array as it was opened. Its attributes do not matter.
    pub(in crate::array) fn is_described_by(&self, document: &[u8]) -> bool {
        let key = self.metadata.document_key.as_str();
        parse_array(key, document).is_ok_and(|parsed| {
            // The document's own words: what clears the chunks' padding has a longer shape (`clear.rs`).
            let is_of_shape =
                |now: &ArrayMetadata| now.document.get("shape") == self.metadata.document.get("shape");
            parsed.is_some_and(|now| is_of_shape(&now) && now.is_stored_as(&self.metadata))
        })
    }

    pub(in crate::array) fn check_elements(&self, data: &[u8]) -> Result<()> {
        if self.metadata.data_type == DataType::Bool && data.iter().any(|&byte| byte > 1) {
            return Err(Error::InvalidValue("a bool is one byte, 0 or 1".to_owned()));
        }
        Ok(())
    }

    /// Makes the chunks of a plan dirty.
    fn chunks_to_write(&self, plan: &CopyPlan) -> Vec<Arc<DirtyChunk>> {
        let mut brought = vec![0; plan.chunks().len()];
        let _ = plan.for_each_copy(|place, copy| {
            if let Some(bytes) = brought.get_mut(place) {
                *bytes += copy.total_bytes();
            }
            Ok::<(), ()>(())
        });
        plan.chunks().iter().zip(brought).map(|(&number, bytes)| self.dirty_chunk(number, bytes)).collect()
    }

    fn take_copy(inner: &Arc<Inner>, copy: &StridedCopy<'_>, data: &[u8]) {
        loop {
            let chunk = inner.dirty_chunk(copy.chunk, copy.total_bytes());
            let mut state = chunk.lock();
            if state.is_retired {
                continue;
            }
            let full_bytes = inner.put_copy(copy, data, &mut state);
            drop(state);
            return Inner::note_full(inner, full_bytes);
        }
    }

    /// Copies a part of `data` to its chunk. Returns the chunk's size in bytes if this write completes the chunk, else
    /// 0.
    fn put_copy(&self, copy: &StridedCopy<'_>, data: &[u8], state: &mut ChunkState) -> u64 {
        let was_written = state.written.total();
        let bytes = Arc::make_mut(&mut state.bytes);
        copy.for_each_run(|inside, from| {
            bytes[inside..inside + copy.run].copy_from_slice(&data[from..from + copy.run]);
        });
        // Runs that are adjacent in the chunk form one range.
        let mut joined = 0..0;
        copy.for_each_run(|inside, _| {
            if joined.end != inside {
                state.insert(joined.clone());
                joined.start = inside;
            }
            joined.end = inside + copy.run;
        });
        state.insert(joined);
        state.generation += 1;
        self.writing.copies.fetch_add(1, Ordering::AcqRel);
        state.last_write = Instant::now();
        self.count(state);
        let inside_bytes = self.inside_bytes(copy.chunk);
        let became_full = was_written < inside_bytes && state.written.total() >= inside_bytes;
        if became_full { inside_bytes as u64 } else { 0 }
    }

    /// Counts the chunk's memory toward the dirty limit.
    fn count(&self, state: &mut ChunkState) {
        let now = state.memory_bytes();
        if now >= state.counted {
            self.engine.dirty_bytes.fetch_add(now - state.counted, Ordering::AcqRel);
        } else {
            self.engine.dirty_bytes.fetch_sub(state.counted - now, Ordering::AcqRel);
            self.engine.room.notify();
        }
        state.counted = now;
    }

    fn dirty_chunk(&self, number: u64, copy_bytes: usize) -> Arc<DirtyChunk> {
        let mut chunks = self.writing.chunks.lock();
        let chunk = chunks.dirty.entry(number).or_insert_with(|| {
            let shape = self.chunk_shape(&self.grid.index(number));
            let length = shape.iter().product::<u64>() as usize * self.fill.len();
            let state = ChunkState::new(self.first_buffer(length, copy_bytes));
            Arc::new(DirtyChunk::new(state))
        });
        Arc::clone(chunk)
    }

    pub(in crate::array) fn chunk_shape(&self, index: &[u64]) -> Vec<u64> {
        self.grid.axes().iter().zip(index).map(|(axis, &i)| axis.span(i).length).collect()
    }

    /// Where a reader finds a chunk. `stored` gives a chunk that is not dirty.
    pub(in crate::array) fn present(
        &self,
        number: u64,
        stored: impl Fn() -> Result<Content>,
    ) -> Result<Present> {
        loop {
            let (dirty, is_zero) = {
                let chunks = self.writing.chunks.lock();
                let is_zero = chunks.zero.is_some() && chunks.is_zero(self.object_of(number));
                (chunks.dirty.get(&number).cloned(), is_zero)
            };
            match dirty {
                None if is_zero => return Ok(Present::Zero),
                None => return stored().map(Present::Stored),
                Some(chunk) => {
                    let mut state = chunk.lock();
                    if state.is_retired {
                        continue;
                    }
                    self.complete(number, &mut state, is_zero)?;
                    drop(state);
                    return Ok(Present::Dirty(chunk));
                }
            }
        }
    }

    /// Like [`Inner::present`], without the store: `None` if the chunk is not dirty, `Some(None)` if it is and a reader
    /// would have to wait.
    pub(in crate::array) fn present_dirty(&self, number: u64) -> Option<Option<Present>> {
        let chunks = self.writing.chunks.lock();
        if let Some(chunk) = chunks.dirty.get(&number) {
            let Some(state) = chunk.try_lock() else { return Some(None) };
            let is_ready = !state.is_retired && self.is_complete(number, &state);
            return Some(is_ready.then(|| Present::Dirty(Arc::clone(chunk))));
        }
        (chunks.zero.is_some() && chunks.is_zero(self.object_of(number))).then_some(Some(Present::Zero))
    }

    pub(in crate::array) fn object_of(&self, number: u64) -> u64 {
        self.source.object_of(&self.grid.index(number))
    }

    fn is_complete(&self, number: u64, state: &ChunkState) -> bool {
        state.base.is_some() || state.written.total() >= self.inside_bytes(number)
    }

    /// How many bytes of a chunk lie in the array.
    pub(in crate::array) fn inside_bytes(&self, number: u64) -> usize {
        let inside = self.grid.axes().iter().zip(self.grid.index(number)).map(|(axis, i)| {
            let span = axis.span(i);
            span.length.min(axis.extent() - span.start)
        });
        inside.product::<u64>() as usize * self.fill.len()
    }

    /// Loads the bytes of a chunk that no writer has written from the store.
    pub(in crate::array) fn complete(
        &self,
        number: u64,
        state: &mut ChunkState,
        is_zero: bool,
    ) -> Result<()> {
        if self.is_complete(number, state) {
            return Ok(());
        }
        let index = self.grid.index(number);
        let loaded = if is_zero { None } else { Some(self.load_base(&index)?) };
        self.merge(state, loaded);
        self.count(state);
        Ok(())
    }

    /// Loads the stored chunk without the cache.
    pub(in crate::array) fn load_base(&self, index: &[u64]) -> Result<Loaded> {
        self.engine.bases_read.fetch_add(1, Ordering::Relaxed);
        self.source.load(&self.load_context(), index)
    }

    /// Drops the bases of dirty chunks; they are loaded again when needed.
    pub(in crate::array) fn forget_bases(&self) {
        let chunks: Vec<_> = self.writing.chunks.lock().dirty.values().cloned().collect();
        for chunk in chunks {
            let mut state = chunk.lock();
            if !state.is_retired && state.base.take().is_some() {
                self.count(&mut state);
            }
        }
    }

    /// Copies the base's bytes where no writer has written. `None` means zeros.
    pub(in crate::array) fn merge(&self, state: &mut ChunkState, mut base: Option<Loaded>) {
        let ChunkState { bytes, written, .. } = &mut *state;
        if bytes.is_sparse()
            && let Some((Content::Chunk(base), version)) = &mut base
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
            state.base = Some(*version);
            return;
        }
        let bytes = Arc::make_mut(bytes);
        let item = self.fill.len();
        for gap in written.gaps(bytes.len()) {
            let Some(out) = bytes.get_mut(gap.clone()) else { continue };
            match &base {
                None => out.fill(0),
                Some((Content::Chunk(base), _)) => {
                    if let Some(from) = base.get(gap) {
                        out.copy_from_slice(from);
                    }
                }
                Some(_) => fill_items(out, &self.fill, gap.start % item),
            }
        }
        state.base = Some(base.and_then(|(_, version): (Content, Option<ObjectVersion>)| version));
    }
}
