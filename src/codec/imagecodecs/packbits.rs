//! `imagecodecs_packbits`: TIFF's PackBits, runs of bytes.
//!
//! Spec: TIFF 6.0, section 9. Not `packbits` of the registry, nor numcodecs' codec of that name. Uses nothing else.
//!
//! ```json
//! {"name": "imagecodecs_packbits"}
//! ```
//!
//! A byte n below 128 precedes n + 1 bytes, which are copied; above 128 it precedes one byte, which stands for 257 − n; 128 does nothing.
//! `axis` only matters to imagecodecs' encoder, which ends runs at the end of a row.

use std::borrow::Cow;

use crate::codec::config::Configuration;
use crate::codec::error::check_limit;
use crate::codec::{BytesToBytes, Codec, CodecEntry, CodecError, CodecResult, Context, EncodedSize};

/// The codec in the registry.
pub const ENTRY: CodecEntry =
    CodecEntry { v3: &["imagecodecs_packbits"], v2: &["imagecodecs_packbits"], build };

/// The longest run and the longest copy.
const MAX_RUN_BYTES: usize = 128;
/// The byte that does nothing.
const NOTHING: u8 = 128;

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    context.bytes()?;
    let mut configuration = Configuration::new(context);
    configuration.integer("axis", i64::MIN..=i64::MAX)?;
    configuration.finish()?;
    Ok(Codec::BytesToBytes(Box::new(PackBits)))
}

struct PackBits;

impl BytesToBytes for PackBits {
    fn is_lossless(&self) -> bool {
        true
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        decoded.compressed()
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        let truncated = || CodecError::new("the compressed data ends too early");
        let mut out = Vec::new();
        let mut rest = encoded;
        while let Some((&control, after)) = rest.split_first() {
            rest = after;
            match control {
                // DICOM pads to an even length.
                0 if rest.is_empty() => break,
                NOTHING => {}
                0..NOTHING => {
                    let (literal, after) =
                        rest.split_at_checked(usize::from(control) + 1).ok_or_else(truncated)?;
                    check_limit(out.len() + literal.len(), limit_bytes)?;
                    out.extend_from_slice(literal);
                    rest = after;
                }
                _ => {
                    let (&byte, after) = rest.split_first().ok_or_else(truncated)?;
                    let length = out.len() + 257 - usize::from(control);
                    check_limit(length, limit_bytes)?;
                    out.resize(length, byte);
                    rest = after;
                }
            }
        }
        Ok(Cow::Owned(out))
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        let mut encoded = Vec::with_capacity(decoded.len() + decoded.len().div_ceil(MAX_RUN_BYTES));
        let mut literal: &[u8] = &[];
        let mut rest = decoded;
        let put = |literal: &[u8], encoded: &mut Vec<u8>| {
            for part in literal.chunks(MAX_RUN_BYTES) {
                // From 0 to 127.
                encoded.push((part.len() - 1) as u8);
                encoded.extend_from_slice(part);
            }
        };
        while let Some(&byte) = rest.first() {
            let run = rest.iter().take(MAX_RUN_BYTES).take_while(|&&other| other == byte).count();
            if run < 3 {
                let before = decoded.len() - rest.len() - literal.len();
                literal = decoded.get(before..decoded.len() - rest.len() + run).unwrap_or_default();
            } else {
                put(literal, &mut encoded);
                literal = &[];
                // From 129 to 254.
                encoded.extend([(257 - run) as u8, byte]);
            }
            rest = rest.get(run..).unwrap_or_default();
        }
        put(literal, &mut encoded);
        Ok(encoded)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_apple() {
        let encoded = b"\xfe\xaa\x02\x80\x00\x2a\xfd\xaa\x03\x80\x00\x2a\x22\xf7\xaa";
        let decoded = b"\xaa\xaa\xaa\x80\x00\x2a\xaa\xaa\xaa\xaa\x80\x00\x2a\x22\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa";
        assert_eq!(&*PackBits.decode(encoded, 24).unwrap(), decoded);
        assert_eq!(PackBits.encode(decoded).unwrap(), encoded);
        assert_eq!(&*PackBits.decode(b"\x80\xff\x07\0", 2).unwrap(), [7, 7]);
        for (bad, limit) in [(&encoded[..14], 24), (encoded, 23), (b"\x01\x07", 9)] {
            assert!(PackBits.decode(bad, limit).is_err());
        }
    }

    proptest! {
        #[test]
        fn round_trip(bytes in prop::collection::vec(0u8..3, 0..1000)) {
            let encoded = PackBits.encode(&bytes).unwrap();
            prop_assert_eq!(&*PackBits.decode(&encoded, bytes.len()).unwrap(), &bytes[..]);
        }

        #[test]
        fn any_bytes_are_no_panic(bytes: Vec<u8>, limit in 0usize..500) {
            if let Ok(decoded) = PackBits.decode(&bytes, limit) {
                prop_assert!(decoded.len() <= limit);
            }
        }
    }
}
