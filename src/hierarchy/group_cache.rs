//! A cache of the documents of groups, so that looking up a name does not parse the consolidated metadata of every group above it
//! again. Uses `documents` and `lengths_record`.
//!
//! Invariant: the documents of a returned group are at most as old as the caller allows, or unchanged in the store.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::Mutex;

use super::documents::{self, Content, DocumentVersions, Documents, Reading};
use super::lengths_record::{LengthsRecord, RECORD};
use crate::error::Error;
use crate::metadata::{GroupMetadata, ZarrFormat};
use crate::store::{FileId, ObjectVersion, Store, join};

/// The most folders in the cache.
const MAX_FOLDERS: usize = 1024;
/// The most memory that the documents in the cache take. A larger document is cached alone.
const MAX_MEMORY_BYTES: usize = 64 << 20;
/// The most records of lengths that are remembered as unusable.
const MAX_UNUSABLE_RECORDS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

#[derive(Clone)]
struct CachedFolder {
    /// `None` for a folder without documents.
    group: Option<CachedGroup>,
    /// The identity of the folder, if the store has one.
    identity: Option<FileId>,
    checked_at: Instant,
}

#[derive(Clone)]
struct CachedGroup {
    key: String,
    group: Arc<GroupMetadata>,
    versions: DocumentVersions,
    memory_bytes: usize,
    /// Whether any later change of the documents changes their versions.
    is_settled: bool,
}

impl CachedFolder {
    fn memory_bytes(&self) -> usize {
        self.group.as_ref().map_or(0, |group| group.memory_bytes)
    }
}

/// The documents of a folder, and when they were read.
pub(super) struct CachedLookup {
    /// The documents, if there are any.
    pub documents: Option<Documents>,
    /// The identity of the folder, if the store has one.
    pub identity: Option<FileId>,
    /// When they were read or compared with the store.
    pub at: Instant,
}

impl CachedLookup {
    /// Returns the lookup of a folder of a store on this machine in which no document was found.
    fn nothing(store: &dyn Store, path: &str, at: Instant) -> Self {
        CachedLookup { documents: None, identity: store.folder_id(path).ok().flatten(), at }
    }
}

impl CachedGroup {
    /// Returns whether its documents are unchanged in a store on this machine, and any later change would show in their versions.
    fn is_current(&self, store: &dyn Store, path: &str) -> bool {
        self.is_settled && self.versions.is_current(store, path)
    }
}

/// Groups by path.
pub(super) struct GroupCache {
    folders: Mutex<LruCache<String, CachedFolder>>,
    /// The last record of lengths, and the path of its group. A group has one only while a command changes lengths there, or after one that was
    /// killed.
    lengths: Mutex<Option<(String, Arc<LengthsRecord>)>>,
    /// Records that cannot be used, by the path of their group. Each is reported once.
    unusable_lengths: Mutex<LruCache<String, UnusableRecord>>,
}

/// A record of lengths that cannot be used.
#[derive(Clone, Copy)]
struct UnusableRecord {
    version: ObjectVersion,
    /// It is not a record of lengths, so it is not read again.
    is_malformed: bool,
}

impl GroupCache {
    /// Returns an empty cache.
    pub fn new() -> Self {
        GroupCache {
            folders: Mutex::new(LruCache::unbounded()),
            lengths: Mutex::default(),
            unusable_lengths: Mutex::new(LruCache::new(MAX_UNUSABLE_RECORDS)),
        }
    }

    /// As [`documents::read`], except that a cached group is not read again while it is current.
    pub fn read(&self, store: &dyn Store, path: &str, max_age: Duration) -> Option<Documents> {
        if store.is_remote() {
            return self.read_many(store, &[path], None, max_age).pop()?.documents;
        }
        let kept = self.folders.lock().get(path).and_then(|kept| kept.group.clone());
        let at = Instant::now();
        if let Some(kept) = kept.filter(|kept| kept.is_current(store, path)) {
            return Some(kept.into());
        }
        let documents = documents::read(store, path);
        // Most nodes are arrays, and have nothing below them.
        if matches!(documents, Some(Documents { content: Content::Group(_), .. })) {
            self.keep(
                path,
                &CachedLookup { documents: documents.clone(), ..CachedLookup::nothing(store, path, at) },
            );
        }
        documents
    }

    /// Looks at the folder of a group in a store on this machine.
    fn look(&self, store: &dyn Store, path: &str, max_age: Duration) -> CachedLookup {
        let kept = self.folders.lock().get(path).cloned();
        match kept {
            Some(CachedFolder { group, identity, checked_at }) if checked_at.elapsed() < max_age => {
                CachedLookup { documents: group.map(Documents::from), identity, at: checked_at }
            }
            kept => {
                let nothing = CachedLookup::nothing(store, path, Instant::now());
                let kept = kept.and_then(|kept| kept.group).filter(|kept| kept.is_current(store, path));
                let documents = kept.map(Documents::from).or_else(|| documents::read(store, path));
                let looked = CachedLookup { documents, ..nothing };
                self.keep(path, &looked);
                looked
            }
        }
    }

    /// As [`GroupCache::read`], for several paths. In a remote store, all documents are requested in one batch, except those that were
    /// read less than `max_age` ago. `format` is the format of the group above all of them, if it is known.
    pub fn read_many(
        &self,
        store: &dyn Store,
        paths: &[&str],
        format: Option<ZarrFormat>,
        max_age: Duration,
    ) -> Vec<CachedLookup> {
        let at = Instant::now();
        if !store.is_remote() {
            return paths.iter().map(|path| self.look(store, path, max_age)).collect();
        }
        let kept: Vec<Option<CachedFolder>> = {
            let mut all = self.folders.lock();
            paths.iter().map(|path| all.get(*path).cloned()).collect()
        };
        let is_recent = |kept: &CachedFolder| kept.checked_at.elapsed() < max_age;
        let mut folders: Vec<(&str, Option<&DocumentVersions>)> = Vec::new();
        for (path, kept) in paths.iter().zip(&kept) {
            if !kept.as_ref().is_some_and(is_recent) {
                let group = kept.as_ref().and_then(|kept| kept.group.as_ref());
                let group = group.filter(|group| group.is_settled);
                folders.push((path, group.map(|group| &group.versions)));
            }
        }
        let asked: Vec<&str> = folders.iter().map(|(path, _)| *path).collect();
        let mut readings = asked.into_iter().zip(documents::read_many(store, &folders, format)).peekable();
        let mut looked = Vec::new();
        for (path, kept) in paths.iter().zip(&kept) {
            let group = kept.as_ref().and_then(|kept| kept.group.clone()).map(Documents::from);
            let recent_at = kept.as_ref().map(|kept| kept.checked_at);
            looked.push(match readings.next_if(|(asked, _)| asked == path) {
                None => CachedLookup { documents: group, identity: None, at: recent_at.unwrap_or(at) },
                Some((_, reading)) => {
                    let documents = match reading {
                        Reading::Unchanged => group,
                        Reading::Documents(documents) => documents,
                    };
                    let looked = CachedLookup { documents, identity: None, at };
                    self.keep(path, &looked);
                    looked
                }
            });
        }
        looked
    }

    /// Empties the cache.
    pub fn clear(&self) {
        self.folders.lock().clear();
        *self.lengths.lock() = None;
        self.unusable_lengths.lock().clear();
    }

    /// Returns the record of a change of lengths in a group, if there is one. A record that cannot be read hides nothing.
    pub fn lengths_record(&self, store: &dyn Store, group: &str) -> Option<Arc<LengthsRecord>> {
        let info = store.head_object(&join(group, RECORD)).ok()??;
        let kept = self.lengths.lock().clone();
        if let Some((path, record)) = kept
            && path == group
            && record.info.version == info.version
        {
            return Some(record);
        }
        let version = info.version;
        let unusable = self.unusable_lengths.lock().get(group).copied();
        let unusable = unusable.filter(|unusable| unusable.version == version);
        if unusable.is_some_and(|unusable| unusable.is_malformed) {
            return None;
        }
        let record = match LengthsRecord::read(store, group) {
            Ok(record) => Arc::new(record?),
            Err(error) => {
                // Each array in the group asks for the record.
                if unusable.is_none() {
                    log::warn!("ignoring a record of lengths: {error}");
                }
                let is_malformed = matches!(error, Error::Metadata { .. });
                let unusable = UnusableRecord { version, is_malformed };
                self.unusable_lengths.lock().put(group.to_owned(), unusable);
                return None;
            }
        };
        *self.lengths.lock() = Some((group.to_owned(), record.clone()));
        Some(record)
    }

    /// Returns whether a cached group has consolidated metadata.
    pub fn has_copies(&self, path: &str) -> bool {
        let all = self.folders.lock();
        let group = all.peek(path).and_then(|kept| kept.group.as_ref());
        group.is_some_and(|kept| kept.group.consolidated.is_some())
    }

    /// Returns the format of a cached group.
    pub fn format(&self, path: &str) -> Option<ZarrFormat> {
        let all = self.folders.lock();
        all.peek(path)?.group.as_ref()?.group.zarr_format
    }

    /// Caches a group, or the absence of documents.
    fn keep(&self, path: &str, looked: &CachedLookup) {
        let group = match &looked.documents {
            Some(Documents { key, content: Content::Group(group), versions }) => Some(CachedGroup {
                key: key.clone(),
                group: Arc::clone(group),
                versions: versions.clone(),
                memory_bytes: group.memory_bytes(),
                is_settled: versions.is_settled(),
            }),
            None => None,
            // Nothing is below it.
            Some(_) => {
                self.folders.lock().pop(path);
                return;
            }
        };
        let mut all = self.folders.lock();
        all.put(path.to_owned(), CachedFolder { group, identity: looked.identity, checked_at: looked.at });
        let mut memory_bytes: usize = all.iter().map(|(_, kept)| kept.memory_bytes()).sum();
        while all.len() > MAX_FOLDERS || (memory_bytes > MAX_MEMORY_BYTES && all.len() > 1) {
            let Some((_, least)) = all.pop_lru() else { break };
            memory_bytes -= least.memory_bytes();
        }
    }
}

impl From<CachedGroup> for Documents {
    fn from(kept: CachedGroup) -> Self {
        Documents { key: kept.key, content: Content::Group(kept.group), versions: kept.versions }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::DirectoryStore;

    /// The bug: a record that cannot be used was read, and reported, for each array in its group.
    #[test]
    fn a_malformed_record_of_lengths_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = DirectoryStore::open(folder.path(), false).unwrap();
        let (cache, path) = (GroupCache::new(), folder.path().join(RECORD));
        let versions = || {
            let all = cache.unusable_lengths.lock();
            all.iter().map(|(_, record)| (record.version, record.is_malformed)).collect::<Vec<_>>()
        };
        std::fs::write(&path, "not a record").unwrap();
        assert!(cache.lengths_record(&store, "").is_none());
        let first = versions();
        assert!(matches!(first.as_slice(), [(_, true)]));
        assert!(cache.lengths_record(&store, "").is_none());
        assert_eq!(versions(), first);
        // Another version is read.
        std::fs::write(&path, r#"{"documents": []}"#).unwrap();
        assert!(cache.lengths_record(&store, "").is_some());
        std::fs::write(&path, "not a record either").unwrap();
        assert!(cache.lengths_record(&store, "").is_none());
        assert!(versions() != first && versions().len() == 1);
        cache.clear();
        assert_eq!(versions(), []);
    }
}
