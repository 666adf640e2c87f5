//! Whether what is decoded for an array was written for it. Uses `form` and its neighbours in `overlay`.
//!
//! Two things can be of another form than the array's document says, where another program makes the array anew: a chunk that
//! the overlay has, and the base's chunks below a document that the overlay has. Both are errors.

use std::io;

use super::lengths::{DOCUMENTS, MAX_DOCUMENT_BYTES};
use super::{Changed, OverlayStore};
use crate::error::{Error, Result};
use crate::store::{ArrayForm, Form, ObjectVersion, Store, join};

/// The document of a v2 group that has copies of those below it. A v3 group has them in its own.
const COPIES: &str = ".zmetadata";

impl OverlayStore {
    /// Fails where what the overlay has at a key is of another form of the array than the one that is read and written.
    pub(super) fn check_form(&self, key: &str, entry: Changed, operation: &'static str) -> Result<()> {
        match (self.form, entry.form()) {
            (Some(form), Some(then)) if then != form => {
                let reason = format!(
                    "it was written for another form of its array (data type, chunks or codecs) than the store has now: \
                     'zarrfs overlay discard {}' gives up what the overlay changes of that array",
                    self.shared.folder.path.display()
                );
                Err(Error::store(key, operation, io::Error::other(reason)))
            }
            _ => Ok(()),
        }
    }

    /// The version of an object that is shown. An array's document that hides the base's has a new one when that one changes: then the
    /// base's chunks may be of another array.
    pub(super) fn version_of_both(&self, key: &str, version: ObjectVersion) -> Result<ObjectVersion> {
        let name = key.rsplit('/').next().unwrap_or(key);
        let is_own =
            || Ok::<_, Error>(matches!(self.changed(key, "look at")?, Some(Changed::Written { .. })));
        if !(name == COPIES || DOCUMENTS.contains(&name)) || !is_own()? || self.is_hidden(key)? {
            return Ok(version);
        }
        match self.shared.root.head_object(key)?.map(|info| info.version) {
            Some(below) if below != version => Ok(ObjectVersion::hashed((version, below))),
            _ => Ok(version),
        }
    }

    /// Fails where the overlay's document of an array hides one of the base that describes another form, or none: the base's chunks
    /// are not of this array.
    pub(super) fn check_document(&self, array: &ArrayForm<'_>, form: Form) -> Result<()> {
        let key = array.document_key;
        let is_of_array = DOCUMENTS.iter().any(|name| join(array.path, name) == key);
        if !is_of_array || self.is_hidden(key)? {
            return Ok(());
        }
        let own = match self.changed(key, "read")? {
            Some(own @ Changed::Written { .. }) if self.shared.folder.objects.head_object(key)?.is_some() => {
                Some(own)
            }
            _ => None,
        };
        // In a remote store the copies in the groups above count more than the document.
        let Some(own) = own else {
            let is_copied = || self.is_any_copy_own(array.path);
            let document = if self.base.is_remote() && is_copied()? {
                self.shared.root.get(key, MAX_DOCUMENT_BYTES)?
            } else {
                None
            };
            return if document.is_none_or(|document| (array.of_document)(key, &document) == Some(form)) {
                Ok(())
            } else {
                Err(self.another_form(key))
            };
        };
        let from = own.from();
        let is_same = match (from, self.shared.root.head_object(key)?) {
            (None, None) => true,
            (Some(from), Some(now)) if from.is(self.shared.root.as_ref(), key, now.version)? => true,
            (_, Some(_)) => {
                let document = self.shared.root.get(key, MAX_DOCUMENT_BYTES)?.unwrap_or_default();
                (array.of_document)(key, &document) == Some(form)
            }
            (Some(_), None) => false,
        };
        if is_same { Ok(()) } else { Err(self.another_form(key)) }
    }

    /// Whether the overlay has a document of a group above that may have copies of documents below it.
    fn is_any_copy_own(&self, path: &str) -> Result<bool> {
        for (end, _) in path.rmatch_indices('/').chain([(0, "")]) {
            for name in [DOCUMENTS[0], COPIES] {
                let key = join(path.get(..end).unwrap_or_default(), name);
                if matches!(self.changed(&key, "read")?, Some(Changed::Written { .. })) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The error of an array whose document in the overlay differs from that in the store.
    fn another_form(&self, key: &str) -> Error {
        let reason = format!(
            "the store has no such array any more, or one of another form (data type, chunks or codecs) than the document in the \
             overlay says: 'zarrfs overlay discard {}' gives up what the overlay changes of it",
            self.shared.folder.path.display()
        );
        Error::store(key, "read", io::Error::other(reason))
    }
}
