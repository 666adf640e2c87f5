//! `zarrfs overlay status|diff|commit|discard DIR`: shows the changes in an overlay, and commits or discards them.
//!
//! `hierarchy::commit::nodes` finds the node that a changed object belongs to. All commands begin with the overlay's list of changes, so the
//! time that they take depends on the number of changes, and not on the size of the store.

mod arguments;
mod commit;
mod diff;
mod discard;
mod status;

use clap::{Args, Subcommand};

use crate::cli::exit::Outcome;

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
/// An overlay is the folder of 'zarrfs mount --overlay DIR'. It contains every change to a store that is only read.
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

impl Arguments {
    /// Runs the subcommand.
    pub fn run(self) -> Outcome {
        match self.action {
            Action::Status(arguments) => arguments.run(),
            Action::Diff(arguments) => arguments.run(),
            Action::Commit(arguments) => arguments.run(),
            Action::Discard(arguments) => arguments.run(),
        }
    }
}
