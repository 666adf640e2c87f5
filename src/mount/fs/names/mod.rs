//! Names of a writable mount that the store does not have, and changes of those that it has.
//!
//! There is one table ([`Names`]) of such names, by group. A name in it is a **scratch file** (`scratch.rs`): a file that a
//! program made and that is no node. When it is closed or renamed, it may become one, or change one (`make.rs`). Or the
//! name is **vacant**: a program took a generated file away, to put another in its place; or, for one thread alone, a program made
//! a node with two names by one of them, and is about to create the other, as `cp -r` does. Or it is **left over**: its node is
//! gone, and a listing that is open still has it. `create.rs`, `remove.rs` and `rename.rs` are the operations.
//!
//! Uses `hierarchy::author` for all changes of the store. Invariants: a node wins over a name of the table, and that over a
//! generated one; names change one after the other; the table is in memory only, so after a crash nothing of it is left; what
//! is in it at the end of the mount is gone, and the log says so.

mod create;
pub mod leftovers;
mod make;
mod permissions;
mod remove;
mod rename;
mod scratch;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::error::Error;
use crate::mount::fs::error::{Failure, FsResult};
use crate::mount::fs::inode::{Entity, Kind};
use crate::mount::fs::{Attributes, FileSystem, Stat};
use crate::store::join;
pub use rename::{FolderName, Replaced};
use scratch::{Budget, ScratchFile};

/// How long a name stays free for the file that takes its place.
const VACANT_FOR: Duration = Duration::from_secs(10);

/// The user that asks.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The thread, 0 if unknown.
    pub thread: u32,
}

/// A name that the store does not have.
enum Entry {
    File(Arc<ScratchFile>),
    Vacant(Instant),
    /// For this thread there is nothing, although there is a node or a generated file of this name.
    Expected(u32, Instant),
    /// An empty file, and the listings that have the name.
    LeftOver(Arc<ScratchFile>, Vec<u64>),
}

impl Entry {
    fn file(&self) -> Option<&Arc<ScratchFile>> {
        match self {
            Entry::File(file) | Entry::LeftOver(file, _) => Some(file),
            Entry::Vacant(_) | Entry::Expected(..) => None,
        }
    }
}

/// The names of one group.
type OfGroup = BTreeMap<String, Entry>;

/// All names of a mount that the store does not have.
pub struct Names {
    by_group: Mutex<HashMap<String, OfGroup>>,
    /// How many there are.
    count: AtomicUsize,
    files: Mutex<HashMap<u64, Weak<ScratchFile>>>,
    last_file: AtomicU64,
    budget: Arc<Budget>,
    /// Names change one after the other.
    changing: Mutex<()>,
}

/// What a name of the table stands for.
pub(in crate::mount::fs) enum Found {
    /// A scratch file.
    File(Entity),
    /// Nothing, although there is a generated file of this name.
    Vacant,
}

impl Names {
    /// An empty table, whose files may have this many bytes.
    pub fn new(limit_bytes: u64) -> Self {
        Names {
            by_group: Mutex::default(),
            count: AtomicUsize::new(0),
            files: Mutex::default(),
            last_file: AtomicU64::new(0),
            budget: Arc::new(Budget::new(limit_bytes)),
            changing: Mutex::default(),
        }
    }

    /// Keeps names from changing, after those that are being changed.
    pub(in crate::mount::fs) fn hold(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// What a name in a group stands for, if it is in the table.
    pub(in crate::mount::fs) fn find(&self, group: &str, name: &str) -> Option<Found> {
        if self.is_empty() {
            return None;
        }
        match self.by_group.lock().get(group)?.get(name)? {
            Entry::File(file) | Entry::LeftOver(file, _) => Some(Found::File(file.entity())),
            Entry::Vacant(since) => (since.elapsed() < VACANT_FOR).then_some(Found::Vacant),
            Entry::Expected(..) => None,
        }
    }

    /// The scratch file with this name.
    fn file(&self, group: &str, name: &str) -> Option<Arc<ScratchFile>> {
        match self.by_group.lock().get(group)?.get(name)? {
            Entry::File(file) => Some(file.clone()),
            _ => None,
        }
    }

    /// Whether a program took the generated file of this name away.
    fn is_vacant(&self, group: &str, name: &str) -> bool {
        matches!(self.find(group, name), Some(Found::Vacant))
    }

    /// The scratch file of an inode.
    fn by_number(&self, number: u64) -> Option<Arc<ScratchFile>> {
        self.files.lock().get(&number)?.upgrade()
    }

    /// A thread made a node by its other name: this one is free for what that thread creates next.
    fn expect(&self, thread: u32, group: &str, name: &str) {
        let now = Instant::now();
        if thread == 0 {
            return;
        }
        self.end_expected(|_, _, _, since| now.duration_since(since) >= VACANT_FOR);
        let is_free = |own: &OfGroup| !own.contains_key(name);
        if self.by_group.lock().get(group).is_none_or(is_free) {
            self.insert(group, name, Entry::Expected(thread, now));
        }
    }

    /// Whether a name is free for what this thread creates.
    fn is_expected(&self, thread: u32, group: &str, name: &str) -> bool {
        if self.is_empty() {
            return false;
        }
        let by_group = self.by_group.lock();
        let entry = by_group.get(group).and_then(|own| own.get(name));
        matches!(entry, Some(Entry::Expected(by, since)) if *by == thread && since.elapsed() < VACANT_FOR)
    }

    /// Names of these are not free any more. The arguments are group, name, thread and time.
    fn end_expected(&self, is_over: impl Fn(&str, &str, u32, Instant) -> bool) {
        if self.is_empty() {
            return;
        }
        let mut ended = 0;
        self.by_group.lock().retain(|group, own| {
            let before = own.len();
            own.retain(|name, entry| match entry {
                Entry::Expected(thread, since) => !is_over(group, name, *thread, *since),
                _ => true,
            });
            ended += before - own.len();
            !own.is_empty()
        });
        self.count.fetch_sub(ended, Ordering::AcqRel);
    }

    /// Changes a folder's listing: adds the scratch files, takes the vacant names away.
    pub(in crate::mount::fs) fn list(&self, group: &str, names: &mut Vec<(String, Entity)>) {
        if self.is_empty() {
            return;
        }
        let by_group = self.by_group.lock();
        let Some(own) = by_group.get(group) else { return };
        let is_node = |entity: &Entity| matches!(entity.kind, Kind::Array | Kind::Group);
        let is_shown = |name: &str, entity: &Entity| match own.get(name) {
            _ if is_node(entity) => true,
            Some(Entry::File(_)) => false,
            Some(Entry::Vacant(since)) => since.elapsed() >= VACANT_FOR,
            _ => true,
        };
        names.retain(|(name, entity)| is_shown(name, entity));
        for (name, entry) in own {
            if let Entry::File(file) = entry
                && !names.iter().any(|(other, _)| other == name)
            {
                names.push((name.clone(), file.entity()));
            }
        }
    }

    /// Whether a group has scratch files.
    fn has_files(&self, group: &str) -> bool {
        let is_file = |entry: &Entry| matches!(entry, Entry::File(_));
        self.by_group.lock().get(group).is_some_and(|own| own.values().any(is_file))
    }

    fn insert(&self, group: &str, name: &str, entry: Entry) -> Option<Entry> {
        let mut by_group = self.by_group.lock();
        let before = by_group.entry(group.to_owned()).or_default().insert(name.to_owned(), entry);
        if before.is_none() {
            self.count.fetch_add(1, Ordering::AcqRel);
        }
        before
    }

    fn remove(&self, group: &str, name: &str) -> Option<Entry> {
        if self.is_empty() {
            return None;
        }
        let mut by_group = self.by_group.lock();
        let own = by_group.get_mut(group)?;
        let removed = own.remove(name)?;
        if own.is_empty() {
            by_group.remove(group);
        }
        self.count.fetch_sub(1, Ordering::AcqRel);
        Some(removed)
    }

    /// A listing is closed: names that are left for it go.
    fn end_listing(&self, handle: u64) -> Vec<Entry> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut ended = Vec::new();
        self.by_group.lock().retain(|_, own| {
            let over: Vec<String> =
                own.iter_mut().filter_map(|(name, entry)| over_with(name, entry, handle)).collect();
            ended.extend(over.into_iter().filter_map(|name| own.remove(&name)));
            !own.is_empty()
        });
        self.count.fetch_sub(ended.len(), Ordering::AcqRel);
        ended
    }

    /// A group is gone: nothing of it is kept for one that comes in its place.
    fn remove_group(&self, group: &str) -> Vec<Entry> {
        let removed = self.by_group.lock().remove(group).unwrap_or_default();
        self.count.fetch_sub(removed.len(), Ordering::AcqRel);
        removed.into_values().collect()
    }

    /// A group has another path, and so have those below it.
    fn move_group(&self, from: &str, to: &str) {
        let mut by_group = self.by_group.lock();
        let below = format!("{from}/");
        let moved: Vec<String> =
            by_group.keys().filter(|group| *group == from || group.starts_with(&below)).cloned().collect();
        for group in moved {
            let Some(own) = by_group.remove(&group) else { continue };
            let path = format!("{to}{}", group.strip_prefix(from).unwrap_or_default());
            for (name, entry) in &own {
                if let Some(file) = entry.file() {
                    file.set_place(&path, name);
                }
            }
            by_group.insert(path, own);
        }
    }
}

/// The name, if its last listing is this one.
fn over_with(name: &str, entry: &mut Entry, handle: u64) -> Option<String> {
    let Entry::LeftOver(_, listings) = entry else { return None };
    listings.retain(|listing| *listing != handle);
    listings.is_empty().then(|| name.to_owned())
}

impl FileSystem {
    /// The attributes of a scratch file.
    pub(super) fn stat_scratch(&self, number: u64) -> FsResult<Stat> {
        let file = self.names.by_number(number).ok_or(Failure::Errno(libc::ENOENT))?;
        let entity = file.entity();
        let meta = file.meta();
        let attributes = Attributes {
            inode: self.inodes.number_of(&entity),
            is_folder: false,
            size_bytes: meta.size_bytes,
            mode: meta.mode,
            uid: meta.uid,
            gid: meta.gid,
            mtime: meta.modified,
        };
        Ok(Stat { attributes, valid_for: Duration::ZERO, entry_valid_for: Duration::ZERO })
    }

    /// Why a scratch file did not become what its name says.
    pub(super) fn scratch_problem(&self, number: u64) -> Option<String> {
        self.names.by_number(number)?.meta().problem
    }

    /// How long the kernel may remember what a name stands for.
    pub(super) fn entry_valid_for(&self, entity: &Entity, valid_for: Duration) -> Duration {
        let may_change = self.options.changes_nodes() || (self.options.writable && entity.is_sidecar());
        if may_change { Duration::ZERO } else { valid_for }
    }

    /// Puts a file into the table. The inode lives as long as it is there.
    fn insert_file(&self, group: &str, name: &str, file: Arc<ScratchFile>) {
        self.inodes.look_up(&file.entity());
        file.set_place(group, name);
        let before = self.names.insert(group, name, Entry::File(file));
        self.end_entry(before);
    }

    /// What was in the table under a name is not there any more.
    fn end_entry(&self, entry: Option<Entry>) {
        if let Some(file) = entry.as_ref().and_then(Entry::file) {
            self.inodes.forget(self.inodes.number_of(&file.entity()), 1);
        }
    }

    fn remove_name(&self, group: &str, name: &str) {
        let removed = self.names.remove(group, name);
        self.end_entry(removed);
    }

    /// A new scratch file.
    fn new_file(&self, (mode, caller): (u32, Caller)) -> Arc<ScratchFile> {
        let number = self.names.last_file.fetch_add(1, Ordering::Relaxed) + 1;
        let file = Arc::new(ScratchFile::new(number, (mode & 0o777) as u16, caller, &self.names.budget));
        let mut files = self.names.files.lock();
        files.retain(|_, file| file.strong_count() > 0);
        files.insert(number, Arc::downgrade(&file));
        file
    }

    /// Whether a name in a folder is free for what this thread creates.
    pub(super) fn is_expected(&self, (folder, name): (u64, &str), thread: u32) -> bool {
        !self.names.is_empty()
            && self.inode(folder).is_ok_and(|inode| {
                inode.entity.kind == Kind::Group && self.names.is_expected(thread, &inode.entity.path, name)
            })
    }

    /// A thread lists a folder, so it knows what is there.
    pub(super) fn end_expected(&self, folder: u64, thread: u32) {
        if let Ok(inode) = self.inode(folder) {
            self.names.end_expected(|group, _, by, _| by == thread && *group == *inode.entity.path);
        }
    }

    /// A listing is closed.
    pub(super) fn end_listing(&self, handle: u64) {
        for entry in self.names.end_listing(handle) {
            self.end_entry(Some(entry));
        }
    }

    /// The mount ends, and with it all scratch files.
    pub fn end_names(&self) {
        let all = std::mem::take(&mut *self.names.by_group.lock());
        for (group, own) in all {
            for (name, entry) in own {
                if let Entry::File(file) = entry {
                    let (path, size_bytes) = (join(&group, &name), file.meta().size_bytes);
                    log::warn!(
                        "/{path}: this scratch file of {size_bytes} bytes is gone: it is no array or group"
                    );
                }
            }
        }
    }

    /// The path of the group whose names are about to change, by a folder's inode. The caller has names locked.
    fn group_to_change(&self, folder: u64) -> FsResult<Arc<str>> {
        if !self.options.writable {
            return Err(Failure::Errno(libc::EROFS));
        }
        if self.nodes.store().writer().is_none() {
            return Err(Failure::Errno(libc::EROFS));
        }
        let inode = self.inode(folder)?;
        let is_root_array = self.context().is_root_array(&inode.entity.path, crate::array::Blocking::Yes)?;
        if inode.entity.kind != Kind::Group || is_root_array {
            return Err(Failure::Errno(libc::EPERM));
        }
        if self.inodes.number_of(&inode.entity) != folder {
            // It was removed or renamed, and another may have taken its place.
            return Err(Failure::Errno(libc::ENOENT));
        }
        Ok(inode.entity.path.clone())
    }

    /// Counts and logs why a change of names is refused, and fails with this errno.
    fn refuse<T>(&self, (request, path): (&str, &str), errno: i32, reason: impl Into<String>) -> FsResult<T> {
        let error = Error::Usage(reason.into());
        self.failures.note_as(request, path, errno, &error);
        self.metrics.note_error(&error);
        Err(Failure::Errno(errno))
    }

    /// Counts and logs why a change of names fails.
    fn note_names(&self, request: &str, path: &str, failure: Failure) -> Failure {
        if let Failure::Error(error) = &failure {
            self.failures.note(request, path, error);
            self.metrics.note_error(error);
        }
        failure
    }
}
