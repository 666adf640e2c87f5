//! The sidecar of an array.
//!
//! It always describes the bytes as they are served, in the mount's order and byte order. For an array that cannot be served it says which
//! part is not supported. Uses `metadata` and the layout of `array`; no I/O.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::companions::add_companions;
use super::location::{SidecarLocation, head};
use super::snippets;
use crate::array::{Array, AxisSelection, ByteOrder, Layout, Order};
use crate::error::{Error, Result};
use crate::formats::{Subject, views};
use crate::hierarchy::slices::{AxisPart, Slice};
use crate::hierarchy::{Node, View};
use crate::metadata::author::LIFTED_ATTRIBUTES;
use crate::metadata::conventions::no_data::NoData;
use crate::metadata::{ArrayMetadata, ChunkGrid, CodecSpec, DataType, ZarrFormat};

/// Whether an array can be read.
#[derive(Clone, Copy, Debug)]
enum Availability<'a> {
    /// The array can be read.
    Readable {
        /// The bytes of decoded chunks that one pass over it needs at once.
        slab_bytes: u64,
    },
    /// The array cannot be read.
    Unreadable {
        /// The reason.
        error: &'a Error,
        /// The file with its elements as text, as a path from the root of the mount.
        text_form: Option<&'a str>,
    },
}

/// Returns the members of the sidecar of an array, whether or not it can be served.
pub(super) fn members(
    subject: &Subject<'_>,
    place: SidecarLocation<'_>,
    metadata: &Arc<ArrayMetadata>,
) -> Result<Map<String, Value>> {
    let array = array_to_describe(subject, metadata);
    let text = subject.text_form();
    let text_file = text.map(|format| subject.companion_file(format)).transpose()?;
    // If the text form cannot be made either, its reason is more useful.
    let text_error = text.and_then(|format| (format.open)(subject).err());
    let availability = match (&array, &text_error) {
        (Ok(array), _) => Availability::Readable { slab_bytes: array.slab_bytes() },
        (Err(_), Some(error)) => Availability::Unreadable { error, text_form: None },
        (Err(error), None) => Availability::Unreadable { error, text_form: text_file.as_deref() },
    };
    let mut sidecar = describe(place, metadata, subject.layout(), availability);
    if array.is_ok() {
        add_mask(subject, metadata, &mut sidecar)?;
        add_companions(subject, &mut sidecar)?;
    }
    match &subject.view {
        None if array.is_ok() => {
            sidecar.insert("views".into(), views::list_for_array(subject.array_file(), subject.node));
        }
        None => {}
        Some((view, stored)) => describe_view(&mut sidecar, view, stored),
    }
    Ok(sidecar)
}

/// Adds what a sidecar says about elements that may be null: what their bytes are, and the file that says which ones are null.
fn add_mask(subject: &Subject<'_>, metadata: &ArrayMetadata, sidecar: &mut Map<String, Value>) -> Result<()> {
    if !metadata.is_optional() {
        return Ok(());
    }
    let bytes_of_null = if metadata.fill_value.is_undefined { "zeros" } else { "fill_value" };
    let mut optional = Map::from_iter([("null_elements".to_owned(), json!(bytes_of_null))]);
    if subject.view.is_none()
        && let Some(mask) = subject.formats.iter().find(|format| format.name == "mask")
    {
        optional.insert("mask".into(), json!(subject.companion_file(mask)?));
    }
    sidecar.insert("optional".into(), Value::Object(optional));
    Ok(())
}

/// Adds what a sidecar says about a view. Its member `zarr` describes the stored array.
fn describe_view(sidecar: &mut Map<String, Value>, view: &View, stored: &Node) {
    sidecar.insert("view".into(), json!(views::folder(view)));
    if let Node::Array { metadata, .. } = stored {
        sidecar.insert("zarr".into(), zarr(metadata));
    }
    if let View::Plane { axis, index } = *view {
        sidecar.insert("plane".into(), json!({"axis": axis, "index": index}));
        // The hint is about axes of the whole array.
        if let Some(Value::Object(scan)) = sidecar.get_mut("scan") {
            scan.shift_remove("order_hint");
        }
    }
    if let (View::Slice(slice), Node::Array { metadata, .. }) = (view, stored) {
        sidecar.shift_remove("scan");
        sidecar.insert("slice".into(), describe_slice(slice, metadata));
    }
}

/// Returns the index of a slice, and the elements that it has of each axis of the array.
fn describe_slice(slice: &Slice, metadata: &ArrayMetadata) -> Value {
    let names = metadata.dimension_names.as_deref().unwrap_or_default();
    let axis = |(axis, part): (usize, AxisPart)| {
        let AxisSelection { start, step, count } = part.selection;
        let name = names.get(axis).cloned().flatten();
        if part.is_dropped {
            json!({"axis": axis, "name": name, "index": start})
        } else {
            json!({"axis": axis, "name": name, "start": start, "step": step, "count": count})
        }
    };
    let parts = slice.parts(metadata).unwrap_or_default();
    json!({"index": slice.index, "axes": parts.into_iter().enumerate().map(axis).collect::<Vec<_>>()})
}

/// Returns the array that open files read, or one that is built for the sidecar only.
fn array_to_describe(subject: &Subject<'_>, metadata: &Arc<ArrayMetadata>) -> Result<Arc<Array>> {
    if subject.view.is_some() {
        let stale = || Error::Stale { key: subject.path.to_owned() };
        let open = subject.surroundings.open_array(subject.path)?.current().ok_or_else(stale)?;
        return open.array.clone();
    }
    match subject.arrays.current(None, subject.path) {
        Some(open) if open.is_of(metadata) => open.array.clone(),
        _ => subject.arrays.build(subject.path, metadata, &Arc::default()),
    }
}

fn describe(
    place: SidecarLocation<'_>,
    metadata: &ArrayMetadata,
    layout: Layout,
    availability: Availability<'_>,
) -> Map<String, Value> {
    let mut sidecar = head(place);
    let item_size = metadata.data_type.item_size();
    let descr = metadata.data_type.numpy_descr(layout.byte_order);
    sidecar.insert("offset".into(), json!(0));
    sidecar.insert("nbytes".into(), json!(metadata.flat_size()));
    sidecar.insert("descr".into(), descr.clone());
    if let Some(name) = name_next_to_descr(&metadata.data_type, &descr) {
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
    let no_data = NoData::read(metadata).values;
    if !no_data.is_empty() {
        let values = no_data.iter().map(|value| value.to_json(&metadata.data_type));
        sidecar.insert("no_data".into(), values.collect());
    }
    for name in LIFTED_ATTRIBUTES {
        if let Some(value) = metadata.attributes.get(name) {
            sidecar.insert(name.into(), value.clone());
        }
    }
    sidecar.insert("zarr".into(), zarr(metadata));
    let proposals = metadata.proposals();
    if !proposals.is_empty() {
        sidecar.insert("proposals".into(), json!(proposals));
    }
    if let Availability::Readable { slab_bytes } = availability {
        let hint = order_hint(metadata, layout.order);
        sidecar.insert("scan".into(), json!({"slab_bytes": slab_bytes, "order_hint": hint}));
    }
    sidecar.insert("attributes".into(), Value::Object(metadata.attributes.clone()));
    if let Some(error) = &metadata.attributes_error {
        sidecar.insert("attributes_error".into(), json!(error));
    }
    match availability {
        Availability::Readable { .. } => {
            let subject = snippets::SnippetSubject::new(
                place.data_file,
                &metadata.data_type,
                &descr,
                &metadata.shape,
                layout,
            );
            sidecar.insert("snippets".into(), Value::Object(snippets::all(&subject)));
        }
        Availability::Unreadable { error, text_form } => {
            if let Some(file) = text_form {
                sidecar.insert("text_form".into(), json!(file));
            }
            sidecar.insert("error".into(), json!(error.to_string()));
        }
    }
    sidecar
}

/// Returns Zarr's name of a type that `descr` describes only by its size.
fn name_next_to_descr(data_type: &DataType, descr: &Value) -> Option<Value> {
    let is_narrow = matches!(data_type, DataType::Int2 | DataType::Int4 | DataType::UInt2 | DataType::UInt4);
    let is_void = descr.as_str().is_some_and(|descr| descr.starts_with("|V") || descr.starts_with("|O"));
    let is_raw = matches!(data_type, DataType::Raw(_));
    (is_narrow || (is_void && !is_raw)).then(|| json!(data_type.name()))
}

/// Returns the bytes from one index to the next along each axis, as in NumPy; `None` without a fixed item size.
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

/// Returns the fill value in Zarr v3's JSON form; `null` if it is undefined (v2).
pub fn fill_value(metadata: &ArrayMetadata) -> Value {
    if metadata.fill_value.is_undefined {
        return Value::Null;
    }
    metadata.fill_value.to_json(&metadata.data_type)
}

/// Returns the bytes of the fill value, as a missing chunk reads.
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

/// Returns the stored metadata of the array: for v1 and v2 as in the document, for v3 with chunk and shard shape separated.
fn zarr(metadata: &ArrayMetadata) -> Value {
    if metadata.zarr_format != ZarrFormat::V3 {
        return Value::Object(metadata.document.clone());
    }
    let stored = |name: &str| metadata.document.get(name).cloned().unwrap_or(Value::Null);
    let mut zarr = Map::new();
    zarr.insert("zarr_format".into(), json!(3));
    zarr.insert("data_type".into(), stored("data_type"));
    let (chunk_shape, shard_shape) = chunk_and_shard_shape(metadata);
    zarr.insert("chunk_shape".into(), chunk_shape);
    zarr.insert("shard_shape".into(), shard_shape);
    zarr.insert("codecs".into(), stored("codecs"));
    Value::Object(zarr)
}

/// Returns the shape of a chunk and of a shard (`null` without sharding); for a rectilinear grid the lengths along
/// each axis.
pub fn chunk_and_shard_shape(metadata: &ArrayMetadata) -> (Value, Value) {
    let grid = match &metadata.chunk_grid {
        ChunkGrid::Regular(shape) => json!(shape),
        ChunkGrid::Rectilinear(axes) => axes.iter().map(|axis| runs(axis)).collect(),
    };
    match inner_chunk_shape(&metadata.codecs) {
        None => (grid, Value::Null),
        Some(inner) => (json!(inner), grid),
    }
}

/// Returns the lengths along one axis of a rectilinear grid in the notation of its metadata: a run is `[length,
/// count]`.
fn runs(axis: &[(u64, u64)]) -> Value {
    axis.iter()
        .map(|&(length, count)| if count == 1 { json!(length) } else { json!([length, count]) })
        .collect()
}

/// Returns the shape of a shard's inner chunks, in the order of the array's own axes.
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

/// Returns a sentence that says which direction of reading is cheap.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::formats::json::text;
    use crate::metadata::{Document, parse_v2_array, parse_v3};

    const PLACE: SidecarLocation<'_> = SidecarLocation { path: "g/t", name: "t", data_file: "t" };
    const SERVED: Availability<'_> = Availability::Readable { slab_bytes: 64 };
    const BIG_F: Layout = Layout { order: Order::F, byte_order: ByteOrder::Big };

    fn v3(changes: Value) -> ArrayMetadata {
        let mut document = json!({
            "zarr_format": 3, "node_type": "array", "shape": [6, 8, 10], "data_type": "float32", "fill_value": -9999.0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 4, 10]}},
            "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}],
            "dimension_names": ["time", null, "lon"],
            "attributes": {"units": "K", "scale_factor": 0.5, "_FillValue": "NaN", "name": "grün"},
        });
        document.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        match parse_v3("g/t/zarr.json", document.to_string().as_bytes()) {
            Ok(Document::Array(metadata)) => metadata,
            other => unreachable!("{other:?}"),
        }
    }

    fn sidecar(metadata: &ArrayMetadata, layout: Layout) -> Value {
        Value::Object(describe(PLACE, metadata, layout, SERVED))
    }

    #[test]
    fn the_bytes_as_served() {
        let metadata = v3(json!({}));
        let little = sidecar(&metadata, Layout::default());
        assert_eq!(little["schema"], "zarrfs/1");
        assert_eq!(little["path"], "/g/t");
        assert_eq!(little["nbytes"], 1920);
        assert_eq!(little["descr"], "<f4", "whatever the stored order is");
        assert_eq!(little["strides"], json!([320, 40, 4]));
        assert_eq!(little["fill_value"], json!(-9999.0));
        assert_eq!(little["fill_value_hex"], "003c1cc6");
        assert_eq!(little["dimension_names"], json!(["time", null, "lon"]));
        assert_eq!(little.get("data_type"), None, "NumPy has this type");
        let big = sidecar(&metadata, BIG_F);
        assert_eq!(big["descr"], ">f4");
        assert_eq!(
            (&big["order"], &big["fortran_order"], &big["byte_order"]),
            (&json!("F"), &json!(true), &json!("big"))
        );
        assert_eq!(big["strides"], json!([4, 24, 192]));
        assert_eq!(big["fill_value_hex"], "c61c3c00");
        assert!(big["snippets"]["numpy"].as_str().unwrap().ends_with("shape=(6,8,10),order='F')"));
    }

    #[test]
    fn attributes_are_verbatim_and_some_are_lifted() {
        let sidecar = sidecar(&v3(json!({})), Layout::default());
        assert_eq!(sidecar["units"], "K");
        assert_eq!(sidecar["scale_factor"], 0.5);
        assert_eq!(sidecar.get("add_offset"), None);
        assert_eq!(sidecar["attributes"]["_FillValue"], "NaN");
        assert_eq!(sidecar["attributes"]["name"], "grün");
    }

    #[test]
    fn chunks_and_shards() {
        let plain = sidecar(&v3(json!({})), Layout::default());
        assert_eq!(plain["zarr"]["chunk_shape"], json!([2, 4, 10]));
        assert_eq!(plain["zarr"]["shard_shape"], Value::Null);
        assert_eq!(plain["zarr"]["codecs"], json!([{"name": "bytes", "configuration": {"endian": "big"}}]));
        assert!(plain["scan"]["order_hint"].as_str().unwrap().contains("slabs of 2 along axis 0 (time)"));
        let transposed = v3(json!({"codecs": [
            {"name": "transpose", "configuration": {"order": [2, 0, 1]}},
            {"name": "sharding_indexed", "configuration": {
                "chunk_shape": [5, 1, 2], "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
                "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
            }},
        ]}));
        let sharded = sidecar(&transposed, Layout::default());
        assert_eq!(sharded["zarr"]["shard_shape"], json!([2, 4, 10]));
        assert_eq!(sharded["zarr"]["chunk_shape"], json!([1, 2, 5]), "in the order of the array's own axes");
        let rectilinear = v3(json!({"chunk_grid": {"name": "rectilinear", "configuration": {
            "kind": "inline", "chunk_shapes": [[1, 2, 3], [[4, 2]], [10]],
        }}}));
        let lengths = &sidecar(&rectilinear, Layout::default())["zarr"]["chunk_shape"];
        assert_eq!(*lengths, json!([[1, 2, 3], [[4, 2]], [10]]));
    }

    #[test]
    fn v2_shows_its_own_document() {
        let zarray = json!({
            "zarr_format": 2, "shape": [3], "chunks": [2], "dtype": [["a", ">i2"], ["b", "<c8"]], "order": "C",
            "compressor": null, "filters": null, "fill_value": null,
        });
        let metadata = parse_v2_array("t/.zarray", zarray.to_string().as_bytes(), None).unwrap();
        let sidecar = sidecar(&metadata, BIG_F);
        assert_eq!(sidecar["zarr"], zarray);
        assert_eq!(sidecar["descr"], json!([["a", ">i2"], ["b", ">c8"]]));
        assert_eq!(sidecar["fill_value"], Value::Null);
        assert_eq!(sidecar["fill_value_hex"], "00".repeat(10));
    }

    #[test]
    fn types_that_numpy_lacks_are_named() {
        for (name, descr) in [("bfloat16", "|V2"), ("float8_e4m3", "|V1"), ("int4", "|i1"), ("uint2", "|u1")]
        {
            let metadata = v3(json!({"data_type": name, "fill_value": 0}));
            let sidecar = sidecar(&metadata, Layout::default());
            assert_eq!(sidecar["descr"], descr);
            assert_eq!(sidecar["data_type"], name);
        }
    }

    #[test]
    fn empty_and_scalar_arrays() {
        let one = |shape: Value| {
            let chunks: Vec<u64> = shape.as_array().unwrap().iter().map(|_| 1).collect();
            v3(json!({"shape": shape, "dimension_names": null,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}}}))
        };
        let scalar = sidecar(&one(json!([])), BIG_F);
        assert_eq!((&scalar["nbytes"], &scalar["strides"]), (&json!(4), &json!([])));
        let empty = sidecar(&one(json!([3, 0, 2])), Layout::default());
        assert_eq!((&empty["nbytes"], &empty["strides"]), (&json!(0), &json!([8, 8, 4])));
    }

    #[test]
    fn unreadable_arrays_give_the_reason() {
        let error = Error::unsupported("g/t/zarr.json", "codec \"squeeze\"");
        let unserved = |text_form| {
            let availability = Availability::Unreadable { error: &error, text_form };
            describe(PLACE, &v3(json!({})), Layout::default(), availability)
        };
        assert_eq!(unserved(Some("there"))["text_form"], "there");
        let unserved = unserved(None);
        assert_eq!(unserved["error"], "g/t/zarr.json: not supported: codec \"squeeze\"");
        assert!(["snippets", "scan", "text_form"].iter().all(|name| !unserved.contains_key(*name)));
    }

    #[test]
    fn the_text_is_json_with_a_line_per_member() {
        let sidecar = describe(PLACE, &v3(json!({})), Layout::default(), SERVED);
        let text = String::from_utf8(text(&sidecar)).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), Value::Object(sidecar));
        assert!(text.lines().any(|line| line == " \"fill_value_hex\": \"003c1cc6\","));
    }
}
