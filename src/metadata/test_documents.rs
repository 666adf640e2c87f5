//! Documents of arrays for the unit tests of all layers. Uses its neighbours.
#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::{Value, json};

use super::{ArrayMetadata, Document, parse_v3};

/// Returns the v3 document of an array with one chunk. The members of `changes` replace others; null removes one.
pub fn v3_array(shape: &[u64], data_type: impl Into<Value>, changes: Value) -> Value {
    let chunk_shape: Vec<u64> = shape.iter().map(|&length| length.max(1)).collect();
    let mut document = json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type.into(), "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk_shape}},
        "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "attributes": {},
    });
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(document.as_object_mut().unwrap().remove(name)),
            value => document[name] = value.clone(),
        }
    }
    document
}

/// Parses the v3 document of an array.
pub fn parsed_v3_array(document: &Value) -> ArrayMetadata {
    match parse_v3("a/zarr.json", document.to_string().as_bytes()).unwrap() {
        Document::Array(metadata) => metadata,
        Document::Group(_) => panic!("a group"),
    }
}
