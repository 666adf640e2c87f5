//! Requests that a dead daemon had received and not answered. The kernel sends them again to the next daemon.
//!
//! A request that ended one daemon may end every daemon. So each request that comes again is recorded, and a request that was being
//! handled at two crashes fails with EIO. A request that comes for the first time only costs a comparison.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::mount::journal::Journal;
use crate::mount::journal::record::{CRASH, IS_RESENT, Record};

/// The requests that have come again.
pub struct ResentRequests {
    journal: Arc<Journal>,
    /// The severity of all deaths of daemons.
    severity: u64,
    /// By number, with the severity of all deaths before it came again for the first time.
    seen: Mutex<BTreeMap<u64, u64>>,
}

impl ResentRequests {
    /// Takes the requests that the journal has, after deaths of daemons with this severity.
    pub fn new(journal: Arc<Journal>, seen: BTreeMap<u64, u64>, severity: u64) -> Self {
        ResentRequests { journal, severity, seen: Mutex::new(seen) }
    }

    /// Returns whether the request with this number was being handled at two crashes, or at many kills. Records a request that comes again.
    pub(super) fn was_fatal(&self, unique: u64, name: &str) -> bool {
        if unique & IS_RESENT == 0 {
            return false;
        }
        let mut seen = self.seen.lock();
        let before = *seen.entry(unique).or_insert(self.severity);
        if before + CRASH <= self.severity {
            log::error!("a {name} request was in hand when several daemons died: it fails with an I/O error");
            return true;
        }
        self.journal.append(&Record::Resent { unique, severity: self.severity });
        false
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::File;

    use super::*;
    use crate::mount::journal::record::KILL;
    use crate::sys;

    #[test]
    fn a_request_that_was_in_hand_at_two_crashes_fails() {
        let file = File::from(sys::memory_file(c"zarrfs-test").unwrap());
        Journal::create(file.try_clone().unwrap()).unwrap();
        let after = |severity| {
            let (journal, state) = Journal::open(file.try_clone().unwrap()).unwrap();
            ResentRequests::new(Arc::new(journal), state.resent, severity)
        };
        let first = after(CRASH);
        assert!(!first.was_fatal(8, "read") && !first.was_fatal(IS_RESENT | 8, "read"));
        // A daemon that was replaced has not died.
        assert!(!after(CRASH).was_fatal(IS_RESENT | 8, "read"));
        // Somebody kills daemons, for which the request is not to blame.
        for kills in 1..CRASH {
            assert!(!after(CRASH + kills * KILL).was_fatal(IS_RESENT | 8, "read"));
        }
        let second = after(2 * CRASH);
        assert!(second.was_fatal(IS_RESENT | 8, "read") && !second.was_fatal(IS_RESENT | 10, "read"));
        assert!(after(3 * CRASH).was_fatal(IS_RESENT | 10, "read"));
    }
}
