//! Arrays as flat files.
//!
//! A **chunk** is the smallest part of an array that decodes on its own: an inner chunk of a shard, or a chunk of the
//! chunk grid where the array is not sharded. All of this layer uses the word in this sense. A **stored object** holds
//! one shard or one such chunk.
//!
//! [`Array::open`] turns metadata into the *served* array: the elements in the order in which the file shows them. For
//! another order than C it permutes the axes and puts a transpose before the codec chain, so all later code knows order C only.
//! Big-endian elements are a last fix-up of the pipeline.
//!
//! Uses `error`, `memory`, `metadata`, `store`, `codec`, `cancellation` and `sys`.
//!
//! | room | what lives there |
//! |---|---|
//! | `geometry/` | index arithmetic: the chunks that a range touches, and where their bytes lie in it |
//! | `cache/` | decoded chunks in memory |
//! | `source/` | where chunks are stored: keys, shards and their indexes, versions of objects |
//! | `write/` | from write(2) to the store: dirty chunks, encoding, write-back |
//! | `read/` | from read(2) to chunks |
//! | `readahead/` | decoding and copying ahead of sequential readers |
//! | `variable/` | arrays of strings and bytes, element by element |
//! | `interleavings/` | tests under random schedules |
//! | `request.rs` | one read of a reader: chooses among what the folders above have |
//! | `slice.rs` | the elements of a slice, each chunk loaded once |
//! | `engine.rs`, `workers.rs`, `sync.rs` | what all arrays share: the cache, the decoding threads, locks |
//! | `verify.rs` | decodes every stored chunk and reports damage |
//!
//! A folder uses only the folders above it in this list. The methods of `Inner` live in the folder of their subject.

mod cache;
mod engine;
mod geometry;
#[cfg(all(test, feature = "shuttle"))]
#[allow(clippy::unwrap_used, clippy::panic)]
mod interleavings;
mod read;
mod readahead;
mod request;
mod slice;
mod source;
mod sync;
mod variable;
mod verify;
mod workers;
mod write;

use std::sync::Arc;

use serde_json::json;

use crate::codec::Representation;
use crate::codec::byte_swap::SwapPlan;
use crate::error::{Error, Result};
use crate::metadata::{ArrayMetadata, CodecFamily, CodecSpec, ZarrFormat, form_of_document};
use crate::store::{ArrayForm, Store};

pub use crate::metadata::ByteOrder;
pub use cache::reservation::Reservation;
pub use engine::{Engine, EngineCounters, EngineOptions};
use geometry::axis_order::AxisOrder;
use geometry::grid::{self, Grid};
pub use geometry::selection::AxisSelection;
use geometry::strips::Strips;
pub use read::plan::ReadPlan;
pub use read::reply_buffer::{CachedSlice, ReadData, ReplyBuffer};
use readahead::consumed::Consumed;
pub use readahead::{Readahead, Reader};
pub use request::{Blocking, ReadRequest};
pub use slice::WriteBytes;
use source::keys::Keys;
use source::load_context::LoadContext;
use source::pipelines::Pipelines;
pub use source::stored_objects::StoredObjects;
pub use source::strays::Strays;
use source::versions::SeenVersions;
use source::{Parts, Source};
use sync::OnceLock;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
pub use variable::{ChunkOfStrings, VariableArray};
pub use verify::CheckOutcome;
use write::dirty::WriteState;
pub use write::dirty_report::DirtyReport;
pub use write::whole_objects::Elements;
pub use write::{PendingWrite, lock_folder};

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

/// A layout, perhaps with another axis as the slowest.
#[derive(Clone, Copy)]
struct Served {
    layout: Layout,
    slowest: Option<usize>,
}

/// One array, served as a flat file.
pub struct Array {
    inner: Arc<Inner>,
}

/// The part of an array that tasks of the decoding threads share.
struct Inner {
    engine: Arc<Engine>,
    store: Arc<dyn Store>,
    metadata: Arc<ArrayMetadata>,
    /// Path of the array, `""` for the root.
    path: String,
    number: u64,
    epoch: AtomicU64,
    /// Shared with the arrays from which this one grew.
    writing: Arc<WriteState>,
    /// The grid of chunks.
    grid: Grid,
    /// The parts of chunks that are read and cached by themselves. Set by the first read.
    strips: OnceLock<Strips>,
    source: Source,
    /// Shape of the shards in array order, where the array is sharded.
    shard_shape: Option<Vec<u64>>,
    /// One element as served.
    fill: Vec<u8>,
    served_as: Served,
    skipped_codecs: Vec<String>,
    served: SeenVersions,
    /// How many readers go through the array sequentially.
    sequential_readers: AtomicUsize,
    /// Slabs that such readers received in full and keep themselves.
    consumed: Consumed,
}

impl Array {
    /// Builds the codec chain of an array at `path` (`""` is the root). Fails with `Unsupported` or `Metadata`, and
    /// names the document and the member.
    pub fn open(
        engine: &Arc<Engine>,
        store: &Arc<dyn Store>,
        path: &str,
        metadata: Arc<ArrayMetadata>,
        layout: Layout,
    ) -> Result<Arc<Array>> {
        Array::build(engine, store, path, metadata, Served { layout, slowest: None }, Arc::default())
    }

    /// As [`Array::open`], with the axis `slowest` before all others, which keep the order of `layout`: everything at one
    /// index along it is a range of the file.
    pub fn open_by_planes(
        engine: &Arc<Engine>,
        store: &Arc<dyn Store>,
        path: &str,
        metadata: Arc<ArrayMetadata>,
        layout: Layout,
        slowest: usize,
    ) -> Result<Arc<Array>> {
        let served = Served { layout, slowest: Some(slowest) };
        Array::build(engine, store, path, metadata, served, Arc::default())
    }

    /// Fails where the store says by now that the array's chunks are of another form than its document says.
    pub fn check_form(&self) -> Result<()> {
        of_form(&self.inner.store, &self.inner.path, &self.inner.metadata).map(drop)
    }

    /// The array after another program has made `self` longer along its slowest served axis. The dirty chunks, the
    /// writers and the lock move to the new array; `self` stores nothing from then on. Fails with `Stale` where the new
    /// array cannot continue the old one.
    pub fn grown(&self, metadata: Arc<ArrayMetadata>) -> Result<Arc<Array>> {
        let inner = &self.inner;
        let writing = Arc::clone(&inner.writing);
        let grown =
            Array::build(&inner.engine, &inner.store, &inner.path, metadata, inner.served_as, writing)?;
        grown.inner.take_over(inner)?;
        // Readers hold data that `self` served. The new array has no versions to compare with it.
        grown.inner.served.note_change();
        Ok(grown)
    }

    fn build(
        engine: &Arc<Engine>,
        store: &Arc<dyn Store>,
        path: &str,
        metadata: Arc<ArrayMetadata>,
        served_as: Served,
        writing: Arc<WriteState>,
    ) -> Result<Arc<Array>> {
        let document_key = metadata.document_key.as_str();
        let of_form = of_form(store, path, &metadata)?;
        let store = of_form.as_ref().unwrap_or(store);
        let Some(item_bytes) = metadata.data_type.item_size().filter(|&size| size > 0) else {
            return Err(Error::unsupported(document_key, no_item_size(&metadata)));
        };
        let Some(axes) = grid::axes(&metadata.shape, &metadata.chunk_grid) else {
            return Err(Error::metadata(document_key, "the chunk grid ends before the array does"));
        };
        let Served { layout, slowest } = served_as;
        let axis_order = AxisOrder::new(axes.len(), layout.order == Order::F, slowest);
        let axes = axis_order.served(&axes);
        let mut specs = metadata.codecs.clone();
        if !axis_order.is_identity() {
            specs.insert(0, transpose_to_own(&axis_order));
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
        let keys = Keys::new(path, metadata.chunk_keys.clone(), axis_order);
        let source = Source::new(Parts { axes, keys, pipelines, fill: fill.clone() })?;
        let shard_shape: Vec<u64> = source.object_axes().iter().map(|axis| axis.longest()).collect();
        let shard_shape = source.is_sharded().then(|| source.keys().axis_order().own(&shard_shape));
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
            sequential_readers: AtomicUsize::new(0),
            consumed: Consumed::default(),
            served_as,
            metadata,
        };
        Ok(Arc::new(Array { inner: Arc::new(inner) }))
    }

    /// The array's metadata.
    pub fn metadata(&self) -> &Arc<ArrayMetadata> {
        &self.inner.metadata
    }

    /// Whether a read after write-back always returns what was written.
    pub fn is_lossless(&self) -> bool {
        self.inner.source.is_lossless()
    }

    /// Length of the flat file in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.inner.grid.size_bytes()
    }

    /// The error for a range that does not lie in the file.
    fn past_the_end(&self, offset: u64, length: usize) -> Error {
        let (end, size) = (offset.saturating_add(length as u64), self.size_bytes());
        Error::InvalidValue(format!("range {offset}..{end} is past the end of the file ({size} bytes)"))
    }

    /// Shape of the shards, where the array is sharded.
    pub fn shard_shape(&self) -> Option<&[u64]> {
        self.inner.shard_shape.as_deref()
    }

    /// Unknown codecs that were skipped because the document allows it. Such an array is never written.
    pub fn skipped_codecs(&self) -> &[String] {
        &self.inner.skipped_codecs
    }
}

impl Inner {
    fn load_context(&self) -> LoadContext<'_> {
        LoadContext {
            store: self.store.as_ref(),
            served: &self.served,
            cache: &self.engine.cache,
            decoders: Some(&self.engine.decoders),
            reads: &self.engine.reads,
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
        self.inner.engine.decoders.forget_array(self.inner.number);
    }
}

/// The store, where it looks at the form of the array that objects are of.
fn of_form(store: &Arc<dyn Store>, path: &str, metadata: &ArrayMetadata) -> Result<Option<Arc<dyn Store>>> {
    store.of_array(&ArrayForm {
        path,
        document_key: &metadata.document_key,
        form: &|| metadata.form(),
        of_document: form_of_document,
    })
}

/// The reason why an array has no flat form.
fn no_item_size(metadata: &ArrayMetadata) -> String {
    let stored = |member: &str| metadata.document.get(member).map(ToString::to_string).unwrap_or_default();
    let member = match metadata.zarr_format {
        ZarrFormat::V3 => "data_type".to_owned(),
        ZarrFormat::V1 | ZarrFormat::V2 => format!("dtype {}", stored("dtype")),
    };
    format!("{member}: data type {} has no fixed element size", metadata.data_type.name())
}

/// The transpose from the served order of the dimensions to the array's own.
fn transpose_to_own(axis_order: &AxisOrder) -> CodecSpec {
    let places: Vec<usize> = (0..axis_order.axes().len()).collect();
    let mut configuration = serde_json::Map::new();
    configuration.insert("order".to_owned(), json!(axis_order.own(&places)));
    let (name, place) = ("transpose".to_owned(), "the order of the axes".to_owned());
    CodecSpec { family: CodecFamily::V3, name, configuration, must_understand: true, place }
}
