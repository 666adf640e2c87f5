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
use crate::mount::daemon::restart::holder::MAX_HELD;
use crate::mount::daemon::service_manager::sd_notify;
use crate::mount::journal::held::{DescriptorHolder, HeldDescriptors, is_valid_name};
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
/// Where the file with the count of deaths has the count, and the way the last daemon ended.
const COUNT_AT: u64 = 0;
const END_AT: u64 = 8;
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
    /// How many daemons of the session have died.
    pub deaths: u64,
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
    let (deaths, has_given_up) = stored.count_death().map_err(failed)?;
    // If the mount was unmounted while no daemon ran, its device is no longer connected.
    let is_over = has_given_up || sys::has_ended(device.as_fd());
    Ok(Some(Found { device, journal, held, deaths, is_over, stored: Arc::new(stored) }))
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
        deaths.write_all_at(&[0; 9], COUNT_AT)?;
        Ok(StoredSession { store: DescriptorStore::new(std::iter::empty()), deaths })
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

    /// Counts the end of the daemon before, if it died. Returns the number of deaths, and whether a daemon has given up.
    fn count_death(&self) -> io::Result<(u64, bool)> {
        let (mut count, mut end) = ([0; 8], [DIED]);
        self.deaths.read_exact_at(&mut count, COUNT_AT)?;
        self.deaths.read_exact_at(&mut end, END_AT)?;
        let count = u64::from_le_bytes(count).saturating_add(u64::from(end == [DIED]));
        self.deaths.write_all_at(&count.to_le_bytes(), COUNT_AT)?;
        if end == [LEFT] {
            self.deaths.write_all_at(&[DIED], END_AT)?;
        }
        Ok((count, end == [GAVE_UP]))
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
