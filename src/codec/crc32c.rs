//! The `crc32c` codec: four bytes of checksum behind the data.
//!
//! Spec: v3 "CRC32C checksum codec" (RFC 3720, little-endian); numcodecs "crc32c", which has a member `location`.
//!
//! ```json
//! {"name": "crc32c"}
//! ```

use std::borrow::Cow;

use super::configuration::Configuration;
use super::{BytesToBytes, Codec, CodecError, CodecResult, Context, EncodedSize, Entry};

/// `crc32c` and its numcodecs spelling.
pub const ENTRY: Entry = Entry { v3: &["crc32c", "numcodecs.crc32c"], v2: &["crc32c"], build };

/// Bytes of the checksum.
const CHECKSUM_BYTES: usize = 4;

struct Crc32c {
    is_prefix: bool,
}

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    context.bytes()?;
    let mut configuration = Configuration::of(context);
    let is_prefix = configuration.choice("location", &[("start", true), ("end", false)])?.unwrap_or(false);
    configuration.finish()?;
    Ok(Codec::BytesToBytes(Box::new(Crc32c { is_prefix })))
}

impl Crc32c {
    /// The data and the checksum of an encoding.
    fn split<'a>(&self, encoded: &'a [u8]) -> Option<(&'a [u8], u32)> {
        let (data, checksum) = match self.is_prefix {
            true => encoded.split_first_chunk::<CHECKSUM_BYTES>().map(|(checksum, data)| (data, checksum)),
            false => encoded.split_last_chunk::<CHECKSUM_BYTES>(),
        }?;
        Some((data, u32::from_le_bytes(*checksum)))
    }
}

impl BytesToBytes for Crc32c {
    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        match decoded {
            EncodedSize::Exact(bytes) => EncodedSize::Exact(bytes.saturating_add(CHECKSUM_BYTES as u64)),
            EncodedSize::AtMost(bytes) => EncodedSize::AtMost(bytes.saturating_add(CHECKSUM_BYTES as u64)),
        }
    }

    fn borrows(&self) -> bool {
        true
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        let Some((data, stored)) = self.split(encoded) else {
            return Err(CodecError::new(format_args!("{} bytes, too few for a checksum", encoded.len())));
        };
        if data.len() > limit_bytes {
            return Err(CodecError::new(format_args!(
                "{} bytes where at most {limit_bytes} fit",
                data.len()
            )));
        }
        let computed = crc32c::crc32c(data);
        match stored == computed {
            true => Ok(Cow::Borrowed(data)),
            false => Err(CodecError::new(format_args!(
                "the stored checksum is {stored:08x}, that of the data {computed:08x}"
            ))),
        }
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        let checksum = crc32c::crc32c(decoded).to_le_bytes();
        Ok(match self.is_prefix {
            true => [&checksum, decoded].concat(),
            false => [decoded, &checksum].concat(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn the_check_value_of_rfc_3720() {
        let codec = Crc32c { is_prefix: false };
        let encoded = codec.encode(&[0; 32]).unwrap();
        assert_eq!(encoded[32..], [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(&*codec.decode(&encoded, 32).unwrap(), &[0; 32]);
        assert!(codec.decode(&encoded, 31).is_err());
        let prefix = Crc32c { is_prefix: true };
        let encoded = prefix.encode(b"abc").unwrap();
        assert_eq!(&*prefix.decode(&encoded, 3).unwrap(), b"abc");
        assert!(codec.decode(&encoded, 3).is_err());
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let codec = Crc32c { is_prefix: false };
        let encoded = codec.encode(b"123456789").unwrap();
        for bit in 0..encoded.len() * 8 {
            let mut bad = encoded.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(codec.decode(&bad, 9).is_err());
        }
        for length in 0..encoded.len() {
            assert!(codec.decode(&encoded[..length], 9).is_err());
        }
    }
}
