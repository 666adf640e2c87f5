//! Sharded arrays: each chunk is an inner chunk of a shard.
//!
//! Spec: v3 "Sharding codec". Reading an inner chunk needs the shard's index, which is read once, and one range of the
//! object. Shards may be nested: each level is a [`Level`], and the indexes lead from level to level. Transposes and
//! elementwise codecs before the sharding codec apply to each inner chunk instead of to the shard.
//! Uses its neighbours, `store`, `metadata`, `codec` and `memory`.

use std::ops::Range;
use std::sync::Arc;

use crate::array::cache::{Content, Key, Loaded};
use crate::array::geometry::grid::Axis;
use crate::array::geometry::strided_copy::fill_items;
use crate::array::source::replacement::Target;
use crate::array::source::replacement::{Encoded, EncodedChunk};
use crate::array::source::unsharded::{Parts, Pipelines};
use crate::array::source::{
    Keys, LoadContext, MAX_CHUNK_BYTES, Source, StoredChunk, corrupt, is_all, unencodable,
};
use crate::codec::pipeline::Pipeline;
use crate::codec::shard_index::ShardIndex;
use crate::codec::sharding_indexed::ShardingIndexed;
use crate::codec::{CodecError, Representation, scratch};
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::metadata::CodecSpec;
use crate::store::{Object, ObjectVersion};

/// The deepest nesting of shards in shards.
const MAX_LEVELS: usize = 8;

/// One level of sharding.
pub(in crate::array) struct Level {
    /// The shards of this level over the whole array.
    pub(in crate::array) shards: Vec<Axis>,
    /// The codec chain that ends in this level's sharding codec.
    pub(in crate::array) pipelines: Pipelines,
}

/// A source of inner chunks.
pub struct Sharded {
    /// From the outermost level inwards. The shards of the outermost level are objects.
    pub(in crate::array) levels: Vec<Level>,
    pub(in crate::array) axes: Vec<Axis>,
    pub(in crate::array) keys: Keys,
    inner: Arc<Pipeline>,
    /// One element of a missing shard, as served.
    pub(in crate::array) fill: Vec<u8>,
    /// One element of an empty inner chunk, as served.
    empty_fill: Vec<u8>,
    /// Whether an empty inner shard reads like its own empty inner chunks.
    pub(in crate::array) fills_agree: bool,
}

/// The location of a chunk according to the indexes.
enum Location {
    /// Offset and length of the encoded chunk in its object.
    At(u64, u64),
    /// An empty inner chunk: one element of it as served.
    Empty(Vec<u8>),
}

impl Sharded {
    /// A source of inner chunks if the chain lets them be read on their own. Otherwise returns the parts.
    pub fn new(parts: Parts) -> Result<std::result::Result<Self, Parts>> {
        let Parts { axes, keys, pipelines, fill } = parts;
        let Pipelines { decoded, byte_order, document_key, .. } = &pipelines;
        let (decoded, byte_order, document_key) = (decoded.clone(), *byte_order, document_key.clone());
        let mut levels: Vec<Level> = Vec::new();
        let (mut shards, mut pipelines) = (axes, pipelines);
        let mut empty_fill = Vec::new();
        let mut fills_agree = true;
        loop {
            let chain = pipelines.largest()?;
            let Some(sharded) = chain.sharding() else { break };
            if levels.len() == MAX_LEVELS {
                let reason = format!("shards nested more than {MAX_LEVELS} deep");
                return Err(Error::unsupported(&document_key, reason));
            }
            let inner_shape = inner_shape(&sharded);
            let subdivided: Option<Vec<Axis>> =
                shards.iter().zip(&inner_shape).map(|(axis, &length)| axis.subdivided(length)).collect();
            let Some(inner_axes) = subdivided else {
                let reason = format!("inner chunk shape {inner_shape:?} does not divide every shard");
                return Err(Error::metadata(&document_key, reason));
            };
            let mut specs: Vec<CodecSpec> = sharded.prefix.to_vec();
            specs.extend_from_slice(&sharded.codec.inner_specs);
            let inner = Representation { shape: inner_shape, ..decoded.clone() };
            let next = Pipelines::new(specs, inner, byte_order, &document_key)?;
            fills_agree &= levels.is_empty() || empty_fill == sharded.fill;
            empty_fill = sharded.fill.to_vec();
            drop(chain);
            levels.push(Level { shards, pipelines });
            (shards, pipelines) = (inner_axes, next);
        }
        if levels.is_empty() {
            return Ok(Err(Parts { axes: shards, keys, pipelines, fill }));
        }
        let inner = pipelines.largest()?;
        if inner.decoded_bytes() as u64 > MAX_CHUNK_BYTES {
            let reason =
                format!("inner chunks of {} bytes (at most {MAX_CHUNK_BYTES})", inner.decoded_bytes());
            return Err(Error::unsupported(&document_key, reason));
        }
        Ok(Ok(Sharded { levels, axes: shards, keys, inner, fill, empty_fill, fills_agree }))
    }

    /// The outermost shards.
    pub fn shards(&self) -> &[Axis] {
        self.levels.first().map_or(&[], |level| &level.shards)
    }

    /// Per-axis numbers of the shard that holds an element.
    fn shard_of(level: &Level, elements: &[u64]) -> Vec<u64> {
        level.shards.iter().zip(elements).map(|(axis, &element)| axis.locate(element).index).collect()
    }

    pub(in crate::array) fn first_elements(&self, chunk: &[u64]) -> Vec<u64> {
        self.axes.iter().zip(chunk).map(|(axis, &i)| axis.span(i).start).collect()
    }

    /// Follows the indexes, level by level, to the chunk that holds `elements`.
    fn find(
        &self,
        ctx: &LoadContext<'_>,
        object: &dyn Object,
        key: &str,
        elements: &[u64],
    ) -> Result<Location> {
        let mut extent = (0, object.size_bytes());
        for (depth, level) in self.levels.iter().enumerate() {
            let shard = Self::shard_of(level, elements);
            let inner_axes = self.levels.get(depth + 1).map_or(&self.axes, |next| &next.shards);
            let shape: Vec<u64> = level.shards.iter().zip(&shard).map(|(a, &i)| a.span(i).length).collect();
            let chain = level.pipelines.of_shape(&shape)?;
            let Some(sharded) = chain.sharding() else {
                return Err(Error::corrupt(
                    key,
                    "the codec chain for this shard's shape has no sharding codec",
                ));
            };
            // Number of the inner chunk in the shard, in stored order.
            let mut number = 0;
            let per_shard = &sharded.codec.chunks_per_shard;
            for (&axis, &count) in sharded.permutation.iter().zip(per_shard) {
                let (Some(&element), Some(cut), Some(outer)) =
                    (elements.get(axis), inner_axes.get(axis), level.shards.get(axis))
                else {
                    return Err(Error::corrupt(key, "the shard's rank differs from the array's"));
                };
                let inside = element - outer.locate(element).start;
                number = number * count + inside / cut.longest().max(1);
            }
            let level_number = level.shards.iter().zip(&shard).fold(0, |n, (axis, &i)| n * axis.count() + i);
            let cache_key = Key { array: ctx.array, level: depth as u32 + 1, number: level_number };
            let index = read_index(ctx, object, key, cache_key, sharded.codec, extent)?;
            match index.chunk(number as usize).map_err(corrupt(key))? {
                Some(range) => extent = (extent.0 + range.start, range.end - range.start),
                None => return Ok(Location::Empty(sharded.fill.to_vec())),
            }
        }
        Ok(Location::At(extent.0, extent.1))
    }
}

/// The result of opening a shard for one inner chunk.
enum ShardEntry {
    /// The inner chunk is empty, or its shard is missing.
    Content(Loaded),
    /// The object, and offset and length of the encoded inner chunk in it.
    At(Box<dyn Object>, u64, u64),
}

impl Sharded {
    /// Opens the shard of an inner chunk, of which the caller loads `wanted_bytes`.
    fn enter(
        &self,
        ctx: &LoadContext<'_>,
        chunk: &[u64],
        key: &str,
        wanted_bytes: usize,
    ) -> Result<ShardEntry> {
        let Some(object) = ctx.open(key)? else { return Ok(ShardEntry::Content((Content::Absent, None))) };
        let version = Some(object.version());
        let (offset, length) = match self.find(ctx, object.as_ref(), key, &self.first_elements(chunk))? {
            Location::At(offset, length) => (offset, length),
            Location::Empty(fill) if fill == self.fill => {
                return Ok(ShardEntry::Content((Content::Absent, version)));
            }
            Location::Empty(fill) => {
                // Codecs changed the fill value, so the decoded form of it fills the chunk.
                let mut decoded = ctx.buffer(wanted_bytes);
                fill_items(&mut decoded, &fill, 0);
                return Ok(ShardEntry::Content((Content::Chunk(Arc::new(decoded)), version)));
            }
        };
        let limit = self.inner.encoded_size().limit_bytes();
        if length > limit {
            let reason = format!("inner chunk {chunk:?} has {length} bytes stored, at most {limit} expected");
            return Err(Error::corrupt(key, reason));
        }
        Ok(ShardEntry::At(object, offset, length))
    }
}

/// The shape of the inner chunks in array coordinates: undoes the permutation of the codecs before.
fn inner_shape(sharded: &crate::codec::pipeline::Sharded<'_>) -> Vec<u64> {
    let mut shape = vec![0; sharded.permutation.len()];
    for (&axis, &length) in sharded.permutation.iter().zip(&sharded.codec.inner_shape) {
        if let Some(slot) = shape.get_mut(axis) {
            *slot = length;
        }
    }
    shape
}

/// The index of the shard at `(start, length)` of an object. The cache's copy counts only if it is from this version of
/// the object, so an index and its inner chunks always come from the same version.
pub(in crate::array) fn read_index(
    ctx: &LoadContext<'_>,
    object: &dyn Object,
    key: &str,
    cache_key: Key,
    codec: &ShardingIndexed,
    (start, length): (u64, u64),
) -> Result<Arc<ShardIndex>> {
    let load = || {
        let range = codec.index_range(length).map_err(corrupt(key))?;
        let mut bytes = vec![0; codec.index_size_bytes()];
        object.read_exact_at(start + range.start, &mut bytes)?;
        Ok(Content::Index(Arc::new(codec.parse_index(&bytes, length).map_err(corrupt(key))?)))
    };
    match ctx.cache.get_version(cache_key, object.version(), load)? {
        Content::Index(index) => Ok(index),
        _ => Err(Error::corrupt(key, "the cached entry is not a shard index")),
    }
}

impl Source for Sharded {
    fn keys(&self) -> &Keys {
        &self.keys
    }

    fn object_axes(&self) -> &[Axis] {
        self.shards()
    }

    fn object(&self, chunk: &[u64]) -> u64 {
        let shards = self.shards();
        let elements = self.first_elements(chunk);
        shards
            .iter()
            .zip(elements)
            .fold(0, |n, (axis, element)| n * axis.count() + axis.locate(element).index)
    }

    fn objects(&self) -> u64 {
        self.shards().iter().map(Axis::count).product()
    }

    fn chunk_ranges(&self, object: u64) -> Vec<Range<u64>> {
        self.chunks_of_shard(object)
    }

    fn encode(
        &self,
        ctx: &LoadContext<'_>,
        chunk: &[u64],
        bytes: &Arc<Buffer>,
    ) -> Result<Option<EncodedChunk>> {
        if is_all(&self.empty_fill, bytes) {
            return Ok(None);
        }
        let key = self.key(ctx, chunk)?;
        EncodedChunk::new(&self.inner, bytes).map(Some).map_err(unencodable(&key))
    }

    fn store(
        &self,
        ctx: &LoadContext<'_>,
        target: &Target<'_>,
        object: u64,
        encoded: &Encoded,
    ) -> Result<(String, Option<ObjectVersion>)> {
        self.store_shard(ctx, target, object, encoded)
    }

    fn is_lossless(&self) -> bool {
        self.inner.is_lossless()
    }

    fn axes(&self) -> &[Axis] {
        &self.axes
    }

    fn key(&self, ctx: &LoadContext<'_>, chunk: &[u64]) -> Result<String> {
        let elements = self.first_elements(chunk);
        match self.levels.first() {
            Some(level) => self.keys.key(ctx.store, &Self::shard_of(level, &elements)),
            None => self.keys.key(ctx.store, chunk),
        }
    }

    fn load(&self, ctx: &LoadContext<'_>, chunk: &[u64]) -> Result<Loaded> {
        let key = self.key(ctx, chunk)?;
        let (object, offset, length) = match self.enter(ctx, chunk, &key, self.inner.decoded_bytes())? {
            ShardEntry::Content(loaded) => return Ok(loaded),
            ShardEntry::At(object, offset, length) => (object, offset, length),
        };
        // The range was checked against the object's size.
        let mut encoded = scratch::transient(length as usize).map_err(corrupt(&key))?;
        object.read_exact_at(offset, &mut encoded)?;
        let mut decoded = ctx.buffer(self.inner.decoded_bytes());
        self.inner.decode(&encoded, &mut decoded).map_err(of_inner(chunk)).map_err(corrupt(&key))?;
        Ok((Content::Chunk(Arc::new(decoded)), Some(object.version())))
    }

    fn load_part(
        &self,
        ctx: &LoadContext<'_>,
        chunk: &[u64],
        part: Range<usize>,
    ) -> Result<Option<(Loaded, usize)>> {
        if !self.inner.decodes_parts() {
            return Ok(None);
        }
        let key = self.key(ctx, chunk)?;
        let (object, offset, length) = match self.enter(ctx, chunk, &key, part.len())? {
            ShardEntry::Content(loaded) => return Ok(Some((loaded, part.len()))),
            ShardEntry::At(object, offset, length) => (object, offset, length),
        };
        let stored = StoredChunk::new(object.as_ref(), offset, length);
        let mut out = ctx.buffer(part.len());
        let decoded = self.inner.decode_part(&stored, part.start, &mut out).map_err(of_inner(chunk));
        let decoded_bytes = stored.outcome(decoded, &key)?;
        Ok(Some(((Content::Chunk(Arc::new(out)), Some(object.version())), decoded_bytes)))
    }

    fn block_bytes(&self, ctx: &LoadContext<'_>, chunk: &[u64]) -> Result<Option<u64>> {
        let key = self.key(ctx, chunk)?;
        if !self.inner.decodes_parts() {
            return Ok(None);
        }
        match self.enter(ctx, chunk, &key, 0)? {
            ShardEntry::Content(_) => Ok(None),
            ShardEntry::At(object, offset, length) => {
                let stored = StoredChunk::new(object.as_ref(), offset, length);
                stored.outcome(self.inner.block_bytes(&stored), &key)
            }
        }
    }
}

/// Adds the inner chunk to a codec's error.
fn of_inner(chunk: &[u64]) -> impl Fn(CodecError) -> CodecError + '_ {
    move |error| CodecError { reason: format!("inner chunk {chunk:?}: {}", error.reason), ..error }
}
