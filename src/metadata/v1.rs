//! `meta` and `attrs`: Zarr v1, rewritten in v3's terms.
//!
//! Spec: v1, "Metadata", "Chunks", "Attributes". `compression` is a numcodecs id, `compression_opts` its
//! parameters: an object, or one number whose meaning is the library's (`{"compression": "zlib",
//! "compression_opts": 1}`). Uses `v2` for what the two versions share.

use serde_json::{Map, Value};

use super::fault::{Fault, Parsed};
use super::v2::{Attributes, Layout, dimension_names};
use super::{ArrayMetadata, ChunkKeyEncoding, CodecFamily, CodecSpec, FillValue, ZarrFormat};
use super::{array, data_type_v2, json};

/// Reads the members of a `meta`.
pub fn parse_array(key: &str, members: Map<String, Value>, attributes: Attributes) -> Parsed<ArrayMetadata> {
    array::expect_format(&members, 1)?;
    let dtype = json::required(&members, "dtype")?;
    let element = match data_type_v2::parse(dtype).map_err(|fault| fault.within("dtype"))? {
        data_type_v2::Dtype::Fixed(stored) => stored,
        data_type_v2::Dtype::Object => return Err(Fault::unsupported("dtype: objects in a v1 array")),
    };
    let fill_value = match members.get("fill_value") {
        None => FillValue::undefined(&element.data_type),
        Some(value) => {
            FillValue::from_v1(&element.data_type, value).map_err(|fault| fault.within("fill_value"))?
        }
    };
    let compressor = compressor(&members)?;
    let layout = Layout::parse(&members, &element)?;
    let (attributes, attributes_error) = attributes;
    let metadata = ArrayMetadata {
        zarr_format: ZarrFormat::V1,
        document_key: key.to_owned(),
        dimension_names: dimension_names(&attributes, layout.shape.len()),
        shape: layout.shape,
        data_type: element.data_type,
        fill_value,
        chunk_grid: layout.chunk_grid,
        chunk_keys: ChunkKeyEncoding { prefixed: false, separator: '.', separator_is_assumed: false },
        codecs: layout.codecs.into_iter().chain(compressor).collect(),
        attributes,
        attributes_error,
        skipped: Vec::new(),
        document: members,
    };
    array::check_size(&metadata)?;
    Ok(metadata)
}

fn compressor(members: &Map<String, Value>) -> Parsed<Option<CodecSpec>> {
    let name = match members.get("compression") {
        None | Some(Value::Null) => return Ok(None),
        Some(name) => json::name(name).map_err(|fault| fault.within("compression"))?,
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
            return Err(Fault::invalid(format_args!(
                "compression_opts: must be an object or a number, not {found}"
            )));
        }
    };
    Ok(Some(CodecSpec {
        family: CodecFamily::V2,
        name: name.to_owned(),
        configuration,
        must_understand: true,
    }))
}
