//! `zarrfs consolidate STORE [GROUP]`: writes consolidated metadata.

use clap::Args;
use zarrfs::hierarchy::author::consolidate;
use zarrfs::store::overlay::Access;

use crate::cli::exit::{Exit, Outcome};
use crate::cli::nodes::open;
use crate::cli::options::{LogArguments, StoreArguments};
use crate::cli::output::terminal::printable;
use crate::cli::{log, output};

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # Before a store is published at a web server
  zarrfs consolidate data.zarr
  # Whether the copy is current, for a script
  zarrfs consolidate --check data.zarr";

/// Write consolidated metadata, which web servers need
///
/// A group's document gets a copy of the documents of all nodes below it, as zarr-python writes it: zarr.json in Zarr v3,
/// .zmetadata in v2. Readers then need one request for the whole hierarchy, and find the nodes where a server does not list folders.
/// zarrfs changes the copy with every array that it creates, resizes or removes. After another program did, run this again.
/// Nothing is written if the copy is current.
///
/// With --check, exit code 0 means that the copy is current, and 1 that it is missing or not current, or that the store cannot be
/// read; the reason is on standard error.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,

    /// Path of the group whose document gets the copy [default: the root]
    #[arg(value_name = "GROUP", default_value = "", hide_default_value = true)]
    group: String,

    /// Write nothing, and say whether the copy is current
    #[arg(long)]
    check: bool,

    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    /// Writes or checks the copy.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let access = if self.check { Access::Read } else { Access::Write };
        let store = open::store_for(&self.store, access)?;
        let group = open::path(&self.group);
        let found = if self.check {
            consolidate::look(store.as_ref(), &group)?
        } else {
            consolidate::write(store.as_ref(), &group)?
        };
        for path in &found.left_out {
            output::note(format_args!(
                "zarrfs: warning: '{}' has no document of the group's format, so it is left out with all that is in it",
                printable(path)
            ));
        }
        let nodes = output::count(found.nodes as u64, "node");
        match &found.difference {
            Some(difference) if self.check => Err(Exit::Failed(format!(
                "{}: the consolidated metadata is not current: {difference}; 'zarrfs consolidate' writes it",
                found.key
            ))),
            Some(_) => {
                output::line(format_args!("{}: consolidated {nodes}", printable(&found.key))).map(drop)
            }
            None => output::line(format_args!("{}: current, {nodes}", printable(&found.key))).map(drop),
        }
    }
}
