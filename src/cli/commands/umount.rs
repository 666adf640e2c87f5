//! `zarrfs umount MOUNTPOINT`, and `umount.fuse.zarrfs`, which umount(8) calls so that it waits until everything is stored.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Parser};
use zarrfs::error::Result;
use zarrfs::mount::daemon::mounts::mounted;
use zarrfs::mount::daemon::session;

use super::commit;
use crate::cli::exit::{Exit, Outcome};
use crate::cli::options::usage;
use crate::cli::output;

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # Returns when everything is stored
  zarrfs umount mnt
  # With a snapshot of what was written to an Icechunk repository
  zarrfs umount --commit-message 'bias corrected' mnt
  # Even if programs still use it
  zarrfs umount --force mnt
  # After a crash of the daemon
  zarrfs umount --stale mnt";

/// Unmount, and return when everything is stored
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Where the store is mounted
    #[arg(value_name = "MOUNTPOINT", required_unless_present = "all", conflicts_with = "all")]
    mountpoint: Option<PathBuf>,

    /// Unmount every zarrfs mount of this user, and report the outcome of each
    #[arg(long)]
    all: bool,

    /// Detach at once, even if programs still use the mount
    #[arg(long)]
    force: bool,

    /// Only clean up after a daemon that died; leave everything else alone, without an error
    #[arg(long, conflicts_with = "force")]
    stale: bool,

    /// Icechunk: commit the changes first, with this message; if that fails, the mount stays
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["all", "force", "stale"])]
    commit_message: Option<String>,
}

impl Arguments {
    /// Unmounts the store.
    pub fn run(self) -> Outcome {
        match &self.mountpoint {
            Some(mountpoint) => {
                if let Some(message) = &self.commit_message {
                    commit::before_unmounting(mountpoint, message.clone())?;
                }
                if let Some(warning) = self.unmount(mountpoint).map_err(report_error)? {
                    output::note_lines(format_args!("zarrfs: warning: {warning}"));
                }
                Ok(())
            }
            None => self.unmount_all(),
        }
    }

    fn unmount(&self, mountpoint: &Path) -> Result<Option<String>> {
        if self.stale {
            session::unmount_stale(mountpoint).map(|()| None)
        } else {
            session::unmount(mountpoint, self.force)
        }
    }

    fn unmount_all(&self) -> Outcome {
        let mut has_failed = false;
        for mountpoint in mounted::own_mountpoints()? {
            let shown = mountpoint.display();
            match self.unmount(&mountpoint) {
                // A mount with a running daemon stays.
                Ok(_) if self.stale && mounted::at(&mountpoint).is_ok() => {}
                Ok(None) => output::line(format_args!("{shown}: unmounted")).map(|_| ())?,
                Ok(Some(warning)) => output::note_lines(format_args!("zarrfs: warning: {warning}")),
                Err(error) => {
                    has_failed = true;
                    drop(report_error(error));
                }
            }
        }
        if has_failed { Err(Exit::Reported) } else { Ok(()) }
    }
}

/// Prints why unmounting failed, perhaps with a list of what is not stored, in which the daemon has escaped the names.
fn report_error(error: zarrfs::error::Error) -> Exit {
    output::note_lines(format_args!("zarrfs: {error}"));
    Exit::Reported
}

/// `umount.fuse.zarrfs`, as umount(8) calls it.
#[derive(Debug, Parser)]
#[command(name = "umount.fuse.zarrfs", version, args_override_self = true)]
struct Helper {
    mountpoint: OsString,
    /// Detach at once
    #[arg(short = 'l')]
    lazy: bool,
    /// Detach at once
    #[arg(short = 'f')]
    force: bool,
    /// Do not write /etc/mtab (it never is)
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Remount read-only where unmounting fails (not supported)
    #[arg(short = 'r')]
    read_only: bool,
    /// Be verbose
    #[arg(short = 'v')]
    verbose: bool,
    /// The filesystem type (ignored)
    #[arg(short = 't')]
    filesystem_type: Option<OsString>,
    /// Options (ignored)
    #[arg(short = 'o')]
    words: Vec<OsString>,
}

/// Returns the command line of `zarrfs umount` that means the same as umount(8)'s call.
pub fn translate_helper_call(arguments: Vec<OsString>) -> Outcome<Option<Vec<OsString>>> {
    let Some(helper) = usage::parse_helper_call::<Helper>(arguments)? else { return Ok(None) };
    if helper.verbose {
        output::note(format_args!("umount.fuse.zarrfs: {}", helper.mountpoint.to_string_lossy()));
    }
    let mut line: Vec<OsString> = vec!["zarrfs".into(), "umount".into()];
    line.extend((helper.lazy || helper.force).then(|| "--force".into()));
    line.extend(["--".into(), helper.mountpoint]);
    Ok(Some(line))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn umount_8_is_understood() {
        let translated = |line: &str| {
            translate_helper_call(line.split(' ').map(OsString::from).collect()).unwrap().unwrap()
        };
        let plain = translated("umount.fuse.zarrfs /mnt -n -v -t fuse.zarrfs");
        assert_eq!(plain, ["zarrfs", "umount", "--", "/mnt"]);
        assert_eq!(translated("umount.fuse.zarrfs -l /mnt"), ["zarrfs", "umount", "--force", "--", "/mnt"]);
    }
}
