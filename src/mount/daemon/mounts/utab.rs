//! The entry of a mount in /run/mount/utab, by which umount(8) finds its helper.
//!
//! If root names an absolute path that has no entry there, umount(8) gets only the type `fuse` from the kernel, and detaches the
//! mount itself. Then it returns before everything is stored, and reports no failure to store. mount(8) and umount(8) can write the
//! file, under the lock of libmount, without mounting anything. If one of them is missing or fails, the mount has no entry. Only
//! root may write there. Manual pages: mount(8), umount(8). This file uses `procfs.rs`.
//!
//! Invariant: an entry does not outlive its mount. The daemon registers while others may already detach the mount, so it looks again
//! afterwards, and it ends only when that is done. `zarrfs umount --stale` and `zarrfs mounts` remove the entry of a daemon that was
//! killed.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use parking_lot::Mutex;

use crate::mount::daemon::mounts::look::look_within;
use crate::mount::daemon::procfs::{FILESYSTEM_TYPE, is_mounted_anywhere, mount_at, unescape};
use crate::sys;

const UTAB: &str = "/run/mount/utab";
/// The option that names the helper: `umount.` and the type.
const HELPER: &str = "uhelper=fuse.zarrfs";
/// How long mount(8) and umount(8) may wait for the lock, which another program may hold.
const LOCK_TIMEOUT_MS: i32 = 5_000;
/// How long other processes are asked for what they see.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);
/// The most entries that are removed at once because their mounts are gone.
const MAX_STALE: usize = 256;

/// The entry of the mount that this process serves.
pub struct Registration {
    mountpoint: PathBuf,
    /// Whether the mount has ended. The lock is held while the file is being changed.
    is_over: Mutex<bool>,
}

impl Registration {
    /// Creates the registration of a mount without an entry.
    pub fn new(mountpoint: &Path) -> Self {
        Registration { mountpoint: mountpoint.to_owned(), is_over: Mutex::new(false) }
    }

    /// Makes umount(8) call the helper for this mount. If mount(8) runs this program, it adds nothing to an existing entry: `words` are
    /// the options that it would have written.
    pub fn register(&self, source: &str, words: &[String]) {
        let is_over = self.is_over.lock();
        if *is_over || sys::effective_ids().0 != 0 {
            return;
        }
        let options = words.iter().fold(HELPER.to_owned(), |options, word| options + "," + word);
        let mut command = Command::new("mount");
        command.args(["-c", "-i", "-f", "-t", FILESYSTEM_TYPE, "-o", &options, "--"]);
        run(command, &[OsStr::new(source), self.mountpoint.as_os_str()]);
        // A program that detached the mount in the meantime found no entry to remove.
        forget(&self.mountpoint);
    }

    /// Ends the registration: removes the entry if the mount is detached, after a registration that is under way.
    pub fn end(&self) {
        *self.is_over.lock() = true;
        forget(&self.mountpoint);
    }
}

/// Removes the entry of a mount, if it is detached.
pub fn forget(mountpoint: &Path) {
    if sys::effective_ids().0 != 0
        || !fs::read(UTAB).is_ok_and(|text| targets(&text).any(|it| it == mountpoint))
    {
        return;
    }
    // Another mount may be there already.
    if mount_at(mountpoint).is_ok_and(|entry| entry.is_none_or(|it| it.filesystem_type != FILESYSTEM_TYPE)) {
        remove(mountpoint);
    }
}

/// Removes the entries of this program whose mounts are gone. A mount in another namespace of mounts is not gone: all of them share
/// the file.
pub fn forget_stale() {
    let Ok(text) = fs::read(UTAB) else { return };
    if sys::effective_ids().0 != 0 {
        return;
    }
    for mountpoint in targets(&text).take(MAX_STALE) {
        // If a process waits in execve(2) for a daemon, anything that asks for its namespace waits too. That could be the daemon itself.
        let look = || Ok(vec![u8::from(is_mounted_anywhere(&mountpoint))]);
        if let Some(Ok(answer)) = look_within(LOOK_TIMEOUT, look)
            && answer == [0]
        {
            remove(&mountpoint);
        }
    }
}

fn remove(mountpoint: &Path) {
    let mut command = Command::new("umount");
    command.args(["-c", "-i", "--fake", "--"]);
    run(command, &[mountpoint.as_os_str()]);
}

/// Returns the mount points of this program's entries: `SRC=… TARGET=… ROOT=… OPTS=…`, with escapes as in /proc/self/mountinfo.
fn targets(text: &[u8]) -> impl Iterator<Item = PathBuf> {
    text.split(|&byte| byte == b'\n').filter_map(|line| {
        let mut words = line.split(|&byte| byte == b' ');
        let mut word = |name: &[u8]| words.find_map(|word| word.strip_prefix(name));
        let target = word(b"TARGET=")?;
        let options = unescape(word(b"OPTS=")?);
        let mut options = options.as_bytes().split(|&byte| byte == b',');
        options.any(|option| option == HELPER.as_bytes()).then(|| PathBuf::from(unescape(target)))
    })
}

/// Runs a program that takes the lock, and kills it if it does not return, because it might make its entry at any later time.
fn run(mut command: Command, operands: &[&OsStr]) {
    command.args(operands).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let shown = format!("{command:?}");
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return log::debug!("{shown}: {error}"),
    };
    let process = sys::open_process(child.id());
    let has_ended = process.and_then(|process| sys::wait_readable(process.as_fd(), LOCK_TIMEOUT_MS));
    if matches!(has_ended, Ok(false)) {
        log::debug!("{shown} does not return");
        let _ = child.kill();
    }
    match child.wait_with_output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => log::debug!("{shown}: {}", String::from_utf8_lossy(&output.stderr).trim()),
        Err(error) => log::debug!("{shown}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_this_program_are_distinguished_from_others() {
        let text = b"SRC=s TARGET=/mnt/a\\040b ROOT=/ OPTS=uhelper=fuse.zarrfs,_netdev\n\
            ID=7 SRC=/dev/x TARGET=/mnt/c ROOT=/ OPTS=_netdev\n\
            SRC=s TARGET=/mnt/d ROOT=/ OPTS=uhelper=fuse.zarrfs2\n\
            SRC=s TARGET=/mnt/e OPTS=_netdev,uhelper=fuse.zarrfs\n\
            TARGET=/mnt/f\nnonsense\n";
        let found: Vec<PathBuf> = targets(text).collect();
        assert_eq!(found, [Path::new("/mnt/a b"), Path::new("/mnt/e")]);
        assert_eq!(targets(b"").count(), 0);
    }
}
