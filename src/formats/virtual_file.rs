//! A file that is put together from header bytes, ranges of arrays and zeros, and is never made as a whole.
//!
//! Uses `array`, `hierarchy` and `memory`. A range of an array is read as the array's own file is: from the same chunk
//! cache, with the same readahead, and without a copy where that has none.
//!
//! Invariants: a file never changes; its array bytes are those that the array has at the read, and a read fails once another
//! array has taken its place. A read returns all bytes, fewer only at the exact end of the file, or fails as a whole.

use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::array::{Array, CachedSlice, Reader, ReadyReply, Reservation};
use crate::error::{Error, Result};
use crate::hierarchy::SharedArray;
use crate::memory::ReplyBuffer;

/// The bytes of a read.
pub enum ReadData<'a> {
    /// A slice of the caller's buffer.
    Copied(&'a [u8]),
    /// A slice of the chunk cache.
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

/// How a read is served.
#[derive(Clone, Copy, Debug)]
pub struct ReadMode {
    /// It may block on the store.
    pub may_block: bool,
    /// It bypasses the page cache, so its reader sends one request at a time.
    pub is_direct: bool,
    /// The array prepares for what follows.
    pub prefetch: bool,
}

/// A part of a file.
pub enum Segment {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A range of the bytes that the array's own file has. If the array grows in place, they keep their place.
    Array {
        /// The array.
        array: Arc<SharedArray>,
        /// The range in its file.
        range: Range<u64>,
    },
    /// So many zeros.
    Zeros(u64),
}

impl Segment {
    fn length(&self) -> u64 {
        match self {
            Segment::Bytes(bytes) => bytes.len() as u64,
            Segment::Array { range, .. } => range.end.saturating_sub(range.start),
            Segment::Zeros(length) => *length,
        }
    }
}

/// A file, as a list of segments.
pub struct VirtualFile {
    /// With the end of each in the file. None is empty.
    segments: Vec<(u64, Segment)>,
    /// The memory that its bytes take from the cache's limit.
    reservation: Option<Reservation>,
}

impl VirtualFile {
    /// A file of these segments, one after the other.
    pub fn new(segments: impl IntoIterator<Item = Segment>) -> Self {
        let mut end = 0u64;
        let segments = segments.into_iter().filter(|segment| segment.length() > 0).map(|segment| {
            end = end.saturating_add(segment.length());
            (end, segment)
        });
        VirtualFile { segments: segments.collect(), reservation: None }
    }

    /// A file of these bytes.
    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        VirtualFile::new([Segment::Bytes(bytes)])
    }

    /// Keeps the reservation of its bytes as long as the file.
    pub fn with_reservation(self, reservation: Reservation) -> Self {
        VirtualFile { reservation: Some(reservation), ..self }
    }

    /// Length of the file.
    pub fn size_bytes(&self) -> u64 {
        self.segments.last().map_or(0, |(end, _)| *end)
    }

    /// The memory that it takes from the cache's limit.
    pub fn reserved_bytes(&self) -> u64 {
        self.reservation.as_ref().map_or(0, Reservation::bytes)
    }

    /// The arrays whose bytes it shows, one for each segment.
    pub fn arrays(&self) -> impl Iterator<Item = &Arc<SharedArray>> {
        self.segments.iter().filter_map(|(_, segment)| match segment {
            Segment::Array { array, .. } => Some(array),
            Segment::Bytes(_) | Segment::Zeros(_) => None,
        })
    }

    /// A reader of the file, for one open handle.
    pub fn reader(&self) -> FileReader {
        FileReader(self.segments.iter().map(|_| Reader::default()).collect())
    }

    /// Reads at most `size` bytes from `offset`; `None` if that would block. The data may be in `buffer`.
    pub fn read<'a>(
        &self,
        reader: &FileReader,
        (offset, size): (u64, u32),
        buffer: &'a mut ReplyBuffer,
        mode: ReadMode,
    ) -> Result<Option<ReadData<'a>>> {
        let length = self.size_bytes().saturating_sub(offset).min(u64::from(size));
        let first = self.segments.partition_point(|(end, _)| *end <= offset);
        let mut parts = self.segments.iter().zip(&reader.0).skip(first);
        if let Some(((end, Segment::Array { array, range }), reader)) = parts.clone().next()
            && offset.saturating_add(length) <= *end
        {
            let offset = range.end - (end - offset);
            return read_array(&*current(array)?, reader, (offset, length), buffer, mode);
        }
        let (mut at, mut rest) = (offset, buffer.bytes(usize::try_from(length).unwrap_or(usize::MAX)));
        while let Some(((end, segment), reader)) = parts.next().filter(|_| !rest.is_empty()) {
            let left = end - at;
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
            let (part, after) = rest.split_at_mut(length);
            match segment {
                Segment::Bytes(bytes) => {
                    let from = bytes.len().saturating_sub(usize::try_from(left).unwrap_or(usize::MAX));
                    part.copy_from_slice(bytes.get(from..from + length).unwrap_or_default());
                }
                Segment::Zeros(_) => part.fill(0),
                Segment::Array { array, range } => {
                    if !copy_array(&*current(array)?, reader, range.end - left, part, mode)? {
                        return Ok(None);
                    }
                }
            }
            (at, rest) = (at + length as u64, after);
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        Ok(Some(ReadData::Copied(buffer.bytes(length))))
    }
}

/// The place of one open handle in a file: a reader for each segment.
pub struct FileReader(Vec<Reader>);

/// The array that readers of a segment use now.
fn current(shared: &SharedArray) -> Result<Arc<Array>> {
    let stale = || Error::Stale { key: shared.path.to_string() };
    let open = shared.current().filter(|_| !shared.is_stale()).ok_or_else(stale)?;
    open.array.clone()
}

/// Reads a range of an array, which must lie in its file; `None` if that would block.
pub fn read_array<'a>(
    array: &Array,
    reader: &Reader,
    (offset, length): (u64, u64),
    buffer: &'a mut ReplyBuffer,
    mode: ReadMode,
) -> Result<Option<ReadData<'a>>> {
    let slice = array.lend(offset, length).filter(|_| !mode.may_block);
    let is_one_run = slice.is_some();
    let gathered = match slice {
        Some(slice) => ReadyReply::Ready(slice),
        None if !mode.is_direct => ReadyReply::None,
        None => array.gathered(reader, offset..offset + length, mode.may_block),
    };
    let data = match gathered {
        ReadyReply::Ready(slice) => ReadData::Cached(slice),
        ReadyReply::Blocks => return Ok(None),
        ReadyReply::None => {
            let out = buffer.bytes(usize::try_from(length).unwrap_or(usize::MAX));
            match mode.may_block {
                _ if out.is_empty() => {}
                false if !array.try_read(offset, out) => return Ok(None),
                false => {}
                true => array.read_by(reader, offset, out)?,
            }
            ReadData::Copied(out)
        }
    };
    note_read(
        array,
        reader,
        offset..offset + length,
        ReadMode { is_direct: mode.is_direct && !is_one_run, ..mode },
    );
    Ok(Some(data))
}

/// As [`read_array`], where the bytes are a part of a reply.
fn copy_array(array: &Array, reader: &Reader, offset: u64, out: &mut [u8], mode: ReadMode) -> Result<bool> {
    match mode.may_block {
        false if !array.try_read(offset, out) => return Ok(false),
        false => {}
        true => array.read_by(reader, offset, out)?,
    }
    // The requests that follow have another length.
    note_read(array, reader, offset..offset + out.len() as u64, ReadMode { is_direct: false, ..mode });
    Ok(true)
}

fn note_read(array: &Array, reader: &Reader, range: Range<u64>, mode: ReadMode) {
    match mode.prefetch {
        true if mode.is_direct => array.note_lone_read(reader, range.start, range.end),
        true => array.note_read(reader, range.start, range.end),
        false => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn any_range_of_bytes_and_zeros() {
        let segments = [b"abc".to_vec(), vec![], b"de".to_vec()].map(Segment::Bytes);
        let file =
            VirtualFile::new(segments.into_iter().chain([Segment::Zeros(3), Segment::Bytes(b"f".to_vec())]));
        let (reader, mut buffer) = (file.reader(), ReplyBuffer::default());
        let content = b"abcde\0\0\0f";
        assert_eq!(file.size_bytes(), content.len() as u64);
        let mode = ReadMode { may_block: false, is_direct: true, prefetch: true };
        for from in 0..content.len() + 2 {
            for size in 0..content.len() + 2 {
                let expected = content.get(from..).unwrap_or_default();
                let expected = expected.get(..size).unwrap_or(expected);
                let read = file.read(&reader, (from as u64, size as u32), &mut buffer, mode).unwrap();
                assert_eq!(&*read.unwrap(), expected, "{size} from {from}");
            }
        }
        assert!(file.read(&reader, (u64::MAX, 1), &mut buffer, mode).unwrap().unwrap().is_empty());
    }
}
