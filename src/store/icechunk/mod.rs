//! Repositories of Icechunk: stores that keep versions. The feature `icechunk`.
//!
//! Spec: <https://icechunk.io/en/stable/reference/spec/>. A repository is a folder or a prefix at a service. It has
//! **snapshots** (the documents of all nodes), **manifests** (the places of chunks) and objects with chunks. Branches and tags
//! name snapshots. The crate `icechunk` reads and writes snapshots and manifests (`repository.rs`), through the stores of this
//! program (`storage.rs`). The bytes of chunks come from those stores directly (`objects.rs`), so that ranges of shards,
//! transfers ahead of readers, the disk cache and the memory limits work as in other stores. `snapshot.rs` finds what is at a
//! key, `sources.rs` finds the users who may read all files that it comes from, and `transaction.rs` writes.
//!
//! Invariants: all reads see one snapshot until [`Versions::follow`]. A chunk that a manifest names and that cannot be read is
//! an error and never a missing chunk.

mod failure;
mod key;
mod objects;
mod open;
mod repository;
mod snapshot;
mod sources;
mod storage;
mod transaction;

use std::collections::HashSet;
use std::ops::{Add, ControlFlow};
use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};

use self::key::{DOCUMENT, Key};
use self::objects::{ALL, FindResult, FoundObject, Objects, folder_info};
use self::repository::{Repository, Snapshot};
use self::snapshot::{ChunkPlace, Documents, find, manifests, snapshot_file};
use self::sources::{ArrayUsers, FileChecks, Sources};
use self::transaction::{MARK, MarkedTransaction};
use super::readers::Audience;
use super::targets;
use super::targets::object::range_in_target;
use super::versions::{Transaction, Versions};
use super::{
    GetReply, GetRequest, Info, ListEntry, MaybeClaim, Object, ObjectContent, Posix, Remote, StatFs, Store,
    Traffic, Wanted, check_key, join, read_content,
};
use crate::error::Result;

pub(super) use self::open::snapshots;

/// The most snapshots of a branch that are searched for a mark.
const SNAPSHOTS_SEARCHED: usize = 1000;

/// The most manifests of an array whose permissions restrict the array's document. Other manifests are checked when a chunk is
/// read.
const MANIFESTS_LOOKED_AT: usize = 64;

/// A repository that shows one snapshot, and is written by transactions.
pub struct IcechunkStore {
    shared: Arc<SharedRepository>,
    /// The users who get what this program reads, if there are others.
    users: Option<Arc<ArrayUsers>>,
}

struct SharedRepository {
    repository: Arc<Repository>,
    objects: Arc<Objects>,
    shown: RwLock<Arc<ShownSnapshot>>,
    /// The files that answers come from, if the repository is on this machine.
    sources: Option<Sources>,
    /// The branch that is followed.
    branch: Option<String>,
    for_others: bool,
}

/// The content of the snapshot at a key.
struct KeyAnswer<'a> {
    key: &'a str,
    found: Option<ChunkPlace>,
    /// The manifests that it comes from, if they have to be known.
    manifests: Vec<String>,
}

/// The snapshot that is shown.
struct ShownSnapshot {
    snapshot: Snapshot,
    /// The documents, found when a folder is listed for the first time.
    documents: Mutex<Option<Arc<Documents>>>,
}

impl ShownSnapshot {
    fn new(snapshot: Snapshot) -> Arc<Self> {
        Arc::new(ShownSnapshot { snapshot, documents: Mutex::default() })
    }

    fn documents(&self, repository: &Repository) -> Result<Arc<Documents>> {
        let mut documents = self.documents.lock();
        if let Some(documents) = &*documents {
            return Ok(Arc::clone(documents));
        }
        let found = Arc::new(repository.wait(Documents::read(&self.snapshot.session))?);
        *documents = Some(Arc::clone(&found));
        Ok(found)
    }
}

impl IcechunkStore {
    fn shown(&self) -> Arc<ShownSnapshot> {
        Arc::clone(&self.shared.shown.read())
    }

    /// Finds what is at keys of the snapshot that is shown.
    fn find_all<'a>(&self, keys: &[&'a str], operation: &'static str) -> Vec<FindResult<'a>> {
        let shown = self.shown();
        let (session, time) = (&shown.snapshot.session, shown.snapshot.time);
        let posix = self.shared.objects.posix;
        let users = self.checked_users();
        let find = |key: &&'a str| {
            let key = *key;
            async move {
                check_key(key, operation)?;
                let found = find(session, key, operation).await?;
                // That a chunk is missing also comes from a manifest.
                let is_checked = users.is_some() && is_chunk(key);
                let manifests = if is_checked { manifests(session, key).await? } else { Vec::new() };
                Ok(KeyAnswer { key, found, manifests })
            }
        };
        let found = self.shared.repository.wait(join_all(keys.iter().map(find)));
        let (snapshot, mut checked) = (snapshot_file(session), HashSet::new());
        let place = |answer: Result<KeyAnswer<'a>>| {
            let KeyAnswer { key, found, manifests } = answer?;
            if let Some(users) = users.filter(|_| is_chunk(key)) {
                users.check(key, &files(&snapshot, &manifests), &mut checked)?;
            }
            Ok(found.map(|found| FoundObject { key, found, time, posix }))
        };
        found.into_iter().map(place).collect()
    }

    /// Returns the users, if they may not be able to read the files of the repository.
    fn checked_users(&self) -> Option<&ArrayUsers> {
        self.users.as_deref().filter(|_| self.shared.sources.is_some())
    }

    /// Returns owner and mode of a document or a folder of the snapshot, with the permissions of users who may read all files
    /// that it comes from; `None` at a service.
    fn posix(&self, key: &str) -> Result<Option<Posix>> {
        let Some(sources) = &self.shared.sources else { return Ok(None) };
        self.posix_in(&self.shown(), &mut sources.checks(), key)
    }

    fn posix_in(&self, shown: &ShownSnapshot, look: &mut FileChecks<'_>, key: &str) -> Result<Option<Posix>> {
        // An array's file shows its chunks. Users who may not read a manifest cannot open the file, because a chunk that one
        // reader may not read is an error for all.
        let session = &shown.snapshot.session;
        let mut manifests = self.shared.repository.wait(manifests(session, key))?;
        manifests.truncate(MANIFESTS_LOOKED_AT);
        look.posix(key, &files(&snapshot_file(session), &manifests))
    }

    fn find<'a>(&self, key: &'a str, operation: &'static str) -> Result<Option<FoundObject<'a>>> {
        self.find_all(&[key], operation).pop().unwrap_or(Ok(None))
    }

    fn open_found(
        &self,
        place: FoundObject<'_>,
        wanted: &Wanted,
        is_present: bool,
    ) -> Result<Box<dyn Object>> {
        self.shared.objects.open(place, wanted, is_present, self.users.as_deref())
    }

    /// Returns the known remote stores with the bytes of chunks.
    fn remote_stores(&self) -> Vec<Arc<dyn Store>> {
        let own = Some(&self.shared.objects.store).filter(|store| store.is_remote());
        own.into_iter().cloned().chain(self.shared.objects.targets.remote_stores()).collect()
    }
}

fn is_chunk(key: &str) -> bool {
    matches!(Key::parse(key), Key::Chunk(..))
}

/// Returns the files that an answer about a snapshot comes from.
fn files<'a>(snapshot: &'a str, manifests: &'a [String]) -> Vec<&'a str> {
    std::iter::once(snapshot).chain(manifests.iter().map(String::as_str)).collect()
}

impl Store for IcechunkStore {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        let found = self.find(key, "open")?;
        found.map(|place| self.open_found(place, &ALL, true)).transpose()
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>> {
        let Some(place) = self.find(key, "read")? else { return Ok(None) };
        let object = self.open_found(place, &Wanted::Whole { at_most: limit_bytes }, true)?;
        let content = read_content(object.as_ref(), key, limit_bytes)?;
        // A document needs no request to a service or to the file of a chunk.
        let posix =
            if is_chunk(key) { self.head(key)?.and_then(|info| info.posix) } else { self.posix(key)? };
        Ok(Some(ObjectContent { info: Info { posix, ..content.info }, ..content }))
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        if let Some(info) = self.head_object(key)? {
            return Ok(Some(info));
        }
        let shown = self.shown();
        let is_folder = key.is_empty() || shown.documents(&self.shared.repository)?.is_folder(key);
        Ok(if is_folder { Some(folder_info(self.posix(key)?, &shown.snapshot)) } else { None })
    }

    fn head_object(&self, key: &str) -> Result<Option<Info>> {
        self.head_many(&[key]).pop().unwrap_or(Ok(None))
    }

    fn remote(&self) -> Option<&dyn Remote> {
        let objects = &self.shared.objects;
        (objects.store.is_remote() || objects.targets.may_be_remote()).then_some(self)
    }

    fn lacks_locks(&self) -> bool {
        true
    }

    fn list(&self, folder: &str) -> Result<Vec<ListEntry>> {
        check_key(folder, "list")?;
        let (shown, repository) = (self.shown(), &self.shared.repository);
        let documents = shown.documents(repository)?;
        if let (Some(users), Some(array)) = (self.checked_users(), documents.array_at(folder)) {
            let session = &shown.snapshot.session;
            let manifests = repository.wait(manifests(session, &join(array, DOCUMENT)))?;
            users.check(folder, &files(&snapshot_file(session), &manifests), &mut HashSet::new())?;
        }
        repository.wait(documents.list(&shown.snapshot.session, folder))
    }

    fn each_name(&self, folder: &str, each: &mut dyn FnMut(ListEntry) -> ControlFlow<()>) -> Result<()> {
        let _ = self.list(folder)?.into_iter().try_for_each(each);
        Ok(())
    }

    fn statfs(&self) -> Result<StatFs> {
        self.shared.objects.store.statfs()
    }

    fn describe(&self) -> String {
        self.shared.repository.location.clone()
    }

    fn for_audience(&self, _path: &str, audience: &Arc<Audience>) -> Option<Arc<dyn Store>> {
        if !self.shared.for_others {
            return None;
        }
        let own = &self.shared.objects.store;
        let files = own.for_audience("", audience).unwrap_or_else(|| Arc::clone(own));
        let users = Some(Arc::new(ArrayUsers { audience: Arc::clone(audience), files }));
        Some(Arc::new(IcechunkStore { shared: Arc::clone(&self.shared), users }))
    }

    fn versions(&self) -> Option<&dyn Versions> {
        Some(self)
    }
}

impl Remote for IcechunkStore {
    fn open_for(&self, key: &str, wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        let found = self.find(key, "open")?;
        found.map(|place| self.open_found(place, wanted, false)).transpose()
    }

    fn get_many(&self, requests: &[GetRequest]) -> Vec<Result<GetReply>> {
        let get = |request: &GetRequest| self.content(&request.key, request.limit_bytes);
        requests.iter().map(|request| get(request).map(|content| request.reply(content))).collect()
    }

    fn head_many(&self, keys: &[&str]) -> Vec<Result<Option<Info>>> {
        let mut look = self.shared.sources.as_ref().map(Sources::checks);
        let shown = self.shown();
        let mut places = self.find_all(keys, "look at");
        for found in &mut places {
            if let (Ok(Some(place)), Some(look)) = (&mut *found, &mut look)
                && !is_chunk(place.key)
            {
                match self.posix_in(&shown, look, place.key) {
                    Ok(posix) => place.posix = posix,
                    Err(error) => *found = Err(error),
                }
            }
        }
        self.shared.objects.head_many(places, self.users.as_deref())
    }

    fn will_need(&self, wanted: &[(String, Wanted)]) -> Vec<MaybeClaim> {
        let keys: Vec<&str> = wanted.iter().map(|(key, _)| key.as_str()).collect();
        let found = self.find_all(&keys, "open");
        targets::will_need(found.into_iter().zip(wanted).map(|(found, (key, wanted))| {
            let Ok(Some(FoundObject { found, .. })) = found else { return None };
            let (target, range) = self.shared.objects.target(key, &found, self.users.as_deref()).ok()??;
            Some((target, range_in_target(wanted, Some(&range))))
        }))
    }

    fn transfer_limit_bytes(&self) -> u64 {
        let objects = &self.shared.objects;
        objects
            .store
            .remote()
            .map_or(0, Remote::transfer_limit_bytes)
            .max(objects.targets.transfer_limit_bytes())
    }

    /// Forgets transfers of other files only, since objects of the repository never change.
    fn forget_transfers(&self, key: &str) {
        let others = || self.shared.objects.targets.remote_stores();
        match self.find(key, "open") {
            Ok(Some(FoundObject { found: found @ ChunkPlace::Virtual { .. }, .. })) => {
                let target = self.shared.objects.target(key, &found, self.users.as_deref());
                if let Ok(Some((target, _))) = target {
                    target.store.forget_transfers(&target.key);
                }
            }
            Ok(Some(_)) => {}
            _ => others().iter().for_each(|store| store.forget_transfers("")),
        }
    }

    fn traffic(&self) -> Option<Traffic> {
        self.remote_stores().iter().filter_map(|store| store.remote()?.traffic()).reduce(Traffic::add)
    }
}

impl Versions for IcechunkStore {
    fn branch(&self) -> Option<&str> {
        self.shared.branch.as_deref()
    }

    fn snapshot(&self) -> String {
        self.shown().snapshot.session.snapshot_id().to_string()
    }

    fn begin(&self, branch: &str) -> Result<Box<dyn Transaction>> {
        let SharedRepository { repository, objects, .. } = self.shared.as_ref();
        let session = repository.writable(branch)?;
        Ok(Box::new(MarkedTransaction::new(Arc::clone(repository), Arc::clone(objects), session)))
    }

    fn find_mark(&self, branch: &str, mark: &str) -> Result<Option<String>> {
        self.shared.repository.find_property(branch, MARK, mark, SNAPSHOTS_SEARCHED)
    }

    fn follow(&self, branch: &str) -> Result<()> {
        let newest = self.shared.repository.newest(branch)?;
        if newest.session.snapshot_id() != self.shown().snapshot.session.snapshot_id() {
            *self.shared.shown.write() = ShownSnapshot::new(newest);
        }
        Ok(())
    }
}
