//! What the loads of all arrays of one process share: the chunk cache, open objects, suspended decoders, and counts.
//!
//! Uses its neighbours, `array/cache` and `store`.

use std::sync::Arc;

use crate::array::cache::{CachedContent, ChunkCache, LoadedContent};
use crate::array::source::loading::decode_meter::DecodeMeter;
use crate::array::source::loading::open_objects::OpenObjects;
use crate::array::source::loading::resumable_decoders::ResumableDecoders;
use crate::array::sync::atomic::{AtomicU64, Ordering};
use crate::store::ReadCounts;

/// What the loads of all arrays share.
pub struct LoadResources {
    /// Decoded chunks, strips of them, and indexes of shards.
    pub cache: ChunkCache,
    /// Open objects of uncompressed chunks.
    pub objects: OpenObjects,
    /// Suspended decoders.
    pub decoders: ResumableDecoders,
    /// Counts what is read from a store that is not a service.
    pub reads: Arc<ReadCounts>,
    next_array: AtomicU64,
    decoded_chunks: AtomicU64,
    decoded_bytes: AtomicU64,
}

impl LoadResources {
    /// Creates the resources of a process with a cache of at most `cache_limit_bytes`.
    pub fn new(cache_limit_bytes: u64) -> Self {
        LoadResources {
            cache: ChunkCache::new(cache_limit_bytes),
            objects: OpenObjects::default(),
            decoders: ResumableDecoders::default(),
            reads: Arc::default(),
            next_array: AtomicU64::new(1),
            decoded_chunks: AtomicU64::new(0),
            decoded_bytes: AtomicU64::new(0),
        }
    }

    /// Returns a number for a new array, which distinguishes its entries from those of all other arrays.
    pub fn next_array(&self) -> u64 {
        self.next_array.fetch_add(1, Ordering::Relaxed)
    }

    /// Drops everything that is kept for an array.
    pub fn forget_array(&self, array: u64) {
        self.cache.forget_array(array);
        self.objects.forget_array(array);
        self.decoders.forget_array(array);
    }

    /// Counts a load, for which this many bytes were decoded. A chunk that the store does not have is not counted.
    pub fn record_load(&self, loaded: &LoadedContent, decoded_bytes: usize) {
        if let CachedContent::Chunk(_) = &loaded.content {
            self.decoded_chunks.fetch_add(1, Ordering::Relaxed);
            self.decoded_bytes.fetch_add(decoded_bytes as u64, Ordering::Relaxed);
            DecodeMeter::record(decoded_bytes as u64);
        }
    }

    /// Returns how many chunks were decoded so far.
    pub fn decoded_chunks(&self) -> u64 {
        self.decoded_chunks.load(Ordering::Relaxed)
    }

    /// Returns how many bytes were decoded so far.
    pub fn decoded_bytes(&self) -> u64 {
        self.decoded_bytes.load(Ordering::Relaxed)
    }
}
