//! Groups' documents that were read before, so that looking up a name does not parse the consolidated metadata of
//! every group above it again. Uses `documents`.
//!
//! Invariant: a returned group was read from documents that are unchanged in the store now.

use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::documents::{self, Content, Documents, Seen};
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
        let kept = self.kept.lock().get(path).cloned();
        if let Some(Kept { key, group, seen }) = kept
            && seen.is_current(store, path)
        {
            return Some(Documents { key, content: Content::Group(group), seen });
        }
        let found = documents::read(store, path);
        let mut all = self.kept.lock();
        match &found {
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
        found
    }
}
