//! The store below an overlay, with something that happens before one of its operations.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;
use zarrfs::error::{Error, Result as StoreResult};
use zarrfs::store::{
    Content, DirectoryStore, Entry, Info, Object, ObjectPart, ObjectVersion, Precondition, PutOptions,
    StagedFolder, StatFs, Store, VersionDigest, Writer,
};

use super::other::{Other, Theirs};

/// The store below: another program comes before one of its operations, or it is not there any more from one on.
pub struct Scheduled {
    inner: DirectoryStore,
    other: Arc<Other>,
    operations: AtomicUsize,
    event: Mutex<Option<(usize, Option<Theirs>)>>,
    pub is_dead: AtomicBool,
}

impl Scheduled {
    pub fn new(folder: &Path, other: Arc<Other>) -> Self {
        Scheduled {
            inner: DirectoryStore::open(folder, false).unwrap(),
            other,
            operations: AtomicUsize::new(0),
            event: Mutex::new(None),
            is_dead: AtomicBool::new(false),
        }
    }

    fn pass(&self) -> StoreResult<&DirectoryStore> {
        let number = self.operations.fetch_add(1, Ordering::Relaxed);
        let due = self.event.lock().take_if(|(at, _)| *at <= number);
        match due {
            Some((_, Some(theirs))) => self.other.act(theirs),
            Some((_, None)) => self.is_dead.store(true, Ordering::Relaxed),
            None => {}
        }
        if self.is_dead.load(Ordering::Relaxed) {
            Err(Error::store("", "reach", std::io::Error::other("dead")))
        } else {
            Ok(&self.inner)
        }
    }

    pub fn schedule(&self, event: Option<(usize, Option<Theirs>)>) {
        self.operations.store(0, Ordering::Relaxed);
        self.is_dead.store(false, Ordering::Relaxed);
        *self.event.lock() = event;
    }
}

impl Store for Scheduled {
    fn open(&self, key: &str) -> StoreResult<Option<Box<dyn Object>>> {
        self.pass()?.open(key)
    }

    fn content(&self, key: &str, limit_bytes: u64) -> StoreResult<Option<Content>> {
        self.pass()?.content(key, limit_bytes)
    }

    fn head(&self, key: &str) -> StoreResult<Option<Info>> {
        self.pass()?.head(key)
    }

    fn made_at(&self, key: &str) -> StoreResult<Option<SystemTime>> {
        self.pass()?.made_at(key)
    }

    fn list(&self, folder: &str) -> StoreResult<Vec<Entry>> {
        self.pass()?.list(folder)
    }

    fn each_name(&self, folder: &str, each: &mut dyn FnMut(Entry) -> ControlFlow<()>) -> StoreResult<()> {
        self.pass()?.each_name(folder, each)
    }

    fn statfs(&self) -> StoreResult<StatFs> {
        self.inner.statfs()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn writer(&self) -> Option<&dyn Writer> {
        Some(self)
    }
}

impl Writer for Scheduled {
    fn put(
        &self,
        key: &str,
        parts: &[ObjectPart<'_>],
        options: &PutOptions<'_>,
    ) -> StoreResult<ObjectVersion> {
        self.pass()?.put(key, parts, options)
    }

    fn has_mark(&self, key: &str, version: ObjectVersion, mark: VersionDigest) -> StoreResult<bool> {
        self.pass()?.has_mark(key, version, mark)
    }

    fn delete(&self, key: &str, precondition: Precondition) -> StoreResult<bool> {
        self.pass()?.delete(key, precondition)
    }

    fn sync(&self, keys: &[String], within: &str) -> StoreResult<()> {
        self.pass()?.sync(keys, within)
    }

    fn lock(&self, key: &str) -> StoreResult<Option<Box<dyn Send + Sync>>> {
        self.pass()?.lock(key)
    }

    fn stage(&self, parent: &str, like: &Info) -> StoreResult<Option<StagedFolder>> {
        self.pass()?.stage(parent, like)
    }

    fn rename_folder(&self, from: &str, to: &str) -> StoreResult<()> {
        self.pass()?.rename_folder(from, to)
    }

    fn remove_folder(&self, key: &str) -> StoreResult<bool> {
        self.pass()?.remove_folder(key)
    }

    fn remove_unfinished(&self, folder: &str) -> StoreResult<u64> {
        self.pass()?.remove_unfinished(folder)
    }
}
