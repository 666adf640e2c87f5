//! Inodes: what each number stands for. One inode per path and kind, kept for the life of the mount.
//!
//! No I/O and no FUSE types. Uses `array` and `metadata` for what an open array holds, `formats` for their names.
//!
//! Invariants: a number is never reused; an inode's [`Entity`] never changes; a stale inode (its array
//! was replaced by another of the same name) stays in the table, so that old handles get ESTALE, but no lookup
//! finds it any more.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};

use crate::array::Array;
use crate::error::Error;
use crate::formats::Format;
use crate::metadata::ArrayMetadata;
use crate::mount::page_cache::PageCacheUsers;
use crate::mount::written_end::WrittenEnd;
use crate::store::{Audience, ObjectVersion};

/// The inode of the mount's root.
pub const ROOT: u64 = 1;

/// What kind of file or folder an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A group's folder (also the root, when the root is an array).
    Group,
    /// An array's flat bytes.
    Array,
    /// An array's sidecar, `NAME.json`.
    Sidecar,
    /// A group's sidecar, `__group__.json`.
    GroupSidecar,
    /// `__zarrfs__/`
    Internals,
    /// `__zarrfs__/stats`
    Stats,
    /// `__zarrfs__/config.json`
    Config,
    /// `__zarrfs__/unsaved`
    Unsaved,
    /// `__zarrfs__/last_error`
    LastError,
    /// `__formats__/`
    Formats,
    /// A group's folder below `__formats__/json/`.
    JsonFolder,
    /// A sidecar below `__formats__/json/`, where no real node can displace it.
    JsonSidecar,
    /// A group's sidecar below `__formats__/json/`.
    JsonGroupSidecar,
    /// A group's folder below `__formats__/NAME/`.
    FormatFolder(&'static Format),
    /// An array's companion file there.
    Companion(&'static Format),
}

impl Kind {
    /// Whether it is shown as a folder.
    pub fn is_folder(self) -> bool {
        use Kind::{FormatFolder, Formats, Group, Internals, JsonFolder};
        matches!(self, Group | Internals | Formats | JsonFolder | FormatFolder(_))
    }
}

/// What an inode stands for: a kind of thing made of the node at a path (`""` is the root).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entity {
    /// What is made of the node.
    pub kind: Kind,
    /// The node's path in the hierarchy.
    pub path: Arc<str>,
}

impl Entity {
    /// An entity of a node.
    pub fn new(kind: Kind, path: impl Into<Arc<str>>) -> Self {
        Entity { kind, path: path.into() }
    }
}

/// What was read of an array, counted for the statistics.
#[derive(Debug, Default)]
pub struct Counters {
    /// Reads answered.
    pub reads: AtomicU64,
    /// Bytes answered.
    pub bytes: AtomicU64,
    /// Writes taken.
    pub writes: AtomicU64,
    /// Bytes taken.
    pub bytes_written: AtomicU64,
    /// Requests that failed.
    pub errors: AtomicU64,
}

/// An array as the handles of its inode see it.
pub struct OpenArray {
    /// The metadata that it was built from; growth replaces both.
    pub metadata: Arc<ArrayMetadata>,
    /// The document's version then.
    pub version: Option<ObjectVersion>,
    /// When the metadata was read: what was read earlier never replaces it.
    pub read_at: Instant,
    /// The array, or why it cannot be served.
    pub array: Result<Arc<Array>, Error>,
}

/// One inode.
pub struct Inode {
    /// Its number.
    pub number: u64,
    /// What it stands for.
    pub entity: Entity,
    /// For arrays: what was read.
    pub counters: Counters,
    /// For arrays: whom what is read must be open to.
    pub audience: Arc<Audience>,
    /// For arrays that have been opened: what its handles read. Replaced when the array grows in place.
    pub open_array: RwLock<Option<Arc<OpenArray>>>,
    /// When the metadata behind `open_array` was last compared with the store.
    pub checked_at: Mutex<Option<Instant>>,
    /// For arrays: how far the file has been written since it was cut short.
    pub written_end: WrittenEnd,
    /// For arrays: which of its open files the kernel caches.
    pub page_cache_users: Arc<PageCacheUsers>,
    is_stale: AtomicBool,
}

impl Inode {
    fn new(number: u64, entity: Entity) -> Arc<Self> {
        Arc::new(Inode {
            number,
            entity,
            counters: Counters::default(),
            audience: Arc::default(),
            open_array: RwLock::new(None),
            checked_at: Mutex::new(None),
            written_end: WrittenEnd::default(),
            page_cache_users: Arc::default(),
            is_stale: AtomicBool::new(false),
        })
    }

    /// Whether another array has taken its place: every use of it is ESTALE.
    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Acquire)
    }

    /// What handles read now.
    pub fn open_array(&self) -> Option<Arc<OpenArray>> {
        self.open_array.read().clone()
    }
}

/// All inodes of a mount.
pub struct InodeTable {
    inner: RwLock<Inner>,
}

struct Inner {
    /// Inode `n` is at `n - 1`.
    by_number: Vec<Arc<Inode>>,
    by_entity: HashMap<Entity, Arc<Inode>>,
}

impl Inner {
    fn add(&mut self, entity: Entity) -> Arc<Inode> {
        let inode = Inode::new(self.by_number.len() as u64 + 1, entity.clone());
        self.by_number.push(inode.clone());
        self.by_entity.insert(entity, inode.clone());
        inode
    }
}

impl Default for InodeTable {
    fn default() -> Self {
        let mut inner = Inner { by_number: Vec::new(), by_entity: HashMap::new() };
        inner.add(Entity::new(Kind::Group, ""));
        InodeTable { inner: RwLock::new(inner) }
    }
}

impl InodeTable {
    /// The inode with this number.
    pub fn get(&self, number: u64) -> Option<Arc<Inode>> {
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        self.inner.read().by_number.get(index).cloned()
    }

    /// The inode of an entity, made at its first use.
    pub fn of(&self, entity: &Entity) -> Arc<Inode> {
        if let Some(inode) = self.inner.read().by_entity.get(entity) {
            return inode.clone();
        }
        let mut inner = self.inner.write();
        match inner.by_entity.get(entity) {
            Some(inode) => inode.clone(),
            None => inner.add(entity.clone()),
        }
    }

    /// The inode of an entity, if it has been used.
    pub fn existing(&self, entity: &Entity) -> Option<Arc<Inode>> {
        self.inner.read().by_entity.get(entity).cloned()
    }

    /// Marks an inode stale and takes it out of sight: the next use of its entity gets a new number.
    pub fn retire(&self, inode: &Inode) {
        let mut inner = self.inner.write();
        inode.is_stale.store(true, Ordering::Release);
        if inner.by_entity.get(&inode.entity).is_some_and(|now| now.number == inode.number) {
            inner.by_entity.remove(&inode.entity);
        }
    }

    /// The arrays that were opened so far.
    pub fn opened_arrays(&self) -> Vec<Arc<Inode>> {
        self.inner
            .read()
            .by_number
            .iter()
            .filter(|inode| inode.open_array.read().is_some())
            .cloned()
            .collect()
    }

    /// The arrays that were read or that failed, for the statistics.
    pub fn used_arrays(&self) -> Vec<Arc<Inode>> {
        let used = |counters: &Counters| {
            let requests = [&counters.reads, &counters.writes];
            requests.iter().any(|count| count.load(Ordering::Relaxed) > 0)
                || counters.errors.load(Ordering::Relaxed) > 0
        };
        let inner = self.inner.read();
        inner.by_number.iter().filter(|inode| used(&inode.counters)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_inode_per_entity() {
        let table = InodeTable::default();
        let group = table.of(&Entity::new(Kind::Group, ""));
        assert_eq!(group.number, ROOT);
        let array = table.of(&Entity::new(Kind::Array, "a/t"));
        let sidecar = table.of(&Entity::new(Kind::Sidecar, "a/t"));
        assert_ne!(array.number, sidecar.number);
        assert_eq!(table.of(&Entity::new(Kind::Array, "a/t")).number, array.number);
        assert!(table.get(array.number).is_some_and(|found| found.entity == array.entity));
        assert!(table.get(0).is_none() && table.get(99).is_none());
    }

    #[test]
    fn a_retired_inode_is_replaced_and_kept() {
        let table = InodeTable::default();
        let entity = Entity::new(Kind::Array, "t");
        let old = table.of(&entity);
        table.retire(&old);
        let new = table.of(&entity);
        assert_ne!(old.number, new.number);
        assert!(old.is_stale() && !new.is_stale());
        table.retire(&old);
        assert_eq!(table.of(&entity).number, new.number, "retiring twice takes only the old one");
        assert!(table.get(old.number).is_some_and(|inode| inode.is_stale()));
    }
}
