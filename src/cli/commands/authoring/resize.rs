//! `zarrfs resize STORE PATH SHAPE`: makes an array longer or shorter; with `--dim` all arrays of a group that share a dimension.

use clap::Args;
use zarrfs::array::Engine;
use zarrfs::hierarchy::author::{self, LengthChange, NewLengths};
use zarrfs::store::overlay::Access;

use crate::cli::exit::{Exit, Outcome};
use crate::cli::log;
use crate::cli::nodes::new_array::{Lengths, lengths};
use crate::cli::nodes::open;
use crate::cli::options::{CacheArguments, LogArguments, StoreArguments};

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # Longer: the new elements are fill value
  zarrfs resize data.zarr temperature 24,180,360
  # Twelve months more, in all arrays of a group at once
  zarrfs resize data.zarr climate --dim time=+12
  # Shorter: elements outside are deleted
  zarrfs resize --discard data.zarr temperature 6,180,360";

/// Make an array longer or shorter
///
/// New elements are fill value. With --dim, all arrays of a group that have the dimension get the new length together. Elements outside the new shape are deleted for good, if --discard allows it: chunks that are
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
    #[arg(value_name = "SHAPE", value_parser = lengths, required_unless_present = "dimension", conflicts_with = "dimension")]
    shape: Option<Lengths>,

    /// All arrays of the group PATH that have a dimension: its new length, or what is added (+) or taken away (-)
    #[arg(long = "dim", value_name = "NAME=[+-]N", value_parser = dimension_change)]
    dimension: Option<(String, LengthChange)>,

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
        let tree = zarrfs::hierarchy::Tree::new(store.clone());
        let engine = Engine::new(self.cache.cache_limit_bytes(), self.store.access.base.tuning().threads());
        if let Some((name, change)) = &self.dimension {
            open::node(&tree, &path)?;
            let lengths = NewLengths::begin(&engine, &store, &path, name, *change)?;
            if lengths.new < lengths.old && !self.discard {
                let sentence = "'--discard' deletes the elements after the new end";
                return Err(Exit::Usage(format!("'{name}' is {} long: {sentence}", lengths.old)));
            }
            if lengths.new > lengths.old {
                lengths.clear()?;
            }
            return Ok(lengths.publish()?);
        }
        open::array(&tree, &path)?;
        if let Some(shape) = &self.shape {
            author::resize(&engine, &store, &path, &shape.0, self.discard)?;
        }
        Ok(())
    }
}

/// Reads `NAME=N`, `NAME=+N` or `NAME=-N`.
fn dimension_change(text: &str) -> Result<(String, LengthChange), String> {
    let refused = || format!("'{text}' is not of the form NAME=N, NAME=+N or NAME=-N");
    let (name, length) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(refused)?;
    let number = |digits: &str| digits.parse().map_err(|_| refused());
    let is_signed = |sign: char| length.strip_prefix(sign).filter(|digits| !digits.starts_with('+'));
    let change = if let Some(digits) = is_signed('+') {
        LengthChange::Longer(number(digits)?)
    } else if let Some(digits) = is_signed('-') {
        LengthChange::Shorter(number(digits)?)
    } else {
        LengthChange::To(number(length)?)
    };
    Ok((name.to_owned(), change))
}
