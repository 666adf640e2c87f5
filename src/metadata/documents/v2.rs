//! `.zarray`, `.zgroup` and `.zattrs`: Zarr v2, rewritten in v3's terms.
//!
//! Spec: v2, "Metadata", "Filters", "Hierarchies", "Attributes"; NCZarr and xarray for what they add. Uses the other
//! files of this folder.
//!
//! `order: "F"` becomes a `transpose` codec, and `dtype`'s byte order a `bytes` codec, both of the family V2. The filters
//! and the compressor follow unchanged. Unknown members are ignored, as the specification asks.
//!
//! Attributes have a document of their own. If it is broken, the node is served without attributes and says why.

use serde_json::{Map, Value, json as object};

use crate::metadata::data_type::v2::{Dtype, StoredDataType};
use crate::metadata::data_type::{ByteOrder, DataType, VariableLength};
use crate::metadata::json::parse_error::{ParseError, ParseResult};
use crate::metadata::{
    ArrayMetadata, ChunkGrid, CodecFamily, CodecSpec, FillValue, GroupMetadata, ZarrFormat,
};
use crate::metadata::{array, chunk_keys, codec_spec, data_type, json};

/// The attributes of a node, from a document of their own.
#[derive(Debug, Default)]
pub struct StoredAttributes {
    /// The attributes. None if their document could not be read.
    pub members: Map<String, Value>,
    /// Why the document could not be read.
    pub error: Option<String>,
}

/// Reads the members of a `.zarray`.
pub fn parse_array(
    key: &str,
    members: Map<String, Value>,
    attributes: StoredAttributes,
) -> ParseResult<ArrayMetadata> {
    array::expect_format(&members, 2)?;
    let member = |name: &'static str| json::required(&members, name);
    let filters = parse_filters(members.get("filters"))?;
    let compressor = match members.get("compressor") {
        None | Some(Value::Null) => None,
        Some(value) => {
            Some(codec_spec::v2(value, "compressor".to_owned()).map_err(|error| error.within("compressor"))?)
        }
    };
    let element =
        element(member("dtype")?, &filters, compressor.as_ref()).map_err(|error| error.within("dtype"))?;
    let fill_value = match members.get("fill_value") {
        None => FillValue::undefined(&element.data_type),
        Some(value) => FillValue::from_v2(&element.data_type, &element.big_endian, value)
            .map_err(|error| error.within("fill_value"))?,
    };
    let chunk_keys = chunk_keys::parse_v2(members.get("dimension_separator"))?;
    let layout = StorageLayout::parse(&members, &element)?;
    let metadata = ArrayMetadata {
        zarr_format: ZarrFormat::V2,
        document_key: key.to_owned(),
        dimension_names: dimension_names(&attributes.members, layout.shape.len()),
        shape: layout.shape,
        data_type: element.data_type,
        fill_value,
        chunk_grid: layout.chunk_grid,
        chunk_keys,
        codecs: layout.codecs.into_iter().chain(filters).chain(compressor).collect(),
        attributes: attributes.members,
        attributes_error: attributes.error,
        skipped: Vec::new(),
        document: members,
    };
    array::check_size(&metadata)?;
    Ok(metadata)
}

/// Reads the members of a `.zgroup`.
pub fn parse_group(
    key: &str,
    members: &Map<String, Value>,
    attributes: StoredAttributes,
    consolidated: Option<Map<String, Value>>,
) -> ParseResult<GroupMetadata> {
    array::expect_format(members, 2)?;
    Ok(GroupMetadata {
        zarr_format: Some(ZarrFormat::V2),
        document_key: key.to_owned(),
        attributes: attributes.members,
        attributes_error: attributes.error,
        consolidated,
    })
}

/// Reads a document of attributes that is not the node's own document.
pub fn attributes(key: &str, document: Option<&[u8]>) -> StoredAttributes {
    parsed_attributes(key, document.map(json::parse_object))
}

/// Does the same as [`attributes`] for a document that is already parsed.
pub fn parsed_attributes(key: &str, parsed: Option<ParseResult<Map<String, Value>>>) -> StoredAttributes {
    match parsed {
        None => StoredAttributes::default(),
        Some(Ok(members)) => StoredAttributes { members, error: None },
        Some(Err(error)) => {
            log::warn!("{key}: ignoring the attributes in the same folder: {error}");
            StoredAttributes { members: Map::new(), error: Some(error.to_string()) }
        }
    }
}

/// The part of an array's document that v1 and v2 have in common: `shape`, `chunks`, `order`, and the codecs that `order`
/// and `dtype` stand for.
pub struct StorageLayout {
    /// Elements per dimension.
    pub shape: Vec<u64>,
    /// A regular grid.
    pub chunk_grid: ChunkGrid,
    /// `transpose` and `bytes`, where needed.
    pub codecs: Vec<CodecSpec>,
}

impl StorageLayout {
    /// Reads the members of a document.
    pub fn parse(members: &Map<String, Value>, element: &StoredDataType) -> ParseResult<Self> {
        let shape = array::shape(json::required(members, "shape")?)?;
        let chunk_grid = json::required(members, "chunks")
            .and_then(json::unsigned_list)
            .map(ChunkGrid::Regular)
            .and_then(|grid| grid.check(&shape, element.data_type.item_size()).map(|()| grid))
            .map_err(|error| error.within("chunks"))?;
        let order = json::required(members, "order")?;
        let is_transposed = match order.as_str() {
            Some("C") => false,
            Some("F") => shape.len() > 1,
            _ => {
                let found = json::shown(order);
                return Err(ParseError::invalid(format_args!("order: must be \"C\" or \"F\", not {found}")));
            }
        };
        let mut codecs = Vec::new();
        if is_transposed {
            codecs.push(codec("transpose", object!({"order": "F"}), "order"));
        }
        if element.data_type.item_size().is_some() {
            codecs.push(bytes_codec(element));
        }
        Ok(StorageLayout { shape, chunk_grid, codecs })
    }
}

fn codec(name: &str, configuration: Value, place: &str) -> CodecSpec {
    let configuration = match configuration {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    let (name, place) = (name.to_owned(), place.to_owned());
    CodecSpec { family: CodecFamily::V2, name, configuration, must_understand: true, place }
}

/// Returns the codec for an element's byte order: `{"endian": "little" | "big"}`, or `{"endian": "mixed", "big":
/// [[offset, width, count], …]}` with the components that are stored big-endian.
fn bytes_codec(element: &StoredDataType) -> CodecSpec {
    codec(
        "bytes",
        match element.byte_order() {
            Some(ByteOrder::Little) => object!({"endian": "little"}),
            Some(ByteOrder::Big) => object!({"endian": "big"}),
            None => {
                let runs = element.big_endian.iter().map(|run| object!([run.offset, run.width, run.count]));
                object!({"endian": "mixed", "big": runs.collect::<Vec<_>>()})
            }
        },
        "dtype",
    )
}

fn parse_filters(filters: Option<&Value>) -> ParseResult<Vec<CodecSpec>> {
    let items = match filters {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(value) => json::list(value).map_err(|error| error.within("filters"))?,
    };
    let one = |(i, item)| {
        codec_spec::v2(item, format!("filters[{i}]"))
            .map_err(|error: ParseError| error.within(format_args!("filters: {i}")))
    };
    items.iter().enumerate().map(one).collect()
}

/// Returns the element of an array. Its `dtype` decides, except for `|O`: then it is the codec that turns objects into
/// bytes, which becomes the chain's array-to-bytes codec. Objects after `categorize` and `fill_hdf_strings` are strings from a known list;
/// they are served as `U` with the width of the longest.
fn element(
    dtype: &Value,
    filters: &[CodecSpec],
    compressor: Option<&CodecSpec>,
) -> ParseResult<StoredDataType> {
    match data_type::v2::parse(dtype)? {
        Dtype::Fixed(stored) => Ok(stored),
        Dtype::Object => {
            let first = filters.first().or(compressor);
            if let Some(points) = first.and_then(longest_text) {
                let data_type = DataType::FixedLengthUtf32(points);
                data_type.check()?;
                return Ok(StoredDataType { data_type, big_endian: Vec::new() });
            }
            let data_type = DataType::VariableLength(match first.map(|codec| codec.name.as_str()) {
                Some("vlen-utf8") => VariableLength::Utf8,
                Some("vlen-bytes") => VariableLength::Bytes,
                Some("pickle") => VariableLength::Other(
                    "Python objects in the filter \"pickle\", which is never unpickled".to_owned(),
                ),
                Some(name) => {
                    VariableLength::Other(format!("objects in the codec {}", json::shown_text(name)))
                }
                None => VariableLength::Other("objects without a filter that stores them".to_owned()),
            });
            Ok(StoredDataType { data_type, big_endian: Vec::new() })
        }
    }
}

/// Returns the number of code points in the longest string of a codec that names all of them (`categorize`, `fill_hdf_strings`), at least 1.
fn longest_text(codec: &CodecSpec) -> Option<usize> {
    let texts: Vec<&Value> = match (codec.name.as_str(), codec.configuration.get("id_map")) {
        ("categorize", _) => codec.configuration.get("labels")?.as_array()?.iter().collect(),
        // Records with strings are not strings.
        ("fill_hdf_strings", _) if codec.configuration.get("dtype")?.as_str()?.contains('[') => return None,
        ("fill_hdf_strings", None | Some(Value::Null)) => Vec::new(),
        ("fill_hdf_strings", Some(Value::Object(texts))) => texts.values().collect(),
        ("fill_hdf_strings", Some(text)) => vec![text],
        _ => return None,
    };
    let points = |text: &Value| text.as_str().map(|text| text.chars().count());
    texts.into_iter().map(points).try_fold(1, |longest, points| Some(longest.max(points?)))
}

/// Reads the dimension names of xarray and NCZarr, if they fit the rank.
pub fn dimension_names(attributes: &Map<String, Value>, rank: usize) -> Option<Vec<Option<String>>> {
    let names = attributes.get("_ARRAY_DIMENSIONS")?.as_array().filter(|names| names.len() == rank)?;
    names.iter().map(|name| json::name(name).ok().map(|name| Some(name.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::metadata::{parse_v2_array, parse_v2_group};
    use serde_json::json;

    /// Returns a small valid `.zarray` with `changes` applied (the text "-" removes a member).
    fn document(changes: Value) -> String {
        let mut document = json!({
            "zarr_format": 2, "shape": [4, 6], "chunks": [2, 3], "dtype": "<i2", "fill_value": 7, "order": "C",
            "filters": null, "compressor": null,
        });
        for (name, value) in changes.as_object().unwrap() {
            match value.as_str() {
                Some("-") => drop(document.as_object_mut().unwrap().remove(name)),
                _ => document[name] = value.clone(),
            }
        }
        document.to_string()
    }

    fn array(changes: Value) -> ArrayMetadata {
        parse_v2_array("a/.zarray", document(changes).as_bytes(), None).unwrap()
    }

    fn error(changes: Value) -> String {
        parse_v2_array("a/.zarray", document(changes).as_bytes(), None).unwrap_err().to_string()
    }

    /// Returns the chain as JSON: name and configuration of each codec.
    fn codecs(changes: Value) -> Value {
        let array = array(changes);
        assert!(array.codecs.iter().all(|codec| codec.family == CodecFamily::V2 && codec.must_understand));
        array.codecs.into_iter().map(|codec| object!([codec.name, codec.configuration])).collect()
    }

    #[test]
    fn order_and_byte_order_become_codecs() {
        let little = json!(["bytes", {"endian": "little"}]);
        let big = json!(["bytes", {"endian": "big"}]);
        let transpose = json!(["transpose", {"order": "F"}]);
        assert_eq!(codecs(json!({})), json!([little]));
        assert_eq!(codecs(json!({"order": "F", "dtype": ">i2"})), json!([transpose, big]));
        assert_eq!(codecs(json!({"order": "F", "shape": [4], "chunks": [2]})), json!([little]));
        let mixed = json!([["a", "<i2"], ["b", ">f4", [3]]]);
        let bytes = json!(["bytes", {"endian": "mixed", "big": [[2, 4, 3]]}]);
        assert_eq!(codecs(json!({"dtype": mixed, "fill_value": null})), json!([bytes]));
    }

    #[test]
    fn filters_then_the_compressor() {
        let changes = json!({"filters": [{"id": "delta", "dtype": "<i2"}, {"id": "shuffle"}],
            "compressor": {"id": "zlib", "level": 1}});
        let chain = json!([["bytes", {"endian": "little"}], ["delta", {"dtype": "<i2"}], ["shuffle", {}], ["zlib", {"level": 1}]]);
        assert_eq!(codecs(changes), chain);
        assert_eq!(codecs(json!({"filters": []})), codecs(json!({"filters": "-", "compressor": "-"})));
    }

    #[test]
    fn objects() {
        for (id, data_type) in [("vlen-utf8", VariableLength::Utf8), ("vlen-bytes", VariableLength::Bytes)] {
            let changes = json!({"dtype": "|O", "fill_value": 0, "filters": [{"id": id}], "compressor": {"id": "zstd"}});
            let array = array(changes);
            assert_eq!(array.data_type, DataType::VariableLength(data_type));
            let names: Vec<_> = array.codecs.iter().map(|codec| codec.name.as_str()).collect();
            assert_eq!(names, [id, "zstd"]);
        }
        for (filters, word) in [
            (json!([{"id": "pickle"}]), "\"pickle\", which is never unpickled"),
            (json!([{"id": "json2"}]), "\"json2\""),
            (json!(null), "without a filter"),
        ] {
            let array = array(json!({"dtype": "|O", "fill_value": 5, "filters": filters}));
            assert!(array.data_type.name().contains(word));
        }
    }

    #[test]
    fn objects_after_categorize_are_strings_of_the_longest_label() {
        let filter = json!({"id": "categorize", "labels": ["é", "male", ""], "dtype": "|O", "astype": "|u1"});
        for fill in [json!(null), json!(""), json!(0)] {
            let array = array(json!({"dtype": "|O", "fill_value": fill, "filters": [filter]}));
            assert_eq!(
                (array.data_type, array.fill_value.bytes),
                (DataType::FixedLengthUtf32(4), vec![0; 16])
            );
            let names: Vec<_> = array.codecs.iter().map(|codec| codec.name.as_str()).collect();
            assert_eq!(names, ["bytes", "categorize"]);
        }
        let filter = json!({"id": "categorize", "labels": [5], "dtype": "|O"});
        assert_eq!(
            array(json!({"dtype": "|O", "fill_value": 0, "filters": [filter]})).data_type.item_size(),
            None
        );
    }

    #[test]
    fn chunk_keys() {
        let keys = array(json!({})).chunk_keys;
        assert_eq!(
            (keys.key(&[1, 2]).as_str(), keys.key(&[]).as_str(), keys.separator_is_assumed),
            ("1.2", "0", true)
        );
        let keys = array(json!({"dimension_separator": "/"})).chunk_keys;
        assert_eq!((keys.key(&[1, 2]).as_str(), keys.separator_is_assumed), ("1/2", false));
    }

    #[test]
    fn fill_values_null_and_missing_are_undefined() {
        for fill in [json!(null), json!("-")] {
            let fill = array(json!({"fill_value": fill})).fill_value;
            assert_eq!((fill.bytes, fill.is_undefined), (vec![0, 0], true));
        }
    }

    #[test]
    fn unknown_members_are_ignored() {
        let array = array(json!({"_nczarr_array": {"dimrefs": ["/x"]}, "node_type": "array"}));
        assert!(array.document.contains_key("_nczarr_array"));
    }

    #[test]
    fn broken_documents_name_the_key_and_the_member() {
        for (changes, reason) in [
            (json!({"zarr_format": 3}), "zarr_format: must be 2, not 3"),
            (json!({"shape": "-"}), "shape is missing"),
            (json!({"chunks": [2]}), "chunks: the grid has 1 dimensions, the shape 2"),
            (json!({"chunks": [0, 3]}), "chunks: chunks of length 0 in dimension 0 of length 4"),
            (json!({"chunks": [2, -3]}), "chunks: 1: must be an integer from 0 to 2^64-1, not -3"),
            (json!({"chunks": true}), "chunks: must be a list, not true"),
            (json!({"dtype": "-"}), "dtype is missing"),
            (json!({"dtype": "<f16"}), "not supported: dtype: the dtype \"<f16\""),
            (json!({"order": "K"}), "order: must be \"C\" or \"F\", not \"K\""),
            (json!({"order": "-"}), "order is missing"),
            (json!({"filters": {"id": "delta"}}), "filters: must be a list, not an object"),
            (json!({"filters": [{}]}), "filters: 0: id is missing"),
            (json!({"compressor": "zlib"}), "compressor: must be an object, not \"zlib\""),
            (json!({"compressor": {"id": null}}), "compressor: id: must be a string, not null"),
            (json!({"dimension_separator": ":"}), "dimension_separator: must be \"/\" or \".\", not \":\""),
            (json!({"fill_value": 1e9}), "fill_value: 1000000000.0 is not from -32768 to 32767"),
            (
                json!({"shape": [1u64 << 62, 4], "dtype": "<f8"}),
                "shape: the array has more than 2^63-1 bytes",
            ),
        ] {
            assert_eq!(error(changes), format!("a/.zarray: {reason}"));
        }
    }

    #[test]
    fn attributes_and_dimension_names() {
        let with = |zattrs: &str| {
            parse_v2_array("a/.zarray", document(json!({})).as_bytes(), Some(zattrs.as_bytes())).unwrap()
        };
        let array = with(r#"{"_ARRAY_DIMENSIONS": ["y", "x"], "missing": NaN}"#);
        assert_eq!(array.dimension_names, Some(vec![Some("y".to_owned()), Some("x".to_owned())]));
        assert_eq!(array.attributes["missing"], "NaN");
        for zattrs in [
            r#"{"_ARRAY_DIMENSIONS": ["y"]}"#,
            r#"{"_ARRAY_DIMENSIONS": "yx"}"#,
            r#"{"_ARRAY_DIMENSIONS": ["y", 5]}"#,
            "{}",
        ] {
            assert_eq!(with(zattrs).dimension_names, None);
        }
    }

    #[test]
    fn broken_attributes_cost_the_attributes_alone() {
        for zattrs in [&b"{\"a\": "[..], b"[]", b"\xff"] {
            let array = parse_v2_array("a/.zarray", document(json!({})).as_bytes(), Some(zattrs)).unwrap();
            assert!(array.attributes.is_empty() && array.attributes_error.is_some());
            let group =
                parse_v2_group(".zgroup", b"{\"zarr_format\": 2}", Some(zattrs), Some(zattrs)).unwrap();
            assert!(group.attributes_error.is_some() && group.consolidated.is_none());
        }
    }

    #[test]
    fn groups() {
        let group = parse_v2_group(".zgroup", b"{\"zarr_format\": 2}", Some(b"{\"a\": 1}"), None).unwrap();
        assert_eq!((group.zarr_format, &group.attributes["a"]), (Some(ZarrFormat::V2), &json!(1)));
        for broken in [&b"{}"[..], b"{\"zarr_format\": 3}", b"", b"[]"] {
            assert!(parse_v2_group(".zgroup", broken, None, None).is_err());
        }
    }
}
