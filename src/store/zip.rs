//! A zip archive as a read-only store: a key is the name of a member. Members are stored or deflated, and zip64 is supported.
//! Format: PKWARE's APPNOTE 6.3. Uses `error` only.
//!
//! The archive is opened once and its central directory is read once, so the store is the archive as it was then: if the file
//! changes later, opening an object fails with [`Error::Stale`]. Stored members are read by range from the file. Deflated
//! members can only be read from their start: a read of the whole inflates into the reader's buffer, and a read of a part
//! inflates the member once and keeps it as long as the object is open. Members that are read in full are checked against the
//! archive's CRC-32.
//!
//! An archive made from within a store has the store's names. One made from the store's parent has them below one folder, and
//! then that folder is the root. Of several members with the same name the last one counts, since that is how writers replace a
//! member. Members whose names cannot be keys (absolute, with `..`, too long) are left out and logged. Opening an encrypted
//! member, one of another method or a link is an error.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use flate2::read::DeflateDecoder;
use parking_lot::Mutex;
use zip::CompressionMethod;
use zip::read::{ZipArchive, ZipFileEntry};

use super::directory::posix_stat;
use super::key::left_out::LeftOut;
use super::{
    Info, ListEntry, Object, ObjectContent, ObjectVersion, Posix, StatFs, Store, check_key, copy_range,
    is_any_below, is_key, names_below, read_content,
};
use crate::error::{Error, Result};

/// The longest name of a member, in bytes.
const MAX_NAME_BYTES: usize = 4096;
/// The most bytes of a deflated member that are kept in memory so that parts of it can be read.
const MAX_HELD_BYTES: u64 = 1 << 30;
/// The highest compression ratio of deflate: a size beyond it is false.
const MAX_DEFLATE_RATIO: u64 = 1032;
/// The size of a local file header before its name.
const LOCAL_HEADER_BYTES: usize = 30;

/// A zip archive.
pub struct ZipStore {
    file: Arc<File>,
    path: String,
    metadata: Metadata,
    members: BTreeMap<String, ZipMember>,
}

/// A name of the central directory.
#[derive(Clone, Copy, Debug)]
enum ZipMember {
    Folder,
    Data(MemberData),
    /// A member that cannot be read, with the reason.
    Refused(&'static str),
}

#[derive(Clone, Copy, Debug)]
struct MemberData {
    header_start: u64,
    compressed_bytes: u64,
    size_bytes: u64,
    crc32: u32,
    is_deflated: bool,
}

impl ZipStore {
    /// Opens the archive at `path`. Fails with `InvalidData` if it is not a zip archive.
    pub fn open(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file"));
        }
        let archive = ZipArchive::new(BufReader::new(&file)).map_err(invalid_data)?;
        let path = path.display().to_string();
        if archive.has_duplicate_names() {
            log::debug!("{path}: some names occur more than once; the last of each is used");
        }
        let members = read_members(&archive, &path)?;
        drop(archive);
        Ok(ZipStore { file: Arc::new(file), path, metadata, members })
    }

    fn open_object(&self, key: &str) -> Result<Option<ZipObject>> {
        check_key(key, "open")?;
        let location = match self.members.get(key) {
            None | Some(ZipMember::Folder) => return Ok(None),
            Some(ZipMember::Refused(reason)) => return Err(Error::unsupported(key, *reason)),
            Some(ZipMember::Data(location)) => *location,
        };
        let metadata = self.file.metadata().map_err(|error| Error::store(key, "open", error))?;
        // A change of the archive's permissions or names moves no member.
        if posix_stat::version(&metadata).digest() != posix_stat::version(&self.metadata).digest() {
            return Err(Error::Stale { key: key.to_owned() });
        }
        let start = self.data_start(&location, key)?;
        Ok(Some(ZipObject {
            file: Arc::clone(&self.file),
            key: key.to_owned(),
            version: posix_stat::version_with_size(&metadata, location.size_bytes),
            modified: metadata.modified().ok(),
            location,
            start,
            inflated: Mutex::new(None),
        }))
    }

    /// Returns the offset of the member's bytes, after its local header. Only the header has its own length.
    fn data_start(&self, location: &MemberData, key: &str) -> Result<u64> {
        let damaged = |reason: &str| Error::corrupt(key, format!("{reason} in {}", self.path));
        let mut header = [0; LOCAL_HEADER_BYTES];
        self.file
            .read_exact_at(&mut header, location.header_start)
            .map_err(|error| Error::store(key, "read the member's header in the archive", error))?;
        let [b'P', b'K', 3, 4, .., name_low, name_high, extra_low, extra_high] = header else {
            return Err(damaged("its local file header is not where the central directory says"));
        };
        let name_bytes = u64::from(u16::from_le_bytes([name_low, name_high]));
        let extra_bytes = u64::from(u16::from_le_bytes([extra_low, extra_high]));
        let start = location.header_start.checked_add(LOCAL_HEADER_BYTES as u64 + name_bytes + extra_bytes);
        let end = start.and_then(|start| start.checked_add(location.compressed_bytes));
        match (start, end) {
            (Some(start), Some(end)) if end <= self.metadata.len() => Ok(start),
            _ => Err(damaged("it reaches past the end of the archive")),
        }
    }
}

fn invalid_data(error: zip::result::ZipError) -> io::Error {
    match error {
        zip::result::ZipError::Io(error) if error.kind() != io::ErrorKind::UnexpectedEof => error,
        other => io::Error::new(io::ErrorKind::InvalidData, other),
    }
}

/// Reads all members by key, without the single parent folder.
fn read_members(
    archive: &ZipArchive<BufReader<&File>>,
    path: &str,
) -> io::Result<BTreeMap<String, ZipMember>> {
    let mut members = BTreeMap::new();
    let left_out = LeftOut::default();
    for index in 0..archive.len() {
        let entry = archive.by_index_data(index).map_err(invalid_data)?;
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
    Ok(match single_parent(&members) {
        None => members,
        Some(parent) => {
            let below = |key: String| key.strip_prefix(&parent)?.strip_prefix('/').map(str::to_owned);
            members.into_iter().filter_map(|(key, member)| Some((below(key)?, member))).collect()
        }
    })
}

fn classify(entry: &ZipFileEntry<'_>) -> ZipMember {
    let is_deflated = match entry.compression() {
        _ if entry.encrypted() => return ZipMember::Refused("the archive's member is encrypted"),
        _ if entry.is_symlink() => return ZipMember::Refused("the archive's member is a link"),
        CompressionMethod::Stored => false,
        CompressionMethod::Deflated => true,
        _ => return ZipMember::Refused("the archive's member is neither stored nor deflated"),
    };
    let location = MemberData {
        header_start: entry.header_start(),
        compressed_bytes: entry.compressed_size(),
        size_bytes: entry.size(),
        crc32: entry.crc32(),
        is_deflated,
    };
    let is_possible = if is_deflated {
        location.size_bytes <= location.compressed_bytes.saturating_mul(MAX_DEFLATE_RATIO)
    } else {
        location.size_bytes == location.compressed_bytes
    };
    if is_possible {
        ZipMember::Data(location)
    } else {
        ZipMember::Refused("the archive's member has an impossible size")
    }
}

/// Returns the single folder that contains all members, if there is one.
fn single_parent(members: &BTreeMap<String, ZipMember>) -> Option<String> {
    let (first, _) = members.first_key_value()?;
    let parent = first.split('/').next()?.to_owned();
    let is_inside = |(key, member): (&String, &ZipMember)| match key.strip_prefix(&parent) {
        Some("") => matches!(member, ZipMember::Folder),
        Some(rest) => rest.starts_with('/'),
        None => false,
    };
    members.iter().all(is_inside).then_some(parent)
}

impl Store for ZipStore {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        Ok(self.open_object(key)?.map(|object| Box::new(object) as Box<dyn Object>))
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>> {
        match self.open_object(key)? {
            Some(object) => read_content(&object, key, limit_bytes).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the owner, mode and time of the archive for every member.
    fn head(&self, key: &str) -> Result<Option<Info>> {
        check_key(key, "look at")?;
        let metadata = self.file.metadata().map_err(|error| Error::store(key, "look at", error))?;
        let info = posix_stat::info_for(&self.file, &metadata);
        let member = |size_bytes| Info {
            size_bytes,
            version: posix_stat::version_with_size(&metadata, size_bytes),
            posix: info.posix.map(|posix| Posix { file: None, ..posix }),
            ..info
        };
        let folder = || member(0).as_folder();
        Ok(match self.members.get(key) {
            Some(ZipMember::Data(location)) => Some(member(location.size_bytes)),
            Some(ZipMember::Refused(_)) => Some(member(0)),
            Some(ZipMember::Folder) => Some(folder()),
            None if key.is_empty() || is_any_below(&self.members, key) => Some(folder()),
            None => None,
        })
    }

    fn list(&self, folder: &str) -> Result<Vec<ListEntry>> {
        check_key(folder, "list")?;
        Ok(names_below(&self.members, folder, |member| matches!(member, ZipMember::Folder)))
    }

    fn statfs(&self) -> Result<StatFs> {
        posix_stat::statfs(&*self.file).map_err(|error| Error::store("", "stat", error))
    }

    fn describe(&self) -> String {
        self.path.clone()
    }

    fn identity(&self) -> Result<Option<String>> {
        Ok(Some(format!("archive {}", posix_stat::version(&self.metadata).digest())))
    }
}

/// An open member.
struct ZipObject {
    file: Arc<File>,
    key: String,
    version: ObjectVersion,
    modified: Option<SystemTime>,
    location: MemberData,
    /// Offset of the member's bytes in the archive.
    start: u64,
    /// The whole member, inflated, if it is deflated and was read in part.
    inflated: Mutex<Option<Arc<Vec<u8>>>>,
}

impl Object for ZipObject {
    fn version(&self) -> ObjectVersion {
        self.version
    }

    fn size_bytes(&self) -> u64 {
        self.location.size_bytes
    }

    fn modified(&self) -> Option<SystemTime> {
        self.modified
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let size_bytes = self.location.size_bytes;
        let length = out.len() as u64;
        if offset.checked_add(length).is_none_or(|end| end > size_bytes) {
            return Err(Error::store(&self.key, "read", io::Error::from(io::ErrorKind::UnexpectedEof)));
        }
        let is_whole = length == size_bytes;
        if self.location.is_deflated {
            if is_whole {
                return self.inflate(out);
            }
            return copy_range(&self.inflated()?, offset, out, &self.key);
        }
        // `data_start` has checked that this is inside the archive.
        let position = self.start.saturating_add(offset);
        self.file.read_exact_at(out, position).map_err(|error| Error::store(&self.key, "read", error))?;
        if is_whole { self.check_crc32(out) } else { Ok(()) }
    }
}

impl ZipObject {
    fn inflated(&self) -> Result<Arc<Vec<u8>>> {
        let mut inflated = self.inflated.lock();
        if let Some(bytes) = inflated.as_ref() {
            return Ok(Arc::clone(bytes));
        }
        if self.location.size_bytes > MAX_HELD_BYTES {
            let reason = "parts of a deflated member this long cannot be read; make the archive with stored members (zip -0)";
            return Err(Error::unsupported(&self.key, reason));
        }
        let mut bytes = Vec::new();
        let out_of_memory = |_| Error::store(&self.key, "read", io::Error::from(io::ErrorKind::OutOfMemory));
        let length = self.location.size_bytes as usize;
        bytes.try_reserve_exact(length).map_err(out_of_memory)?;
        bytes.resize(length, 0);
        self.inflate(&mut bytes)?;
        let bytes = Arc::new(bytes);
        *inflated = Some(Arc::clone(&bytes));
        Ok(bytes)
    }

    /// Inflates the whole member into `out`, which has its size.
    fn inflate(&self, out: &mut [u8]) -> Result<()> {
        let range =
            FileRange { file: &self.file, position: self.start, left: self.location.compressed_bytes };
        let mut decoder = DeflateDecoder::new_with_buf(range, vec![0; 64 << 10]);
        let damaged = |error: io::Error| Error::corrupt(&self.key, format!("the deflated member: {error}"));
        decoder.read_exact(out).map_err(damaged)?;
        if decoder.read(&mut [0]).map_err(damaged)? != 0 {
            return Err(Error::corrupt(&self.key, "the deflated member is longer than the archive says"));
        }
        self.check_crc32(out)
    }

    fn check_crc32(&self, bytes: &[u8]) -> Result<()> {
        if crc32fast::hash(bytes) == self.location.crc32 {
            return Ok(());
        }
        Err(Error::corrupt(&self.key, "its CRC-32 differs from the one in the archive"))
    }
}

/// A part of a file that is read forward by position.
struct FileRange<'a> {
    file: &'a File,
    position: u64,
    left: u64,
}

impl Read for FileRange<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let length = out.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let out = out.get_mut(..length).unwrap_or_default();
        let count = self.file.read_at(out, self.position)?;
        self.position += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
