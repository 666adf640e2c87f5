//! `optional`: a mask of the elements that have a value, and these values. It is only read.
//!
//! Spec: the proposal "optional" (zarr-extensions, pull request 33), as the zarrs crate writes it (`zarrs.optional`). Uses the pipeline.
//!
//! ```json
//! {"name": "optional", "configuration": {
//!   "mask_codecs": [{"name": "packbits"}],
//!   "data_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]}}
//! ```
//!
//! A chunk is the lengths of the encoded mask and of the encoded values (u64, little-endian), the mask and the values. The mask has the
//! chunk's shape; the values are an array of one dimension, in C order, without the elements that are null. Decoding gives the values, with
//! the fill value where an element is null. The view "mask" gives the mask: the same codec in the family of views, whose configuration
//! has the type of the values in addition.

use serde_json::Value;

use crate::codec::array_to_bytes::sharding::fill_with;
use crate::codec::config::Configuration;
use crate::codec::{
    ArrayToBytes, Codec, CodecEntry, CodecError, CodecResult, Context, EncodedSize, Pipeline, Representation,
    scratch,
};
use crate::metadata::{CodecFamily, CodecSpec, DataType, FillValue, parse_data_type_v3};

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry { v3: &NAMES, v2: &[], build };
/// The codec of the view "mask".
pub const MASK_ENTRY: CodecEntry = CodecEntry { v3: &[MASK], v2: &[], build };

/// The names of the codec.
pub const NAMES: [&str; 2] = ["optional", "zarrs.optional"];
/// The name of the codec of the view.
const MASK: &str = "optional_mask";
/// The member that the view's configuration has in addition: the type of the values.
const VALUES: &str = "values";
/// Bytes of the two lengths.
const HEADER_BYTES: usize = 16;

/// What decoding gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Values,
    Mask,
}

/// The codec for one shape of chunk.
struct Optional {
    part: Part,
    elements: usize,
    mask: Pipeline,
    data_specs: Vec<CodecSpec>,
    /// The values of a chunk without null.
    values: Representation,
    all_values: Pipeline,
    /// The value of an element that is null.
    fill: Vec<u8>,
}

/// Returns the chain that gives the mask of an array with this chain; `None` if `optional` is not one of its codecs. `data_type` is that of
/// the values, as documents write it.
pub fn mask_chain(specs: &[CodecSpec], data_type: &Value) -> Option<Vec<CodecSpec>> {
    specs.iter().find(|spec| is_optional(spec))?;
    let of_mask = |spec: &CodecSpec| {
        if !is_optional(spec) {
            return spec.clone();
        }
        let mut spec = CodecSpec { family: CodecFamily::View, name: MASK.to_owned(), ..spec.clone() };
        spec.configuration.insert(VALUES.to_owned(), data_type.clone());
        spec
    };
    Some(specs.iter().map(of_mask).collect())
}

fn is_optional(spec: &CodecSpec) -> bool {
    spec.family == CodecFamily::V3 && NAMES.contains(&spec.name.as_str())
}

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let chunk = context.array()?;
    let mut configuration = Configuration::new(context);
    let mask_specs = configuration.codecs("mask_codecs")?;
    let mask_specs = configuration.require("mask_codecs", mask_specs)?;
    let data_specs = configuration.codecs("data_codecs")?;
    let data_specs = configuration.require("data_codecs", data_specs)?;
    let part = if context.family == CodecFamily::View { Part::Mask } else { Part::Values };
    let data_type = match part {
        Part::Values => chunk.data_type.clone(),
        Part::Mask => {
            let values = configuration.value(VALUES);
            let values = configuration.require(VALUES, values)?;
            parse_data_type_v3(values).map_err(|fault| configuration.error(VALUES, fault))?
        }
    };
    configuration.finish()?;
    let nested = |place: &str, error: CodecError| CodecError {
        reason: format!("codec \"{}\": {place}: {}", context.name, error.reason),
        ..error
    };
    let fill_value = FillValue::zeros(&DataType::Bool);
    let mask = Representation { shape: chunk.shape.clone(), data_type: DataType::Bool, fill_value };
    let elements = mask.size_bytes()?;
    let mask = Pipeline::build(&mask_specs, &mask).map_err(|error| nested("mask_codecs", error))?;
    let fill_value = FillValue::zeros(&data_type);
    let values = Representation { shape: vec![elements as u64], data_type, fill_value };
    let all_values = Pipeline::build(&data_specs, &values).map_err(|error| nested("data_codecs", error))?;
    let fill = chunk.fill_value.bytes.clone();
    Ok(Codec::ArrayToBytes(Box::new(Optional { part, elements, mask, data_specs, values, all_values, fill })))
}

impl Optional {
    /// Splits a chunk into its encoded mask and its encoded values.
    fn split<'a>(&self, encoded: &'a [u8]) -> CodecResult<(&'a [u8], &'a [u8])> {
        let wrong = || {
            let found = encoded.len();
            CodecError::new(format_args!(
                "{found} bytes do not have the mask and the values that their header says"
            ))
        };
        let (header, rest) = encoded.split_first_chunk::<HEADER_BYTES>().ok_or_else(wrong)?;
        let (numbers, _) = header.as_chunks::<8>();
        let mut lengths = numbers.iter().map(|number| u64::from_le_bytes(*number));
        let (mask, values) = (lengths.next().unwrap_or(0), lengths.next().unwrap_or(0));
        if mask.checked_add(values) != Some(rest.len() as u64) {
            return Err(wrong());
        }
        // It is at most the length of the rest.
        rest.split_at_checked(mask as usize).ok_or_else(wrong)
    }

    fn decode_values(&self, mask: &[u8], encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let count = mask.iter().filter(|&&has_value| has_value != 0).count();
        if count == 0 {
            fill_with(&self.fill, out);
            return match encoded.len() {
                0 => Ok(()),
                found => {
                    Err(CodecError::new(format_args!("{found} bytes of values, but every element is null")))
                }
            };
        }
        if count == self.elements {
            return self.all_values.decode(encoded, out);
        }
        let values = Representation { shape: vec![count as u64], ..self.values.clone() };
        let pipeline = Pipeline::build(&self.data_specs, &values)?;
        let item_size = values.item_size()?;
        scratch::with(pipeline.decoded_bytes(), |values| {
            pipeline.decode(encoded, values)?;
            let mut values = values.chunks_exact(item_size);
            for (element, &has_value) in out.chunks_exact_mut(item_size).zip(mask) {
                let value = if has_value == 0 { None } else { values.next() };
                element.copy_from_slice(value.unwrap_or(&self.fill));
            }
            Ok(())
        })
    }
}

impl ArrayToBytes for Optional {
    // The codec does not encode.
    fn is_lossless(&self) -> bool {
        false
    }

    fn encoded_size(&self) -> EncodedSize {
        let both = self
            .mask
            .encoded_size()
            .limit_bytes()
            .saturating_add(self.all_values.encoded_size().limit_bytes());
        EncodedSize::AtMost(both.saturating_add(HEADER_BYTES as u64))
    }

    fn decode(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let (mask, values) = self.split(encoded)?;
        let blame = |error: CodecError| CodecError { reason: format!("mask: {}", error.reason), ..error };
        if self.part == Part::Mask {
            return self.mask.decode(mask, out).map_err(blame);
        }
        scratch::with(self.elements, |has_value| {
            self.mask.decode(mask, has_value).map_err(blame)?;
            self.decode_values(has_value, values, out)
        })
    }

    fn encode(&self, _: &[u8]) -> CodecResult<Vec<u8>> {
        Err(CodecError::unsupported("writing elements that may be null"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::codec::{CodecInput, registry};
    use proptest::prelude::*;
    use serde_json::json;

    const FILL: [u8; 2] = [9, 0];

    fn spec(name: &str) -> CodecSpec {
        let configuration = json!({"mask_codecs": ["packbits"], "data_codecs": [
            {"name": "bytes", "configuration": {"endian": "little"}}, "crc32c"]});
        CodecSpec {
            family: CodecFamily::V3,
            name: name.to_owned(),
            configuration: configuration.as_object().unwrap().clone(),
            must_understand: true,
            place: "codecs[0]".to_owned(),
        }
    }

    fn codec(spec: &CodecSpec, shape: &[u64]) -> Box<dyn ArrayToBytes> {
        let is_mask = spec.family == CodecFamily::View;
        let (data_type, bytes) =
            if is_mask { (DataType::Bool, vec![0]) } else { (DataType::Int16, FILL.to_vec()) };
        let fill_value = FillValue { bytes, is_undefined: false };
        let input = Representation { shape: shape.to_vec(), data_type, fill_value };
        match registry::build(spec, CodecInput::Array(&input)).unwrap() {
            Codec::ArrayToBytes(codec) => codec,
            _ => panic!("not array to bytes"),
        }
    }

    /// Encodes by the text of the proposal.
    fn encoded(values: &[Option<i16>]) -> Vec<u8> {
        let mut mask = vec![0u8; values.len().div_ceil(8)];
        let mut data: Vec<u8> = Vec::new();
        for (at, value) in values.iter().enumerate() {
            mask[at / 8] |= u8::from(value.is_some()) << (at % 8);
            data.extend(value.iter().flat_map(|value| value.to_le_bytes()));
        }
        if !data.is_empty() {
            let sum = crc32c::crc32c(&data);
            data.extend(sum.to_le_bytes());
        }
        let lengths = [mask.len() as u64, data.len() as u64].map(u64::to_le_bytes);
        [lengths.as_flattened(), &mask, &data].concat()
    }

    fn mask_of(spec: &CodecSpec) -> CodecSpec {
        mask_chain(std::slice::from_ref(spec), &json!({"name": "int16"})).unwrap().remove(0)
    }

    proptest! {
        #[test]
        fn values_and_mask(values in prop::collection::vec(prop::option::of(any::<i16>()), 1..40)) {
            let (stored, mut out) = (encoded(&values), vec![0; 2 * values.len()]);
            for name in NAMES {
                codec(&spec(name), &[values.len() as u64]).decode(&stored, &mut out).unwrap();
                let expected: Vec<u8> =
                    values.iter().flat_map(|value| value.map_or(FILL, i16::to_le_bytes)).collect();
                prop_assert_eq!(&out, &expected);
            }
            let mut mask = vec![7; values.len()];
            codec(&mask_of(&spec("optional")), &[values.len() as u64]).decode(&stored, &mut mask).unwrap();
            prop_assert_eq!(mask, values.iter().map(|value| u8::from(value.is_some())).collect::<Vec<_>>());
        }

        #[test]
        fn damage_is_no_panic(
            values in prop::collection::vec(prop::option::of(any::<i16>()), 1..40),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let (mut stored, mut out) = (encoded(&values), vec![0; 2 * values.len()]);
            for (at, byte) in damage {
                let at = at.index(stored.len());
                stored[at] = byte;
            }
            stored.truncate(cut.index(stored.len() + 1));
            let _ = codec(&spec("optional"), &[values.len() as u64]).decode(&stored, &mut out);
        }
    }

    #[test]
    fn wrong_lengths_are_errors() {
        let (codec, good) = (codec(&spec("optional"), &[4]), encoded(&[Some(1), None, Some(2), None]));
        let mut out = [0; 8];
        codec.decode(&good, &mut out).unwrap();
        assert_eq!(out, [1, 0, 9, 0, 2, 0, 9, 0]);
        for at in [0, 7, 8, 15] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(codec.decode(&bad, &mut out).is_err(), "{at}");
        }
        assert!(codec.decode(&good[..15], &mut out).is_err());
        assert!(codec.decode(&[&good[..], &[0]].concat(), &mut out).is_err());
        let values_of_nothing = [&[1, 0, 0, 0, 0, 0, 0, 0, 1][..], &[0; 7], &[0], &[5]].concat();
        let error = codec.decode(&values_of_nothing, &mut out).unwrap_err().to_string();
        assert!(error.contains("every element is null"), "{error}");
        assert!(codec.encode(&out).unwrap_err().is_unsupported);
    }

    #[test]
    fn chains_without_it_have_no_mask() {
        let other = CodecSpec { name: "bytes".to_owned(), ..spec("optional") };
        assert!(mask_chain(&[other], &json!("int16")).is_none());
    }
}
