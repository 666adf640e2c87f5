//! The writing half of a store: objects are replaced whole, so that a reader sees each one old or new.
//!
//! Uses `error` only. Two steps make a change last: [`Writer::put`] has the bytes on the disk before they take their
//! name (a rename whose data were not yet written can come back from a power cut as an empty file), and
//! [`Writer::sync`] makes the names last.

use std::ops::Range;

use super::{Info, Object, Validator};
use crate::error::Result;

/// A piece of an object that is put together.
pub enum Part<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// A range of another object, copied without being decoded.
    Copy(&'a dyn Object, Range<u64>),
}

impl Part<'_> {
    /// Its length.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::Copy(_, range) => range.end - range.start,
        }
    }
}

/// Replaces and deletes objects.
pub trait Writer: Send + Sync {
    /// Puts an object in place of the one that the key has, in one step. The bytes are on the disk when this returns, the
    /// name only after [`Writer::sync`]. Folders on the way are made, but none above `within`, which must be there. An object
    /// that is replaced keeps its owner and mode; a new one, and new folders, get those of `like`.
    fn put(&self, key: &str, parts: &[Part<'_>], within: &str, like: &Info) -> Result<Validator>;

    /// Removes an object; whether there was one. Lasting after [`Writer::sync`].
    fn delete(&self, key: &str) -> Result<bool>;

    /// Makes the names of objects that were put and deleted last, with the folders made for them below `within`.
    fn sync(&self, keys: &[String], within: &str) -> Result<()>;

    /// Locks a folder, or an object as it is now, against other writers, in this process or another, until the answer is
    /// dropped. `None` when another has it, or has just replaced it.
    fn lock(&self, key: &str) -> Result<Option<Box<dyn Send + Sync>>>;

    /// Fails with `Stale` where another store has come into the place of this one.
    fn check_place(&self) -> Result<()> {
        Ok(())
    }

    /// Sets an object's time of change to now, if it still is this version; `None` where it is another or gone.
    fn touch(&self, key: &str, version: Validator) -> Result<Option<Validator>>;

    /// Removes what writers that died left unfinished in a folder; how many. What a living one is writing stays.
    fn remove_unfinished(&self, folder: &str) -> Result<u64>;
}
