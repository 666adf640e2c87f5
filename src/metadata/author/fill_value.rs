//! Fill values of new arrays: from what a user writes to the document's JSON.
//!
//! Spec: v3 "Permitted fill values", v2 "Fill value encoding". Uses its neighbours and `metadata/fill_value`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::element_type::ElementType;
use crate::metadata::data_type::DataType;
use crate::metadata::fill_value::{FillValue, swap};
use crate::metadata::json;
use crate::metadata::json::parse_error::ParseResult;

/// Returns v3's `fill_value`.
pub fn v3(text: Option<&str>, data_type: &DataType) -> ParseResult<Value> {
    let fill = match text {
        None => default(data_type),
        Some(text) => parse(text, data_type)?,
    };
    Ok(written(&fill, data_type))
}

/// Returns v2's `fill_value`; `null` leaves it undefined. In an array with dimension names xarray treats it as
/// `_FillValue`, so that elements equal to a default would become missing.
pub fn v2(text: Option<&str>, element: &ElementType, has_names: bool) -> ParseResult<Value> {
    let data_type = &element.data_type;
    let mut fill = match text {
        None => match default(data_type) {
            _ if has_names && is_float(data_type) => FillValue::from_v3(data_type, &Value::from("NaN"))?,
            zeros if has_names && zeros == FillValue::zeros(data_type) => return Ok(Value::Null),
            fill => fill,
        },
        Some(text) if text.trim() == "null" => return Ok(Value::Null),
        Some(text) => parse(text, data_type)?,
    };
    if matches!(data_type, DataType::Struct(_)) {
        swap(&mut fill.bytes, &element.stored()?.1.big_endian);
        return Ok(Value::String(STANDARD.encode(&fill.bytes)));
    }
    Ok(written(&fill, data_type))
}

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float16 | DataType::Float32 | DataType::Float64)
}

/// Parses JSON as in a v3 document. Anything else is a word, such as NaN or the text of a string.
fn parse(text: &str, data_type: &DataType) -> ParseResult<FillValue> {
    let word = || Value::String(text.to_owned());
    let value = json::parse(text.as_bytes()).unwrap_or_else(|_| word());
    let fill = FillValue::from_v3(data_type, &value);
    let is_text = matches!(data_type, DataType::FixedLengthUtf32(_));
    let fill = if is_text { fill.or_else(|_| FillValue::from_v3(data_type, &word())) } else { fill };
    fill.map_err(|error| error.within("fill value"))
}

/// Returns the default: zero, or not-a-time.
fn default(data_type: &DataType) -> FillValue {
    match data_type {
        DataType::DateTime64(_) | DataType::TimeDelta64(_) => {
            FillValue { bytes: i64::MIN.to_le_bytes().to_vec(), is_undefined: false }
        }
        _ => FillValue::zeros(data_type),
    }
}

/// Formats a fill value as zarr-python does: base64 for bytes, the number for a time.
fn written(fill: &FillValue, data_type: &DataType) -> Value {
    match data_type {
        DataType::Raw(_) => Value::String(STANDARD.encode(&fill.bytes)),
        DataType::DateTime64(_) | DataType::TimeDelta64(_) => {
            let ticks = fill.bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
            Value::from(ticks)
        }
        DataType::Struct(fields) => {
            let Value::Object(mut members) = fill.to_json(data_type) else { return Value::Null };
            let mut offset = 0;
            for field in fields {
                let end = offset + field.size().unwrap_or(0);
                let bytes = fill.bytes.get(offset..end).unwrap_or_default().to_vec();
                offset = end;
                if field.shape.is_empty()
                    && let Some(member) = members.get_mut(&field.name)
                {
                    *member = written(&FillValue { bytes, is_undefined: false }, &field.data_type);
                }
            }
            Value::Object(members)
        }
        _ => fill.to_json(data_type),
    }
}
