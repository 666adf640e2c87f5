//! Names of new files and folders, and their owner and mode. Uses `sys`.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::store::Posix;
use crate::sys;

/// The longest name that a filesystem of Linux accepts, in bytes.
pub(super) const NAME_MAX_BYTES: usize = 255;
/// Flags for reading a file of any kind.
pub(super) const OPEN_READ: i32 = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY;
/// Flags for looking at a file or folder without opening it.
pub(super) const OPEN_PATH: i32 = libc::O_PATH | libc::O_CLOEXEC;
/// A living writer locks the file that it creates within this time.
pub(super) const LOCKED_WITHIN: Duration = Duration::from_secs(60);
/// The number in the next temporary name of this process.
pub(super) static NEXT_TEMPORARY: AtomicU64 = AtomicU64::new(0);

/// Splits `a/b/c` into (`a/b`, `c`).
pub(super) fn split(key: &str) -> (&str, &str) {
    key.rsplit_once('/').unwrap_or(("", key))
}

pub(super) fn c_name(key: &str, name: &str) -> Result<CString> {
    CString::new(name).map_err(|error| Error::store(key, "write", error.into()))
}

pub(super) fn failed<'a>(key: &'a str, operation: &'static str) -> impl Fn(io::Error) -> Error + 'a {
    move |error| Error::store(key, operation, error)
}

/// Sets owner, group and mode. The owner comes first, since changing it clears set-id bits. A process that may not give files
/// away keeps them, since storing the data matters most. If the group cannot be set, the process's group gets no permissions
/// that all users do not have.
pub(super) fn set_owner_and_mode(file: &File, like: &Posix, mode: u32) -> io::Result<()> {
    let change = |uid: Option<u32>, gid: Option<u32>| match std::os::unix::fs::fchown(file, uid, gid) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(false),
        other => other.map(|()| true),
    };
    let made = file.metadata()?;
    let mut mode = mode;
    if made.gid() != like.gid && !change(None, Some(like.gid))? {
        mode = (mode & !0o070) | (mode & (mode << 3) & 0o070);
    }
    if made.uid() != like.uid {
        change(Some(like.uid), None)?;
    }
    file.set_permissions(std::fs::Permissions::from_mode(mode))
}

/// Whether the process in the name of a temporary file is gone. A process on another machine only seems gone.
pub(super) fn has_dead_writer(name: &str) -> bool {
    let pid = name.strip_prefix(".zarrfs-").and_then(|rest| rest.split('-').next()?.parse().ok());
    let gone = pid.and_then(|pid| sys::open_process(pid).err());
    gone.is_some_and(|error| error.raw_os_error() == Some(libc::ESRCH))
}
