//! The numeric filters of numcodecs (delta, fixedscaleoffset, quantize, astype) as codecs of both families.
//!
//! One kernel, two wrappers. In v2 a filter gets the chunk's bytes as stored, and its own dtypes say what they
//! are, byte order included. In v3 (`numcodecs.*`, as zarr-python wraps them) it is array → array: the elements are
//! canonical, so the byte order of its dtypes does not count, and the fill value is cast but not transformed.
//! Uses `kernels::dtype`, `config`.

use std::borrow::Cow;

use crate::codec::config::Configuration;
use crate::codec::error::check_length;
use crate::codec::kernels::dtype::{NumericDtype, computed_type};
use crate::codec::kernels::element::cast;
use crate::codec::{
    ArrayToArray, BytesToBytes, Codec, CodecError, CodecInput, CodecResult, Context, EncodedSize, Items,
    Representation, scratch,
};
use crate::metadata::data_type::numeric::NumericType;
use crate::metadata::{ByteOrder, CodecFamily, DataType, FillValue};

/// A filter on elements. The slices hold the same number of whole elements.
pub trait NumericFilter: Send + Sync + 'static {
    /// Whether each element is coded on its own.
    const IS_ELEMENTWISE: bool;
    /// Whether NumPy's array keeps its shape (it is flattened otherwise).
    const KEEPS_SHAPE: bool;
    /// Returns whether decoding restores every byte that can be encoded, with these dtypes.
    fn is_lossless(&self, dtypes: Dtypes) -> bool;
    /// Undoes the filter. By default this only casts.
    fn decode(&self, dtypes: Dtypes, input: &[u8], out: &mut [u8]) {
        cast(input, dtypes.encoded, out, dtypes.decoded);
    }
    /// Applies the filter; an error where NumPy raises one.
    fn encode(&self, dtypes: Dtypes, input: &[u8], out: &mut [u8]) -> CodecResult<()>;
}

/// The dtypes of a filter's input and output, when encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dtypes {
    /// The dtype of decoded elements.
    pub decoded: NumericDtype,
    /// The dtype of encoded elements.
    pub encoded: NumericDtype,
    /// Whether the configuration names `encoded`.
    is_explicit: bool,
}

impl Dtypes {
    /// Reads the members `decoded_key` and `encoded_key`. Without the first, v3 uses the array's own data type (v2
    /// requires it). Without the second, it equals the first.
    pub fn read(
        configuration: &mut Configuration<'_>,
        context: &Context<'_>,
        decoded_key: &'static str,
        encoded_key: &'static str,
    ) -> CodecResult<Dtypes> {
        let decoded = match (read_dtype(configuration, decoded_key)?, context.input) {
            (Some(dtype), _) => Some(dtype),
            (None, CodecInput::Array(array)) => computed_type(&array.data_type)
                .map(|numeric_type| NumericDtype { numeric_type, byte_order: ByteOrder::Little }),
            (None, CodecInput::Bytes { .. }) => None,
        };
        let decoded = configuration.require(decoded_key, decoded)?;
        let encoded = read_dtype(configuration, encoded_key)?;
        Ok(Dtypes { decoded, encoded: encoded.unwrap_or(decoded), is_explicit: encoded.is_some() })
    }

    /// Reads the dtypes of a test.
    #[cfg(test)]
    #[allow(clippy::unwrap_used)]
    pub fn parse(decoded: &str, encoded: &str) -> Dtypes {
        let dtype = |text| NumericDtype::parse(text).unwrap();
        Dtypes { decoded: dtype(decoded), encoded: dtype(encoded), is_explicit: true }
    }

    /// Returns the encoded bytes for this many decoded ones.
    pub fn encoded_len(&self, decoded_len: u64) -> u64 {
        let (from, to) = (self.decoded.numeric_type.size() as u64, self.encoded.numeric_type.size() as u64);
        (decoded_len / from).saturating_mul(to)
    }
}

/// Reads the member `key` as a numeric dtype.
pub fn read_dtype(
    configuration: &mut Configuration<'_>,
    key: &'static str,
) -> CodecResult<Option<NumericDtype>> {
    let Some(text) = configuration.string(key)? else { return Ok(None) };
    match NumericDtype::parse(text) {
        Some(dtype) => Ok(Some(dtype)),
        None => {
            let error = configuration.error(key, format_args!("is \"{text}\", which is not a numeric dtype"));
            Err(CodecError::unsupported(error))
        }
    }
}

/// Builds the filter as a codec of the requested family.
pub fn build<F: NumericFilter>(context: &Context<'_>, filter: F, dtypes: Dtypes) -> CodecResult<Codec> {
    match (context.family, context.input) {
        (CodecFamily::V2, CodecInput::Bytes { size, items, .. }) => {
            let item_bytes = dtypes.decoded.numeric_type.size();
            if let EncodedSize::Exact(bytes) = size
                && !bytes.is_multiple_of(item_bytes as u64)
            {
                let name = context.name;
                return Err(CodecError::new(format_args!(
                    "codec \"{name}\": {bytes} bytes are not a multiple of its items of {item_bytes} bytes"
                )));
            }
            let count = size.limit_bytes() / item_bytes as u64;
            let shape = match items {
                Some(items) if F::KEEPS_SHAPE && items.data_type.item_size() == Some(item_bytes) => {
                    items.shape.clone()
                }
                _ => vec![count],
            };
            let is_big_endian = dtypes.encoded.byte_order == ByteOrder::Big;
            let items = Items { shape, data_type: dtypes.encoded.numeric_type.data_type(), is_big_endian };
            Ok(Codec::BytesToBytes(Box::new(BytesFilter { filter, dtypes, items })))
        }
        (CodecFamily::V3 | CodecFamily::View | CodecFamily::N5, CodecInput::Array(array)) => {
            // zarr-python then treats the stored elements as swapped, and cannot read its own data.
            if !dtypes.is_explicit
                && dtypes.decoded.byte_order == ByteOrder::Big
                && dtypes.decoded.numeric_type.size() > 1
            {
                return Err(CodecError::unsupported(format_args!(
                    "codec \"{}\" in v3 with a big-endian dtype and no dtype for the encoded elements",
                    context.name
                )));
            }
            let dtypes =
                Dtypes { decoded: dtypes.decoded.little(), encoded: dtypes.encoded.little(), ..dtypes };
            if !fits(&array.data_type, dtypes.decoded.numeric_type) {
                return Err(CodecError::new(format_args!(
                    "codec \"{}\": its dtype {:?} does not fit the array's data type",
                    context.name, dtypes.decoded.numeric_type
                )));
            }
            let encoded = encoded_representation(array, dtypes);
            let is_bool = array.data_type == DataType::Bool;
            Ok(Codec::ArrayToArray(Box::new(ArrayFilter { filter, dtypes, encoded, is_bool })))
        }
        (CodecFamily::V2, CodecInput::Array(_)) => Err(context.bytes().err().unwrap_or_else(wrong_place)),
        (CodecFamily::V3 | CodecFamily::View | CodecFamily::N5, CodecInput::Bytes { .. }) => {
            Err(context.array().err().unwrap_or_else(wrong_place))
        }
    }
}

fn wrong_place() -> CodecError {
    CodecError::new("the codec cannot be at this position")
}

/// Returns whether elements of the data type can be seen as the dtype: the same one, or another integer of its size.
fn fits(data_type: &DataType, dtype: NumericType) -> bool {
    let is_whole = |it: NumericType| it.is_integer() || it == NumericType::Bool;
    computed_type(data_type)
        .is_some_and(|own| own == dtype || (is_whole(own) && is_whole(dtype) && own.size() == dtype.size()))
}

/// Returns the array after encoding. Like zarr-python it has another data type, and the same shape and fill value.
fn encoded_representation(array: &Representation, dtypes: Dtypes) -> Representation {
    if dtypes.encoded.numeric_type == dtypes.decoded.numeric_type {
        return array.clone();
    }
    let mut bytes = vec![0; dtypes.encoded.numeric_type.size()];
    cast(&array.fill_value.bytes, dtypes.decoded, &mut bytes, dtypes.encoded);
    Representation {
        shape: array.shape.clone(),
        data_type: dtypes.encoded.numeric_type.data_type(),
        fill_value: FillValue { bytes, ..array.fill_value.clone() },
    }
}

/// The v2 filter, on bytes in storage order and byte order.
struct BytesFilter<F> {
    filter: F,
    dtypes: Dtypes,
    items: Items,
}

impl<F: NumericFilter> BytesFilter<F> {
    /// Returns the decoded bytes for this many encoded ones.
    fn decoded_len(&self, encoded_len: usize) -> CodecResult<usize> {
        let (from, to) = (self.dtypes.encoded.numeric_type.size(), self.dtypes.decoded.numeric_type.size());
        if encoded_len.is_multiple_of(from) {
            Ok((encoded_len / from).saturating_mul(to))
        } else {
            Err(CodecError::new(format_args!(
                "{encoded_len} bytes are not a multiple of the filter's items of {from} bytes"
            )))
        }
    }
}

impl<F: NumericFilter> BytesToBytes for BytesFilter<F> {
    fn is_lossless(&self) -> bool {
        self.filter.is_lossless(self.dtypes)
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        decoded.map(|bytes| self.dtypes.encoded_len(bytes))
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        scratch::decoded(self.decoded_len(encoded.len())?, limit_bytes, |out| self.decode_into(encoded, out))
    }

    fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        check_length(self.decoded_len(encoded.len())?, out.len())?;
        self.filter.decode(self.dtypes, encoded, out);
        Ok(())
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        let item_bytes = self.dtypes.decoded.numeric_type.size();
        if !decoded.len().is_multiple_of(item_bytes) {
            let found = decoded.len();
            return Err(CodecError::new(format_args!(
                "{found} bytes are not a multiple of the filter's items of {item_bytes} bytes"
            )));
        }
        let mut out = vec![0; decoded.len() / item_bytes * self.dtypes.encoded.numeric_type.size()];
        self.filter.encode(self.dtypes, decoded, &mut out)?;
        Ok(out)
    }

    fn encoded_items(&self) -> Option<&Items> {
        Some(&self.items)
    }
}

/// The v3 filter, on canonical elements.
struct ArrayFilter<F> {
    filter: F,
    dtypes: Dtypes,
    encoded: Representation,
    /// Whether the array is of bools, which must come out as 0 and 1 even where the filter takes them for integers.
    is_bool: bool,
}

impl<F: NumericFilter> ArrayToArray for ArrayFilter<F> {
    fn is_lossless(&self) -> bool {
        self.filter.is_lossless(self.dtypes)
    }

    fn encoded(&self) -> &Representation {
        &self.encoded
    }

    fn decode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        self.filter.decode(self.dtypes, input, out);
        if self.is_bool {
            out.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
        Ok(())
    }

    fn encode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        self.filter.encode(self.dtypes, input, out)
    }

    fn is_elementwise(&self) -> bool {
        F::IS_ELEMENTWISE
    }
}
