//! Memory that counts toward the chunk cache's limit and holds something other than decoded chunks.
//!
//! Uses `engine.rs`. Invariant: a drop returns the reserved bytes.

use std::sync::Arc;

use crate::array::engine::Engine;

/// Bytes reserved from the cache's limit.
pub struct Reservation {
    engine: Arc<Engine>,
    bytes: u64,
}

impl Reservation {
    /// Creates an empty reservation.
    pub fn new(engine: &Arc<Engine>) -> Reservation {
        Reservation { engine: engine.clone(), bytes: 0 }
    }

    /// Returns the engine from whose cache it takes.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the cache's limit, which all reservations and chunks share.
    pub fn limit_bytes(&self) -> u64 {
        self.engine.loads().cache.limit_bytes()
    }

    /// Returns how many bytes are reserved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reserves more. Returns `false` and reserves nothing if the limit does not allow it.
    #[must_use]
    pub fn grow(&mut self, bytes: u64) -> bool {
        let is_taken = self.engine.loads().cache.hold(bytes);
        if is_taken {
            self.bytes += bytes;
        }
        is_taken
    }

    /// Gives back some of the bytes.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.engine.loads().cache.release(bytes);
        self.bytes -= bytes;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}
