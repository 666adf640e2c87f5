//! Requests that a dead daemon had received and not answered. The kernel sends them again to the next daemon.
//!
//! A request that ended one daemon may end every daemon. So each request that comes again is recorded, and a request that was being
//! handled at two crashes, or at eight kills for lack of memory, fails with EIO. A request that comes for the first time only costs a comparison.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::mount::journal::Journal;
use crate::mount::journal::record::{CRASH, FATAL, IS_RESENT, Record};
use crate::mount::journal::state::SessionState;

/// The requests that have come again.
pub struct ResentRequests {
    journal: Arc<Journal>,
    /// The severity of all deaths of daemons, and of all but the last.
    severity: u64,
    former_severity: u64,
    /// By number, with the severity of all deaths before it came for the first time.
    seen: Mutex<BTreeMap<u64, u64>>,
}

impl ResentRequests {
    /// Takes the requests that the journal has, after deaths of daemons with this severity.
    pub fn new(journal: Arc<Journal>, state: &SessionState, severity: u64) -> Self {
        // A version that does not record it has counted each death as a crash, or as less.
        let former_severity = state.severity.unwrap_or(severity.saturating_sub(CRASH));
        journal.append(&Record::Continued { severity });
        ResentRequests { journal, severity, former_severity, seen: Mutex::new(state.resent.clone()) }
    }

    /// Returns whether the request with this number was being handled at two crashes, or at many kills for lack of memory. Records a request that comes again.
    pub(super) fn was_fatal(&self, unique: u64, name: &str) -> bool {
        if unique & IS_RESENT == 0 {
            return false;
        }
        let mut seen = self.seen.lock();
        let before = *seen.entry(unique).or_insert(self.former_severity);
        if before.saturating_add(FATAL) <= self.severity {
            log::error!(
                "a {name} request was being handled when several daemons crashed: it fails with an I/O error"
            );
            return true;
        }
        self.journal.append(&Record::Resent { unique, severity: before });
        false
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::File;

    use super::*;
    use crate::mount::journal::record::MEMORY_KILL;
    use crate::sys;

    #[test]
    fn a_request_that_was_in_hand_at_two_crashes_fails() {
        let file = File::from(sys::memory_file(c"zarrfs-test").unwrap());
        Journal::create(file.try_clone().unwrap()).unwrap();
        let after = |severity| {
            let (journal, state) = Journal::open(file.try_clone().unwrap()).unwrap();
            ResentRequests::new(Arc::new(journal), &state, severity)
        };
        let first = after(0);
        assert!(!first.was_fatal(8, "read") && !first.was_fatal(IS_RESENT | 8, "read"));
        // A kill, or a daemon that was replaced, does not count.
        for _ in 0..20 {
            assert!(!after(0).was_fatal(IS_RESENT | 8, "read"));
        }
        assert!(!after(CRASH).was_fatal(IS_RESENT | 8, "read"));
        assert!(!after(CRASH).was_fatal(IS_RESENT | 8, "read"));
        // Memory is short, which the request need not have caused.
        for kills in 1..4 {
            assert!(!after(CRASH + kills * MEMORY_KILL).was_fatal(IS_RESENT | 8, "read"));
        }
        let second = after(2 * CRASH);
        assert!(second.was_fatal(IS_RESENT | 8, "read") && !second.was_fatal(IS_RESENT | 10, "read"));
        assert!(!after(2 * CRASH).was_fatal(IS_RESENT | 12, "read"));
        assert!(!after(3 * CRASH).was_fatal(IS_RESENT | 10, "read"));
        let last = after(4 * CRASH);
        assert!(last.was_fatal(IS_RESENT | 10, "read") && last.was_fatal(IS_RESENT | 12, "read"));
    }
}
