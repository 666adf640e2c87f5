//! The `transpose` codec: the dimensions of a chunk in another order.
//!
//! Spec: v3 "Transpose codec"; its older draft also allows the strings "C" (the identity) and "F" (all dimensions
//! reversed). v2's `"order": "F"` becomes this codec.
//!
//! ```json
//! {"name": "transpose", "configuration": {"order": [2, 1, 0]}}
//! ```
//!
//! The encoded array's axis i is the decoded array's axis `order[i]`.

use serde_json::Value;

use crate::codec::config::Configuration;
use crate::codec::kernels::permute::Permute;
use crate::codec::{ArrayToArray, Codec, CodecEntry, CodecError, CodecResult, Context, Representation};

/// `transpose`.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["transpose"], v2: &["transpose"], build };

/// A permutation of dimensions, for one shape.
pub struct Transpose {
    order: Vec<usize>,
    encoded: Representation,
    encode: Permute,
    decode: Permute,
    size: usize,
}

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let input = context.array()?;
    let rank = input.shape.len();
    let mut configuration = Configuration::new(context);
    let order: Option<Vec<usize>> = match configuration.value("order") {
        Some(Value::String(draft)) if draft == "C" => Some((0..rank).collect()),
        Some(Value::String(draft)) if draft == "F" => Some((0..rank).rev().collect()),
        Some(Value::Array(axes)) => {
            axes.iter().map(|axis| axis.as_u64().and_then(|axis| usize::try_from(axis).ok())).collect()
        }
        None => return Err(configuration.error("order", "is required")),
        Some(_) => None,
    };
    let is_permutation = |order: &Vec<usize>| {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        sorted.into_iter().eq(0..rank)
    };
    let Some(order) = order.filter(is_permutation) else {
        let last = rank.saturating_sub(1);
        return Err(
            configuration.error("order", format_args!("must be a permutation of the dimensions 0 to {last}"))
        );
    };
    configuration.finish()?;
    Ok(Codec::ArrayToArray(Box::new(Transpose::new(order, input)?)))
}

impl Transpose {
    /// Creates the codec with encoded axis i = decoded axis `order[i]`; `order` is a permutation.
    pub fn new(order: Vec<usize>, decoded: &Representation) -> CodecResult<Self> {
        let size = decoded.size_bytes()?;
        let item_size = decoded.item_size()?;
        let shape: Option<Vec<usize>> =
            decoded.shape.iter().map(|&length| usize::try_from(length).ok()).collect();
        let shape = shape.ok_or_else(|| CodecError::new("a chunk is too long"))?;
        let encoded_shape: Vec<usize> = order.iter().filter_map(|&axis| shape.get(axis).copied()).collect();
        let mut inverse = vec![0; order.len()];
        for (at, &axis) in order.iter().enumerate() {
            if let Some(slot) = inverse.get_mut(axis) {
                *slot = at;
            }
        }
        let encoded = Representation {
            shape: encoded_shape.iter().map(|&length| length as u64).collect(),
            ..decoded.clone()
        };
        Ok(Transpose {
            encode: Permute::new(&shape, &order, item_size),
            decode: Permute::new(&encoded_shape, &inverse, item_size),
            order,
            encoded,
            size,
        })
    }

    /// Returns whether decoded and encoded bytes are the same.
    pub fn is_identity(&self) -> bool {
        self.encode.is_identity()
    }

    fn check(&self, input: &[u8], out: &[u8]) -> CodecResult<()> {
        if input.len() == self.size && out.len() == self.size {
            Ok(())
        } else {
            Err(CodecError::new(format_args!("{} bytes where {} were expected", input.len(), self.size)))
        }
    }
}

impl ArrayToArray for Transpose {
    fn is_lossless(&self) -> bool {
        true
    }

    fn encoded(&self) -> &Representation {
        &self.encoded
    }

    fn decode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        self.check(input, out)?;
        self.decode.copy(input, out);
        Ok(())
    }

    fn encode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        self.check(input, out)?;
        self.encode.copy(input, out);
        Ok(())
    }

    fn permutation(&self) -> Option<&[usize]> {
        Some(&self.order)
    }
}
