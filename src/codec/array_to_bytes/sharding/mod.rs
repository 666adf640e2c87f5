//! The `sharding_indexed` codec: many inner chunks in one object, with an index.
//!
//! Spec: v3 "Sharding codec".
//!
//! ```json
//! {"name": "sharding_indexed", "configuration": {
//!   "chunk_shape": [32, 32],
//!   "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "gzip", "configuration": {"level": 1}}],
//!   "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
//!   "index_location": "end"}}
//! ```
//!
//! This file has the whole shard as an ordinary array → bytes codec. It also gives the array layer access to the index and to
//! single inner chunks. Offsets are from the start of the object, even if the index comes first.

pub mod index;

use std::any::Any;
use std::ops::Range;

use crate::codec::config::Configuration;
use crate::codec::kernels::block_copy::CopyRegion;
use crate::codec::{
    ArrayToBytes, Codec, CodecEntry, CodecError, CodecResult, Context, EncodedBytes, EncodedSize, Pipeline,
    Representation, scratch,
};
use crate::metadata::{CodecSpec, DataType, FillValue};
use index::{ENTRY_BYTES, ShardIndex, entry_bytes};

/// `sharding_indexed`.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["sharding_indexed"], v2: &[], build };

/// The longest decoded index that is read: 2 Mi inner chunks. Each thread may hold one, so the limit is far below the
/// size of a cache.
pub const MAX_INDEX_BYTES: u64 = 32 << 20;

/// The place of the index in the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexLocation {
    /// Its first bytes.
    Start,
    /// Its last bytes.
    End,
}

/// The codec, for one shard shape.
pub struct ShardingIndexed {
    /// Elements per dimension of an inner chunk.
    pub inner_shape: Vec<u64>,
    /// The inner chunks' codecs, as stored.
    pub inner_specs: Vec<CodecSpec>,
    /// The same codecs, built.
    pub inner: Pipeline,
    /// The index's codecs, built. The encoded size is constant.
    pub index_pipeline: Pipeline,
    /// The place of the index.
    pub index_location: IndexLocation,
    /// Inner chunks per dimension.
    pub chunks_per_shard: Vec<u64>,
    chunk_count: usize,
    index_size: usize,
    region: CopyRegion,
    shard_bytes: usize,
    fill: FillValue,
}

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let shard = context.array()?;
    let mut configuration = Configuration::new(context);
    let inner_shape = configuration.lengths("chunk_shape")?;
    let inner_shape = configuration.require("chunk_shape", inner_shape)?;
    let inner_specs = configuration.codecs("codecs")?;
    let inner_specs = configuration.require("codecs", inner_specs)?;
    let index_specs = configuration.codecs("index_codecs")?;
    let index_specs = configuration.require("index_codecs", index_specs)?;
    let locations = [("start", IndexLocation::Start), ("end", IndexLocation::End)];
    let index_location = configuration.choice("index_location", &locations)?.unwrap_or(IndexLocation::End);

    let divides = |(&length, &part): (&u64, &u64)| part > 0 && length.is_multiple_of(part);
    if inner_shape.len() != shard.shape.len() || !shard.shape.iter().zip(&inner_shape).all(divides) {
        let reason = format_args!("{inner_shape:?} does not divide the shard's shape {:?}", shard.shape);
        return Err(configuration.error("chunk_shape", reason));
    }
    let chunks_per_shard: Vec<u64> =
        shard.shape.iter().zip(&inner_shape).map(|(length, part)| length / part).collect();
    let nested = |key: &str, error: CodecError| CodecError {
        reason: format!("codec \"{}\": {key}: {}", context.name, error.reason),
        ..error
    };
    let index_array = index_representation(&chunks_per_shard);
    let chunk_count = index_array.elements()? / 2;
    if chunk_count > MAX_INDEX_BYTES / ENTRY_BYTES as u64 {
        let most = MAX_INDEX_BYTES / ENTRY_BYTES as u64;
        return Err(CodecError::unsupported(format_args!(
            "codec \"sharding_indexed\": \"chunk_shape\" gives {chunk_count} inner chunks per shard (at most {most})"
        )));
    }
    let index_pipeline =
        Pipeline::build(&index_specs, &index_array).map_err(|error| nested("index_codecs", error))?;
    let EncodedSize::Exact(index_size) = index_pipeline.encoded_size() else {
        return Err(configuration.error("index_codecs", "must give an index of constant size"));
    };
    let inner = Representation { shape: inner_shape.clone(), ..shard.clone() };
    let inner = Pipeline::build(&inner_specs, &inner).map_err(|error| nested("codecs", error))?;
    configuration.finish()?;
    let too_long = |_| CodecError::new("a shard of more bytes than this machine can address");
    Ok(Codec::ArrayToBytes(Box::new(ShardingIndexed {
        region: CopyRegion::new(&lengths(&shard.shape)?, &lengths(&inner_shape)?, shard.item_size()?),
        chunk_count: usize::try_from(chunk_count).map_err(too_long)?,
        index_size: usize::try_from(index_size).map_err(too_long)?,
        shard_bytes: shard.size_bytes()?,
        fill: shard.fill_value.clone(),
        inner_shape,
        inner_specs,
        inner,
        index_pipeline,
        index_location,
        chunks_per_shard,
    })))
}

/// Returns the index as an array: chunks per shard, and 2.
fn index_representation(chunks_per_shard: &[u64]) -> Representation {
    let mut shape = chunks_per_shard.to_vec();
    shape.push(2);
    Representation {
        shape,
        data_type: DataType::UInt64,
        fill_value: FillValue { bytes: vec![0xff; 8], is_undefined: false },
    }
}

fn lengths(shape: &[u64]) -> CodecResult<Vec<usize>> {
    let lengths: Option<Vec<usize>> = shape.iter().map(|&length| usize::try_from(length).ok()).collect();
    lengths.ok_or_else(|| CodecError::new("a chunk is too long"))
}

impl ShardingIndexed {
    /// Returns the codec as the one that encodes shards, if it is.
    pub fn downcast(codec: &dyn ArrayToBytes) -> Option<&ShardingIndexed> {
        codec.as_sharding()?.downcast_ref()
    }

    /// Returns the number of inner chunks of a shard.
    pub fn chunk_count(&self) -> usize {
        self.chunk_count
    }

    /// Returns the codec chain of the inner chunks.
    pub fn inner(&self) -> &Pipeline {
        &self.inner
    }

    /// Returns the bytes of the encoded index.
    pub fn index_size_bytes(&self) -> usize {
        self.index_size
    }

    /// Returns the range of the index in an object of `object_size` bytes.
    pub fn index_range(&self, object_size: u64) -> CodecResult<Range<u64>> {
        let index_size = self.index_size as u64;
        let Some(before) = object_size.checked_sub(index_size) else {
            return Err(CodecError::new(format_args!(
                "a shard of {object_size} bytes, but its index alone has {index_size}"
            )));
        };
        Ok(match self.index_location {
            IndexLocation::Start => 0..index_size,
            IndexLocation::End => before..object_size,
        })
    }

    /// Decodes the index from its bytes (those at [`ShardingIndexed::index_range`]).
    pub fn parse_index(&self, encoded: &[u8], object_size: u64) -> CodecResult<ShardIndex> {
        let mut entries = scratch::zeroed(self.index_pipeline.decoded_bytes())?;
        self.index_pipeline
            .decode(encoded, &mut entries)
            .map_err(|error| CodecError { reason: format!("shard index: {}", error.reason), ..error })?;
        Ok(ShardIndex::new(entries, object_size, self.inner.encoded_size().limit_bytes()))
    }

    /// Encodes the index for inner chunks that lie at `places` of the object; `None` for empty ones.
    pub fn encode_index(&self, places: &[Option<Range<u64>>]) -> CodecResult<Vec<u8>> {
        Ok(self.index_pipeline.encode(&entry_bytes(places))?.to_vec())
    }

    /// Makes a shard of encoded inner chunks, in C order; `None` for empty ones.
    pub fn assemble<T: AsRef<[u8]>>(&self, chunks: &[Option<T>]) -> CodecResult<Vec<u8>> {
        let mut shard = Vec::new();
        if self.index_location == IndexLocation::Start {
            shard.resize(self.index_size, 0);
        }
        let mut places = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            places.push(chunk.as_ref().map(|chunk| {
                let start = shard.len() as u64;
                shard.extend_from_slice(chunk.as_ref());
                start..shard.len() as u64
            }));
        }
        let index = self.encode_index(&places)?;
        match self.index_location {
            IndexLocation::End => shard.extend_from_slice(&index),
            IndexLocation::Start => match shard.get_mut(..index.len()) {
                Some(place) => place.copy_from_slice(&index),
                None => return Err(CodecError::new("an index longer than its codecs promised")),
            },
        }
        Ok(shard)
    }

    /// Returns whether a decoded inner chunk (or any whole number of elements) is all fill value, byte for byte.
    pub fn is_all_fill(&self, elements: &[u8]) -> bool {
        let fill = self.fill.bytes.as_slice();
        // It begins with the fill value and equals itself shifted by one element, so all of it is fill value.
        let is_periodic = || elements.get(fill.len()..) == elements.get(..elements.len() - fill.len());
        !self.fill.is_undefined && elements.starts_with(fill) && is_periodic()
    }

    /// Decodes the inner chunk number `chunk` of the object into its place in the decoded shard.
    fn decode_chunk(
        &self,
        index: &ShardIndex,
        chunk: usize,
        object: &[u8],
        out: &mut [u8],
    ) -> CodecResult<()> {
        let start = self.region.start(chunk);
        let Some(place) = index.chunk(chunk)? else {
            self.region.for_each_run(start, |at, length| {
                fill_with(&self.fill.bytes, out.get_mut(at..at + length).unwrap_or_default());
            });
            return Ok(());
        };
        let encoded = usize::try_from(place.start).ok().zip(usize::try_from(place.end).ok());
        let encoded = encoded.and_then(|(start, end)| object.get(start..end)).unwrap_or_default();
        let inner_bytes = self.inner.decoded_bytes();
        let blame = |error: CodecError| CodecError {
            reason: format!("inner chunk {chunk}: {}", error.reason),
            ..error
        };
        if self.region.is_one_run() {
            let out = out.get_mut(start..start + inner_bytes).unwrap_or_default();
            return self.inner.decode(encoded, out).map_err(blame);
        }
        scratch::with(inner_bytes, |block| {
            self.inner.decode(encoded, block).map_err(blame)?;
            self.region.scatter(start, block, out);
            Ok(())
        })
    }
}

impl ArrayToBytes for ShardingIndexed {
    fn is_lossless(&self) -> bool {
        self.inner.is_lossless() && self.index_pipeline.is_lossless()
    }

    // Unused space between the inner chunks is legal: as much as three times the chunks, or 1 MiB. It is limited,
    // since a compressor after the shard may fill all of it (a bomb) before the limit stops it.
    fn encoded_size(&self) -> EncodedSize {
        let chunks = self.inner.encoded_size().limit_bytes().saturating_mul(self.chunk_count as u64);
        let with_gaps = chunks.saturating_mul(4).saturating_add(1 << 20);
        EncodedSize::AtMost(with_gaps.saturating_add(self.index_size as u64))
    }

    fn decode(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        if out.len() != self.shard_bytes {
            return Err(CodecError::new(format_args!("a buffer of {} bytes for a shard", out.len())));
        }
        let object_size = encoded.len() as u64;
        let place = self.index_range(object_size)?;
        // Both ends are at most `encoded.len()`.
        let index = encoded.get(place.start as usize..place.end as usize).unwrap_or_default();
        let index = self.parse_index(index, object_size)?;
        (0..self.chunk_count).try_for_each(|chunk| self.decode_chunk(&index, chunk, encoded, out))
    }

    fn encode(&self, input: &[u8]) -> CodecResult<Vec<u8>> {
        if input.len() != self.shard_bytes {
            return Err(CodecError::new(format_args!("{} bytes for a shard", input.len())));
        }
        let encode_chunk = |block: &[u8]| {
            if self.is_all_fill(block) { Ok(None) } else { self.inner.encode(block).map(Some) }
        };
        let inner_bytes = self.inner.decoded_bytes();
        let chunks: CodecResult<Vec<Option<EncodedBytes>>> = (0..self.chunk_count)
            .map(|chunk| {
                let start = self.region.start(chunk);
                if self.region.is_one_run() {
                    return encode_chunk(input.get(start..start + inner_bytes).unwrap_or_default());
                }
                scratch::with(inner_bytes, |block| {
                    self.region.gather(start, input, block);
                    encode_chunk(block)
                })
            })
            .collect();
        self.assemble(&chunks?)
    }

    fn as_sharding(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

/// Fills `out`, a whole number of elements, with the bytes of one.
pub fn fill_with(element: &[u8], out: &mut [u8]) {
    match element {
        [] => {}
        [byte, rest @ ..] if rest.iter().all(|other| other == byte) => out.fill(*byte),
        _ => out.chunks_exact_mut(element.len()).for_each(|chunk| chunk.copy_from_slice(element)),
    }
}
