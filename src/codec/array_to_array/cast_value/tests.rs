//! The codec by the rules of its text.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::codec::registry;
use crate::metadata::{CodecFamily, CodecSpec};
use serde_json::json;

fn codec(source: DataType, fill: Value, configuration: Value) -> CodecResult<Box<dyn ArrayToArray>> {
    let spec = CodecSpec {
        family: CodecFamily::V3,
        name: "cast_value".to_owned(),
        configuration: configuration.as_object().unwrap().clone(),
        must_understand: true,
        place: "codecs[0]".to_owned(),
    };
    let fill_value = FillValue::from_v3(&source, &fill).unwrap();
    let input = Representation { shape: vec![3], data_type: source, fill_value };
    match registry::build(&spec, CodecInput::Array(&input))? {
        Codec::ArrayToArray(codec) => Ok(codec),
        _ => panic!("not array to array"),
    }
}

fn refused(source: DataType, fill: Value, configuration: Value) -> String {
    codec(source, fill, configuration).err().unwrap().to_string()
}

fn f64s(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn the_example_of_the_text() {
    let configuration = json!({
        "data_type": "uint8",
        "rounding": "towards-zero",
        "out_of_range": "wrap",
        "scalar_map": {"encode": [["NaN", 0], ["+Infinity", 0], ["-Infinity", 0]]},
    });
    let codec = codec(DataType::Float64, json!(0.0), configuration).unwrap();
    assert_eq!(codec.encoded().data_type, DataType::UInt8);
    assert_eq!(codec.encoded().shape, [3]);
    assert!(codec.is_elementwise());
    let input = f64s(&[1.9, -1.9, 257.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e20]);
    let mut out = [9; 7];
    codec.encode(&input, &mut out).unwrap();
    assert_eq!(out, [1, 255, 1, 0, 0, 0, 0]);
    let mut back = vec![0; 16];
    codec.decode(&[255, 0], &mut back).unwrap();
    assert_eq!(back, f64s(&[255.0, 0.0]));
}

#[test]
fn nan_by_way_of_the_scalar_map_and_the_fill_value_with_it() {
    let configuration = json!({
        "data_type": {"name": "uint8"},
        "scalar_map": {"encode": [["NaN", 0]], "decode": [[0, "NaN"]]},
    });
    let codec = codec(DataType::Float64, json!("NaN"), configuration).unwrap();
    assert_eq!(codec.encoded().fill_value, FillValue { bytes: vec![0], is_undefined: false });
    let mut back = vec![0; 24];
    codec.decode(&[0, 1, 200], &mut back).unwrap();
    assert_eq!(back, f64s(&[f64::NAN, 1.0, 200.0]));
    let error = codec.encode(&f64s(&[1.0, -0.6, 2.0]), &mut [0; 3]).unwrap_err().to_string();
    assert_eq!(
        error,
        "codec \"cast_value\": element 1, the float64 -0.6, is out of the range of uint8, \
         and there is no \"out_of_range\""
    );
}

#[test]
fn the_fill_value_is_cast() {
    let to = |data_type: &str| json!({"data_type": data_type});
    assert!(refused(DataType::Float64, json!("NaN"), to("int8")).contains("NaN, has no counterpart in int8"));
    assert!(
        refused(DataType::Int16, json!(300), to("int8")).contains("the fill value cannot be cast: codec")
    );
    let codec = codec(DataType::Float32, json!(-3), to("int16")).unwrap();
    assert_eq!(codec.encoded().fill_value, FillValue { bytes: vec![0xfd, 0xff], is_undefined: false });
    assert!(codec.must_keep_fill_value());
}

#[test]
fn an_undefined_fill_value_stays_so() {
    let spec = CodecSpec {
        family: CodecFamily::V3,
        name: "cast_value".to_owned(),
        configuration: json!({"data_type": "float8_e8m0fnu"}).as_object().unwrap().clone(),
        must_understand: true,
        place: "codecs[0]".to_owned(),
    };
    let fill_value = FillValue { bytes: vec![0; 4], is_undefined: true };
    let input = Representation { shape: vec![], data_type: DataType::Float32, fill_value };
    match registry::build(&spec, CodecInput::Array(&input)).unwrap() {
        Codec::ArrayToArray(codec) => {
            assert_eq!(codec.encoded().fill_value, FillValue { bytes: vec![0], is_undefined: true });
        }
        _ => panic!(),
    }
}

#[test]
fn bad_configurations_are_refused() {
    let bad = [
        (json!({}), "\"data_type\" is required"),
        (json!({"data_type": "int7"}), "int7"),
        (json!({"data_type": "bool"}), "integers and floats, not for bool"),
        (json!({"data_type": "complex64"}), "not for complex64"),
        (json!({"data_type": 8}), "\"data_type\" is invalid"),
        (json!({"data_type": "int8", "rounding": "up"}), "\"rounding\" must be one of nearest-even,"),
        (
            json!({"data_type": "int8", "out_of_range": "error"}),
            "\"out_of_range\" must be one of clamp, wrap",
        ),
        (json!({"data_type": "float32", "out_of_range": "wrap"}), "cannot be \"wrap\" for float32"),
        (json!({"data_type": "int8", "clamp": true}), "\"clamp\" is a member"),
        (json!({"data_type": "int8", "scalar_map": []}), "\"scalar_map\" must be an object"),
        (json!({"data_type": "int8", "scalar_map": {"both": []}}), "has a member \"both\""),
        (json!({"data_type": "int8", "scalar_map": {"encode": {}}}), "in \"encode\" must be a list"),
        (json!({"data_type": "int8", "scalar_map": {"decode": [[1]]}}), "in \"decode\" must hold pairs only"),
        (json!({"data_type": "int8", "scalar_map": {"decode": [["NaN", 1]]}}), "is not of type int8"),
        (json!({"data_type": "int8", "scalar_map": {"encode": [[1, 128]]}}), "is not of type int8"),
        (json!({"data_type": "int8", "scalar_map": {"encode": [["x", 1]]}}), "is not of type float32"),
    ];
    for (configuration, reason) in bad {
        let error = refused(DataType::Float32, json!(0), configuration);
        assert!(error.contains(reason), "{error}");
        assert!(error.contains("cast_value"), "{error}");
    }
    assert!(refused(DataType::Bool, json!(false), json!({"data_type": "int8"})).contains("not for bool"));
    let error = codec(DataType::Int8, json!(0), json!({"data_type": "int7"})).err().unwrap();
    assert!(error.is_unsupported);
}

#[test]
fn wrap_holds_for_both_directions_where_both_are_integers() {
    let wrap = json!({"data_type": "int8", "out_of_range": "wrap"});
    let codec16 = codec(DataType::UInt16, json!(0), wrap.clone()).unwrap();
    let mut back = [0; 4];
    codec16.decode(&[0xff, 0x7f], &mut back).unwrap();
    assert_eq!(back, [0xff, 0xff, 0x7f, 0]);
    // To a float nothing wraps: 70000 has no float16.
    let codec32 = codec(DataType::Float16, json!(0), json!({"data_type": "int32", "out_of_range": "wrap"}));
    let error = codec32.unwrap().decode(&70_000i32.to_le_bytes(), &mut [0; 2]).unwrap_err().to_string();
    assert!(
        error.ends_with("the int32 70000, is out of the range of float16, which does not wrap"),
        "{error}"
    );
}
