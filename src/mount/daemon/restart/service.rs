//! A session that the service manager holds: systemd's file descriptor store (`FDSTORE=1` of sd_notify(3)).
//!
//! The daemon of a service gives the device of its mount, the journal and the held descriptors to the store. When it dies, or is
//! restarted, the next one gets them by name (sd_listen_fds(3)) and continues the session. The store is empty again when the
//! service has stopped.
//!
//! Invariants: a process that continues a session does not touch its mount point, which would wait for that process. A daemon that
//! ends the mount empties the store first. A daemon that cannot continue the session says so; the next one then stores the
//! session's unstored bytes, empties the store, and ends, and the one after it mounts anew.

use std::collections::BTreeSet;
use std::env;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::mount::daemon::procfs::MemoryKills;
use crate::mount::daemon::restart::holder::MAX_HELD;
use crate::mount::daemon::service_manager::sd_notify;
use crate::mount::journal::held::{DescriptorHolder, HeldDescriptors, is_valid_name};
use crate::mount::journal::record::{CRASH, MEMORY_KILL};
use crate::sys;

/// How many descriptors the service manager stores for this service (systemd 254 sets it, and the unit for older ones).
const STORE_SIZE: &str = "FDSTORE";
/// The first descriptor that a service manager passes (SD_LISTEN_FDS_START).
const FIRST_PASSED: i32 = 3;
/// The names of what belongs to the session itself.
const DEVICE: &str = "zarrfs.device";
const JOURNAL: &str = "zarrfs.journal";
const DEATHS: &str = "zarrfs.deaths";
/// The most bytes of all names: the service manager passes them in one variable, which Linux limits to 128 KiB.
const MAX_NAMES_BYTES: usize = 100 << 10;
/// Where the file about deaths has the way the last daemon ended.
const END_AT: u64 = 8;
/// Where it has a byte that a daemon sets when it ends by a fault of its own (a service manager does not say how a daemon ended).
const FAULT_AT: u64 = 9;
/// Where it has the severity of all deaths.
const SEVERITY_AT: u64 = 16;
/// Where it has how many processes the system had ended for lack of memory when the last daemon began.
const MEMORY_KILLS_AT: u64 = 24;
/// Its length. Another version of this program may have made a shorter one.
const DEATHS_BYTES: usize = 32;
/// It died.
const DIED: u8 = 0;
/// It left the session to the next one.
const LEFT: u8 = 1;
/// It could not continue the session.
const GAVE_UP: u8 = 2;

/// What a session has in the store of the service manager.
pub struct StoredSession {
    store: DescriptorStore,
    deaths: File,
}

/// What the next daemon finds in the store.
pub struct Found {
    /// The device of the mount.
    pub device: OwnedFd,
    /// The file with the journal.
    pub journal: OwnedFd,
    /// What else is held.
    pub held: HeldDescriptors,
    /// The severity of all deaths of daemons in this session.
    pub severity: u64,
    /// The session cannot be continued, but may have unstored bytes: the mount has ended, or the last daemon gave up.
    pub is_over: bool,
    /// What is stored.
    pub stored: Arc<StoredSession>,
}

/// Returns whether a service manager would hold a session for this program.
pub fn has_store() -> bool {
    env::var_os("NOTIFY_SOCKET").is_some() && store_size() > 0
}

fn store_size() -> u64 {
    env::var(STORE_SIZE).ok().and_then(|size| size.parse().ok()).unwrap_or(0)
}

/// Returns the names of the descriptors that the service manager has passed to this process, in their order.
fn passed_names() -> Vec<String> {
    let is_for_us = env::var("LISTEN_PID").is_ok_and(|pid| pid.parse() == Ok(std::process::id()));
    let count = env::var("LISTEN_FDS").ok().and_then(|count| count.parse::<usize>().ok()).unwrap_or(0);
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    if is_for_us { names.split(':').take(count).map(str::to_owned).collect() } else { Vec::new() }
}

/// Returns whether the service manager has passed a session to this process.
pub fn has_session() -> bool {
    passed_names().iter().any(|name| name == DEVICE)
}

/// Takes the session that the service manager has passed, at most once. An incomplete session is removed from the store.
pub fn take_session() -> Result<Option<Found>> {
    if !has_session() {
        return Ok(None);
    }
    let failed =
        |error: io::Error| Error::Usage(format!("cannot take what the service manager holds: {error}"));
    let mut held = HeldDescriptors::new();
    for (number, name) in (FIRST_PASSED..).zip(passed_names()) {
        held.insert(name, sys::adopt_descriptor(number).map_err(failed)?);
    }
    let store = DescriptorStore::new(held.keys().cloned());
    let (Some(device), Some(journal), Some(deaths)) =
        (held.remove(DEVICE), held.remove(JOURNAL), held.remove(DEATHS))
    else {
        store.forget();
        return Ok(None);
    };
    let stored = StoredSession { store, deaths: File::from(deaths) };
    let (severity, has_given_up) = stored.count_death().map_err(failed)?;
    stored.record_faults();
    // If the mount was unmounted while no daemon ran, its device is no longer connected.
    let is_over = has_given_up || sys::has_ended(device.as_fd());
    Ok(Some(Found { device, journal, held, severity, is_over, stored: Arc::new(stored) }))
}

/// Empties the store because this program cannot even start: the mount ends.
pub fn forget_session() {
    if has_session() {
        DescriptorStore::new(passed_names().into_iter()).forget();
    }
}

impl StoredSession {
    /// Creates a session with nothing in the store.
    pub fn new() -> io::Result<Self> {
        let deaths = File::from(sys::memory_file(c"zarrfs-deaths")?);
        deaths.write_all_at(&[0; DEATHS_BYTES], 0)?;
        let stored = StoredSession { store: DescriptorStore::new(std::iter::empty()), deaths };
        stored.write_number(MEMORY_KILLS_AT, MemoryKills::open().count())?;
        stored.record_faults();
        Ok(stored)
    }

    /// Stores the descriptors that the next daemon needs.
    pub fn store(&self, device: BorrowedFd<'_>, journal: BorrowedFd<'_>) -> io::Result<()> {
        self.store.put(JOURNAL, journal)?;
        self.store.put(DEATHS, self.deaths.as_fd())?;
        // The device comes last: without it there is nothing to continue.
        self.store.put(DEVICE, device)
    }

    /// Records that this daemon ends as planned, so that the next one does not count a death.
    pub fn plan_end(&self) {
        self.record_end(LEFT);
    }

    /// Records that the session cannot be continued: the next daemon only stores its unstored bytes.
    pub fn give_up(&self) {
        self.record_end(GAVE_UP);
    }

    fn record_end(&self, end: u8) {
        if let Err(error) = self.deaths.write_all_at(&[end], END_AT) {
            log::warn!("cannot record how this daemon ends: {error}");
        }
    }

    /// Empties the store.
    pub fn forget(&self) {
        self.store.forget();
    }

    /// Has the end of this process recorded, if a fault ends it.
    fn record_faults(&self) {
        let recorded =
            self.deaths.try_clone().and_then(|file| sys::record_faults(file.into(), FAULT_AT as i64));
        if let Err(error) = recorded {
            log::warn!("a crash of this process will not be recorded: {error}");
        }
    }

    fn write_number(&self, at: u64, number: u64) -> io::Result<()> {
        self.deaths.write_all_at(&number.to_le_bytes(), at)
    }

    /// Counts the end of the daemon before, if it died. Returns the severity of all deaths, and whether a daemon has given up.
    fn count_death(&self) -> io::Result<(u64, bool)> {
        let mut bytes = [0; DEATHS_BYTES];
        let length = self.deaths.read_at(&mut bytes, 0)?;
        let number = |at: u64| {
            let bytes = usize::try_from(at).ok().and_then(|at| bytes.get(at..at + 8)?.try_into().ok());
            bytes.map_or(0, u64::from_le_bytes)
        };
        let byte = |at: u64| usize::try_from(at).ok().and_then(|at| bytes.get(at).copied()).unwrap_or(0);
        let (end, memory_kills) = (byte(END_AT), MemoryKills::open().count());
        let has_more_kills = length == DEATHS_BYTES && memory_kills > number(MEMORY_KILLS_AT);
        let severity = match end {
            _ if byte(FAULT_AT) != 0 => CRASH,
            DIED if has_more_kills => MEMORY_KILL,
            // Somebody has killed it, or it could not start.
            _ => 0,
        };
        let severity = number(SEVERITY_AT).saturating_add(severity);
        self.write_number(SEVERITY_AT, severity)?;
        self.write_number(MEMORY_KILLS_AT, memory_kills)?;
        self.deaths.write_all_at(&[if end == LEFT { DIED } else { end }, 0], END_AT)?;
        Ok((severity, end == GAVE_UP))
    }
}

impl DescriptorHolder for StoredSession {
    fn hold(&self, name: &str, file: BorrowedFd<'_>) -> io::Result<()> {
        if !is_valid_name(name) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.store.put(name, file)
    }

    fn release(&self, name: &str) {
        self.store.remove(name);
    }
}

/// What this service has in the store of the service manager. Messages are received in the order in which they were sent, even if
/// their sender has died.
struct DescriptorStore {
    /// The names. Locked while a message is sent.
    names: Mutex<BTreeSet<String>>,
    limit: u64,
}

impl DescriptorStore {
    fn new(names: impl Iterator<Item = String>) -> Self {
        let limit = store_size().min(MAX_HELD);
        DescriptorStore { names: Mutex::new(names.collect()), limit }
    }

    fn put(&self, name: &str, file: BorrowedFd<'_>) -> io::Result<()> {
        let mut names = self.names.lock();
        if names.contains(name) {
            // Otherwise the store would keep both.
            sd_notify::try_send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), None)?;
        } else {
            let bytes = names.iter().map(|name| name.len() + 1).sum::<usize>() + name.len();
            if names.len() as u64 >= self.limit || bytes > MAX_NAMES_BYTES {
                return Err(io::Error::from_raw_os_error(libc::EMFILE));
            }
        }
        sd_notify::try_send(&format!("FDSTORE=1\nFDNAME={name}"), Some(file))?;
        names.insert(name.to_owned());
        Ok(())
    }

    fn remove(&self, name: &str) {
        let mut names = self.names.lock();
        if names.remove(name) {
            sd_notify::send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"));
        }
    }

    fn forget(&self) {
        // Nothing is continued without the device.
        self.remove(DEVICE);
        let names: Vec<String> = self.names.lock().iter().cloned().collect();
        names.iter().for_each(|name| self.remove(name));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn stored(length: usize) -> StoredSession {
        let deaths = File::from(sys::memory_file(c"zarrfs-test").unwrap());
        deaths.write_all_at(&vec![0; length], 0).unwrap();
        StoredSession { store: DescriptorStore::new(std::iter::empty()), deaths }
    }

    #[test]
    fn only_a_fault_counts_and_the_want_of_memory_a_little() {
        let session = stored(DEATHS_BYTES);
        // As if the count had not risen since.
        session.write_number(MEMORY_KILLS_AT, u64::MAX).unwrap();
        assert_eq!(session.count_death().unwrap(), (0, false), "somebody has killed it");
        for severity in [CRASH, 2 * CRASH] {
            session.deaths.write_all_at(&[1], FAULT_AT).unwrap();
            assert_eq!(session.count_death().unwrap(), (severity, false));
        }
        session.plan_end();
        session.write_number(MEMORY_KILLS_AT, u64::MAX).unwrap();
        assert_eq!(session.count_death().unwrap(), (2 * CRASH, false));
        session.give_up();
        session.write_number(MEMORY_KILLS_AT, u64::MAX).unwrap();
        assert_eq!(session.count_death().unwrap(), (2 * CRASH, true));
        // A version before this one has made the file.
        assert_eq!(stored(9).count_death().unwrap(), (0, false));
    }
}
