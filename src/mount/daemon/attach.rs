//! Attaches the mount: checks first, then mount(2) where permitted, else fusermount3.
//!
//! fuser's own mounting is not used: its unmounting loses the mount when it is busy. Uses `sys`. Every error
//! is one sentence that says what to do.

use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::mount::daemon::detach::{DAEMON_TIMEOUT, FUSERMOUNT, is_dead};
use crate::mount::daemon::given_device;
use crate::mount::daemon::mounts::look::look_within;
use crate::mount::daemon::privileges::{CAP_SYS_ADMIN, has_capability};
use crate::mount::daemon::procfs::{FILESYSTEM_TYPE, mount_at};
use crate::mount::options::{AllowOther, Options};
use crate::store::overlay::resolved;
use crate::sys;

const DEVICE: &str = "/dev/fuse";

/// The file system type of an automount point; the real mount goes over it.
const AUTOMOUNT_TYPE: &str = "autofs";
const FUSE_CONF: &str = "/etc/fuse.conf";

fn refuse<T>(sentence: String) -> Result<T> {
    Err(Error::Usage(sentence))
}

/// Refuses owners with which users would get what the store refuses them: only root may give away other users' files.
pub fn check_ownership(options: &Options) -> Result<()> {
    let has_owners = options.store_path.is_some() || options.overlay.is_some();
    let is_root = sys::effective_ids().0 == 0;
    if options.ownership.gives_away() && has_owners && !is_root && allows_others(options)? {
        return refuse(
            "uid and gid need root here: the store has owners, and other users may enter the mount; leave them out, or keep \
             others out with allow-other=off"
                .to_owned(),
        );
    }
    Ok(())
}

/// Makes a missing mount point, if the options say so. Returns the folders that were made, the outermost first.
pub fn make_mountpoint(options: &Options) -> Result<Vec<PathBuf>> {
    let given = &options.mountpoint;
    if !options.make_mountpoint {
        return Ok(Vec::new());
    }
    // In another process, because the path may lead through a mount that hangs.
    let looked = look_within(DAEMON_TIMEOUT, || given.symlink_metadata().map(|_| Vec::new()));
    if !matches!(looked, Some(Err(error)) if error.kind() == io::ErrorKind::NotFound) {
        return Ok(Vec::new());
    }
    let mut missing: Vec<&Path> = given.ancestors().take_while(|path| !path.exists()).collect();
    missing.reverse();
    // Nothing is made inside the store.
    let above = missing.first().and_then(|path| path.parent()).and_then(|path| fs::canonicalize(path).ok());
    if let (Some(above), Some(first)) = (above, missing.first()) {
        let rest = given.strip_prefix(first.parent().unwrap_or(first)).unwrap_or(given);
        check_apart(options, &above.join(rest))?;
    }
    let mut made = Vec::new();
    for path in missing {
        if let Err(error) = fs::create_dir(path) {
            remove_folders(&made);
            return refuse(format!("cannot make the mount point {}: {error}", given.display()));
        }
        made.push(path.to_owned());
    }
    Ok(made)
}

/// Removes folders that [`make_mountpoint`] made, as far as they are empty.
pub fn remove_folders(made: &[PathBuf]) {
    for path in made.iter().rev() {
        if fs::remove_dir(path).is_err() {
            return;
        }
    }
}

/// Checks whether the mount can be made, before anything is started. Returns the canonical mount point.
pub fn check(options: &Options) -> Result<PathBuf> {
    let given = &options.mountpoint;
    let shown = given.display();
    // Another process follows the path, which may lead through a mount that hangs. What is mounted at its end is not asked for anything.
    let resolved = look_within(DAEMON_TIMEOUT, || Ok(fs::canonicalize(given)?.into_os_string().into_vec()));
    let resolved = resolved.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()));
    let mountpoint = resolved.or_else(|error| match error.raw_os_error() {
        Some(libc::ENOENT) => refuse(format!(
            "the mount point {shown} does not exist: make it with 'mkdir -p {shown}', or mount with --mkdir"
        )),
        Some(libc::ENOTCONN) => refuse(crashed(given)),
        _ => refuse(format!("the mount point {shown} cannot be used: {error}")),
    })?;
    let mountpoint = PathBuf::from(OsString::from_vec(mountpoint));
    if let Ok(Some(entry)) = mount_at(&mountpoint)
        && entry.filesystem_type != AUTOMOUNT_TYPE
    {
        // The kernel may have cached the result of stat(2).
        if entry.filesystem_type == FILESYSTEM_TYPE && is_dead(&mountpoint) {
            return refuse(crashed(given));
        }
        if entry.filesystem_type == FILESYSTEM_TYPE {
            return refuse(format!(
                "{shown} is busy: {} is mounted there; end that with 'zarrfs umount {shown}', or give another folder",
                entry.source
            ));
        }
        return refuse(format!(
            "{shown} is busy: a filesystem of type {} is mounted there; unmount it first, or give another folder",
            entry.filesystem_type
        ));
    }
    let metadata = fs::metadata(&mountpoint)
        .or_else(|error| refuse(format!("the mount point {shown} cannot be used: {error}")))?;
    if !metadata.is_dir() {
        return refuse(format!("the mount point {shown} is not a folder: give an empty folder"));
    }
    check_apart(options, &mountpoint)?;
    let mut names = fs::read_dir(&mountpoint)
        .or_else(|error| refuse(format!("the mount point {shown} cannot be read: {error}")))?;
    if names.next().is_some() {
        return refuse(format!(
            "the mount point {shown} is not empty: its files would be hidden; give an empty folder"
        ));
    }
    Ok(mountpoint)
}

fn crashed(mountpoint: &Path) -> String {
    let shown = mountpoint.display();
    format!(
        "the daemon of an earlier mount on {shown} has crashed: clean up with 'zarrfs umount --stale {shown}'"
    )
}

/// Fails if store, overlay, disk cache, mount point or log file contain each other.
fn check_apart(options: &Options, mountpoint: &Path) -> Result<()> {
    let disk_cache = options.remote.as_ref().and_then(|remote| remote.disk_cache.as_ref());
    let disk_cache = disk_cache.map(|cache| resolved(&cache.folder));
    for (what, folder) in [("overlay", options.overlay.as_deref()), ("disk cache", disk_cache.as_deref())] {
        if let Some(folder) = folder {
            check_folder_apart(what, folder, mountpoint)?;
        }
    }
    let store = options.store_path.as_deref().and_then(|path| fs::canonicalize(path).ok());
    if let Some(store) = &store {
        check_store_apart(store, mountpoint)?;
    }
    let logs = logs(options);
    store.as_deref().into_iter().chain([mountpoint]).try_for_each(|outer| check_logs_apart(&logs, outer))
}

/// Returns the log files of a mount, by what they are: absolute, with canonical folders.
pub fn logs(options: &Options) -> Vec<(&'static str, PathBuf)> {
    let logs = [("log file", &options.log_file), ("access log", &options.access_log)];
    let canonical = |path: &PathBuf| {
        let (folder, name) = (fs::canonicalize(path.parent()?).ok()?, path.file_name()?);
        Some(folder.join(name))
    };
    logs.into_iter().filter_map(|(what, path)| Some((what, canonical(path.as_ref()?)?))).collect()
}

/// Fails if one of [`logs`] is inside a store or a mount point, which is canonical.
pub fn check_logs_apart(logs: &[(&'static str, PathBuf)], outer: &Path) -> Result<()> {
    let is_inside = |path: &Path| path.parent().is_some_and(|folder| folder.starts_with(outer));
    let inside = logs.iter().find(|(_, path)| is_inside(path));
    inside.map_or(Ok(()), |(what, _)| {
        refuse(format!(
            "the {what} is inside the store or the mount point: give a place outside of {}",
            outer.display()
        ))
    })
}

/// Fails if an overlay or a disk cache and the mount point, both canonical, contain each other.
pub fn check_folder_apart(what: &str, folder: &Path, mountpoint: &Path) -> Result<()> {
    if !mountpoint.starts_with(folder) && !folder.starts_with(mountpoint) {
        return Ok(());
    }
    refuse(format!(
        "the mount point {} and the {what} {} are inside each other: give another folder",
        mountpoint.display(),
        folder.display()
    ))
}

/// Fails if the folder of a store and the mount point, both canonical, contain each other.
pub fn check_store_apart(store: &Path, mountpoint: &Path) -> Result<()> {
    let (store_shown, mountpoint_shown) = (store.display(), mountpoint.display());
    if mountpoint.starts_with(store) {
        return refuse(format!(
            "the mount point {mountpoint_shown} is inside the store {store_shown}: give a folder outside of it"
        ));
    }
    if store.starts_with(mountpoint) {
        return refuse(format!(
            "the store {store_shown} is inside the mount point {mountpoint_shown}, which would hide it: give another folder"
        ));
    }
    Ok(())
}

/// Returns whether users other than the daemon's may enter.
pub fn allows_others(options: &Options) -> Result<bool> {
    if given_device::number(&options.mountpoint).is_some() {
        // The program that mounted has decided, and does not say how.
        return Ok(options.allow_other != AllowOther::Off);
    }
    let (uid, _) = sys::effective_ids();
    let may = uid == 0 || has_capability(CAP_SYS_ADMIN) || conf_allows_others();
    match options.allow_other {
        AllowOther::Off => Ok(false),
        AllowOther::Auto => Ok(may),
        AllowOther::On if may => Ok(true),
        AllowOther::On => refuse(format!(
            "allow-other needs the line 'user_allow_other' in {FUSE_CONF}: ask the administrator, or leave allow-other out"
        )),
    }
}

fn conf_allows_others() -> bool {
    let conf = fs::read_to_string(FUSE_CONF).unwrap_or_default();
    conf.lines().any(|line| line.trim() == "user_allow_other")
}

/// Mounts at `options.mountpoint` and returns the FUSE descriptor.
pub fn mount(options: &Options) -> Result<OwnedFd> {
    let allows_others = allows_others(options)?;
    let error = match mount_directly(options, allows_others) {
        Ok(device) => return Ok(device),
        Err(error) => error,
    };
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => refuse(format!(
            "{DEVICE} is missing: load the kernel module with 'modprobe fuse'; a container needs \
             '--device {DEVICE} --cap-add SYS_ADMIN'"
        )),
        Some(libc::EPERM | libc::EACCES) => mount_by_helper(options, allows_others),
        _ => refuse(format!("cannot mount on {}: {error}", options.mountpoint.display())),
    }
}

/// The longest read where the kernel reads ahead for its page cache. A reader waits for the whole read-ahead:
/// with shorter requests, several session threads work on it at once. Direct reads would only become several
/// requests in a row.
const MAX_CACHED_READ_BYTES: u32 = 512 << 10;

fn mount_directly(options: &Options, allows_others: bool) -> io::Result<OwnedFd> {
    let device = fs::OpenOptions::new().read(true).write(true).open(DEVICE)?;
    let (uid, gid) = sys::effective_ids();
    let owner = format!("fd={},rootmode=40000,user_id={uid},group_id={gid}", device.as_raw_fd());
    let data = owner + &kernel_data(options, allows_others);
    let mut flags = libc::MS_NOSUID | libc::MS_NODEV;
    if !options.writable {
        flags |= libc::MS_RDONLY;
    }
    for word in &options.kernel_words {
        flags |= kernel_flag(word);
    }
    let source = CString::new(source_name(options))?;
    let target = CString::new(options.mountpoint.as_os_str().as_bytes())?;
    sys::mount(&source, &target, &CString::new(FILESYSTEM_TYPE)?, flags, &CString::new(data)?)?;
    Ok(device.into())
}

/// Returns the data string of mount(2), except for the owner.
fn kernel_data(options: &Options, allows_others: bool) -> String {
    let mut data = String::new();
    if allows_others {
        data.push_str(",allow_other,default_permissions");
    }
    if !options.direct_io {
        data.push_str(&format!(",max_read={MAX_CACHED_READ_BYTES}"));
    }
    data
}

/// Returns the mount(2) flag of a mount option; 0 if the option asks for the default.
fn kernel_flag(word: &str) -> u64 {
    match word {
        "noexec" => libc::MS_NOEXEC,
        "noatime" => libc::MS_NOATIME,
        "nodiratime" => libc::MS_NODIRATIME,
        "relatime" => libc::MS_RELATIME,
        "strictatime" => libc::MS_STRICTATIME,
        "lazytime" => libc::MS_LAZYTIME,
        "sync" => libc::MS_SYNCHRONOUS,
        "dirsync" => libc::MS_DIRSYNC,
        "nosymfollow" => libc::MS_NOSYMFOLLOW,
        _ => 0,
    }
}

/// Returns the source as mount(8) and df(1) show it.
pub(super) fn source_name(options: &Options) -> &str {
    if options.source.is_empty() { "zarrfs" } else { &options.source }
}

/// Mounts with fusermount3, as unprivileged users must. It sends the descriptor over a socket, given by number.
fn mount_by_helper(options: &Options, allows_others: bool) -> Result<OwnedFd> {
    let failed = |error: io::Error| -> Error { Error::Usage(format!("cannot run {FUSERMOUNT}: {error}")) };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    sys::keep_on_exec(theirs.as_fd()).map_err(failed)?;
    let child = Command::new(FUSERMOUNT)
        .arg("-o")
        .arg(helper_words(options, allows_others))
        .arg("--")
        .arg(&options.mountpoint)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    drop(theirs);
    let child = child.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::Usage(format!(
            "{FUSERMOUNT} is missing; users other than root need it to mount: install it with 'apt install fuse3', or run as root"
        )),
        _ => failed(error),
    })?;
    let device = sys::receive_descriptor(ours.as_fd()).map_err(failed)?;
    let output = child.wait_with_output().map_err(failed)?;
    match device {
        Some(device) if output.status.success() => Ok(device),
        _ => refuse(explain_helper(&String::from_utf8_lossy(&output.stderr), options)),
    }
}

fn helper_words(options: &Options, allows_others: bool) -> String {
    let name = source_name(options).replace('\\', "\\\\").replace(',', "\\,");
    let access = if options.writable { "rw" } else { "ro" };
    let mut words = format!("{access},nosuid,nodev,subtype=zarrfs,fsname={name}");
    if allows_others {
        words.push_str(",allow_other,default_permissions");
    }
    // The options that fusermount3 knows; the others only concern how a disk file system keeps its times.
    for word in &options.kernel_words {
        if ["noexec", "noatime", "nodiratime", "sync", "dirsync"].contains(&word.as_str()) {
            words.push(',');
            words.push_str(word);
        }
    }
    words
}

/// Returns the complaint of fusermount3 as a sentence that says what to do.
fn explain_helper(complaint: &str, options: &Options) -> String {
    let shown = options.mountpoint.display();
    let complaint = complaint.trim().trim_start_matches("fusermount3: ");
    if complaint.contains("user_allow_other") {
        return format!(
            "allow-other needs the line 'user_allow_other' in {FUSE_CONF}: ask the administrator, or leave allow-other out"
        );
    }
    if complaint.contains(DEVICE) && complaint.contains("ermission denied") {
        return format!("you may not use {DEVICE}: an administrator can allow it with 'chmod 666 {DEVICE}'");
    }
    if complaint.contains(DEVICE) {
        return format!("{DEVICE} cannot be used ({complaint}): load it with 'modprobe fuse' as root");
    }
    if complaint.contains("no write access") || complaint.contains("not owned by user") {
        return format!(
            "you may mount only on a folder that you own and may write to, and {shown} is not one"
        );
    }
    if complaint.is_empty() {
        return format!("cannot mount on {shown}: {FUSERMOUNT} failed and did not say why");
    }
    format!("cannot mount on {shown}: {complaint}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::{DiskCacheOptions, RemoteOptions};

    fn sentence(result: Result<PathBuf>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn unusable_mount_points_are_refused_with_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| Options::new("s", folder.path().join(name));
        assert!(sentence(check(&place("none"))).contains("mkdir -p"));
        fs::write(folder.path().join("file"), "x").unwrap();
        assert!(sentence(check(&place("file"))).contains("not a folder"));
        assert!(sentence(check(&place(""))).contains("not empty"));
        assert!(sentence(check(&Options::new("s", "/proc"))).contains("busy"));
        fs::create_dir(folder.path().join("free")).unwrap();
        assert!(check(&place("free")).unwrap().ends_with("free"));
    }

    #[test]
    fn missing_mount_points_are_made_and_nothing_inside_the_store() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("store")).unwrap();
        let mut options = Options::new("s", folder.path().join("a/b"));
        options.store_path = Some(folder.path().join("store"));
        assert!(make_mountpoint(&options).unwrap().is_empty());
        options.make_mountpoint = true;
        let made = make_mountpoint(&options).unwrap();
        assert_eq!(made, [folder.path().join("a"), folder.path().join("a/b")]);
        assert!(make_mountpoint(&options).unwrap().is_empty(), "it is there");
        fs::write(folder.path().join("a/file"), "").unwrap();
        remove_folders(&made);
        assert!(folder.path().join("a").exists() && !folder.path().join("a/b").exists());
        options.mountpoint = folder.path().join("store/x/y");
        assert!(make_mountpoint(&options).unwrap_err().to_string().contains("inside the store"));
        assert!(!folder.path().join("store/x").exists());
    }

    #[test]
    fn store_and_mount_point_must_lie_apart() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("store/inside")).unwrap();
        let mut options = Options::new("s", folder.path().join("store/inside"));
        options.store_path = Some(folder.path().join("store"));
        assert!(sentence(check(&options)).contains("inside the store"));
        options.mountpoint = folder.path().to_owned();
        assert!(sentence(check(&options)).contains("would hide it"));
        fs::create_dir(folder.path().join("free")).unwrap();
        options.mountpoint = folder.path().join("free");
        assert!(check(&options).is_ok());
        for overlay in ["free/overlay", ""] {
            options.overlay = Some(fs::canonicalize(folder.path()).unwrap().join(overlay));
            assert!(sentence(check(&options)).contains("the overlay"));
        }
        options.overlay = None;
        let inside = folder.path().join("free/cache");
        let disk_cache =
            DiskCacheOptions { folder: inside, limit_bytes: None, is_offline: false, must_keep: false };
        options.remote = Some(RemoteOptions { disk_cache: Some(disk_cache), ..RemoteOptions::default() });
        assert!(sentence(check(&options)).contains("the disk cache"));
        options.remote = None;
        options.log_file = Some(folder.path().join("store/log"));
        assert!(sentence(check(&options)).contains("log file"));
        options.access_log = options.log_file.take();
        assert!(sentence(check(&options)).contains("access log"));
    }

    #[test]
    fn reads_are_cut_only_where_the_kernel_reads_ahead() {
        let mut options = Options::new("s", "/mnt");
        assert_eq!(kernel_data(&options, true), ",allow_other,default_permissions,max_read=524288");
        options.direct_io = true;
        assert_eq!(kernel_data(&options, false), "");
    }

    #[test]
    fn commas_in_the_source_stay_in_the_source() {
        let mut options = Options::new("/data/a,allow_other\\b", "/mnt");
        options.kernel_words = vec!["noexec".into(), "relatime".into()];
        let words = helper_words(&options, false);
        assert_eq!(words, "ro,nosuid,nodev,subtype=zarrfs,fsname=/data/a\\,allow_other\\\\b,noexec");
    }
}
