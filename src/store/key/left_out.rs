//! Names that a store leaves out of its listings, because they cannot be keys: one warning for all of them, and which folders had one
//! that may be a node. Uses nothing else of the crate.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Of more folders than this it is not kept.
const MAX_FOLDERS: usize = 4096;

/// What one store leaves out.
#[derive(Default)]
pub(in crate::store) struct LeftOut {
    is_warned: AtomicBool,
    /// Folders whose last listing left out a folder, and why that is so.
    reasons: Mutex<HashMap<String, String>>,
}

impl LeftOut {
    /// Forgets what the last listing of a folder left out, at the beginning of another one.
    pub fn begin(&self, folder: &str) {
        self.reasons.lock().remove(folder);
    }

    /// Warns of a name, unless the user is warned already. `shown` is on one line; `what` ends a sentence that begins with 'names'.
    pub fn warn(&self, store: &str, what: &str, shown: &str) {
        if !self.is_warned.swap(true, Ordering::Relaxed) {
            log::warn!("{store}: names {what} are left out: '{shown}' is the first");
        }
    }

    /// Keeps that a folder directly below `folder` is left out, which may be a node.
    pub fn note_folder(&self, folder: &str, what: &str, shown: &str) {
        let mut reasons = self.reasons.lock();
        if reasons.len() < MAX_FOLDERS {
            reasons
                .entry(folder.to_owned())
                .or_insert_with(|| format!("'{shown}' is left out, as names {what} are"));
        }
    }

    /// Why the last listing of a folder did not have all that may be nodes, if it did not.
    pub fn reason(&self, folder: &str) -> Option<String> {
        self.reasons.lock().get(folder).cloned()
    }
}
