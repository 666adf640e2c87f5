//! The bytes of a reply: copied into a page-aligned buffer, or left in the cache.
//!
//! Uses `memory` and `plan.rs`. The kernel copies replies page by page into pages (fuse_copy_fill and fuse_copy_folio
//! in fs/fuse/dev.c). If our pages start at other offsets than its own, each of its pages takes two copies.

use std::ops::{Deref, Range};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::array::read::plan::ReadPlan;
use crate::memory::Buffer;

const PAGE_BYTES: usize = 4096;

/// The bytes of a read.
pub enum ReadData<'a> {
    /// A slice of the caller's buffer.
    Copied(&'a [u8]),
    /// A slice of a decoded chunk or of a prepared reply.
    Cached(CachedSlice),
}

impl Deref for ReadData<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            ReadData::Copied(bytes) => bytes,
            ReadData::Cached(bytes) => bytes,
        }
    }
}

/// Bytes of a cached strip. They stay in memory while this value lives.
pub struct CachedSlice {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

impl CachedSlice {
    pub(in crate::array) fn new(buffer: Arc<Buffer>, range: Range<usize>) -> Self {
        CachedSlice { buffer, range }
    }
}

impl Deref for CachedSlice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.buffer.get(self.range.clone()).unwrap_or_default()
    }
}

/// The memory of one thread's replies. Reused for all of them, since fresh pages cost more than copying.
#[derive(Default)]
pub struct ReplyBuffer {
    memory: PageAligned,
    /// The plan of the read that is under way. A read that would block leaves it to its retry, which may run on another
    /// thread: move it to that thread's buffer.
    pub plan: ReadPlan,
}

#[derive(Default)]
struct PageAligned(Vec<u8>);

impl PageAligned {
    fn bytes(&mut self, length: usize) -> &mut [u8] {
        let room = length.saturating_add(PAGE_BYTES);
        if self.0.len() < room {
            self.0.resize(room, 0);
        }
        let start = self.0.as_ptr().align_offset(PAGE_BYTES);
        self.0.get_mut(start..start.saturating_add(length)).unwrap_or_default()
    }
}

/// Buffers for the replies of many threads. If each of them kept one, they would keep a megabyte each.
#[derive(Default)]
pub struct ReplyBufferPool {
    idle: Mutex<Vec<ReplyBuffer>>,
}

impl ReplyBufferPool {
    /// How many buffers are kept for later replies.
    const MOST_IDLE: usize = 8;

    /// Creates a pool without buffers.
    pub const fn new() -> Self {
        ReplyBufferPool { idle: Mutex::new(Vec::new()) }
    }

    /// Returns the buffer that was used last, or a new one.
    pub fn take(&self) -> ReplyBuffer {
        self.idle.lock().pop().unwrap_or_default()
    }

    /// Keeps a buffer for later replies, unless enough are kept.
    pub fn put(&self, mut buffer: ReplyBuffer) {
        buffer.plan = ReadPlan::default();
        let mut idle = self.idle.lock();
        if idle.len() < Self::MOST_IDLE {
            idle.push(buffer);
        }
    }
}

impl ReplyBuffer {
    /// Returns the first `length` bytes; their content is undefined.
    pub fn bytes(&mut self, length: usize) -> &mut [u8] {
        self.memory.bytes(length)
    }

    /// Returns the first `length` bytes, and the plan.
    pub(in crate::array) fn parts(&mut self, length: usize) -> (&mut [u8], &mut ReadPlan) {
        (self.memory.bytes(length), &mut self.plan)
    }

    /// Copies `size` bytes of `content` from `offset`, fewer at its end.
    pub fn copy_part(&mut self, content: &[u8], offset: u64, size: u32) -> &[u8] {
        let rest = usize::try_from(offset).ok().and_then(|offset| content.get(offset..)).unwrap_or_default();
        let part = rest.get(..size as usize).unwrap_or(rest);
        let bytes = self.bytes(part.len());
        bytes.copy_from_slice(part);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_on_a_page_and_grows() {
        let mut buffer = ReplyBuffer::default();
        for length in [0, 1, 4096, 100_000, 5] {
            let bytes = buffer.bytes(length);
            assert_eq!(bytes.len(), length);
            assert!(bytes.as_ptr().addr().is_multiple_of(PAGE_BYTES));
        }
    }

    #[test]
    fn parts_end_where_the_content_does() {
        let mut buffer = ReplyBuffer::default();
        assert_eq!(buffer.copy_part(b"abcdef", 2, 3), b"cde");
        assert_eq!(buffer.copy_part(b"abcdef", 4, 9), b"ef");
        assert_eq!(buffer.copy_part(b"abcdef", 6, 1), b"");
        assert_eq!(buffer.copy_part(b"abcdef", u64::MAX, 1), b"");
    }
}
