//! `zarrfs resize STORE PATH SHAPE`: makes an array longer or shorter.

use clap::Args;
use zarrfs::array::Engine;
use zarrfs::hierarchy::author;
use zarrfs::store::overlay::Access;

use crate::cli::exit::Outcome;
use crate::cli::log;
use crate::cli::nodes::new_array::{Lengths, lengths};
use crate::cli::nodes::open;
use crate::cli::options::{CacheArguments, LogArguments, StoreArguments};

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # Longer: the new elements are fill value
  zarrfs resize data.zarr temperature 24,180,360
  # Shorter: elements outside are deleted
  zarrfs resize --discard data.zarr temperature 6,180,360";

/// Make an array longer or shorter
///
/// New elements are fill value. Elements outside the new shape are deleted for good, if --discard allows it: chunks that are
/// only partly inside are rewritten.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,

    /// Path of the array in the store; / if the store itself is an array
    #[arg(value_name = "PATH")]
    path: String,

    /// The new length of each dimension
    #[arg(value_name = "SHAPE", value_parser = lengths)]
    shape: Lengths,

    /// Delete the elements outside the new shape
    #[arg(long)]
    discard: bool,

    #[command(flatten)]
    cache: CacheArguments,

    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    /// Resizes the array.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let store = open::store_for(&self.store, Access::Write)?;
        let path = open::path(&self.path);
        open::array(&zarrfs::hierarchy::Tree::new(store.clone()), &path)?;
        let engine = Engine::new(self.cache.cache_limit_bytes(), self.store.access.base.tuning().threads());
        author::resize(&engine, &store, &path, &self.shape.0, self.discard)?;
        Ok(())
    }
}
