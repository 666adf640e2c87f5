//! Predictors: differences between neighbours of a row, as codecs of both versions. Encoding does not change the number of bytes.
//!
//! In v2 a predictor is a filter on bytes as stored, in v3 array → array. Uses `config`.

use std::borrow::Cow;

use crate::codec::config::Configuration;
use crate::codec::error::check_length;
use crate::codec::{
    ArrayToArray, BytesToBytes, Codec, CodecInput, CodecResult, Context, EncodedSize, Items, Representation,
    scratch,
};
use crate::metadata::{ByteOrder, DataType};

/// Turns elements into differences and back. Both slices have [`Predictor::size_bytes`].
pub trait Predictor: Send + Sync + 'static {
    /// Returns the bytes of all elements.
    fn size_bytes(&self) -> usize;
    /// Undoes the predictor.
    fn decode(&self, input: &[u8], out: &mut [u8]);
    /// Applies the predictor.
    fn encode(&self, input: &[u8], out: &mut [u8]);
    /// Returns whether encoded elements are not swapped, whatever the byte order of the codec after it says.
    fn takes_stored_bytes(&self) -> bool {
        false
    }
}

/// Reads the member `shape` for elements of `width` bytes, or returns `own` if it is absent. It must have as many bytes as the chunk.
pub fn read_shape(
    configuration: &mut Configuration<'_>,
    context: &Context<'_>,
    width: usize,
) -> CodecResult<Vec<u64>> {
    let stated = configuration.lengths("shape")?;
    let (own, size) = match context.input {
        CodecInput::Array(array) => (Some(array.shape.clone()), Some(array.size_bytes()? as u64)),
        CodecInput::Bytes { size: EncodedSize::Exact(bytes), .. } => (None, Some(bytes)),
        CodecInput::Bytes { .. } => (None, None),
    };
    let shape = match stated.or(own) {
        Some(shape) => shape,
        None => vec![size.unwrap_or(0) / width as u64],
    };
    let bytes = shape.iter().try_fold(width as u64, |product, &length| product.checked_mul(length));
    if bytes.is_none() || size.is_some_and(|size| bytes != Some(size)) {
        let reason = format_args!("{shape:?} does not have the elements of the chunk");
        return Err(configuration.error("shape", reason));
    }
    Ok(shape)
}

/// Reads the member `axis`, which counts from the end if it is negative, for an array of `rank` dimensions. The default is the last one.
pub fn read_axis(configuration: &mut Configuration<'_>, rank: usize) -> CodecResult<usize> {
    let axis = configuration.integer("axis", i64::from(i16::MIN)..=i64::from(i16::MAX))?.unwrap_or(-1);
    let from_start = if axis < 0 { axis + rank as i64 } else { axis };
    match usize::try_from(from_start).ok().filter(|&axis| axis < rank) {
        Some(axis) => Ok(axis),
        None => Err(configuration
            .error("axis", format_args!("is {axis}, which an array of {rank} dimensions does not have"))),
    }
}

/// Builds the predictor of elements of `data_type` as a codec of the requested version.
pub fn build<P: Predictor>(
    context: &Context<'_>,
    predictor: P,
    data_type: DataType,
    byte_order: ByteOrder,
    shape: Vec<u64>,
) -> Codec {
    match context.input {
        CodecInput::Array(array) => {
            Codec::ArrayToArray(Box::new(ArrayPredictor { predictor, encoded: array.clone() }))
        }
        CodecInput::Bytes { .. } => {
            let is_big_endian = byte_order == ByteOrder::Big;
            let items = Items { shape, data_type, is_big_endian };
            Codec::BytesToBytes(Box::new(BytesPredictor { predictor, items }))
        }
    }
}

/// The v2 filter.
struct BytesPredictor<P> {
    predictor: P,
    items: Items,
}

impl<P: Predictor> BytesToBytes for BytesPredictor<P> {
    fn is_lossless(&self) -> bool {
        true
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        decoded
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        scratch::decoded(encoded.len(), limit_bytes, |out| self.decode_into(encoded, out))
    }

    fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        check_length(encoded.len(), self.predictor.size_bytes())?;
        check_length(out.len(), encoded.len())?;
        self.predictor.decode(encoded, out);
        Ok(())
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        check_length(decoded.len(), self.predictor.size_bytes())?;
        let mut out = scratch::zeroed(decoded.len())?;
        self.predictor.encode(decoded, &mut out);
        Ok(out)
    }

    fn encoded_items(&self) -> Option<&Items> {
        Some(&self.items)
    }
}

/// The v3 codec.
struct ArrayPredictor<P> {
    predictor: P,
    encoded: Representation,
}

impl<P: Predictor> ArrayToArray for ArrayPredictor<P> {
    fn is_lossless(&self) -> bool {
        true
    }

    fn encoded(&self) -> &Representation {
        &self.encoded
    }

    fn decode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        check_length(input.len(), self.predictor.size_bytes())?;
        check_length(out.len(), input.len())?;
        self.predictor.decode(input, out);
        Ok(())
    }

    fn encode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        check_length(input.len(), self.predictor.size_bytes())?;
        check_length(out.len(), input.len())?;
        self.predictor.encode(input, out);
        Ok(())
    }

    fn takes_stored_bytes(&self) -> bool {
        self.predictor.takes_stored_bytes()
    }
}
