//! Fill values: one element's bytes, from the JSON forms of v2 and v3.
//!
//! Spec: v3 "Permitted fill values" and the registered data types' own sections; v2 "Fill value encoding".
//! Uses `json`, `data_type`, `number`. The way back to JSON is in `json.rs`.
//!
//! In addition to the forms in the specifications, forms in real stores are accepted: numbers as strings and scalars as lists
//! of one (NCZarr), integers written `1.0`, `"+Infinity"`, 0 and 1 for a bool. A value that does not fit the type is an error: it is never truncated.

mod decimal;
mod json;
mod number;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::data_type::{Component, DataType, Field, VariableLength};
use super::json::parse_error::{ParseError, ParseResult};
use super::zarr_format::ZarrFormat;

/// The value of a missing chunk's elements, as the bytes of one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillValue {
    /// One element in canonical form (little-endian, packed). For a type without a fixed size: the bytes of the
    /// string.
    pub bytes: Vec<u8>,
    /// Whether it is undefined: v2's `null`, or a v1 document without the member. It is read as zeros, and a chunk that
    /// equals it is never deleted.
    pub is_undefined: bool,
}

impl FillValue {
    /// Creates a fill value of zero bytes only.
    pub fn zeros(data_type: &DataType) -> Self {
        FillValue { bytes: vec![0; data_type.item_size().unwrap_or(0)], is_undefined: false }
    }

    /// Creates v2's `null`: zeros that are marked as undefined.
    pub fn undefined(data_type: &DataType) -> Self {
        FillValue { is_undefined: true, ..Self::zeros(data_type) }
    }

    /// Reads v3's JSON form: a document's `fill_value`, or a scalar in a codec's configuration. Base64 of a whole
    /// struct is little-endian.
    pub fn from_v3(data_type: &DataType, value: &Value) -> ParseResult<Self> {
        Self::from_json(data_type, value, ZarrFormat::V3)
    }

    /// Reads v2's JSON form. `big_endian` has the components that are big-endian in base64 of the element.
    pub fn from_v2(data_type: &DataType, big_endian: &[Component], value: &Value) -> ParseResult<Self> {
        let mut fill = Self::from_json(data_type, value, ZarrFormat::V2)?;
        if matches!(data_type, DataType::Struct(_)) && scalar(value).is_string() {
            swap(&mut fill.bytes, big_endian);
        }
        Ok(fill)
    }

    /// Reads v1's JSON form. It is that of v2, except that strings are literal.
    pub fn from_v1(data_type: &DataType, value: &Value) -> ParseResult<Self> {
        Self::from_json(data_type, value, ZarrFormat::V1)
    }

    fn from_json(data_type: &DataType, value: &Value, version: ZarrFormat) -> ParseResult<Self> {
        if value.is_null() && version != ZarrFormat::V3 {
            return Ok(Self::undefined(data_type));
        }
        let mut bytes = Vec::new();
        append(data_type, value, version, &mut bytes)?;
        if data_type.item_size().is_some_and(|size| size != bytes.len()) {
            return Err(ParseError::invalid(format_args!(
                "{} does not fit the data type",
                super::json::shown(value)
            )));
        }
        Ok(FillValue { bytes, is_undefined: false })
    }
}

/// Reverses the bytes of each part.
pub fn swap(element: &mut [u8], components: &[Component]) {
    for component in components {
        let end = component.offset.saturating_add(component.width.saturating_mul(component.count));
        let run = element.get_mut(component.offset..end).unwrap_or_default();
        if component.width > 1 {
            run.chunks_exact_mut(component.width).for_each(<[u8]>::reverse);
        }
    }
}

/// Returns the value, or the only item of a list of one.
fn scalar(value: &Value) -> &Value {
    match value.as_array().map(Vec::as_slice) {
        Some([only]) => only,
        _ => value,
    }
}

/// Appends the canonical bytes of one element.
fn append(data_type: &DataType, value: &Value, version: ZarrFormat, bytes: &mut Vec<u8>) -> ParseResult<()> {
    use DataType::*;
    if let Some(part) = data_type.complex_part() {
        return append_complex(part, value, version, bytes);
    }
    match data_type {
        Raw(size) => append_raw(*size, value, version, bytes),
        NullTerminatedBytes(size) => {
            let content = byte_string(scalar(value), version)?;
            append_padded(&content, *size, value, bytes)
        }
        FixedLengthUtf32(points) => append_utf32(*points, scalar(value), version, bytes),
        Struct(fields) => append_struct(fields, value, version, bytes),
        VariableLength(kind) => append_variable_length(kind, scalar(value), version, bytes),
        _ => number::append(data_type, scalar(value), version != ZarrFormat::V3, bytes),
    }
}

/// Returns whether a v1 or v2 writer meant "all zeros" by a plain 0 (NumPy's default) for a type without numbers.
fn means_zeros(value: &Value, version: ZarrFormat) -> bool {
    version != ZarrFormat::V3 && value.as_f64() == Some(0.0)
}

fn append_raw(size: usize, value: &Value, version: ZarrFormat, bytes: &mut Vec<u8>) -> ParseResult<()> {
    let content = match scalar(value) {
        Value::String(_) => byte_string(scalar(value), version)?,
        _ if value.is_array() => byte_list(value)?,
        _ => byte_string(value, version)?,
    };
    if means_zeros(value, version) {
        bytes.resize(bytes.len() + size, 0);
        return Ok(());
    }
    if content.len() != size {
        let (found, shown) = (content.len(), super::json::shown(value));
        return Err(ParseError::invalid(format_args!(
            "{shown} has {found} bytes, but an element has {size}"
        )));
    }
    bytes.extend_from_slice(&content);
    Ok(())
}

/// Reads a list of integers from 0 to 255.
fn byte_list(value: &Value) -> ParseResult<Vec<u8>> {
    let byte = |item: &Value| {
        let byte = item.as_u64().and_then(|byte| u8::try_from(byte).ok());
        byte.ok_or_else(|| ParseError::invalid(format_args!("{} is not a byte", super::json::shown(item))))
    };
    super::json::list(value)?.iter().map(byte).collect()
}

/// Decodes the bytes that a string stands for. Since v2 it is base64. A v2 string that cannot be base64 is literal.
fn byte_string(value: &Value, version: ZarrFormat) -> ParseResult<Vec<u8>> {
    if means_zeros(value, version) {
        return Ok(Vec::new());
    }
    let text = super::json::text(value)?;
    if version == ZarrFormat::V1 {
        return Ok(text.as_bytes().to_vec());
    }
    match (STANDARD.decode(text), version) {
        (Ok(bytes), _) => Ok(bytes),
        (Err(_), ZarrFormat::V2) => Ok(text.as_bytes().to_vec()),
        (Err(error), _) => {
            Err(ParseError::invalid(format_args!("{} is not base64: {error}", super::json::shown(value))))
        }
    }
}

fn append_padded(content: &[u8], size: usize, value: &Value, bytes: &mut Vec<u8>) -> ParseResult<()> {
    let padding = size.checked_sub(content.len()).ok_or_else(|| {
        let (found, shown) = (content.len(), super::json::shown(value));
        ParseError::invalid(format_args!("{shown} has {found} bytes, but an element has {size}"))
    })?;
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len() + padding, 0);
    Ok(())
}

fn append_utf32(points: usize, value: &Value, version: ZarrFormat, bytes: &mut Vec<u8>) -> ParseResult<()> {
    let text = if means_zeros(value, version) { "" } else { super::json::text(value)? };
    let content: Vec<u8> = text.chars().flat_map(|point| u32::from(point).to_le_bytes()).collect();
    append_padded(&content, points.saturating_mul(4), value, bytes)
}

/// Appends a real and an imaginary part of the type `part`.
fn append_complex(
    part: &DataType,
    value: &Value,
    version: ZarrFormat,
    bytes: &mut Vec<u8>,
) -> ParseResult<()> {
    let zero = Value::from(0);
    let (real, imaginary) = match value.as_array().map(Vec::as_slice) {
        Some([real, imaginary]) => (real, imaginary),
        // v1 and v2 writers also leave a plain number.
        None if version != ZarrFormat::V3 => (value, &zero),
        _ => {
            let shown = super::json::shown(value);
            return Err(ParseError::invalid(format_args!(
                "must be a real and an imaginary part, not {shown}"
            )));
        }
    };
    number::append(part, real, version != ZarrFormat::V3, bytes)?;
    number::append(part, imaginary, version != ZarrFormat::V3, bytes)
}

/// Appends a struct. It is base64 of the packed element, or an object with a value for each field, or a list of the
/// values in order.
fn append_struct(
    fields: &[Field],
    value: &Value,
    version: ZarrFormat,
    bytes: &mut Vec<u8>,
) -> ParseResult<()> {
    let whole = DataType::Struct(fields.to_vec());
    let size = whole.item_size().unwrap_or(0);
    match value {
        Value::Object(members) => append_fields(fields, members, version, bytes),
        Value::Array(items) if items.len() == fields.len() && !scalar(value).is_string() => {
            fields.iter().zip(items).try_for_each(|(field, item)| append_field(field, item, version, bytes))
        }
        _ if means_zeros(value, version) => {
            bytes.resize(bytes.len() + size, 0);
            Ok(())
        }
        _ => append_raw(size, scalar(value), version, bytes),
    }
}

fn append_fields(
    fields: &[Field],
    members: &Map<String, Value>,
    version: ZarrFormat,
    bytes: &mut Vec<u8>,
) -> ParseResult<()> {
    if let Some(name) = members.keys().find(|name| !fields.iter().any(|field| field.name == **name)) {
        return Err(ParseError::invalid(format_args!("there is no field {}", super::json::shown_text(name))));
    }
    for field in fields {
        if field.name.is_empty() {
            bytes.resize(bytes.len() + field.size().unwrap_or(0), 0);
        } else {
            append_field(field, super::json::required(members, &field.name)?, version, bytes)?;
        }
    }
    Ok(())
}

fn append_field(field: &Field, value: &Value, version: ZarrFormat, bytes: &mut Vec<u8>) -> ParseResult<()> {
    append_subarray(&field.data_type, &field.shape, value, version, bytes)
        .map_err(|error| error.within(super::json::shown_text(&field.name)))
}

fn append_subarray(
    data_type: &DataType,
    shape: &[u64],
    value: &Value,
    version: ZarrFormat,
    bytes: &mut Vec<u8>,
) -> ParseResult<()> {
    let Some((&length, inner)) = shape.split_first() else {
        return append(data_type, value, version, bytes);
    };
    let items = super::json::list(value)?;
    if items.len() as u64 != length {
        let found = items.len();
        return Err(ParseError::invalid(format_args!("must be a list of {length}, but has {found} members")));
    }
    items.iter().try_for_each(|item| append_subarray(data_type, inner, item, version, bytes))
}

/// Appends the value of a type without a fixed size. It does not matter to the flat file and must not hide the array.
fn append_variable_length(
    kind: &VariableLength,
    value: &Value,
    version: ZarrFormat,
    bytes: &mut Vec<u8>,
) -> ParseResult<()> {
    match (kind, value) {
        (_, Value::Null) | (VariableLength::Other(_), _) => {}
        (VariableLength::Utf8, Value::String(text)) => bytes.extend_from_slice(text.as_bytes()),
        (VariableLength::Bytes, Value::Array(_)) => bytes.extend(byte_list(value)?),
        (VariableLength::Bytes, _) => bytes.extend(byte_string(value, version)?),
        // This was zarr-python's default, and zarr-python reads its text.
        (VariableLength::Utf8, Value::Number(number)) if version != ZarrFormat::V3 => {
            bytes.extend_from_slice(number.to_string().as_bytes());
        }
        (VariableLength::Utf8, _) => {
            return Err(ParseError::invalid(format_args!(
                "must be a string, not {}",
                super::json::shown(value)
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::metadata::{Dtype, parse_data_type_v3, parse_dtype_v2};
    use proptest::prelude::*;
    use serde_json::json;

    fn parsed(text: &str) -> Value {
        crate::metadata::json::parse(text.as_bytes()).unwrap()
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

    #[test]
    fn complex_numbers() {
        let bytes = v3(json!("complex64"), "[-Infinity, \"0x7fc00001\"]").unwrap();
        assert_eq!(bytes, [0, 0, 0x80, 0xff, 1, 0, 0xc0, 0x7f]);
        assert_eq!(v2(json!(">c8"), "1.0").unwrap(), [0, 0, 0x80, 0x3f, 0, 0, 0, 0]);
        assert_eq!(v3(json!("complex128"), "[0, 1]").unwrap().len(), 16);
        for fill in ["1.0", "[1]", "[1,2,3]", "{}", "[[1],2,3]"] {
            assert!(v3(json!("complex64"), fill).is_err(), "{fill}");
        }
    }

    #[test]
    fn raw_bytes_and_byte_strings() {
        assert_eq!(v3(json!("r24"), "[1, 2, 255]").unwrap(), [1, 2, 255]);
        assert_eq!(v3(json!("r24"), "\"AQL/\"").unwrap(), [1, 2, 255]);
        assert_eq!(v3(json!("r8"), "[7]").unwrap(), [7]);
        assert_eq!(v2(json!("|V3"), "[\"AQL/\"]").unwrap(), [1, 2, 255]);
        for fill in ["[1,2]", "[1,2,256]", "\"AQI=\"", "\"AQL\"", "0", "[1,2,-1]"] {
            assert!(v3(json!("r24"), fill).is_err(), "{fill}");
        }
        assert_eq!(v2(json!("|V3"), "0").unwrap(), [0; 3]);
        assert_eq!(v2(json!("|S4"), "\"YWI=\"").unwrap(), b"ab\0\0");
        assert_eq!(v2(json!("|S4"), "\"\"").unwrap(), [0; 4]);
        assert_eq!(v2(json!("|S4"), "0").unwrap(), [0; 4]);
        assert_eq!(v2(json!("|S4"), "\"\\u0000\"").unwrap(), [0; 4]);
        assert!(v2(json!("|S1"), "\"YWI=\"").is_err());
        let s4 = DataType::NullTerminatedBytes(4);
        assert_eq!(FillValue::from_v1(&s4, &json!("YWI=")).unwrap().bytes, b"YWI=");
    }

    #[test]
    fn utf32() {
        let bytes = v2(json!(">U3"), "\"a\u{1f600}\"").unwrap();
        assert_eq!(bytes, [0x61, 0, 0, 0, 0, 0xf6, 1, 0, 0, 0, 0, 0]);
        assert_eq!(v2(json!("<U1"), "0").unwrap(), [0; 4]);
        assert!(v2(json!("<U1"), "\"ab\"").is_err());
        assert!(
            v3(json!({"name": "fixed_length_utf32", "configuration": {"length_bytes": 4}}), "0").is_err()
        );
    }

    #[test]
    fn structs() {
        let dtype = json!([["x", ">i2"], ["", "|V1"], ["s", "|S2"], ["p", "<u2", [2, 1]]]);
        // Base64 holds the element as stored: x big-endian.
        let stored = STANDARD.encode([1, 2, 9, b'a', 0, 3, 0, 4, 0]);
        let canonical = [2, 1, 9, b'a', 0, 3, 0, 4, 0];
        assert_eq!(v2(dtype.clone(), &format!("\"{stored}\"")).unwrap(), canonical);
        assert_eq!(v2(dtype.clone(), "0").unwrap(), [0; 9]);
        assert_eq!(v2(dtype.clone(), "null").unwrap(), [0; 9]);
        let object = r#"{"x": 258, "s": "YQ==", "p": [[3], [4]]}"#;
        assert_eq!(v2(dtype.clone(), object).unwrap(), [2, 1, 0, b'a', 0, 3, 0, 4, 0]);
        assert!(v2(dtype.clone(), "\"AQID\"").is_err());
        for fill in [
            r#"{"x": 1}"#,
            r#"{"x": 1, "s": "", "p": [[1], [2]], "q": 0}"#,
            r#"{"x": 1, "s": "", "p": [1, 2]}"#,
        ] {
            assert!(v2(dtype.clone(), fill).is_err(), "{fill}");
        }
    }

    #[test]
    fn null_is_undefined_in_v2_only() {
        let fill = FillValue::from_v2(&DataType::Int16, &[], &Value::Null).unwrap();
        assert_eq!(fill, FillValue { bytes: vec![0, 0], is_undefined: true });
        assert!(FillValue::from_v3(&DataType::Int16, &Value::Null).is_err());
    }

    #[test]
    fn variable_length() {
        assert_eq!(v3(json!("string"), "\"é\"").unwrap(), "é".as_bytes());
        assert_eq!(v3(json!("bytes"), "[1, 2]").unwrap(), [1, 2]);
        assert_eq!(v3(json!("bytes"), "\"AQI=\"").unwrap(), [1, 2]);
        assert_eq!(v3(json!({"name": "optional", "configuration": {}}), "[null]").unwrap(), [0; 0]);
        assert!(v3(json!("string"), "5").is_err());
        let utf8 = DataType::VariableLength(VariableLength::Utf8);
        assert_eq!(FillValue::from_v2(&utf8, &[], &json!(0)).unwrap().bytes, b"0");
        assert_eq!(FillValue::from_v2(&utf8, &[], &json!(null)).unwrap().bytes, [0; 0]);
    }

    proptest! {
        #[test]
        fn no_value_panics(text in "[\\[\\]{}:,\"0-9a-fx.eE+NI -]{0,30}") {
            let Ok(value) = crate::metadata::json::parse(text.as_bytes()) else { return Ok(()) };
            for name in ["bool", "int2", "uint64", "float32", "float8_e8m0fnu", "complex64", "r16", "string", "bytes"] {
                let data_type = parse_data_type_v3(&json!(name)).unwrap();
                let _ = FillValue::from_v3(&data_type, &value);
                let _ = FillValue::from_v2(&data_type, &[], &value);
            }
        }
    }
}
