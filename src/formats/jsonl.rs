//! `jsonl`: an array of strings or of bytes as text, one JSON value per line, in C order whatever the mount's order is.
//!
//! Spec: RFC 8259 (JSON), RFC 4648 section 4 (base64), jsonlines.org.
//!
//! ```json
//! "a string is written as it is"
//! "Ynl0ZXMgYXMgYmFzZTY0"
//! ```
//!
//! Elements that are not stored are the fill value. Arrays of fixed-size elements have a flat file instead. Characters that a program may
//! take for the end of a line (U+0085, U+2028 and U+2029) are escaped too.

use std::io::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::virtual_file::VirtualFile;
use super::{Companion, CompanionContent, Format, Role, Subject, VersionedFile};
use crate::array::{Engine, Layout, Reservation, VariableArray};
use crate::error::{Error, Result};
use crate::hierarchy::Node;
use crate::metadata::{DataType, VariableLength};

/// `jsonl`.
pub const FORMAT: Format = Format {
    name: "jsonl",
    suffix: ".jsonl",
    holds: "strings and bytes of any length",
    role: Role::Text,
    expresses,
    open,
    ..Format::BASE
};

/// The shortest line: `""` and its end.
const SHORTEST_LINE_BYTES: u64 = 3;
/// The step in which memory is reserved from the cache's limit.
const RESERVED_STEP_BYTES: u64 = 1 << 20;

fn expresses(node: &Node, _: Layout) -> bool {
    use VariableLength::{Bytes, Utf8};
    let Node::Array { metadata, .. } = node else { return false };
    matches!(metadata.data_type, DataType::VariableLength(Utf8 | Bytes))
}

fn open(subject: &Subject<'_>) -> Result<CompanionContent> {
    let store = subject.arrays.store_for(subject.path, &subject.audience);
    let array = VariableArray::open(&store, subject.path, subject.metadata()?)?;
    Ok(CompanionContent::Elements(Box::new(Jsonl { engine: subject.arrays.engine().clone(), array })))
}

struct Jsonl {
    engine: Arc<Engine>,
    array: VariableArray,
}

impl Companion for Jsonl {
    fn version(&self) -> Result<u64> {
        self.array.version()
    }

    fn make(&self) -> Result<VersionedFile> {
        let metadata = self.array.metadata();
        let is_text = metadata.data_type == DataType::VariableLength(VariableLength::Utf8);
        let mut text = JsonlText {
            bytes: Vec::new(),
            reservation: Reservation::new(&self.engine),
            key: &metadata.document_key,
        };
        // This is checked before anything is read, because the document may declare far more than the store has.
        let shortest = self.array.elements().saturating_mul(SHORTEST_LINE_BYTES);
        if shortest > text.reservation.limit_bytes() {
            return Err(text.too_large());
        }
        let mut reservation = Reservation::new(&self.engine);
        let version = self.array.read(&mut reservation, &mut |element| text.push(element, is_text))?;
        let JsonlText { mut bytes, mut reservation, .. } = text;
        bytes.shrink_to_fit();
        reservation.shrink(reservation.bytes().saturating_sub(bytes.len() as u64));
        Ok(VersionedFile { version, file: VirtualFile::from_bytes(bytes).with_reservation(reservation) })
    }
}

struct JsonlText<'a> {
    bytes: Vec<u8>,
    reservation: Reservation,
    key: &'a str,
}

impl JsonlText<'_> {
    fn push(&mut self, element: &[u8], is_text: bool) -> Result<()> {
        match (is_text, std::str::from_utf8(element)) {
            (true, Ok(string)) => push_string(&mut self.bytes, string),
            (true, Err(error)) => {
                return Err(Error::corrupt(self.key, format!("an element is not UTF-8: {error}")));
            }
            (false, _) => push_string(&mut self.bytes, &STANDARD.encode(element)),
        }
        self.bytes.push(b'\n');
        let lacking = (self.bytes.len() as u64).saturating_sub(self.reservation.bytes());
        if lacking > 0
            && !self.reservation.grow(lacking.max(RESERVED_STEP_BYTES))
            && !self.reservation.grow(lacking)
        {
            return Err(self.too_large());
        }
        Ok(())
    }

    fn too_large(&self) -> Error {
        let limit = self.reservation.limit_bytes();
        let reason =
            format!("its text form is longer than the cache size of {limit} bytes, which limits its memory");
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
            // All characters to escape are in the first plane. Writing to a Vec does not fail.
            other => drop(write!(text, "\\u{:04x}", u32::from(other))),
        }
        rest = characters.as_str();
    }
    text.extend_from_slice(rest.as_bytes());
    text.push(b'"');
}

/// Returns whether a character must be escaped, for JSON or because some programs end a line there.
fn needs_escape(character: char) -> bool {
    matches!(character, '\0'..='\x1f' | '"' | '\\' | '\x7f' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::array::{Blocking, Readahead, ReplyBuffer};
    use crate::cancellation::Cancellation;
    use crate::codec::vlen::Vlen;
    use crate::formats::{CompanionPlace, Surroundings};
    use crate::hierarchy::{Child, OpenArrays, SharedArray, Tree};
    use crate::store::{MemoryStore, Store};
    use proptest::prelude::*;

    fn text(string: &str) -> String {
        let mut text = Vec::new();
        push_string(&mut text, string);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn strings_as_json() {
        for (string, json) in [
            ("", r#""""#),
            ("é 世 🚀 / '", r#""é 世 🚀 / '""#),
            ("\"\\\n\r\t\0\x1b", r#""\"\\\n\r\t\u0000\u001b""#),
            ("\u{85}\u{2028}\u{2029}\u{7f}", r#""\u0085\u2028\u2029\u007f""#),
        ] {
            assert_eq!(text(string), json);
        }
    }

    /// A store with one array, which has no flat bytes.
    struct NoArrays;

    impl Surroundings for NoArrays {
        fn open_array(&self, _: &str) -> Result<Arc<SharedArray>> {
            Err(Error::unsupported("a/.zarray", "flat bytes"))
        }

        fn node(&self, _: &str) -> Result<Option<Arc<Node>>> {
            Ok(None)
        }

        fn children(&self, _: &str) -> Result<Vec<Child>> {
            Ok(Vec::new())
        }
    }

    /// Returns the file of a v2 array with one chunk of `elements`, within a cache of `limit` bytes.
    fn file(id: &str, shape: u64, elements: &[&[u8]], limit_bytes: u64) -> Result<String> {
        let memory = MemoryStore::new();
        let vlen = if id == "vlen-utf8" { Vlen::Utf8 } else { Vlen::Bytes };
        memory.put("a/0", vlen.encode(elements).unwrap()).unwrap();
        let document = serde_json::json!({"zarr_format": 2, "shape": [shape], "chunks": [elements.len()], "dtype": "|O",
            "fill_value": "", "order": "C", "filters": [{"id": id}], "compressor": null});
        memory.put("a/.zarray", document.to_string().as_bytes()).unwrap();
        let store: Arc<dyn Store> = Arc::new(memory);
        let node = Tree::new(store.clone()).node("a").unwrap().unwrap();
        assert!(expresses(&node, Layout::default()));
        let subject = Subject {
            arrays: &OpenArrays::new(&Engine::new(limit_bytes, 1), &store, Layout::default()),
            audience: Arc::default(),
            path: "a",
            root_name: "",
            node: &node,
            view: None,
            view_file: None,
            place: CompanionPlace::FormatFolder,
            surroundings: Box::new(NoArrays),
            formats: &[],
            listed: &[],
            walk: Default::default(),
        };
        let CompanionContent::Elements(companion) = open(&subject)? else { panic!() };
        let made = companion.make()?;
        assert_eq!(made.version, companion.version()?);
        assert_eq!(made.file.reserved_bytes(), made.file.size_bytes());
        let (mut buffer, never) = (ReplyBuffer::default(), Cancellation::never());
        let reader = made.file.reader(Readahead::Off);
        let read = made.file.read(&reader, (0, u32::MAX), &mut buffer, Blocking::No, &never)?.unwrap();
        Ok(String::from_utf8(read.to_vec()).unwrap())
    }

    #[test]
    fn a_line_for_each_element() {
        assert_eq!(
            file("vlen-utf8", 3, &["é\n".as_bytes(), b""], 1 << 20).unwrap(),
            "\"é\\n\"\n\"\"\n\"\"\n"
        );
        assert_eq!(file("vlen-bytes", 1, &[&[0xff, 0, 1, 2]], 1 << 20).unwrap(), "\"/wABAg==\"\n");
        assert_eq!(file("vlen-utf8", 0, &[b"x"], 1 << 20).unwrap(), "");
    }

    #[test]
    fn no_more_than_the_cache_size() {
        let error = file("vlen-utf8", 1 << 40, &[b"x"], 1 << 30).unwrap_err();
        assert_eq!(error.errno(), libc::EFBIG);
        let text = "a/.zarray: too large: its text form is longer than the cache size of 1073741824 bytes, which limits its memory";
        assert_eq!(error.to_string(), text);
        // Escaped, it is six times as long.
        let zeros = vec![0; 1 << 20];
        assert_eq!(file("vlen-utf8", 1, &[&zeros], 4 << 20).unwrap_err().errno(), libc::EFBIG);
        assert_eq!(file("vlen-utf8", 1, &[&zeros], 16 << 20).unwrap().len(), (6 << 20) + 3);
    }

    proptest! {
        #[test]
        fn any_string_is_read_back(string: String) {
            prop_assert_eq!(serde_json::from_str::<String>(&text(&string)).unwrap(), string.clone());
            let ends_a_line = text(&string).contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']);
            prop_assert!(!ends_a_line);
        }
    }
}
