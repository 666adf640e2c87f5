//! `npy`: NumPy's own format, a header of text before the bytes as they are.
//!
//! Spec: numpy.lib.format, "Format Specification: Version 1.0". The header is ASCII, padded with spaces so that the elements begin
//! at a page.
//!
//! ```text
//! \x93NUMPY 1 0 LENGTH {'descr': '<f4', 'fortran_order': False, 'shape': (12, 180, 360), }
//! ```
//!
//! Absent: types that NumPy does not have (bfloat16, 8-bit floats, strings of any length), and structs with a header of more than the
//! 10,000 bytes that NumPy reads by default.

mod reader;

use std::fmt::Write as _;

pub use reader::{NpyHeader, read_header};

use super::flat_array::header_and_array;
use super::{CompanionContent, Format, Subject};
use crate::array::{ByteOrder, Layout, Order};
use crate::error::{Error, Result};
use crate::hierarchy::Node;
use crate::metadata::DataType;

/// `npy`.
pub const FORMAT: Format = Format {
    name: "npy",
    suffix: ".npy",
    holds: "all types of NumPy",
    expresses: |node, layout| header(node, layout).is_some(),
    open,
    ..Format::BASE
};

/// The elements begin at a multiple of this.
const ALIGNMENT: usize = 4096;
/// The longest header, with the bytes before it.
const MAX_HEADER_BYTES: usize = 8192;

fn open(subject: &Subject<'_>) -> Result<CompanionContent> {
    let stale = || Error::Stale { key: subject.path.to_owned() };
    let header = header(subject.node, subject.layout()).ok_or_else(stale)?;
    header_and_array(subject, header)
}

/// Returns the bytes before the elements.
fn header(node: &Node, layout: Layout) -> Option<Vec<u8>> {
    let Node::Array { metadata, .. } = node else { return None };
    header_for_type(&metadata.data_type, &metadata.shape, layout)
}

/// Returns the bytes before the elements of an array with this type and shape; `None` if NumPy does not have the type.
pub fn header_for_type(data_type: &DataType, shape: &[u64], layout: Layout) -> Option<Vec<u8>> {
    let descr = descr(data_type, layout.byte_order)?;
    let order = if layout.order == Order::F { "True" } else { "False" };
    let shape = tuple(shape);
    let text = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}");
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    let end = (header.len() + 2 + text.len() + 1).next_multiple_of(ALIGNMENT);
    if end > MAX_HEADER_BYTES {
        return None;
    }
    let length = u16::try_from(end - header.len() - 2).ok()?;
    header.extend_from_slice(&length.to_le_bytes());
    header.extend_from_slice(text.as_bytes());
    header.resize(end - 1, b' ');
    header.push(b'\n');
    Some(header)
}

/// Returns NumPy's description of a data type as Python writes it; `None` if NumPy does not have the type.
fn descr(data_type: &DataType, byte_order: ByteOrder) -> Option<String> {
    let DataType::Struct(fields) = data_type else {
        let is_known = match data_type.numpy_descr(byte_order).as_str()?.as_bytes() {
            [_, b'O', ..] => false,
            [_, b'V', ..] => matches!(data_type, DataType::Raw(_)),
            _ => true,
        };
        return is_known
            .then(|| format!("'{}'", data_type.numpy_descr(byte_order).as_str().unwrap_or_default()));
    };
    let mut list = String::from("[");
    for field in fields {
        // Void bytes without a name are padding; NumPy would give any other type a name.
        if field.name.is_empty() && !(matches!(field.data_type, DataType::Raw(_)) && field.shape.is_empty()) {
            return None;
        }
        if list.len() > 1 {
            list.push_str(", ");
        }
        list.push_str(&format!("({}, {}", quoted(&field.name), descr(&field.data_type, byte_order)?));
        if !field.shape.is_empty() {
            list.push_str(&format!(", {}", tuple(&field.shape)));
        }
        list.push(')');
        if list.len() > MAX_HEADER_BYTES {
            return None;
        }
    }
    list.push(']');
    Some(list)
}

/// Quotes a text for Python, in ASCII.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("'");
    for character in text.chars() {
        // Writing to a String does not fail.
        let _ = match character {
            '\'' | '\\' => write!(quoted, "\\{character}"),
            ' '..='~' => write!(quoted, "{character}"),
            _ => write!(quoted, "\\U{:08x}", u32::from(character)),
        };
    }
    quoted.push('\'');
    quoted
}

/// Returns numbers as a Python tuple.
fn tuple(numbers: &[u64]) -> String {
    match numbers {
        [one] => format!("({one},)"),
        _ => format!("({})", numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use crate::formats::flat_array::tests::{BIG_F, LITTLE, document, text_of};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn dictionary(document: Value, layout: Layout) -> Option<String> {
        let node = crate::metadata::parse_v3("a/zarr.json", document.to_string().as_bytes()).unwrap();
        let crate::metadata::Document::Array(metadata) = node else { panic!() };
        let info = crate::store::Info {
            size_bytes: 0,
            modified: None,
            version: crate::store::ObjectVersion::numbered(0),
            posix: None,
        };
        let header = header(&Node::Array { metadata: metadata.into(), info }, layout)?;
        assert_eq!(header.len() % ALIGNMENT, 0);
        assert_eq!(u16::from_le_bytes([header[8], header[9]]) as usize + 10, header.len());
        Some(String::from_utf8_lossy(&header[10..]).trim_end().to_owned())
    }

    #[test]
    fn as_numpy_writes_it() {
        let simple = document(&[12, 180, 360], "float32", json!({}));
        assert_eq!(
            dictionary(simple.clone(), LITTLE).unwrap(),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (12, 180, 360), }"
        );
        assert_eq!(
            dictionary(simple, BIG_F).unwrap(),
            "{'descr': '>f4', 'fortran_order': True, 'shape': (12, 180, 360), }"
        );
        for (shape, text) in
            [(&[][..], "()"), (&[0][..], "(0,)"), (&[7][..], "(7,)"), (&[2, 0][..], "(2, 0)")]
        {
            let found = dictionary(document(shape, "int8", json!({})), BIG_F).unwrap();
            assert!(found.contains(&format!("'shape': {text}, ")), "{found}");
            assert!(found.contains("'|i1'"), "{found}");
        }
    }

    #[test]
    fn types_that_numpy_lacks_are_absent() {
        for name in ["bfloat16", "float8_e4m3"] {
            assert_eq!(dictionary(document(&[2], name, json!({})), LITTLE), None, "{name}");
        }
        let text = document(&[2], "string", json!({"fill_value": "", "codecs": ["vlen-utf8"]}));
        assert_eq!(text_of(&FORMAT, text, LITTLE), None);
    }

    #[test]
    fn structs_and_hostile_names() {
        let of = |name: &str, more: Value| {
            let fields = json!([{"name": name, "data_type": "int16"}, {"name": "z", "data_type": more}]);
            let data_type = json!({"name": "struct", "configuration": {"fields": fields}});
            document(&[2], "int8", json!({"data_type": data_type, "fill_value": "AAAAAA=="}))
        };
        let text = dictionary(of("a'\\\n\u{0}é", json!("uint16")), LITTLE).unwrap();
        assert!(text.contains(r"[('a\'\\\U0000000a\U00000000\U000000e9', '<i2'), ('z', '<u2')]"), "{text}");
        assert_eq!(dictionary(of("a", json!("bfloat16")), LITTLE), None);
        assert_eq!(
            dictionary(of(&"é".repeat(1000), json!("uint16")), LITTLE),
            None,
            "longer than NumPy reads"
        );
    }

    proptest! {
        #[test]
        fn any_name_stays_in_its_quotes(name: String) {
            let quoted = quoted(&name);
            prop_assert!(quoted.is_ascii() && !quoted.contains(['\n', '\0']));
            let inside = &quoted[1..quoted.len() - 1];
            prop_assert!(!inside.replace("\\\\", "").replace("\\'", "").contains('\''));
        }
    }
}
