//! The writing half of an overlay. Uses its neighbours in `overlay`, `directory` and the traits of `store`. Spec: v3 core "Hierarchy".
//!
//! A put or a delete is in the list of changes, durably, before the object's file gets or loses its name. So a crash may leave a line
//! without a file, and never a file without a line. A folder that only the overlay has is renamed in `objects/` between two lines. The
//! next writer finishes what a crash has left between them.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::commit::{
    WriteScope, census, has_documents, info_without_owner, is_committable, is_folder, removal_time,
};
use super::folder::line::{HiddenFolder, KeyEntry, RenameStep};
use super::folder::store_error;
use super::origin::Origin;
use super::{OverlayStore, Shared, shown_posix};
use crate::error::{Error, Result};
use crate::store::{
    Info, ObjectPart, ObjectVersion, Posix, Precondition, PutOptions, StagedFolder, Store, Writer, check_key,
    is_temporary_name,
};

/// A key that is locked in this process.
struct Lock {
    shared: Arc<Shared>,
    key: String,
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.shared.locked.lock().remove(&self.key);
    }
}

/// The state of a key.
struct KeyState {
    entry: Option<KeyEntry>,
    /// The overlay's object.
    own: Option<Info>,
    /// The base's object, if it is shown.
    below: Option<Info>,
    /// The version that readers see.
    version: Option<ObjectVersion>,
}

/// Returns the folder that a path is in.
fn parent_folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(above, _)| above)
}

impl OverlayStore {
    fn key_state(&self, key: &str) -> Result<KeyState> {
        check_key(key, "look at")?;
        let entry = self.folder().entry(key, "look at")?;
        let own = match entry {
            Some(KeyEntry::Written { .. }) => self.objects.head_object(key)?,
            _ => None,
        };
        let is_below = match entry {
            None => true,
            Some(_) if own.is_some() => false,
            Some(entry) => self.is_base_shown(key, entry, "look at")?,
        };
        let below = if is_below { self.base.head_object(key)? } else { None };
        let version = match own {
            Some(own) => Some(self.version_of_both(key, own.version)?),
            None => below.map(|info| info.version),
        };
        Ok(KeyState { entry, own, below, version })
    }

    /// Describes the base's object that something is put in place of.
    fn origin(&self, key: &str, below: Option<Info>) -> Result<Option<Origin>> {
        below.map(|info| Origin::of(self.base.as_ref(), key, info.version)).transpose()
    }

    /// Returns what a new folder or object is to be like, without owner and mode if the base has none.
    fn like(&self, like: &Info) -> Info {
        Info { posix: like.posix.filter(|_| self.shared.has_posix), ..*like }
    }

    fn stage_folder(&self, parent: &str, like: &Info) -> Result<Option<StagedFolder>> {
        let like = self.like(like);
        self.folder().objects.make_folders(parent, &like)?;
        self.folder().objects_writer()?.stage(parent, &like)
    }

    /// Removes a folder with everything in it, by one line.
    fn remove_tree(&self, folder: &str) -> Result<()> {
        let is_staged = folder.split('/').any(is_temporary_name);
        let base = self.base.as_ref();
        let hidden = if is_staged || self.folder().is_hidden(folder)? {
            None
        } else {
            let at = is_committable(base).then(|| removal_time(base));
            census(base, folder)?.map(|from| HiddenFolder { from, at, is_begun: false })
        };
        let recorded = self.folder().changes.remove(folder, hidden);
        recorded.map_err(store_error(folder, "record its removal in the overlay"))?;
        for place in [&self.folder().documents, &self.folder().objects] {
            if let Some(writer) = place.writer() {
                writer.remove_folder(folder)?;
            }
        }
        Ok(())
    }

    /// Returns whether only the overlay has a folder.
    fn is_own(&self, folder: &str) -> Result<bool> {
        let is_staged = folder.split('/').any(is_temporary_name);
        let is_below = || {
            let base = self.base.as_ref();
            Ok::<_, Error>(is_folder(base, folder)? || has_documents(base, folder)?)
        };
        Ok(is_staged || self.folder().is_hidden(folder)? || !is_below()?)
    }

    /// Renames a folder that only the overlay has. Durable after `sync`.
    fn rename_tree(&self, from: &str, to: &str) -> Result<()> {
        if !self.is_own(from)? {
            let reason = "is in the store below, and nothing is renamed there: the overlay renames only nodes that were made in it";
            return Err(Error::store(from, "", io::Error::new(io::ErrorKind::CrossesDevices, reason)));
        }
        let is_taken = || Error::Changed { key: to.to_owned() };
        let mut is_empty = true;
        self.each_name(to, &mut |_| {
            is_empty = false;
            ControlFlow::Break(())
        })?;
        if !is_empty || (!self.base.is_remote() && self.open(to)?.is_some()) {
            return Err(is_taken());
        }
        let (objects, changes) = (self.folder().objects_writer()?, &self.folder().changes);
        // Files there have no line, so a crash has left them.
        objects.remove_folder(to)?;
        let above = if self.shared.has_posix { self.head(parent_folder(to))? } else { None };
        let like =
            above.map(|info| info.with_mode(|posix| posix.mode & 0o666)).unwrap_or_else(info_without_owner);
        self.folder().objects.make_folders(parent_folder(to), &self.like(&like))?;
        let record = |step: RenameStep| {
            changes.rename(from, to, step).map_err(store_error(from, "record its rename in the overlay"))
        };
        record(RenameStep::Begun)?;
        let keys = [from.to_owned(), to.to_owned()];
        let renamed = objects.rename_folder(from, to).and_then(|()| objects.sync(&keys, ""));
        let renamed = renamed.and_then(|()| record(RenameStep::Done));
        if renamed.is_err() && changes.is_renaming(from) {
            // Undoes the rename, if it has happened.
            let _ = objects.rename_folder(to, from);
            changes.end_rename(from, to);
        }
        renamed
    }
}

impl Writer for OverlayStore {
    fn put(&self, key: &str, parts: &[ObjectPart<'_>], options: &PutOptions<'_>) -> Result<ObjectVersion> {
        let _entered = self.publisher().enter(WriteScope::Object(key))?;
        let now = self.key_state(key)?;
        options.precondition.check(key, || Ok(now.version))?;
        if now.own.is_none() {
            if !matches!(now.entry, Some(KeyEntry::Written { .. })) {
                // Left by the removal of a folder, or by a deletion that was interrupted.
                self.folder().remove_leftover(key)?;
            }
            let hides = match now.entry {
                Some(KeyEntry::Deleted { .. }) => true,
                Some(KeyEntry::Written { hides, .. }) => hides,
                None => false,
            };
            let (from, hides) = match now.entry.filter(|_| hides && now.below.is_none()) {
                // Another program has deleted the base's object too.
                Some(_) if !self.folder().is_hidden(key)? && self.base.head_object(key)?.is_none() => {
                    (None, false)
                }
                Some(deleted) => (deleted.from(), true),
                None => (self.origin(key, now.below)?, false),
            };
            self.folder().set(key, KeyEntry::Written { from, form: self.form, hides, sent: None })?;
        } else if let Some(changed @ KeyEntry::Written { from, form, hides, sent }) = now.entry {
            self.check_form(key, changed, "write")?;
            if form.is_none() && self.form.is_some() {
                self.folder().set(key, KeyEntry::Written { from, form: self.form, hides, sent })?;
            }
        }
        // An object that is replaced keeps its owner and mode, as if the base were written.
        let posix = now.below.and_then(|info| info.posix).map(shown_posix).or(options.like.posix);
        let like = Info { posix: posix.filter(|_| self.shared.has_posix), ..*options.like };
        // Folders that only the base has are created in `objects/`, so nothing need exist there.
        let version = self.folder().objects_writer()?.put(key, parts, &PutOptions::new("", &like))?;
        self.version_of_both(key, version)
    }

    fn delete(&self, key: &str, precondition: Precondition) -> Result<bool> {
        let _entered = self.publisher().enter(WriteScope::Object(key))?;
        let now = self.key_state(key)?;
        precondition.check(key, || Ok(now.version))?;
        let is_below =
            || Ok::<_, Error>(!self.folder().is_hidden(key)? && self.base.head_object(key)?.is_some());
        let from = match (now.below, now.entry) {
            (Some(_), _) => self.origin(key, now.below)?,
            (None, Some(changed)) if is_below()? => changed.from(),
            (None, _) => None,
        };
        match (from, now.entry) {
            (Some(_), _) => {
                self.folder().set(key, KeyEntry::Deleted { from, form: self.form })?;
                self.folder().remove_object(key)?;
            }
            // There is nothing to hide in the base, and a line without a file means nothing.
            (None, Some(changed)) => {
                self.folder().remove_object(key)?;
                if matches!(changed, KeyEntry::Written { .. }) {
                    let recorded = self.folder().changes.forget(key);
                    recorded.map_err(store_error(key, "record the change in the overlay"))?;
                }
            }
            (None, None) => {}
        }
        Ok(now.version.is_some())
    }

    fn sync(&self, keys: &[String], _within: &str) -> Result<()> {
        self.folder().objects_writer()?.sync(keys, "")?;
        // The lines of renames. Other lines are already durable.
        self.folder().changes.sync().map_err(store_error("", "record the changes in the overlay"))
    }

    fn sync_all(&self) -> Result<()> {
        self.folder().objects_writer()?.sync_all()?;
        self.folder().changes.sync().map_err(store_error("", "record the changes in the overlay"))
    }

    fn lock(&self, key: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        if !self.shared.locked.lock().insert(key.to_owned()) {
            return Ok(None);
        }
        Ok(Some(Box::new(Lock { shared: Arc::clone(&self.shared), key: key.to_owned() })))
    }

    fn set_permissions(&self, key: &str, owner: u32, like: &Posix) -> Result<bool> {
        if !self.shared.has_posix || !self.is_own(key)? {
            return Ok(false);
        }
        self.folder().objects_writer()?.set_permissions(key, owner, like)
    }

    fn check_place(&self) -> Result<()> {
        if let Some(writer) = self.base.writer() {
            writer.check_place()?;
        }
        self.folder().objects_writer()?.check_place()
    }

    /// Sets the mtime of the overlay's object. A document of the base is shown with another mtime, and does not change.
    fn touch(&self, key: &str, version: ObjectVersion) -> Result<Option<ObjectVersion>> {
        let _entered = self.publisher().enter(WriteScope::Object(key))?;
        let now = self.key_state(key)?;
        if now.version != Some(version) {
            return Ok(None);
        }
        if let Some(own) = now.own {
            let touched = self.folder().objects_writer()?.touch(key, own.version)?;
            return touched.map(|touched| self.version_of_both(key, touched)).transpose();
        }
        let touched: io::Result<()> = self.folder().changes.touch(key);
        touched.map_err(store_error(key, "set the modification time"))?;
        Ok(Some(version))
    }

    fn stage(&self, parent: &str, like: &Info) -> Result<Option<StagedFolder>> {
        let _entered = self.publisher().enter(WriteScope::Folder)?;
        self.stage_folder(parent, like)
    }

    fn can_rename(&self, folder: &str) -> Result<bool> {
        self.is_own(folder)
    }

    fn rename_folder(&self, from: &str, to: &str) -> Result<()> {
        let _entered = self.publisher().enter(WriteScope::Folder)?;
        self.rename_tree(from, to)
    }

    fn remove_folder(&self, key: &str) -> Result<bool> {
        let _entered = self.publisher().enter(WriteScope::Folder)?;
        self.remove_tree(key).map(|()| true)
    }

    fn remove_unfinished(&self, folder: &str) -> Result<u64> {
        self.folder().objects_writer()?.remove_unfinished(folder)
    }
}
