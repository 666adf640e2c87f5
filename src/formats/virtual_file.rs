//! A file that is put together from header bytes, ranges and slices of arrays and zeros, and is never made as a whole.
//!
//! Uses `array`, `hierarchy` and `cancellation`. A range of an array is read like the array's own file: from the same chunk cache, with the
//! same read-ahead, and without a copy where that file needs none.
//!
//! Invariants: the list of segments never changes. Array bytes are those that the array has at the time of the read, and a read fails if
//! another array has taken its place. A read returns all bytes, fewer only at the exact end of the file, or fails as a whole.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::array::{
    Array, AxisSelection, Blocking, ReadData, ReadRequest, Readahead, Reader, ReplyBuffer, Reservation,
};
use crate::cancellation::Cancellation;
use crate::error::{Error, Result};
use crate::hierarchy::SharedArray;

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
    /// Elements of an array that are not one range of its file.
    Slice {
        /// The array.
        array: Arc<SharedArray>,
        /// The elements of each axis, in the array's own order.
        selection: Arc<[AxisSelection]>,
        /// The bytes of all elements.
        size_bytes: u64,
    },
    /// This many zeros.
    Zeros(u64),
    /// Bytes that are made while they are read.
    Generated(Arc<dyn Generated>),
}

/// Bytes that are made from elements while they are read.
pub trait Generated: Send + Sync {
    /// Returns the number of bytes.
    fn size_bytes(&self) -> u64;
    /// Returns the arrays that the bytes are made from, without those that have no flat bytes.
    fn arrays(&self) -> &[Arc<SharedArray>];
    /// Frees the memory that the next read does not need, because a reader has closed the file.
    fn rest(&self);
    /// Fills `out` with the bytes from `offset`; returns `false` if that would block. Fails with `Stale` if elements have changed so that the
    /// offsets of other bytes are different.
    fn read(
        &self,
        offset: u64,
        out: &mut [u8],
        blocking: Blocking,
        cancellation: &Cancellation,
    ) -> Result<bool>;
}

impl Segment {
    fn length(&self) -> u64 {
        match self {
            Segment::Bytes(bytes) => bytes.len() as u64,
            Segment::Array { range, .. } => range.end.saturating_sub(range.start),
            Segment::Slice { size_bytes, .. } => *size_bytes,
            Segment::Zeros(length) => *length,
            Segment::Generated(generated) => generated.size_bytes(),
        }
    }
}

/// The bytes of a read that come from an array.
pub struct ArrayShare<'a> {
    /// The array; `None` if the bytes come from several.
    pub array: Option<&'a Arc<SharedArray>>,
    /// The number of bytes.
    pub bytes: u64,
}

/// A file, as a list of segments.
pub struct VirtualFile {
    /// The segments with their ends in the file. No segment is empty.
    segments: Vec<(u64, Segment)>,
    /// The memory that its bytes take from the cache's limit.
    reservation: Option<Reservation>,
    fingerprint: OnceLock<u64>,
}

impl VirtualFile {
    /// Makes a file of these segments, one after the other.
    pub fn new(segments: impl IntoIterator<Item = Segment>) -> Self {
        let mut end = 0u64;
        let segments = segments.into_iter().filter(|segment| segment.length() > 0).map(|segment| {
            end = end.saturating_add(segment.length());
            (end, segment)
        });
        VirtualFile { segments: segments.collect(), reservation: None, fingerprint: OnceLock::new() }
    }

    /// Makes a file of these bytes.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        VirtualFile::new([Segment::Bytes(bytes)])
    }

    /// Keeps the reservation of its bytes as long as the file.
    pub fn with_reservation(self, reservation: Reservation) -> Self {
        VirtualFile { reservation: Some(reservation), ..self }
    }

    /// Returns the length of the file.
    pub fn size_bytes(&self) -> u64 {
        self.segments.last().map_or(0, |(end, _)| *end)
    }

    /// Returns whether both files have the same bytes as long as their arrays do not change.
    pub fn has_same_segments(&self, other: &VirtualFile) -> bool {
        let ends = |file: &VirtualFile| file.segments.iter().map(|(end, _)| *end).collect::<Vec<_>>();
        let is_same = |(a, b): (&(u64, Segment), &(u64, Segment))| match (&a.1, &b.1) {
            (Segment::Bytes(a), Segment::Bytes(b)) => a == b,
            (Segment::Array { array: a, range: of_a }, Segment::Array { array: b, range: of_b }) => {
                Arc::ptr_eq(a, b) && of_a == of_b
            }
            (
                Segment::Slice { array: a, selection: of_a, .. },
                Segment::Slice { array: b, selection: of_b, .. },
            ) => Arc::ptr_eq(a, b) && of_a == of_b,
            (Segment::Zeros(a), Segment::Zeros(b)) => a == b,
            _ => false,
        };
        std::ptr::eq(self, other)
            || ends(self) == ends(other) && self.segments.iter().zip(&other.segments).all(is_same)
    }

    /// Returns the whole file, if it is one piece of bytes.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self.segments.as_slice() {
            [] => Some(&[]),
            [(_, Segment::Bytes(bytes))] => Some(bytes),
            _ => None,
        }
    }

    /// Returns what distinguishes it from a file that another process makes, as [`VirtualFile::has_same_segments`] does within one.
    pub fn fingerprint(&self) -> u64 {
        let digest = || {
            let mut hasher = crc32fast::Hasher::new();
            for (end, segment) in &self.segments {
                hasher.update(&end.to_le_bytes());
                match segment {
                    Segment::Bytes(bytes) => hasher.update(bytes),
                    Segment::Array { array, range } => {
                        hasher.update(format!("{:?} {} {range:?}", array.view, array.path).as_bytes());
                    }
                    Segment::Slice { array, selection, .. } => {
                        hasher.update(format!("{:?} {} {selection:?}", array.view, array.path).as_bytes());
                    }
                    Segment::Zeros(_) => hasher.update(b"zeros"),
                    Segment::Generated(_) => hasher.update(b"generated"),
                }
            }
            self.size_bytes() << 32 ^ u64::from(hasher.finalize())
        };
        *self.fingerprint.get_or_init(digest)
    }

    /// Returns whether all bytes keep their offsets when its arrays change.
    pub fn is_steady(&self) -> bool {
        self.segments.iter().all(|(_, segment)| !matches!(segment, Segment::Generated(_)))
    }

    /// Returns the memory that the file takes from the cache's limit.
    pub fn reserved_bytes(&self) -> u64 {
        self.reservation.as_ref().map_or(0, Reservation::bytes)
    }

    /// Returns the arrays in the file, one for each segment of array bytes, and those of generated bytes.
    pub fn arrays(&self) -> impl Iterator<Item = &Arc<SharedArray>> {
        self.segments.iter().flat_map(|(_, segment)| match segment {
            Segment::Array { array, .. } | Segment::Slice { array, .. } => std::slice::from_ref(array),
            Segment::Generated(generated) => generated.arrays(),
            Segment::Bytes(_) | Segment::Zeros(_) => &[],
        })
    }

    /// Returns the parts of a range that come from arrays. Headers and padding do not.
    pub fn shares(&self, offset: u64, length: u64) -> impl Iterator<Item = ArrayShare<'_>> {
        let end = offset.saturating_add(length);
        let first = self.segments.partition_point(|(end, _)| *end <= offset);
        let segments = self.segments.iter().skip(first);
        let segments = segments.map(|(end, segment)| (end - segment.length()..*end, segment));
        segments.take_while(move |(range, _)| range.start < end).filter_map(move |(range, segment)| {
            let array = match segment {
                Segment::Bytes(_) | Segment::Zeros(_) => return None,
                Segment::Array { array, .. } | Segment::Slice { array, .. } => Some(array),
                Segment::Generated(generated) => match generated.arrays() {
                    [] => return None,
                    [array] => Some(array),
                    // Each row of a table has elements of all columns, so its bytes belong to no single array.
                    _ => None,
                },
            };
            Some(ArrayShare { array, bytes: range.end.min(end) - range.start.max(offset) })
        })
    }

    /// Frees memory that the next read does not need, because a handle was closed.
    pub fn rest(&self) {
        for (_, segment) in &self.segments {
            if let Segment::Generated(generated) = segment {
                generated.rest();
            }
        }
    }

    /// Returns a reader for one open handle.
    pub fn reader(&self, readahead: Readahead) -> FileReader {
        FileReader(self.segments.iter().map(|_| Reader::new(readahead)).collect())
    }

    /// Reads at most `size` bytes from `offset`; `None` if that would block. The data may be in `buffer`.
    pub fn read<'a>(
        &self,
        reader: &FileReader,
        (offset, size): (u64, u32),
        buffer: &'a mut ReplyBuffer,
        blocking: Blocking,
        cancellation: &Cancellation,
    ) -> Result<Option<ReadData<'a>>> {
        let length = self.size_bytes().saturating_sub(offset).min(u64::from(size));
        let first = self.segments.partition_point(|(end, _)| *end <= offset);
        let mut parts = self.segments.iter().zip(&reader.0).skip(first);
        if let Some(((end, Segment::Array { array, range }), reader)) = parts.clone().next()
            && offset.saturating_add(length) <= *end
        {
            let offset = range.end - (end - offset);
            let request = ReadRequest { reader, range: offset..offset + length, blocking, cancellation };
            return current(array)?.read(&request, buffer);
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
                Segment::Generated(generated) => {
                    let offset = generated.size_bytes().saturating_sub(left);
                    if !generated.read(offset, part, blocking, cancellation)? {
                        return Ok(None);
                    }
                }
                Segment::Slice { array, selection, size_bytes } => {
                    let offset = size_bytes.saturating_sub(left);
                    let array = current(array)?;
                    if !array.read_slice_at(selection, offset, part, blocking, cancellation)? {
                        return Ok(None);
                    }
                }
                Segment::Array { array, range } => {
                    let offset = range.end - left;
                    let range = offset..offset + length as u64;
                    let request = ReadRequest { reader, range, blocking, cancellation };
                    if !current(array)?.read_part(&request, part)? {
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

/// The state of one open handle: a reader for each segment.
pub struct FileReader(Vec<Reader>);

/// Returns the array that readers of a segment use now.
pub fn current(shared: &SharedArray) -> Result<Arc<Array>> {
    let stale = || Error::Stale { key: shared.path.to_string() };
    let open = shared.current().filter(|_| !shared.is_stale()).ok_or_else(stale)?;
    open.array.clone()
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
        let (reader, mut buffer) = (file.reader(Readahead::Replies), ReplyBuffer::default());
        let content = b"abcde\0\0\0f";
        assert_eq!(file.size_bytes(), content.len() as u64);
        let (blocking, never) = (Blocking::No, Cancellation::never());
        for from in 0..content.len() + 2 {
            for size in 0..content.len() + 2 {
                let expected = content.get(from..).unwrap_or_default();
                let expected = expected.get(..size).unwrap_or(expected);
                let read =
                    file.read(&reader, (from as u64, size as u32), &mut buffer, blocking, &never).unwrap();
                assert_eq!(&*read.unwrap(), expected, "{size} from {from}");
            }
        }
        assert!(
            file.read(&reader, (u64::MAX, 1), &mut buffer, blocking, &never).unwrap().unwrap().is_empty()
        );
    }
}
