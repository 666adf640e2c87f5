//! `numcodecs.astype`: elements stored as another type. v2 id: `astype`.
//!
//! Format: numcodecs `AsType`: NumPy's cast from `encode_dtype` to `decode_dtype` and back; v3 takes the array's own
//! type for an absent `decode_dtype`. Uses `filter`.
//!
//! ```json
//! {"name": "numcodecs.astype", "configuration": {"encode_dtype": "<f4", "decode_dtype": "<f8"}}
//! ```

use super::filter::{Dtypes, NumericFilter, build as build_filter};
use crate::codec::config::Configuration;
use crate::codec::kernels::dtype::promote;
use crate::codec::kernels::element::cast;
use crate::codec::{Codec, CodecEntry, CodecResult, Context};

/// The codec's names and constructor.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["numcodecs.astype", "astype"], v2: &["astype"], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    let encode_dtype = configuration.string("encode_dtype")?;
    configuration.require("encode_dtype", encode_dtype)?;
    let dtypes = Dtypes::read(&mut configuration, context, "decode_dtype", "encode_dtype")?;
    configuration.finish()?;
    build_filter(context, AsType, dtypes)
}

struct AsType;

impl NumericFilter for AsType {
    const IS_ELEMENTWISE: bool = true;
    const KEEPS_SHAPE: bool = true;

    // Only integers that all fit are certain; a float's NaNs may change.
    fn is_lossless(&self, dtypes: Dtypes) -> bool {
        let (decoded, encoded) = (dtypes.decoded.numeric_type, dtypes.encoded.numeric_type);
        decoded.is_integer() && encoded.is_integer() && promote(decoded, encoded) == encoded
    }

    fn encode(&self, dtypes: Dtypes, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        cast(input, dtypes.decoded, out, dtypes.encoded);
        Ok(())
    }
}
