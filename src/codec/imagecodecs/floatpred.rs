//! `imagecodecs_floatpred`: TIFF's predictor 3, the bytes of floats by significance, as differences.
//!
//! Spec: Adobe Photoshop TIFF Technical Note 3. Uses `predictor`.
//!
//! ```json
//! {"name": "imagecodecs_floatpred", "configuration": {"shape": [256, 256], "dtype": "<f4", "axis": -1, "dist": 1}}
//! ```
//!
//! A row has the most significant bytes of all its elements, then the next ones, …; each byte is the difference to the one `dist` before
//! it. A row is the elements along the last axis, or along the last two if `axis` is the one before: then the last axis has the
//! samples of a pixel, and bytes are compared with those of the pixel before. The encoded bytes do not have a byte order.

use super::predictor::{Predictor, build as build_predictor, read_axis, read_shape};
use crate::codec::config::Configuration;
use crate::codec::numcodecs::filter::read_dtype;
use crate::codec::{Codec, CodecEntry, CodecError, CodecResult, Context};
use crate::metadata::ByteOrder;

/// The codec in the registry.
pub const ENTRY: CodecEntry =
    CodecEntry { v3: &["imagecodecs_floatpred"], v2: &["imagecodecs_floatpred"], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    let dtype = read_dtype(&mut configuration, "dtype")?;
    let dtype = configuration.require("dtype", dtype)?;
    if !dtype.numeric_type.is_float() {
        return Err(CodecError::unsupported(
            "codec \"imagecodecs_floatpred\" for elements that are not floats",
        ));
    }
    let width = dtype.numeric_type.size();
    let shape = read_shape(&mut configuration, context, width)?;
    let axis = read_axis(&mut configuration, shape.len())?;
    let dist = configuration.integer("dist", 1..=4)?.unwrap_or(1);
    configuration.finish()?;
    if shape.len() - axis > 2 {
        return Err(CodecError::unsupported(
            "codec \"imagecodecs_floatpred\" along another axis than one of the last two",
        ));
    }
    let byte_order = if context.array().is_ok() { ByteOrder::Little } else { dtype.byte_order };
    let length = |lengths: &[u64]| {
        let product = lengths.iter().try_fold(1u64, |product, &length| product.checked_mul(length));
        product
            .and_then(|length| usize::try_from(length).ok())
            .ok_or_else(|| CodecError::new("a chunk is too long"))
    };
    let samples = length(shape.get(axis + 1..).unwrap_or_default())?;
    let predictor = FloatPredictor {
        row: length(shape.get(axis..).unwrap_or_default())?,
        distance: samples.saturating_mul(usize::try_from(dist).unwrap_or(1)),
        width,
        is_big_endian: byte_order == ByteOrder::Big,
        size_bytes: length(&shape)?.saturating_mul(width),
    };
    if predictor.distance > 0 && !predictor.row.is_multiple_of(predictor.distance) {
        return Err(configuration_error(predictor.row, predictor.distance));
    }
    Ok(build_predictor(context, predictor, dtype.numeric_type.data_type(), byte_order, shape))
}

fn configuration_error(row: usize, distance: usize) -> CodecError {
    CodecError::new(format_args!(
        "codec \"imagecodecs_floatpred\": rows of {row} elements are not a multiple of {distance}"
    ))
}

struct FloatPredictor {
    /// Elements of a row.
    row: usize,
    /// Bytes from one that is compared to the next.
    distance: usize,
    /// Bytes of an element.
    width: usize,
    is_big_endian: bool,
    size_bytes: usize,
}

impl FloatPredictor {
    /// Returns the place in an element of its byte with this significance, 0 is the most significant.
    fn place(&self, significance: usize) -> usize {
        if self.is_big_endian { significance } else { self.width - 1 - significance }
    }

    fn rows<'a>(
        &self,
        input: &'a [u8],
        out: &'a mut [u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a mut [u8])> + use<'a> {
        let bytes = self.row.saturating_mul(self.width).max(1);
        input.chunks_exact(bytes).zip(out.chunks_exact_mut(bytes))
    }
}

impl Predictor for FloatPredictor {
    fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    fn decode(&self, input: &[u8], out: &mut [u8]) {
        // The last bytes of a row, one for each sample.
        let mut previous = vec![0u8; self.distance.min(self.row)];
        for (input, out) in self.rows(input, out) {
            previous.fill(0);
            for (significance, plane) in input.chunks_exact(self.row.max(1)).enumerate() {
                let place = self.place(significance);
                for (pixel, elements) in plane
                    .chunks_exact(previous.len().max(1))
                    .zip(out.chunks_exact_mut(self.width * previous.len().max(1)))
                {
                    let bytes = elements.iter_mut().skip(place).step_by(self.width);
                    for ((previous, &difference), byte) in previous.iter_mut().zip(pixel).zip(bytes) {
                        *previous = previous.wrapping_add(difference);
                        *byte = *previous;
                    }
                }
            }
        }
    }

    fn encode(&self, input: &[u8], out: &mut [u8]) {
        let mut previous = vec![0u8; self.distance.min(self.row)];
        for (input, out) in self.rows(input, out) {
            previous.fill(0);
            for (significance, plane) in out.chunks_exact_mut(self.row.max(1)).enumerate() {
                let place = self.place(significance);
                for (pixel, elements) in plane
                    .chunks_exact_mut(previous.len().max(1))
                    .zip(input.chunks_exact(self.width * previous.len().max(1)))
                {
                    let bytes = elements.iter().skip(place).step_by(self.width);
                    for ((previous, difference), &byte) in previous.iter_mut().zip(pixel).zip(bytes) {
                        *difference = byte.wrapping_sub(*previous);
                        *previous = byte;
                    }
                }
            }
        }
    }

    fn takes_stored_bytes(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    fn predictor(
        row: usize,
        distance: usize,
        width: usize,
        is_big_endian: bool,
        rows: usize,
    ) -> FloatPredictor {
        FloatPredictor { row, distance, width, is_big_endian, size_bytes: rows * row * width }
    }

    #[test]
    fn bytes_by_significance() {
        let data: Vec<u8> =
            [0x0102_0304u32, 0x1112_1314].iter().flat_map(|bits| bits.to_le_bytes()).collect();
        let mut encoded = vec![0; 8];
        predictor(2, 1, 4, false, 1).encode(&data, &mut encoded);
        assert_eq!(encoded, [1, 0x10, 0xf1, 0x10, 0xf1, 0x10, 0xf1, 0x10]);
        let big: Vec<u8> = data.chunks(4).flat_map(|four| four.iter().rev().copied()).collect();
        let mut decoded = vec![0; 8];
        predictor(2, 1, 4, true, 1).decode(&encoded, &mut decoded);
        assert_eq!(decoded, big);
        predictor(2, 2, 4, false, 1).encode(&data, &mut encoded);
        assert_eq!(encoded, [1, 0x11, 1, 1, 1, 1, 1, 1]);
    }

    proptest! {
        #[test]
        fn round_trip(
            bytes in prop::collection::vec(any::<u8>(), 96),
            width in prop::sample::select(vec![2usize, 4, 8]),
            distance in prop::sample::select(vec![1usize, 2, 3]),
            is_big_endian: bool,
        ) {
            let predictor = predictor(48 / width, distance, width, is_big_endian, 2);
            let (mut encoded, mut decoded) = (vec![0; 96], vec![0; 96]);
            predictor.encode(&bytes, &mut encoded);
            predictor.decode(&encoded, &mut decoded);
            prop_assert_eq!(decoded, bytes);
        }
    }
}
