//! Types of attributes, their names and their limits.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::metadata::{Document, parse_v2_array, parse_v3};
use proptest::prelude::*;
use serde_json::json;

fn group_attributes(attributes: &Value) -> Vec<Attribute> {
    AttributeWriter::default().group_attributes(attributes.as_object().unwrap())
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

fn array_attributes(data_type: Value, attributes: Value, order: ByteOrder) -> Vec<Attribute> {
    AttributeWriter::default().array_attributes(&array(data_type, attributes), order)
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
        let attributes = group_attributes(&json!({"a": value}));
        let [attribute] = attributes.as_slice() else { panic!() };
        assert_eq!((&attribute.datatype, &attribute.dataspace), (datatype, &dataspace), "{value}");
    }
    assert_eq!(bytes(&group_attributes(&json!({"a": -2}))[0]), (-2i32).to_le_bytes());
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
        let attributes = group_attributes(&json!({"a": value}));
        let text = value.to_string().into_bytes();
        assert_eq!(bytes(&attributes[0]), text, "{value}");
    }
    let empty = &group_attributes(&json!({"a": ""}))[0];
    assert_eq!((&empty.dataspace, bytes(empty)), (&Dataspace::Null, &[][..]));
}

#[test]
fn values_of_the_array_have_its_type() {
    let given = json!({"_FillValue": -1, "valid_range": [0, 300], "missing_value": 70000, "scale_factor": 2});
    let found = array_attributes(json!("int16"), given, ByteOrder::Big);
    let own = datatype::fixed_point(2, true, ByteOrder::Big);
    assert_eq!((&found[0].datatype, bytes(&found[0])), (&own, &[0xff, 0xff][..]));
    assert_eq!((&found[1].datatype, bytes(&found[1])), (&own, &[0, 0, 1, 44][..]));
    assert_eq!(bytes(&found[2]), 70000i32.to_le_bytes(), "it does not fit");
    assert_eq!(bytes(&found[3]), 2f64.to_le_bytes());
    // As xarray writes them.
    for (value, number) in
        [("AAAAAAAA+H8=", f32::NAN), ("AAAAAAAA8P8=", f32::NEG_INFINITY), ("AAAAAICHw8A=", -9999.0)]
    {
        let found = array_attributes(json!("float32"), json!({"_FillValue": value}), ByteOrder::Little);
        assert_eq!(bytes(&found[0]), number.to_le_bytes());
    }
    let found = array_attributes(json!("int16"), json!({"_FillValue": "none"}), ByteOrder::Little);
    assert_eq!((found[0].name.as_str(), bytes(&found[0])), (LEFT_OUT_ATTRIBUTE, &b"[\"_FillValue\"]"[..]));
}

#[test]
fn what_follows_from_the_type() {
    let names = |found: &[Attribute]| found.iter().map(|found| found.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&array_attributes(json!("bool"), json!({}), ByteOrder::Little)), ["dtype"]);
    let time = json!({"name": "numpy.datetime64", "configuration": {"unit": "ns", "scale_factor": 1}});
    let found = array_attributes(time.clone(), json!({}), ByteOrder::Little);
    assert_eq!(names(&found), ["units", "calendar"]);
    assert_eq!(bytes(&found[0]), b"nanoseconds since 1970-01-01");
    assert_eq!(names(&array_attributes(time, json!({"units": "own"}), ByteOrder::Little)), ["units"]);
    let v2 = |fill: &str, attributes: &str| {
        let zarray = format!(
            r#"{{"zarr_format":2,"shape":[2],"chunks":[2],"dtype":"<i2","order":"C","compressor":null,
                "filters":null,"fill_value":{fill}}}"#
        );
        let metadata = parse_v2_array("a/.zarray", zarray.as_bytes(), Some(attributes.as_bytes())).unwrap();
        names(&AttributeWriter::default().array_attributes(&metadata, ByteOrder::Little))
    };
    let dimensions = r#"{"_ARRAY_DIMENSIONS": ["x"]}"#;
    assert_eq!(v2("-1", dimensions), ["_FillValue"]);
    for (fill, attributes) in [("-1", "{}"), ("0", dimensions), ("null", dimensions)] {
        assert!(v2(fill, attributes).is_empty(), "a fill value that marks nothing");
    }
}

#[test]
fn limits() {
    let long = "x".repeat(MAX_INLINE_BYTES + 1);
    let long = &group_attributes(&json!({"a": long}))[0];
    assert!(matches!(&long.data, AttributeData::InHeap(elements) if elements.len() == 1));
    let many: Map<String, Value> = (0..10_000).map(|number| (format!("a{number}"), json!(number))).collect();
    let found = group_attributes(&Value::Object(many));
    assert_eq!(found.len(), MAX_ATTRIBUTES + 1);
    assert!(String::from_utf8_lossy(bytes(&found[MAX_ATTRIBUTES])).starts_with("[\"a4096\""));
    let large = "x".repeat(MAX_FILE_BYTES / 2);
    let found = group_attributes(&json!({"a": large, "b": large, "c": 1}));
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
        let found = AttributeWriter::default().group_attributes(&attributes);
        prop_assert_eq!(found.len(), 1);
        let is_whole = found.iter().all(|found| file_name(&found.name).is_some());
        prop_assert!(is_whole);
    }
}
