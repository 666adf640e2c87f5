//! Recycled buffers for decoded units.
//!
//! Touching fresh pages costs more than decoding into them, so a dropped buffer goes back to its pool, and what must be
//! fresh is made of huge pages. Uses `sys` and the codecs' buffers for what is read.
//!
//! Invariants: the pool never keeps more than its limit; a recycled buffer holds stale bytes, and whoever takes
//! one overwrites all of it before anybody reads it.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::codec::scratch::Reading;
use crate::sys::{Pages, Untouched, keep_freed_memory};

/// Shorter buffers come from the allocator.
const MIN_PAGES_BYTES: usize = 64 << 10;
/// Buffers shorter than this are mapped several at once, so that they share huge pages.
const MAPPED_AT_ONCE_BYTES: usize = 4 << 20;

/// The memory of shorter buffers is provided as it is touched: several share a huge page.
const MIN_PROVIDED_BYTES: usize = 2 << 20;

/// What codec libraries allocate for one chunk, up to this, is kept by the allocator for the next.
const KEPT_BY_ALLOCATOR_BYTES: i32 = 4 << 20;

/// Buffers that wait for their next use.
pub struct BufferPool {
    idle: Mutex<Idle<Memory>>,
    /// For encoded chunks, whose lengths differ.
    encoded: Mutex<Idle<Reading>>,
    limit_bytes: usize,
}

enum Memory {
    Allocated(Vec<u8>),
    Mapped(Pages),
}

struct Idle<T> {
    buffers: Vec<T>,
    bytes: usize,
}

impl<T> Default for Idle<T> {
    fn default() -> Self {
        Idle { buffers: Vec::new(), bytes: 0 }
    }
}

impl Deref for Memory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Memory::Allocated(bytes) => bytes,
            Memory::Mapped(pages) => pages,
        }
    }
}

impl BufferPool {
    /// A pool that keeps at most `limit_bytes` of idle buffers.
    pub fn new(limit_bytes: usize) -> Arc<Self> {
        keep_freed_memory(KEPT_BY_ALLOCATOR_BYTES);
        Arc::new(BufferPool { idle: Mutex::default(), encoded: Mutex::default(), limit_bytes })
    }

    /// A used buffer of exactly `length` bytes with stale content, if there is one.
    pub fn recycled(self: &Arc<Self>, length: usize) -> Option<Buffer> {
        let mut idle = self.idle.lock();
        let at = idle.buffers.iter().rposition(|buffer| buffer.len() == length)?;
        let memory = idle.buffers.swap_remove(at);
        idle.bytes -= memory.len();
        Some(self.owned(memory))
    }

    /// A buffer of exactly `length` bytes with undefined (stale or zero) content.
    pub fn take(self: &Arc<Self>, length: usize) -> Buffer {
        self.recycled(length).unwrap_or_else(|| self.fresh(length))
    }

    /// A buffer of zeros whose small pages take memory only as they are touched, for what is written here and there.
    pub fn sparse(self: &Arc<Self>, length: usize) -> Buffer {
        self.owned(Memory::Allocated(vec![0; length]))
    }

    fn fresh(self: &Arc<Self>, length: usize) -> Buffer {
        if length < MIN_PAGES_BYTES {
            return self.owned(Memory::Allocated(vec![0; length]));
        }
        // Untouched buffers cost nothing yet, but count as idle.
        let count = (MAPPED_AT_ONCE_BYTES / length).clamp(1, self.limit_bytes / length + 1);
        let mut pages = Pages::new(length, count).unwrap_or_default();
        let first = pages.pop().map_or_else(|| Memory::Allocated(vec![0; length]), Memory::Mapped);
        pages.into_iter().for_each(|pages| self.give(Memory::Mapped(pages)));
        self.owned(first)
    }

    fn owned(self: &Arc<Self>, memory: Memory) -> Buffer {
        Buffer { memory, pool: Arc::downgrade(self) }
    }

    /// Runs `load` with a buffer for an encoded chunk on its way to the decoder.
    pub fn with_encoded<T>(&self, load: impl FnOnce(&mut Reading) -> T) -> T {
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

    fn give(&self, memory: Memory) {
        if memory.is_empty() || memory.len() > self.limit_bytes {
            return;
        }
        let mut dropped = Vec::new();
        let mut idle = self.idle.lock();
        idle.bytes += memory.len();
        idle.buffers.push(memory);
        // Oldest first out: sizes that nobody asks for any more make room.
        while idle.bytes > self.limit_bytes {
            let oldest = idle.buffers.remove(0);
            idle.bytes -= oldest.len();
            dropped.push(oldest);
        }
        drop(idle); // memory is given back outside the lock
    }
}

/// Bytes that go back to their pool when dropped.
pub struct Buffer {
    memory: Memory,
    pool: Weak<BufferPool>,
}

impl Buffer {
    /// What has its memory provided beside whoever fills it, where that is worth a task.
    pub fn untouched(&self) -> Option<Untouched> {
        match &self.memory {
            Memory::Mapped(pages) if pages.len() >= MIN_PROVIDED_BYTES => Some(pages.untouched()),
            _ => None,
        }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let mut copy = match self.pool.upgrade() {
            Some(pool) => pool.take(self.len()),
            None => Buffer { memory: Memory::Allocated(vec![0; self.len()]), pool: Weak::new() },
        };
        copy.copy_from_slice(self);
        copy
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Allocated(bytes) => bytes,
            Memory::Mapped(pages) => pages,
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.give(std::mem::replace(&mut self.memory, Memory::Allocated(Vec::new())));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
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

    #[test]
    fn mapped_buffers_are_apart_and_zero_at_first() {
        let pool = BufferPool::new(1 << 20);
        let lengths = [MIN_PAGES_BYTES, MIN_PAGES_BYTES + 1, 100_000, 100_000, 3 << 20, MIN_PAGES_BYTES];
        let mut buffers: Vec<Buffer> = lengths.iter().map(|&length| pool.take(length)).collect();
        for (number, buffer) in buffers.iter_mut().enumerate() {
            assert!(buffer.iter().all(|&byte| byte == 0));
            buffer.fill(number as u8 + 1);
        }
        for ((number, buffer), length) in buffers.iter().enumerate().zip(lengths) {
            assert_eq!(buffer.len(), length);
            assert!(buffer.iter().all(|&byte| byte == number as u8 + 1));
        }
        let kept = buffers.pop().unwrap();
        let untouched: Vec<_> = buffers.iter().filter_map(Buffer::untouched).collect();
        assert_eq!(untouched.len(), 1);
        untouched.iter().for_each(Untouched::provide);
        assert!(buffers.iter().enumerate().all(|(number, b)| b.iter().all(|&byte| byte == number as u8 + 1)));
        drop(buffers);
        untouched.iter().for_each(Untouched::provide);
        drop(pool);
        assert!(kept.iter().all(|&byte| byte == 6), "a buffer outlives its pool");
    }
}
