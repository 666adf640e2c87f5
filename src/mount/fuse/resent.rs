//! Requests that a dead daemon had in hand, which the kernel sends again to the next one.
//!
//! One that ended a daemon may end every daemon. So each request that comes again is recorded, and one that was in hand at two
//! deaths fails with EIO. A request that comes for the first time costs a comparison.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::mount::journal::Journal;
use crate::mount::journal::record::Record;

/// The highest bit of a request's number: it was sent before (FUSE_UNIQUE_RESEND).
const IS_RESENT: u64 = 1 << 63;

/// The requests that came again.
pub struct ResentRequests {
    journal: Arc<Journal>,
    /// How many daemons of the session have died.
    deaths: u64,
    /// By number, with the deaths before it came again for the first time.
    seen: Mutex<BTreeMap<u64, u64>>,
}

impl ResentRequests {
    /// Takes those that the journal has, after this many deaths of daemons.
    pub fn new(journal: Arc<Journal>, seen: BTreeMap<u64, u64>, deaths: u64) -> Self {
        ResentRequests { journal, deaths, seen: Mutex::new(seen) }
    }

    /// Returns whether the request with this number was in hand when two daemons died. Records one that comes again.
    pub(super) fn was_fatal(&self, unique: u64, name: &str) -> bool {
        if unique & IS_RESENT == 0 {
            return false;
        }
        let mut seen = self.seen.lock();
        let before = *seen.entry(unique).or_insert(self.deaths);
        if before < self.deaths {
            log::error!("a {name} request was in hand when two daemons died: it fails with an I/O error");
            return true;
        }
        self.journal.append(&Record::Resent { unique, deaths: self.deaths });
        false
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::File;

    use super::*;
    use crate::sys;

    #[test]
    fn a_request_that_was_in_hand_at_two_deaths_fails() {
        let file = File::from(sys::memory_file(c"zarrfs-test").unwrap());
        Journal::create(file.try_clone().unwrap()).unwrap();
        let after = |deaths| {
            let (journal, state) = Journal::open(file.try_clone().unwrap()).unwrap();
            ResentRequests::new(Arc::new(journal), state.resent, deaths)
        };
        let first = after(1);
        assert!(!first.was_fatal(8, "read") && !first.was_fatal(IS_RESENT | 8, "read"));
        // A daemon that was replaced has not died.
        assert!(!after(1).was_fatal(IS_RESENT | 8, "read"));
        let second = after(2);
        assert!(second.was_fatal(IS_RESENT | 8, "read") && !second.was_fatal(IS_RESENT | 10, "read"));
        assert!(after(3).was_fatal(IS_RESENT | 10, "read"));
    }
}
