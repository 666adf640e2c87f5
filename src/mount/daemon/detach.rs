//! `zarrfs umount`: finds the mount, takes it out of the tree, and waits for its daemon.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::mount::daemon::attach::detach;
use crate::mount::daemon::exit_status::lost;
use crate::mount::daemon::procfs::{
    FILESYSTEM_TYPE, MountEntry, mount_at, start_ticks, users_of, with_timeout,
};
use crate::mount::fs::{CONFIG, INTERNALS, UNSAVED};
use crate::sys;

/// A mount whose daemon does not answer for so long counts as hung.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a daemon may take to end when nobody uses its mount any more.
const DAEMON_END_MS: i32 = 60_000;
/// How long is waited for the daemon of a mount that was detached by force.
const FORCED_END_MS: i32 = 2_000;
/// Keys that are named when something cannot be stored.
const NAMED_KEYS: usize = 20;
/// A program that has just ended may still be letting go.
const BUSY_RETRIES: u32 = 5;

fn refuse<T>(sentence: String) -> Result<T> {
    Err(Error::Usage(sentence))
}

/// Unmounts, and returns when the daemon has written everything and gone. Fails with the reason when something cannot be
/// written, when the mount is busy (naming who uses it), and when the daemon does not answer; `force` detaches it at once.
/// A mount whose daemon has died is detached, which is a failure where it could have written.
pub fn unmount(mountpoint: &Path, force: bool) -> Result<()> {
    let entry = find(mountpoint)?;
    let shown = mountpoint.display();
    let daemon = daemon_of(&entry.mountpoint);
    if let DaemonState::Dead = daemon {
        return unmount_dead(mountpoint, &entry);
    }
    // Where nothing could be written, nothing can be lost.
    let stores = !force && !entry.is_read_only;
    if let (DaemonState::Silent, true) = (&daemon, stores) {
        return refuse(format!(
            "not unmounted: the daemon of {shown} does not answer; wait for its store, or detach it with --force"
        ));
    }
    let mut tries = 0;
    loop {
        // Again for each try: who held the mount has written until now.
        if stores {
            store_all(&entry)?;
        }
        match detach(&entry.mountpoint, force) {
            Ok(()) => break,
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                tries += 1;
                if tries > BUSY_RETRIES {
                    return refuse(busy(mountpoint, &entry));
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                return refuse(format!("you may not unmount {shown}: only who mounted it may, or root"));
            }
            Err(error) => return refuse(format!("cannot unmount {shown}: {error}")),
        }
    }
    let DaemonState::Running(daemon, outcome) = daemon else {
        log::warn!("{shown} is detached; its daemon cannot be waited for from here");
        return Ok(());
    };
    let patience_ms = if force { FORCED_END_MS } else { DAEMON_END_MS };
    match sys::wait_readable(daemon.as_fd(), patience_ms) {
        Ok(true) => match outcome.and_then(lost) {
            None => Ok(()),
            Some(_) if entry.is_read_only => Ok(()),
            Some(lost) if force => {
                log::warn!("{}", what_is_lost(mountpoint, &lost));
                Ok(())
            }
            Some(lost) => refuse(what_is_lost(mountpoint, &lost)),
        },
        Ok(false) if force => {
            log::warn!("{shown} is detached; its daemon ends when the programs that hold files there let go");
            Ok(())
        }
        Ok(false) => refuse(format!("{shown} is unmounted, but its daemon has not ended")),
        Err(error) => refuse(format!("{shown} is unmounted, but waiting for its daemon failed: {error}")),
    }
}

fn what_is_lost(mountpoint: &Path, lost: &str) -> String {
    let shown = mountpoint.display();
    if lost.is_empty() {
        return format!(
            "{shown} is unmounted, but its daemon ended without a word: what it had not stored is lost"
        );
    }
    format!("{shown} is unmounted, but not all that was written could be stored. Lost{}", listed(lost))
}

/// Has the daemon store everything before the mount goes, so that a failure can still be mended.
fn store_all(entry: &MountEntry) -> Result<()> {
    let shown = entry.mountpoint.display();
    let folder = match fs::File::open(&entry.mountpoint) {
        Ok(folder) => folder,
        // Another user's mount, which root may unmount and not enter: the daemon stores when it ends.
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => return Ok(()),
        Err(error) => return refuse(format!("not unmounted: {shown} cannot be opened: {error}")),
    };
    match folder.sync_all() {
        Ok(()) => Ok(()),
        Err(error) if is_from_the_dead(&error) => refuse(format!(
            "the daemon of {shown} died while it stored what was written; the mount is left as it is"
        )),
        Err(error) => refuse(format!(
            "not unmounted: something that was written cannot be stored ({error}){}. Mend the cause and try again, or lose it \
             with --force",
            unsaved(&entry.mountpoint)
        )),
    }
}

/// The keys of what is not stored, as far as they fit into a sentence.
fn unsaved(mountpoint: &Path) -> String {
    let path = mountpoint.join(INTERNALS).join(UNSAVED);
    let Some(Ok(text)) = with_timeout(PATIENCE, move || fs::read_to_string(path)) else {
        return String::new();
    };
    listed(&text)
}

/// Lines, as the end of a sentence.
fn listed(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return String::new();
    }
    let shown = lines.get(..NAMED_KEYS).unwrap_or(&lines);
    let more = match lines.len() - shown.len() {
        0 => String::new(),
        more => format!("\n  and {more} more"),
    };
    format!(":\n  {}{more}\n", shown.join("\n  "))
}

/// Detaches what a daemon that died has left.
fn unmount_dead(mountpoint: &Path, entry: &MountEntry) -> Result<()> {
    let shown = mountpoint.display();
    detach(&entry.mountpoint, true)
        .or_else(|error| refuse(format!("cannot detach the dead mount on {shown}: {error}")))?;
    if entry.is_read_only {
        return Ok(());
    }
    refuse(format!(
        "{shown} is unmounted, but its daemon had died: what programs wrote there and neither closed nor synced is lost"
    ))
}

/// Detaches a mount whose daemon has died (one that answers ENOTCONN); anything else is left alone, and is no error.
pub fn unmount_stale(mountpoint: &Path) -> Result<()> {
    let Ok(entry) = find(mountpoint) else { return Ok(()) };
    if !is_dead(&entry.mountpoint) {
        return Ok(());
    }
    detach(&entry.mountpoint, true)
        .or_else(|error| refuse(format!("cannot detach the dead mount on {}: {error}", mountpoint.display())))
}

/// The zarrfs mount at a path. The path itself is looked at last: a mount that hangs must not hang this.
fn find(mountpoint: &Path) -> Result<MountEntry> {
    let shown = mountpoint.display();
    let failed = |error: io::Error| Error::Usage(format!("cannot look at {shown}: {error}"));
    let mut entry = match of_parent(mountpoint) {
        Some(path) => mount_at(&path).map_err(failed)?,
        None => None,
    };
    if entry.is_none() {
        let path = fs::canonicalize(mountpoint).map_err(failed)?;
        entry = mount_at(&path).map_err(failed)?;
    }
    match entry {
        Some(entry) if entry.filesystem_type == FILESYSTEM_TYPE => Ok(entry),
        Some(entry) => refuse(format!(
            "{shown} is a mount of type {}, not one of zarrfs: unmount it with 'umount'",
            entry.filesystem_type
        )),
        None => refuse(format!("nothing is mounted on {shown}")),
    }
}

/// The path with all but its last segment resolved.
fn of_parent(mountpoint: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(mountpoint).ok()?;
    let name = absolute.file_name()?;
    Some(fs::canonicalize(absolute.parent()?).ok()?.join(name))
}

/// Opening a folder asks the daemon, always; what stat(2) tells may be what the kernel has kept of a daemon that has died.
pub(super) fn is_dead(mountpoint: &Path) -> bool {
    let path = mountpoint.to_owned();
    let looked = with_timeout(PATIENCE, move || fs::File::open(path).map(drop));
    matches!(looked, Some(Err(error)) if is_from_the_dead(&error))
}

/// The answer for a daemon that has died, or that died while it was asked.
fn is_from_the_dead(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
}

/// What is behind a mount.
enum DaemonState {
    /// This process, and what it will say in the end, where that can be heard.
    Running(OwnedFd, Option<fs::File>),
    /// A daemon that answers, but that cannot be waited for: it lets this user not in, or its number means another
    /// process here.
    Unknown,
    /// Nothing that answers.
    Silent,
    /// Nothing any more.
    Dead,
}

/// Who serves a mount, as the mount itself tells.
fn daemon_of(mountpoint: &Path) -> DaemonState {
    let path = mountpoint.to_owned();
    let asked = with_timeout(PATIENCE, move || {
        let mut text = String::new();
        drop(fs::File::open(&path)?);
        let config = fs::File::open(path.join(INTERNALS).join(CONFIG))?;
        config.take(1 << 20).read_to_string(&mut text).map(|_| text)
    });
    match asked {
        None => DaemonState::Silent,
        Some(Err(error)) if is_from_the_dead(&error) => DaemonState::Dead,
        Some(Err(_)) => DaemonState::Unknown,
        Some(Ok(config)) => process_of(&config).unwrap_or(DaemonState::Unknown),
    }
}

fn process_of(config: &str) -> Option<DaemonState> {
    let config: serde_json::Value = serde_json::from_str(config).ok()?;
    let pid = u32::try_from(config.get("pid")?.as_u64()?).ok()?;
    let ticks = config.get("process_start_ticks")?.as_u64()?;
    let process = sys::open_process(pid).ok()?;
    let outcome = config.get("outcome").and_then(|path| fs::File::open(path.as_str()?).ok());
    (start_ticks(pid) == Some(ticks)).then_some(DaemonState::Running(process, outcome))
}

fn busy(mountpoint: &Path, entry: &MountEntry) -> String {
    let shown = mountpoint.display();
    let users = users_of(entry);
    if users.is_empty() {
        return format!(
            "{shown} is busy: a program of another user holds it, or another mount is inside; end it, or use --force"
        );
    }
    let listed: Vec<String> = users.iter().take(10).map(|(pid, name)| format!("{name} ({pid})")).collect();
    let more = users.len().saturating_sub(listed.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{shown} is busy: used by {}{more}; end them, or use --force", listed.join(", "))
}
