//! `zarrfs import FILE STORE [PATH]`: brings in the data of a file of another format.
//!
//! `elements.rs` makes one array of an .npy file or of raw elements. `variables.rs` makes a group of the variables of netCDF, HDF5 and TIFF, and
//! `append.rs` appends them to the arrays of a group. `slices.rs` finds the part that `FILE[INDEX]` names.

mod append;
mod elements;
mod input;
mod slices;
mod variables;

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use clap::Args;
use zarrfs::array::{Engine, EngineOptions};
use zarrfs::formats::sources::{self, SourceFile};

use crate::cli::exit::{Exit, Outcome};
use crate::cli::log;
use crate::cli::nodes::new_array::{Lengths, NodeArguments, StorageArguments, lengths};
use crate::cli::options::{CacheArguments, LogArguments, OrderChoice};
use input::{Input, NamedFile};

/// The most bytes of a stream that say what is in it.
const MAGIC_BYTES: u64 = 8;

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # All variables of a netCDF file, as a new store
  zarrfs import climate.nc data.zarr
  # Twelve months more, in all variables at once
  zarrfs import --append time year2002.nc data.zarr
  # One group of an HDF5 file, into a store that exists
  zarrfs import run.h5:/entry/detector data.zarr detector
  # A part of a variable, and a year of all variables
  zarrfs import 'climate.nc:/t2m[0:10,:,3]' part.zarr
  zarrfs import 'climate.nc[time=2001,lat=-30:30]' tropics.zarr
  # An image
  zarrfs import cells.tif images.zarr cells
  # An npy file, in a new store
  zarrfs import --new measured.npy data.zarr measured
  # Raw big-endian numbers from another program
  generate | zarrfs import --shape 100,200 --dtype '>f4' - data.zarr generated";

/// Create arrays from netCDF, HDF5, TIFF, .npy or raw elements
///
/// Of netCDF and HDF5 files every group and variable comes in, with attributes and dimension names; packed values stay packed. With
/// --shape and --dtype the file holds raw elements. An index after FILE or PATH imports a part: NumPy's indices by axis ([0:10,:,3]),
/// coordinates by name ([time=2001-03:2001-06,lat=-30:30]). --cache-size bounds the memory. In a folder store the new node appears in one step
/// when all of it is stored. An interrupted import leaves nothing visible, and the next command that writes there removes what is left.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// The file, and with :/PATH a group or variable in it, and with [INDEX] a part; - for standard input (.npy and raw elements)
    #[arg(value_name = "FILE")]
    file: String,

    /// The store: a folder, or a URL (s3:, gs:, az:, file:); with --overlay also a zip file or a web server
    #[arg(value_name = "STORE")]
    store: String,

    /// Path of the new node in the store [default: netCDF, HDF5 and TIFF become a new store]
    #[arg(value_name = "PATH")]
    path: Option<String>,

    /// Append the file to all arrays of the group PATH that have this dimension
    #[arg(long, value_name = "DIM", conflicts_with_all = ["new", "parents", "attributes", "shape"])]
    append: Option<String>,

    /// Leave out this variable, or group with everything in it; may be repeated
    #[arg(long, value_name = "NAME")]
    exclude: Vec<String>,

    #[command(flatten)]
    node: NodeArguments,

    /// Raw elements: length of each dimension
    #[arg(long, value_name = "N,N,…", value_parser = lengths, requires = "dtype")]
    shape: Option<Lengths>,

    /// Raw elements: their type, with > before it for big-endian
    #[arg(long, value_name = "TYPE", requires = "shape")]
    dtype: Option<String>,

    /// Raw elements: C if the last index varies fastest, F if the first one does
    #[arg(long, value_name = "C|F", default_value = "C", ignore_case = true, hide_possible_values = true)]
    order: OrderChoice,

    #[command(flatten)]
    storage: StorageArguments,

    #[command(flatten)]
    cache: CacheArguments,

    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    /// Imports the file.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let named = NamedFile::parse(&self.file);
        let input = self.input(&named)?;
        if let Input::File { file, .. } = &input
            && self.shape.is_none()
            && let Some(source) = self.variables(file, &named)?
        {
            return match &self.append {
                Some(dimension) => self.append(source, dimension),
                None => self.import_variables(source),
            };
        }
        if self.append.is_some() || !self.exclude.is_empty() || !named.inside.is_empty() {
            let sentence = "it is not a netCDF, HDF5 or TIFF file, which have variables";
            return Err(Exit::Usage(format!("{}: {sentence}", self.file)));
        }
        self.import_elements(input, named.index)
    }

    fn is_excluded(&self, path: &str) -> bool {
        self.exclude.iter().any(|name| is_at_or_below(path, name.trim_matches('/')))
    }

    /// Returns an engine that writes.
    fn engine(&self) -> Arc<Engine> {
        let limit_bytes = self.cache.cache_limit_bytes();
        let options = EngineOptions::new(limit_bytes / 4, self.node.access.base.tuning().threads());
        // Nothing is read back, so most of the memory is for chunks that are not full yet.
        let dirty_limit_bytes = limit_bytes / 4 * 3;
        Engine::with_options(EngineOptions { dirty_limit_bytes, writeback_delay: None, ..options })
    }

    /// Returns the wanted variables, and of these the wanted parts; `None` if the file is not one that has variables.
    fn variables(&self, file: &File, named: &NamedFile<'_>) -> Outcome<Option<SourceFile>> {
        let is_wanted = |path: &str| {
            named.candidates().any(|above| is_at_or_below(path, above)) && !self.is_excluded(path)
        };
        let coordinates = named.coordinate_paths();
        let is_read = |path: &str| is_wanted(path) || coordinates.iter().any(|known| known == path);
        let Some(mut source) = sources::open(file, &self.file, &is_read)? else { return Ok(None) };
        let mut inside = named.inside;
        match named.index {
            // A node with exactly this name wins over an index.
            Some(_) if !named.inside_whole.is_empty() && source.has_node(named.inside_whole) => {
                inside = named.inside_whole;
            }
            Some(index) => source = self.sliced(source, inside, index)?,
            None => {}
        }
        let is_wanted = |path: &str| is_at_or_below(path, inside) && !self.is_excluded(path);
        Ok(Some(source.select(inside, &is_wanted)?))
    }

    /// Opens the file.
    fn input(&self, named: &NamedFile<'_>) -> Outcome<Input> {
        let name = named.file;
        let failed = |error: std::io::Error| Exit::Failed(format!("cannot read {name}: {error}"));
        let input = if name == "-" {
            self.stream(Box::new(std::io::stdin()))?
        } else {
            let file = File::open(name).map_err(failed)?;
            let metadata = file.metadata().map_err(failed)?;
            if metadata.is_dir() {
                return Err(Exit::Usage(format!(
                    "{name} is a folder: name a netCDF, HDF5, TIFF or .npy file"
                )));
            }
            if metadata.is_file() {
                return Ok(Input::File { file, start: 0, left_bytes: metadata.len() });
            }
            self.stream(Box::new(file))?
        };
        if named.index.is_some() {
            let sentence =
                "a stream is read in order and as a whole: save it to a file, and import a part of that";
            return Err(Exit::Usage(format!("{}: {sentence}", self.file)));
        }
        Ok(input)
    }

    /// Refuses a stream of a file that is not read in order.
    fn stream(&self, mut stream: Box<dyn Read + Send>) -> Outcome<Input> {
        let mut start = Vec::new();
        let read = stream.by_ref().take(MAGIC_BYTES).read_to_end(&mut start);
        read.map_err(|error| Exit::Failed(format!("cannot read {}: {error}", self.file)))?;
        if self.shape.is_none() && sources::is_known(&start) {
            let sentence = "netCDF, HDF5 and TIFF are not read in order: save it to a file, and import that";
            return Err(Exit::Usage(format!("{}: {sentence}", self.file)));
        }
        Ok(Input::Stream(Box::new(std::io::Cursor::new(start).chain(stream))))
    }
}

/// Whether a path is another one, or below it; `""` is above all.
fn is_at_or_below(path: &str, above: &str) -> bool {
    above.is_empty() || path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
