//! Building a [`ServedArray`] from the metadata of an array.
//!
//! Uses its neighbours in `array`, `metadata`, `codec`, `store` and `error`. For another order than C the axes are
//! permuted and a transpose goes before the codec chain, so all later code knows order C only. Big-endian elements are
//! a last fix-up of the pipeline.

use std::sync::Arc;

use serde_json::json;

use crate::array::geometry::axis;
use crate::array::geometry::axis_order::AxisOrder;
use crate::array::geometry::grid::Grid;
use crate::array::geometry::layout::{FileLayout, Order};
use crate::array::served::ServedArray;
use crate::array::source::loading::load_resources::LoadResources;
use crate::array::source::loading::versions::SeenVersions;
use crate::array::source::objects::keys::Keys;
use crate::array::source::pipelines::Pipelines;
use crate::array::source::{ArraySource, SourceParts};
use crate::array::sync::atomic::AtomicU64;
use crate::codec::Representation;
use crate::codec::byte_swap::SwapPlan;
use crate::error::{Error, Result};
use crate::metadata::{ArrayMetadata, ByteOrder, CodecFamily, CodecSpec, ZarrFormat, document_form};
use crate::store::{ArrayForm, Store};

/// What is opened: an array of a store.
pub struct ArrayToOpen<'a> {
    /// The store.
    pub store: &'a Arc<dyn Store>,
    /// Path of the array, `""` for the root.
    pub path: &'a str,
    /// Its metadata.
    pub metadata: Arc<ArrayMetadata>,
    /// How the file shows it.
    pub layout: FileLayout,
}

impl ServedArray {
    /// Builds the codec chain of an array. Fails with `Unsupported` or `Metadata`, and names the document and the
    /// member.
    pub fn open(loads: &Arc<LoadResources>, array: ArrayToOpen<'_>) -> Result<ServedArray> {
        let ArrayToOpen { store, path, metadata, layout: file_layout } = array;
        let document_key = metadata.document_key.as_str();
        let of_form = store_of_form(store, path, &metadata)?;
        let store = of_form.as_ref().unwrap_or(store);
        let Some(item_bytes) = metadata.data_type.item_size().filter(|&size| size > 0) else {
            return Err(Error::unsupported(document_key, no_item_size(&metadata)));
        };
        let Some(axes) = axis::axes(&metadata.shape, &metadata.chunk_grid) else {
            return Err(Error::metadata(document_key, "the chunk grid ends before the array does"));
        };
        let FileLayout { layout, slowest } = file_layout;
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
        let source = ArraySource::new(SourceParts { axes, keys, pipelines, fill: fill.clone() })?;
        let shard_shape: Vec<u64> = source.levels().object_axes().iter().map(|axis| axis.longest()).collect();
        let shard_shape = source.levels().is_sharded().then(|| source.keys().axis_order().own(&shard_shape));
        Ok(ServedArray {
            loads: Arc::clone(loads),
            store: Arc::clone(store),
            path: path.to_owned(),
            number: loads.next_array(),
            epoch: AtomicU64::new(0),
            seen: SeenVersions::default(),
            grid: Grid::new(source.levels().chunk_axes().to_vec(), item_bytes as u64),
            source,
            fill,
            layout: file_layout,
            shard_shape,
            skipped_codecs,
            metadata,
        })
    }

    /// Opens the same array with other metadata, which differ in the shape.
    pub fn reopened(&self, metadata: Arc<ArrayMetadata>) -> Result<ServedArray> {
        let (store, path, layout) = (&self.store, self.path(), self.layout);
        ServedArray::open(&self.loads, ArrayToOpen { store, path, metadata, layout })
    }

    /// Fails if the store knows by now that the array's chunks have another form than its document says.
    pub fn check_form(&self) -> Result<()> {
        store_of_form(&self.store, &self.path, &self.metadata).map(drop)
    }
}

/// Returns a view of the store that checks the form of each object of the array, if the store knows forms.
fn store_of_form(
    store: &Arc<dyn Store>,
    path: &str,
    metadata: &ArrayMetadata,
) -> Result<Option<Arc<dyn Store>>> {
    store.for_array(&ArrayForm {
        path,
        document_key: &metadata.document_key,
        form: &|| metadata.form(),
        of_document: document_form,
    })
}

/// Returns the reason why an array does not have a flat file.
fn no_item_size(metadata: &ArrayMetadata) -> String {
    let stored = |member: &str| metadata.document.get(member).map(ToString::to_string).unwrap_or_default();
    let member = match metadata.zarr_format {
        ZarrFormat::V3 => "data_type".to_owned(),
        ZarrFormat::V1 | ZarrFormat::V2 | ZarrFormat::N5 => format!("dtype {}", stored("dtype")),
    };
    format!("{member}: data type {} has no fixed element size", metadata.data_type.name())
}

/// Returns the transpose from the served order of the dimensions to the array's own.
fn transpose_to_own(axis_order: &AxisOrder) -> CodecSpec {
    let places: Vec<usize> = (0..axis_order.axes().len()).collect();
    let mut configuration = serde_json::Map::new();
    configuration.insert("order".to_owned(), json!(axis_order.own(&places)));
    let (name, place) = ("transpose".to_owned(), "the order of the axes".to_owned());
    CodecSpec { family: CodecFamily::V3, name, configuration, must_understand: true, place }
}
