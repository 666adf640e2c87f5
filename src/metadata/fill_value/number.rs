//! Numbers among the fill values: bool, integers, floats, times. From JSON to little-endian bytes.
//!
//! Spec: v3 "Permitted fill values" (JSON numbers, `"NaN"`, `"Infinity"`, `"-Infinity"`, `"0x7fc00001"`), the
//! registered `numpy.datetime64` (`"NaT"`). Uses `json`, `data_type`, `decimal`.

use serde_json::Value;

use super::decimal::Decimal;
use crate::metadata::data_type::DataType;
use crate::metadata::data_type::exact_number::{FloatFormat, IntegerFormat, ScalarFormat};
use crate::metadata::json;
use crate::metadata::json::parse_error::{ParseError, ParseResult};

/// Appends the bytes of a number of `data_type`. A bool may be 0 or 1. `is_loose` also accepts the forms of v1 and v2
/// writers: numbers as strings, and a bool for a number.
pub fn append(data_type: &DataType, value: &Value, is_loose: bool, bytes: &mut Vec<u8>) -> ParseResult<()> {
    use DataType::*;
    match data_type {
        Bool => bytes.push(boolean(value, is_loose)?),
        Float32 => match float(value)? {
            ParsedFloat::Bits(bits) => bytes.extend(hexadecimal(bits, 4, value)?),
            ParsedFloat::Nan => bytes.extend(0x7fc0_0000u32.to_le_bytes()),
            ParsedFloat::Infinity(sign) => bytes.extend((sign as f32 * f32::INFINITY).to_le_bytes()),
            ParsedFloat::Decimal(decimal) => {
                bytes.extend(decimal.to_f32().ok_or_else(|| not_a("a float", value))?.to_le_bytes())
            }
        },
        Float64 => match float(value)? {
            ParsedFloat::Bits(bits) => bytes.extend(hexadecimal(bits, 8, value)?),
            ParsedFloat::Nan => bytes.extend(0x7ff8_0000_0000_0000u64.to_le_bytes()),
            ParsedFloat::Infinity(sign) => bytes.extend((sign * f64::INFINITY).to_le_bytes()),
            ParsedFloat::Decimal(decimal) => {
                bytes.extend(decimal.to_f64().ok_or_else(|| not_a("a float", value))?.to_le_bytes())
            }
        },
        DateTime64(_) | TimeDelta64(_) => {
            let ticks = if is_nat(value) { i64::MIN.into() } else { integer(value, is_loose)? };
            let ticks = in_range(ticks, IntegerFormat { bits: 64, is_signed: true }, value)?;
            bytes.extend(ticks.to_le_bytes().iter().take(8));
        }
        _ => match data_type.real_format() {
            Some(ScalarFormat::Float(format)) => append_minifloat(format, value, bytes)?,
            Some(format @ ScalarFormat::Integer(integers)) => {
                let number = in_range(integer(value, is_loose)?, integers, value)?;
                bytes.extend(number.to_le_bytes().iter().take(format.width()));
            }
            None => return Err(not_a("a fill value of this type", value)),
        },
    }
    Ok(())
}

fn not_a(what: &str, value: &Value) -> ParseError {
    ParseError::invalid(format_args!("{} is not {what}", json::shown(value)))
}

fn in_range(number: i128, format: IntegerFormat, value: &Value) -> ParseResult<i128> {
    let (low, high) = format.range();
    if (low..=high).contains(&number) {
        return Ok(number);
    }
    Err(ParseError::invalid(format_args!("{} is not from {low} to {high}", json::shown(value))))
}

fn boolean(value: &Value, is_loose: bool) -> ParseResult<u8> {
    match value {
        Value::Bool(truth) => Ok(u8::from(*truth)),
        // zarrita wrote 0 and 1 into v3 documents, and zarr-python and tensorstore read them.
        _ if is_loose || value.is_number() => match integer(value, is_loose) {
            Ok(number @ (0 | 1)) => Ok(number as u8),
            _ => Err(not_a("a bool", value)),
        },
        _ => Err(not_a("a bool", value)),
    }
}

/// Reads an integer: a JSON number without a fraction, or a string of one.
fn integer(value: &Value, is_loose: bool) -> ParseResult<i128> {
    let text = match value {
        Value::Number(number) => number.as_str(),
        Value::String(text) => text,
        Value::Bool(truth) if is_loose => return Ok(i128::from(*truth)),
        _ => return Err(not_a("an integer", value)),
    };
    Decimal::parse(text).and_then(|decimal| decimal.to_integer()).ok_or_else(|| not_a("an integer", value))
}

fn is_nat(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.eq_ignore_ascii_case("NaT"))
}

enum ParsedFloat<'a> {
    /// The hexadecimal digits of the number's bits.
    Bits(&'a str),
    Nan,
    /// 1 or -1.
    Infinity(f64),
    Decimal(Decimal<'a>),
}

fn float(value: &Value) -> ParseResult<ParsedFloat<'_>> {
    let text = match value {
        Value::Number(number) => number.as_str(),
        Value::String(text) => text.trim(),
        _ => return Err(not_a("a float", value)),
    };
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return Ok(ParsedFloat::Bits(digits));
    }
    let (sign, word) = match text.strip_prefix('-') {
        Some(word) => (-1.0, word),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    match word.to_ascii_lowercase().as_str() {
        "nan" => Ok(ParsedFloat::Nan),
        "infinity" | "inf" => Ok(ParsedFloat::Infinity(sign)),
        _ => Decimal::parse(text).map(ParsedFloat::Decimal).ok_or_else(|| not_a("a float", value)),
    }
}

/// Reads the bits of a float of `size` bytes, least significant byte first. All digits must be present: zarr-python
/// reads `"0x7fc00000"` as float32 even in a float64 array, but the specification makes it a tiny float64.
fn hexadecimal(digits: &str, size: usize, value: &Value) -> ParseResult<impl Iterator<Item = u8> + use<>> {
    let is_hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if digits.len() != 2 * size || !is_hexadecimal {
        let (shown, needed) = (json::shown(value), 2 * size);
        return Err(ParseError::invalid(format_args!(
            "{shown} is not \"0x\" and {needed} hexadecimal digits"
        )));
    }
    let bits = u64::from_str_radix(digits, 16).map_err(|_| not_a("a float", value))?;
    Ok(bits.to_le_bytes().into_iter().take(size))
}

fn append_minifloat(format: FloatFormat, value: &Value, bytes: &mut Vec<u8>) -> ParseResult<()> {
    let size = if format.bits() > 8 { 2 } else { 1 };
    let code = match float(value)? {
        ParsedFloat::Bits(digits) => {
            let before = bytes.len();
            bytes.extend(hexadecimal(digits, size, value)?);
            let last = bytes.last().copied().unwrap_or(0);
            if format.bits() < 8 && last >> format.bits() != 0 {
                bytes.truncate(before);
                let bits = format.bits();
                return Err(ParseError::invalid(format_args!(
                    "{} has more than {bits} bits",
                    json::shown(value)
                )));
            }
            return Ok(());
        }
        ParsedFloat::Nan => format.nan(),
        ParsedFloat::Infinity(sign) => format.encode(sign * f64::INFINITY),
        ParsedFloat::Decimal(decimal) => decimal.to_f64_odd().and_then(|number| format.encode(number)),
    };
    let code = code.ok_or_else(|| {
        ParseError::invalid(format_args!("the data type has no value near {}", json::shown(value)))
    })?;
    bytes.extend(code.to_le_bytes().iter().take(size));
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::metadata::{Dtype, FillValue, parse_data_type_v3, parse_dtype_v2};
    use serde_json::json;

    fn parsed(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    fn v3(data_type: Value, fill: &str) -> ParseResult<Vec<u8>> {
        let fill = FillValue::from_v3(&parse_data_type_v3(&data_type).unwrap(), &parsed(fill))?;
        assert!(!fill.is_undefined);
        Ok(fill.bytes)
    }

    fn v2(dtype: Value, fill: &str) -> ParseResult<Vec<u8>> {
        let Dtype::Fixed(stored) = parse_dtype_v2(&dtype).unwrap() else { panic!("{dtype}") };
        FillValue::from_v2(&stored.data_type, &stored.big_endian, &parsed(fill)).map(|fill| fill.bytes)
    }

    /// Reads the bytes as a number of that size.
    fn number(bytes: ParseResult<Vec<u8>>) -> u64 {
        bytes.unwrap().iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
    }

    #[test]
    fn floats_in_every_spelling() {
        for (fill, bits) in [
            ("1.5", 0x3fc0_0000),
            ("-0.0", 0x8000_0000),
            ("-0", 0x8000_0000),
            ("0.1", 0x3dcc_cccd),
            // Between two floats: to the one whose last bit is 0.
            ("16777217", 0x4b80_0000),
            ("16777219", 0x4b80_0002),
            ("1e39", 0x7f80_0000),
            ("\"NaN\"", 0x7fc0_0000),
            ("NaN", 0x7fc0_0000),
            ("\"nan\"", 0x7fc0_0000),
            ("\"Infinity\"", 0x7f80_0000),
            ("\"+Infinity\"", 0x7f80_0000),
            ("-Infinity", 0xff80_0000),
            ("\"0x7fc00001\"", 0x7fc0_0001),
            ("\"0xffC00001\"", 0xffc0_0001),
            ("\"1.5\"", 0x3fc0_0000),
            ("\" -1e0 \"", 0xbf80_0000),
            ("[1.5]", 0x3fc0_0000),
            ("[\"NaN\"]", 0x7fc0_0000),
        ] {
            assert_eq!(number(v3(json!("float32"), fill)), bits, "{fill}");
            assert_eq!(number(v2(json!(">f4"), fill)), bits, "{fill}");
        }
        assert_eq!(number(v3(json!("float64"), "\"0x7ff8000000000001\"")), 0x7ff8_0000_0000_0001);
        assert_eq!(number(v3(json!("float64"), "9007199254740993")), 0x4340_0000_0000_0000);
        assert_eq!(number(v3(json!("float64"), "\"NaN\"")), 0x7ff8_0000_0000_0000);
        assert_eq!(number(v3(json!("float64"), "1e400")), f64::INFINITY.to_bits());
        for fill in [
            "\"0x7fc0\"",
            "\"0x7fc0000g\"",
            "\"0x+fc00001\"",
            "\"\"",
            "\"one\"",
            "[]",
            "[1,2]",
            "{}",
            "true",
            "\"0x\"",
            "\"é\"",
        ] {
            assert!(v3(json!("float32"), fill).is_err(), "{fill}");
        }
        assert!(v3(json!("float32"), "null").is_err());
    }

    #[test]
    fn small_floats_are_rounded_once_to_nearest_even() {
        // The midpoint of 1 and the next float16 is 1.00048828125: a tie, then a hair above and below.
        for (fill, bits) in [
            ("1.00048828125", 0x3c00),
            ("1.000488281250000000000000000000001", 0x3c01),
            ("1.00048828124999999999999999999999", 0x3c00),
            ("1.00146484375", 0x3c02),
            ("65519.99", 0x7bff),
            ("65520", 0x7c00),
            ("\"NaN\"", 0x7e00),
            ("\"0x7e01\"", 0x7e01),
        ] {
            assert_eq!(number(v3(json!("float16"), fill)), bits, "{fill}");
        }
        assert_eq!(number(v3(json!("bfloat16"), "3.14159")), 0x4049);
        assert_eq!(number(v3(json!("bfloat16"), "\"0x7fc1\"")), 0x7fc1);
        assert_eq!(number(v3(json!("float8_e4m3"), "\"NaN\"")), 0x7c);
        assert_eq!(number(v3(json!("float8_e4m3fnuz"), "\"NaN\"")), 0x80);
        assert_eq!(number(v3(json!("float8_e5m2"), "-Infinity")), 0xfc);
        assert_eq!(number(v3(json!("float8_e8m0fnu"), "2.0")), 128);
        assert_eq!(number(v3(json!("float4_e2m1fn"), "-6")), 0xf);
        assert_eq!(number(v3(json!("float6_e2m3fn"), "\"0x3f\"")), 0x3f);
        for (name, fill) in [
            ("float4_e2m1fn", "\"NaN\""),
            ("float4_e2m1fn", "\"0x1f\""),
            ("float4_e2m1fn", "100"),
            ("float8_e4m3fn", "Infinity"),
            ("float8_e8m0fnu", "0.0"),
            ("float8_e8m0fnu", "-1"),
        ] {
            assert!(v3(json!(name), fill).is_err(), "{name} {fill}");
        }
    }

    #[test]
    fn integers_in_every_spelling() {
        for (name, fill, bits) in [
            ("int8", "-128", 0x80),
            ("uint8", "255", 0xff),
            ("uint8", "1.0", 1),
            ("uint8", "\"7\"", 7),
            ("uint8", "[7]", 7),
            ("int16", "-2", 0xfffe),
            ("int32", "-9999.0", 0xffff_d8f1),
            ("uint64", "18446744073709551615", u64::MAX),
            ("int64", "-9223372036854775808", 1 << 63),
            ("int2", "-2", 0xfe),
            ("int4", "-8", 0xf8),
            ("uint4", "15", 0x0f),
        ] {
            assert_eq!(number(v3(json!(name), fill)), bits, "{name} {fill}");
        }
        for (name, fill) in [
            ("uint8", "256"),
            ("uint8", "-1"),
            ("int8", "128"),
            ("uint64", "18446744073709551616"),
            ("uint64", "1.8446744073709552e19"),
            ("int64", "-9223372036854775809"),
            ("int32", "0.5"),
            ("int32", "NaN"),
            ("int32", "true"),
            ("int32", "\"0x10\""),
            ("int2", "2"),
            ("uint2", "4"),
            ("int4", "8"),
        ] {
            assert!(v3(json!(name), fill).is_err(), "{name} {fill}");
        }
        assert_eq!(number(v2(json!(">i4"), "true")), 1);
    }

    #[test]
    fn booleans() {
        assert_eq!(v3(json!("bool"), "true").unwrap(), [1]);
        assert_eq!(v3(json!("bool"), "1").unwrap(), [1]);
        assert_eq!(v3(json!("bool"), "0").unwrap(), [0]);
        for fill in ["2", "-1", "0.5", "\"1\"", "null"] {
            assert!(v3(json!("bool"), fill).is_err(), "{fill}");
        }
        for (fill, byte) in [("false", 0), ("true", 1), ("0", 0), ("1.0", 1), ("[false]", 0)] {
            assert_eq!(v2(json!("|b1"), fill).unwrap(), [byte], "{fill}");
        }
        assert!(v2(json!("|b1"), "2").is_err() && v2(json!("|b1"), "\"yes\"").is_err());
    }

    #[test]
    fn times() {
        let datetime =
            json!({"name": "numpy.datetime64", "configuration": {"unit": "ns", "scale_factor": 1}});
        for (fill, ticks) in
            [("5", 5), ("\"NaT\"", i64::MIN), ("-9223372036854775808", i64::MIN), ("\"-7\"", -7)]
        {
            assert_eq!(number(v3(datetime.clone(), fill)), ticks as u64, "{fill}");
            assert_eq!(number(v2(json!(">m8[s]"), fill)), ticks as u64, "{fill}");
        }
        assert!(v3(datetime, "\"2020-01-01\"").is_err());
    }
}
