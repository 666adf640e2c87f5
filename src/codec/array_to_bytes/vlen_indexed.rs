//! `zarrs.vlen`: elements of any length, their offsets and their bytes through codec chains of their own.
//!
//! Spec: the zarrs crate, codec "vlen" (experimental). Uses the pipeline.
//!
//! ```json
//! {"name": "zarrs.vlen", "configuration": {
//!   "data_codecs": [{"name": "bytes"}],
//!   "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
//!   "index_data_type": "uint32", "index_location": "end"}}
//! ```
//!
//! A chunk is the length of the encoded offsets (u64, little-endian), the encoded offsets and the encoded bytes; with the location "end" in
//! the opposite order. There is one offset more than elements: the last one is the number of bytes. As in `vlen`, such elements have no flat
//! form, so the codec is not in the registry.

use crate::codec::config::Configuration;
use crate::codec::{
    CodecError, CodecInput, CodecResult, Context, EncodedSize, Pipeline, Representation, scratch,
};
use crate::metadata::{CodecFamily, CodecSpec, DataType, FillValue};

/// The names of the codec.
const NAMES: [&str; 2] = ["zarrs.vlen", "https://codec.zarrs.dev/array_to_bytes/vlen"];
/// Bytes of the length of the encoded offsets.
const LENGTH_BYTES: usize = 8;

/// The codec for one number of elements.
pub struct VlenIndexed {
    index: Pipeline,
    data_specs: Vec<CodecSpec>,
    is_index_first: bool,
    offset_bytes: usize,
}

/// A chunk with decoded offsets.
pub struct VlenIndex<'a> {
    /// The offset of each element, and the end of the last one. They ascend.
    offsets: Vec<u64>,
    /// The encoded bytes of the elements.
    encoded: &'a [u8],
}

impl VlenIndexed {
    /// Returns whether a spec names this codec.
    pub fn is_named(spec: &CodecSpec) -> bool {
        spec.family == CodecFamily::V3 && NAMES.contains(&spec.name.as_str())
    }

    /// Builds the codec for chunks of this many elements.
    pub fn build(spec: &CodecSpec, elements: usize) -> CodecResult<VlenIndexed> {
        let input = CodecInput::Bytes { size: EncodedSize::Exact(0), item_size: 1, items: None };
        let context =
            Context { family: spec.family, name: &spec.name, configuration: &spec.configuration, input };
        let mut configuration = Configuration::new(&context);
        let index_specs = configuration.codecs("index_codecs")?;
        let index_specs = configuration.require("index_codecs", index_specs)?;
        let data_specs = configuration.codecs("data_codecs")?;
        let data_specs = configuration.require("data_codecs", data_specs)?;
        let types = [("uint32", false), ("uint64", true)];
        let is_wide = configuration.choice("index_data_type", &types)?;
        let is_wide = configuration.require("index_data_type", is_wide)?;
        let locations = [("start", true), ("end", false)];
        // Older documents do not have the member.
        let is_index_first = configuration.choice("index_location", &locations)?.unwrap_or(true);
        configuration.finish()?;
        let data_type = if is_wide { DataType::UInt64 } else { DataType::UInt32 };
        let offsets = array(data_type, elements as u64 + 1);
        let index = Pipeline::build(&index_specs, &offsets)?;
        // A mistake shows before a chunk is read.
        Pipeline::build(&data_specs, &array(DataType::UInt8, 1))?;
        Ok(VlenIndexed { index, data_specs, is_index_first, offset_bytes: if is_wide { 8 } else { 4 } })
    }

    /// Returns the bytes that the decoded offsets take in memory.
    pub fn index_bytes(&self) -> usize {
        self.index.decoded_bytes().saturating_mul(1 + LENGTH_BYTES / self.offset_bytes)
    }

    /// Decodes the offsets of a chunk.
    pub fn decode_index<'a>(&self, encoded: &'a [u8]) -> CodecResult<VlenIndex<'a>> {
        let truncated = || CodecError::new(format_args!("{} bytes end within the offsets", encoded.len()));
        let (length, rest) = if self.is_index_first {
            encoded.split_first_chunk::<LENGTH_BYTES>().ok_or_else(truncated)?
        } else {
            let (rest, length) = encoded.split_last_chunk::<LENGTH_BYTES>().ok_or_else(truncated)?;
            (length, rest)
        };
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| truncated())?;
        let (index, encoded) = if self.is_index_first {
            rest.split_at_checked(length).ok_or_else(truncated)?
        } else {
            let at = rest.len().checked_sub(length).ok_or_else(truncated)?;
            let (encoded, index) = rest.split_at(at);
            (index, encoded)
        };
        let mut bytes = scratch::zeroed(self.index.decoded_bytes())?;
        let within_index =
            |error: CodecError| CodecError { reason: format!("offsets: {}", error.reason), ..error };
        self.index.decode(index, &mut bytes).map_err(within_index)?;
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
        let offsets: Vec<u64> = bytes.chunks_exact(self.offset_bytes).map(number).collect();
        if !offsets.is_sorted() {
            return Err(CodecError::new("the offsets of the elements do not ascend"));
        }
        Ok(VlenIndex { offsets, encoded })
    }

    /// Decodes the bytes of the elements, which are [`VlenIndex::data_bytes`].
    pub fn decode_data(&self, index: &VlenIndex<'_>) -> CodecResult<Vec<u8>> {
        let length = index.data_bytes();
        if length == 0 {
            return match index.encoded.len() {
                0 => Ok(Vec::new()),
                found => Err(CodecError::new(format_args!("{found} bytes where all elements are empty"))),
            };
        }
        let pipeline = Pipeline::build(&self.data_specs, &array(DataType::UInt8, length))?;
        let mut data = scratch::zeroed(pipeline.decoded_bytes())?;
        pipeline.decode(index.encoded, &mut data)?;
        Ok(data)
    }
}

impl VlenIndex<'_> {
    /// Returns how many bytes the elements have together.
    pub fn data_bytes(&self) -> u64 {
        self.offsets.last().copied().unwrap_or(0)
    }

    /// Returns the elements as parts of their decoded bytes.
    pub fn elements<'a>(&self, data: &'a [u8]) -> CodecResult<Vec<&'a [u8]>> {
        let element = |ends: &[u64]| match *ends {
            [start, end] => data.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?),
            _ => None,
        };
        let elements = self.offsets.windows(2).map(element).collect::<Option<Vec<_>>>();
        elements.ok_or_else(|| CodecError::new("an element lies outside the bytes of the chunk"))
    }
}

fn array(data_type: DataType, elements: u64) -> Representation {
    Representation { shape: vec![elements], fill_value: FillValue::zeros(&data_type), data_type }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn codec(changes: Value, elements: usize) -> CodecResult<VlenIndexed> {
        let mut configuration = json!({"data_codecs": ["bytes"], "index_data_type": "uint32",
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]});
        configuration.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let spec = CodecSpec {
            family: CodecFamily::V3,
            name: "zarrs.vlen".to_owned(),
            configuration: configuration.as_object().unwrap().clone(),
            must_understand: true,
            place: "codecs[0]".to_owned(),
        };
        assert!(VlenIndexed::is_named(&spec));
        VlenIndexed::build(&spec, elements)
    }

    fn decode(codec: &VlenIndexed, encoded: &[u8]) -> CodecResult<Vec<Vec<u8>>> {
        let index = codec.decode_index(encoded)?;
        let data = codec.decode_data(&index)?;
        Ok(index.elements(&data)?.into_iter().map(<[u8]>::to_vec).collect())
    }

    fn encoded(elements: &[Vec<u8>], is_index_first: bool) -> Vec<u8> {
        let mut index = vec![0; 4];
        let mut end = 0u32;
        for element in elements {
            end += element.len() as u32;
            index.extend(end.to_le_bytes());
        }
        let length = (index.len() as u64).to_le_bytes();
        let data = elements.concat();
        if is_index_first {
            [&length[..], &index, &data].concat()
        } else {
            [&data, &index, &length[..]].concat()
        }
    }

    proptest! {
        #[test]
        fn any_elements_come_back(elements in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5), 0..20)) {
            for (location, is_first) in [("start", true), ("end", false)] {
                let codec = codec(json!({"index_location": location}), elements.len()).unwrap();
                prop_assert_eq!(&decode(&codec, &encoded(&elements, is_first)).unwrap(), &elements);
            }
        }

        #[test]
        fn damage_is_no_panic(mut bytes: Vec<u8>, location in 0..2usize) {
            let location = ["start", "end"][location];
            let codec = codec(json!({"index_location": location}), 2).unwrap();
            let _ = decode(&codec, &bytes);
            bytes.splice(0..0, [12, 0, 0, 0, 0, 0, 0, 0]);
            let _ = decode(&codec, &bytes);
        }
    }

    #[test]
    fn damaged_offsets_are_errors() {
        let elements = [b"ab".to_vec(), b"c".to_vec()];
        let (codec, good) = (codec(json!({}), 2).unwrap(), encoded(&elements, true));
        assert_eq!(decode(&codec, &good).unwrap(), elements);
        for (at, byte) in [(0, 13), (7, 1), (12, 9), (16, 1), (16, 9)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(decode(&codec, &bad).is_err(), "{at}");
        }
        assert!(decode(&codec, &good[..7]).is_err() && decode(&codec, &[&good[..], &[0]].concat()).is_err());
        for changes in
            [json!({"index_data_type": "uint8"}), json!({"data_codecs": ["magic"]}), json!({"x": 1})]
        {
            assert!(self::codec(changes, 2).is_err());
        }
    }
}
