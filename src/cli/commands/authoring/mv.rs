//! `zarrfs mv STORE FROM TO`: renames an array or a group.

use clap::Args;
use zarrfs::hierarchy::author::{self, Place};
use zarrfs::metadata::ZarrFormat;
use zarrfs::store::overlay::Access;

use crate::cli::exit::{Exit, Outcome};
use crate::cli::log;
use crate::cli::nodes::new_array::existing;
use crate::cli::nodes::open;
use crate::cli::options::{LogArguments, StoreArguments};

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # Into another group
  zarrfs mv data.zarr measured results/measured";

/// Rename an array or a group, in a folder store or if it was made in the overlay
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,

    /// Path of the array or group in the store
    #[arg(value_name = "FROM")]
    from: String,

    /// Its new path, which must not exist
    #[arg(value_name = "TO")]
    to: String,

    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    /// Renames the node.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let store = open::store_for(&self.store, Access::Write)?;
        let (from, names) = (open::path(&self.from), author::names(&self.to));
        existing(&store, &from)?;
        for name in &names {
            author::check_name(name, ZarrFormat::V2)?;
        }
        let place = Place::find(&store, &names.join("/"))?;
        let last = names.last().copied().unwrap_or_default();
        author::check_name(last, place.parent_format.unwrap_or(ZarrFormat::V2))?;
        let here = author::zarr_format(&store, &from)?;
        if let (Some(above), Some(own)) = (place.parent_format, here)
            && above != own
        {
            return Err(Exit::Usage(format!("'{}' is in a group of another Zarr version", self.to)));
        }
        let _locks = author::keep_writers_out(&store, &from)?;
        Ok(author::rename(&store, &from, &place)?)
    }
}
