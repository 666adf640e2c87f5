//! `zarrfs umount MOUNTPOINT`.

use std::path::PathBuf;

use clap::Args;
use zarrfs::mount::session;

use super::exit::Outcome;

/// Unmount, and return when the daemon has gone
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// Where the store is mounted
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: PathBuf,

    /// Detach at once, even where programs still use the mount
    #[arg(long)]
    force: bool,

    /// Only clean up behind a daemon that died; anything else is left alone and is no error
    #[arg(long, conflicts_with = "force")]
    stale: bool,
}

impl Arguments {
    /// Unmounts.
    pub fn run(self) -> Outcome {
        if self.stale {
            session::unmount_stale(&self.mountpoint)?;
        } else {
            session::unmount(&self.mountpoint, self.force)?;
        }
        Ok(())
    }
}
