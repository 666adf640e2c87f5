//! Data types as users name them, and as documents do: `float32`, `<f4`, `datetime64[ns]`, `S8`, or JSON.
//!
//! Spec: v3 "Data types", v2 "Data type encoding", and zarr-python for the types that it added to v3. Uses its neighbours.

use serde_json::{Value, json};

use crate::metadata::data_type::v2::{Dtype, StoredDataType};
use crate::metadata::data_type::{ByteOrder, DataType, Field, TimeUnit, v2, v3};
use crate::metadata::json;
use crate::metadata::json::parse_error::{ParseError, ParseResult};

/// The type of a new array's elements.
#[derive(Clone, Debug, PartialEq)]
pub struct ElementType {
    /// The type.
    pub data_type: DataType,
    /// NumPy's description, with the byte order in which v2 stores the elements; `None` if NumPy does not have the type.
    stored: Option<(Value, StoredDataType)>,
}

/// Words that NumPy uses for a type, and the beginning of its description.
const LONG_NAMES: [(&str, &str); 2] = [("datetime64", "M8"), ("timedelta64", "m8")];

impl ElementType {
    /// Reads NumPy's or Zarr's name of a type, or JSON: a v3 `data_type`, or NumPy's list of fields.
    pub fn parse(text: &str) -> ParseResult<Self> {
        let text = text.trim();
        let refused = |error: ParseError| error.within(json::shown_text(text));
        if text.starts_with(['{', '[', '"']) {
            let value = json::parse(text.as_bytes())?;
            return match value {
                Value::Array(_) => Self::from_numpy(value).map_err(refused),
                Value::String(name) if !name.starts_with('"') => Self::parse(&name),
                value => Self::from_data_type(v3::parse(&value).map_err(refused)?).map_err(refused),
            };
        }
        if let Some(data_type) = v3::by_name(text).filter(|_| !text.starts_with('r')) {
            return Self::from_data_type(data_type).map_err(refused);
        }
        let long = LONG_NAMES.iter().find_map(|(long, code)| Some((code, text.strip_prefix(long)?)));
        let word = long.map_or_else(|| text.to_owned(), |(code, unit)| format!("{code}{unit}"));
        let word = if word == "?" { "b1".to_owned() } else { word };
        let bare = word.trim_start_matches('=');
        if bare.trim_start_matches('|') == "O" {
            return Err(no_fixed_size());
        }
        let is_bare = !bare.starts_with(['<', '>', '|']);
        let marks: &[&str] = if is_bare { &["|", "<"] } else { &[""] };
        let spellings = marks.iter().map(|mark| Value::String(format!("{mark}{bare}")));
        let found =
            spellings.filter(|_| !bare.is_empty()).find_map(|spelling| Self::from_numpy(spelling).ok());
        found.ok_or_else(|| {
            let names = "examples are float32, <f4, int16, bool, complex64, datetime64[ns], S8, U4 and V16";
            ParseError::invalid(format_args!("{} is not a data type: {names}", json::shown_text(text)))
        })
    }

    /// Reads NumPy's description.
    fn from_numpy(descr: Value) -> ParseResult<Self> {
        match v2::parse(&descr)? {
            Dtype::Fixed(stored) => {
                // As NumPy writes it: without a byte order where there is none.
                let byte_order = stored.byte_order();
                let canonical = byte_order.map(|order| stored.data_type.numpy_descr(order));
                let is_same = |descr: &Value| v2::parse(descr) == Ok(Dtype::Fixed(stored.clone()));
                let descr = canonical.filter(is_same).unwrap_or(descr);
                Ok(ElementType { data_type: stored.data_type.clone(), stored: Some((descr, stored)) })
            }
            Dtype::Object => Err(no_fixed_size()),
        }
    }

    /// Creates an element type that v2 stores little-endian.
    pub fn from_data_type(data_type: DataType) -> ParseResult<Self> {
        if data_type.item_size().is_none_or(|size| size == 0) {
            return Err(no_fixed_size());
        }
        let descr = data_type.numpy_descr(ByteOrder::Little);
        let stored = match v2::parse(&descr) {
            Ok(Dtype::Fixed(stored)) if stored.data_type == data_type => Some((descr, stored)),
            _ => None,
        };
        Ok(ElementType { data_type, stored })
    }

    /// Returns the byte order that the user gave to all components that have one; `None` if they differ.
    pub fn byte_order(&self) -> Option<ByteOrder> {
        self.stored.as_ref().map_or(Some(ByteOrder::Little), |(_, stored)| stored.byte_order())
    }

    /// Returns v2's `dtype`.
    pub fn v2(&self) -> ParseResult<&Value> {
        Ok(&self.stored()?.0)
    }

    /// Returns how v2 stores the elements.
    pub fn stored(&self) -> ParseResult<&(Value, StoredDataType)> {
        let none = || ParseError::invalid(format_args!("Zarr v2 has no data type {}", self.data_type.name()));
        self.stored.as_ref().ok_or_else(none)
    }

    /// Returns v3's `data_type`.
    pub fn v3(&self) -> ParseResult<Value> {
        v3_name(&self.data_type)
    }
}

fn no_fixed_size() -> ParseError {
    ParseError::unsupported("arrays of elements without a fixed size cannot be created")
}

fn v3_name(data_type: &DataType) -> ParseResult<Value> {
    let time = |name: &str, unit: &TimeUnit| json!({"name": name, "configuration": {"unit": unit.unit, "scale_factor": unit.scale_factor}});
    let bytes = |name: &str, length: usize| json!({"name": name, "configuration": {"length_bytes": length}});
    Ok(match data_type {
        DataType::DateTime64(unit) => time("numpy.datetime64", unit),
        DataType::TimeDelta64(unit) => time("numpy.timedelta64", unit),
        DataType::NullTerminatedBytes(length) => bytes("null_terminated_bytes", *length),
        DataType::Raw(length) => bytes("raw_bytes", *length),
        DataType::FixedLengthUtf32(points) => bytes("fixed_length_utf32", points * 4),
        DataType::Struct(fields) => {
            let fields = fields.iter().map(field).collect::<ParseResult<Vec<Value>>>()?;
            json!({"name": "struct", "configuration": {"fields": fields}})
        }
        DataType::VariableLength(_) => return Err(no_fixed_size()),
        plain => json!(plain.name()),
    })
}

fn field(field: &Field) -> ParseResult<Value> {
    if !field.shape.is_empty() || field.name.is_empty() {
        return Err(ParseError::invalid("Zarr v3 has no structs with subarrays or padding"));
    }
    Ok(json!({"name": field.name, "data_type": v3_name(&field.data_type)?}))
}
