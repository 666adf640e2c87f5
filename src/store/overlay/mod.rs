//! A store over another one, the **base**. The base is only read, and every change is kept in a folder.
//!
//! Uses `directory` for the folder's objects, and the traits of `store`. `folder/` has the folder with its list of changes, this file and
//! `remote.rs` read, `writer.rs` writes, `forms.rs` compares the forms of arrays, and `commit/` writes changes back.
//!
//! A key that the list does not name is the base's, so a remote base keeps its batches, transfers and claims. A written object hides
//! the base's, even if the base gets another one. A deletion hides the object that the base had, and no later one (`origin.rs`). A chunk
//! has the form of the array that it was written for. Reading it for an array of another form ([`Store::for_array`]) is an error.
//!
//! The folder's objects have the owner and mode of the object that they replace, or of the array's document. The folder belongs to the
//! user of this program, who may therefore write all that they may read: unless it is root, objects of other users are shown as its own, with
//! unchanged permissions for others.
//!
//! Invariants: the base is never written, except through a [`CommitTarget`] or by [`Frozen::publish`]. Objects are written and deleted as in
//! a folder store, so a reader of the overlay sees each one old or new, and so does a reader after a crash.

mod change;
mod commit;
mod folder;
mod forms;
mod options;
mod origin;
mod remote;
mod shape_digest;
#[cfg(test)]
mod tests;
mod writer;

use std::any::Any;
use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;

pub use self::change::{Change, ChangeKind};
pub use self::commit::{
    ChangeOutcome, CommitTarget, Frozen, Publisher, RecordedChanges, Recording, RemovalState,
};
pub use self::folder::base_location::BaseLocation;
use self::folder::line::KeyEntry;
use self::folder::store_error;
pub use self::folder::{Folder, Removal, resolved};
pub use self::options::{Access, OverlayOptions};
pub use self::shape_digest::ARRAY_DOCUMENTS;
use crate::error::{Error, Result};
use crate::store::versions::Versions;
use crate::store::{
    ArrayForm, Audience, Form, GetReply, GetRequest, Info, ListEntry, LockKeeper, Object, ObjectContent,
    Posix, Remote, RemoteOptions, StatFs, Store, Writer, check_key, join, sorted_names,
};
use crate::sys;

/// A store with the changes of an overlay.
#[derive(Clone)]
pub struct OverlayStore {
    base: Arc<dyn Store>,
    /// The folder's objects, with the permissions of an audience if there is one.
    objects: Arc<dyn Store>,
    shared: Arc<Shared>,
    /// The form of the array whose chunks are read and written.
    form: Option<Form>,
}

struct Shared {
    /// The base, with the permissions of this program.
    root: Arc<dyn Store>,
    folder: Arc<Folder>,
    publisher: Publisher,
    /// Whether the base has owners and modes.
    has_posix: bool,
    /// Keys that are locked. No other process has the overlay open for writing.
    locked: Mutex<HashSet<String>>,
}

impl OverlayStore {
    /// Opens the overlay in a folder, over the store at `location`, which is open as `base`. `locks` keeps its lock for another process that
    /// continues the work of this one. Every failure is [`Error::Usage`] or
    /// one of the base.
    pub fn open(
        base: Arc<dyn Store>,
        location: &str,
        remote: &RemoteOptions,
        options: &OverlayOptions,
        locks: Option<&Arc<dyn LockKeeper>>,
    ) -> Result<Self> {
        let folder = Arc::new(Folder::open(base.as_ref(), location, remote, options, locks)?);
        let has_posix = base.head("")?.is_some_and(|root| root.posix.is_some());
        let objects: Arc<dyn Store> = Arc::new(folder.objects.clone());
        let publisher =
            Publisher::open(Arc::clone(&base), Arc::clone(&folder), options.access == Access::Write)?;
        let (root, locked) = (Arc::clone(&base), Mutex::default());
        let shared = Arc::new(Shared { root, folder, publisher, has_posix, locked });
        Ok(OverlayStore { base, objects, shared, form: None })
    }

    /// Returns the overlay that a store is, if it is one.
    pub fn of(store: &dyn Store) -> Option<&OverlayStore> {
        store.as_overlay()?.downcast_ref()
    }

    /// Returns the store below.
    pub fn base(&self) -> &Arc<dyn Store> {
        &self.base
    }

    /// Returns the overlay's folder, with the list of its changes.
    pub fn folder(&self) -> &Folder {
        &self.shared.folder
    }

    /// Returns what makes snapshots of the changes, over a base that keeps versions.
    pub fn publisher(&self) -> &Publisher {
        &self.shared.publisher
    }

    /// Returns the base as the target of a commit.
    pub fn target(&self) -> CommitTarget<'_> {
        CommitTarget::new(self.base.as_ref(), self.base.as_ref(), &self.shared.folder)
    }

    /// Returns a transaction over the base as the target of a commit.
    pub fn target_in<'a>(&'a self, transaction: &'a dyn Store) -> CommitTarget<'a> {
        CommitTarget::new(transaction, self.shared.root.as_ref(), &self.shared.folder)
    }

    /// Returns the writing half of the base. If it has none, the error says what to do instead.
    pub fn base_writer(&self) -> Result<&dyn Writer> {
        let read_only = || {
            let (base, folder) = (self.base.describe(), self.folder().path().display());
            if self.shared.root.versions().is_some() {
                return Error::ReadOnly(format!(
                    "{base} keeps versions: 'zarrfs commit {folder} -m TEXT' makes one of the changes"
                ));
            }
            Error::ReadOnly(format!(
                "{base} cannot be written: the changes stay in {folder}; a copy of the store as a folder can take them"
            ))
        };
        self.base.writer().ok_or_else(read_only)
    }

    /// Returns whether the base's object at a key is shown, where the overlay has this entry and no object.
    fn is_base_shown(&self, key: &str, entry: KeyEntry, operation: &'static str) -> Result<bool> {
        if matches!(entry, KeyEntry::Written { hides: false, .. }) {
            return Ok(true);
        }
        if self.folder().is_hidden(key)? {
            return Ok(false);
        }
        let is_deleted = match (entry.from(), self.base.head_object(key)?) {
            (_, None) => return Ok(false),
            // Another program has put it there since.
            (None, Some(_)) => false,
            (Some(from), Some(now)) => from.is(self.base.as_ref(), key, now.version)?,
        };
        if is_deleted {
            self.check_form(key, entry, operation)?;
        }
        Ok(!is_deleted)
    }

    /// Calls `find` with the overlay's objects, if the overlay has one at the key, or else `find_below` with the base.
    fn find<T>(
        &self,
        key: &str,
        operation: &'static str,
        find: impl Fn(&dyn Store) -> Result<Option<T>>,
        find_below: impl Fn(&dyn Store) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        loop {
            let changed = self.folder().entry(key, operation)?;
            let Some(entry) = changed else { return find_below(self.base.as_ref()) };
            if matches!(entry, KeyEntry::Written { .. }) {
                if let Some(found) = find(self.objects.as_ref())? {
                    self.check_form(key, entry, operation)?;
                    return Ok(Some(found));
                }
                // Another thread may just have deleted it.
                if self.folder().entry(key, operation)? != changed {
                    continue;
                }
            }
            return if self.is_base_shown(key, entry, operation)? {
                find_below(self.base.as_ref())
            } else {
                Ok(None)
            };
        }
    }

    /// Returns the info of an object or folder as the overlay shows it.
    fn shown(&self, key: &str, info: Info) -> Result<Info> {
        let touched = self.shared.folder.changes.touched(key);
        let posix = info.posix.filter(|_| self.shared.has_posix).map(shown_posix);
        let modified = info.modified.max(touched.filter(|_| info.modified.is_some()));
        let version = self.version_of_both(key, info.version)?;
        Ok(Info { modified, posix, version, ..info })
    }

    fn shown_content(&self, key: &str, content: ObjectContent) -> Result<ObjectContent> {
        Ok(ObjectContent { info: self.shown(key, content.info)?, ..content })
    }

    fn get_changed(&self, request: &GetRequest) -> Result<GetReply> {
        match self.head_object(&request.key)? {
            Some(info) if Some(info.version) == request.known => Ok(GetReply::Unchanged),
            _ => {
                let content = self.content(&request.key, request.limit_bytes)?;
                Ok(content.map_or(GetReply::Missing, GetReply::Content))
            }
        }
    }

    /// Returns whether the overlay has written the object, or something in the folder, with a name in `objects/`.
    fn is_listed(&self, key: &str, is_folder: bool) -> Result<bool> {
        if is_folder {
            return self.shared.folder.changes.is_any_written_below(key).map_err(store_error(key, "list"));
        }
        Ok(matches!(self.folder().entry(key, "list")?, Some(KeyEntry::Written { .. })))
    }
}

/// Returns the owner and mode that an object is shown with: this program's user may write what they may read.
fn shown_posix(posix: Posix) -> Posix {
    let (uid, _) = sys::effective_ids();
    if uid == 0 { posix } else { Posix { uid, mode: posix.mode | 0o600, ..posix } }
}

impl Store for OverlayStore {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        let open = |store: &dyn Store| store.open(key);
        self.find(key, "open", open, open)
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>> {
        let content = |store: &dyn Store| store.content(key, limit_bytes);
        self.find(key, "read", content, content)?.map(|content| self.shown_content(key, content)).transpose()
    }

    fn get(&self, key: &str, limit_bytes: u64) -> Result<Option<Vec<u8>>> {
        let get = |store: &dyn Store| store.get(key, limit_bytes);
        self.find(key, "read", get, get)
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        check_key(key, "look at")?;
        let mut found = self.find(key, "look at", |objects| objects.head(key), |base| base.head(key))?;
        if found.is_none()
            && self.shared.folder.changes.is_any_written_below(key).map_err(store_error(key, "look at"))?
        {
            found = self.objects.head(key)?;
        }
        found.map(|info| self.shown(key, info)).transpose()
    }

    fn head_object(&self, key: &str) -> Result<Option<Info>> {
        if !self.base.is_remote() {
            return self.head(key);
        }
        let found = self.find(key, "look at", |objects| objects.head(key), |base| base.head_object(key))?;
        found.map(|info| self.shown(key, info)).transpose()
    }

    fn remote(&self) -> Option<&dyn Remote> {
        self.base.is_remote().then_some(self)
    }

    fn lacks_locks(&self) -> bool {
        true
    }

    fn list(&self, folder: &str) -> Result<Vec<ListEntry>> {
        sorted_names(self, folder)
    }

    fn each_name(&self, folder: &str, each: &mut dyn FnMut(ListEntry) -> ControlFlow<()>) -> Result<()> {
        check_key(folder, "list")?;
        // A listing has the names of chunks of every form.
        let of_any_form = OverlayStore { form: None, ..self.clone() };
        let mut own = BTreeMap::new();
        for entry in self.shared.folder.objects.list(folder)? {
            if self.is_listed(&join(folder, &entry.name), entry.is_folder)? {
                own.insert(entry.name, entry.is_folder);
            }
        }
        let mut outcome = Ok(());
        let mut is_over = false;
        let is_hidden = self.folder().is_hidden(folder)?;
        let mut each_below = |entry: ListEntry| {
            let key = join(folder, &entry.name);
            if entry.is_folder {
                match self.folder().is_hidden(&key) {
                    Ok(false) => {}
                    Ok(true) => return ControlFlow::Continue(()),
                    Err(error) => {
                        outcome = Err(error);
                        return ControlFlow::Break(());
                    }
                }
            }
            own.remove(&entry.name);
            if !entry.is_folder {
                let is_there = |objects: &dyn Store| Ok(objects.head(&key)?.map(drop));
                match of_any_form.find(&key, "list", is_there, |_| Ok(Some(()))) {
                    Ok(Some(())) => {}
                    Ok(None) => return ControlFlow::Continue(()),
                    Err(error) => {
                        outcome = Err(error);
                        return ControlFlow::Break(());
                    }
                }
            }
            let flow = each(entry);
            is_over = flow.is_break();
            flow
        };
        let listed = if is_hidden { Ok(()) } else { self.base.each_name(folder, &mut each_below) };
        let is_known = matches!(listed, Ok(()) | Err(Error::Unlisted { .. }));
        outcome?;
        if is_known && !is_over {
            let _ = own.into_iter().try_for_each(|(name, is_folder)| each(ListEntry { name, is_folder }));
        }
        listed
    }

    fn left_out(&self, folder: &str) -> Option<String> {
        self.base.left_out(folder)
    }

    /// Returns the free space of the overlay's folder, which takes what is written.
    fn statfs(&self) -> Result<StatFs> {
        self.shared.folder.objects.statfs()
    }

    fn describe(&self) -> String {
        self.base.describe()
    }

    fn for_audience(&self, path: &str, audience: &Arc<Audience>) -> Option<Arc<dyn Store>> {
        let base = self.base.for_audience(path, audience)?;
        let objects = self.shared.folder.objects.clone().guarded().for_audience(path, audience)?;
        let shared = Arc::clone(&self.shared);
        Some(Arc::new(OverlayStore { base, objects, shared, form: self.form }))
    }

    fn for_array(&self, array: &ArrayForm<'_>) -> Result<Option<Arc<dyn Store>>> {
        let form = (array.form)();
        self.check_document(array, form)?;
        Ok(Some(Arc::new(OverlayStore { form: Some(form), ..self.clone() })))
    }

    fn writer(&self) -> Option<&dyn Writer> {
        self.shared.folder.changes.is_writable().then_some(self)
    }

    fn versions(&self) -> Option<&dyn Versions> {
        self.shared.root.versions()
    }

    fn as_overlay(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
