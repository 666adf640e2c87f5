//! Groups' documents that were read before, so that looking up a name does not parse the consolidated metadata of
//! every group above it again. Uses `documents`.
//!
//! Invariant: a returned group was read from documents that are unchanged in the store now.

use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::documents::{self, Content, Documents, Reading, Seen};
use crate::metadata::GroupMetadata;
use crate::store::Store;

/// The most groups in the cache.
const MAX_GROUPS: usize = 1024;
/// The most bytes of documents in the cache (parsed they take several times as much); a longer one is kept alone.
const MAX_DOCUMENT_BYTES: u64 = 16 << 20;

#[derive(Clone)]
struct Kept {
    key: String,
    group: Arc<GroupMetadata>,
    seen: Seen,
}

/// Groups by path.
pub(super) struct GroupCache {
    kept: Mutex<LruCache<String, Kept>>,
}

impl GroupCache {
    /// An empty one.
    pub fn new() -> Self {
        GroupCache { kept: Mutex::new(LruCache::unbounded()) }
    }

    /// As [`documents::read`]; a group that is kept and current is not read again.
    pub fn read(&self, store: &dyn Store, path: &str) -> Option<Documents> {
        if store.is_remote() {
            return self.read_many(store, &[path]).pop().flatten();
        }
        let kept = self.kept.lock().get(path).cloned();
        if let Some(kept) = kept
            && kept.seen.is_current(store, path)
        {
            return Some(kept.into());
        }
        let found = documents::read(store, path);
        self.keep(path, &found);
        found
    }

    /// As [`GroupCache::read`] for several paths. A remote store is asked for all of them at once.
    pub fn read_many(&self, store: &dyn Store, paths: &[&str]) -> Vec<Option<Documents>> {
        if !store.is_remote() {
            return paths.iter().map(|path| self.read(store, path)).collect();
        }
        let kept: Vec<Option<Kept>> = {
            let mut all = self.kept.lock();
            paths.iter().map(|path| all.get(*path).cloned()).collect()
        };
        let seen = kept.iter().map(|kept| kept.as_ref().map(|kept| &kept.seen));
        let folders: Vec<(&str, Option<&Seen>)> = paths.iter().copied().zip(seen).collect();
        let readings = documents::read_many(store, &folders);
        let found = |((path, kept), reading): ((&&str, Option<Kept>), Reading)| match reading {
            Reading::Unchanged => kept.map(Documents::from),
            Reading::Documents(found) => {
                self.keep(path, &found);
                found
            }
        };
        paths.iter().zip(kept).zip(readings).map(found).collect()
    }

    /// Whether a group that is kept had consolidated metadata.
    pub fn has_copies(&self, path: &str) -> bool {
        self.kept.lock().peek(path).is_some_and(|kept| kept.group.consolidated.is_some())
    }

    /// Keeps a group that was read.
    fn keep(&self, path: &str, found: &Option<Documents>) {
        let mut all = self.kept.lock();
        match found {
            Some(Documents { key, content: Content::Group(group), seen }) if seen.is_settled() => {
                let kept = Kept { key: key.clone(), group: Arc::clone(group), seen: seen.clone() };
                all.put(path.to_owned(), kept);
                let mut size_bytes: u64 = all.iter().map(|(_, kept)| kept.seen.size_bytes()).sum();
                while all.len() > MAX_GROUPS || (size_bytes > MAX_DOCUMENT_BYTES && all.len() > 1) {
                    let Some((_, least)) = all.pop_lru() else { break };
                    size_bytes -= least.seen.size_bytes();
                }
            }
            _ => {
                all.pop(path);
            }
        }
    }
}

impl From<Kept> for Documents {
    fn from(kept: Kept) -> Self {
        Documents { key: kept.key, content: Content::Group(kept.group), seen: kept.seen }
    }
}
