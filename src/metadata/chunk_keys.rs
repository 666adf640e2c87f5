//! Chunk key encodings: the key of a chunk, below its array's.
//!
//! Spec: v3 "Default chunk key encoding" (`c/0/1`) and "v2 chunk key encoding" (`0.1`). Uses `json` and `codec_spec`.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::ChunkKeyEncoding;
use super::codec_spec::extension;
use super::json;
use super::json::parse_error::{ParseError, ParseResult};

impl ChunkKeyEncoding {
    /// Returns the key of the chunk at `index` (one number per dimension), relative to the array. Without dimensions
    /// it is `c` or `0`.
    pub fn key(&self, index: &[u64]) -> String {
        let mut key = String::new();
        if self.prefixed {
            key.push('c');
        } else if index.is_empty() {
            key.push('0');
        }
        for (axis, position) in index.iter().enumerate() {
            if self.prefixed || axis > 0 {
                key.push(self.separator);
            }
            let _ = write!(key, "{position}"); // writing to a String does not fail
        }
        key
    }
}

/// Reads v3's `chunk_key_encoding`. `must_understand: false` does not help an unknown one.
pub fn parse_v3(value: &Value) -> ParseResult<ChunkKeyEncoding> {
    // zarr-python also accepts the separator next to the name, like the arguments of its own functions.
    if let Value::Object(members) = value
        && let Some(separator) = members.get("separator")
    {
        json::refuse_unknown(members, &["name", "separator"])?;
        let name = json::name(json::required(members, "name")?).map_err(|error| error.within("name"))?;
        return encoding(name, Some(separator));
    }
    let extension = extension(value)?;
    let empty = Map::new();
    let configuration = extension.configuration.unwrap_or(&empty);
    json::refuse_unknown(configuration, &["separator"]).map_err(|error| error.within("configuration"))?;
    encoding(extension.name, configuration.get("separator"))
}

fn encoding(name: &str, separator_member: Option<&Value>) -> ParseResult<ChunkKeyEncoding> {
    let (prefixed, default) = match name {
        "default" => (true, '/'),
        "v2" => (false, '.'),
        other => {
            let name = json::shown_text(other);
            return Err(ParseError::unsupported(format_args!("the chunk key encoding {name}")));
        }
    };
    let separator = match separator_member {
        None => default,
        Some(value) => separator(value).map_err(|error| error.within("separator"))?,
    };
    Ok(ChunkKeyEncoding { prefixed, separator, separator_is_assumed: false })
}

/// Reads v2's `dimension_separator`. If it is absent or null, the separator is `.` and marked as assumed.
pub fn parse_v2(dimension_separator: Option<&Value>) -> ParseResult<ChunkKeyEncoding> {
    let (separator, separator_is_assumed) = match dimension_separator {
        None | Some(Value::Null) => ('.', true),
        Some(value) => (separator(value).map_err(|error| error.within("dimension_separator"))?, false),
    };
    Ok(ChunkKeyEncoding { prefixed: false, separator, separator_is_assumed })
}

fn separator(value: &Value) -> ParseResult<char> {
    match value.as_str() {
        Some("/") => Ok('/'),
        Some(".") => Ok('.'),
        _ => Err(ParseError::invalid(format_args!("must be \"/\" or \".\", not {}", json::shown(value)))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_of_both_encodings_with_both_separators() {
        for (name, separator, key, key_0d) in [
            ("default", "/", "c/1/23/45", "c"),
            ("default", ".", "c.1.23.45", "c"),
            ("v2", "/", "1/23/45", "0"),
            ("v2", ".", "1.23.45", "0"),
        ] {
            let configuration = json!({"separator": separator});
            let encoding = parse_v3(&json!({"name": name, "configuration": configuration})).unwrap();
            assert_eq!((encoding.key(&[1, 23, 45]), encoding.key(&[])), (key.to_owned(), key_0d.to_owned()));
            assert!(!encoding.separator_is_assumed);
            let next_to = parse_v3(&json!({"name": name, "separator": separator})).unwrap();
            assert_eq!(next_to, encoding);
        }
    }

    #[test]
    fn the_default_separators_differ() {
        for value in
            [json!("default"), json!({"name": "default"}), json!({"name": "default", "configuration": {}})]
        {
            assert_eq!(parse_v3(&value).unwrap().key(&[1, 2]), "c/1/2");
        }
        assert_eq!(parse_v3(&json!("v2")).unwrap().key(&[1, 2]), "1.2");
    }

    #[test]
    fn others_are_refused_even_with_must_understand_false() {
        let error = parse_v3(&json!({"name": "fanout", "must_understand": false})).unwrap_err();
        assert_eq!(error, ParseError::unsupported("the chunk key encoding \"fanout\""));
        assert!(parse_v3(&json!({"name": "default", "configuration": {"separator": "-"}})).is_err());
        assert!(parse_v3(&json!({"name": "default", "configuration": {"prefix": "d"}})).is_err());
    }

    #[test]
    fn v2_remembers_that_the_separator_was_assumed() {
        assert!(parse_v2(None).unwrap().separator_is_assumed);
        assert!(!parse_v2(Some(&json!("."))).unwrap().separator_is_assumed);
        assert_eq!(parse_v2(Some(&json!("/"))).unwrap().key(&[0, 1]), "0/1");
        assert!(parse_v2(Some(&json!("_"))).is_err());
    }
}
