//! Decoders that stand in the middle of a unit: who reads an array from end to end with a cache smaller than a slab comes back
//! to each unit for its next rows, and a codec whose decoder is small goes on where it was.
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

/// The decoders of one engine, by array and unit.
pub struct Streams {
    kept: Mutex<LruCache<(u64, u64), Kept>>,
}

impl Default for Streams {
    fn default() -> Self {
        Streams { kept: Mutex::new(LruCache::unbounded()) }
    }
}

impl Streams {
    /// Takes the decoder of a unit, if it stands no further than at byte `start`.
    pub fn take(
        &self,
        unit: (u64, u64),
        version: ObjectVersion,
        start: usize,
    ) -> Option<Box<dyn ResumableDecoder>> {
        let kept = self.kept.lock().pop(&unit)?;
        (kept.version == version && kept.stream.position() <= start).then_some(kept.stream)
    }

    /// Keeps a decoder for the unit's next rows.
    pub fn keep(&self, unit: (u64, u64), version: ObjectVersion, stream: Box<dyn ResumableDecoder>) {
        let mut kept = self.kept.lock();
        let old = kept.put(unit, Kept { version, stream });
        let oldest = if kept.len() > MOST_STREAMS { kept.pop_lru() } else { None };
        drop(kept); // memory is given back outside the lock
        drop((old, oldest));
    }

    /// Forgets all that belongs to an array.
    pub fn forget_array(&self, array: u64) {
        let mut kept = self.kept.lock();
        let units: Vec<_> = kept.iter().map(|(unit, _)| *unit).filter(|unit| unit.0 == array).collect();
        for unit in units {
            kept.pop(&unit);
        }
    }
}
