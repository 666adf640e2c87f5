//! What both editions have: fields with values and bitmaps, scales, and simple packing.

use super::bits::Bits;
use crate::codec::{CodecError, CodecResult, scratch};

/// How packed integers become values: (integer × 2^`binary` + `reference`) × 10^-`decimal`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// What an integer of 0 stands for, before the decimal scale.
    pub reference: f64,
    /// The exponent of 2.
    pub binary: i32,
    /// The negative exponent of 10.
    pub decimal: i32,
}

impl Scale {
    /// Returns what turns an integer into its value.
    pub fn apply(self) -> impl Fn(f64) -> f64 {
        let (binary, decimal) = (2f64.powi(self.binary), 10f64.powi(-self.decimal));
        move |integer| (integer * binary + self.reference) * decimal
    }
}

/// The values of a field as they are packed, and where they are.
pub struct Field<'a> {
    /// The values that have data.
    pub values: Vec<f64>,
    /// One bit for each point, 1 where it has data. `None`: all have data.
    pub bitmap: Option<&'a [u8]>,
}

/// Creates an error about a message.
pub fn damaged(what: &str) -> CodecError {
    CodecError::new(format_args!("the GRIB message {what}"))
}

/// Fails if the grid of a message has another number of points than the array.
pub fn check_points(found: usize, expected: usize) -> CodecResult<()> {
    if found == expected {
        return Ok(());
    }
    Err(CodecError::new(format_args!("the GRIB message has {found} points where {expected} were expected")))
}

/// Returns the number that is stored with its sign in the highest bit.
pub fn signed(stored: u16) -> i32 {
    let magnitude = i32::from(stored & 0x7fff);
    if stored & 0x8000 == 0 { magnitude } else { -magnitude }
}

/// Returns how many of the first `points` bits are 1.
pub fn count_ones(bitmap: &[u8], points: usize) -> CodecResult<usize> {
    let short = || damaged("has a bitmap that is too short");
    let whole = bitmap.get(..points / 8).ok_or_else(short)?;
    let ones: usize = whole.iter().map(|byte| byte.count_ones() as usize).sum();
    match points % 8 {
        0 => Ok(ones),
        rest => {
            let last = bitmap.get(points / 8).ok_or_else(short)?;
            Ok(ones + (last >> (8 - rest)).count_ones() as usize)
        }
    }
}

/// Returns the scale and the bits of a number, with which the templates of packing begin.
pub fn scale(template: &[u8]) -> CodecResult<(Scale, u32)> {
    let [r1, r2, r3, r4, e1, e2, d1, d2, bits, ..] = template else {
        return Err(damaged("has a section of a wrong length"));
    };
    let scale = Scale {
        reference: f64::from(f32::from_be_bytes([*r1, *r2, *r3, *r4])),
        binary: signed(u16::from_be_bytes([*e1, *e2])),
        decimal: signed(u16::from_be_bytes([*d1, *d2])),
    };
    Ok((scale, u32::from(*bits)))
}

/// Returns values of one length in bits. Without bits, all are the reference.
pub fn simple(packed: &[u8], bits: u32, scale: Scale, count: usize) -> CodecResult<Vec<f64>> {
    scratch::probe(count.saturating_mul(size_of::<f64>()))?;
    if bits == 0 {
        return Ok(vec![scale.reference; count]);
    }
    let mut numbers = Bits::new(packed);
    numbers.check(count, bits)?;
    let value = scale.apply();
    (0..count).map(|_| numbers.number(bits).map(|number| value(f64::from(number)))).collect()
}
