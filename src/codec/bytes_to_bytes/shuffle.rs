//! `numcodecs.shuffle`: HDF5's byte shuffle: all first bytes of the elements, then all second bytes, … v2 id: `shuffle`.
//!
//! Format: numcodecs `Shuffle`. `elementsize` absent is 4 in v2, the size of the array's data type in v3; 0 and 1
//! change nothing; the bytes must be a multiple of it. Uses `sys` for wide registers.
//!
//! ```json
//! {"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}}
//! ```

use std::borrow::Cow;

use crate::codec::config::Configuration;
use crate::codec::error::{check_length, check_limit};
use crate::codec::{
    BytesToBytes, Codec, CodecEntry, CodecError, CodecInput, CodecResult, Context, EncodedSize, scratch,
};
use crate::metadata::CodecFamily;
use crate::sys::wide;

/// The codec's names and constructor.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["numcodecs.shuffle", "shuffle"], v2: &["shuffle"], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    let element_size = match configuration.integer("elementsize", i64::MIN..=i64::from(i32::MAX))? {
        Some(bytes) => usize::try_from(bytes).unwrap_or(0),
        None if context.family == CodecFamily::V2 => 4,
        None => match context.input {
            CodecInput::Bytes { item_size, .. } => item_size,
            CodecInput::Array(_) => 1,
        },
    };
    configuration.finish()?;
    Ok(Codec::BytesToBytes(Box::new(Shuffle { element_size })))
}

struct Shuffle {
    /// Bytes per element.
    element_size: usize,
}

impl Shuffle {
    /// Checks the length; returns whether there is anything to shuffle.
    fn check(&self, bytes: usize) -> CodecResult<bool> {
        match self.element_size {
            0 | 1 => Ok(false),
            size if bytes.is_multiple_of(size) => Ok(bytes > 0),
            size => Err(CodecError::new(format_args!("{bytes} bytes are not a multiple of {size}"))),
        }
    }
}

impl BytesToBytes for Shuffle {
    fn is_lossless(&self) -> bool {
        true
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        decoded
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        check_limit(encoded.len(), limit_bytes)?;
        if !self.check(encoded.len())? {
            return Ok(Cow::Borrowed(encoded));
        }
        let mut out = scratch::zeroed(encoded.len())?;
        unshuffle(encoded, &mut out, self.element_size);
        Ok(Cow::Owned(out))
    }

    fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        check_length(encoded.len(), out.len())?;
        if self.check(encoded.len())? {
            unshuffle(encoded, out, self.element_size)
        } else {
            out.copy_from_slice(encoded)
        }
        Ok(())
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        if !self.check(decoded.len())? {
            return Ok(decoded.to_vec());
        }
        let mut out = scratch::zeroed(decoded.len())?;
        shuffle(decoded, &mut out, self.element_size);
        Ok(out)
    }
}

/// Converts planes of bytes to elements. The lengths are equal, and a multiple of `size`.
fn unshuffle(planes: &[u8], elements: &mut [u8], size: usize) {
    interleave(planes.chunks_exact(planes.len() / size), size, elements);
}

/// Makes elements of `size` bytes from `size` planes, each with one byte of every element.
pub(super) fn interleave<'a>(planes: impl Iterator<Item = &'a [u8]>, size: usize, elements: &mut [u8]) {
    match size {
        2 => interleave_fixed::<2>(planes, elements),
        4 => interleave_fixed::<4>(planes, elements),
        8 => interleave_fixed::<8>(planes, elements),
        _ => {
            for (lane, plane) in planes.enumerate() {
                let lane = elements.get_mut(lane..).unwrap_or_default();
                lane.iter_mut().step_by(size).zip(plane).for_each(|(to, from)| *to = *from);
            }
        }
    }
}

/// Interleaves as [`interleave`] does for a size known when compiled, and writes each element once.
fn interleave_fixed<'a, const SIZE: usize>(mut planes: impl Iterator<Item = &'a [u8]>, elements: &mut [u8]) {
    let planes: [&[u8]; SIZE] = std::array::from_fn(|_| planes.next().unwrap_or_default());
    let elements = elements.as_chunks_mut::<SIZE>().0;
    wide(|| interleave_loop(planes, elements));
}

/// Runs the loop of [`interleave_fixed`], compiled into its caller for the processor that the caller is compiled for.
#[inline(always)]
fn interleave_loop<const SIZE: usize>(planes: [&[u8]; SIZE], elements: &mut [[u8; SIZE]]) {
    // Cannot be: the planes have a byte for each element. The check lets the compiler drop the others.
    if planes.iter().any(|plane| plane.len() != elements.len()) {
        return;
    }
    for (index, element) in elements.iter_mut().enumerate() {
        for (to, plane) in element.iter_mut().zip(&planes) {
            *to = plane[index];
        }
    }
}

/// Converts elements to planes of bytes, the reverse of [`unshuffle`].
fn shuffle(elements: &[u8], planes: &mut [u8], size: usize) {
    let count = elements.len() / size;
    for (lane, plane) in planes.chunks_exact_mut(count).enumerate() {
        let lane = elements.get(lane..).unwrap_or_default();
        plane.iter_mut().zip(lane.iter().step_by(size)).for_each(|(to, from)| *to = *from);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn planes_of_bytes() {
        let codec = Shuffle { element_size: 3 };
        assert_eq!(codec.encode(&[1, 2, 3, 4, 5, 6]).unwrap(), [1, 4, 2, 5, 3, 6]);
        assert!(codec.encode(&[1, 2, 3, 4]).is_err());
        assert!(codec.decode(&[1, 2, 3, 4], 10).is_err());
        assert!(codec.decode(&[1, 2, 3], 2).is_err());
    }

    proptest! {
        #[test]
        fn round_trip(bytes in prop::collection::vec(any::<u8>(), 0..300), element_size in 0usize..12) {
            let codec = Shuffle { element_size };
            let bytes = &bytes[..bytes.len() - bytes.len() % element_size.max(1)];
            let encoded = codec.encode(bytes).unwrap();
            prop_assert_eq!(&*codec.decode(&encoded, bytes.len()).unwrap(), bytes);
            let mut out = vec![0; bytes.len()];
            codec.decode_into(&encoded, &mut out).unwrap();
            prop_assert_eq!(&out, bytes);
        }
    }
}
