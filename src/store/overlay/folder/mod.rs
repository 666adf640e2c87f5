//! The folder of an overlay: its list of changes, its objects, and the description of its base. Uses its neighbours in `overlay`,
//! `directory` and `error`.
//!
//! `overlay.json` describes the base and is written last when a folder is created (`base_location.rs`, `create.rs`). `changes` is the
//! list of changes (`changes.rs`), `objects/` has the written objects under their keys, and `documents/` some documents of the base. Over a base that keeps
//! versions, `branch` names the branch that it followed, and `commit` has the mark of a commit whose outcome is not known
//! (`commit/publisher.rs`). A process that changes the overlay holds a lock on `overlay.json`, which is never replaced;
//! a process that continues its work gets the lock with the descriptor, so no other one comes between.

pub mod base_location;
mod changes;
mod create;
pub mod line;
mod log;
mod table;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::base_location::{BRANCH, BaseLocation, failed, not_an_overlay, read_limited};
use self::changes::{CHANGES, ChangeList, OBJECTS};
use self::create::{DOCUMENTS, OverlayLock, check_apart, create, lock};
use self::line::{HiddenFolder, KeyEntry, RenameStep};
use super::change::{Change, ChangeKind};
use super::options::{Access, OverlayOptions};
use super::shape_digest::{ARRAY_DOCUMENTS, MAX_DOCUMENT_BYTES, ShapeDigest};
use crate::error::{Error, Result};
use crate::store::remote_options::RemoteOptions;
use crate::store::{DirectoryStore, LockKeeper, Precondition, Store, VersionDigest, Writer, join};

/// The folder of an open overlay.
pub struct Folder {
    path: PathBuf,
    pub(super) changes: ChangeList,
    /// The objects that were written.
    pub(super) objects: DirectoryStore,
    /// Documents of the base, as they were when an older zarrfs wrote new chunks of their arrays.
    pub(super) documents: DirectoryStore,
    /// Held as long as this process may change the overlay.
    lock: Option<OverlayLock>,
}

/// A node of the base that the overlay has removed, with everything below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Its path.
    pub path: String,
    pub(super) hidden: HiddenFolder,
}

/// Returns a function that makes a store error of an I/O error.
pub(super) fn store_error<'a>(key: &'a str, operation: &'static str) -> impl Fn(io::Error) -> Error + 'a {
    move |error| Error::store(key, operation, error)
}

/// Returns a path with all of it resolved that exists.
pub fn resolved(path: &Path) -> PathBuf {
    let Ok(path) = std::path::absolute(path) else { return path.to_owned() };
    let mut existing = path.as_path();
    loop {
        if let (Ok(canonical), Ok(rest)) = (std::fs::canonicalize(existing), path.strip_prefix(existing)) {
            return canonical.join(rest);
        }
        match existing.parent() {
            Some(parent) => existing = parent,
            None => return path,
        }
    }
}

impl Folder {
    /// Opens the overlay of the store at `location`, which is open as `base`. Creates the folder if the overlay is to be written.
    pub(super) fn open(
        base: &dyn Store,
        location: &str,
        remote: &RemoteOptions,
        options: &OverlayOptions,
        locks: Option<&Arc<dyn LockKeeper>>,
    ) -> Result<Self> {
        let now = BaseLocation::new(base, location, remote)?;
        let path = resolved(&options.folder);
        check_apart(&path, location, &now)?;
        let lock = match (options.access, BaseLocation::find(&path)?) {
            (Access::Read, None) => return Err(not_an_overlay(&path)),
            (Access::Read, Some(_)) => None,
            (Access::Write, about) => {
                if about.is_none() {
                    create(&path, &now)?;
                }
                Some(lock(&path, locks)?)
            }
        };
        // Another process may have created it, for another base.
        BaseLocation::find(&path)?.ok_or_else(|| not_an_overlay(&path))?.check(&now, &path)?;
        let list = path.join(CHANGES);
        let changes = match options.access {
            Access::Read => ChangeList::open_to_read(&list),
            Access::Write => ChangeList::open(&list),
        };
        let list_failed = |error: io::Error| failed(&list, "cannot be read", &error);
        let mut changes = changes.map_err(list_failed)?;
        let open = |name: &str| {
            let store = DirectoryStore::open(&path.join(name), false);
            store.map_err(|error| failed(&path.join(name), "cannot be opened", &error))
        };
        let (objects, documents) = (open(OBJECTS)?, open(DOCUMENTS)?);
        if let (Some(_), Some(writer)) = (&lock, documents.writer()) {
            writer.remove_unfinished("")?;
            finish_interrupted(&changes, &objects)?;
            changes.compact().map_err(list_failed)?;
        }
        Ok(Folder { path, changes, objects, documents, lock })
    }

    /// Lets other processes, and another use by this one, change the overlay. Nothing may be written to it through this value afterwards.
    pub fn end_writing(&self) {
        if let Some(lock) = &self.lock {
            lock.end();
        }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records the branch that the base follows, if it follows one.
    pub(super) fn record_branch(&self, branch: Option<&str>) -> Result<()> {
        let (path, branch) = (self.path.join(BRANCH), branch.unwrap_or_default());
        if read_limited(&path).is_ok_and(|recorded| recorded == branch) {
            return Ok(());
        }
        write_durably(&self.path, BRANCH, branch).map_err(|error| failed(&path, "cannot be written", &error))
    }

    /// Returns what the overlay has at a key; `None` if it changes nothing there.
    pub(super) fn entry(&self, key: &str, operation: &'static str) -> Result<Option<KeyEntry>> {
        self.changes.entry(key).map_err(store_error(key, operation))
    }

    /// Sets what the overlay has at a key. Durable when this returns.
    pub(super) fn set(&self, key: &str, entry: KeyEntry) -> Result<()> {
        self.changes.set(key, entry).map_err(store_error(key, "record the change in the overlay"))
    }

    /// Records the mark of the object that a commit is about to put into the base. Durable when this returns.
    pub(super) fn set_sent(&self, key: &str, mark: VersionDigest) -> Result<()> {
        match self.entry(key, "commit")? {
            Some(KeyEntry::Written { from, form, hides, .. }) => {
                self.set(key, KeyEntry::Written { from, form, hides, sent: Some(mark) })
            }
            _ => Err(Error::Stale { key: key.to_owned() }),
        }
    }

    /// Returns whether the base's object or folder at a key is hidden by a removal.
    pub fn is_hidden(&self, key: &str) -> Result<bool> {
        self.changes.is_hidden(key).map_err(store_error(key, "look at"))
    }

    /// Returns the writing half of the objects.
    pub(super) fn objects_writer(&self) -> Result<&dyn Writer> {
        let read_only = || Error::ReadOnly(format!("{} is not writable", self.path.display()));
        self.objects.writer().ok_or_else(read_only)
    }

    /// Removes the overlay's object at a key; returns whether there was one.
    pub(super) fn remove_object(&self, key: &str) -> Result<bool> {
        self.objects_writer()?.delete(key, Precondition::Any)
    }

    /// Removes a file at a key at which the overlay has no object. The next line of the key would show the file.
    pub(super) fn remove_leftover(&self, key: &str) -> Result<()> {
        if self.objects.head(key)?.is_some() && self.remove_object(key)? {
            self.objects_writer()?.sync(&[key.to_owned()], "")?;
        }
        Ok(())
    }

    /// Returns all changes, by key.
    pub fn changes(&self) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        for (key, entry) in self.changes.entries().map_err(store_error("", "list the changes"))? {
            let kind = match entry {
                // The overlay has deleted an object of its own.
                KeyEntry::Deleted { from: None, .. } => continue,
                KeyEntry::Deleted { .. } => ChangeKind::Deleted,
                KeyEntry::Written { hides, .. } => match self.objects.head_object(&key)? {
                    Some(info) => ChangeKind::Written { size_bytes: info.size_bytes },
                    None if hides && entry.from().is_some() && !self.is_hidden(&key)? => ChangeKind::Deleted,
                    None => continue,
                },
            };
            changes.push(Change { key, kind, form: entry.form(), from: entry.from(), sent: entry.sent() });
        }
        Ok(changes)
    }

    /// Returns whether a change is a document that creates an array, or gives it another shape than the base's array had. The
    /// overlay's chunks belong to that shape. Lines of an older zarrfs lack the shape that the base's array had, which counts as
    /// another one.
    pub fn changes_shape(&self, change: &Change) -> Result<bool> {
        let name = change.key.rsplit('/').next().unwrap_or(&change.key);
        if !ARRAY_DOCUMENTS.contains(&name) || change.kind == ChangeKind::Deleted {
            return Ok(false);
        }
        let document = self.objects.get(&change.key, MAX_DOCUMENT_BYTES)?.unwrap_or_default();
        let shape = ShapeDigest::of_document(&document);
        Ok(shape.is_some() && shape != change.from.and_then(|from| from.shape))
    }

    /// Forgets changes, with their objects. Durable when this returns.
    pub fn forget(&self, changes: &[Change]) -> Result<()> {
        let recorded =
            |recorded: io::Result<()>| recorded.map_err(store_error("", "record what the overlay forgets"));
        for change in changes {
            if let Some(KeyEntry::Written { from, form, hides: true, sent }) =
                self.entry(&change.key, "forget")?
            {
                // Without its file, it shows the base from now on.
                self.set(&change.key, KeyEntry::Written { from, form, hides: false, sent })?;
            }
        }
        // The files go first: the next line of a key would show a file that was left.
        for change in changes {
            self.remove_object(&change.key)?;
        }
        let keys: Vec<String> = changes.iter().map(|change| change.key.clone()).collect();
        self.objects_writer()?.sync(&keys, "")?;
        for key in &keys {
            recorded(self.changes.forget(key))?;
        }
        recorded(self.changes.sync())
    }

    /// Returns the nodes of the base that the overlay has removed.
    pub fn removals(&self) -> Result<Vec<Removal>> {
        let hidden = self.changes.hidden().map_err(store_error("", "list the changes"))?;
        Ok(hidden.into_iter().map(|(path, hidden)| Removal { path, hidden }).collect())
    }

    /// Records that a commit has begun to remove these nodes from the base. If it is killed, the next commit removes the rest.
    pub fn begin_removal(&self, removal: &Removal) -> Result<()> {
        let hidden = HiddenFolder { is_begun: true, ..removal.hidden };
        let recorded = self.changes.hide(&removal.path, Some(hidden));
        recorded.map_err(store_error(&removal.path, "record the commit in the overlay"))
    }

    /// Shows again what the base has at the path of a removal.
    pub fn forget_removal(&self, removal: &Removal) -> Result<()> {
        let recorded = self.changes.hide(&removal.path, None);
        recorded.map_err(store_error(&removal.path, "record what the overlay forgets"))
    }

    /// Returns a document of the base as it was when an older zarrfs wrote the first new chunk of its array. Such chunks have no form.
    pub fn kept_document(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.documents.get(key, MAX_DOCUMENT_BYTES)
    }

    /// Removes the documents that are kept of an array.
    pub fn forget_documents(&self, path: &str) -> Result<()> {
        let Some(writer) = self.documents.writer() else { return Ok(()) };
        for key in ARRAY_DOCUMENTS.map(|name| join(path, name)) {
            writer.delete(&key, Precondition::Any)?;
        }
        Ok(())
    }

    /// Forgets all changes and removals.
    pub(super) fn forget_all(&self) -> Result<()> {
        // Removals first: a folder that is shown again has the new nodes, while one without its lines would look empty.
        for removal in self.removals()? {
            self.forget_removal(&removal)?;
        }
        self.forget(&self.changes()?)?;
        let Some(writer) = self.documents.writer() else { return Ok(()) };
        for entry in self.documents.list("")? {
            if entry.is_folder {
                writer.remove_folder(&entry.name)?;
            } else {
                writer.delete(&entry.name, Precondition::Any)?;
            }
        }
        Ok(())
    }
}

/// Writes a file in place of another one, or of none. Durable when this returns.
pub(super) fn write_durably(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    let new = folder.join(format!("{name}.new"));
    std::fs::write(&new, text)?;
    File::open(&new)?.sync_all()?;
    std::fs::rename(&new, folder.join(name))?;
    File::open(folder)?.sync_all()
}

/// Finishes what a dead process was doing: renames, removals and incomplete nodes.
fn finish_interrupted(changes: &ChangeList, objects: &DirectoryStore) -> Result<()> {
    let Some(writer) = objects.writer() else { return Ok(()) };
    let recorded = |error: io::Error| Error::store("", "record a change in the overlay", error);
    for (from, to) in changes.renames() {
        let is_done = objects.head(&from)?.is_none() && objects.head(&to)?.is_some();
        let step = if is_done { RenameStep::Done } else { RenameStep::Undone };
        if is_done {
            writer.sync(&[from.clone(), to.clone()], "")?;
        }
        changes.rename(&from, &to, step).map_err(recorded)?;
    }
    let (removed, places) = changes.clear_unfinished().map_err(recorded)?;
    for folder in removed {
        writer.remove_folder(&folder)?;
    }
    for place in [String::new()].iter().chain(&places) {
        writer.remove_unfinished(place)?;
    }
    Ok(())
}
