//! Suspended decoders: a sequential read resumes a chunk where it stopped. With a cache smaller than a slab, a reader
//! comes back to each chunk for its next rows; a codec with a small decoder need not start again.
//!
//! Uses `array/cache` (for keys), `codec`, `store` and `sync.rs`. Invariant: a decoder continues only on the version of
//! the object on which it started.

use lru::LruCache;

use crate::array::cache::CacheKey;
use crate::array::sync::Mutex;
use crate::codec::ResumableDecoder;
use crate::store::ObjectVersion;

/// The most decoders that are kept. A DEFLATE decoder takes about 50 KiB.
pub const MAX_DECODERS: usize = 256;

struct CachedDecoder {
    version: ObjectVersion,
    decoder: Box<dyn ResumableDecoder>,
}

/// The decoders of one engine, by array and chunk.
pub struct ResumableDecoders {
    decoders: Mutex<LruCache<CacheKey, CachedDecoder>>,
}

impl Default for ResumableDecoders {
    fn default() -> Self {
        ResumableDecoders { decoders: Mutex::new(LruCache::unbounded()) }
    }
}

impl ResumableDecoders {
    /// Takes the decoder of a chunk, if its position is not past byte `start`.
    pub fn take(
        &self,
        chunk: CacheKey,
        version: ObjectVersion,
        start: usize,
    ) -> Option<Box<dyn ResumableDecoder>> {
        let cached = self.decoders.lock().pop(&chunk)?;
        (cached.version == version && cached.decoder.position() <= start).then_some(cached.decoder)
    }

    /// Keeps a decoder for the next rows of its chunk.
    pub fn keep(&self, chunk: CacheKey, version: ObjectVersion, decoder: Box<dyn ResumableDecoder>) {
        let mut decoders = self.decoders.lock();
        let old = decoders.put(chunk, CachedDecoder { version, decoder });
        let oldest = if decoders.len() > MAX_DECODERS { decoders.pop_lru() } else { None };
        drop(decoders); // memory is freed outside the lock
        drop((old, oldest));
    }

    /// Drops the decoders of an array.
    pub fn forget_array(&self, array: u64) {
        let mut decoders = self.decoders.lock();
        let chunks: Vec<CacheKey> =
            decoders.iter().map(|(chunk, _)| *chunk).filter(|chunk| chunk.array == array).collect();
        for chunk in chunks {
            decoders.pop(&chunk);
        }
    }
}
