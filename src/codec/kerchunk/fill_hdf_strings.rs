//! `fill_hdf_strings`: strings of an HDF5 file by their place in its heap. The document has the strings.
//!
//! Format: kerchunk `FillStringsCodec`. `id_map` has the string of each stored identifier, or is one string for all of them, or null: then
//! the strings are empty. The array's dtype is `|O`; it is served as `U` with the width of the longest string. Uses `read_only`.
//!
//! ```json
//! {"id": "fill_hdf_strings", "dtype": "S16", "id_map": {"0000000000000001": "text"}}
//! ```
//!
//! Records with strings among their fields have no flat form.

use std::collections::HashMap;

use serde_json::Value;

use super::read_only::{ItemReader, ReadOnlyFilter};
use crate::codec::config::Configuration;
use crate::codec::{Codec, CodecEntry, CodecError, CodecInput, CodecResult, Context, Items};
use crate::metadata::DataType;

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry { v3: &[], v2: &["fill_hdf_strings"], build };

/// The longest identifier.
const MAX_IDENTIFIER_BYTES: usize = 4096;

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let (size, _) = context.bytes()?;
    let mut configuration = Configuration::new(context);
    let dtype = configuration.string("dtype")?;
    let dtype = configuration.require("dtype", dtype)?;
    let bare = dtype.trim_start_matches(['|', '<', '>', '=']);
    let identifier_bytes = bare.strip_prefix('S').and_then(|bytes| bytes.parse().ok());
    let Some(identifier_bytes) = identifier_bytes.filter(|bytes| (1..=MAX_IDENTIFIER_BYTES).contains(bytes))
    else {
        let reason =
            configuration.error("dtype", format_args!("is \"{dtype}\", which is not one byte string"));
        return Err(CodecError::unsupported(reason));
    };
    let texts = match configuration.value("id_map") {
        None => Texts::Same(Vec::new()),
        Some(Value::String(text)) => Texts::Same(utf32(text)),
        Some(Value::Object(map)) => {
            let entry = |(identifier, text): (&String, &Value)| {
                Some((identifier.as_bytes().to_vec(), utf32(text.as_str()?)))
            };
            let texts = map.iter().map(entry).collect::<Option<_>>();
            Texts::ByIdentifier(
                texts.ok_or_else(|| configuration.error("id_map", "has a string that is not one"))?,
            )
        }
        Some(_) => {
            return Err(configuration.error("id_map", "must be strings by identifier, one string or null"));
        }
    };
    configuration.finish()?;
    let CodecInput::Bytes {
        items: Some(Items { data_type: DataType::FixedLengthUtf32(points), .. }), ..
    } = context.input
    else {
        return Err(CodecError::new("codec \"fill_hdf_strings\" is for an array of strings"));
    };
    let element_bytes = points.saturating_mul(4);
    let count = size.limit_bytes() / element_bytes.max(1) as u64;
    let data_type = DataType::NullTerminatedBytes(identifier_bytes);
    let items = Items { shape: vec![count], data_type, is_big_endian: false };
    let reader = FillHdfStrings { identifier_bytes, element_bytes, texts };
    Ok(Codec::BytesToBytes(Box::new(ReadOnlyFilter { reader, items })))
}

/// Returns the code points of a text, little-endian.
fn utf32(text: &str) -> Vec<u8> {
    text.chars().flat_map(|point| u32::from(point).to_le_bytes()).collect()
}

/// The strings, as code points without padding.
enum Texts {
    ByIdentifier(HashMap<Vec<u8>, Vec<u8>>),
    Same(Vec<u8>),
}

struct FillHdfStrings {
    identifier_bytes: usize,
    element_bytes: usize,
    texts: Texts,
}

impl ItemReader for FillHdfStrings {
    fn stored_bytes(&self) -> usize {
        self.identifier_bytes
    }

    fn element_bytes(&self) -> usize {
        self.element_bytes
    }

    fn read(&self, stored: &[u8], element: &mut [u8]) -> CodecResult<()> {
        let end = stored.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let identifier = stored.get(..end).unwrap_or_default();
        let unknown = || {
            let shown = String::from_utf8_lossy(identifier);
            CodecError::new(format_args!("\"id_map\" has no string {:?}", shown))
        };
        let text = match &self.texts {
            Texts::ByIdentifier(texts) => texts.get(identifier).ok_or_else(unknown)?,
            Texts::Same(text) => text,
        };
        let (place, padding) = element.split_at_mut(text.len().min(element.len()));
        place.copy_from_slice(text.get(..place.len()).unwrap_or_default());
        padding.fill(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::codec::{BytesToBytes, EncodedSize, registry};
    use crate::metadata::{CodecFamily, CodecSpec};
    use serde_json::json;

    fn codec(configuration: Value) -> CodecResult<Box<dyn BytesToBytes>> {
        let spec = CodecSpec {
            family: CodecFamily::V2,
            name: "fill_hdf_strings".to_owned(),
            configuration: configuration.as_object().unwrap().clone(),
            must_understand: true,
            place: "filters[0]".to_owned(),
        };
        let items = Items { shape: vec![2], data_type: DataType::FixedLengthUtf32(2), is_big_endian: false };
        let size = EncodedSize::Exact(16);
        match registry::build(&spec, CodecInput::Bytes { size, item_size: 8, items: Some(&items) })? {
            Codec::BytesToBytes(codec) => Ok(codec),
            _ => panic!("not bytes to bytes"),
        }
    }

    #[test]
    fn strings_by_identifier() {
        let by_identifier = codec(json!({"dtype": "S3", "id_map": {"a": "é", "abc": "xy"}})).unwrap();
        let decoded = by_identifier.decode(b"a\0\0abc", 16).unwrap();
        assert_eq!(&*decoded, b"\xe9\0\0\0\0\0\0\0x\0\0\0y\0\0\0");
        let error = by_identifier.decode(b"a\0\0b\xff\0", 16).unwrap_err().to_string();
        assert!(error.contains("has no string \"b"), "{error}");
        assert!(by_identifier.decode(b"a\0", 16).is_err());
        let same = codec(json!({"dtype": "|S3", "id_map": "z"})).unwrap();
        assert_eq!(&*same.decode(b"abcdef", 16).unwrap(), b"z\0\0\0\0\0\0\0z\0\0\0\0\0\0\0");
        let empty = codec(json!({"dtype": "S3", "id_map": null})).unwrap();
        assert_eq!(&*empty.decode(b"abc", 8).unwrap(), [0; 8]);
    }

    #[test]
    fn other_dtypes_are_refused() {
        for dtype in ["S0", "i4", "[('a', 'S16'), ('b', '<i4')]", "S99999999999", "U4"] {
            assert!(codec(json!({"dtype": dtype})).err().unwrap().is_unsupported, "{dtype}");
        }
        for id_map in [json!({"a": 1}), json!([1])] {
            assert!(codec(json!({"dtype": "S3", "id_map": id_map})).is_err());
        }
    }
}
