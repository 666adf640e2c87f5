//! `zarrfs umount`: finds the mount, detaches it, and waits for its daemon.

use std::ffi::{CString, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::error::{Error, Result};
use crate::mount::daemon::exit_status::read_lost;
use crate::mount::daemon::mounts::look::{Look, left_behind, look_within};
use crate::mount::daemon::mounts::utab;
use crate::mount::daemon::procfs::{FILESYSTEM_TYPE, MountEntry, mount_at, mounts, start_ticks, users_of};
use crate::mount::daemon::restart::mark;
use crate::mount::fs::{CONFIG, INTERNALS, KeeperInfo, UNSAVED};
use crate::sys;

/// How long the processes of a mount in use are looked for.
const USERS_TIMEOUT: Duration = Duration::from_secs(10);
/// Mounts and unmounts for users other than root.
pub(super) const FUSERMOUNT: &str = "fusermount3";
/// A daemon that does not reply for this long counts as hung.
pub(super) const DAEMON_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a daemon may take to exit once its mount is unused.
const DAEMON_END_MS: i32 = 60_000;
/// How long to wait for the daemon of a mount that was detached by force.
const FORCED_END_MS: i32 = 2_000;
/// How long the keeper may take after its daemon.
const KEEPER_END_MS: i32 = 5_000;
/// The number of keys that an error lists.
const MAX_LISTED_KEYS: usize = 20;
/// A program that has just exited may still be releasing the mount.
const BUSY_RETRIES: u32 = 5;
/// If no program can be named that uses the mount, it is probably a process that just starts another program: until then it has copies of its
/// parent's descriptors, for seconds on a busy machine.
const NAMELESS_RETRIES: u32 = 50;

fn refuse<T>(sentence: String) -> Result<T> {
    Err(Error::Usage(sentence))
}

/// Unmounts, and returns when the daemon has written everything and exited. Fails with the reason when
/// something cannot be written, when the mount is busy (naming the programs that use it), and when the daemon
/// does not reply; `force` detaches at once, and fails with a list of what is not stored by then, or where the daemon
/// does not reply. The mount of a
/// crashed daemon is detached; this is a failure if the mount was writable. Returns a warning where the mount is detached
/// and the daemon may still run.
pub fn unmount(mountpoint: &Path, force: bool) -> Result<Option<String>> {
    let entry = find(mountpoint)?;
    let shown = mountpoint.display();
    let daemon = daemon_state(&entry.mountpoint);
    if let DaemonState::Dead = daemon {
        return unmount_dead(mountpoint, &entry).map(|()| None);
    }
    // A read-only mount cannot lose anything.
    let stores = !force && !entry.is_read_only;
    if let (DaemonState::Silent, true) = (&daemon, stores) {
        return refuse(format!(
            "not unmounted: the daemon of {shown} does not respond; wait for its store, or detach it with --force"
        ));
    }
    let (mut tries, mut not_stored) = (0, String::new());
    if force && !entry.is_read_only && matches!(daemon, DaemonState::Running(..)) {
        // When the mount is detached, nothing can be read from it any more.
        not_stored = unsaved_text(&entry.mountpoint).unwrap_or_default();
    }
    loop {
        // Again for each attempt: the programs that held the mount may have written meanwhile.
        if stores {
            store_all(&entry)?;
        }
        match detach(&entry.mountpoint, force) {
            Ok(()) => break,
            // A look of this command that the daemon has not answered keeps the mount busy, and nothing else does. A mount that stores
            // nothing may go at once.
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY)
                    && entry.is_read_only
                    && left_behind() > 0
                    && is_nameless(&entry) =>
            {
                detach(&entry.mountpoint, true)
                    .or_else(|error| refuse(format!("cannot unmount {shown}: {error}")))?;
                break;
            }
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                tries += 1;
                if tries > BUSY_RETRIES && (tries > NAMELESS_RETRIES || !is_nameless(&entry)) {
                    return refuse(busy(mountpoint, &entry));
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                return refuse(format!(
                    "you may not unmount {shown}: only root and the user that mounted it may"
                ));
            }
            Err(error) => return refuse(format!("cannot unmount {shown}: {error}")),
        }
    }
    let DaemonState::Running(daemon) = daemon else {
        if force && matches!(daemon, DaemonState::Silent) {
            return refuse(format!(
                "{shown} is detached, but its daemon does not respond: it may still run, and writes that were not synced may be lost"
            ));
        }
        let warning = match daemon {
            DaemonState::Silent => "its daemon does not respond now, and exits when its requests have ended",
            _ => "cannot wait for its daemon from here",
        };
        return Ok(Some(format!("{shown} is detached; {warning}")));
    };
    let timeout_ms = if force { FORCED_END_MS } else { DAEMON_END_MS };
    match sys::wait_readable(daemon.process.as_fd(), timeout_ms) {
        Ok(true) => {
            if let Some(keeper) = &daemon.keeper {
                // It ends as soon as it learns that the daemon has.
                let _ = sys::wait_readable(keeper.as_fd(), KEEPER_END_MS);
            }
            match daemon.outcome.and_then(read_lost) {
                None => Ok(None),
                Some(_) if entry.is_read_only => Ok(None),
                Some(lost) => refuse(loss_report(mountpoint, &lost)),
            }
        }
        Ok(false) if force && !not_stored.is_empty() => {
            refuse(delay_report(mountpoint, &daemon, &not_stored))
        }
        Ok(false) if force => {
            let until = "its daemon exits when programs have closed their files there";
            Ok(Some(format!("{shown} is detached; {until}")))
        }
        Ok(false) => refuse(format!("{shown} is unmounted, but its daemon has not exited")),
        Err(error) => refuse(format!("{shown} is unmounted, but waiting for its daemon failed: {error}")),
    }
}

fn loss_report(mountpoint: &Path, lost: &str) -> String {
    let shown = mountpoint.display();
    if lost.is_empty() {
        return format!("{shown} is unmounted, but its daemon crashed; writes that were not synced are lost");
    }
    format!("{shown} is unmounted, but some writes could not be stored. Lost{}", as_list(lost))
}

/// Describes what is not stored when a mount was detached by force, and how long its daemon goes on trying.
fn delay_report(mountpoint: &Path, daemon: &RunningDaemon, not_stored: &str) -> String {
    let until = SignedDuration::try_from(daemon.stop_deadline).ok();
    let until = until.and_then(|grace| Timestamp::now().checked_add(grace).ok());
    format!(
        "{} is detached, but some writes were not stored by then{}Its daemon (process {}) tries to store them until {}, \
         longer only while it makes progress or programs have files open there, and then exits: what is not stored then is lost",
        mountpoint.display(),
        as_list(not_stored),
        daemon.pid,
        until.map_or_else(|| "its stop-deadline".to_owned(), |until| format!("{until:.0}")),
    )
}

/// Lets the daemon store everything before the mount is detached, so that the cause of a failure can still be
/// fixed.
fn store_all(entry: &MountEntry) -> Result<()> {
    let shown = entry.mountpoint.display();
    match open_apart(&entry.mountpoint).unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into())) {
        Ok(_) => {}
        // Another user's mount, which root may detach but not enter: the daemon stores when it exits.
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => return Ok(()),
        Err(error) => return refuse(format!("not unmounted: {shown} cannot be opened: {error}")),
    }
    // Storing may take long. A signal can end this process meanwhile, because another one waits for the daemon.
    let store = || fs::File::open(&entry.mountpoint)?.sync_all().map(|()| Vec::new());
    match Look::start(store).and_then(Look::wait) {
        Ok(_) => Ok(()),
        Err(error) if is_daemon_gone(&error) => {
            refuse(format!("the daemon of {shown} crashed while it stored writes; the mount stays attached"))
        }
        Err(error) => {
            let list = unsaved(&entry.mountpoint);
            // A list ends with a line of its own.
            let end = if list.is_empty() { ". " } else { "" };
            refuse(format!(
                "not unmounted: some writes cannot be stored ({error}){list}{end}Fix the cause and try again, or discard them \
                 with --force"
            ))
        }
    }
}

/// Returns a list of the keys that are not stored, for an error.
fn unsaved(mountpoint: &Path) -> String {
    unsaved_text(mountpoint).map(|text| as_list(&text)).unwrap_or_default()
}

/// Returns the keys that are not stored, one a line; `None` if the daemon does not say.
fn unsaved_text(mountpoint: &Path) -> Option<String> {
    let path = mountpoint.join(INTERNALS).join(UNSAVED);
    let text = look_within(DAEMON_TIMEOUT, || fs::read(path))?.ok()?;
    String::from_utf8(text).ok()
}

/// Returns lines as a list at the end of a sentence.
fn as_list(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return String::new();
    }
    let shown = lines.get(..MAX_LISTED_KEYS).unwrap_or(&lines);
    let more = match lines.len() - shown.len() {
        0 => String::new(),
        more => format!("\n  and {more} more"),
    };
    format!(":\n  {}{more}\n", shown.join("\n  "))
}

/// Detaches the mount of a crashed daemon.
fn unmount_dead(mountpoint: &Path, entry: &MountEntry) -> Result<()> {
    let shown = mountpoint.display();
    detach(&entry.mountpoint, true)
        .or_else(|error| refuse(format!("cannot detach the dead mount on {shown}: {error}")))?;
    if entry.is_read_only {
        return Ok(());
    }
    refuse(format!(
        "{shown} is unmounted, but its daemon had crashed: writes that were neither closed nor synced are lost"
    ))
}

/// Detaches the mount of a crashed daemon (it replies ENOTCONN); leaves any other mount alone, without an error. A mount that
/// another daemon is about to continue is left alone without a look. Also removes the entries of former mounts from the table of
/// umount(8).
pub fn unmount_stale(mountpoint: &Path) -> Result<()> {
    utab::forget_stale();
    let Ok(entry) = find(mountpoint) else { return Ok(()) };
    if mark::is_set(&entry) || !is_dead(&entry.mountpoint) {
        return Ok(());
    }
    detach(&entry.mountpoint, true)
        .or_else(|error| refuse(format!("cannot detach the dead mount on {}: {error}", mountpoint.display())))
}

/// Returns the zarrfs mount at a path. The path itself is opened last, because a mount that hangs must not hang this command.
pub(super) fn find(mountpoint: &Path) -> Result<MountEntry> {
    let shown = mountpoint.display();
    let failed = |error: io::Error| Error::Usage(format!("cannot access {shown}: {error}"));
    let mut entry = match resolve_parent(mountpoint) {
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
        None => refuse(match mount_of_store(mountpoint) {
            Some(place) => format!(
                "{shown} is a store, and its mount is on {place}: name that; 'zarrfs mounts' lists all mounts",
                place = place.display()
            ),
            None => format!("nothing is mounted on {shown}; 'zarrfs mounts' lists what is"),
        }),
    }
}

/// Returns the mount point of a store, if that is known: a mount has the store's name as the user wrote it.
fn mount_of_store(store: &Path) -> Option<PathBuf> {
    // The sources are what other users have written, and may lie in mounts that hang.
    let found = look_within(DAEMON_TIMEOUT, || {
        let canonical = fs::canonicalize(store)?;
        let is_store = |source: &str| {
            source == store.to_string_lossy()
                || (source.starts_with('/') && fs::canonicalize(source).is_ok_and(|path| path == canonical))
        };
        let mut mounts = mounts()?.into_iter().rev();
        let found = mounts.find(|entry| entry.filesystem_type == FILESYSTEM_TYPE && is_store(&entry.source));
        Ok(found.map(|entry| entry.mountpoint.into_os_string().into_vec()).unwrap_or_default())
    });
    let mountpoint = found?.ok().filter(|mountpoint| !mountpoint.is_empty())?;
    Some(PathBuf::from(OsString::from_vec(mountpoint)))
}

/// Returns the path with all segments but the last one resolved.
fn resolve_parent(mountpoint: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(mountpoint).ok()?;
    let name = absolute.file_name()?;
    Some(fs::canonicalize(absolute.parent()?).ok()?.join(name))
}

/// Opening a folder always asks the daemon; stat(2) of a crashed daemon's mount may return cached attributes.
pub(super) fn is_dead(mountpoint: &Path) -> bool {
    matches!(open_apart(mountpoint), Some(Err(error)) if is_daemon_gone(&error))
}

/// Opens a mount point, and closes it again; `None` if the daemon does not reply in time.
fn open_apart(mountpoint: &Path) -> Option<io::Result<Vec<u8>>> {
    look_within(DAEMON_TIMEOUT, || fs::File::open(mountpoint).map(|_| Vec::new()))
}

/// The errno of a crashed daemon, or of one that crashes during the request.
pub(super) fn is_daemon_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
}

/// The state of a mount's daemon.
enum DaemonState {
    /// It runs, in a process that this command can wait for.
    Running(RunningDaemon),
    /// It replies, but this command cannot wait for it: it does not admit this user, or its process id
    /// belongs to another process here.
    Unknown,
    /// It does not reply.
    Silent,
    /// It has crashed.
    Dead,
}

/// A daemon that replies.
struct RunningDaemon {
    process: OwnedFd,
    pid: u32,
    /// The process that would start another daemon.
    keeper: Option<OwnedFd>,
    /// The file that it reports its exit status in, if that is readable.
    outcome: Option<fs::File>,
    /// How long it goes on trying to store what it cannot store.
    stop_deadline: Duration,
}

/// Returns the state of a mount's daemon, as the mount itself reports it.
fn daemon_state(mountpoint: &Path) -> DaemonState {
    let asked = look_within(DAEMON_TIMEOUT, || {
        let mut text = Vec::new();
        // An open always asks the daemon. That of the mount point would ask the store, too.
        let config = fs::File::open(mountpoint.join(INTERNALS).join(CONFIG))?;
        config.take(1 << 20).read_to_end(&mut text).map(|_| text)
    });
    match asked {
        None => DaemonState::Silent,
        Some(Err(error)) if is_daemon_gone(&error) => DaemonState::Dead,
        Some(Err(_)) => DaemonState::Unknown,
        Some(Ok(config)) => process_of(&config).unwrap_or(DaemonState::Unknown),
    }
}

fn process_of(config: &[u8]) -> Option<DaemonState> {
    let config: serde_json::Value = serde_json::from_slice(config).ok()?;
    let pid = u32::try_from(config.get("pid")?.as_u64()?).ok()?;
    let ticks = config.get("process_start_ticks")?.as_u64()?;
    let process = sys::open_process(pid).ok()?;
    let keeper = keeper_of(&config).and_then(|keeper| {
        let process = sys::open_process(keeper.pid).ok()?;
        (start_ticks(keeper.pid) == keeper.start_ticks).then_some(process)
    });
    let outcome = config.get("outcome").and_then(|path| open_outcome(path.as_str()?, pid));
    let stop_deadline = config.get("stop-deadline").and_then(serde_json::Value::as_f64);
    let stop_deadline = Duration::try_from_secs_f64(stop_deadline.unwrap_or_default()).unwrap_or_default();
    let daemon = RunningDaemon { process, pid, keeper, outcome, stop_deadline };
    (start_ticks(pid) == Some(ticks)).then_some(DaemonState::Running(daemon))
}

/// Opens the exit status of a daemon. The mount may be another user's program, and the path anything: opening a FIFO would hang.
fn open_outcome(path: &str, pid: u32) -> Option<fs::File> {
    let number = path.strip_prefix(&format!("/proc/{pid}/fd/"))?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let file =
        fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).ok()?;
    file.metadata().is_ok_and(|metadata| metadata.is_file()).then_some(file)
}

/// The keeper that a mount's `config.json` names.
pub(super) fn keeper_of(config: &serde_json::Value) -> Option<KeeperInfo> {
    let pid = u32::try_from(config.get("keeper")?.as_u64()?).ok()?;
    Some(KeeperInfo { pid, start_ticks: config.get("keeper_start_ticks")?.as_u64() })
}

/// Returns whether neither a program nor a mount inside can be named that makes a mount busy.
fn is_nameless(entry: &MountEntry) -> bool {
    let is_inside = |other: &MountEntry| {
        other.mountpoint != entry.mountpoint && other.mountpoint.starts_with(&entry.mountpoint)
    };
    users_within(entry).is_empty() && !mounts().is_ok_and(|mounts| mounts.iter().any(is_inside))
}

fn busy(mountpoint: &Path, entry: &MountEntry) -> String {
    let shown = mountpoint.display();
    let users = users_within(entry);
    if users.is_empty() {
        return format!(
            "{shown} is busy: a program of another user or another mount inside it is using it; stop that, or use --force"
        );
    }
    let names: Vec<String> = users.iter().take(10).map(|(pid, name)| format!("{name} ({pid})")).collect();
    let more = users.len().saturating_sub(names.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let them = if users.len() == 1 { "it" } else { "them" };
    format!("{shown} is busy: in use by {}{more}; stop {them}, or use --force", names.join(", "))
}

/// Returns the processes that use a mount. One that hangs may hold up a process that looks at it for as long as the kernel likes, so another process looks.
fn users_within(entry: &MountEntry) -> Vec<(u32, String)> {
    let look = || {
        let lines = users_of(entry).into_iter().map(|(pid, name)| format!("{pid} {name}\n"));
        Ok(lines.collect::<String>().into_bytes())
    };
    let Some(Ok(text)) = look_within(USERS_TIMEOUT, look) else { return Vec::new() };
    let text = String::from_utf8_lossy(&text).into_owned();
    let user =
        |line: &str| line.split_once(' ').and_then(|(pid, name)| Some((pid.parse().ok()?, name.to_owned())));
    text.lines().filter_map(user).collect()
}

/// Detaches a mount; with `lazily`, also one that is in use, which then ends with its last user.
pub fn detach(mountpoint: &Path, lazily: bool) -> io::Result<()> {
    let target = CString::new(mountpoint.as_os_str().as_bytes())?;
    match sys::unmount(&target, if lazily { libc::MNT_DETACH } else { 0 }) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => detach_by_helper(mountpoint, lazily),
        result => result.inspect(|()| utab::forget(mountpoint)),
    }
}

fn detach_by_helper(mountpoint: &Path, lazily: bool) -> io::Result<()> {
    let mut command = Command::new(FUSERMOUNT);
    command.arg("-u");
    if lazily {
        command.arg("-z");
    }
    let output = command.arg("--").arg(mountpoint).stdin(Stdio::null()).output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other(format!(
            "{FUSERMOUNT} is missing, which users other than root need: install it with 'apt install fuse3', or unmount as root"
        )),
        _ => error,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if complaint.contains("busy") {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    // fusermount3 looks for mounts of the calling user; it reports another user's mount as "not found".
    if complaint.contains("not found in") || complaint.contains("not permitted") {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    if complaint.contains("/etc/mtab") {
        let hint = "make it as root with 'ln -s ../proc/self/mounts /etc/mtab', or unmount as root";
        return Err(io::Error::other(format!("{complaint}: {hint}")));
    }
    Err(io::Error::other(complaint))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use std::os::fd::AsRawFd;

    use super::*;

    /// `zarrfs umount` of another user's mount opened whatever the mount named, and hung at a FIFO.
    #[test]
    fn an_exit_status_is_a_file_of_the_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let both_ends = fs::File::options().read(true).write(true).open(&fifo).unwrap();
        let file = tempfile::tempfile().unwrap();
        let pid = std::process::id();
        let of = |file: &fs::File| format!("/proc/{pid}/fd/{}", file.as_raw_fd());
        let has_outcome = |outcome: &str| {
            let ticks = start_ticks(pid).unwrap();
            let config = serde_json::json!({"pid": pid, "process_start_ticks": ticks, "outcome": outcome});
            match process_of(config.to_string().as_bytes()) {
                Some(DaemonState::Running(daemon)) => daemon.outcome.is_some(),
                _ => panic!("{config}"),
            }
        };
        assert!(has_outcome(&of(&file)));
        for other in [
            of(&both_ends),
            format!("/proc/{pid}/fd/../comm"),
            format!("/proc/{pid}/fd/"),
            "/etc/passwd".to_owned(),
        ] {
            assert!(!has_outcome(&other), "{other}");
        }
        drop(both_ends);
        assert!(!has_outcome(fifo.to_str().unwrap()));
    }
}
