//! Compressors of a whole numeric array (pcodec, zfpy) as codecs of both families.
//!
//! In v3 they are array → bytes. In v2 they are compressors or filters, and their input is NumPy's array between two
//! filters: its dtype and, for an array in F order, its dimensions reversed (numcodecs' zfpy refuses
//! F order when encoding, but reads that encoding). Uses `kernels::dtype`.

use std::borrow::Cow;

use crate::codec::kernels::dtype::computed_type;
use crate::codec::{
    ArrayToBytes, BytesToBytes, Codec, CodecError, CodecInput, CodecResult, Context, EncodedSize, scratch,
};
use crate::metadata::CodecFamily;
use crate::metadata::data_type::numeric::NumericType;

/// The array that a compressor is built for. Its elements are little-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumericArray {
    /// The type of the elements.
    pub numeric_type: NumericType,
    /// Elements per dimension, slowest first.
    pub shape: Vec<u64>,
    /// Bytes of all elements.
    pub size_bytes: usize,
}

impl NumericArray {
    /// Returns the input array, or an error if its elements are not numbers.
    pub fn from_input(context: &Context<'_>) -> CodecResult<NumericArray> {
        let name = context.name;
        let unsupported = |what: &str| CodecError::unsupported(format_args!("codec \"{name}\" for {what}"));
        let numeric_type =
            |data_type| computed_type(data_type).ok_or_else(|| unsupported("elements that are not numbers"));
        match context.input {
            CodecInput::Array(array) => Ok(NumericArray {
                numeric_type: numeric_type(&array.data_type)?,
                shape: array.shape.clone(),
                size_bytes: array.size_bytes()?,
            }),
            CodecInput::Bytes { size, items, .. } if context.family == CodecFamily::V2 => {
                let items = items.ok_or_else(|| unsupported("plain bytes"))?;
                let numeric_type = numeric_type(&items.data_type)?;
                if items.is_big_endian && numeric_type.size() > 1 {
                    return Err(unsupported("big-endian elements"));
                }
                let size_bytes = match size {
                    EncodedSize::Exact(bytes) => usize::try_from(bytes).ok(),
                    EncodedSize::AtMost(_) => None,
                };
                let size_bytes = size_bytes.ok_or_else(|| unsupported("bytes after a compressor"))?;
                Ok(NumericArray { numeric_type, shape: items.shape.clone(), size_bytes })
            }
            CodecInput::Bytes { .. } => Err(context.array().err().unwrap_or_else(|| unsupported("bytes"))),
        }
    }
}

/// Returns the bytes of the input, whether it is an array or bytes of a known number.
pub fn exact_size(context: &Context<'_>) -> CodecResult<usize> {
    let unsupported =
        || CodecError::unsupported(format_args!("codec \"{}\" for bytes after a compressor", context.name));
    match context.input {
        CodecInput::Array(array) => array.size_bytes(),
        CodecInput::Bytes { size: EncodedSize::Exact(bytes), .. } => {
            usize::try_from(bytes).map_err(|_| unsupported())
        }
        CodecInput::Bytes { size: EncodedSize::AtMost(_), .. } => Err(unsupported()),
    }
}

/// A compressor that is built for one array.
pub trait ArrayCompressor: Send + Sync + 'static {
    /// Returns the longest well-formed encoding, if that may be longer than a compressor's usual bound.
    fn limit_bytes(&self) -> u64 {
        0
    }
    /// Returns whether decoding restores every byte that can be encoded.
    fn is_lossless(&self) -> bool;
    /// Returns whether the encoded bytes have a checksum that decoding compares.
    fn has_checksum(&self) -> bool {
        false
    }
    /// Decodes into the array's bytes, exactly.
    fn decode(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()>;
    /// Encodes the array's bytes.
    fn encode(&self, input: &[u8]) -> CodecResult<Vec<u8>>;
}

/// Builds the compressor as a codec of the requested family.
pub fn build(context: &Context<'_>, compressor: impl ArrayCompressor, size_bytes: usize) -> Codec {
    let whole = WholeArray { compressor, size_bytes };
    match context.input {
        CodecInput::Array(_) => Codec::ArrayToBytes(Box::new(whole)),
        CodecInput::Bytes { .. } => Codec::BytesToBytes(Box::new(whole)),
    }
}

struct WholeArray<C> {
    compressor: C,
    /// Bytes of the decoded array.
    size_bytes: usize,
}

impl<C: ArrayCompressor> WholeArray<C> {
    fn limit(&self) -> EncodedSize {
        let usual = EncodedSize::Exact(self.size_bytes as u64).compressed().limit_bytes();
        EncodedSize::AtMost(usual.max(self.compressor.limit_bytes()))
    }

    fn check(&self, found: usize) -> CodecResult<()> {
        if found == self.size_bytes {
            Ok(())
        } else {
            Err(CodecError::new(format_args!("{found} bytes, but the array has {}", self.size_bytes)))
        }
    }

    fn decode_exact(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        self.check(out.len())?;
        self.compressor.decode(encoded, out)
    }

    fn encode_exact(&self, input: &[u8]) -> CodecResult<Vec<u8>> {
        self.check(input.len())?;
        self.compressor.encode(input)
    }
}

impl<C: ArrayCompressor> ArrayToBytes for WholeArray<C> {
    fn is_lossless(&self) -> bool {
        self.compressor.is_lossless()
    }

    fn has_checksum(&self) -> bool {
        self.compressor.has_checksum()
    }

    fn encoded_size(&self) -> EncodedSize {
        self.limit()
    }

    fn decode(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        self.decode_exact(encoded, out)
    }

    fn encode(&self, input: &[u8]) -> CodecResult<Vec<u8>> {
        self.encode_exact(input)
    }
}

impl<C: ArrayCompressor> BytesToBytes for WholeArray<C> {
    fn is_lossless(&self) -> bool {
        self.compressor.is_lossless()
    }

    fn has_checksum(&self) -> bool {
        self.compressor.has_checksum()
    }

    fn encoded_size(&self, _: EncodedSize) -> EncodedSize {
        self.limit()
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        if limit_bytes < self.size_bytes {
            self.check(limit_bytes)?;
        }
        let mut out = scratch::zeroed(self.size_bytes)?;
        self.decode_exact(encoded, &mut out)?;
        Ok(Cow::Owned(out))
    }

    fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        self.decode_exact(encoded, out)
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        self.encode_exact(decoded)
    }
}
