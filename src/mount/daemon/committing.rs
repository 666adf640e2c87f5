//! Asks the daemon of a mount for a commit. Uses `detach.rs` and `mounts/mounted.rs`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::hierarchy::commit::Request;
use crate::mount::daemon::detach::is_daemon_gone;
use crate::mount::daemon::mounts::mounted;
use crate::mount::fs::{COMMIT, INTERNALS};
use crate::store::overlay::resolved;
use crate::sys;

/// Makes the daemon of a mount commit everything that was written, and returns its report: `snapshot`, `branch` and `changes`, or
/// `conflicts`. Every other failure is an error.
pub fn commit(mountpoint: &Path, request: &Request) -> Result<Value> {
    let entry = mounted::at(mountpoint)?;
    let shown = mountpoint.display();
    let refused = |error: io::Error| {
        Error::Usage(match error.kind() {
            io::ErrorKind::NotFound => format!(
                "{shown} makes no snapshots: only a writable mount of a repository with versions does, \
                 'zarrfs mount --writable --overlay DIR'"
            ),
            io::ErrorKind::PermissionDenied => {
                format!("only the user that mounted {shown} may commit: run this command as that user")
            }
            _ if is_daemon_gone(&error) => format!(
                "the daemon of the mount on {shown} has crashed: clean up with 'zarrfs umount --stale {shown}'; what was \
                 synced is in the overlay"
            ),
            _ => format!("{shown}: cannot commit: {error}"),
        })
    };
    // This sends the pages of all memory maps at once; the daemon would ask for them one inode after the other.
    let folder = File::open(&entry.mountpoint).map_err(refused)?;
    sys::sync_filesystem(folder.as_fd()).map_err(refused)?;
    let path = entry.mountpoint.join(INTERNALS).join(COMMIT);
    let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(refused)?;
    let text = json!({"message": request.message, "branch": request.branch}).to_string();
    file.write_all(text.as_bytes()).map_err(refused)?;
    let synced = file.sync_all();
    let mut reply = String::new();
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut reply)).map_err(refused)?;
    let reply: Value = serde_json::from_str(&reply).unwrap_or_default();
    match (synced, reply.get("error").and_then(Value::as_str)) {
        (Err(_), Some(reason)) => Err(Error::Usage(reason.to_owned())),
        (Err(error), None) if reply.get("conflicts").is_none() => Err(refused(error)),
        _ => Ok(reply),
    }
}

/// Returns the mount point of the writable mount that uses an overlay, if there is one. Fails if a member of a catalogue uses it: a catalogue
/// makes no snapshots.
pub fn mount_of_overlay(folder: &Path) -> Result<Option<PathBuf>> {
    let is_of = |mount: &mounted::Mounted| {
        let config = mount.config.as_ref();
        let is_writable = config.and_then(|config| config.get("writable")) == Some(&Value::Bool(true));
        let overlay = config.and_then(|config| config.get("overlay")?.as_str());
        is_writable && overlay.is_some_and(|overlay| Path::new(overlay) == folder)
    };
    let mounts = mounted::list()?;
    if let Some((mount, name)) = mounts.iter().find_map(|mount| Some((mount, member_of(mount, folder)?))) {
        return Err(Error::Usage(format!(
            "{} is the overlay of '{name}', a member of the catalogue that is mounted on {}: take the member out of the catalogue \
             and reload it, then commit",
            folder.display(),
            mount.entry.mountpoint.display()
        )));
    }
    Ok(mounts.into_iter().find(is_of).map(|mount| mount.entry.mountpoint))
}

/// Returns the name of the member of a mounted catalogue that uses an overlay.
fn member_of(mount: &mounted::Mounted, folder: &Path) -> Option<String> {
    let members = mount.config.as_ref()?.get("members")?.as_array()?;
    let text = |member: &Value, key: &str| member.get(key)?.as_str().map(str::to_owned);
    let member = members.iter().find(|member| {
        text(member, "overlay").is_some_and(|overlay| resolved(Path::new(&overlay)) == folder)
    })?;
    text(member, "name")
}
