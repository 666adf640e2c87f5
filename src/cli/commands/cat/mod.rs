//! `zarrfs cat STORE PATH`: the flat bytes of an array or a slice of it, or a companion file, on standard output.

mod companion;
pub mod index;

use std::ops::ControlFlow;
use std::sync::Arc;

use clap::Args;
use zarrfs::array::{Array, Engine, EngineOptions};
use zarrfs::cancellation::Cancellation;
use zarrfs::error::{Error, Result};
use zarrfs::formats::{Format, npy};
use zarrfs::hierarchy::{Node, Tree};
use zarrfs::metadata::ArrayMetadata;

use crate::cli::exit::{Exit, Outcome};
use crate::cli::log;
use crate::cli::nodes::open;
use crate::cli::options::{CacheArguments, LayoutArguments, LogArguments, StoreArguments};
use crate::cli::output::progress;
use crate::cli::output::{self, BLOCK_BYTES, Reader};
use index::Slice;

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # The flat bytes of an array, as numbers
  zarrfs cat sample.zarr climate/temperature | od -A d -t f4 -N 32
  # July's first four columns, as an npy file
  zarrfs cat --format npy sample.zarr 'climate/temperature[6,:,:4]' >july.npy
  # A whole group as one netCDF file
  zarrfs cat --format nc sample.zarr climate >climate.nc";

/// Write an array, a slice of it, or a companion file to standard output, without mounting
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,

    /// Path of the array in the store, / if the store itself is an array; a NumPy index after it selects a slice: 'PATH[3,:,10:20]' (unless an array has exactly this name)
    #[arg(value_name = "PATH")]
    path: String,

    /// Write the node in this format instead of its flat bytes: npy (also a slice), nc (also a group), tiff and so on, or jsonl for strings; a header that refers to a data file expects it next to itself
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
        let whole = open::path(&self.path);
        // A node with this very name wins over an index.
        let index = match index::split(&self.path) {
            Some((path, index)) if !is_node(&tree, &whole)? => Some((open::path(path), index)),
            _ => None,
        };
        match (format, index) {
            (Some(format), None) => {
                let node = open::node(&tree, &whole)?;
                companion::write(format, &engine, &tree, (&whole, &node), self.layout.layout())
            }
            (format, Some((path, index))) => self.write_slice(&engine, &tree, (&path, index), format),
            (None, None) => {
                let metadata = open::array(&tree, &whole)?;
                let index = Slice::whole(&metadata.shape);
                self.write_elements(&engine, &tree, &whole, (metadata, index), &[])
            }
        }
    }

    fn write_slice(
        &self,
        engine: &Arc<Engine>,
        tree: &Tree,
        (path, index): (&str, &str),
        format: Option<&'static Format>,
    ) -> Outcome {
        if let Some(format) = format.filter(|format| **format != npy::FORMAT) {
            return Err(Exit::Usage(format!(
                "format '{}' does not take an index: a slice is written as flat bytes or as npy",
                format.name
            )));
        }
        let metadata = open::array(tree, path)?;
        let slice = index::parse(index, &metadata.shape)?;
        let layout = self.layout.layout();
        let header = match format {
            None => Vec::new(),
            Some(format) => match npy::header_for_type(&metadata.data_type, &slice.shape, layout) {
                Some(header) => header,
                None => {
                    let node = open::node(tree, path)?;
                    return Err(companion::refusal(format, path, &node, layout));
                }
            },
        };
        self.write_elements(engine, tree, path, (metadata, slice), &header)
    }

    /// Writes a header and the elements of a slice.
    fn write_elements(
        &self,
        engine: &Arc<Engine>,
        tree: &Tree,
        path: &str,
        (metadata, slice): (Arc<ArrayMetadata>, Slice),
        header: &[u8],
    ) -> Outcome {
        let array = Array::open(engine, tree.store(), path, metadata.clone(), self.layout.layout());
        let refusal = |error| open::no_flat_bytes(tree.store(), path, &metadata, &error);
        let array = array.map_err(|error| Exit::Failed(refusal(error)))?;
        if output::bytes(header)? == Reader::HasGone {
            return Ok(());
        }
        let bar = progress::output_bytes(slice.size_bytes(array.metadata()));
        array.read_slice(&slice.axes, &Cancellation::never(), &mut |bytes| {
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

/// Returns whether there is a node with exactly this name. Offline the cache may not know, because the name was never looked up: then it is
/// an index.
fn is_node(tree: &Tree, path: &str) -> Result<bool> {
    let is_unknown = |error: &Error| matches!(error, Error::Store { source, .. } if source.kind() == std::io::ErrorKind::NetworkUnreachable);
    match tree.node(path) {
        Err(error) | Ok(Some(Node::Broken { error, .. })) if is_unknown(&error) => Ok(false),
        found => Ok(found?.is_some()),
    }
}

impl Slice {
    fn size_bytes(&self, metadata: &ArrayMetadata) -> u64 {
        let item = metadata.data_type.item_size().unwrap_or(0) as u64;
        self.axes.iter().fold(item, |bytes, axis| bytes.saturating_mul(axis.count))
    }
}
