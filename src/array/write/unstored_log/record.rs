//! The records of the log, and their bytes: a header of 64 bytes, then the payload.
//!
//! All numbers are little-endian. The format does not change: a later version of this program may find the bytes that an earlier
//! one has left. A new meaning gets a new kind, or the format another name.

/// The length of a header. Payloads are padded to this, too, so that a header never crosses a page.
pub const HEADER_BYTES: u64 = 64;
/// Where a header has its checksum, and after that whether its payload is complete.
pub const CHECKSUM_AT: usize = 56;
/// Where a header says that its payload is complete.
#[cfg(test)]
pub const COMPLETE_AT: u64 = 60;

/// What a record says about its array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The payload describes the array, so that it can be found again.
    Array,
    /// The payload was written at `place` of the file.
    Bytes,
    /// The payload was written to the chunk `chunk`, from its byte `place` on.
    ChunkBytes,
    /// Records of the chunk `chunk` up to the record `place` are in the store.
    Stored,
    /// All records of the array before this one, and up to the record `place`, are in the store.
    AllStored,
    /// Every byte became zero: the file was truncated to 0.
    Zero,
    /// The object `chunk` has been stored since the array was zeroed.
    ZeroStored,
    /// All objects have been stored since the array was zeroed.
    ZeroEnded,
    /// The array has bytes that are neither in the store nor in a record, until a later [`Kind::AllStored`] or [`Kind::AllRecorded`].
    Unrecorded,
    /// What the array has unstored at this place of the log is recorded again: nothing before it is [`Kind::Unrecorded`] any more.
    AllRecorded,
    /// The array was removed, or renamed after everything was stored: what was recorded before is void.
    Ended,
}

const KINDS: [Kind; 11] = [
    Kind::Array,
    Kind::Bytes,
    Kind::ChunkBytes,
    Kind::Stored,
    Kind::Zero,
    Kind::ZeroStored,
    Kind::ZeroEnded,
    Kind::Ended,
    Kind::AllStored,
    Kind::Unrecorded,
    Kind::AllRecorded,
];

/// A record without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it says.
    pub kind: Kind,
    /// The number of the array in the log.
    pub array: u64,
    /// The number of a chunk or of an object, or 0.
    pub chunk: u64,
    /// A place in the file, in the chunk or in the log, or 0.
    pub place: u64,
    /// The length of the payload.
    pub length: u64,
}

impl Header {
    /// Returns a record without payload.
    pub fn without_payload(kind: Kind, array: u64, chunk: u64, place: u64) -> Self {
        Header { kind, array, chunk, place, length: 0 }
    }

    /// Returns its bytes as the record of a segment with this number: those that the checksum covers, then the checksum, after which it
    /// says that the payload is not complete.
    pub fn to_bytes(self, segment: u64) -> ([u8; CHECKSUM_AT], [u8; 8]) {
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or_default() as u64 + 1;
        let mut covered = [0; CHECKSUM_AT];
        let numbers = [segment, kind, self.array, self.chunk, self.place, self.length];
        for (out, number) in covered.chunks_exact_mut(8).zip(numbers) {
            out.copy_from_slice(&number.to_le_bytes());
        }
        let end = u64::from(crc32fast::hash(&covered)).to_le_bytes();
        (covered, end)
    }

    /// Reads a header of a segment with this number. Returns it, and whether its payload is complete; `None` if there is none: the
    /// bytes are of an earlier use of the memory, or torn.
    pub fn from_bytes(bytes: &[u8], segment: u64) -> Option<(Header, bool)> {
        let (covered, rest) = bytes.split_at_checked(CHECKSUM_AT)?;
        let (checksum, rest) = rest.split_first_chunk::<4>()?;
        if crc32fast::hash(covered) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let mut numbers = covered.chunks_exact(8).filter_map(|bytes| bytes.try_into().ok());
        let mut next = || numbers.next().map(u64::from_le_bytes);
        if next()? != segment {
            return None;
        }
        let kind = *KINDS.get(usize::try_from(next()?.checked_sub(1)?).ok()?)?;
        let header = Header { kind, array: next()?, chunk: next()?, place: next()?, length: next()? };
        Some((header, rest.first() == Some(&1)))
    }
}

/// Returns the end of a header that says that the payload is complete.
pub fn as_complete(end: [u8; 8]) -> [u8; 8] {
    (u64::from_le_bytes(end) | 1 << 32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        for kind in KINDS {
            let header = Header { kind, array: 3, chunk: u64::MAX, place: 1 << 40, length: 77 };
            for is_complete in [false, true] {
                let (covered, end) = header.to_bytes(9);
                let bytes = [&covered[..], &if is_complete { as_complete(end) } else { end }].concat();
                assert_eq!(Header::from_bytes(&bytes, 9), Some((header, is_complete)));
                assert_eq!(Header::from_bytes(&bytes, 8), None, "of an earlier segment in the same place");
                for at in 0..CHECKSUM_AT + 4 {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= 1;
                    assert_eq!(Header::from_bytes(&damaged, 9), None);
                }
            }
        }
        assert_eq!(Header::from_bytes(&[0; HEADER_BYTES as usize], 0), None);
    }
}
