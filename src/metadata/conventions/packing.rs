//! CF packing: how the attributes of an array turn its elements into the numbers that they stand for.
//!
//! Spec: CF conventions, 8.1 "Packed Data"; `_Unsigned` from the NetCDF Users Guide. Uses `no_data` and `data_type`.
//! docs/views.md has the rules.

use serde_json::{Map, Value};

use crate::metadata::conventions::no_data::{
    self, FILL_ATTRIBUTE, MISSING_ATTRIBUTE, NODATA_ATTRIBUTE, NoData, UNSIGNED_ATTRIBUTE, read_as,
};
use crate::metadata::{ArrayMetadata, DataType};

const SCALE_ATTRIBUTE: &str = "scale_factor";
const OFFSET_ATTRIBUTE: &str = "add_offset";
/// Attributes with packed values.
const PACKED_RANGE: [&str; 3] = ["valid_min", "valid_max", "valid_range"];

/// The packing that the attributes of an array describe.
#[derive(Clone, Debug, PartialEq)]
pub enum Packing {
    /// The elements are the numbers themselves.
    None,
    /// The elements stand for other numbers.
    Packed(Packed),
    /// The attributes contradict each other or the data type, or are not numbers.
    Malformed,
}

/// How packed elements become numbers: `element × scale_factor + add_offset`, NaN for missing ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Packed {
    /// The type that elements are read as. With `_Unsigned` it differs from the stored type.
    pub read_as: DataType,
    /// The type of the numbers.
    pub unpacked: DataType,
    /// The factor that is applied first, if given.
    pub scale_factor: Option<f64>,
    /// The number that is then added, if given.
    pub add_offset: Option<f64>,
    /// Elements without data, each as its canonical bytes.
    pub missing: Vec<Vec<u8>>,
}

impl Packing {
    /// Reads the packing from an array's attributes.
    pub fn read(metadata: &ArrayMetadata) -> Self {
        let attributes = &metadata.attributes;
        let names =
            [FILL_ATTRIBUTE, MISSING_ATTRIBUTE, SCALE_ATTRIBUTE, OFFSET_ATTRIBUTE, UNSIGNED_ATTRIBUTE];
        let is_given = names.iter().any(|name| attributes.contains_key(*name));
        let is_number = plain_number_bytes(&metadata.data_type).is_some();
        match (is_given, is_number) {
            (true, false) => Packing::Malformed,
            (false, false) => Packing::None,
            (_, true) => match packed(metadata) {
                None => Packing::Malformed,
                Some(packed) if packed.is_identity(&metadata.data_type) => Packing::None,
                Some(packed) => Packing::Packed(packed),
            },
        }
    }
}

impl Packed {
    /// Returns whether elements of the type `stored` are the numbers themselves.
    fn is_identity(&self, stored: &DataType) -> bool {
        let is_scaled = self.scale_factor.is_some() || self.add_offset.is_some();
        self.read_as == *stored && self.missing.is_empty() && !is_scaled
    }

    /// Returns the attributes of the unpacked array. They mention no packing, and NaN marks missing elements.
    pub fn unpacked_attributes(&self, attributes: &Map<String, Value>) -> Map<String, Value> {
        let is_scaled = self.scale_factor.is_some() || self.add_offset.is_some();
        let is_of_packed = |name: &str| match name {
            SCALE_ATTRIBUTE | OFFSET_ATTRIBUTE | UNSIGNED_ATTRIBUTE => true,
            name if no_data::ATTRIBUTES.contains(&name) => true,
            name => is_scaled && PACKED_RANGE.contains(&name),
        };
        let kept = attributes.iter().filter(|(name, _)| !is_of_packed(name));
        let mut unpacked: Map<String, Value> =
            kept.map(|(name, value)| (name.clone(), value.clone())).collect();
        if !self.missing.is_empty() {
            unpacked.insert(FILL_ATTRIBUTE.to_owned(), "NaN".into());
        }
        unpacked
    }
}

/// Reads the packing attributes; `None` if they are malformed.
fn packed(metadata: &ArrayMetadata) -> Option<Packed> {
    let (attributes, stored) = (&metadata.attributes, &metadata.data_type);
    let factor = |name: &str| match attributes.get(name) {
        Some(value) => number(value).map(Some),
        None => Some(None),
    };
    let (scale_factor, add_offset) = (factor(SCALE_ATTRIBUTE)?, factor(OFFSET_ATTRIBUTE)?);
    if scale_factor == Some(0.0) {
        return None;
    }
    let read_as = read_as(metadata)?;
    let no_data = NoData::read(metadata);
    // `nodata` is not an attribute of CF, so a malformed one may have another meaning.
    if no_data.malformed.iter().any(|name| *name != NODATA_ATTRIBUTE) {
        return None;
    }
    let marks = no_data.values.into_iter().filter(|value| !value.is_nan(stored));
    let mut missing: Vec<Vec<u8>> = marks.map(|value| value.bytes).collect();
    missing.sort();
    let unpacked = match (scale_factor, add_offset) {
        // A number in JSON is a double.
        (Some(_), _) | (_, Some(_)) => DataType::Float64,
        (None, None) if missing.is_empty() => read_as.clone(),
        (None, None) => float_for(&read_as)?,
    };
    Some(Packed { read_as, unpacked, scale_factor, add_offset, missing })
}

/// Reads a finite number, or a list of one.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64().filter(|number| number.is_finite()),
        Value::Array(values) => match values.as_slice() {
            [value @ Value::Number(_)] => number(value),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the narrowest float type that holds all values of a type; float16 and float32 stay as they are.
fn float_for(data_type: &DataType) -> Option<DataType> {
    match (data_type, plain_number_bytes(data_type)?) {
        (DataType::Float16 | DataType::Float32 | DataType::Float64, _) => Some(data_type.clone()),
        (_, 1 | 2) => Some(DataType::Float32),
        _ => Some(DataType::Float64),
    }
}

/// Returns the bytes of an element that is an integer or an IEEE float.
fn plain_number_bytes(data_type: &DataType) -> Option<usize> {
    let numeric_type = data_type.numeric_type()?;
    (numeric_type.is_integer() || numeric_type.is_float()).then(|| numeric_type.size())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]
    use super::*;
    use crate::metadata::conventions::no_data::DIMENSIONS_ATTRIBUTE;
    use crate::metadata::parse_v2_array;
    use crate::metadata::test_documents::{parsed_v3_array, v3_array};
    use serde_json::json;

    fn packing(data_type: &str, attributes: Value) -> Packing {
        let fill = if data_type == "complex64" { json!([0, 0]) } else { json!(0) };
        let document = v3_array(&[2], data_type, json!({"fill_value": fill, "attributes": attributes}));
        Packing::read(&parsed_v3_array(&document))
    }

    fn packed(data_type: &str, attributes: Value) -> Packed {
        match packing(data_type, attributes.clone()) {
            Packing::Packed(packed) => packed,
            other => panic!("{data_type} {attributes}: {other:?}"),
        }
    }

    #[test]
    fn the_type_of_the_numbers() {
        let type_of = |data_type, attributes| packed(data_type, attributes).unpacked.name().into_owned();
        for data_type in ["int8", "uint16", "int32", "int64", "float16", "float32", "float64"] {
            assert_eq!(type_of(data_type, json!({"scale_factor": 0.5})), "float64");
            assert_eq!(type_of(data_type, json!({"add_offset": [1]})), "float64");
        }
        for (data_type, float) in [
            ("int8", "float32"),
            ("uint8", "float32"),
            ("int16", "float32"),
            ("uint16", "float32"),
            ("int32", "float64"),
            ("uint64", "float64"),
            ("float16", "float16"),
            ("float32", "float32"),
            ("float64", "float64"),
        ] {
            assert_eq!(type_of(data_type, json!({"_FillValue": 7})), float);
            assert_eq!(type_of(data_type, json!({"missing_value": [7, 8]})), float);
        }
        assert_eq!(type_of("int8", json!({"_Unsigned": "true"})), "uint8");
        assert_eq!(type_of("uint64", json!({"_Unsigned": "false"})), "int64");
    }

    #[test]
    fn missing_elements() {
        let missing = |data_type, attributes| packed(data_type, attributes).missing;
        assert_eq!(
            missing("int8", json!({"_FillValue": -1, "missing_value": [-1, 2]})),
            [vec![2], vec![255]]
        );
        let unsigned = json!({"_FillValue": 255, "missing_value": -2, "_Unsigned": "true"});
        assert_eq!(missing("int8", unsigned), [vec![254], vec![255]]);
        let encoded = json!({"_FillValue": "AAAAAAAA+D8=", "missing_value": "NaN"});
        assert_eq!(missing("float32", encoded), [1.5f32.to_le_bytes().to_vec()]);
        assert_eq!(missing("float32", json!({"_FillValue": -9999.9})), [(-9999.9f32).to_le_bytes().to_vec()]);
    }

    #[test]
    fn nothing_to_unpack() {
        for (data_type, attributes) in [
            ("int16", json!({"units": "K"})),
            ("float64", json!({"_FillValue": "NaN", "missing_value": "AAAAAAAA+H8="})),
            ("int16", json!({"_Unsigned": "false"})),
            ("complex64", json!({})),
        ] {
            assert_eq!(packing(data_type, attributes), Packing::None);
        }
    }

    #[test]
    fn malformed_attributes() {
        for (data_type, attributes) in [
            ("int8", json!({"_FillValue": "NaN"})),
            ("int8", json!({"_FillValue": 128})),
            ("int8", json!({"missing_value": 0.5})),
            ("int8", json!({"missing_value": []})),
            ("int8", json!({"missing_value": [[1]]})),
            ("int8", json!({"missing_value": null})),
            ("int8", json!({"missing_value": (0..65).collect::<Vec<_>>()})),
            ("int8", json!({"scale_factor": 0})),
            ("int8", json!({"scale_factor": "0.1"})),
            ("int8", json!({"scale_factor": [1, 2]})),
            ("int8", json!({"add_offset": "NaN"})),
            ("int8", json!({"add_offset": true})),
            ("int8", json!({"_Unsigned": true})),
            ("int8", json!({"_Unsigned": "yes"})),
            ("float32", json!({"_Unsigned": "true"})),
            ("bool", json!({"_FillValue": true})),
            ("complex64", json!({"scale_factor": 2.0})),
            ("bfloat16", json!({"scale_factor": 2.0})),
        ] {
            assert_eq!(
                packing(data_type, attributes.clone()),
                Packing::Malformed,
                "{data_type} {attributes}"
            );
        }
    }

    #[test]
    fn fill_values_of_v2_mark_missing_data_as_xarray_has_it() {
        let packing = |fill: Value, attributes: Value| {
            let zarray = json!({"zarr_format": 2, "shape": [3], "chunks": [2], "dtype": "<i2", "order": "C",
                "compressor": null, "filters": null, "fill_value": fill});
            let attributes = attributes.to_string();
            match parse_v2_array("t/.zarray", zarray.to_string().as_bytes(), Some(attributes.as_bytes())) {
                Ok(metadata) => Packing::read(&metadata),
                Err(error) => panic!("{error}"),
            }
        };
        let with_dimensions = json!({DIMENSIONS_ATTRIBUTE: ["x"]});
        assert!(
            matches!(packing(json!(-1), with_dimensions.clone()), Packing::Packed(Packed { missing, .. })
            if missing == [vec![255, 255]])
        );
        assert_eq!(packing(json!(0), with_dimensions.clone()), Packing::None);
        assert_eq!(packing(json!(null), with_dimensions), Packing::None);
        assert_eq!(packing(json!(-1), json!({})), Packing::None);
    }

    #[test]
    fn attributes_of_the_unpacked_array() {
        let attributes =
            json!({"units": "K", "scale_factor": 0.5, "add_offset": 1, "_FillValue": 3, "valid_min": 0});
        let unpacked = |attributes: &Value| {
            let members = attributes.as_object().cloned().unwrap_or_default();
            Value::Object(packed("int16", attributes.clone()).unpacked_attributes(&members))
        };
        assert_eq!(unpacked(&attributes), json!({"units": "K", "_FillValue": "NaN"}));
        assert_eq!(
            unpacked(&json!({"missing_value": 3, "valid_range": [0, 9]})),
            json!({"valid_range": [0, 9], "_FillValue": "NaN"})
        );
        assert_eq!(unpacked(&json!({"scale_factor": 2})), json!({}));
    }
}
