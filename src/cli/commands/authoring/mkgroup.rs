//! `zarrfs mkgroup STORE PATH`: makes a group.

use clap::Args;
use zarrfs::hierarchy::author;
use zarrfs::metadata::author::group_documents;

use crate::cli::exit::Outcome;
use crate::cli::log;
use crate::cli::nodes::new_array::{PlaceArguments, refused};
use crate::cli::options::LogArguments;

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # A group, and the groups above it
  zarrfs mkgroup --parents data.zarr results/monthly";

/// Create a group
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    place: PlaceArguments,

    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    /// Makes the group.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let destination = self.place.destination()?;
        let documents = group_documents(destination.zarr_format, &destination.attributes).map_err(refused)?;
        Ok(author::create(&destination.store, &destination.place, documents)?)
    }
}
