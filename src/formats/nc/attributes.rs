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
//! Attributes that must have the type of the array (`_FillValue`, `valid_range`, …) have it, if their value fits.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::{Map, Value};

use super::hdf5::datatype::{self, VARIABLE_LENGTH_BYTES};
use super::hdf5::global_heap::{GlobalHeap, HeapObject, HeapSlot};
use super::hdf5::messages::Dataspace;
use super::names::{UniqueNames, file_name};
use crate::formats::shortened;
use crate::metadata::conventions::no_data::{
    DIMENSIONS_ATTRIBUTE, FILL_ATTRIBUTE, MISSING_ATTRIBUTE, NoData, encoded_float,
};
use crate::metadata::{ArrayMetadata, ByteOrder, DataType, FillValue, fill_value};

/// The longest value that is kept in an object's header.
const MAX_INLINE_BYTES: usize = 60_000;
/// The most attributes of one object, because programs search attributes one by one.
const MAX_ATTRIBUTES: usize = 4096;
/// The most bytes of all attributes of a file.
const MAX_FILE_BYTES: usize = 16 << 20;
/// The bytes of an attribute in addition to its name and value.
const OVERHEAD_BYTES: usize = 64;

/// Names with a meaning for HDF5's dimension scales or for netCDF.
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
/// Attributes whose values have the type of the array.
const OWN_TYPE: [&str; 7] =
    [FILL_ATTRIBUTE, MISSING_ATTRIBUTE, "valid_min", "valid_max", "valid_range", "flag_values", "flag_masks"];
/// Attributes that convert stored values. They are floats, whatever their JSON looks like.
const FLOATS: [&str; 2] = ["scale_factor", "add_offset"];
/// The attribute of an object that names the attributes that it leaves out.
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
    /// Elements in the global heap: the number of values of each, and their place.
    InHeap(Vec<(u32, HeapSlot)>),
    /// Objects by index, each with the number of one of its dimensions.
    Referrers(Vec<(usize, u32)>),
    /// An object of the file.
    Reference(FileObject),
}

/// An object of the file that values refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileObject {
    /// A variable, by index.
    Variable(usize),
    /// A group, by index.
    Group(usize),
}

/// How attributes are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttributeForm {
    /// As netCDF's library does.
    #[default]
    Netcdf,
    /// As h5py does: strings have no fixed length, truth values are an enumeration, and a list may be empty.
    H5py,
}

impl Attribute {
    /// Makes an attribute with a string.
    pub fn text(name: &str, text: &str) -> Self {
        let (dataspace, size) = match text.len() {
            // HDF5 has no datatype for a string of no bytes.
            0 => (Dataspace::Null, 1),
            length => (Dataspace::Scalar, length as u32),
        };
        let datatype = datatype::fixed_string(size, text.is_ascii());
        let data = AttributeData::Bytes(text.as_bytes().to_vec());
        Attribute { name: name.to_owned(), datatype, dataspace, data }
    }

    /// Makes an attribute with one 32-bit integer, or a list of them.
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
pub struct AttributeWriter {
    /// The values that are too long for object headers.
    pub heap: GlobalHeap,
    form: AttributeForm,
    /// The most bytes of all attributes.
    limit_bytes: usize,
    /// The objects that attributes may refer to, by path.
    objects: HashMap<String, FileObject>,
    used_bytes: usize,
    /// The attributes that the last object leaves out.
    pub left_out: Vec<String>,
}

impl Default for AttributeWriter {
    fn default() -> Self {
        AttributeWriter::new(AttributeForm::Netcdf, MAX_FILE_BYTES, HashMap::new())
    }
}

/// The type of an array's elements.
#[derive(Clone, Copy)]
struct ArrayElementType<'a> {
    data_type: &'a DataType,
    order: ByteOrder,
}

/// Numbers of one type: the datatype, and the bytes of all numbers.
type TypedNumbers = (Vec<u8>, Vec<u8>);

impl AttributeWriter {
    /// Begins without attributes. Attributes in h5py's form may refer to `objects`.
    pub fn new(form: AttributeForm, limit_bytes: usize, objects: HashMap<String, FileObject>) -> Self {
        let (heap, left_out) = (GlobalHeap::default(), Vec::new());
        AttributeWriter { heap, form, limit_bytes, objects, used_bytes: 0, left_out }
    }

    /// Returns these attributes of a group or an array. Nothing follows from the type of an array.
    pub fn plain_attributes(&mut self, attributes: &Map<String, Value>) -> Vec<Attribute> {
        self.convert(attributes, None)
    }

    /// Returns the attributes of a group.
    pub fn group_attributes(&mut self, attributes: &Map<String, Value>) -> Vec<Attribute> {
        self.convert(attributes, None)
    }

    /// Returns the attributes of an array. Some follow from its type.
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
                    let is_reserved =
                        self.form == AttributeForm::Netcdf && RESERVED.contains(&file_name.as_str());
                    !is_reserved && file_name != LEFT_OUT_ATTRIBUTE
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

    /// Returns an attribute; `None` if it cannot be expressed, or if the file has too many already.
    fn attribute(
        &mut self,
        name: String,
        value: &Value,
        own: Option<ArrayElementType<'_>>,
    ) -> Option<Attribute> {
        if self.form == AttributeForm::H5py {
            if let Some(reference) = referred_path(value) {
                let object = *self.objects.get(reference.trim_start_matches('/'))?;
                self.spend(name.len())?;
                let (datatype, data) = (datatype::object_reference(), AttributeData::Reference(object));
                return Some(Attribute { name, datatype, dataspace: Dataspace::Scalar, data });
            }
            if value.as_array().is_some_and(Vec::is_empty) {
                self.spend(name.len())?;
                let (datatype, data) = (datatype::variable_string(), AttributeData::Bytes(Vec::new()));
                return Some(Attribute { name, datatype, dataspace: Dataspace::Simple(vec![0]), data });
            }
        }
        let own_values = own.filter(|_| OWN_TYPE.contains(&name.as_str())).and_then(|own| own.values(value));
        let (datatype, bytes) = match own_values {
            Some(values) => values,
            None if name == FILL_ATTRIBUTE && own.is_some() => return None,
            None if FLOATS.contains(&name.as_str()) && value.is_number() => floats(&[value])?,
            None => match numbers(value, self.form) {
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

    /// Returns an attribute with a string, a list of strings, or the JSON text of anything else.
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
            && self.form == AttributeForm::Netcdf
        {
            return Some(Attribute::text(&name, text));
        }
        let data = AttributeData::InHeap(texts.into_iter().map(|text| self.store(text)).collect());
        Some(Attribute { name, datatype: datatype::variable_string(), dataspace, data })
    }

    fn store(&mut self, text: String) -> (u32, HeapSlot) {
        // netCDF does not make a string from an element without bytes.
        let text = if text.is_empty() { "\0".to_owned() } else { text };
        let length = text.len() as u32;
        (length, self.heap.add(HeapObject::Bytes(text.into_bytes())))
    }

    /// Counts `bytes` more bytes of the file. Returns `None` if the file would have too many.
    fn spend(&mut self, bytes: usize) -> Option<()> {
        let used = self.used_bytes.saturating_add(bytes).saturating_add(OVERHEAD_BYTES);
        (used <= self.limit_bytes).then(|| self.used_bytes = used)
    }
}

/// Returns an attribute that lists names as JSON; `None` if there are no names. A long list ends with `…`.
pub fn left_out_attribute(name: &str, left_out: &[String]) -> Option<Attribute> {
    let shown = shortened(left_out);
    (!shown.is_empty()).then(|| Attribute::text(name, &Value::from(shown).to_string()))
}

/// Returns the attributes that follow from the array's metadata.
fn implied(metadata: &ArrayMetadata) -> Vec<(&'static str, Value)> {
    let mut implied = Vec::new();
    // Programs know `missing_value` already; the value needs one more name only if it comes from elsewhere.
    if let Some(value) = NoData::read(metadata).first().filter(|value| value.attribute != MISSING_ATTRIBUTE) {
        implied.push((FILL_ATTRIBUTE, value.to_json(&metadata.data_type)));
    }
    match &metadata.data_type {
        // xarray marks bools with this attribute.
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
    // The array's own `units` come with its own calendar.
    if metadata.attributes.contains_key("units") {
        implied.retain(|(name, _)| *name != "calendar");
    }
    implied
}

/// Returns CF's name of a NumPy unit, if it has a constant length and CF has it.
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
    /// Converts a value, or a list of values, to the array's type.
    fn values(&self, value: &Value) -> Option<TypedNumbers> {
        let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let mut bytes = Vec::new();
        for item in items {
            bytes.extend(self.element(item)?);
        }
        (!bytes.is_empty()).then_some((datatype::for_type(self.data_type, self.order)?, bytes))
    }

    /// Converts a number to the array's type and byte order.
    fn element(&self, value: &Value) -> Option<Vec<u8>> {
        use DataType::{FixedLengthUtf32, NullTerminatedBytes, Raw, Struct};
        let has_no_attributes =
            matches!(self.data_type, FixedLengthUtf32(_) | NullTerminatedBytes(_) | Raw(_) | Struct(_));
        if has_no_attributes || self.data_type.complex_part().is_some() {
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

/// Converts a number, or a list of numbers, to the narrowest type that holds all of them.
fn numbers(value: &Value, form: AttributeForm) -> Option<TypedNumbers> {
    let items: Vec<&Value> = match value {
        Value::Array(items) => items.iter().collect(),
        Value::Number(_) | Value::Bool(_) => vec![value],
        _ => return None,
    };
    if items.is_empty() {
        return None;
    }
    truths(&items, form).or_else(|| integers(&items)).or_else(|| floats(&items))
}

fn truths(items: &[&Value], form: AttributeForm) -> Option<TypedNumbers> {
    let bytes: Option<Vec<u8>> = items.iter().map(|item| item.as_bool().map(u8::from)).collect();
    let datatype = match form {
        AttributeForm::Netcdf => datatype::fixed_point(1, true, ByteOrder::Little),
        AttributeForm::H5py => datatype::truth_value(),
    };
    Some((datatype, bytes?))
}

/// The member of an attribute's value that refers to another object, with its `path` in the file that `source` names.
pub const REFERENCE_MEMBER: &str = "_REFERENCE";

/// Returns the path of the object that a value refers to, if it is one of the same file.
fn referred_path(value: &Value) -> Option<&str> {
    let reference = value.as_object()?.get(REFERENCE_MEMBER)?;
    let is_here = reference.get("source").is_none_or(|source| source == ".");
    reference.get("path")?.as_str().filter(|_| is_here)
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

/// Returns whether a number is an integer that float64 may not represent.
fn is_long_integer(number: &serde_json::Number) -> bool {
    let is_integer = number.as_str().bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    is_integer && number.as_i64().is_none_or(|integer| integer.unsigned_abs() > 1 << f64::MANTISSA_DIGITS)
}

/// Converts numbers to floats. In a list with a number, NaN and infinities may be strings, because JSON does not have them.
fn floats(items: &[&Value]) -> Option<TypedNumbers> {
    if !items.iter().any(|item| item.is_number()) {
        return None;
    }
    let float = |item: &&Value| match item {
        Value::String(text) if matches!(text.as_str(), "NaN" | "Infinity" | "-Infinity") => text.parse().ok(),
        // If float64 would change the value, the text is the better form.
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
