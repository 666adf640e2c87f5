//! `numcodecs.delta`: differences between neighbours, in the order that the elements lie. v2 id: `delta`.
//!
//! Format: numcodecs `Delta`: the first element, then `x[i] - x[i-1]` in `dtype`, wrapping, cast to `astype` (absent:
//! `dtype`). Decoding adds in the type that NumPy finds for both together. Differences of bools are exclusive ors,
//! and undone as such. Uses `numeric_filter`.
//!
//! ```json
//! {"name": "numcodecs.delta", "configuration": {"dtype": "<i4", "astype": "<i2"}}
//! ```
//!
//! numcodecs itself undoes the difference of bools with an or, and so does not get its own data back.

use half::f16;

use super::configuration::Configuration;
use super::numeric_dtype::{Bool, Complex, Element, NumericDtype, NumericKind, transform, with_element};
use super::numeric_filter::{Dtypes, NumericFilter, build as build_filter};
use super::{Codec, CodecResult, Context, Entry};

/// The codec's names and constructor.
pub const ENTRY: Entry = Entry { v3: &["numcodecs.delta", "delta"], v2: &["delta"], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::of(context);
    let dtypes = Dtypes::read(&mut configuration, context, "dtype", "astype")?;
    configuration.finish()?;
    build_filter(context, Delta, dtypes)
}

struct Delta;

impl NumericFilter for Delta {
    const IS_ELEMENTWISE: bool = false;
    const KEEPS_SHAPE: bool = false;

    fn decode(&self, input: &[u8], encoded: NumericDtype, out: &mut [u8], decoded: NumericDtype) {
        let kind = match decoded.kind {
            NumericKind::Bool => NumericKind::Bool,
            kind => kind.promote(encoded.kind),
        };
        with_element!(kind, W => {
            let mut sum = W::default();
            transform::<W>(input, encoded, out, decoded, |block| {
                for element in block {
                    sum = sum.plus(*element);
                    *element = sum;
                }
            });
        });
    }

    fn encode(
        &self,
        input: &[u8],
        decoded: NumericDtype,
        out: &mut [u8],
        encoded: NumericDtype,
    ) -> CodecResult<()> {
        with_element!(decoded.kind, W => {
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
