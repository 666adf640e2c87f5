//! The index of a shard: where its inner chunks lie.
//!
//! Spec: v3 "Sharding codec", "Binary shard format". Each entry is checked against the object's size when it is used,
//! so that a bad entry makes only its own inner chunk an error. Gaps, overlap and any order are legal. Uses nothing.

use std::ops::Range;

use crate::codec::{CodecError, CodecResult};

/// Offset and length of an empty inner chunk.
const EMPTY: u64 = u64::MAX;
/// Bytes of one entry: offset and length, 8 bytes each.
pub const ENTRY_BYTES: usize = 16;

/// A decoded index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardIndex {
    /// Pairs of little-endian offset and length.
    entries: Vec<u8>,
    /// Length of the object that the entries point into.
    object_size: u64,
    /// The most bytes that an inner chunk may have.
    limit_bytes: u64,
}

impl ShardIndex {
    /// Creates an index from its entries (16 bytes each, little-endian), for an object of `object_size` bytes with
    /// inner chunks of at most `limit_bytes` each.
    pub fn new(entries: Vec<u8>, object_size: u64, limit_bytes: u64) -> Self {
        ShardIndex { entries, object_size, limit_bytes }
    }

    /// Returns the number of inner chunks, empty ones included.
    pub fn len(&self) -> usize {
        self.entries.len() / ENTRY_BYTES
    }

    /// Returns whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory that it takes.
    pub fn size_bytes(&self) -> usize {
        self.entries.len() + size_of::<Self>()
    }

    /// Returns offset and length as stored.
    fn entry(&self, chunk: usize) -> Option<(u64, u64)> {
        let (entries, _) = self.entries.as_chunks::<ENTRY_BYTES>();
        let (words, _) = entries.get(chunk)?.as_chunks::<8>();
        match words {
            [offset, length] => Some((u64::from_le_bytes(*offset), u64::from_le_bytes(*length))),
            _ => None,
        }
    }

    /// Returns the range of bytes of inner chunk number `chunk` (C order) in the object; `None` if it is empty.
    pub fn chunk(&self, chunk: usize) -> CodecResult<Option<Range<u64>>> {
        let Some((offset, length)) = self.entry(chunk) else {
            return Err(CodecError::new(format_args!("the shard has no inner chunk {chunk}")));
        };
        let bad =
            |reason: String| Err(CodecError::new(format_args!("shard index, inner chunk {chunk}: {reason}")));
        match (offset, length) {
            (EMPTY, EMPTY) => return Ok(None),
            (EMPTY, _) | (_, EMPTY) => return bad("only one of offset and length is 2^64 - 1".into()),
            _ => {}
        }
        match offset.checked_add(length) {
            Some(end) if end > self.object_size => {
                bad(format!("bytes {offset} to {end} of an object of {}", self.object_size))
            }
            Some(_) if length > self.limit_bytes => {
                bad(format!("{length} bytes, but at most {} are possible", self.limit_bytes))
            }
            Some(end) => Ok(Some(offset..end)),
            None => bad(format!("offset {offset} and length {length} overflow")),
        }
    }
}

/// Returns the bytes of the entries (16 each, little-endian) for inner chunks that lie at `places`.
pub fn entry_bytes(places: &[Option<Range<u64>>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(places.len() * ENTRY_BYTES);
    for place in places {
        let (offset, length) = match place {
            Some(range) => (range.start, range.end - range.start),
            None => (EMPTY, EMPTY),
        };
        bytes.extend_from_slice(&offset.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn index(entries: &[(u64, u64)]) -> ShardIndex {
        let bytes = entries.iter().flat_map(|(a, b)| [a.to_le_bytes(), b.to_le_bytes()]).flatten().collect();
        ShardIndex::new(bytes, 100, 60)
    }

    #[test]
    fn every_entry_is_checked() {
        let index = index(&[
            (0, 10),
            (90, 10),
            (EMPTY, EMPTY),
            (91, 10),
            (u64::MAX - 5, 10),
            (EMPTY, 3),
            (3, EMPTY),
            (0, 61),
            (100, 0),
        ]);
        assert_eq!(index.len(), 9);
        assert_eq!(index.chunk(0), Ok(Some(0..10)));
        assert_eq!(index.chunk(1), Ok(Some(90..100)));
        assert_eq!(index.chunk(2), Ok(None));
        for bad in [3, 4, 5, 6, 7, 9] {
            assert!(index.chunk(bad).is_err(), "{bad}");
        }
        assert_eq!(index.chunk(8), Ok(Some(100..100)));
    }

    #[test]
    fn entries_round_trip() {
        let places = [Some(5..9), None, Some(0..0)];
        let index = ShardIndex::new(entry_bytes(&places), 9, 9);
        let back: Vec<_> = (0..3).map(|chunk| index.chunk(chunk).unwrap()).collect();
        assert_eq!(back, places);
    }
}
