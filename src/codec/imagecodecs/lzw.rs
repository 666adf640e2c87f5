//! `imagecodecs_lzw`: LZW as TIFF has it.
//!
//! Spec: TIFF 6.0, section 13. Uses the crate weezl.
//!
//! ```json
//! {"name": "imagecodecs_lzw"}
//! ```
//!
//! Codes have their most significant bit first, and become longer one code early. In files from before 1990, the least significant
//! bit comes first and codes become longer late; such a stream begins with a byte 0 and an odd byte. A stream may lack its end
//! code. Bytes after the end code are ignored.

use std::borrow::Cow;

use weezl::{BitOrder, LzwStatus, decode::Decoder, encode::Encoder};

use crate::codec::config::Configuration;
use crate::codec::{BytesToBytes, Codec, CodecEntry, CodecError, CodecResult, Context, EncodedSize};

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["imagecodecs_lzw"], v2: &["imagecodecs_lzw"], build };

/// Bits of a symbol.
const SYMBOL_BITS: u8 = 8;
/// The first step of output whose length is not known.
const FIRST_STEP_BYTES: usize = 64 << 10;

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    context.bytes()?;
    Configuration::new(context).finish()?;
    Ok(Codec::BytesToBytes(Box::new(Lzw)))
}

struct Lzw;

/// A stream that is being decoded.
struct Stream<'a> {
    decoder: Decoder,
    input: &'a [u8],
}

impl<'a> Stream<'a> {
    fn new(input: &'a [u8]) -> Self {
        let is_old = matches!(input, [0, second, ..] if second & 1 == 1);
        let decoder = if is_old {
            Decoder::new(BitOrder::Lsb, SYMBOL_BITS)
        } else {
            Decoder::with_tiff_size_switch(BitOrder::Msb, SYMBOL_BITS)
        };
        Stream { decoder, input }
    }

    /// Fills `out`; fewer bytes only at the end of the stream.
    fn fill(&mut self, out: &mut [u8]) -> CodecResult<usize> {
        let mut filled = 0;
        while filled < out.len() {
            let step = self.decoder.decode_bytes(self.input, out.get_mut(filled..).unwrap_or_default());
            self.input = self.input.get(step.consumed_in..).unwrap_or_default();
            filled += step.consumed_out;
            match step.status {
                Ok(LzwStatus::Ok) if step.consumed_in > 0 || step.consumed_out > 0 => {}
                Ok(_) => break,
                Err(error) => return Err(CodecError::new(error)),
            }
        }
        Ok(filled)
    }

    /// Fails if there are more than the `expected` bytes.
    fn expect_end(&mut self, expected: usize) -> CodecResult<()> {
        match self.fill(&mut [0])? {
            0 => Ok(()),
            _ => Err(CodecError::new(format_args!("more bytes decoded than the {expected} expected"))),
        }
    }
}

impl BytesToBytes for Lzw {
    fn is_lossless(&self) -> bool {
        true
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        decoded.compressed()
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        let mut stream = Stream::new(encoded);
        let mut out = Vec::new();
        // It grows with the decoded data, so that memory follows the data.
        let mut step = encoded.len().saturating_mul(4).max(FIRST_STEP_BYTES);
        loop {
            let before = out.len();
            let length = before.saturating_add(step).min(limit_bytes);
            out.resize(length, 0);
            let filled = before + stream.fill(out.get_mut(before..).unwrap_or_default())?;
            out.truncate(filled);
            if filled < length {
                return Ok(Cow::Owned(out));
            }
            if filled == limit_bytes {
                stream.expect_end(limit_bytes)?;
                return Ok(Cow::Owned(out));
            }
            step = filled;
        }
    }

    fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let (expected, mut stream) = (out.len(), Stream::new(encoded));
        match stream.fill(out)? {
            filled if filled == expected => stream.expect_end(expected),
            filled => {
                Err(CodecError::new(format_args!("{filled} bytes decoded where {expected} were expected")))
            }
        }
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        Encoder::with_tiff_size_switch(BitOrder::Msb, SYMBOL_BITS).encode(decoded).map_err(CodecError::new)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_the_specification() {
        // Codes of 9 bits: clear, 7, 8, 8, 9, end. With the second 8 the table has 7 8 as 258.
        let encoded = Lzw.encode(&[7, 8, 7, 8, 7, 8]).unwrap();
        assert_eq!(encoded[..2], [0x80, 0x01]);
        assert_eq!(&*Lzw.decode(&encoded, 6).unwrap(), [7, 8, 7, 8, 7, 8]);
        for wrong in [5, 7] {
            assert!(Lzw.decode_into(&encoded, &mut vec![0; wrong]).is_err());
        }
        assert!(Lzw.decode(&encoded, 5).is_err());
        let with_rest = [&encoded[..], b"rest"].concat();
        assert_eq!(&*Lzw.decode(&with_rest, 6).unwrap(), [7, 8, 7, 8, 7, 8]);
    }

    #[test]
    fn streams_without_an_end_and_of_before_1990() {
        let data: Vec<u8> = (0..20_000u32).map(|number| ((number * number) >> 9) as u8).collect();
        let encoded = Lzw.encode(&data).unwrap();
        let mut out = vec![0; data.len()];
        // The end code has at most 12 bits.
        Lzw.decode_into(&encoded[..encoded.len() - 2], &mut out[..data.len() - 40]).unwrap_err();
        let old = Encoder::new(BitOrder::Lsb, SYMBOL_BITS).encode(&data).unwrap();
        assert_eq!((old[0], old[1] & 1), (0, 1));
        Lzw.decode_into(&old, &mut out).unwrap();
        assert_eq!(out, data);
    }

    proptest! {
        #[test]
        fn round_trip(bytes in prop::collection::vec(0u8..7, 0..9000)) {
            let encoded = Lzw.encode(&bytes).unwrap();
            let mut out = vec![0; bytes.len()];
            Lzw.decode_into(&encoded, &mut out).unwrap();
            prop_assert_eq!(&out, &bytes);
            prop_assert_eq!(&*Lzw.decode(&encoded, bytes.len()).unwrap(), &bytes[..]);
        }

        #[test]
        fn any_bytes_are_no_panic(bytes: Vec<u8>, limit in 0usize..500) {
            if let Ok(decoded) = Lzw.decode(&bytes, limit) {
                prop_assert!(decoded.len() <= limit);
            }
            let _ = Lzw.decode_into(&bytes, &mut vec![0; limit]);
        }
    }
}
