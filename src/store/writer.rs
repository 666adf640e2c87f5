//! The writing half of a store: objects are replaced whole, so that a reader sees each one old or new.
//!
//! Uses `error` only. Two steps make a change durable: [`Writer::put`] has the bytes on the disk before they get their
//! name (a file that was renamed before its data were written can be empty after a power cut), and
//! [`Writer::sync`] makes the names durable.

use std::ops::Range;

use super::{Info, Object, ObjectVersion};
use crate::error::Result;

/// A part of an object that is assembled.
pub enum ObjectPart<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// A range of another object, copied without being decoded.
    Copy(&'a dyn Object, Range<u64>),
}

impl ObjectPart<'_> {
    /// Its length.
    pub fn size_bytes(&self) -> u64 {
        match self {
            ObjectPart::Bytes(bytes) => bytes.len() as u64,
            ObjectPart::Copy(_, range) => range.end - range.start,
        }
    }
}

/// Replaces and deletes objects.
pub trait Writer: Send + Sync {
    /// Puts an object in place of the one at the key, atomically. The bytes are durable when this returns, the
    /// name only after [`Writer::sync`]. Missing folders are created, but none above `within`, which must exist. An object
    /// that is replaced keeps its owner and mode; a new one, and new folders, get those of `like`.
    fn put(&self, key: &str, parts: &[ObjectPart<'_>], within: &str, like: &Info) -> Result<ObjectVersion>;

    /// Removes an object; returns whether it existed. Durable after [`Writer::sync`].
    fn delete(&self, key: &str) -> Result<bool>;

    /// Makes the names of objects that were put or deleted durable, with the folders created for them below `within`.
    fn sync(&self, keys: &[String], within: &str) -> Result<()>;

    /// Locks a folder, or an object as it is now, against other writers, in this process or another, until the returned value
    /// is dropped. `None` when another writer holds the lock, or has just replaced the object.
    fn lock(&self, key: &str) -> Result<Option<Box<dyn Send + Sync>>>;

    /// Fails with `Stale` where another store has replaced this one.
    fn check_place(&self) -> Result<()> {
        Ok(())
    }

    /// Sets an object's modification time to now, if it is still this version; `None` where it changed or is gone.
    fn touch(&self, key: &str, version: ObjectVersion) -> Result<Option<ObjectVersion>>;

    /// Removes the unfinished files of dead writers in a folder; returns how many. Files of a living writer stay.
    fn remove_unfinished(&self, folder: &str) -> Result<u64>;
}
