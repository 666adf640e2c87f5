//! Attributes: from JSON to the types that HDF5 and netCDF have.
//!
//! Spec: netCDF "Attribute Conventions"; CF conventions, "Missing data" and "Packed data". Uses its neighbours and `metadata`.
//!
//! | JSON | in the file |
//! |---|---|
//! | a string | a string of fixed length; one of variable length beyond [`MAX_INLINE_BYTES`] |
//! | an integer | int32, else int64, else uint64: the first that holds it |
//! | another number | float64 |
//! | true, false | int8, 1 or 0 |
//! | a list of numbers, of bools, of strings | one axis of these, if that is short enough for an object's header |
//! | anything else | its JSON text |
//!
//! What must have the type of the array (`_FillValue`, `valid_range`, …) has it, if the value fits it.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::hdf5::datatype::{self, VARIABLE_LENGTH_BYTES};
use super::hdf5::global_heap::{GlobalHeap, HeapObject, HeapSlot};
use super::hdf5::messages::Dataspace;
use super::names::{UniqueNames, file_name};
use crate::formats::shortened;
use crate::metadata::no_data::{
    DIMENSIONS_ATTRIBUTE, FILL_ATTRIBUTE, MISSING_ATTRIBUTE, NoData, encoded_float,
};
use crate::metadata::{ArrayMetadata, ByteOrder, DataType, FillValue, fill_value};

/// The longest value that is kept in an object's header.
const MAX_INLINE_BYTES: usize = 60_000;
/// The most attributes of one object: programs look for an attribute from the first one on.
const MAX_ATTRIBUTES: usize = 4096;
/// The most bytes of all attributes of a file.
const MAX_FILE_BYTES: usize = 16 << 20;
/// What an attribute takes beside its name and value.
const OVERHEAD_BYTES: usize = 64;

/// UniqueNames that mean something to HDF5's dimension scales or to netCDF.
const RESERVED: [&str; 8] = [
    "CLASS",
    "NAME",
    "DIMENSION_LIST",
    "REFERENCE_LIST",
    "_NCProperties",
    "_Netcdf4Coordinates",
    "_Netcdf4Dimid",
    "_nc3_strict",
];
/// Attributes with values of the array.
const OWN_TYPE: [&str; 7] =
    [FILL_ATTRIBUTE, MISSING_ATTRIBUTE, "valid_min", "valid_max", "valid_range", "flag_values", "flag_masks"];
/// Attributes that turn stored values into others: floats, whatever their JSON looks like.
const FLOATS: [&str; 2] = ["scale_factor", "add_offset"];
/// In this attribute an object names the attributes that it lacks.
pub const LEFT_OUT_ATTRIBUTE: &str = "zarrfs_left_out_attributes";

/// An attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub datatype: Vec<u8>,
    /// Its shape.
    pub dataspace: Dataspace,
    /// Its elements.
    pub data: AttributeData,
}

/// The elements of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeData {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Elements in the global heap: how many values each is, and where.
    InHeap(Vec<(u32, HeapSlot)>),
    /// Objects by index, with the number of a dimension of each.
    Referrers(Vec<(usize, u32)>),
}

impl Attribute {
    /// A string.
    pub fn text(name: &str, text: &str) -> Self {
        let (dataspace, size) = match text.len() {
            // A string of no bytes is no datatype.
            0 => (Dataspace::Null, 1),
            length => (Dataspace::Scalar, length as u32),
        };
        let datatype = datatype::fixed_string(size, text.is_ascii());
        let data = AttributeData::Bytes(text.as_bytes().to_vec());
        Attribute { name: name.to_owned(), datatype, dataspace, data }
    }

    /// Integers of 32 bits: one, or a list.
    pub fn integers(name: &str, integers: &[i32], is_list: bool) -> Self {
        let shape = [integers.len() as u64];
        Attribute {
            name: name.to_owned(),
            datatype: datatype::fixed_point(4, true, ByteOrder::Little),
            dataspace: Dataspace::from_shape(if is_list { &shape } else { &[] }),
            data: AttributeData::Bytes(integers.iter().flat_map(|integer| integer.to_le_bytes()).collect()),
        }
    }
}

/// The attributes of a file in the making.
#[derive(Default)]
pub struct AttributeWriter {
    /// What is too long for object headers.
    pub heap: GlobalHeap,
    used_bytes: usize,
    /// The attributes that the last object lacks.
    pub left_out: Vec<String>,
}

/// The type of an array's elements.
#[derive(Clone, Copy)]
struct ArrayElementType<'a> {
    data_type: &'a DataType,
    order: ByteOrder,
}

/// TypedNumbers of one type: the type, and the bytes of all.
type TypedNumbers = (Vec<u8>, Vec<u8>);

impl AttributeWriter {
    /// The attributes of a group.
    pub fn group_attributes(&mut self, attributes: &Map<String, Value>) -> Vec<Attribute> {
        self.convert(attributes, None)
    }

    /// The attributes of an array. Some follow from its type.
    pub fn array_attributes(&mut self, metadata: &ArrayMetadata, order: ByteOrder) -> Vec<Attribute> {
        let mut attributes = Cow::Borrowed(&metadata.attributes);
        for (name, value) in implied(metadata) {
            if !attributes.contains_key(name) {
                attributes.to_mut().insert(name.to_owned(), value);
            }
        }
        if metadata.dimension_names.is_some() && attributes.contains_key(DIMENSIONS_ATTRIBUTE) {
            attributes.to_mut().shift_remove(DIMENSIONS_ATTRIBUTE);
        }
        self.convert(&attributes, Some(ArrayElementType { data_type: &metadata.data_type, order }))
    }

    fn convert(
        &mut self,
        attributes: &Map<String, Value>,
        own: Option<ArrayElementType<'_>>,
    ) -> Vec<Attribute> {
        let (mut converted, mut names) = (Vec::new(), UniqueNames::default());
        self.left_out.clear();
        for (name, value) in attributes {
            let attribute = file_name(name)
                .filter(|file_name| {
                    !RESERVED.contains(&file_name.as_str()) && file_name != LEFT_OUT_ATTRIBUTE
                })
                .filter(|file_name| converted.len() < MAX_ATTRIBUTES && names.take(file_name))
                .and_then(|file_name| self.attribute(file_name, value, own));
            match attribute {
                Some(attribute) => converted.push(attribute),
                None => self.left_out.push(name.clone()),
            }
        }
        converted.extend(left_out_attribute(LEFT_OUT_ATTRIBUTE, &self.left_out));
        converted
    }

    /// One attribute; `None` if it cannot be expressed, or the file has too many already.
    fn attribute(
        &mut self,
        name: String,
        value: &Value,
        own: Option<ArrayElementType<'_>>,
    ) -> Option<Attribute> {
        let own_values = own.filter(|_| OWN_TYPE.contains(&name.as_str())).and_then(|own| own.values(value));
        let (datatype, bytes) = match own_values {
            Some(values) => values,
            None if name == FILL_ATTRIBUTE && own.is_some() => return None,
            None if FLOATS.contains(&name.as_str()) && value.is_number() => floats(&[value])?,
            None => match numbers(value) {
                Some(numbers) => numbers,
                None => return self.texts(name, value),
            },
        };
        if bytes.len() > MAX_INLINE_BYTES {
            return self.texts(name, &Value::String(value.to_string()));
        }
        self.spend(name.len() + bytes.len())?;
        let shape = value.as_array().map(|items| [items.len() as u64]);
        let dataspace = Dataspace::from_shape(shape.as_ref().map_or(&[], |shape| shape.as_slice()));
        Some(Attribute { name, datatype, dataspace, data: AttributeData::Bytes(bytes) })
    }

    /// A string, a list of strings, or the JSON text of anything else.
    fn texts(&mut self, name: String, value: &Value) -> Option<Attribute> {
        let strings = value
            .as_array()
            .filter(|items| (1..=MAX_INLINE_BYTES / VARIABLE_LENGTH_BYTES as usize).contains(&items.len()));
        let strings: Option<Vec<String>> =
            strings.and_then(|items| items.iter().map(|item| item.as_str().map(str::to_owned)).collect());
        let (texts, dataspace) = match (strings, value) {
            (Some(strings), _) => {
                let length = strings.len() as u64;
                (strings, Dataspace::Simple(vec![length]))
            }
            (None, Value::String(text)) => (vec![text.clone()], Dataspace::Scalar),
            (None, value) => (vec![value.to_string()], Dataspace::Scalar),
        };
        let length = texts.iter().map(|text| text.len() + OVERHEAD_BYTES).sum::<usize>();
        self.spend(name.len() + length)?;
        if let ([text], Dataspace::Scalar) = (texts.as_slice(), &dataspace)
            && text.len() <= MAX_INLINE_BYTES
        {
            return Some(Attribute::text(&name, text));
        }
        let data = AttributeData::InHeap(texts.into_iter().map(|text| self.store(text)).collect());
        Some(Attribute { name, datatype: datatype::variable_string(), dataspace, data })
    }

    fn store(&mut self, text: String) -> (u32, HeapSlot) {
        // Of an element without bytes netCDF makes no string at all.
        let text = if text.is_empty() { "\0".to_owned() } else { text };
        let length = text.len() as u32;
        (length, self.heap.add(HeapObject::Bytes(text.into_bytes())))
    }

    /// Notes that a file gets so many more bytes; `None` if these are too many.
    fn spend(&mut self, bytes: usize) -> Option<()> {
        let used = self.used_bytes.saturating_add(bytes).saturating_add(OVERHEAD_BYTES);
        (used <= MAX_FILE_BYTES).then(|| self.used_bytes = used)
    }
}

/// An attribute that lists names, as JSON; `None` if there are none. A long list ends with `…`.
pub fn left_out_attribute(name: &str, left_out: &[String]) -> Option<Attribute> {
    let shown = shortened(left_out);
    (!shown.is_empty()).then(|| Attribute::text(name, &Value::from(shown).to_string()))
}

/// Attributes that follow from the array's metadata.
fn implied(metadata: &ArrayMetadata) -> Vec<(&'static str, Value)> {
    let mut implied = Vec::new();
    // Programs know `missing_value` as it is, and one more name.
    if let Some(value) = NoData::read(metadata).first().filter(|value| value.attribute != MISSING_ATTRIBUTE) {
        implied.push((FILL_ATTRIBUTE, value.to_json(&metadata.data_type)));
    }
    match &metadata.data_type {
        // xarray's own mark.
        DataType::Bool => implied.push(("dtype", "bool".into())),
        DataType::DateTime64(time) if time.scale_factor == 1 => {
            if let Some(unit) = unit_name(&time.unit) {
                implied.push(("units", format!("{unit} since 1970-01-01").into()));
                implied.push(("calendar", "proleptic_gregorian".into()));
            }
        }
        DataType::TimeDelta64(time) if time.scale_factor == 1 => {
            implied.extend(unit_name(&time.unit).map(|unit| ("units", unit.into())));
        }
        _ => {}
    }
    // Attributes that say what the times are say all of it.
    if metadata.attributes.contains_key("units") {
        implied.retain(|(name, _)| *name != "calendar");
    }
    implied
}

/// CF's name of a unit of NumPy, for those of constant length that CF has.
fn unit_name(unit: &str) -> Option<&'static str> {
    Some(match unit {
        "D" => "days",
        "h" => "hours",
        "m" => "minutes",
        "s" => "seconds",
        "ms" => "milliseconds",
        "us" => "microseconds",
        "ns" => "nanoseconds",
        _ => return None,
    })
}

impl ArrayElementType<'_> {
    /// A value of the array's type, or a list of such.
    fn values(&self, value: &Value) -> Option<TypedNumbers> {
        let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let mut bytes = Vec::new();
        for item in items {
            bytes.extend(self.element(item)?);
        }
        (!bytes.is_empty()).then_some((datatype::for_type(self.data_type, self.order)?, bytes))
    }

    /// One number in the byte order of the array.
    fn element(&self, value: &Value) -> Option<Vec<u8>> {
        use DataType::{Complex64, Complex128, FixedLengthUtf32, NullTerminatedBytes, Raw, Struct};
        if let Complex64 | Complex128 | FixedLengthUtf32(_) | NullTerminatedBytes(_) | Raw(_) | Struct(_) =
            self.data_type
        {
            return None;
        }
        let parsed = FillValue::from_v3(self.data_type, value).ok();
        let parsed = parsed
            .or_else(|| FillValue::from_v3(self.data_type, &encoded_float(self.data_type, value)?).ok());
        let mut bytes = parsed?.bytes;
        if self.order == ByteOrder::Big {
            fill_value::swap(&mut bytes, &self.data_type.components()?);
        }
        Some(bytes)
    }
}

/// A number, or a list of numbers, of the narrowest type that holds all.
fn numbers(value: &Value) -> Option<TypedNumbers> {
    let items: Vec<&Value> = match value {
        Value::Array(items) => items.iter().collect(),
        Value::Number(_) | Value::Bool(_) => vec![value],
        _ => return None,
    };
    if items.is_empty() {
        return None;
    }
    truths(&items).or_else(|| integers(&items)).or_else(|| floats(&items))
}

fn truths(items: &[&Value]) -> Option<TypedNumbers> {
    let bytes: Option<Vec<u8>> = items.iter().map(|item| item.as_bool().map(u8::from)).collect();
    Some((datatype::fixed_point(1, true, ByteOrder::Little), bytes?))
}

fn integers(items: &[&Value]) -> Option<TypedNumbers> {
    let integer = |item: &&Value| {
        let signed = item.as_i64().map(i128::from);
        signed.or_else(|| item.as_u64().map(i128::from))
    };
    let integers: Vec<i128> = items.iter().map(integer).collect::<Option<_>>()?;
    let all_in = |low: i128, high: i128| integers.iter().all(|integer| (low..=high).contains(integer));
    let (size, is_signed) = if all_in(i32::MIN.into(), i32::MAX.into()) {
        (4, true)
    } else if all_in(i64::MIN.into(), i64::MAX.into()) {
        (8, true)
    } else if all_in(0, u64::MAX.into()) {
        (8, false)
    } else {
        return None;
    };
    let bytes = integers.iter().flat_map(|integer| integer.to_le_bytes().into_iter().take(size)).collect();
    Some((datatype::fixed_point(size as u8, is_signed, ByteOrder::Little), bytes))
}

/// Whether this is an integer that float64 may not hold.
fn is_long_integer(number: &serde_json::Number) -> bool {
    let is_integer = number.as_str().bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    is_integer && number.as_i64().is_none_or(|integer| integer.unsigned_abs() > 1 << f64::MANTISSA_DIGITS)
}

/// Floats. In a list that has a number, NaN and infinities may be strings, as JSON has no others.
fn floats(items: &[&Value]) -> Option<TypedNumbers> {
    if !items.iter().any(|item| item.is_number()) {
        return None;
    }
    let float = |item: &&Value| match item {
        Value::String(text) if matches!(text.as_str(), "NaN" | "Infinity" | "-Infinity") => text.parse().ok(),
        // Where float64 would have another value the text is the better form.
        Value::Number(number) => {
            number.as_f64().filter(|float| float.is_finite() && !is_long_integer(number))
        }
        _ => None,
    };
    let floats: Vec<f64> = items.iter().map(float).collect::<Option<_>>()?;
    let bytes = floats.iter().flat_map(|float| float.to_le_bytes()).collect();
    Some((datatype::floating_point(11, 52, 1023, ByteOrder::Little), bytes))
}

#[cfg(test)]
mod tests;
