//! `meta` and `attrs`: Zarr v1, rewritten in v3's terms.
//!
//! Spec: v1, "Metadata", "Chunks", "Attributes". `compression` is a numcodecs id, `compression_opts` its
//! parameters: an object, or one number with a meaning that depends on the codec (`{"compression": "zlib",
//! "compression_opts": 1}`). Uses `v2` for what the two versions share.

use serde_json::{Map, Value};

use crate::metadata::documents::v2::{StorageLayout, StoredAttributes, dimension_names};
use crate::metadata::json::parse_error::{ParseError, ParseResult};
use crate::metadata::{ArrayMetadata, ChunkKeyEncoding, CodecFamily, CodecSpec, FillValue, ZarrFormat};
use crate::metadata::{array, data_type, json};

/// Reads the members of a `meta`.
pub fn parse_array(
    key: &str,
    members: Map<String, Value>,
    attributes: StoredAttributes,
) -> ParseResult<ArrayMetadata> {
    array::expect_format(&members, 1)?;
    let dtype = json::required(&members, "dtype")?;
    let element = match data_type::v2::parse(dtype).map_err(|error| error.within("dtype"))? {
        data_type::v2::Dtype::Fixed(stored) => stored,
        data_type::v2::Dtype::Object => return Err(ParseError::unsupported("dtype: objects in a v1 array")),
    };
    let fill_value = match members.get("fill_value") {
        None => FillValue::undefined(&element.data_type),
        Some(value) => {
            FillValue::from_v1(&element.data_type, value).map_err(|error| error.within("fill_value"))?
        }
    };
    let compressor = compressor(&members)?;
    let layout = StorageLayout::parse(&members, &element)?;
    let metadata = ArrayMetadata {
        zarr_format: ZarrFormat::V1,
        document_key: key.to_owned(),
        dimension_names: dimension_names(&attributes.members, layout.shape.len()),
        shape: layout.shape,
        data_type: element.data_type,
        fill_value,
        chunk_grid: layout.chunk_grid,
        chunk_keys: ChunkKeyEncoding::v2('.', false),
        codecs: layout.codecs.into_iter().chain(compressor).collect(),
        attributes: attributes.members,
        attributes_error: attributes.error,
        skipped: Vec::new(),
        document: members,
    };
    array::check_size(&metadata)?;
    Ok(metadata)
}

fn compressor(members: &Map<String, Value>) -> ParseResult<Option<CodecSpec>> {
    let name = match members.get("compression") {
        None | Some(Value::Null) => return Ok(None),
        Some(name) => json::name(name).map_err(|error| error.within("compression"))?,
    };
    if name == "none" {
        return Ok(None);
    }
    let configuration = match members.get("compression_opts") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(options)) => options.clone(),
        Some(number @ Value::Number(_)) => {
            let member = match name {
                "blosc" => "clevel",
                "lzma" => "preset",
                _ => "level",
            };
            Map::from_iter([(member.to_owned(), number.clone())])
        }
        Some(text @ Value::String(_)) if name == "blosc" => {
            Map::from_iter([("cname".to_owned(), text.clone())])
        }
        Some(other) => {
            let found = json::shown(other);
            return Err(ParseError::invalid(format_args!(
                "compression_opts: must be an object or a number, not {found}"
            )));
        }
    };
    Ok(Some(CodecSpec {
        family: CodecFamily::V2,
        name: name.to_owned(),
        configuration,
        must_understand: true,
        place: if members.contains_key("compression_opts") {
            "compression and compression_opts"
        } else {
            "compression"
        }
        .to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::metadata::{DataType, parse_v1_array};
    use serde_json::json;

    /// Parses the specification's example with `changes` applied.
    fn parse(changes: Value) -> std::result::Result<ArrayMetadata, String> {
        let mut document = json!({
            "chunks": [10, 10], "compression": "zlib", "compression_opts": 1, "dtype": "<i4", "fill_value": 42,
            "order": "C", "shape": [20, 20], "zarr_format": 1,
        });
        for (name, value) in changes.as_object().unwrap() {
            document[name] = value.clone();
        }
        let attrs = br#"{"foo": 42}"#;
        parse_v1_array("meta", document.to_string().as_bytes(), Some(attrs))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_example_of_the_specification() {
        let array = parse(json!({})).unwrap();
        assert_eq!((array.zarr_format, array.data_type), (ZarrFormat::V1, DataType::Int32));
        assert_eq!(array.fill_value.bytes, [42, 0, 0, 0]);
        assert_eq!(array.attributes["foo"], 42);
        assert_eq!(
            (array.chunk_keys.key(&[2, 4]).as_str(), array.chunk_keys.separator_is_assumed),
            ("2.4", false)
        );
    }

    #[test]
    fn compressions() {
        for (compression, options, codec) in [
            (json!(null), json!(null), json!(null)),
            (json!("none"), json!(null), json!(null)),
            (json!("zlib"), json!(1), json!(["zlib", {"level": 1}])),
            (json!("bz2"), json!(9), json!(["bz2", {"level": 9}])),
            (json!("lzma"), json!({"format": 1, "preset": 1}), json!(["lzma", {"format": 1, "preset": 1}])),
            (json!("lzma"), json!(3), json!(["lzma", {"preset": 3}])),
            (
                json!("blosc"),
                json!({"cname": "lz4", "clevel": 5, "shuffle": 1}),
                json!(["blosc", {"cname": "lz4", "clevel": 5, "shuffle": 1}]),
            ),
            (json!("blosc"), json!(null), json!(["blosc", {}])),
        ] {
            let array = parse(json!({"compression": compression, "compression_opts": options})).unwrap();
            let found =
                array.codecs.get(1).map_or(json!(null), |codec| json!([codec.name, codec.configuration]));
            assert_eq!(found, codec);
        }
    }

    #[test]
    fn broken_documents() {
        for (changes, reason) in [
            (json!({"zarr_format": 2}), "meta: zarr_format: must be 1, not 2"),
            (json!({"compression": 5}), "meta: compression: must be a string, not 5"),
            (
                json!({"compression_opts": [1]}),
                "meta: compression_opts: must be an object or a number, not a list of 1",
            ),
            (json!({"dtype": "|O"}), "meta: not supported: dtype: objects in a v1 array"),
            (json!({"chunks": [10]}), "meta: chunks: the grid has 1 dimensions, the shape 2"),
        ] {
            assert_eq!(parse(changes).unwrap_err(), reason);
        }
    }
}
