//! Names that a store leaves out of its listings because they cannot be keys: one warning for all of them, and the folders with
//! such a name that may be a node. Uses nothing else of the crate.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// The most folders for which the reason is kept.
const MAX_FOLDERS: usize = 4096;

/// The names that one store leaves out.
#[derive(Default)]
pub(in crate::store) struct LeftOut {
    is_warned: AtomicBool,
    /// The reason for each folder whose last listing left out a folder.
    reasons: Mutex<HashMap<String, String>>,
}

impl LeftOut {
    /// Forgets what the last listing of a folder left out, when another listing begins.
    pub fn begin(&self, folder: &str) {
        self.reasons.lock().remove(folder);
    }

    /// Warns about a name, unless there was a warning before. `shown` is one line; `what` completes a sentence that begins with
    /// 'names'.
    pub fn warn(&self, store: &str, what: &str, shown: &str) {
        if !self.is_warned.swap(true, Ordering::Relaxed) {
            log::warn!("{store}: names {what} are left out: '{shown}' is the first");
        }
    }

    /// Records that a folder directly below `folder`, which may be a node, is left out.
    pub fn record_folder(&self, folder: &str, what: &str, shown: &str) {
        let mut reasons = self.reasons.lock();
        if reasons.len() < MAX_FOLDERS {
            reasons
                .entry(folder.to_owned())
                .or_insert_with(|| format!("'{shown}' is left out, as names {what} are"));
        }
    }

    /// Returns why the last listing of a folder left out a possible node, if it did.
    pub fn reason(&self, folder: &str) -> Option<String> {
        self.reasons.lock().get(folder).cloned()
    }
}
