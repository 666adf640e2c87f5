//! Decoders that stand in the middle of a chunk: who reads an array from end to end with a cache smaller than a slab comes back
//! to each chunk for its next rows, and a codec whose decoder is small goes on where it was.
//!
//! Uses its neighbours in `array`, `codec`. Invariant: a decoder goes on with the version of the object that it began with.

use lru::LruCache;

use crate::array::sync::Mutex;
use crate::codec::ResumableDecoder;
use crate::store::ObjectVersion;

/// The most decoders that are kept. One of DEFLATE takes some 50 KiB.
pub const MOST_STREAMS: usize = 256;

struct Kept {
    version: ObjectVersion,
    stream: Box<dyn ResumableDecoder>,
}

/// The decoders of one engine, by array and chunk.
pub struct ResumableDecoders {
    kept: Mutex<LruCache<(u64, u64), Kept>>,
}

impl Default for ResumableDecoders {
    fn default() -> Self {
        ResumableDecoders { kept: Mutex::new(LruCache::unbounded()) }
    }
}

impl ResumableDecoders {
    /// Takes the decoder of a chunk, if it stands no further than at byte `start`.
    pub fn take(
        &self,
        chunk: (u64, u64),
        version: ObjectVersion,
        start: usize,
    ) -> Option<Box<dyn ResumableDecoder>> {
        let kept = self.kept.lock().pop(&chunk)?;
        (kept.version == version && kept.stream.position() <= start).then_some(kept.stream)
    }

    /// Keeps a decoder for the chunk's next rows.
    pub fn keep(&self, chunk: (u64, u64), version: ObjectVersion, stream: Box<dyn ResumableDecoder>) {
        let mut kept = self.kept.lock();
        let old = kept.put(chunk, Kept { version, stream });
        let oldest = if kept.len() > MOST_STREAMS { kept.pop_lru() } else { None };
        drop(kept); // memory is given back outside the lock
        drop((old, oldest));
    }

    /// Forgets all that belongs to an array.
    pub fn forget_array(&self, array: u64) {
        let mut kept = self.kept.lock();
        let chunks: Vec<_> = kept.iter().map(|(chunk, _)| *chunk).filter(|chunk| chunk.0 == array).collect();
        for chunk in chunks {
            kept.pop(&chunk);
        }
    }
}
