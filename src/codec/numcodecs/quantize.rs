//! `numcodecs.quantize`: floats rounded in binary to a number of decimal digits. v2 id: `quantize`.
//!
//! Format: numcodecs `Quantize`: encoding rounds `x` to a multiple of the power of two that is fine enough for
//! `digits`, in `dtype`, and casts to `astype` (absent: `dtype`); decoding only casts. Uses `filter`.
//!
//! ```json
//! {"name": "numcodecs.quantize", "configuration": {"digits": 3, "dtype": "<f8", "astype": "<f4"}}
//! ```

use half::f16;

use super::filter::{Dtypes, NumericFilter, build as build_filter};
use crate::codec::config::Configuration;
use crate::codec::kernels::element::{Element, WideNumber, transform};
use crate::codec::{Codec, CodecEntry, CodecResult, Context};
use crate::metadata::data_type::numeric::NumericType;

/// The codec's names and constructor.
pub const ENTRY: CodecEntry =
    CodecEntry { v3: &["numcodecs.quantize", "quantize"], v2: &["quantize"], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    let digits = configuration.number("digits")?;
    let digits = configuration.require("digits", digits)?;
    let dtypes = Dtypes::read(&mut configuration, context, "dtype", "astype")?;
    for (key, dtype) in [("dtype", dtypes.decoded), ("astype", dtypes.encoded)] {
        if !dtype.numeric_type.is_float() {
            return Err(configuration.error(key, "must be a float"));
        }
    }
    configuration.finish()?;
    build_filter(context, Quantize { scale: scale(digits) }, dtypes)
}

/// Computes the inverse of the step, a power of two, in the same steps as numcodecs.
fn scale(digits: f64) -> f64 {
    let precision = 10f64.powf(-digits);
    let exponent = precision.log10();
    let exponent = if exponent < 0.0 { exponent.floor() } else { exponent.ceil() };
    let bits = 10f64.powf(-exponent).log2().ceil();
    2f64.powf(bits)
}

struct Quantize {
    scale: f64,
}

impl NumericFilter for Quantize {
    const IS_ELEMENTWISE: bool = true;
    const KEEPS_SHAPE: bool = true;

    fn is_lossless(&self, _: Dtypes) -> bool {
        false
    }

    fn encode(&self, dtypes: Dtypes, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let Dtypes { decoded, encoded, .. } = dtypes;
        match decoded.numeric_type {
            // NumPy rounds to half after each operation.
            NumericType::F16 => {
                let scale = f16::narrow(WideNumber::Float(self.scale)).to_f32();
                transform::<f16>(input, decoded, out, encoded, |block| {
                    for x in block {
                        let rounded = f16::from_f32(scale * x.to_f32()).to_f32().round_ties_even();
                        *x = f16::from_f32(f16::from_f32(rounded).to_f32() / scale);
                    }
                });
            }
            NumericType::F32 => {
                let scale = self.scale as f32;
                transform::<f32>(input, decoded, out, encoded, |block| {
                    block.iter_mut().for_each(|x| *x = (scale * *x).round_ties_even() / scale);
                });
            }
            _ => transform::<f64>(input, decoded, out, encoded, |block| {
                block.iter_mut().for_each(|x| *x = (self.scale * *x).round_ties_even() / self.scale);
            }),
        }
        Ok(())
    }
}
