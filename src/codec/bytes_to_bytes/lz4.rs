//! `numcodecs.lz4`: one raw LZ4 block after its decoded size (u32, little-endian). v2 id: `lz4`.
//!
//! Format: numcodecs `LZ4`, over LZ4's block format; `acceleration` only matters to the encoder. Uses nothing else.
//!
//! ```json
//! {"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}
//! ```

use std::borrow::Cow;

use crate::codec::config::Configuration;
use crate::codec::{BytesToBytes, Codec, CodecEntry, CodecError, CodecResult, Context, EncodedSize, scratch};

/// The codec's names and constructor.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["numcodecs.lz4", "lz4"], v2: &["lz4"], build };

/// The most bytes that an LZ4 block takes (LZ4_MAX_INPUT_SIZE).
const MAX_BLOCK_BYTES: usize = 0x7E00_0000;

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    configuration.integer("acceleration", i64::MIN..=i64::MAX)?;
    configuration.finish()?;
    Ok(Codec::BytesToBytes(Box::new(Lz4)))
}

struct Lz4;

impl BytesToBytes for Lz4 {
    fn is_lossless(&self) -> bool {
        true
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        decoded.compressed()
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        let (length, _) = split(encoded)?;
        if length > limit_bytes {
            return Err(CodecError::new(format_args!(
                "the header says {length} bytes where at most {limit_bytes} were expected"
            )));
        }
        let mut out = scratch::zeroed(length)?;
        self.decode_into(encoded, &mut out)?;
        Ok(Cow::Owned(out))
    }

    fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let (length, block) = split(encoded)?;
        if length != out.len() {
            let expected = out.len();
            return Err(CodecError::new(format_args!(
                "the header says {length} bytes where {expected} were expected"
            )));
        }
        if length == 0 {
            return Ok(());
        }
        match lz4_flex::block::decompress_into(block, out) {
            Ok(decoded) if decoded == length => Ok(()),
            Ok(decoded) => {
                Err(CodecError::new(format_args!("{decoded} bytes where the header says {length}")))
            }
            Err(error) => Err(CodecError::new(format_args!("{error}"))),
        }
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        let length = match u32::try_from(decoded.len()) {
            Ok(length) if decoded.len() <= MAX_BLOCK_BYTES => length,
            _ => {
                let found = decoded.len();
                return Err(CodecError::new(format_args!("{found} bytes are more than a block takes")));
            }
        };
        let mut encoded = vec![0; lz4_flex::block::get_maximum_output_size(decoded.len()).saturating_add(4)];
        let (header, block) = encoded.split_at_mut(4);
        header.copy_from_slice(&length.to_le_bytes());
        let written = lz4_flex::block::compress_into(decoded, block)
            .map_err(|error| CodecError::new(format_args!("{error}")))?;
        encoded.truncate(written + 4);
        Ok(encoded)
    }
}

/// Splits the encoded bytes into the decoded size and the block.
fn split(encoded: &[u8]) -> CodecResult<(usize, &[u8])> {
    let Some((length, block)) = encoded.split_first_chunk::<4>() else {
        return Err(CodecError::new(format_args!("{} bytes are too few for a header", encoded.len())));
    };
    let length = usize::try_from(u32::from_le_bytes(*length));
    Ok((length.map_err(|_| CodecError::new("the block is too long"))?, block))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn header_is_checked() {
        let encoded = Lz4.encode(b"abc").unwrap();
        assert_eq!(&*Lz4.decode(&encoded, 3).unwrap(), b"abc");
        assert!(Lz4.decode(&encoded, 2).is_err());
        for length in [0u32, 2, 4, u32::MAX] {
            let mut wrong = encoded.clone();
            wrong[..4].copy_from_slice(&length.to_le_bytes());
            assert!(Lz4.decode_into(&wrong, &mut [0; 3]).is_err(), "{length}");
            assert!(length == 0 || Lz4.decode(&wrong, 100).is_err(), "{length}");
        }
        assert!(Lz4.decode(&encoded[..3], 3).is_err());
        assert_eq!(&*Lz4.decode(&Lz4.encode(b"").unwrap(), 0).unwrap(), b"");
    }

    proptest! {
        #[test]
        fn round_trip(bytes in prop::collection::vec(0u8..4, 0..5000)) {
            let encoded = Lz4.encode(&bytes).unwrap();
            prop_assert_eq!(&*Lz4.decode(&encoded, bytes.len()).unwrap(), &bytes[..]);
        }

        #[test]
        fn any_block_is_no_panic(block in prop::collection::vec(any::<u8>(), 0..300), length in 0u32..1000) {
            let encoded = [&length.to_le_bytes()[..], &block].concat();
            if let Ok(decoded) = Lz4.decode(&encoded, 1000) {
                prop_assert_eq!(decoded.len(), length as usize);
            }
        }
    }
}
