//! The writing half of a store: objects are replaced whole, so that a reader sees each one old or new.
//!
//! Uses `error` only. Two steps make a change durable. [`Writer::put`] writes the bytes to the disk before they get their name:
//! a file that is renamed before its data are written can be empty after a power cut. [`Writer::sync`] makes the names durable.

use std::fmt;
use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use super::{Info, Object, ObjectVersion, Posix, VersionDigest};
use crate::error::{Error, Result};

/// A part of an object that is put together.
pub enum ObjectPart<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// A range of another object, copied without being decoded.
    Copy(&'a dyn Object, Range<u64>),
}

impl ObjectPart<'_> {
    /// Returns the length of the part.
    pub fn size_bytes(&self) -> u64 {
        match self {
            ObjectPart::Bytes(bytes) => bytes.len() as u64,
            ObjectPart::Copy(_, range) => range.end - range.start,
        }
    }
}

/// What must be at a key before it is changed. If something else is there, nothing is changed, and the error is
/// [`Error::Changed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Anything, or nothing.
    Any,
    /// No object.
    Missing,
    /// This version of an object.
    Version(ObjectVersion),
}

impl Precondition {
    /// Demands that the object is as it was found: this version, or missing.
    pub fn found(version: Option<ObjectVersion>) -> Self {
        version.map_or(Precondition::Missing, Precondition::Version)
    }

    /// Fails unless the precondition holds.
    pub fn check(self, key: &str, now: impl FnOnce() -> Result<Option<ObjectVersion>>) -> Result<()> {
        if self == Precondition::Any || self == Precondition::found(now()?) {
            return Ok(());
        }
        Err(Error::Changed { key: key.to_owned() })
    }
}

/// Options for putting an object. An object store needs only the precondition.
#[derive(Clone, Copy, Debug)]
pub struct PutOptions<'a> {
    /// What must be at the key.
    pub precondition: Precondition,
    /// The folder of the array or group that the object belongs to. It must exist; missing folders below it are created.
    pub within: &'a str,
    /// The document from which a new object, and new folders, get owner and mode.
    pub like: &'a Info,
    /// A callback that gets the mark of the put.
    pub announce: Option<Announce<'a>>,
}

/// A callback that runs when the bytes of an object are complete, before it gets its name. It gets a mark that only this put's
/// object will have ([`Writer::has_mark`]). An error from it ends the put. A program that stores the mark durably recognizes
/// its own object after it was killed.
#[derive(Clone, Copy)]
pub struct Announce<'a>(pub &'a (dyn Fn(VersionDigest) -> Result<()> + Sync));

impl fmt::Debug for Announce<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Announce")
    }
}

impl<'a> PutOptions<'a> {
    /// Returns options that replace whatever is there.
    pub fn new(within: &'a str, like: &'a Info) -> Self {
        PutOptions { precondition: Precondition::Any, within, like, announce: None }
    }

    /// Announces the mark of a put, if the caller wants it.
    pub(super) fn announce(&self, mark: VersionDigest) -> Result<()> {
        self.announce.map_or(Ok(()), |Announce(announce)| announce(mark))
    }
}

/// A folder that no reader sees.
pub struct StagedFolder {
    /// Its key.
    pub key: String,
    /// The lock that shows other writers that this one is alive.
    pub lock: Box<dyn Send + Sync>,
}

/// Keeps locks for another process that continues the work of this one.
pub trait LockKeeper: Send + Sync {
    /// Keeps the lock of an open file, under a name.
    fn keep(&self, name: &str, file: BorrowedFd<'_>) -> io::Result<()>;

    /// Gives up the lock with this name, which was unlocked.
    fn release(&self, name: &str);

    /// Returns the file that the process before this one has locked, which is kept under this name.
    fn take(&self, name: &str) -> Option<OwnedFd>;
}

/// Returns the name under which the lock of a file is kept.
pub fn lock_name(file: &Metadata) -> String {
    format!("lock-{:x}-{:x}", file.dev(), file.ino())
}

/// The half of a store that replaces and deletes objects. The other methods are for folders on disk: an object store, where a
/// put is durable and visible when it returns, keeps their defaults.
pub trait Writer: Send + Sync {
    /// Puts an object in place of the one at the key, atomically. The bytes are durable when this returns, the
    /// name only after [`Writer::sync`]. An object that is replaced keeps its owner and mode.
    ///
    /// An object store checks the precondition in the same step. A folder on disk checks what the new object has replaced, and
    /// puts that back if the precondition does not hold; if its filesystem cannot exchange names, it checks just before.
    fn put(&self, key: &str, parts: &[ObjectPart<'_>], options: &PutOptions<'_>) -> Result<ObjectVersion>;

    /// Whether this version of an object is the one that a put announced with this mark. A store that cannot know returns
    /// `false`.
    fn has_mark(&self, _key: &str, _version: ObjectVersion, _mark: VersionDigest) -> Result<bool> {
        Ok(false)
    }

    /// Removes an object; returns whether it existed. Durable after [`Writer::sync`].
    fn delete(&self, key: &str, precondition: Precondition) -> Result<bool>;

    /// Makes the names of objects that were put or deleted durable, and the folders created for them below `within`.
    fn sync(&self, _keys: &[String], _within: &str) -> Result<()> {
        Ok(())
    }

    /// Makes the names of all objects durable that any process has put or deleted.
    fn sync_all(&self) -> Result<()> {
        Ok(())
    }

    /// Locks a folder, or an object as it is now, against other writers, in this process or another, until the returned value
    /// is dropped. Returns `None` if another writer holds the lock, or has just replaced the object. A store without locks
    /// excludes no other writer: preconditions find what others did.
    fn lock(&self, _key: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        Ok(Some(Box::new(())))
    }

    /// Fails with `Stale` if another store has replaced this one.
    fn check_place(&self) -> Result<()> {
        Ok(())
    }

    /// Sets an object's modification time to now, if it is still this version. Returns `None` if it changed or is gone. A store
    /// whose times cannot be set leaves it as it is.
    fn touch(&self, _key: &str, version: ObjectVersion) -> Result<Option<ObjectVersion>> {
        Ok(Some(version))
    }

    /// Gives an object or a folder that `owner` owns the owner, group and mode that a new one like this document would get.
    /// Returns `false` if the store does not set owners and modes: objects in a bucket, and the base of an overlay.
    fn set_permissions(&self, _key: &str, _owner: u32, _like: &Posix) -> Result<bool> {
        Ok(false)
    }

    /// Whether [`Writer::rename_folder`] can give this folder another name.
    fn can_rename(&self, _folder: &str) -> Result<bool> {
        Ok(false)
    }

    /// Creates a folder in the folder `parent` that no reader sees, for a node that gets its name when it is complete. Returns
    /// `None` in a store without folders: there a node begins with its main document. [`Writer::remove_unfinished`] removes a
    /// folder whose writer has died.
    fn stage(&self, _parent: &str, _like: &Info) -> Result<Option<StagedFolder>> {
        Ok(None)
    }

    /// Renames a folder, in one step. If the new name exists and is not an empty folder, it is an error. The change is durable
    /// after [`Writer::sync`] of both names. Only stores with folders have this.
    fn rename_folder(&self, from: &str, _to: &str) -> Result<()> {
        Err(Error::ReadOnly(format!("{from}: this store has no folders, so nothing in it can be renamed")))
    }

    /// Takes the name of a folder away in one step, then removes everything in it. Returns `false` in a store without folders.
    /// The change is durable after [`Writer::sync`].
    fn remove_folder(&self, _key: &str) -> Result<bool> {
        Ok(false)
    }

    /// Removes the unfinished files and folders of dead writers in a folder, and returns how many. Those of a living writer
    /// stay.
    fn remove_unfinished(&self, _folder: &str) -> Result<u64> {
        Ok(0)
    }
}
