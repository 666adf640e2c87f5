//! Recycled buffers for decoded chunks.
//!
//! Decoding into fresh pages costs more than the decoding itself (each 4 KiB page faults), so a dropped
//! buffer goes back to its pool. Uses nothing else of the crate.
//!
//! Invariant: the pool never keeps more than its limit; a recycled buffer holds stale bytes, and whoever takes
//! one overwrites all of it before anybody reads it.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Buffers that wait for their next use.
pub struct BufferPool {
    idle: Mutex<Idle>,
    /// For encoded chunks, whose lengths differ.
    encoded: Mutex<Idle>,
    limit_bytes: usize,
}

#[derive(Default)]
struct Idle {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl BufferPool {
    /// A pool that keeps at most `limit_bytes` of idle buffers.
    pub fn new(limit_bytes: usize) -> Arc<Self> {
        Arc::new(BufferPool { idle: Mutex::default(), encoded: Mutex::default(), limit_bytes })
    }

    /// A buffer of exactly `length` bytes with undefined (stale or zero) content.
    pub fn take(self: &Arc<Self>, length: usize) -> Buffer {
        let recycled = {
            let mut idle = self.idle.lock();
            let at = idle.buffers.iter().rposition(|buffer| buffer.len() == length);
            at.map(|at| {
                let buffer = idle.buffers.swap_remove(at);
                idle.bytes -= buffer.len();
                buffer
            })
        };
        let bytes = recycled.unwrap_or_else(|| vec![0; length]);
        Buffer { bytes, pool: Arc::downgrade(self) }
    }

    /// Runs `load` with a buffer of any length and content, for an encoded chunk on its way to the decoder.
    pub fn with_encoded<T>(&self, load: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut buffer = {
            let mut idle = self.encoded.lock();
            let buffer = idle.buffers.pop().unwrap_or_default();
            idle.bytes -= buffer.capacity();
            buffer
        };
        let loaded = load(&mut buffer);
        let mut idle = self.encoded.lock();
        if idle.bytes + buffer.capacity() <= self.limit_bytes {
            idle.bytes += buffer.capacity();
            idle.buffers.push(buffer);
        }
        loaded
    }

    /// A buffer of zeros whose pages are not touched, for what is written here and there.
    pub fn fresh(self: &Arc<Self>, length: usize) -> Buffer {
        Buffer { bytes: vec![0; length], pool: Arc::downgrade(self) }
    }

    fn give(&self, buffer: Vec<u8>) {
        if buffer.is_empty() || buffer.len() > self.limit_bytes {
            return;
        }
        let mut idle = self.idle.lock();
        idle.bytes += buffer.len();
        idle.buffers.push(buffer);
        // Oldest first out: sizes that nobody asks for any more make room.
        while idle.bytes > self.limit_bytes {
            let oldest = idle.buffers.remove(0);
            idle.bytes -= oldest.len();
        }
    }
}

/// Bytes that go back to their pool when dropped.
pub struct Buffer {
    bytes: Vec<u8>,
    pool: Weak<BufferPool>,
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.give(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_used_again_and_the_pool_keeps_its_limit() {
        let pool = BufferPool::new(100);
        let mut first = pool.take(60);
        first.fill(7);
        drop(first);
        assert_eq!(pool.take(60)[0], 7);
        drop(pool.take(50));
        assert!(pool.idle.lock().bytes <= 100);
        drop(pool.take(1000));
        assert!(pool.idle.lock().bytes <= 100);
    }
}
