//! Codecs as a document names them. They are opaque here: the codec layer builds them.
//!
//! Spec: v3 core, "Extension definition" (objects, short-hand names, `must_understand`); v2, "compressor" and
//! "filters". `{"name": "gzip", "configuration": {"level": 5}}` and `"crc32c"` in v3, `{"id": "zlib", "level": 1}` in v2.
//! Uses `json`.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::json;
use super::json::parse_error::{ParseError, ParseResult};
use super::{CodecFamily, CodecSpec};

/// An extension as v3 names it: an object or a short-hand name.
#[derive(Clone, Debug, PartialEq)]
pub struct Extension<'a> {
    /// Its `name`.
    pub name: &'a str,
    /// Its `configuration`, where given.
    pub configuration: Option<&'a Map<String, Value>>,
    /// False only where the document says so.
    pub must_understand: bool,
}

/// Reads an extension. Members other than `name`, `configuration`, `must_understand` are refused.
pub fn extension(value: &Value) -> ParseResult<Extension<'_>> {
    let members = match value {
        Value::String(_) => {
            return Ok(Extension { name: json::name(value)?, configuration: None, must_understand: true });
        }
        Value::Object(members) => members,
        other => {
            let found = json::shown(other);
            return Err(ParseError::invalid(format_args!(
                "must be an object with a name, or a name, not {found}"
            )));
        }
    };
    let name = json::name(json::required(members, "name")?).map_err(|error| error.within("name"))?;
    let in_this = |error: ParseError| error.within(json::shown_text(name));
    json::refuse_unknown(members, &["name", "configuration", "must_understand"]).map_err(in_this)?;
    let configuration = match members.get("configuration") {
        None | Some(Value::Null) => None,
        Some(value) => {
            Some(json::object(value).map_err(|error| error.within("configuration")).map_err(in_this)?)
        }
    };
    let must_understand = match members.get("must_understand") {
        None => true,
        Some(Value::Bool(must)) => *must,
        Some(other) => {
            let found = json::shown(other);
            let reason = format_args!("must_understand: must be true or false, not {found}");
            return Err(in_this(ParseError::invalid(reason)));
        }
    };
    Ok(Extension { name, configuration, must_understand })
}

/// Reads a v3 `codecs` list: an array's, or one inside a codec's configuration (`sharding_indexed`). `endian`,
/// the name that `bytes` had in drafts, becomes `bytes`.
pub fn v3_list(value: &Value) -> ParseResult<Vec<CodecSpec>> {
    let items = json::list(value)?;
    if items.is_empty() {
        return Err(ParseError::invalid("the list is empty; it must hold an array-to-bytes codec"));
    }
    let specs = items.iter().enumerate().map(|(i, item)| v3(item, i).map_err(|error| error.within(i)));
    let specs: Vec<CodecSpec> = specs.collect::<ParseResult<_>>()?;
    Ok(specs.into_iter().flat_map(rewritten).collect())
}

/// Returns the codecs that a codec of virtual-tiff stands for: `ChunkyCodec` is the elements in F order, then `bytes`. Any other codec
/// stands for itself.
fn rewritten(spec: CodecSpec) -> Vec<CodecSpec> {
    if spec.name != "ChunkyCodec" {
        return vec![spec];
    }
    let order = Map::from_iter([("order".to_owned(), Value::from("F"))]);
    let transpose = CodecSpec { name: "transpose".to_owned(), configuration: order, ..spec.clone() };
    let mut bytes = CodecSpec { name: "bytes".to_owned(), ..spec };
    bytes.configuration.entry("endian").or_insert_with(|| Value::from("little"));
    vec![transpose, bytes]
}

/// Returns a codec of wavpack-numcodecs with its members in a configuration: that library writes them next to the name.
fn with_configuration(value: &Value) -> Cow<'_, Value> {
    let Value::Object(members) = value else { return Cow::Borrowed(value) };
    let is_bare = members.get("name").and_then(Value::as_str) == Some("wavpack")
        && !members.contains_key("configuration");
    if !is_bare {
        return Cow::Borrowed(value);
    }
    let (named, configuration): (Map<String, Value>, Map<String, Value>) =
        members.clone().into_iter().partition(|(key, _)| key == "name" || key == "must_understand");
    let mut codec = named;
    codec.insert("configuration".to_owned(), Value::Object(configuration));
    Cow::Owned(Value::Object(codec))
}

fn v3(value: &Value, index: usize) -> ParseResult<CodecSpec> {
    let value = with_configuration(value);
    let extension = extension(&value)?;
    let name = match extension.name {
        "endian" => "bytes",
        name => name,
    };
    Ok(CodecSpec {
        family: CodecFamily::V3,
        name: name.to_owned(),
        configuration: extension.configuration.cloned().unwrap_or_default(),
        must_understand: extension.must_understand,
        place: format!("codecs[{index}]"),
    })
}

/// Reads one v2 codec: a filter or a compressor, as `place` says.
pub fn v2(value: &Value, place: String) -> ParseResult<CodecSpec> {
    let mut configuration = json::object(value)?.clone();
    let id = json::required(&configuration, "id")?;
    let name = json::name(id).map_err(|error| error.within("id"))?.to_owned();
    configuration.shift_remove("id");
    Ok(CodecSpec { family: CodecFamily::V2, name, configuration, must_understand: true, place })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::json;

    #[test]
    fn short_hand_and_bare_names_are_codecs_without_configuration() {
        let specs = v3_list(&json!(["bytes", {"name": "crc32c"}])).unwrap();
        assert_eq!(specs[0].name, "bytes");
        assert!(specs[0].configuration.is_empty() && specs[0].must_understand);
        assert_eq!(specs[1].name, "crc32c");
    }

    #[test]
    fn the_draft_name_endian_is_bytes() {
        let specs = v3_list(&json!([{"name": "endian", "configuration": {"endian": "big"}}])).unwrap();
        assert_eq!((specs[0].name.as_str(), &specs[0].configuration["endian"]), ("bytes", &json!("big")));
    }

    #[test]
    fn interleaved_samples_of_tiff_are_a_transpose_and_bytes() {
        let configured = json!({"name": "ChunkyCodec", "configuration": {"endian": "big"}});
        for (codec, endian) in [(configured, "big"), (json!("ChunkyCodec"), "little")] {
            let specs = v3_list(&json!([codec, "imagecodecs_lzw"])).unwrap();
            let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
            assert_eq!(names, ["transpose", "bytes", "imagecodecs_lzw"]);
            assert_eq!(
                (&specs[0].configuration["order"], &specs[1].configuration["endian"]),
                (&json!("F"), &json!(endian))
            );
            assert_eq!((specs[1].place.as_str(), specs[2].place.as_str()), ("codecs[0]", "codecs[1]"));
        }
    }

    #[test]
    fn members_next_to_the_name_of_wavpack_are_its_configuration() {
        let spec = &v3_list(&json!([{"name": "wavpack", "level": 2, "bps": null}])).unwrap()[0];
        assert_eq!(Value::Object(spec.configuration.clone()), json!({"level": 2, "bps": null}));
        let spec = &v3_list(&json!([{"name": "wavpack", "configuration": {"level": 3}}])).unwrap()[0];
        assert_eq!(spec.configuration["level"], json!(3));
    }

    #[test]
    fn must_understand_is_kept_for_the_codec_layer() {
        let spec = &v3_list(&json!([{"name": "x", "must_understand": false}])).unwrap()[0];
        assert!(!spec.must_understand);
        assert!(v3_list(&json!([{"name": "x", "must_understand": 0}])).is_err());
    }

    #[test]
    fn invalid_codecs_are_refused_with_their_place() {
        for (list, reason) in [
            (json!([]), "the list is empty; it must hold an array-to-bytes codec"),
            (json!({}), "must be a list, not an object"),
            (json!(["bytes", 7]), "1: must be an object with a name, or a name, not 7"),
            (json!([{"configuration": {}}]), "0: name is missing"),
            (
                json!([{"name": "gzip", "configuration": 5}]),
                "0: \"gzip\": configuration: must be an object, not 5",
            ),
            (
                json!([{"name": "gzip", "level": 5}]),
                "0: \"gzip\": the member \"level\" is not understood, and does not say \"must_understand\": false",
            ),
        ] {
            assert_eq!(v3_list(&list).unwrap_err().to_string(), reason);
        }
    }

    #[test]
    fn a_v2_codec_keeps_its_members_except_the_id() {
        let spec = v2(&json!({"level": 1, "id": "zlib"}), "compressor".to_owned()).unwrap();
        assert_eq!((spec.family, spec.name.as_str()), (CodecFamily::V2, "zlib"));
        assert_eq!(Value::Object(spec.configuration), json!({"level": 1}));
        assert!(v2(&json!({"level": 1}), String::new()).is_err());
        assert!(v2(&json!("zlib"), String::new()).is_err());
    }
}
