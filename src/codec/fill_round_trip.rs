//! Whether an array's fill value survives its codecs as the same number. Uses `metadata`.
//!
//! Spec: zarr-extensions, codecs/cast_value, "data_type": a fill value that cannot survive the cast and the cast
//! back is an error. The check covers the whole chain, not `cast_value` alone: `scale_offset` rarely turns a fill value
//! into an exact whole number, and casting the result to an integer and scaling it back still gives the fill value.

use super::{ArrayToArray, CodecError, CodecResult, Representation};

/// Checks the fill value after the last codec that requires it, back to `decoded`, or as far back as elements can
/// be decoded one by one.
pub fn check(decoded: &Representation, codecs: &[&dyn ArrayToArray]) -> CodecResult<()> {
    if decoded.fill_value.is_undefined {
        return Ok(());
    }
    let asking = codecs.iter().rposition(|codec| codec.must_keep_fill_value());
    let Some(codecs) = asking.and_then(|last| codecs.get(..=last)) else { return Ok(()) };
    let mut level = codecs.last().map_or(decoded, |last| last.encoded());
    let mut fill = level.fill_value.bytes.clone();
    let mut left = codecs;
    while let Some((codec, before)) = left.split_last() {
        let input = before.last().map_or(decoded, |last| last.encoded());
        if codec.is_elementwise() {
            let mut element = vec![0; input.item_size()?];
            codec.decode(&fill, &mut element).map_err(|error| {
                CodecError::new(format_args!("the fill value does not come back through the codecs: {error}"))
            })?;
            fill = element;
        } else if codec.permutation().is_none() {
            break;
        }
        (left, level) = (before, input);
    }
    same(level, &fill)?;
    match left.split_last() {
        // The codecs before the one that ended the way back are checked separately.
        Some((_, before)) => check(decoded, before),
        None => Ok(()),
    }
}

/// Fails unless `fill` is the same number as the fill value of `level`.
fn same(level: &Representation, fill: &[u8]) -> CodecResult<()> {
    let stored = &level.fill_value;
    let Some(format) = level.data_type.real_format() else { return Ok(()) };
    let code = |bytes: &[u8]| bytes.iter().rev().fold(0, |code, &byte| code << 8 | u64::from(byte));
    let (before, after) = (code(&stored.bytes), code(fill));
    if format.read(before).is_same_number(format.read(after)) {
        return Ok(());
    }
    Err(CodecError::new(format_args!(
        "fill_value: it does not survive the codecs: {} comes back as {}",
        format.text(before),
        format.text(after)
    )))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use crate::codec::{CodecResult, Pipeline, Representation};
    use crate::metadata::{DataType, FillValue, codec_spec};
    use serde_json::{Value, json};

    fn build(data_type: DataType, fill: Value, mut codecs: Value) -> CodecResult<Pipeline> {
        let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
        codecs.as_array_mut().unwrap().push(bytes);
        let fill_value = FillValue::from_v3(&data_type, &fill).unwrap();
        let array = Representation { shape: vec![2, 3], data_type, fill_value };
        Pipeline::build(&codec_spec::v3_list(&codecs).unwrap(), &array)
    }

    fn cast(data_type: &str) -> Value {
        json!({"name": "cast_value", "configuration": {"data_type": data_type}})
    }

    fn scale_offset(offset: f64, scale: f64) -> Value {
        json!({"name": "scale_offset", "configuration": {"offset": offset, "scale": scale}})
    }

    fn refused(data_type: DataType, fill: Value, codecs: Value) -> String {
        build(data_type, fill, codecs).err().unwrap().to_string()
    }

    #[test]
    fn a_cast_alone_must_keep_it() {
        let error = refused(DataType::Float64, json!(0.5), json!([cast("int8")]));
        assert_eq!(error, "fill_value: it does not survive the codecs: 0.5 comes back as 0.0");
        let error = refused(DataType::Float64, json!(0.1), json!([cast("float32")]));
        assert!(error.contains("0.1 comes back as 0.10000000149011612"), "{error}");
        let clamp =
            json!({"name": "cast_value", "configuration": {"data_type": "int8", "out_of_range": "clamp"}});
        assert!(refused(DataType::Int16, json!(300), json!([clamp])).contains("300 comes back as 127"));
        let one_way = json!({"name": "cast_value", "configuration": {"data_type": "int8",
            "scalar_map": {"encode": [["NaN", 0]]}}});
        assert!(refused(DataType::Float32, json!("NaN"), json!([one_way])).contains("NaN comes back as 0.0"));
        let no_way_back = json!({"name": "cast_value", "configuration": {"data_type": "float32",
            "scalar_map": {"encode": [[7, 0.5], [8, "NaN"]]}}});
        let error = refused(DataType::Int8, json!(8), json!([no_way_back]));
        assert!(error.contains("does not come back through the codecs") && error.contains("NaN"), "{error}");
        for (data_type, fill, target) in [
            (DataType::Float64, json!("NaN"), "float16"),
            (DataType::Float64, json!("0x7ff8000000000001"), "float32"),
            (DataType::Float64, json!("-Infinity"), "bfloat16"),
            (DataType::Float32, json!(-0.0), "int8"),
            (DataType::UInt64, json!(1u64 << 63), "float32"),
        ] {
            build(data_type, fill, json!([cast(target)])).unwrap();
        }
    }

    #[test]
    fn a_chain_must_keep_it_as_a_whole() {
        // (0 − 0.7) × 10 is −7 or next to it, and still comes back from −7 as 0.
        let transpose = json!({"name": "transpose", "configuration": {"order": [1, 0]}});
        for (offset, scale) in [(0.7, 10.0), (273.15, 100.0), (-1.1, 10.0), (35.17, 100.0)] {
            let chain = json!([scale_offset(offset, scale), transpose, cast("int32")]);
            build(DataType::Float64, json!(0), chain).unwrap();
        }
        let error = refused(DataType::Float64, json!(0.25), json!([scale_offset(0.0, 10.0), cast("int32")]));
        assert!(error.contains("0.25 comes back as 0.2"), "{error}");
        let error = refused(DataType::Float64, json!(0.5), json!([cast("int8"), scale_offset(0.0, 1.0)]));
        assert!(error.contains("0.5 comes back as 0.0"), "{error}");
    }

    #[test]
    fn a_codec_of_whole_chunks_splits_the_check() {
        let reshape = json!({"name": "reshape", "configuration": {"shape": [6]}});
        let scaled = scale_offset(0.0, 4.0);
        build(DataType::Float64, json!(0.5), json!([scaled, reshape, cast("int8")])).unwrap();
        build(DataType::Float64, json!(2), json!([cast("int8"), reshape, cast("int16")])).unwrap();
        let error = refused(DataType::Float64, json!(0.5), json!([cast("int8"), reshape, cast("int16")]));
        assert!(error.contains("0.5 comes back as 0.0"), "{error}");
    }
}
