//! The zarrfs mounts of this machine, and what they report about themselves.
//!
//! Uses `daemon/detach.rs`, `daemon/procfs.rs` and `look.rs`. A mount with a hung or crashed daemon does not make callers hang.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::mount::daemon::detach::{DAEMON_TIMEOUT, find, is_daemon_gone, keeper_of};
use crate::mount::daemon::mounts::look::Look;
use crate::mount::daemon::mounts::utab;
use crate::mount::daemon::procfs::{FILESYSTEM_TYPE, MountEntry, mounts};
use crate::mount::daemon::restart::keeper;
use crate::mount::fs::{CONFIG, INTERNALS, STATS};
use crate::sys;

/// The maximum size of a mount's own file that is read.
const MAX_OWN_BYTES: u64 = 64 << 20;

/// How long a daemon may take to continue a mount, and how often it is asked for.
const RESTART_TIMEOUT: Duration = Duration::from_secs(60);
const RESTART_PAUSE: Duration = Duration::from_millis(20);

/// Whether a mount's daemon replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It replies.
    Serving,
    /// It replies, but this user may not enter.
    Closed,
    /// It does not reply in time.
    Silent,
    /// It has crashed.
    Crashed,
}

/// A zarrfs mount.
#[derive(Clone, Debug)]
pub struct Mounted {
    /// The entry in the kernel's list of mounts.
    pub entry: MountEntry,
    /// Whether its daemon replies.
    pub state: State,
    /// Its `config.json`, if this user may read it.
    pub config: Option<serde_json::Value>,
    /// Its counters, if this user may read them.
    pub stats: Option<String>,
}

/// Returns all zarrfs mounts that this process sees, including those of other users, in the order of mounting. Removes the entries
/// of former mounts from the table of umount(8).
pub fn list() -> Result<Vec<Mounted>> {
    utab::forget_stale();
    // All are asked at once, so that they do not wait for one that hangs.
    let asked: Vec<_> =
        entries()?.into_iter().map(|entry| (start_reading(&entry.mountpoint, CONFIG), entry)).collect();
    let mut mounts: Vec<Mounted> =
        asked.into_iter().map(|(config, entry)| Mounted::new(entry, received(config))).collect();
    let start =
        |mount: &Mounted| mount.config.as_ref().map(|_| start_reading(&mount.entry.mountpoint, STATS));
    let asked: Vec<_> = mounts.iter().map(start).collect();
    for (mount, stats) in mounts.iter_mut().zip(asked) {
        mount.stats = stats.and_then(|stats| received(stats).ok());
    }
    Ok(mounts)
}

/// Returns the mount points of all zarrfs mounts of this user, inner ones first.
pub fn own_mountpoints() -> Result<Vec<PathBuf>> {
    let (uid, _) = sys::effective_ids();
    let own = entries()?.into_iter().rev().filter(|entry| entry.user_id == Some(uid));
    Ok(own.map(|entry| entry.mountpoint).collect())
}

/// Returns the mount points of all zarrfs mounts, also those of other users, in the order of mounting.
pub fn mountpoints() -> Result<Vec<PathBuf>> {
    Ok(entries()?.into_iter().map(|entry| entry.mountpoint).collect())
}

/// Returns the zarrfs mount at a path.
pub fn at(mountpoint: &Path) -> Result<MountEntry> {
    find(mountpoint)
}

/// Makes the program on the disk continue a mount, and returns when it does.
pub fn restart(mountpoint: &Path) -> Result<()> {
    let shown = mountpoint.display();
    let entry = find(mountpoint)?;
    let config = || -> Result<serde_json::Value> {
        let text = read_own(&entry.mountpoint, CONFIG)?;
        serde_json::from_str(&text).map_err(|error| Error::Usage(format!("{CONFIG} of {shown}: {error}")))
    };
    let before = config()?;
    let Some(keeper) = keeper_of(&before) else {
        return Err(Error::Usage(format!(
            "the mount on {shown} has no keeper (as with --keeper=off, --foreground, or before Linux 6.9): unmount it, and mount it again; for a service, 'systemctl restart'"
        )));
    };
    keeper::ask_for_restart(keeper).map_err(|error| {
        Error::Usage(match error.kind() {
            io::ErrorKind::NotFound => {
                format!("the keeper of {shown} has ended: unmount it, and mount it again")
            }
            io::ErrorKind::PermissionDenied => {
                format!("only root and the user that mounted {shown} may restart it")
            }
            _ => format!("cannot restart the mount on {shown}: {error}"),
        })
    })?;
    let started = Instant::now();
    while started.elapsed() < RESTART_TIMEOUT {
        let now = config()?;
        let pid = now.get("pid").and_then(serde_json::Value::as_u64);
        if pid != before.get("pid").and_then(serde_json::Value::as_u64) {
            return check_program(mountpoint, pid.unwrap_or_default());
        }
        std::thread::sleep(RESTART_PAUSE);
    }
    Err(Error::Usage(format!("the mount on {shown} still has the daemon of before: see the system log")))
}

/// Fails if a daemon does not run the program that is on the disk.
fn check_program(mountpoint: &Path, pid: u64) -> Result<()> {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    if !program.as_os_str().as_encoded_bytes().ends_with(b" (deleted)") {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "the installed program does not start, so the previous one continues to serve {}: see the system log",
        mountpoint.display()
    )))
}

fn entries() -> Result<Vec<MountEntry>> {
    let mut entries = mounts().map_err(|error| Error::Usage(format!("cannot list the mounts: {error}")))?;
    entries.retain(|entry| entry.filesystem_type == FILESYSTEM_TYPE);
    Ok(entries)
}

impl Mounted {
    /// A mount whose daemon has replied with this `config.json`, or with an error.
    fn new(entry: MountEntry, config: io::Result<String>) -> Mounted {
        let state = match &config {
            Ok(_) => State::Serving,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => State::Silent,
            Err(error) if is_daemon_gone(error) => State::Crashed,
            Err(_) => State::Closed,
        };
        let config = config.ok().and_then(|text| serde_json::from_str(&text).ok());
        Mounted { entry, state, config, stats: None }
    }
}

/// Returns the content of one of a mount's own files; fails with `TimedOut` if the daemon does not reply.
fn own_file(mountpoint: &Path, name: &str) -> io::Result<String> {
    received(start_reading(mountpoint, name))
}

/// Starts reading one of a mount's own files.
fn start_reading(mountpoint: &Path, name: &str) -> io::Result<Look> {
    let folder = mountpoint.join(INTERNALS);
    let path = folder.join(name);
    Look::start(|| {
        // The kernel may have cached attributes of a mount without a daemon. Opening a folder always asks the daemon, and opening the
        // root would list the store.
        drop(fs::File::open(folder)?);
        let mut text = Vec::new();
        fs::File::open(path)?.take(MAX_OWN_BYTES).read_to_end(&mut text)?;
        Ok(text)
    })
}

/// Returns the text that a look has read; fails with `TimedOut` if the daemon does not reply.
fn received(look: io::Result<Look>) -> io::Result<String> {
    let text = look?.within(DAEMON_TIMEOUT).unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))?;
    String::from_utf8(text).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Returns the content of one of a mount's own files, or a sentence that says why it cannot be read.
pub fn read_own(mountpoint: &Path, name: &str) -> Result<String> {
    let shown = mountpoint.display();
    own_file(mountpoint, name).map_err(|error| {
        Error::Usage(match error.kind() {
            io::ErrorKind::TimedOut => {
                format!("the daemon of {shown} does not respond: wait for its store, or see its log")
            }
            io::ErrorKind::PermissionDenied => format!(
                "only the user that mounted {shown} may read its counters: run this command as that user"
            ),
            _ if is_daemon_gone(&error) => format!(
                "the daemon of the mount on {shown} has crashed: clean up with 'zarrfs umount --stale {shown}'"
            ),
            _ => format!("cannot read {INTERNALS}/{name} of {shown}: {error}"),
        })
    })
}
