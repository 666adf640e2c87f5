//! Decoding a part of a chunk: where the codec can, only the stored bytes that the part needs are read.
//!
//! Uses the pipeline. Invariant: a part has the same bytes as that range of the whole decoded chunk; it may succeed although
//! stored bytes outside of it are damaged.

use super::{CodecError, CodecResult, InPlace, PartialDecoder, Pipeline, scratch};

/// The stored bytes of one chunk, read by ranges.
pub trait StoredBytes {
    /// How many there are.
    fn size_bytes(&self) -> u64;
    /// Fills `out` from `offset`; the range lies inside.
    fn read(&self, offset: u64, out: &mut [u8]) -> CodecResult<()>;
}

#[cfg(test)]
impl StoredBytes for Vec<u8> {
    fn size_bytes(&self) -> u64 {
        self.len() as u64
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> CodecResult<()> {
        out.copy_from_slice(&self[offset as usize..offset as usize + out.len()]);
        Ok(())
    }
}

/// A suspended decoder: it resumes a chunk where it stopped.
pub trait ResumableDecoder: Send {
    /// Decoded bytes before the position.
    fn position(&self) -> usize;
    /// Fills `out` with the bytes that come next; returns how many it had to decode. `stored` is the same each time. After
    /// an error the decoder is unusable.
    fn decode_next(&mut self, stored: &dyn StoredBytes, out: &mut [u8]) -> CodecResult<usize>;
}

/// Bytes that a suspended decoder skips at a time.
const SKIPPED_BYTES: usize = 64 << 10;

/// The stored bytes of a chunk from the beginning, for a decoder that takes a `Read`.
pub(super) struct StoredReader<'a> {
    stored: &'a dyn StoredBytes,
    at: u64,
}

impl<'a> StoredReader<'a> {
    pub(super) fn new(stored: &'a dyn StoredBytes) -> Self {
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

impl Pipeline {
    /// A decoder at the beginning of a chunk, where the codec has one that can be suspended.
    pub fn resumable_decoder(&self) -> Option<Box<dyn ResumableDecoder>> {
        self.lone_decompressor().and_then(|(codec, _)| codec.resumable(self.decoded_bytes()))
    }

    /// As [`Pipeline::decode_part`], by a decoder at or before `start`.
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

    /// The lone decompressor, if it decodes parts of a chunk, and what fixes up the elements that it gives.
    fn partial(&self) -> Option<(&dyn PartialDecoder, &dyn InPlace)> {
        let (codec, in_place) = self.lone_decompressor()?;
        Some((codec.partial()?, in_place))
    }

    /// Whether [`Pipeline::decode_part`] costs less than decoding everything.
    pub fn decodes_parts(&self) -> bool {
        self.partial().is_some()
    }

    /// Bytes of this stored chunk that decode on their own.
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
