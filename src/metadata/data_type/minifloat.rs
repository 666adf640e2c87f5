//! Floats of at most 16 bits as float64 numbers, which hold all their values exactly.
//!
//! Spec: IEEE 754 for float16; the registered extensions bfloat16, float8_*, float6_*, float4_* (ml_dtypes has
//! the same formats under the same names). Uses `exact_number`.

use super::exact_number::{ExactNumber, FloatFormat, OutOfRange, Rounding, Specials};

/// Formats of at most 16 bits.
impl FloatFormat {
    /// Returns the code of the NaN that documents call `"NaN"`, if the format has one.
    pub fn nan(self) -> Option<u16> {
        self.encode(f64::NAN)
    }

    /// Returns the number of a code. Bits above the format's are ignored; every NaN becomes `f64::NAN`.
    pub fn decode(self, code: u16) -> f64 {
        let (is_negative, magnitude) = match self.read(code.into()) {
            ExactNumber::Nan { .. } => return f64::NAN,
            ExactNumber::Infinity { is_negative } => (is_negative, f64::INFINITY),
            ExactNumber::Finite { is_negative, significand, exponent } => {
                (is_negative, significand as f64 * power_of_two(exponent))
            }
        };
        if is_negative { -magnitude } else { magnitude }
    }

    /// Returns the nearest code, ties to the even one. A number past the largest becomes infinity. `None` if the
    /// format has no near value: for NaN, infinity or a number out of range in a format without infinity, and for zero
    /// or a negative number in a format without sign.
    pub fn encode(self, value: f64) -> Option<u16> {
        let number = if value.is_nan() {
            ExactNumber::Nan { is_negative: false, payload: 0 }
        } else {
            ExactNumber::from_f64(value)
        };
        // A format without zero has its least number near to what is below it.
        let is_small = 0.0 < value && value < 1.0;
        let has_nearest = self.specials == Specials::Ieee || is_small;
        let out_of_range = if has_nearest { OutOfRange::Clamp } else { OutOfRange::Refuse };
        self.write(number, Rounding::NearestEven, out_of_range).ok().map(|code| code as u16)
    }
}

/// Returns 2^exponent, for the exponents of normal float64 numbers.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent.clamp(-1022, 1023)) as u64) << 52)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::metadata::DataType;
    use crate::metadata::data_type::numeric::NUMBER_FORMATS;
    use proptest::prelude::*;

    fn minifloats() -> impl Iterator<Item = (&'static DataType, FloatFormat)> {
        NUMBER_FORMATS.iter().filter_map(|row| Some((&row.data_type, row.data_type.minifloat()?)))
    }

    fn largest(format: FloatFormat) -> f64 {
        let numbers = (0..=u16::MAX).map(|code| format.decode(code)).filter(|number| number.is_finite());
        numbers.fold(0.0, f64::max)
    }

    #[test]
    fn float16_and_bfloat16_as_the_half_crate_has_them() {
        let (float16, bfloat16) =
            (DataType::Float16.minifloat().unwrap(), DataType::BFloat16.minifloat().unwrap());
        for code in 0..=u16::MAX {
            let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
            assert!(same(float16.decode(code), half::f16::from_bits(code).to_f64()), "{code:#x}");
            assert!(same(bfloat16.decode(code), half::bf16::from_bits(code).to_f64()), "{code:#x}");
        }
    }

    #[test]
    fn every_code_comes_back() {
        for (data_type, format) in minifloats() {
            for code in 0..1u32 << format.bits() {
                let value = format.decode(code as u16);
                let expected = if value.is_nan() { format.nan() } else { Some(code as u16) };
                assert_eq!(format.encode(value), expected, "{data_type:?} {code:#x} {value}");
            }
        }
    }

    #[test]
    fn known_codes() {
        let format = |data_type: DataType| data_type.minifloat().unwrap();
        assert_eq!(format(DataType::Float8E4M3).nan(), Some(0x7c));
        assert_eq!(format(DataType::Float8E5M2).nan(), Some(0x7e));
        assert_eq!(format(DataType::Float8E3M4).nan(), Some(0x78));
        assert_eq!(format(DataType::Float8E4M3Fnuz).nan(), Some(0x80));
        assert_eq!(format(DataType::Float8E8M0Fnu).nan(), Some(0xff));
        assert_eq!(format(DataType::Float8E4M3Fn).nan(), Some(0x7f));
        assert_eq!(format(DataType::BFloat16).nan(), Some(0x7fc0));
        assert_eq!(format(DataType::Float16).nan(), Some(0x7e00));
        assert_eq!(format(DataType::Float4E2M1Fn).decode(0x7), 6.0);
        assert_eq!(format(DataType::Float4E2M1Fn).decode(0xf7), 6.0);
        assert_eq!(format(DataType::Float8E8M0Fnu).decode(0), power_of_two(-127));
        assert_eq!(format(DataType::Float8E4M3Fn).decode(0x7e), 448.0);
    }

    #[test]
    fn values_outside_the_format_are_refused() {
        let format = |data_type: DataType| data_type.minifloat().unwrap();
        assert_eq!(format(DataType::Float4E2M1Fn).encode(f64::NAN), None);
        assert_eq!(format(DataType::Float4E2M1Fn).encode(f64::INFINITY), None);
        assert_eq!(format(DataType::Float4E2M1Fn).encode(6.9), Some(7));
        assert_eq!(format(DataType::Float4E2M1Fn).encode(7.1), None);
        assert_eq!(format(DataType::Float8E8M0Fnu).encode(-1.0), None);
        assert_eq!(format(DataType::Float8E8M0Fnu).encode(0.0), None);
        assert_eq!(format(DataType::Float8E8M0Fnu).encode(1e-300), Some(0));
        assert_eq!(format(DataType::Float8E8M0Fnu).encode(1.5), Some(128));
        assert_eq!(format(DataType::Float8E8M0Fnu).encode(3.0), Some(129));
        assert_eq!(format(DataType::Float8E5M2).encode(1e300), Some(0x7c));
        assert_eq!(format(DataType::Float8E5M2).encode(-1e300), Some(0xfc));
        assert_eq!(format(DataType::Float8E4M3Fnuz).encode(-0.0), Some(0));
        assert_eq!(format(DataType::Float16).encode(-0.0), Some(0x8000));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::test_level::pick(32, 256)))]

        #[test]
        fn encode_finds_the_nearest(bits in any::<u64>(), near in any::<u16>()) {
            for (data_type, format) in minifloats() {
                let largest = largest(format);
                let center = format.decode(near);
                for value in [f64::from_bits(bits), center * (1.0 + (bits % 1000) as f64 / 1000.0), center.next_up()] {
                    if !value.is_finite() || (!format.is_signed && value <= 0.0) {
                        continue;
                    }
                    let Some(code) = format.encode(value) else {
                        prop_assert!(value.abs() > largest);
                        continue;
                    };
                    let found = format.decode(code);
                    if found.is_infinite() {
                        prop_assert!(value.abs() > largest);
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
