//! Whether the chunks in an overlay are of the arrays that its store has. Uses `store` and `metadata`.

use std::collections::HashMap;

use crate::error::Result;
use crate::metadata::{MAX_DOCUMENT_BYTES, document_form};
use crate::store::overlay::{Change, OverlayStore};
use crate::store::{Form, Store, join};

/// The documents that say how an array is stored.
const DOCUMENTS: [&str; 3] = ["zarr.json", ".zarray", "meta"];

/// The forms of arrays, by path, that were looked at.
#[derive(Default)]
pub struct Forms {
    known: HashMap<String, FormsOfArray>,
}

/// The forms that an array has.
#[derive(Clone, Copy, Default)]
struct FormsOfArray {
    /// In the base, or a transaction over it.
    below: Option<Form>,
    /// As the overlay shows it.
    shown: Option<Form>,
}

impl Forms {
    /// Whether the array of a change has the form, in the base or a transaction over it and in the overlay, that the change was made
    /// for. What is not a chunk, or was written by a zarrfs that did not note forms, has any form.
    pub fn have(&mut self, overlay: &OverlayStore, base: &dyn Store, change: &Change) -> Result<bool> {
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
        // Its array is gone.
        Ok(false)
    }

    fn at(&mut self, overlay: &OverlayStore, base: &dyn Store, path: &str) -> Result<FormsOfArray> {
        if let Some(known) = self.known.get(path) {
            return Ok(*known);
        }
        let shown = form_at(overlay, path)?;
        let below = if overlay.is_hidden(path)? { None } else { form_at(base, path)? };
        let found = FormsOfArray { below, shown };
        self.known.insert(path.to_owned(), found);
        Ok(found)
    }
}

/// The form of the array at a path; `None` if there is none.
fn form_at(store: &dyn Store, path: &str) -> Result<Option<Form>> {
    for key in DOCUMENTS.map(|name| join(path, name)) {
        let document = store.get(&key, MAX_DOCUMENT_BYTES)?;
        if let Some(form) = document.and_then(|document| document_form(&key, &document)) {
            return Ok(Some(form));
        }
    }
    Ok(None)
}
