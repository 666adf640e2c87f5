//! Casts between the common types at full speed, for blocks of ordinary values.
//!
//! A [`CastKernel`] casts a block and says whether every element was an ordinary one: in range, no NaN, and rounded
//! as requested. If not, the block is cast again by [`crate::metadata::data_type::exact_number`], which handles every case and
//! gives the same results for ordinary values (a test compares them). Uses `metadata`.

use half::f16;

use crate::codec::kernels::dtype::computed_type;
use crate::metadata::DataType;
use crate::metadata::data_type::exact_number::{OutOfRange, Rounding};
use crate::metadata::data_type::numeric::{NumericType, with_numeric_type};

/// Casts the elements of the shorter slice. `out` is valid only if the result is true.
pub type CastKernel = fn(input: &[u8], out: &mut [u8]) -> bool;

/// A loop over elements: `$cast` gives the target's value and whether it was an ordinary case.
macro_rules! kernel {
    ($source:ty, $target:ty, |$value:ident| $cast:expr) => {{
        fn kernel(input: &[u8], out: &mut [u8]) -> bool {
            let (input, _) = input.as_chunks::<{ size_of::<$source>() }>();
            let (out, _) = out.as_chunks_mut::<{ size_of::<$target>() }>();
            let mut is_ordinary = true;
            for (bytes, out) in input.iter().zip(out) {
                let $value = <$source>::from_le_bytes(*bytes);
                let (cast, is_so): ($target, bool) = $cast;
                is_ordinary &= is_so;
                *out = cast.to_le_bytes();
            }
            is_ordinary
        }
        Some(kernel as CastKernel)
    }};
}

macro_rules! integer_to_integer {
    ($source:ty, $target:ty, $out_of_range:expr) => {
        match $out_of_range {
            OutOfRange::Wrap => kernel!($source, $target, |value| (value as $target, true)),
            _ => kernel!($source, $target, |value| match <$target>::try_from(value) {
                Ok(same) => (same, true),
                Err(_) => (0, false),
            }),
        }
    };
}

macro_rules! integer_to_float {
    ($source:ty, $target:ty, $rounding:expr) => {
        match $rounding {
            Rounding::NearestEven => kernel!($source, $target, |value| (value as $target, true)),
            _ if <$source>::BITS <= <$target>::MANTISSA_DIGITS => {
                kernel!($source, $target, |value| (value as $target, true))
            }
            _ => None,
        }
    };
}

macro_rules! float_to_integer {
    ($source:ty, $target:ty, $rounding:expr) => {
        match $rounding {
            Rounding::NearestEven => float_to_integer!($source, $target, by nearest_even),
            Rounding::TowardsZero => float_to_integer!($source, $target, by towards_zero),
            Rounding::TowardsPositive => float_to_integer!($source, $target, by towards_positive),
            Rounding::TowardsNegative => float_to_integer!($source, $target, by towards_negative),
            Rounding::NearestAway => float_to_integer!($source, $target, by nearest_away),
        }
    };
    ($source:ty, $target:ty, by $round:ident) => {
        kernel!($source, $target, |value| {
            let whole = $round(f64::from(value));
            let least = (<$target>::MIN as f64).max(-GREATEST_WHOLE);
            let greatest = (<$target>::MAX as f64).min(GREATEST_WHOLE);
            (whole as $target, least <= whole && whole <= greatest)
        })
    };
}

/// Returns the kernel for a pair of types, if there is one.
#[allow(clippy::unnecessary_fallible_conversions, clippy::useless_conversion, clippy::unnecessary_cast)]
pub fn find(
    source: &DataType,
    target: &DataType,
    rounding: Rounding,
    out_of_range: OutOfRange,
) -> Option<CastKernel> {
    use NumericType::{F16, F32, F64};
    match (computed_type(source)?, computed_type(target)?) {
        (F16, F32) => kernel!(f16, f32, |value| (value.to_f32(), !value.is_nan())),
        (F16, F64) => kernel!(f16, f64, |value| (value.to_f64(), !value.is_nan())),
        (F32, F64) => kernel!(f32, f64, |value| (f64::from(value), !value.is_nan())),
        // A finite value that becomes infinite is out of range.
        (F32, F16) if rounding == Rounding::NearestEven => {
            kernel!(f32, f16, |value| {
                let cast = f16::from_f32(value);
                (cast, cast.is_finite() | value.is_infinite())
            })
        }
        (F64, F32) if rounding == Rounding::NearestEven => {
            kernel!(f64, f32, |value| (value as f32, (value as f32).is_finite() | value.is_infinite()))
        }
        (F32, target) => {
            with_numeric_type!(target, integer T => float_to_integer!(f32, T, rounding), else None)
        }
        (F64, target) => {
            with_numeric_type!(target, integer T => float_to_integer!(f64, T, rounding), else None)
        }
        (source, F32) => {
            with_numeric_type!(source, integer S => integer_to_float!(S, f32, rounding), else None)
        }
        (source, F64) => {
            with_numeric_type!(source, integer S => integer_to_float!(S, f64, rounding), else None)
        }
        (source, target) => with_numeric_type!(
            source,
            integer S => with_numeric_type!(target, integer T => integer_to_integer!(S, T, out_of_range), else None),
            else None
        ),
    }
}

/// The functions below are exact up to this value; a greater value gives a result above it, and NaN gives NaN.
const GREATEST_WHOLE: f64 = (1u64 << 50) as f64;

/// Adding it to a float64 pushes out all digits after the point, which rounds to nearest, ties to even.
/// Unlike `round_ties_even` this needs no instruction beyond SSE2, and vectorises.
const PUSH_OUT: f64 = 1.5 * (1u64 << 52) as f64;

#[inline(always)]
fn nearest_even(value: f64) -> f64 {
    (value + PUSH_OUT) - PUSH_OUT
}

#[inline(always)]
fn towards_negative(value: f64) -> f64 {
    let near = nearest_even(value);
    near - if near > value { 1.0 } else { 0.0 }
}

#[inline(always)]
fn towards_positive(value: f64) -> f64 {
    let near = nearest_even(value);
    near + if near < value { 1.0 } else { 0.0 }
}

#[inline(always)]
fn towards_zero(value: f64) -> f64 {
    if value < 0.0 { towards_positive(value) } else { towards_negative(value) }
}

#[inline(always)]
fn nearest_away(value: f64) -> f64 {
    let whole = towards_zero(value);
    let step = if (value - whole).abs() >= 0.5 { 1.0 } else { 0.0 };
    if value < 0.0 { whole - step } else { whole + step }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn rounding_is_that_of_the_standard_library() {
        let mut values: Vec<f64> = (-4000..4000).map(|n| f64::from(n) / 16.0).collect();
        for power in 0..50 {
            let top = 2f64.powi(power);
            values.extend([top, top - 0.5, top + 0.5, top.next_up(), (top - 0.5).next_up()]);
            values.extend([-top, 0.5 - top, -0.5 - top, -top.next_up(), (0.5 - top).next_up()]);
        }
        for value in values {
            assert_eq!(nearest_even(value), value.round_ties_even(), "{value:?}");
            assert_eq!(towards_zero(value), value.trunc(), "{value:?}");
            assert_eq!(towards_negative(value), value.floor(), "{value:?}");
            assert_eq!(towards_positive(value), value.ceil(), "{value:?}");
            assert_eq!(nearest_away(value), value.round(), "{value:?}");
        }
        for value in [GREATEST_WHOLE * 1.5, 1e300, f64::INFINITY] {
            for round in [nearest_even, towards_zero, towards_negative, towards_positive, nearest_away] {
                assert!(round(value) > GREATEST_WHOLE);
                assert!(round(-value) < -GREATEST_WHOLE);
                assert!(round(f64::NAN).is_nan());
            }
        }
    }
}
