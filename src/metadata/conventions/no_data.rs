//! The elements of an array that stand for missing data. Views, companion files, sidecars and statistics all use this.
//!
//! Spec: CF conventions, 2.5.1 "Missing data"; GDAL's `nodata`; for v2 the convention of xarray and NCZarr. Uses `fill_value` and
//! `data_type`. The values come in this order, and a format with room for one value shows the first:
//!
//! 1. the attribute `_FillValue`, or without it the document's fill value where `fill_marks_missing`;
//! 2. the attribute `missing_value`;
//! 3. the attribute `nodata`.
//!
//! An attribute is one value of the array's type, or a list of values. Invariant: each value is one element in canonical form.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::metadata::data_type::exact_number::{IntegerFormat, ScalarFormat};
use crate::metadata::data_type::numeric::NUMBER_FORMATS;
use crate::metadata::{ArrayMetadata, CodecFamily, DataType, FillValue, ZarrFormat};

/// Where xarray and NCZarr keep the names of dimensions in v2.
pub const DIMENSIONS_ATTRIBUTE: &str = "_ARRAY_DIMENSIONS";
/// The NetCDF Users Guide's word for integers of the other sign.
pub const UNSIGNED_ATTRIBUTE: &str = "_Unsigned";
/// CF's value of elements without data.
pub const FILL_ATTRIBUTE: &str = "_FillValue";
/// CF's other values of elements without data.
pub const MISSING_ATTRIBUTE: &str = "missing_value";
/// GDAL's value of elements without data.
pub const NODATA_ATTRIBUTE: &str = "nodata";
/// All attributes that name such values, in the order in which they count.
pub const ATTRIBUTES: [&str; 3] = [FILL_ATTRIBUTE, MISSING_ATTRIBUTE, NODATA_ATTRIBUTE];
/// The most values of one attribute.
const MAX_VALUES: usize = 64;

/// The elements of an array that stand for missing data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoData {
    /// Their values, each once.
    pub values: Vec<NoDataValue>,
    /// The attributes with values that are not of the array's type.
    pub malformed: Vec<&'static str>,
}

/// A value that stands for missing data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoDataValue {
    /// The attribute that names it; `_FillValue` also for the document's fill value.
    pub attribute: &'static str,
    /// One element in canonical form.
    pub bytes: Vec<u8>,
}

impl NoData {
    /// Reads the values from an array's metadata.
    pub fn read(metadata: &ArrayMetadata) -> Self {
        let mut no_data = NoData::default();
        if !has_numbers(&metadata.data_type) {
            let given = ATTRIBUTES.into_iter().filter(|name| metadata.attributes.contains_key(*name));
            no_data.malformed.extend(given);
            return no_data;
        }
        for attribute in ATTRIBUTES {
            match metadata.attributes.get(attribute) {
                Some(value) => match elements(metadata, value) {
                    Some(elements) => no_data.extend(attribute, elements),
                    None => no_data.malformed.push(attribute),
                },
                None if attribute == FILL_ATTRIBUTE && fill_marks_missing(metadata) => {
                    no_data.extend(attribute, vec![metadata.fill_value.bytes.clone()]);
                }
                None => {}
            }
        }
        no_data
    }

    fn extend(&mut self, attribute: &'static str, elements: Vec<Vec<u8>>) {
        for bytes in elements {
            if self.values.iter().all(|value| value.bytes != bytes) {
                self.values.push(NoDataValue { attribute, bytes });
            }
        }
    }

    /// Returns the value for a format that has room for only one.
    pub fn first(&self) -> Option<&NoDataValue> {
        self.values.first()
    }

    /// Returns whether the first value alone conveys everything that an attribute says.
    pub fn is_shown(&self, attribute: &str) -> bool {
        !self.malformed.contains(&attribute)
            && self.values.iter().skip(1).all(|value| value.attribute != attribute)
    }
}

impl NoDataValue {
    /// Returns the value in v3's JSON form.
    pub fn to_json(&self, data_type: &DataType) -> Value {
        FillValue { bytes: self.bytes.clone(), is_undefined: false }.to_json(data_type)
    }

    /// Returns the value as a float; `None` if no float has exactly this value.
    pub fn to_f64(&self, data_type: &DataType) -> Option<f64> {
        float(&self.to_json(data_type))
    }

    /// Returns whether it is NaN, which every program treats as missing.
    pub fn is_nan(&self, data_type: &DataType) -> bool {
        self.to_f64(data_type).is_some_and(f64::is_nan)
    }
}

/// Returns whether the fill value of the document marks missing data. That is the convention of xarray and NCZarr in
/// v2; to other programs it is only the value of new elements. Zero is excluded, because most writers use it as the
/// default. The unpacked view is excluded, because its elements are not the numbers that the document means.
fn fill_marks_missing(metadata: &ArrayMetadata) -> bool {
    let is_stored_form = metadata.codecs.iter().all(|codec| codec.family != CodecFamily::View);
    metadata.zarr_format == ZarrFormat::V2
        && is_stored_form
        && metadata.fill_value.bytes.iter().any(|&byte| byte != 0)
        && metadata.attributes.contains_key(DIMENSIONS_ATTRIBUTE)
}

/// Returns whether elements are numbers or times. A text or a truth value stands for itself.
fn has_numbers(data_type: &DataType) -> bool {
    use DataType::*;
    !matches!(
        data_type,
        Bool | Raw(_) | NullTerminatedBytes(_) | FixedLengthUtf32(_) | Struct(_) | VariableLength(_)
    )
}

/// Reads the elements that an attribute names: one, or a list.
fn elements(metadata: &ArrayMetadata, value: &Value) -> Option<Vec<Vec<u8>>> {
    let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    if values.is_empty() || values.len() > MAX_VALUES {
        return None;
    }
    let stored = &metadata.data_type;
    let read_as = read_as(metadata).filter(|read_as| read_as != stored);
    let read = |value: &Value| {
        // With `_Unsigned`, a value may be written as either type.
        element(stored, value).or_else(|| element(read_as.as_ref()?, value))
    };
    values.iter().map(read).collect()
}

/// Returns the type that elements are read as. `_Unsigned` changes the sign of an integer type. `None` if the
/// attribute does not fit the type, or is neither "true" nor "false".
pub fn read_as(metadata: &ArrayMetadata) -> Option<DataType> {
    let stored = &metadata.data_type;
    let Some(value) = metadata.attributes.get(UNSIGNED_ATTRIBUTE) else { return Some(stored.clone()) };
    let is_signed = match value {
        Value::String(text) if text.eq_ignore_ascii_case("true") => false,
        Value::String(text) if text.eq_ignore_ascii_case("false") => true,
        _ => return None,
    };
    let bits = stored.integer_format()?.bits;
    let format = ScalarFormat::Integer(IntegerFormat { bits, is_signed });
    let row = NUMBER_FORMATS.iter().find(|row| row.scalar == format && bits >= 8)?;
    Some(row.data_type.clone())
}

/// Returns the bytes of an element with this value.
fn element(data_type: &DataType, value: &Value) -> Option<Vec<u8>> {
    let is_complex = data_type.complex_part().is_some();
    let parse = |value: &Value| {
        if is_complex {
            FillValue::from_v3(data_type, &Value::from(vec![value.clone(), 0.into()])).ok()
        } else {
            FillValue::from_v3(data_type, value).ok()
        }
    };
    if value.is_array() {
        return None;
    }
    let fill = parse(value).or_else(|| parse(&encoded_float(data_type, value)?))?;
    // A number out of range must not become infinity.
    let is_infinite = float(&fill.to_json(data_type)).is_some_and(f64::is_infinite);
    (!is_infinite || !value.is_number()).then_some(fill.bytes)
}

/// Decodes a float `_FillValue` that xarray writes into v3 as base64 of a float64.
pub fn encoded_float(data_type: &DataType, value: &Value) -> Option<Value> {
    let is_float = matches!(data_type, DataType::Float16 | DataType::Float32 | DataType::Float64);
    let bytes: [u8; 8] = STANDARD.decode(value.as_str().filter(|_| is_float)?).ok()?.try_into().ok()?;
    let number = f64::from_le_bytes(bytes);
    Some(match serde_json::Number::from_f64(number) {
        Some(number) => Value::Number(number),
        None if number.is_nan() => "NaN".into(),
        None if number < 0.0 => "-Infinity".into(),
        None => "Infinity".into(),
    })
}

/// Converts a number in v3's JSON form, unless it is an integer that a float cannot hold.
fn float(value: &Value) -> Option<f64> {
    const LARGEST: f64 = (1u64 << f64::MANTISSA_DIGITS) as f64;
    match value {
        Value::Number(number) => {
            let is_integer = number.is_i64() || number.is_u64();
            number.as_f64().filter(|value| !is_integer || value.abs() < LARGEST)
        }
        Value::String(text) if text == "Infinity" => Some(f64::INFINITY),
        Value::String(text) if text == "-Infinity" => Some(f64::NEG_INFINITY),
        // Any other float that has a text is a NaN.
        Value::String(text) if text == "NaN" || text.starts_with("0x") => Some(f64::NAN),
        Value::Array(parts) => match parts.as_slice() {
            [real, imaginary] => float(real).filter(|_| float(imaginary) == Some(0.0)),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]
    use super::*;
    use crate::metadata::parse_v2_array;
    use crate::metadata::test_documents::{parsed_v3_array, v3_array};
    use serde_json::json;

    fn v3(data_type: &str, attributes: Value) -> ArrayMetadata {
        let fill = match data_type {
            "complex64" => json!([7, 0]),
            "bool" => json!(false),
            _ => json!(7),
        };
        parsed_v3_array(&v3_array(&[2], data_type, json!({"fill_value": fill, "attributes": attributes})))
    }

    fn v2(dtype: &str, fill: Value, attributes: Value) -> ArrayMetadata {
        let zarray = json!({"zarr_format": 2, "shape": [3], "chunks": [2], "dtype": dtype, "order": "C",
            "compressor": null, "filters": null, "fill_value": fill});
        let attributes = attributes.to_string();
        match parse_v2_array("t/.zarray", zarray.to_string().as_bytes(), Some(attributes.as_bytes())) {
            Ok(metadata) => metadata,
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns each value with the attribute that names it.
    fn found(metadata: &ArrayMetadata) -> Value {
        let values = NoData::read(metadata).values;
        values.iter().map(|value| json!([value.attribute, value.to_json(&metadata.data_type)])).collect()
    }

    #[test]
    fn the_order_of_attributes() {
        let all = json!({"nodata": -1, "missing_value": [3, -1], "_FillValue": 3});
        assert_eq!(found(&v3("int16", all)), json!([["_FillValue", 3], ["missing_value", -1]]));
        assert_eq!(found(&v3("int16", json!({"nodata": -1}))), json!([["nodata", -1]]));
        assert_eq!(found(&v3("int16", json!({}))), json!([]), "a fill value of v3 marks nothing");
        let named = json!({"_ARRAY_DIMENSIONS": ["x"]});
        assert_eq!(found(&v2("<f4", json!("NaN"), named.clone())), json!([["_FillValue", "NaN"]]));
        assert_eq!(found(&v2("<i2", json!(-9), named.clone())), json!([["_FillValue", -9]]));
        assert_eq!(found(&v2("<M8[s]", json!(-9), named.clone())), json!([["_FillValue", -9]]));
        for marks_nothing in [
            v2("<i2", json!(0), named.clone()),
            v2("<i2", json!(null), named.clone()),
            v2("<i2", json!(-9), json!({})),
            v2("|b1", json!(true), named.clone()),
            v2("|S2", json!("YWI="), named.clone()),
        ] {
            assert_eq!(found(&marks_nothing), json!([]), "{:?}", marks_nothing.document);
        }
        let both = json!({"_ARRAY_DIMENSIONS": ["x"], "_FillValue": 5, "missing_value": 6});
        assert_eq!(found(&v2("<i2", json!(-9), both)), json!([["_FillValue", 5], ["missing_value", 6]]));
    }

    #[test]
    fn forms_of_values() {
        let only = |data_type, value: Value| found(&v3(data_type, json!({"nodata": value})))[0][1].clone();
        assert_eq!(only("float64", json!("AAAAAAAA+D8=")), json!(1.5), "as xarray writes it");
        assert_eq!(only("float32", json!("AAAAAAAA+H8=")), json!("NaN"));
        assert_eq!(only("float32", json!(-9999.9)), json!(-9999.900390625), "the element, exactly");
        assert_eq!(only("int16", json!(-9999.0)), json!(-9999));
        assert_eq!(only("uint64", json!(u64::MAX)), json!(u64::MAX));
        assert_eq!(only("complex64", json!(2)), json!([2.0, 0.0]));
        for (data_type, value) in [
            ("int16", json!("NaN")),
            ("uint8", json!(300)),
            ("uint8", json!(0.5)),
            ("float32", json!(1e300)),
            ("float32", json!("none")),
            ("float32", json!(null)),
            ("float32", json!([])),
            ("float32", json!([[1]])),
            ("float32", json!((0..65).collect::<Vec<_>>())),
            ("bool", json!(true)),
        ] {
            let malformed = NoData::read(&v3(data_type, json!({"missing_value": value})));
            assert_eq!((malformed.values.len(), malformed.malformed), (0, vec!["missing_value"]), "{value}");
        }
        let unsigned = v3("int8", json!({"_FillValue": 255, "_Unsigned": "true"}));
        assert_eq!(found(&unsigned), json!([["_FillValue", -1]]));
    }

    #[test]
    fn a_format_with_room_for_one_value() {
        let no_data =
            NoData::read(&v3("int16", json!({"_FillValue": 1, "missing_value": [1, 2], "nodata": 1})));
        assert_eq!(ATTRIBUTES.map(|name| no_data.is_shown(name)), [true, false, true]);
        let float = |data_type, value: Value| {
            let metadata = v3(data_type, json!({"_FillValue": value}));
            NoData::read(&metadata).first().and_then(|value| value.to_f64(&metadata.data_type))
        };
        assert_eq!(float("uint64", json!(u64::MAX)), None, "no float has this value");
        assert_eq!(float("int64", json!(1u64 << 52)), Some((1u64 << 52) as f64));
        assert_eq!(float("float32", json!("-Infinity")), Some(f64::NEG_INFINITY));
        assert!(float("float64", json!("0x7ff8000000000001")).is_some_and(f64::is_nan));
    }
}
