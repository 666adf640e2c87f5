//! Fill values in v3's JSON form, as the sidecar shows them.
//!
//! Spec: v3 "Permitted fill values" and the registered data types' own sections. Uses `data_type`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

use super::FillValue;
use crate::metadata::data_type::{DataType, Field, VariableLength};

impl FillValue {
    /// Returns v3's JSON form. A float is the shortest decimal that gives its float64; a NaN other than the common one
    /// is hexadecimal bits; raw bytes are a list; a struct's fields are members, without padding.
    pub fn to_json(&self, data_type: &DataType) -> Value {
        scalar(data_type, &self.bytes)
    }
}

fn scalar(data_type: &DataType, bytes: &[u8]) -> Value {
    use DataType::*;
    if let Some(part) = data_type.complex_part() {
        let (real, imaginary) = bytes.split_at(bytes.len() / 2);
        return Value::Array(vec![scalar(part, real), scalar(part, imaginary)]);
    }
    match data_type {
        Bool => Value::Bool(bytes.first().is_some_and(|&byte| byte != 0)),
        Float32 => {
            let value = f32::from_bits(little_endian(bytes) as u32);
            float(f64::from(value), value.to_bits() == 0x7fc0_0000, bytes)
        }
        Float64 => {
            let value = f64::from_bits(little_endian(bytes));
            float(value, value.to_bits() == 0x7ff8_0000_0000_0000, bytes)
        }
        Raw(_) => Value::Array(bytes.iter().map(|&byte| Value::from(byte)).collect()),
        NullTerminatedBytes(_) => Value::String(STANDARD.encode(without_padding(bytes))),
        FixedLengthUtf32(_) => {
            let points = bytes.chunks_exact(4).map(|point| little_endian(point) as u32);
            let text: String = points.map(|point| char::from_u32(point).unwrap_or('\u{fffd}')).collect();
            Value::String(text.trim_end_matches('\0').to_owned())
        }
        DateTime64(_) | TimeDelta64(_) => match little_endian(bytes) as i64 {
            i64::MIN => Value::from("NaT"),
            ticks => Value::from(ticks),
        },
        Struct(fields) => structure(fields, bytes),
        VariableLength(self::VariableLength::Bytes) => Value::String(STANDARD.encode(bytes)),
        VariableLength(self::VariableLength::Utf8) => {
            Value::String(String::from_utf8_lossy(bytes).into_owned())
        }
        VariableLength(_) => Value::Null,
        _ => match data_type.minifloat() {
            Some(format) => {
                let code = little_endian(bytes) as u16;
                float(format.decode(code), Some(code) == format.nan(), bytes)
            }
            None => integer(data_type, bytes),
        },
    }
}

/// Reads at most 8 bytes as a number.
fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

fn without_padding(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    bytes.get(..end).unwrap_or_default()
}

fn integer(data_type: &DataType, bytes: &[u8]) -> Value {
    let value = little_endian(bytes);
    match data_type.integer_format() {
        Some(format) if format.is_signed => {
            let unused = 64 - 8 * bytes.len().clamp(1, 8);
            Value::from((value << unused) as i64 >> unused)
        }
        _ => Value::from(value),
    }
}

fn float(value: f64, is_common_nan: bool, bytes: &[u8]) -> Value {
    if value.is_nan() && !is_common_nan {
        let digits: String = bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect();
        return Value::String(format!("0x{digits}"));
    }
    if value.is_nan() {
        return Value::from("NaN");
    }
    if value.is_infinite() {
        return Value::from(if value > 0.0 { "Infinity" } else { "-Infinity" });
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

fn structure(fields: &[Field], bytes: &[u8]) -> Value {
    let mut members = Map::new();
    let mut rest = bytes;
    for field in fields {
        let (field_bytes, after) = rest.split_at(field.size().unwrap_or(0).min(rest.len()));
        rest = after;
        if !field.name.is_empty() {
            members.insert(field.name.clone(), subarray(&field.data_type, &field.shape, field_bytes));
        }
    }
    Value::Object(members)
}

fn subarray(data_type: &DataType, shape: &[u64], bytes: &[u8]) -> Value {
    let Some((&length, inner)) = shape.split_first() else {
        return scalar(data_type, bytes);
    };
    let size = bytes.len() / usize::try_from(length).unwrap_or(1).max(1);
    let items = if size == 0 { bytes.chunks_exact(1) } else { bytes.chunks_exact(size) };
    Value::Array(items.map(|item| subarray(data_type, inner, item)).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::metadata::{Dtype, json, parse_data_type_v3, parse_dtype_v2};
    use proptest::prelude::*;
    use serde_json::json;

    fn parsed(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_json_form() {
        for (data_type, fill, expected) in [
            (json!("float32"), "0.1", json!(0.10000000149011612)),
            (json!("float32"), "-0.0", json!(-0.0)),
            (json!("float64"), "-9999", json!(-9999.0)),
            (json!("float32"), "\"0x7fc00000\"", json!("NaN")),
            (json!("float32"), "\"0xffc00001\"", json!("0xffc00001")),
            (json!("float16"), "\"0x7e01\"", json!("0x7e01")),
            (json!("float8_e5m2"), "\"0x7f\"", json!("0x7f")),
            (json!("float8_e5m2"), "1e9", json!("Infinity")),
            (json!("bool"), "true", json!(true)),
            (json!("int4"), "-8", json!(-8)),
            (json!("uint64"), "18446744073709551615", json!(u64::MAX)),
            (json!("complex64"), "[NaN, -Infinity]", json!(["NaN", "-Infinity"])),
            (json!("complex_float32"), "[1, -2.5]", json!([1.0, -2.5])),
            (json!("complex_float16"), "[\"0x7e01\", 0.1]", json!(["0x7e01", 0.0999755859375])),
            (json!("complex_bfloat16"), "[-Infinity, 1.0078125]", json!(["-Infinity", 1.0078125])),
            (json!("complex_float8_e8m0fnu"), "[0.5, NaN]", json!([0.5, "NaN"])),
            (json!("complex_float4_e2m1fn"), "[6.0, -0.5]", json!([6.0, -0.5])),
            (json!("r16"), "\"AQI=\"", json!([1, 2])),
            (
                json!({"name": "null_terminated_bytes", "configuration": {"length_bytes": 5}}),
                "\"YWI=\"",
                json!("YWI="),
            ),
            (
                json!({"name": "fixed_length_utf32", "configuration": {"length_bytes": 12}}),
                "\"é\"",
                json!("é"),
            ),
            (
                json!({"name": "numpy.timedelta64", "configuration": {"unit": "s", "scale_factor": 2}}),
                "-9223372036854775808",
                json!("NaT"),
            ),
            (json!("string"), "\"x\"", json!("x")),
        ] {
            let data_type = parse_data_type_v3(&data_type).unwrap();
            let fill = FillValue::from_v3(&data_type, &parsed(fill)).unwrap();
            assert_eq!(fill.to_json(&data_type).to_string(), expected.to_string());
        }
        let Dtype::Fixed(stored) =
            parse_dtype_v2(&json!([["a", "|u1"], ["", "|V3"], ["b", ">i2", [2, 2]]])).unwrap()
        else {
            panic!()
        };
        let fill = FillValue { bytes: vec![1, 0, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0], is_undefined: false };
        assert_eq!(fill.to_json(&stored.data_type), json!({"a": 1, "b": [[1, 2], [3, 4]]}));
    }

    proptest! {
        #[test]
        fn every_element_comes_back_from_its_json_form(bytes in proptest::collection::vec(any::<u8>(), 16)) {
            for name in ["int8", "uint16", "int32", "uint64", "float16", "bfloat16", "float32", "float64", "complex64",
                "complex128", "r72", "float8_e5m2", "float8_e4m3fnuz", "float8_e8m0fnu", "int64", "complex_float16",
                "complex_bfloat16", "complex_float8_e3m4", "complex_float8_e4m3b11fnuz", "complex_float8_e5m2fnuz"]
            {
                let data_type = parse_data_type_v3(&json!(name)).unwrap();
                let bytes = bytes[..data_type.item_size().unwrap()].to_vec();
                let fill = FillValue { bytes, is_undefined: false };
                let form = fill.to_json(&data_type);
                prop_assert_eq!(&FillValue::from_v3(&data_type, &form).unwrap(), &fill, "{} {}", name, form);
            }
        }
    }
}
