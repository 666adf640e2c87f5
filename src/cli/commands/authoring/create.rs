//! `zarrfs create STORE PATH --shape … --dtype …`: makes an array. `mkgroup.rs` has `zarrfs mkgroup STORE PATH`.

use std::sync::Arc;

use clap::Args;
use zarrfs::array::{Array, Engine, Layout};
use zarrfs::error::Error;
use zarrfs::hierarchy::author;
use zarrfs::metadata::author::{ElementType, NodeDocument, like, with_shape};
use zarrfs::metadata::parse_array;
use zarrfs::store::{Store, join};

use crate::cli::exit::{Exit, Outcome};
use crate::cli::log;
use crate::cli::nodes::new_array::{
    Destination, Lengths, PlaceArguments, StorageArguments, lengths, refused,
};
use crate::cli::options::LogArguments;

/// The longest document that is copied.
const MAX_DOCUMENT_BYTES: u64 = 64 << 20;

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # An array with named dimensions, in a new store
  zarrfs create --new --shape 12,180,360 --dtype float32 --dims time,lat,lon data.zarr temperature
  # Shards of 64 chunks
  zarrfs create --shape 512,512 --dtype u2 --chunks 64,64 --shards 512,512 data.zarr counts
  # Another array like that one
  zarrfs create --like counts data.zarr again";

/// Create an array filled with its fill value
///
/// The metadata is what zarr-python writes for the same call. The array appears in one step, also in consolidated metadata
/// above it. docs/authoring.md has the defaults.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    place: PlaceArguments,

    /// Length of each dimension; empty for none
    #[arg(long, value_name = "N,N,…", value_parser = lengths, required_unless_present = "like")]
    shape: Option<Lengths>,

    /// Type of the elements: NumPy's or Zarr's name (float32, <f4, datetime64[ns], S8, bfloat16), or JSON for a struct
    #[arg(long, value_name = "TYPE", required_unless_present = "like")]
    dtype: Option<String>,

    /// Copy shape (unless given), type, chunks, codecs, fill value and attributes from this array of the same store
    #[arg(long, value_name = "PATH", conflicts_with_all = ["dtype", "chunks", "shards", "codecs", "fill_value", "dims"])]
    like: Option<String>,

    #[command(flatten)]
    storage: StorageArguments,

    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    /// Makes the array.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let element = self.dtype.as_deref().map(ElementType::parse).transpose().map_err(refused)?;
        let array = element.as_ref().zip(self.shape.as_ref());
        if let (Some(zarr_format), Some((element, shape))) = (self.place.node.format_in_new_store(), array) {
            // An array that cannot be made leaves no new store behind.
            self.storage.documents((zarr_format, &self.place.node.attributes()?), &shape.0, element)?;
        }
        let destination = self.place.destination()?;
        let documents = match (&self.like, array) {
            (Some(like), _) => self.documents_like(&destination, like)?,
            (None, Some((element, shape))) => {
                self.storage.warn_without_names(&destination);
                self.storage.documents(destination.node(), &shape.0, element)?
            }
            (None, None) => return Err(Exit::Usage("--shape and --dtype are missing".to_owned())),
        };
        check(&destination.store, &destination.place.path, &documents)?;
        Ok(author::create(&destination.store, &destination.place, documents)?)
    }

    fn documents_like(&self, destination: &Destination, path: &str) -> Outcome<Vec<NodeDocument>> {
        let mut documents = Vec::new();
        for name in [".zattrs", "zarr.json", ".zarray"] {
            let key = join(&crate::cli::nodes::open::path(path), name);
            let Some(text) = destination.store.get(&key, MAX_DOCUMENT_BYTES)? else { continue };
            let text = String::from_utf8(text).map_err(|_| Error::metadata(&key, "not UTF-8"))?;
            if name == ".zattrs" || parse_array(&key, text.as_bytes())?.is_some() {
                documents.push(NodeDocument { name, text });
            }
        }
        let Some(main) = documents.last_mut().filter(|document| document.name != ".zattrs") else {
            return Err(Exit::Failed(format!(
                "'{path}' is not an array of Zarr v2 or v3 with a document of its own"
            )));
        };
        if let Some(shape) = &self.shape {
            main.text = with_shape(&main.text, &shape.0).map_err(refused)?;
        }
        like(documents, destination.zarr_format, &destination.attributes).map_err(refused)
    }
}

/// Refuses documents of an array that zarrfs could not read and write.
pub fn check(store: &Arc<dyn Store>, path: &str, documents: &[NodeDocument]) -> Outcome {
    let Some(main) = documents.last() else { return Ok(()) };
    let key = join(path, main.name);
    let refused = |error: Error| Exit::Usage(error.to_string());
    let Some(metadata) = parse_array(&key, main.text.as_bytes()).map_err(refused)? else { return Ok(()) };
    let engine = Engine::new(0, 1);
    Array::open(&engine, store, path, Arc::new(metadata), Layout::default()).map(drop).map_err(refused)
}
