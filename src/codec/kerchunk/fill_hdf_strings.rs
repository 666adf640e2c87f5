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
