//! Arrays as flat bytes: grid arithmetic, the chunk cache, and reading through both.
//!
//! Uses `error`, `store`, `metadata`, `codec`.
//!
//! [`Array::open`] turns metadata into a *served* array: order F is served by reversing the axes and putting a
//! transpose before the codec chain, so that everything behind it knows C order only; big-endian elements are the
//! pipeline's last fix-up.
//!
//! | room | what lives there |
//! |---|---|
//! | `geometry/` | index arithmetic: which chunks a range touches, and how their bytes lie in it |
//! | `cache/` | decoded chunks in memory |
//! | `source/` | where chunks are stored: keys, shards and their indexes, versions of objects |
//! | `write/` | from write(2) to the store: dirty chunks, encoding, write-back |
//! | `read/` | from read(2) to chunks |
//! | `readahead/` | what is decoded and copied ahead of sequential readers |
//! | `variable/` | arrays of strings and bytes, element by element |
//! | `engine.rs`, `workers.rs`, `sync.rs` | what all arrays share: the cache, the decoding threads, locks |
//! | `verify.rs` | decodes everything and reports what is damaged |
//!
//! Each room uses only those above it; the methods of `Inner` are in the room that they belong to.

mod cache;
mod engine;
mod geometry;
#[cfg(all(test, feature = "shuttle"))]
#[allow(clippy::unwrap_used, clippy::panic)]
mod interleavings;
mod read;
mod readahead;
mod source;
mod sync;
mod variable;
mod verify;
mod workers;
mod write;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::codec::Representation;
use crate::codec::byte_swap::SwapPlan;
use crate::error::{Error, Result};
use crate::metadata::{ArrayMetadata, CodecFamily, CodecSpec, ZarrFormat};
use crate::store::Store;

pub use crate::metadata::ByteOrder;
pub use cache::reservation::Reservation;
pub use engine::{Engine, EngineCounters};
use geometry::grid::{self, Grid};
use geometry::strips::Strips;
pub use read::CachedSlice;
pub use readahead::Reader;
use readahead::consumed::Consumed;
pub use readahead::replies::ReadyReply;
use source::sharded::Sharded;
use source::unsharded::{Parts, Pipelines, Plain};
use source::versions::SeenVersions;
use source::{Keys, LoadContext, Source};
use sync::OnceLock;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
pub use variable::VariableArray;
use write::dirty::WriteState;
pub use write::dirty_report::DirtyReport;

/// Which index varies fastest in the served file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Last index fastest (row-major).
    #[default]
    C,
    /// First index fastest (column-major).
    F,
}

/// How the flat file shows the elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Order of the elements.
    pub order: Order,
    /// Order of the bytes in each component of an element.
    pub byte_order: ByteOrder,
}

/// One array, open for reading as a flat file.
pub struct Array {
    inner: Arc<Inner>,
}

/// What the tasks of the decoding threads share with the array.
struct Inner {
    engine: Arc<Engine>,
    store: Arc<dyn Store>,
    metadata: Arc<ArrayMetadata>,
    /// Path of the array, `""` for the root.
    path: String,
    number: u64,
    epoch: AtomicU64,
    /// Shared with the arrays that this one grew out of.
    writing: Arc<WriteState>,
    /// The grid of chunks.
    grid: Grid,
    /// What of the chunks is read and cached by itself; chosen when the first of them is read.
    strips: OnceLock<Strips>,
    source: Box<dyn Source>,
    /// Shape of the shards in array order, where chunks are inner chunks.
    shard_shape: Option<Vec<u64>>,
    /// One element as served.
    fill: Vec<u8>,
    skipped_codecs: Vec<String>,
    served: SeenVersions,
    /// Readers that go through it in served order.
    streams: AtomicUsize,
    /// Slabs of strips that such readers were given, and keep.
    passed: Consumed,
}

impl Array {
    /// Builds the codec chain of an array at `path` (`""` is the root). Fails with `Unsupported` or `Metadata`,
    /// naming the document and the member.
    pub fn open(
        engine: &Arc<Engine>,
        store: &Arc<dyn Store>,
        path: &str,
        metadata: Arc<ArrayMetadata>,
        layout: Layout,
    ) -> Result<Arc<Array>> {
        Array::build(engine, store, path, metadata, layout, Arc::default())
    }

    /// The array that another program made of `self` by making it longer along its slowest served axis: dirty chunks,
    /// writers and the lock go over to it, and `self` stores nothing any more. `Stale` where that cannot be.
    pub fn grown(&self, metadata: Arc<ArrayMetadata>, layout: Layout) -> Result<Arc<Array>> {
        let inner = &self.inner;
        let writing = Arc::clone(&inner.writing);
        let grown = Array::build(&inner.engine, &inner.store, &inner.path, metadata, layout, writing)?;
        grown.inner.take_over(inner)?;
        // What readers hold was served by `self`, and is not compared with anything here.
        grown.inner.served.note_change();
        Ok(grown)
    }

    fn build(
        engine: &Arc<Engine>,
        store: &Arc<dyn Store>,
        path: &str,
        metadata: Arc<ArrayMetadata>,
        layout: Layout,
        writing: Arc<WriteState>,
    ) -> Result<Arc<Array>> {
        let document_key = metadata.document_key.as_str();
        let Some(item_bytes) = metadata.data_type.item_size().filter(|&size| size > 0) else {
            return Err(Error::unsupported(document_key, no_item_size(&metadata)));
        };
        let Some(mut axes) = grid::axes(&metadata.shape, &metadata.chunk_grid) else {
            return Err(Error::metadata(document_key, "the chunk grid ends before the array does"));
        };
        let is_reversed = layout.order == Order::F && axes.len() > 1;
        let mut specs = metadata.codecs.clone();
        if is_reversed {
            axes.reverse();
            specs.insert(0, reversal(axes.len()));
        }
        let decoded = Representation {
            shape: axes.iter().map(|axis| axis.longest()).collect(),
            data_type: metadata.data_type.clone(),
            fill_value: metadata.fill_value.clone(),
        };
        let byte_order = layout.byte_order;
        let mut fill = metadata.fill_value.bytes.clone();
        if byte_order == ByteOrder::Big {
            let swap = SwapPlan::all(&metadata.data_type)
                .map_err(|error| Error::unsupported(document_key, error.reason))?;
            swap.apply(&mut fill);
        }
        let pipelines = Pipelines::new(specs, decoded, byte_order, document_key)?;
        let skipped_codecs = pipelines.largest()?.skipped().to_vec();
        let keys = Keys::new(path, metadata.chunk_keys.clone(), is_reversed);
        let (source, mut shard_shape) = source(Parts { axes, keys, pipelines, fill: fill.clone() })?;
        if let Some(shape) = shard_shape.as_mut().filter(|_| is_reversed) {
            shape.reverse();
        }
        let grid = Grid::new(source.axes().to_vec(), item_bytes as u64);
        let inner = Inner {
            engine: Arc::clone(engine),
            store: Arc::clone(store),
            path: path.to_owned(),
            number: engine.number_array(),
            epoch: AtomicU64::new(0),
            writing,
            grid,
            strips: OnceLock::new(),
            source,
            shard_shape,
            fill,
            skipped_codecs,
            served: SeenVersions::default(),
            streams: AtomicUsize::new(0),
            passed: Consumed::default(),
            metadata,
        };
        Ok(Arc::new(Array { inner: Arc::new(inner) }))
    }

    /// Its metadata.
    pub fn metadata(&self) -> &Arc<ArrayMetadata> {
        &self.inner.metadata
    }

    /// Whether what is read after it was stored is always what was written.
    pub fn is_lossless(&self) -> bool {
        self.inner.source.is_lossless()
    }

    /// Length of the flat file in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.inner.grid.size_bytes()
    }

    /// Shape of the shards, where inner chunks are decoded on their own.
    pub fn shard_shape(&self) -> Option<&[u64]> {
        self.inner.shard_shape.as_deref()
    }

    /// Codecs that were skipped because they need not be understood: such an array is never written.
    pub fn skipped_codecs(&self) -> &[String] {
        &self.inner.skipped_codecs
    }
}

impl Inner {
    fn place(&self) -> LoadContext<'_> {
        LoadContext {
            store: self.store.as_ref(),
            served: &self.served,
            cache: &self.engine.cache,
            streams: Some(&self.engine.streams),
            array: self.number,
            epoch: self.epoch.load(Ordering::Acquire),
        }
    }

    fn chunk_bytes(&self) -> u64 {
        self.grid.largest_chunk_shape().iter().product::<u64>().saturating_mul(self.fill.len() as u64)
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        self.inner.engine.cache.forget_array(self.inner.number);
        self.inner.engine.objects.forget_array(self.inner.number);
        self.inner.engine.streams.forget_array(self.inner.number);
    }
}

/// A source, and the shape of its shards.
type SourceAndShards = (Box<dyn Source>, Option<Vec<u64>>);

/// The source of an array's chunks, and the served shape of its shards where chunks are inner chunks.
fn source(parts: Parts) -> Result<SourceAndShards> {
    Ok(match Sharded::new(parts)? {
        Ok(sharded) => {
            let shape = sharded.shards().iter().map(|axis| axis.longest()).collect();
            (Box::new(sharded), Some(shape))
        }
        Err(parts) => (Box::new(Plain::new(parts)?), None),
    })
}

/// Why an array has no flat form.
fn no_item_size(metadata: &ArrayMetadata) -> String {
    let stored = |member: &str| metadata.document.get(member).map(ToString::to_string).unwrap_or_default();
    let member = match metadata.zarr_format {
        ZarrFormat::V3 => "data_type".to_owned(),
        ZarrFormat::V1 | ZarrFormat::V2 => format!("dtype {}", stored("dtype")),
    };
    format!("{member}: data type {} has no fixed element size", metadata.data_type.name())
}

/// The transpose that reverses all dimensions.
fn reversal(rank: usize) -> CodecSpec {
    let order: Vec<Value> = (0..rank).rev().map(|axis| json!(axis)).collect();
    let mut configuration = serde_json::Map::new();
    configuration.insert("order".to_owned(), Value::Array(order));
    let (name, place) = ("transpose".to_owned(), "order=F".to_owned());
    CodecSpec { family: CodecFamily::V3, name, configuration, must_understand: true, place }
}
