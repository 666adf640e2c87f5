//! The object of the base that a change was made from. Uses `shape_digest.rs` and `store`.
//!
//! The list of changes keeps the digest of a version. The digest does not cover the ctime of a file, because new permissions, hard
//! links and backups change the ctime and not the content. But if another program writes a file in place and restores its
//! mtime, only the ctime differs. So the list also keeps the ctime and a checksum of the content. If either the digest or the ctime
//! differs, the content is read and its checksum decides.
//!
//! A line of an older zarrfs has the digest only, which then decides.

use std::time::SystemTime;

use super::shape_digest::{ARRAY_DOCUMENTS, MAX_DOCUMENT_BYTES, ShapeDigest};
use crate::error::{Error, Result};
use crate::store::{ObjectVersion, Store, VersionDigest};

/// How many bytes are read at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// A file that was changed this recently may change again without a new ctime, so its content is always compared.
const SETTLING_NANOSECONDS: i64 = 2_000_000_000;

/// An object of the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The digest of its version.
    pub version: VersionDigest,
    /// More about a file, if commits can write to the base.
    pub file: Option<OriginFile>,
    /// The shape of the array that it describes, if it is the document of one.
    pub shape: Option<ShapeDigest>,
}

/// What distinguishes a file from another one with the same digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginFile {
    /// Its ctime in nanoseconds since the epoch; `None` if it was too recent to distinguish versions.
    pub changed: Option<i64>,
    /// The checksum of its bytes.
    pub content: u64,
}

impl Origin {
    /// Describes the object at a key of the base, which was found in this version. Fails with [`Error::Changed`] if the object has another
    /// version by now.
    pub fn of(base: &dyn Store, key: &str, version: ObjectVersion) -> Result<Self> {
        let (digest, changed) = (version.digest(), version.changed());
        let shape = shape(base, key, version)?;
        let Some(changed) = changed.filter(|_| base.writer().is_some()) else {
            return Ok(Origin { version: digest, file: None, shape });
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let is_settled = i64::try_from(now.as_nanos()).is_ok_and(|now| now - SETTLING_NANOSECONDS > changed);
        let content = checksum(base, key, version)?;
        let is_current = base.head_object(key)?.is_some_and(|now| now.version == version);
        match content.filter(|_| is_current) {
            Some(content) => {
                let file = Some(OriginFile { changed: is_settled.then_some(changed), content });
                Ok(Origin { version: digest, file, shape })
            }
            None => Err(Error::Changed { key: key.to_owned() }),
        }
    }

    /// Returns whether the object that the base has in version `now` is this one, or has the same bytes.
    pub fn is(&self, base: &dyn Store, key: &str, now: ObjectVersion) -> Result<bool> {
        let is_same = self.version == now.digest();
        match self.file {
            None => Ok(is_same),
            Some(file) if is_same && file.changed.is_some() && file.changed == now.changed() => Ok(true),
            Some(file) => Ok(checksum(base, key, now)? == Some(file.content)),
        }
    }
}

/// Returns the shape in an array's document, if the object is one. Fails with [`Error::Changed`] if it has another version by now.
fn shape(base: &dyn Store, key: &str, version: ObjectVersion) -> Result<Option<ShapeDigest>> {
    if !ARRAY_DOCUMENTS.contains(&key.rsplit('/').next().unwrap_or(key)) {
        return Ok(None);
    }
    match base.content(key, MAX_DOCUMENT_BYTES)? {
        Some(document) if document.info.version == version => Ok(ShapeDigest::of_document(&document.bytes)),
        _ => Err(Error::Changed { key: key.to_owned() }),
    }
}

/// Returns the checksum of an object in this version; `None` if it has another version by now.
fn checksum(base: &dyn Store, key: &str, version: ObjectVersion) -> Result<Option<u64>> {
    let Some(object) = base.open(key)?.filter(|object| object.version() == version) else { return Ok(None) };
    let size_bytes = object.size_bytes();
    let mut one = crc32fast::Hasher::new();
    let mut other = crc32c::crc32c(&size_bytes.to_le_bytes());
    let mut piece = vec![0; PIECE_BYTES.min(size_bytes) as usize];
    for start in (0..size_bytes).step_by(PIECE_BYTES as usize) {
        piece.truncate((size_bytes - start).min(PIECE_BYTES) as usize);
        object.read_exact_at(start, &mut piece)?;
        one.update(&piece);
        other = crc32c::crc32c_append(other, &piece);
    }
    Ok(Some(u64::from(one.finalize()) << 32 | u64::from(other)))
}
