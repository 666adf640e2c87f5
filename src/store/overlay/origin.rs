//! An object of the base from which an overlay has made something. Uses `store`.
//!
//! A version's digest, which the list of changes keeps, does not have the time of change of a file's inode: new permissions, hard
//! links and backups change that time, and not the content. But content that another program has written in place, and given the old
//! time, differs in nothing else. So the list keeps that time and a checksum of the content, too. Where anything but the checksum
//! differs, the content is read and compared.
//!
//! A line of an older zarrfs has the digest only, which then decides.

use std::time::SystemTime;

use super::lengths::{DOCUMENTS, Lengths, MAX_DOCUMENT_BYTES};
use crate::error::{Error, Result};
use crate::store::{Object, ObjectVersion, Store, VersionDigest};

/// How many bytes are read at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// A file that was changed this recently may change again with the same time: its content is always compared.
const SETTLING_NANOSECONDS: i64 = 2_000_000_000;

/// An object of the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its version.
    pub version: VersionDigest,
    /// What is known of a file, in a base that a commit can write.
    pub file: Option<OriginFile>,
    /// The lengths of the array that it describes, if it is the document of one.
    pub lengths: Option<Lengths>,
}

/// What tells a file from another one of the same version's digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginFile {
    /// When its inode was changed, in nanoseconds since the epoch; `None` if that was too recent to tell.
    pub changed: Option<i64>,
    /// The checksum of its bytes.
    pub content: u64,
}

impl Origin {
    /// The object at a key of the base, which was found in this version. [`Error::Changed`] if it is another one by now.
    pub fn of(base: &dyn Store, key: &str, version: ObjectVersion) -> Result<Self> {
        let (digest, changed) = (version.digest(), version.changed());
        let lengths = lengths(base, key, version)?;
        let Some(changed) = changed.filter(|_| base.writer().is_some()) else {
            return Ok(Origin { version: digest, file: None, lengths });
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let is_settled = i64::try_from(now.as_nanos()).is_ok_and(|now| now - SETTLING_NANOSECONDS > changed);
        let content = checksum(base, key, version)?;
        let is_current = base.head_object(key)?.is_some_and(|now| now.version == version);
        match content.filter(|_| is_current) {
            Some(content) => {
                let file = Some(OriginFile { changed: is_settled.then_some(changed), content });
                Ok(Origin { version: digest, file, lengths })
            }
            None => Err(Error::Changed { key: key.to_owned() }),
        }
    }

    /// Whether the object that the base has in version `now` is this one, or has its bytes.
    pub fn is(&self, base: &dyn Store, key: &str, now: ObjectVersion) -> Result<bool> {
        let is_same = self.version == now.digest();
        match self.file {
            None => Ok(is_same),
            Some(file) if is_same && file.changed.is_some() && file.changed == now.changed() => Ok(true),
            Some(file) => Ok(checksum(base, key, now)? == Some(file.content)),
        }
    }
}

/// The lengths that a document of an array says, if the object is one. [`Error::Changed`] if it is another version by now.
fn lengths(base: &dyn Store, key: &str, version: ObjectVersion) -> Result<Option<Lengths>> {
    if !DOCUMENTS.contains(&key.rsplit('/').next().unwrap_or(key)) {
        return Ok(None);
    }
    match base.content(key, MAX_DOCUMENT_BYTES)? {
        Some(document) if document.info.version == version => Ok(Lengths::of_document(&document.bytes)),
        _ => Err(Error::Changed { key: key.to_owned() }),
    }
}

/// The checksum of an object in this version; `None` if it is another one by now.
fn checksum(base: &dyn Store, key: &str, version: ObjectVersion) -> Result<Option<u64>> {
    let Some(object) = base.open(key)?.filter(|object| object.version() == version) else { return Ok(None) };
    let checksum = checksum_of(object.as_ref())?;
    Ok(Some(checksum))
}

fn checksum_of(object: &dyn Object) -> Result<u64> {
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
    Ok(u64::from(one.finalize()) << 32 | u64::from(other))
}
