//! The `crc32c` codec: four bytes of checksum after the data.
//!
//! Spec: v3 "CRC32C checksum codec" (RFC 3720, little-endian); numcodecs "crc32c", which has a member `location`.
//! Uses `checksum`.
//!
//! ```json
//! {"name": "crc32c"}
//! ```

use super::{Checksum, ChecksumLocation};
use crate::codec::config::Configuration;
use crate::codec::{Codec, CodecEntry, CodecResult, Context};

/// `crc32c` and its numcodecs spelling.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["crc32c", "numcodecs.crc32c"], v2: &["crc32c"], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    context.bytes()?;
    let mut configuration = Configuration::new(context);
    let location = ChecksumLocation::read(&mut configuration)?.unwrap_or(ChecksumLocation::End);
    configuration.finish()?;
    Ok(Codec::BytesToBytes(Box::new(Checksum { name: "crc32c", location, compute: crc32c::crc32c })))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::codec::BytesToBytes;

    const CODEC: Checksum<fn(&[u8]) -> u32> =
        Checksum { name: "crc32c", location: ChecksumLocation::End, compute: crc32c::crc32c };

    #[test]
    fn the_check_value_of_rfc_3720() {
        let encoded = CODEC.encode(&[0; 32]).unwrap();
        assert_eq!(encoded[32..], [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(&*CODEC.decode(&encoded, 32).unwrap(), &[0; 32]);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let encoded = CODEC.encode(b"123456789").unwrap();
        for bit in 0..encoded.len() * 8 {
            let mut bad = encoded.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(CODEC.decode(&bad, 9).is_err());
        }
    }
}
