//! Elements as numbers, for coordinates, statistics and pictures.
//!
//! Uses `metadata`; no I/O. A bool is 0 or 1, a complex number its magnitude. A time is the number of its units, and NaT is NaN.

use std::io::Write as _;

use crate::metadata::data_type::TimeUnit;
use crate::metadata::data_type::exact_number::{FloatFormat, ScalarFormat};
use crate::metadata::{ByteOrder, DataType};

/// How elements are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Signed integers of this many bytes.
    Signed(usize),
    /// Unsigned integers of this many bytes, and bools.
    Unsigned(usize),
    /// Times and time differences of 8 bytes.
    Time,
    /// Floats of at most 16 bits, in this many bytes.
    Small(FloatFormat, usize),
    /// Floats of 4 bytes.
    F32,
    /// Floats of 8 bytes.
    F64,
    /// Two floats of this many bytes each.
    Complex(usize),
    /// Two floats of at most 16 bits each, in this many bytes each.
    SmallComplex(FloatFormat, usize),
}

impl Numbers {
    /// Returns how elements of a type are read; `None` if they are not numbers.
    pub fn for_type(data_type: &DataType) -> Option<Self> {
        if matches!(data_type, DataType::DateTime64(_) | DataType::TimeDelta64(_)) {
            return Some(Numbers::Time);
        }
        let format = data_type.number_format()?;
        let size = format.scalar.width();
        Some(match format.scalar {
            ScalarFormat::Integer(integer) if integer.is_signed => Numbers::Signed(size),
            ScalarFormat::Integer(_) => Numbers::Unsigned(size),
            ScalarFormat::Float(float) if format.components == 2 && size <= 2 => {
                Numbers::SmallComplex(float, size)
            }
            ScalarFormat::Float(_) if format.components == 2 => Numbers::Complex(size),
            ScalarFormat::Float(_) if size == 4 => Numbers::F32,
            ScalarFormat::Float(_) if size == 8 => Numbers::F64,
            ScalarFormat::Float(float) => Numbers::Small(float, size),
        })
    }

    /// Returns the size of an element in bytes.
    pub fn size(self) -> usize {
        match self {
            Numbers::Signed(size) | Numbers::Unsigned(size) | Numbers::Small(_, size) => size,
            Numbers::F32 => 4,
            Numbers::F64 | Numbers::Time => 8,
            Numbers::Complex(size) | Numbers::SmallComplex(_, size) => 2 * size,
        }
    }

    /// Returns whether every element is an integer (or a missing time), so that [`Numbers::each_integer`] reads it exactly.
    pub fn is_integer(self) -> bool {
        matches!(self, Numbers::Signed(_) | Numbers::Unsigned(_) | Numbers::Time)
    }

    /// Calls `each` with every element as a float, which may round it.
    pub fn each(self, bytes: &[u8], order: ByteOrder, mut each: impl FnMut(f64)) {
        match self {
            Numbers::Signed(_) | Numbers::Unsigned(_) => {
                self.each_integer(bytes, order, |value| each(value.map_or(f64::NAN, |value| value as f64)));
            }
            Numbers::Time => {
                self.each_integer(bytes, order, |value| each(value.map_or(f64::NAN, |value| value as f64)));
            }
            Numbers::Small(format, 1) => {
                words::<1>(bytes, order, |word| each(format.decode(u16::from(u8::from_le_bytes(word)))));
            }
            Numbers::Small(format, _) => {
                words::<2>(bytes, order, |word| each(format.decode(u16::from_le_bytes(word))));
            }
            Numbers::F32 => words::<4>(bytes, order, |word| each(f64::from(f32::from_le_bytes(word)))),
            Numbers::F64 => words::<8>(bytes, order, |word| each(f64::from_le_bytes(word))),
            Numbers::Complex(part) => {
                let parts = if part == 4 { Numbers::F32 } else { Numbers::F64 };
                parts.each(bytes, order, magnitudes(&mut each));
            }
            Numbers::SmallComplex(format, part) => {
                Numbers::Small(format, part).each(bytes, order, magnitudes(&mut each));
            }
        }
    }

    /// Calls `each` with every element, if they are integers; `None` is a missing time.
    pub fn each_integer(self, bytes: &[u8], order: ByteOrder, mut each: impl FnMut(Option<i128>)) {
        match self {
            Numbers::Signed(1) => words(bytes, order, |word| each(Some(i8::from_le_bytes(word).into()))),
            Numbers::Signed(2) => words(bytes, order, |word| each(Some(i16::from_le_bytes(word).into()))),
            Numbers::Signed(4) => words(bytes, order, |word| each(Some(i32::from_le_bytes(word).into()))),
            Numbers::Signed(_) => words(bytes, order, |word| each(Some(i64::from_le_bytes(word).into()))),
            Numbers::Unsigned(1) => words(bytes, order, |word| each(Some(u8::from_le_bytes(word).into()))),
            Numbers::Unsigned(2) => words(bytes, order, |word| each(Some(u16::from_le_bytes(word).into()))),
            Numbers::Unsigned(4) => words(bytes, order, |word| each(Some(u32::from_le_bytes(word).into()))),
            Numbers::Unsigned(_) => words(bytes, order, |word| each(Some(u64::from_le_bytes(word).into()))),
            Numbers::Time => words(bytes, order, |word| {
                let units = i64::from_le_bytes(word);
                each((units != i64::MIN).then_some(units.into()));
            }),
            Numbers::Small(..)
            | Numbers::F32
            | Numbers::F64
            | Numbers::Complex(_)
            | Numbers::SmallComplex(..) => {}
        }
    }
}

/// Returns a function that takes real and imaginary parts in turn, and calls `each` with the magnitude of each number.
fn magnitudes(each: &mut dyn FnMut(f64)) -> impl FnMut(f64) {
    let mut real = None;
    move |part| match real.take() {
        None => real = Some(part),
        Some(real) => each(magnitude(real, part)),
    }
}

/// Returns the magnitude of a complex number, even if the square of a part overflows or underflows. `f64::hypot` does the same, but calls a
/// function that glibc before 2.35 does not have.
fn magnitude(real: f64, imaginary: f64) -> f64 {
    // Scaling by powers of two does not round.
    let (small, large) = (f64::from_bits((1023 - 600) << 52), f64::from_bits((1023 + 600) << 52));
    if real.is_infinite() || imaginary.is_infinite() {
        return f64::INFINITY;
    }
    let scale = match real.abs().max(imaginary.abs()) {
        longer if longer > large.sqrt() => small,
        longer if longer < small.sqrt() => large,
        _ => 1.0,
    };
    let (real, imaginary) = (real * scale, imaginary * scale);
    (real * real + imaginary * imaginary).sqrt() / scale
}

/// Calls `each` with the bytes of each word, the least significant first.
fn words<const N: usize>(bytes: &[u8], order: ByteOrder, mut each: impl FnMut([u8; N])) {
    let (words, _) = bytes.as_chunks::<N>();
    match order {
        ByteOrder::Little => words.iter().for_each(|word| each(*word)),
        ByteOrder::Big => words.iter().for_each(|word| {
            let mut word = *word;
            word.reverse();
            each(word);
        }),
    }
}

/// Returns a datetime64 as text: `2020-01-31`, `2020-01-31T12:30:00.125`; `None` for NaT.
pub fn time_text(units: i64, unit: &TimeUnit) -> Option<String> {
    let mut text = Vec::new();
    push_time(&mut text, units, unit);
    let text = String::from_utf8(text).ok()?;
    (!text.is_empty()).then(|| text.trim_matches('"').to_owned())
}

/// Returns the days from 1970-01-01 as year, month and day of the proleptic Gregorian calendar.
fn civil(days: i128) -> (i128, i128, i128) {
    // Years begin in March here, so that the leap day is the last day of a year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i128::from(month <= 2), month, day)
}

/// Appends a time. Years are written as NumPy does: with four digits or more, and a sign before the year 0.
pub fn push_time(text: &mut Vec<u8>, value: i64, unit: &TimeUnit) {
    if value == i64::MIN {
        return;
    }
    let value = i128::from(value) * i128::from(unit.scale_factor);
    // The days, and within the day: seconds, the fraction of a second, and its digits.
    let (days, rest) = match unit.unit.as_str() {
        "Y" => return push_year(text, 1970 + value),
        "M" => {
            push_year(text, 1970 + value.div_euclid(12));
            drop(write!(text, "-{:02}", value.rem_euclid(12) + 1));
            return;
        }
        "W" => (value * 7, None),
        "D" => (value, None),
        unit => {
            let (seconds, digits) = match unit {
                "h" => (3600, 0),
                "m" => (60, 0),
                "s" => (1, 0),
                "ms" => (1, 3),
                "us" => (1, 6),
                "ns" => (1, 9),
                "ps" => (1, 12),
                "fs" => (1, 15),
                _ => (1, 18),
            };
            let per_second = 10i128.pow(digits);
            let all = value * seconds;
            let of_day = all.rem_euclid(86_400 * per_second);
            (
                all.div_euclid(86_400 * per_second),
                Some((of_day / per_second, of_day % per_second, digits as usize)),
            )
        }
    };
    let (year, month, day) = civil(days);
    push_year(text, year);
    // Writing to a Vec does not fail.
    drop(write!(text, "-{month:02}-{day:02}"));
    let Some((second, fraction, digits)) = rest else { return };
    drop(write!(text, "T{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60));
    if digits > 0 {
        drop(write!(text, ".{fraction:0digits$}"));
    }
}

fn push_year(text: &mut Vec<u8>, year: i128) {
    let sign = if year < 0 { "-" } else { "" };
    drop(write!(text, "{sign}{:04}", year.unsigned_abs()));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(data_type: &DataType, bytes: &[u8], order: ByteOrder) -> Vec<f64> {
        let mut values = Vec::new();
        Numbers::for_type(data_type).unwrap().each(bytes, order, |value| values.push(value));
        values
    }

    #[test]
    fn elements_of_every_kind() {
        use ByteOrder::{Big, Little};
        assert_eq!(read(&DataType::Int16, &[0xfe, 0xff, 3, 0], Little), [-2.0, 3.0]);
        assert_eq!(read(&DataType::Int16, &[0xff, 0xfe, 0, 3], Big), [-2.0, 3.0]);
        assert_eq!(read(&DataType::Bool, &[0, 1], Little), [0.0, 1.0]);
        assert_eq!(read(&DataType::Float16, &[0, 0x3c], Little), [1.0]);
        assert_eq!(read(&DataType::BFloat16, &[0x3f, 0x80], Big), [1.0]);
        let complex: Vec<u8> = [3f32, -4.0].iter().flat_map(|part| part.to_le_bytes()).collect();
        assert_eq!(read(&DataType::Complex64, &complex, Little), [5.0]);
        assert_eq!(read(&DataType::ComplexFloat16, &[0, 0x42, 0, 0xc4], Little), [5.0]);
        assert_eq!(read(&DataType::ComplexBFloat16, &[0x40, 0x40, 0xc0, 0x80], Big), [5.0]);
        assert_eq!(read(&DataType::ComplexFloat4E2M1Fn, &[5, 14, 0, 1], Little), [5.0, 0.5]);
        let unit = TimeUnit { unit: "D".to_owned(), scale_factor: 1 };
        let nat = read(&DataType::DateTime64(unit.clone()), &i64::MIN.to_le_bytes(), Little);
        assert!(nat[0].is_nan());
        assert_eq!(time_text(31, &unit).unwrap(), "1970-02-01");
        let mut exact = Vec::new();
        Numbers::Unsigned(8).each_integer(&u64::MAX.to_le_bytes(), Little, |value| exact.push(value));
        assert_eq!(exact, [Some(i128::from(u64::MAX))]);
        assert!(Numbers::for_type(&DataType::Raw(4)).is_none());
    }

    /// They are exact if the result is a float, and otherwise differ from the C library in the last place at most.
    #[test]
    fn magnitudes_of_any_size() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        for (real, imaginary, expected) in [
            (3.0, -4.0, 5.0),
            (0.0, -0.0, 0.0),
            (3e300, 4e300, 5e300),
            (f64::MAX, 0.0, f64::MAX),
            (f64::MAX, f64::MAX, inf),
            (5e-324, 0.0, 5e-324),
            (15e-324, 20e-324, 25e-324),
            (inf, nan, inf),
            (nan, -inf, inf),
        ] {
            assert_eq!(magnitude(real, imaginary), expected, "{real}, {imaginary}");
        }
        assert!(magnitude(nan, 1.0).is_nan() && magnitude(1.0, nan).is_nan());
        let parts = [1.0, 0.1, -7.25e-3, 1e-170, 3e-160, 2e-320, 6e153, 1e155, 9e307];
        for real in parts {
            for imaginary in parts {
                let (found, expected) = (magnitude(real, imaginary), f64::hypot(real, imaginary));
                let apart = found.to_bits().abs_diff(expected.to_bits());
                assert!(apart <= 1, "{real}, {imaginary}: {found} instead of {expected}");
            }
        }
    }
}
