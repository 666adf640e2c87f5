//! The compression `lz4` of N5, in the forms of its two implementations. Of the family N5.
//!
//! Format: lz4-java's LZ4BlockOutputStream, which N5 in Java writes: for each part "LZ4Block", a token (16 for stored bytes, 32 for LZ4, plus
//! a level), the encoded and the decoded size and a checksum (u32, little-endian: xxHash32 with the seed 0x9747b28c, without its four
//! highest bits), then the bytes; a part without bytes is the end. z5 writes one LZ4 block and nothing else. An LZ4 block cannot begin with
//! "LZ4Block", since that refers to bytes before its own start, so the first bytes tell the two apart. Uses nothing else.
//!
//! ```json
//! {"name": "n5_lz4", "configuration": {"blockSize": 65536}}
//! ```
//!
//! `blockSize` is the length of a part, 64 or more. z5 has its level there, so a smaller number stands for its form.

use std::borrow::Cow;
use std::hash::Hasher;

use twox_hash::XxHash32;

use crate::codec::config::Configuration;
use crate::codec::error::check_length;
use crate::codec::{BytesToBytes, Codec, CodecEntry, CodecError, CodecResult, Context, EncodedSize, scratch};

/// The codec in the table of N5.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["n5_lz4"], v2: &[], build };

const MAGIC: &[u8; 8] = b"LZ4Block";
const STORED: u8 = 0x10;
const COMPRESSED: u8 = 0x20;
const CHECKSUM_SEED: u32 = 0x9747_b28c;
/// The bits of a checksum that are stored.
const CHECKSUM_MASK: u32 = 0x0fff_ffff;
/// The part lengths of lz4-java.
const PART_BYTES: std::ops::RangeInclusive<usize> = 64..=1 << 25;
const DEFAULT_PART_BYTES: usize = 65536;

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    context.bytes()?;
    let mut configuration = Configuration::new(context);
    let part_bytes = configuration.integer("blockSize", i32::MIN.into()..=i32::MAX.into())?;
    configuration.finish()?;
    let part_bytes = match part_bytes {
        None => Some(DEFAULT_PART_BYTES),
        Some(number) => usize::try_from(number).ok().filter(|number| number >= PART_BYTES.start()),
    };
    Ok(Codec::BytesToBytes(Box::new(N5Lz4 { part_bytes })))
}

struct N5Lz4 {
    /// The length of a part; `None` to write as z5 does. Only for encoding.
    part_bytes: Option<usize>,
}

/// A part of lz4-java's form.
struct Part<'a> {
    is_compressed: bool,
    decoded_bytes: usize,
    checksum: u32,
    bytes: &'a [u8],
}

impl<'a> Part<'a> {
    /// Splits a part off the front.
    fn take(rest: &mut &'a [u8]) -> CodecResult<Self> {
        let truncated = || CodecError::new("the compressed data ends too early");
        let after = rest.strip_prefix(MAGIC).ok_or_else(|| {
            if rest.len() < MAGIC.len() {
                truncated()
            } else {
                CodecError::new("a part of the compressed data does not begin with LZ4Block")
            }
        })?;
        let (&[token], mut after) = after.split_first_chunk::<1>().ok_or_else(truncated)?;
        let mut number = || {
            let (number, rest) = after.split_first_chunk::<4>().ok_or_else(truncated)?;
            after = rest;
            Ok::<_, CodecError>(u32::from_le_bytes(*number))
        };
        let (encoded_bytes, decoded_bytes, checksum) = (number()?, number()?, number()?);
        let is_compressed = match token & 0xf0 {
            STORED if encoded_bytes == decoded_bytes => false,
            COMPRESSED => true,
            _ => {
                return Err(CodecError::new(format_args!(
                    "a part of the compressed data with token {token}"
                )));
            }
        };
        let (bytes, after) = after.split_at_checked(encoded_bytes as usize).ok_or_else(truncated)?;
        *rest = after;
        Ok(Part { is_compressed, decoded_bytes: decoded_bytes as usize, checksum, bytes })
    }

    fn decode_into(&self, out: &mut [u8]) -> CodecResult<()> {
        if self.is_compressed {
            let decoded = lz4_flex::block::decompress_into(self.bytes, out).map_err(CodecError::new)?;
            check_length(decoded, out.len())?;
        } else {
            out.copy_from_slice(self.bytes);
        }
        if checksum(out) == self.checksum {
            Ok(())
        } else {
            Err(CodecError::new("the checksum of the compressed data does not match"))
        }
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = XxHash32::with_seed(CHECKSUM_SEED);
    hasher.write(bytes);
    hasher.finish() as u32 & CHECKSUM_MASK
}

/// Appends a part. `level` is that of its token.
fn push_part(encoded: &mut Vec<u8>, level: u8, decoded: &[u8]) {
    let compressed = lz4_flex::block::compress(decoded);
    let (kind, bytes) = if compressed.len() < decoded.len() {
        (COMPRESSED, compressed.as_slice())
    } else {
        (STORED, decoded)
    };
    let sum = if decoded.is_empty() { 0 } else { checksum(decoded) };
    encoded.extend(MAGIC);
    encoded.push(kind | level);
    // A part has at most 2^25 bytes.
    for number in [bytes.len() as u32, decoded.len() as u32, sum] {
        encoded.extend(number.to_le_bytes());
    }
    encoded.extend_from_slice(bytes);
}

impl BytesToBytes for N5Lz4 {
    fn is_lossless(&self) -> bool {
        true
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        decoded.compressed()
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        if !encoded.starts_with(MAGIC) {
            let mut out = scratch::zeroed(limit_bytes)?;
            let decoded = lz4_flex::block::decompress_into(encoded, &mut out).map_err(CodecError::new)?;
            out.truncate(decoded);
            return Ok(Cow::Owned(out));
        }
        let (mut rest, mut length) = (encoded, 0usize);
        loop {
            match Part::take(&mut rest)?.decoded_bytes {
                0 => return scratch::decoded(length, limit_bytes, |out| self.decode_into(encoded, out)),
                bytes => length = length.saturating_add(bytes),
            }
        }
    }

    fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        if !encoded.starts_with(MAGIC) {
            let decoded = lz4_flex::block::decompress_into(encoded, out).map_err(CodecError::new)?;
            return check_length(decoded, out.len());
        }
        let (expected, mut rest, mut unfilled) = (out.len(), encoded, out);
        loop {
            let part = Part::take(&mut rest)?;
            if part.decoded_bytes == 0 {
                return check_length(expected - unfilled.len(), expected);
            }
            let (own, after) = unfilled.split_at_mut_checked(part.decoded_bytes).ok_or_else(|| {
                CodecError::new(format_args!("more than {expected} bytes, which were expected"))
            })?;
            part.decode_into(own)?;
            unfilled = after;
        }
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        let Some(part_bytes) = self.part_bytes else { return Ok(lz4_flex::block::compress(decoded)) };
        let part_bytes = part_bytes.min(*PART_BYTES.end());
        // lz4-java's level: how many doublings of 1 KiB a part takes.
        let level = part_bytes.next_power_of_two().ilog2().saturating_sub(10) as u8;
        let mut encoded = Vec::new();
        for part in decoded.chunks(part_bytes) {
            push_part(&mut encoded, level, part);
        }
        push_part(&mut encoded, level, &[]);
        Ok(encoded)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    /// lz4-java 1.8.0: `LZ4BlockOutputStream` with parts of 128 bytes, of [`input`].
    const JAVA: &str = "4c5a34426c6f636b200f00000080000000b07578045f00010203040500635003040001024c5a34426c6f636b207400000080000000\
        50d6e5015d03040001020500f05b0ac6823df9b5712de8a4601cd8934f0bc7833efab6722ee9a5611dd994500cc8843ffbb7732feaa6621eda95510dc9\
        8540fcb87430eba7631fdb96520eca8642fdb97531eda86420dc98530fcb8743feba7632eea96521dd995410cc8844ffbb7733efaa6622de9a55114c5a\
        34426c6f636b102c0000002c000000ed24a40ccd894500bc7834f0ab6723df9b5612ce8a4601bd7935f1ac6824e09c5813cf8b4703be7a36f2ae6925e1\
        9d594c5a34426c6f636b10000000000000000000000000";

    fn input() -> Vec<u8> {
        let byte = |i: u64| {
            if i < 150 { (i % 5) as u8 } else { ((i * 2_654_435_761) as u32 as i32 as i64 >> 13) as u8 }
        };
        (0..300).map(byte).collect()
    }

    fn java() -> Vec<u8> {
        (0..JAVA.len() / 2).map(|at| u8::from_str_radix(&JAVA[2 * at..2 * at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn what_lz4_java_writes() {
        let codec = N5Lz4 { part_bytes: Some(128) };
        assert_eq!(&*codec.decode(&java(), 1000).unwrap(), input());
        let mut out = vec![0; 300];
        codec.decode_into(&java(), &mut out).unwrap();
        assert_eq!(out, input());
        let own = codec.encode(&input()).unwrap();
        assert_eq!(own[..9], java()[..9]);
        assert_eq!(&*codec.decode(&own, 300).unwrap(), input());
    }

    #[test]
    fn damage_is_an_error() {
        let codec = N5Lz4 { part_bytes: None };
        let decode = |bytes: &[u8]| codec.decode_into(bytes, &mut [0; 300]).unwrap_err().to_string();
        let changed = |at: usize, byte: u8| {
            let mut bytes = java();
            bytes[at] = byte;
            bytes
        };
        assert!(decode(&changed(17, 0)).contains("checksum"));
        assert!(decode(&changed(8, 0x30)).contains("token 48"));
        assert!(decode(&changed(16, 0xff)).contains("more than 300 bytes"));
        assert!(decode(&changed(12, 0xff)).contains("too early"));
        assert!(decode(&java()[..java().len() - 21]).contains("too early"));
        assert!(codec.decode(&java(), 299).is_err());
        assert!(codec.decode_into(&java(), &mut [0; 301]).is_err());
    }

    proptest! {
        #[test]
        fn both_forms_come_back(decoded in prop::collection::vec(0u8..4, 0..2000), part in prop::option::of(64usize..300)) {
            let codec = N5Lz4 { part_bytes: part };
            let encoded = codec.encode(&decoded).unwrap();
            let mut out = vec![0; decoded.len()];
            codec.decode_into(&encoded, &mut out).unwrap();
            prop_assert_eq!(&out, &decoded);
            prop_assert_eq!(&*codec.decode(&encoded, decoded.len()).unwrap(), &decoded);
        }
    }
}
