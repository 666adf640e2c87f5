//! Floats of at most 16 bits, by one description: sign, exponent, mantissa, bias, and what the highest codes mean.
//!
//! Spec: IEEE 754 for float16; the registered extensions bfloat16, float8_*, float6_*, float4_* (ml_dtypes has
//! the same formats under the same names). Uses `data_type` only.

use crate::metadata::DataType;

/// Which codes are not finite numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// As in IEEE 754: the highest exponent is infinity and NaN.
    Ieee,
    /// No infinity; NaN is all ones below the sign (`fn`), or all ones where there is no sign.
    NanIsAllOnes,
    /// No infinity and no negative zero; NaN is the code of negative zero (`fnuz`).
    NanIsNegativeZero,
    /// Every code is a finite number.
    None,
}

/// A float format of at most 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minifloat {
    /// Whether there is a sign bit. Without one there is no zero either (e8m0).
    pub is_signed: bool,
    /// Bits of the exponent.
    pub exponent_bits: u32,
    /// Bits of the mantissa.
    pub mantissa_bits: u32,
    /// What is subtracted from the stored exponent.
    pub bias: i32,
    /// What the highest codes mean.
    pub specials: Specials,
}

impl Minifloat {
    const fn new(exponent_bits: u32, mantissa_bits: u32, bias: i32, specials: Specials) -> Self {
        Minifloat { is_signed: true, exponent_bits, mantissa_bits, bias, specials }
    }

    /// The format of a data type, `None` for what is no float of at most 16 bits.
    pub fn of(data_type: &DataType) -> Option<Self> {
        use DataType::*;
        use Specials::{Ieee, NanIsAllOnes, NanIsNegativeZero};
        Some(match data_type {
            Float4E2M1Fn => Self::new(2, 1, 1, Specials::None),
            Float6E2M3Fn => Self::new(2, 3, 1, Specials::None),
            Float6E3M2Fn => Self::new(3, 2, 3, Specials::None),
            Float8E3M4 => Self::new(3, 4, 3, Ieee),
            Float8E4M3 => Self::new(4, 3, 7, Ieee),
            Float8E4M3Fn => Self::new(4, 3, 7, NanIsAllOnes),
            Float8E4M3B11Fnuz => Self::new(4, 3, 11, NanIsNegativeZero),
            Float8E4M3Fnuz => Self::new(4, 3, 8, NanIsNegativeZero),
            Float8E5M2 => Self::new(5, 2, 15, Ieee),
            Float8E5M2Fnuz => Self::new(5, 2, 16, NanIsNegativeZero),
            Float8E8M0Fnu => Minifloat { is_signed: false, ..Self::new(8, 0, 127, NanIsAllOnes) },
            Float16 => Self::new(5, 10, 15, Ieee),
            BFloat16 => Self::new(8, 7, 127, Ieee),
            _ => return None,
        })
    }

    /// Bits of a code, the sign included.
    pub fn bits(&self) -> u32 {
        u32::from(self.is_signed) + self.exponent_bits + self.mantissa_bits
    }

    /// The code with all bits below the sign set.
    fn all_ones(&self) -> u32 {
        (1 << (self.exponent_bits + self.mantissa_bits)) - 1
    }

    fn sign_bit(&self) -> u32 {
        u32::from(self.is_signed) << (self.exponent_bits + self.mantissa_bits)
    }

    /// The code of positive infinity, where there is one.
    pub fn infinity(&self) -> Option<u16> {
        let code = self.all_ones() - ((1 << self.mantissa_bits) - 1);
        (self.specials == Specials::Ieee).then_some(code as u16)
    }

    /// The code of the NaN that documents call `"NaN"`, where there is one.
    pub fn nan(&self) -> Option<u16> {
        match self.specials {
            Specials::Ieee => self.infinity().map(|infinity| infinity | 1 << (self.mantissa_bits - 1)),
            Specials::NanIsAllOnes => Some(self.all_ones() as u16),
            Specials::NanIsNegativeZero => Some(self.sign_bit() as u16),
            Specials::None => None,
        }
    }

    /// The largest finite number's code.
    pub fn largest(&self) -> u16 {
        let code = match self.specials {
            Specials::Ieee => self.all_ones() - (1 << self.mantissa_bits),
            Specials::NanIsAllOnes => self.all_ones() - 1,
            Specials::NanIsNegativeZero | Specials::None => self.all_ones(),
        };
        code as u16
    }

    /// The number of a code. Bits above the format's are ignored; every NaN is the one `f64::NAN`.
    pub fn decode(&self, code: u16) -> f64 {
        let code = u32::from(code) & (self.sign_bit() | self.all_ones());
        let magnitude = code & self.all_ones();
        let is_negative = code & self.sign_bit() != 0;
        let is_nan = match self.specials {
            Specials::Ieee => magnitude > u32::from(self.largest()) + 1,
            Specials::NanIsAllOnes => magnitude == self.all_ones(),
            Specials::NanIsNegativeZero => is_negative && magnitude == 0,
            Specials::None => false,
        };
        if is_nan {
            return f64::NAN;
        }
        let value =
            if magnitude > u32::from(self.largest()) { f64::INFINITY } else { self.magnitude_of(magnitude) };
        if is_negative { -value } else { value }
    }

    /// The finite number of a code without sign; exact.
    fn magnitude_of(&self, code: u32) -> f64 {
        let exponent = (code >> self.mantissa_bits) as i32;
        let mantissa = code & ((1 << self.mantissa_bits) - 1);
        let (significand, exponent) = match exponent == 0 && self.is_signed {
            true => (mantissa, 1),
            false => (mantissa | 1 << self.mantissa_bits, exponent),
        };
        f64::from(significand) * power_of_two(exponent - self.bias - self.mantissa_bits as i32)
    }

    /// The nearest code, ties to the even one. Infinity comes out for what passes the largest number and for
    /// infinity itself, where the format has it. `None` for what the format has nothing near to: NaN or infinity
    /// or a number past the range where these are lacking, a negative number or zero where there is no sign.
    pub fn encode(&self, value: f64) -> Option<u16> {
        if value.is_nan() {
            return self.nan();
        }
        let sign = match (value.is_sign_negative(), self.is_signed) {
            (false, _) => 0,
            (true, true) => self.sign_bit() as u16,
            (true, false) => return None,
        };
        if value == 0.0 && !self.is_signed {
            return None;
        }
        let code = self.nearest(value.abs());
        let code = match code {
            Some(code) if code <= self.largest() => code,
            _ => self.infinity()?,
        };
        let has_negative_zero = self.specials != Specials::NanIsNegativeZero;
        Some(if code == 0 && !has_negative_zero { 0 } else { code | sign })
    }

    /// The nearest code without sign, as if the codes went on above the largest; `None` far above.
    fn nearest(&self, magnitude: f64) -> Option<u16> {
        let lowest = if self.is_signed { 1 - self.bias } else { -self.bias };
        let exponent = exponent_of(magnitude).max(lowest);
        if magnitude.is_infinite() || exponent > self.bias + 2 {
            return None;
        }
        // In units of the last mantissa bit; exact, since the scale is a power of two and nothing underflows.
        let units = magnitude * power_of_two(self.mantissa_bits as i32 - exponent);
        let floor = units as u32;
        let first_of_exponent = ((exponent + self.bias) as u32) << self.mantissa_bits;
        // The implicit bit of `floor` counts as one step of the exponent field: add them, less that one.
        let implicit = 1u32 << self.mantissa_bits;
        let base = match self.is_signed {
            true => (first_of_exponent + floor).saturating_sub(implicit),
            false => (first_of_exponent + floor).saturating_sub(1),
        };
        let rest = units - f64::from(floor);
        let below_all = !self.is_signed && floor == 0;
        // Without a mantissa neither neighbour is even: 1.5 is rounded as to an integer, to 2 (so does ml_dtypes).
        let is_odd = self.mantissa_bits == 0 || base & 1 == 1;
        let round_up = rest > 0.5 || (rest == 0.5 && is_odd);
        let code = if round_up && !below_all { base + 1 } else { base };
        u16::try_from(code).ok()
    }
}

/// The exponent of a finite positive number's leading bit; below all formats here for 0 and subnormals.
fn exponent_of(magnitude: f64) -> i32 {
    (magnitude.to_bits() >> 52) as i32 - 1023
}

/// 2^exponent, for the exponents of normal float64 numbers.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent.clamp(-1022, 1023)) as u64) << 52)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    pub const ALL: [DataType; 13] = [
        DataType::Float4E2M1Fn,
        DataType::Float6E2M3Fn,
        DataType::Float6E3M2Fn,
        DataType::Float8E3M4,
        DataType::Float8E4M3,
        DataType::Float8E4M3Fn,
        DataType::Float8E4M3B11Fnuz,
        DataType::Float8E4M3Fnuz,
        DataType::Float8E5M2,
        DataType::Float8E5M2Fnuz,
        DataType::Float8E8M0Fnu,
        DataType::Float16,
        DataType::BFloat16,
    ];

    #[test]
    fn float16_and_bfloat16_as_the_half_crate_has_them() {
        let (float16, bfloat16) =
            (Minifloat::of(&DataType::Float16).unwrap(), Minifloat::of(&DataType::BFloat16).unwrap());
        for code in 0..=u16::MAX {
            let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
            assert!(same(float16.decode(code), half::f16::from_bits(code).to_f64()), "{code:#x}");
            assert!(same(bfloat16.decode(code), half::bf16::from_bits(code).to_f64()), "{code:#x}");
        }
    }

    #[test]
    fn every_code_comes_back() {
        for data_type in ALL {
            let format = Minifloat::of(&data_type).unwrap();
            for code in 0..1u32 << format.bits() {
                let value = format.decode(code as u16);
                let expected = if value.is_nan() { format.nan() } else { Some(code as u16) };
                assert_eq!(format.encode(value), expected, "{data_type:?} {code:#x} {value}");
            }
        }
    }

    #[test]
    fn known_codes() {
        let of = |data_type| Minifloat::of(&data_type).unwrap();
        assert_eq!(of(DataType::Float8E4M3).nan(), Some(0x7c));
        assert_eq!(of(DataType::Float8E5M2).nan(), Some(0x7e));
        assert_eq!(of(DataType::Float8E3M4).nan(), Some(0x78));
        assert_eq!(of(DataType::Float8E4M3Fnuz).nan(), Some(0x80));
        assert_eq!(of(DataType::Float8E8M0Fnu).nan(), Some(0xff));
        assert_eq!(of(DataType::Float8E4M3Fn).nan(), Some(0x7f));
        assert_eq!(of(DataType::BFloat16).nan(), Some(0x7fc0));
        assert_eq!(of(DataType::Float16).nan(), Some(0x7e00));
        assert_eq!(of(DataType::Float4E2M1Fn).decode(0x7), 6.0);
        assert_eq!(of(DataType::Float4E2M1Fn).decode(0xf7), 6.0);
        assert_eq!(of(DataType::Float8E8M0Fnu).decode(0), power_of_two(-127));
        assert_eq!(of(DataType::Float8E4M3Fn).decode(0x7e), 448.0);
    }

    #[test]
    fn what_a_format_lacks_is_refused() {
        let of = |data_type| Minifloat::of(&data_type).unwrap();
        assert_eq!(of(DataType::Float4E2M1Fn).encode(f64::NAN), None);
        assert_eq!(of(DataType::Float4E2M1Fn).encode(f64::INFINITY), None);
        assert_eq!(of(DataType::Float4E2M1Fn).encode(6.9), Some(7));
        assert_eq!(of(DataType::Float4E2M1Fn).encode(7.1), None);
        assert_eq!(of(DataType::Float8E8M0Fnu).encode(-1.0), None);
        assert_eq!(of(DataType::Float8E8M0Fnu).encode(0.0), None);
        assert_eq!(of(DataType::Float8E8M0Fnu).encode(1e-300), Some(0));
        assert_eq!(of(DataType::Float8E8M0Fnu).encode(1.5), Some(128));
        assert_eq!(of(DataType::Float8E8M0Fnu).encode(3.0), Some(129));
        assert_eq!(of(DataType::Float8E5M2).encode(1e300), Some(0x7c));
        assert_eq!(of(DataType::Float8E5M2).encode(-1e300), Some(0xfc));
        assert_eq!(of(DataType::Float8E4M3Fnuz).encode(-0.0), Some(0));
        assert_eq!(of(DataType::Float16).encode(-0.0), Some(0x8000));
    }

    proptest! {
        #[test]
        fn encode_finds_the_nearest(bits in any::<u64>(), near in any::<u16>()) {
            for data_type in ALL {
                let format = Minifloat::of(&data_type).unwrap();
                let center = format.decode(near);
                for value in [f64::from_bits(bits), center * (1.0 + (bits % 1000) as f64 / 1000.0), center.next_up()] {
                    if !value.is_finite() || (!format.is_signed && value <= 0.0) {
                        continue;
                    }
                    let Some(code) = format.encode(value) else {
                        prop_assert!(value.abs() > format.decode(format.largest()));
                        continue;
                    };
                    let found = format.decode(code);
                    if found.is_infinite() {
                        prop_assert!(value.abs() > format.decode(format.largest()));
                        continue;
                    }
                    let distance = (found - value).abs();
                    for other in 0..1u32 << format.bits().min(8) {
                        let other = if format.bits() > 8 { code.wrapping_add(other as u16).wrapping_sub(128) } else { other as u16 };
                        let candidate = format.decode(other);
                        if candidate.is_finite() {
                            let closer = (candidate - value).abs();
                            prop_assert!(closer >= distance, "{data_type:?} {value} gave {found}, but {candidate}");
                            if closer == distance && candidate != found && format.mantissa_bits > 0 {
                                prop_assert!(code & 1 == 0, "{data_type:?} {value} ties to the odd {code:#x}");
                            }
                        }
                    }
                }
            }
        }
    }
}
