//! The text of elements in cells.
//!
//! Spec: RFC 4180 section 2 (quotes), ISO 8601 (dates and times). Uses `metadata` for types; no I/O.
//!
//! | elements | text |
//! |---|---|
//! | bool | `TRUE`, `FALSE` |
//! | integers | decimal digits |
//! | float16, float32, float64 | the shortest digits that give the same value in their type; `NaN`, `Inf`, `-Inf` |
//! | strings, byte strings in UTF-8 | in quotes, quotes doubled; not those with a NUL |
//! | datetime64 | `2020-01-31`, `2020-01-31T12:30:00.125`; NaT is a missing value |

use std::io::Write as _;

use half::f16;

use crate::formats::numbers::push_time;
use crate::metadata::data_type::TimeUnit;
use crate::metadata::data_type::numeric::NumberClass;
use crate::metadata::{ByteOrder, DataType, VariableLength};

/// How elements are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellFormat {
    /// `TRUE` or `FALSE`.
    Bool,
    /// Signed integers of this many bytes.
    Signed(usize),
    /// Unsigned integers of this many bytes.
    Unsigned(usize),
    /// Floats of this many bytes.
    Float(usize),
    /// NUL-padded bytes.
    Bytes(usize),
    /// NUL-padded code points of four bytes.
    Utf32(usize),
    /// Dates and times.
    Time(TimeUnit),
    /// Strings of any length.
    String,
}

/// Why an element has no text.
type CellResult = Result<(), &'static str>;

/// Returns the size of an integer type in bytes; `None` for other types.
pub fn integer_bytes(data_type: &DataType) -> Option<usize> {
    match CellFormat::for_type(data_type)? {
        CellFormat::Signed(size) | CellFormat::Unsigned(size) => Some(size),
        _ => None,
    }
}

impl CellFormat {
    /// Returns how elements of a type are written; `None` if they have no text.
    pub fn for_type(data_type: &DataType) -> Option<CellFormat> {
        Some(match data_type {
            DataType::NullTerminatedBytes(size) if *size > 0 => CellFormat::Bytes(*size),
            DataType::FixedLengthUtf32(count) if *count > 0 => CellFormat::Utf32(*count),
            DataType::DateTime64(unit) if unit.unit != "generic" => CellFormat::Time(unit.clone()),
            DataType::VariableLength(VariableLength::Utf8) => CellFormat::String,
            _ => {
                let number = data_type.numeric_type()?;
                match number.class() {
                    NumberClass::Bool => CellFormat::Bool,
                    NumberClass::Signed => CellFormat::Signed(number.size()),
                    NumberClass::Unsigned => CellFormat::Unsigned(number.size()),
                    NumberClass::Float => CellFormat::Float(number.size()),
                    NumberClass::Complex => return None,
                }
            }
        })
    }

    /// Returns the size of an element in bytes; `None` if elements have no fixed size.
    pub fn item_bytes(&self) -> Option<usize> {
        match self {
            CellFormat::Bool => Some(1),
            CellFormat::Signed(size)
            | CellFormat::Unsigned(size)
            | CellFormat::Float(size)
            | CellFormat::Bytes(size) => Some(*size),
            CellFormat::Utf32(count) => count.checked_mul(4),
            CellFormat::Time(_) => Some(8),
            CellFormat::String => None,
        }
    }

    /// Appends the text of an element.
    pub fn push(&self, text: &mut Vec<u8>, element: &[u8], order: ByteOrder) -> CellResult {
        match self {
            CellFormat::Bool if element == [0] => text.extend_from_slice(b"FALSE"),
            CellFormat::Bool => text.extend_from_slice(b"TRUE"),
            // Writing to a Vec does not fail.
            CellFormat::Signed(_) => drop(write!(text, "{}", signed(element, order))),
            CellFormat::Unsigned(_) => drop(write!(text, "{}", unsigned(element, order))),
            CellFormat::Float(size) => push_float(text, unsigned(element, order), *size),
            CellFormat::Bytes(_) => {
                let end = element.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                let string = std::str::from_utf8(element.get(..end).unwrap_or_default());
                push_string(text, string.map_err(|_| "a byte string that is not UTF-8 has no text")?)?;
            }
            CellFormat::Utf32(_) => {
                let codes = element.chunks_exact(4).map(|code| unsigned(code, order) as u32);
                let string: Option<String> = codes.map(char::from_u32).collect();
                let string = string.ok_or("a string has a code that is not a character")?;
                push_string(text, string.trim_end_matches('\0'))?;
            }
            CellFormat::Time(unit) => push_time(text, signed(element, order), unit),
            CellFormat::String => {
                push_string(text, std::str::from_utf8(element).map_err(|_| "a string is not UTF-8")?)?
            }
        }
        Ok(())
    }
}

/// Appends a string in quotes.
pub fn push_string(text: &mut Vec<u8>, string: &str) -> CellResult {
    if string.contains('\0') {
        return Err("a string with a NUL cannot be written in CSV");
    }
    text.push(b'"');
    let mut parts = string.split('"');
    text.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        text.extend_from_slice(b"\"\"");
        text.extend_from_slice(part.as_bytes());
    }
    text.push(b'"');
    Ok(())
}

/// Reads an unsigned integer of at most 8 bytes.
pub fn unsigned(bytes: &[u8], order: ByteOrder) -> u64 {
    let add = |number: u64, byte: &u8| (number << 8) | u64::from(*byte);
    match order {
        ByteOrder::Big => bytes.iter().fold(0, add),
        ByteOrder::Little => bytes.iter().rev().fold(0, add),
    }
}

/// Reads a signed integer of 1 to 8 bytes.
pub fn signed(bytes: &[u8], order: ByteOrder) -> i64 {
    let unused = 64u32.saturating_sub(8 * bytes.len() as u32).min(63);
    ((unsigned(bytes, order) << unused) as i64) >> unused
}

fn push_float(text: &mut Vec<u8>, bits: u64, size: usize) {
    let (value, is_single) = match size {
        2 => (f64::from(f16::from_bits(bits as u16)), true),
        4 => (f64::from(f32::from_bits(bits as u32)), true),
        _ => (f64::from_bits(bits), false),
    };
    if value.is_infinite() {
        // R does not read `inf`.
        text.extend_from_slice(if value > 0.0 { b"Inf" } else { b"-Inf" });
    } else if is_single {
        // Writing to a Vec does not fail.
        drop(write!(text, "{:?}", value as f32));
    } else {
        drop(write!(text, "{value:?}"));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cell(text: &CellFormat, element: &[u8], order: ByteOrder) -> Result<String, &'static str> {
        let mut cell = Vec::new();
        text.push(&mut cell, element, order)?;
        Ok(String::from_utf8(cell).unwrap())
    }

    fn time(unit: &str, scale: u64, value: i64) -> String {
        let text = CellFormat::Time(TimeUnit::new(unit, scale).unwrap());
        cell(&text, &value.to_le_bytes(), ByteOrder::Little).unwrap()
    }

    #[test]
    fn numbers() {
        let little = |text: CellFormat, bytes: &[u8]| cell(&text, bytes, ByteOrder::Little).unwrap();
        assert_eq!(little(CellFormat::Signed(1), &[0x80]), "-128");
        assert_eq!(little(CellFormat::Signed(8), &i64::MIN.to_le_bytes()), i64::MIN.to_string());
        assert_eq!(little(CellFormat::Unsigned(8), &[0xff; 8]), u64::MAX.to_string());
        assert_eq!(cell(&CellFormat::Signed(2), &[0xff, 0xfe], ByteOrder::Big).unwrap(), "-2");
        assert_eq!(little(CellFormat::Bool, &[1]) + &little(CellFormat::Bool, &[0]), "TRUEFALSE");
        for (value, expected) in [
            (0.1, "0.1"),
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (1e300, "1e300"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (5e-324, "5e-324"),
        ] {
            assert_eq!(little(CellFormat::Float(8), &value.to_le_bytes()), expected);
        }
        assert_eq!(little(CellFormat::Float(4), &0.1f32.to_le_bytes()), "0.1");
        assert_eq!(little(CellFormat::Float(2), &f16::from_f32(0.1).to_le_bytes()), "0.099975586");
    }

    #[test]
    fn strings() {
        let quoted = |string: &str| cell(&CellFormat::String, string.as_bytes(), ByteOrder::Little);
        assert_eq!(quoted("").unwrap(), r#""""#);
        assert_eq!(quoted("a, \"b\"\r\n").unwrap(), "\"a, \"\"b\"\"\r\n\"");
        assert!(quoted("a\0b").is_err());
        assert!(cell(&CellFormat::String, &[0xff], ByteOrder::Little).is_err());
        assert_eq!(cell(&CellFormat::Bytes(4), b"ab\0\0", ByteOrder::Little).unwrap(), r#""ab""#);
        assert!(cell(&CellFormat::Bytes(2), &[0xff, 0], ByteOrder::Little).is_err());
        assert_eq!(
            cell(&CellFormat::Utf32(2), &[0, 1, 0xf6, 0x80, 0, 0, 0, 0], ByteOrder::Big).unwrap(),
            r#""🚀""#
        );
        assert!(cell(&CellFormat::Utf32(1), &[0xff; 4], ByteOrder::Big).is_err());
    }

    #[test]
    fn times() {
        assert_eq!(time("D", 1, 0), "1970-01-01");
        assert_eq!(time("D", 1, 19_782), "2024-02-29");
        assert_eq!(time("W", 1, -1), "1969-12-25");
        assert_eq!(time("M", 1, -1), "1969-12");
        assert_eq!(time("Y", 1, 50), "2020");
        assert_eq!(time("Y", 1, -1971), "-0001");
        assert_eq!(time("h", 1, 25), "1970-01-02T01:00:00");
        assert_eq!(time("s", 15, -1), "1969-12-31T23:59:45");
        assert_eq!(time("ns", 1, 1), "1970-01-01T00:00:00.000000001");
        assert_eq!(time("ns", 1, i64::MAX), "2262-04-11T23:47:16.854775807");
        assert_eq!(time("as", 1, -1), "1969-12-31T23:59:59.999999999999999999");
        assert_eq!(time("s", 1, i64::MIN), "");
        // Every value has a text.
        for unit in ["Y", "M", "W", "D", "h", "s", "as"] {
            assert!(!time(unit, i32::MAX as u64, i64::MAX).is_empty());
            assert!(!time(unit, i32::MAX as u64, i64::MIN + 1).is_empty());
        }
    }

    proptest! {
        #[test]
        fn a_quoted_string_has_quotes_only_at_its_ends(string in "[^\0]*") {
            let mut text = Vec::new();
            push_string(&mut text, &string).unwrap();
            let text = String::from_utf8(text).unwrap();
            let inside = text.strip_prefix('"').unwrap().strip_suffix('"').unwrap();
            prop_assert_eq!(inside.replace("\"\"", "\""), string);
            prop_assert!(!inside.replace("\"\"", "").contains('"'));
        }
    }
}
