//! Decoding a part of a chunk. If the codec can do that, only the stored bytes that the part needs are read.
//!
//! Uses the pipeline. Invariant: a part has the same bytes as that range of the whole decoded chunk; it may succeed even if
//! stored bytes outside of it are damaged.

use super::{
    CodecError, CodecResult, InPlace, PartialDecoder, Pipeline, ResumableDecoder, StoredBytes, scratch,
};

/// Bytes that a suspended decoder skips at a time.
const SKIPPED_BYTES: usize = 64 << 10;

impl Pipeline {
    /// Returns a decoder at the beginning of a chunk, if the codec has one that can be suspended.
    pub fn resumable_decoder(&self) -> Option<Box<dyn ResumableDecoder>> {
        self.lone_decompressor().and_then(|(codec, _)| codec.resumable(self.decoded_bytes()))
    }

    /// Decodes a part as [`Pipeline::decode_part`] does, with a decoder at or before `start`.
    pub fn decode_next(
        &self,
        stream: &mut dyn ResumableDecoder,
        stored: &dyn StoredBytes,
        start: usize,
        out: &mut [u8],
    ) -> CodecResult<usize> {
        self.check_stored_size(stored)?;
        let Some((_, in_place)) = self.lone_decompressor() else {
            return Err(CodecError::new("this chain decodes whole chunks only"));
        };
        let mut decoded_bytes = 0;
        while stream.position() < start {
            let length = SKIPPED_BYTES.min(start - stream.position());
            decoded_bytes += scratch::with(length, |skipped| stream.decode_next(stored, skipped))?;
        }
        decoded_bytes += stream.decode_next(stored, out)?;
        in_place.decode(out)?;
        Ok(decoded_bytes)
    }

    fn check_stored_size(&self, stored: &dyn StoredBytes) -> CodecResult<()> {
        let (size, limit) = (stored.size_bytes(), self.encoded_size().limit_bytes());
        if size > limit {
            return Err(CodecError::new(format_args!(
                "{size} stored bytes, but a chunk has at most {limit}"
            )));
        }
        Ok(())
    }

    /// Returns the only compressor, if it decodes parts of a chunk, and the fix-up of the elements that it gives.
    fn partial(&self) -> Option<(&dyn PartialDecoder, &dyn InPlace)> {
        let (codec, in_place) = self.lone_decompressor()?;
        Some((codec.partial()?, in_place))
    }

    /// Returns whether [`Pipeline::decode_part`] costs less than decoding everything.
    pub fn decodes_parts(&self) -> bool {
        self.partial().is_some()
    }

    /// Returns the bytes of this stored chunk that decode on their own.
    pub fn block_bytes(&self, stored: &dyn StoredBytes) -> CodecResult<Option<u64>> {
        self.partial().map_or(Ok(None), |(codec, _)| codec.block_bytes(stored))
    }

    /// Decodes `out.len()` bytes of a chunk from byte `start` on; the range lies in the chunk and begins and ends between
    /// elements. Returns how many bytes it had to decode. Only where [`Pipeline::decodes_parts`].
    pub fn decode_part(&self, stored: &dyn StoredBytes, start: usize, out: &mut [u8]) -> CodecResult<usize> {
        self.check_stored_size(stored)?;
        let Some((codec, in_place)) = self.partial() else {
            return Err(CodecError::new("this chain decodes whole chunks only"));
        };
        let decoded_bytes = codec.decode_part(stored, self.decoded_bytes(), start, out)?;
        in_place.decode(out)?;
        Ok(decoded_bytes)
    }
}
