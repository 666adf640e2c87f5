//! `cast_value`: the same numbers in another data type, the array's own again on decoding.
//!
//! Spec: zarr-extensions, codecs/cast_value; `metadata/data_type/exact_number` and `scalar_map.rs` say how its text is read.
//! Uses `metadata`.
//!
//! ```json
//! {"name": "cast_value", "configuration": {
//!     "data_type": "uint8",
//!     "rounding": "nearest-even",
//!     "out_of_range": "clamp",
//!     "scalar_map": {"encode": [["NaN", 0]], "decode": [[0, "NaN"]]}
//! }}
//! ```
//!
//! `rounding` and `out_of_range` hold in both directions. `wrap` requires an integer `data_type`; where decoding
//! casts to a float type, nothing wraps, and what is out of range is an error. The fill value is cast as the
//! elements are; `fill_round_trip.rs` checks that it survives.

mod cast;
mod kernel;
mod scalar_map;

use serde_json::Value;

use crate::codec::config::Configuration;
use crate::codec::{
    ArrayToArray, Codec, CodecEntry, CodecError, CodecInput, CodecResult, Context, Representation,
};
use crate::metadata::data_type::exact_number::{OutOfRange, Rounding, ScalarFormat};
use crate::metadata::json::parse_error::ParseError;
use crate::metadata::{DataType, FillValue, data_type};
use cast::{Cast, element_code, real_format};
use scalar_map::ScalarMap;

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["cast_value"], v2: &[], build };

const ROUNDINGS: [(&str, Rounding); 5] = [
    ("nearest-even", Rounding::NearestEven),
    ("towards-zero", Rounding::TowardsZero),
    ("towards-positive", Rounding::TowardsPositive),
    ("towards-negative", Rounding::TowardsNegative),
    ("nearest-away", Rounding::NearestAway),
];

const OUT_OF_RANGES: [(&str, OutOfRange); 2] = [("clamp", OutOfRange::Clamp), ("wrap", OutOfRange::Wrap)];

/// The codec for one representation.
struct CastValue {
    encoded: Representation,
    encode: Cast,
    decode: Cast,
}

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let CodecInput::Array(input) = context.input else {
        return Err(CodecError::new("codec \"cast_value\" needs an array as input, but got bytes"));
    };
    let mut configuration = Configuration::new(context);
    let source = &input.data_type;
    let target = configuration.value("data_type");
    let target = configuration.require("data_type", target)?;
    let target = data_type::v3::parse(target).map_err(|error| match error {
        ParseError::Invalid(reason) => configuration.error("data_type", format_args!("is invalid: {reason}")),
        ParseError::Unsupported(reason) => {
            CodecError::unsupported(format_args!("codec \"cast_value\": data_type: {reason}"))
        }
    })?;
    let rounding = configuration.choice("rounding", &ROUNDINGS)?.unwrap_or_default();
    let out_of_range = configuration.choice("out_of_range", &OUT_OF_RANGES)?.unwrap_or_default();
    let (source_format, target_format) = (real_format(source)?, real_format(&target)?);
    if out_of_range == OutOfRange::Wrap && !matches!(target_format, ScalarFormat::Integer(_)) {
        let name = target.name();
        return Err(configuration.error("out_of_range", format_args!("cannot be \"wrap\" for {name}")));
    }
    let map = configuration.value("scalar_map");
    let (encode_map, decode_map) = scalar_maps(&configuration, map, source, &target)?;
    configuration.finish()?;
    let encode_map = ScalarMap::new(source_format, encode_map);
    let decode_map = ScalarMap::new(target_format, decode_map);
    let encode = Cast::new(source, &target, rounding, out_of_range, encode_map)?;
    let decode = Cast::new(&target, source, rounding, out_of_range, decode_map)?;
    let fill_value = cast_fill_value(&input.fill_value, target_format, &encode)?;
    let encoded = Representation { shape: input.shape.clone(), data_type: target, fill_value };
    Ok(Codec::ArrayToArray(Box::new(CastValue { encoded, encode, decode })))
}

/// Pairs of codes: a value, and its replacement.
type Pairs = Vec<(u64, u64)>;

/// Reads the pairs of `scalar_map`: for encoding, and for decoding.
fn scalar_maps(
    configuration: &Configuration<'_>,
    map: Option<&Value>,
    source: &DataType,
    target: &DataType,
) -> CodecResult<(Pairs, Pairs)> {
    let error = |reason: String| configuration.error("scalar_map", reason);
    let Some(map) = map else { return Ok((Pairs::new(), Pairs::new())) };
    let members = map.as_object().ok_or_else(|| error("must be an object".to_owned()))?;
    if let Some(unknown) = members.keys().find(|key| !["encode", "decode"].contains(&key.as_str())) {
        return Err(error(format!("has a member \"{unknown}\" that this program does not know")));
    }
    let of = |direction: &str, from: &DataType, to: &DataType| match members.get(direction) {
        None => Ok(Pairs::new()),
        Some(list) => pairs(list, from, to).map_err(|reason| error(format!("in \"{direction}\" {reason}"))),
    };
    Ok((of("encode", source, target)?, of("decode", target, source)?))
}

/// Reads a list of pairs of scalars, each in the fill value form of its type, as codes. The error says what is wrong
/// with it.
fn pairs(list: &Value, from: &DataType, to: &DataType) -> Result<Pairs, String> {
    let scalar = |data_type: &DataType, value: &Value| {
        let scalar = FillValue::from_v3(data_type, value);
        scalar.map(|scalar| element_code(&scalar.bytes)).map_err(|error| {
            let name = data_type.name();
            format!("holds a scalar that is not of type {name}: {error}")
        })
    };
    let list = list.as_array().ok_or("must be a list")?;
    let pair = |pair: &Value| match pair.as_array().map(Vec::as_slice) {
        Some([input, output]) => Ok((scalar(from, input)?, scalar(to, output)?)),
        _ => Err("must hold pairs only".to_owned()),
    };
    list.iter().map(pair).collect()
}

/// Returns the fill value after the codec.
fn cast_fill_value(fill: &FillValue, target: ScalarFormat, encode: &Cast) -> CodecResult<FillValue> {
    let mut bytes = vec![0; target.width()];
    if !fill.is_undefined {
        encode
            .run(&fill.bytes, &mut bytes)
            .map_err(|error| CodecError::new(format_args!("the fill value cannot be cast: {error}")))?;
    }
    Ok(FillValue { bytes, is_undefined: fill.is_undefined })
}

impl ArrayToArray for CastValue {
    // It rounds, clamps, wraps, maps values, and changes NaNs.
    fn is_lossless(&self) -> bool {
        false
    }

    fn encoded(&self) -> &Representation {
        &self.encoded
    }

    fn decode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        self.decode.run(input, out)
    }

    fn encode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        self.encode.run(input, out)
    }

    fn is_elementwise(&self) -> bool {
        true
    }

    fn must_keep_fill_value(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
