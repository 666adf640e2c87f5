//! Groups' documents that were read before, so that looking up a name does not parse the consolidated metadata of
//! every group above it again. Uses `documents`.
//!
//! Invariant: a returned group was read from documents that are unchanged in the store now; those of a remote store are
//! at most as old as the caller allows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::Mutex;

use super::documents::{self, Content, Documents, Reading, Seen};
use crate::metadata::{GroupMetadata, ZarrFormat};
use crate::store::Store;

/// The most folders in the cache.
const MAX_FOLDERS: usize = 1024;
/// The most memory that the documents in the cache take; one that takes more is kept alone.
const MAX_MEMORY_BYTES: usize = 64 << 20;

#[derive(Clone)]
struct Kept {
    /// `None` for a folder without documents in a remote store.
    group: Option<KeptGroup>,
    checked_at: Instant,
}

#[derive(Clone)]
struct KeptGroup {
    key: String,
    group: Arc<GroupMetadata>,
    seen: Seen,
    memory_bytes: usize,
    /// Any later change of the documents shows in their versions.
    is_settled: bool,
}

impl Kept {
    fn memory_bytes(&self) -> usize {
        self.group.as_ref().map_or(0, |group| group.memory_bytes)
    }
}

/// What was found in a folder, and when.
pub(super) struct Looked {
    /// The documents, if there are any.
    pub documents: Option<Documents>,
    /// When they were read, or compared with the store.
    pub at: Instant,
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
    pub fn read(&self, store: &dyn Store, path: &str, max_age: Duration) -> Option<Documents> {
        if store.is_remote() {
            return self.read_many(store, &[path], None, max_age).pop()?.documents;
        }
        let kept = self.kept.lock().get(path).and_then(|kept| kept.group.clone());
        if let Some(kept) = kept
            && kept.seen.is_current(store, path)
        {
            return Some(kept.into());
        }
        let at = Instant::now();
        let documents = documents::read(store, path);
        self.keep(path, &documents, at, false);
        documents
    }

    /// As [`GroupCache::read`] for several paths. A remote store is asked for all of them at once, except for those that were
    /// looked at less than `max_age` ago. `format` is the version of the group above all of them, if there is one.
    pub fn read_many(
        &self,
        store: &dyn Store,
        paths: &[&str],
        format: Option<ZarrFormat>,
        max_age: Duration,
    ) -> Vec<Looked> {
        let at = Instant::now();
        if !store.is_remote() {
            let read = |path: &&str| Looked { documents: self.read(store, path, max_age), at };
            return paths.iter().map(read).collect();
        }
        let kept: Vec<Option<Kept>> = {
            let mut all = self.kept.lock();
            paths.iter().map(|path| all.get(*path).cloned()).collect()
        };
        let is_recent = |kept: &Kept| kept.checked_at.elapsed() < max_age;
        let mut folders: Vec<(&str, Option<&Seen>)> = Vec::new();
        for (path, kept) in paths.iter().zip(&kept) {
            if !kept.as_ref().is_some_and(is_recent) {
                let group = kept.as_ref().and_then(|kept| kept.group.as_ref());
                let group = group.filter(|group| group.is_settled);
                folders.push((path, group.map(|group| &group.seen)));
            }
        }
        let asked: Vec<&str> = folders.iter().map(|(path, _)| *path).collect();
        let mut readings = asked.into_iter().zip(documents::read_many(store, &folders, format)).peekable();
        let mut looked = Vec::new();
        for (path, kept) in paths.iter().zip(&kept) {
            let group = kept.as_ref().and_then(|kept| kept.group.clone()).map(Documents::from);
            let recent_at = kept.as_ref().map(|kept| kept.checked_at);
            looked.push(match readings.next_if(|(asked, _)| asked == path) {
                None => Looked { documents: group, at: recent_at.unwrap_or(at) },
                Some((_, reading)) => {
                    let documents = match reading {
                        Reading::Unchanged => group,
                        Reading::Documents(documents) => documents,
                    };
                    self.keep(path, &documents, at, true);
                    Looked { documents, at }
                }
            });
        }
        looked
    }

    /// Removes all.
    pub fn clear(&self) {
        self.kept.lock().clear();
    }

    /// Whether a group that is kept had consolidated metadata.
    pub fn has_copies(&self, path: &str) -> bool {
        let all = self.kept.lock();
        let group = all.peek(path).and_then(|kept| kept.group.as_ref());
        group.is_some_and(|kept| kept.group.consolidated.is_some())
    }

    /// The Zarr version of a group that is kept.
    pub fn format(&self, path: &str) -> Option<ZarrFormat> {
        let all = self.kept.lock();
        all.peek(path)?.group.as_ref()?.group.zarr_format
    }

    /// Keeps a group that was read, and of a remote store that there is none.
    fn keep(&self, path: &str, found: &Option<Documents>, checked_at: Instant, is_remote: bool) {
        let group = match found {
            Some(Documents { key, content: Content::Group(group), seen })
                if is_remote || seen.is_settled() =>
            {
                let (group, is_settled) = (Arc::clone(group), seen.is_settled());
                let memory_bytes = group.memory_bytes();
                Some(KeptGroup { key: key.clone(), group, seen: seen.clone(), memory_bytes, is_settled })
            }
            None if is_remote => None,
            _ => {
                self.kept.lock().pop(path);
                return;
            }
        };
        let mut all = self.kept.lock();
        all.put(path.to_owned(), Kept { group, checked_at });
        let mut memory_bytes: usize = all.iter().map(|(_, kept)| kept.memory_bytes()).sum();
        while all.len() > MAX_FOLDERS || (memory_bytes > MAX_MEMORY_BYTES && all.len() > 1) {
            let Some((_, least)) = all.pop_lru() else { break };
            memory_bytes -= least.memory_bytes();
        }
    }
}

impl From<KeptGroup> for Documents {
    fn from(kept: KeptGroup) -> Self {
        Documents { key: kept.key, content: Content::Group(kept.group), seen: kept.seen }
    }
}
