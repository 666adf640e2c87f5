//! `categorize`: strings as numbers of a list of labels. v2 id: `categorize`; v3 does not have this codec.
//!
//! Format: numcodecs `Categorize`: label i (from 0) is stored as the number i + 1 in `astype` (absent: `u1`), every
//! other string as 0, which is decoded to the empty string. `dtype` is `U` with its width and byte order, or `O`: an
//! array of Python strings, served with the width of the longest label. Uses `kernels::dtype`.
//!
//! ```json
//! {"id": "categorize", "labels": ["female", "male"], "dtype": "<U6", "astype": "|u1"}
//! ```

use std::borrow::Cow;
use std::collections::HashMap;

use super::filter::read_dtype;
use crate::codec::config::Configuration;
use crate::codec::error::check_length;
use crate::codec::kernels::dtype::NumericDtype;
use crate::codec::kernels::element::{Element, WideNumber};
use crate::codec::{
    BytesToBytes, Codec, CodecEntry, CodecError, CodecInput, CodecResult, Context, EncodedSize, Items,
    scratch,
};
use crate::metadata::data_type::numeric::{NumericType, with_numeric_type};
use crate::metadata::{ByteOrder, DataType};

/// The codec's names and constructor.
pub const ENTRY: CodecEntry = CodecEntry { v3: &[], v2: &["categorize"], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let (size, _) = context.bytes()?;
    let mut configuration = Configuration::new(context);
    let labels = configuration.list("labels")?;
    let labels: Option<Vec<&str>> =
        configuration.require("labels", labels)?.iter().map(|label| label.as_str()).collect();
    let labels = labels.ok_or_else(|| configuration.error("labels", "must be a list of strings"))?;
    let dtype = configuration.string("dtype")?;
    let dtype = configuration.require("dtype", dtype)?;
    let Some((points, byte_order)) = string_dtype(dtype, context.input) else {
        return Err(configuration.error("dtype", format_args!("is \"{dtype}\" and must be of kind U or O")));
    };
    let default = NumericDtype { numeric_type: NumericType::U8, byte_order: ByteOrder::Little };
    let codes = read_dtype(&mut configuration, "astype")?.unwrap_or(default);
    configuration.finish()?;
    let item_bytes = points.saturating_mul(4);
    let elements = size.limit_bytes().checked_div(item_bytes as u64).unwrap_or(0);
    let items = Items {
        shape: vec![elements],
        data_type: codes.numeric_type.data_type(),
        is_big_endian: codes.byte_order == ByteOrder::Big,
    };
    let labels = labels.into_iter().map(|label| utf32(label, byte_order)).collect();
    Ok(Codec::BytesToBytes(Box::new(Categorize { labels, item_bytes, codes, items })))
}

/// Returns the code points per string and the byte order. For objects the metadata has decided.
fn string_dtype(dtype: &str, input: CodecInput<'_>) -> Option<(usize, ByteOrder)> {
    let (byte_order, name) = match dtype.split_at_checked(1) {
        Some((">", name)) => (ByteOrder::Big, name),
        Some(("<" | "=" | "|", name)) => (ByteOrder::Little, name),
        _ => (ByteOrder::Little, dtype),
    };
    match (name.strip_prefix('U'), input) {
        (Some(points), _) => Some((points.parse().ok()?, byte_order)),
        (None, CodecInput::Bytes { items: Some(Items { data_type, is_big_endian, .. }), .. })
            if matches!(name, "O" | "object") =>
        {
            let DataType::FixedLengthUtf32(points) = *data_type else { return None };
            Some((points, if *is_big_endian { ByteOrder::Big } else { ByteOrder::Little }))
        }
        _ => None,
    }
}

/// Returns the label's code points as bytes.
fn utf32(label: &str, byte_order: ByteOrder) -> Vec<u8> {
    label
        .chars()
        .flat_map(|point| match byte_order {
            ByteOrder::Little => u32::from(point).to_le_bytes(),
            ByteOrder::Big => u32::from(point).to_be_bytes(),
        })
        .collect()
}

struct Categorize {
    /// The labels as stored strings without padding.
    labels: Vec<Vec<u8>>,
    /// Bytes of one string.
    item_bytes: usize,
    /// The dtype of the stored numbers.
    codes: NumericDtype,
    items: Items,
}

impl Categorize {
    /// Returns the bytes of the strings for this many bytes of numbers.
    fn decoded_len(&self, encoded_len: usize) -> CodecResult<usize> {
        let code_bytes = self.codes.numeric_type.size();
        if encoded_len.is_multiple_of(code_bytes) {
            Ok((encoded_len / code_bytes).saturating_mul(self.item_bytes))
        } else {
            Err(CodecError::new(format_args!(
                "{encoded_len} bytes are not a multiple of {code_bytes}, the size of a category's number"
            )))
        }
    }

    /// Returns the label of a number.
    fn label(&self, code: WideNumber) -> &[u8] {
        let index = match code {
            WideNumber::Int(code) => u64::try_from(code).ok(),
            WideNumber::UInt(code) => Some(code),
            // Floats are compared with the numbers, so only whole ones name a label.
            WideNumber::Float(code) | WideNumber::Complex(code, _) => {
                (code.fract() == 0.0 && code > 0.0).then_some(code as u64)
            }
        };
        let index = index.and_then(|code| usize::try_from(code.checked_sub(1)?).ok());
        index.and_then(|index| self.labels.get(index)).map_or(&[], Vec::as_slice)
    }

    /// Returns the labels' numbers by stored string without padding. If labels are equal, the last one counts.
    fn numbers(&self) -> CodecResult<HashMap<&[u8], Vec<u8>>> {
        let mut numbers = HashMap::new();
        for (number, label) in (1u64..).zip(&self.labels) {
            let mut bytes = vec![0; self.codes.numeric_type.size()];
            let is_exact = with_numeric_type!(self.codes.numeric_type, T => {
                let code = T::narrow(WideNumber::UInt(number));
                code.write(&mut bytes, self.codes.byte_order);
                self.label(code.widen()) == label.as_slice()
            });
            if !is_exact {
                return Err(CodecError::new(format_args!(
                    "{} labels are more than \"astype\" can number",
                    self.labels.len()
                )));
            }
            numbers.insert(label.as_slice(), bytes);
        }
        Ok(numbers)
    }
}

impl BytesToBytes for Categorize {
    // A string that is not a label is stored as the empty string.
    fn is_lossless(&self) -> bool {
        false
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        decoded.map(|bytes| {
            let elements = bytes.checked_div(self.item_bytes as u64).unwrap_or(0);
            elements.saturating_mul(self.codes.numeric_type.size() as u64)
        })
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        scratch::decoded(self.decoded_len(encoded.len())?, limit_bytes, |out| self.decode_into(encoded, out))
    }

    fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        check_length(self.decoded_len(encoded.len())?, out.len())?;
        let codes = encoded.chunks_exact(self.codes.numeric_type.size());
        with_numeric_type!(self.codes.numeric_type, T => {
            for (code, string) in codes.zip(out.chunks_exact_mut(self.item_bytes.max(1))) {
                let label = self.label(T::read(code, self.codes.byte_order).widen());
                // A label beyond the width is cut, as NumPy does.
                let (text, padding) = string.split_at_mut(label.len().min(string.len()));
                text.copy_from_slice(label.get(..text.len()).unwrap_or_default());
                padding.fill(0);
            }
        });
        Ok(())
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        let strings = decoded.chunks_exact(self.item_bytes.max(1));
        if self.item_bytes == 0 || !strings.remainder().is_empty() {
            let (found, item_bytes) = (decoded.len(), self.item_bytes);
            return Err(CodecError::new(format_args!(
                "{found} bytes are not a multiple of {item_bytes}, the size of a string"
            )));
        }
        let (numbers, unknown) = (self.numbers()?, vec![0; self.codes.numeric_type.size()]);
        let mut encoded = Vec::with_capacity(strings.len().saturating_mul(unknown.len()));
        for string in strings {
            let length = string.chunks(4).rposition(|point| point != [0; 4]).map_or(0, |last| (last + 1) * 4);
            let number = string.get(..length).and_then(|text| numbers.get(text)).unwrap_or(&unknown);
            encoded.extend_from_slice(number);
        }
        Ok(encoded)
    }

    fn encoded_items(&self) -> Option<&Items> {
        Some(&self.items)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::metadata::CodecFamily;

    fn codec(json: &str, points: usize) -> CodecResult<Box<dyn BytesToBytes>> {
        let configuration = serde_json::from_str(json).unwrap();
        let items =
            Items { shape: vec![3], data_type: DataType::FixedLengthUtf32(points), is_big_endian: false };
        let input = CodecInput::Bytes {
            size: EncodedSize::Exact(12 * points as u64),
            item_size: 4,
            items: Some(&items),
        };
        let context =
            Context { family: CodecFamily::V2, name: "categorize", configuration: &configuration, input };
        match build(&context)? {
            Codec::BytesToBytes(codec) => Ok(codec),
            _ => panic!(),
        }
    }

    fn strings(texts: &[&str], points: usize, byte_order: ByteOrder) -> Vec<u8> {
        let padded = |text: &&str| {
            let mut bytes = utf32(text, byte_order);
            bytes.resize(points * 4, 0);
            bytes
        };
        texts.iter().flat_map(padded).collect()
    }

    #[test]
    fn labels_from_one_and_zero_for_the_rest() {
        for (dtype, byte_order) in
            [("<U2", ByteOrder::Little), (">U2", ByteOrder::Big), ("|O", ByteOrder::Little)]
        {
            for (astype, codes) in [("u1", vec![2, 0, 1]), (">i2", vec![0, 2, 0, 0, 0, 1])] {
                let json = format!(r#"{{"labels": ["ä", "bb"], "dtype": "{dtype}", "astype": "{astype}"}}"#);
                let codec = codec(&json, 2).unwrap();
                let encoded = codec.encode(&strings(&["bb", "x", "ä"], 2, byte_order)).unwrap();
                assert_eq!(encoded, codes);
                let decoded = codec.decode(&encoded, 24).unwrap();
                assert_eq!(&*decoded, strings(&["bb", "", "ä"], 2, byte_order));
                assert!(codec.decode(&encoded, 23).is_err());
            }
        }
    }

    #[test]
    fn edge_cases_as_in_numpy() {
        let json = r#"{"labels": ["abc", "", "a", "a"], "dtype": "<U2"}"#;
        let codec = codec(json, 2).unwrap();
        let encoded = codec.encode(&strings(&["ab", "", "a"], 2, ByteOrder::Little)).unwrap();
        assert_eq!(encoded, [0, 2, 4]);
        let decoded = codec.decode(&[1, 3, 200], 24).unwrap();
        assert_eq!(&*decoded, strings(&["ab", "a", ""], 2, ByteOrder::Little));
        assert!(codec.encode(&[0; 7]).is_err());
    }

    #[test]
    fn bad_configurations() {
        for json in [
            r#"{"dtype": "<U2"}"#,
            r#"{"labels": ["a"]}"#,
            r#"{"labels": [1], "dtype": "<U2"}"#,
            r#"{"labels": ["a"], "dtype": "<S2"}"#,
            r#"{"labels": ["a"], "dtype": "<U2", "astype": "O"}"#,
        ] {
            assert!(codec(json, 2).is_err(), "{json}");
        }
        let labels: Vec<String> = (0..256).map(|i| format!("\"{i}\"")).collect();
        let many = codec(&format!(r#"{{"labels": [{}], "dtype": "<U2"}}"#, labels.join(",")), 2).unwrap();
        assert!(many.decode(&[255], 8).is_ok());
        assert!(many.encode(&[0; 8]).unwrap_err().reason.contains("labels"));
    }
}
