//! Suspended decoders: a sequential read resumes a chunk where it stopped. With a cache smaller than a slab, a reader
//! comes back to each chunk for its next rows; a codec with a small decoder need not start again.
//!
//! Uses `codec`, `store` and `sync.rs`. Invariant: a decoder continues only on the version of the object on which it
//! started.

use lru::LruCache;

use crate::array::sync::Mutex;
use crate::codec::ResumableDecoder;
use crate::store::ObjectVersion;

/// The most decoders that are kept. One of DEFLATE takes about 50 KiB.
pub const MAX_DECODERS: usize = 256;

struct CachedDecoder {
    version: ObjectVersion,
    stream: Box<dyn ResumableDecoder>,
}

/// The decoders of one engine, by array and chunk.
pub struct ResumableDecoders {
    kept: Mutex<LruCache<(u64, u64), CachedDecoder>>,
}

impl Default for ResumableDecoders {
    fn default() -> Self {
        ResumableDecoders { kept: Mutex::new(LruCache::unbounded()) }
    }
}

impl ResumableDecoders {
    /// Takes the decoder of a chunk, if its position is not past byte `start`.
    pub fn take(
        &self,
        chunk: (u64, u64),
        version: ObjectVersion,
        start: usize,
    ) -> Option<Box<dyn ResumableDecoder>> {
        let kept = self.kept.lock().pop(&chunk)?;
        (kept.version == version && kept.stream.position() <= start).then_some(kept.stream)
    }

    /// Keeps a decoder for the next rows of its chunk.
    pub fn keep(&self, chunk: (u64, u64), version: ObjectVersion, stream: Box<dyn ResumableDecoder>) {
        let mut kept = self.kept.lock();
        let old = kept.put(chunk, CachedDecoder { version, stream });
        let oldest = if kept.len() > MAX_DECODERS { kept.pop_lru() } else { None };
        drop(kept); // memory is freed outside the lock
        drop((old, oldest));
    }

    /// Drops the decoders of an array.
    pub fn forget_array(&self, array: u64) {
        let mut kept = self.kept.lock();
        let chunks: Vec<_> = kept.iter().map(|(chunk, _)| *chunk).filter(|chunk| chunk.0 == array).collect();
        for chunk in chunks {
            kept.pop(&chunk);
        }
    }
}
