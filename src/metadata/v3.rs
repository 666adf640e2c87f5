//! `zarr.json`: groups and arrays of Zarr v3.
//!
//! Spec: v3 core, "Array metadata", "Group metadata", "Extensions"; the inline `consolidated_metadata` of groups is
//! zarr-python's. Uses the other files of this folder.
//!
//! A member that is not understood fails the node, unless it is an object with `"must_understand": false`; the same
//! of a storage transformer lets it be skipped, and the array is then read-only.

use serde_json::{Map, Value};

use super::data_type::{ByteOrder, DataType};
use super::fault::{Fault, Parsed};
use super::{ArrayMetadata, Document, FillValue, GroupMetadata, ZarrFormat};
use super::{array, chunk_grid, chunk_keys, codec_spec, consolidated, data_type_v3, fill_value, json};

const ARRAY_MEMBERS: [&str; 11] = [
    "zarr_format",
    "node_type",
    "shape",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
    "attributes",
    "storage_transformers",
    "dimension_names",
];
const GROUP_MEMBERS: [&str; 4] = ["zarr_format", "node_type", "attributes", "consolidated_metadata"];

/// Reads the members of a document.
pub fn parse(key: &str, members: Map<String, Value>) -> Parsed<Document> {
    array::expect_format(&members, 3)?;
    match json::text(json::required(&members, "node_type")?).map_err(|fault| fault.within("node_type"))? {
        "array" => parse_array(key, members).map(Document::Array),
        "group" => parse_group(key, members).map(Document::Group),
        other => Err(Fault::invalid(format_args!(
            "node_type: must be \"array\" or \"group\", not {}",
            json::shown_text(other)
        ))),
    }
}

fn parse_group(key: &str, mut members: Map<String, Value>) -> Parsed<GroupMetadata> {
    json::refuse_unknown(&members, &GROUP_MEMBERS)?;
    let attributes = take_attributes(&mut members)?;
    let consolidated = match members.shift_remove("consolidated_metadata") {
        None => None,
        Some(value) => consolidated::inline(value).map_err(|fault| fault.within("consolidated_metadata"))?,
    };
    Ok(GroupMetadata {
        zarr_format: Some(ZarrFormat::V3),
        document_key: key.to_owned(),
        attributes,
        attributes_error: None,
        consolidated,
    })
}

fn parse_array(key: &str, mut members: Map<String, Value>) -> Parsed<ArrayMetadata> {
    json::refuse_unknown(&members, &ARRAY_MEMBERS)?;
    let attributes = take_attributes(&mut members)?;
    let member = |name: &'static str| json::required(&members, name);
    let shape = array::shape(member("shape")?)?;
    let data_type = data_type_v3::parse(member("data_type")?).map_err(|fault| fault.within("data_type"))?;
    let chunk_grid = chunk_grid::parse_v3(member("chunk_grid")?, &shape)
        .and_then(|grid| grid.check(&shape, data_type.item_size()).map(|()| grid))
        .map_err(|fault| fault.within("chunk_grid"))?;
    let chunk_keys = chunk_keys::parse_v3(member("chunk_key_encoding")?)
        .map_err(|fault| fault.within("chunk_key_encoding"))?;
    let codecs = codec_spec::v3_list(member("codecs")?).map_err(|fault| fault.within("codecs"))?;
    let stored_fill = member("fill_value")?;
    let mut fill_value =
        FillValue::from_v3(&data_type, stored_fill).map_err(|fault| fault.within("fill_value"))?;
    let is_packed_struct = matches!(data_type, DataType::Struct(_)) && stored_fill.is_string();
    if is_packed_struct && bytes_order(&codecs) == ByteOrder::Big {
        // "structured": base64 follows the `endian` of the `bytes` codec.
        fill_value::swap(&mut fill_value.bytes, &data_type.components().unwrap_or_default());
    }
    let skipped = storage_transformers(members.get("storage_transformers"))
        .map_err(|fault| fault.within("storage_transformers"))?;
    let dimension_names = match members.get("dimension_names") {
        None | Some(Value::Null) => None,
        Some(names) => {
            Some(dimension_names(names, shape.len()).map_err(|fault| fault.within("dimension_names"))?)
        }
    };
    let metadata = ArrayMetadata {
        zarr_format: ZarrFormat::V3,
        document_key: key.to_owned(),
        shape,
        data_type,
        fill_value,
        chunk_grid,
        chunk_keys,
        codecs,
        dimension_names,
        attributes,
        attributes_error: None,
        skipped,
        document: members,
    };
    array::check_size(&metadata)?;
    Ok(metadata)
}

/// Takes `attributes` out of a document; absent and null are none.
fn take_attributes(members: &mut Map<String, Value>) -> Parsed<Map<String, Value>> {
    match members.shift_remove("attributes") {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(attributes)) => Ok(attributes),
        Some(other) => {
            Err(Fault::invalid(format_args!("attributes: must be an object, not {}", json::shown(&other))))
        }
    }
}

/// The byte order of the `bytes` codec.
fn bytes_order(codecs: &[super::CodecSpec]) -> ByteOrder {
    let bytes = codecs.iter().find(|codec| codec.name == "bytes");
    match bytes.and_then(|codec| codec.configuration.get("endian")).and_then(Value::as_str) {
        Some("big") => ByteOrder::Big,
        _ => ByteOrder::Little,
    }
}

/// Refuses storage transformers by name; the names of those that may be skipped.
fn storage_transformers(value: Option<&Value>) -> Parsed<Vec<String>> {
    let items = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(value) => json::list(value)?,
    };
    let name = |item| match codec_spec::extension(item)? {
        extension if extension.must_understand => {
            let name = json::shown_text(extension.name);
            Err(Fault::unsupported(format_args!("the storage transformer {name}")))
        }
        extension => Ok(extension.name.to_owned()),
    };
    items.iter().map(name).collect()
}

fn dimension_names(value: &Value, rank: usize) -> Parsed<Vec<Option<String>>> {
    let items = json::list(value)?;
    if items.len() != rank {
        let found = items.len();
        return Err(Fault::invalid(format_args!("{found} names for {rank} dimensions")));
    }
    let name = |item: &Value| match item {
        Value::Null => Ok(None),
        _ => json::name(item).map(|name| Some(name.to_owned())),
    };
    items.iter().map(name).collect()
}
