//! Decoding a part of a chunk: only what of the stored bytes it needs is read, where a codec can do so.
//!
//! Uses the pipeline. Invariant: a part is byte for byte what decoding all of the chunk gives there; where the stored
//! bytes outside of it are damaged, it may succeed all the same.

use super::{CodecError, CodecResult, Pipeline, scratch};

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

/// A decoder that stands somewhere in a chunk.
pub trait PartStream: Send {
    /// Decoded bytes before the place where it stands.
    fn position(&self) -> usize;
    /// Decodes what comes next, all of `out`; how many bytes had to be decoded. `stored` is the same each time. After an error
    /// it is of no more use.
    fn decode_next(&mut self, stored: &dyn StoredBytes, out: &mut [u8]) -> CodecResult<usize>;
}

/// Skipped at a time by a stream.
const SKIPPED_BYTES: usize = 64 << 10;

/// The stored bytes of a chunk from its beginning on, for a decoder that takes a stream.
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
    /// A decoder at the beginning of a chunk, where there is one that can be kept between two parts.
    pub fn stream(&self) -> Option<Box<dyn PartStream>> {
        self.lone_decompressor().and_then(|(codec, _)| codec.stream(self.decoded_bytes()))
    }

    /// As [`Pipeline::decode_part`], by a decoder that stands no further than at `start`.
    pub fn decode_next(
        &self,
        stream: &mut dyn PartStream,
        stored: &dyn StoredBytes,
        start: usize,
        out: &mut [u8],
    ) -> CodecResult<usize> {
        self.check_stored_size(stored)?;
        let Some((_, array_to_bytes)) = self.lone_decompressor() else {
            return Err(CodecError::new("this chain decodes whole chunks only"));
        };
        let mut decoded_bytes = 0;
        while stream.position() < start {
            let length = SKIPPED_BYTES.min(start - stream.position());
            decoded_bytes += scratch::with(length, |skipped| stream.decode_next(stored, skipped))?;
        }
        decoded_bytes += stream.decode_next(stored, out)?;
        array_to_bytes.decode_in_place(out).unwrap_or(Ok(()))?;
        Ok(decoded_bytes)
    }

    fn check_stored_size(&self, stored: &dyn StoredBytes) -> CodecResult<()> {
        let (size, limit) = (stored.size_bytes(), self.encoded_size().limit_bytes());
        if size > limit {
            return Err(CodecError::new(format_args!(
                "{size} bytes stored, where a chunk has at most {limit}"
            )));
        }
        Ok(())
    }

    /// Whether [`Pipeline::decode_part`] can be had for less than decoding all.
    pub fn decodes_parts(&self) -> bool {
        self.lone_decompressor().is_some_and(|(codec, _)| codec.decodes_parts())
    }

    /// Bytes of this stored chunk that decode on their own.
    pub fn block_bytes(&self, stored: &dyn StoredBytes) -> CodecResult<Option<u64>> {
        self.lone_decompressor().map_or(Ok(None), |(codec, _)| codec.block_bytes(stored))
    }

    /// Decodes `out.len()` bytes of a chunk from byte `start` on; the range lies in the chunk and begins and ends between
    /// elements. How many had to be decoded. Only where [`Pipeline::decodes_parts`].
    pub fn decode_part(&self, stored: &dyn StoredBytes, start: usize, out: &mut [u8]) -> CodecResult<usize> {
        self.check_stored_size(stored)?;
        let Some((codec, array_to_bytes)) = self.lone_decompressor() else {
            return Err(CodecError::new("this chain decodes whole chunks only"));
        };
        let decoded_bytes = codec.decode_part(stored, self.decoded_bytes(), start, out)?;
        array_to_bytes.decode_in_place(out).unwrap_or(Ok(()))?;
        Ok(decoded_bytes)
    }
}
