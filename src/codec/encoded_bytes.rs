//! An encoded chunk on its way into an object.
//!
//! A long one has pages of its own, huge pages if the system has them. It can then be written past the page cache without a
//! copy (`store/output.rs`), and a disk gets few long pieces. Uses `scratch` and `memory`.

use std::fmt;
use std::ops::Deref;

use super::{CodecError, CodecResult, scratch};
use crate::memory::{Buffer, MIN_PAGES_BYTES};

/// The bytes of one encoded chunk. When they are dropped, their memory is recycled.
pub struct EncodedBytes(Buffer);

impl EncodedBytes {
    /// Creates the bytes that `encode` writes to a buffer of `bound` bytes. `encode` returns their number.
    pub(super) fn encode(
        bound: usize,
        encode: impl FnOnce(&mut [u8]) -> CodecResult<usize>,
    ) -> CodecResult<EncodedBytes> {
        if bound < MIN_PAGES_BYTES {
            return scratch::encoded(bound, encode).map(Into::into);
        }
        let mut buffer = scratch::transient(bound)?;
        let length = encode(&mut buffer)?;
        if length > bound {
            return Err(CodecError::new(format_args!("{length} bytes encoded where {bound} are the most")));
        }
        buffer.truncate(length);
        if length >= buffer.capacity() / 2 {
            return Ok(EncodedBytes(buffer));
        }
        // Most of the memory is unused, so it goes back to the pool for the next encoder.
        Ok(EncodedBytes(Buffer::from(&*buffer)))
    }
}

impl From<Vec<u8>> for EncodedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        EncodedBytes(bytes.into())
    }
}

impl AsRef<[u8]> for EncodedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Deref for EncodedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for EncodedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} encoded bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PAGE_BYTES: usize = 4096;
    const MIB: usize = 1 << 20;

    fn encode(bound: usize, length: usize) -> CodecResult<EncodedBytes> {
        EncodedBytes::encode(bound, |out| {
            let rest = out.get_mut(..length).unwrap_or_default();
            rest.iter_mut().zip(0u32..).for_each(|(byte, at)| *byte = (at >> 8) as u8 ^ at as u8);
            Ok(length)
        })
    }

    #[test]
    fn long_ones_begin_on_a_page_and_short_ones_waste_no_memory() {
        for (bound, length) in [
            (0, 0),
            (1000, 999),
            (3 * MIB, 3 * MIB),
            (4 * MIB + 5, 2 * MIB + 3),
            (9 * MIB, 3),
            (4 * MIB, MIB),
        ] {
            let encoded = encode(bound, length).unwrap();
            assert_eq!(encoded.len(), length);
            assert!(encoded.iter().zip(0u32..).all(|(&byte, at)| byte == (at >> 8) as u8 ^ at as u8));
            let is_placed = length >= MIN_PAGES_BYTES;
            assert!(!is_placed || encoded.as_ptr().addr().is_multiple_of(PAGE_BYTES));
            assert!(encoded.0.capacity() <= (2 * length).max(MIN_PAGES_BYTES), "{length} of {bound}");
        }
    }

    #[test]
    fn an_encoder_that_fails_or_returns_too_large_a_length_is_an_error() {
        assert!(EncodedBytes::encode(2 * MIB, |_| Err(CodecError::new("no"))).is_err());
        assert!(EncodedBytes::encode(2 * MIB, |_| Ok(2 * MIB + 1)).is_err());
        assert!(encode(usize::MAX, 1).is_err());
    }
}
