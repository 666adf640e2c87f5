//! A store whose disk is full, or whose folders cannot be synced, for as long as a test wants it.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use zarrfs::error::{Error, Result};
use zarrfs::store::{
    Content, Entry, Info, Object, ObjectPart, ObjectVersion, Precondition, PutOptions, StatFs, Store, Writer,
};

/// Refuses to write, and counts which chunks and folders were refused.
pub struct Failing {
    store: Arc<dyn Store>,
    is_full: AtomicBool,
    is_unsyncable: AtomicBool,
    /// A sidecar is being edited: what fails is told there.
    is_editing: AtomicBool,
    refused: Mutex<HashMap<String, u64>>,
    /// Keys of what was put or deleted and not synced since.
    unsynced: Mutex<BTreeSet<String>>,
}

fn array_of(key: &str) -> String {
    key.split('/').next().unwrap_or_default().to_owned()
}

fn is_document(key: &str) -> bool {
    ["zarr.json", ".zarray", ".zattrs", "meta", "attrs"].iter().any(|name| key.ends_with(name))
}

impl Failing {
    pub fn new(store: Arc<dyn Store>) -> Arc<Self> {
        let (is_full, is_unsyncable) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Failing {
            store,
            is_full,
            is_unsyncable,
            is_editing: AtomicBool::new(false),
            refused: Mutex::default(),
            unsynced: Mutex::default(),
        })
    }

    pub fn set(&self, is_full: bool, is_unsyncable: bool) {
        self.is_full.store(is_full, Ordering::SeqCst);
        self.is_unsyncable.store(is_unsyncable, Ordering::SeqCst);
    }

    pub fn set_editing(&self, is_editing: bool) {
        self.is_editing.store(is_editing, Ordering::SeqCst);
    }

    pub fn fails(&self) -> bool {
        self.is_full.load(Ordering::SeqCst) || self.is_unsyncable.load(Ordering::SeqCst)
    }

    /// How often something was refused to an array at the root.
    pub fn refused(&self, array: &str) -> u64 {
        self.refused.lock().unwrap().get(array).copied().unwrap_or(0)
    }

    /// What would be lost of an array at the root, were the power to fail now.
    pub fn unsynced(&self, array: &str) -> Vec<String> {
        let unsynced = self.unsynced.lock().unwrap();
        unsynced.iter().filter(|key| array_of(key) == array && !is_document(key)).cloned().collect()
    }

    fn note(&self, key: &str) {
        self.unsynced.lock().unwrap().insert(key.to_owned());
    }

    fn admit(&self, key: &str, fails: &AtomicBool, errno: i32) -> Result<()> {
        if !fails.load(Ordering::SeqCst) {
            return Ok(());
        }
        // The document of an array that grew is synced with its chunks.
        let is_grown = errno == libc::EIO && !self.is_editing.load(Ordering::SeqCst);
        if !is_document(key) || is_grown {
            *self.refused.lock().unwrap().entry(array_of(key)).or_default() += 1;
        }
        Err(Error::store(key, "write", std::io::Error::from_raw_os_error(errno)))
    }

    fn inner(&self) -> &dyn Writer {
        self.store.writer().unwrap()
    }
}

impl Writer for Failing {
    fn put(&self, key: &str, parts: &[ObjectPart<'_>], options: &PutOptions<'_>) -> Result<ObjectVersion> {
        self.admit(key, &self.is_full, libc::ENOSPC)?;
        self.note(key);
        self.inner().put(key, parts, options)
    }

    fn delete(&self, key: &str, precondition: Precondition) -> Result<bool> {
        self.admit(key, &self.is_full, libc::ENOSPC)?;
        self.note(key);
        self.inner().delete(key, precondition)
    }

    fn sync(&self, keys: &[String], within: &str) -> Result<()> {
        self.admit(keys.first().map_or(within, String::as_str), &self.is_unsyncable, libc::EIO)?;
        self.inner().sync(keys, within)?;
        self.unsynced.lock().unwrap().retain(|key| !keys.contains(key));
        Ok(())
    }

    fn lock(&self, folder: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        self.inner().lock(folder)
    }

    fn touch(&self, key: &str, version: ObjectVersion) -> Result<Option<ObjectVersion>> {
        self.inner().touch(key, version)
    }

    fn remove_unfinished(&self, folder: &str) -> Result<u64> {
        self.inner().remove_unfinished(folder)
    }
}

impl Store for Failing {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        self.store.open(key)
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<Content>> {
        self.store.content(key, limit_bytes)
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        self.store.head(key)
    }

    fn list(&self, folder: &str) -> Result<Vec<Entry>> {
        self.store.list(folder)
    }

    fn lacks_locks(&self) -> bool {
        self.store.lacks_locks()
    }

    fn statfs(&self) -> Result<StatFs> {
        self.store.statfs()
    }

    fn describe(&self) -> String {
        self.store.describe()
    }

    fn writer(&self) -> Option<&dyn Writer> {
        Some(self)
    }
}
