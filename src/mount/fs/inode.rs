//! Inodes: the numbers by which the kernel knows files and folders, and the state of each. `entity.rs` says what one stands for.
//!
//! There is one inode for each path, kind and view, and it lives as long as the mount. The inodes of scratch files, of planes and of
//! slices (an array may have any number of them) live until the kernel forgets them.
//!
//! This file does no I/O. It uses `entity.rs`, and `hierarchy` for open arrays.
//!
//! Invariants: a number is never reused; an inode's [`Entity`] never changes; a stale inode, whose array was replaced by another
//! one of the same name, stays in the table, so that its handles get ESTALE, but no lookup finds it.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::array::Array;
use crate::cancellation::Cancellation;
use crate::formats::virtual_file::VirtualFile;
use crate::hierarchy::{OpenArray, OpenArrays, SharedArray};
use crate::mount::fs::array_files::written_end::WrittenEnd;
use crate::mount::fs::entity::{Entity, EntityKind};
use crate::mount::fs::error::{Failure, FsResult};
use crate::mount::fs::page_cache::cache_mode::PageCacheUsers;
use crate::mount::fs::recovery::array_identity::ArrayIdentity;
use crate::mount::journal::record::WrittenEndRecord;
use crate::mount::metrics::ArrayCounters;
use crate::store::ObjectVersion;

/// The inode of the mount's root.
pub const ROOT: u64 = 1;

/// One inode.
///
/// Programs look many files up and open few of them, so an inode has only what every lookup needs; its [`FileState`] is made at the
/// first use.
pub struct Inode {
    /// Its number.
    pub number: u64,
    /// What it stands for.
    pub entity: Entity,
    /// For companion files: the size that the kernel has got last, `u64::MAX` if none.
    known_size: AtomicU64,
    /// For sidecars: a hash of this size and of the version of the documents that it follows from; 0 if that is unknown. A node is
    /// read again more often than its sidecar gets another length.
    size_origin: AtomicU64,
    /// A daemon before gave its number to the kernel.
    is_former: AtomicBool,
    state: OnceLock<Box<FileState>>,
    source: Arc<StateSource>,
}

/// What the states of files are made from.
struct StateSource {
    arrays: Arc<OpenArrays>,
    /// Gets each change of a written end.
    end_observer: OnceLock<WrittenEndObserver>,
}

/// A function that gets the written ends of arrays' own files when they change, with the numbers of the inodes.
pub type WrittenEndObserver = Arc<dyn Fn(u64, WrittenEndRecord) + Send + Sync>;

/// What the handles of a file and its requests share.
pub struct FileState {
    /// For arrays: the counters.
    pub counters: ArrayCounters,
    /// For arrays: the open array that the handles of this inode and companion files share.
    pub shared: Option<Arc<SharedArray>>,
    /// For arrays: how far the file has been written since it was truncated.
    pub written_end: WrittenEnd,
    /// For arrays: which of its handles use the kernel's page cache.
    pub page_cache_users: Arc<PageCacheUsers>,
    /// For arrays: whether consolidated metadata was compared with the document since the mount began.
    pub copies_compared: AtomicBool,
    /// For companion files: what its handles read, while any is open.
    pub snapshot: Mutex<Weak<VirtualFile>>,
    /// For arrays: what a daemon that takes the session over compares.
    pub identity: ArrayIdentity,
}

impl Inode {
    fn new(number: u64, entity: Entity, source: &Arc<StateSource>) -> Arc<Self> {
        Arc::new(Inode {
            number,
            entity,
            known_size: AtomicU64::new(u64::MAX),
            size_origin: AtomicU64::new(0),
            is_former: AtomicBool::new(false),
            state: OnceLock::new(),
            source: source.clone(),
        })
    }

    /// Returns the state of its file. The first use makes it.
    pub fn state(&self) -> &FileState {
        self.state.get_or_init(|| {
            let Entity { kind, view, path } = &self.entity;
            let shared = (*kind == EntityKind::Array).then(|| self.source.arrays.of(view.clone(), path));
            let page_cache_users = Arc::<PageCacheUsers>::default();
            if self.is_former.load(Ordering::Acquire) {
                // The chunks that its pages were made of are not known any more.
                page_cache_users.drops.mark_outdated();
            }
            let state = Box::new(FileState {
                counters: ArrayCounters::default(),
                shared,
                written_end: WrittenEnd::default(),
                page_cache_users,
                copies_compared: AtomicBool::new(false),
                snapshot: Mutex::default(),
                identity: ArrayIdentity::default(),
            });
            self.observe_written_end(&state);
            state
        })
    }

    fn observe_written_end(&self, state: &FileState) {
        if let Some(observer) = self.source.end_observer.get()
            && self.entity.kind == EntityKind::Array
            && self.entity.view.is_none()
        {
            let (observer, number) = (observer.clone(), self.number);
            state.written_end.observe(Box::new(move |end| observer(number, end)));
        }
    }

    /// Returns the state of its file, if it was used.
    pub fn known_state(&self) -> Option<&FileState> {
        self.state.get().map(|state| &**state)
    }

    /// Returns the array that handles and companion files share, if it was used.
    pub fn known_array(&self) -> Option<&Arc<SharedArray>> {
        match self.known_state() {
            Some(state) => state.shared.as_ref(),
            // The array may be open through the inode that its entity had before.
            None if self.entity.kind == EntityKind::Array => {
                self.source.arrays.current(self.entity.view.clone(), &self.entity.path)?;
                self.state().shared.as_ref()
            }
            None => None,
        }
    }

    /// Returns the size that the kernel has got last of a companion file; `None` if it got none.
    pub fn known_size(&self) -> Option<u64> {
        Some(self.known_size.load(Ordering::Acquire)).filter(|&size| size != u64::MAX)
    }

    /// Returns the size that the kernel has got last of a sidecar, if it follows from this version of the node's documents.
    pub fn known_size_of(&self, version: &ObjectVersion) -> Option<u64> {
        let origin = self.size_origin.load(Ordering::Acquire);
        // Another thread may be recording another size: then the hash is not that of both.
        self.known_size().filter(|&size_bytes| origin == size_origin(size_bytes, version))
    }

    /// Records the version of the documents that a size of a sidecar follows from. The size itself is recorded when the kernel gets it.
    pub fn record_size_origin(&self, size_bytes: u64, version: &ObjectVersion) {
        self.size_origin.store(size_origin(size_bytes, version), Ordering::Release);
    }

    /// Returns whether another array has taken its place. Every use of a stale inode is ESTALE.
    pub fn is_stale(&self) -> bool {
        self.known_state().and_then(|state| state.shared.as_ref()).is_some_and(|shared| shared.is_stale())
    }

    /// Returns the array that its handles read now.
    pub fn open_array(&self) -> Option<Arc<OpenArray>> {
        self.known_array()?.current()
    }

    /// Returns whether its pages may have been written through a memory map.
    fn was_written(&self) -> bool {
        self.open_array()
            .is_some_and(|open| open.array.as_ref().is_ok_and(|array| array.writer().was_written()))
    }

    /// Returns the array for a request. Fails with ESTALE if another one has taken its place.
    pub fn array(&self) -> FsResult<Arc<Array>> {
        if self.is_stale() {
            return Err(Failure::Errno(libc::ESTALE));
        }
        let open = self.open_array().ok_or(Failure::Errno(libc::EBADF))?;
        Ok(open.array.clone()?)
    }

    /// Compares the chunks that readers have seen with the store, for an open(2) of a file that shows them. Returns a lock: the
    /// next open of the array's own file waits for it.
    pub fn revalidate(
        &self,
        shared: &SharedArray,
        array: &Array,
        cancellation: &Cancellation,
    ) -> FsResult<MutexGuard<'_, ()>> {
        // The kernel has no pages of a file that was never opened.
        let is_first = shared.record_check();
        let page_cache_users = &self.state().page_cache_users;
        let opening = page_cache_users.opening.lock();
        // The comparison is needed with direct I/O, too: changed chunks must leave the chunk cache.
        if !array.revalidate(cancellation)? && !is_first {
            page_cache_users.drops.mark_outdated();
        }
        Ok(opening)
    }
}

fn size_origin(size_bytes: u64, version: &ObjectVersion) -> u64 {
    let mut hasher = DefaultHasher::new();
    (size_bytes, version).hash(&mut hasher);
    hasher.finish()
}

/// The inodes of a mount.
pub struct InodeTable {
    inner: RwLock<InodeIndex>,
    source: Arc<StateSource>,
    /// Gets each change before its number is given away.
    observer: OnceLock<ChangeObserver>,
}

/// A function that gets the changes of a table of inodes.
pub type ChangeObserver = Box<dyn Fn(InodeChange<'_>) + Send + Sync>;

/// A change of the table of inodes.
pub enum InodeChange<'a> {
    /// An inode was added.
    Added(&'a Inode),
    /// Another file has taken the place of this one.
    Retired(u64),
    /// The kernel gets another size of a companion file: the number and the size.
    Sized(u64, u64),
    /// The kernel learns the number of a transient inode once more.
    LookedUp(u64),
    /// The kernel has forgotten a transient inode, after it had learnt its number this many times.
    Forgotten(u64, u64),
}

/// An inode from before a restart of the daemon.
pub struct FormerInode {
    /// Its number.
    pub number: u64,
    /// What it stands for.
    pub entity: Entity,
    /// How often the kernel has learnt its number, if it is transient.
    pub lookups: u64,
    /// The size that the kernel has of a companion file.
    pub size_bytes: Option<u64>,
    /// Another file has taken its place.
    pub is_retired: bool,
}

/// An inode by its entity.
struct ByEntity(Arc<Inode>);

impl Borrow<Entity> for ByEntity {
    fn borrow(&self) -> &Entity {
        &self.0.entity
    }
}

impl PartialEq for ByEntity {
    fn eq(&self, other: &Self) -> bool {
        self.0.entity == other.0.entity
    }
}

impl Eq for ByEntity {}

impl Hash for ByEntity {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.entity.hash(hasher);
    }
}

struct InodeIndex {
    /// Inode `n` is at index `n - 1`.
    by_number: Vec<Arc<Inode>>,
    /// Inode `FIRST_SIDECAR + n` is at index `n`.
    sidecars: Vec<Arc<Inode>>,
    by_entity: HashSet<ByEntity>,
    /// The inodes that the kernel may forget, by number.
    transient: HashMap<u64, TransientInode>,
    next_transient: u64,
}

struct TransientInode {
    inode: Arc<Inode>,
    /// How often the kernel was given this number, less how often it forgot it.
    lookups: u64,
}

/// The first number of sidecars. `cp -r` copies the files of a folder in the order of their numbers, and an array must come before
/// the sidecar that declares it.
const FIRST_SIDECAR: u64 = 1 << 30;
/// The first number of transient inodes. It is below 2^32, because stat(2) of larger numbers fails in 32-bit programs.
const FIRST_TRANSIENT: u64 = 1 << 31;

impl InodeIndex {
    fn add_transient(&mut self, entity: &Entity, source: &Arc<StateSource>) -> u64 {
        let number = self.next_transient;
        self.next_transient += 1;
        let inode = Inode::new(number, entity.clone(), source);
        self.by_entity.replace(ByEntity(inode.clone()));
        self.transient.insert(number, TransientInode { inode, lookups: 0 });
        number
    }

    fn add(&mut self, mut entity: Entity, source: &Arc<StateSource>) -> Arc<Inode> {
        // An array and its sidecar, which every listing finds together, share the path.
        if entity.is_sidecar()
            && let Some(ByEntity(array)) = self.by_entity.get(&Entity::array(None, entity.path.clone()))
        {
            entity.path = array.entity.path.clone();
        }
        let (first, inodes) =
            if entity.is_sidecar() { (FIRST_SIDECAR, &mut self.sidecars) } else { (1, &mut self.by_number) };
        let inode = Inode::new(first + inodes.len() as u64, entity, source);
        inodes.push(inode.clone());
        self.by_entity.replace(ByEntity(inode.clone()));
        inode
    }
}

impl InodeTable {
    /// Creates a table that has only the root.
    pub fn new(arrays: Arc<OpenArrays>) -> Self {
        let mut inner = InodeIndex {
            by_number: Vec::new(),
            sidecars: Vec::new(),
            by_entity: HashSet::new(),
            transient: HashMap::new(),
            next_transient: FIRST_TRANSIENT,
        };
        let source = Arc::new(StateSource { arrays, end_observer: OnceLock::new() });
        inner.add(Entity::new(EntityKind::Group, ""), &source);
        InodeTable { inner: RwLock::new(inner), source, observer: OnceLock::new() }
    }

    /// Gives each change to `observer` from now on.
    pub fn observe(&self, observer: ChangeObserver) {
        let _ = self.observer.set(observer);
    }

    /// Gives each change of a written end to `observer` from now on.
    pub fn observe_written_ends(&self, observer: WrittenEndObserver) {
        let _ = self.source.end_observer.set(observer);
        for inode in &self.inner.read().by_number {
            inode.known_state().into_iter().for_each(|state| inode.observe_written_end(state));
        }
    }

    fn report(&self, change: InodeChange<'_>) {
        if let Some(observer) = self.observer.get() {
            observer(change);
        }
    }

    /// Adds an inode from before a restart of the daemon, in the order of their numbers; `None` if the number belongs to another one.
    pub fn restore(&self, former: FormerInode) -> Option<Arc<Inode>> {
        let FormerInode { number, entity, lookups, size_bytes, is_retired } = former;
        let inode = if entity.is_transient() {
            let mut inner = self.inner.write();
            let inode = Inode::new(number, entity, &self.source);
            inner.by_entity.replace(ByEntity(inode.clone()));
            inner.transient.insert(number, TransientInode { inode: inode.clone(), lookups });
            inode
        } else if number == ROOT {
            self.get(ROOT)?
        } else {
            self.inner.write().add(entity, &self.source)
        };
        inode.is_former.store(true, Ordering::Release);
        inode.known_size.store(size_bytes.unwrap_or(u64::MAX), Ordering::Release);
        if is_retired {
            self.retire(&inode);
        }
        (inode.number == number).then_some(inode)
    }

    /// Records the size of a companion file that the kernel is about to get.
    pub fn record_size(&self, inode: &Inode, size_bytes: u64) {
        if inode.known_size.swap(size_bytes, Ordering::AcqRel) != size_bytes {
            self.report(InodeChange::Sized(inode.number, size_bytes));
        }
    }

    /// Reserves the numbers of transient inodes up to `last`, which the kernel may know.
    pub fn keep_transients_after(&self, last: u64) {
        let mut inner = self.inner.write();
        inner.next_transient = inner.next_transient.max(last + 1);
    }

    /// Returns the inode with this number.
    pub fn get(&self, number: u64) -> Option<Arc<Inode>> {
        if number >= FIRST_TRANSIENT {
            return self.inner.read().transient.get(&number).map(|transient| transient.inode.clone());
        }
        let inner = self.inner.read();
        let (first, inodes) =
            if number >= FIRST_SIDECAR { (FIRST_SIDECAR, &inner.sidecars) } else { (1, &inner.by_number) };
        let index = usize::try_from(number.checked_sub(first)?).ok()?;
        inodes.get(index).cloned()
    }

    /// Returns the inode with this number for a request. Fails with ENOENT if it does not exist, with ESTALE if it is stale.
    pub fn live(&self, number: u64) -> FsResult<Arc<Inode>> {
        let inode = self.get(number).ok_or(Failure::Errno(libc::ENOENT))?;
        if inode.is_stale() {
            return Err(Failure::Errno(libc::ESTALE));
        }
        Ok(inode)
    }

    /// Returns the number of an entity for a reply to the kernel. Each call for a transient inode needs a [`InodeTable::forget`].
    pub fn look_up(&self, entity: &Entity) -> u64 {
        if !entity.is_transient() {
            return self.get_or_add(entity).number;
        }
        // The lookup and its count are one step: a forget in between would remove the inode.
        let mut inner = self.inner.write();
        let known = inner.by_entity.get(entity).map(|ByEntity(inode)| inode.number);
        let number = known.unwrap_or_else(|| inner.add_transient(entity, &self.source));
        if let Some(transient) = inner.transient.get_mut(&number) {
            transient.lookups += 1;
            if known.is_none() {
                self.report(InodeChange::Added(&transient.inode));
            }
            self.report(InodeChange::LookedUp(number));
        }
        number
    }

    /// Takes back this many lookups of an inode, which the kernel has forgotten. A transient inode goes with its last lookup.
    pub fn forget(&self, number: u64, lookups: u64) {
        if number < FIRST_TRANSIENT {
            return;
        }
        let mut inner = self.inner.write();
        let Some(transient) = inner.transient.get_mut(&number) else { return };
        self.report(InodeChange::Forgotten(number, lookups));
        transient.lookups = transient.lookups.saturating_sub(lookups);
        if transient.lookups > 0 {
            return;
        }
        if let Some(TransientInode { inode, .. }) = inner.transient.remove(&number)
            && inner.by_entity.get(&inode.entity).is_some_and(|ByEntity(now)| now.number == number)
        {
            inner.by_entity.remove(&inode.entity);
        }
    }

    /// Returns the number of an entity; 0 for a transient one that the kernel does not know.
    pub fn number_of(&self, entity: &Entity) -> u64 {
        match self.find(entity) {
            Some(inode) => inode.number,
            None if entity.is_transient() => 0,
            None => self.get_or_add(entity).number,
        }
    }

    /// Returns the inode of an entity that is not transient. Its first use creates it.
    pub fn get_or_add(&self, entity: &Entity) -> Arc<Inode> {
        if let Some(ByEntity(inode)) = self.inner.read().by_entity.get(entity) {
            return inode.clone();
        }
        let mut inner = self.inner.write();
        match inner.by_entity.get(entity) {
            Some(ByEntity(inode)) => inode.clone(),
            None => {
                let inode = inner.add(entity.clone(), &self.source);
                self.report(InodeChange::Added(&inode));
                inode
            }
        }
    }

    /// Returns the inode of an entity, if it has one.
    pub fn find(&self, entity: &Entity) -> Option<Arc<Inode>> {
        self.inner.read().by_entity.get(entity).map(|ByEntity(inode)| inode.clone())
    }

    /// Marks an array's inode stale and hides it from lookups. The next use of its entity gets a new number.
    pub fn retire(&self, inode: &Inode) {
        let mut inner = self.inner.write();
        // This makes the state of a file that was not used, so that a later use does not find the array that takes its place.
        if let Some(shared) = &inode.state().shared {
            self.source.arrays.retire(shared);
        }
        self.report(InodeChange::Retired(inode.number));
        if inner.by_entity.get(&inode.entity).is_some_and(|ByEntity(now)| now.number == inode.number) {
            inner.by_entity.remove(&inode.entity);
        }
    }

    /// Returns the inodes of a node and of all nodes below it, with those of their views and companion files.
    pub fn inodes_below(&self, path: &str) -> Vec<Arc<Inode>> {
        let inner = self.inner.read();
        let inodes = inner.by_entity.iter().map(|ByEntity(inode)| inode);
        inodes.filter(|inode| is_at_or_below(&inode.entity.path, path)).cloned().collect()
    }

    /// Retires the inodes of a node and of all nodes below it, and returns the open arrays among them. The kernel must not mix what
    /// it knows of them with the nodes that take their place.
    pub fn retire_below(&self, path: &str) -> Vec<(Arc<Inode>, Arc<Array>)> {
        let inodes = self.inodes_below(path);
        inodes.iter().for_each(|inode| self.retire(inode));
        with_open_arrays(inodes)
    }

    /// Returns the open arrays among a node and all nodes below it.
    pub fn open_arrays_below(&self, path: &str) -> Vec<(Arc<Inode>, Arc<Array>)> {
        with_open_arrays(self.inodes_below(path))
    }

    /// Returns the numbers of arrays with pages that may have been written through a memory map.
    pub fn written_arrays(&self) -> Vec<u64> {
        self.opened_arrays().iter().filter(|inode| inode.was_written()).map(|inode| inode.number).collect()
    }

    /// Returns the arrays that have been opened.
    pub fn opened_arrays(&self) -> Vec<Arc<Inode>> {
        self.inner
            .read()
            .by_number
            .iter()
            .filter(|inode| inode.known_state().is_some() && inode.open_array().is_some())
            .cloned()
            .collect()
    }

    /// Returns the arrays with requests or errors, for the metrics.
    pub fn used_arrays(&self) -> Vec<Arc<Inode>> {
        self.inner
            .read()
            .by_number
            .iter()
            .filter(|inode| inode.known_state().is_some_and(|state| state.counters.is_used()))
            .cloned()
            .collect()
    }
}

/// Returns whether a path is `top` or below it.
pub fn is_at_or_below(path: &str, top: &str) -> bool {
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the inodes that have an open array, with it.
fn with_open_arrays(inodes: Vec<Arc<Inode>>) -> Vec<(Arc<Inode>, Arc<Array>)> {
    let inodes = inodes.into_iter();
    inodes.filter_map(|inode| Some((inode.clone(), inode.open_array()?.array.clone().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::{Engine, Layout};
    use crate::formats::{CompanionPlace, JSON};
    use crate::hierarchy::View;
    use crate::store::{MemoryStore, Store};

    fn table() -> InodeTable {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        InodeTable::new(Arc::new(OpenArrays::new(&Engine::new(1 << 20, 1), &store, Layout::default())))
    }

    #[test]
    fn one_inode_per_entity() {
        let table = table();
        let group = table.get_or_add(&Entity::new(EntityKind::Group, ""));
        assert_eq!(group.number, ROOT);
        let array = table.get_or_add(&Entity::new(EntityKind::Array, "a/t"));
        let sidecar =
            table.get_or_add(&Entity::new(EntityKind::Companion(JSON, CompanionPlace::NextToNode), "a/t"));
        assert_ne!(array.number, sidecar.number);
        assert!(Arc::ptr_eq(&array.entity.path, &sidecar.entity.path));
        assert_eq!(table.get_or_add(&Entity::new(EntityKind::Array, "a/t")).number, array.number);
        assert!(table.get(array.number).is_some_and(|found| found.entity == array.entity));
        assert!(table.get(0).is_none() && table.get(99).is_none());
    }

    /// A program that lists a store makes an inode for each array and sidecar, and opens none of them.
    #[test]
    fn inodes_that_are_only_looked_up_are_small() {
        assert!(size_of::<Inode>() <= 128, "{}", size_of::<Inode>());
        let table = table();
        let entity = Entity::new(EntityKind::Array, "t");
        let inode = table.get_or_add(&entity);
        assert!(!inode.is_stale() && inode.open_array().is_none() && table.used_arrays().is_empty());
        assert!(inode.known_state().is_none());
        // Its array has gone before it was used: a later use must not find the one that takes its place.
        table.retire(&inode);
        let new = table.get_or_add(&entity);
        assert!(inode.is_stale() && !new.is_stale());
        let arrays = [&inode, &new].map(|inode| inode.state().shared.clone());
        assert!(arrays[0].as_ref().zip(arrays[1].as_ref()).is_some_and(|(old, new)| !Arc::ptr_eq(old, new)));
    }

    #[test]
    fn planes_lose_their_inodes_when_the_kernel_forgets_them() {
        let table = table();
        let plane = |index| Entity::with_view(EntityKind::Group, View::Plane { axis: 0, index }, "t");
        assert_eq!(table.number_of(&plane(7)), 0);
        let number = table.look_up(&plane(7));
        assert_eq!((table.look_up(&plane(7)), table.number_of(&plane(7))), (number, number));
        assert_ne!(table.look_up(&plane(8)), number);
        table.forget(number, 1);
        assert!(table.get(number).is_some_and(|inode| inode.entity == plane(7)));
        table.forget(number, 1);
        assert!(table.get(number).is_none() && table.find(&plane(7)).is_none());
        assert_ne!(table.look_up(&plane(7)), number, "a number is never reused");
        table.forget(ROOT, 1);
        assert!(table.get(ROOT).is_some());
    }

    #[test]
    fn a_retired_inode_is_replaced_and_kept() {
        let table = table();
        let entity = Entity::new(EntityKind::Array, "t");
        let old = table.get_or_add(&entity);
        table.retire(&old);
        let new = table.get_or_add(&entity);
        assert_ne!(old.number, new.number);
        assert!(old.is_stale() && !new.is_stale());
        table.retire(&old);
        assert_eq!(table.get_or_add(&entity).number, new.number, "retiring twice takes only the old one");
        assert!(table.get(old.number).is_some_and(|inode| inode.is_stale()));
    }
}
