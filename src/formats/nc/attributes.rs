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
//! | a list of numbers, of bools, of strings | one axis of these |
//! | anything else | its JSON text |
//!
//! What must have the type of the array (`_FillValue`, `valid_range`, …) has it, if the value fits it.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::hdf5::datatype::{self, VARIABLE_LENGTH_BYTES};
use super::hdf5::global_heap::{GlobalHeap, HeapObject, HeapSlot};
use super::hdf5::messages::Dataspace;
use super::names::{Names, file_name};
use crate::metadata::{ArrayMetadata, ByteOrder, DataType, FillValue, ZarrFormat, fill_value};

/// The longest value that is kept in an object's header.
const MAX_INLINE_BYTES: usize = 60_000;
/// The most attributes of one object: programs look for an attribute from the first one on.
const MAX_ATTRIBUTES: usize = 4096;
/// The most bytes of all attributes of a file.
const MAX_FILE_BYTES: usize = 16 << 20;
/// What an attribute takes beside its name and value.
const OVERHEAD_BYTES: usize = 64;
/// The longest list of names that were left out.
const MAX_LEFT_OUT_BYTES: usize = 4096;

/// Names that mean something to HDF5's dimension scales or to netCDF.
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
/// Where xarray and NCZarr keep the names of dimensions in v2.
const DIMENSIONS_ATTRIBUTE: &str = "_ARRAY_DIMENSIONS";
/// Missing values.
const FILL_ATTRIBUTE: &str = "_FillValue";
/// Attributes with values of the array.
const OWN_TYPE: [&str; 7] =
    [FILL_ATTRIBUTE, "missing_value", "valid_min", "valid_max", "valid_range", "flag_values", "flag_masks"];
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
    pub fn of_text(name: &str, text: &str) -> Self {
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
    pub fn of_integers(name: &str, integers: &[i32], is_list: bool) -> Self {
        let shape = [integers.len() as u64];
        Attribute {
            name: name.to_owned(),
            datatype: datatype::fixed_point(4, true, ByteOrder::Little),
            dataspace: Dataspace::of_shape(if is_list { &shape } else { &[] }),
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
}

/// The type of an array's elements.
#[derive(Clone, Copy)]
struct Own<'a> {
    data_type: &'a DataType,
    order: ByteOrder,
}

/// Numbers of one type: the type, and the bytes of all.
type Numbers = (Vec<u8>, Vec<u8>);

impl AttributeWriter {
    /// The attributes of a group.
    pub fn of_group(&mut self, attributes: &Map<String, Value>) -> Vec<Attribute> {
        self.convert(attributes, None)
    }

    /// The attributes of an array. Some follow from its type.
    pub fn of_array(&mut self, metadata: &ArrayMetadata, order: ByteOrder) -> Vec<Attribute> {
        let mut attributes = Cow::Borrowed(&metadata.attributes);
        for (name, value) in implied(metadata) {
            if !attributes.contains_key(name) {
                attributes.to_mut().insert(name.to_owned(), value);
            }
        }
        if metadata.dimension_names.is_some() && attributes.contains_key(DIMENSIONS_ATTRIBUTE) {
            attributes.to_mut().shift_remove(DIMENSIONS_ATTRIBUTE);
        }
        self.convert(&attributes, Some(Own { data_type: &metadata.data_type, order }))
    }

    fn convert(&mut self, attributes: &Map<String, Value>, own: Option<Own<'_>>) -> Vec<Attribute> {
        let (mut converted, mut names, mut left_out) = (Vec::new(), Names::default(), Vec::new());
        for (name, value) in attributes {
            let attribute = file_name(name)
                .filter(|file_name| {
                    !RESERVED.contains(&file_name.as_str()) && file_name != LEFT_OUT_ATTRIBUTE
                })
                .filter(|file_name| converted.len() < MAX_ATTRIBUTES && names.take(file_name))
                .and_then(|file_name| self.attribute(file_name, value, own));
            match attribute {
                Some(attribute) => converted.push(attribute),
                None => left_out.push(name.as_str()),
            }
        }
        converted.extend(left_out_attribute(LEFT_OUT_ATTRIBUTE, &left_out));
        converted
    }

    /// One attribute; `None` if it cannot be expressed, or the file has too many already.
    fn attribute(&mut self, name: String, value: &Value, own: Option<Own<'_>>) -> Option<Attribute> {
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
        let dataspace = Dataspace::of_shape(shape.as_ref().map_or(&[], |shape| shape.as_slice()));
        Some(Attribute { name, datatype, dataspace, data: AttributeData::Bytes(bytes) })
    }

    /// A string, a list of strings, or the JSON text of anything else.
    fn texts(&mut self, name: String, value: &Value) -> Option<Attribute> {
        let strings = value.as_array().filter(|items| !items.is_empty());
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
            return Some(Attribute::of_text(&name, text));
        }
        if texts.len() > MAX_INLINE_BYTES / VARIABLE_LENGTH_BYTES as usize {
            return None;
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
pub fn left_out_attribute(name: &str, left_out: &[&str]) -> Option<Attribute> {
    let (mut shown, mut length) = (Vec::new(), 0);
    for name in left_out {
        length += name.len() + 3;
        if length > MAX_LEFT_OUT_BYTES {
            shown.push("…");
            break;
        }
        shown.push(name);
    }
    (!shown.is_empty()).then(|| Attribute::of_text(name, &Value::from(shown).to_string()))
}

/// Attributes that follow from the array's metadata.
fn implied(metadata: &ArrayMetadata) -> Vec<(&'static str, Value)> {
    let mut implied = Vec::new();
    if let Some(fill) = metadata.document.get("fill_value").filter(|_| means_missing(metadata)) {
        implied.push((FILL_ATTRIBUTE, fill.clone()));
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

/// Whether the fill value of the document marks missing data. That is xarray's convention, and NCZarr's, in v2; to others
/// it is the value of new elements and nothing else.
fn means_missing(metadata: &ArrayMetadata) -> bool {
    metadata.zarr_format == ZarrFormat::V2
        && !metadata.fill_value.is_undefined
        && metadata.attributes.contains_key(DIMENSIONS_ATTRIBUTE)
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

impl Own<'_> {
    /// A value of the array's type, or a list of such.
    fn values(&self, value: &Value) -> Option<Numbers> {
        let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let mut bytes = Vec::new();
        for item in items {
            bytes.extend(self.element(item)?);
        }
        (!bytes.is_empty()).then_some((datatype::of(self.data_type, self.order)?, bytes))
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
        let parsed = parsed.or_else(|| FillValue::from_v3(self.data_type, &encoded_float(value)?).ok());
        let mut bytes = parsed?.bytes;
        if self.order == ByteOrder::Big {
            fill_value::swap(&mut bytes, &self.data_type.components()?);
        }
        Some(bytes)
    }
}

/// xarray writes a float `_FillValue` into v3 as base64 of a float64.
fn encoded_float(value: &Value) -> Option<Value> {
    let bytes: [u8; 8] = STANDARD.decode(value.as_str()?).ok()?.try_into().ok()?;
    let number = f64::from_le_bytes(bytes);
    let special = if number.is_nan() {
        "NaN"
    } else if number < 0.0 {
        "-Infinity"
    } else {
        "Infinity"
    };
    Some(serde_json::Number::from_f64(number).map_or_else(|| special.into(), Value::Number))
}

/// A number, or a list of numbers, of the narrowest type that holds all.
fn numbers(value: &Value) -> Option<Numbers> {
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

fn truths(items: &[&Value]) -> Option<Numbers> {
    let bytes: Option<Vec<u8>> = items.iter().map(|item| item.as_bool().map(u8::from)).collect();
    Some((datatype::fixed_point(1, true, ByteOrder::Little), bytes?))
}

fn integers(items: &[&Value]) -> Option<Numbers> {
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

/// Floats. In a list that has a number, NaN and infinities may be strings, as JSON has no others.
fn floats(items: &[&Value]) -> Option<Numbers> {
    if !items.iter().any(|item| item.is_number()) {
        return None;
    }
    let float = |item: &&Value| match item {
        Value::String(text) if matches!(text.as_str(), "NaN" | "Infinity" | "-Infinity") => text.parse().ok(),
        // Beyond the range of float64 the text is the better form.
        Value::Number(number) => number.as_f64().filter(|float| float.is_finite()),
        _ => None,
    };
    let floats: Vec<f64> = items.iter().map(float).collect::<Option<_>>()?;
    let bytes = floats.iter().flat_map(|float| float.to_le_bytes()).collect();
    Some((datatype::floating_point(11, 52, 1023, ByteOrder::Little), bytes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::metadata::{Document, parse_v2_array, parse_v3};
    use proptest::prelude::*;
    use serde_json::json;

    fn of_group(attributes: &Value) -> Vec<Attribute> {
        AttributeWriter::default().of_group(attributes.as_object().unwrap())
    }

    fn bytes(attribute: &Attribute) -> &[u8] {
        match &attribute.data {
            AttributeData::Bytes(bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }

    fn array(data_type: Value, attributes: Value) -> ArrayMetadata {
        let document = json!({"zarr_format": 3, "node_type": "array", "shape": [2], "data_type": data_type, "fill_value": 0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
            "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "attributes": attributes});
        match parse_v3("a/zarr.json", document.to_string().as_bytes()) {
            Ok(Document::Array(metadata)) => metadata,
            other => panic!("{other:?}"),
        }
    }

    fn of_array(data_type: Value, attributes: Value, order: ByteOrder) -> Vec<Attribute> {
        AttributeWriter::default().of_array(&array(data_type, attributes), order)
    }

    #[test]
    fn the_narrowest_type_that_holds_all_numbers() {
        let list = Dataspace::Simple(vec![2]);
        let i4 = datatype::fixed_point(4, true, ByteOrder::Little);
        let i8 = datatype::fixed_point(8, true, ByteOrder::Little);
        let u8 = datatype::fixed_point(8, false, ByteOrder::Little);
        let f8 = datatype::floating_point(11, 52, 1023, ByteOrder::Little);
        let i1 = datatype::fixed_point(1, true, ByteOrder::Little);
        for (value, datatype, dataspace) in [
            (json!(7), &i4, Dataspace::Scalar),
            (json!([7, -1]), &i4, list.clone()),
            (json!([7, 2_147_483_648_u32]), &i8, list.clone()),
            (json!(9_223_372_036_854_775_808_u64), &u8, Dataspace::Scalar),
            (json!([1, 0.5]), &f8, list.clone()),
            (json!([1, "NaN"]), &f8, list.clone()),
            (json!([true, false]), &i1, list),
        ] {
            let attributes = of_group(&json!({"a": value}));
            let [attribute] = attributes.as_slice() else { panic!() };
            assert_eq!((&attribute.datatype, &attribute.dataspace), (datatype, &dataspace), "{value}");
        }
        assert_eq!(bytes(&of_group(&json!({"a": -2}))[0]), (-2i32).to_le_bytes());
    }

    #[test]
    fn anything_else_is_its_text() {
        for value in [
            json!(null),
            json!([]),
            json!({"a": [1]}),
            json!([1, "a"]),
            json!([-1, 9_223_372_036_854_775_808_u64]),
        ] {
            let is_number = value.as_array().is_some_and(|items| items.len() == 2 && items[1].is_number());
            let attributes = of_group(&json!({"a": value}));
            let text = value.to_string().into_bytes();
            // Two integers that no type holds both are floats.
            assert_eq!(bytes(&attributes[0]) == text, !is_number, "{value}");
        }
        let empty = &of_group(&json!({"a": ""}))[0];
        assert_eq!((&empty.dataspace, bytes(empty)), (&Dataspace::Null, &[][..]));
    }

    #[test]
    fn values_of_the_array_have_its_type() {
        let given =
            json!({"_FillValue": -1, "valid_range": [0, 300], "missing_value": 70000, "scale_factor": 2});
        let found = of_array(json!("int16"), given, ByteOrder::Big);
        let own = datatype::fixed_point(2, true, ByteOrder::Big);
        assert_eq!((&found[0].datatype, bytes(&found[0])), (&own, &[0xff, 0xff][..]));
        assert_eq!((&found[1].datatype, bytes(&found[1])), (&own, &[0, 0, 1, 44][..]));
        assert_eq!(bytes(&found[2]), 70000i32.to_le_bytes(), "it does not fit");
        assert_eq!(bytes(&found[3]), 2f64.to_le_bytes());
        // As xarray writes them.
        for (value, number) in
            [("AAAAAAAA+H8=", f32::NAN), ("AAAAAAAA8P8=", f32::NEG_INFINITY), ("AAAAAICHw8A=", -9999.0)]
        {
            let found = of_array(json!("float32"), json!({"_FillValue": value}), ByteOrder::Little);
            assert_eq!(bytes(&found[0]), number.to_le_bytes());
        }
        let found = of_array(json!("int16"), json!({"_FillValue": "none"}), ByteOrder::Little);
        assert_eq!(
            (found[0].name.as_str(), bytes(&found[0])),
            (LEFT_OUT_ATTRIBUTE, &b"[\"_FillValue\"]"[..])
        );
    }

    #[test]
    fn what_follows_from_the_type() {
        let names = |found: &[Attribute]| found.iter().map(|found| found.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&of_array(json!("bool"), json!({}), ByteOrder::Little)), ["dtype"]);
        let time = json!({"name": "numpy.datetime64", "configuration": {"unit": "ns", "scale_factor": 1}});
        let found = of_array(time.clone(), json!({}), ByteOrder::Little);
        assert_eq!(names(&found), ["units", "calendar"]);
        assert_eq!(bytes(&found[0]), b"nanoseconds since 1970-01-01");
        assert_eq!(names(&of_array(time, json!({"units": "own"}), ByteOrder::Little)), ["units"]);
        let v2 = |attributes: &str| {
            let zarray =
                br#"{"zarr_format":2,"shape":[2],"chunks":[2],"dtype":"<i2","order":"C","compressor":null,
                "filters":null,"fill_value":0}"#;
            let metadata = parse_v2_array("a/.zarray", zarray, Some(attributes.as_bytes())).unwrap();
            AttributeWriter::default().of_array(&metadata, ByteOrder::Little)
        };
        assert_eq!(names(&v2(r#"{"_ARRAY_DIMENSIONS": ["x"]}"#)), ["_FillValue"]);
        assert_eq!(v2("{}"), [], "a fill value that marks nothing");
    }

    #[test]
    fn limits() {
        let long = "x".repeat(MAX_INLINE_BYTES + 1);
        let long = &of_group(&json!({"a": long}))[0];
        assert!(matches!(&long.data, AttributeData::InHeap(elements) if elements.len() == 1));
        let many: Map<String, Value> =
            (0..10_000).map(|number| (format!("a{number}"), json!(number))).collect();
        let found = of_group(&Value::Object(many));
        assert_eq!(found.len(), MAX_ATTRIBUTES + 1);
        assert!(String::from_utf8_lossy(bytes(&found[MAX_ATTRIBUTES])).starts_with("[\"a4096\""));
        let large = "x".repeat(MAX_FILE_BYTES / 2);
        let found = of_group(&json!({"a": large, "b": large, "c": 1}));
        assert_eq!(
            found.iter().map(|found| found.name.as_str()).collect::<Vec<_>>(),
            ["a", "c", LEFT_OUT_ATTRIBUTE]
        );
    }

    proptest! {
        #[test]
        fn any_attribute_is_expressed_or_named(name in ".{0,20}", text in ".{0,40}") {
            let mut attributes = Map::new();
            attributes.insert(name, Value::String(text));
            let found = AttributeWriter::default().of_group(&attributes);
            prop_assert_eq!(found.len(), 1);
            let is_whole = found.iter().all(|found| file_name(&found.name).is_some());
            prop_assert!(is_whole);
        }
    }
}
