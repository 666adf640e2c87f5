//! A page-aligned buffer for the bytes of a reply.
//!
//! Uses nothing of the crate. The kernel copies replies page by page into pages (fuse_copy_fill and
//! fuse_copy_folio in fs/fuse/dev.c). If our pages start at other offsets than its own, each of its pages
//! takes two copies.

const PAGE_BYTES: usize = 4096;

/// Reused for all replies, since fresh pages cost more than copying.
#[derive(Default)]
pub struct ReplyBuffer(Vec<u8>);

impl ReplyBuffer {
    /// The first `length` bytes; their content is undefined.
    pub fn bytes(&mut self, length: usize) -> &mut [u8] {
        let room = length.saturating_add(PAGE_BYTES);
        if self.0.len() < room {
            self.0.resize(room, 0);
        }
        let start = self.0.as_ptr().align_offset(PAGE_BYTES);
        self.0.get_mut(start..start.saturating_add(length)).unwrap_or_default()
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
