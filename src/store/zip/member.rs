//! An open member. A stored member is a range of its archive. A deflated one is inflated from its start.
//!
//! Uses `archive`, `members` and `flate2`. Members that are read in full are checked against the archive's CRC-32.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use flate2::read::DeflateDecoder;
use parking_lot::Mutex;

use super::archive::{Archive, ArchiveState};
use super::members::{LOCAL_HEADER_BYTES, MemberData};
use crate::error::{Error, Result};
use crate::store::{Object, ObjectVersion, Wanted, copy_range};

/// The most bytes of a deflated member that are kept in memory so that parts of it can be read.
const MAX_HELD_BYTES: u64 = 1 << 30;
/// The most bytes that are read together with a local header. Longer members are read after it.
const MAX_FIRST_BYTES: u64 = 16 << 20;
/// How many bytes a local header may have in addition to its name, before a second request is needed.
const USUAL_EXTRA_BYTES: u64 = 512;
/// The sizes of the reads of a deflated member: from a file, and from a store behind a network.
const FILE_READ_BYTES: u64 = 64 << 10;
const REMOTE_READ_BYTES: u64 = 8 << 20;

/// Returns the bytes of the archive that a reader of a member needs first: with the local header, if it has not been read.
pub(super) fn first_range(data: &MemberData, archive: &Archive, wanted: &Wanted) -> Range<u64> {
    let length = data.compressed_bytes;
    let part = match wanted {
        _ if data.is_deflated => 0..length,
        Wanted::Whole { .. } => 0..length,
        Wanted::Range(range) => range.start.min(length)..range.end.min(length),
        Wanted::Last(bytes) => length - length.min(*bytes)..length,
    };
    let range = match data.known_start() {
        Some(start) => start.saturating_add(part.start)..start.saturating_add(part.end),
        None => {
            // The start is not known exactly, so all bytes from the header on are read.
            let header = LOCAL_HEADER_BYTES as u64 + u64::from(data.name_bytes) + USUAL_EXTRA_BYTES;
            let needed = if part.end <= MAX_FIRST_BYTES { part.end } else { 0 };
            data.header_start..data.header_start.saturating_add(header + needed)
        }
    };
    let end = range.end.min(archive.size_bytes);
    range.start.min(end)..end
}

/// Bytes of an archive in memory.
struct HeldBytes {
    /// Their offset in the archive.
    start: u64,
    bytes: Vec<u8>,
}

impl HeldBytes {
    /// Reads what a reader needs first from an archive behind a network; `None` if it is in memory, or too long.
    fn read(archive: &Archive, range: Range<u64>, key: &str) -> Result<Option<Self>> {
        let length = range.end.saturating_sub(range.start);
        let is_read = archive.is_remote() && length <= MAX_FIRST_BYTES + (128 << 10);
        if !is_read || archive.in_memory(&range).is_some() {
            return Ok(None);
        }
        let mut bytes = vec![0; length as usize];
        archive.read_exact_at(range.start, &mut bytes, key)?;
        Ok(Some(HeldBytes { start: range.start, bytes }))
    }

    fn get(&self, range: &Range<u64>) -> Option<&[u8]> {
        let from = usize::try_from(range.start.checked_sub(self.start)?).ok()?;
        let to = usize::try_from(range.end.checked_sub(self.start)?).ok()?;
        self.bytes.get(from..to)
    }
}

/// An open member.
pub(super) struct ZipObject {
    archive: Arc<Archive>,
    key: String,
    version: ObjectVersion,
    modified: Option<SystemTime>,
    size_bytes: u64,
    compressed_bytes: u64,
    crc32: u32,
    is_deflated: bool,
    /// Offset of the member's bytes in the archive.
    start: u64,
    held: Option<HeldBytes>,
    /// The whole member, inflated, if it is deflated and was read in part.
    inflated: Mutex<Option<Arc<Vec<u8>>>>,
}

impl ZipObject {
    /// Opens a member for a reader that begins with these bytes.
    pub fn open(
        archive: &Arc<Archive>,
        state: &ArchiveState,
        (key, data): (&str, &MemberData),
        wanted: &Wanted,
    ) -> Result<Self> {
        let held = HeldBytes::read(archive, first_range(data, archive, wanted), key)?;
        let start = data.start(archive, key, |header| {
            let range = data.header_start..data.header_start + header.len() as u64;
            match held.as_ref().and_then(|held| held.get(&range)) {
                Some(bytes) => header.copy_from_slice(bytes),
                None => archive.read_exact_at(data.header_start, header, key)?,
            }
            Ok(())
        })?;
        Ok(ZipObject {
            archive: Arc::clone(archive),
            key: key.to_owned(),
            version: state.version(data.header_start, data.size_bytes),
            modified: state.info.modified,
            size_bytes: data.size_bytes,
            compressed_bytes: data.compressed_bytes,
            crc32: data.crc32,
            is_deflated: data.is_deflated,
            start,
            held,
            inflated: Mutex::new(None),
        })
    }

    /// Returns a range of a stored member as a range of the archive; `None` past the member's end.
    fn in_archive(&self, offset: u64, length: u64) -> Option<Range<u64>> {
        let end = offset.checked_add(length).filter(|end| *end <= self.size_bytes)?;
        // `MemberData::start` has checked that this is inside the archive.
        Some(self.start.saturating_add(offset)..self.start.saturating_add(end))
    }

    /// Reads bytes of the archive.
    fn read_archive(&self, range: &Range<u64>, out: &mut [u8]) -> Result<()> {
        match self.held.as_ref().and_then(|held| held.get(range)) {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                Ok(())
            }
            None => self.archive.read_exact_at(range.start, out, &self.key),
        }
    }

    fn past_end(&self) -> Error {
        Error::store(&self.key, "read", io::Error::from(io::ErrorKind::UnexpectedEof))
    }

    fn inflated(&self) -> Result<Arc<Vec<u8>>> {
        let mut inflated = self.inflated.lock();
        if let Some(bytes) = inflated.as_ref() {
            return Ok(Arc::clone(bytes));
        }
        if self.size_bytes > MAX_HELD_BYTES {
            let reason = "parts of a deflated member this long cannot be read; make the archive with stored members (zip -0)";
            return Err(Error::unsupported(&self.key, reason));
        }
        let mut bytes = Vec::new();
        let out_of_memory = |_| Error::store(&self.key, "read", io::Error::from(io::ErrorKind::OutOfMemory));
        let length = self.size_bytes as usize;
        bytes.try_reserve_exact(length).map_err(out_of_memory)?;
        bytes.resize(length, 0);
        self.inflate(&mut bytes)?;
        let bytes = Arc::new(bytes);
        *inflated = Some(Arc::clone(&bytes));
        Ok(bytes)
    }

    /// Inflates the whole member into `out`, which has its size.
    fn inflate(&self, out: &mut [u8]) -> Result<()> {
        let usual = if self.archive.is_remote() { REMOTE_READ_BYTES } else { FILE_READ_BYTES };
        let buffer = vec![0; self.compressed_bytes.clamp(1, usual) as usize];
        let failure = Mutex::new(None);
        let bytes = CompressedBytes { object: self, read_bytes: 0, failure: &failure };
        let mut decoder = DeflateDecoder::new_with_buf(bytes, buffer);
        let damaged = |error: io::Error| match failure.lock().take() {
            Some(failure) => failure,
            None => Error::corrupt(&self.key, format!("the deflated member: {error}")),
        };
        decoder.read_exact(out).map_err(damaged)?;
        if decoder.read(&mut [0]).map_err(damaged)? != 0 {
            return Err(Error::corrupt(&self.key, "the deflated member is longer than the archive says"));
        }
        self.check_crc32(out)
    }

    fn check_crc32(&self, bytes: &[u8]) -> Result<()> {
        if crc32fast::hash(bytes) == self.crc32 {
            return Ok(());
        }
        Err(Error::corrupt(&self.key, "its CRC-32 differs from the one in the archive"))
    }
}

impl Object for ZipObject {
    fn version(&self) -> ObjectVersion {
        self.version
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn modified(&self) -> Option<SystemTime> {
        self.modified
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let length = out.len() as u64;
        let range = self.in_archive(offset, length).ok_or_else(|| self.past_end())?;
        let is_whole = length == self.size_bytes;
        if self.is_deflated {
            if is_whole {
                return self.inflate(out);
            }
            return copy_range(&self.inflated()?, offset, out, &self.key);
        }
        self.read_archive(&range, out)?;
        if is_whole { self.check_crc32(out) } else { Ok(()) }
    }

    fn read_ranges(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        if self.is_deflated || !self.archive.is_remote() || ranges.len() < 2 {
            return ranges.iter_mut().try_for_each(|(offset, out)| self.read_exact_at(*offset, out));
        }
        let mut missing = Vec::with_capacity(ranges.len());
        for (offset, out) in ranges {
            let range = self.in_archive(*offset, out.len() as u64).ok_or_else(|| self.past_end())?;
            match self.held.as_ref().and_then(|held| held.get(&range)) {
                Some(bytes) => out.copy_from_slice(bytes),
                None => missing.push((range.start, &mut **out)),
            }
        }
        if missing.is_empty() { Ok(()) } else { self.archive.read_ranges(&mut missing, &self.key) }
    }

    fn in_memory(&self, range: &Range<u64>) -> Option<&[u8]> {
        // Bytes that are not checked against the CRC-32 may only be a part.
        if self.is_deflated || *range == (0..self.size_bytes) {
            return None;
        }
        let range = self.in_archive(range.start, range.end.checked_sub(range.start)?)?;
        self.held.as_ref().and_then(|held| held.get(&range)).or_else(|| self.archive.in_memory(&range))
    }

    fn try_read_at(&self, offset: u64, out: &mut [u8]) -> bool {
        let bytes = self.in_memory(&(offset..offset.saturating_add(out.len() as u64)));
        bytes.map(|bytes| out.copy_from_slice(bytes)).is_some()
    }
}

/// The bytes of a deflated member, which are read forward.
struct CompressedBytes<'a> {
    object: &'a ZipObject,
    read_bytes: u64,
    /// The error of the store, which `io::Error` cannot carry.
    failure: &'a Mutex<Option<Error>>,
}

impl Read for CompressedBytes<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = self.object.compressed_bytes.saturating_sub(self.read_bytes);
        let length = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let out = out.get_mut(..length).unwrap_or_default();
        let from = self.object.start.saturating_add(self.read_bytes);
        if let Err(error) = self.object.read_archive(&(from..from.saturating_add(length as u64)), out) {
            *self.failure.lock() = Some(error);
            return Err(io::Error::other("the archive cannot be read"));
        }
        self.read_bytes += length as u64;
        Ok(length)
    }
}
