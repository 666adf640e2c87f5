//! DEFLATE in its two wrappers, for the `gzip` and `zlib` codecs.
//!
//! Spec: RFC 1951, 1950 (zlib), 1952 (gzip). libdeflate decodes one stream of known size. The rest is
//! flate2's: several members one after the other (legal), zero bytes after the last (Python's gzip module
//! accepts them), sizes that are only bounded.

pub mod codec;
pub mod resume;

use std::cell::RefCell;
use std::io::Read;

use flate2::bufread::{GzDecoder, ZlibDecoder};
use libdeflater::{CompressionLvl, Compressor, Decompressor};

use crate::codec::{CodecError, CodecResult};

/// The wrapper around the DEFLATE stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrapper {
    /// RFC 1952.
    Gzip,
    /// RFC 1950.
    Zlib,
}

thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(Decompressor::new());
}

/// One member or stream. At its end it returns the bytes after it.
enum DeflateMember<'a> {
    Gzip(GzDecoder<&'a [u8]>),
    Zlib(ZlibDecoder<&'a [u8]>),
}

impl<'a> DeflateMember<'a> {
    fn new(wrapper: Wrapper, encoded: &'a [u8]) -> Self {
        match wrapper {
            Wrapper::Gzip => DeflateMember::Gzip(GzDecoder::new(encoded)),
            Wrapper::Zlib => DeflateMember::Zlib(ZlibDecoder::new(encoded)),
        }
    }

    fn rest(self) -> &'a [u8] {
        match self {
            DeflateMember::Gzip(member) => member.into_inner(),
            DeflateMember::Zlib(member) => member.into_inner(),
        }
    }
}

impl Read for DeflateMember<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        match self {
            DeflateMember::Gzip(member) => member.read(out),
            DeflateMember::Zlib(member) => member.read(out),
        }
    }
}

impl Wrapper {
    /// Decodes exactly `out.len()` bytes.
    pub fn decode_into(self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let decoded = DECOMPRESSOR.with_borrow_mut(|decompressor| match self {
            Wrapper::Gzip => decompressor.gzip_decompress(encoded, out),
            Wrapper::Zlib => decompressor.zlib_decompress(encoded, out),
        });
        match decoded {
            Ok(decoded) if decoded == out.len() && self.is_complete_member(encoded, decoded) => Ok(()),
            Err(libdeflater::DecompressionError::InsufficientSpace) => Err(too_long(out.len())),
            // A short member, something after the first one, or bad data: flate2 finds out which.
            _ => self.decode_members(encoded, out),
        }
    }

    /// Returns whether a first stream that gave `decoded` bytes seems to be the whole of `encoded`. A gzip member ends
    /// with its length. Programs do not concatenate zlib streams; bytes after one are ignored, as in Python.
    fn is_complete_member(self, encoded: &[u8], decoded: usize) -> bool {
        match self {
            Wrapper::Gzip => encoded.last_chunk() == Some(&(decoded as u32).to_le_bytes()),
            Wrapper::Zlib => true,
        }
    }

    /// Decodes member by member, as [`Wrapper::decode_into`] requires.
    fn decode_members(self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let expected = out.len();
        let mut unfilled = out;
        let mut rest = encoded;
        loop {
            let mut member = DeflateMember::new(self, rest);
            loop {
                // With no room left, one more byte shows whether the member ends here.
                let mut one = [0];
                let room = if unfilled.is_empty() { &mut one[..] } else { &mut *unfilled };
                match member.read(room).map_err(CodecError::new)? {
                    0 => break,
                    _ if unfilled.is_empty() => return Err(too_long(expected)),
                    count => unfilled = std::mem::take(&mut unfilled).split_at_mut(count).1,
                }
            }
            rest = self.next_member(member.rest(), unfilled.is_empty());
            if rest.is_empty() {
                break;
            }
        }
        match unfilled.len() {
            0 => Ok(()),
            missing => Err(CodecError::new(format_args!(
                "{} bytes decoded where {expected} were expected",
                expected - missing
            ))),
        }
    }

    /// Decodes at most `limit_bytes`.
    pub fn decode(self, encoded: &[u8], limit_bytes: usize) -> CodecResult<Vec<u8>> {
        let mut decoded = Vec::new();
        let mut rest = encoded;
        loop {
            let mut member = DeflateMember::new(self, rest);
            let room = (limit_bytes - decoded.len()) as u64 + 1;
            member.by_ref().take(room).read_to_end(&mut decoded).map_err(CodecError::new)?;
            if decoded.len() > limit_bytes {
                return Err(too_long(limit_bytes));
            }
            rest = self.next_member(member.rest(), false);
            if rest.is_empty() {
                return Ok(decoded);
            }
        }
    }

    /// Returns the bytes to decode next, from those left after a member. Zeros alone are padding. Once a zlib stream
    /// has completed the data, only another stream counts.
    fn next_member(self, rest: &[u8], is_complete: bool) -> &[u8] {
        let zeros = rest.iter().take_while(|&&byte| byte == 0).count();
        let rest = rest.get(zeros..).unwrap_or_default();
        let begins_stream = |rest: &[u8]| match rest {
            [method, flags, ..] => method & 15 == 8 && u16::from_be_bytes([*method, *flags]) % 31 == 0,
            _ => false,
        };
        if self == Wrapper::Zlib && (is_complete || !begins_stream(rest)) { &[] } else { rest }
    }

    /// Returns the length of the longest member for `decoded_bytes`, at any level.
    pub fn encoded_bound(self, decoded_bytes: usize) -> usize {
        // The smallest compressor: the bound is the same for all levels.
        let mut compressor = CompressionLvl::new(0).map(Compressor::new);
        match (self, &mut compressor) {
            (Wrapper::Gzip, Ok(compressor)) => compressor.gzip_compress_bound(decoded_bytes),
            (Wrapper::Zlib, Ok(compressor)) => compressor.zlib_compress_bound(decoded_bytes),
            (_, Err(_)) => 0,
        }
    }

    /// Encodes one member at `level` (0 to 9); returns the length.
    pub fn encode_into(self, decoded: &[u8], level: i32, out: &mut [u8]) -> CodecResult<usize> {
        let level = CompressionLvl::new(level).map_err(|_| CodecError::new("bad compression level"))?;
        let mut compressor = Compressor::new(level);
        let length = match self {
            Wrapper::Gzip => compressor.gzip_compress(decoded, out),
            Wrapper::Zlib => compressor.zlib_compress(decoded, out),
        };
        length.map_err(|_| CodecError::new("the compressor failed"))
    }
}

fn too_long(limit_bytes: usize) -> CodecError {
    CodecError::new(format_args!("more than the {limit_bytes} bytes that were expected"))
}

#[cfg(test)]
impl Wrapper {
    /// Encodes as [`Wrapper::encode_into`] does, into memory that it allocates.
    pub fn encode(self, decoded: &[u8], level: i32) -> CodecResult<Vec<u8>> {
        crate::codec::scratch::encoded(self.encoded_bound(decoded.len()), |out| {
            self.encode_into(decoded, level, out)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    const BOTH: [Wrapper; 2] = [Wrapper::Gzip, Wrapper::Zlib];

    proptest! {
        #[test]
        fn round_trips(data in prop::collection::vec(0u8..4, 0..3000), level in 0i32..10) {
            for wrapper in BOTH {
                let encoded = wrapper.encode(&data, level).unwrap();
                let mut out = vec![9; data.len()];
                wrapper.decode_into(&encoded, &mut out).unwrap();
                prop_assert_eq!(&out, &data);
                prop_assert_eq!(&wrapper.decode(&encoded, data.len()).unwrap(), &data);
                prop_assert!(wrapper.decode(&encoded, data.len().saturating_sub(1)).is_err() || data.is_empty());
                prop_assert!(wrapper.decode_into(&encoded, &mut vec![0; data.len() + 1]).is_err());
                if !data.is_empty() {
                    prop_assert!(wrapper.decode_into(&encoded, &mut vec![0; data.len() - 1]).is_err());
                    prop_assert!(wrapper.decode_into(&encoded[..encoded.len() - 1], &mut out).is_err());
                }
            }
        }
    }

    #[test]
    fn members_are_joined_and_zero_padding_is_ignored() {
        for wrapper in BOTH {
            let mut encoded = wrapper.encode(b"hello ", 5).unwrap();
            encoded.extend(wrapper.encode(b"world", 0).unwrap());
            for padding in [0, 100] {
                encoded.resize(encoded.len() + padding, 0);
                let mut out = [0; 11];
                wrapper.decode_into(&encoded, &mut out).unwrap();
                assert_eq!(&out, b"hello world");
                assert_eq!(wrapper.decode(&encoded, 11).unwrap(), b"hello world");
                assert!(wrapper.decode_into(&encoded, &mut [0; 10]).is_err());
                assert!(wrapper.decode_into(&encoded, &mut [0; 12]).is_err());
            }
        }
        let mut encoded = Wrapper::Gzip.encode(b"hello", 5).unwrap();
        encoded.extend_from_slice(b"garbage");
        assert!(Wrapper::Gzip.decode_into(&encoded, &mut [0; 5]).is_err());
        let mut two = Wrapper::Gzip.encode(b"hello", 5).unwrap();
        two.extend(Wrapper::Gzip.encode(b"world", 5).unwrap());
        two.extend([0; 3]);
        assert!(Wrapper::Gzip.decode_into(&two, &mut [0; 5]).is_err());
    }

    #[test]
    fn a_bomb_is_an_error_at_once() {
        for wrapper in BOTH {
            let bomb = wrapper.encode(&vec![0; 64 << 20], 9).unwrap();
            assert!(wrapper.decode_into(&bomb, &mut [0; 1000]).is_err());
            assert!(wrapper.decode(&bomb, 1000).is_err());
        }
    }
}
