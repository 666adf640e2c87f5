//! Metadata documents of Zarr v1, v2, v3 and of N5, all turned into one [`ArrayMetadata`].
//!
//! No I/O: a document comes in as bytes with its key, a value or an error comes out. v1, v2 and N5 are
//! rewritten in v3's terms (a chunk grid, a chunk key encoding, a chain of codecs), so that one
//! pipeline serves all versions. Spec: v3 core, "Metadata"; v2 and v1, "Metadata"; N5, "File-system specification". Uses
//! `error` only.
//!
//! Invariants of the result: `shape`, the grid and `dimension_names` have the same rank (≤
//! [`MAX_RANK`]); `product(shape) × item size` fits i64; no chunk is longer than [`MAX_CHUNK_BYTES`];
//! the fill value has exactly one item's bytes; a chunk length is 0 only where the dimension is. A type without a
//! fixed element size ([`DataType::VariableLength`]) parses and has no item size.

mod array;
pub mod author;
mod chunk_grid;
mod chunk_keys;
pub mod codec_spec;
pub mod conventions;
pub mod data_type;
mod documents;
pub mod fill_value;
mod form;
pub mod json;
mod limits;
mod node;
#[cfg(test)]
pub mod test_documents;
mod zarr_format;

use serde_json::Value;

use crate::error::Result;
use crate::metadata::documents::{consolidated, n5, v1, v2, v3};

pub use chunk_keys::KeyMatch;
pub use data_type::v2::{Dtype, StoredDataType, parse as parse_dtype_v2};
pub use data_type::v3::parse as parse_data_type_v3;
pub use data_type::{ByteOrder, DataType, VariableLength};
pub use documents::consolidated::{consolidated_children, consolidated_node};
pub use fill_value::FillValue;
pub use form::document_form;
pub use json::edit as json_spans;
pub use limits::{MAX_CHUNK_BYTES, MAX_DOCUMENT_BYTES, MAX_RANK};
pub use node::{
    ArrayMetadata, ChunkGrid, ChunkKeyEncoding, ChunkKeyScheme, CodecFamily, CodecSpec, Document,
    GroupMetadata,
};
pub use zarr_format::{ZarrFormat, read_only_n5};

/// Reads a v3 `zarr.json`. `key` is its store key, for error texts and `document_key`.
pub fn parse_v3(key: &str, document: &[u8]) -> Result<Document> {
    let parsed = json::parse_object(document).and_then(|members| v3::parse(key, members));
    parsed.map_err(|error| error.into_error(key))
}

/// Reads a v2 array: `.zarray`, and `.zattrs` if it exists. `key` is that of the `.zarray`. If `.zattrs` is broken, only
/// the attributes are lost.
pub fn parse_v2_array(key: &str, zarray: &[u8], zattrs: Option<&[u8]>) -> Result<ArrayMetadata> {
    let parsed = json::parse_object(zarray)
        .and_then(|members| v2::parse_array(key, members, v2::attributes(key, zattrs)));
    parsed.map_err(|error| error.into_error(key))
}

/// Reads a v2 group: `.zgroup`, and `.zattrs` and `.zmetadata` if they exist. `key` is that of the `.zgroup`. If
/// `.zattrs` is broken, only the attributes are lost; a broken `.zmetadata` is ignored.
pub fn parse_v2_group(
    key: &str,
    zgroup: &[u8],
    zattrs: Option<&[u8]>,
    zmetadata: Option<&[u8]>,
) -> Result<GroupMetadata> {
    let consolidated = zmetadata.and_then(|document| consolidated::zmetadata(key, document));
    let parsed = json::parse_object(zgroup)
        .and_then(|members| v2::parse_group(key, &members, v2::attributes(key, zattrs), consolidated));
    parsed.map_err(|error| error.into_error(key))
}

/// Reads a v1 array: `meta`, and `attrs` if it exists. `key` is that of `meta`. If `attrs` is broken, only the attributes
/// are lost.
pub fn parse_v1_array(key: &str, meta: &[u8], attrs: Option<&[u8]>) -> Result<ArrayMetadata> {
    let parsed = json::parse_object(meta)
        .and_then(|members| v1::parse_array(key, members, v2::attributes(key, attrs)));
    parsed.map_err(|error| error.into_error(key))
}

/// Reads an `attributes.json` of N5. `key` is its store key.
pub fn parse_n5(key: &str, document: &[u8]) -> Result<Document> {
    let parsed = json::parse_object(document).and_then(|members| n5::parse(key, members));
    parsed.map_err(|error| error.into_error(key))
}

/// Reads an array's document of any version, which `key` decides. `None` if it does not describe an array. v1 and v2 keep
/// the attributes elsewhere, so they are left out.
pub fn parse_array(key: &str, document: &[u8]) -> Result<Option<ArrayMetadata>> {
    match key.rsplit('/').next() {
        Some(name @ ("zarr.json" | "attributes.json")) => {
            let parse = if name == "zarr.json" { parse_v3 } else { parse_n5 };
            Ok(match parse(key, document)? {
                Document::Array(metadata) => Some(metadata),
                Document::Group(_) => None,
            })
        }
        Some(".zarray") => parse_v2_array(key, document, None).map(Some),
        _ => parse_v1_array(key, document, None).map(Some),
    }
}

/// Reads what it can of an array's document that failed to parse: the JSON, if it is JSON, and the flat size in bytes,
/// if shape and data type can be read.
pub fn salvage(document: &[u8]) -> (Option<Value>, Option<u64>) {
    let Ok(document) = json::parse(document) else { return (None, None) };
    let size = flat_size(&document);
    (Some(document), size)
}

fn flat_size(document: &Value) -> Option<u64> {
    let shape = array::shape(document.get("shape").or_else(|| document.get("dimensions"))?).ok()?;
    let data_type = document.get("data_type").or_else(|| document.get("dataType"));
    let data_type = match (data_type, document.get("dtype")) {
        (Some(data_type), _) => data_type::v3::parse_element_type(data_type).ok()?.data_type,
        (None, Some(dtype)) => match data_type::v2::parse(dtype).ok()? {
            data_type::v2::Dtype::Fixed(stored) => stored.data_type,
            data_type::v2::Dtype::Object => return None,
        },
        (None, None) => return None,
    };
    node::flat_size(&shape, data_type.item_size()?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    const V3: &str = r#"{"zarr_format":3,"node_type":"array","shape":[4,6],"data_type":"int16","chunk_grid":
        {"name":"rectilinear","configuration":{"kind":"inline","chunk_shapes":[2,[1,[2,2],1]]}},"chunk_key_encoding":
        {"name":"default","configuration":{"separator":"/"}},"fill_value":-1,"codecs":[{"name":"bytes",
        "configuration":{"endian":"little"}}],"dimension_names":["x",null],"attributes":{"a":NaN}}"#;
    const V2: &str = r#"{"zarr_format":2,"shape":[4],"chunks":[2],"dtype":[["a","<i2"],["b",">f8",[2]],["","|V3"]],
        "fill_value":"AAAAAAAAAAAAAAAAAAAAAAAAAAAA","order":"F","filters":[{"id":"delta"}],"compressor":{"id":"zlib"}}"#;
    const V1: &str = r#"{"chunks":[10],"compression":"zlib","compression_opts":1,"dtype":"<i4","fill_value":42,
        "order":"C","shape":[20],"zarr_format":1}"#;

    const N5: &str = r#"{"dimensions":[20,4],"blockSize":[10,4],"dataType":"int16","compression":{"type":"gzip","level":-1},
        "axes":["x","y"],"n5":"2.5.0"}"#;

    fn read_as_everything(document: &[u8]) {
        let _ = parse_v3("k", document);
        let _ = parse_v2_array("k", document, Some(document));
        let _ = parse_v1_array("k", document, Some(document));
        let _ = parse_n5("k", document);
        let _ = salvage(document);
        if let Ok(group) = parse_v2_group("k", document, Some(document), Some(document)) {
            let _ = consolidated_children(&group, "");
        }
    }

    #[test]
    fn the_documents_that_are_mutated_below_are_good() {
        parse_v3("k", V3.as_bytes()).unwrap();
        parse_v2_array("k", V2.as_bytes(), None).unwrap();
        parse_v1_array("k", V1.as_bytes(), None).unwrap();
        parse_n5("k", N5.as_bytes()).unwrap();
    }

    #[test]
    fn sizes_of_broken_arrays() {
        for (document, size) in [
            (r#"{"shape": [4, 6], "data_type": "float64"}"#, Some(192)),
            (r#"{"shape": [4, 6], "dtype": ">f4", "codecs": 5}"#, Some(96)),
            (r#"{"shape": [], "dtype": "|u1"}"#, Some(1)),
            (r#"{"shape": [0, 5], "dtype": "|u1"}"#, Some(0)),
            (r#"{"shape": [4], "data_type": "string"}"#, None),
            (r#"{"shape": [4], "dtype": "|O"}"#, None),
            (r#"{"shape": [4611686018427387904], "data_type": "float64"}"#, None),
            (r#"{"shape": "?", "data_type": "float64"}"#, None),
            (r#"{"dimensions": [4, 6], "dataType": "float64"}"#, Some(192)),
            (r#"[]"#, None),
        ] {
            let (value, found) = salvage(document.as_bytes());
            assert_eq!((value.is_some(), found), (true, size), "{document}");
        }
        assert_eq!(salvage(b"{\"shape\": [4]"), (None, None));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(document in proptest::collection::vec(any::<u8>(), 0..200)) {
            read_as_everything(&document);
        }

        #[test]
        fn no_damage_panics(which in 0usize..4, at in 0usize..1000, new in "[ -~]{0,3}", cut in 0usize..4) {
            let document = [V3, V2, V1, N5][which];
            let at = at % document.len();
            let after = document.get(at + cut..).unwrap_or_default();
            read_as_everything(format!("{}{new}{after}", &document[..at]).as_bytes());
        }

        /// A value anywhere replaced by any other.
        #[test]
        fn no_wrong_value_panics(which in 0usize..4, nth in 0usize..60, value in 0usize..16) {
            let values = ["null", "true", "-1", "0", "1e999", "18446744073709551615", "9223372036854775807", "\"\"", "\"NaN\"",
                "[]", "[[]]", "{}", "{\"name\":\"\"}", "[0]", "[[9223372036854775807,9223372036854775807]]", "\"r16\""];
            let mut document = json::parse([V3, V2, V1, N5][which].as_bytes()).unwrap();
            let mut left = nth;
            replace(&mut document, &mut left, &json::parse(values[value].as_bytes()).unwrap());
            read_as_everything(document.to_string().as_bytes());
        }
    }

    /// Replaces the n-th value in order.
    fn replace(value: &mut Value, left: &mut usize, new: &Value) {
        if *left == 0 {
            *value = new.clone();
        }
        *left = left.wrapping_sub(1);
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| replace(item, left, new)),
            Value::Object(members) => members.values_mut().for_each(|item| replace(item, left, new)),
            _ => {}
        }
    }
}
