//! Memory that something other than decoded chunks takes from the limit of the chunk cache.
//!
//! Uses its neighbours in `array`. Invariant: what is held goes back when it is dropped.

use std::sync::Arc;

use crate::array::Engine;

/// Some of the cache's limit, taken from the chunks.
pub struct Reservation {
    engine: Arc<Engine>,
    bytes: u64,
}

impl Reservation {
    /// Nothing yet.
    pub fn new(engine: &Arc<Engine>) -> Reservation {
        Reservation { engine: engine.clone(), bytes: 0 }
    }

    /// The most that can be held, by all together.
    pub fn limit_bytes(&self) -> u64 {
        self.engine.cache.limit_bytes()
    }

    /// How much this is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes more; `false`, and no more, where the limit does not allow for it.
    #[must_use]
    pub fn grow(&mut self, bytes: u64) -> bool {
        let is_taken = self.engine.cache.hold(bytes);
        if is_taken {
            self.bytes += bytes;
        }
        is_taken
    }

    /// Gives some back.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.engine.cache.release(bytes);
        self.bytes -= bytes;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}
