//! `numcodecs.fixedscaleoffset`: `(x - offset) * scale`, rounded and stored as another type. v2 id: `fixedscaleoffset`.
//!
//! Format: numcodecs `FixedScaleOffset`: encoding computes in `dtype`, rounds half to even and casts to `astype`
//! (absent: `dtype`), wrapping; decoding computes `x / scale + offset` in `astype` where that is a float, else in f64,
//! and casts to `dtype`. Parameters take the type of the elements as Python's numbers do in NumPy, so integers
//! with a whole `offset` and `scale` are encoded in wrapping integer arithmetic. Uses `filter`.
//!
//! ```json
//! {"name": "numcodecs.fixedscaleoffset",
//!  "configuration": {"offset": 1000, "scale": 10, "dtype": "<f8", "astype": "|u1"}}
//! ```

use half::f16;
use serde_json::Value;

use super::filter::{Dtypes, NumericFilter, build as build_filter};
use crate::codec::config::Configuration;
use crate::codec::kernels::dtype::NumericDtype;
use crate::codec::kernels::element::{Element, WideNumber, transform};
use crate::codec::{Codec, CodecEntry, CodecError, CodecResult, Context};
use crate::metadata::ByteOrder;
use crate::metadata::data_type::numeric::{Complex, NumericType, with_numeric_type};

/// The codec's names and constructor.
pub const ENTRY: CodecEntry =
    CodecEntry { v3: &["numcodecs.fixedscaleoffset", "fixedscaleoffset"], v2: &["fixedscaleoffset"], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    let offset = Parameter::read(&mut configuration, "offset")?;
    let scale = Parameter::read(&mut configuration, "scale")?;
    let dtypes = Dtypes::read(&mut configuration, context, "dtype", "astype")?;
    configuration.finish()?;
    build_filter(context, FixedScaleOffset { offset, scale }, dtypes)
}

/// Runs `$body` with `$W` as the type that elements are computed in: their own for floats, else f64.
macro_rules! with_float {
    ($numeric_type:expr, $W:ident => $body:expr) => {
        match $numeric_type {
            NumericType::F16 => {
                type $W = f16;
                $body
            }
            NumericType::F32 => {
                type $W = f32;
                $body
            }
            NumericType::C64 => {
                type $W = Complex<f32>;
                $body
            }
            NumericType::C128 => {
                type $W = Complex<f64>;
                $body
            }
            _ => {
                type $W = f64;
                $body
            }
        }
    };
}

/// A number of the configuration: a Python int if it is written as one, else a Python float.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Parameter {
    float: f64,
    /// The exact value, if it is written as a whole number.
    whole: Option<i128>,
}

impl Parameter {
    fn read(configuration: &mut Configuration<'_>, key: &'static str) -> CodecResult<Parameter> {
        let whole = match configuration.value(key) {
            Some(Value::Number(number)) => number.to_string().parse().ok(),
            _ => None,
        };
        let float = configuration.number(key)?;
        Ok(Parameter { float: configuration.require(key, float)?, whole })
    }
}

struct FixedScaleOffset {
    offset: Parameter,
    scale: Parameter,
}

impl NumericFilter for FixedScaleOffset {
    const IS_ELEMENTWISE: bool = true;
    const KEEPS_SHAPE: bool = false;

    fn is_lossless(&self, _: Dtypes) -> bool {
        false
    }

    fn decode(&self, dtypes: Dtypes, input: &[u8], out: &mut [u8]) {
        let Dtypes { decoded, encoded, .. } = dtypes;
        let (scale, offset) = (self.scale.float, self.offset.float);
        with_float!(encoded.numeric_type, W => {
            let (scale, offset) = (W::from_f64(scale), W::from_f64(offset));
            transform::<W>(input, encoded, out, decoded, |block| {
                block.iter_mut().for_each(|x| *x = x.over(scale).plus(offset));
            });
        });
    }

    fn encode(&self, dtypes: Dtypes, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let Dtypes { decoded, encoded, .. } = dtypes;
        let numeric_type = decoded.numeric_type;
        if numeric_type.is_float() || numeric_type.is_complex() || self.offset.whole.is_none() {
            self.encode_floats(dtypes, input, out);
            return Ok(());
        }
        // NumPy takes bools with a Python int for its default integer.
        let numeric_type = if numeric_type == NumericType::Bool { NumericType::I64 } else { numeric_type };
        let offset = self.offset.whole.unwrap_or_default();
        match self.scale.whole {
            Some(scale) => with_numeric_type!(numeric_type, integer W => {
                let (offset, scale) = (in_range::<W>(offset, "offset")?, in_range::<W>(scale, "scale")?);
                transform::<W>(input, decoded, out, encoded, |block| {
                    block.iter_mut().for_each(|x| *x = x.wrapping_sub(offset).wrapping_mul(scale));
                });
            }, else {}),
            // An integer difference, then a float product.
            None => with_numeric_type!(numeric_type, integer W => {
                let offset = in_range::<W>(offset, "offset")?;
                let between = NumericDtype { numeric_type, byte_order: ByteOrder::Little };
                let mut differences = vec![0; input.len() / decoded.numeric_type.size() * numeric_type.size()];
                transform::<W>(input, decoded, &mut differences, between, |block| {
                    block.iter_mut().for_each(|x| *x = x.wrapping_sub(offset));
                });
                transform::<f64>(&differences, between, out, encoded, |block| {
                    block.iter_mut().for_each(|x| *x = x.times(self.scale.float).rounded());
                });
            }, else {}),
        }
        Ok(())
    }
}

impl FixedScaleOffset {
    fn encode_floats(&self, dtypes: Dtypes, input: &[u8], out: &mut [u8]) {
        let Dtypes { decoded, encoded, .. } = dtypes;
        with_float!(decoded.numeric_type, W => {
            let (scale, offset) = (W::from_f64(self.scale.float), W::from_f64(self.offset.float));
            transform::<W>(input, decoded, out, encoded, |block| {
                block.iter_mut().for_each(|x| *x = x.less(offset).times(scale).rounded());
            });
        });
    }
}

/// Converts a Python int to an element, or returns NumPy's error that it does not fit.
fn in_range<W: TryFrom<i128> + Element>(number: i128, key: &str) -> CodecResult<W> {
    W::try_from(number).map_err(|_| {
        CodecError::new(format_args!(
            "fixedscaleoffset: \"{key}\" {number} does not fit {:?} elements",
            W::NUMERIC_TYPE
        ))
    })
}

/// Arithmetic in a float type, rounded to it after each operation.
trait FloatArithmetic: Element {
    fn from_f64(number: f64) -> Self;
    fn plus(self, other: Self) -> Self;
    fn less(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn over(self, other: Self) -> Self;
    /// Rounds to whole numbers, half to even.
    fn rounded(self) -> Self;
}

macro_rules! real_float {
    ($($T:ident)*) => {$(
        impl FloatArithmetic for $T {
            #[inline(always)]
            fn from_f64(number: f64) -> Self { number as $T }
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn less(self, other: Self) -> Self { self - other }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self * other }
            #[inline(always)]
            fn over(self, other: Self) -> Self { self / other }
            #[inline(always)]
            fn rounded(self) -> Self { self.round_ties_even() }
        }
    )*};
}
real_float! { f32 f64 }

impl FloatArithmetic for f16 {
    fn from_f64(number: f64) -> Self {
        f16::narrow(WideNumber::Float(number))
    }
    fn plus(self, other: Self) -> Self {
        f16::from_f32(self.to_f32() + other.to_f32())
    }
    fn less(self, other: Self) -> Self {
        f16::from_f32(self.to_f32() - other.to_f32())
    }
    fn times(self, other: Self) -> Self {
        f16::from_f32(self.to_f32() * other.to_f32())
    }
    fn over(self, other: Self) -> Self {
        f16::from_f32(self.to_f32() / other.to_f32())
    }
    fn rounded(self) -> Self {
        f16::from_f32(self.to_f32().round_ties_even())
    }
}

/// The parameters are real; NumPy still computes with their zero imaginary parts, which shows in signed zeros, NaN
/// and, in a quotient, in the reciprocal that both parts are multiplied by.
impl<F: FloatArithmetic> FloatArithmetic for Complex<F>
where
    Complex<F>: Element,
{
    fn from_f64(number: f64) -> Self {
        Complex { real: F::from_f64(number), imaginary: F::from_f64(0.0) }
    }
    fn plus(self, other: Self) -> Self {
        Complex { real: self.real.plus(other.real), imaginary: self.imaginary.plus(other.imaginary) }
    }
    fn less(self, other: Self) -> Self {
        Complex { real: self.real.less(other.real), imaginary: self.imaginary.less(other.imaginary) }
    }
    fn times(self, other: Self) -> Self {
        Complex {
            real: self.real.times(other.real).less(self.imaginary.times(other.imaginary)),
            imaginary: self.real.times(other.imaginary).plus(self.imaginary.times(other.real)),
        }
    }
    fn over(self, other: Self) -> Self {
        let ratio = other.imaginary.over(other.real);
        let reciprocal = F::from_f64(1.0).over(other.real.plus(other.imaginary.times(ratio)));
        Complex {
            real: self.real.plus(self.imaginary.times(ratio)).times(reciprocal),
            imaginary: self.imaginary.less(self.real.times(ratio)).times(reciprocal),
        }
    }
    fn rounded(self) -> Self {
        Complex { real: self.real.rounded(), imaginary: self.imaginary.rounded() }
    }
}
