//! Objects of raw chunks that are kept open between reads: opening one costs more than reading a few rows of it.
//!
//! Uses `store`. Invariant: an object is used in the epoch in which it was opened only, like a cached chunk that nobody
//! compared with the store since.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;

use crate::array::sync::Mutex;
use crate::store::Object;

/// How many are kept open; each is a descriptor.
const LIMIT: NonZeroUsize = NonZeroUsize::new(128).unwrap();

/// An array's number, and its chunk's.
type Key = (u64, u64);

/// The epoch in which an object was opened, and the object.
type Opened = (u64, Arc<dyn Object>);

/// The least recently used go first.
pub struct OpenObjects {
    objects: Mutex<LruCache<Key, Opened>>,
}

impl Default for OpenObjects {
    fn default() -> Self {
        OpenObjects { objects: LruCache::new(LIMIT).into() }
    }
}

impl OpenObjects {
    /// One that was opened in this epoch.
    pub fn get(&self, key: Key, epoch: u64) -> Option<Arc<dyn Object>> {
        self.objects
            .lock()
            .get(&key)
            .filter(|(opened, _)| *opened == epoch)
            .map(|(_, object)| Arc::clone(object))
    }

    /// Keeps one.
    pub fn put(&self, key: Key, epoch: u64, object: Arc<dyn Object>) {
        let replaced = self.objects.lock().push(key, (epoch, object));
        drop(replaced); // closed outside the lock
    }

    /// Closes those of an array.
    pub fn forget_array(&self, array: u64) {
        let mut objects = self.objects.lock();
        let keys: Vec<Key> = objects.iter().map(|(key, _)| *key).filter(|(of, _)| *of == array).collect();
        for key in keys {
            objects.pop(&key);
        }
    }
}
