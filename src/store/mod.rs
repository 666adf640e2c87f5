//! Stores: where the documents, chunks and shards of a hierarchy are kept.
//!
//! A store maps keys (`"a/b/zarr.json"`, `"a/b/c/0/1"`: relative, `/`-separated, no empty segment, no `.` or `..`; the root of
//! the store is `""`) to objects. Spec: v3 core, "Stores". Each kind of store has a file or a folder. `contract/` holds the
//! tests: a core that every store passes, and more for stores that have owners and modes, or that can be written. Uses `error`
//! and `sys` only.
//!
//! A **remote** store ([`Store::remote`]) answers each request after a round trip, and many requests at a time. Callers ask in
//! one batch for all that they may need ([`Remote::get_many`], [`Remote::head_many`], [`Object::read_ranges`]). It has no
//! folders and no owners; [`Posix::default_for_object`] is shown instead. `remote/` (the feature `remote`, on by default) reads and
//! writes S3, Google Cloud Storage and Azure Blob Storage, and reads web servers. It transfers bytes ahead of their readers
//! ([`Remote::will_need`]).
//!
//! Invariants: `None` means that the object is missing, and every other failure is an error. The caller bounds every read. All
//! ranges read from one [`Object`] come from the same stored object, even if the key is replaced meanwhile.

mod ahead;
mod catalogue;
mod directory;
mod disk_cache;
mod form;
#[cfg(feature = "icechunk")]
mod icechunk;
mod key;
mod memory;
mod object;
mod open;
mod options;
pub mod overlay;
mod pipeline;
mod readers;
mod references;
#[cfg(feature = "remote")]
mod remote;
mod remote_options;
mod targets;
mod traffic;
pub mod versions;
mod writer;
mod zip;

#[cfg(test)]
mod contract;

use std::any::Any;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

pub use ahead::{Claim, MaybeClaim, Wanted};
pub use catalogue::{
    CatalogueChange, CatalogueStore, MemberDefinition, MemberRights, MemberState, OpenedMember,
    ReadDefinitions, member_name,
};
pub use directory::{DirectoryStore, is_temporary_name};
pub use disk_cache::{
    DiskCache, DiskCacheOptions, DiskCacheSummary, DiskCacheVerified, finish_all as finish_disk_caches,
};
pub use form::{ArrayForm, Form};
#[cfg(feature = "icechunk")]
pub use icechunk::IcechunkStore;
pub use key::{is_key, join};
pub use memory::MemoryStore;
pub use object::batch::{GetReply, GetRequest, ObjectContent};
pub use object::info::{FileId, Info, Posix, SET_GROUP};
pub(crate) use object::read_whole;
pub use object::version::{ObjectVersion, VersionDigest};
pub use object::{ListEntry, Object, StatFs};
use object::{copy_range, read_content};
pub use open::{open, open_overlay, open_with, snapshots};
pub use options::{OverlayLocks, StoreOptions, local_path};
pub use pipeline::store_name;
pub use readers::{Audience, Readers};
pub use references::ReferenceStore;
#[cfg(feature = "remote")]
pub use remote::RemoteStore;
#[cfg(all(test, feature = "remote"))]
pub(crate) use remote::test_services::{in_turns::Service as ServiceInTurns, scripted};
pub use remote_options::secrets::{
    redacted, register_secret, register_temporary_secret, without_known_secrets, without_secrets,
};
pub use remote_options::{RemoteOptions, is_remote, is_repository};
pub use targets::stores::{LinkedStore, LinkedStores, LinkingDocument, info_narrowed};
pub use traffic::{DiskCacheCounts, Latencies, LatencyCounts, ReadCounts, Traffic};
pub use writer::{
    Announce, LockKeeper, ObjectPart, Precondition, PutOptions, StagedFolder, Writer, lock_name,
};
pub use zip::ZipStore;
pub use zip::archives::ArchivesStore;

use crate::error::Result;
use key::{check_key, is_any_below, names_below};
use versions::CommitOutcome;

/// A store of objects by key.
pub trait Store: Send + Sync {
    /// Opens an object. Returns `None` if there is no object at this key; a folder is not an object.
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>>;

    /// Reads the whole object in one request. An object of more than `limit_bytes` is an error before anything is allocated.
    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>>;

    /// Reads the bytes of the whole object, as [`Store::content`] does.
    fn get(&self, key: &str, limit_bytes: u64) -> Result<Option<Vec<u8>>> {
        Ok(self.content(key, limit_bytes)?.map(|content| content.bytes))
    }

    /// Returns size, time and version of an object or a folder (`""` is the root), with owner and mode if the store has them.
    fn head(&self, key: &str) -> Result<Option<Info>>;

    /// Returns what [`Store::head`] does, for a key where a folder cannot be or does not matter: a store whose folders are only
    /// prefixes of keys need not look for one.
    fn head_object(&self, key: &str) -> Result<Option<Info>> {
        self.head(key)
    }

    /// Whether other writers can change an object even while its array is locked. If so, a new object replaces only the version
    /// that its unwritten bytes came from.
    fn lacks_locks(&self) -> bool {
        self.remote().is_some()
    }

    /// Returns what distinguishes this store from another one that took its place, the same in every process; `None` if nothing
    /// does.
    fn identity(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Returns a text that changes with the definition of the member of a catalogue that the store is, the same in every process: what
    /// was written under another definition is not for this store.
    fn mark(&self) -> Option<String> {
        None
    }

    /// Returns when the object at a key was created, if the store knows it. Unlike the other times, this one cannot be set.
    fn created_at(&self, _key: &str) -> Result<Option<SystemTime>> {
        Ok(None)
    }

    /// Returns the names directly below a folder, sorted; empty if the folder is missing. Fails with
    /// [`Unlisted`](crate::error::Error::Unlisted) if the service does not list it.
    fn list(&self, folder: &str) -> Result<Vec<ListEntry>>;

    /// Calls `each` with the names directly below a folder, unordered, until it stops: the names are never all in memory.
    /// Before this fails with [`Unlisted`](crate::error::Error::Unlisted), `each` gets the names that are known.
    fn each_name(&self, folder: &str, each: &mut dyn FnMut(ListEntry) -> ControlFlow<()>) -> Result<()> {
        let _ = self.list(folder)?.into_iter().try_for_each(each);
        Ok(())
    }

    /// Returns why the last listing of a folder left out a name that may be a node, if it did: the name cannot be a key.
    fn left_out(&self, _folder: &str) -> Option<String> {
        None
    }

    /// Returns the free space of the filesystem that the store is on.
    fn statfs(&self) -> Result<StatFs>;

    /// Returns the user's name for the store: its path or URL.
    fn describe(&self) -> String;

    /// Returns the store with the permissions of the readers of the array at `path`: an object that they could not read
    /// themselves is an error (`EACCES`). Returns `None` if only this program's own permissions count.
    fn for_audience(&self, _path: &str, _audience: &Arc<Audience>) -> Option<Arc<dyn Store>> {
        None
    }

    /// Returns the store for readers and writers of one array, if the store may keep objects of another form of that array: an
    /// object of another form is an error. So is the array, if its document hides a document of another form.
    fn for_array(&self, _array: &ArrayForm<'_>) -> Result<Option<Arc<dyn Store>>> {
        Ok(None)
    }

    /// Returns what the store can do because it is behind a network, if it is. Then each request takes a round trip, several at
    /// once take no longer than one, and folders are only prefixes of keys, without owner, mode or identity.
    fn remote(&self) -> Option<&dyn Remote> {
        None
    }

    /// Returns the writing half, if the store has one.
    fn writer(&self) -> Option<&dyn Writer> {
        None
    }

    /// Has the locks of writers kept for another process from now on. A store without locks does nothing.
    fn keep_locks(&self, _keeper: &Arc<dyn LockKeeper>) {}

    /// Returns the half with snapshots and branches, if the store keeps versions.
    fn versions(&self) -> Option<&dyn Versions> {
        None
    }

    /// Returns the half of the store that makes its objects from arrays of other stores, if it does.
    fn composed(&self) -> Option<&dyn Composed> {
        None
    }

    /// Returns the half of the store that shows other stores as the folders of its root, if it does.
    fn catalogue(&self) -> Option<&dyn Catalogue> {
        None
    }

    /// Returns the [`overlay::OverlayStore`], if the store is one: see [`overlay::OverlayStore::of`].
    fn as_overlay(&self) -> Option<&dyn Any> {
        None
    }
}

/// The half of a store behind a network: it answers many requests at a time, and transfers bytes ahead of their readers.
pub trait Remote: Store {
    /// Opens an object for a reader that begins with these bytes, which are transferred with the same request. The object may
    /// be as old as the last [`Remote::forget_transfers`], while [`Store::open`] opens the current one.
    fn open_for(&self, key: &str, _wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        self.open(key)
    }

    /// Reads several objects at once. The replies are in the order of the requests.
    fn get_many(&self, requests: &[GetRequest]) -> Vec<Result<GetReply>> {
        requests.iter().map(|request| get_one(self, request)).collect()
    }

    /// Calls [`Store::head_object`] for several keys at once. The results are in the order of the keys.
    fn head_many(&self, keys: &[&str]) -> Vec<Result<Option<Info>>> {
        keys.iter().map(|key| self.head_object(key)).collect()
    }

    /// Starts to transfer bytes for which [`Remote::open_for`] will be called, and returns immediately. Ranges of one object
    /// that are near each other are transferred together and share a claim.
    fn will_need(&self, wanted: &[(String, Wanted)]) -> Vec<MaybeClaim> {
        vec![None; wanted.len()]
    }

    /// Returns the key of an object whose URL has a query, such as a signature; `None` if the store's objects have none.
    fn key_with_query(&self, _key: &str, _query: &str) -> Option<String> {
        None
    }

    /// Returns the limit on memory for bytes that are transferred ahead of their readers.
    fn transfer_limit_bytes(&self) -> u64 {
        0
    }

    /// Forgets what was transferred, or is being transferred, of an object or of everything below a folder: later readers get
    /// what is stored now.
    fn forget_transfers(&self, _key: &str) {}

    /// Returns the requests that the store has sent so far, and their replies.
    fn traffic(&self) -> Option<Traffic> {
        None
    }
}

/// The half of a store that shows other stores, its members, as the folders of its root.
pub trait Catalogue: Store {
    /// Returns the names of all members, sorted.
    fn names(&self) -> Vec<String>;

    /// Returns the store that has a path and everything below it, with the keys of the catalogue; `None` for the root, and for a path
    /// in no member. Does not wait for the member to be opened.
    fn store_at(&self, path: &str) -> Option<Arc<dyn Store>>;

    /// Returns what is known about a member, without waiting.
    fn state(&self, name: &str) -> Option<MemberState>;

    /// Returns what programs may do in a member.
    fn rights(&self, name: &str) -> MemberRights;

    /// Returns the mode of a member's folder, or of the file in its place. It admits only users with permission to search all folders above its store.
    fn root_mode(&self, name: &str, readers: Readers) -> u32;

    /// Returns the folder that takes what is written to a member, if it is an overlay.
    fn overlay(&self, name: &str) -> Option<PathBuf>;

    /// Returns the requests and replies of a remote member.
    fn traffic_of(&self, name: &str) -> Option<Traffic>;

    /// Returns the limit on memory for bytes that all members together transfer ahead of their readers.
    fn transfer_limit_bytes(&self) -> u64;

    /// Returns the definitions of the members as they are now, as one file. Another process can open the catalogue with it.
    fn text(&self) -> String;

    /// Reads the definitions again, for [`Catalogue::apply`]. Changes nothing.
    fn read_again(&self) -> Result<CatalogueChange>;

    /// Returns whether the definition of a member that was read last is another one than that of the member, or is gone.
    fn is_outdated(&self, name: &str) -> bool;

    /// Makes a member what its definition says that was read last. A member that is not outdated is not touched.
    fn apply(&self, name: &str);
}

/// The half of a store with objects that are made from arrays of other stores while they are read.
pub trait Composed: Store {
    /// Gives the store the engine of the arrays that read it (`array::Engine`), so that the arrays behind it use the same caches. The
    /// first one stays.
    fn share_engine(&self, engine: Arc<dyn Any + Send + Sync>);

    /// Begins a comparison of an array with the store: what [`Store::head_object`] then returns was looked up after this call.
    fn begin_comparison(&self, path: &str);

    /// Returns a number that changes, in all likelihood, when an element of the array at a path changes. `None` if the versions of the array's
    /// objects say that.
    fn content_version(&self, path: &str) -> Result<Option<u64>>;
}

fn get_one<S: Store + ?Sized>(store: &S, request: &GetRequest) -> Result<GetReply> {
    if let Some(known) = request.known
        && store.head(&request.key)?.is_some_and(|info| info.version == known)
    {
        return Ok(GetReply::Unchanged);
    }
    Ok(request.reply(store.content(&request.key, request.limit_bytes)?))
}

/// Requests to any store. A remote one answers them in its own way.
impl dyn Store + '_ {
    /// Whether each request crosses a network.
    pub fn is_remote(&self) -> bool {
        self.remote().is_some()
    }

    /// Returns the identity of a folder; `None` in a remote store, where folders are only prefixes of keys.
    pub fn folder_id(&self, path: &str) -> Result<Option<FileId>> {
        if self.is_remote() {
            return Ok(None);
        }
        Ok(self.head(path)?.and_then(|folder| folder.file()))
    }

    /// Calls [`Remote::open_for`]; a store that is not remote opens the object and transfers nothing ahead.
    pub fn open_for(&self, key: &str, wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        match self.remote() {
            Some(remote) => remote.open_for(key, wanted),
            None => self.open(key),
        }
    }

    /// Reads several objects, from a remote store at once. The replies are in the order of the requests.
    pub fn get_many(&self, requests: &[GetRequest]) -> Vec<Result<GetReply>> {
        if let Some(remote) = self.remote() {
            return remote.get_many(requests);
        }
        requests.iter().map(|request| get_one(self, request)).collect()
    }

    /// Calls [`Store::head_object`] for several keys, at a remote store at once. The results are in the order of the keys.
    pub fn head_many(&self, keys: &[&str]) -> Vec<Result<Option<Info>>> {
        match self.remote() {
            Some(remote) => remote.head_many(keys),
            None => keys.iter().map(|key| self.head_object(key)).collect(),
        }
    }

    /// Calls [`Remote::forget_transfers`], if the store is remote.
    pub fn forget_transfers(&self, key: &str) {
        if let Some(remote) = self.remote() {
            remote.forget_transfers(key);
        }
    }
}

/// The half of a store that has snapshots and branches.
pub trait Versions: Send + Sync {
    /// Returns the branch that the store follows; `None` if it shows a tag or a snapshot.
    fn branch(&self) -> Option<&str>;

    /// Returns the ID of the snapshot that is shown.
    fn snapshot(&self) -> String;

    /// Begins a transaction over the newest snapshot of a branch.
    fn begin(&self, branch: &str) -> Result<Box<dyn Transaction>>;

    /// Finds the snapshot that carries a mark, among the recent ones of a branch.
    fn find_mark(&self, branch: &str, mark: &str) -> Result<Option<String>>;

    /// Shows the newest snapshot of a branch to every reader from now on, whatever was shown before: after a commit to another
    /// branch, or over a tag, the store continues there. An open object stays as it is.
    fn follow(&self, branch: &str) -> Result<()>;
}

/// A snapshot that is not published yet. Reads see the snapshot that it began from and what was written into the transaction
/// since. [`Store::writer`] returns its writer. Other readers see nothing of it before [`Transaction::commit`]. A transaction
/// that is dropped leaves nothing.
pub trait Transaction: Store {
    /// Publishes all that was written as one snapshot of the branch, which carries the mark. After an error the outcome may be
    /// unknown: ask [`Versions::find_mark`].
    fn commit(self: Box<Self>, message: &str, mark: &str) -> Result<CommitOutcome>;
}

/// Returns the store that has a path: in a catalogue, the store of the member, with the same keys.
pub fn store_at(store: &Arc<dyn Store>, path: &str) -> Arc<dyn Store> {
    store.catalogue().and_then(|catalogue| catalogue.store_at(path)).unwrap_or_else(|| store.clone())
}

/// Implements [`Store::list`] for a store that finds names one at a time.
fn sorted_names(store: &impl Store, folder: &str) -> Result<Vec<ListEntry>> {
    let mut entries = Vec::new();
    store.each_name(folder, &mut |entry| {
        entries.push(entry);
        ControlFlow::Continue(())
    })?;
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}
