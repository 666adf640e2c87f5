//! JSON as metadata documents have it: bounded, with the bare NaN and Infinity that many writers leave in.
//!
//! Spec: RFC 8259, relaxed by what real stores hold. Uses `parse_error` only.
//!
//! A document may start with a UTF-8 byte order mark. `NaN`, `Infinity` and `-Infinity` outside strings are read as
//! strings with these words. If a member is repeated, the last one counts. Numbers keep their digits (serde_json
//! writes every exponent in the form `e+5`).

pub mod edit;
pub mod parse_error;

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::MAX_DOCUMENT_BYTES;
use parse_error::{ParseError, ParseResult};

/// The deepest nesting of lists and objects that is accepted.
pub const MAX_DEPTH: usize = 64;
/// The most values that a document may hold, an object counting twice: a parsed value takes 100 to 200 bytes, so
/// this bounds a hostile document at some 300 MiB. A consolidated copy of 30,000 arrays stays below it.
pub const MAX_VALUES: usize = 2 << 20;
/// The longest name (of a field, a dimension, a codec) that is accepted, in bytes.
pub const MAX_NAME_BYTES: usize = 4096;

/// Estimates the memory that a parsed object takes, with the room that it keeps for further members.
pub fn memory_bytes(members: &Map<String, Value>) -> usize {
    /// A member in the list of an object (hash, name, value), and its place in the table of hashes.
    const MEMBER_BYTES: usize = 2 * size_of::<u64>() + size_of::<String>() + size_of::<Value>();
    // Documents are at most MAX_DEPTH deep.
    fn value_bytes(value: &Value) -> usize {
        match value {
            Value::Null | Value::Bool(_) => 0,
            Value::Number(number) => text_bytes(number.to_string().len()),
            Value::String(text) => text_bytes(text.len()),
            Value::Array(values) => {
                values.capacity() * size_of::<Value>() + values.iter().map(value_bytes).sum::<usize>()
            }
            Value::Object(members) => memory_bytes(members),
        }
    }
    if members.is_empty() {
        return 0;
    }
    // A table has a power of two of places, and one eighth of them is free.
    let places = (members.len() * 8).div_ceil(7).next_power_of_two().max(4);
    let room = places - places.div_ceil(8);
    let content = members.iter().map(|(name, value)| text_bytes(name.len()) + value_bytes(value));
    room * MEMBER_BYTES + content.sum::<usize>()
}

/// Returns the memory that the characters of a text take, with what the allocator adds.
fn text_bytes(length: usize) -> usize {
    (length + 2 * size_of::<usize>()).max(4 * size_of::<usize>())
}

/// Parses a whole document.
pub fn parse(document: &[u8]) -> ParseResult<Value> {
    if document.len() as u64 > MAX_DOCUMENT_BYTES {
        return Err(ParseError::invalid(format_args!(
            "the document has {} bytes, more than the limit of {MAX_DOCUMENT_BYTES}",
            document.len()
        )));
    }
    let document = document.strip_prefix(b"\xef\xbb\xbf").unwrap_or(document);
    let document = quote_bare_numbers(document)?;
    serde_json::from_slice(&document).map_err(|error| ParseError::invalid(format_args!("not JSON: {error}")))
}

/// Parses a document that must be an object.
pub fn parse_object(document: &[u8]) -> ParseResult<Map<String, Value>> {
    match parse(document)? {
        Value::Object(members) => Ok(members),
        other => Err(ParseError::invalid(format_args!("the document is {}, not an object", shown(&other)))),
    }
}

/// Puts words that are not JSON between quotes. On the way it enforces [`MAX_DEPTH`] and [`MAX_VALUES`].
fn quote_bare_numbers(document: &[u8]) -> ParseResult<Cow<'_, [u8]>> {
    const WORDS: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];
    let mut quoted: Vec<u8> = Vec::new();
    let mut copied = 0; // the length of the document's part that `quoted` holds
    let (mut depth, mut values) = (0usize, 0usize);
    let mut at = 0;
    while let Some(&byte) = document.get(at) {
        at += 1;
        match byte {
            b'"' => at = end_of_string(document, at),
            b'[' | b'{' => {
                depth += 1;
                values += if byte == b'{' { 2 } else { 1 };
                if depth > MAX_DEPTH {
                    return Err(ParseError::invalid(format_args!("JSON nested more than {MAX_DEPTH} deep")));
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            b'N' | b'I' | b'-' => {
                let rest = document.get(at - 1..).unwrap_or_default();
                let Some(word) = WORDS.iter().find(|word| rest.starts_with(word)) else { continue };
                quoted.extend_from_slice(document.get(copied..at - 1).unwrap_or_default());
                quoted.push(b'"');
                quoted.extend_from_slice(word);
                quoted.push(b'"');
                at += word.len() - 1;
                copied = at;
            }
            _ => {}
        }
        if values > MAX_VALUES {
            return Err(ParseError::invalid(format_args!("JSON with more than {MAX_VALUES} values")));
        }
    }
    if copied == 0 {
        return Ok(Cow::Borrowed(document));
    }
    quoted.extend_from_slice(document.get(copied..).unwrap_or_default());
    Ok(Cow::Owned(quoted))
}

/// Returns the position after the string that begins at `at`.
fn end_of_string(document: &[u8], mut at: usize) -> usize {
    while let Some(&byte) = document.get(at) {
        at += 1;
        match byte {
            b'"' => break,
            b'\\' => at += 1,
            _ => {}
        }
    }
    at
}

/// Formats a value for an error message: short, whatever its size.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) => shown_text(text),
        Value::Number(number) => shortened(number.as_str()),
        Value::Null | Value::Bool(_) => value.to_string(),
    }
}

/// Formats a text for an error message: quoted, without control characters, short.
pub fn shown_text(text: &str) -> String {
    let quoted: String = text.chars().take(81).flat_map(char::escape_debug).collect();
    format!("\"{}\"", shortened(&quoted))
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Returns the member `name`, or an error if it is missing.
pub fn required<'a>(members: &'a Map<String, Value>, name: &str) -> ParseResult<&'a Value> {
    members.get(name).ok_or_else(|| ParseError::invalid(format_args!("{name} is missing")))
}

/// Reads an object.
pub fn object(value: &Value) -> ParseResult<&Map<String, Value>> {
    value
        .as_object()
        .ok_or_else(|| ParseError::invalid(format_args!("must be an object, not {}", shown(value))))
}

/// Reads a list.
pub fn list(value: &Value) -> ParseResult<&[Value]> {
    match value {
        Value::Array(items) => Ok(items),
        _ => Err(ParseError::invalid(format_args!("must be a list, not {}", shown(value)))),
    }
}

/// Reads a string.
pub fn text(value: &Value) -> ParseResult<&str> {
    value.as_str().ok_or_else(|| ParseError::invalid(format_args!("must be a string, not {}", shown(value))))
}

/// Reads a string that names something. It has at most [`MAX_NAME_BYTES`].
pub fn name(value: &Value) -> ParseResult<&str> {
    let name = text(value)?;
    if name.len() > MAX_NAME_BYTES {
        return Err(ParseError::invalid(format_args!(
            "the name {} has more than {MAX_NAME_BYTES} bytes",
            shown_text(name)
        )));
    }
    Ok(name)
}

/// Reads a number that is not negative and has neither fraction nor exponent.
pub fn unsigned(value: &Value) -> ParseResult<u64> {
    value.as_u64().ok_or_else(|| {
        ParseError::invalid(format_args!("must be an integer from 0 to 2^64-1, not {}", shown(value)))
    })
}

/// Reads a list of numbers, each as [`unsigned`].
pub fn unsigned_list(value: &Value) -> ParseResult<Vec<u64>> {
    list(value)?.iter().enumerate().map(|(i, item)| unsigned(item).map_err(|error| error.within(i))).collect()
}

/// Refuses members other than `known`, unless they allow readers to skip them (v3 core, "must_understand").
pub fn refuse_unknown(members: &Map<String, Value>, known: &[&str]) -> ParseResult<()> {
    for (name, value) in members {
        if !known.contains(&name.as_str()) && !may_be_skipped(value) {
            return Err(ParseError::unsupported(format_args!(
                "the member {} is not understood, and does not say \"must_understand\": false",
                shown_text(name)
            )));
        }
    }
    Ok(())
}

/// Returns whether a value is an object with `"must_understand": false`.
pub fn may_be_skipped(value: &Value) -> bool {
    value.get("must_understand") == Some(&Value::Bool(false))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn parsed(text: &str) -> Value {
        parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn bare_words_become_strings_outside_strings_only() {
        let text = r#"{"a": NaN, "b": [Infinity,-Infinity, -1], "NaN \"NaN": "Infinity", "c\\": NaN}"#;
        let expected =
            json!({"a": "NaN", "b": ["Infinity", "-Infinity", -1], "NaN \"NaN": "Infinity", "c\\": "NaN"});
        assert_eq!(parsed(text), expected);
        assert_eq!(parsed("NaN"), json!("NaN"));
        for broken in ["Nan", "-NaN", "Inf", "NaNNaN", "-", "[NaN"] {
            assert!(parse(broken.as_bytes()).is_err(), "{broken}");
        }
    }

    #[test]
    fn numbers_keep_their_digits() {
        let text = r#"[1.0,18446744073709551615,-0.0,1e+400,0.10000000000000000000001,1e-7,1e+5]"#;
        assert_eq!(parsed(text).to_string(), text);
    }

    #[test]
    fn a_byte_order_mark_is_skipped_and_the_last_of_repeated_members_counts() {
        assert_eq!(parsed("\u{feff}{\"a\": 1, \"b\": 2, \"a\": 3}"), json!({"a": 3, "b": 2}));
    }

    #[test]
    fn depth_is_bounded_without_recursion() {
        for opening in ["[", "{\"a\":", "[{\"\":"] {
            let error = parse(opening.repeat(100_000).as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), "JSON nested more than 64 deep");
        }
        let deepest = format!("{}{}", "[".repeat(64), "]".repeat(64));
        assert!(parse(deepest.as_bytes()).is_ok());
        assert!(parse(format!("[{deepest}]").as_bytes()).is_err());
        assert!(parse(format!("\"{}\"", "[".repeat(1000)).as_bytes()).is_ok());
    }

    #[test]
    fn size_is_bounded() {
        let document = vec![b' '; MAX_DOCUMENT_BYTES as usize + 1];
        assert!(parse(&document).unwrap_err().to_string().starts_with("the document has 67108865 bytes"));
        let values = format!("[{}0]", "0,".repeat(MAX_VALUES));
        assert!(parse(values.as_bytes()).unwrap_err().to_string().starts_with("JSON with more than"));
    }

    #[test]
    fn input_that_is_not_json_is_refused() {
        for document in
            [&b""[..], b"\xff", b"{\"a\":1,}", b"{\"a\":1} x", b"\"\xc3\x28\"", b"\"abc\\", b"01", b"tru"]
        {
            assert!(parse(document).is_err());
        }
        assert_eq!(
            parse_object(b"[1]").unwrap_err().to_string(),
            "the document is a list of 1, not an object"
        );
    }

    #[test]
    fn error_texts_stay_short() {
        let long = Value::String("a\n".repeat(10_000));
        assert!(shown(&long).len() < 200 && !shown(&long).contains('\n'));
        let long = parsed(&"1".repeat(10_000));
        assert!(shown(&long).len() < 200);
        assert_eq!(shown(&json!([[1], [2]])), "a list of 2");
    }

    proptest! {
        #[test]
        fn standard_json_is_read_as_serde_reads_it(text in "[\\[\\]{}:,\"\\\\a-cNI0-9. -]{0,40}") {
            if let Ok(value) = serde_json::from_str::<Value>(&text) {
                prop_assert_eq!(parse(text.as_bytes()).unwrap(), value);
            }
        }
    }
}
