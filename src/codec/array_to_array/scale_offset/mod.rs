//! `scale_offset`: `(in − offset) × scale` on encoding, `in / scale + offset` on decoding, in the array's own type.
//!
//! Spec: zarr-extensions, codecs/scale_offset. Uses `metadata`.
//!
//! ```json
//! {"name": "scale_offset", "configuration": {"offset": 5, "scale": 0.1}}
//! ```
//!
//! How the text is read here:
//! - The type is that of the codec's input; after a `cast_value` it is the cast type. Nothing is promoted.
//! - Integers: a difference, product, quotient or sum that the type cannot hold is an error, an intermediate one too,
//!   and so is a division with a remainder.
//! - Floats: every operation rounds as IEEE 754 says. Finite numbers with a result beyond the type's range are
//!   an error; infinities and NaNs of the input stay.
//! - An absent offset is 0 and an absent scale 1. With both absent the codec changes nothing, −0 included.

mod arithmetic;

use serde_json::Value;

use crate::codec::config::Configuration;
use crate::codec::error::check_length;
use crate::codec::kernels::dtype::computed_type;
use crate::codec::{
    ArrayToArray, Codec, CodecEntry, CodecError, CodecInput, CodecResult, Context, Representation,
};
use crate::metadata::data_type::exact_number::{ExactNumber, OutOfRange, Rounding, ScalarFormat};
use crate::metadata::data_type::numeric::with_numeric_type;
use crate::metadata::{DataType, FillValue};
use arithmetic::{Arithmetic, Narrow, Native};

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["scale_offset"], v2: &[], build };

/// The codec for one representation.
struct ScaleOffset {
    encoded: Representation,
    /// `None` where neither offset nor scale is given.
    arithmetic: Option<Box<dyn Arithmetic>>,
}

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let CodecInput::Array(input) = context.input else {
        return Err(CodecError::new("codec \"scale_offset\" needs an array as input, but got bytes"));
    };
    let mut configuration = Configuration::new(context);
    let data_type = &input.data_type;
    let Some(format) = data_type.real_format() else {
        let name = data_type.name();
        return Err(CodecError::new(format_args!(
            "codec \"scale_offset\" is for integers and floats, not for {name}"
        )));
    };
    let offset = scalar(&mut configuration, "offset", data_type)?;
    let scale = scalar(&mut configuration, "scale", data_type)?;
    if scale.is_some_and(|code| matches!(format.read(code), ExactNumber::Finite { significand: 0, .. })) {
        return Err(configuration.error("scale", "must not be 0"));
    }
    configuration.finish()?;
    let arithmetic = match (offset, scale) {
        (None, None) => None,
        _ => Some(arithmetic(data_type, format, offset, scale)),
    };
    let mut codec = ScaleOffset { encoded: input.clone(), arithmetic };
    if !input.fill_value.is_undefined {
        let mut bytes = vec![0; input.fill_value.bytes.len()];
        codec.encode(&input.fill_value.bytes, &mut bytes).map_err(|error| {
            CodecError::new(format_args!("the fill value does not go through the codecs: {error}"))
        })?;
        codec.encoded.fill_value = FillValue { bytes, is_undefined: false };
    }
    Ok(Codec::ArrayToArray(Box::new(codec)))
}

/// Reads a parameter as a code of the data type.
fn scalar(
    configuration: &mut Configuration<'_>,
    key: &'static str,
    data_type: &DataType,
) -> CodecResult<Option<u64>> {
    let Some(value): Option<&Value> = configuration.value(key) else { return Ok(None) };
    match FillValue::from_v3(data_type, value) {
        Ok(scalar) => Ok(Some(scalar.bytes.iter().rev().fold(0, |code, &byte| code << 8 | u64::from(byte)))),
        Err(fault) => Err(configuration.error(key, format_args!("is not a value of the data type: {fault}"))),
    }
}

/// Returns the operations for a data type, with parameters as its codes.
fn arithmetic(
    data_type: &DataType,
    format: ScalarFormat,
    offset: Option<u64>,
    scale: Option<u64>,
) -> Box<dyn Arithmetic> {
    let name = || data_type.name().into_owned();
    let native = computed_type(data_type).and_then(|numeric_type| {
        with_numeric_type!(numeric_type, real T => Some(Native::<T>::boxed(name(), offset, scale)), else None)
    });
    native.unwrap_or_else(|| {
        let code = |number| {
            format.write(ExactNumber::from_f64(number), Rounding::NearestEven, OutOfRange::Refuse).ok()
        };
        // A type without 0 or 1 has no default.
        let (offset, scale) = (offset.or_else(|| code(0.0)), scale.or_else(|| code(1.0)));
        Box::new(Narrow { name: name(), format, offset, scale })
    })
}

impl ArrayToArray for ScaleOffset {
    /// Floats are rounded; integers that it would change are errors, which is not distinguished here.
    fn is_lossless(&self) -> bool {
        self.arithmetic.is_none()
    }

    fn encoded(&self) -> &Representation {
        &self.encoded
    }

    fn decode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        check_length(input.len(), out.len())?;
        match &self.arithmetic {
            Some(arithmetic) => arithmetic.decode(input, out),
            None => {
                out.copy_from_slice(input);
                Ok(())
            }
        }
    }

    fn encode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        check_length(input.len(), out.len())?;
        match &self.arithmetic {
            Some(arithmetic) => arithmetic.encode(input, out),
            None => {
                out.copy_from_slice(input);
                Ok(())
            }
        }
    }

    fn is_elementwise(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
