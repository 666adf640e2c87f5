//! A catalogue: other stores, its members, as the folders of one root. Uses `member.rs`, `view.rs` and the traits of `store`.
//!
//! A key begins with the name of the member that has it. Callers ask [`Catalogue::store_at`] for the store of a path, which has
//! the same keys, and is remote, writable or composed as its member is. The catalogue itself is a folder that lists the names, and
//! waits for nothing: members are opened on threads of their own, and one that cannot be opened is tried again.
//!
//! Invariants: a failure of a member is an error for its own keys only. A member that was removed or changed is
//! [`Stale`](crate::error::Error::Stale) for everything that still uses it.

mod member;
mod object;
mod state;
#[cfg(test)]
mod tests;
mod view;
mod writer;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

pub use member::{MemberDefinition, OpenedMember};
pub use state::{CatalogueChange, MemberRights, MemberState};

use crate::error::{Error, Result};
use crate::store::{
    Catalogue, Info, ListEntry, LockKeeper, Object, ObjectContent, ObjectVersion, Posix, Readers, StatFs,
    Store, Traffic,
};
use member::Member;
use view::MemberStore;

/// The first looks of a mount wait this long for members that are being opened.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often members that could not be opened are looked at.
const LOOK: Duration = Duration::from_millis(250);
/// The longest name that a filesystem can show.
const NAME_MAX: u32 = 255;

/// Reads the definitions of all members: at the start, and again at each reload.
pub type ReadDefinitions = Box<dyn Fn() -> Result<Vec<MemberDefinition>> + Send + Sync>;

/// A store of stores.
pub struct CatalogueStore {
    shared: Arc<Shared>,
}

struct Shared {
    /// The path of the file or folder with the definitions.
    location: String,
    read: ReadDefinitions,
    members: RwLock<BTreeMap<String, Entry>>,
    locks: Mutex<Option<Arc<dyn LockKeeper>>>,
    /// The definitions that were read last, by name, if they were read again. They need not be applied yet.
    read_last: Mutex<Option<BTreeMap<String, MemberDefinition>>>,
    transfer_limit_bytes: u64,
}

/// A member, and the store that has its keys in the catalogue.
#[derive(Clone)]
struct Entry {
    member: Arc<Member>,
    view: Arc<MemberStore>,
}

impl Entry {
    fn new(definition: MemberDefinition, locks: Option<&Arc<dyn LockKeeper>>) -> Self {
        let member = Arc::new(Member::new(definition, locks.cloned()));
        member.begin_opening();
        Entry { view: Arc::new(MemberStore::new(member.clone())), member }
    }
}

impl CatalogueStore {
    /// Opens the catalogue at `location`, which `read` reads. All members together may use `transfer_limit_bytes` for bytes that
    /// are transferred ahead of their readers. Starts to open all members, and waits a moment for them.
    pub fn open(location: &str, transfer_limit_bytes: u64, read: ReadDefinitions) -> Result<Self> {
        let definitions = read()?;
        let entries = definitions.into_iter().map(|definition| {
            let name = definition.name.clone();
            (name, Entry::new(definition, None))
        });
        let members: BTreeMap<_, _> = entries.collect();
        let shared = Arc::new(Shared {
            location: location.to_owned(),
            read,
            members: RwLock::new(members),
            locks: Mutex::default(),
            read_last: Mutex::default(),
            transfer_limit_bytes,
        });
        let deadline = Instant::now() + PATIENCE;
        for entry in shared.entries() {
            entry.member.wait_until(deadline);
        }
        let watched = Arc::downgrade(&shared);
        std::thread::Builder::new()
            .name("zarrfs-members".to_owned())
            .spawn(move || try_again(&watched))
            .map_err(|error| Error::Usage(format!("cannot start the thread of the members: {error}")))?;
        Ok(CatalogueStore { shared })
    }
}

/// Opens members again that could not be opened, when that is due, as long as the catalogue is used.
fn try_again(shared: &Weak<Shared>) {
    loop {
        std::thread::sleep(LOOK);
        let Some(shared) = shared.upgrade() else { return };
        for entry in shared.entries() {
            entry.member.open_again_if_due();
        }
    }
}

impl Shared {
    fn entries(&self) -> Vec<Entry> {
        self.members.read().values().cloned().collect()
    }

    fn entry(&self, name: &str) -> Option<Entry> {
        self.members.read().get(name).cloned()
    }

    /// Returns the member that has a key.
    fn entry_at(&self, key: &str) -> Option<Entry> {
        self.entry(member_name(key)?)
    }
}

/// Returns the name of the member that a path is in; `None` for the root.
pub fn member_name(path: &str) -> Option<&str> {
    path.split('/').next().filter(|name| !name.is_empty())
}

/// Returns what is shown of the root: a folder of the user of this program, that all may enter.
fn root_info(location: &str) -> Info {
    let modified = fs::metadata(location).ok();
    let time = modified.as_ref().and_then(|metadata| metadata.modified().ok());
    let version = modified.map_or((0, 0), |metadata| (metadata.mtime(), metadata.mtime_nsec()));
    let posix = Posix { mode: 0o555, ..Posix::default_for_folder() };
    Info { size_bytes: 0, modified: time, version: ObjectVersion::hashed(version), posix: Some(posix) }
}

impl Store for CatalogueStore {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        self.shared.entry_at(key).map_or(Ok(None), |entry| entry.view.open(key))
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>> {
        self.shared.entry_at(key).map_or(Ok(None), |entry| entry.view.content(key, limit_bytes))
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        if key.is_empty() {
            return Ok(Some(root_info(&self.shared.location)));
        }
        self.shared.entry_at(key).map_or(Ok(None), |entry| entry.view.head(key))
    }

    fn head_object(&self, key: &str) -> Result<Option<Info>> {
        self.shared.entry_at(key).map_or(Ok(None), |entry| entry.view.head_object(key))
    }

    fn list(&self, folder: &str) -> Result<Vec<ListEntry>> {
        if folder.is_empty() {
            let entry = |name| ListEntry { name, is_folder: true };
            return Ok(self.names().into_iter().map(entry).collect());
        }
        self.shared.entry_at(folder).map_or(Ok(Vec::new()), |entry| entry.view.list(folder))
    }

    /// Returns the free space of the filesystem that the file with the definitions is on: members are on many.
    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs { block_bytes: 4096, name_max: NAME_MAX, ..StatFs::default() })
    }

    fn describe(&self) -> String {
        self.shared.location.clone()
    }

    fn keep_locks(&self, keeper: &Arc<dyn LockKeeper>) {
        *self.shared.locks.lock() = Some(keeper.clone());
        self.shared.entries().iter().for_each(|entry| entry.member.keep_locks(keeper));
    }

    fn catalogue(&self) -> Option<&dyn Catalogue> {
        Some(self)
    }
}

impl Catalogue for CatalogueStore {
    fn names(&self) -> Vec<String> {
        self.shared.members.read().keys().cloned().collect()
    }

    fn store_at(&self, path: &str) -> Option<Arc<dyn Store>> {
        Some(self.shared.entry_at(path)?.view)
    }

    fn state(&self, name: &str) -> Option<MemberState> {
        Some(self.shared.entry(name)?.member.state())
    }

    fn rights(&self, name: &str) -> MemberRights {
        self.shared.entry(name).map_or_else(MemberRights::default, |entry| entry.member.definition().rights)
    }

    fn root_mode(&self, name: &str, readers: Readers) -> u32 {
        let entry = self.shared.entry(name);
        entry.map_or(readers.mode, |entry| entry.member.narrowed_mode(readers))
    }

    fn overlay(&self, name: &str) -> Option<PathBuf> {
        self.shared.entry(name)?.member.definition().overlay.clone()
    }

    fn traffic_of(&self, name: &str) -> Option<Traffic> {
        self.shared.entry(name)?.view.remote()?.traffic()
    }

    fn transfer_limit_bytes(&self) -> u64 {
        let has_remote = self.shared.entries().iter().any(|entry| entry.member.is_remote());
        if has_remote { self.shared.transfer_limit_bytes } else { 0 }
    }

    fn text(&self) -> String {
        let members = self.shared.members.read();
        members.values().map(|entry| entry.member.definition().text.as_str()).collect()
    }

    fn read_again(&self) -> Result<CatalogueChange> {
        let definitions = (self.shared.read)()?;
        let members = self.shared.members.read();
        let (mut added, mut changed) = (Vec::new(), Vec::new());
        for definition in &definitions {
            match members.get(&definition.name) {
                None => added.push(definition.name.clone()),
                Some(entry) if entry.member.definition().signature != definition.signature => {
                    changed.push(definition.name.clone());
                }
                Some(_) => {}
            }
        }
        let definitions: BTreeMap<_, _> =
            definitions.into_iter().map(|definition| (definition.name.clone(), definition)).collect();
        let removed = members.keys().filter(|name| !definitions.contains_key(*name)).cloned().collect();
        drop(members);
        *self.shared.read_last.lock() = Some(definitions);
        Ok(CatalogueChange { added, changed, removed })
    }

    fn is_outdated(&self, name: &str) -> bool {
        let members = self.shared.members.read();
        let now = members.get(name).map(|entry| entry.member.definition().signature.as_str());
        let read_last = self.shared.read_last.lock();
        let Some(definitions) = &*read_last else { return false };
        now != definitions.get(name).map(|definition| definition.signature.as_str())
    }

    fn apply(&self, name: &str) {
        if !self.is_outdated(name) {
            return;
        }
        let definition =
            self.shared.read_last.lock().as_ref().and_then(|definitions| definitions.get(name).cloned());
        let locks = self.shared.locks.lock().clone();
        let mut members = self.shared.members.write();
        if let Some(entry) = members.remove(name) {
            entry.member.leave();
        }
        if let Some(definition) = definition {
            members.insert(name.to_owned(), Entry::new(definition, locks.as_ref()));
        }
    }
}
