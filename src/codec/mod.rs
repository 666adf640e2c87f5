//! Codecs: from the elements of a chunk to stored bytes and back.
//!
//! Three traits for the three kinds (v3 core, "Codecs"), one file per codec, one line per codec in
//! `registry.rs`, and `pipeline.rs` that chains them. Uses `error` and `metadata`.
//!
//! Invariants:
//! - Array data between codecs is canonical (see `metadata::data_type`): C order, packed, little-endian.
//! - A decoder never writes or allocates more than it is told to (`out.len()`, `limit_bytes`); a stored size is
//!   compared with that limit before anything is allocated by it.
//! - A codec is built for one [`Representation`] and refuses, when built, what it cannot take.
//! - Errors here are a [`CodecError`] without a key; the layer above knows the key and adds it.

mod array_to_array;
mod array_to_bytes;
mod bytes_to_bytes;
pub mod config;
mod encoded_bytes;
mod fill_round_trip;
mod kernels;
mod numcodecs;
mod partial;
pub mod pipeline;
pub mod registry;
pub mod scratch;

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};

use crate::metadata::{CodecFamily, DataType, FillValue, MAX_CHUNK_BYTES};
use sharding_indexed::ShardingIndexed;

pub use array_to_bytes::sharding::{self as sharding_indexed, index as shard_index};
pub use array_to_bytes::vlen;
pub use encoded_bytes::EncodedBytes;
pub use kernels::byte_swap;
pub use partial::{PartStream, StoredBytes};
pub use pipeline::Pipeline;

/// What a codec says when it cannot be built, cannot decode or cannot encode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodecError {
    /// One sentence, without a key.
    pub reason: String,
    /// Whether the request is well-formed and this program lacks what it asks for (EOPNOTSUPP rather than EIO).
    pub is_unsupported: bool,
}

impl CodecError {
    /// An error from anything that prints: bad configuration, bad bytes, a value that cannot be encoded.
    pub fn new(reason: impl fmt::Display) -> Self {
        CodecError { reason: reason.to_string(), is_unsupported: false }
    }

    /// The stored feature that is lacking, by its stored name.
    pub fn unsupported(feature: impl fmt::Display) -> Self {
        CodecError { reason: feature.to_string(), is_unsupported: true }
    }
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for CodecError {}

/// The result of a codec.
pub type CodecResult<T> = std::result::Result<T, CodecError>;

/// The array that goes into a codec: what it needs to know to be built.
#[derive(Clone, Debug, PartialEq)]
pub struct Representation {
    /// Elements per dimension of the chunk.
    pub shape: Vec<u64>,
    /// Type of its elements.
    pub data_type: DataType,
    /// The fill value at this place of the chain.
    pub fill_value: FillValue,
}

impl Representation {
    /// Bytes of one element.
    pub fn item_size(&self) -> CodecResult<usize> {
        let size = self.data_type.item_size();
        size.ok_or_else(|| CodecError::unsupported("a data type without a fixed size"))
    }

    /// Elements of the chunk.
    pub fn elements(&self) -> CodecResult<u64> {
        let product = self.shape.iter().try_fold(1u64, |product, &length| product.checked_mul(length));
        // A length 0 hides no overflow: a product with it is 0 wherever it stands.
        let product = if self.shape.contains(&0) { Some(0) } else { product };
        product.ok_or_else(|| CodecError::new(format_args!("a chunk of shape {:?} is too large", self.shape)))
    }

    /// Bytes of the chunk in canonical form; more than [`MAX_CHUNK_BYTES`] is an error.
    pub fn size_bytes(&self) -> CodecResult<usize> {
        let bytes = self.elements()?.checked_mul(self.item_size()? as u64);
        let bytes =
            bytes.filter(|&bytes| bytes <= MAX_CHUNK_BYTES).and_then(|bytes| usize::try_from(bytes).ok());
        bytes.ok_or_else(|| CodecError::new(format_args!("a chunk of shape {:?} is too large", self.shape)))
    }
}

/// How many bytes a codec gives for a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodedSize {
    /// Always exactly so many.
    Exact(u64),
    /// It depends on the data; a well-formed encoding by any writer has at most so many.
    AtMost(u64),
}

impl EncodedSize {
    /// The bound, whichever kind it is.
    pub fn limit_bytes(self) -> u64 {
        match self {
            EncodedSize::Exact(bytes) | EncodedSize::AtMost(bytes) => bytes,
        }
    }

    /// What a compressor gives for so many bytes, however badly it compresses: generous, since it only bounds
    /// what is read.
    pub fn compressed(self) -> EncodedSize {
        EncodedSize::AtMost(self.limit_bytes().saturating_mul(2).saturating_add(64 << 10))
    }
}

/// An array codec that gives an array: transpose, scale_offset, cast_value, …
pub trait ArrayToArray: Send + Sync {
    /// What the array is after encoding (what [`ArrayToArray::decode`] takes).
    fn encoded(&self) -> &Representation;
    /// Undoes the codec. `input` has exactly the encoded representation's bytes, `out` the decoded one's.
    fn decode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()>;
    /// Applies the codec. `input` has exactly the decoded representation's bytes, `out` the encoded one's.
    fn encode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()>;
    /// Whether decoding gives back every byte of whatever can be encoded. `false` only costs: what was written is then read
    /// from the store again.
    fn is_lossless(&self) -> bool;
    /// For a codec that only permutes dimensions: `order` with encoded axis i = decoded axis `order[i]`.
    fn permutation(&self) -> Option<&[usize]> {
        None
    }
    /// Whether each element is coded by itself, whatever the chunk's shape, so that the codec can be
    /// rebuilt for the inner chunks of a shard behind it.
    fn is_elementwise(&self) -> bool {
        false
    }
    /// Whether the codec asks that the array's fill value survive it (cast_value).
    fn must_keep_fill_value(&self) -> bool {
        false
    }
}

/// The codec that turns an array into bytes: bytes, packbits, sharding_indexed, …
pub trait ArrayToBytes: Send + Sync {
    /// How many bytes an encoded chunk has.
    fn encoded_size(&self) -> EncodedSize;
    /// Decodes into exactly `out.len()` bytes of canonical elements.
    fn decode(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()>;
    /// Encodes canonical elements.
    fn encode(&self, input: &[u8]) -> CodecResult<Vec<u8>>;
    /// Whether decoding gives back every byte of whatever can be encoded. `false` only costs: what was written is then read
    /// from the store again.
    fn is_lossless(&self) -> bool;
    /// For a codec whose encoded bytes are the elements in place, up to a fix-up (byte swap): that
    /// fix-up, from encoded to canonical, of any whole number of elements. Lets a bytes-to-bytes codec decode
    /// straight into the chunk, and ranges of a chunk be read alone.
    fn decode_in_place(&self, _data: &mut [u8]) -> Option<CodecResult<()>> {
        None
    }
    /// The reverse of [`ArrayToBytes::decode_in_place`].
    fn encode_in_place(&self, _data: &mut [u8]) -> Option<CodecResult<()>> {
        None
    }
    /// Whether [`ArrayToBytes::decode_in_place`] and [`ArrayToBytes::encode_in_place`] answer.
    fn is_in_place(&self) -> bool {
        false
    }
    /// Whether encoded and canonical bytes are the same, without any fix-up or check.
    fn is_identity(&self) -> bool {
        false
    }
    /// The same codec with the components of the decoded elements in big-endian order, where that costs no
    /// more than a fix-up it already makes.
    fn with_big_endian_elements(&self) -> Option<Box<dyn ArrayToBytes>> {
        None
    }
    /// For the codec whose encoded bytes are a shard.
    fn as_sharding(&self) -> Option<&ShardingIndexed> {
        None
    }
    /// In a v2 chain: what the encoded bytes are elements of.
    fn encoded_items(&self) -> Option<&Items> {
        None
    }
}

/// A codec from bytes to bytes: compressors, checksums, v2 filters.
pub trait BytesToBytes: Send + Sync {
    /// How many bytes come out for `decoded` bytes in, by any well-behaved encoder (be lenient).
    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize;
    /// Whether decoding gives back every byte of whatever can be encoded. `false` only costs: what was written is then read
    /// from the store again.
    fn is_lossless(&self) -> bool;
    /// Whether [`BytesToBytes::decode`] gives a part of its input and copies nothing (checksums).
    fn borrows(&self) -> bool {
        false
    }
    /// Decodes at most `limit_bytes`; more is an error. Borrowed where nothing is copied (checksums).
    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>>;
    /// Decodes exactly `out.len()` bytes; fewer or more is an error.
    fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let decoded = self.decode(encoded, out.len())?;
        if decoded.len() != out.len() {
            return Err(CodecError::new(format_args!(
                "{} bytes decoded where {} were expected",
                decoded.len(),
                out.len()
            )));
        }
        out.copy_from_slice(&decoded);
        Ok(())
    }
    /// Whether [`BytesToBytes::decode_part`] can be had for less than decoding all.
    fn decodes_parts(&self) -> bool {
        false
    }
    /// For a codec that compresses in blocks: how many decoded bytes one of them has here.
    fn block_bytes(&self, _stored: &dyn StoredBytes) -> CodecResult<Option<u64>> {
        Ok(None)
    }
    /// Decodes `out.len()` bytes from `start` on of what decodes to exactly `decoded_bytes`; how many had to be decoded.
    fn decode_part(
        &self,
        _stored: &dyn StoredBytes,
        _decoded_bytes: usize,
        _start: usize,
        _out: &mut [u8],
    ) -> CodecResult<usize> {
        Err(CodecError::new("it decodes as a whole only"))
    }
    /// For a codec whose decoder is small: one at the beginning of what decodes to exactly `decoded_bytes`.
    fn stream(&self, _decoded_bytes: usize) -> Option<Box<dyn PartStream>> {
        None
    }
    /// For a codec that encodes into memory of the caller: the most bytes that so many can become.
    fn encoded_bound(&self, _decoded_bytes: usize) -> Option<usize> {
        None
    }
    /// Encodes into `out`, which has [`BytesToBytes::encoded_bound`] bytes; how many there are.
    fn encode_into(&self, _decoded: &[u8], _out: &mut [u8]) -> CodecResult<usize> {
        Err(CodecError::new("it encodes into memory of its own only"))
    }
    /// Encodes.
    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        match self.encoded_bound(decoded.len()) {
            Some(bound) => scratch::encoded(bound, |out| self.encode_into(decoded, out)),
            None => Err(CodecError::new("it does not encode")),
        }
    }
    /// For a v2 filter that gives elements (delta, astype, …): which. `None` for plain bytes (items of one byte).
    fn encoded_items(&self) -> Option<&Items> {
        None
    }
}

/// One codec of any kind, built.
pub enum Codec {
    /// array → array
    ArrayToArray(Box<dyn ArrayToArray>),
    /// array → bytes
    ArrayToBytes(Box<dyn ArrayToBytes>),
    /// bytes → bytes
    BytesToBytes(Box<dyn BytesToBytes>),
}

/// What a codec is handed when a chain is built: the output of the codec before it.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// An array (before the array-to-bytes codec).
    Array(&'a Representation),
    /// Bytes (behind it).
    Bytes {
        /// How many.
        size: EncodedSize,
        /// Bytes per item, as blosc and shuffle use it when their configuration does not say: the size of the
        /// data type that the array-to-bytes codec was given, or of a v2 filter's output type.
        item_size: usize,
        /// What the bytes are elements of, while a v2 chain still knows (None in v3 and behind a compressor).
        items: Option<&'a Items>,
    },
}

/// What the bytes between v2 filters are elements of: the NumPy array that numcodecs hands from filter to filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Items {
    /// Elements per dimension, slowest first as the bytes lie (a chunk stored in F order: dimensions reversed).
    pub shape: Vec<u64>,
    /// Type of an element.
    pub data_type: DataType,
    /// Whether its components lie big-endian.
    pub is_big_endian: bool,
}

/// All that a codec's constructor may look at.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Which table the name was found in.
    pub family: CodecFamily,
    /// The name it was found by.
    pub name: &'a str,
    /// The stored configuration.
    pub configuration: &'a Map<String, Value>,
    /// What comes in.
    pub input: Input<'a>,
}

impl<'a> Context<'a> {
    /// The array that comes in; an error where bytes do.
    pub fn array(&self) -> CodecResult<&'a Representation> {
        match self.input {
            Input::Array(representation) => Ok(representation),
            Input::Bytes { .. } => Err(CodecError::new(format_args!(
                "codec \"{}\" takes an array, and stands behind the codec that turned it into bytes",
                self.name
            ))),
        }
    }

    /// Size and item size of the bytes that come in; an error where an array does.
    pub fn bytes(&self) -> CodecResult<(EncodedSize, usize)> {
        match self.input {
            Input::Bytes { size, item_size, .. } => Ok((size, item_size)),
            Input::Array(_) => Err(CodecError::new(format_args!(
                "codec \"{}\" takes bytes, and no codec before it turns the array into bytes",
                self.name
            ))),
        }
    }
}

/// One codec in the registry: the names it answers to, and its constructor.
pub struct Entry {
    /// Names in v3's `codecs`.
    pub v3: &'static [&'static str],
    /// Ids in v2's `filters` and `compressor`.
    pub v2: &'static [&'static str],
    /// Builds it, or says which member of the configuration is wrong.
    pub build: fn(&Context<'_>) -> CodecResult<Codec>,
}
