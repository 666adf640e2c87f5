//! `zarrfs overlay status|diff|commit|discard DIR`: what an overlay changes, and what becomes of it.
//!
//! `nodes.rs` finds the node that a changed object belongs to. Everything begins with the overlay's list of changes, so the time
//! that a command takes depends on what is changed, and not on the size of the store.

mod commit;
mod diff;
mod discard;
mod status;

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use zarrfs::error::grouped;
use zarrfs::store::overlay::{Access, Over, OverlayOptions, OverlayStore};
use zarrfs::store::versions::VersionChoice;
use zarrfs::store::{self, StoreOptions};

use crate::cli::exit::Outcome;
use crate::cli::log;
use crate::cli::options::{BaseArguments, LogArguments};

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # A mount that keeps its changes in a folder
  zarrfs mount --writable --overlay changes sample.zarr mnt
  # What programs have changed: nodes and sizes, then values
  zarrfs overlay status changes
  zarrfs overlay diff changes
  # Write it into the store, or discard it
  zarrfs overlay commit changes
  zarrfs overlay discard changes
  # Only the changes of one array
  zarrfs overlay discard changes climate/temperature";

/// Show, write back or discard the changes in an overlay
///
/// An overlay is the folder of 'zarrfs mount --overlay DIR'. It holds every change to a store that is only read.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Clone, Debug)]
enum Action {
    Status(status::Arguments),
    Diff(diff::Arguments),
    Commit(commit::Arguments),
    Discard(discard::Arguments),
}

/// The overlay that a command is about.
#[derive(Args, Clone, Debug)]
struct OverlayArguments {
    /// The folder of the overlay, which knows its store
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    #[command(flatten)]
    base: BaseArguments,

    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    /// Does what the word says.
    pub fn run(self) -> Outcome {
        match self.action {
            Action::Status(arguments) => arguments.run(),
            Action::Diff(arguments) => arguments.run(),
            Action::Commit(arguments) => arguments.run(),
            Action::Discard(arguments) => arguments.run(),
        }
    }
}

impl OverlayArguments {
    /// Opens the overlay over its store.
    fn open(&self, access: Access) -> Outcome<Arc<OverlayStore>> {
        log::start(&self.log)?;
        let over = Over::read(&self.folder)?;
        let mut options = self.base.options(&over.location)?;
        options.remote.endpoint_url = options.remote.endpoint_url.or(over.endpoint_url);
        options.remote.region = options.remote.region.or(over.region);
        if options.version == VersionChoice::default() {
            options.version.branch = over.branch;
        }
        let overlay = Some(OverlayOptions { folder: self.folder.clone(), access });
        Ok(store::open_overlay(&over.location, &StoreOptions { overlay, ..options })?)
    }
}

/// `1 chunk`, `2,000 chunks`.
fn count(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}
