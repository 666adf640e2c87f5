//! A long buffer. Dropping it returns its memory to the pool. Uses its neighbour `pool` and `sys`.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::pool::{self, Fit};
use crate::sys::{Pages, Untouched};

/// Shorter buffers come from the allocator.
pub const MIN_PAGES_BYTES: usize = 64 << 10;

/// Shorter buffers take at most two pages, so sparse ones would save nothing.
const MIN_SPARSE_BYTES: usize = 8 << 10;
/// The system limits mapped areas (65,530 by default), and each buffer may take three.
const MAX_SPARSE_BUFFERS: usize = 16 << 10;
static SPARSE_BUFFERS: AtomicUsize = AtomicUsize::new(0);

/// The memory of shorter buffers is provided when it is touched, because several share a huge page.
const MIN_PROVIDED_BYTES: usize = 2 << 20;

/// Bytes in memory of their own. A buffer of at least 64 KiB begins on a page.
pub struct Buffer {
    memory: BufferMemory,
    /// The bytes of the memory that the buffer uses.
    length: usize,
}

enum BufferMemory {
    Allocated(Vec<u8>),
    Pooled(Pages),
    /// Small pages. They return to the system one by one or all together.
    Sparse(Pages),
}

impl Buffer {
    /// Creates a buffer of `length` bytes for long use. Its content is undefined (stale or zero).
    pub fn new(length: usize) -> Buffer {
        Buffer::with_fit(length, Fit::Close).unwrap_or_else(|| Buffer::allocated(vec![0; length]))
    }

    /// Creates a buffer as [`Buffer::new`] does, or returns `None` if the system has no more memory.
    pub fn try_new(length: usize) -> Option<Buffer> {
        Buffer::with_fit(length, Fit::Close)
    }

    /// Creates a buffer of `length` bytes for brief use. Its content is undefined. Its memory is often recycled and
    /// may be longer. `None` if the system has no more memory.
    pub fn transient(length: usize) -> Option<Buffer> {
        Buffer::with_fit(length, Fit::Loose)
    }

    /// Creates a buffer of `length` zeros for scattered writes. Its small pages take memory only when they are
    /// touched.
    pub fn sparse(length: usize) -> Buffer {
        let is_possible =
            length >= MIN_SPARSE_BYTES && SPARSE_BUFFERS.load(Ordering::Relaxed) < MAX_SPARSE_BUFFERS;
        match is_possible.then(|| Pages::small(length)).flatten() {
            Some(pages) => {
                SPARSE_BUFFERS.fetch_add(1, Ordering::Relaxed);
                Buffer { memory: BufferMemory::Sparse(pages), length }
            }
            None => Buffer::allocated(vec![0; length]),
        }
    }

    fn with_fit(length: usize, fit: Fit) -> Option<Buffer> {
        if length >= MIN_PAGES_BYTES {
            return pool::take(length, fit)
                .map(|pages| Buffer { memory: BufferMemory::Pooled(pages), length });
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).ok()?;
        bytes.resize(length, 0);
        Some(Buffer::allocated(bytes))
    }

    fn allocated(bytes: Vec<u8>) -> Buffer {
        Buffer { length: bytes.len(), memory: BufferMemory::Allocated(bytes) }
    }

    /// Returns whether only touched pages take memory.
    pub fn is_sparse(&self) -> bool {
        matches!(self.memory, BufferMemory::Sparse(_))
    }

    /// Drops the bytes from `length` on. They still take memory.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Returns the memory that the buffer takes, used or not.
    pub fn capacity(&self) -> usize {
        match &self.memory {
            BufferMemory::Allocated(bytes) => bytes.capacity(),
            BufferMemory::Pooled(pages) | BufferMemory::Sparse(pages) => pages.len(),
        }
    }

    /// Returns a handle with which another thread can provide the memory before it is filled, if that is worth a task.
    pub fn untouched(&self) -> Option<Untouched> {
        match &self.memory {
            BufferMemory::Pooled(pages) if pages.len() >= MIN_PROVIDED_BYTES => Some(pages.untouched()),
            _ => None,
        }
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Buffer::allocated(Vec::new())
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Buffer::allocated(bytes)
    }
}

impl From<&[u8]> for Buffer {
    fn from(bytes: &[u8]) -> Self {
        let mut copy = Buffer::new(bytes.len());
        copy.copy_from_slice(bytes);
        copy
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        Buffer::from(&**self)
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let memory = match &self.memory {
            BufferMemory::Allocated(bytes) => bytes,
            BufferMemory::Pooled(pages) | BufferMemory::Sparse(pages) => &**pages,
        };
        memory.get(..self.length).unwrap_or_default()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let memory = match &mut self.memory {
            BufferMemory::Allocated(bytes) => bytes,
            BufferMemory::Pooled(pages) | BufferMemory::Sparse(pages) => &mut **pages,
        };
        memory.get_mut(..self.length).unwrap_or_default()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.memory, BufferMemory::Allocated(Vec::new())) {
            BufferMemory::Pooled(pages) => pool::give_back(pages),
            BufferMemory::Sparse(_) => {
                SPARSE_BUFFERS.fetch_sub(1, Ordering::Relaxed);
            }
            BufferMemory::Allocated(_) => {}
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.length)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn buffers_do_not_overlap() {
        let lengths =
            [0, 1, MIN_PAGES_BYTES - 1, MIN_PAGES_BYTES, MIN_PAGES_BYTES + 1, 100_000, 100_000, 3 << 20];
        let kinds: [fn(usize) -> Buffer; 3] =
            [Buffer::new, Buffer::sparse, |length| Buffer::transient(length).unwrap()];
        let mut buffers: Vec<Buffer> =
            kinds.iter().flat_map(|make| lengths.iter().map(|&length| make(length))).collect();
        for (number, buffer) in buffers.iter_mut().enumerate() {
            assert_eq!(buffer.len(), lengths[number % lengths.len()]);
            assert!(!buffer.is_sparse() || buffer.iter().all(|&byte| byte == 0));
            buffer.fill(number as u8 + 1);
        }
        let is_whole =
            |(number, buffer): (usize, &Buffer)| buffer.iter().all(|&byte| byte == number as u8 + 1);
        assert!(buffers.iter().enumerate().all(is_whole));
        let untouched: Vec<_> = buffers.iter().filter_map(Buffer::untouched).collect();
        assert_eq!(untouched.len(), 2, "the long ones of the pool");
        untouched.iter().for_each(Untouched::provide);
        assert!(buffers.iter().enumerate().all(is_whole));
        let copies = buffers.clone();
        drop(buffers);
        untouched.iter().for_each(Untouched::provide);
        assert!(copies.iter().enumerate().all(is_whole));
    }

    #[test]
    fn truncation_keeps_the_capacity() {
        let mut buffer = Buffer::new(1 << 20);
        buffer.fill(5);
        buffer.truncate(10);
        assert_eq!((&*buffer, buffer.capacity()), (&[5; 10][..], 1 << 20));
        buffer.truncate(20);
        assert_eq!(buffer.len(), 10);
    }
}
