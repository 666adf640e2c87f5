//! `numcodecs.bz2`: bzip2. v2 id: `bz2`.
//!
//! Format: bzip2 streams, one or several, as Python's `bz2` module writes and reads them; `level` (1 to 9) only
//! matters to the encoder. Uses `bounded_stream`.
//!
//! ```json
//! {"name": "numcodecs.bz2", "configuration": {"level": 9}}
//! ```

use std::borrow::Cow;

use bzip2::{Action, Compress, Compression, Decompress, Status};

use super::bounded_stream::{StreamDecoder, StreamStep, decode_exact, decode_limited};
use crate::codec::config::Configuration;
use crate::codec::{BytesToBytes, Codec, CodecEntry, CodecError, CodecResult, Context, EncodedSize};

/// The codec's names and constructor.
pub const ENTRY: CodecEntry = CodecEntry {
    v3: &["numcodecs.bz2", "bz2", "imagecodecs_bz2", "https://codec.zarrs.dev/bytes_to_bytes/bz2"],
    v2: &["bz2", "imagecodecs_bz2"],
    build,
};

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    let level = configuration.integer("level", 1..=9)?.unwrap_or(1);
    configuration.finish()?;
    Ok(Codec::BytesToBytes(Box::new(Bz2 { level: u32::try_from(level).unwrap_or(1) })))
}

struct Bz2 {
    level: u32,
}

/// The working buffers of a decoder are at most 4 MB for any stream.
struct Bz2Stream(Decompress);

fn start() -> CodecResult<Bz2Stream> {
    Ok(Bz2Stream(Decompress::new(false)))
}

impl StreamDecoder for Bz2Stream {
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> CodecResult<StreamStep> {
        let (read, written) = (self.0.total_in(), self.0.total_out());
        let status = self.0.decompress(input, output);
        let status = status.map_err(|error| CodecError::new(format_args!("{error}")))?;
        if matches!(status, Status::MemNeeded) {
            return Err(CodecError::new("no memory"));
        }
        Ok(StreamStep {
            consumed: usize::try_from(self.0.total_in() - read).unwrap_or(usize::MAX),
            produced: usize::try_from(self.0.total_out() - written).unwrap_or(usize::MAX),
            is_end: matches!(status, Status::StreamEnd),
        })
    }
}

impl BytesToBytes for Bz2 {
    fn is_lossless(&self) -> bool {
        true
    }

    fn has_checksum(&self) -> bool {
        true
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        decoded.compressed()
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        decode_limited(start, encoded, limit_bytes).map(Cow::Owned)
    }

    fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        decode_exact(start, encoded, out)
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        let failed = |error: bzip2::Error| CodecError::new(format_args!("{error}"));
        let mut encoder = Compress::new(Compression::new(self.level), 0);
        let mut encoded = Vec::with_capacity(decoded.len() / 2 + 64);
        loop {
            let consumed = usize::try_from(encoder.total_in()).unwrap_or(usize::MAX);
            let left = decoded.get(consumed..).unwrap_or_default();
            encoded.reserve(encoded.len().max(4096));
            let status = encoder.compress_vec(left, &mut encoded, Action::Finish).map_err(failed)?;
            if matches!(status, Status::StreamEnd) {
                return Ok(encoded);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn several_streams_and_what_follows() {
        let codec = Bz2 { level: 1 };
        let mut encoded = codec.encode(b"abc").unwrap();
        encoded.extend(codec.encode(b"").unwrap());
        encoded.extend(codec.encode(b"defg").unwrap());
        assert_eq!(&*codec.decode(&encoded, 100).unwrap(), b"abcdefg");
        assert!(codec.decode(&encoded, 6).is_err());
        encoded.extend(b"not a stream");
        assert_eq!(&*codec.decode(&encoded, 7).unwrap(), b"abcdefg");
        let mut out = [0; 7];
        codec.decode_into(&encoded, &mut out).unwrap();
        assert_eq!(&out, b"abcdefg");
        for wrong in [6, 8] {
            assert!(codec.decode_into(&encoded, &mut vec![0; wrong]).is_err());
        }
        assert!(codec.decode(b"", 7).is_err());
        assert!(codec.decode(b"BZh9", 7).is_err());
    }

    proptest! {
        #[test]
        fn round_trip(bytes in prop::collection::vec(0u8..4, 0..5000), level in 1u32..10) {
            let codec = Bz2 { level };
            let encoded = codec.encode(&bytes).unwrap();
            let mut out = vec![0; bytes.len()];
            codec.decode_into(&encoded, &mut out).unwrap();
            prop_assert_eq!(&out, &bytes);
            prop_assert_eq!(&*codec.decode(&encoded, bytes.len()).unwrap(), &bytes[..]);
        }

        #[test]
        fn damage_is_no_panic(
            bytes in prop::collection::vec(0u8..4, 0..500),
            at in any::<prop::sample::Index>(),
            bit in 0..8,
            cut in any::<prop::sample::Index>(),
        ) {
            let codec = Bz2 { level: 1 };
            let mut encoded = codec.encode(&bytes).unwrap();
            let at = at.index(encoded.len());
            encoded[at] ^= 1u8 << bit;
            encoded.truncate(cut.index(encoded.len() + 1));
            if let Ok(decoded) = codec.decode(&encoded, bytes.len()) {
                prop_assert!(decoded.len() <= bytes.len());
            }
        }
    }
}
