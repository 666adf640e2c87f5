//! 32-bit checksums next to the bytes they guard: crc32, adler32, fletcher32, jenkins_lookup3.
//!
//! Not in the Zarr specifications; the format is numcodecs' (`checksum32`): the number as 4 bytes, little-endian,
//! before or after the bytes. A mismatch is an error. Uses `config`.

pub mod adler32;
pub mod crc32;
pub mod crc32c;
pub mod fletcher32;
pub mod jenkins_lookup3;

use std::borrow::Cow;

use crate::codec::config::Configuration;
use crate::codec::error::check_limit;
use crate::codec::{BytesToBytes, CodecError, CodecResult, EncodedSize};

/// The position of the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumLocation {
    /// Before the bytes.
    Start,
    /// After the bytes.
    End,
}

impl ChecksumLocation {
    /// Reads the member `location` of a configuration.
    pub fn read(configuration: &mut Configuration<'_>) -> CodecResult<Option<ChecksumLocation>> {
        configuration
            .choice("location", &[("start", ChecksumLocation::Start), ("end", ChecksumLocation::End)])
    }
}

/// Bytes with their checksum, which the function `compute` computes.
pub struct Checksum<F> {
    /// The algorithm's name, for error texts.
    pub name: &'static str,
    /// The position of the checksum.
    pub location: ChecksumLocation,
    /// The checksum of some bytes.
    pub compute: F,
}

impl<F: Fn(&[u8]) -> u32 + Send + Sync> BytesToBytes for Checksum<F> {
    fn is_lossless(&self) -> bool {
        true
    }

    fn has_checksum(&self) -> bool {
        true
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        decoded.map(|bytes| bytes.saturating_add(4))
    }

    fn borrows(&self) -> bool {
        true
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        let too_short = || CodecError::new(format!("{} bytes are too few for a checksum", encoded.len()));
        let (stored, bytes) = match self.location {
            ChecksumLocation::Start => encoded.split_first_chunk::<4>().ok_or_else(too_short)?,
            ChecksumLocation::End => encoded
                .split_last_chunk::<4>()
                .map(|(bytes, stored)| (stored, bytes))
                .ok_or_else(too_short)?,
        };
        check_limit(bytes.len(), limit_bytes)?;
        let (stored, computed) = (u32::from_le_bytes(*stored), (self.compute)(bytes));
        if stored != computed {
            let name = self.name;
            return Err(CodecError::new(format!(
                "{name} checksum mismatch: stored {stored:#010x}, computed {computed:#010x}"
            )));
        }
        Ok(Cow::Borrowed(bytes))
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        let checksum = (self.compute)(decoded).to_le_bytes();
        Ok(match self.location {
            ChecksumLocation::Start => [&checksum, decoded].concat(),
            ChecksumLocation::End => [decoded, &checksum].concat(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn sum(location: ChecksumLocation) -> Checksum<impl Fn(&[u8]) -> u32> {
        Checksum { name: "sum", location, compute: |bytes: &[u8]| bytes.iter().map(|&b| u32::from(b)).sum() }
    }

    #[test]
    fn before_or_after_the_bytes() {
        assert_eq!(sum(ChecksumLocation::Start).encode(&[1, 2]).unwrap(), [3, 0, 0, 0, 1, 2]);
        assert_eq!(sum(ChecksumLocation::End).encode(&[1, 2]).unwrap(), [1, 2, 3, 0, 0, 0]);
        for location in [ChecksumLocation::Start, ChecksumLocation::End] {
            let codec = sum(location);
            let mut encoded = codec.encode(&[5, 6, 7]).unwrap();
            assert_eq!(&*codec.decode(&encoded, 3).unwrap(), [5, 6, 7]);
            assert!(codec.decode(&encoded, 2).is_err());
            assert_eq!(&*codec.decode(&codec.encode(&[]).unwrap(), 0).unwrap(), [0u8; 0]);
            encoded[5] ^= 1;
            assert!(codec.decode(&encoded, 3).unwrap_err().reason.contains("sum checksum mismatch"));
            assert!(codec.decode(&[0, 0, 0], 3).is_err());
        }
    }
}
