//! Zip archives in a folder of stores: each is shown as a folder with the archive's members. Uses `zip/mod.rs`, `pipeline` and the traits
//! of `store`.
//!
//! A file is shown as a folder if its name is that of an archive (`pipeline::is_archive_name`), its own folder does not have a Zarr
//! document, and the archive has one at its root. Every other file stays a file, which is not a node. A damaged archive is an error
//! for every key in it. An archive that was replaced is read again at the next look at one of its keys.

use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::store::options::DOCUMENTS;
use crate::store::pipeline::is_archive_name;
use crate::store::{
    ArrayForm, Audience, GetReply, GetRequest, Info, ListEntry, LockKeeper, MaybeClaim, Object,
    ObjectContent, ObjectPart, ObjectVersion, Posix, Precondition, PutOptions, Remote, StagedFolder, StatFs,
    Store, Traffic, VersionDigest, Versions, Wanted, Writer, ZipStore, join,
};

/// The maximum number of keys for which the table remembers whether they are archives.
const MAX_KNOWN: usize = 256;
/// The documents that make an archive a store: those of v3 and v2, of v1, and of N5.
const ROOT_DOCUMENTS: [&str; 6] =
    ["zarr.json", ".zarray", ".zgroup", ".zmetadata", "meta", "attributes.json"];

/// A store that may be a folder of stores, with its archives as folders.
pub struct ArchivesStore {
    base: Arc<dyn Store>,
    /// What is known about keys that have the name of an archive.
    known: Mutex<HashMap<String, Known>>,
}

/// What is known about a key that has the name of an archive.
#[derive(Clone)]
enum Known {
    /// An archive that was opened.
    Archive(OpenArchive),
    /// Something else.
    Other,
}

/// An archive that was opened, and what its file was like.
#[derive(Clone)]
struct OpenArchive {
    store: Arc<ZipStore>,
    version: ObjectVersion,
    /// The mode for users who cannot reach the file, too. It may change with the folders that a link leads through.
    mode: Option<u32>,
}

impl OpenArchive {
    fn is_current(&self, info: &Info) -> bool {
        self.version == info.version && self.mode == info.posix.map(|posix| posix.mode)
    }
}

/// The requests of a batch that one store answers: the base, or an archive.
struct Batch<Q> {
    archive: Option<Arc<ZipStore>>,
    /// Their places in the batch.
    places: Vec<usize>,
    requests: Vec<Q>,
}

/// Where a key is stored.
enum Place<'a> {
    /// The store.
    Base,
    /// An archive, with the key in it.
    Archive(Arc<ZipStore>, &'a str),
}

impl ArchivesStore {
    /// Returns a store that shows the archives in `base`.
    pub fn new(base: Arc<dyn Store>) -> Self {
        ArchivesStore { base, known: Mutex::default() }
    }

    fn place<'a>(&self, key: &'a str) -> Result<Place<'a>> {
        let mut end = 0;
        for name in key.split('/') {
            let start = if end == 0 { 0 } else { end + 1 };
            end = start + name.len();
            if !is_archive_name(name) {
                continue;
            }
            let (Some(archive_key), Some(inside)) = (key.get(..end), key.get(end..)) else { break };
            if let Some(archive) = self.archive(archive_key)? {
                return Ok(Place::Archive(archive, inside.strip_prefix('/').unwrap_or(inside)));
            }
        }
        Ok(Place::Base)
    }

    /// Returns the archive at a key, if there is one that is shown as a folder.
    fn archive(&self, key: &str) -> Result<Option<Arc<ZipStore>>> {
        let known = self.known.lock().get(key).cloned();
        if self.base.is_remote() {
            // A changed archive is found by its members (`Error::Stale`).
            match known {
                Some(Known::Archive(archive)) => return Ok(Some(archive.store)),
                Some(Known::Other) => return Ok(None),
                None => {}
            }
        }
        let Some(info) = self.base.head_object(key)? else { return Ok(None) };
        match known {
            Some(Known::Archive(archive)) if archive.is_current(&info) => return Ok(Some(archive.store)),
            _ => {}
        }
        let found = self.find(key)?.map(Arc::new);
        let new = match &found {
            Some(archive) => Known::Archive(OpenArchive {
                store: Arc::clone(archive),
                version: info.version,
                mode: info.posix.map(|posix| posix.mode),
            }),
            None => Known::Other,
        };
        let mut known = self.known.lock();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(key.to_owned(), new);
        Ok(found)
    }

    fn find(&self, key: &str) -> Result<Option<ZipStore>> {
        let (folder, _) = key.rsplit_once('/').unwrap_or(("", key));
        let documents: Vec<String> = DOCUMENTS.iter().map(|name| join(folder, name)).collect();
        let documents = self.base.head_many(&documents.iter().map(String::as_str).collect::<Vec<_>>());
        if documents.iter().any(|document| matches!(document, Ok(Some(_)))) {
            return Ok(None);
        }
        let location = format!("{}/{key}", self.base.describe());
        match ZipStore::open_object(&self.base, key, "", location) {
            Ok(Some(archive)) if ROOT_DOCUMENTS.iter().any(|name| archive.has_object(name)) => {
                Ok(Some(archive))
            }
            Ok(_) => Ok(None),
            Err(error) if is_not_zip(&error) && !self.starts_like_zip(key) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn starts_like_zip(&self, key: &str) -> bool {
        let mut start = [0; 2];
        let object = self.base.open_for(key, &Wanted::Range(0..2)).ok().flatten();
        object.is_some_and(|object| object.read_exact_at(0, &mut start).is_ok()) && start == *b"PK"
    }

    /// Calls `ask` with the store that has a key, and the key in it. An archive that has changed is forgotten, so that the next
    /// reader opens it again.
    fn at<T>(&self, key: &str, ask: impl FnOnce(&dyn Store, &str) -> Result<T>) -> Result<T> {
        match self.place(key)? {
            Place::Base => ask(self.base.as_ref(), key),
            Place::Archive(archive, inside) => {
                let result = ask(archive.as_ref(), inside);
                self.forget_if_stale(&archive, &result);
                result
            }
        }
    }

    fn forget_if_stale<T>(&self, archive: &Arc<ZipStore>, result: &Result<T>) {
        if let Err(Error::Stale { .. }) = result {
            let is_it =
                |known: &Known| matches!(known, Known::Archive(it) if Arc::ptr_eq(&it.store, archive));
            self.known.lock().retain(|_, known| !is_it(known));
        }
    }

    /// Calls `ask` once for the store and once for each archive, each with the keys that it has, and returns the replies in the
    /// order of all keys.
    fn batch<Q, T>(
        &self,
        requests: &[Q],
        key: impl Fn(&Q) -> &str,
        inside: impl Fn(&Q, &str) -> Q,
        ask: impl Fn(&dyn Store, &[Q]) -> Vec<Result<T>>,
    ) -> Vec<Result<T>> {
        let mut replies: Vec<Option<Result<T>>> = requests.iter().map(|_| None).collect();
        let mut batches: Vec<Batch<Q>> = Vec::new();
        for (place, request) in requests.iter().enumerate() {
            let (archive, request) = match self.place(key(request)) {
                Ok(Place::Base) => (None, inside(request, key(request))),
                Ok(Place::Archive(archive, key)) => (Some(archive), inside(request, key)),
                Err(error) => {
                    if let Some(reply) = replies.get_mut(place) {
                        *reply = Some(Err(error));
                    }
                    continue;
                }
            };
            let is_it = |other: &Option<Arc<ZipStore>>| match (other, &archive) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (one, other) => one.is_none() && other.is_none(),
            };
            match batches.iter_mut().find(|batch| is_it(&batch.archive)) {
                Some(batch) => {
                    batch.places.push(place);
                    batch.requests.push(request);
                }
                None => batches.push(Batch { archive, places: vec![place], requests: vec![request] }),
            }
        }
        for Batch { archive, places, requests } in batches {
            let answered = match &archive {
                Some(archive) => ask(archive.as_ref(), &requests),
                None => ask(self.base.as_ref(), &requests),
            };
            for (place, reply) in places.into_iter().zip(answered) {
                if let Some(archive) = &archive {
                    self.forget_if_stale(archive, &reply);
                }
                if let Some(slot) = replies.get_mut(place) {
                    *slot = Some(reply);
                }
            }
        }
        let unanswered =
            |request: &Q| Error::store(key(request), "read", io::Error::other("the store did not answer"));
        replies
            .into_iter()
            .zip(requests)
            .map(|(reply, of)| reply.unwrap_or_else(|| Err(unanswered(of))))
            .collect()
    }

    fn base_writer(&self) -> Result<&dyn Writer> {
        let read_only = || Error::ReadOnly(format!("{} is not writable", self.base.describe()));
        self.base.writer().ok_or_else(read_only)
    }

    /// Returns the writing half of the store for a key. Fails if an archive has the key.
    fn writer_at(&self, key: &str) -> Result<&dyn Writer> {
        match self.place(key)? {
            Place::Archive(archive, _) => {
                Err(Error::ReadOnly(format!("{} is a zip archive, which is read-only", archive.describe())))
            }
            Place::Base => self.base_writer(),
        }
    }

    fn has_known(&self) -> bool {
        !self.known.lock().is_empty()
    }
}

/// Whether an error says that bytes are not a zip archive.
fn is_not_zip(error: &Error) -> bool {
    matches!(error, Error::Store { source, .. } if source.kind() == io::ErrorKind::InvalidData)
}

impl Store for ArchivesStore {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        self.at(key, |store, key| store.open(key))
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>> {
        self.at(key, |store, key| store.content(key, limit_bytes))
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        self.at(key, |store, key| store.head(key))
    }

    fn head_object(&self, key: &str) -> Result<Option<Info>> {
        self.at(key, |store, key| store.head_object(key))
    }

    fn lacks_locks(&self) -> bool {
        self.base.lacks_locks()
    }

    fn identity(&self) -> Result<Option<String>> {
        self.base.identity()
    }

    fn created_at(&self, key: &str) -> Result<Option<SystemTime>> {
        self.at(key, |store, key| store.created_at(key))
    }

    fn list(&self, folder: &str) -> Result<Vec<ListEntry>> {
        let place = self.place(folder)?;
        if let Place::Archive(archive, inside) = place {
            return archive.list(inside);
        }
        let mut entries = self.base.list(folder)?;
        if !entries.iter().any(|entry| DOCUMENTS.contains(&entry.name.as_str())) {
            for entry in entries.iter_mut().filter(|entry| is_archive_name(&entry.name)) {
                entry.is_folder = true;
            }
        }
        Ok(entries)
    }

    fn each_name(&self, folder: &str, each: &mut dyn FnMut(ListEntry) -> ControlFlow<()>) -> Result<()> {
        if let Place::Archive(archive, inside) = self.place(folder)? {
            return archive.each_name(inside, each);
        }
        // Whether these are archives is known at the end of the listing.
        let (mut archives, mut is_in_hierarchy, mut is_over) = (Vec::new(), false, false);
        let listed = self.base.each_name(folder, &mut |entry| {
            is_in_hierarchy |= DOCUMENTS.contains(&entry.name.as_str());
            if !entry.is_folder && is_archive_name(&entry.name) {
                archives.push(entry);
                return ControlFlow::Continue(());
            }
            let flow = each(entry);
            is_over = flow.is_break();
            flow
        });
        if !is_over && matches!(listed, Ok(()) | Err(Error::Unlisted { .. })) {
            let is_folder = !is_in_hierarchy;
            let _ = archives.into_iter().try_for_each(|entry| each(ListEntry { is_folder, ..entry }));
        }
        listed
    }

    fn left_out(&self, folder: &str) -> Option<String> {
        self.base.left_out(folder)
    }

    fn statfs(&self) -> Result<StatFs> {
        self.base.statfs()
    }

    fn describe(&self) -> String {
        self.base.describe()
    }

    /// An archive's owner and mode are shown for every member, so its readers are those of the array's document.
    fn for_audience(&self, path: &str, audience: &Arc<Audience>) -> Option<Arc<dyn Store>> {
        match self.place(path) {
            Ok(Place::Archive(..)) => None,
            _ => self.base.for_audience(path, audience),
        }
    }

    fn for_array(&self, array: &ArrayForm<'_>) -> Result<Option<Arc<dyn Store>>> {
        match self.place(array.path)? {
            Place::Archive(..) => Ok(None),
            Place::Base => self.base.for_array(array),
        }
    }

    fn remote(&self) -> Option<&dyn Remote> {
        self.base.is_remote().then_some(self)
    }

    fn writer(&self) -> Option<&dyn Writer> {
        self.base.writer().is_some().then_some(self)
    }

    fn keep_locks(&self, keeper: &Arc<dyn LockKeeper>) {
        self.base.keep_locks(keeper);
    }

    fn versions(&self) -> Option<&dyn Versions> {
        self.base.versions()
    }

    fn as_overlay(&self) -> Option<&dyn Any> {
        self.base.as_overlay()
    }
}

impl Remote for ArchivesStore {
    fn open_for(&self, key: &str, wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        self.at(key, |store, key| store.open_for(key, wanted))
    }

    fn get_many(&self, requests: &[GetRequest]) -> Vec<Result<GetReply>> {
        let inside = |request: &GetRequest, key: &str| GetRequest { key: key.to_owned(), ..request.clone() };
        self.batch(requests, |request| &request.key, inside, |store, requests| store.get_many(requests))
    }

    fn head_many(&self, keys: &[&str]) -> Vec<Result<Option<Info>>> {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        let ask = |store: &dyn Store, keys: &[String]| {
            store.head_many(&keys.iter().map(String::as_str).collect::<Vec<_>>())
        };
        self.batch(&keys, |key| key, |_, key| key.to_owned(), ask)
    }

    fn will_need(&self, wanted: &[(String, Wanted)]) -> Vec<MaybeClaim> {
        let ask = |store: &dyn Store, wanted: &[(String, Wanted)]| match store.remote() {
            Some(remote) => remote.will_need(wanted).into_iter().map(Ok).collect(),
            None => Vec::new(),
        };
        if !self.has_known() {
            return self
                .base
                .remote()
                .map_or_else(|| vec![None; wanted.len()], |base| base.will_need(wanted));
        }
        let inside = |(_, wanted): &(String, Wanted), key: &str| (key.to_owned(), wanted.clone());
        let claims = self.batch(wanted, |(key, _)| key, inside, ask);
        claims.into_iter().map(|claim| claim.ok().flatten()).collect()
    }

    fn transfer_limit_bytes(&self) -> u64 {
        self.base.remote().map_or(0, Remote::transfer_limit_bytes)
    }

    fn forget_transfers(&self, key: &str) {
        match self.place(key) {
            Ok(Place::Archive(..)) => {}
            _ => self.base.forget_transfers(key),
        }
    }

    fn traffic(&self) -> Option<Traffic> {
        self.base.remote()?.traffic()
    }
}

/// Writes to the store. Archives are read-only: at a service, an object with a key below an archive's name could be stored, but
/// would never be read.
impl Writer for ArchivesStore {
    fn put(&self, key: &str, parts: &[ObjectPart<'_>], options: &PutOptions<'_>) -> Result<ObjectVersion> {
        self.writer_at(key)?.put(key, parts, options)
    }

    fn has_mark(&self, key: &str, version: ObjectVersion, mark: VersionDigest) -> Result<bool> {
        self.writer_at(key)?.has_mark(key, version, mark)
    }

    fn delete(&self, key: &str, precondition: Precondition) -> Result<bool> {
        self.writer_at(key)?.delete(key, precondition)
    }

    fn sync(&self, keys: &[String], within: &str) -> Result<()> {
        self.base_writer()?.sync(keys, within)
    }

    fn sync_all(&self) -> Result<()> {
        self.base_writer()?.sync_all()
    }

    fn lock(&self, key: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        self.writer_at(key)?.lock(key)
    }

    fn check_place(&self) -> Result<()> {
        self.base_writer()?.check_place()
    }

    fn touch(&self, key: &str, version: ObjectVersion) -> Result<Option<ObjectVersion>> {
        self.writer_at(key)?.touch(key, version)
    }

    fn set_permissions(&self, key: &str, owner: u32, like: &Posix) -> Result<bool> {
        self.writer_at(key)?.set_permissions(key, owner, like)
    }

    fn can_rename(&self, folder: &str) -> Result<bool> {
        match self.place(folder)? {
            Place::Archive(..) => Ok(false),
            Place::Base => self.base_writer()?.can_rename(folder),
        }
    }

    fn stage(&self, parent: &str, like: &Info) -> Result<Option<StagedFolder>> {
        self.writer_at(parent)?.stage(parent, like)
    }

    fn rename_folder(&self, from: &str, to: &str) -> Result<()> {
        self.writer_at(to)?;
        self.writer_at(from)?.rename_folder(from, to)
    }

    fn remove_folder(&self, key: &str) -> Result<bool> {
        self.writer_at(key)?.remove_folder(key)
    }

    fn remove_unfinished(&self, folder: &str) -> Result<u64> {
        match self.place(folder)? {
            Place::Archive(..) => Ok(0),
            Place::Base => self.base_writer()?.remove_unfinished(folder),
        }
    }
}
