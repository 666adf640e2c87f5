//! Attributes of variables and groups, as xarray writes them in Zarr.
//!
//! Uses its neighbours. One number is a number and not a list. `_FillValue` of a float is base64 of a little-endian float64, as xarray has
//! it in Zarr v3. NaN and infinities in other attributes have no quotes, as zarr-python writes them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::variable::{Attribute, MissingValue};
use crate::metadata::DataType;
use crate::metadata::author::ElementType;

/// The attribute that names the value of missing elements.
pub const FILL_VALUE: &str = "_FillValue";

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    /// One text.
    Text(String),
    /// A list of texts.
    Texts(Vec<String>),
    /// Integers.
    Integers(Vec<i128>),
    /// Floating-point numbers.
    Floats(Vec<f64>),
}

impl AttributeValue {
    /// Returns the JSON.
    pub fn json(&self) -> String {
        match self {
            AttributeValue::Text(text) => Value::from(text.as_str()).to_string(),
            AttributeValue::Texts(texts) => list(texts, |text| Value::from(text.as_str()).to_string()),
            AttributeValue::Integers(numbers) => list(numbers, i128::to_string),
            AttributeValue::Floats(numbers) => list(numbers, |number| float(*number)),
        }
    }

    /// Returns the value of missing elements of a type; `None` if it is not one value of this type.
    pub fn missing(&self, element: &ElementType) -> Option<MissingValue> {
        let data_type = &element.data_type;
        let is_float = matches!(data_type, DataType::Float16 | DataType::Float32 | DataType::Float64);
        let name = data_type.name();
        let is_integer = name.starts_with("int") || name.starts_with("uint");
        match self {
            AttributeValue::Floats(numbers) if is_float => {
                let [number] = numbers.as_slice() else { return None };
                let fill_value =
                    if number.is_finite() { float(*number) } else { format!("\"{}\"", float(*number)) };
                let attribute = Value::from(STANDARD.encode(number.to_le_bytes())).to_string();
                Some(MissingValue { fill_value: Some(fill_value), attribute })
            }
            AttributeValue::Integers(numbers) if is_integer => {
                let [number] = numbers.as_slice() else { return None };
                Some(MissingValue { fill_value: Some(number.to_string()), attribute: number.to_string() })
            }
            AttributeValue::Text(text) if matches!(data_type, DataType::NullTerminatedBytes(_)) => {
                let attribute = Value::from(STANDARD.encode(text)).to_string();
                Some(MissingValue { fill_value: None, attribute })
            }
            AttributeValue::Text(text) if matches!(data_type, DataType::FixedLengthUtf32(_)) => {
                Some(MissingValue { fill_value: None, attribute: Value::from(text.as_str()).to_string() })
            }
            _ => None,
        }
    }
}

/// Returns one element alone, or a list.
fn list<T>(elements: &[T], json: impl Fn(&T) -> String) -> String {
    match elements {
        [element] => json(element),
        elements => format!("[{}]", elements.iter().map(json).collect::<Vec<_>>().join(",")),
    }
}

fn float(number: f64) -> String {
    if number.is_nan() {
        "NaN".to_owned()
    } else if number.is_infinite() {
        if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else {
        Value::from(number).to_string()
    }
}

/// Returns the attributes of a variable without `_FillValue`, and that one. If it is not a value of the variable's type, it stays what it is.
pub fn of_variable(
    attributes: Vec<(String, AttributeValue)>,
    element: &ElementType,
) -> (Vec<Attribute>, Option<MissingValue>) {
    let mut missing = None;
    let mut others = Vec::new();
    for (name, value) in attributes {
        if name == FILL_VALUE
            && let Some(found) = value.missing(element)
        {
            missing = Some(found);
            continue;
        }
        others.push((name, value.json()));
    }
    (others, missing)
}
