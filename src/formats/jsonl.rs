//! `jsonl`: an array of strings or of bytes as text, one JSON value per line, in C order whatever the mount's order is.
//!
//! Spec: RFC 8259 (JSON), RFC 4648 section 4 (base64), jsonlines.org.
//!
//! ```json
//! "a string stands for itself"
//! "Ynl0ZXMgYXMgYmFzZTY0"
//! ```
//!
//! Elements that are not stored are the fill value. Arrays of fixed-size elements have their flat file, and none of these. A
//! line holds no character that any program takes for the end of a line: U+0085, U+2028 and U+2029 are escaped too.

use std::io::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Companion, Format, Made, Subject};
use crate::array::{Engine, Held, VariableArray};
use crate::error::{Error, Result};
use crate::metadata::{ArrayMetadata, DataType, VariableLength};

/// `jsonl`.
pub const FORMAT: Format = Format { name: "jsonl", suffix: ".jsonl", is_text: true, expresses, open };

/// The shortest line: `""` and its end.
const SHORTEST_LINE_BYTES: u64 = 3;
/// Memory is taken from the cache's in steps of this.
const HOLD_STEP_BYTES: u64 = 1 << 20;

fn expresses(metadata: &ArrayMetadata) -> bool {
    use VariableLength::{Bytes, Utf8};
    matches!(metadata.data_type, DataType::VariableLength(Utf8 | Bytes))
}

fn open(subject: &Subject<'_>) -> Result<Box<dyn Companion>> {
    let array = VariableArray::open(subject.store, subject.path, subject.metadata)?;
    Ok(Box::new(Jsonl { engine: subject.engine.clone(), array }))
}

struct Jsonl {
    engine: Arc<Engine>,
    array: VariableArray,
}

impl Companion for Jsonl {
    fn version(&self) -> Result<u64> {
        self.array.version()
    }

    fn make(&self) -> Result<Made> {
        let metadata = self.array.metadata();
        let is_text = metadata.data_type == DataType::VariableLength(VariableLength::Utf8);
        let mut text = Text { bytes: Vec::new(), held: Held::new(&self.engine), key: &metadata.document_key };
        // Before anything is read: there may be no more in the store than a document that promises too much.
        let shortest = self.array.elements().saturating_mul(SHORTEST_LINE_BYTES);
        if shortest > text.held.limit_bytes() {
            return Err(text.too_large());
        }
        let mut held = Held::new(&self.engine);
        let version = self.array.read(&mut held, &mut |element| text.push(element, is_text))?;
        let Text { mut bytes, mut held, .. } = text;
        bytes.shrink_to_fit();
        held.shrink(held.bytes().saturating_sub(bytes.len() as u64));
        Ok(Made { version, bytes, held })
    }
}

struct Text<'a> {
    bytes: Vec<u8>,
    held: Held,
    key: &'a str,
}

impl Text<'_> {
    fn push(&mut self, element: &[u8], is_text: bool) -> Result<()> {
        match (is_text, std::str::from_utf8(element)) {
            (true, Ok(string)) => push_string(&mut self.bytes, string),
            (true, Err(error)) => {
                return Err(Error::corrupt(self.key, format!("an element is not UTF-8: {error}")));
            }
            (false, _) => push_string(&mut self.bytes, &STANDARD.encode(element)),
        }
        self.bytes.push(b'\n');
        let lacking = (self.bytes.len() as u64).saturating_sub(self.held.bytes());
        if lacking > 0 && !self.held.grow(lacking.max(HOLD_STEP_BYTES)) {
            return Err(self.too_large());
        }
        Ok(())
    }

    fn too_large(&self) -> Error {
        let limit = self.held.limit_bytes();
        let reason = format!("its text form is held in memory, within the cache size of {limit} bytes, and is more");
        Error::TooLarge { key: self.key.to_owned(), reason }
    }
}

/// Appends a string as JSON.
fn push_string(text: &mut Vec<u8>, string: &str) {
    text.push(b'"');
    let mut rest = string;
    while let Some(at) = rest.find(needs_escape) {
        let (plain, escaped) = rest.split_at(at);
        text.extend_from_slice(plain.as_bytes());
        let mut characters = escaped.chars();
        let character = characters.next().unwrap_or_default();
        match character {
            '"' => text.extend_from_slice(b"\\\""),
            '\\' => text.extend_from_slice(b"\\\\"),
            '\n' => text.extend_from_slice(b"\\n"),
            '\r' => text.extend_from_slice(b"\\r"),
            '\t' => text.extend_from_slice(b"\\t"),
            // All of them are in the first plane. Writing to a Vec does not fail.
            other => drop(write!(text, "\\u{:04x}", u32::from(other))),
        }
        rest = characters.as_str();
    }
    text.extend_from_slice(rest.as_bytes());
    text.push(b'"');
}

/// Whether JSON, or somebody's notion of a line, does not let a character stand for itself.
fn needs_escape(character: char) -> bool {
    matches!(character, '\0'..='\x1f' | '"' | '\\' | '\x7f' | '\u{85}' | '\u{2028}' | '\u{2029}')
}
