//! The table of names that the store does not have, by group, with the scratch files.
//!
//! This file uses the inodes, because the inode of a scratch file lives as long as its names. Invariant: the table is in memory
//! only, so nothing of it is left after a crash.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::lock_api::ArcMutexGuard;
use parking_lot::{Mutex, RawMutex};

use crate::hierarchy::author::DocumentPut;
use crate::mount::fs::attributes::{Attributes, Stat};
use crate::mount::fs::entity::{Entity, EntityKind};
use crate::mount::fs::error::{Failure, FsResult};
use crate::mount::fs::inode::{InodeTable, is_at_or_below};
use crate::mount::fs::names::records::NameRecords;
use crate::mount::fs::names::scratch::{Caller, ScratchBudget, ScratchFile, ScratchParts, held_name};
use crate::mount::fs::parts::MountParts;
use crate::mount::fs::request::gate::{ByMember, Entered, RequestGate};
use crate::mount::journal::record::{NameRecord, ScratchRecord};
use crate::mount::journal::state::SessionState;
use crate::store::join;

/// How long a name stays free for the file that takes its place.
const VACANT_FOR: Duration = Duration::from_secs(10);

/// A name that the store does not have.
enum NameEntry {
    File(Arc<ScratchFile>),
    Vacant(Instant),
    /// For this thread the name is free, although there is a node or a generated file with it.
    Expected(u32, Instant),
    /// An empty file, and the open listings that have its name.
    LeftOver(Arc<ScratchFile>, Vec<u64>),
}

impl NameEntry {
    fn to_record(&self) -> NameRecord {
        match self {
            NameEntry::File(file) => NameRecord::File(file.number()),
            NameEntry::Vacant(_) => NameRecord::Vacant,
            NameEntry::Expected(thread, _) => NameRecord::Expected(*thread),
            // Its listing ends with the daemon.
            NameEntry::LeftOver(..) => NameRecord::None,
        }
    }

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
    by_group: Mutex<HashMap<String, GroupNames>>,
    /// The number of names: most mounts have none, and lookups then take no lock.
    count: AtomicUsize,
    files: Mutex<HashMap<u64, Weak<ScratchFile>>>,
    last_file: AtomicU64,
    scratch: ScratchParts,
    records: NameRecords,
    /// The files from before a restart of the daemon, until their handles are restored.
    restored: Mutex<Vec<Arc<ScratchFile>>>,
    gate: Arc<RequestGate>,
    /// Held by each change of names.
    changing: ByMember<Mutex<()>>,
}

/// Keeps other requests from changing names while it is held.
pub struct ChangingNames {
    _entered: Entered,
    _lock: ArcMutexGuard<RawMutex, ()>,
}

/// What a name of the table stands for.
pub enum KnownName {
    /// A scratch file.
    File(Entity),
    /// Nothing, although there is a generated file of this name.
    Vacant,
}

impl NameTable {
    /// Creates an empty table.
    pub fn new(parts: &MountParts) -> Self {
        NameTable {
            inodes: parts.inodes.clone(),
            by_group: Mutex::default(),
            count: AtomicUsize::new(0),
            files: Mutex::default(),
            last_file: AtomicU64::new(0),
            scratch: ScratchParts {
                budget: Arc::new(ScratchBudget::new(parts.options.scratch_limit_bytes)),
                log: parts.log.clone(),
            },
            records: NameRecords::default(),
            restored: Mutex::default(),
            gate: parts.gate.clone(),
            changing: ByMember::new(parts.nodes.store().catalogue().is_some()),
        }
    }

    /// Reserves the numbers of scratch files up to `last`, which the kernel may know.
    pub fn keep_numbers_after(&self, last: u64) {
        self.last_file.fetch_max(last, Ordering::AcqRel);
    }

    /// Returns what the session's journal has of the table.
    pub fn records(&self) -> &NameRecords {
        &self.records
    }

    /// Waits for the current change of names in the member of a catalogue that a path is in, or of all names in other mounts, and keeps
    /// others out until the lock is released. The request enters the gate, too.
    pub fn lock_changes(&self, path: &str) -> ChangingNames {
        let entered = self.gate.wait_to_enter(path);
        ChangingNames { _entered: entered, _lock: self.changing.at(path).lock_arc() }
    }

    /// Does [`NameTable::lock_changes`] for the place of a scratch file.
    pub fn lock_place_of(&self, file: &ScratchFile) -> ChangingNames {
        loop {
            let group = file.place().0;
            let locked = self.lock_changes(&group);
            // It may have been renamed meanwhile.
            if Arc::ptr_eq(&self.changing.at(&file.place().0), &self.changing.at(&group)) {
                return locked;
            }
        }
    }

    /// Returns whether the table has no names.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Returns what a name in a group stands for, if it is in the table.
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

    /// Returns the scratch file with this name.
    pub fn file(&self, group: &str, name: &str) -> Option<Arc<ScratchFile>> {
        match self.by_group.lock().get(group)?.get(name)? {
            NameEntry::File(file) => Some(file.clone()),
            _ => None,
        }
    }

    /// Returns whether a program took the generated file of this name away.
    pub fn is_vacant(&self, group: &str, name: &str) -> bool {
        matches!(self.find(group, name), Some(KnownName::Vacant))
    }

    /// Returns the scratch file of an inode.
    pub fn by_number(&self, number: u64) -> Option<Arc<ScratchFile>> {
        self.files.lock().get(&number)?.upgrade()
    }

    /// Makes a name free for a thread that has made its node by another name.
    pub fn expect(&self, thread: u32, group: &str, name: &str) {
        let now = Instant::now();
        if thread == 0 {
            return;
        }
        self.end_expected(|_, _, _, since| now.duration_since(since) >= VACANT_FOR);
        let is_free = self.by_group.lock().get(group).is_none_or(|names| !names.contains_key(name));
        if is_free {
            self.insert_entry(group, name, NameEntry::Expected(thread, now));
        }
    }

    /// Returns whether a name is free for this thread.
    pub fn is_expected(&self, thread: u32, group: &str, name: &str) -> bool {
        if self.is_empty() {
            return false;
        }
        let by_group = self.by_group.lock();
        let entry = by_group.get(group).and_then(|names| names.get(name));
        matches!(entry, Some(NameEntry::Expected(by, since)) if *by == thread && since.elapsed() < VACANT_FOR)
    }

    /// Removes expected names for which `is_over` is true, given the group, the name, the thread and the time.
    pub fn end_expected(&self, is_over: impl Fn(&str, &str, u32, Instant) -> bool) {
        if self.is_empty() {
            return;
        }
        let mut ended = 0;
        self.by_group.lock().retain(|group, names| {
            let before = names.len();
            names.retain(|name, entry| match entry {
                NameEntry::Expected(thread, since) => !is_over(group, name, *thread, *since),
                _ => true,
            });
            ended += before - names.len();
            !names.is_empty()
        });
        self.count.fetch_sub(ended, Ordering::AcqRel);
    }

    /// Adds the scratch files of a group to the names that its folder lists otherwise, and removes vacant names from them.
    pub fn list(&self, group: &str, listed: &mut Vec<(String, Entity)>) {
        if self.is_empty() {
            return;
        }
        let by_group = self.by_group.lock();
        let Some(names) = by_group.get(group) else { return };
        listed.retain(|(name, entity)| match names.get(name) {
            _ if matches!(entity.kind, EntityKind::Array | EntityKind::Group) => true,
            Some(NameEntry::File(_)) => false,
            Some(NameEntry::Vacant(since)) => since.elapsed() >= VACANT_FOR,
            _ => true,
        });
        let nodes: HashSet<String> = listed.iter().map(|(name, _)| name.clone()).collect();
        for (name, entry) in names {
            if let (NameEntry::File(file), false) = (entry, nodes.contains(name)) {
                listed.push((name.clone(), file.entity()));
            }
        }
    }

    /// Returns whether a group has scratch files.
    pub fn has_files(&self, group: &str) -> bool {
        let by_group = self.by_group.lock();
        let mut entries = by_group.get(group).into_iter().flat_map(GroupNames::values);
        entries.any(|entry| matches!(entry, NameEntry::File(_)))
    }

    /// Returns the path and the length of a scratch file with bytes in a member of a catalogue, if it has one.
    pub fn first_with_bytes(&self, member: &str) -> Option<(String, u64)> {
        let named = self.files_below(member).into_iter();
        let sized = named.map(|(path, file)| (path, file.meta().size_bytes));
        sized.into_iter().find(|(_, size_bytes)| *size_bytes > 0)
    }

    /// Ends the names in a member of a catalogue, which has no scratch file with bytes and is about to leave. Later writes to the files fail.
    pub fn end_empty(&self, member: &str) {
        for (_, file) in self.files_below(member) {
            file.end(&mut file.content());
        }
        let groups: Vec<String> = self.by_group.lock().keys().cloned().collect();
        groups
            .iter()
            .filter(|group| is_at_or_below(group, member))
            .for_each(|group| self.remove_group(group));
    }

    fn files_below(&self, path: &str) -> Vec<(String, Arc<ScratchFile>)> {
        let by_group = self.by_group.lock();
        let groups = by_group.iter().filter(|(group, _)| is_at_or_below(group, path));
        let named = groups
            .flat_map(|(group, names)| names.iter().map(move |(name, entry)| (join(group, name), entry)));
        named.filter_map(|(path, entry)| Some((path, entry.file()?.clone()))).collect()
    }

    /// Makes the names and the scratch files anew that a daemon before had, after [`NameRecords::keep_session`]. `take_held` returns the bytes of a
    /// file. One that has lost them is gone, and its handles fail.
    pub fn restore(&self, state: &SessionState, take_held: impl Fn(&str) -> Option<OwnedFd>) {
        self.records.continue_former(state);
        let mut files = HashMap::new();
        for (&number, &ScratchRecord { mode, uid, gid, thread }) in &state.scratch {
            self.last_file.fetch_max(number, Ordering::AcqRel);
            let held = take_held(&held_name(number));
            if held.is_none() && !state.ended_scratch.contains(&number) {
                continue;
            }
            let caller = Caller { uid, gid, thread, request: 0 };
            let file =
                ScratchFile::restore(number, mode, caller, &self.scratch, self.records.session(), held);
            files.insert(number, Arc::new(file));
        }
        let weak = files.iter().map(|(&number, file)| (number, Arc::downgrade(file)));
        self.files.lock().extend(weak);
        for (group, names) in &state.names {
            for (name, entry) in names {
                let entry = match *entry {
                    NameRecord::File(number) => files.get(&number).cloned().map(|file| {
                        file.set_place(group, name);
                        NameEntry::File(file)
                    }),
                    NameRecord::Vacant => Some(NameEntry::Vacant(Instant::now())),
                    NameRecord::Expected(thread) => Some(NameEntry::Expected(thread, Instant::now())),
                    NameRecord::None => None,
                };
                if let Some(entry) = entry {
                    self.insert_entry(group, name, entry);
                }
            }
        }
        // Files that are open and have no name live as long as their handles.
        *self.restored.lock() = files.into_values().collect();
    }

    /// Lets go of the files from before a restart: those without a name have handles by now, or none.
    pub fn end_restoring(&self) {
        self.restored.lock().clear();
    }

    /// Takes documents back that a daemon that has died may have put for nodes, if the table does not have their files, as
    /// [`NameRecords::end_lost_puts`] does.
    pub fn end_lost_puts(&self, take_back: impl Fn(&str, &[DocumentPut]) -> bool) -> bool {
        self.records.end_lost_puts(|number| self.by_number(number).is_some(), take_back)
    }

    fn insert_entry(&self, group: &str, name: &str, entry: NameEntry) -> Option<NameEntry> {
        self.records.record_name(group, name, entry.to_record());
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
        let names = by_group.get_mut(group)?;
        let removed = names.remove(name)?;
        self.records.record_name(group, name, NameRecord::None);
        if names.is_empty() {
            by_group.remove(group);
        }
        self.count.fetch_sub(1, Ordering::AcqRel);
        Some(removed)
    }

    /// Takes the names that were kept only for this listing.
    fn take_listing(&self, handle: u64) -> Vec<NameEntry> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut ended = Vec::new();
        self.by_group.lock().retain(|_, names| {
            let over: Vec<String> =
                names.iter_mut().filter_map(|(name, entry)| ends_with_listing(name, entry, handle)).collect();
            ended.extend(over.into_iter().filter_map(|name| names.remove(&name)));
            !names.is_empty()
        });
        self.count.fetch_sub(ended.len(), Ordering::AcqRel);
        ended
    }

    /// Takes all names of a group.
    fn take_group(&self, group: &str) -> Vec<NameEntry> {
        let removed = self.by_group.lock().remove(group).unwrap_or_default();
        if !removed.is_empty() {
            self.records.record_group_removed(group);
        }
        self.count.fetch_sub(removed.len(), Ordering::AcqRel);
        removed.into_values().collect()
    }

    /// Moves the names of a group, and of the groups below it, to another path.
    pub fn move_group(&self, from: &str, to: &str) {
        let mut by_group = self.by_group.lock();
        let below = format!("{from}/");
        let moved: Vec<String> =
            by_group.keys().filter(|group| *group == from || group.starts_with(&below)).cloned().collect();
        if !moved.is_empty() {
            self.records.record_group_moved(from, to);
        }
        for group in moved {
            let Some(names) = by_group.remove(&group) else { continue };
            let path = format!("{to}{}", group.strip_prefix(from).unwrap_or_default());
            for (name, entry) in &names {
                if let Some(file) = entry.file() {
                    file.set_place(&path, name);
                }
            }
            by_group.insert(path, names);
        }
    }

    /// Returns the attributes of a scratch file.
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

    /// Returns why a scratch file did not become what its name says.
    pub fn problem(&self, number: u64) -> Option<String> {
        self.by_number(number)?.meta().problem
    }

    /// Puts a file into the table, in place of another entry with this name.
    pub fn insert_file(&self, group: &str, name: &str, file: Arc<ScratchFile>) {
        file.set_place(group, name);
        self.link_file(group, name, file);
    }

    /// Gives a file of the table one more name. Each name counts as a lookup of its inode.
    pub fn link_file(&self, group: &str, name: &str, file: Arc<ScratchFile>) {
        self.inodes.look_up(&file.entity());
        let before = self.insert_entry(group, name, NameEntry::File(file));
        self.release_entry(before);
    }

    /// Takes a generated file away for a while: another one is about to take its place.
    pub fn vacate(&self, group: &str, name: &str, entity: &Entity) {
        let before = self.insert_entry(group, name, NameEntry::Vacant(Instant::now()));
        self.release_entry(before);
        if let Some(inode) = self.inodes.find(entity) {
            // The kernel marks an inode whose name was removed as deleted, and must not use it when the file is back.
            self.inodes.retire(&inode);
        }
    }

    /// Keeps the name of a file that is gone for a listing that is still open. A scratch file that has the name stays.
    pub fn keep_for_listing(&self, group: &str, name: &str, listing: u64) {
        match self.remove_entry(group, name) {
            Some(NameEntry::LeftOver(file, mut listings)) => {
                listings.push(listing);
                self.insert_entry(group, name, NameEntry::LeftOver(file, listings));
            }
            Some(file @ NameEntry::File(_)) => drop(self.insert_entry(group, name, file)),
            Some(NameEntry::Vacant(_) | NameEntry::Expected(..)) | None => {
                let (uid, gid) = crate::sys::effective_ids();
                let file = self.new_file(0o644, Caller { uid, gid, thread: 0, request: 0 });
                file.set_place(group, name);
                self.inodes.look_up(&file.entity());
                self.insert_entry(group, name, NameEntry::LeftOver(file, vec![listing]));
            }
        }
    }

    /// Removes a name.
    pub fn remove(&self, group: &str, name: &str) {
        let removed = self.remove_entry(group, name);
        self.release_entry(removed);
    }

    /// Removes all names of a group that is gone, so that a new one of its name begins without them.
    pub fn remove_group(&self, group: &str) {
        for entry in self.take_group(group) {
            self.release_entry(Some(entry));
        }
    }

    /// Removes the names that were kept for a listing, which is closed.
    pub fn end_listing(&self, handle: u64) {
        for entry in self.take_listing(handle) {
            self.release_entry(Some(entry));
        }
    }

    /// Takes back the lookup of an entry that is no longer in the table.
    fn release_entry(&self, entry: Option<NameEntry>) {
        if let Some(file) = entry.as_ref().and_then(NameEntry::file) {
            self.inodes.forget(self.inodes.number_of(&file.entity()), 1);
        }
    }

    /// Creates a scratch file, which has no name yet.
    pub fn new_file(&self, mode: u32, caller: Caller) -> Arc<ScratchFile> {
        let number = self.last_file.fetch_add(1, Ordering::Relaxed) + 1;
        let mode = (mode & 0o777) as u16;
        let file = ScratchFile::new(number, mode, caller, &self.scratch, self.records.session());
        let file = Arc::new(file);
        self.records.record_file(&file);
        let mut files = self.files.lock();
        files.retain(|_, file| file.strong_count() > 0);
        files.insert(number, Arc::downgrade(&file));
        file
    }

    /// Removes the names of a folder that a thread expects, because the thread lists the folder and sees all its names.
    pub fn end_expected_in(&self, folder: &Entity, thread: u32) {
        self.end_expected(|group, _, by, _| by == thread && *group == *folder.path);
    }

    /// Removes all scratch files at the end of the mount, and logs their names.
    pub fn end(&self) {
        let all = std::mem::take(&mut *self.by_group.lock());
        for (group, names) in all {
            for (name, entry) in names {
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

/// Takes a listing from a name, and returns the name if that was its last one.
fn ends_with_listing(name: &str, entry: &mut NameEntry, handle: u64) -> Option<String> {
    let NameEntry::LeftOver(_, listings) = entry else { return None };
    listings.retain(|listing| *listing != handle);
    listings.is_empty().then(|| name.to_owned())
}
