//! The parts that all arrays of one process share: the chunk cache, the decoding threads, the write-back timer.
//!
//! Uses the folders of `array`, and `error`, `memory`, `store` and `sys`. Each part of an array takes from it what it
//! needs.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use crate::array::readahead::resources::{Counted, ReadaheadResources};
use crate::array::source::loading::load_resources::LoadResources;
use crate::array::sync::atomic::Ordering;
use crate::array::sync::{self, Mutex};
use crate::array::workers::Workers;
use crate::array::write::WriterShared;
use crate::array::write::resources::WriteResources;
use crate::array::write::unstored_log::{KeptBytes, UnstoredLog};
use crate::array::write::write_back::DirtyReport;
use crate::array::write::written::{WrittenArray, WrittenArrays};
use crate::error::{Error, Result};
use crate::memory::release_idle;
use crate::store::{LatencyCounts, Store};
use crate::sys::keep_freed_memory;

/// The chunk cache and the threads of every array of a mount.
pub struct Engine {
    loads: Arc<LoadResources>,
    workers: Arc<Workers>,
    /// Those of the members of a catalogue, by their marks: tasks read the store, and one that does not respond must not hold up the
    /// arrays of others.
    workers_of_members: Mutex<HashMap<String, Arc<Workers>>>,
    /// The dirty bytes of the members of a catalogue, by their marks.
    resources_of_members: Mutex<HashMap<String, Arc<WriteResources>>>,
    writers: WriterShared,
    readahead: Arc<ReadaheadResources>,
}

/// Counts since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCounters {
    /// Chunks found in the cache.
    pub hits: u64,
    /// Chunks loaded.
    pub misses: u64,
    /// Chunks evicted.
    pub evictions: u64,
    /// Chunks decoded.
    pub decoded_chunks: u64,
    /// Their bytes.
    pub decoded_bytes: u64,
    /// Bytes in the cache now.
    pub cached_bytes: u64,
    /// Its limit.
    pub cache_limit_bytes: u64,
    /// Bytes written and not yet stored.
    pub dirty_bytes: u64,
    /// Chunks loaded because a write covered only a part of them.
    pub bases_read: u64,
    /// Chunks encoded.
    pub chunks_encoded: u64,
    /// Objects put or deleted.
    pub objects_stored: u64,
    /// Attempts to store something that failed.
    pub failed_stores: u64,
    /// Chunks, or strips of them, that are decoded ahead of readers now, or wait for that.
    pub ahead: u64,
    /// Bytes of chunks and shard indexes that were read from the store, and how long the reads took.
    pub stored_reads: (u64, LatencyCounts),
}

/// What an engine may use, and what it may rely on.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// The most bytes of decoded chunks in memory.
    pub cache_limit_bytes: u64,
    /// Decoding threads.
    pub threads: usize,
    /// How many bytes may be dirty before writers wait.
    pub dirty_limit_bytes: u64,
    /// The timer stores a chunk after this time without a write. `None`: there is no timer.
    pub writeback_delay: Option<Duration>,
    /// Whether readers keep what they receive, as the kernel's page cache does, and ask for it once.
    pub page_cache_keeps: bool,
    /// What outlives the process of what is written, if somebody keeps the log of it ([`Engine::keep_unstored`]).
    pub kept_bytes: KeptBytes,
}

impl EngineOptions {
    /// Creates the default options for a cache of at most `cache_limit_bytes` and this many decoding threads.
    pub fn new(cache_limit_bytes: u64, threads: usize) -> Self {
        EngineOptions {
            cache_limit_bytes,
            threads,
            dirty_limit_bytes: cache_limit_bytes / 4,
            writeback_delay: Some(WRITEBACK_DELAY),
            page_cache_keeps: false,
            kept_bytes: KeptBytes::All,
        }
    }
}

/// Default write-back delay: a chunk that was written more recently may still collect writes.
const WRITEBACK_DELAY: Duration = Duration::from_secs(5);

/// The allocator keeps allocations of codec libraries up to this size for the next chunk.
const KEPT_BY_ALLOCATOR_BYTES: i32 = 4 << 20;
/// The allocator's arenas. Long buffers come from `memory`, and short ones seldom make threads wait for each other.
const ARENAS: i32 = 2;

impl Engine {
    /// Creates an engine with default options: see [`EngineOptions::new`].
    pub fn new(cache_limit_bytes: u64, threads: usize) -> Arc<Self> {
        Engine::with_options(EngineOptions::new(cache_limit_bytes, threads))
    }

    /// Creates an engine with these options.
    pub fn with_options(options: EngineOptions) -> Arc<Self> {
        let EngineOptions { cache_limit_bytes, threads, page_cache_keeps, kept_bytes, .. } = options;
        let workers = Workers::new(threads);
        keep_freed_memory(KEPT_BY_ALLOCATOR_BYTES, ARENAS);
        // As many threads encode as decode.
        let (dirty_limit_bytes, encoders) = (options.dirty_limit_bytes, workers.count());
        let resources =
            Arc::new(WriteResources::new(dirty_limit_bytes, encoders, page_cache_keeps, kept_bytes));
        let written = Arc::new(WrittenArrays::new(options.writeback_delay, &resources));
        Arc::new(Engine {
            loads: Arc::new(LoadResources::new(cache_limit_bytes)),
            workers: Arc::new(workers),
            workers_of_members: Mutex::new(HashMap::new()),
            resources_of_members: Mutex::new(HashMap::new()),
            writers: WriterShared { resources, written, lost: Arc::default() },
            readahead: Arc::new(ReadaheadResources::new(cache_limit_bytes, page_cache_keeps)),
        })
    }

    /// Returns what the loads of all arrays share.
    pub(in crate::array) fn loads(&self) -> &Arc<LoadResources> {
        &self.loads
    }

    /// Returns the decoding threads.
    pub(in crate::array) fn workers(&self) -> &Arc<Workers> {
        &self.workers
    }

    /// Returns the decoding threads for the arrays of a store: a member of a catalogue has its own.
    pub(in crate::array) fn workers_for(&self, store: &dyn Store) -> Arc<Workers> {
        let Some(mark) = store.mark() else { return Arc::clone(&self.workers) };
        let mut members = self.workers_of_members.lock();
        if let Some(workers) = members.get(&mark) {
            return Arc::clone(workers);
        }
        let unused = members.iter().filter(|(_, workers)| Arc::strong_count(workers) == 1);
        for mark in unused.map(|(mark, _)| mark.clone()).collect::<Vec<_>>() {
            let workers = members.remove(&mark);
            // On a thread of its own, because it waits for tasks, which may hang.
            let _ = sync::spawn("decode-end".to_owned(), move || drop(workers));
        }
        let workers = Arc::new(Workers::new(self.workers.count()));
        members.insert(mark, Arc::clone(&workers));
        workers
    }

    /// Waits until the decoding thread, of which there must be one, has nothing to do.
    #[cfg(test)]
    pub(crate) fn wait_until_idle(&self) {
        self.workers.wait_until_idle();
    }

    /// Returns what the writers of all arrays share.
    pub(in crate::array) fn writers(&self) -> &WriterShared {
        &self.writers
    }

    /// Returns what the writers of a store's arrays share: a member of a catalogue has a share of the dirty limit.
    pub(in crate::array) fn writers_for(&self, store: &dyn Store) -> WriterShared {
        let Some(mark) = store.mark() else { return self.writers.clone() };
        let mut members = self.resources_of_members.lock();
        members.retain(|known, resources| *known == mark || Arc::strong_count(resources) > 1);
        let resources = members.entry(mark).or_insert_with(|| Arc::new(self.writers.resources.for_member()));
        WriterShared { resources: Arc::clone(resources), ..self.writers.clone() }
    }

    /// Returns what the readahead of all arrays shares.
    pub(in crate::array) fn readahead(&self) -> &Arc<ReadaheadResources> {
        &self.readahead
    }

    /// Records what is written from now on in `file` until it is stored, so that another process can store it if this one
    /// dies. With `is_former`, the file has what another process has left. Must be called before any array is opened.
    pub fn keep_unstored(&self, file: File, is_former: bool) -> Result<()> {
        let resources = &self.writers.resources;
        let limit_bytes = resources.dirty_limit_bytes();
        let log = if is_former {
            resources.mark_former_names();
            UnstoredLog::open(file, limit_bytes)?
        } else {
            UnstoredLog::create(file, limit_bytes)
                .map_err(|error| Error::Usage(format!("cannot record what is written: {error}")))?
        };
        resources.keep_unstored_log(Arc::new(log));
        Ok(())
    }

    /// Does not record what is written, because no other process can continue. Must be called before the first write.
    pub fn give_up_unstored(&self) {
        self.writers.resources.give_up_unstored_log();
    }

    /// Returns the paths of arrays with bytes that another process has written and not stored, and that were not opened yet.
    pub fn former_paths(&self) -> Vec<String> {
        self.writers.resources.unstored_log().map(|log| log.former_paths()).unwrap_or_default()
    }

    /// Returns whether another process has written to the array at a path and not stored it, and the array was not opened yet.
    pub fn has_former(&self, path: &str) -> bool {
        self.writers.resources.unstored_log().is_some_and(|log| log.has_former(path))
    }

    /// Gives up what another process has written to the array at a path and not stored, because there is no such array any more.
    pub fn drop_former(&self, path: &str) {
        let Some(log) = self.writers.resources.unstored_log() else { return };
        for array in log.former(path) {
            log::error!(
                "{path}: the array is gone, and what was written to it before the daemon died is lost"
            );
            log.end_former(&array);
        }
    }

    /// Returns the paths of arrays with bytes that another process has taken, and neither stored nor recorded, each with the error of its handles.
    pub fn lost(&self) -> Vec<(String, Error)> {
        let lost = self.writers.lost.lock();
        lost.iter().map(|array| (array.path().to_owned(), array.lost_bytes())).collect()
    }

    /// Records everything that is not stored, for a process that continues this one. Returns the paths of arrays with something that
    /// is still not recorded.
    pub fn record_unstored(&self) -> Vec<String> {
        let written = self.writers.written.all();
        let left = written.iter().filter(|array| !array.unstored().record_all());
        left.map(|array| array.path().to_owned()).collect()
    }

    /// All handles that may have written to these arrays report the loss, also to the programs of a later process.
    pub fn end_losses(&self) {
        let lost = std::mem::take(&mut *self.writers.lost.lock());
        lost.iter().for_each(|array| array.end_loss());
    }

    /// Stores the chunks that no write has touched for `writeback_delay`. The timer does this each second; a simulation
    /// without a timer calls it.
    pub fn store_settled(&self, writeback_delay: Duration) {
        self.writers.written.store_settled(writeback_delay);
    }

    /// Stores all dirty chunks and makes them durable. Gives up on arrays that hang after `quiet` without a stored
    /// object. Returns the path and the error of each array that failed.
    pub fn store_all(&self, quiet: Duration) -> Vec<(String, Error)> {
        self.writers.written.store_all(quiet, |_| true)
    }

    /// Does [`Engine::store_all`] for the arrays at the paths that `is_meant` admits.
    pub fn store_some(&self, quiet: Duration, is_meant: impl Fn(&str) -> bool) -> Vec<(String, Error)> {
        self.writers.written.store_all(quiet, is_meant)
    }

    /// Returns what is not in the store yet, for each array that has something.
    pub fn unsaved(&self) -> Vec<DirtyReport> {
        self.writers.written.all().iter().filter_map(|array| array.unsaved()).collect()
    }

    /// Returns how long the dirty chunk that was written last the longest time ago has waited. `None` if nothing is dirty.
    pub fn oldest_dirty(&self) -> Option<Duration> {
        let oldest = self.writers.written.all().iter().filter_map(|array| array.oldest_write()).min()?;
        Some(oldest.elapsed())
    }

    /// Returns a snapshot of the counts.
    pub fn counters(&self) -> EngineCounters {
        let (loads, writes, cache) = (&self.loads, &self.writers.resources, &self.loads.cache);
        EngineCounters {
            hits: cache.counters.hits.load(Ordering::Relaxed),
            misses: cache.counters.misses.load(Ordering::Relaxed),
            evictions: cache.counters.evictions.load(Ordering::Relaxed),
            decoded_chunks: loads.decoded_chunks(),
            decoded_bytes: loads.decoded_bytes(),
            cached_bytes: cache.weight_bytes(),
            cache_limit_bytes: cache.limit_bytes(),
            dirty_bytes: writes.dirty_bytes(),
            bases_read: writes.bases_read(),
            chunks_encoded: writes.chunks_encoded(),
            objects_stored: writes.objects_stored(),
            failed_stores: writes.failed_stores(),
            ahead: self.readahead.counted(Counted::StripsAhead),
            stored_reads: loads.reads.now(),
        }
    }

    /// Returns the limit of dirty bytes, above which writers wait.
    pub fn dirty_limit(&self) -> u64 {
        self.writers.resources.dirty_limit_bytes()
    }

    /// Gives memory back to the system: half of the cached bytes, those that were used longest ago, and all idle
    /// memory. Dirty chunks stay. Returns how many bytes that is.
    pub fn relieve(&self) -> u64 {
        let cache = &self.loads.cache;
        let dropped = cache.shrink_to(cache.weight_bytes() / 2);
        // Dropped chunks became idle memory.
        dropped.max(release_idle())
    }
}
