//! The writing half of a store: objects are replaced whole, so that a reader sees each one old or new.
//!
//! Uses `error` only. Two steps make a change durable: [`Writer::put`] has the bytes on the disk before they get their
//! name (a file that was renamed before its data were written can be empty after a power cut), and
//! [`Writer::sync`] makes the names durable.

use std::fmt;
use std::ops::Range;

use super::{Info, Object, ObjectVersion, Posix, VersionDigest};
use crate::error::{Error, Result};

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

/// What must be at a key before it is changed. Otherwise nothing is changed, and the error is [`Error::Changed`].
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
    /// That the object is as it was found: in this version, or missing.
    pub fn found(version: Option<ObjectVersion>) -> Self {
        version.map_or(Precondition::Missing, Precondition::Version)
    }

    /// Fails unless the object at the key is as demanded.
    pub fn check(self, key: &str, now: impl FnOnce() -> Result<Option<ObjectVersion>>) -> Result<()> {
        if self == Precondition::Any || self == Precondition::found(now()?) {
            return Ok(());
        }
        Err(Error::Changed { key: key.to_owned() })
    }
}

/// How an object is put. An object store needs the precondition only.
#[derive(Clone, Copy, Debug)]
pub struct PutOptions<'a> {
    /// What is replaced.
    pub precondition: Precondition,
    /// The folder of the array or group that the object belongs to. It must exist; missing folders below it are created.
    pub within: &'a str,
    /// A new object, and new folders, get owner and mode from this document.
    pub like: &'a Info,
    /// Is told what will tell the object from every other one.
    pub announce: Option<Announce<'a>>,
}

/// Is called once the bytes of an object are complete, and before it gets its name, with a mark that only this put's object will
/// have ([`Writer::has_mark`]). An error ends the put. So a program that notes the mark durably knows its own object again after it
/// was killed.
#[derive(Clone, Copy)]
pub struct Announce<'a>(pub &'a (dyn Fn(VersionDigest) -> Result<()> + Sync));

impl fmt::Debug for Announce<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Announce")
    }
}

impl<'a> PutOptions<'a> {
    /// To replace whatever is there.
    pub fn new(within: &'a str, like: &'a Info) -> Self {
        PutOptions { precondition: Precondition::Any, within, like, announce: None }
    }

    /// Announces the mark of a put, where the caller wants to know it.
    pub(super) fn announce(&self, mark: VersionDigest) -> Result<()> {
        self.announce.map_or(Ok(()), |Announce(announce)| announce(mark))
    }
}

/// A folder that no reader sees.
pub struct StagedFolder {
    /// Its key.
    pub key: String,
    /// Tells others that its writer lives.
    pub lock: Box<dyn Send + Sync>,
}

/// Replaces and deletes objects. The other methods are for folders on disk: an object store, where a put is durable and
/// visible when it returns, keeps their defaults.
pub trait Writer: Send + Sync {
    /// Puts an object in place of the one at the key, atomically. The bytes are durable when this returns, the
    /// name only after [`Writer::sync`]. An object that is replaced keeps its owner and mode.
    ///
    /// An object store looks at the precondition in the same step. A folder on disk looks at what the new object has replaced, and
    /// puts that back if it is not what was demanded; where its filesystem cannot exchange names, it looks just before.
    fn put(&self, key: &str, parts: &[ObjectPart<'_>], options: &PutOptions<'_>) -> Result<ObjectVersion>;

    /// Whether an object in this version is the one that a put announced with this mark. A store that cannot tell says `false`.
    fn has_mark(&self, _key: &str, _version: ObjectVersion, _mark: VersionDigest) -> Result<bool> {
        Ok(false)
    }

    /// Removes an object; returns whether it existed. Durable after [`Writer::sync`].
    fn delete(&self, key: &str, precondition: Precondition) -> Result<bool>;

    /// Makes the names of objects that were put or deleted durable, with the folders created for them below `within`.
    fn sync(&self, _keys: &[String], _within: &str) -> Result<()> {
        Ok(())
    }

    /// Locks a folder, or an object as it is now, against other writers, in this process or another, until the returned value
    /// is dropped. `None` when another writer holds the lock, or has just replaced the object. A store without locks
    /// excludes nobody: preconditions find what others did.
    fn lock(&self, _key: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        Ok(Some(Box::new(())))
    }

    /// Fails with `Stale` where another store has replaced this one.
    fn check_place(&self) -> Result<()> {
        Ok(())
    }

    /// Sets an object's modification time to now, if it is still this version; `None` where it changed or is gone.
    /// A store without settable times leaves it as it is.
    fn touch(&self, _key: &str, version: ObjectVersion) -> Result<Option<ObjectVersion>> {
        Ok(Some(version))
    }

    /// Gives an object or a folder, if `owner` owns it, the owner, the group and the mode that a new one gets which is like this
    /// document. `false` where owners and modes are not this store's to set: objects in a bucket, and what is below an overlay.
    fn set_permissions(&self, _key: &str, _owner: u32, _like: &Posix) -> Result<bool> {
        Ok(false)
    }

    /// Whether [`Writer::rename_folder`] can give this folder another name.
    fn can_rename(&self, _folder: &str) -> Result<bool> {
        Ok(false)
    }

    /// Makes a folder in the folder `parent` that no reader sees, for a node that gets its name when it is complete. `None` in a
    /// store without folders: there a node begins with its main document. A folder whose writer has died is among what
    /// [`Writer::remove_unfinished`] removes.
    fn stage(&self, _parent: &str, _like: &Info) -> Result<Option<StagedFolder>> {
        Ok(None)
    }

    /// Gives a folder another name, in one step. Something at that name, other than an empty folder, is an error. Durable after
    /// [`Writer::sync`] of both names. Only for stores with folders.
    fn rename_folder(&self, from: &str, _to: &str) -> Result<()> {
        Err(Error::ReadOnly(format!("{from}: this store has no folders, and what it has cannot be renamed")))
    }

    /// Takes the name of a folder away in one step, then removes all that is in it. `false` in a store without folders. Durable
    /// after [`Writer::sync`].
    fn remove_folder(&self, _key: &str) -> Result<bool> {
        Ok(false)
    }

    /// Removes the unfinished files and folders of dead writers in a folder; returns how many. Those of a living writer stay.
    fn remove_unfinished(&self, _folder: &str) -> Result<u64> {
        Ok(0)
    }
}
