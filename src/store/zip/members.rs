//! The members of an archive, from its central directory. Format: PKWARE's APPNOTE 6.3, sections 4.3.12 to 4.3.16. Uses
//! `archive` and `store/key`.
//!
//! The end of an archive says where its central directory is. So two reads are enough: the end, which has all of a short
//! directory, and the rest of a longer one.
//!
//! Invariants: nothing outside the directory is read, and a directory beyond [`MAX_DIRECTORY_BYTES`] is an error before anything is
//! allocated for it. All members in the directory are read, or none: a member that was left out would look like a missing chunk.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
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
/// The size of a header in the central directory before its name.
const HEADER_BYTES: usize = 46;

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
    let (directory, shift) = read_directory(archive)?;
    let zip = ZipArchive::new(io::Cursor::new(directory)).map_err(invalid_data)?;
    let path = archive.name.as_str();
    if zip.has_duplicate_names() {
        log::debug!("{path}: some names occur more than once; the last of each is used");
    }
    let mut members = Members::new();
    let left_out = LeftOut::default();
    for index in 0..zip.len() {
        let entry = zip.by_index_data(index).map_err(invalid_data)?;
        let Ok(raw) = entry.name().map(Cow::into_owned) else {
            let shown = String::from_utf8_lossy(entry.name_raw()).escape_debug().to_string();
            left_out.warn(path, "that cannot be keys", &shown);
            continue;
        };
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
        if entry.is_dir() {
            // It says nothing about an object of the same name.
            members.entry(name.to_owned()).or_insert(ZipMember::Folder);
        } else {
            members.insert(name.to_owned(), classify(&entry, shift));
        }
    }
    Ok(members)
}

/// Returns a member of an archive that has this many bytes before it.
fn classify(entry: &ZipFileEntry<'_>, shift: u64) -> ZipMember {
    let is_deflated = match entry.compression() {
        _ if entry.encrypted() => return ZipMember::Refused("the archive's member is encrypted"),
        _ if entry.is_symlink() => return ZipMember::Refused("the archive's member is a link"),
        CompressionMethod::Stored => false,
        CompressionMethod::Deflated => true,
        _ => return ZipMember::Refused("the archive's member is neither stored nor deflated"),
    };
    let data = MemberData {
        // An impossible offset is an error when the member is opened.
        header_start: entry.header_start().saturating_add(shift),
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

/// The last bytes of an archive.
struct ArchiveEnd {
    /// The offset of the first of the bytes in the archive.
    start: u64,
    bytes: Vec<u8>,
}

impl ArchiveEnd {
    /// Returns the bytes from an offset in the archive on.
    fn at(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let from = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        self.bytes.get(from..from.checked_add(length)?)
    }
}

/// What the records at the end of an archive say about its central directory.
struct DirectoryPlace {
    /// Where it begins in the archive.
    start: u64,
    size_bytes: u64,
    /// Where it begins if nothing was put before the archive.
    declared_start: u64,
    /// The number of its members. Without zip64, some writers count only modulo 65,536.
    declared_members: u64,
}

/// Reads the central directory of an archive, as an archive without members before it. Also returns how many bytes were put before the
/// whole archive.
fn read_directory(archive: &Archive) -> io::Result<(Vec<u8>, u64)> {
    let size_bytes = archive.size_bytes;
    let end_start = size_bytes - size_bytes.min(END_BYTES);
    let bytes = read_bytes(archive, end_start, size_bytes - end_start)?;
    let end = ArchiveEnd { start: end_start, bytes };
    let place = find_directory(archive, &end)?;
    if place.size_bytes > MAX_DIRECTORY_BYTES {
        let reason = format!("its central directory is longer than {MAX_DIRECTORY_BYTES} bytes");
        return Err(invalid(&reason));
    }
    let shift = place.start.checked_sub(place.declared_start);
    let shift = shift.ok_or_else(|| invalid("its central directory is before the place that it says"))?;
    let mut bytes = Vec::new();
    let before_end = end_start.saturating_sub(place.start).min(place.size_bytes);
    if before_end > 0 {
        bytes = read_bytes(archive, place.start, before_end)?;
    }
    let in_end = end.at(place.start.max(end_start), (place.size_bytes - before_end) as usize);
    bytes.extend_from_slice(
        in_end.ok_or_else(|| invalid("its central directory is longer than the archive"))?,
    );
    let members = count_members(&bytes)?;
    if place.declared_members > members {
        let reason = format!("its central directory has {members} of {} members", place.declared_members);
        return Err(invalid(&reason));
    }
    bytes.extend_from_slice(&end_records(place.size_bytes, members));
    Ok((bytes, shift))
}

/// Returns the number of members in a central directory, which has nothing else but a signature at its end.
fn count_members(directory: &[u8]) -> io::Result<u64> {
    let (mut rest, mut count) = (directory, 0);
    while !rest.is_empty() && !rest.starts_with(b"PK\x05\x05") {
        let length = |at: usize| {
            let bytes = rest.get(at..at + 2)?.try_into().ok()?;
            Some(usize::from(u16::from_le_bytes(bytes)))
        };
        let lengths = length(28).zip(length(30)).zip(length(32)).filter(|_| rest.starts_with(b"PK\x01\x02"));
        let next =
            lengths.and_then(|((name, extra), comment)| rest.get(HEADER_BYTES + name + extra + comment..));
        rest =
            next.ok_or_else(|| invalid(&format!("its central directory is damaged after {count} members")))?;
        count += 1;
    }
    Ok(count)
}

/// Returns the records of an archive that is only a central directory of this size. With them, the library finds this directory and no other.
fn end_records(size_bytes: u64, members: u64) -> Vec<u8> {
    let mut records = Vec::new();
    let mut add = |bytes: &[u8]| records.extend_from_slice(bytes);
    add(b"PK\x06\x06");
    add(&(END64_RECORD_BYTES - 12).to_le_bytes());
    add(&[45, 0, 45, 0]);
    add(&[0; 8]);
    for number in [members, members, size_bytes, 0] {
        add(&number.to_le_bytes());
    }
    add(b"PK\x06\x07\0\0\0\0");
    add(&size_bytes.to_le_bytes());
    add(&1_u32.to_le_bytes());
    add(b"PK\x05\x06\0\0\0\0");
    add(&[0xff; 12]);
    add(&[0; 2]);
    records
}

fn read_bytes(archive: &Archive, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = usize::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    bytes.try_reserve_exact(length).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    bytes.resize(length, 0);
    archive.read_at_once(offset, &mut bytes)?;
    Ok(bytes)
}

/// Returns what the records at the end of the archive say about the central directory.
fn find_directory(archive: &Archive, end: &ArchiveEnd) -> io::Result<DirectoryPlace> {
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
    let before = |end: u64, size: u64| {
        end.checked_sub(size).ok_or_else(|| invalid("its central directory begins before the archive"))
    };
    if let Some(End64 { start, declared_members, size_bytes, declared_start }) =
        find_end64(archive, end, record_start)?
    {
        let start = before(start, size_bytes)?;
        return Ok(DirectoryPlace { start, size_bytes, declared_start, declared_members });
    }
    let Some([.., members_low, members_high, a, b, c, d, e, f, g, h]) =
        end.at(record_start, END_RECORD_BYTES - 2)
    else {
        return Err(not_zip());
    };
    let size_bytes = u64::from(u32::from_le_bytes([*a, *b, *c, *d]));
    let declared_start = u64::from(u32::from_le_bytes([*e, *f, *g, *h]));
    let declared_members = u64::from(u16::from_le_bytes([*members_low, *members_high]));
    let start = before(record_start, size_bytes)?;
    Ok(DirectoryPlace { start, size_bytes, declared_start, declared_members })
}

/// Zip64's record at the end of an archive.
struct End64 {
    /// Its offset in the archive.
    start: u64,
    declared_members: u64,
    /// The size of the directory before it.
    size_bytes: u64,
    declared_start: u64,
}

/// Returns zip64's record, if the archive has one.
fn find_end64(archive: &Archive, end: &ArchiveEnd, record_start: u64) -> io::Result<Option<End64>> {
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
            return Ok(Some(End64 {
                start: place,
                declared_members: number(&record, 32),
                size_bytes: number(&record, 40),
                declared_start: number(&record, 48),
            }));
        }
    }
    Err(invalid("its record of zip64 is not where the archive says"))
}
