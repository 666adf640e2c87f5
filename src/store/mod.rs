//! Stores: where the documents, chunks and shards of a hierarchy are kept.
//!
//! A store maps keys (`"a/b/zarr.json"`, `"a/b/c/0/1"`: relative, `/`-separated, no empty segment, no
//! `.` or `..`; the root of the store is `""`) to objects. Spec: v3 core, "Stores". One file per kind of
//! store; `contract.rs` holds the tests: the core for every one of them, others for stores that have owners and modes, or
//! can be written. Uses `error` and `sys` only.
//!
//! A **remote** store ([`Store::remote`]) answers each request after a round trip, and many at a time: callers ask in one batch for
//! all that they may need ([`Remote::get_many`], [`Remote::head_many`], [`Object::read_ranges`]).
//! It has no folders and no owners: [`Posix::of_object`] says what is shown instead. `remote/` (the feature `remote`, on by default)
//! reads and writes S3, Google Cloud Storage and Azure Blob Storage, and reads web servers. It transfers bytes ahead of their readers
//! ([`Remote::will_need`]).
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
mod object;
mod open;
mod options;
pub mod overlay;
mod readers;
mod references;
#[cfg(feature = "remote")]
mod remote;
mod remote_options;
mod targets;
mod traffic;
mod version;
pub mod versions;
mod writer;
mod zip;

#[cfg(test)]
mod contract;

use std::any::Any;
use std::ops::ControlFlow;
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
pub(crate) use object::read_whole;
pub use object::{Entry, Object, StatFs};
use object::{copy_range, read_content};
pub use open::{open, open_overlay, open_with, snapshots};
pub use options::{StoreOptions, local_path};
pub use readers::{Audience, Readers};
pub use references::ReferenceStore;
#[cfg(feature = "remote")]
pub use remote::RemoteStore;
#[cfg(all(test, feature = "remote"))]
pub(crate) use remote::{in_turns::Service as ServiceInTurns, scripted};
pub use remote_options::secrets::{
    note_passing_secret, note_secret, redacted, without_known_secrets, without_secrets,
};
pub use remote_options::{RemoteOptions, is_remote, is_repository};
pub use traffic::{DiskCacheCounts, Latencies, LatencyCounts, ReadCounts, Traffic};
pub use version::{ObjectVersion, VersionDigest};
pub use writer::{Announce, ObjectPart, Precondition, PutOptions, StagedFolder, Writer};
pub use zip::ZipStore;

use crate::error::Result;
use key::{check_key, is_any_below, names_below};
use versions::Published;

/// A store of objects by key.
pub trait Store: Send + Sync {
    /// Opens one object; `None` when there is none at this key (a folder is not an object).
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>>;

    /// The whole object in one request; more than `limit_bytes` is an error, before anything is allocated.
    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<Content>>;

    /// The bytes of the whole object, as [`Store::content`] returns them.
    fn get(&self, key: &str, limit_bytes: u64) -> Result<Option<Vec<u8>>> {
        Ok(self.content(key, limit_bytes)?.map(|content| content.bytes))
    }

    /// Size, time and version of an object or a folder (`""` is the root), with owner and mode where there are such.
    fn head(&self, key: &str) -> Result<Option<Info>>;

    /// As [`Store::head`], for a key at which a folder cannot be, or does not count: a store whose folders are only prefixes of
    /// keys need not look for one.
    fn head_object(&self, key: &str) -> Result<Option<Info>> {
        self.head(key)
    }

    /// Whether nothing excludes other writers of an object, even while an array is locked. Then an object replaces only the
    /// version that its unwritten bytes came from.
    fn lacks_locks(&self) -> bool {
        self.remote().is_some()
    }

    /// What tells this store from another one that took its place, in every process; `None` if nothing does.
    fn identity(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// When the object at a key was made, in a store that knows it: its other times can be set to any value.
    fn made_at(&self, _key: &str) -> Result<Option<SystemTime>> {
        Ok(None)
    }

    /// The names directly below a folder, sorted; empty when the folder is missing.
    /// [`Unlisted`](crate::error::Error::Unlisted) where the service does not say what is in it.
    fn list(&self, folder: &str) -> Result<Vec<Entry>>;

    /// As [`Store::list`], one name at a time and unordered, until `each` stops it: the names are never all in memory. Before an
    /// [`Unlisted`](crate::error::Error::Unlisted), `each` has got the names that are known all the same.
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

    /// What the store can do because it is behind a network, if it is. Then each request takes a round trip, several at once take
    /// no longer than one, and folders are only prefixes of keys: they have no owner, mode or identity.
    fn remote(&self) -> Option<&dyn Remote> {
        None
    }

    /// The writing half, where the kind of store has one.
    fn writer(&self) -> Option<&dyn Writer> {
        None
    }

    /// The half that has snapshots and branches, where the kind of store keeps versions.
    fn versions(&self) -> Option<&dyn Versions> {
        None
    }

    /// The [`overlay::OverlayStore`], if the store is one: see [`overlay::OverlayStore::of`].
    fn as_overlay(&self) -> Option<&dyn Any> {
        None
    }
}

/// The half of a store behind a network: it asks for many objects at a time, and transfers bytes ahead of their readers.
pub trait Remote: Store {
    /// As [`Store::open`], for a reader that begins with these bytes, which are transferred with the same request. The
    /// object may be as old as the last [`Remote::forget_transfers`], while [`Store::open`] opens the present one.
    fn open_for(&self, key: &str, _wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        self.open(key)
    }

    /// Several objects at once, in the order of the requests.
    fn get_many(&self, requests: &[GetRequest]) -> Vec<Result<GetReply>> {
        requests.iter().map(|request| get_one(self, request)).collect()
    }

    /// [`Store::head_object`] of several keys at once, in their order.
    fn head_many(&self, keys: &[&str]) -> Vec<Result<Option<Info>>> {
        keys.iter().map(|key| self.head_object(key)).collect()
    }

    /// Begins to transfer bytes for which [`Remote::open_for`] will be called, and returns at once. Ranges that are near each
    /// other in one object are transferred together, and share a claim.
    fn will_need(&self, wanted: &[(String, Wanted)]) -> Vec<MaybeClaim> {
        vec![None; wanted.len()]
    }

    /// The most memory for bytes that are transferred ahead of their readers.
    fn transfer_limit_bytes(&self) -> u64 {
        0
    }

    /// Forgets what was transferred, or is on its way, of an object or of all below a folder: later readers get what is stored
    /// now.
    fn forget_transfers(&self, _key: &str) {}

    /// What the store has asked of its service so far.
    fn traffic(&self) -> Option<Traffic> {
        None
    }
}

fn get_one<S: Store + ?Sized>(store: &S, request: &GetRequest) -> Result<GetReply> {
    if let Some(known) = request.known
        && store.head(&request.key)?.is_some_and(|info| info.version == known)
    {
        return Ok(GetReply::Unchanged);
    }
    let content = store.content(&request.key, request.limit_bytes)?;
    Ok(content.map_or(GetReply::Missing, GetReply::Content))
}

/// What callers ask of any store, which only a remote one has a way of its own for.
impl dyn Store + '_ {
    /// Whether each request crosses a network.
    pub fn is_remote(&self) -> bool {
        self.remote().is_some()
    }

    /// As [`Remote::open_for`]; a store that is not remote transfers nothing ahead.
    pub fn open_for(&self, key: &str, wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        match self.remote() {
            Some(remote) => remote.open_for(key, wanted),
            None => self.open(key),
        }
    }

    /// Several objects, in the order of the requests; of a remote store at once.
    pub fn get_many(&self, requests: &[GetRequest]) -> Vec<Result<GetReply>> {
        if let Some(remote) = self.remote() {
            return remote.get_many(requests);
        }
        requests.iter().map(|request| get_one(self, request)).collect()
    }

    /// [`Store::head_object`] of several keys, in their order; of a remote store at once.
    pub fn head_many(&self, keys: &[&str]) -> Vec<Result<Option<Info>>> {
        match self.remote() {
            Some(remote) => remote.head_many(keys),
            None => keys.iter().map(|key| self.head_object(key)).collect(),
        }
    }

    /// As [`Remote::forget_transfers`].
    pub fn forget_transfers(&self, key: &str) {
        if let Some(remote) = self.remote() {
            remote.forget_transfers(key);
        }
    }
}

/// The half of a store that has snapshots and branches.
pub trait Versions: Send + Sync {
    /// The branch that the store follows; `None` where a tag or a snapshot is shown.
    fn branch(&self) -> Option<&str>;

    /// The ID of the snapshot that is shown.
    fn snapshot(&self) -> String;

    /// A transaction over the newest snapshot of a branch.
    fn begin(&self, branch: &str) -> Result<Box<dyn Transaction>>;

    /// The snapshot that carries a mark, among the recent ones of a branch.
    fn find_mark(&self, branch: &str, mark: &str) -> Result<Option<String>>;

    /// Shows the newest snapshot of a branch from now on, to every reader, whatever was shown before: a commit to another
    /// branch, or over a tag, has the store go on there. An object that is open stays as it is.
    fn follow(&self, branch: &str) -> Result<()>;
}

/// A snapshot to be. Reads see the snapshot that it begins from, and what was written into the transaction since;
/// [`Store::writer`] is there. Nobody else sees anything of it before [`Transaction::commit`]. One that is dropped is gone.
pub trait Transaction: Store {
    /// Publishes all that was written as one snapshot of the branch, which carries the mark. After an error the outcome may be
    /// unknown: [`Versions::find_mark`] tells.
    fn commit(self: Box<Self>, message: &str, mark: &str) -> Result<Published>;
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
