//! Write-back: from dirty chunks to the store.
//!
//! Uses its neighbours in `array`, `store` and `error`. One replacement stores all dirty chunks of an object
//! (`store_object.rs`).
//!
//! Invariants: a chunk becomes clean only when exactly its content is in the store. A failure leaves it dirty and is
//! counted, so that every handle reports it. If an object changed since a chunk's base was loaded, the base is loaded
//! again.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::array::sync::atomic::{AtomicUsize, Ordering};
use crate::array::sync::{self, Mutex};
use crate::array::write::dirty::DirtyChunk;
use crate::array::{Array, Inner, of_form};
use crate::error::{Error, Result};
use crate::metadata::MAX_DOCUMENT_BYTES;
use crate::store::Info;

/// Threads that store, per processor: most of them wait for the disk.
const THREADS_PER_CORE: usize = 4;
/// Threads that store at a service: nearly all of them wait for a reply.
const REMOTE_THREADS: usize = 32;

/// The most bytes that these threads encode at one time, unless that leaves less than one thread per processor.
const ENCODED_BYTES: u64 = 16 << 20;
/// The same for threads that store at a service: bytes under way are what makes it fast.
const REMOTE_ENCODED_BYTES: u64 = 64 << 20;

/// How many objects are looked up per lock of the map, for which writers wait.
const LOOKS_PER_LOCK: usize = 4096;

/// How many failures of one attempt are logged one by one.
const LOGGED_FAILURES: usize = 8;

/// The shortest time between logs of one array's failures while nothing succeeds.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Selects the dirty chunks to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::array) enum Which {
    /// All of them, and the rest of a zeroed array.
    Everything,
    /// If the dirty limit is exceeded: the full chunks, or all dirty chunks if none is full.
    ToMakeRoom,
    /// The full chunks.
    Full,
    /// The chunks without a write for this long.
    Settled(Duration),
}

/// Dirty chunks of one object, by number.
pub(in crate::array) type DirtyChunks = Vec<(u64, Arc<DirtyChunk>)>;

impl Array {
    /// Stores everything that is dirty, as close(2) does. Returns the first failure; what failed stays dirty.
    pub fn flush(&self) -> Result<()> {
        self.inner.store_dirty(Which::Everything)
    }

    /// Stores everything that is dirty and makes it durable, as fsync(2) does.
    pub fn sync(&self) -> Result<()> {
        self.flush()?;
        self.inner.sync_names()
    }

    /// How many write-backs have failed, and the last failure. A handle that has seen fewer reports it.
    pub fn failures(&self) -> (u64, Option<Error>) {
        let failures = self.inner.writing.failures.lock();
        (failures.count, failures.last.clone())
    }

    /// Counts a write-back that fails before it starts, because the array is no longer the one that was opened.
    pub fn note_failure(&self, error: &Error) {
        self.inner.writing.fail(error);
    }

    /// Whether something is not yet in the store.
    pub fn is_dirty(&self) -> bool {
        self.inner.is_dirty()
    }

    /// Whether the array was ever opened for writing.
    pub fn was_written(&self) -> bool {
        self.inner.writing.is_written.load(Ordering::Acquire)
    }
}

impl Inner {
    pub(in crate::array) fn is_dirty(&self) -> bool {
        let chunks = self.writing.chunks.lock();
        !chunks.dirty.is_empty() || chunks.zero.is_some()
    }

    /// The timer's task: stores the chunks that have had no write for `writeback_delay`, and makes stored objects durable.
    /// Counts and logs failures.
    pub(in crate::array) fn store_settled(&self, writeback_delay: Duration) {
        let now = Instant::now();
        if !self.writing.waits(now) {
            let has_writers = self.writing.opened.lock().as_ref().is_some_and(|opened| opened.writers > 0);
            let stored = match (self.is_dirty(), has_writers) {
                (true, true) => self.store_dirty(Which::Settled(writeback_delay)),
                // There is no writer left to store the rest.
                (true, false) => self.store_dirty(Which::Everything),
                (false, _) => self.sync_names(),
            };
            if matches!(stored, Err(Error::Stale { .. })) && !self.stores() {
                // It has grown meanwhile, and its successor stores the chunks.
                return;
            }
            if let Err(error @ Error::Stale { .. }) = &stored
                && self.writing.failures.lock().in_a_row == 0
            {
                log::error!("{error}; the changes stay in memory and write-back tries again");
            }
            self.writing.note_timer(stored.is_ok(), now);
        }
        self.let_go_if_idle();
    }

    /// The task of unmounting: stores everything and makes it durable.
    pub(in crate::array) fn store_all(&self) -> Result<()> {
        let stored = self.store_dirty(Which::Everything).and_then(|()| self.sync_names());
        self.let_go_if_idle();
        stored
    }

    /// Stores dirty chunks if the dirty limit is exceeded. Fails if that leaves no room. Dirty chunks of other arrays
    /// that cannot be stored are no reason to refuse writes to this array, which then has only these writes dirty.
    pub(in crate::array) fn make_room(&self) -> Result<()> {
        if !self.is_crowded() || self.waits_for_room() {
            return Ok(());
        }
        let stored = self.store_now();
        if self.engine.is_over_dirty_limit() {
            self.engine.make_others_store(self);
        }
        if self.engine.is_over_dirty_limit() { stored } else { Ok(()) }
    }

    /// Stores dirty chunks if the dirty limit is exceeded.
    pub(in crate::array) fn store_now(&self) -> Result<()> {
        self.store_dirty(Which::ToMakeRoom)
    }

    /// Releases the lock when there is no writer and nothing is dirty. An array with objects that are not durable yet stays
    /// in the list of written arrays, so the end of the mount finds it.
    pub(in crate::array) fn let_go_if_idle(&self) {
        let mut opened = self.writing.opened.lock();
        if opened.as_ref().is_some_and(|opened| opened.writers == 0) && !self.is_dirty() {
            *opened = None;
        }
        // A directory fsync that is running may still fail.
        let Some(_syncing) = self.writing.syncing.try_lock() else { return };
        if opened.is_none() && self.writing.chunks.lock().unsynced.is_empty() {
            self.engine.unregister(self);
        }
    }

    /// Takes over from the array from which this one grew: from now on this one stores.
    pub(in crate::array) fn take_over(self: &Arc<Self>, old: &Inner) -> Result<()> {
        let _storing = self.writing.storing.lock();
        self.succeed(old)?;
        // Another program has replaced the document, and may have stored elements after the end that this array has now.
        if let Some(opened) = self.writing.opened.lock().as_mut() {
            opened.is_end_clear = false;
        }
        Ok(())
    }

    /// As [`Inner::take_over`], while nothing is stored.
    pub(in crate::array) fn succeed(self: &Arc<Self>, old: &Inner) -> Result<()> {
        let stale = || Err(Error::Stale { key: self.metadata.document_key.clone() });
        let mut opened = self.writing.opened.lock();
        // The zero mark does not say which chunks the other program has added.
        if self.writing.chunks.lock().zero.is_some() {
            return stale();
        }
        if let Some(opened) = opened.as_mut() {
            if opened.array != old.number {
                return stale();
            }
            (opened.array, opened.version) = (self.number, None);
        }
        if self.engine.is_registered(self) {
            self.engine.register(self);
        }
        Ok(())
    }

    fn sync_names(&self) -> Result<()> {
        let _syncing = self.writing.syncing.lock();
        let Some(writer) = self.store.writer() else { return Ok(()) };
        // The keys are taken first: an object that is put again meanwhile needs another sync.
        let keys = std::mem::take(&mut self.writing.chunks.lock().unsynced);
        if keys.is_empty() {
            return Ok(());
        }
        let keys: Vec<String> = keys.into_iter().collect();
        writer.sync(&keys, &self.path).inspect_err(|error| {
            log::error!("{error}");
            self.writing.chunks.lock().unsynced.extend(keys.iter().cloned());
            self.writing.fail(error);
        })
    }

    pub(in crate::array) fn store_dirty(&self, which: Which) -> Result<()> {
        let _storing = self.writing.storing.lock();
        self.check_end()?;
        if which == Which::ToMakeRoom && !self.engine.is_over_dirty_limit() {
            // Another thread made room while this writer waited.
            return Ok(());
        }
        let objects = self.objects_to_store(which);
        if objects.is_empty() {
            self.end_zero(which);
            return Ok(());
        }
        let failures = match self.check_document() {
            // The array may have grown, and its successor may continue. The caller finds out, and counts the failure if
            // not.
            Err(error @ Error::Stale { .. }) => return Err(error),
            Err(error) => vec![error],
            Ok(like) => {
                let failures = self.store_objects(&objects, &like);
                if failures.len() < objects.len() {
                    self.touch_document();
                }
                let is_stale = |error: &&Error| matches!(error, Error::Stale { key } if *key == self.metadata.document_key);
                if let Some(stale) = failures.iter().find(is_stale) {
                    // As before: another program was first while objects were stored.
                    return Err(stale.clone());
                }
                failures
            }
        };
        self.log_failures(&failures);
        match failures.into_iter().next() {
            Some(error) => {
                self.writing.fail(&error);
                Err(error)
            }
            None => {
                self.end_zero(which);
                Ok(())
            }
        }
    }

    /// Not each time: a program that keeps writing while storing fails must not fill the disk with the log.
    fn log_failures(&self, failures: &[Error]) {
        let mut counted = self.writing.failures.lock();
        if failures.is_empty() {
            counted.logged_at = None;
            return;
        }
        let now = Instant::now();
        if counted.logged_at.is_some_and(|at| now.duration_since(at) < LOG_INTERVAL) {
            return;
        }
        counted.logged_at = Some(now);
        drop(counted);
        for error in failures.iter().take(LOGGED_FAILURES) {
            log::error!("{error}; the changes stay in memory and write-back tries again");
        }
        if failures.len() > LOGGED_FAILURES {
            log::error!("and {} more failures", failures.len() - LOGGED_FAILURES);
        }
    }

    /// Stores objects in parallel. Returns the failures.
    fn store_objects(&self, objects: &[(u64, DirtyChunks)], like: &Info) -> Vec<Error> {
        let next = AtomicUsize::new(0);
        let failures: Mutex<Vec<Error>> = Mutex::default();
        let cores = self.engine.workers.count();
        let threads = self.storing_threads(objects).min(objects.len());
        // A few shards, too, keep all processors busy.
        let threads_of_object = cores.saturating_mul(2).div_ceil(threads).min(cores);
        let run = || {
            while let Some((object, chunks)) = objects.get(next.fetch_add(1, Ordering::Relaxed)) {
                // A panic in a codec library fails the write-back of one object, not of all.
                let stored = catch_unwind(AssertUnwindSafe(|| {
                    self.store_object(*object, chunks, like, threads_of_object)
                }));
                let panicked = |_| {
                    let reason = std::io::Error::other("a codec panicked; this is a bug");
                    Err(Error::store(self.path.as_str(), "encode", reason))
                };
                if let Err(error) = stored.unwrap_or_else(panicked) {
                    failures.lock().push(error);
                }
            }
        };
        sync::on_threads(threads, "encode", run);
        failures.into_inner()
    }

    /// How many threads store: enough to keep the disk busy, but fewer if the chunks they encode take much memory.
    fn storing_threads(&self, objects: &[(u64, DirtyChunks)]) -> usize {
        let cores = self.engine.workers.count().max(1);
        let (most, encoded_bytes) = match self.store.is_remote() {
            true => (REMOTE_THREADS.max(cores), REMOTE_ENCODED_BYTES),
            false => (THREADS_PER_CORE.saturating_mul(cores), ENCODED_BYTES),
        };
        if self.source.is_uncompressed() {
            return most; // stored from where the chunks are
        }
        let chunks = objects.iter().map(|(_, chunks)| chunks.len()).max().unwrap_or(0) as u64;
        let object_bytes = self.chunk_bytes().saturating_mul(chunks).max(1);
        usize::try_from(encoded_bytes / object_bytes).unwrap_or(most).clamp(cores, most)
    }

    /// The objects to store, with their dirty chunks by number.
    fn objects_to_store(&self, which: Which) -> Vec<(u64, DirtyChunks)> {
        // Writers wait for the map, so only a copy is made under its lock.
        let (dirty, is_zeroed) = {
            let chunks = self.writing.chunks.lock();
            let dirty: DirtyChunks =
                chunks.dirty.iter().map(|(&number, chunk)| (number, Arc::clone(chunk))).collect();
            (dirty, chunks.zero.is_some())
        };
        let mut objects: HashMap<u64, DirtyChunks> = HashMap::new();
        for (number, chunk) in dirty {
            objects.entry(self.object_of(number)).or_default().push((number, chunk));
        }
        if let Which::Settled(writeback_delay) = which {
            let now = Instant::now();
            let is_settled = |chunk: &Arc<DirtyChunk>| {
                chunk.try_lock().is_some_and(|state| now.duration_since(state.last_write) >= writeback_delay)
            };
            objects.retain(|_, chunks| chunks.iter().all(|(_, chunk)| is_settled(chunk)));
        }
        if which == Which::Full {
            objects.retain(|object, chunks| self.is_full(*object, chunks));
        }
        if which == Which::ToMakeRoom {
            self.prefer_full(&mut objects);
        }
        if which == Which::Everything && is_zeroed {
            // No other thread changes the mark while this thread stores.
            for first in (0..self.source.objects()).step_by(LOOKS_PER_LOCK) {
                let chunks = self.writing.chunks.lock();
                for object in (first..self.source.objects()).take(LOOKS_PER_LOCK) {
                    if chunks.is_zero(object) {
                        objects.entry(object).or_default();
                    }
                }
            }
        }
        let mut objects: Vec<_> = objects.into_iter().collect();
        objects.sort_unstable_by_key(|(object, _)| *object);
        objects
    }

    /// Once everything is stored, the zero mark is no longer needed.
    fn end_zero(&self, which: Which) {
        if which == Which::Everything {
            let mut chunks = self.writing.chunks.lock();
            let all_settled = {
                let objects = self.source.objects();
                chunks.zero.as_ref().is_some_and(|mark| mark.settled.len() as u64 >= objects)
            };
            if all_settled {
                chunks.zero = None;
            }
        }
    }

    /// The metadata document's owner and mode, if the document still describes this array.
    pub(in crate::array) fn check_document(&self) -> Result<Info> {
        let key = self.metadata.document_key.as_str();
        let stale = || Error::Stale { key: key.to_owned() };
        let mut opened = self.writing.opened.lock();
        let opened = opened.as_mut().filter(|opened| opened.array == self.number).ok_or_else(stale)?;
        if let Some(writer) = self.store.writer() {
            writer.check_place().map_err(|_| stale())?;
        }
        // Another folder with the same document is another array.
        if self.folder_identity()? != opened.folder {
            return Err(stale());
        }
        let now = self.store.head_object(key)?.ok_or_else(stale)?;
        if opened.version != Some(now.version) {
            let document = self.store.get(key, MAX_DOCUMENT_BYTES)?.ok_or_else(stale)?;
            if document != opened.document {
                if !self.is_described_by(&document) {
                    return Err(stale());
                }
                opened.document = document;
            }
            of_form(&self.store, &self.path, &self.metadata)?;
            opened.version = Some(now.version);
        }
        Ok(now)
    }

    /// Updates the document's modification time, so that make and rsync see the change.
    fn touch_document(&self) {
        let mut opened = self.writing.opened.lock();
        let (Some(writer), Some(opened)) = (self.store.writer(), opened.as_mut()) else { return };
        let Some(version) = opened.version else { return };
        match writer.touch(&self.metadata.document_key, version) {
            // `None`: another program has just changed it. The next flush reads it.
            Ok(touched) => opened.version = touched,
            // The data are stored. A document of another owner keeps its time.
            Err(error) => log::debug!("{error}"),
        }
    }
}
