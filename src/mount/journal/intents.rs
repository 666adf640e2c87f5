//! Requests that change names, which the kernel sends again to the next daemon if this one dies before its reply.
//!
//! Each is recorded when all of its checks have passed, before the store changes. So a request that comes again finds out whether it had
//! begun: then a folder that exists is the one that it made, and an array that is missing is the one that it removed.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use crate::mount::journal::Journal;
use crate::mount::journal::record::{IS_RESENT, Record};

/// The changes of names that have begun.
#[derive(Default)]
pub struct NameIntents {
    journal: OnceLock<Arc<Journal>>,
    /// Those of daemons that have died.
    begun: OnceLock<HashSet<u64>>,
}

impl NameIntents {
    /// Records from now on what begins.
    pub fn keep_journal(&self, journal: &Arc<Journal>) {
        let _ = self.journal.set(journal.clone());
    }

    /// Takes over what daemons that have died had begun.
    pub fn restore(&self, begun: impl Iterator<Item = u64>) {
        let _ = self.begun.set(begun.collect());
    }

    /// Records that a request is about to change the store.
    pub fn begin(&self, request: u64) {
        if let Some(journal) = self.journal.get() {
            journal.append(&Record::Begun { unique: request & !IS_RESENT });
        }
    }

    /// Returns whether a daemon that has died had begun this request.
    pub fn has_begun(&self, request: u64) -> bool {
        request & IS_RESENT != 0
            && self.begun.get().is_some_and(|begun| begun.contains(&(request & !IS_RESENT)))
    }
}
