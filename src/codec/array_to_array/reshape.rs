//! `reshape`: the same elements in the same order, with another shape.
//!
//! Spec: zarr-extensions, codecs/reshape. Uses `metadata`.
//!
//! ```json
//! {"name": "reshape", "configuration": {"shape": [[0, 1], [2], 3, -1]}}
//! ```
//!
//! A number is a length, a list of dimensions means the product of their lengths, −1 the remainder. The
//! specification's rule for the lengths before a list is garbled. It is read as the mirror image of the rule for the lengths
//! after it: the lengths before a list have the same product in both shapes.

use serde_json::Value;

use crate::codec::config::Configuration;
use crate::codec::error::check_length;
use crate::codec::{
    ArrayToArray, Codec, CodecEntry, CodecError, CodecInput, CodecResult, Context, Representation,
};
use crate::metadata::MAX_RANK;

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["reshape"], v2: &[], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let CodecInput::Array(input) = context.input else {
        return Err(CodecError::new("codec \"reshape\" needs an array as input, but got bytes"));
    };
    let mut configuration = Configuration::new(context);
    let lengths = configuration.list("shape")?;
    let lengths = configuration.require("shape", lengths)?;
    let shape = lengths
        .iter()
        .map(Length::read)
        .collect::<Option<Vec<Length>>>()
        .ok_or_else(|| {
            "holds something else than positive numbers, one -1 and lists of dimensions".to_owned()
        })
        .and_then(|lengths| encoded_shape(&input.shape, &lengths))
        .map_err(|reason| configuration.error("shape", reason))?;
    configuration.finish()?;
    Ok(Codec::ArrayToArray(Box::new(Reshape { encoded: Representation { shape, ..input.clone() } })))
}

/// One member of `shape`.
enum Length {
    Is(u64),
    ProductOf(Vec<usize>),
    Rest,
}

impl Length {
    fn read(value: &Value) -> Option<Length> {
        if let Some(dimensions) = value.as_array() {
            let dimensions: Option<Vec<usize>> =
                dimensions.iter().map(|value| usize::try_from(value.as_u64()?).ok()).collect();
            return dimensions.map(Length::ProductOf);
        }
        match value.as_i64() {
            Some(-1) => Some(Length::Rest),
            _ => value.as_u64().filter(|&length| length > 0).map(Length::Is),
        }
    }
}

fn product(lengths: &[u64]) -> Result<u64, String> {
    lengths
        .iter()
        .try_fold(1u64, |product, &length| product.checked_mul(length))
        .ok_or_else(|| "gives more than 2^64 elements".to_owned())
}

/// Returns the lengths after encoding. The error says what is wrong with `lengths`.
fn encoded_shape(input: &[u64], lengths: &[Length]) -> Result<Vec<u64>, String> {
    if lengths.len() > MAX_RANK {
        return Err(format!("has more than {MAX_RANK} dimensions"));
    }
    let mut shape = Vec::with_capacity(lengths.len());
    let mut rest = None;
    let mut next_dimension = 0;
    for (at, length) in lengths.iter().enumerate() {
        shape.push(match length {
            Length::Is(length) => *length,
            Length::Rest if rest.replace(at).is_some() => return Err("has more than one -1".to_owned()),
            Length::Rest => 1,
            Length::ProductOf(dimensions) => {
                let mut of = Vec::with_capacity(dimensions.len().min(input.len()));
                for &dimension in dimensions {
                    if dimension < next_dimension {
                        return Err("lists dimensions that do not ascend".to_owned());
                    }
                    next_dimension = dimension + 1;
                    let length = input.get(dimension).copied();
                    of.push(
                        length.ok_or_else(|| format!("names dimension {dimension}, which there is not"))?,
                    );
                }
                product(&of)?
            }
        });
    }
    let elements = product(input)?;
    if let Some(at) = rest {
        let others = product(&shape)?;
        let (true, Some(length)) = (others != 0, shape.get_mut(at)) else {
            return Err("leaves -1 open, as another dimension has no elements".to_owned());
        };
        *length = elements / others;
    }
    if product(&shape)? != elements {
        return Err(format!("gives {shape:?}, which does not have the {elements} elements of {input:?}"));
    }
    for (at, length) in lengths.iter().enumerate() {
        let Length::ProductOf(dimensions) = length else { continue };
        let (Some(&first), Some(&last)) = (dimensions.first(), dimensions.last()) else { continue };
        let is_same = |of: Option<&[u64]>, as_of: Option<&[u64]>| -> Result<bool, String> {
            Ok(product(of.unwrap_or_default())? == product(as_of.unwrap_or_default())?)
        };
        if !is_same(shape.get(..at), input.get(..first))?
            || !is_same(shape.get(at + 1..), input.get(last + 1..))?
        {
            return Err(format!("gives {shape:?}, where dimension {at} is not {dimensions:?} of {input:?}"));
        }
    }
    Ok(shape)
}

/// The same elements with another shape.
pub struct Reshape {
    /// The array after encoding.
    pub encoded: Representation,
}

impl Reshape {
    fn copy(input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        check_length(input.len(), out.len())?;
        out.copy_from_slice(input);
        Ok(())
    }
}

impl ArrayToArray for Reshape {
    fn is_lossless(&self) -> bool {
        true
    }

    fn encoded(&self) -> &Representation {
        &self.encoded
    }

    fn decode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        Self::copy(input, out)
    }

    fn encode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        Self::copy(input, out)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::metadata::{CodecFamily, CodecSpec, DataType, FillValue};
    use serde_json::json;

    fn encoded(input: &[u64], shape: Value) -> CodecResult<Vec<u64>> {
        let spec = CodecSpec {
            family: CodecFamily::V3,
            name: "reshape".to_owned(),
            configuration: json!({ "shape": shape }).as_object().unwrap().clone(),
            must_understand: true,
            place: "codecs[0]".to_owned(),
        };
        let input = Representation {
            shape: input.to_vec(),
            data_type: DataType::Int16,
            fill_value: FillValue { bytes: vec![1, 2], is_undefined: false },
        };
        match crate::codec::registry::build(&spec, CodecInput::Array(&input))? {
            Codec::ArrayToArray(codec) => {
                assert_eq!(codec.encoded().fill_value, input.fill_value);
                assert!(!codec.is_elementwise());
                let (elements, mut out) = ([1, 2, 3, 4], [0; 4]);
                codec.encode(&elements, &mut out).unwrap();
                assert_eq!(out, elements);
                assert!(codec.decode(&elements, &mut [0; 2]).is_err());
                Ok(codec.encoded().shape.clone())
            }
            _ => panic!("not array to array"),
        }
    }

    #[test]
    fn lengths_dimensions_and_the_rest() {
        let a = [100, 50, 64, 3];
        assert_eq!(encoded(&a, json!([[0, 1], [2], 3])).unwrap(), [5000, 64, 3]);
        assert_eq!(encoded(&a, json!([[0], 25, 2, -1, [3]])).unwrap(), [100, 25, 2, 64, 3]);
        assert_eq!(encoded(&a, json!([-1])).unwrap(), [960_000]);
        assert_eq!(encoded(&a, json!([[], [0, 1, 2, 3], 1])).unwrap(), [1, 960_000, 1]);
        assert_eq!(encoded(&[], json!([])).unwrap(), [0u64; 0]);
        assert_eq!(encoded(&[], json!([1, -1])).unwrap(), [1, 1]);
        assert_eq!(encoded(&[7], json!([7])).unwrap(), [7]);
        assert_eq!(encoded(&[4, 1, 6], json!([[0], [2]])).unwrap(), [4, 6]);
        assert_eq!(encoded(&[0, 5], json!([[0], 5])).unwrap(), [0, 5]);
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let a = [4, 6, 5];
        let bad = [
            (json!([4, 6]), "does not have the 120 elements"),
            (json!([7, -1]), "does not have the 120 elements"),
            (json!([-1, -1]), "more than one -1"),
            (json!([[1], [0], [2]]), "do not ascend"),
            (json!([[0, 0], -1]), "do not ascend"),
            (json!([[0], [1], [3]]), "dimension 3, which there is not"),
            (json!([6, [0], 5]), "dimension 1 is not [0]"),
            (json!([2, [1], 10]), "dimension 1 is not [1]"),
            (json!([0, -1]), "something else"),
            (json!([-2, -1]), "something else"),
            (json!([1.5, -1]), "something else"),
            (json!([["a"], -1]), "something else"),
            (json!([u64::MAX, u64::MAX, -1]), "more than 2^64"),
            (json!(120), "must be a list"),
            (json!(null), "is required"),
            (json!(vec![1; 33]), "more than 32"),
        ];
        for (shape, reason) in bad {
            let error = encoded(&a, shape.clone()).unwrap_err().to_string();
            assert!(error.contains(reason), "{shape}: {error}");
            assert!(error.starts_with("codec \"reshape\": \"shape\" "), "{error}");
        }
        let error = encoded(&[0, 5], json!([[0], -1])).unwrap_err().to_string();
        assert!(error.contains("leaves -1 open"), "{error}");
    }
}
