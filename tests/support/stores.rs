//! Stores around other stores: one that alters what is read, one that counts what is opened.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use zarrfs::error::{Error, Result};
use zarrfs::store::{Info, ListEntry, Object, ObjectContent, ObjectVersion, StatFs, Store};

use super::hooked::{Hook, Hooked, Operation, Request};

/// Shows other bytes at one key.
pub struct Altered {
    /// The true store.
    pub store: Arc<dyn Store>,
    /// The key with another object.
    pub key: String,
    /// Its bytes.
    pub bytes: Arc<Vec<u8>>,
}

struct AlteredObject {
    key: String,
    bytes: Arc<Vec<u8>>,
    version: ObjectVersion,
}

impl Object for AlteredObject {
    fn version(&self) -> ObjectVersion {
        self.version
    }

    fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn modified(&self) -> Option<SystemTime> {
        None
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        match self.bytes.get(start..start.saturating_add(out.len())) {
            Some(bytes) => out.copy_from_slice(bytes),
            None => {
                let eof = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
                return Err(Error::store(self.key.clone(), "read", eof));
            }
        }
        Ok(())
    }
}

impl Store for Altered {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        let Some(object) = self.store.open(key)? else { return Ok(None) };
        if key != self.key {
            return Ok(Some(object));
        }
        let (key, bytes, version) = (key.to_owned(), self.bytes.clone(), object.version());
        Ok(Some(Box::new(AlteredObject { key, bytes, version })))
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>> {
        let content = self.store.content(key, limit_bytes)?;
        if key != self.key {
            return Ok(content);
        }
        if self.bytes.len() as u64 > limit_bytes {
            return Err(Error::store(key, "read", std::io::Error::from(std::io::ErrorKind::FileTooLarge)));
        }
        Ok(content.map(|content| ObjectContent { bytes: self.bytes.to_vec(), ..content }))
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        self.store.head(key)
    }

    fn list(&self, folder: &str) -> Result<Vec<ListEntry>> {
        self.store.list(folder)
    }

    fn statfs(&self) -> Result<StatFs> {
        self.store.statfs()
    }

    fn describe(&self) -> String {
        self.store.describe()
    }
}

/// Counts by key what is asked of a store.
#[derive(Default)]
pub struct Counting {
    asked: Mutex<BTreeMap<String, u64>>,
    opened: Mutex<BTreeMap<String, u64>>,
}

impl Counting {
    /// Wraps another store.
    pub fn new(store: Arc<dyn Store>) -> Arc<Hooked<Self>> {
        Hooked::new(store, Counting::default())
    }

    /// Returns how often each key was opened, read, looked at or listed since the last call.
    pub fn take(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// Returns how often each object was opened or read since the last call.
    pub fn take_opened(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut self.opened.lock().unwrap())
    }
}

impl Hook for Counting {
    fn before(&self, request: &Request<'_>) -> Result<()> {
        if matches!(
            request.operation,
            Operation::Open | Operation::Content | Operation::Head | Operation::List
        ) {
            *self.asked.lock().unwrap().entry(request.key().to_owned()).or_default() += 1;
        }
        Ok(())
    }

    fn after(&self, request: &Request<'_>, found: bool) {
        if found && matches!(request.operation, Operation::Open | Operation::Content) {
            *self.opened.lock().unwrap().entry(request.key().to_owned()).or_default() += 1;
        }
    }
}
