//! `safetensors`: a header of JSON before the bytes as they are, for PyTorch, JAX and others.
//!
//! Spec: github.com/huggingface/safetensors, "Format": the header's length in eight little-endian bytes, the header, the elements.
//! The header is padded with spaces so that the elements begin at a page.
//!
//! ```json
//! {"cells":{"dtype":"U16","shape":[64,512,512],"data_offsets":[0,33554432]}}
//! ```
//!
//! Absent: order F, big-endian elements, and types that it does not have.

use serde_json::{Map, Value, json};

use super::flat_array::header_and_array;
use super::{CompanionContent, Format, Subject};
use crate::array::{ByteOrder, Layout, Order};
use crate::error::Result;
use crate::hierarchy::Node;
use crate::metadata::DataType;
use crate::metadata::data_type::numeric::NumericType;

/// `safetensors`.
pub const FORMAT: Format = Format {
    name: "safetensors",
    suffix: ".safetensors",
    holds: "truth values, integers, floats, bfloat16 and some 8-bit floats, in order C, little-endian",
    expresses,
    open,
    ..Format::BASE
};

/// The elements begin at a multiple of this.
const ALIGNMENT: usize = 4096;
/// A member that is not a tensor.
const RESERVED: &str = "__metadata__";

fn expresses(node: &Node, layout: Layout) -> bool {
    let Node::Array { metadata, .. } = node else { return false };
    let is_little = layout.byte_order == ByteOrder::Little || metadata.data_type.item_size() == Some(1);
    let is_c = layout.order == Order::C || metadata.shape.len() < 2;
    is_little && is_c && type_of(&metadata.data_type).is_some()
}

fn type_of(data_type: &DataType) -> Option<&'static str> {
    Some(match data_type {
        DataType::Float8E4M3Fn => "F8_E4M3",
        DataType::Float8E5M2 => "F8_E5M2",
        DataType::Float8E8M0Fnu => "F8_E8M0",
        DataType::BFloat16 => "BF16",
        _ => match data_type.numeric_type()? {
            NumericType::Bool => "BOOL",
            NumericType::I8 => "I8",
            NumericType::I16 => "I16",
            NumericType::I32 => "I32",
            NumericType::I64 => "I64",
            NumericType::U8 => "U8",
            NumericType::U16 => "U16",
            NumericType::U32 => "U32",
            NumericType::U64 => "U64",
            NumericType::F16 => "F16",
            NumericType::F32 => "F32",
            NumericType::F64 => "F64",
            NumericType::C64 | NumericType::C128 => return None,
        },
    })
}

fn open(subject: &Subject<'_>) -> Result<CompanionContent> {
    let metadata = subject.metadata()?;
    let tensor = json!({
        "dtype": type_of(&metadata.data_type), "shape": metadata.shape, "data_offsets": [0, metadata.flat_size()],
    });
    let name = if subject.name() == RESERVED { "array" } else { subject.name() };
    let text = Value::Object(Map::from_iter([(name.to_owned(), tensor)])).to_string();
    let end = (8 + text.len()).next_multiple_of(ALIGNMENT);
    let mut header = ((end - 8) as u64).to_le_bytes().to_vec();
    header.extend_from_slice(text.as_bytes());
    header.resize(end, b' ');
    header_and_array(subject, header)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::formats::flat_array::tests::{BIG_F, LITTLE, document, header, store};

    #[test]
    fn headers() {
        let name = "q\"\\\n%\u{1}";
        let store =
            store(&[(name, document(&[2, 3], "int16", json!({}))), ("b", document(&[3], "int8", json!({})))]);
        let found = header(&FORMAT, &store, name, LITTLE).unwrap();
        assert_eq!(
            (found.len(), found.first_chunk::<8>().map(|it| u64::from_le_bytes(*it))),
            (4096, Some(4088))
        );
        let parsed: Value = serde_json::from_slice(&found[8..]).unwrap();
        assert_eq!(parsed, json!({name: {"dtype": "I16", "shape": [2, 3], "data_offsets": [0, 12]}}));
        assert_eq!(header(&FORMAT, &store, name, BIG_F), None);
        assert!(
            header(&FORMAT, &store, "b", BIG_F).is_some(),
            "bytes along one axis are the same in all orders"
        );
    }
}
