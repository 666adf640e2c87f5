//! The `bytes` codec: elements one after the other, in one byte order.
//!
//! Spec: v3 "Bytes codec" (`endian` is its older name); v2 "dtype": its byte order becomes this codec.
//!
//! ```json
//! {"name": "bytes", "configuration": {"endian": "little"}}
//! ```
//!
//! `endian` is required only if a part of the element has a byte order. v2 chains may also hold
//! `{"endian": "mixed", "big": [[offset, width, count], …]}`, written by `metadata::v2` for structs with fields that
//! differ in byte order: the listed parts are big-endian. Uses `metadata`.
//!
//! Decoding makes bytes canonical: a bool byte that is not 0 becomes 1, int2 and int4 are sign-extended, the
//! high bits of uint2 and uint4 are cleared. Encoding refuses a byte that is not canonical.

use serde_json::Value;

use crate::codec::config::Configuration;
use crate::codec::error::check_length;
use crate::codec::kernels::byte_swap::SwapPlan;
use crate::codec::kernels::sub_byte::SubByte;
use crate::codec::{
    ArrayToBytes, Codec, CodecEntry, CodecResult, Context, EncodedSize, InPlace, Items, scratch,
};
use crate::metadata::CodecFamily;
use crate::metadata::data_type::Component;

/// `bytes`, called `endian` in drafts of v3.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["bytes", "endian"], v2: &["bytes"], build };

/// The codec, which stores elements in place.
#[derive(Clone)]
struct BytesCodec {
    size: usize,
    /// Converts stored to decoded byte order.
    swap: SwapPlan,
    /// Converts stored byte order to the reverse of the decoded one.
    other_swap: SwapPlan,
    narrow: SubByte,
    items: Option<Items>,
}

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let input = context.array()?;
    let all = SwapPlan::all(&input.data_type)?;
    let mut configuration = Configuration::new(context);
    let is_v2 = context.family == CodecFamily::V2;
    let swap = match configuration.string("endian")? {
        Some("little") => SwapPlan::none(),
        Some("big") => all.clone(),
        Some("mixed") if is_v2 => {
            let parts = big_parts(&mut configuration)?;
            SwapPlan::only(&input.data_type, &parts).map_err(|error| configuration.error("big", error))?
        }
        None if all.is_empty() => SwapPlan::none(),
        None => return Err(configuration.error("endian", "is required for elements of more than one byte")),
        Some(other) => {
            return Err(configuration.error("endian", format_args!("must be little or big, not \"{other}\"")));
        }
    };
    configuration.finish()?;
    let items = is_v2.then(|| Items {
        shape: input.shape.clone(),
        data_type: input.data_type.clone(),
        is_big_endian: !all.is_empty() && swap == all,
    });
    Ok(Codec::ArrayToBytes(Box::new(BytesCodec {
        size: input.size_bytes()?,
        other_swap: swap.complement(&all),
        swap,
        narrow: SubByte::new(&input.data_type)?,
        items,
    })))
}

/// Reads the member `big` of the mixed form.
fn big_parts(configuration: &mut Configuration<'_>) -> CodecResult<Vec<Component>> {
    let list = configuration.list("big")?;
    let list = configuration.require("big", list)?;
    let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
    let part = |value: &Value| match value.as_array()?.as_slice() {
        [offset, width, count] => {
            Some(Component { offset: number(offset)?, width: number(width)?, count: number(count)? })
        }
        _ => None,
    };
    let parts: Option<Vec<Component>> = list.iter().map(part).collect();
    parts.ok_or_else(|| configuration.error("big", "must be a list of [offset, width, count]"))
}

impl InPlace for BytesCodec {
    fn decode(&self, data: &mut [u8]) -> CodecResult<()> {
        self.swap.apply(data);
        self.narrow.widen(data);
        Ok(())
    }

    fn encode(&self, data: &mut [u8]) -> CodecResult<()> {
        self.narrow.check(data)?;
        self.swap.apply(data);
        Ok(())
    }

    fn is_identity(&self) -> bool {
        self.swap.is_empty() && self.narrow.is_empty()
    }
}

impl ArrayToBytes for BytesCodec {
    // Bytes that it cannot restore are an error when encoding.
    fn is_lossless(&self) -> bool {
        true
    }

    fn encoded_size(&self) -> EncodedSize {
        EncodedSize::Exact(self.size as u64)
    }

    fn decode(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        check_length(encoded.len(), self.size)?;
        check_length(out.len(), self.size)?;
        self.swap.copy(encoded, out);
        self.narrow.widen(out);
        Ok(())
    }

    fn encode(&self, input: &[u8]) -> CodecResult<Vec<u8>> {
        check_length(input.len(), self.size)?;
        self.narrow.check(input)?;
        let mut encoded = scratch::copied(input)?;
        self.swap.apply(&mut encoded);
        Ok(encoded)
    }

    fn in_place(&self) -> Option<&dyn InPlace> {
        Some(self)
    }

    fn with_big_endian_elements(&self) -> Option<Box<dyn ArrayToBytes>> {
        let flipped =
            BytesCodec { swap: self.other_swap.clone(), other_swap: self.swap.clone(), ..self.clone() };
        Some(Box::new(flipped))
    }

    fn without_byte_order(&self) -> Option<Box<dyn ArrayToBytes>> {
        let (swap, other_swap) = (SwapPlan::none(), SwapPlan::none());
        Some(Box::new(BytesCodec { swap, other_swap, ..self.clone() }))
    }

    fn encoded_items(&self) -> Option<&Items> {
        self.items.as_ref()
    }
}
