//! `imagecodecs_delta`: differences along an axis, of the elements' bits as unsigned integers.
//!
//! Format: imagecodecs `Delta`: the first element of each row, then x[i] − x[i−1], wrapping. Floats are differences of their bits.
//! Uses `predictor`.
//!
//! ```json
//! {"name": "imagecodecs_delta", "configuration": {"shape": [512, 512], "dtype": "<u2", "axis": -1}}
//! ```
//!
//! Without `dtype`, imagecodecs works on whatever it is given, bytes or elements, so that is not supported. `dist` must be 1, as in
//! imagecodecs.

use super::predictor::{Predictor, build as build_predictor, read_axis, read_shape};
use crate::codec::config::Configuration;
use crate::codec::numcodecs::filter::read_dtype;
use crate::codec::{Codec, CodecEntry, CodecError, CodecResult, Context};
use crate::metadata::ByteOrder;

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["imagecodecs_delta"], v2: &["imagecodecs_delta"], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    let unsupported =
        || CodecError::unsupported("codec \"imagecodecs_delta\" without a dtype of integers or floats");
    let dtype = read_dtype(&mut configuration, "dtype")?.ok_or_else(unsupported)?;
    let shape = read_shape(&mut configuration, context, dtype.numeric_type.size())?;
    let axis = read_axis(&mut configuration, shape.len())?;
    configuration.integer("dist", 1..=1)?;
    configuration.finish()?;
    let is_number = dtype.numeric_type.is_integer() || dtype.numeric_type.is_float();
    // The elements of a v3 array are little-endian here.
    let byte_order = if context.array().is_ok() { ByteOrder::Little } else { dtype.byte_order };
    let differences = Differences::new(&shape, axis, dtype.numeric_type.size(), byte_order);
    let differences = differences.filter(|_| is_number).ok_or_else(unsupported)?;
    Ok(build_predictor(context, differences, dtype.numeric_type.data_type(), byte_order, shape))
}

/// Differences along one axis of unsigned integers.
pub struct Differences {
    /// Elements along the axis.
    length: usize,
    /// Elements from one index along the axis to the next.
    step: usize,
    /// Bytes of an element: 1, 2, 4 or 8.
    width: usize,
    byte_order: ByteOrder,
    size_bytes: usize,
}

impl Differences {
    /// Creates the differences of elements of `width` bytes along an axis; `None` if there are no integers of this width, or if the array
    /// is too large.
    pub fn new(shape: &[u64], axis: usize, width: usize, byte_order: ByteOrder) -> Option<Differences> {
        let product = |lengths: &[u64], one: usize| {
            let length = |length: &u64| usize::try_from(*length).ok();
            lengths.iter().try_fold(one, |product, of_axis| product.checked_mul(length(of_axis)?))
        };
        matches!(width, 1 | 2 | 4 | 8).then_some(Differences {
            length: usize::try_from(*shape.get(axis)?).ok()?,
            step: product(shape.get(axis + 1..)?, 1)?,
            width,
            byte_order,
            size_bytes: product(shape, width)?,
        })
    }

    /// Replaces each element but the first of a row by `join(previous, itself)`. `previous` is taken from `out` or from `input`.
    fn run(&self, input: &[u8], out: &mut [u8], is_decoding: bool) {
        match self.width {
            1 => self.run_as(
                input,
                out,
                |before: [u8; 1], own| {
                    let (before, own) = (before[0], own[0]);
                    [if is_decoding { own.wrapping_add(before) } else { own.wrapping_sub(before) }]
                },
                is_decoding,
            ),
            2 => self.run_as(
                input,
                out,
                |before, own| {
                    let (before, own) = (self.number(before) as u16, self.number(own) as u16);
                    let own = if is_decoding { own.wrapping_add(before) } else { own.wrapping_sub(before) };
                    self.ordered(own.to_le_bytes())
                },
                is_decoding,
            ),
            4 => self.run_as(
                input,
                out,
                |before, own| {
                    let (before, own) = (self.number(before) as u32, self.number(own) as u32);
                    let own = if is_decoding { own.wrapping_add(before) } else { own.wrapping_sub(before) };
                    self.ordered(own.to_le_bytes())
                },
                is_decoding,
            ),
            _ => self.run_as(
                input,
                out,
                |before: [u8; 8], own| {
                    let (before, own) = (self.number(before), self.number(own));
                    let own = if is_decoding { own.wrapping_add(before) } else { own.wrapping_sub(before) };
                    self.ordered(own.to_le_bytes())
                },
                is_decoding,
            ),
        }
    }

    fn number<const N: usize>(&self, bytes: [u8; N]) -> u64 {
        self.ordered(bytes).iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    /// Converts between the stored byte order and the little-endian one.
    fn ordered<const N: usize>(&self, mut bytes: [u8; N]) -> [u8; N] {
        if self.byte_order == ByteOrder::Big {
            bytes.reverse();
        }
        bytes
    }

    fn run_as<const N: usize>(
        &self,
        input: &[u8],
        out: &mut [u8],
        join: impl Fn([u8; N], [u8; N]) -> [u8; N],
        is_decoding: bool,
    ) {
        let (input, _) = input.as_chunks::<N>();
        let (out, _) = out.as_chunks_mut::<N>();
        let row = self.length.saturating_mul(self.step).max(1);
        for (input, out) in input.chunks_exact(row).zip(out.chunks_exact_mut(row)) {
            for (at, own) in input.iter().enumerate() {
                let before = at.checked_sub(self.step);
                let source = if is_decoding { &*out } else { input };
                let joined = match before.and_then(|before| source.get(before)) {
                    Some(before) => join(*before, *own),
                    None => *own,
                };
                if let Some(place) = out.get_mut(at) {
                    *place = joined;
                }
            }
        }
    }
}

impl Predictor for Differences {
    fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    fn decode(&self, input: &[u8], out: &mut [u8]) {
        self.run(input, out, true);
    }

    fn encode(&self, input: &[u8], out: &mut [u8]) {
        self.run(input, out, false);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn differences_along_each_axis() {
        let data: Vec<u8> = [1u16, 3, 6, 10, 20, 15].iter().flat_map(|number| number.to_be_bytes()).collect();
        for (axis, expected) in [(0, [1u16, 3, 6, 9, 17, 9]), (1, [1, 2, 3, 10, 10, 0xfffb])] {
            let differences = Differences::new(&[2, 3], axis, 2, ByteOrder::Big).unwrap();
            let (mut encoded, mut decoded) = (vec![0; 12], vec![0; 12]);
            differences.encode(&data, &mut encoded);
            assert_eq!(encoded, expected.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<_>>());
            differences.decode(&encoded, &mut decoded);
            assert_eq!(decoded, data);
        }
        assert!(Differences::new(&[2], 0, 16, ByteOrder::Little).is_none());
        assert!(Differences::new(&[2], 1, 2, ByteOrder::Little).is_none());
        assert!(Differences::new(&[u64::MAX, 2], 0, 2, ByteOrder::Little).is_none());
    }

    proptest! {
        #[test]
        fn round_trip(
            bytes in prop::collection::vec(any::<u8>(), 96),
            width in prop::sample::select(vec![1usize, 2, 4, 8]),
            axis in 0usize..3,
            is_big: bool,
        ) {
            let shape = [2, 2, 24 / width as u64];
            let order = if is_big { ByteOrder::Big } else { ByteOrder::Little };
            let differences = Differences::new(&shape, axis, width, order).unwrap();
            let (mut encoded, mut decoded) = (vec![0; 96], vec![0; 96]);
            differences.encode(&bytes, &mut encoded);
            differences.decode(&encoded, &mut decoded);
            prop_assert_eq!(decoded, bytes);
        }
    }
}
