//! Inodes: what each number stands for. There is one inode per path and kind, kept for the life of the mount.
//!
//! No I/O and no FUSE types. Uses `array` and `metadata` for open arrays, `formats` for the names of formats.
//!
//! Invariants: a number is never reused; an inode's [`Entity`] never changes; a stale inode (its array was
//! replaced by another one of the same name) stays in the table, so that old handles get ESTALE, but no
//! lookup finds it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};

use crate::array::Array;
use crate::error::Error;
use crate::formats::Format;
use crate::metadata::ArrayMetadata;
use crate::mount::fs::page_cache::cache_mode::PageCacheUsers;
use crate::mount::fs::write::written_end::WrittenEnd;
use crate::mount::metrics::ArrayCounters;
use crate::store::{Audience, ObjectVersion};

/// The inode of the mount's root.
pub const ROOT: u64 = 1;

/// The kind of file or folder of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A group's folder; also the root folder if the root is an array.
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
    DirtyReport,
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
    /// An array's companion file in such a folder.
    Companion(&'static Format),
}

impl Kind {
    /// Whether this is a folder.
    pub fn is_folder(self) -> bool {
        use Kind::{FormatFolder, Formats, Group, Internals, JsonFolder};
        matches!(self, Group | Internals | Formats | JsonFolder | FormatFolder(_))
    }
}

/// What an inode stands for: the kind of file, and the path of the node it is made from (`""` is the root).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entity {
    /// The kind of file or folder.
    pub kind: Kind,
    /// The node's path in the hierarchy.
    pub path: Arc<str>,
}

impl Entity {
    /// The entity of a node.
    pub fn new(kind: Kind, path: impl Into<Arc<str>>) -> Self {
        Entity { kind, path: path.into() }
    }
}

/// An open array, shared by the handles of its inode.
pub struct OpenArray {
    /// The metadata that the array was built from; growth replaces both.
    pub metadata: Arc<ArrayMetadata>,
    /// The version of the metadata document.
    pub version: Option<ObjectVersion>,
    /// When the metadata was read: older metadata never replaces it.
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
    /// For arrays: the counters.
    pub counters: ArrayCounters,
    /// For arrays: the users that must be able to read every object that is read.
    pub audience: Arc<Audience>,
    /// For arrays that have been opened: the array that its handles read. Replaced when the array grows in
    /// place.
    pub open_array: RwLock<Option<Arc<OpenArray>>>,
    /// When the metadata of `open_array` was last compared with the store.
    pub checked_at: Mutex<Option<Instant>>,
    /// For arrays: how far the file has been written since it was truncated.
    pub written_end: WrittenEnd,
    /// For arrays: which of its handles use the kernel's page cache.
    pub page_cache_users: Arc<PageCacheUsers>,
    is_stale: AtomicBool,
}

impl Inode {
    fn new(number: u64, entity: Entity) -> Arc<Self> {
        Arc::new(Inode {
            number,
            entity,
            counters: ArrayCounters::default(),
            audience: Arc::default(),
            open_array: RwLock::new(None),
            checked_at: Mutex::new(None),
            written_end: WrittenEnd::default(),
            page_cache_users: Arc::default(),
            is_stale: AtomicBool::new(false),
        })
    }

    /// Whether another array has taken its place: every use of this inode is ESTALE.
    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Acquire)
    }

    /// The array that handles read now.
    pub fn open_array(&self) -> Option<Arc<OpenArray>> {
        self.open_array.read().clone()
    }
}

/// All inodes of a mount.
pub struct InodeTable {
    inner: RwLock<Inner>,
}

struct Inner {
    /// Inode `n` is at index `n - 1`.
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

    /// The inode of an entity, created at its first use.
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

    /// Marks an inode stale and hides it from lookups: the next use of its entity gets a new number.
    pub fn retire(&self, inode: &Inode) {
        let mut inner = self.inner.write();
        inode.is_stale.store(true, Ordering::Release);
        if inner.by_entity.get(&inode.entity).is_some_and(|now| now.number == inode.number) {
            inner.by_entity.remove(&inode.entity);
        }
    }

    /// The arrays that have been opened.
    pub fn opened_arrays(&self) -> Vec<Arc<Inode>> {
        self.inner
            .read()
            .by_number
            .iter()
            .filter(|inode| inode.open_array.read().is_some())
            .cloned()
            .collect()
    }

    /// The arrays with requests or errors, for the metrics.
    pub fn used_arrays(&self) -> Vec<Arc<Inode>> {
        let used = |counters: &ArrayCounters| {
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
