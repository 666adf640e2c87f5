//! `numcodecs.packbits`: eight bools to a byte. v2 id: `packbits`. Not v3's registered `packbits`.
//!
//! Format: numcodecs `PackBits`: a byte that says how many bits of the last byte are padding, then the elements, the
//! first in the highest bit. In v3 it is array → array as zarr-python wraps it: a chunk of bools becomes a
//! one-dimensional chunk of uint8. Uses nothing else.
//!
//! ```json
//! {"name": "numcodecs.packbits", "configuration": {}}
//! ```

use std::borrow::Cow;

use crate::codec::config::Configuration;
use crate::codec::{
    ArrayToArray, BytesToBytes, Codec, CodecEntry, CodecError, CodecResult, Context, EncodedSize, Items,
    Representation, scratch,
};
use crate::metadata::{CodecFamily, DataType, FillValue};

/// The codec's names and constructor.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["numcodecs.packbits"], v2: &["packbits"], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    Configuration::new(context).finish()?;
    if context.family == CodecFamily::V2 {
        let (size, _) = context.bytes()?;
        let shape = vec![packed_len(size.limit_bytes())];
        let items = Items { shape, data_type: DataType::UInt8, is_big_endian: false };
        return Ok(Codec::BytesToBytes(Box::new(BytesPackBits { items })));
    }
    let array = context.array()?;
    if array.data_type != DataType::Bool {
        return Err(CodecError::new(format_args!("codec \"{}\" takes an array of bools", context.name)));
    }
    let encoded = Representation {
        shape: vec![packed_len(array.elements()?)],
        data_type: DataType::UInt8,
        // zarr-python leaves the fill value as it is.
        fill_value: FillValue { bytes: array.fill_value.bytes.clone(), ..array.fill_value.clone() },
    };
    Ok(Codec::ArrayToArray(Box::new(ArrayPackBits { encoded })))
}

/// Returns the bytes for this many bools.
fn packed_len(bools: u64) -> u64 {
    bools.div_ceil(8) + 1
}

/// Bools in some packed bytes: eight a byte, less the padding.
fn unpacked_len(packed: &[u8]) -> CodecResult<usize> {
    let Some((&padding, bits)) = packed.split_first() else {
        return Err(CodecError::new("no bytes: the padding count is missing"));
    };
    match bits.len().saturating_mul(8).checked_sub(usize::from(padding)) {
        Some(bools) => Ok(bools),
        None => Err(CodecError::new(format_args!("{padding} bits of padding in {} bytes", bits.len()))),
    }
}

/// Unpacks into exactly `bools.len()` bools.
fn unpack(packed: &[u8], bools: &mut [u8]) -> CodecResult<()> {
    let (found, expected) = (unpacked_len(packed)?, bools.len());
    if found != expected {
        return Err(CodecError::new(format_args!("{found} bools where {expected} were expected")));
    }
    let bits = packed.split_first().map_or(&[][..], |(_, bits)| bits);
    for (bools, byte) in bools.chunks_mut(8).zip(bits) {
        for (bit, bool) in bools.iter_mut().enumerate() {
            *bool = (byte >> (7 - bit)) & 1;
        }
    }
    Ok(())
}

/// Packs into exactly [`packed_len`] bytes.
fn pack(bools: &[u8], packed: &mut [u8]) {
    let Some((padding, bytes)) = packed.split_first_mut() else { return };
    *padding = (8 - bools.len() % 8) as u8 % 8;
    for (byte, bools) in bytes.iter_mut().zip(bools.chunks(8)) {
        *byte =
            bools.iter().enumerate().fold(0, |byte, (bit, &bool)| byte | (u8::from(bool != 0) << (7 - bit)));
    }
}

/// The v2 filter.
struct BytesPackBits {
    items: Items,
}

impl BytesToBytes for BytesPackBits {
    // Every byte other than 0 comes back as 1.
    fn is_lossless(&self) -> bool {
        false
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        decoded.map(packed_len)
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        scratch::decoded(unpacked_len(encoded)?, limit_bytes, |out| unpack(encoded, out))
    }

    fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        unpack(encoded, out)
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        let mut packed = vec![0; decoded.len().div_ceil(8) + 1];
        pack(decoded, &mut packed);
        Ok(packed)
    }

    fn encoded_items(&self) -> Option<&Items> {
        Some(&self.items)
    }
}

/// The v3 codec.
struct ArrayPackBits {
    encoded: Representation,
}

impl ArrayToArray for ArrayPackBits {
    // Every byte other than 0 comes back as 1.
    fn is_lossless(&self) -> bool {
        false
    }

    fn encoded(&self) -> &Representation {
        &self.encoded
    }

    fn decode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        unpack(input, out)
    }

    fn encode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        pack(input, out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    fn codec() -> BytesPackBits {
        BytesPackBits { items: Items { shape: vec![1], data_type: DataType::UInt8, is_big_endian: false } }
    }

    #[test]
    fn as_numcodecs_packs() {
        assert_eq!(codec().encode(&[1, 0, 0, 1]).unwrap(), [4, 0b1001_0000]);
        assert_eq!(codec().encode(&[]).unwrap(), [0]);
        assert_eq!(codec().encode(&[1; 8]).unwrap(), [0, 255]);
        assert_eq!(&*codec().decode(&[0], 0).unwrap(), [0u8; 0]);
        for (bad, limit) in [(&[][..], 0), (&[1], 0), (&[9, 0], 8), (&[0, 0], 7)] {
            assert!(codec().decode(bad, limit).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(bools in prop::collection::vec(0u8..2, 0..100)) {
            let packed = codec().encode(&bools).unwrap();
            prop_assert_eq!(packed.len() as u64, packed_len(bools.len() as u64));
            prop_assert_eq!(&*codec().decode(&packed, bools.len()).unwrap(), &bools[..]);
        }
    }
}
