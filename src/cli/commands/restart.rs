//! `zarrfs restart MOUNTPOINT`: another daemon continues a mount.

use std::path::PathBuf;

use clap::Args;
use zarrfs::mount::daemon::mounts::mounted;

use crate::cli::exit::Outcome;

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # After an upgrade: programs that read the mount go on
  zarrfs restart mnt";

/// Continue a mount with the program that is installed now
///
/// Programs keep their open files. Only for mounts in the background, since Linux 6.9. For services of systemd, systemctl restart does the
/// same.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Where the store is mounted
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: PathBuf,
}

impl Arguments {
    /// Restarts, and returns when the mount replies.
    pub fn run(self) -> Outcome {
        Ok(mounted::restart(&self.mountpoint)?)
    }
}
