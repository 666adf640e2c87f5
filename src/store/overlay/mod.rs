//! A store over another one: that one is only read, and every change is kept in a folder.
//!
//! Uses `directory` for the folder's objects, and the traits of `store`. `folder.rs` has the folder, `changes.rs` the list of
//! what is changed, `writer.rs` the writing half, `nodes.rs` makes, renames and removes the folders of nodes, `commit.rs` writes
//! changes back into the base, `publish.rs` has them become a snapshot of a base that keeps versions.
//!
//! What the list does not name is the base's, so a remote base keeps its batches, transfers and claims. A written object hides
//! the base's, whatever becomes of that one; a deletion hides the object that was there, and no later one (`origin.rs`). A chunk has
//! the form of the array that it was written for. For an array of another form ([`Store::for_array`]) it is an error, and no chunk.
//! The folder's objects have the owner and mode of the object that they replace, or of
//! the array's document. Since the folder belongs to the user of this program, that user may write all that it may read: where
//! it is not root, objects of other users are shown as its own, with the same permissions for others.
//!
//! Invariants: the base is never written, except by [`OverlayStore::commit`] and [`Frozen::publish`]. An object is written and deleted as in a folder
//! store, so that a reader of the overlay sees it old or new, and after a crash too.

mod changes;
mod commit;
mod folder;
mod forms;
mod gate;
mod lengths;
mod line;
mod lines;
mod nodes;
mod options;
mod origin;
mod publish;
mod state;
#[cfg(test)]
mod tests;
mod writer;

use std::any::Any;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

pub use self::commit::{Change, ChangeKind, Commit};
use self::folder::Folder;
pub use self::folder::{Over, resolved};
use self::gate::Gate;
pub use self::gate::Recorded;
use self::line::Entry as Changed;
pub use self::nodes::{InBase, Removal};
pub use self::options::{Access, OverlayOptions};
use self::origin::Origin;
pub use self::publish::{Frozen, Recording};
use crate::error::{Error, Result};
use crate::store::versions::Versions;
use crate::store::{
    ArrayForm, Audience, Form, GetReply, GetRequest, Info, ListEntry, MaybeClaim, Object, ObjectContent,
    Posix, Remote, RemoteOptions, StatFs, Store, Traffic, Wanted, Writer, check_key, join, sorted_names,
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
    folder: Folder,
    gate: RwLock<Gate>,
    /// What changed since a commit began to send.
    recorded: Mutex<Option<Recorded>>,
    /// The branch of the last commit.
    followed: Mutex<Option<String>>,
    /// Whether the base has owners and modes.
    has_posix: bool,
    /// Keys that are locked. No other process has the overlay open for writing.
    locked: Mutex<HashSet<String>>,
}

fn failed<'a>(key: &'a str, operation: &'static str) -> impl Fn(io::Error) -> Error + 'a {
    move |error| Error::store(key, operation, error)
}

impl OverlayStore {
    /// The overlay in a folder, over the store at `location`, which is open as `base`. Every failure is [`Error::Usage`] or
    /// one of the base.
    pub fn open(
        base: Arc<dyn Store>,
        location: &str,
        remote: &RemoteOptions,
        options: &OverlayOptions,
    ) -> Result<Self> {
        let folder = Folder::open(base.as_ref(), location, remote, options)?;
        let has_posix = base.head("")?.is_some_and(|root| root.posix.is_some());
        let objects: Arc<dyn Store> = Arc::new(folder.objects.clone());
        let is_written = options.access == Access::Write;
        let gate = if is_written { Gate::of_folder(&folder.path)? } else { Gate::default() };
        let shared = Arc::new(Shared {
            root: base.clone(),
            folder,
            gate: RwLock::new(gate),
            recorded: Mutex::default(),
            followed: Mutex::default(),
            has_posix,
            locked: Mutex::default(),
        });
        let store = OverlayStore { base, objects, shared, form: None };
        if is_written {
            store.settle()?;
            store.note_branch()?;
        }
        Ok(store)
    }

    /// The overlay that a store is, if it is one.
    pub fn of(store: &dyn Store) -> Option<&OverlayStore> {
        store.as_overlay()?.downcast_ref()
    }

    /// The store below.
    pub fn base(&self) -> &Arc<dyn Store> {
        &self.base
    }

    /// Notes the branch that is followed, which is the one that a commit without a mount goes to.
    fn note_branch(&self) -> Result<()> {
        match self.shared.root.versions() {
            Some(_) => self.shared.folder.note_branch(self.branch().as_deref()),
            None => Ok(()),
        }
    }

    /// The overlay's folder.
    pub fn folder(&self) -> &Path {
        &self.shared.folder.path
    }

    fn changed(&self, key: &str, operation: &'static str) -> Result<Option<Changed>> {
        self.shared.folder.changes.entry(key).map_err(failed(key, operation))
    }

    /// Whether the base's object at a key is shown, where the overlay has this entry and no object.
    fn is_shown_below(&self, key: &str, entry: Changed, operation: &'static str) -> Result<bool> {
        if matches!(entry, Changed::Written { hides: false, .. }) {
            return Ok(true);
        }
        if self.is_hidden(key)? {
            return Ok(false);
        }
        let is_deleted = match (entry.from(), self.base.head_object(key)?) {
            (_, None) => return Ok(false),
            // It was put there later.
            (None, Some(_)) => false,
            (Some(from), Some(now)) => from.is(self.base.as_ref(), key, now.version)?,
        };
        if is_deleted {
            self.check_form(key, entry, operation)?;
        }
        Ok(!is_deleted)
    }

    /// What the overlay has at a key by `find`, else what the base has by `find_below`.
    fn either<T>(
        &self,
        key: &str,
        operation: &'static str,
        find: impl Fn(&dyn Store) -> Result<Option<T>>,
        find_below: impl Fn(&dyn Store) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        loop {
            let changed = self.changed(key, operation)?;
            let Some(entry) = changed else { return find_below(self.base.as_ref()) };
            if matches!(entry, Changed::Written { .. }) {
                if let Some(found) = find(self.objects.as_ref())? {
                    self.check_form(key, entry, operation)?;
                    return Ok(Some(found));
                }
                // It may just have been deleted.
                if self.changed(key, operation)? != changed {
                    continue;
                }
            }
            return if self.is_shown_below(key, entry, operation)? {
                find_below(self.base.as_ref())
            } else {
                Ok(None)
            };
        }
    }

    /// Info of an object or folder as the overlay shows it.
    fn shown(&self, key: &str, info: Info) -> Result<Info> {
        let touched = self.shared.folder.changes.touched(key);
        let posix = info.posix.filter(|_| self.shared.has_posix).map(own);
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

    /// Whether a name in the overlay's folder is part of it.
    fn is_listed(&self, key: &str, is_folder: bool) -> Result<bool> {
        if is_folder {
            return self.shared.folder.changes.is_any_written_below(key).map_err(failed(key, "list"));
        }
        Ok(matches!(self.changed(key, "list")?, Some(Changed::Written { .. })))
    }
}

/// Owner and mode of an object where this program's user may write what it may read.
fn own(posix: Posix) -> Posix {
    let (uid, _) = sys::effective_ids();
    if uid == 0 { posix } else { Posix { uid, mode: posix.mode | 0o600, ..posix } }
}

impl Store for OverlayStore {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        let open = |store: &dyn Store| store.open(key);
        self.either(key, "open", open, open)
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>> {
        let content = |store: &dyn Store| store.content(key, limit_bytes);
        self.either(key, "read", content, content)?
            .map(|content| self.shown_content(key, content))
            .transpose()
    }

    fn get(&self, key: &str, limit_bytes: u64) -> Result<Option<Vec<u8>>> {
        let get = |store: &dyn Store| store.get(key, limit_bytes);
        self.either(key, "read", get, get)
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        check_key(key, "look at")?;
        let mut found = self.either(key, "look at", |objects| objects.head(key), |base| base.head(key))?;
        if found.is_none()
            && self.shared.folder.changes.is_any_written_below(key).map_err(failed(key, "look at"))?
        {
            found = self.objects.head(key)?;
        }
        found.map(|info| self.shown(key, info)).transpose()
    }

    fn head_object(&self, key: &str) -> Result<Option<Info>> {
        if !self.base.is_remote() {
            return self.head(key);
        }
        let found = self.either(key, "look at", |objects| objects.head(key), |base| base.head_object(key))?;
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
        // A name is listed, whatever its object is of.
        let of_any_form = OverlayStore { form: None, ..self.clone() };
        let mut own = BTreeMap::new();
        for entry in self.shared.folder.objects.list(folder)? {
            if self.is_listed(&join(folder, &entry.name), entry.is_folder)? {
                own.insert(entry.name, entry.is_folder);
            }
        }
        let mut outcome = Ok(());
        let mut is_over = false;
        let is_hidden = self.is_hidden(folder)?;
        let mut each_below = |entry: ListEntry| {
            let key = join(folder, &entry.name);
            if entry.is_folder {
                match self.is_hidden(&key) {
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
                match of_any_form.either(&key, "list", is_there, |_| Ok(Some(()))) {
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

    /// Of the folder that takes what is written.
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

impl Remote for OverlayStore {
    fn open_for(&self, key: &str, wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        self.either(key, "open", |objects| objects.open(key), |base| base.open_for(key, wanted))
    }

    fn get_many(&self, requests: &[GetRequest]) -> Vec<Result<GetReply>> {
        let is_below = |request: &GetRequest| matches!(self.changed(&request.key, "read"), Ok(None));
        let places: Vec<bool> = requests.iter().map(is_below).collect();
        let below = requests.iter().zip(&places).filter(|(_, is_below)| **is_below);
        let below: Vec<GetRequest> = below.map(|(request, _)| request.clone()).collect();
        let mut replies = self.base.get_many(&below).into_iter();
        let reply = |(request, is_below): (&GetRequest, bool)| {
            let reply = match replies.by_ref().take(usize::from(is_below)).next() {
                Some(reply) => reply?,
                None => self.get_changed(request)?,
            };
            Ok(match reply {
                GetReply::Content(content) => GetReply::Content(self.shown_content(&request.key, content)?),
                other => other,
            })
        };
        requests.iter().zip(places).map(reply).collect()
    }

    fn head_many(&self, keys: &[&str]) -> Vec<Result<Option<Info>>> {
        let is_below = |key: &&str| matches!(self.changed(key, "look at"), Ok(None));
        let places: Vec<bool> = keys.iter().map(is_below).collect();
        let below: Vec<&str> = keys.iter().zip(&places).filter(|(_, is)| **is).map(|(key, _)| *key).collect();
        let mut replies = self.base.head_many(&below).into_iter();
        let reply = |(key, is_below): (&&str, bool)| match replies.by_ref().take(usize::from(is_below)).next()
        {
            Some(found) => found?.map(|info| self.shown(key, info)).transpose(),
            None => self.head_object(key),
        };
        keys.iter().zip(places).map(reply).collect()
    }

    fn will_need(&self, wanted: &[(String, Wanted)]) -> Vec<MaybeClaim> {
        let Some(base) = self.base.remote() else { return vec![None; wanted.len()] };
        let is_below = |(key, _): &(String, Wanted)| matches!(self.changed(key, "open"), Ok(None));
        let places: Vec<bool> = wanted.iter().map(is_below).collect();
        if places.iter().all(|is_below| *is_below) {
            return base.will_need(wanted);
        }
        let below = wanted.iter().zip(&places).filter(|(_, is_below)| **is_below);
        let below: Vec<_> = below.map(|(wanted, _)| wanted.clone()).collect();
        let mut claims = base.will_need(&below).into_iter();
        places.into_iter().map(|is_below| if is_below { claims.next().flatten() } else { None }).collect()
    }

    fn transfer_limit_bytes(&self) -> u64 {
        self.base.remote().map_or(0, Remote::transfer_limit_bytes)
    }

    fn forget_transfers(&self, key: &str) {
        self.base.forget_transfers(key);
    }

    fn traffic(&self) -> Option<Traffic> {
        self.base.remote()?.traffic()
    }
}
