//! Objects that a flush has created, until it is certain that they belong to the array.
//!
//! Uses `object_writer.rs`, `session.rs`, `store` and `error`.
//!
//! A put replaces only the version that was found before it. Where nothing was found, nothing says which array the object is for: another
//! program may have created the array anew, with another data type, between the look at the document and the put. So the document is looked at
//! again after the puts, and before they are reported as stored. If it no longer describes an array of this form, the objects are removed.
//!
//! No request covers both objects, so this stays open: a program that dies between put and look leaves the object, and so does another
//! program that lists what it will delete before the put, and replaces the document after the look.

use crate::array::sync::Mutex;
use crate::array::write::write_back::object_writer::ObjectWriter;
use crate::array::write::write_back::session::WriteSession;
use crate::error::{Error, Result};
use crate::store::ObjectVersion;

/// The most objects that wait for a look.
const MAX_UNCONFIRMED: usize = 4096;

/// Objects that were created, with their versions.
#[derive(Default)]
pub struct CreatedObjects {
    unconfirmed: Mutex<Vec<(String, ObjectVersion)>>,
}

impl CreatedObjects {
    /// Records that there was nothing at a key before it was put. Returns whether it is time to call [`CreatedObjects::confirm`].
    pub fn record(&self, key: &str, version: ObjectVersion) -> bool {
        let mut unconfirmed = self.unconfirmed.lock();
        unconfirmed.push((key.to_owned(), version));
        unconfirmed.len() >= MAX_UNCONFIRMED
    }

    /// Returns whether nothing waits for a look.
    pub fn is_empty(&self) -> bool {
        self.unconfirmed.lock().is_empty()
    }

    /// Looks at the document. If it no longer describes an array of this form, removes what still is as it was created, and fails with
    /// `Stale`. After another failure the objects wait for the next look.
    pub fn confirm(&self, objects: &ObjectWriter, session: &WriteSession) -> Result<()> {
        let created = std::mem::take(&mut *self.unconfirmed.lock());
        if created.is_empty() {
            return Ok(());
        }
        let is_same = session.is_of_same_form().inspect_err(|_| {
            self.unconfirmed.lock().extend(created.iter().cloned());
        })?;
        if is_same {
            return Ok(());
        }
        log::warn!(
            "{}: another program has replaced the array; removing {} objects that were just created in its place",
            objects.served().document_key(),
            created.len()
        );
        if let Err(error) = objects.delete(created) {
            log::error!("an object of the array that was replaced may stay in the new one: {error}");
        }
        objects.served().advance_epoch();
        Err::<(), Error>(session.stale())
    }
}
