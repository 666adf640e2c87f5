//! The entry of a mount in /run/mount/utab, by which umount(8) finds its helper.
//!
//! Where root names an absolute path that has no entry there, umount(8) asks the kernel for the type only, hears `fuse`, and detaches
//! the mount itself: it returns before everything is stored, and says nothing of what cannot be. mount(8) and umount(8) write the
//! file, under the lock of libmount; they can do that without mounting anything. Where one of them is missing or fails, the mount is as
//! good as without an entry. Only root may write there. Manual pages: mount(8), umount(8). Uses `procfs.rs`.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::mount::daemon::procfs::{FILESYSTEM_TYPE, mount_at, with_timeout};
use crate::sys;

const UTAB: &str = "/run/mount/utab";
/// The option that names the helper: `umount.` and the type.
const HELPER: &str = "uhelper=fuse.zarrfs";
/// Another program may hold the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Has umount(8) call the helper for this mount. mount(8), if it runs this program, adds nothing to an entry that is there:
/// `words` are the options that it would have written.
pub fn register(source: &str, mountpoint: &Path, words: &[String]) {
    if sys::effective_ids().0 != 0 {
        return;
    }
    let options = words.iter().fold(HELPER.to_owned(), |options, word| options + "," + word);
    let mut command = Command::new("mount");
    command.args(["-c", "-i", "-f", "-t", FILESYSTEM_TYPE, "-o", &options, "--"]);
    run(command, &[OsStr::new(source), mountpoint.as_os_str()]);
}

/// Removes the entry of a mount that is detached.
pub fn forget(mountpoint: &Path) {
    let has_entries = fs::read_to_string(UTAB).is_ok_and(|text| text.contains(HELPER));
    // Another mount may be there already.
    let is_free =
        mount_at(mountpoint).is_ok_and(|entry| entry.is_none_or(|it| it.filesystem_type != FILESYSTEM_TYPE));
    if sys::effective_ids().0 == 0 && has_entries && is_free {
        let mut command = Command::new("umount");
        command.args(["-c", "-i", "--fake", "--"]);
        run(command, &[mountpoint.as_os_str()]);
    }
}

fn run(mut command: Command, operands: &[&OsStr]) {
    command.args(operands).stdin(Stdio::null());
    let shown = format!("{command:?}");
    match with_timeout(LOCK_TIMEOUT, move || command.output()) {
        Some(Ok(output)) if output.status.success() => {}
        Some(Ok(output)) => log::debug!("{shown}: {}", String::from_utf8_lossy(&output.stderr).trim()),
        Some(Err(error)) => log::debug!("{shown}: {error}"),
        None => log::debug!("{shown} does not return"),
    }
}
