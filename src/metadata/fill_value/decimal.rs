//! Decimal numbers as documents write them, read without losing a digit before the one rounding they get.
//!
//! Spec: RFC 8259 "Numbers"; v3 "Permitted fill values": "rounded to the nearest representable value". A float16
//! read through a rounded float64 is rounded twice, and can be off by one; [`Decimal::to_f64_odd`] prevents it.
//! Uses nothing.

use std::cmp::Ordering;

/// The longest number that is read, in characters.
pub const MAX_NUMBER_CHARS: usize = 1024;
/// Above this, a number written with a fraction or exponent may be a rounded one: 2^53.
const MAX_EXACT: u128 = 1 << 53;

/// A decimal number: ± 0.digits × 10^magnitude, without leading or trailing zeros among the digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decimal<'a> {
    text: &'a str,
    negative: bool,
    digits: Vec<u8>,
    magnitude: i64,
    is_plain: bool,
}

impl<'a> Decimal<'a> {
    /// Reads a number as JSON has it. A leading `+`, leading zeros, `.5` and `5.` are also accepted, since strings
    /// have them.
    pub fn parse(text: &'a str) -> Option<Self> {
        let text = text.trim();
        (text.len() <= MAX_NUMBER_CHARS).then(|| Self::parse_unbounded(text))?
    }

    fn parse_unbounded(text: &'a str) -> Option<Self> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, parse_exponent(exponent)?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        if all.is_empty() || !all.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let leading = all.iter().take_while(|&&digit| digit == b'0').count();
        let mut digits = all.get(leading..).unwrap_or_default().to_vec();
        while digits.last() == Some(&b'0') {
            digits.pop();
        }
        let magnitude = if digits.is_empty() { 0 } else { exponent + whole.len() as i64 - leading as i64 };
        let is_plain = !unsigned.contains(['.', 'e', 'E']);
        Some(Decimal { text, negative, digits, magnitude, is_plain })
    }

    /// Returns the exact integer. `None` for a fraction, for more than 38 digits, and for a number above 2^53 with a
    /// fraction or an exponent, since its writer had rounded it.
    pub fn to_integer(&self) -> Option<i128> {
        let places = usize::try_from(self.magnitude).ok().filter(|&places| places <= 38)?;
        let zeros = places.checked_sub(self.digits.len())?;
        let all = self.digits.iter().copied().chain(std::iter::repeat_n(b'0', zeros));
        let value = all.fold(0u128, |value, digit| value * 10 + u128::from(digit - b'0'));
        if !self.is_plain && value > MAX_EXACT {
            return None;
        }
        let value = i128::try_from(value).ok()?;
        Some(if self.negative { -value } else { value })
    }

    /// Rounds to nearest even. The result is infinite if the number is out of range.
    pub fn to_f64(&self) -> Option<f64> {
        self.text.parse().ok()
    }

    /// Rounds to an f32 as [`Decimal::to_f64`] does.
    pub fn to_f32(&self) -> Option<f32> {
        self.text.parse().ok()
    }

    /// Rounds to odd: an exact float64 stays as it is, and any other number becomes the neighbour with the last bit
    /// set. Rounding the result to any format of at most 51 significant bits equals rounding the number itself.
    pub fn to_f64_odd(&self) -> Option<f64> {
        let nearest = self.to_f64()?;
        if nearest.to_bits() & 1 == 1 {
            return Some(nearest); // odd already, whether exact or not
        }
        let exact = format!("{:.1074}", nearest.abs());
        let order = if nearest.is_infinite() {
            Ordering::Less
        } else {
            self.compare_magnitude(&Decimal::parse_unbounded(&exact)?)
        };
        Some(match order {
            Ordering::Equal => nearest,
            Ordering::Greater => f64::from_bits(nearest.to_bits() + 1),
            Ordering::Less => f64::from_bits(nearest.to_bits() - 1),
        })
    }

    fn compare_magnitude(&self, other: &Decimal<'_>) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => {
                self.magnitude.cmp(&other.magnitude).then_with(|| self.digits.cmp(&other.digits))
            }
        }
    }
}

/// Reads the exponent's digits. Beyond a million the value no longer matters.
fn parse_exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value = digits.parse().unwrap_or(i64::MAX).min(1_000_000);
    Some(if text.starts_with('-') { -value } else { value })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    fn integer(text: &str) -> Option<i128> {
        Decimal::parse(text).unwrap().to_integer()
    }

    fn odd(text: &str) -> f64 {
        Decimal::parse(text).unwrap().to_f64_odd().unwrap()
    }

    #[test]
    fn integers() {
        for (text, value) in [
            ("0", 0),
            ("-0", 0),
            ("1.0", 1),
            ("-9999.0", -9999),
            ("1e3", 1000),
            ("+7", 7),
            ("12000e-3", 12),
            ("9007199254740992.0", 1 << 53),
            ("18446744073709551615", u64::MAX as i128),
            ("-9223372036854775808", i64::MIN as i128),
        ] {
            assert_eq!(integer(text), Some(value), "{text}");
        }
        for text in
            ["1.5", "0.1", "1e-1", "1.8446744073709552e19", "9.2e18", "1e40", "1e999999999999999999999"]
        {
            assert_eq!(integer(text), None, "{text}");
        }
    }

    #[test]
    fn texts_that_are_not_numbers() {
        for text in ["", "-", "e5", "1e", "1e+", "0x10", "1_000", "NaN", "1 2", "--1", "1.2.3", "٣"] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
        assert_eq!(Decimal::parse(&"1".repeat(MAX_NUMBER_CHARS + 1)), None);
    }

    #[test]
    fn rounding_to_odd() {
        assert_eq!(odd("1"), 1.0);
        assert_eq!(odd("0.5"), 0.5);
        assert_eq!(odd("-2.5").to_bits(), (-2.5f64).to_bits());
        assert_eq!(odd("-0.0").to_bits(), (-0.0f64).to_bits());
        assert_eq!(odd("1.00000000000000000000001"), 1.0f64.next_up());
        assert_eq!(odd("0.99999999999999999999999"), 1.0f64.next_down());
        assert_eq!(odd("-1.00000000000000000000001"), (-1.0f64).next_down());
        assert_eq!(odd("1e400"), f64::MAX);
        assert_eq!(odd("1e-400"), f64::from_bits(1));
        assert_eq!(odd("-1e-400"), -f64::from_bits(1));
    }

    proptest! {
        #[test]
        fn rounding_twice_through_odd_is_rounding_once(bits in any::<u32>(), digit in 0u8..10, exponent in -60i32..60) {
            let start = f32::from_bits(bits);
            prop_assume!(start.is_finite());
            // Close to a float32, to the midpoint above it, and anywhere.
            let midpoint = f64::from(start) + (f64::from(start.next_up()) - f64::from(start)) / 2.0;
            for text in [
                format!("{:.80}{digit}", f64::from(start)),
                format!("{midpoint:.170}{digit}"),
                format!("{start:e}{digit}").replace("e", "3e").replace(&format!("{digit}"), "7"),
                format!("{}e{exponent}", f64::from(bits)),
            ] {
                let Some(decimal) = Decimal::parse(&text) else { continue };
                prop_assert_eq!(decimal.to_f64_odd().unwrap() as f32, decimal.to_f32().unwrap(), "{}", text);
            }
        }
    }
}
