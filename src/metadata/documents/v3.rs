//! `zarr.json`: groups and arrays of Zarr v3.
//!
//! Spec: v3 core, "Array metadata", "Group metadata", "Extensions"; the inline `consolidated_metadata` of groups is
//! zarr-python's. Uses the other files of this folder.
//!
//! An unknown member makes the node an error, unless it is an object with `"must_understand": false`. A storage
//! transformer with that member is skipped, and the array is then read-only.

use serde_json::{Map, Value};

use crate::metadata::data_type::v3::ElementType;
use crate::metadata::data_type::{ByteOrder, DataType, OPTIONAL};
use crate::metadata::json::parse_error::{ParseError, ParseResult};
use crate::metadata::node::is_zero_without_sign;
use crate::metadata::{ArrayMetadata, CodecSpec, Document, FillValue, GroupMetadata, ZarrFormat};
use crate::metadata::{array, chunk_grid, chunk_keys, codec_spec, data_type, fill_value, json};

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
pub fn parse(key: &str, members: Map<String, Value>) -> ParseResult<Document> {
    array::expect_format(&members, 3)?;
    match json::text(json::required(&members, "node_type")?).map_err(|error| error.within("node_type"))? {
        "array" => parse_array(key, members).map(Document::Array),
        "group" => parse_group(key, members).map(Document::Group),
        other => Err(ParseError::invalid(format_args!(
            "node_type: must be \"array\" or \"group\", not {}",
            json::shown_text(other)
        ))),
    }
}

fn parse_group(key: &str, mut members: Map<String, Value>) -> ParseResult<GroupMetadata> {
    json::refuse_unknown(&members, &GROUP_MEMBERS)?;
    let attributes = take_attributes(&mut members)?;
    let consolidated = match members.shift_remove("consolidated_metadata") {
        None => None,
        Some(value) => inline_copy(value).map_err(|error| error.within("consolidated_metadata"))?,
    };
    Ok(GroupMetadata {
        zarr_format: Some(ZarrFormat::V3),
        document_key: key.to_owned(),
        attributes,
        attributes_error: None,
        consolidated,
    })
}

/// Reads the copy of the documents below a group. An unknown kind of copy is skipped if the document allows it.
fn inline_copy(value: Value) -> ParseResult<Option<Map<String, Value>>> {
    let Value::Object(mut members) = value else {
        return match value {
            Value::Null => Ok(None),
            other => Err(ParseError::invalid(format_args!("must be an object, not {}", json::shown(&other)))),
        };
    };
    match (members.get("kind").and_then(Value::as_str), members.get("must_understand")) {
        (Some("inline"), _) => {}
        (_, Some(Value::Bool(false))) => return Ok(None),
        (kind, _) => {
            let kind = kind
                .map_or_else(|| "no kind".to_owned(), |kind| format!("the kind {}", json::shown_text(kind)));
            return Err(ParseError::unsupported(format_args!("consolidated metadata of {kind}")));
        }
    }
    match members.shift_remove("metadata") {
        Some(Value::Object(documents)) => Ok(Some(documents)),
        _ => Err(ParseError::invalid("metadata: must be an object")),
    }
}

fn parse_array(key: &str, mut members: Map<String, Value>) -> ParseResult<ArrayMetadata> {
    json::refuse_unknown(&members, &ARRAY_MEMBERS)?;
    let attributes = take_attributes(&mut members)?;
    let member = |name: &'static str| json::required(&members, name);
    let shape = array::shape(member("shape")?)?;
    let element_type =
        data_type::v3::parse_element_type(member("data_type")?).map_err(|error| error.within("data_type"))?;
    let ElementType { data_type, is_optional } = element_type;
    let chunk_grid = chunk_grid::parse_v3(member("chunk_grid")?, &shape)
        .and_then(|grid| grid.check(&shape, data_type.item_size()).map(|()| grid))
        .map_err(|error| error.within("chunk_grid"))?;
    let chunk_keys = chunk_keys::parse_v3(member("chunk_key_encoding")?)
        .map_err(|error| error.within("chunk_key_encoding"))?;
    let codecs = codec_spec::v3_list(member("codecs")?).map_err(|error| error.within("codecs"))?;
    check_optional(is_optional, &data_type, &codecs)?;
    let stored_fill = member("fill_value")?;
    let mut fill_value = if is_optional {
        optional_fill(&data_type, stored_fill).map_err(|error| error.within("fill_value"))?
    } else if is_zero_without_sign(&data_type, stored_fill) {
        FillValue::zeros(&data_type)
    } else {
        FillValue::from_v3(&data_type, stored_fill).map_err(|error| error.within("fill_value"))?
    };
    let is_packed_struct = matches!(data_type, DataType::Struct(_)) && stored_fill.is_string();
    if is_packed_struct && bytes_order(&codecs) == ByteOrder::Big {
        // "structured": base64 follows the `endian` of the `bytes` codec.
        fill_value::swap(&mut fill_value.bytes, &data_type.components().unwrap_or_default());
    }
    let skipped = storage_transformers(members.get("storage_transformers"))
        .map_err(|error| error.within("storage_transformers"))?;
    let dimension_names = match members.get("dimension_names") {
        None | Some(Value::Null) => None,
        Some(names) => {
            Some(dimension_names(names, shape.len()).map_err(|error| error.within("dimension_names"))?)
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

/// Fails unless the codec "optional", which has the names of the data type, encodes the elements if, and only if, they are optional.
fn check_optional(is_optional: bool, data_type: &DataType, codecs: &[CodecSpec]) -> ParseResult<()> {
    let has_codec = codecs.iter().any(|codec| OPTIONAL.contains(&codec.name.as_str()));
    match (is_optional, has_codec) {
        (true, false) => {
            let reason = "\"optional\" without the codec \"optional\" in \"codecs\" itself";
            Err(ParseError::unsupported(reason).within("data_type"))
        }
        (false, true) if data_type.item_size().is_some() => {
            Err(ParseError::invalid("codecs: the codec \"optional\" is for the data type \"optional\" alone"))
        }
        _ => Ok(()),
    }
}

/// Reads the fill value of optional elements: null, or a list of one value.
fn optional_fill(data_type: &DataType, stored: &Value) -> ParseResult<FillValue> {
    match stored.as_array().map(Vec::as_slice) {
        Some([value]) => FillValue::from_v3(data_type, value),
        None if stored.is_null() => Ok(FillValue::undefined(data_type)),
        _ => {
            let found = json::shown(stored);
            Err(ParseError::invalid(format_args!("must be null or a list of one value, not {found}")))
        }
    }
}

/// Takes `attributes` out of a document. If the member is absent or null, there are no attributes.
fn take_attributes(members: &mut Map<String, Value>) -> ParseResult<Map<String, Value>> {
    match members.shift_remove("attributes") {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(attributes)) => Ok(attributes),
        Some(other) => Err(ParseError::invalid(format_args!(
            "attributes: must be an object, not {}",
            json::shown(&other)
        ))),
    }
}

/// Returns the byte order of the `bytes` codec.
fn bytes_order(codecs: &[CodecSpec]) -> ByteOrder {
    let bytes = codecs.iter().find(|codec| codec.name == "bytes");
    match bytes.and_then(|codec| codec.configuration.get("endian")).and_then(Value::as_str) {
        Some("big") => ByteOrder::Big,
        _ => ByteOrder::Little,
    }
}

/// Refuses storage transformers by name. Returns the names of those that the document allows to skip.
fn storage_transformers(value: Option<&Value>) -> ParseResult<Vec<String>> {
    let items = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(value) => json::list(value)?,
    };
    let name = |item| match codec_spec::extension(item)? {
        extension if extension.must_understand => {
            let name = json::shown_text(extension.name);
            Err(ParseError::unsupported(format_args!("the storage transformer {name}")))
        }
        extension => Ok(extension.name.to_owned()),
    };
    items.iter().map(name).collect()
}

fn dimension_names(value: &Value, rank: usize) -> ParseResult<Vec<Option<String>>> {
    let items = json::list(value)?;
    if items.len() != rank {
        let found = items.len();
        return Err(ParseError::invalid(format_args!("{found} names for {rank} dimensions")));
    }
    let name = |item: &Value| match item {
        Value::Null => Ok(None),
        _ => json::name(item).map(|name| Some(name.to_owned())),
    };
    items.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::error::Error;
    use crate::metadata::test_documents::{parsed_v3_array, v3_array};
    use crate::metadata::{ChunkGrid, parse_v3};
    use serde_json::json;

    /// Returns a small valid array with the members of `changes` inserted (null removes one).
    fn document(changes: Value) -> Value {
        let mut members = json!({
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
            "fill_value": 7, "codecs": ["bytes"], "attributes": null,
        });
        members.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        v3_array(&[4, 6], "int16", members)
    }

    fn array(changes: Value) -> ArrayMetadata {
        parsed_v3_array(&document(changes))
    }

    fn error(changes: Value) -> Error {
        parse_v3("a/zarr.json", document(changes).to_string().as_bytes()).unwrap_err()
    }

    #[test]
    fn an_array() {
        let array = array(json!({"attributes": {"units": "K"}, "dimension_names": ["y", Value::Null]}));
        assert_eq!((array.zarr_format, array.document_key.as_str()), (ZarrFormat::V3, "a/zarr.json"));
        assert_eq!((array.shape, array.chunk_grid), (vec![4, 6], ChunkGrid::Regular(vec![2, 3])));
        assert_eq!((array.data_type, array.fill_value.bytes), (DataType::Int16, vec![7, 0]));
        assert_eq!(array.chunk_keys.key(&[1, 0]), "c/1/0");
        assert_eq!(array.dimension_names, Some(vec![Some("y".to_owned()), None]));
        assert_eq!(array.attributes["units"], "K");
        assert!(!array.document.contains_key("attributes") && array.document.contains_key("codecs"));
        assert!(array.skipped.is_empty() && array.attributes_error.is_none());
    }

    #[test]
    fn chunks_of_length_0_are_read_and_reported() {
        let grid = json!({"name": "regular", "configuration": {"chunk_shape": [0, 3]}});
        let array = array(json!({"shape": [0, 6], "chunk_grid": grid}));
        assert!(array.deviation().is_some_and(|sentence| sentence.contains("length 0")));
    }

    /// tensorstore's default for a type that has no zero.
    #[test]
    fn a_zero_of_a_type_without_zero() {
        for zero in [json!(0.0), json!(0)] {
            let array = array(json!({"data_type": "float8_e8m0fnu", "fill_value": zero}));
            assert_eq!(array.fill_value.bytes, [0]);
            assert!(array.deviation().is_some_and(|sentence| sentence.contains("2^-127")));
        }
        let refused = error(json!({"data_type": "float8_e8m0fnu", "fill_value": -1.0})).to_string();
        assert!(refused.contains("no value near -1.0"), "{refused}");
    }

    #[test]
    fn null_where_nothing_is_meant() {
        let text = document(json!({})).to_string();
        let text = text.replacen(
            '{',
            r#"{"dimension_names": null, "storage_transformers": [], "attributes": null, "#,
            1,
        );
        let Document::Array(array) = parse_v3("zarr.json", text.as_bytes()).unwrap() else { panic!() };
        assert_eq!(array.dimension_names, None);
    }

    #[test]
    fn arrays_without_dimensions_and_without_elements() {
        let grid = |shape: Value| json!({"name": "regular", "configuration": {"chunk_shape": shape}});
        let scalar = array(json!({"shape": [], "chunk_grid": grid(json!([]))}));
        assert_eq!(scalar.chunk_keys.key(&[]), "c");
        let empty = array(json!({"shape": [0, u64::MAX >> 1], "chunk_grid": grid(json!([0, 5]))}));
        assert_eq!(empty.chunk_grid.chunk_counts(&empty.shape)[0], 0);
    }

    #[test]
    fn unknown_members_and_must_understand() {
        let skippable = json!({"must_understand": false, "name": "x"});
        assert!(array(json!({"extra": skippable})).skipped.is_empty());
        for extra in [json!(5), json!({"must_understand": true}), json!({}), json!(false)] {
            let text = error(json!({"extra": extra})).to_string();
            assert!(text.contains("a/zarr.json: not supported: the member \"extra\""), "{text}");
        }
        // A consolidated copy belongs to groups.
        assert!(matches!(error(json!({"consolidated_metadata": {}})), Error::Unsupported { .. }));
        let codec = &array(json!({"codecs": ["bytes", {"name": "x", "must_understand": false}]})).codecs[1];
        assert!(!codec.must_understand);
        for point in ["data_type", "chunk_grid", "chunk_key_encoding"] {
            let error = error(json!({point: {"name": "x", "must_understand": false}}));
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        }
    }

    #[test]
    fn storage_transformers_are_refused_by_name_or_skipped() {
        let text = error(json!({"storage_transformers": ["sharding"]})).to_string();
        assert!(text.contains("the storage transformer \"sharding\""), "{text}");
        let transformer = json!([{"name": "cache", "must_understand": false}]);
        assert_eq!(array(json!({"storage_transformers": transformer})).skipped, ["cache"]);
    }

    #[test]
    fn broken_documents_name_the_key_and_the_member() {
        for (changes, reason) in [
            (json!({"fill_value": null}), "fill_value is missing"),
            (json!({"codecs": null}), "codecs is missing"),
            (json!({"codecs": []}), "codecs: the list is empty; it must hold an array-to-bytes codec"),
            (json!({"node_type": "file"}), "node_type: must be \"array\" or \"group\", not \"file\""),
            (json!({"node_type": null}), "node_type is missing"),
            (json!({"zarr_format": 2}), "zarr_format: must be 3, not 2"),
            (json!({"zarr_format": "3"}), "zarr_format: must be 3, not \"3\""),
            (json!({"shape": [4]}), "chunk_grid: the grid has 2 dimensions, the shape 1"),
            (json!({"shape": [-4, 6]}), "shape: 0: must be an integer from 0 to 2^64-1, not -4"),
            (json!({"shape": [4.0, 6]}), "shape: 0: must be an integer from 0 to 2^64-1, not 4.0"),
            (json!({"shape": vec![1; 1000]}), "shape: 1000 dimensions, more than the limit of 32"),
            (json!({"shape": [1u64 << 62, 6]}), "shape: the array has more than 2^63-1 bytes"),
            (json!({"shape": [u64::MAX, 0]}), "shape: the array has more than 2^63-1 bytes"),
            (json!({"fill_value": 70000}), "fill_value: 70000 is not from -32768 to 32767"),
            (json!({"dimension_names": ["x"]}), "dimension_names: 1 names for 2 dimensions"),
            (json!({"dimension_names": ["x", 5]}), "dimension_names: must be a string, not 5"),
            (json!({"attributes": [1]}), "attributes: must be an object, not a list of 1"),
        ] {
            assert_eq!(error(changes).to_string(), format!("a/zarr.json: {reason}"));
        }
    }

    #[test]
    fn a_packed_fill_value_of_a_struct_has_the_byte_order_of_the_bytes_codec() {
        let fields = json!({"fields": [["x", "int16"], ["y", "int8"]]});
        let changes = |endian: Value| {
            json!({"data_type": {"name": "structured", "configuration": fields}, "fill_value": "AQID",
                "codecs": [{"name": "bytes", "configuration": endian}]})
        };
        assert_eq!(array(changes(json!({}))).fill_value.bytes, [1, 2, 3]);
        assert_eq!(array(changes(json!({"endian": "big"}))).fill_value.bytes, [2, 1, 3]);
    }

    #[test]
    fn groups() {
        let parse = |value: Value| match parse_v3("zarr.json", value.to_string().as_bytes()) {
            Ok(Document::Group(group)) => Ok(group),
            Ok(Document::Array(_)) => panic!(),
            Err(error) => Err(error.to_string()),
        };
        let group = parse(json!({"zarr_format": 3, "node_type": "group", "attributes": {"a": 1}})).unwrap();
        assert_eq!((group.zarr_format, &group.attributes["a"]), (Some(ZarrFormat::V3), &json!(1)));
        assert!(group.consolidated.is_none());
        let with = |copy: Value| {
            parse(json!({"zarr_format": 3, "node_type": "group", "consolidated_metadata": copy}))
        };
        assert!(with(json!(null)).unwrap().consolidated.is_none());
        assert!(with(json!({"kind": "remote", "must_understand": false})).unwrap().consolidated.is_none());
        let inline = with(json!({"kind": "inline", "metadata": {"a": {}}})).unwrap();
        assert_eq!(inline.consolidated.unwrap().len(), 1);
        for broken in [json!({"kind": "remote"}), json!({"kind": "inline", "metadata": 5}), json!(5)] {
            assert!(with(broken).unwrap_err().contains("consolidated_metadata: "));
        }
        let unknown = parse(json!({"zarr_format": 3, "node_type": "group", "shape": [1]}));
        assert!(unknown.unwrap_err().contains("the member \"shape\""));
    }
}
