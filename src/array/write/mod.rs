//! Writing: from a range of the flat file to dirty chunks, and from there to the store.
//!
//! Uses its neighbours in `array`, `codec`, `memory`, `store` and `error`. The handles of a file use an
//! [`ArrayWriter`]. `dirty_chunks.rs` collects what they write (`dirty_content.rs` has the bytes), `write_back/` stores it
//! and has the lock and the document (`write_back/session.rs`), and `streaming.rs` says how far a writer may get ahead of
//! the store. `unstored_log/` has what is written where it outlives the process, and `unstored_bytes.rs` what becomes of
//! it when the process ends. All arrays share `resources.rs` and `written.rs`.

pub mod clear;
pub mod dirty;
pub mod dirty_chunks;
pub mod dirty_content;
pub mod lengthen;
pub mod resources;
mod streaming;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
pub mod unstored_bytes;
pub mod unstored_log;
pub mod whole_objects;
pub mod write_back;
pub mod written;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::array::geometry::copy_plan::CopyPlan;
use crate::array::geometry::strided_copy::StridedCopy;
use crate::array::served::ServedArray;
use crate::array::served::strip_cache::StripCache;
use crate::array::sync::{self, Mutex, OwnedMutexGuard};
use crate::array::workers::Workers;
use crate::array::write::dirty::{ChunkState, FlushScope, ZeroMark};
use crate::array::write::dirty_chunks::DirtyChunks;
use crate::array::write::resources::WriteResources;
use crate::array::write::streaming::FullChunks;
use crate::array::write::unstored_bytes::UnstoredBytes;
use crate::array::write::unstored_log::recorder::WriteRecord;
use crate::array::write::write_back::{DirtyReport, WriteBack};
use crate::array::write::written::{WrittenArray, WrittenArrays};
use crate::error::{Error, Result};

/// The most objects of an array that can be zeroed.
const MAX_ZEROED_OBJECTS: u64 = 1 << 24;

/// A write to more chunks goes to a thread that may wait, which locks them one by one. A session thread holds all their
/// locks during the copy: with chunks of one byte, these could be a million.
const MAX_CHUNKS_WITHOUT_WAITING: usize = 1024;

/// Writes one array.
pub struct ArrayWriter {
    served: Arc<ServedArray>,
    dirty: Arc<DirtyChunks>,
    write_back: WriteBack,
    unstored: Arc<UnstoredBytes>,
    full: FullChunks,
    workers: Arc<Workers>,
    shared: WriterShared,
}

/// What the writers of all arrays of one process share.
#[derive(Clone)]
pub struct WriterShared {
    /// The dirty limit, permits to encode, and counts.
    pub resources: Arc<WriteResources>,
    /// The arrays that have writers or dirty chunks.
    pub written: Arc<WrittenArrays<ArrayWriter>>,
    /// The arrays that a dead process wrote to and did not store.
    pub lost: Arc<Mutex<Vec<Arc<UnstoredBytes>>>>,
}

impl WriterShared {
    /// Returns the segment of the log of unstored bytes before which chunks are to be recorded anew, if it is too long.
    fn old_records(&self) -> Option<u64> {
        self.resources.unstored_log()?.old_segments(self.resources.dirty_bytes())
    }
}

impl ArrayWriter {
    /// Creates the writer of an array that is not open for writing.
    pub fn new(strips: &Arc<StripCache>, workers: &Arc<Workers>, shared: &WriterShared) -> Self {
        let (served, resources) = (strips.served(), &shared.resources);
        let dirty = Arc::new(DirtyChunks::new(served, workers, resources));
        ArrayWriter {
            served: Arc::clone(served),
            write_back: WriteBack::new(strips, &dirty, resources),
            unstored: Arc::new(UnstoredBytes::new(served, &dirty)),
            full: FullChunks::new(served.grid(), resources),
            dirty,
            workers: Arc::clone(workers),
            shared: shared.clone(),
        }
    }

    /// Returns the writer of an array that continues this one. Dirty chunks, handles and lock are the same. It stores
    /// nothing before it takes over.
    pub fn successor(&self, strips: &Arc<StripCache>) -> Self {
        let served = strips.served();
        let dirty = Arc::new(self.dirty.successor(served));
        ArrayWriter {
            served: Arc::clone(served),
            write_back: self.write_back.successor(strips, &dirty, &self.shared.resources),
            unstored: Arc::new(UnstoredBytes::new(served, &dirty)),
            full: self.full.successor(served.grid()),
            dirty,
            workers: Arc::clone(&self.workers),
            shared: self.shared.clone(),
        }
    }

    /// Returns the dirty chunks.
    pub(in crate::array) fn dirty(&self) -> &Arc<DirtyChunks> {
        &self.dirty
    }

    /// Returns what is not stored, and what becomes of it when the process ends.
    pub fn unstored(&self) -> &UnstoredBytes {
        &self.unstored
    }

    // --- opening and closing ---

    /// Prepares the array for one more writer: takes the lock that excludes other writers, and removes the unfinished
    /// files of dead writers. Pair it with [`ArrayWriter::close_for_writing`].
    pub fn open_for_writing(self: &Arc<Self>) -> Result<()> {
        self.write_back.session.open(|| {
            self.dirty.mark_written();
            self.shared.written.register(self);
        })
    }

    /// Ends one writer. After the last one, the lock is released once nothing is dirty.
    pub fn close_for_writing(&self) {
        self.write_back.session.close();
        self.release_if_idle();
    }

    /// Releases the lock when there is no writer and nothing is dirty. An array with objects that are not durable yet
    /// stays in the list of written arrays, so the end of the mount finds it.
    fn release_if_idle(&self) {
        let released = || {
            if self.write_back.is_synced() {
                self.shared.written.unregister(self);
            }
        };
        self.write_back.session.release_if_idle(|| self.dirty.is_dirty(), released);
    }

    /// Returns whether the array is open for writing.
    pub fn has_writers(&self) -> bool {
        self.writers() > 0
    }

    /// Returns how many handles have it open for writing.
    pub fn writers(&self) -> usize {
        self.write_back.session.writers()
    }

    /// Returns whether another folder has replaced the one that is written to.
    pub fn is_displaced(&self) -> bool {
        self.write_back.session.is_displaced()
    }

    /// Takes over from the array from which this one grew: from now on this one stores.
    pub fn take_over(self: &Arc<Self>, old: &ArrayWriter) -> Result<()> {
        let _storing = self.write_back.storing().lock();
        self.succeed(old)?;
        // Another program has replaced the document, and may have stored elements after the end that this array has
        // now.
        self.write_back.session.set_end_clear(false);
        Ok(())
    }

    /// Does what [`ArrayWriter::take_over`] does. The caller makes sure that nothing is stored meanwhile.
    fn succeed(self: &Arc<Self>, old: &ArrayWriter) -> Result<()> {
        // The zero mark does not cover chunks that another program has added.
        let is_possible = || !self.dirty.is_zeroed();
        let taken = || {
            if self.shared.written.is_registered(self) {
                self.shared.written.register(self);
            }
        };
        self.write_back.session.take_over(&old.write_back.session, is_possible, taken)
    }

    // --- writing ---

    /// Writes `data` at `offset`. The range must lie in the file, and the array must be open for writing. The bytes are dirty until
    /// [`ArrayWriter::flush`]. If more than the limit is dirty, stores some of it first; if that fails and leaves no room, the write fails
    /// as a whole.
    pub fn write_at(self: &Arc<Self>, offset: u64, data: &[u8]) -> Result<()> {
        self.check_write(offset, data)?;
        self.make_room()?;
        let recorded = self.dirty.recorder().record_write(offset, data)?;
        self.take(offset, data, &recorded);
        Ok(())
    }

    /// Begins a write without waiting: makes its chunks dirty and locks them. From then on nothing can fail, so the
    /// writer may continue before [`PendingWrite::copy`]: readers of the bytes wait for the locks. `None` if the write
    /// would have to wait; then nothing is written.
    pub fn try_begin_write<'a>(
        self: &Arc<Self>,
        offset: u64,
        data: &'a [u8],
    ) -> Result<Option<PendingWrite<'a>>> {
        self.check_write(offset, data)?;
        if self.full.is_crowded() || self.shared.old_records().is_some() {
            return Ok(None);
        }
        let mut plan = CopyPlan::default();
        plan.make(self.served.grid(), offset..offset + data.len() as u64);
        if !plan.is_complete() || plan.chunks().len() > MAX_CHUNKS_WITHOUT_WAITING {
            return Ok(None);
        }
        let Some(states) = self.dirty.lock_soon(&plan) else { return Ok(None) };
        // Not before the locks: records of a chunk are in the order of its changes.
        let recorded = self.dirty.recorder().record_write(offset, data)?;
        Ok(Some(PendingWrite { writer: Arc::clone(self), data, plan, states, recorded }))
    }

    /// Writes as [`ArrayWriter::write_at`] does, for pages of a memory map. It does not fail because storing fails: the
    /// kernel would drop the page for good. The failure is counted, and the next flush reports it.
    pub fn write_page(self: &Arc<Self>, offset: u64, data: &[u8]) -> Result<()> {
        self.check_write(offset, data)?;
        let _ = self.make_room();
        let recorded = self.dirty.recorder().record_write(offset, data).unwrap_or_else(|error| {
            log::error!("{error}");
            self.record_failure(&error);
            WriteRecord::None
        });
        self.take(offset, data, &recorded);
        Ok(())
    }

    /// Makes every byte zero and keeps the size. Fails if the array has too many objects to keep track of.
    pub fn zero(&self) -> Result<()> {
        self.check_open()?;
        if self.served.levels().objects() > MAX_ZEROED_OBJECTS {
            let reason = format!("setting an array of more than {MAX_ZEROED_OBJECTS} objects to zero");
            return Err(Error::unsupported(self.served.document_key(), reason));
        }
        let _storing = self.write_back.storing().lock();
        self.dirty.drop_all(Some(ZeroMark::default()));
        Ok(())
    }

    /// Returns whether all of the array is zero since a truncation, and the store does not know it yet.
    pub fn is_zeroed(&self) -> bool {
        self.dirty.is_zeroed()
    }

    /// Fails if these bytes cannot be written there: they lie past the end of the file, or are not values of the data
    /// type.
    pub fn check_write(&self, offset: u64, data: &[u8]) -> Result<()> {
        if self.write_back.end().refuses_writes() {
            return Err(self.write_back.session.stale());
        }
        self.check_open()?;
        self.served.range(offset, data.len())?;
        self.served.check_values(data)
    }

    /// Fails if no writer has opened the array: readers would not find what is written, and nothing could store it.
    fn check_open(&self) -> Result<()> {
        if self.write_back.session.is_open() {
            return Ok(());
        }
        let key = self.served.document_key();
        Err(Error::ReadOnly(format!(
            "{key}: the array is not open for writing (ArrayWriter::open_for_writing)"
        )))
    }

    /// Fails if these bytes are not values of the data type.
    pub fn check_values(&self, data: &[u8]) -> Result<()> {
        self.served.check_values(data)
    }

    fn take(self: &Arc<Self>, offset: u64, data: &[u8], record: &WriteRecord) {
        let grid = self.served.grid();
        let _ = grid.for_each_copy(offset, data.len() as u64, &mut |copy: &StridedCopy<'_>| {
            self.record_full(self.dirty.write(copy, data, record.recorded()));
            Ok::<(), ()>(())
        });
    }

    /// Records that chunks with this many bytes became full. When they are enough, a new thread stores them.
    fn record_full(self: &Arc<Self>, bytes: u64) {
        let Some(storing) = self.full.add(bytes) else { return };
        let writer = Arc::clone(self);
        let run = move || {
            // A failure is counted. The next close or fsync reports it.
            while storing.has_enough() && writer.write_back.store(FlushScope::Full).is_ok() {}
        };
        // Without this thread, the timer, a close or the dirty limit stores them.
        if let Err(error) = sync::spawn("full-chunks".to_owned(), run) {
            log::debug!("cannot start the thread that stores full chunks: {error}");
        }
    }

    /// Stores dirty chunks if the dirty limit is exceeded. Fails if that leaves no room. If dirty chunks of other
    /// arrays cannot be stored, writes to this array are not refused: then it has only these writes dirty.
    fn make_room(&self) -> Result<()> {
        let WriterShared { resources, written, .. } = &self.shared;
        if let Some(old) = self.shared.old_records() {
            written.all().iter().for_each(|array| array.unstored.record_anew(old));
        }
        // A thread that stores full chunks already makes room at the least cost: those gain nothing by waiting.
        if !self.full.is_crowded() || self.full.wait_for_room() {
            return Ok(());
        }
        // Then this array stores, and other arrays only if that was not enough: their chunks may still collect writes.
        let stored = self.store_to_make_room();
        if resources.is_over_dirty_limit() {
            written.make_others_store(self);
        }
        if resources.is_over_dirty_limit() { stored } else { Ok(()) }
    }

    // --- storing ---

    /// Stores everything that is dirty, as close(2) does. Returns the first failure; what failed stays dirty.
    pub fn flush(&self) -> Result<()> {
        self.write_back.store(FlushScope::Everything)
    }

    /// Stores everything that is dirty and makes it durable, as fsync(2) does.
    pub fn sync(&self) -> Result<()> {
        self.flush()?;
        self.write_back.sync_names()
    }

    /// Returns how many write-backs have failed, and the last failure. A handle that has seen fewer reports it.
    pub fn failures(&self) -> (u64, Option<Error>) {
        self.write_back.failures().counted()
    }

    /// Counts a write-back that fails before it starts, because the array is no longer the one that was opened.
    pub fn record_failure(&self, error: &Error) {
        self.write_back.record_failure(error);
    }

    /// Returns whether something is not yet in the store.
    pub fn is_dirty(&self) -> bool {
        self.dirty.is_dirty()
    }

    /// Returns whether the array was ever opened for writing.
    pub fn was_written(&self) -> bool {
        self.dirty.is_written()
    }

    /// Returns the time of the last write to the dirty chunk that has had none for the longest time. `None` if none is dirty.
    pub fn oldest_write(&self) -> Option<Instant> {
        self.dirty.oldest_write()
    }

    /// Returns what is not in the store yet. `None` if everything is.
    pub fn unsaved(&self) -> Option<DirtyReport> {
        self.write_back.unsaved()
    }

    // --- the end of the array ---

    /// Makes writes fail with `Stale` from now on. What was written before can still be stored.
    pub fn refuse_writes(&self) {
        self.write_back.end().refuse_writes(true);
    }

    /// Takes writes again, because the node stays.
    pub fn accept_writes(&self) {
        self.write_back.end().refuse_writes(false);
    }

    /// Runs `remove`, which takes the array's node out of the store, while nothing is being stored. Then drops what was
    /// written and not stored: it is never stored. Returns whether there was something. If `remove` fails, the array
    /// stays as it is.
    pub fn end(&self, remove: impl FnOnce() -> Result<()>) -> Result<bool> {
        self.refuse_writes();
        let _storing = self.write_back.storing().lock();
        if let Err(error) = remove() {
            self.accept_writes();
            return Err(error);
        }
        self.write_back.end().mark_ended();
        Ok(self.write_back.drop_dirty())
    }

    /// Does [`ArrayWriter::end`] for an array that stays in its store, where another one takes its place in this process: that gets the lock, although
    /// files of this one are open.
    pub fn end_here(&self) -> Result<bool> {
        let has_lost = self.end(|| Ok(()))?;
        self.write_back.session.end();
        Ok(has_lost)
    }
}

impl WrittenArray for ArrayWriter {
    fn number(&self) -> u64 {
        self.served.number()
    }

    fn path(&self) -> &str {
        self.served.path()
    }

    fn document_key(&self) -> &str {
        self.served.document_key()
    }

    fn is_same_file(&self, other: &Self) -> bool {
        self.write_back.session.is_shared_with(&other.write_back.session)
    }

    fn shares_limit_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared.resources, &other.shared.resources)
    }

    fn is_dirty(&self) -> bool {
        self.dirty.is_dirty()
    }

    fn store_to_make_room(&self) -> Result<()> {
        self.write_back.store(FlushScope::ToMakeRoom)
    }

    fn store_settled(&self, writeback_delay: Duration) {
        let (write_back, failures, now) = (&self.write_back, self.write_back.failures(), Instant::now());
        if !failures.in_backoff(now) {
            let stored = match (self.dirty.is_dirty(), self.has_writers()) {
                (true, true) => write_back.store(FlushScope::Settled(writeback_delay)),
                // There is no writer left to store the rest.
                (true, false) => write_back.store(FlushScope::Everything),
                (false, _) => write_back.sync_names(),
            };
            let is_stale = matches!(stored, Err(Error::Stale { .. }));
            if is_stale && !write_back.session.is_current_writer() {
                // It has grown meanwhile, and its successor stores the chunks.
                return;
            }
            if let Err(error) = &stored
                && is_stale
                && failures.timer_succeeds()
            {
                log::error!("{error}; the changes stay in memory and write-back tries again");
            }
            failures.record_timer(stored.is_ok(), now);
        }
        self.release_if_idle();
    }

    fn store_all(&self) -> Result<()> {
        let stored = self.sync();
        self.release_if_idle();
        stored
    }
}

/// A write that has begun and cannot fail any more. It holds the locks of its chunks. Dropping it writes nothing.
#[must_use = "nothing is written before it is copied"]
pub struct PendingWrite<'a> {
    writer: Arc<ArrayWriter>,
    data: &'a [u8],
    plan: CopyPlan,
    /// The locks, by the places of chunks in the plan.
    states: Vec<OwnedMutexGuard<ChunkState>>,
    /// Where the bytes are until they are stored, if the process dies.
    recorded: WriteRecord,
}

impl PendingWrite<'_> {
    /// Copies the bytes into the chunks and lets others use them.
    pub fn copy(mut self) {
        let mut full_bytes = 0;
        let _ = self.plan.for_each_copy(|place, copy| {
            if let Some(state) = self.states.get_mut(place) {
                full_bytes +=
                    self.writer.dirty.write_locked(copy, self.data, state, self.recorded.recorded());
            }
            Ok::<(), ()>(())
        });
        // Before the locks: a thread that stores the chunks next must not find the write under way.
        drop(self.recorded);
        drop(self.states);
        self.writer.record_full(full_bytes);
    }
}
