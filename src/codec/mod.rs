//! Codecs: from the elements of a chunk to stored bytes and back.
//!
//! Three traits for the three kinds (v3 core, "Codecs"), one file per codec, one line per codec in
//! `registry.rs`, and `pipeline.rs`, which chains them. Uses `error` and `metadata`.
//!
//! Invariants:
//! - Array data between codecs is canonical (see `metadata::data_type`): C order, packed, little-endian.
//! - A decoder never writes or allocates more than its limit (`out.len()`, `limit_bytes`); a stored size is compared
//!   with that limit before it sizes an allocation.
//! - A codec is built for one [`Representation`]. Its constructor rejects what it does not support.
//! - Errors are [`CodecError`]s without a key; the layer above knows the key and adds it.

mod array_to_array;
mod array_to_bytes;
mod bytes_to_bytes;
pub mod config;
mod encoded_bytes;
mod error;
mod fill_round_trip;
mod imagecodecs;
mod kerchunk;
mod kernels;
mod numcodecs;
mod partial;
pub mod pipeline;
pub mod registry;
pub mod scratch;
#[cfg(feature = "sleep-codec")]
mod sleep;
mod sound;

use std::any::Any;
use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::metadata::{CodecFamily, CodecSpec, DataType, FillValue, MAX_CHUNK_BYTES};

pub use array_to_array::unpack;
pub use array_to_bytes::optional;
pub use array_to_bytes::sharding::{self as sharding_indexed, index as shard_index};
pub use array_to_bytes::vlen;
pub use array_to_bytes::vlen_indexed;
pub use bytes_to_bytes::checksum::jenkins_lookup3::lookup3;
pub use encoded_bytes::EncodedBytes;
pub use error::{CodecError, CodecResult};
pub use kernels::byte_swap;
pub(crate) use kernels::element;
pub use pipeline::Pipeline;

/// The limit of codecs in a chain: each stage calls the one before it.
pub const MAX_CODECS: usize = 128;

/// The limit of codecs in a chain and in the configurations of its codecs. Each level of them is built from its own copy.
const MAX_NESTED_CODECS: usize = 1024;

/// Refuses a chain that is too long to be built.
pub fn check_chain_length(specs: &[CodecSpec]) -> CodecResult<()> {
    if specs.len() > MAX_CODECS {
        let reason = format_args!("{} codecs in a chain, more than the limit of {MAX_CODECS}", specs.len());
        return Err(CodecError::unsupported(reason));
    }
    let nested = specs.iter().flat_map(|spec| spec.configuration.values()).map(count_codecs);
    let count = nested.fold(specs.len(), usize::saturating_add);
    if count > MAX_NESTED_CODECS {
        let reason =
            format_args!("{count} codecs inside each other, more than the limit of {MAX_NESTED_CODECS}");
        return Err(CodecError::unsupported(reason));
    }
    Ok(())
}

/// Returns the number of codecs that a member of a configuration has. The depth of documents is limited when they are read.
fn count_codecs(value: &Value) -> usize {
    match value {
        Value::Array(values) => values.iter().map(count_codecs).sum(),
        Value::Object(members) => {
            let below: usize = members.values().map(count_codecs).sum();
            below + usize::from(members.contains_key("name") && members.contains_key("configuration"))
        }
        _ => 0,
    }
}

/// The array that goes into a codec, as far as its constructor needs to know.
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
    /// Returns the bytes of one element.
    pub fn item_size(&self) -> CodecResult<usize> {
        let size = self.data_type.item_size();
        size.ok_or_else(|| CodecError::unsupported("a data type without a fixed size"))
    }

    /// Returns the number of elements of the chunk.
    pub fn elements(&self) -> CodecResult<u64> {
        let product = self.shape.iter().try_fold(1u64, |product, &length| product.checked_mul(length));
        // A zero length makes the product 0 even where the other lengths overflow.
        let product = if self.shape.contains(&0) { Some(0) } else { product };
        product.ok_or_else(|| CodecError::new(format_args!("a chunk of shape {:?} is too large", self.shape)))
    }

    /// Returns the bytes of the chunk in canonical form. More than [`MAX_CHUNK_BYTES`] is an error.
    pub fn size_bytes(&self) -> CodecResult<usize> {
        let bytes = self.elements()?.checked_mul(self.item_size()? as u64);
        let bytes =
            bytes.filter(|&bytes| bytes <= MAX_CHUNK_BYTES).and_then(|bytes| usize::try_from(bytes).ok());
        bytes.ok_or_else(|| CodecError::new(format_args!("a chunk of shape {:?} is too large", self.shape)))
    }
}

/// The encoded size of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodedSize {
    /// Always exactly this many bytes.
    Exact(u64),
    /// The size depends on the data; no well-formed encoding by any writer is longer than this.
    AtMost(u64),
}

impl EncodedSize {
    /// Returns the upper bound.
    pub fn limit_bytes(self) -> u64 {
        match self {
            EncodedSize::Exact(bytes) | EncodedSize::AtMost(bytes) => bytes,
        }
    }

    /// Returns a bound of the size after any compressor, however badly it compresses. It is generous, since it only
    /// limits a read.
    pub fn compressed(self) -> EncodedSize {
        EncodedSize::AtMost(self.limit_bytes().saturating_mul(2).saturating_add(64 << 10))
    }

    /// Returns the size after a codec that makes `encoded_len(n)` bytes of any `n` bytes, whatever they are.
    pub fn map(self, encoded_len: impl FnOnce(u64) -> u64) -> EncodedSize {
        match self {
            EncodedSize::Exact(bytes) => EncodedSize::Exact(encoded_len(bytes)),
            EncodedSize::AtMost(bytes) => EncodedSize::AtMost(encoded_len(bytes)),
        }
    }
}

/// An array codec that gives an array: transpose, scale_offset, cast_value, …
pub trait ArrayToArray: Send + Sync {
    /// Returns the array after encoding, which [`ArrayToArray::decode`] takes.
    fn encoded(&self) -> &Representation;
    /// Undoes the codec. `input` has exactly the encoded representation's bytes, `out` the decoded one's.
    fn decode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()>;
    /// Applies the codec. `input` has exactly the decoded representation's bytes, `out` the encoded one's.
    fn encode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()>;
    /// Returns whether decoding restores every byte that can be encoded. `false` only costs time: data that was
    /// written is then read from the store again.
    fn is_lossless(&self) -> bool;
    /// Returns `order` with encoded axis i = decoded axis `order[i]`, for a codec that only permutes dimensions.
    fn permutation(&self) -> Option<&[usize]> {
        None
    }
    /// Returns whether each element is coded on its own, whatever the chunk's shape, so that the codec can be rebuilt
    /// for the inner chunks of a shard after it.
    fn is_elementwise(&self) -> bool {
        false
    }
    /// Returns whether the codec's output is bytes without a byte order, so that the codec `bytes` after it must not swap them
    /// (`imagecodecs_floatpred`).
    fn takes_stored_bytes(&self) -> bool {
        false
    }
    /// Returns whether the array's fill value must survive the codec (`cast_value`).
    fn must_keep_fill_value(&self) -> bool {
        false
    }
}

/// The codec that turns an array into bytes: bytes, packbits, sharding_indexed, …
pub trait ArrayToBytes: Send + Sync {
    /// Returns the size of an encoded chunk.
    fn encoded_size(&self) -> EncodedSize;
    /// Decodes into exactly `out.len()` bytes of canonical elements.
    fn decode(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()>;
    /// Encodes canonical elements.
    fn encode(&self, input: &[u8]) -> CodecResult<Vec<u8>>;
    /// Returns whether decoding restores every byte that can be encoded, as [`ArrayToArray::is_lossless`].
    fn is_lossless(&self) -> bool;
    /// Returns whether the encoded bytes have a checksum that decoding compares. That of shards is asked for with their inner chunks.
    fn has_checksum(&self) -> bool {
        false
    }
    /// Returns the access to elements that the codec stores in place, up to a fix-up.
    fn in_place(&self) -> Option<&dyn InPlace> {
        None
    }
    /// Returns the same codec for big-endian decoded elements, if that costs no more than a fix-up it already makes.
    fn with_big_endian_elements(&self) -> Option<Box<dyn ArrayToBytes>> {
        None
    }
    /// Returns the same codec without a change of byte order, for elements that do not have one.
    fn without_byte_order(&self) -> Option<Box<dyn ArrayToBytes>> {
        None
    }
    /// Returns the codec that encodes shards: see [`sharding_indexed::ShardingIndexed::downcast`].
    fn as_sharding(&self) -> Option<&dyn Any> {
        None
    }
    /// Returns the shape and type of the elements that the encoded bytes hold in a v2 chain.
    fn encoded_items(&self) -> Option<&Items> {
        None
    }
}

/// Elements that are stored in place, up to a fix-up such as a byte swap. A bytes-to-bytes codec can then decode directly into
/// the chunk, and ranges of a chunk can be read alone.
pub trait InPlace {
    /// Turns any whole number of encoded elements into canonical ones.
    fn decode(&self, data: &mut [u8]) -> CodecResult<()>;
    /// Turns canonical bytes into stored ones.
    fn encode(&self, data: &mut [u8]) -> CodecResult<()>;
    /// Returns whether encoded and canonical bytes are the same, without any fix-up or check.
    fn is_identity(&self) -> bool;
}

/// The stored bytes of one chunk, read by ranges.
pub trait StoredBytes {
    /// Returns the number of stored bytes.
    fn size_bytes(&self) -> u64;
    /// Fills `out` from `offset`; the range lies inside.
    fn read(&self, offset: u64, out: &mut [u8]) -> CodecResult<()>;
}

#[cfg(test)]
impl StoredBytes for Vec<u8> {
    fn size_bytes(&self) -> u64 {
        self.len() as u64
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> CodecResult<()> {
        out.copy_from_slice(&self[offset as usize..offset as usize + out.len()]);
        Ok(())
    }
}

/// A suspended decoder: it resumes a chunk where it stopped.
pub trait ResumableDecoder: Send {
    /// Returns the number of bytes decoded so far.
    fn position(&self) -> usize;
    /// Fills `out` with the bytes that come next; returns how many it had to decode. `stored` is the same each time. After
    /// an error the decoder is unusable.
    fn decode_next(&mut self, stored: &dyn StoredBytes, out: &mut [u8]) -> CodecResult<usize>;
}

/// A codec that decodes a range of a chunk at less cost than the whole.
pub trait PartialDecoder {
    /// Returns the decoded size of a block of this chunk, for a codec that compresses in blocks.
    fn block_bytes(&self, stored: &dyn StoredBytes) -> CodecResult<Option<u64>>;
    /// Decodes `out.len()` bytes from `start` on of a chunk of exactly `decoded_bytes`; returns how many bytes it had to decode.
    fn decode_part(
        &self,
        stored: &dyn StoredBytes,
        decoded_bytes: usize,
        start: usize,
        out: &mut [u8],
    ) -> CodecResult<usize>;
}

/// A codec that encodes into the caller's memory.
pub trait BoundedEncoder {
    /// Returns the length of the longest encoding of `decoded_bytes`.
    fn bound(&self, decoded_bytes: usize) -> usize;
    /// Encodes into `out`, which has [`BoundedEncoder::bound`] bytes; returns the encoded length.
    fn encode_into(&self, decoded: &[u8], out: &mut [u8]) -> CodecResult<usize>;
}

/// A codec from bytes to bytes: compressors, checksums, v2 filters.
pub trait BytesToBytes: Send + Sync {
    /// Returns the encoded size for `decoded` bytes. It is lenient, so that it holds for any well-behaved encoder.
    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize;
    /// Returns whether decoding restores every byte that can be encoded, as [`ArrayToArray::is_lossless`].
    fn is_lossless(&self) -> bool;
    /// Returns whether the encoded bytes have a checksum that decoding compares.
    fn has_checksum(&self) -> bool {
        false
    }
    /// Returns whether [`BytesToBytes::decode`] returns a part of its input and copies nothing (checksums).
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
    /// Returns the decoder of parts, if a range of a chunk costs less to decode than the whole.
    fn partial(&self) -> Option<&dyn PartialDecoder> {
        None
    }
    /// Returns a decoder at the beginning of a chunk of exactly `decoded_bytes`, for a codec with a small decoder.
    fn resumable(&self, _decoded_bytes: usize) -> Option<Box<dyn ResumableDecoder>> {
        None
    }
    /// Returns the encoder into the caller's memory, if the codec has one.
    fn bounded(&self) -> Option<&dyn BoundedEncoder> {
        None
    }
    /// Encodes.
    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        match self.bounded() {
            Some(encoder) => {
                scratch::encoded(encoder.bound(decoded.len()), |out| encoder.encode_into(decoded, out))
            }
            None => Err(CodecError::new("this codec does not encode")),
        }
    }
    /// Returns the shape and type of the elements that a v2 filter gives (delta, astype, …). `None` for plain bytes,
    /// which are items of one byte.
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

/// A codec's input when a chain is built: the output of the codec before it.
#[derive(Clone, Copy, Debug)]
pub enum CodecInput<'a> {
    /// An array (before the array-to-bytes codec).
    Array(&'a Representation),
    /// Bytes (after it).
    Bytes {
        /// Their number.
        size: EncodedSize,
        /// Bytes per item, which blosc and shuffle use when their configuration does not say: the size of the
        /// array-to-bytes codec's input type, or of a v2 filter's output type.
        item_size: usize,
        /// The elements that the bytes hold, as long as a v2 chain knows them (None in v3 and after a compressor).
        items: Option<&'a Items>,
    },
}

/// The elements between two v2 filters: the NumPy array that numcodecs passes from filter to filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Items {
    /// Elements per dimension, slowest first in storage order (a chunk stored in F order: dimensions reversed).
    pub shape: Vec<u64>,
    /// Type of an element.
    pub data_type: DataType,
    /// Whether its components are big-endian.
    pub is_big_endian: bool,
}

/// Everything that a codec's constructor may read.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The table that has the name.
    pub family: CodecFamily,
    /// The name in that table.
    pub name: &'a str,
    /// The stored configuration.
    pub configuration: &'a Map<String, Value>,
    /// The codec's input.
    pub input: CodecInput<'a>,
}

impl<'a> Context<'a> {
    /// Returns the input array, or an error if the input is bytes.
    pub fn array(&self) -> CodecResult<&'a Representation> {
        match self.input {
            CodecInput::Array(representation) => Ok(representation),
            CodecInput::Bytes { .. } => Err(CodecError::new(format_args!(
                "codec \"{}\" takes an array, but follows the codec that turns the array into bytes",
                self.name
            ))),
        }
    }

    /// Returns the size and item size of the input bytes, or an error if the input is an array.
    pub fn bytes(&self) -> CodecResult<(EncodedSize, usize)> {
        match self.input {
            CodecInput::Bytes { size, item_size, .. } => Ok((size, item_size)),
            CodecInput::Array(_) => Err(CodecError::new(format_args!(
                "codec \"{}\" takes bytes, but no codec before it turns the array into bytes",
                self.name
            ))),
        }
    }
}

/// One codec in the registry: its names and its constructor.
pub struct CodecEntry {
    /// Names in v3's `codecs`.
    pub v3: &'static [&'static str],
    /// Ids in v2's `filters` and `compressor`.
    pub v2: &'static [&'static str],
    /// Builds the codec; the error names the member of the configuration that is wrong.
    pub build: fn(&Context<'_>) -> CodecResult<Codec>,
}
