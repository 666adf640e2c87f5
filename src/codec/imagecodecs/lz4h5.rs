//! `imagecodecs_lz4h5`: LZ4 as the HDF5 filter 32004 stores it.
//!
//! Format: the decoded size (u64), the size of a decoded block (u32), then for each block its encoded size (u32) and its LZ4 block; all
//! numbers are big-endian. A block that is as long as its decoded bytes is stored as it is. Uses nothing else.
//!
//! ```json
//! {"name": "imagecodecs_lz4h5", "configuration": {"blocksize": 1048576}}
//! ```

use std::borrow::Cow;

use crate::codec::config::Configuration;
use crate::codec::error::check_length;
use crate::codec::{BytesToBytes, Codec, CodecEntry, CodecError, CodecResult, Context, EncodedSize, scratch};

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["imagecodecs_lz4h5"], v2: &["imagecodecs_lz4h5"], build };

/// The most bytes that an LZ4 block takes (LZ4_MAX_INPUT_SIZE).
const MAX_BLOCK_BYTES: usize = 0x7E00_0000;
/// The length of a block that is written, if the configuration does not say it.
const DEFAULT_BLOCK_BYTES: usize = 1 << 30;

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    context.bytes()?;
    let mut configuration = Configuration::new(context);
    configuration.integer("level", i64::MIN..=i64::MAX)?;
    let block_bytes = configuration.integer("blocksize", 1..=MAX_BLOCK_BYTES as i64)?;
    configuration.finish()?;
    let block_bytes =
        block_bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(DEFAULT_BLOCK_BYTES);
    Ok(Codec::BytesToBytes(Box::new(Lz4H5 { block_bytes })))
}

struct Lz4H5 {
    block_bytes: usize,
}

/// Splits a number of `N` bytes off the front.
fn take<const N: usize>(bytes: &mut &[u8]) -> CodecResult<usize> {
    let truncated = || CodecError::new("the compressed data ends too early");
    let (number, rest) = bytes.split_first_chunk::<N>().ok_or_else(truncated)?;
    *bytes = rest;
    let number = number.iter().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
    usize::try_from(number).map_err(|_| truncated())
}

impl BytesToBytes for Lz4H5 {
    fn is_lossless(&self) -> bool {
        true
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        decoded.compressed()
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        scratch::decoded(take::<8>(&mut { encoded })?, limit_bytes, |out| self.decode_into(encoded, out))
    }

    fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let mut rest = encoded;
        check_length(take::<8>(&mut rest)?, out.len())?;
        let block_bytes = take::<4>(&mut rest)?;
        if block_bytes == 0 || block_bytes > MAX_BLOCK_BYTES {
            return Err(CodecError::new(format_args!("blocks of {block_bytes} bytes")));
        }
        for block in out.chunks_mut(block_bytes) {
            let length = take::<4>(&mut rest)?;
            let truncated = || CodecError::new("the compressed data ends too early");
            let (encoded, after) = rest.split_at_checked(length).ok_or_else(truncated)?;
            rest = after;
            if encoded.len() == block.len() {
                block.copy_from_slice(encoded);
                continue;
            }
            let decoded = lz4_flex::block::decompress_into(encoded, block).map_err(CodecError::new)?;
            check_length(decoded, block.len())?;
        }
        Ok(())
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        let block_bytes = self.block_bytes.min(decoded.len()).max(1);
        let mut encoded = (decoded.len() as u64).to_be_bytes().to_vec();
        // At most MAX_BLOCK_BYTES.
        encoded.extend((block_bytes as u32).to_be_bytes());
        for block in decoded.chunks(block_bytes) {
            let compressed = lz4_flex::block::compress(block);
            let stored = if compressed.len() < block.len() { &compressed } else { block };
            encoded.extend((stored.len() as u32).to_be_bytes());
            encoded.extend_from_slice(stored);
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
    fn headers_are_checked() {
        let codec = Lz4H5 { block_bytes: 10 };
        let encoded = codec.encode(&[7; 25]).unwrap();
        assert_eq!(encoded[..12], [0, 0, 0, 0, 0, 0, 0, 25, 0, 0, 0, 10]);
        assert_eq!(&*codec.decode(&encoded, 25).unwrap(), [7; 25]);
        assert!(codec.decode(&encoded, 24).is_err() && codec.decode(&encoded[..11], 25).is_err());
        for (at, byte) in [(0, 1), (7, 26), (11, 0), (8, 0xff), (15, 40)] {
            let mut wrong = encoded.clone();
            wrong[at] = byte;
            assert!(codec.decode(&wrong, 25).is_err(), "{at}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(bytes in prop::collection::vec(0u8..3, 0..300), block_bytes in 1usize..400) {
            let codec = Lz4H5 { block_bytes };
            let encoded = codec.encode(&bytes).unwrap();
            prop_assert_eq!(&*codec.decode(&encoded, bytes.len()).unwrap(), &bytes[..]);
        }

        #[test]
        fn any_bytes_are_no_panic(bytes: Vec<u8>, limit in 0usize..500) {
            let _ = Lz4H5 { block_bytes: 9 }.decode(&bytes, limit);
        }
    }
}
