//! `imagecodecs_lzf`: LZF, the compression of HDF5 files that h5py writes with `compression="lzf"`.
//!
//! Format: liblzf; with `header` (the default) after the decoded size (u32, little-endian). HDF5 stores no header. Uses nothing else.
//!
//! ```json
//! {"name": "imagecodecs_lzf", "configuration": {"header": false}}
//! ```
//!
//! A byte below 32 precedes that many bytes and one more, which are copied. Any other byte has the length of a repetition in its three
//! highest bits (7: a byte with more follows) and the distance in its other bits and the next byte. Encoding stores all bytes as
//! they are.

use std::borrow::Cow;

use crate::codec::config::Configuration;
use crate::codec::error::check_limit;
use crate::codec::{BytesToBytes, Codec, CodecEntry, CodecError, CodecResult, Context, EncodedSize};

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["imagecodecs_lzf"], v2: &["imagecodecs_lzf"], build };

/// The most bytes that are copied as they are at once.
const MAX_LITERAL_BYTES: usize = 32;
/// The first step of output whose length is not known.
const FIRST_CAPACITY: usize = 64 << 10;

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    context.bytes()?;
    let mut configuration = Configuration::new(context);
    let has_header = configuration.boolean("header")?.unwrap_or(true);
    configuration.finish()?;
    Ok(Codec::BytesToBytes(Box::new(Lzf { has_header })))
}

struct Lzf {
    has_header: bool,
}

/// Decodes at most `limit_bytes`.
fn decompress(mut rest: &[u8], limit_bytes: usize) -> CodecResult<Vec<u8>> {
    let truncated = || CodecError::new("the compressed data ends too early");
    let take = |rest: &mut &[u8]| -> CodecResult<usize> {
        let (&byte, after) = rest.split_first().ok_or_else(truncated)?;
        *rest = after;
        Ok(byte.into())
    };
    let mut out: Vec<u8> = Vec::with_capacity(limit_bytes.min(FIRST_CAPACITY));
    while !rest.is_empty() {
        let control = take(&mut rest)?;
        if control < MAX_LITERAL_BYTES {
            let (literal, after) = rest.split_at_checked(control + 1).ok_or_else(truncated)?;
            check_limit(out.len() + literal.len(), limit_bytes)?;
            out.extend_from_slice(literal);
            rest = after;
            continue;
        }
        let mut length = control >> 5;
        if length == 7 {
            length += take(&mut rest)?;
        }
        let distance = ((control & 0x1f) << 8 | take(&mut rest)?) + 1;
        let length = length + 2;
        let from = out.len().checked_sub(distance);
        let from = from.ok_or_else(|| CodecError::new("a repetition of bytes before the first one"))?;
        check_limit(out.len() + length, limit_bytes)?;
        if distance >= length {
            out.extend_from_within(from..from + length);
        } else {
            // What is repeated is only made by the repetition.
            for at in from..from + length {
                let byte = out.get(at).copied().unwrap_or_default();
                out.push(byte);
            }
        }
    }
    Ok(out)
}

impl BytesToBytes for Lzf {
    fn is_lossless(&self) -> bool {
        true
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        decoded.compressed()
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        if !self.has_header {
            return decompress(encoded, limit_bytes).map(Cow::Owned);
        }
        let Some((length, block)) = encoded.split_first_chunk::<4>() else {
            return Err(CodecError::new(format_args!("{} bytes are too few for a header", encoded.len())));
        };
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        check_limit(length, limit_bytes)?;
        let decoded = decompress(block, length)?;
        match decoded.len() {
            found if found == length => Ok(Cow::Owned(decoded)),
            found => Err(CodecError::new(format_args!("{found} bytes where the header says {length}"))),
        }
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        let too_long =
            |_| CodecError::new(format_args!("{} bytes are more than a header says", decoded.len()));
        let mut encoded = Vec::with_capacity(decoded.len() + decoded.len().div_ceil(MAX_LITERAL_BYTES) + 4);
        if self.has_header {
            encoded.extend(u32::try_from(decoded.len()).map_err(too_long)?.to_le_bytes());
        }
        for literal in decoded.chunks(MAX_LITERAL_BYTES) {
            // From 0 to 31.
            encoded.push((literal.len() - 1) as u8);
            encoded.extend_from_slice(literal);
        }
        Ok(encoded)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn literals_and_repetitions() {
        // abc, then six bytes from three back, then ten of the last byte.
        let block = [&b"\x02abc"[..], &[4 << 5, 2], &[7 << 5, 1, 0]].concat();
        assert_eq!(decompress(&block, 100).unwrap(), b"abcabcabccccccccccc");
        assert!(decompress(&block, 18).is_err());
        assert!(decompress(&[1 << 5, 0], 9).unwrap_err().to_string().contains("before the first"));
        for truncated in [&[5, 1, 2][..], &[1 << 5], &[7 << 5, 1], &[0]] {
            assert!(decompress(truncated, 9).is_err(), "{truncated:?}");
        }
    }

    #[test]
    fn the_header_is_checked() {
        let codec = Lzf { has_header: true };
        let encoded = codec.encode(b"abc").unwrap();
        assert_eq!(encoded, b"\x03\0\0\0\x02abc");
        assert_eq!(&*codec.decode(&encoded, 3).unwrap(), b"abc");
        assert!(codec.decode(&encoded, 2).is_err() && codec.decode(&encoded[..3], 3).is_err());
        for length in [2, 4, 255] {
            let mut wrong = encoded.clone();
            wrong[0] = length;
            assert!(codec.decode(&wrong, 300).is_err());
        }
    }

    proptest! {
        #[test]
        fn round_trip(bytes: Vec<u8>, has_header: bool) {
            let codec = Lzf { has_header };
            let encoded = codec.encode(&bytes).unwrap();
            prop_assert_eq!(&*codec.decode(&encoded, bytes.len()).unwrap(), &bytes[..]);
        }

        #[test]
        fn any_bytes_are_no_panic(bytes: Vec<u8>, limit in 0usize..500) {
            if let Ok(decoded) = decompress(&bytes, limit) {
                prop_assert!(decoded.len() <= limit);
            }
        }
    }
}
