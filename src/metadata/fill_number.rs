//! Numbers among the fill values: bool, integers, floats, times. From JSON to little-endian bytes.
//!
//! Spec: v3 "Permitted fill values" (JSON numbers, `"NaN"`, `"Infinity"`, `"-Infinity"`, `"0x7fc00001"`), the
//! registered `numpy.datetime64` (`"NaT"`). Uses `json`, `fault`, `data_type`, `decimal`, `minifloat`.

use serde_json::Value;

use super::data_type::DataType;
use super::decimal::Decimal;
use super::fault::{Fault, Parsed};
use super::json;
use super::minifloat::Minifloat;

/// Appends the bytes of a number of `data_type`. `is_loose` takes what v1 and v2 writers leave: 0 and 1 for
/// false and true, and these for numbers.
pub fn append(data_type: &DataType, value: &Value, is_loose: bool, bytes: &mut Vec<u8>) -> Parsed<()> {
    use DataType::*;
    match data_type {
        Bool => bytes.push(boolean(value, is_loose)?),
        Float32 => match float(value)? {
            Float::Bits(bits) => bytes.extend(hexadecimal(bits, 4, value)?),
            Float::Nan => bytes.extend(0x7fc0_0000u32.to_le_bytes()),
            Float::Infinity(sign) => bytes.extend((sign as f32 * f32::INFINITY).to_le_bytes()),
            Float::Decimal(decimal) => {
                bytes.extend(decimal.to_f32().ok_or_else(|| not_a("float", value))?.to_le_bytes())
            }
        },
        Float64 => match float(value)? {
            Float::Bits(bits) => bytes.extend(hexadecimal(bits, 8, value)?),
            Float::Nan => bytes.extend(0x7ff8_0000_0000_0000u64.to_le_bytes()),
            Float::Infinity(sign) => bytes.extend((sign * f64::INFINITY).to_le_bytes()),
            Float::Decimal(decimal) => {
                bytes.extend(decimal.to_f64().ok_or_else(|| not_a("float", value))?.to_le_bytes())
            }
        },
        DateTime64(_) | TimeDelta64(_) => {
            let ticks = if is_nat(value) { i64::MIN.into() } else { integer(value, is_loose)? };
            bytes.extend(
                in_range(ticks, i64::MIN.into(), i64::MAX.into(), value)?.to_le_bytes().iter().take(8),
            );
        }
        _ => match (Minifloat::of(data_type), integer_range(data_type)) {
            (Some(format), _) => append_minifloat(format, value, bytes)?,
            (None, Some((low, high, size))) => {
                let number = in_range(integer(value, is_loose)?, low, high, value)?;
                bytes.extend(number.to_le_bytes().iter().take(size));
            }
            (None, None) => return Err(not_a("fill value of this type", value)),
        },
    }
    Ok(())
}

/// Lowest and highest value of an integer type, and the bytes it takes.
pub fn integer_range(data_type: &DataType) -> Option<(i128, i128, usize)> {
    use DataType::*;
    let (bits, is_signed, size) = match data_type {
        Int2 => (2, true, 1),
        Int4 => (4, true, 1),
        Int8 => (8, true, 1),
        Int16 => (16, true, 2),
        Int32 => (32, true, 4),
        Int64 => (64, true, 8),
        UInt2 => (2, false, 1),
        UInt4 => (4, false, 1),
        UInt8 => (8, false, 1),
        UInt16 => (16, false, 2),
        UInt32 => (32, false, 4),
        UInt64 => (64, false, 8),
        _ => return None,
    };
    Some(match is_signed {
        true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1, size),
        false => (0, (1i128 << bits) - 1, size),
    })
}

fn not_a(what: &str, value: &Value) -> Fault {
    Fault::invalid(format_args!("{} is no {what}", json::shown(value)))
}

fn in_range(number: i128, low: i128, high: i128, value: &Value) -> Parsed<i128> {
    if (low..=high).contains(&number) {
        return Ok(number);
    }
    Err(Fault::invalid(format_args!("{} is not from {low} to {high}", json::shown(value))))
}

fn boolean(value: &Value, is_loose: bool) -> Parsed<u8> {
    match value {
        Value::Bool(truth) => Ok(u8::from(*truth)),
        _ if is_loose => match integer(value, true) {
            Ok(number @ (0 | 1)) => Ok(number as u8),
            _ => Err(not_a("bool", value)),
        },
        _ => Err(not_a("bool", value)),
    }
}

/// An integer: a JSON number without a fraction, or a string of one.
fn integer(value: &Value, is_loose: bool) -> Parsed<i128> {
    let text = match value {
        Value::Number(number) => number.as_str(),
        Value::String(text) => text,
        Value::Bool(truth) if is_loose => return Ok(i128::from(*truth)),
        _ => return Err(not_a("integer", value)),
    };
    Decimal::parse(text).and_then(|decimal| decimal.to_integer()).ok_or_else(|| not_a("integer", value))
}

fn is_nat(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.eq_ignore_ascii_case("NaT"))
}

enum Float<'a> {
    /// The hexadecimal digits of the number's bits.
    Bits(&'a str),
    Nan,
    /// 1 or -1.
    Infinity(f64),
    Decimal(Decimal<'a>),
}

fn float(value: &Value) -> Parsed<Float<'_>> {
    let text = match value {
        Value::Number(number) => number.as_str(),
        Value::String(text) => text.trim(),
        _ => return Err(not_a("float", value)),
    };
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return Ok(Float::Bits(digits));
    }
    let (sign, word) = match text.strip_prefix('-') {
        Some(word) => (-1.0, word),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    match word.to_ascii_lowercase().as_str() {
        "nan" => Ok(Float::Nan),
        "infinity" | "inf" => Ok(Float::Infinity(sign)),
        _ => Decimal::parse(text).map(Float::Decimal).ok_or_else(|| not_a("float", value)),
    }
}

/// The bits of a float of `size` bytes, least significant byte first. All digits must be there: zarr-python reads
/// `"0x7fc00000"` as float32 even in a float64 array, the specification as a tiny float64.
fn hexadecimal(digits: &str, size: usize, value: &Value) -> Parsed<impl Iterator<Item = u8> + use<>> {
    let is_hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if digits.len() != 2 * size || !is_hexadecimal {
        let (shown, needed) = (json::shown(value), 2 * size);
        return Err(Fault::invalid(format_args!("{shown} is not \"0x\" and {needed} hexadecimal digits")));
    }
    let bits = u64::from_str_radix(digits, 16).map_err(|_| not_a("float", value))?;
    Ok(bits.to_le_bytes().into_iter().take(size))
}

fn append_minifloat(format: Minifloat, value: &Value, bytes: &mut Vec<u8>) -> Parsed<()> {
    let size = if format.bits() > 8 { 2 } else { 1 };
    let code = match float(value)? {
        Float::Bits(digits) => {
            let before = bytes.len();
            bytes.extend(hexadecimal(digits, size, value)?);
            let last = bytes.last().copied().unwrap_or(0);
            if format.bits() < 8 && last >> format.bits() != 0 {
                bytes.truncate(before);
                let bits = format.bits();
                return Err(Fault::invalid(format_args!("{} has more than {bits} bits", json::shown(value))));
            }
            return Ok(());
        }
        Float::Nan => format.nan(),
        Float::Infinity(sign) => format.encode(sign * f64::INFINITY),
        Float::Decimal(decimal) => decimal.to_f64_odd().and_then(|number| format.encode(number)),
    };
    let code = code.ok_or_else(|| {
        Fault::invalid(format_args!("the data type has no value near to {}", json::shown(value)))
    })?;
    bytes.extend(code.to_le_bytes().iter().take(size));
    Ok(())
}
