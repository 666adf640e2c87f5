//! The sidecar: what is known of an array or group, as one JSON document (`"schema": "zarrfs/1"`).
//!
//! It always describes the bytes as they are served, in the mount's order and byte order, and says for an array
//! that cannot be served which part is not understood. No I/O. Uses `metadata` and the layout of `array`.

use serde_json::{Map, Value, json};

use crate::array::{ByteOrder, Layout, Order};
use crate::error::Error;
use crate::metadata::{ArrayMetadata, ChunkGrid, CodecSpec, DataType, GroupMetadata, ZarrFormat};
use crate::mount::snippets::{self, Subject};

/// Name and version of the sidecar's form.
pub const SCHEMA: &str = "zarrfs/1";

/// CF attributes that stand at the top too, since a reader of the raw values needs them.
const LIFTED_ATTRIBUTES: [&str; 3] = ["scale_factor", "add_offset", "units"];

/// Where an array is, in the hierarchy and beside its sidecar.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Path in the hierarchy, without the leading `/` (`""` is the root).
    pub path: &'a str,
    /// The name that the array's file has.
    pub name: &'a str,
    /// The file, relative to the sidecar.
    pub data_file: &'a str,
}

/// How an array is served.
#[derive(Clone, Copy, Debug)]
pub enum Service<'a> {
    /// One pass over it needs so many bytes of decoded chunks at once.
    Served {
        /// Bytes of a slab.
        slab_bytes: u64,
    },
    /// It cannot be read.
    Unserved(&'a Error),
}

/// The sidecar of an array.
pub fn describe(
    place: Place<'_>,
    metadata: &ArrayMetadata,
    layout: Layout,
    service: Service<'_>,
) -> Map<String, Value> {
    let mut sidecar = head(place);
    let item_size = metadata.data_type.item_size();
    let descr = metadata.data_type.numpy_descr(layout.byte_order);
    sidecar.insert("offset".into(), json!(0));
    sidecar.insert("nbytes".into(), json!(crate::mount::fs::flat_size(metadata)));
    sidecar.insert("descr".into(), descr.clone());
    if let Some(name) = name_beside_descr(&metadata.data_type, &descr) {
        sidecar.insert("data_type".into(), name);
    }
    sidecar.insert("fortran_order".into(), json!(layout.order == Order::F));
    sidecar.insert("shape".into(), json!(metadata.shape));
    sidecar.insert("order".into(), json!(if layout.order == Order::F { "F" } else { "C" }));
    sidecar.insert("itemsize".into(), json!(item_size));
    sidecar.insert("strides".into(), json!(strides(&metadata.shape, item_size, layout.order)));
    let byte_order = if layout.byte_order == ByteOrder::Big { "big" } else { "little" };
    sidecar.insert("byte_order".into(), json!(byte_order));
    sidecar.insert("dimension_names".into(), json!(metadata.dimension_names));
    sidecar.insert("fill_value".into(), fill_value(metadata));
    sidecar.insert("fill_value_hex".into(), json!(fill_value_hex(metadata, layout)));
    for name in LIFTED_ATTRIBUTES {
        if let Some(value) = metadata.attributes.get(name) {
            sidecar.insert(name.into(), value.clone());
        }
    }
    sidecar.insert("zarr".into(), zarr(metadata));
    if let Service::Served { slab_bytes } = service {
        let hint = order_hint(metadata, layout.order);
        sidecar.insert("scan".into(), json!({"slab_bytes": slab_bytes, "order_hint": hint}));
    }
    sidecar.insert("attributes".into(), Value::Object(metadata.attributes.clone()));
    if let Some(error) = &metadata.attributes_error {
        sidecar.insert("attributes_error".into(), json!(error));
    }
    match service {
        Service::Served { .. } => {
            let subject = Subject::new(place.data_file, &metadata.data_type, &descr, &metadata.shape, layout);
            sidecar.insert("snippets".into(), Value::Object(snippets::all(&subject)));
        }
        Service::Unserved(error) => {
            sidecar.insert("error".into(), json!(error.to_string()));
        }
    }
    sidecar
}

/// The sidecar of an array whose document cannot be understood: what is wrong with it, and the document as it is.
pub fn describe_broken(
    place: Place<'_>,
    size_bytes: Option<u64>,
    document: Option<&Value>,
    error: &Error,
) -> Map<String, Value> {
    let mut sidecar = head(place);
    sidecar.insert("offset".into(), json!(0));
    sidecar.insert("nbytes".into(), json!(size_bytes));
    let mut document = document.cloned().unwrap_or(Value::Null);
    let attributes = document.as_object_mut().and_then(|members| members.remove("attributes"));
    sidecar.insert("zarr".into(), document);
    sidecar.insert("attributes".into(), attributes.unwrap_or_else(|| json!({})));
    sidecar.insert("error".into(), json!(error.to_string()));
    sidecar
}

/// The sidecar of a group: its attributes and where they came from.
pub fn describe_group(path: &str, store: &str, metadata: &GroupMetadata) -> Map<String, Value> {
    let mut sidecar = Map::new();
    sidecar.insert("schema".into(), json!(SCHEMA));
    sidecar.insert("name".into(), json!(path.rsplit('/').next().unwrap_or_default()));
    sidecar.insert("path".into(), json!(format!("/{path}")));
    let format = metadata.zarr_format.map(format_number);
    let document = metadata.zarr_format.is_some().then_some(&metadata.document_key);
    sidecar.insert("zarr".into(), json!({"zarr_format": format, "store": store, "document": document}));
    sidecar.insert("attributes".into(), Value::Object(metadata.attributes.clone()));
    if let Some(error) = &metadata.attributes_error {
        sidecar.insert("attributes_error".into(), json!(error));
    }
    sidecar
}

/// As text: one line per member, so that it can be read and compared.
pub fn text(sidecar: &Map<String, Value>) -> String {
    let mut text = String::from("{");
    for (index, (name, value)) in sidecar.iter().enumerate() {
        let separator = if index == 0 { "\n " } else { ",\n " };
        text.push_str(separator);
        text.push_str(&format!("{}: ", Value::String(name.clone())));
        match value {
            Value::Object(members) if name == "snippets" => {
                text.push('{');
                for (index, (language, snippet)) in members.iter().enumerate() {
                    let separator = if index == 0 { "\n  " } else { ",\n  " };
                    text.push_str(&format!("{separator}{}: {snippet}", Value::String(language.clone())));
                }
                text.push('}');
            }
            value => text.push_str(&value.to_string()),
        }
    }
    text.push_str("\n}\n");
    text
}

fn head(place: Place<'_>) -> Map<String, Value> {
    let mut sidecar = Map::new();
    sidecar.insert("schema".into(), json!(SCHEMA));
    sidecar.insert("name".into(), json!(place.name));
    sidecar.insert("path".into(), json!(format!("/{}", place.path)));
    sidecar.insert("data_file".into(), json!(place.data_file));
    sidecar
}

fn format_number(format: ZarrFormat) -> u8 {
    match format {
        ZarrFormat::V1 => 1,
        ZarrFormat::V2 => 2,
        ZarrFormat::V3 => 3,
    }
}

/// Zarr's name of a type for which `descr` has only the size.
fn name_beside_descr(data_type: &DataType, descr: &Value) -> Option<Value> {
    let is_narrow = matches!(data_type, DataType::Int2 | DataType::Int4 | DataType::UInt2 | DataType::UInt4);
    let is_void = descr.as_str().is_some_and(|descr| descr.starts_with("|V") || descr.starts_with("|O"));
    let is_raw = matches!(data_type, DataType::Raw(_));
    (is_narrow || (is_void && !is_raw)).then(|| json!(data_type.name()))
}

/// Bytes from one index to the next along each axis, as NumPy gives them; `None` without a fixed item size.
fn strides(shape: &[u64], item_size: Option<usize>, order: Order) -> Option<Vec<u64>> {
    let mut step = u64::try_from(item_size?).ok()?;
    let mut next = |length: u64| {
        let stride = step;
        step = step.checked_mul(length.max(1))?;
        Some(stride)
    };
    match order {
        Order::F => shape.iter().map(|&length| next(length)).collect(),
        Order::C => {
            let mut strides: Vec<u64> =
                shape.iter().rev().map(|&length| next(length)).collect::<Option<_>>()?;
            strides.reverse();
            Some(strides)
        }
    }
}

/// The fill value in Zarr v3's JSON form; `null` where v2 left it undefined.
fn fill_value(metadata: &ArrayMetadata) -> Value {
    if metadata.fill_value.is_undefined {
        return Value::Null;
    }
    metadata.fill_value.to_json(&metadata.data_type)
}

/// The fill value's bytes as a missing chunk shows them.
fn fill_value_hex(metadata: &ArrayMetadata, layout: Layout) -> String {
    let mut bytes = metadata.fill_value.bytes.clone();
    if layout.byte_order == ByteOrder::Big {
        for component in metadata.data_type.components().unwrap_or_default() {
            let end = component.offset.saturating_add(component.width.saturating_mul(component.count));
            if let (Some(run), 1..) = (bytes.get_mut(component.offset..end), component.width) {
                run.chunks_exact_mut(component.width).for_each(<[u8]>::reverse);
            }
        }
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the store says of the array: v1 and v2 as their document has it, v3 with chunk and shard told apart.
fn zarr(metadata: &ArrayMetadata) -> Value {
    if metadata.zarr_format != ZarrFormat::V3 {
        return Value::Object(metadata.document.clone());
    }
    let stored = |name: &str| metadata.document.get(name).cloned().unwrap_or(Value::Null);
    let mut zarr = Map::new();
    zarr.insert("zarr_format".into(), json!(3));
    zarr.insert("data_type".into(), stored("data_type"));
    let inner = inner_chunk_shape(&metadata.codecs);
    match (&metadata.chunk_grid, inner) {
        (ChunkGrid::Regular(shape), None) => {
            zarr.insert("chunk_shape".into(), json!(shape));
            zarr.insert("shard_shape".into(), Value::Null);
        }
        (ChunkGrid::Regular(shape), Some(inner)) => {
            zarr.insert("chunk_shape".into(), json!(inner));
            zarr.insert("shard_shape".into(), json!(shape));
        }
        (ChunkGrid::Rectilinear(axes), inner) => {
            let (lengths, inner) =
                (json!(axes.iter().map(|axis| runs(axis)).collect::<Vec<_>>()), json!(inner));
            let (chunks, shards) = if inner.is_null() { (lengths, Value::Null) } else { (inner, lengths) };
            zarr.insert("chunk_shape".into(), chunks);
            zarr.insert("shard_shape".into(), shards);
        }
    }
    zarr.insert("codecs".into(), stored("codecs"));
    Value::Object(zarr)
}

/// The lengths along one axis of a rectilinear grid, as its metadata spells them: a run is `[length, count]`.
fn runs(axis: &[(u64, u64)]) -> Value {
    axis.iter()
        .map(|&(length, count)| if count == 1 { json!(length) } else { json!([length, count]) })
        .collect()
}

/// The shape of a shard's inner chunks, in the order of the array's own axes.
fn inner_chunk_shape(codecs: &[CodecSpec]) -> Option<Vec<u64>> {
    let (sharding_at, sharding) =
        codecs.iter().enumerate().find(|(_, codec)| codec.name == "sharding_indexed")?;
    let shape = sharding.configuration.get("chunk_shape")?.as_array()?;
    let mut shape: Vec<u64> = shape.iter().map(Value::as_u64).collect::<Option<_>>()?;
    for codec in codecs.iter().take(sharding_at).rev().filter(|codec| codec.name == "transpose") {
        let order = codec.configuration.get("order")?;
        let mut before = vec![0; shape.len()];
        for (encoded_axis, length) in shape.iter().enumerate() {
            let axis = match order {
                Value::Array(order) => usize::try_from(order.get(encoded_axis)?.as_u64()?).ok()?,
                Value::String(letter) if letter == "F" => shape.len() - 1 - encoded_axis,
                _ => encoded_axis,
            };
            *before.get_mut(axis)? = *length;
        }
        shape = before;
    }
    Some(shape)
}

/// Which direction of reading is cheap, in one sentence.
fn order_hint(metadata: &ArrayMetadata, order: Order) -> String {
    let rank = metadata.shape.len();
    if rank == 0 || metadata.shape.contains(&0) {
        return "any order".to_owned();
    }
    let slowest = if order == Order::F { rank - 1 } else { 0 };
    let thickness = match (&metadata.chunk_grid, inner_chunk_shape(&metadata.codecs)) {
        (_, Some(inner)) => inner.get(slowest).copied(),
        (ChunkGrid::Regular(shape), None) => shape.get(slowest).copied(),
        (ChunkGrid::Rectilinear(axes), None) => {
            axes.get(slowest).and_then(|axis| axis.iter().map(|run| run.0).max())
        }
    };
    let length = metadata.shape.get(slowest).copied().unwrap_or(1);
    let thickness = thickness.unwrap_or(length).min(length);
    let name = metadata.dimension_names.as_ref().and_then(|names| names.get(slowest).cloned().flatten());
    let axis = name.map_or(format!("axis {slowest}"), |name| format!("axis {slowest} ({name})"));
    if thickness >= length {
        format!(
            "front to back; all chunks lie side by side along {axis}, so one pass touches every one of them"
        )
    } else {
        format!(
            "front to back, or in slabs of {thickness} along {axis}; a line along {axis} touches {} chunks",
            length.div_ceil(thickness.max(1))
        )
    }
}
