//! The objects of uncompressed chunks that stay open between reads, because opening one costs more than reading a few
//! rows.
//!
//! Uses `array/cache` (for keys) and `store`. Invariant: an object is used only in the epoch in which it was opened,
//! like a cached chunk that was not compared with the store since.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;

use crate::array::cache::CacheKey;
use crate::array::sync::Mutex;
use crate::store::Object;

/// How many objects stay open. Each needs a descriptor.
const LIMIT: NonZeroUsize = NonZeroUsize::new(128).unwrap();

/// An object, and the epoch in which it was opened.
struct OpenObject {
    object: Arc<dyn Object>,
    epoch: u64,
}

/// Open objects. The least recently used is closed first.
pub struct OpenObjects {
    objects: Mutex<LruCache<CacheKey, OpenObject>>,
}

impl Default for OpenObjects {
    fn default() -> Self {
        OpenObjects { objects: LruCache::new(LIMIT).into() }
    }
}

impl OpenObjects {
    /// Returns the object, if it was opened in this epoch.
    pub fn get(&self, key: CacheKey, epoch: u64) -> Option<Arc<dyn Object>> {
        let mut objects = self.objects.lock();
        objects.get(&key).filter(|open| open.epoch == epoch).map(|open| Arc::clone(&open.object))
    }

    /// Adds an object.
    pub fn put(&self, key: CacheKey, epoch: u64, object: Arc<dyn Object>) {
        let replaced = self.objects.lock().push(key, OpenObject { object, epoch });
        drop(replaced); // closed outside the lock
    }

    /// Closes the objects of an array.
    pub fn forget_array(&self, array: u64) {
        let mut objects = self.objects.lock();
        let keys: Vec<CacheKey> =
            objects.iter().map(|(key, _)| *key).filter(|key| key.array == array).collect();
        for key in keys {
            objects.pop(&key);
        }
    }
}
