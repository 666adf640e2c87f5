//! Filters that turn each stored item of a fixed size into an element, and not back.

use std::borrow::Cow;

use crate::codec::error::check_length;
use crate::codec::{BytesToBytes, CodecError, CodecResult, EncodedSize, Items, scratch};

/// How a filter reads one item.
pub trait ItemReader: Send + Sync + 'static {
    /// Returns the bytes of a stored item.
    fn stored_bytes(&self) -> usize;
    /// Returns the bytes of an element.
    fn element_bytes(&self) -> usize;
    /// Reads an element from its item.
    fn read(&self, stored: &[u8], element: &mut [u8]) -> CodecResult<()>;
}

/// The filter.
pub struct ReadOnlyFilter<R> {
    /// What it does.
    pub reader: R,
    /// The stored items.
    pub items: Items,
}

impl<R: ItemReader> ReadOnlyFilter<R> {
    fn decoded_len(&self, encoded_len: usize) -> CodecResult<usize> {
        let stored = self.reader.stored_bytes().max(1);
        if encoded_len.is_multiple_of(stored) {
            return Ok((encoded_len / stored).saturating_mul(self.reader.element_bytes()));
        }
        Err(CodecError::new(format_args!(
            "{encoded_len} bytes are not a multiple of the filter's items of {stored} bytes"
        )))
    }
}

impl<R: ItemReader> BytesToBytes for ReadOnlyFilter<R> {
    // The filter does not encode.
    fn is_lossless(&self) -> bool {
        false
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        let element = self.reader.element_bytes().max(1) as u64;
        decoded.map(|bytes| (bytes / element).saturating_mul(self.reader.stored_bytes() as u64))
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        scratch::decoded(self.decoded_len(encoded.len())?, limit_bytes, |out| self.decode_into(encoded, out))
    }

    fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        check_length(self.decoded_len(encoded.len())?, out.len())?;
        let elements = out.chunks_exact_mut(self.reader.element_bytes().max(1));
        let mut items = encoded.chunks_exact(self.reader.stored_bytes().max(1)).zip(elements);
        items.try_for_each(|(stored, element)| self.reader.read(stored, element))
    }

    fn encode(&self, _: &[u8]) -> CodecResult<Vec<u8>> {
        Err(CodecError::unsupported("encoding with a filter of references to other files"))
    }

    fn encoded_items(&self) -> Option<&Items> {
        Some(&self.items)
    }
}
