//! Checks that stored chunks belong to the array that they are decoded for. Uses `form` and its neighbours in `overlay`.
//!
//! If another program creates the array anew, two kinds of chunks can have another form than the array's document says: chunks that
//! the overlay has, and the base's chunks below a document that the overlay has. Both are errors.

use std::io;

use super::OverlayStore;
use super::folder::line::KeyEntry;
use super::shape_digest::{ARRAY_DOCUMENTS, MAX_DOCUMENT_BYTES};
use crate::error::{Error, Result};
use crate::store::{ArrayForm, Form, ObjectVersion, Store, join};

/// The consolidated metadata of a v2 group. A v3 group has it in its own document.
const CONSOLIDATED: &str = ".zmetadata";

impl OverlayStore {
    /// Fails if what the overlay has at a key has another form than the array that is read and written.
    pub(super) fn check_form(&self, key: &str, entry: KeyEntry, operation: &'static str) -> Result<()> {
        match (self.form, entry.form()) {
            (Some(form), Some(then)) if then != form => {
                let reason = format!(
                    "it was written for another form of its array (data type, chunks or codecs) than the store has now: \
                     'zarrfs overlay discard {}' gives up what the overlay changes of that array",
                    self.folder().path().display()
                );
                Err(Error::store(key, operation, io::Error::other(reason)))
            }
            _ => Ok(()),
        }
    }

    /// Returns the version of an object that is shown. The version of a document that hides the base's covers both, so that it changes
    /// with the base's document: then the base's chunks may belong to another array.
    pub(super) fn version_of_both(&self, key: &str, version: ObjectVersion) -> Result<ObjectVersion> {
        let name = key.rsplit('/').next().unwrap_or(key);
        let is_own =
            || Ok::<_, Error>(matches!(self.folder().entry(key, "look at")?, Some(KeyEntry::Written { .. })));
        if !(name == CONSOLIDATED || ARRAY_DOCUMENTS.contains(&name))
            || !is_own()?
            || self.folder().is_hidden(key)?
        {
            return Ok(version);
        }
        match self.shared.root.head_object(key)?.map(|info| info.version) {
            Some(below) if below != version => Ok(ObjectVersion::hashed((version, below))),
            _ => Ok(version),
        }
    }

    /// Fails if the overlay's document of an array hides one of the base that describes another form, or no array. The base's chunks
    /// do not belong to this array.
    pub(super) fn check_document(&self, array: &ArrayForm<'_>, form: Form) -> Result<()> {
        let key = array.document_key;
        let is_of_array = ARRAY_DOCUMENTS.iter().any(|name| join(array.path, name) == key);
        if !is_of_array || self.folder().is_hidden(key)? {
            return Ok(());
        }
        let own = match self.folder().entry(key, "read")? {
            Some(own @ KeyEntry::Written { .. })
                if self.shared.folder.objects.head_object(key)?.is_some() =>
            {
                Some(own)
            }
            _ => None,
        };
        // In a remote store, consolidated metadata in a group above takes precedence over the document.
        let Some(own) = own else {
            let is_copied = || self.has_consolidated(array.path);
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

    /// Returns whether the overlay has a document of a group above that may have consolidated metadata.
    fn has_consolidated(&self, path: &str) -> Result<bool> {
        for (end, _) in path.rmatch_indices('/').chain([(0, "")]) {
            for name in [ARRAY_DOCUMENTS[0], CONSOLIDATED] {
                let key = join(path.get(..end).unwrap_or_default(), name);
                if matches!(self.folder().entry(&key, "read")?, Some(KeyEntry::Written { .. })) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Returns the error of an array whose document in the overlay describes another form than the one in the store.
    fn another_form(&self, key: &str) -> Error {
        let reason = format!(
            "the store has no such array any more, or one of another form (data type, chunks or codecs) than the document in the \
             overlay says: 'zarrfs overlay discard {}' gives up what the overlay changes of it",
            self.folder().path().display()
        );
        Error::store(key, "read", io::Error::other(reason))
    }
}
