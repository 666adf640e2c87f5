//! Codecs of new arrays: from words (`zstd:3`, `blosc:lz4:5`, `gzip`, `none`) or JSON to the document's members.
//!
//! Spec: the codecs' own sections in `codec/`; defaults are zarr-python's. Uses its neighbours in `metadata`.

use std::ops::RangeInclusive;

use serde_json::{Value, json};

use crate::metadata::data_type::DataType;
use crate::metadata::json;
use crate::metadata::json::parse_error::{ParseError, ParseResult};

/// The words for v3.
const V3_WORDS: &str = "none, zstd[:LEVEL], gzip[:LEVEL], blosc[:NAME[:LEVEL[:SHUFFLE]]] and crc32c";
/// The words for v2.
const V2_WORDS: &str = "none, blosc[:NAME[:LEVEL[:SHUFFLE]]], zstd[:LEVEL], gzip[:LEVEL], zlib[:LEVEL], bz2[:LEVEL], lz4[:ACCELERATION]";

/// Levels of zstd (v3 "zstd codec").
const ZSTD_LEVELS: RangeInclusive<i64> = -131_072..=22;
/// Levels of DEFLATE and of blosc.
const LEVELS: RangeInclusive<i64> = 0..=9;

/// A codec in words: its name and arguments.
struct CodecWord<'a> {
    text: &'a str,
    name: &'a str,
    arguments: Vec<&'a str>,
}

impl<'a> CodecWord<'a> {
    fn new(text: &'a str) -> Self {
        let mut parts = text.trim().split(':').map(str::trim);
        CodecWord { text, name: parts.next().unwrap_or_default(), arguments: parts.collect() }
    }

    fn refused(&self, known: &str) -> ParseError {
        ParseError::invalid(format_args!(
            "codec '{}' is not one of {known}; use JSON for any other",
            self.text.trim()
        ))
    }

    fn text(&self, place: usize, default: &'a str) -> &'a str {
        self.arguments.get(place).copied().filter(|text| !text.is_empty()).unwrap_or(default)
    }

    fn number(&self, place: usize, default: i64, range: RangeInclusive<i64>) -> ParseResult<i64> {
        let text = self.text(place, "");
        if text.is_empty() {
            return Ok(default);
        }
        let (low, high) = (range.start(), range.end());
        text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
            let word = self.text.trim();
            ParseError::invalid(format_args!("codec '{word}': '{text}' is not a number from {low} to {high}"))
        })
    }

    /// Refuses more arguments than this.
    fn at_most(self, arguments: usize, known: &str) -> ParseResult<Self> {
        if self.arguments.len() > arguments { Err(self.refused(known)) } else { Ok(self) }
    }
}

/// Returns v3's `codecs`.
pub fn v3(text: Option<&str>, data_type: &DataType) -> ParseResult<Vec<Value>> {
    let text = text.unwrap_or("zstd").trim();
    if text.starts_with(['[', '{']) {
        return match json::parse(text.as_bytes())? {
            Value::Array(codecs) => Ok(codecs),
            _ => Err(ParseError::invalid("codecs of Zarr v3 are a JSON list")),
        };
    }
    let bytes = if has_byte_order(data_type) {
        json!({"name": "bytes", "configuration": {"endian": "little"}})
    } else {
        json!({"name": "bytes"})
    };
    let mut codecs = vec![bytes];
    if text == "none" {
        return Ok(codecs);
    }
    for word in text.split(',').map(CodecWord::new) {
        codecs.push(v3_word(word, data_type.item_size().unwrap_or(1))?);
    }
    Ok(codecs)
}

fn v3_word(word: CodecWord<'_>, item_bytes: usize) -> ParseResult<Value> {
    let configured = |name: &str, configuration: Value| json!({"name": name, "configuration": configuration});
    match word.name {
        "zstd" => {
            let level = word.at_most(1, V3_WORDS)?.number(0, 0, ZSTD_LEVELS)?;
            Ok(configured("zstd", json!({"level": level, "checksum": false})))
        }
        "gzip" => {
            let level = word.at_most(1, V3_WORDS)?.number(0, 5, LEVELS)?;
            Ok(configured("gzip", json!({"level": level})))
        }
        "blosc" => {
            let word = word.at_most(3, V3_WORDS)?;
            let shuffle = if item_bytes == 1 { "bitshuffle" } else { "shuffle" };
            let (name, level) = (word.text(0, "zstd"), word.number(1, 5, LEVELS)?);
            let shuffle = word.text(2, shuffle);
            Ok(configured(
                "blosc",
                json!({"typesize": item_bytes, "cname": name, "clevel": level, "shuffle": shuffle, "blocksize": 0}),
            ))
        }
        "crc32c" => word.at_most(0, V3_WORDS).map(|_| json!({"name": "crc32c"})),
        _ => Err(word.refused(V3_WORDS)),
    }
}

/// Returns v2's `filters` and `compressor`.
pub fn v2(text: Option<&str>) -> ParseResult<(Value, Value)> {
    let text = text.unwrap_or("blosc").trim();
    if text.starts_with(['[', '{']) {
        let Value::Object(mut members) = json::parse(text.as_bytes())? else {
            let forms = r#"{"id": …} or {"filters": […], "compressor": …}"#;
            return Err(ParseError::invalid(format_args!("codecs of Zarr v2 are written {forms}")));
        };
        if members.contains_key("id") {
            return Ok((Value::Null, Value::Object(members)));
        }
        json::refuse_unknown(&members, &["filters", "compressor"])?;
        let mut member = |name: &str| members.shift_remove(name).unwrap_or(Value::Null);
        return Ok((member("filters"), member("compressor")));
    }
    let compressor = match text {
        "none" => Value::Null,
        text => v2_word(CodecWord::new(text))?,
    };
    Ok((Value::Null, compressor))
}

fn v2_word(word: CodecWord<'_>) -> ParseResult<Value> {
    let level =
        |word: CodecWord<'_>, default: i64, range| word.at_most(1, V2_WORDS)?.number(0, default, range);
    Ok(match word.name {
        "blosc" => {
            let word = word.at_most(3, V2_WORDS)?;
            let shuffle = match word.text(2, "shuffle") {
                "noshuffle" => 0,
                "shuffle" => 1,
                "bitshuffle" => 2,
                _ => return Err(word.refused("noshuffle, shuffle and bitshuffle in its shuffle")),
            };
            let (name, level) = (word.text(0, "lz4"), word.number(1, 5, LEVELS)?);
            json!({"id": "blosc", "cname": name, "clevel": level, "shuffle": shuffle, "blocksize": 0})
        }
        "zstd" => json!({"id": "zstd", "level": level(word, 0, ZSTD_LEVELS)?}),
        name @ ("gzip" | "zlib") => json!({"id": name, "level": level(word, 1, LEVELS)?}),
        "bz2" => json!({"id": "bz2", "level": level(word, 1, 1..=9)?}),
        "lz4" => json!({"id": "lz4", "acceleration": level(word, 1, 1..=65537)?}),
        _ => return Err(word.refused(V2_WORDS)),
    })
}

/// Returns whether the elements have parts that have a byte order.
fn has_byte_order(data_type: &DataType) -> bool {
    let parts = data_type.components().unwrap_or_default();
    matches!(data_type, DataType::Struct(_)) || parts.iter().any(|part| part.width > 1)
}
