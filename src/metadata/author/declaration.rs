//! A new array from the text of a sidecar: a copy of another array's, or a short one that a user wrote.
//!
//! Uses its neighbours. A copied sidecar (it has a `schema`) describes in `zarr` how the array is stored; the new array is stored
//! in the same way if the version of Zarr is the same. In a sidecar that a user wrote, an unknown member is refused: it may be
//! misspelled.

use serde_json::{Map, Value, json};

use super::{ArraySpec, ElementType, NodeDocument, attributes_text, pretty};
use crate::metadata::data_type::ByteOrder;
use crate::metadata::json::edit;
use crate::metadata::json::parse_error::{ParseError, ParseResult};
use crate::metadata::{ZarrFormat, json, parse_array};

/// Attributes that a sidecar also has among its own members.
pub const LIFTED_ATTRIBUTES: [&str; 3] = ["scale_factor", "add_offset", "units"];

/// The members that a user may write.
const MEMBERS: [&str; 15] = [
    "shape",
    "descr",
    "data_type",
    "chunks",
    "shards",
    "codecs",
    "fill_value",
    "dimension_names",
    "attributes",
    "fortran_order",
    "order",
    "byte_order",
    "scale_factor",
    "add_offset",
    "units",
];

/// Returns the documents of the array, the main one last. The order and the byte order are those that the mount serves.
pub fn declared(
    text: &str,
    zarr_format: ZarrFormat,
    is_fortran_order: bool,
    byte_order: ByteOrder,
) -> ParseResult<Vec<NodeDocument>> {
    let members = json::parse_object(text.as_bytes())?;
    let is_copy = members.contains_key("schema");
    if !is_copy {
        check_members(&members, is_fortran_order)?;
    }
    let shape = lengths(&members, "shape")?.ok_or_else(|| ParseError::invalid("\"shape\" is missing"))?;
    let stored = match members.get("zarr") {
        Some(Value::Object(stored)) if is_copy => Some(stored),
        _ => None,
    };
    let attributes = attributes(text, &members);
    let own = stored.filter(|stored| {
        stored.get("zarr_format").and_then(Value::as_u64) == zarr_format.number().map(u64::from)
    });
    if let (Some(own), ZarrFormat::V2) = (own, zarr_format) {
        let mut document = own.clone();
        document.insert("shape".to_owned(), json!(shape));
        let zattrs = NodeDocument { name: ".zattrs", text: attributes_text(&attributes)? };
        return checked(vec![
            zattrs,
            NodeDocument { name: ".zarray", text: pretty(&Value::Object(document)) },
        ]);
    }
    let element = element(&members, own)?;
    if !is_copy
        && element.byte_order().is_some_and(|named| named != byte_order)
        && members.contains_key("descr")
    {
        return Err(ParseError::invalid(
            "\"descr\" has another byte order than the bytes of this mount, which its option 'byte-order' sets",
        ));
    }
    let grid = |stored: &Map<String, Value>| {
        ["shard_shape", "chunk_shape", "chunks"]
            .iter()
            .map(|name| lengths(stored, name))
            .find(|found| !matches!(found, Ok(None)))
    };
    let chunks = match lengths(&members, "chunks")? {
        Some(chunks) => Some(chunks),
        None => stored.and_then(grid).transpose()?.flatten().filter(|chunks| chunks.len() == shape.len()),
    };
    let codecs = value(&members, "codecs").map(word);
    let fill_value = fill_value(&members, is_copy, zarr_format);
    let spec = ArraySpec {
        zarr_format,
        shape,
        element,
        chunks,
        shards: lengths(&members, "shards")?,
        codecs: codecs.as_deref(),
        fill_value: fill_value.as_deref(),
        dimension_names: value(&members, "dimension_names").map(names).transpose()?,
        attributes,
    };
    let mut documents = spec.documents()?;
    let as_stored = own.and_then(|own| own.get("codecs")).filter(|_| codecs.is_none());
    if let (Some(codecs), Some(main)) = (as_stored, documents.last_mut()) {
        let text = edit::replace(&main.text, &["codecs"], &codecs.to_string());
        main.text = text.ok_or_else(|| ParseError::invalid("the document has no place for the codecs"))?;
    }
    checked(documents)
}

/// Returns the fill value, if it is given. A copied zero becomes undefined in v2 if the array has dimension names:
/// there it would mark zeros as missing. Missing chunks are zeros in both cases.
fn fill_value(members: &Map<String, Value>, is_copy: bool, zarr_format: ZarrFormat) -> Option<String> {
    let given = members.get("fill_value").filter(|value| !value.is_null() || zarr_format == ZarrFormat::V2);
    let is_zero = |value: &Value| value.as_f64() == Some(0.0) || *value == Value::Bool(false);
    let marks_zeros = is_copy && zarr_format == ZarrFormat::V2 && value(members, "dimension_names").is_some();
    given.map(|given| if marks_zeros && is_zero(given) { "null".to_owned() } else { word(given) })
}

/// Refuses members that the user may have misspelled, and an order of elements that the mount does not serve.
fn check_members(members: &Map<String, Value>, is_fortran_order: bool) -> ParseResult<()> {
    if let Some(name) = members.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
        let known = MEMBERS.join(", ");
        return Err(ParseError::invalid(format_args!("\"{name}\" is not a member of a new array: {known}")));
    }
    let order = members.get("fortran_order").and_then(Value::as_bool);
    if order.is_some_and(|order| order != is_fortran_order) {
        let sentence = "\"fortran_order\" is not that of this mount, which its option 'order' sets";
        return Err(ParseError::invalid(sentence));
    }
    Ok(())
}

fn checked(documents: Vec<NodeDocument>) -> ParseResult<Vec<NodeDocument>> {
    let Some(main) = documents.last() else { return Ok(documents) };
    match parse_array(main.name, main.text.as_bytes()) {
        Ok(Some(_)) => Ok(documents),
        Ok(None) => Err(ParseError::invalid("this does not describe an array")),
        Err(error) => Err(ParseError::invalid(super::reason(&error.to_string(), main.name))),
    }
}

/// Returns a member that is not null.
fn value<'m>(members: &'m Map<String, Value>, name: &str) -> Option<&'m Value> {
    members.get(name).filter(|value| !value.is_null())
}

/// Returns a value in the form of the command line: words without quotes.
fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn lengths(members: &Map<String, Value>, name: &str) -> ParseResult<Option<Vec<u64>>> {
    let Some(value) = value(members, name) else { return Ok(None) };
    let list = value.as_array().and_then(|list| list.iter().map(Value::as_u64).collect::<Option<Vec<_>>>());
    list.map(Some)
        .ok_or_else(|| ParseError::invalid(format_args!("\"{name}\" must be a list of whole numbers")))
}

fn names(value: &Value) -> ParseResult<Vec<Option<String>>> {
    let name = |value: &Value| match value {
        Value::Null => Some(None),
        Value::String(name) => Some(Some(name.clone())),
        _ => None,
    };
    let list = value.as_array().and_then(|list| list.iter().map(name).collect::<Option<Vec<_>>>());
    list.ok_or_else(|| ParseError::invalid("\"dimension_names\" must be a list of strings"))
}

fn element(members: &Map<String, Value>, own: Option<&Map<String, Value>>) -> ParseResult<ElementType> {
    let copied = own.and_then(|own| value(own, "data_type"));
    let named = copied.or_else(|| value(members, "data_type")).or_else(|| value(members, "descr"));
    let named = named.ok_or_else(|| ParseError::invalid("\"descr\" or \"data_type\" is missing"))?;
    ElementType::parse(&named.to_string())
}

/// Returns the attributes with the text of their values. A member of the sidecar itself counts only if `attributes`
/// does not have it.
fn attributes(text: &str, members: &Map<String, Value>) -> Vec<(String, String)> {
    let text_of = |path: &[&str], value: &Value| {
        edit::find(text, path).map_or_else(|| value.to_string(), str::to_owned)
    };
    let mut attributes = Vec::new();
    if let Some(Value::Object(own)) = members.get("attributes") {
        attributes.extend(own.iter().map(|(key, value)| (key.clone(), text_of(&["attributes", key], value))));
    }
    for name in LIFTED_ATTRIBUTES {
        if let Some(value) = members.get(name).filter(|_| !attributes.iter().any(|(key, _)| key == name)) {
            attributes.push((name.to_owned(), text_of(&[name], value)));
        }
    }
    attributes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn little(text: &str, zarr_format: ZarrFormat) -> ParseResult<Vec<NodeDocument>> {
        declared(text, zarr_format, false, ByteOrder::Little)
    }

    fn document(text: &str, zarr_format: ZarrFormat) -> Value {
        serde_json::from_str(&little(text, zarr_format).unwrap().last().unwrap().text).unwrap()
    }

    #[test]
    fn a_short_sidecar() {
        let text = r#"{"shape":[4,6],"descr":"<f4","chunks":[2,6],"fill_value":"NaN","codecs":"gzip:1",
            "dimension_names":["y",null],"units":"K","attributes":{"n":1E5}}"#;
        let v3 = document(text, ZarrFormat::V3);
        assert_eq!(
            (&v3["shape"], &v3["data_type"], &v3["fill_value"]),
            (&json!([4, 6]), &json!("float32"), &json!("NaN"))
        );
        assert_eq!(v3["chunk_grid"]["configuration"]["chunk_shape"], json!([2, 6]));
        assert_eq!((&v3["codecs"][1]["name"], &v3["attributes"]["units"]), (&json!("gzip"), &json!("K")));
        assert!(little(text, ZarrFormat::V3).unwrap()[0].text.contains("1E5"), "as it was written");
        let v2 = document(r#"{"shape":[3],"data_type":"int16"}"#, ZarrFormat::V2);
        assert_eq!((&v2["dtype"], &v2["chunks"]), (&json!("<i2"), &json!([3])));
    }

    #[test]
    fn a_copy_is_stored_in_the_same_way() {
        let codecs = json!([{"name": "sharding_indexed", "configuration": {"chunk_shape": [2],
            "codecs": [{"name": "bytes"}], "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]}}]);
        let zarr = json!({"zarr_format": 3, "data_type": "int8", "chunk_shape": [2], "shard_shape": [4], "codecs": codecs});
        let copy = json!({"schema": "zarrfs/1", "nbytes": 8, "shape": [8], "descr": "|i1", "fill_value": 3, "zarr": zarr});
        let v3 = document(&copy.to_string(), ZarrFormat::V3);
        assert_eq!((&v3["codecs"], &v3["fill_value"]), (&codecs, &json!(3)));
        assert_eq!(v3["chunk_grid"]["configuration"]["chunk_shape"], json!([4]));
        assert_eq!(document(&copy.to_string(), ZarrFormat::V2)["chunks"], json!([4]), "another version");
    }

    #[test]
    fn errors_name_the_mistake() {
        for (text, reason) in [
            ("[1]", "object"),
            (r#"{"shape":[4]}"#, "\"descr\" or \"data_type\" is missing"),
            (r#"{"descr":"<f4"}"#, "\"shape\" is missing"),
            (r#"{"shape":[-4],"descr":"<f4"}"#, "\"shape\" must be a list of whole numbers"),
            (r#"{"shape":[4],"descr":"<f4","chunk":[2]}"#, "\"chunk\" is not a member"),
            (r#"{"shape":[4],"descr":">f4"}"#, "\"descr\" has another byte order"),
            (r#"{"shape":[4],"descr":"<f4","fortran_order":true}"#, "\"fortran_order\" is not that"),
            (r#"{"shape":[4],"descr":"<f4","chunks":[2,2]}"#, "chunks: 2 for a shape"),
            (r#"{"shape":[4],"descr":"float"}"#, ""),
        ] {
            let error = little(text, ZarrFormat::V3).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
