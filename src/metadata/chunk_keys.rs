//! Chunk key encodings: the key of a chunk, below its array's.
//!
//! Spec: v3 "Default chunk key encoding" (`c/0/1`) and "v2 chunk key encoding" (`0.1`); the proposals "suffix" (`c/0/1.tiff`,
//! zarr-extensions pull request 28) and "fanout" (`d0/0/d1/12/34/c`, pull request 31), `zarrs.default_suffix` of the zarrs crate; N5 (`1/0`,
//! the numbers in reverse). Uses `json` and `codec_spec`.
//!
//! ```json
//! {"name": "suffix", "configuration": {"suffix": ".tiff", "base_encoding": {"name": "default"}}}
//! {"name": "fanout", "configuration": {"max_children": 1001}}
//! ```

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::codec_spec::extension;
use super::json;
use super::json::parse_error::{ParseError, ParseResult};
use super::{ChunkKeyEncoding, ChunkKeyScheme};

/// The most names in a folder, if a document with the encoding "fanout" does not say it.
const DEFAULT_MAX_CHILDREN: u64 = 1001;
/// The name that "fanout" gives to the object of a chunk.
const FANOUT_CHUNK: &str = "c";

/// What a name below an array is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyMatch {
    /// The key of the chunk at this index.
    Chunk(Vec<u64>),
    /// A folder with keys of chunks. The first numbers of their indices are these or begin with these digits.
    Folder(Vec<u64>),
}

impl ChunkKeyEncoding {
    /// Returns v2's encoding.
    pub fn v2(separator: char, separator_is_assumed: bool) -> Self {
        ChunkKeyEncoding {
            scheme: ChunkKeyScheme::V2,
            separator,
            separator_is_assumed,
            suffix: String::new(),
        }
    }

    /// Returns the encoding of N5.
    pub fn n5() -> Self {
        ChunkKeyEncoding { scheme: ChunkKeyScheme::N5, ..ChunkKeyEncoding::v2('/', false) }
    }

    /// Returns the key of the chunk at `index` (one number per dimension), relative to the array. Without dimensions
    /// it is `c` or `0`.
    pub fn key(&self, index: &[u64]) -> String {
        let mut key = String::new();
        match self.scheme {
            ChunkKeyScheme::Fanout { base } => push_fanout(&mut key, index, base),
            ChunkKeyScheme::N5 => {
                let index: Vec<u64> = index.iter().rev().copied().collect();
                self.push_numbers(&mut key, &index, false);
            }
            scheme => self.push_numbers(&mut key, index, scheme == ChunkKeyScheme::Default),
        }
        key.push_str(&self.suffix);
        key
    }

    fn push_numbers(&self, key: &mut String, index: &[u64], is_prefixed: bool) {
        if is_prefixed {
            key.push('c');
        } else if index.is_empty() {
            key.push('0');
        }
        for (axis, position) in index.iter().enumerate() {
            if is_prefixed || axis > 0 {
                key.push(self.separator);
            }
            let _ = write!(key, "{position}"); // writing to a String does not fail
        }
    }

    /// Returns what a name below an array of `rank` dimensions is; `None` if no chunk has this key and none is below it. The name is
    /// relative to the array.
    pub fn parse(&self, name: &str, rank: usize) -> Option<KeyMatch> {
        let key = name.strip_suffix(self.suffix.as_str());
        let chunk = |key| self.parse_whole(key, rank).map(KeyMatch::Chunk);
        if let Some(found) = key.and_then(chunk) {
            return Some(found);
        }
        match self.scheme {
            ChunkKeyScheme::Fanout { base } => {
                let (index, _) = fanout_numbers(name, base)?;
                (index.len() <= rank).then_some(KeyMatch::Folder(index))
            }
            _ if self.separator != '/' => None,
            // The numbers of the folder are the last ones of the indices.
            ChunkKeyScheme::N5 => (numbers(name, '/')?.len() < rank).then_some(KeyMatch::Folder(Vec::new())),
            scheme => {
                let rest = match scheme {
                    ChunkKeyScheme::Default if name == "c" => return Some(KeyMatch::Folder(Vec::new())),
                    ChunkKeyScheme::Default => name.strip_prefix("c/")?,
                    _ => name,
                };
                let index = numbers(rest, '/')?;
                (index.len() < rank).then_some(KeyMatch::Folder(index))
            }
        }
    }

    /// Returns the index of a chunk with this key, which has no suffix.
    fn parse_whole(&self, key: &str, rank: usize) -> Option<Vec<u64>> {
        let index = match (self.scheme, rank) {
            (ChunkKeyScheme::Fanout { .. }, 0) => (key == FANOUT_CHUNK).then(Vec::new),
            (ChunkKeyScheme::Fanout { base }, _) => {
                let (index, is_complete) = fanout_numbers(key.strip_suffix("/c")?, base)?;
                is_complete.then_some(index)
            }
            (ChunkKeyScheme::Default, 0) => (key == "c").then(Vec::new),
            (ChunkKeyScheme::V2 | ChunkKeyScheme::N5, 0) => (key == "0").then(Vec::new),
            (ChunkKeyScheme::Default, _) => {
                numbers(key.strip_prefix('c')?.strip_prefix(self.separator)?, self.separator)
            }
            (ChunkKeyScheme::V2, _) => numbers(key, self.separator),
            (ChunkKeyScheme::N5, _) => numbers(key, self.separator).map(|mut index| {
                index.reverse();
                index
            }),
        };
        index.filter(|index| index.len() == rank)
    }
}

/// Appends the key of the encoding "fanout".
fn push_fanout(key: &mut String, index: &[u64], base: u64) {
    for (axis, &position) in index.iter().enumerate() {
        let _ = write!(key, "d{axis}"); // writing to a String does not fail
        let mut power = 1u64;
        while position / power >= base {
            power *= base;
        }
        while power > 0 {
            let _ = write!(key, "/{}", position / power % base);
            power /= base;
        }
        key.push('/');
    }
    key.push_str(FANOUT_CHUNK);
}

/// Reads numbers with a separator. A number has no sign and no leading zero.
fn numbers(text: &str, separator: char) -> Option<Vec<u64>> {
    text.split(separator).map(number).collect()
}

fn number(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// Reads the numbers of a name in the encoding "fanout", and returns whether the last one has a digit.
fn fanout_numbers(name: &str, base: u64) -> Option<(Vec<u64>, bool)> {
    let mut index: Vec<u64> = Vec::new();
    let mut digits = 0;
    for part in name.split('/') {
        if part.starts_with('d') {
            let is_next = part.get(1..) == Some(index.len().to_string().as_str());
            if !is_next || (digits == 0 && !index.is_empty()) {
                return None;
            }
            index.push(0);
            digits = 0;
            continue;
        }
        let digit = number(part).filter(|&digit| digit < base)?;
        let last = index.last_mut()?;
        // The first digit is 0 only in the number 0.
        if digits > 0 && *last == 0 {
            return None;
        }
        *last = last.checked_mul(base)?.checked_add(digit)?;
        digits += 1;
    }
    Some((index, digits > 0))
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
    configured(extension.name, configuration).map_err(|error| match error {
        ParseError::Unsupported(_) => error,
        ParseError::Invalid(_) => error.within("configuration"),
    })
}

fn configured(name: &str, configuration: &Map<String, Value>) -> ParseResult<ChunkKeyEncoding> {
    match name {
        "suffix" => {
            // The proposal spells the member in both ways.
            const BASE: [&str; 2] = ["base_encoding", "base-encoding"];
            json::refuse_unknown(configuration, &["suffix", BASE[0], BASE[1]])?;
            let base =
                configuration.get(BASE[1]).map_or_else(|| json::required(configuration, BASE[0]), Ok)?;
            let base = parse_v3(base).map_err(|error| error.within(BASE[0]))?;
            with_suffix(base, json::required(configuration, "suffix")?)
        }
        "zarrs.default_suffix" => {
            json::refuse_unknown(configuration, &["separator", "suffix"])?;
            let base = encoding("default", configuration.get("separator"))?;
            with_suffix(base, json::required(configuration, "suffix")?)
        }
        "fanout" => {
            json::refuse_unknown(configuration, &["max_children"])?;
            let max_children = match configuration.get("max_children") {
                None => DEFAULT_MAX_CHILDREN,
                Some(value) => json::unsigned(value).map_err(|error| error.within("max_children"))?,
            };
            if max_children <= 3 {
                return Err(ParseError::invalid("max_children: must be greater than 3"));
            }
            let scheme = ChunkKeyScheme::Fanout { base: max_children - 1 };
            Ok(ChunkKeyEncoding {
                scheme,
                separator: '/',
                separator_is_assumed: false,
                suffix: String::new(),
            })
        }
        name => {
            json::refuse_unknown(configuration, &["separator"])?;
            encoding(name, configuration.get("separator"))
        }
    }
}

/// Appends a suffix to all keys. One that leads to another folder is refused.
fn with_suffix(mut base: ChunkKeyEncoding, suffix: &Value) -> ParseResult<ChunkKeyEncoding> {
    let suffix = json::text(suffix).map_err(|error| error.within("suffix"))?;
    if suffix.contains(['/', '\\', '\0']) {
        return Err(ParseError::invalid(format_args!(
            "suffix: {} has a character that separates folders, or a NUL",
            json::shown_text(suffix)
        )));
    }
    base.suffix.push_str(suffix);
    Ok(base)
}

fn encoding(name: &str, separator_member: Option<&Value>) -> ParseResult<ChunkKeyEncoding> {
    let (scheme, default) = match name {
        "default" => (ChunkKeyScheme::Default, '/'),
        "v2" => (ChunkKeyScheme::V2, '.'),
        other => {
            let name = json::shown_text(other);
            return Err(ParseError::unsupported(format_args!("the chunk key encoding {name}")));
        }
    };
    let separator = match separator_member {
        None => default,
        Some(value) => separator(value).map_err(|error| error.within("separator"))?,
    };
    Ok(ChunkKeyEncoding { scheme, separator, separator_is_assumed: false, suffix: String::new() })
}

/// Reads v2's `dimension_separator`. If it is absent or null, the separator is `.` and marked as assumed.
pub fn parse_v2(dimension_separator: Option<&Value>) -> ParseResult<ChunkKeyEncoding> {
    let (separator, separator_is_assumed) = match dimension_separator {
        None | Some(Value::Null) => ('.', true),
        Some(value) => (separator(value).map_err(|error| error.within("dimension_separator"))?, false),
    };
    Ok(ChunkKeyEncoding::v2(separator, separator_is_assumed))
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
        let error = parse_v3(&json!({"name": "morton", "must_understand": false})).unwrap_err();
        assert_eq!(error, ParseError::unsupported("the chunk key encoding \"morton\""));
        assert!(parse_v3(&json!({"name": "default", "configuration": {"separator": "-"}})).is_err());
        assert!(parse_v3(&json!({"name": "default", "configuration": {"prefix": "d"}})).is_err());
    }

    #[test]
    fn numbers_of_n5_are_reversed() {
        let encoding = ChunkKeyEncoding::n5();
        assert_eq!((encoding.key(&[1, 2, 30]), encoding.key(&[])), ("30/2/1".into(), "0".into()));
        assert_eq!(encoding.parse("30/2/1", 3), Some(KeyMatch::Chunk(vec![1, 2, 30])));
        assert_eq!(encoding.parse("30", 3), Some(KeyMatch::Folder(Vec::new())));
        for other in ["30/2/1/0", "30.2.1", "c/30/2/1", "s0", "attributes.json", "01/2/3"] {
            assert_eq!(encoding.parse(other, 3), None, "{other}");
        }
    }

    #[test]
    fn suffixes_follow_every_key() {
        let suffix = |value: &str, base: Value| {
            parse_v3(&json!({"name": "suffix", "configuration": {"suffix": value, "base_encoding": base}}))
        };
        let encoding = suffix(".tiff", json!("default")).unwrap();
        assert_eq!((encoding.key(&[1, 23]), encoding.key(&[])), ("c/1/23.tiff".into(), "c.tiff".into()));
        assert_eq!(encoding.parse("c/1/23.tiff", 2), Some(KeyMatch::Chunk(vec![1, 23])));
        assert_eq!(encoding.parse("c/1", 2), Some(KeyMatch::Folder(vec![1])));
        for other in ["c/1/23", "c/1.tiff", "c/1/23.tif", ".tiff", "c.tiff"] {
            assert_eq!(encoding.parse(other, 2), None, "{other}");
        }
        let encoding = suffix(".shard.zip", json!({"name": "v2"})).unwrap();
        assert_eq!(encoding.key(&[1, 2]), "1.2.shard.zip");
        let spelled = json!({"name": "suffix", "configuration": {"suffix": ".x", "base-encoding": "v2"}});
        assert_eq!(parse_v3(&spelled).unwrap().key(&[7]), "7.x");
        let zarrs =
            json!({"name": "zarrs.default_suffix", "configuration": {"separator": ".", "suffix": ".tiff"}});
        assert_eq!(parse_v3(&zarrs).unwrap().key(&[1, 23, 45]), "c.1.23.45.tiff");
        for bad in ["/x", "/../../etc", "\\x", "\0"] {
            assert!(suffix(bad, json!("default")).is_err(), "{bad}");
        }
        assert!(parse_v3(&json!({"name": "suffix", "configuration": {"suffix": ".x"}})).is_err());
        assert!(matches!(suffix(".x", json!("morton")), Err(ParseError::Unsupported(_))));
    }

    /// The table of the proposal.
    #[test]
    fn fanout_splits_numbers_into_digits() {
        let fanout =
            |max: Value| parse_v3(&json!({"name": "fanout", "configuration": {"max_children": max}}));
        let encoding = fanout(json!(101)).unwrap();
        for (index, key) in [
            (&[][..], "c"),
            (&[123], "d0/1/23/c"),
            (&[1234, 5, 67890], "d0/12/34/d1/5/d2/6/78/90/c"),
            (&[0, 100], "d0/0/d1/1/0/c"),
        ] {
            assert_eq!(encoding.key(index), key);
            assert_eq!(encoding.parse(key, index.len()), Some(KeyMatch::Chunk(index.to_vec())));
        }
        for (name, index) in [("d0", vec![0]), ("d0/12", vec![12]), ("d0/1/2/d1", vec![102, 0])] {
            assert_eq!(encoding.parse(name, 2), Some(KeyMatch::Folder(index)), "{name}");
        }
        for other in [
            "d1",
            "d0/d1",
            "d0/0/1",
            "d0/100/d1/0/c",
            "d0/1/d1/c",
            "d0/1/c",
            "c",
            "d0/1/d1/2/d2",
            "zarr.json",
            "",
        ] {
            assert_eq!(encoding.parse(other, 2), None, "{other}");
        }
        assert_eq!(parse_v3(&json!("fanout")).unwrap().key(&[1000, 999]), "d0/1/0/d1/999/c");
        assert_eq!(fanout(json!(4)).unwrap().key(&[u64::MAX]).matches('/').count(), 42);
        assert!(fanout(json!(3)).is_err() && fanout(json!(-1)).is_err() && fanout(json!("x")).is_err());
    }

    #[test]
    fn every_key_is_read_back() {
        for name in ["default", "v2"] {
            for separator in ["/", "."] {
                let encoding =
                    parse_v3(&json!({"name": name, "configuration": {"separator": separator}})).unwrap();
                for index in [&[][..], &[0], &[7, 0], &[1, 23, 45]] {
                    let found = encoding.parse(&encoding.key(index), index.len());
                    assert_eq!(found, Some(KeyMatch::Chunk(index.to_vec())), "{encoding:?}");
                }
                for other in ["00/1", "+1/1", "c/01/1", "c.1.1.1", "1/1/1/1/1", "x", "zarr.json", ""] {
                    assert_eq!(encoding.parse(other, 2), None, "{encoding:?} {other}");
                }
            }
        }
        let slash = parse_v3(&json!("default")).unwrap();
        assert_eq!(slash.parse("c", 2), Some(KeyMatch::Folder(vec![])));
        assert_eq!(slash.parse("c/4", 2), Some(KeyMatch::Folder(vec![4])));
        assert_eq!(parse_v2(Some(&json!("/"))).unwrap().parse("4", 2), Some(KeyMatch::Folder(vec![4])));
        assert_eq!(parse_v2(None).unwrap().parse("4", 2), None);
    }

    #[test]
    fn v2_remembers_that_the_separator_was_assumed() {
        assert!(parse_v2(None).unwrap().separator_is_assumed);
        assert!(!parse_v2(Some(&json!("."))).unwrap().separator_is_assumed);
        assert_eq!(parse_v2(Some(&json!("/"))).unwrap().key(&[0, 1]), "0/1");
        assert!(parse_v2(Some(&json!("_"))).is_err());
    }
}
