//! Writing into an overlay. Uses its neighbours in `overlay`, `directory` and the traits of `store`.
//!
//! What a put or a delete changes is in the list of changes, durably, before the object's file gets or loses its name. So there is
//! a line without a file after a crash, and never a file without a line.

use std::io;
use std::sync::Arc;

use super::publish::Changing;
use super::{Changed, OverlayStore, Shared, failed, own};
use crate::error::{Error, Result};
use crate::store::{
    Content, Info, ObjectPart, ObjectVersion, Precondition, PutOptions, StagedFolder, Store, Writer,
    check_key, is_temporary_name, join,
};

/// The documents that say how an array is stored.
pub(super) const DOCUMENTS: [&str; 3] = ["zarr.json", ".zarray", "meta"];
/// A longer one is not kept.
const MAX_DOCUMENT_BYTES: u64 = 64 << 20;

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
}

impl Now {
    fn version(&self) -> Option<ObjectVersion> {
        self.own.or(self.below).map(|info| info.version)
    }
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
            Some(Changed::Written { hides, .. }) => own.is_none() && !hides,
            Some(Changed::Deleted { .. }) => false,
        };
        let below = if is_below { self.base.head_object(key)? } else { None };
        Ok(Now { changed, own, below })
    }
}

impl OverlayStore {
    /// Keeps the base's documents of the array in a folder. A chunk that is new has no version in the base that tells whether
    /// the array is still the same one when it is committed.
    fn keep_documents(&self, within: &str) -> Result<()> {
        if self.shared.kept.lock().contains(within) || within.split('/').any(is_temporary_name) {
            return Ok(());
        }
        let kept = &self.shared.folder.documents;
        for key in DOCUMENTS.map(|name| join(within, name)) {
            if kept.head(&key)?.is_some() || self.is_hidden(&key)? {
                continue;
            }
            let Some(Content { bytes, info }) = self.base.content(&key, MAX_DOCUMENT_BYTES)? else {
                continue;
            };
            let like = Info { posix: None, ..info };
            if let Some(writer) = kept.writer() {
                writer.put(&key, &[ObjectPart::Bytes(&bytes)], &PutOptions::new("", &like))?;
                writer.sync(&[key], "")?;
            }
        }
        self.shared.kept.lock().insert(within.to_owned());
        Ok(())
    }

    /// A document of the base, as it was when the first new chunk of its array was written.
    pub fn kept_document(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.shared.folder.documents.get(key, MAX_DOCUMENT_BYTES)
    }
}

impl Writer for OverlayStore {
    fn put(&self, key: &str, parts: &[ObjectPart<'_>], options: &PutOptions<'_>) -> Result<ObjectVersion> {
        let _entered = self.enter(Changing::Object(key))?;
        let now = self.now(key)?;
        options.precondition.check(key, || Ok(now.version()))?;
        if now.own.is_none() {
            let from = now.below.map(|info| info.version.digest());
            let entry = match now.changed {
                Some(Changed::Deleted { from }) => {
                    // Left where deleting it did not end; the new line would show it again.
                    if self.shared.remove_object(key)? {
                        self.shared.objects()?.sync(&[key.to_owned()], "")?;
                    }
                    Changed::Written { from, hides: true }
                }
                Some(Changed::Written { from, hides: true }) => Changed::Written { from, hides: true },
                Some(Changed::Written { hides: false, .. }) => Changed::Written { from, hides: false },
                None => {
                    if self.shared.folder.objects.head(key)?.is_some() {
                        // Of a folder that was removed.
                        self.shared.remove_object(key)?;
                        self.shared.objects()?.sync(&[key.to_owned()], "")?;
                    }
                    Changed::Written { from, hides: false }
                }
            };
            if entry.from().is_none() {
                self.keep_documents(options.within)?;
            }
            self.shared.set(key, entry)?;
        }
        // As where the base would be written: an object that is replaced keeps its owner and mode.
        let posix = now.below.and_then(|info| info.posix).map(own).or(options.like.posix);
        let like = Info { posix: posix.filter(|_| self.shared.has_posix), ..*options.like };
        // The folder of an array that is the base's is made, too.
        self.shared.objects()?.put(key, parts, &PutOptions::new("", &like))
    }

    fn delete(&self, key: &str, precondition: Precondition) -> Result<bool> {
        let _entered = self.enter(Changing::Object(key))?;
        let now = self.now(key)?;
        precondition.check(key, || Ok(now.version()))?;
        let below = match (now.below, now.changed) {
            (Some(info), _) => Some(info),
            (None, Some(_)) if !self.is_hidden(key)? => self.base.head_object(key)?,
            (None, _) => None,
        };
        match (below, now.changed) {
            (Some(info), changed) => {
                let is_current = now.own.is_none() && !matches!(changed, Some(Changed::Deleted { .. }));
                let is_hidden = matches!(changed, Some(Changed::Written { hides: true, .. }));
                let found = Some(info.version.digest());
                let from =
                    if is_current && !is_hidden { found } else { changed.and_then(|entry| entry.from()) };
                self.shared.set(key, Changed::Deleted { from })?;
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
        Ok(now.version().is_some())
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
        if now.own.is_some() {
            return self.shared.objects()?.touch(key, version);
        }
        if now.version() != Some(version) {
            return Ok(None);
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
