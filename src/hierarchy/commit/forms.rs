//! Checks that the chunks in an overlay belong to the arrays that its store has. Uses `store` and `metadata`.

use std::collections::HashMap;

use crate::error::Result;
use crate::metadata::{MAX_DOCUMENT_BYTES, document_form};
use crate::store::overlay::{ARRAY_DOCUMENTS, Change, OverlayStore};
use crate::store::{Form, Store, join};

/// The forms of arrays that were read, by path.
#[derive(Default)]
pub struct Forms {
    known: HashMap<String, FormsOfArray>,
}

/// The forms of an array.
#[derive(Clone, Copy, Default)]
struct FormsOfArray {
    /// The form in the base, or in a transaction over it.
    below: Option<Form>,
    /// The form that the overlay shows.
    shown: Option<Form>,
}

impl Forms {
    /// Returns whether the array of a change has the form that the change was made for, both in `base` (the base, or a transaction over
    /// it) and in the overlay. Objects that are not chunks, and chunks of an older zarrfs, have no form and always fit.
    pub fn fit(&mut self, overlay: &OverlayStore, base: &dyn Store, change: &Change) -> Result<bool> {
        let Some(form) = change.form else { return Ok(true) };
        let mut folder = change.key.as_str();
        while let Some((above, _)) =
            folder.rsplit_once('/').or_else(|| (!folder.is_empty()).then_some(("", "")))
        {
            folder = above;
            let FormsOfArray { below, shown } = self.at(overlay, base, folder)?;
            if below.is_some() || shown.is_some() {
                return Ok(below.is_none_or(|below| below == form) && shown.is_none_or(|shown| shown == form));
            }
        }
        // The array is gone.
        Ok(false)
    }

    fn at(&mut self, overlay: &OverlayStore, base: &dyn Store, path: &str) -> Result<FormsOfArray> {
        if let Some(known) = self.known.get(path) {
            return Ok(*known);
        }
        let shown = form_at(overlay, path)?;
        let below = if overlay.folder().is_hidden(path)? { None } else { form_at(base, path)? };
        let found = FormsOfArray { below, shown };
        self.known.insert(path.to_owned(), found);
        Ok(found)
    }
}

/// Returns the form of the array at a path; `None` if there is no array.
fn form_at(store: &dyn Store, path: &str) -> Result<Option<Form>> {
    for key in ARRAY_DOCUMENTS.map(|name| join(path, name)) {
        let document = store.get(&key, MAX_DOCUMENT_BYTES)?;
        if let Some(form) = document.and_then(|document| document_form(&key, &document)) {
            return Ok(Some(form));
        }
    }
    Ok(None)
}
