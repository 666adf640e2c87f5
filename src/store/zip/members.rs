//! The members of an archive, from its central directory. Format: PKWARE's APPNOTE 6.3, sections 4.3.12 to 4.3.16. Uses
//! `archive` and `store/key`.
//!
//! The end of an archive says where its central directory is. So two reads are enough: the end, which has all of a short
//! directory, and the rest of a longer one. Invariant: nothing outside the directory is read, and a directory beyond
//! [`MAX_DIRECTORY_BYTES`] is an error before anything is allocated for it.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicU64, Ordering};

use zip::CompressionMethod;
use zip::read::{ZipArchive, ZipFileEntry};

use super::archive::Archive;
use crate::error::{Error, Result};
use crate::store::is_key;
use crate::store::key::left_out::LeftOut;

/// How many bytes at the end of an archive are read first: the directories of most archives are shorter.
pub(super) const END_BYTES: u64 = 256 << 10;
/// The longest central directory, which has some millions of members.
const MAX_DIRECTORY_BYTES: u64 = 512 << 20;
/// The longest name of a member, in bytes.
const MAX_NAME_BYTES: usize = 4096;
/// The highest compression ratio of deflate: a size beyond it is false.
const MAX_DEFLATE_RATIO: u64 = 1032;
/// The size of a local file header before its name.
pub(super) const LOCAL_HEADER_BYTES: usize = 30;
/// The size of the record at the end of an archive, before its comment.
const END_RECORD_BYTES: usize = 22;
/// The size of zip64's record at the end of an archive, and of the record that says where it is.
const END64_RECORD_BYTES: u64 = 56;
const END64_LOCATOR_BYTES: u64 = 20;

/// The members by name.
pub(super) type Members = BTreeMap<String, ZipMember>;

/// A name of the central directory.
#[derive(Debug)]
pub(super) enum ZipMember {
    Folder,
    Data(MemberData),
    /// A member that cannot be read, with the reason.
    Refused(&'static str),
}

/// The bytes of a member, as the central directory describes them.
#[derive(Debug)]
pub(super) struct MemberData {
    pub header_start: u64,
    pub compressed_bytes: u64,
    pub size_bytes: u64,
    pub crc32: u32,
    pub is_deflated: bool,
    /// The length of its name, which the local header has too.
    pub name_bytes: u16,
    /// The offset of its bytes once the local header has been read; before that 0.
    start: AtomicU64,
}

impl MemberData {
    /// Returns the offset of the member's bytes, if its local header has been read.
    pub fn known_start(&self) -> Option<u64> {
        Some(self.start.load(Ordering::Relaxed)).filter(|start| *start > 0)
    }

    /// Returns the offset of the member's bytes, after its local header. Only the header has its own length.
    pub fn start(
        &self,
        archive: &Archive,
        key: &str,
        read: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<u64> {
        if let Some(start) = self.known_start() {
            return Ok(start);
        }
        let damaged = |reason: &str| Error::corrupt(key, format!("{reason} in {}", archive.name));
        let mut header = [0; LOCAL_HEADER_BYTES];
        if self.header_start.checked_add(LOCAL_HEADER_BYTES as u64).is_none_or(|end| end > archive.size_bytes)
        {
            return Err(damaged("its local file header is past the end of the archive"));
        }
        read(&mut header)?;
        let [b'P', b'K', 3, 4, .., name_low, name_high, extra_low, extra_high] = header else {
            return Err(damaged("its local file header is not where the central directory says"));
        };
        let name_bytes = u64::from(u16::from_le_bytes([name_low, name_high]));
        let extra_bytes = u64::from(u16::from_le_bytes([extra_low, extra_high]));
        let start = self.header_start.checked_add(LOCAL_HEADER_BYTES as u64 + name_bytes + extra_bytes);
        let end = start.and_then(|start| start.checked_add(self.compressed_bytes));
        match (start, end) {
            (Some(start), Some(end)) if end <= archive.size_bytes => {
                self.start.store(start, Ordering::Relaxed);
                Ok(start)
            }
            _ => Err(damaged("it reaches past the end of the archive")),
        }
    }
}

fn invalid(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

fn invalid_data(error: zip::result::ZipError) -> io::Error {
    match error {
        zip::result::ZipError::Io(error) if error.kind() != io::ErrorKind::UnexpectedEof => error,
        other => io::Error::new(io::ErrorKind::InvalidData, other),
    }
}

/// Reads all members by name. Fails with `InvalidData` if the bytes are not those of a zip archive.
pub(super) fn read(archive: &Archive) -> io::Result<Members> {
    let directory = read_directory(archive)?;
    let zip = ZipArchive::new(directory).map_err(invalid_data)?;
    let path = archive.name.as_str();
    if zip.has_duplicate_names() {
        log::debug!("{path}: some names occur more than once; the last of each is used");
    }
    let mut members = Members::new();
    let left_out = LeftOut::default();
    for index in 0..zip.len() {
        let entry = zip.by_index_data(index).map_err(invalid_data)?;
        let raw = entry.name().map_err(invalid_data)?.into_owned();
        let name = raw.strip_suffix('/').unwrap_or(&raw);
        if name.len() > MAX_NAME_BYTES || name.is_empty() || !is_key(name) {
            let shown: String = name.chars().take(100).flat_map(char::escape_debug).collect();
            left_out.warn(path, "that cannot be keys", &shown);
            continue;
        }
        // macOS adds these files for its own use.
        if name == "__MACOSX" || name.starts_with("__MACOSX/") || name.rsplit('/').next() == Some(".DS_Store")
        {
            continue;
        }
        let member = if entry.is_dir() { ZipMember::Folder } else { classify(&entry) };
        members.insert(name.to_owned(), member);
    }
    Ok(members)
}

fn classify(entry: &ZipFileEntry<'_>) -> ZipMember {
    let is_deflated = match entry.compression() {
        _ if entry.encrypted() => return ZipMember::Refused("the archive's member is encrypted"),
        _ if entry.is_symlink() => return ZipMember::Refused("the archive's member is a link"),
        CompressionMethod::Stored => false,
        CompressionMethod::Deflated => true,
        _ => return ZipMember::Refused("the archive's member is neither stored nor deflated"),
    };
    let data = MemberData {
        header_start: entry.header_start(),
        compressed_bytes: entry.compressed_size(),
        size_bytes: entry.size(),
        crc32: entry.crc32(),
        is_deflated,
        name_bytes: u16::try_from(entry.name_raw().len()).unwrap_or(u16::MAX),
        start: AtomicU64::new(0),
    };
    let is_possible = if is_deflated {
        data.size_bytes <= data.compressed_bytes.saturating_mul(MAX_DEFLATE_RATIO)
    } else {
        data.size_bytes == data.compressed_bytes
    };
    if is_possible {
        ZipMember::Data(data)
    } else {
        ZipMember::Refused("the archive's member has an impossible size")
    }
}

/// Returns the members below a folder of the archive. `""` is the root, or the single folder that contains all members.
pub(super) fn below(members: Members, root: &str) -> Members {
    let parent = if root.is_empty() { single_parent(&members) } else { Some(root.to_owned()) };
    match parent {
        None => members,
        Some(parent) => {
            let below = |key: String| key.strip_prefix(&parent)?.strip_prefix('/').map(str::to_owned);
            members.into_iter().filter_map(|(key, member)| Some((below(key)?, member))).collect()
        }
    }
}

/// Returns the single folder that contains all members, if there is one.
fn single_parent(members: &Members) -> Option<String> {
    let (first, _) = members.first_key_value()?;
    let parent = first.split('/').next()?.to_owned();
    let is_inside = |(key, member): (&String, &ZipMember)| match key.strip_prefix(&parent) {
        Some("") => matches!(member, ZipMember::Folder),
        Some(rest) => rest.starts_with('/'),
        None => false,
    };
    members.iter().all(is_inside).then_some(parent)
}

/// The bytes of an archive from its central directory on. Other bytes cannot be read.
struct DirectoryBytes {
    /// The offset of the first of the bytes in the archive.
    start: u64,
    bytes: Vec<u8>,
    position: u64,
}

impl DirectoryBytes {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Returns the bytes from an offset in the archive on.
    fn at(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let from = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        self.bytes.get(from..from.checked_add(length)?)
    }
}

impl Read for DirectoryBytes {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.position >= self.end() {
            return Ok(0);
        }
        let outside = || invalid("its records lead out of its central directory");
        let from = self.position.checked_sub(self.start).ok_or_else(outside)?;
        let rest = usize::try_from(from).ok().and_then(|from| self.bytes.get(from..)).ok_or_else(outside)?;
        let count = rest.len().min(out.len());
        let (Some(to), Some(bytes)) = (out.get_mut(..count), rest.get(..count)) else { return Ok(0) };
        to.copy_from_slice(bytes);
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for DirectoryBytes {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match to {
            SeekFrom::Start(place) => Some(place),
            SeekFrom::End(distance) => self.end().checked_add_signed(distance),
            SeekFrom::Current(distance) => self.position.checked_add_signed(distance),
        };
        self.position = place.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.position)
    }
}

/// Reads an archive from its central directory on.
fn read_directory(archive: &Archive) -> io::Result<DirectoryBytes> {
    let size_bytes = archive.size_bytes;
    let end_start = size_bytes - size_bytes.min(END_BYTES);
    let bytes = read_bytes(archive, end_start, size_bytes - end_start)?;
    let end = DirectoryBytes { start: end_start, bytes, position: 0 };
    let start = directory_start(archive, &end)?;
    if start >= end_start {
        return Ok(end);
    }
    if size_bytes - start > MAX_DIRECTORY_BYTES {
        let reason = format!("its central directory is longer than {MAX_DIRECTORY_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    let mut bytes = read_bytes(archive, start, end_start - start)?;
    bytes.extend_from_slice(&end.bytes);
    Ok(DirectoryBytes { start, bytes, position: 0 })
}

fn read_bytes(archive: &Archive, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = usize::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    bytes.try_reserve_exact(length).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    bytes.resize(length, 0);
    archive.read_at_once(offset, &mut bytes)?;
    Ok(bytes)
}

/// Returns where the central directory begins, as the records at the end of the archive say.
fn directory_start(archive: &Archive, end: &DirectoryBytes) -> io::Result<u64> {
    let not_zip = || invalid("it has no record of the end of a zip archive");
    let is_record = |place: &usize| {
        let comment = end.bytes.get(place + 20..place + 22);
        let comment = comment.and_then(|bytes| bytes.try_into().ok()).map(u16::from_le_bytes);
        end.bytes.get(*place..place + 4) == Some(b"PK\x05\x06")
            && comment.is_some_and(|length| place + END_RECORD_BYTES + usize::from(length) <= end.bytes.len())
    };
    let last = end.bytes.len().checked_sub(END_RECORD_BYTES).ok_or_else(not_zip)?;
    let place = (0..=last).rev().take(END_RECORD_BYTES + (1 << 16)).find(is_record).ok_or_else(not_zip)?;
    let record_start = end.start + place as u64;
    let size = end.at(record_start + 12, 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    let short = u64::from(size.ok_or_else(not_zip)?);
    let (directory_end, size) = match find_end64(archive, end, record_start)? {
        Some((record64_start, size)) => (record64_start, size),
        None => (record_start, short),
    };
    directory_end.checked_sub(size).ok_or_else(|| invalid("its central directory begins before the archive"))
}

/// Returns the offset of zip64's record and the size of the directory that it says, if the archive has one.
fn find_end64(archive: &Archive, end: &DirectoryBytes, record_start: u64) -> io::Result<Option<(u64, u64)>> {
    let Some(locator_start) = record_start.checked_sub(END64_LOCATOR_BYTES) else { return Ok(None) };
    let Some(locator) = end.at(locator_start, END64_LOCATOR_BYTES as usize) else { return Ok(None) };
    if locator.get(..4) != Some(b"PK\x06\x07") {
        return Ok(None);
    }
    let number = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    // Bytes before the archive's first member shift everything: then the record is just before its locator.
    let places = [Some(number(locator, 8)), locator_start.checked_sub(END64_RECORD_BYTES)];
    for place in places.into_iter().flatten() {
        if place.checked_add(END64_RECORD_BYTES).is_none_or(|end| end > locator_start) {
            continue;
        }
        let record = match end.at(place, END64_RECORD_BYTES as usize) {
            Some(record) => record.to_vec(),
            None => read_bytes(archive, place, END64_RECORD_BYTES)?,
        };
        if record.get(..4) == Some(b"PK\x06\x06") {
            return Ok(Some((place, number(&record, 40))));
        }
    }
    Err(invalid("its record of zip64 is not where the archive says"))
}
