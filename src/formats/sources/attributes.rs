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

    /// Returns the value of missing elements of a type; `None` if it is not one value that an element of the type can have.
    pub fn missing(&self, element: &ElementType) -> Option<MissingValue> {
        let data_type = &element.data_type;
        let is_float = matches!(data_type, DataType::Float16 | DataType::Float32 | DataType::Float64);
        let of_float = |number: f64| {
            let fill_value =
                if number.is_finite() { float(number) } else { format!("\"{}\"", float(number)) };
            let attribute = Value::from(STANDARD.encode(number.to_le_bytes())).to_string();
            MissingValue { fill_value: Some(fill_value), attribute }
        };
        let of_integer = |number: i128| MissingValue {
            fill_value: Some(number.to_string()),
            attribute: number.to_string(),
        };
        match self {
            AttributeValue::Floats(numbers) => {
                let [number] = numbers.as_slice() else { return None };
                if is_float {
                    return Some(of_float(*number));
                }
                // A file may have a float here for integers. The cast saturates, and such a number is outside of every range.
                let integer = (number.fract() == 0.0).then_some(*number as i128)?;
                integers(data_type)?.contains(&integer).then(|| of_integer(integer))
            }
            AttributeValue::Integers(numbers) => {
                let [number] = numbers.as_slice() else { return None };
                if is_float {
                    return Some(of_float(*number as f64));
                }
                integers(data_type)?.contains(number).then(|| of_integer(*number))
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

/// Returns the numbers that a type of integers has; `None` for other types.
fn integers(data_type: &DataType) -> Option<std::ops::RangeInclusive<i128>> {
    let name = data_type.name();
    let (is_signed, bits) = match name.strip_prefix("uint") {
        Some(bits) => (false, bits),
        None => (true, name.strip_prefix("int")?),
    };
    let bits: u32 = bits.parse().ok().filter(|bits| (1..=64).contains(bits))?;
    Some(if is_signed { -(1 << (bits - 1))..=(1 << (bits - 1)) - 1 } else { 0..=(1 << bits) - 1 })
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

/// The attributes of a variable.
#[derive(Debug, Default)]
pub struct VariableAttributes {
    /// All but `_FillValue`.
    pub attributes: Vec<Attribute>,
    /// `_FillValue`.
    pub missing: Option<MissingValue>,
    /// Why `_FillValue` is left out.
    pub left_out: Option<String>,
}

impl VariableAttributes {
    /// Returns the attributes of a variable. A `_FillValue` that no element can have marks nothing, and other programs fail on it.
    pub fn new(attributes: Vec<(String, AttributeValue)>, element: &ElementType, path: &str) -> Self {
        let mut sorted = VariableAttributes::default();
        for (name, value) in attributes {
            if name != FILL_VALUE {
                sorted.attributes.push((name, value.json()));
                continue;
            }
            sorted.missing = value.missing(element);
            if sorted.missing.is_none() {
                let (json, type_name) = (value.json(), element.data_type.name());
                let reason = format!("attribute '{name}' of '/{path}': no {type_name} is {json}");
                sorted.left_out = Some(reason);
            }
        }
        sorted
    }
}
