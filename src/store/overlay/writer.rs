//! Writing into an overlay. Uses its neighbours in `overlay`, `directory` and the traits of `store`.
//!
//! What a put or a delete changes is in the list of changes, durably, before the object's file gets or loses its name. So there is
//! a line without a file after a crash, and never a file without a line.

use std::io;
use std::sync::Arc;

use super::lengths::MAX_DOCUMENT_BYTES;
use super::publish::Changing;
use super::{Changed, Origin, OverlayStore, Shared, failed, own};
use crate::error::{Error, Result};
use crate::store::{
    Info, ObjectPart, ObjectVersion, Posix, Precondition, PutOptions, StagedFolder, Store, Writer, check_key,
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

/// What a key has now.
struct Now {
    changed: Option<Changed>,
    /// Of the overlay's object.
    own: Option<Info>,
    /// Of the base's object, if that is shown.
    below: Option<Info>,
    /// As readers see it.
    version: Option<ObjectVersion>,
}

impl Shared {
    /// The writing half of the folder's objects.
    pub(super) fn objects(&self) -> Result<&dyn Writer> {
        let read_only = || Error::ReadOnly(format!("{} is not writable", self.folder.path.display()));
        self.folder.objects.writer().ok_or_else(read_only)
    }

    pub(super) fn set(&self, key: &str, entry: Changed) -> Result<()> {
        self.folder.changes.set(key, entry).map_err(failed(key, "note the change in the overlay"))
    }

    /// Removes the overlay's object; returns whether there was one.
    pub(super) fn remove_object(&self, key: &str) -> Result<bool> {
        self.objects()?.delete(key, Precondition::Any)
    }
}

impl OverlayStore {
    fn now(&self, key: &str) -> Result<Now> {
        check_key(key, "look at")?;
        let changed = self.changed(key, "look at")?;
        let own = match changed {
            Some(Changed::Written { .. }) => self.objects.head_object(key)?,
            _ => None,
        };
        let is_below = match changed {
            None => true,
            Some(_) if own.is_some() => false,
            Some(entry) => self.is_shown_below(key, entry, "look at")?,
        };
        let below = if is_below { self.base.head_object(key)? } else { None };
        let version = match own {
            Some(own) => Some(self.version_of_both(key, own.version)?),
            None => below.map(|info| info.version),
        };
        Ok(Now { changed, own, below, version })
    }

    /// What the overlay notes where something is put in place of what the base shows.
    fn origin(&self, key: &str, below: Option<Info>) -> Result<Option<Origin>> {
        below.map(|info| Origin::of(self.base.as_ref(), key, info.version)).transpose()
    }

    /// Removes a file at a key at which the overlay has no object: a new line would show it again.
    fn remove_leftover(&self, key: &str) -> Result<()> {
        if self.shared.folder.objects.head(key)?.is_some() && self.shared.remove_object(key)? {
            self.shared.objects()?.sync(&[key.to_owned()], "")?;
        }
        Ok(())
    }
}

impl OverlayStore {
    /// A document of the base, as it was when an older zarrfs wrote the first new chunk of its array, which has no form.
    pub fn kept_document(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.shared.folder.documents.get(key, MAX_DOCUMENT_BYTES)
    }
}

impl Writer for OverlayStore {
    fn put(&self, key: &str, parts: &[ObjectPart<'_>], options: &PutOptions<'_>) -> Result<ObjectVersion> {
        let _entered = self.enter(Changing::Object(key))?;
        let now = self.now(key)?;
        options.precondition.check(key, || Ok(now.version))?;
        if now.own.is_none() {
            if !matches!(now.changed, Some(Changed::Written { .. })) {
                // Of a folder that was removed, or where deleting it did not end.
                self.remove_leftover(key)?;
            }
            let hides = match now.changed {
                Some(Changed::Deleted { .. }) => true,
                Some(Changed::Written { hides, .. }) => hides,
                None => false,
            };
            let (from, hides) = match now.changed.filter(|_| hides && now.below.is_none()) {
                // Another program has deleted it, too.
                Some(_) if !self.is_hidden(key)? && self.base.head_object(key)?.is_none() => (None, false),
                Some(deleted) => (deleted.from(), true),
                None => (self.origin(key, now.below)?, false),
            };
            self.shared.set(key, Changed::Written { from, form: self.form, hides, sent: None })?;
        } else if let Some(changed @ Changed::Written { from, form, hides, sent }) = now.changed {
            self.check_form(key, changed, "write")?;
            if form.is_none() && self.form.is_some() {
                self.shared.set(key, Changed::Written { from, form: self.form, hides, sent })?;
            }
        }
        // As where the base would be written: an object that is replaced keeps its owner and mode.
        let posix = now.below.and_then(|info| info.posix).map(own).or(options.like.posix);
        let like = Info { posix: posix.filter(|_| self.shared.has_posix), ..*options.like };
        // The folder of an array that is the base's is made, too.
        let version = self.shared.objects()?.put(key, parts, &PutOptions::new("", &like))?;
        self.version_of_both(key, version)
    }

    fn delete(&self, key: &str, precondition: Precondition) -> Result<bool> {
        let _entered = self.enter(Changing::Object(key))?;
        let now = self.now(key)?;
        precondition.check(key, || Ok(now.version))?;
        let is_below = || Ok::<_, Error>(!self.is_hidden(key)? && self.base.head_object(key)?.is_some());
        let from = match (now.below, now.changed) {
            (Some(_), _) => self.origin(key, now.below)?,
            (None, Some(changed)) if is_below()? => changed.from(),
            (None, _) => None,
        };
        match (from, now.changed) {
            (Some(_), _) => {
                self.shared.set(key, Changed::Deleted { from, form: self.form })?;
                self.shared.remove_object(key)?;
            }
            // There is nothing to hide: the line means nothing without a file.
            (None, Some(changed)) => {
                self.shared.remove_object(key)?;
                if matches!(changed, Changed::Written { .. }) {
                    let noted = self.shared.folder.changes.forget(key);
                    noted.map_err(failed(key, "note the change in the overlay"))?;
                }
            }
            (None, None) => {}
        }
        Ok(now.version.is_some())
    }

    fn sync(&self, keys: &[String], _within: &str) -> Result<()> {
        self.shared.objects()?.sync(keys, "")?;
        // Of renames; other lines are durable already.
        self.shared.folder.changes.sync().map_err(failed("", "note the changes in the overlay"))
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
        self.shared.objects()?.set_permissions(key, owner, like)
    }

    fn check_place(&self) -> Result<()> {
        if let Some(writer) = self.base.writer() {
            writer.check_place()?;
        }
        self.shared.objects()?.check_place()
    }

    /// A document of the base gets no time of its own there: the overlay shows it with another one.
    fn touch(&self, key: &str, version: ObjectVersion) -> Result<Option<ObjectVersion>> {
        let _entered = self.enter(Changing::Object(key))?;
        let now = self.now(key)?;
        if now.version != Some(version) {
            return Ok(None);
        }
        if let Some(own) = now.own {
            let touched = self.shared.objects()?.touch(key, own.version)?;
            return touched.map(|touched| self.version_of_both(key, touched)).transpose();
        }
        let touched: io::Result<()> = self.shared.folder.changes.touch(key);
        touched.map_err(failed(key, "set the modification time"))?;
        Ok(Some(version))
    }

    fn stage(&self, parent: &str, like: &Info) -> Result<Option<StagedFolder>> {
        let _entered = self.enter(Changing::Folder)?;
        self.stage_folder(parent, like)
    }

    fn can_rename(&self, folder: &str) -> Result<bool> {
        self.is_own(folder)
    }

    fn rename_folder(&self, from: &str, to: &str) -> Result<()> {
        let _entered = self.enter(Changing::Folder)?;
        self.rename_tree(from, to)
    }

    fn remove_folder(&self, key: &str) -> Result<bool> {
        let _entered = self.enter(Changing::Folder)?;
        self.remove_tree(key).map(|()| true)
    }

    fn remove_unfinished(&self, folder: &str) -> Result<u64> {
        self.shared.objects()?.remove_unfinished(folder)
    }
}
