//! `numcodecs.fletcher32`: HDF5's Fletcher-32 after the bytes. v2 id: `fletcher32`.
//!
//! Format: numcodecs `Fletcher32`, which is HDF5's `H5_checksum_fletcher32` over big-endian 16-bit words (a last
//! odd byte counts as the upper half of a word). Uses `checksum`.
//!
//! ```json
//! {"name": "numcodecs.fletcher32", "configuration": {}}
//! ```

use super::{Checksum, ChecksumLocation};
use crate::codec::config::Configuration;
use crate::codec::{Codec, CodecEntry, CodecResult, Context};

/// The codec's names and constructor.
pub const ENTRY: CodecEntry = CodecEntry {
    v3: &["numcodecs.fletcher32", "fletcher32", "https://codec.zarrs.dev/bytes_to_bytes/fletcher32"],
    v2: &["fletcher32"],
    build,
};

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    Configuration::new(context).finish()?;
    let codec = Checksum { name: "fletcher32", location: ChecksumLocation::End, compute: fletcher32 };
    Ok(Codec::BytesToBytes(Box::new(codec)))
}

/// The most words that can be summed before the sums must be reduced to stay within 32 bits.
const WORDS_PER_REDUCTION: usize = 360;

/// Computes HDF5's Fletcher-32. The sums are reduced by end-around carry, so 0 and 65535 stay apart as in HDF5.
pub fn fletcher32(bytes: &[u8]) -> u32 {
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let (mut first, mut second) = (0u32, 0u32);
    for block in bytes.chunks(2 * WORDS_PER_REDUCTION) {
        let words = block.chunks_exact(2);
        let odd = words.remainder();
        for word in words {
            if let &[high, low] = word {
                first += u32::from(u16::from_be_bytes([high, low]));
                second += first;
            }
        }
        (first, second) = (fold(first), fold(second));
        // Only the last block can have an odd byte: HDF5 adds it after a reduction and reduces again.
        if let &[last] = odd {
            first += u32::from(last) << 8;
            second += first;
            (first, second) = (fold(first), fold(second));
        }
    }
    (fold(second) << 16) | fold(first)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    /// Values that numcodecs gives.
    #[test]
    fn numcodecs_values() {
        assert_eq!(fletcher32(b"abc").to_le_bytes(), *b"b\xc4\xc5%");
        let mut bytes: Vec<u8> = (0..10).flat_map(|_| 0..200u8).collect();
        bytes.push(b'a');
        assert_eq!(fletcher32(&bytes).to_le_bytes(), *b"$\xa1\xb8\xbc");
        assert_eq!(fletcher32(&[]), 0);
        assert_eq!(fletcher32(&[0xff; 4]), 0xffff_ffff);
        // Long enough for the sums to overflow, if they were never reduced.
        assert_eq!(fletcher32(&[0xff; 100_000]), 0xffff_ffff);
        let long: Vec<u8> =
            (0..100_000u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8 | 0xe0).collect();
        assert_eq!(fletcher32(&long), 0x991c_28da);
        assert_eq!(fletcher32(&[0; 4]), 0);
    }
}
