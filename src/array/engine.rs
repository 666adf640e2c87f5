//! What all arrays of one process share: the chunk cache, the decoding threads, the recycled buffers.
//!
//! Uses nothing but its neighbours in `array`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::buffer::BufferPool;
use super::cache::ChunkCache;
use super::workers::Workers;

/// The chunk cache and the threads behind every array of a mount.
pub struct Engine {
    /// Decoded units.
    pub(super) cache: ChunkCache,
    /// Buffers for them.
    pub(super) buffers: Arc<BufferPool>,
    /// Decoding threads.
    pub(super) workers: Workers,
    next_array: AtomicU64,
    pub(super) decoded_units: AtomicU64,
    pub(super) decoded_bytes: AtomicU64,
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
}

/// Idle buffers kept per decoding thread.
const IDLE_BYTES_PER_THREAD: usize = 16 << 20;

impl Engine {
    /// An engine whose cache holds at most `cache_limit_bytes` and that decodes on `threads` threads.
    pub fn new(cache_limit_bytes: u64, threads: usize) -> Arc<Self> {
        let workers = Workers::new(threads);
        let buffers = BufferPool::new(IDLE_BYTES_PER_THREAD.saturating_mul(workers.count()));
        Arc::new(Engine {
            cache: ChunkCache::new(cache_limit_bytes),
            buffers,
            workers,
            next_array: AtomicU64::new(1),
            decoded_units: AtomicU64::new(0),
            decoded_bytes: AtomicU64::new(0),
        })
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
        }
    }
}
