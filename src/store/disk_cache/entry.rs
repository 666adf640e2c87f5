//! The file of an entry: a header of one page, then the bytes. Uses `name` and `memory`.
//!
//! The header is JSON after a magic number, its length and its checksum. It names the store, the object, the version and the
//! range, and has the checksums of the bytes (CRC-32C), one for each block of 64 KiB, so that a reader of a few bytes need not
//! read all. A file with any other content is damaged: entries are written without fsync, so a power cut leaves files that are
//! short or have zeros. Damage is a miss.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::name::{EntryContent, EntryName, ObjectName};
use crate::memory::Buffer;

/// The first bytes of a file.
const MAGIC: &[u8; 8] = b"zarrfs3\n";
/// The size of the magic number, the length and the checksum of the header.
const PREFIX_BYTES: usize = 16;
/// The bytes begin at a multiple of this.
const PAGE_BYTES: usize = 4096;
/// The longest header that is written or read.
const MAX_HEADER_BYTES: usize = 64 << 10;
/// The bytes of one checksum. A block that was read is still in the processor's cache when its checksum is computed.
const BLOCK_BYTES: usize = 64 << 10;

/// The longest body of an entry.
pub const MAX_ENTRY_BYTES: u64 = 64 << 20;

/// The metadata that the service gave for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Its ETag.
    pub e_tag: String,
    /// Its version, if the service has versions.
    pub version: Option<String>,
    /// Its size.
    pub size_bytes: u64,
    /// Its time of last change, in microseconds since 1970.
    pub modified_micros: i64,
}

/// The header of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The object.
    pub object: ObjectName,
    /// The content of the file, and the times at which it was known.
    pub name: EntryName,
    /// The metadata of the object; `None` if it is missing.
    pub meta: Option<ObjectMeta>,
    /// The number of bytes after the header.
    pub length: u64,
    /// The checksums of the blocks of these bytes.
    pub checksums: Vec<u32>,
    /// The offset of these bytes.
    pub body_start: u64,
}

impl Header {
    /// Encodes the header of these bytes; `None` if it would be too long.
    pub fn encode(
        object: &ObjectName,
        name: &EntryName,
        meta: Option<&ObjectMeta>,
        bytes: &[u8],
    ) -> Option<Vec<u8>> {
        let text = json!({
            "store": object.store,
            "path": object.path,
            "name": name.text(&object.digest()),
            "etag": meta.map(|meta| &meta.e_tag),
            "version": meta.and_then(|meta| meta.version.as_ref()),
            "size": meta.map(|meta| meta.size_bytes),
            "modified": meta.map(|meta| meta.modified_micros),
            "length": bytes.len(),
            "crc32c": bytes.chunks(BLOCK_BYTES).map(crc32c::crc32c).collect::<Vec<u32>>(),
        })
        .to_string();
        let length = (PREFIX_BYTES + text.len()).next_multiple_of(PAGE_BYTES);
        if length > MAX_HEADER_BYTES {
            return None;
        }
        let mut header = Vec::with_capacity(length);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&u32::try_from(text.len()).ok()?.to_le_bytes());
        header.extend_from_slice(&crc32c::crc32c(text.as_bytes()).to_le_bytes());
        header.extend_from_slice(text.as_bytes());
        header.resize(length, 0);
        Some(header)
    }

    /// Reads the header of a file; `None` if it is damaged.
    pub fn read(file: &File) -> io::Result<Option<Self>> {
        let size_bytes = file.metadata()?.len();
        let mut page = [0; PAGE_BYTES];
        if size_bytes < PAGE_BYTES as u64 {
            return Ok(None);
        }
        file.read_exact_at(&mut page, 0)?;
        let number = |at: usize| Some(u32::from_le_bytes(page.get(at..at + 4)?.try_into().ok()?));
        let (Some(length), Some(checksum)) = (number(8), number(12)) else { return Ok(None) };
        let end = PREFIX_BYTES + length as usize;
        let body_start = end.next_multiple_of(PAGE_BYTES);
        if !page.starts_with(MAGIC) || body_start > MAX_HEADER_BYTES || body_start as u64 > size_bytes {
            return Ok(None);
        }
        let mut header = vec![0; end];
        file.read_exact_at(&mut header, 0)?;
        let text = header.get(PREFIX_BYTES..).unwrap_or_default();
        if crc32c::crc32c(text) != checksum {
            return Ok(None);
        }
        Ok(Self::parse(text, body_start as u64)
            .filter(|header| header.body_start + header.length == size_bytes))
    }

    fn parse(text: &[u8], body_start: u64) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let text = |member: &str| Some(value.get(member)?.as_str()?.to_owned());
        let object = ObjectName { store: text("store")?, path: text("path")? };
        let name = EntryName::parse(&text("name")?, &object.digest())?;
        let meta = match text("etag") {
            Some(e_tag) => Some(ObjectMeta {
                e_tag,
                version: text("version"),
                size_bytes: value.get("size")?.as_u64()?,
                modified_micros: value.get("modified")?.as_i64()?,
            }),
            None => None,
        };
        let length = value.get("length")?.as_u64()?;
        let checksums = value.get("crc32c")?.as_array()?.iter();
        let checksums: Vec<u32> =
            checksums.map(|checksum| u32::try_from(checksum.as_u64()?).ok()).collect::<Option<_>>()?;
        let is_sound = match (&name.part, &meta) {
            (EntryContent::Bytes { range, size_bytes, .. }, Some(meta)) => {
                range.end - range.start == length && *size_bytes == meta.size_bytes
            }
            (EntryContent::Bytes { .. }, None) => false,
            _ => true,
        } && length.div_ceil(BLOCK_BYTES as u64) == checksums.len() as u64;
        is_sound.then_some(Header { object, name, meta, length, checksums, body_start })
    }

    /// Whether the file has this range of an object of this size.
    pub fn has(&self, wanted: &Range<u64>, size: u64) -> bool {
        matches!(&self.name.part, EntryContent::Bytes { range, size_bytes, .. } if range == wanted && *size_bytes == size)
    }

    /// Reads all bytes of the file; `None` if they are damaged, or if there is no memory for them.
    pub fn read_body(&self, file: &File) -> io::Result<Option<Buffer>> {
        let Some(mut bytes) = usize::try_from(self.length).ok().and_then(Buffer::try_new) else {
            return Ok(None);
        };
        Ok(self.read_at(file, 0, &mut bytes)?.then_some(bytes))
    }

    /// Fills `out` from an offset in the bytes. Returns `false`, with `out` undefined, if they are damaged or too few.
    pub fn read_at(&self, file: &File, offset: u64, out: &mut [u8]) -> io::Result<bool> {
        let end = offset.saturating_add(out.len() as u64);
        if end > self.length {
            return Ok(false);
        }
        let (mut at, mut rest) = (offset, out);
        let mut scratch = Buffer::default();
        while !rest.is_empty() {
            let number = at / BLOCK_BYTES as u64;
            let start = number * BLOCK_BYTES as u64;
            let length = (self.length - start).min(BLOCK_BYTES as u64) as usize;
            let skipped = (at - start) as usize;
            let (part, after) = rest.split_at_mut((length - skipped).min(rest.len()));
            let is_whole = part.len() == length;
            if !is_whole && scratch.is_empty() {
                let Some(buffer) = Buffer::transient(BLOCK_BYTES) else { return Ok(false) };
                scratch = buffer;
            }
            let block = if is_whole { &mut *part } else { scratch.get_mut(..length).unwrap_or_default() };
            file.read_exact_at(block, self.body_start + start)?;
            if self.checksums.get(number as usize) != Some(&crc32c::crc32c(block)) {
                return Ok(false);
            }
            if !is_whole {
                part.copy_from_slice(scratch.get(skipped..skipped + part.len()).unwrap_or_default());
            }
            (at, rest) = (at + part.len() as u64, after);
        }
        Ok(true)
    }
}

/// Reads the header and all bytes of the file at `path`; `None` if it is damaged.
pub fn read(path: &Path) -> io::Result<Option<(Header, Buffer)>> {
    let file = File::open(path)?;
    let Some(header) = Header::read(&file)? else { return Ok(None) };
    Ok(header.read_body(&file)?.map(|bytes| (header, bytes)))
}

/// Returns the place of a range in bytes that begin at `start`.
pub fn place(range: &Range<u64>, start: u64) -> Option<Range<usize>> {
    let from = usize::try_from(range.start.checked_sub(start)?).ok()?;
    Some(from..usize::try_from(range.end.checked_sub(start)?).ok()?)
}

/// An entry in a folder.
pub struct DiskEntry {
    /// The parsed name.
    pub name: EntryName,
    /// The path.
    pub path: PathBuf,
}

/// Returns the entries of an object.
pub fn parts(folder: &Path, digest: &str) -> io::Result<Vec<DiskEntry>> {
    let mut found = Vec::new();
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if let Some(name) = entry.file_name().to_str().and_then(|name| EntryName::parse(name, digest)) {
            found.push(DiskEntry { name, path: entry.path() });
        }
    }
    Ok(found)
}
