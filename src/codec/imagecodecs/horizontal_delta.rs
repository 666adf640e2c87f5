//! `HorizontalDeltaCodec`: TIFF's predictor 2, differences along the last axis of the elements' bits as unsigned integers.
//!
//! Spec: TIFF 6.0, section 14; virtual-tiff names the codec. Uses `delta` and `predictor`.
//!
//! ```json
//! {"name": "HorizontalDeltaCodec"}
//! ```

use super::delta::Differences;
use super::predictor::build as build_predictor;
use crate::codec::config::Configuration;
use crate::codec::{Codec, CodecEntry, CodecError, CodecResult, Context};
use crate::metadata::ByteOrder;

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["HorizontalDeltaCodec"], v2: &[], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let array = context.array()?;
    Configuration::new(context).finish()?;
    let axis = array.shape.len().checked_sub(1);
    let axis = axis
        .ok_or_else(|| CodecError::new("codec \"HorizontalDeltaCodec\" for an array without dimensions"))?;
    let Some(differences) = Differences::new(&array.shape, axis, array.item_size()?, ByteOrder::Little)
    else {
        let name = array.data_type.name();
        return Err(CodecError::unsupported(format_args!("codec \"HorizontalDeltaCodec\" for {name}")));
    };
    Ok(build_predictor(context, differences, array.data_type.clone(), ByteOrder::Little, array.shape.clone()))
}
