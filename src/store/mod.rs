//! Stores: where the documents, chunks and shards of a hierarchy are kept.
//!
//! A store maps keys (`"a/b/zarr.json"`, `"a/b/c/0/1"`: relative, `/`-separated, no empty segment, no
//! `.` or `..`; the root of the store is `""`) to objects. Spec: v3 core, "Stores". One file per kind of
//! store; `contract.rs` holds the tests: the core for every one of them, others for stores that have owners and modes, or
//! can be written. Uses `error` and `sys` only.
//!
//! A **remote** store ([`Store::is_remote`]) answers each request after a round trip, and many at a time: it overrides
//! [`Store::get_many`], [`Store::head_many`] and [`Object::read_ranges`], and callers ask in one batch for all that they may need.
//! It has no folders and no owners: [`Posix::of_object`] says what is shown instead. `remote/` (the feature `remote`, on by default)
//! reads and writes S3, Google Cloud Storage and Azure Blob Storage, and reads web servers. It transfers bytes ahead of their readers
//! ([`Store::will_need`]).
//!
//! Invariants: `None` means that the object is missing, and nothing else does (every other failure
//! is an error); every read is bounded by the caller; all ranges read from one [`Object`] come from
//! the same stored object, even when the key is replaced meanwhile.

mod ahead;
mod batch;
mod directory;
mod disk_cache;
mod form;
#[cfg(feature = "icechunk")]
mod icechunk;
mod info;
mod key;
mod memory;
mod open;
pub mod overlay;
mod readers;
mod references;
#[cfg(feature = "remote")]
mod remote;
mod remote_options;
mod traffic;
mod version;
pub mod versions;
mod writer;
mod zip;

#[cfg(test)]
mod contract;

use std::fs::File;
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::SystemTime;

pub use ahead::{Claim, MaybeClaim, Wanted};
pub use batch::{Content, GetReply, GetRequest};
pub use directory::{DirectoryStore, is_temporary_name};
pub use disk_cache::{
    DiskCache, DiskCacheOptions, Summary as DiskCacheSummary, Verified as DiskCacheVerified,
};
pub use form::{ArrayForm, Form};
#[cfg(feature = "icechunk")]
pub use icechunk::IcechunkStore;
pub use info::{FileId, Info, Posix, SET_GROUP};
pub use key::{is_key, join};
pub use memory::MemoryStore;
pub use open::{StoreOptions, local_path, open, open_overlay, open_with, snapshots};
pub use readers::{Audience, Readers};
pub use references::ReferenceStore;
#[cfg(feature = "remote")]
pub use remote::RemoteStore;
#[cfg(all(test, feature = "remote"))]
pub(crate) use remote::in_turns::Service as ServiceInTurns;
pub use remote_options::secrets::{
    note_passing_secret, note_secret, redacted, without_known_secrets, without_secrets,
};
pub use remote_options::{RemoteOptions, is_remote, is_repository};
pub use traffic::{DiskCacheCounts, Latencies, LatencyCounts, ReadCounts, Traffic};
pub use version::{ObjectVersion, VersionDigest};
pub use writer::{ObjectPart, Precondition, PutOptions, StagedFolder, Writer};
pub use zip::ZipStore;

use crate::error::{Error, Result};
use crate::memory::Buffer;
use key::{check_key, is_any_below, names_below};
use versions::Versions;

/// One name in a folder of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The last segment of the key. Names that cannot be part of one are left out of listings, with one warning.
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

/// One stored object, open: all reads see the same version.
pub trait Object: Send + Sync {
    /// The version that is open.
    fn version(&self) -> ObjectVersion;
    /// Size in bytes.
    fn size_bytes(&self) -> u64;
    /// Time of last change before it was opened, if known.
    fn modified(&self) -> Option<SystemTime>;
    /// The three, as [`Store::head`] tells them. Owner and mode are left out: they cost further calls.
    fn info(&self) -> Info {
        let (size_bytes, modified, version) = (self.size_bytes(), self.modified(), self.version());
        Info { size_bytes, modified, version, posix: None }
    }
    /// Fills `out` from `offset`. Fewer bytes there than asked for is an error (`UnexpectedEof`).
    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<()>;
    /// Fills each buffer from its offset, as [`Object::read_exact_at`] does. A store behind a network asks for all of them at
    /// once, and for near ones together.
    fn read_ranges(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        ranges.iter_mut().try_for_each(|(offset, out)| self.read_exact_at(*offset, out))
    }
    /// The bytes of a range, if the store has them in memory already.
    fn in_memory(&self, _range: &Range<u64>) -> Option<&[u8]> {
        None
    }
    /// All bytes of the object, if the store has them in memory of their own.
    fn whole(&self) -> Option<Arc<Buffer>> {
        None
    }
    /// As [`Object::read_exact_at`], if that does not block; otherwise `false`, with `out` undefined.
    fn try_read_at(&self, _offset: u64, _out: &mut [u8]) -> bool {
        false
    }
    /// The open file that has the object's bytes and no others, if it is one.
    fn file(&self) -> Option<&File> {
        None
    }
}

/// A store of objects by key.
pub trait Store: Send + Sync {
    /// Opens one object; `None` when there is none at this key (a folder is not an object).
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>>;

    /// As [`Store::open`], for a reader that begins with these bytes: a store behind a network transfers them with the same
    /// request. The object may be as old as the last [`Store::forget_transfers`], while [`Store::open`] opens the present
    /// one.
    fn open_for(&self, key: &str, _wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        self.open(key)
    }

    /// Begins to transfer bytes for which [`Store::open_for`] will be called, and returns at once. Ranges that are near each
    /// other in one object are transferred together, and share a claim.
    fn will_need(&self, wanted: &[(String, Wanted)]) -> Vec<MaybeClaim> {
        vec![None; wanted.len()]
    }

    /// What the store has asked of its service so far, if it has one.
    fn traffic(&self) -> Option<Traffic> {
        None
    }

    /// The most memory for bytes that are transferred ahead of their readers.
    fn transfer_limit_bytes(&self) -> u64 {
        0
    }

    /// Forgets what was transferred, or is on its way, of an object or of all below a folder: later readers get what is stored
    /// now.
    fn forget_transfers(&self, _key: &str) {}

    /// The whole object in one request; more than `limit_bytes` is an error, before anything is allocated.
    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<Content>>;

    /// The bytes of the whole object, as [`Store::content`] returns them.
    fn get(&self, key: &str, limit_bytes: u64) -> Result<Option<Vec<u8>>> {
        Ok(self.content(key, limit_bytes)?.map(|content| content.bytes))
    }

    /// Several objects, in the order of the requests. A store behind a network asks for many at a time.
    fn get_many(&self, requests: &[GetRequest]) -> Vec<Result<GetReply>> {
        let get = |request: &GetRequest| {
            if let Some(known) = request.known
                && self.head(&request.key)?.is_some_and(|info| info.version == known)
            {
                return Ok(GetReply::Unchanged);
            }
            let content = self.content(&request.key, request.limit_bytes)?;
            Ok(content.map_or(GetReply::Missing, GetReply::Content))
        };
        requests.iter().map(get).collect()
    }

    /// Size, time and version of an object or a folder (`""` is the root), with owner and mode where there are such.
    fn head(&self, key: &str) -> Result<Option<Info>>;

    /// As [`Store::head`], for a key at which a folder cannot be, or does not count: a store whose folders are only prefixes of
    /// keys need not look for one.
    fn head_object(&self, key: &str) -> Result<Option<Info>> {
        self.head(key)
    }

    /// As [`Store::head_object`] for several keys, in their order. A store behind a network asks for many at a time.
    fn head_many(&self, keys: &[&str]) -> Vec<Result<Option<Info>>> {
        keys.iter().map(|key| self.head_object(key)).collect()
    }

    /// Whether each request crosses a network. Then several requests at once take no longer than one, and a caller asks in
    /// one batch for all that it may need. Folders are only prefixes of keys: they have no owner, mode or identity.
    fn is_remote(&self) -> bool {
        false
    }

    /// Whether nothing excludes other writers of an object, even while an array is locked. Then an object replaces only the
    /// version that its unwritten bytes came from.
    fn lacks_locks(&self) -> bool {
        self.is_remote()
    }

    /// What tells this store from another one that took its place, in every process; `None` if nothing does.
    fn identity(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// When the object at a key was made, in a store that knows it: its other times can be set to any value.
    fn made_at(&self, _key: &str) -> Result<Option<SystemTime>> {
        Ok(None)
    }

    /// The names directly below a folder, sorted; empty when the folder is missing. [`Error::Unlisted`] where the service does not
    /// say what is in it.
    fn list(&self, folder: &str) -> Result<Vec<Entry>>;

    /// As [`Store::list`], one name at a time and unordered, until `each` stops it: the names are never all in memory. Before an
    /// [`Error::Unlisted`], `each` has got the names that are known all the same.
    fn each_name(&self, folder: &str, each: &mut dyn FnMut(Entry) -> ControlFlow<()>) -> Result<()> {
        let _ = self.list(folder)?.into_iter().try_for_each(each);
        Ok(())
    }

    /// Why the last listing of a folder left out a folder that may be a node, if it did: its name cannot be a key.
    fn left_out(&self, _folder: &str) -> Option<String> {
        None
    }

    /// Free space of the filesystem that the store is on.
    fn statfs(&self) -> Result<StatFs>;

    /// The user's name for the store: its path or URL.
    fn describe(&self) -> String;

    /// The store with the permissions of the readers of the array at `path`: an object that they could not read themselves is
    /// an error (`EACCES`). `None` where only this program's own permissions count.
    fn for_audience(&self, _path: &str, _audience: &Arc<Audience>) -> Option<Arc<dyn Store>> {
        None
    }

    /// The store for readers and writers of one array, where it keeps objects that may be of another form of the array than the
    /// present one: that object is an error. So is the array, if a document of another form is hidden by its own.
    fn of_array(&self, _array: &ArrayForm<'_>) -> Result<Option<Arc<dyn Store>>> {
        Ok(None)
    }

    /// The writing half, where the kind of store has one.
    fn writer(&self) -> Option<&dyn Writer> {
        None
    }

    /// The half that has snapshots and branches, where the kind of store keeps versions.
    fn versions(&self) -> Option<&dyn Versions> {
        None
    }

    /// The store as an overlay, if it is one.
    fn as_overlay(&self) -> Option<&overlay::OverlayStore> {
        None
    }
}

/// All bytes of an object; its size is checked before anything is allocated.
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

/// As [`read_whole`], with what the object tells of itself.
fn read_content(object: &dyn Object, key: &str, limit_bytes: u64) -> Result<Content> {
    Ok(Content { bytes: read_whole(object, key, limit_bytes)?, info: object.info() })
}

/// The bytes of `content` from `offset` into `out`; fewer than asked for is `UnexpectedEof`.
fn copy_range(content: &[u8], offset: u64, out: &mut [u8], key: &str) -> Result<()> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let end = start.saturating_add(out.len());
    match content.get(start..end) {
        Some(range) => out.copy_from_slice(range),
        None => return Err(Error::store(key, "read", io::Error::from(io::ErrorKind::UnexpectedEof))),
    }
    Ok(())
}

/// [`Store::list`] for a store that finds names one at a time.
fn sorted_names(store: &impl Store, folder: &str) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    store.each_name(folder, &mut |entry| {
        entries.push(entry);
        ControlFlow::Continue(())
    })?;
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}
