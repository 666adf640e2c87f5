//! The names of a mount that the store does not have, by group, and the scratch files that have them.
//!
//! Uses the inodes, since a scratch file's inode lives as long as its names. Invariant: the table is in memory only, so after a crash
//! nothing of it is left.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::mount::fs::attributes::{Attributes, Stat};
use crate::mount::fs::error::{Failure, FsResult};
use crate::mount::fs::inode::{Entity, EntityKind, InodeTable};
use crate::mount::fs::names::scratch::{Budget, Caller, ScratchFile};
use crate::mount::fs::request::RequestLog;
use crate::store::join;

/// How long a name stays free for the file that takes its place.
const VACANT_FOR: Duration = Duration::from_secs(10);

/// A name that the store does not have.
enum NameEntry {
    File(Arc<ScratchFile>),
    Vacant(Instant),
    /// For this thread there is nothing, although there is a node or a generated file of this name.
    Expected(u32, Instant),
    /// An empty file, and the listings that have the name.
    LeftOver(Arc<ScratchFile>, Vec<u64>),
}

impl NameEntry {
    fn file(&self) -> Option<&Arc<ScratchFile>> {
        match self {
            NameEntry::File(file) | NameEntry::LeftOver(file, _) => Some(file),
            NameEntry::Vacant(_) | NameEntry::Expected(..) => None,
        }
    }
}

/// The names of one group.
type GroupNames = BTreeMap<String, NameEntry>;

/// All names of a mount that the store does not have.
pub struct NameTable {
    inodes: Arc<InodeTable>,
    log: Arc<RequestLog>,
    by_group: Mutex<HashMap<String, GroupNames>>,
    /// How many there are.
    count: AtomicUsize,
    files: Mutex<HashMap<u64, Weak<ScratchFile>>>,
    last_file: AtomicU64,
    budget: Arc<Budget>,
    /// Names change one after the other.
    changing: Mutex<()>,
}

/// What a name of the table stands for.
pub enum KnownName {
    /// A scratch file.
    File(Entity),
    /// Nothing, although there is a generated file of this name.
    Vacant,
}

impl NameTable {
    /// An empty table, whose files may have this many bytes.
    pub fn new(inodes: Arc<InodeTable>, log: Arc<RequestLog>, limit_bytes: u64) -> Self {
        NameTable {
            inodes,
            log,
            by_group: Mutex::default(),
            count: AtomicUsize::new(0),
            files: Mutex::default(),
            last_file: AtomicU64::new(0),
            budget: Arc::new(Budget::new(limit_bytes)),
            changing: Mutex::default(),
        }
    }

    /// Keeps names from changing, after those that are being changed. Every change of names holds this lock.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    /// Whether the table has no name.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// What a name in a group stands for, if it is in the table.
    pub fn find(&self, group: &str, name: &str) -> Option<KnownName> {
        if self.is_empty() {
            return None;
        }
        match self.by_group.lock().get(group)?.get(name)? {
            NameEntry::File(file) | NameEntry::LeftOver(file, _) => Some(KnownName::File(file.entity())),
            NameEntry::Vacant(since) => (since.elapsed() < VACANT_FOR).then_some(KnownName::Vacant),
            NameEntry::Expected(..) => None,
        }
    }

    /// The scratch file with this name.
    pub fn file(&self, group: &str, name: &str) -> Option<Arc<ScratchFile>> {
        match self.by_group.lock().get(group)?.get(name)? {
            NameEntry::File(file) => Some(file.clone()),
            _ => None,
        }
    }

    /// Whether a program took the generated file of this name away.
    pub fn is_vacant(&self, group: &str, name: &str) -> bool {
        matches!(self.find(group, name), Some(KnownName::Vacant))
    }

    /// The scratch file of an inode.
    pub fn by_number(&self, number: u64) -> Option<Arc<ScratchFile>> {
        self.files.lock().get(&number)?.upgrade()
    }

    /// A thread made a node by its other name: this one is free for what that thread creates next.
    pub fn expect(&self, thread: u32, group: &str, name: &str) {
        let now = Instant::now();
        if thread == 0 {
            return;
        }
        self.end_expected(|_, _, _, since| now.duration_since(since) >= VACANT_FOR);
        let is_free = self.by_group.lock().get(group).is_none_or(|own| !own.contains_key(name));
        if is_free {
            self.insert_entry(group, name, NameEntry::Expected(thread, now));
        }
    }

    /// Whether a name is free for what this thread creates.
    pub fn is_expected(&self, thread: u32, group: &str, name: &str) -> bool {
        if self.is_empty() {
            return false;
        }
        let by_group = self.by_group.lock();
        let entry = by_group.get(group).and_then(|own| own.get(name));
        matches!(entry, Some(NameEntry::Expected(by, since)) if *by == thread && since.elapsed() < VACANT_FOR)
    }

    /// Ends expectations for which `is_over` is true of group, name, thread and time.
    pub fn end_expected(&self, is_over: impl Fn(&str, &str, u32, Instant) -> bool) {
        if self.is_empty() {
            return;
        }
        let mut ended = 0;
        self.by_group.lock().retain(|group, own| {
            let before = own.len();
            own.retain(|name, entry| match entry {
                NameEntry::Expected(thread, since) => !is_over(group, name, *thread, *since),
                _ => true,
            });
            ended += before - own.len();
            !own.is_empty()
        });
        self.count.fetch_sub(ended, Ordering::AcqRel);
    }

    /// Changes a folder's listing: adds the scratch files, takes the vacant names away.
    pub fn list(&self, group: &str, names: &mut Vec<(String, Entity)>) {
        if self.is_empty() {
            return;
        }
        let by_group = self.by_group.lock();
        let Some(own) = by_group.get(group) else { return };
        let is_node = |entity: &Entity| matches!(entity.kind, EntityKind::Array | EntityKind::Group);
        let is_shown = |name: &str, entity: &Entity| match own.get(name) {
            _ if is_node(entity) => true,
            Some(NameEntry::File(_)) => false,
            Some(NameEntry::Vacant(since)) => since.elapsed() >= VACANT_FOR,
            _ => true,
        };
        names.retain(|(name, entity)| is_shown(name, entity));
        for (name, entry) in own {
            if let NameEntry::File(file) = entry
                && !names.iter().any(|(other, _)| other == name)
            {
                names.push((name.clone(), file.entity()));
            }
        }
    }

    /// Whether a group has scratch files.
    pub fn has_files(&self, group: &str) -> bool {
        let by_group = self.by_group.lock();
        let own = by_group.get(group);
        own.is_some_and(|own| own.values().any(|entry| matches!(entry, NameEntry::File(_))))
    }

    fn insert_entry(&self, group: &str, name: &str, entry: NameEntry) -> Option<NameEntry> {
        let mut by_group = self.by_group.lock();
        let before = by_group.entry(group.to_owned()).or_default().insert(name.to_owned(), entry);
        if before.is_none() {
            self.count.fetch_add(1, Ordering::AcqRel);
        }
        before
    }

    fn remove_entry(&self, group: &str, name: &str) -> Option<NameEntry> {
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

    /// Takes the names that are left for a listing alone.
    fn take_of_listing(&self, handle: u64) -> Vec<NameEntry> {
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

    /// Takes all names of a group.
    fn take_group(&self, group: &str) -> Vec<NameEntry> {
        let removed = self.by_group.lock().remove(group).unwrap_or_default();
        self.count.fetch_sub(removed.len(), Ordering::AcqRel);
        removed.into_values().collect()
    }

    /// A group has another path, and so have those below it.
    pub fn move_group(&self, from: &str, to: &str) {
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

    /// The attributes of a scratch file.
    pub fn stat(&self, number: u64) -> FsResult<Stat> {
        let file = self.by_number(number).ok_or(Failure::Errno(libc::ENOENT))?;
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
    pub fn problem(&self, number: u64) -> Option<String> {
        self.by_number(number)?.meta().problem
    }

    /// Puts a file into the table. The inode lives as long as it is there.
    pub fn insert_file(&self, group: &str, name: &str, file: Arc<ScratchFile>) {
        file.set_place(group, name);
        self.link_file(group, name, file);
    }

    /// Gives a file of the table one more name.
    pub fn link_file(&self, group: &str, name: &str, file: Arc<ScratchFile>) {
        self.inodes.look_up(&file.entity());
        let before = self.insert_entry(group, name, NameEntry::File(file));
        self.end_entry(before);
    }

    /// Takes a generated file away until another is made in its place, for a while.
    pub fn vacate(&self, group: &str, name: &str, entity: &Entity) {
        let before = self.insert_entry(group, name, NameEntry::Vacant(Instant::now()));
        self.end_entry(before);
        if let Some(inode) = self.inodes.find(entity) {
            // The kernel marks an inode whose name was removed.
            self.inodes.retire(&inode);
        }
    }

    /// A listing that is open has the name of a file that is gone: the name stays for it.
    pub fn leave_over(&self, group: &str, name: &str, listing: u64) {
        match self.remove_entry(group, name) {
            Some(NameEntry::LeftOver(file, mut listings)) => {
                listings.push(listing);
                self.insert_entry(group, name, NameEntry::LeftOver(file, listings));
            }
            before => {
                self.end_entry(before);
                let (uid, gid) = crate::sys::effective_ids();
                let file = self.new_file(0o644, Caller { uid, gid, thread: 0 });
                file.set_place(group, name);
                self.inodes.look_up(&file.entity());
                self.insert_entry(group, name, NameEntry::LeftOver(file, vec![listing]));
            }
        }
    }

    /// Removes a name.
    pub fn remove(&self, group: &str, name: &str) {
        let removed = self.remove_entry(group, name);
        self.end_entry(removed);
    }

    /// A group is gone: nothing of it is kept for one that comes in its place.
    pub fn remove_group(&self, group: &str) {
        for entry in self.take_group(group) {
            self.end_entry(Some(entry));
        }
    }

    /// A listing is closed: names that are left for it go.
    pub fn end_listing(&self, handle: u64) {
        for entry in self.take_of_listing(handle) {
            self.end_entry(Some(entry));
        }
    }

    /// What was in the table under a name is not there any more.
    fn end_entry(&self, entry: Option<NameEntry>) {
        if let Some(file) = entry.as_ref().and_then(NameEntry::file) {
            self.inodes.forget(self.inodes.number_of(&file.entity()), 1);
        }
    }

    /// A new scratch file, which has no name yet.
    pub fn new_file(&self, mode: u32, caller: Caller) -> Arc<ScratchFile> {
        let number = self.last_file.fetch_add(1, Ordering::Relaxed) + 1;
        let mode = (mode & 0o777) as u16;
        let file = Arc::new(ScratchFile::new(number, mode, caller, &self.budget, &self.log));
        let mut files = self.files.lock();
        files.retain(|_, file| file.strong_count() > 0);
        files.insert(number, Arc::downgrade(&file));
        file
    }

    /// A thread lists a folder, so it knows what is there.
    pub fn end_expected_in(&self, folder: &Entity, thread: u32) {
        self.end_expected(|group, _, by, _| by == thread && *group == *folder.path);
    }

    /// The mount ends, and with it all scratch files.
    pub fn end(&self) {
        let all = std::mem::take(&mut *self.by_group.lock());
        for (group, own) in all {
            for (name, entry) in own {
                if let NameEntry::File(file) = entry {
                    let (path, size_bytes) = (join(&group, &name), file.meta().size_bytes);
                    log::warn!(
                        "/{path}: this scratch file of {size_bytes} bytes is gone: it is not an array or group"
                    );
                }
            }
        }
    }
}

/// The name, if its last listing is this one.
fn over_with(name: &str, entry: &mut NameEntry, handle: u64) -> Option<String> {
    let NameEntry::LeftOver(_, listings) = entry else { return None };
    listings.retain(|listing| *listing != handle);
    listings.is_empty().then(|| name.to_owned())
}
