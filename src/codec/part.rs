//! Decoding a part of a chunk: only what of the stored bytes it needs is read, where a codec can do so.
//!
//! Uses the pipeline. Invariant: a part is byte for byte what decoding all of the chunk gives there; where the stored
//! bytes outside of it are damaged, it may succeed all the same.

use super::{CodecError, CodecResult, Pipeline};

/// The stored bytes of one chunk, read by ranges.
pub trait StoredBytes {
    /// How many there are.
    fn size_bytes(&self) -> u64;
    /// Fills `out` from `offset`; the range lies inside.
    fn read(&self, offset: u64, out: &mut [u8]) -> CodecResult<()>;
}

impl Pipeline {
    /// Whether [`Pipeline::decode_part`] can be had for less than decoding all.
    pub fn decodes_parts(&self) -> bool {
        self.lone_decompressor().is_some_and(|(codec, _)| codec.decodes_parts())
    }

    /// Bytes of this stored chunk that decode on their own.
    pub fn block_bytes(&self, stored: &dyn StoredBytes) -> CodecResult<Option<u64>> {
        self.lone_decompressor().map_or(Ok(None), |(codec, _)| codec.block_bytes(stored))
    }

    /// Decodes `out.len()` bytes of a chunk from byte `start` on; the range lies in the chunk and begins and ends between
    /// elements. Only where [`Pipeline::decodes_parts`].
    pub fn decode_part(&self, stored: &dyn StoredBytes, start: usize, out: &mut [u8]) -> CodecResult<()> {
        let (size, limit) = (stored.size_bytes(), self.encoded_size().limit_bytes());
        if size > limit {
            return Err(CodecError::new(format_args!(
                "{size} bytes stored, where a chunk has at most {limit}"
            )));
        }
        let Some((codec, array_to_bytes)) = self.lone_decompressor() else {
            return Err(CodecError::new("this chain decodes whole chunks only"));
        };
        codec.decode_part(stored, self.decoded_bytes(), start, out)?;
        array_to_bytes.decode_in_place(out).unwrap_or(Ok(()))
    }
}
