//! The codec by the rules of its text.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::codec::registry;
use crate::metadata::{CodecFamily, CodecSpec};
use half::{bf16, f16};
use proptest::prelude::*;
use serde_json::json;

fn codec_with(data_type: DataType, fill: &[u8], configuration: Value) -> CodecResult<Box<dyn ArrayToArray>> {
    let spec = CodecSpec {
        family: CodecFamily::V3,
        name: "scale_offset".to_owned(),
        configuration: configuration.as_object().unwrap().clone(),
        must_understand: true,
        place: "codecs[0]".to_owned(),
    };
    let fill_value = FillValue { bytes: fill.to_vec(), is_undefined: false };
    let input = Representation { shape: vec![2, 2], data_type, fill_value };
    match registry::build(&spec, CodecInput::Array(&input))? {
        Codec::ArrayToArray(codec) => Ok(codec),
        _ => panic!("not array to array"),
    }
}

/// Builds the codec with the offset as the fill value, which every type encodes to 0.
fn codec(data_type: DataType, configuration: Value) -> CodecResult<Box<dyn ArrayToArray>> {
    let zero = json!(0);
    let fill = FillValue::from_v3(&data_type, configuration.get("offset").unwrap_or(&zero));
    let fill = fill.map_or_else(|_| vec![0; data_type.item_size().unwrap()], |fill| fill.bytes);
    codec_with(data_type, &fill, configuration)
}

fn encode(codec: &dyn ArrayToArray, element: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = vec![0; element.len()];
    codec.encode(element, &mut out).map(|()| out).map_err(|error| error.to_string())
}

fn decode(codec: &dyn ArrayToArray, element: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = vec![0; element.len()];
    codec.decode(element, &mut out).map(|()| out).map_err(|error| error.to_string())
}

#[test]
fn integers_are_exact_or_an_error() {
    let c = codec(DataType::Int8, json!({"offset": -10, "scale": 3})).unwrap();
    assert_eq!(encode(&*c, &[5]).unwrap(), [45]);
    assert_eq!(decode(&*c, &[45]).unwrap(), [5]);
    assert_eq!(decode(&*c, &(-45i8).to_le_bytes()).unwrap(), (-25i8).to_le_bytes());
    assert_eq!(
        encode(&*c, &[0, 40]).unwrap_err(),
        "codec \"scale_offset\": element 1: (40 - -10) * 3 is not representable in int8"
    );
    assert_eq!(
        decode(&*c, &[7]).unwrap_err(),
        "codec \"scale_offset\": element 0: 7 / 3 + -10 is not representable in int8"
    );
    assert!(decode(&*c, &(-128i8 / 3 * 3).to_le_bytes()).is_ok());
    // A value on the way counts too: 28 − −100 is not an int8, though (28 − −100) × −1 is.
    let c = codec(DataType::Int8, json!({"offset": -100, "scale": -1})).unwrap();
    assert!(encode(&*c, &[28]).is_err());
    assert_eq!(encode(&*c, &[27]).unwrap(), (-127i8).to_le_bytes());
    assert!(decode(&*c, &(-128i8).to_le_bytes()).is_err());
    let c = codec(DataType::UInt16, json!({"offset": 1000})).unwrap();
    assert_eq!(encode(&*c, &1255u16.to_le_bytes()).unwrap(), 255u16.to_le_bytes());
    assert!(encode(&*c, &999u16.to_le_bytes()).is_err());
    assert!(decode(&*c, &65_000u16.to_le_bytes()).is_err());
    let c = codec(DataType::UInt64, json!({"offset": 18446744073709551615u64})).unwrap();
    assert_eq!(decode(&*c, &[0; 8]).unwrap(), [0xff; 8]);
    let c = codec(DataType::Int64, json!({"scale": 2})).unwrap();
    assert!(encode(&*c, &(1i64 << 62).to_le_bytes()).is_err());
}

#[test]
fn floats_stay_in_their_type() {
    let c = codec(DataType::Float32, json!({"offset": 5, "scale": 0.1})).unwrap();
    let value = 273.15f32;
    let encoded = (value - 5.0) * 0.1;
    assert_eq!(encode(&*c, &value.to_le_bytes()).unwrap(), encoded.to_le_bytes());
    assert_eq!(decode(&*c, &encoded.to_le_bytes()).unwrap(), (encoded / 0.1f32 + 5.0).to_le_bytes());
    let c = codec(DataType::Float16, json!({"scale": 0.1})).unwrap();
    let (value, scale) = (f16::from_f32(33.3), f16::from_f32(0.1));
    assert_eq!(encode(&*c, &value.to_le_bytes()).unwrap(), (value * scale).to_le_bytes());
    // 1000 / 0.01 is beyond float16.
    let c = codec(DataType::Float16, json!({"scale": 0.01})).unwrap();
    let error = decode(&*c, &f16::from_f32(1000.0).to_le_bytes()).unwrap_err();
    assert!(error.contains("element 0: 1000.0 / 0.01"), "{error}");
    assert_eq!(decode(&*c, &f16::INFINITY.to_le_bytes()).unwrap(), f16::INFINITY.to_le_bytes());
    assert!(f16::from_le_bytes(decode(&*c, &f16::NAN.to_le_bytes()).unwrap().try_into().unwrap()).is_nan());
    let c = codec(DataType::Float64, json!({"offset": -1e308})).unwrap();
    assert!(encode(&*c, &1e308f64.to_le_bytes()).unwrap_err().contains("(1e308 - -1e308) * 1.0"));
}

#[test]
fn parameters_are_fill_values_of_the_type() {
    let c = codec_with(DataType::Float32, &[0; 4], json!({"offset": "Infinity"})).unwrap();
    assert_eq!(encode(&*c, &1f32.to_le_bytes()).unwrap(), f32::NEG_INFINITY.to_le_bytes());
    let c = codec_with(DataType::Float32, &[0; 4], json!({"offset": "0x3f800000"})).unwrap();
    assert_eq!(encode(&*c, &3f32.to_le_bytes()).unwrap(), 2f32.to_le_bytes());
    let c = codec_with(DataType::Float64, &[0; 8], json!({"scale": "NaN"})).unwrap();
    let encoded = encode(&*c, &3f64.to_le_bytes()).unwrap();
    assert!(f64::from_le_bytes(encoded.try_into().unwrap()).is_nan());
    for (data_type, configuration, reason) in [
        (DataType::Int16, json!({"offset": 0.5}), "\"offset\" is not a value of the data type"),
        (DataType::UInt8, json!({"offset": 256}), "\"offset\" is not a value"),
        (DataType::UInt8, json!({"scale": -1}), "\"scale\" is not a value"),
        (DataType::Float32, json!({"scale": "many"}), "\"scale\" is not a value"),
        (DataType::Float32, json!({"scale": 0}), "\"scale\" must not be 0"),
        (DataType::Float32, json!({"scale": -0.0}), "\"scale\" must not be 0"),
        (DataType::Int8, json!({"scale": 0}), "\"scale\" must not be 0"),
        (DataType::Float32, json!({"scale_factor": 2}), "\"scale_factor\" is a member"),
        (DataType::Bool, json!({}), "for integers and floats, not for bool"),
        (DataType::Complex64, json!({}), "not for complex64"),
    ] {
        let error = codec_with(data_type, &[0; 8], configuration).err().unwrap().to_string();
        assert!(error.contains(reason) && error.contains("scale_offset"), "{error}");
    }
}

#[test]
fn without_parameters_nothing_changes() {
    let c = codec(DataType::Float32, json!({})).unwrap();
    for bits in [0x8000_0000u32, 0x7fa0_0001, 0x3f80_0000] {
        assert_eq!(encode(&*c, &bits.to_le_bytes()).unwrap(), bits.to_le_bytes());
        assert_eq!(decode(&*c, &bits.to_le_bytes()).unwrap(), bits.to_le_bytes());
    }
    assert!(c.is_elementwise());
    assert!(c.decode(&[0; 4], &mut [0; 8]).is_err());
    assert!(c.encode(&[0; 4], &mut [0; 8]).is_err());
}

#[test]
fn the_fill_value_goes_through() {
    let c =
        codec_with(DataType::Float64, &f64::NAN.to_le_bytes(), json!({"offset": -10, "scale": 0.1})).unwrap();
    assert!(f64::from_le_bytes(c.encoded().fill_value.bytes.clone().try_into().unwrap()).is_nan());
    let c = codec_with(DataType::Int16, &7i16.to_le_bytes(), json!({"offset": 2, "scale": 3})).unwrap();
    assert_eq!(c.encoded().fill_value.bytes, 15i16.to_le_bytes());
    assert_eq!(c.encoded().shape, [2, 2]);
    let error = codec_with(DataType::UInt16, &[0, 0], json!({"offset": 1000})).err().unwrap().to_string();
    assert_eq!(
        error,
        "the fill value does not go through the codecs: codec \"scale_offset\": element 0: \
         (0 - 1000) * 1 is not representable in uint16"
    );
}

#[test]
fn narrow_types() {
    let c = codec(DataType::Int4, json!({"offset": 1, "scale": 2})).unwrap();
    assert_eq!(encode(&*c, &[0xfe]).unwrap(), [0xfa]);
    assert_eq!(decode(&*c, &[0xfa]).unwrap(), [0xfe]);
    assert_eq!(
        encode(&*c, &[5]).unwrap_err(),
        "codec \"scale_offset\": element 0: (5 - 1) * 2 is not representable in int4"
    );
    assert!(decode(&*c, &[0xfb]).is_err());
    let c = codec(DataType::UInt2, json!({"offset": 1})).unwrap();
    assert_eq!(encode(&*c, &[3]).unwrap(), [2]);
    assert!(encode(&*c, &[0]).is_err());
    // float8_e4m3: 1.5 − 0.5 = 1, × 3 = 3; 240 is its greatest.
    let c = codec(DataType::Float8E4M3, json!({"offset": 0.5, "scale": 3})).unwrap();
    assert_eq!(encode(&*c, &[0x3c]).unwrap(), [0x44]);
    assert_eq!(decode(&*c, &[0x44]).unwrap(), [0x3c]);
    assert!(encode(&*c, &[0x77]).unwrap_err().contains("(240.0 - 0.5) * 3.0 is not representable"));
    // Powers of two: no 0 to subtract, 2 × 4 = 8.
    let c = codec_with(DataType::Float8E8M0Fnu, &[127], json!({"scale": 4})).unwrap();
    assert_eq!(encode(&*c, &[128]).unwrap(), [130]);
    assert_eq!(decode(&*c, &[130]).unwrap(), [128]);
    assert_eq!(encode(&*c, &[255]).unwrap(), [255]);
    assert!(encode(&*c, &[253]).is_err());
    // A NaN that the type does not have cannot come in, one that it has goes through.
    let c = codec(DataType::Float8E4M3Fnuz, json!({"scale": 2})).unwrap();
    assert_eq!(encode(&*c, &[0x80]).unwrap(), [0x80]);
}

#[test]
fn bfloat16_is_rounded_once_for_each_operation() {
    let c = codec(DataType::BFloat16, json!({"offset": 0.1, "scale": 3})).unwrap();
    let (offset, scale) = (bf16::from_f32(0.1), bf16::from_f32(3.0));
    for bits in (0..=u16::MAX).step_by(7) {
        let value = bf16::from_bits(bits);
        let expected = (value - offset) * scale;
        match encode(&*c, &bits.to_le_bytes()) {
            Ok(code) if value.is_nan() => assert!(bf16::from_le_bytes(code.try_into().unwrap()).is_nan()),
            Ok(code) => assert_eq!(bf16::from_le_bytes(code.try_into().unwrap()), expected, "{value}"),
            Err(_) => assert!(expected.is_infinite() && value.is_finite()),
        }
    }
}

/// Tries both directions in 128 bits.
fn check_integer(
    codec: &dyn ArrayToArray,
    value: i64,
    offset: i64,
    scale: i64,
    range: (i64, i64),
    width: usize,
) {
    let fits = |value: i128| (i128::from(range.0)..=i128::from(range.1)).contains(&value).then_some(value);
    let (v, o, s) = (i128::from(value), i128::from(offset), i128::from(scale));
    let forth = fits(v - o).and_then(|difference| fits(difference * s));
    let back = (v % s == 0).then_some(v / s).and_then(fits).and_then(|quotient| fits(quotient + o));
    let bytes = |value: i128| value.to_le_bytes()[..width].to_vec();
    assert_eq!(encode(codec, &bytes(v)).ok(), forth.map(bytes));
    assert_eq!(decode(codec, &bytes(v)).ok(), back.map(bytes));
}

proptest! {
    #[test]
    fn integers_agree_with_128_bits(offset: i64, scale: i64, values in prop::collection::vec(any::<i64>(), 1..60)) {
        for (data_type, range, width) in [
            (DataType::Int8, (i64::from(i8::MIN), i64::from(i8::MAX)), 1),
            (DataType::UInt8, (0, i64::from(u8::MAX)), 1),
            (DataType::Int16, (i64::from(i16::MIN), i64::from(i16::MAX)), 2),
            (DataType::UInt32, (0, i64::from(u32::MAX)), 4),
            (DataType::Int64, (i64::MIN, i64::MAX), 8),
            (DataType::Int4, (-8, 7), 1),
        ] {
            let span = i128::from(range.1) - i128::from(range.0) + 1;
            let within = |value: i64| ((i128::from(value) - i128::from(range.0)).rem_euclid(span) + i128::from(range.0)) as i64;
            let (offset, scale) = (within(offset), within(scale >> 60).max(1));
            let c = codec(data_type, json!({"offset": offset, "scale": scale})).unwrap();
            for value in &values {
                check_integer(&*c, within(*value), offset, scale, range, width);
                check_integer(&*c, within(*value >> 57), offset, scale, range, width);
                check_integer(&*c, within(offset.wrapping_add(*value >> 60)), offset, scale, range, width);
            }
        }
    }
}
