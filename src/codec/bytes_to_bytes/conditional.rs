//! `conditional`: a list of codecs that each chunk uses or skips on its own.
//!
//! Spec: zarr-extensions, codecs/conditional. Uses the registry.
//!
//! ```json
//! {"name": "conditional", "configuration": {"codecs": [{"name": "zstd", "configuration": {"level": 5}}], "header_bits": 8}}
//! ```
//!
//! A chunk begins with a mask of `header_bits` bits, the least significant first. A bit says that the codec at its place was
//! applied. Bits without a codec must be 0. The specification leaves the decision to the writer: here a compressor is applied only
//! if it makes the bytes shorter, and a codec with a constant size (a shuffle, a checksum) is always applied.

use std::borrow::Cow;

use crate::codec::config::Configuration;
use crate::codec::error::check_limit;
use crate::codec::{
    BytesToBytes, Codec, CodecEntry, CodecError, CodecInput, CodecResult, Context, EncodedSize,
    check_chain_length, registry,
};

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["conditional"], v2: &[], build };

/// The longest mask.
const MAX_HEADER_BITS: i64 = 8 << 10;

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let (decoded, item_size) = context.bytes()?;
    let mut configuration = Configuration::new(context);
    let specs = configuration.codecs("codecs")?;
    let specs = configuration.require("codecs", specs)?;
    check_chain_length(&specs)?;
    let least = i64::try_from(specs.len()).unwrap_or(i64::MAX);
    let header_bits = configuration.integer("header_bits", least..=MAX_HEADER_BITS)?;
    let header_bits = header_bits.unwrap_or_else(|| least.saturating_add(7) / 8 * 8);
    if header_bits % 8 != 0 {
        return Err(configuration.error("header_bits", "must be a multiple of 8"));
    }
    configuration.finish()?;
    let mut codecs = Vec::with_capacity(specs.len());
    let mut size = decoded;
    for (index, spec) in specs.iter().enumerate() {
        let item_size = if index == 0 { item_size } else { 1 };
        let input = CodecInput::Bytes { size, item_size, items: None };
        let built = registry::build(spec, input).map_err(|error| CodecError {
            reason: format!("codec \"conditional\": {}: {}", spec.place, error.reason),
            ..error
        })?;
        let Codec::BytesToBytes(codec) = built else {
            let name = &spec.name;
            return Err(configuration_error(format_args!("codec \"{name}\" does not turn bytes into bytes")));
        };
        let after = longest(size, &*codec);
        codecs.push(OptionalCodec { name: spec.name.clone(), codec });
        size = after;
    }
    let header_bytes = usize::try_from(header_bits / 8).unwrap_or(0);
    Ok(Codec::BytesToBytes(Box::new(Conditional { codecs, header_bytes })))
}

fn configuration_error(reason: impl std::fmt::Display) -> CodecError {
    CodecError::new(format_args!("codec \"conditional\": \"codecs\" {reason}"))
}

/// A codec that a chunk may have skipped.
struct OptionalCodec {
    name: String,
    codec: Box<dyn BytesToBytes>,
}

struct Conditional {
    codecs: Vec<OptionalCodec>,
    header_bytes: usize,
}

impl OptionalCodec {
    fn blame(&self, error: CodecError) -> CodecError {
        CodecError { reason: format!("codec \"{}\": {}", self.name, error.reason), ..error }
    }

    /// Encodes; `None` if the codec is a compressor that does not make these bytes shorter.
    fn encode(&self, decoded: &[u8]) -> CodecResult<Option<Vec<u8>>> {
        let length = decoded.len() as u64;
        let is_constant =
            matches!(self.codec.encoded_size(EncodedSize::Exact(length)), EncodedSize::Exact(_));
        let encoded = self.codec.encode(decoded).map_err(|error| self.blame(error))?;
        Ok((is_constant || encoded.len() < decoded.len()).then_some(encoded))
    }
}

impl Conditional {
    /// Splits a chunk into its mask and the encoded bytes.
    fn split<'a>(&self, encoded: &'a [u8]) -> CodecResult<(&'a [u8], &'a [u8])> {
        let too_short = || CodecError::new(format_args!("{} bytes are too few for the mask", encoded.len()));
        let (mask, rest) = encoded.split_at_checked(self.header_bytes).ok_or_else(too_short)?;
        match (self.codecs.len()..8 * self.header_bytes).find(|&index| is_set(mask, index)) {
            Some(index) => {
                Err(CodecError::new(format_args!("the mask has the bit {index}, which has no codec")))
            }
            None => Ok((mask, rest)),
        }
    }
}

/// Returns the size after a codec that may be skipped.
fn longest(size: EncodedSize, codec: &dyn BytesToBytes) -> EncodedSize {
    EncodedSize::AtMost(codec.encoded_size(size).limit_bytes().max(size.limit_bytes()))
}

fn is_set(mask: &[u8], index: usize) -> bool {
    mask.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
}

impl BytesToBytes for Conditional {
    fn is_lossless(&self) -> bool {
        self.codecs.iter().all(|stage| stage.codec.is_lossless())
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        let size = self.codecs.iter().fold(decoded, |size, stage| longest(size, &*stage.codec));
        EncodedSize::AtMost(size.limit_bytes().saturating_add(self.header_bytes as u64))
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        let (mask, rest) = self.split(encoded)?;
        // The limit before each codec follows from the chunk's, so that no codec decodes more than a chunk can need.
        let mut size = EncodedSize::Exact(limit_bytes as u64);
        let mut limits = Vec::with_capacity(self.codecs.len());
        for stage in &self.codecs {
            limits.push(usize::try_from(size.limit_bytes()).unwrap_or(usize::MAX));
            size = longest(size, &*stage.codec);
        }
        let mut bytes = Cow::Borrowed(rest);
        for ((index, stage), limit) in self.codecs.iter().enumerate().zip(limits).rev() {
            if is_set(mask, index) {
                let decoded = stage.codec.decode(&bytes, limit).map_err(|error| stage.blame(error))?;
                bytes = Cow::Owned(decoded.into_owned());
            }
        }
        check_limit(bytes.len(), limit_bytes)?;
        Ok(bytes)
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        let mut mask = vec![0u8; self.header_bytes];
        let mut bytes = Cow::Borrowed(decoded);
        for (index, stage) in self.codecs.iter().enumerate() {
            if let Some(encoded) = stage.encode(&bytes)? {
                bytes = Cow::Owned(encoded);
                if let Some(byte) = mask.get_mut(index / 8) {
                    *byte |= 1 << (index % 8);
                }
            }
        }
        mask.extend_from_slice(&bytes);
        Ok(mask)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::metadata::{CodecFamily, CodecSpec};
    use serde_json::{Value, json};

    /// Each level is built from a copy of its configuration, so a document of some megabytes would take minutes.
    #[test]
    fn codecs_inside_each_other_are_limited() {
        let nested = |levels: usize| {
            let mut codecs = json!([{"name": "gzip", "configuration": {"level": 1}}]);
            for _ in 0..levels {
                let one = json!({"name": "conditional", "configuration": {"codecs": codecs}});
                codecs = json!([one, one]);
            }
            codec(json!({"codecs": codecs}))
        };
        assert!(nested(8).is_ok());
        let error = nested(9).err().unwrap().to_string();
        assert!(error.contains("1534 codecs inside each other, more than the limit of 1024"), "{error}");
    }

    fn codec(configuration: Value) -> CodecResult<Box<dyn BytesToBytes>> {
        let spec = CodecSpec {
            family: CodecFamily::V3,
            name: "conditional".to_owned(),
            configuration: configuration.as_object().unwrap().clone(),
            must_understand: true,
            place: "codecs[1]".to_owned(),
        };
        let input = CodecInput::Bytes { size: EncodedSize::Exact(400), item_size: 4, items: None };
        match registry::build(&spec, input)? {
            Codec::BytesToBytes(codec) => Ok(codec),
            _ => panic!("not bytes to bytes"),
        }
    }

    fn shuffle_and_zlib() -> Box<dyn BytesToBytes> {
        let shuffle = json!({"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}});
        codec(json!({"codecs": [shuffle, "numcodecs.zlib"]})).unwrap()
    }

    #[test]
    fn a_mask_says_what_was_applied() {
        let codec = shuffle_and_zlib();
        let even: Vec<u8> = (0..100u32).flat_map(|number| (number / 50).to_le_bytes()).collect();
        let mut state = 1u64;
        let mut noise_byte = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let noise: Vec<u8> = (0..400).map(&mut noise_byte).collect();
        for (data, mask) in [(&even, 3), (&noise, 1)] {
            let encoded = codec.encode(data).unwrap();
            assert_eq!(encoded[0], mask);
            assert!(encoded.len() <= data.len() + 1);
            assert_eq!(&*codec.decode(&encoded, 400).unwrap(), &data[..]);
            assert!(codec.decode(&encoded, 399).is_err());
        }
        // Codecs that another writer skipped.
        let plain = [&[0], &even[..]].concat();
        assert_eq!(&*codec.decode(&plain, 400).unwrap(), &even[..]);
        let only_zlib = super::super::deflate::Wrapper::Zlib.encode(&even, 1).unwrap();
        assert_eq!(&*codec.decode(&[&[2], &only_zlib[..]].concat(), 400).unwrap(), &even[..]);
    }

    #[test]
    fn damage_is_an_error() {
        let codec = shuffle_and_zlib();
        let mut encoded = codec.encode(&[7; 400]).unwrap();
        encoded[0] |= 4;
        let error = codec.decode(&encoded, 400).unwrap_err().to_string();
        assert!(error.contains("bit 2, which has no codec"), "{error}");
        assert!(codec.decode(&[], 400).is_err());
        assert!(codec.decode(&[2, 1, 2, 3], 400).unwrap_err().to_string().contains("numcodecs.zlib"));
    }

    #[test]
    fn configurations() {
        let wide = codec(json!({"codecs": ["crc32c"], "header_bits": 16})).unwrap();
        let encoded = wide.encode(b"abc").unwrap();
        assert_eq!((&encoded[..5], encoded.len()), (&b"\x01\0abc"[..], 9));
        for (bad, reason) in [
            (json!({}), "is required"),
            (json!({"codecs": ["crc32c"], "header_bits": 12}), "multiple of 8"),
            (json!({"codecs": ["crc32c"], "header_bits": 0}), "from 1 to"),
            (json!({"codecs": ["bytes"]}), "takes an array"),
            (json!({"codecs": ["magic"]}), "codec \"magic\""),
            (json!({"codecs": ["crc32c"], "mask": 1}), "does not know"),
        ] {
            let error = codec(bad.clone()).err().unwrap().to_string();
            assert!(error.contains(reason), "{bad}: {error}");
        }
    }
}
