//! `zarrfs cat STORE PATH`: the flat bytes of an array or a slice of it, or a companion file, on standard output.

mod companion;

use std::ops::ControlFlow;
use std::sync::Arc;

use clap::Args;
use zarrfs::array::{Array, Engine, EngineOptions};
use zarrfs::cancellation::Cancellation;
use zarrfs::formats::{Format, npy};
use zarrfs::hierarchy::slices::Slice;
use zarrfs::hierarchy::{Node, Tree};
use zarrfs::metadata::ArrayMetadata;

use crate::cli::exit::{Exit, Outcome};
use crate::cli::log;
use crate::cli::nodes::open;
use crate::cli::nodes::slices::{NamedPath, Selection};
use crate::cli::options::{CacheArguments, LayoutArguments, LogArguments, StoreArguments};
use crate::cli::output::progress;
use crate::cli::output::{self, BLOCK_BYTES, Reader};

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # The flat bytes of an array, as numbers
  zarrfs cat sample.zarr climate/temperature | od -A d -t f4 -N 32
  # July's first four columns, as an npy file
  zarrfs cat --format npy sample.zarr 'climate/temperature[6,:,:4]' >july.npy
  # The tropics in the first three months, by coordinates, as a netCDF file
  zarrfs cat --format nc sample.zarr 'climate[time=2000-01:2000-03,lat=-30:30]' >tropics.nc
  # A whole group as one netCDF file
  zarrfs cat --format nc sample.zarr climate >climate.nc";

/// Write an array, a slice of it, or a companion file to standard output, without mounting
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,

    /// Path of the array in the store, / if the store itself is an array; an index after it selects a slice, by positions as NumPy does ('PATH[3,:,10:20]') or by coordinates ('PATH[time=2001,lat=-30:30]'; unless an array has exactly this name)
    #[arg(value_name = "PATH")]
    path: String,

    /// Write the node in this format instead of its flat bytes: npy, nc (also a group), tiff and so on, or jsonl for strings; a header that refers to a data file expects it next to itself
    #[arg(long, value_name = "NAME")]
    format: Option<String>,

    #[command(flatten)]
    layout: LayoutArguments,

    #[command(flatten)]
    cache: CacheArguments,

    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    /// Writes the bytes. If the reader closes its end early, the command ends without an error.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let format = self.format.as_deref().map(companion::format).transpose()?;
        let tree = Tree::new(open::store(&self.store)?);
        let options =
            EngineOptions::new(self.cache.cache_limit_bytes(), self.store.access.base.tuning().threads());
        let engine = Engine::with_options(EngineOptions { page_cache_keeps: true, ..options });
        let named = NamedPath::parse(&tree, &self.path)?;
        let node = match format {
            Some(_) => open::node(&tree, &named.path)?,
            None => open::array_node(&tree, &named.path)?,
        };
        let slice = named.slice(&engine, &tree, &node)?;
        let layout = self.layout.layout();
        match (format, &slice) {
            (Some(format), slice) if slice.is_none() || *format != npy::FORMAT => {
                let subject =
                    companion::NodeToWrite { path: &named.path, node: &node, slice: slice.as_ref() };
                companion::write(format, &engine, &tree, &subject, layout)
            }
            (format, slice) => {
                self.write_slice(&engine, &tree, (&named.path, &node), slice.as_deref(), format)
            }
        }
    }

    /// Writes the elements of a slice, perhaps after the header of an npy file.
    fn write_slice(
        &self,
        engine: &Arc<Engine>,
        tree: &Tree,
        (path, node): (&str, &Node),
        slice: Option<&Slice>,
        format: Option<&'static Format>,
    ) -> Outcome {
        let Node::Array { metadata, .. } = node else {
            return Err(Exit::Failed(format!(
                "'{}' is a group: format 'nc' holds slices of it",
                open::shown(path)
            )));
        };
        let selection = Selection::new(slice, &metadata.shape);
        let layout = self.layout.layout();
        let header = match format {
            None => Vec::new(),
            Some(format) => match npy::header_for_type(&metadata.data_type, &selection.shape, layout) {
                Some(header) => header,
                None => return Err(companion::refusal(format, path, node, layout)),
            },
        };
        self.write_elements(engine, tree, path, (metadata, selection), &header)
    }

    /// Writes a header and the elements of a slice.
    fn write_elements(
        &self,
        engine: &Arc<Engine>,
        tree: &Tree,
        path: &str,
        (metadata, selection): (&Arc<ArrayMetadata>, Selection),
        header: &[u8],
    ) -> Outcome {
        let array = Array::open(engine, tree.store(), path, metadata.clone(), self.layout.layout());
        let refusal = |error| open::no_flat_bytes(tree.store(), path, metadata, &error);
        let array = array.map_err(|error| Exit::Failed(refusal(error)))?;
        if output::bytes(header)? == Reader::HasGone {
            return Ok(());
        }
        let bar = progress::output_bytes(size_bytes(&selection, metadata));
        array.read_slice(&selection.axes, &Cancellation::never(), &mut |bytes| {
            for block in bytes.chunks(BLOCK_BYTES as usize) {
                if output::bytes(block)? == Reader::HasGone {
                    return Ok(ControlFlow::Break(()));
                }
                bar.inc(block.len() as u64);
            }
            Ok::<_, Exit>(ControlFlow::Continue(()))
        })?;
        bar.finish_and_clear();
        Ok(())
    }
}

fn size_bytes(selection: &Selection, metadata: &ArrayMetadata) -> u64 {
    let item = metadata.data_type.item_size().unwrap_or(0) as u64;
    selection.axes.iter().fold(item, |bytes, axis| bytes.saturating_mul(axis.count))
}
