//! Stored objects, entries of listings, and statistics of a filesystem. What is known of an object: `info.rs`, `version.rs`; several at a
//! time: `batch.rs`. Uses `error`, `memory` and `sys`.

pub mod batch;
pub mod info;
pub mod version;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::store::{Info, ObjectContent, ObjectVersion};

/// A name in a folder of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEntry {
    /// The last part of the key. Names that cannot be part of a key are left out of listings, with one warning.
    pub name: String,
    /// Whether it is a folder (a prefix with something below it).
    pub is_folder: bool,
}

/// Space and inodes of the store's filesystem, as statfs(2) counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Unit of the block counts, in bytes.
    pub block_bytes: u32,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks for unprivileged users.
    pub blocks_available: u64,
    /// All inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
}

/// An open object: all reads see the same version.
pub trait Object: Send + Sync {
    /// Returns the version that is open.
    fn version(&self) -> ObjectVersion;
    /// Returns the size in bytes.
    fn size_bytes(&self) -> u64;
    /// Returns the time of the last change before it was opened, if known.
    fn modified(&self) -> Option<SystemTime>;
    /// Returns these three, as [`head`](crate::store::Store::head) does. Owner and mode are left out: they cost further calls.
    fn info(&self) -> Info {
        let (size_bytes, modified, version) = (self.size_bytes(), self.modified(), self.version());
        Info { size_bytes, modified, version, posix: None }
    }
    /// Fills `out` from `offset`. If there are fewer bytes, the error is `UnexpectedEof`.
    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<()>;
    /// Fills each buffer from its offset, as [`Object::read_exact_at`] does. A store behind a network requests all of them at
    /// once, and neighbouring ones together.
    fn read_ranges(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        ranges.iter_mut().try_for_each(|(offset, out)| self.read_exact_at(*offset, out))
    }
    /// Returns the bytes of a range, if the store has them in memory already.
    fn in_memory(&self, _range: &Range<u64>) -> Option<&[u8]> {
        None
    }
    /// Returns all bytes of the object, if the store has them in a buffer of their own.
    fn whole(&self) -> Option<Arc<Buffer>> {
        None
    }
    /// Fills `out` as [`Object::read_exact_at`] does, if that does not block. Otherwise returns `false`, with `out` undefined.
    fn try_read_at(&self, _offset: u64, _out: &mut [u8]) -> bool {
        false
    }
    /// Returns the open file that has exactly the object's bytes, if there is one.
    fn file(&self) -> Option<&File> {
        None
    }
}

/// Reads all bytes of an object. Its size is checked before anything is allocated.
pub(crate) fn read_whole(object: &dyn Object, key: &str, limit_bytes: u64) -> Result<Vec<u8>> {
    let size_bytes = object.size_bytes();
    if size_bytes > limit_bytes {
        let reason = format!("it has {size_bytes} bytes, more than the limit of {limit_bytes}");
        return Err(Error::store(key, "read", io::Error::new(io::ErrorKind::FileTooLarge, reason)));
    }
    let out_of_memory = || Error::store(key, "read", io::Error::from(io::ErrorKind::OutOfMemory));
    let length = usize::try_from(size_bytes).map_err(|_| out_of_memory())?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| out_of_memory())?;
    bytes.resize(length, 0);
    object.read_exact_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Reads all bytes of an object as [`read_whole`] does, with its size, time and version.
pub(in crate::store) fn read_content(
    object: &dyn Object,
    key: &str,
    limit_bytes: u64,
) -> Result<ObjectContent> {
    Ok(ObjectContent { bytes: read_whole(object, key, limit_bytes)?, info: object.info() })
}

/// Copies the bytes of `content` from `offset` into `out`. If there are fewer bytes, the error is `UnexpectedEof`.
pub(in crate::store) fn copy_range(content: &[u8], offset: u64, out: &mut [u8], key: &str) -> Result<()> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let end = start.saturating_add(out.len());
    match content.get(start..end) {
        Some(range) => out.copy_from_slice(range),
        None => return Err(Error::store(key, "read", io::Error::from(io::ErrorKind::UnexpectedEof))),
    }
    Ok(())
}
