//! The parts that all arrays of one process share: the chunk cache, the decoding threads, the write-back timer.
//!
//! Uses the rest of `array`, and `error` and `sys`.

use std::collections::HashSet;
use std::sync::{Arc, Once, Weak};
use std::time::Duration;

use crate::array::Inner;
use crate::array::cache::ChunkCache;
use crate::array::readahead::replies::ReplyBudget;
use crate::array::source::open_objects::OpenObjects;
use crate::array::source::resumable_decoders::ResumableDecoders;
use crate::array::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::array::sync::{self, Mutex};
use crate::array::workers::Workers;
use crate::array::write::flush_all::store_each;
use crate::array::write::semaphore::Semaphore;
use crate::array::write::streaming::RoomSignal;
use crate::error::Error;
use crate::memory::release_idle;
use crate::store::{LatencyCounts, ReadCounts};
use crate::sys::keep_freed_memory;

/// The chunk cache and the threads of every array of a mount.
pub struct Engine {
    /// Decoded chunks.
    pub(super) cache: ChunkCache,
    /// Open objects of uncompressed chunks.
    pub(super) objects: OpenObjects,
    /// Suspended decoders.
    pub(super) decoders: ResumableDecoders,
    /// The memory of replies that are prepared ahead of readers.
    pub(super) reply_budget: ReplyBudget,
    /// Sequential readers of remote stores.
    pub(super) transferring_readers: AtomicUsize,
    /// Decoding threads.
    pub(super) workers: Workers,
    /// Limits the threads that encode; as many as there are decoding threads.
    pub(super) encoders: Semaphore,
    /// Strips that are decoded ahead of readers, or wait for that.
    pub(super) strips_ahead: AtomicU64,
    /// What was read from a store that is no service.
    pub(super) reads: Arc<ReadCounts>,
    next_array: AtomicU64,
    pub(super) decoded_chunks: AtomicU64,
    pub(super) decoded_bytes: AtomicU64,
    /// See [`EngineOptions`].
    pub(super) page_cache_keeps: bool,
    dirty_limit_bytes: u64,
    /// Bytes written and not yet stored.
    pub(super) dirty_bytes: AtomicU64,
    /// Tells when those become fewer.
    pub(super) room: RoomSignal,
    /// Chunks loaded because a write covered only a part of them.
    pub(super) bases_read: AtomicU64,
    pub(super) chunks_encoded: AtomicU64,
    pub(super) objects_stored: AtomicU64,
    /// Arrays that have writers, or dirty chunks that could not be stored yet. The list keeps them alive.
    written: Mutex<Vec<Arc<Inner>>>,
    /// The timer stores a chunk after this time without a write. `None`: there is no timer.
    writeback_delay: Option<Duration>,
    /// Numbers of the arrays that hang in the store during write-back. Only explicit requests store them.
    pub(super) hanging: Mutex<HashSet<u64>>,
    timer: Once,
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
    /// Chunks, or strips of them, that are decoded ahead of readers now, or wait for that.
    pub ahead: u64,
    /// Bytes of chunks and shard indexes read from the store, and times that reading took.
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
    /// Whether readers receive each byte once and keep it themselves, as the kernel's page cache does.
    pub page_cache_keeps: bool,
}

impl EngineOptions {
    /// The defaults for a cache of at most `cache_limit_bytes` and this many decoding threads.
    pub fn new(cache_limit_bytes: u64, threads: usize) -> Self {
        EngineOptions {
            cache_limit_bytes,
            threads,
            dirty_limit_bytes: cache_limit_bytes / 4,
            writeback_delay: Some(WRITEBACK_DELAY),
            page_cache_keeps: false,
        }
    }
}

/// Default write-back delay: a chunk that was written more recently may still collect writes.
const WRITEBACK_DELAY: Duration = Duration::from_secs(5);

/// How often the timer looks for chunks to store.
const TICK: Duration = Duration::from_secs(1);

/// When one array's write-back hangs, the others wait no longer than this.
const QUIET: Duration = Duration::from_secs(2);

fn tick(engine: &Weak<Engine>) {
    loop {
        sync::thread::sleep(TICK);
        let Some(engine) = engine.upgrade() else { return };
        let Some(writeback_delay) = engine.writeback_delay else { return };
        engine.store_settled(writeback_delay);
    }
}

/// The allocator keeps allocations of codec libraries up to this size for the next chunk.
const KEPT_BY_ALLOCATOR_BYTES: i32 = 4 << 20;
/// The allocator's arenas. Long buffers come from `memory`, and short ones seldom make threads wait for each other.
const ARENAS: i32 = 2;

impl Engine {
    /// An engine with default options: see [`EngineOptions::new`].
    pub fn new(cache_limit_bytes: u64, threads: usize) -> Arc<Self> {
        Engine::with_options(EngineOptions::new(cache_limit_bytes, threads))
    }

    /// An engine with these options.
    pub fn with_options(options: EngineOptions) -> Arc<Self> {
        let EngineOptions { cache_limit_bytes, threads, .. } = options;
        let workers = Workers::new(threads);
        keep_freed_memory(KEPT_BY_ALLOCATOR_BYTES, ARENAS);
        let encoders = Semaphore::new(workers.count());
        Arc::new(Engine {
            cache: ChunkCache::new(cache_limit_bytes),
            objects: OpenObjects::default(),
            decoders: ResumableDecoders::default(),
            reply_budget: ReplyBudget::new(cache_limit_bytes),
            transferring_readers: AtomicUsize::new(0),
            workers,
            encoders,
            strips_ahead: AtomicU64::new(0),
            reads: Arc::default(),
            next_array: AtomicU64::new(1),
            decoded_chunks: AtomicU64::new(0),
            decoded_bytes: AtomicU64::new(0),
            page_cache_keeps: options.page_cache_keeps,
            dirty_limit_bytes: options.dirty_limit_bytes,
            dirty_bytes: AtomicU64::new(0),
            room: RoomSignal::default(),
            bases_read: AtomicU64::new(0),
            chunks_encoded: AtomicU64::new(0),
            objects_stored: AtomicU64::new(0),
            written: Mutex::default(),
            writeback_delay: options.writeback_delay,
            hanging: Mutex::default(),
            timer: Once::new(),
        })
    }

    /// Stores the chunks that no write has touched for `writeback_delay`. The timer calls this each second.
    pub fn store_settled(self: &Arc<Self>, writeback_delay: Duration) {
        store_each(self, self.answering(), QUIET, move |array| {
            array.store_settled(writeback_delay);
            Ok(())
        });
    }

    pub(super) fn dirty_limit_bytes(&self) -> u64 {
        self.dirty_limit_bytes
    }

    pub(super) fn is_over_dirty_limit(&self) -> bool {
        self.dirty_bytes.load(Ordering::Acquire) > self.dirty_limit_bytes()
    }

    /// Adds an array to the written arrays, and starts the timer.
    pub(super) fn register(self: &Arc<Self>, array: &Arc<Inner>) {
        let mut written = self.written.lock();
        // An array that grew replaces its predecessor.
        written.retain(|known| !Arc::ptr_eq(&known.writing, &array.writing));
        written.push(Arc::clone(array));
        drop(written);
        if self.writeback_delay.is_none() {
            return;
        }
        self.timer.call_once(|| {
            let engine = Arc::downgrade(self);
            if let Err(error) = sync::spawn("write-back".to_owned(), move || tick(&engine)) {
                log::warn!(
                    "cannot start the write-back timer: {error}; changes are stored by close and fsync"
                );
            }
        });
    }

    /// Removes an array that has no writer and no dirty chunk.
    pub(super) fn unregister(&self, array: &Inner) {
        self.written.lock().retain(|known| !Arc::ptr_eq(&known.writing, &array.writing));
    }

    /// Whether an array is among the written arrays.
    pub(super) fn is_registered(&self, array: &Inner) -> bool {
        self.written.lock().iter().any(|known| Arc::ptr_eq(&known.writing, &array.writing))
    }

    pub(super) fn written(&self) -> Vec<Arc<Inner>> {
        self.written.lock().clone()
    }

    /// The written arrays that do not hang in the store.
    fn answering(&self) -> Vec<Arc<Inner>> {
        let mut arrays = self.written();
        let hanging = self.hanging.lock();
        arrays.retain(|array| !hanging.contains(&array.number));
        arrays
    }

    /// Stores dirty chunks of all arrays but `but`, until dirty bytes are below the limit. Each array counts its own
    /// failures.
    pub(super) fn make_others_store(self: &Arc<Self>, but: &Inner) {
        let mut others = self.answering();
        others.retain(|array| !Arc::ptr_eq(&array.writing, &but.writing) && array.is_dirty());
        store_each(self, others, QUIET, Inner::store_now);
    }

    /// Stores all dirty chunks and makes them durable. Gives up on arrays that hang after `quiet` without a stored
    /// object. Returns the path and the error of each array that failed.
    pub fn store_all(self: &Arc<Self>, quiet: Duration) -> Vec<(String, Error)> {
        store_each(self, self.written(), quiet, Inner::store_all)
    }

    /// A number for a new array.
    pub(super) fn number_array(&self) -> u64 {
        self.next_array.fetch_add(1, Ordering::Relaxed)
    }

    /// A snapshot of the counts.
    pub fn counters(&self) -> EngineCounters {
        let cache = &self.cache.counters;
        EngineCounters {
            hits: cache.hits.load(Ordering::Relaxed),
            misses: cache.misses.load(Ordering::Relaxed),
            evictions: cache.evictions.load(Ordering::Relaxed),
            decoded_chunks: self.decoded_chunks.load(Ordering::Relaxed),
            decoded_bytes: self.decoded_bytes.load(Ordering::Relaxed),
            cached_bytes: self.cache.weight_bytes(),
            cache_limit_bytes: self.cache.limit_bytes(),
            dirty_bytes: self.dirty_bytes.load(Ordering::Relaxed),
            bases_read: self.bases_read.load(Ordering::Relaxed),
            chunks_encoded: self.chunks_encoded.load(Ordering::Relaxed),
            objects_stored: self.objects_stored.load(Ordering::Relaxed),
            ahead: self.strips_ahead.load(Ordering::Relaxed),
            stored_reads: self.reads.now(),
        }
    }

    /// The limit of dirty bytes, above which writers wait.
    pub fn dirty_limit(&self) -> u64 {
        self.dirty_limit_bytes
    }

    /// Gives memory back to the system: half of the cached bytes, those that were used longest ago, and all idle memory.
    /// Dirty chunks stay. Returns how many bytes that are.
    pub fn relieve(&self) -> u64 {
        let dropped = self.cache.shrink_to(self.cache.weight_bytes() / 2);
        // Dropped chunks became idle memory.
        dropped.max(release_idle())
    }
}
