//! Readiness: the daemon waits until its mount replies, and reports that to the process that has started it.
//!
//! Invariant: no thread with a descriptor of `/dev/fuse` waits for this daemon's own mount.

use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread;

use crate::error::{Error, Result};
use crate::mount::daemon::procfs::mount_at;
use crate::mount::daemon::restart::call::READY;
use crate::mount::daemon::shutdown::ActiveMount;
use crate::mount::daemon::syslog;
use crate::sys;

/// The kernel's read-ahead for sequential readers, where we may set it: a few requests, so that one is
/// decoded or gathered while another one is copied.
const READ_AHEAD_KIB: u32 = 2048;

/// Reports to the waiting process, and leaves its terminal.
///
/// Not before the mount replies: on an automount point, only processes in the service manager's process group
/// get past it until then; every other process, including this one after it has left the group, has to wait.
pub(super) fn report_ready(mut report: PipeWriter) {
    // Fails only for a process that already leads its session.
    let _ = sys::leave_session();
    // From here on standard output has no reader.
    if let Ok(null) = fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let null = OwnedFd::from(null);
        for number in 0..=2 {
            let _ = sys::redirect(null.as_fd(), number);
        }
    }
    if let Err(error) = syslog::take_standard_error() {
        log::warn!("cannot log to the system log: {error}");
    }
    let _ = report.write_all(&[READY]);
}

/// In the calling process: waits for the daemon's report.
pub(super) fn wait_until_ready(mut reader: PipeReader) -> Result<()> {
    let mut text = Vec::new();
    let read = reader.read_to_end(&mut text);
    match (read, text.as_slice()) {
        (Ok(_), [READY, ..]) => Ok(()),
        (Ok(_), []) => {
            Err(Error::Usage("the daemon exited before the mount was ready and gave no reason".to_owned()))
        }
        (Ok(_), reason) => Err(Error::Usage(String::from_utf8_lossy(reason).into_owned())),
        (Err(error), _) => Err(Error::Usage(format!("cannot read the report of the daemon: {error}"))),
    }
}

/// Returns when the first stat of the mount succeeds, and tunes what exists only from then on.
pub(super) fn wait_for_first_answer(mount: &ActiveMount) {
    let options = mount.fs.options();
    if mount.is_given() {
        log::info!("{} is served on {}", options.source, options.mountpoint.display());
        return;
    }
    if mount.is_kept() {
        // A thread that waits for its own process would live on, and with it the process, until another daemon replies.
        if let Ok(Some(entry)) = mount_at(&options.mountpoint) {
            mount.note_entry(&entry);
            raise_read_ahead(&entry.device);
        }
    } else {
        match stat_apart(options.mountpoint.clone()) {
            Ok(metadata) => {
                let device = format!("{}:{}", libc::major(metadata.dev()), libc::minor(metadata.dev()));
                raise_read_ahead(&device);
                mount.note_device(device);
            }
            Err(error) => log::warn!("cannot stat the root of the mount: {error}"),
        }
    }
    log::info!("{} is mounted on {}", options.source, options.mountpoint.display());
}

/// Makes a thread without /dev/fuse stat the mount point.
///
/// A thread that waits for its own process cannot be killed. If it shared the descriptors, a daemon that is killed meanwhile would
/// keep /dev/fuse open. Then the kernel would wait for its reply without end, and so would each program that touches the mount.
fn stat_apart(mountpoint: PathBuf) -> io::Result<fs::Metadata> {
    let stat = move || {
        // Older kernels do not have this call, and wait.
        let _ = sys::leave_descriptors();
        fs::metadata(mountpoint)
    };
    let thread = thread::Builder::new().name("zarrfs-stat".to_owned()).spawn(stat)?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that asks for it has ended")))
}

/// More read-ahead than FUSE may request by itself (+60% in sequential reads), where we may write to sysfs.
fn raise_read_ahead(device: &str) {
    let path = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = fs::write(&path, READ_AHEAD_KIB.to_string()) {
        log::debug!("{path}: {error}; sequential reads may be slower");
    }
}
