//! A store whose disk is full, or whose folders cannot be synced, for as long as a test wants it.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use zarrfs::error::{Error, Result};
use zarrfs::store::Store;

use crate::support::hooked::{Hook, Hooked, Operation, Request};

/// Refuses to write, and counts which chunks and folders were refused.
#[derive(Default)]
pub struct Failing {
    is_full: AtomicBool,
    is_unsyncable: AtomicBool,
    /// A sidecar is being edited: a failure is reported there.
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
    pub fn new(store: Arc<dyn Store>) -> Arc<Hooked<Self>> {
        Hooked::new(store, Failing::default())
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

    /// Returns how often something was refused to an array at the root.
    pub fn refused(&self, array: &str) -> u64 {
        self.refused.lock().unwrap().get(array).copied().unwrap_or(0)
    }

    /// Returns what would be lost of an array at the root, were the power to fail now.
    pub fn unsynced(&self, array: &str) -> Vec<String> {
        let unsynced = self.unsynced.lock().unwrap();
        unsynced.iter().filter(|key| array_of(key) == array && !is_document(key)).cloned().collect()
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
}

impl Hook for Failing {
    fn before(&self, request: &Request<'_>) -> Result<()> {
        let key = request.key();
        match request.operation {
            Operation::Put | Operation::Delete => {
                self.admit(key, &self.is_full, libc::ENOSPC)?;
                self.unsynced.lock().unwrap().insert(key.to_owned());
                Ok(())
            }
            Operation::Sync => self.admit(key, &self.is_unsyncable, libc::EIO),
            _ => Ok(()),
        }
    }

    fn after(&self, request: &Request<'_>, found: bool) {
        if found && request.operation == Operation::Sync {
            self.unsynced.lock().unwrap().retain(|key| !request.keys.contains(&key.as_str()));
        }
    }
}
