//! The names in a folder, and the cached listings in memory.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::name::EntryTimes;

/// The most listings in memory: those above one object.
const MAX_LISTINGS: NonZeroUsize = NonZeroUsize::new(8).expect("8 is not 0");

/// The names in a folder, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FolderNames {
    /// Names with something below them.
    pub folders: Vec<String>,
    /// Names of objects.
    pub objects: Vec<String>,
}

/// A listing in the cache.
#[derive(Clone)]
pub(super) struct StoredListing {
    pub names: Arc<FolderNames>,
    pub times: EntryTimes,
    /// Whether it is true only of its time, because something else became known about some of its names.
    pub is_former: bool,
}

/// Listings by the paths of their entries. The names of the entries contain the times.
pub(super) struct Listings(Mutex<LruCache<PathBuf, StoredListing>>);

impl Default for Listings {
    fn default() -> Self {
        Listings(Mutex::new(LruCache::new(MAX_LISTINGS)))
    }
}

impl Listings {
    pub(super) fn get(&self, path: &Path) -> Option<StoredListing> {
        self.0.lock().get(path).cloned()
    }

    pub(super) fn put(&self, path: PathBuf, listing: StoredListing) {
        self.0.lock().put(path, listing);
    }
}

impl FolderNames {
    /// Creates the names from lists in any order.
    pub fn new(folders: Vec<String>, objects: Vec<String>) -> Self {
        let mut names = FolderNames { folders, objects };
        names.folders.sort_unstable();
        names.objects.sort_unstable();
        names
    }

    /// Encodes the names for an entry.
    pub(super) fn encode(&self) -> String {
        json!({ "folders": self.folders, "objects": self.objects }).to_string()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let texts = |member: &str| {
            let names = value.get(member)?.as_array()?.iter();
            names.map(|name| Some(name.as_str()?.to_owned())).collect::<Option<Vec<_>>>()
        };
        Some(FolderNames::new(texts("folders")?, texts("objects")?))
    }

    /// Whether an object or a folder has this name.
    pub(super) fn has(&self, is_object: bool, name: &str) -> bool {
        let sorted = if is_object { &self.objects } else { &self.folders };
        sorted.binary_search_by(|known| known.as_str().cmp(name)).is_ok()
    }
}
