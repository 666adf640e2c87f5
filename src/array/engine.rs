//! What all arrays of one process share: the chunk cache, the decoding threads.
//!
//! Uses nothing but its neighbours in `array`.

use std::collections::HashSet;
use std::sync::{Arc, Once, Weak};
use std::time::Duration;

use crate::array::Inner;
use crate::array::cache::ChunkCache;
use crate::array::readahead::replies::GatheredBytes;
use crate::array::source::open_objects::OpenObjects;
use crate::array::source::resumable_decoders::Streams;
use crate::array::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::array::sync::{self, Mutex};
use crate::array::workers::Workers;
use crate::array::write::flush_all::store_each;
use crate::array::write::semaphore::Permits;
use crate::array::write::streaming::RoomSignal;
use crate::error::Error;
use crate::sys::keep_freed_memory;

/// The chunk cache and the threads behind every array of a mount.
pub struct Engine {
    /// Decoded units.
    pub(super) cache: ChunkCache,
    /// Raw chunks that are read.
    pub(super) objects: OpenObjects,
    /// Decoders between two parts of a unit.
    pub(super) streams: Streams,
    /// What is gathered ahead of readers.
    pub(super) gathered_bytes: GatheredBytes,
    /// Decoding threads.
    pub(super) workers: Workers,
    /// To encode; as many as there are decoding threads.
    pub(super) encoders: Permits,
    next_array: AtomicU64,
    pub(super) decoded_units: AtomicU64,
    pub(super) decoded_bytes: AtomicU64,
    /// Readers are given each byte once, and keep it themselves.
    pub(super) readers_keep: AtomicBool,
    dirty_limit_bytes: AtomicU64,
    /// Bytes written and not yet stored.
    pub(super) dirty_bytes: AtomicU64,
    /// Tells when those become fewer.
    pub(super) room: RoomSignal,
    /// Units read because they were written in part.
    pub(super) bases_read: AtomicU64,
    pub(super) units_encoded: AtomicU64,
    pub(super) objects_stored: AtomicU64,
    /// Arrays that are written, or have something dirty that could not be stored yet: kept alive until it is.
    written: Mutex<Vec<Arc<Inner>>>,
    /// The timer stores what was not written for so long; `None`: there is no timer.
    settle: Mutex<Option<Duration>>,
    /// The arrays, by number, that hang in the store while they are stored: left alone but by who asks for them.
    pub(super) hanging: Mutex<HashSet<u64>>,
    timer: Once,
}

/// What the engine has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCounters {
    /// Units found in the cache.
    pub hits: u64,
    /// Units that had to be loaded.
    pub misses: u64,
    /// Units dropped to make room.
    pub evictions: u64,
    /// Units decoded.
    pub decoded_units: u64,
    /// Their bytes.
    pub decoded_bytes: u64,
    /// Bytes in the cache now.
    pub cached_bytes: u64,
    /// Its limit.
    pub cache_limit_bytes: u64,
    /// Bytes written and not yet stored.
    pub dirty_bytes: u64,
    /// Units read because they were written in part.
    pub bases_read: u64,
    /// Units encoded.
    pub units_encoded: u64,
    /// Objects put or deleted.
    pub objects_stored: u64,
}

/// A unit that was written this recently is left to gather more by the timer.
const SETTLE: Duration = Duration::from_secs(5);

/// How often the timer looks for what has settled.
const TICK: Duration = Duration::from_secs(1);

/// Where one array's storing hangs, the others' wait no longer than this.
const QUIET: Duration = Duration::from_secs(2);

fn tick(engine: &Weak<Engine>) {
    loop {
        sync::thread::sleep(TICK);
        let Some(engine) = engine.upgrade() else { return };
        let Some(settle) = *engine.settle.lock() else { return };
        engine.store_settled(settle);
    }
}

/// What codec libraries allocate for one chunk, up to this, is kept by the allocator for the next.
const KEPT_BY_ALLOCATOR_BYTES: i32 = 4 << 20;
/// The allocator's arenas: what is long comes from `memory`, and what is short seldom keeps threads waiting for each other.
const ARENAS: i32 = 2;

impl Engine {
    /// An engine whose cache holds at most `cache_limit_bytes` and that decodes on `threads` threads.
    pub fn new(cache_limit_bytes: u64, threads: usize) -> Arc<Self> {
        let workers = Workers::new(threads);
        keep_freed_memory(KEPT_BY_ALLOCATOR_BYTES, ARENAS);
        let encoders = Permits::new(workers.count());
        Arc::new(Engine {
            cache: ChunkCache::new(cache_limit_bytes),
            objects: OpenObjects::default(),
            streams: Streams::default(),
            gathered_bytes: GatheredBytes::new(cache_limit_bytes),
            workers,
            encoders,
            next_array: AtomicU64::new(1),
            decoded_units: AtomicU64::new(0),
            decoded_bytes: AtomicU64::new(0),
            readers_keep: AtomicBool::new(false),
            dirty_limit_bytes: AtomicU64::new(cache_limit_bytes / 4),
            dirty_bytes: AtomicU64::new(0),
            room: RoomSignal::default(),
            bases_read: AtomicU64::new(0),
            units_encoded: AtomicU64::new(0),
            objects_stored: AtomicU64::new(0),
            written: Mutex::default(),
            settle: Mutex::new(Some(SETTLE)),
            hanging: Mutex::default(),
            timer: Once::new(),
        })
    }

    /// Sets how many bytes may be dirty before a writer has to wait (a quarter of the cache's limit, unless set).
    pub fn set_dirty_limit_bytes(&self, limit_bytes: u64) {
        self.dirty_limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// Sets how long a unit is left to gather more (5 seconds, unless set); `None`, before anything is written: no timer.
    pub fn set_settle(&self, settle: Option<Duration>) {
        *self.settle.lock() = settle;
    }

    /// Stores what was not written for as long as `settle`: what the timer does each second.
    pub fn store_settled(self: &Arc<Self>, settle: Duration) {
        store_each(self, self.answering(), QUIET, move |array| {
            array.store_settled(settle);
            Ok(())
        });
    }

    /// Tells that what a reader was given it keeps itself, as the kernel's page cache does.
    pub fn let_readers_keep(&self) {
        self.readers_keep.store(true, Ordering::Relaxed);
    }

    pub(super) fn dirty_limit_bytes(&self) -> u64 {
        self.dirty_limit_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn is_over_dirty_limit(&self) -> bool {
        self.dirty_bytes.load(Ordering::Acquire) > self.dirty_limit_bytes()
    }

    /// Remembers an array that is written, and starts the timer that stores what has settled.
    pub(super) fn register(self: &Arc<Self>, array: &Arc<Inner>) {
        let mut written = self.written.lock();
        // One that grew takes its predecessor's place.
        written.retain(|known| !Arc::ptr_eq(&known.writing, &array.writing));
        written.push(Arc::clone(array));
        drop(written);
        if self.settle.lock().is_none() {
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

    /// Forgets an array that nobody writes and that has nothing dirty.
    pub(super) fn unregister(&self, array: &Inner) {
        self.written.lock().retain(|known| !Arc::ptr_eq(&known.writing, &array.writing));
    }

    /// Whether an array is among those that are written.
    pub(super) fn is_registered(&self, array: &Inner) -> bool {
        self.written.lock().iter().any(|known| Arc::ptr_eq(&known.writing, &array.writing))
    }

    pub(super) fn written(&self) -> Vec<Arc<Inner>> {
        self.written.lock().clone()
    }

    /// The written arrays that do not hang.
    fn answering(&self) -> Vec<Arc<Inner>> {
        let mut arrays = self.written();
        let hanging = self.hanging.lock();
        arrays.retain(|array| !hanging.contains(&array.number));
        arrays
    }

    /// Stores what other arrays than `but` have dirty, until there is room. What fails is told to those who wrote it.
    pub(super) fn make_others_store(self: &Arc<Self>, but: &Inner) {
        let mut others = self.answering();
        others.retain(|array| !Arc::ptr_eq(&array.writing, &but.writing) && array.is_dirty());
        store_each(self, others, QUIET, Inner::store_now);
    }

    /// Stores everything that is dirty and makes it last. Gives up on what hangs when nothing was stored for `quiet`. What could
    /// not be stored: by array, why.
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
            decoded_units: self.decoded_units.load(Ordering::Relaxed),
            decoded_bytes: self.decoded_bytes.load(Ordering::Relaxed),
            cached_bytes: self.cache.weight_bytes(),
            cache_limit_bytes: self.cache.limit_bytes(),
            dirty_bytes: self.dirty_bytes.load(Ordering::Relaxed),
            bases_read: self.bases_read.load(Ordering::Relaxed),
            units_encoded: self.units_encoded.load(Ordering::Relaxed),
            objects_stored: self.objects_stored.load(Ordering::Relaxed),
        }
    }
}
