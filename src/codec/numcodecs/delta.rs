//! `numcodecs.delta`: differences between neighbours, in storage order. v2 id: `delta`.
//!
//! Format: numcodecs `Delta`: the first element, then `x[i] - x[i-1]` in `dtype`, wrapping, cast to `astype` (absent:
//! `dtype`); a first element that does not fit is an error. Decoding adds in the type that NumPy promotes both to.
//! Differences of bools are exclusive ors, and decoding undoes them as exclusive ors. Uses `filter`.
//!
//! ```json
//! {"name": "numcodecs.delta", "configuration": {"dtype": "<i4", "astype": "<i2"}}
//! ```
//!
//! numcodecs itself undoes the difference of bools with an or, and so does not restore its own data.

use half::f16;

use super::filter::{Dtypes, NumericFilter, build as build_filter};
use crate::codec::config::Configuration;
use crate::codec::kernels::dtype::promote;
use crate::codec::kernels::element::{Element, WideNumber, transform};
use crate::codec::{Codec, CodecEntry, CodecError, CodecResult, Context};
use crate::metadata::data_type::numeric::{Bool, Complex, NumericType, with_numeric_type};

/// The codec's names and constructor.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["numcodecs.delta", "delta"], v2: &["delta"], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    let dtypes = Dtypes::read(&mut configuration, context, "dtype", "astype")?;
    configuration.finish()?;
    build_filter(context, Delta, dtypes)
}

struct Delta;

impl NumericFilter for Delta {
    const IS_ELEMENTWISE: bool = false;
    const KEEPS_SHAPE: bool = false;

    // Floats are rounded, differences of a narrower type are cut, and bools other than 0 come back as 1.
    fn is_lossless(&self, dtypes: Dtypes) -> bool {
        dtypes.decoded.numeric_type.is_integer() && dtypes.encoded.numeric_type == dtypes.decoded.numeric_type
    }

    fn decode(&self, dtypes: Dtypes, input: &[u8], out: &mut [u8]) {
        let Dtypes { decoded, encoded, .. } = dtypes;
        let computed = match decoded.numeric_type {
            NumericType::Bool => NumericType::Bool,
            numeric_type => promote(numeric_type, encoded.numeric_type),
        };
        with_numeric_type!(computed, W => {
            // The first element is not a sum: 0.0 + -0.0 would lose its sign.
            let mut sum: Option<W> = None;
            transform::<W>(input, encoded, out, decoded, |block| {
                for element in block {
                    *element = sum.map_or(*element, |sum| sum.plus(*element));
                    sum = Some(*element);
                }
            });
        });
    }

    fn encode(&self, dtypes: Dtypes, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let Dtypes { decoded, encoded, .. } = dtypes;
        with_numeric_type!(decoded.numeric_type, W => {
            let first = input.get(..W::SIZE).map(|bytes| W::read(bytes, decoded.byte_order).widen());
            if first.is_some_and(|first| !fits(first, encoded.numeric_type)) {
                return Err(CodecError::new(format_args!(
                    "the first element, {first:?}, does not fit {:?}", encoded.numeric_type
                )));
            }
            let mut previous = None;
            transform::<W>(input, decoded, out, encoded, |block| {
                for element in block {
                    let present = *element;
                    if let Some(previous) = previous.replace(present) {
                        *element = present.minus(previous);
                    }
                }
            });
        });
        Ok(())
    }
}

/// Returns whether a number can be stored as a type. NumPy casts the differences unchecked, but not the first element.
fn fits(number: WideNumber, numeric_type: NumericType) -> bool {
    let Some(format) = numeric_type.data_type().integer_format() else { return true };
    let (low, high) = format.range();
    let whole = match number {
        WideNumber::Int(number) => i128::from(number),
        WideNumber::UInt(number) => i128::from(number),
        // A conversion of a float beyond i128 gives its bounds, which are outside as well.
        WideNumber::Float(number) | WideNumber::Complex(number, _) if !number.is_nan() => number as i128,
        WideNumber::Float(_) | WideNumber::Complex(..) => return false,
    };
    (low..=high).contains(&whole)
}

/// Sums and differences as NumPy has them.
trait Additive: Element {
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
}

macro_rules! additive {
    ($($T:ty: |$one:ident, $two:ident| $plus:expr, $minus:expr;)*) => {$(
        impl Additive for $T {
            #[inline(always)]
            fn plus(self, other: Self) -> Self { let ($one, $two) = (self, other); $plus }
            #[inline(always)]
            fn minus(self, other: Self) -> Self { let ($one, $two) = (self, other); $minus }
        }
    )*};
}

additive! {
    i8: |a, b| a.wrapping_add(b), a.wrapping_sub(b);
    i16: |a, b| a.wrapping_add(b), a.wrapping_sub(b);
    i32: |a, b| a.wrapping_add(b), a.wrapping_sub(b);
    i64: |a, b| a.wrapping_add(b), a.wrapping_sub(b);
    u8: |a, b| a.wrapping_add(b), a.wrapping_sub(b);
    u16: |a, b| a.wrapping_add(b), a.wrapping_sub(b);
    u32: |a, b| a.wrapping_add(b), a.wrapping_sub(b);
    u64: |a, b| a.wrapping_add(b), a.wrapping_sub(b);
    f16: |a, b| f16::from_f32(a.to_f32() + b.to_f32()), f16::from_f32(a.to_f32() - b.to_f32());
    f32: |a, b| a + b, a - b;
    f64: |a, b| a + b, a - b;
    Bool: |a, b| Bool(u8::from((a.0 != 0) != (b.0 != 0))), Bool(u8::from((a.0 != 0) != (b.0 != 0)));
    Complex<f32>: |a, b| Complex { real: a.real + b.real, imaginary: a.imaginary + b.imaginary },
        Complex { real: a.real - b.real, imaginary: a.imaginary - b.imaginary };
    Complex<f64>: |a, b| Complex { real: a.real + b.real, imaginary: a.imaginary + b.imaginary },
        Complex { real: a.real - b.real, imaginary: a.imaginary - b.imaginary };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    /// Encodes and decodes.
    fn round_trip(input: &[u8], decoded: &str, encoded: &str) -> CodecResult<Vec<u8>> {
        let dtypes = Dtypes::parse(decoded, encoded);
        let mut stored = vec![0xa5; dtypes.encoded_len(input.len() as u64) as usize];
        Delta.encode(dtypes, input, &mut stored)?;
        let mut out = vec![0xa5; input.len()];
        Delta.decode(dtypes, &stored, &mut out);
        Ok(out)
    }

    #[test]
    fn first_element_must_fit() {
        assert!(round_trip(&300i16.to_le_bytes(), "<i2", "i1").is_err());
        assert!(round_trip(&(-1i16).to_le_bytes(), "<i2", "u2").is_err());
        assert!(round_trip(&f32::NAN.to_le_bytes(), "<f4", "i8").is_err());
        assert!(round_trip(&1e30f64.to_be_bytes(), ">f8", "i8").is_err());
        assert_eq!(round_trip(&127i16.to_le_bytes(), "<i2", "i1").unwrap(), 127i16.to_le_bytes());
        assert_eq!(round_trip(&[], "<i2", "i1").unwrap(), [0u8; 0]);
    }

    proptest! {
        /// Integers wrap, so nothing is lost, over the borders of the blocks that they are worked on in too.
        #[test]
        fn integers_come_back(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
            for text in ["|i1", "|u1", "<i2", ">u2", "<u4", ">i4", "<i8", ">u8"] {
                let input = &bytes[..bytes.len() / 8 * 8];
                prop_assert_eq!(&round_trip(input, text, text).unwrap(), input, "{}", text);
            }
        }
    }
}
