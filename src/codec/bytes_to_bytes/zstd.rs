//! The `zstd` codec: Zstandard frames.
//!
//! Spec: the registered extension codec `zstd` (RFC 8878); numcodecs "zstd".
//!
//! ```json
//! {"name": "zstd", "configuration": {"level": 0, "checksum": false}}
//! ```
//!
//! Frames may omit their content size, and there may be several, skippable ones among them. Encoding writes one
//! frame with its size, and a checksum where the configuration says so.

use std::borrow::Cow;
use std::io::{self, BufReader, Read};

use parking_lot::Mutex;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{DCtx, ResetDirective};

use crate::codec::StoredBytes;
use crate::codec::config::Configuration;
use crate::codec::{
    BoundedEncoder, BytesToBytes, Codec, CodecEntry, CodecError, CodecResult, Context, EncodedSize,
    PartialDecoder, scratch,
};

/// `zstd` and its numcodecs spelling.
pub const ENTRY: CodecEntry = CodecEntry {
    v3: &["zstd", "numcodecs.zstd", "imagecodecs_zstd"],
    v2: &["zstd", "imagecodecs_zstd"],
    build,
};

struct Zstd {
    level: i32,
    checksum: bool,
}

/// Above this level a compressor's tables take too much memory to be kept.
const LAST_KEPT_LEVEL: i32 = 9;
/// A compressor takes some MiB, a decompressor 160 KiB.
const MAX_IDLE_COMPRESSORS: usize = 4;
const MAX_IDLE_DECOMPRESSORS: usize = 32;

static DECOMPRESSORS: Contexts<Decompressor<'static>> = Contexts::new(MAX_IDLE_DECOMPRESSORS);
static STREAMS: Contexts<DCtx<'static>> = Contexts::new(MAX_IDLE_DECOMPRESSORS);
static COMPRESSORS: Contexts<Compressor<'static>> = Contexts::new(MAX_IDLE_COMPRESSORS);

/// Contexts that are not in use. There are fewer than threads, since few threads compress at the same time.
struct Contexts<C> {
    idle: Mutex<Vec<C>>,
    limit: usize,
}

impl<C> Contexts<C> {
    const fn new(limit: usize) -> Self {
        Contexts { idle: Mutex::new(Vec::new()), limit }
    }

    /// Runs `work` with a context, which is kept for the next if that succeeds.
    fn with<T>(
        &self,
        make: impl FnOnce() -> io::Result<C>,
        work: impl FnOnce(&mut C) -> io::Result<T>,
    ) -> CodecResult<T> {
        let idle = self.idle.lock().pop();
        let mut context = idle.map_or_else(make, Ok).map_err(CodecError::new)?;
        let done = work(&mut context).map_err(CodecError::new)?;
        let mut idle = self.idle.lock();
        if idle.len() < self.limit {
            idle.push(context);
        }
        Ok(done)
    }
}

/// Bytes that a streaming decoder reads at a time.
const STREAM_INPUT_BYTES: usize = 128 << 10;
/// The longest header of a frame.
const FRAME_HEADER_BYTES: usize = 18;

/// Returns whether the stored bytes begin with a frame that declares all decoded bytes and has no checksum.
fn is_single_frame(stored: &dyn StoredBytes, decoded_bytes: usize) -> CodecResult<bool> {
    let mut head = [0; FRAME_HEADER_BYTES];
    let available = usize::try_from(stored.size_bytes()).unwrap_or(usize::MAX);
    let head = head.get_mut(..available.min(FRAME_HEADER_BYTES)).unwrap_or_default();
    stored.read(0, head)?;
    let has_checksum = head.get(4).is_none_or(|descriptor| descriptor & 4 != 0);
    let holds = zstd::zstd_safe::get_frame_content_size(head);
    Ok(!has_checksum && matches!(holds, Ok(Some(size)) if size == decoded_bytes as u64))
}

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    context.bytes()?;
    let mut configuration = Configuration::new(context);
    let level = configuration.integer("level", i32::MIN.into()..=i32::MAX.into())?.unwrap_or(0) as i32;
    let checksum = configuration.boolean("checksum")?.unwrap_or(false);
    configuration.finish()?;
    // As in numcodecs: a level beyond the range means the nearest one.
    let levels = zstd::compression_level_range();
    let level = level.clamp(*levels.start(), *levels.end());
    Ok(Codec::BytesToBytes(Box::new(Zstd { level, checksum })))
}

/// Decompresses frames to exactly `out.len()` bytes.
pub(super) fn decompress(encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
    let decode = |context: &mut Decompressor<'_>| context.decompress_to_buffer(encoded, &mut *out);
    let decoded = DECOMPRESSORS.with(Decompressor::new, decode)?;
    if decoded == out.len() {
        Ok(())
    } else {
        Err(CodecError::new(format_args!("{decoded} bytes decoded where {} were expected", out.len())))
    }
}

impl BytesToBytes for Zstd {
    fn is_lossless(&self) -> bool {
        true
    }

    fn has_checksum(&self) -> bool {
        self.checksum
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        decoded.compressed()
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        let frames = zstd::stream::read::Decoder::with_buffer(encoded).map_err(CodecError::new)?;
        let mut decoded = Vec::new();
        frames.take(limit_bytes as u64 + 1).read_to_end(&mut decoded).map_err(CodecError::new)?;
        if decoded.len() > limit_bytes {
            Err(CodecError::new(format_args!("more than the {limit_bytes} bytes that were expected")))
        } else {
            Ok(Cow::Owned(decoded))
        }
    }

    fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        decompress(encoded, out)
    }

    fn partial(&self) -> Option<&dyn PartialDecoder> {
        // A checksum is of the whole frame.
        (!self.checksum).then_some(self as _)
    }

    fn bounded(&self) -> Option<&dyn BoundedEncoder> {
        Some(self)
    }
}

impl PartialDecoder for Zstd {
    fn block_bytes(&self, _stored: &dyn StoredBytes) -> CodecResult<Option<u64>> {
        Ok(None)
    }

    fn decode_part(
        &self,
        stored: &dyn StoredBytes,
        decoded_bytes: usize,
        start: usize,
        out: &mut [u8],
    ) -> CodecResult<usize> {
        let outside = || CodecError::new("a part that lies outside of its chunk");
        let end = start.checked_add(out.len()).filter(|&end| end <= decoded_bytes).ok_or_else(outside)?;
        if !is_single_frame(stored, decoded_bytes)? {
            return scratch::with(decoded_bytes, |decoded| {
                let size = usize::try_from(stored.size_bytes()).map_err(CodecError::new)?;
                scratch::with(size, |encoded| {
                    stored.read(0, encoded)?;
                    self.decode_into(encoded, decoded)
                })?;
                out.copy_from_slice(decoded.get(start..end).ok_or_else(outside)?);
                Ok(decoded_bytes)
            });
        }
        let decode = |context: &mut DCtx<'static>| {
            let refused = |code| io::Error::other(zstd::zstd_safe::get_error_name(code));
            context.reset(ResetDirective::SessionOnly).map_err(refused)?;
            let input = BufReader::with_capacity(STREAM_INPUT_BYTES, StoredReader::new(stored));
            let mut decoder = zstd::stream::read::Decoder::with_context(input, context);
            let skipped = io::copy(&mut decoder.by_ref().take(start as u64), &mut io::sink())?;
            if skipped != start as u64 {
                return Err(io::Error::other("the data ends too early"));
            }
            decoder.read_exact(out)
        };
        STREAMS.with(|| Ok(DCtx::create()), decode)?;
        Ok(end)
    }
}

/// The stored bytes of a chunk from the beginning, for a decoder that takes a `Read`.
struct StoredReader<'a> {
    stored: &'a dyn StoredBytes,
    at: u64,
}

impl<'a> StoredReader<'a> {
    fn new(stored: &'a dyn StoredBytes) -> Self {
        StoredReader { stored, at: 0 }
    }
}

impl std::io::Read for StoredReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let rest = usize::try_from(self.stored.size_bytes().saturating_sub(self.at)).unwrap_or(usize::MAX);
        let length = rest.min(out.len());
        let out = out.get_mut(..length).unwrap_or_default();
        self.stored.read(self.at, out).map_err(|error| std::io::Error::other(error.reason))?;
        self.at += length as u64;
        Ok(length)
    }
}

impl BoundedEncoder for Zstd {
    fn bound(&self, decoded_bytes: usize) -> usize {
        zstd::zstd_safe::compress_bound(decoded_bytes)
    }

    fn encode_into(&self, decoded: &[u8], out: &mut [u8]) -> CodecResult<usize> {
        let make = || Compressor::new(self.level);
        let encode = |context: &mut Compressor<'_>| {
            context.set_compression_level(self.level)?;
            context.include_checksum(self.checksum)?;
            context.include_contentsize(true)?;
            context.compress_to_buffer(decoded, out)
        };
        if self.level > LAST_KEPT_LEVEL {
            Contexts::new(0).with(make, encode)
        } else {
            COMPRESSORS.with(make, encode)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    fn codec(level: i32, checksum: bool) -> Zstd {
        Zstd { level, checksum }
    }

    proptest! {
        #[test]
        fn round_trips(
            data in prop::collection::vec(0u8..4, 0..3000),
            level in prop_oneof![Just(-5), Just(0), 1..10],
            checksum: bool,
        ) {
            let zstd = codec(level, checksum);
            let encoded = zstd.encode(&data).unwrap();
            prop_assert_eq!(encoded[4] & 4 != 0, checksum);
            let mut out = vec![9; data.len()];
            zstd.decode_into(&encoded, &mut out).unwrap();
            prop_assert_eq!(&out, &data);
            prop_assert_eq!(&*zstd.decode(&encoded, data.len()).unwrap(), &data[..]);
            prop_assert!(zstd.decode_into(&encoded, &mut vec![0; data.len() + 1]).is_err());
            prop_assert!(zstd.decode_into(&encoded[..encoded.len() - 1], &mut out).is_err());
            if !data.is_empty() {
                prop_assert!(zstd.decode_into(&encoded, &mut vec![0; data.len() - 1]).is_err());
                prop_assert!(zstd.decode(&encoded, data.len() - 1).is_err());
            }
        }
    }

    #[test]
    fn frames_without_size_several_and_skippable_ones() {
        let mut streamed = zstd::stream::encode_all(&b"hello "[..], 3).unwrap();
        assert!(matches!(zstd::zstd_safe::get_frame_content_size(&streamed), Ok(None)));
        streamed.extend([0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
        streamed.extend(codec(1, true).encode(b"world").unwrap());
        let mut out = [0; 11];
        codec(0, false).decode_into(&streamed, &mut out).unwrap();
        assert_eq!(&out, b"hello world");
        assert_eq!(&*codec(0, false).decode(&streamed, 11).unwrap(), b"hello world");
        assert!(codec(0, false).decode_into(&streamed, &mut [0; 10]).is_err());
        assert!(codec(0, false).decode(&streamed, 10).is_err());
        streamed.push(7);
        assert!(codec(0, false).decode_into(&streamed, &mut out).is_err());
    }

    proptest! {
        #[test]
        fn a_part_is_what_the_whole_has_there(
            data in prop::collection::vec(0u8..4, 1..3000),
            checksum: bool,
            frames in 1usize..3,
            from in 0.0..1.0,
            length in 0.0..1.0,
        ) {
            let cut = data.len() / frames;
            let mut encoded = codec(3, checksum).encode(&data[..cut]).unwrap();
            if frames > 1 {
                encoded.extend(codec(3, checksum).encode(&data[cut..]).unwrap());
            }
            let data = if frames > 1 { &data[..] } else { &data[..cut] };
            let start = (from * data.len() as f64) as usize;
            let mut out = vec![9; (length * (data.len() - start) as f64) as usize];
            let stored = encoded;
            let decoded = codec(0, false).decode_part(&stored, data.len(), start, &mut out).unwrap();
            prop_assert_eq!(&out[..], &data[start..start + out.len()]);
            let is_stream = frames == 1 && !checksum;
            prop_assert_eq!(decoded, if is_stream { start + out.len() } else { data.len() });
            prop_assert!(codec(0, false).decode_part(&stored, data.len() + 1, start, &mut out).is_err());
        }

        #[test]
        fn a_part_of_damaged_frames_is_an_error_or_of_the_right_length(
            at in 0usize..400,
            byte: u8,
            start in 0usize..4000,
        ) {
            let data: Vec<u8> = (0..5000u32).map(|n| ((n * n) >> 5) as u8).collect();
            let mut stored = codec(3, false).encode(&data).unwrap();
            let place = at % stored.len();
            stored[place] = byte;
            let _ = codec(0, false).decode_part(&stored, 5000, start, &mut [0; 1000]);
        }
    }

    #[test]
    fn a_wrong_checksum_and_a_bomb_are_errors() {
        let mut encoded = codec(1, true).encode(b"hello").unwrap();
        *encoded.last_mut().unwrap() ^= 1;
        assert!(codec(1, true).decode_into(&encoded, &mut [0; 5]).is_err());
        let bomb = codec(19, false).encode(&vec![0; 64 << 20]).unwrap();
        assert!(codec(0, false).decode_into(&bomb, &mut [0; 1000]).is_err());
        assert!(codec(0, false).decode(&bomb, 1000).is_err());
    }
}
