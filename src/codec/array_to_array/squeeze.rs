//! `zarrs.squeeze`: the same elements without the dimensions of length 1 of the chunk.
//!
//! Spec: the zarrs crate, codec "squeeze" (experimental). Uses `reshape`.
//!
//! ```json
//! {"name": "zarrs.squeeze"}
//! ```
//!
//! A chunk with dimensions of length 1 alone keeps one of them.

use super::reshape::Reshape;
use crate::codec::config::Configuration;
use crate::codec::{Codec, CodecEntry, CodecResult, Context, Representation};

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["zarrs.squeeze"], v2: &[], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let input = context.array()?;
    Configuration::new(context).finish()?;
    let mut shape: Vec<u64> = input.shape.iter().copied().filter(|&length| length != 1).collect();
    if shape.is_empty() {
        shape.push(1);
    }
    let encoded = Representation { shape, ..input.clone() };
    Ok(Codec::ArrayToArray(Box::new(Reshape { encoded })))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::codec::{CodecInput, registry};
    use crate::metadata::{CodecFamily, CodecSpec, DataType, FillValue};

    #[test]
    fn dimensions_of_length_1_go() {
        for (shape, squeezed) in [
            (vec![1, 4, 1, 5], vec![4, 5]),
            (vec![3, 2], vec![3, 2]),
            (vec![1, 1], vec![1]),
            (vec![], vec![1]),
            (vec![1, 0], vec![0]),
        ] {
            let spec = CodecSpec {
                family: CodecFamily::V3,
                name: "zarrs.squeeze".to_owned(),
                configuration: serde_json::Map::new(),
                must_understand: true,
                place: "codecs[0]".to_owned(),
            };
            let fill_value = FillValue::zeros(&DataType::Int16);
            let input = Representation { shape, data_type: DataType::Int16, fill_value };
            let Ok(Codec::ArrayToArray(codec)) = registry::build(&spec, CodecInput::Array(&input)) else {
                panic!("not array to array")
            };
            assert_eq!(codec.encoded().shape, squeezed);
        }
    }
}
