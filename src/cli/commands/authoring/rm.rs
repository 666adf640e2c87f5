//! `zarrfs rm STORE PATH`: removes an array or a group.

use clap::Args;
use zarrfs::hierarchy::{Node, Tree, author};
use zarrfs::store::overlay::Access;

use crate::cli::exit::{Exit, Outcome};
use crate::cli::nodes::new_array::existing;
use crate::cli::nodes::open;
use crate::cli::options::{LogArguments, StoreArguments};
use crate::cli::{log, output};

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # An array, after asking
  zarrfs rm data.zarr measured
  # A group and everything in it, without asking
  zarrfs rm --yes data.zarr results";

/// Remove an array, or a group and everything in it
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,

    /// Path of the array or group in the store
    #[arg(value_name = "PATH")]
    path: String,

    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    yes: bool,

    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    /// Removes the node if the user agrees.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let store = open::store_for(&self.store, Access::Write)?;
        let path = open::path(&self.path);
        let node = existing(&store, &path)?;
        if !self.yes {
            let what = match node {
                Node::Group { .. } => {
                    let below = Tree::for_one_look(store.clone()).walk(&path, usize::MAX).count() - 1;
                    format!("the group '{}' with {below} nodes in it", open::shown(&path))
                }
                _ => format!("the array '{}'", open::shown(&path)),
            };
            let question = format!("Remove {what}? This cannot be undone.");
            if !output::is_confirmed(&question, &format!("remove {what}"))? {
                return Err(Exit::Failed("nothing was removed".to_owned()));
            }
        }
        let _locks = author::keep_writers_out(&store, &path)?;
        Ok(author::remove(&store, &path)?)
    }
}
