//! Locating a chunk: an object, or a range of one, or nowhere.
//!
//! Spec: v3 core "Chunk storage"; v3 "Sharding codec". A chunk of an array without shards is the whole of an object.
//! Locating an inner chunk needs the shard's index, which is read once. Shards may be nested, and the indexes lead from
//! level to level (`levels.rs`). Uses its neighbours, `array/cache`, `array/geometry`, `store`, `codec` and `memory`.
//!
//! Invariant: an index and the chunks that it leads to are of the same version of the object.

use std::cell::Cell;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::Instant;

use crate::array::cache::{CacheKey, CachedContent};
use crate::array::geometry::axis::numbers;
use crate::array::source::levels::sharding;
use crate::array::source::loading::load_context::LoadContext;
use crate::array::source::{ArraySource, corrupt};
use crate::codec::pipeline::Pipeline;
use crate::codec::shard_index::ShardIndex;
use crate::codec::sharding_indexed::{IndexLocation, ShardingIndexed};
use crate::codec::{CodecError, CodecResult, StoredBytes};
use crate::error::{Error, Result};
use crate::store::{Object, ObjectVersion, ReadCounts, Wanted};

/// Where a chunk is stored.
pub(in crate::array) enum ChunkLocation {
    /// Nowhere: its object is missing (`None`), or the shard says that it is empty. It reads as the array's fill value.
    Missing(Option<ObjectVersion>),
    /// Nowhere: the shard says that it is empty. Codecs changed the fill value, so it repeats this element, as served.
    Empty(Vec<u8>, ObjectVersion),
    /// A range of an object.
    Stored(StoredChunk),
}

/// The stored bytes of one chunk.
pub(in crate::array) struct StoredChunk {
    /// The object, open.
    pub object: Box<dyn Object>,
    /// The bytes of the chunk in the object.
    pub range: Range<u64>,
    /// Counts the reads.
    reads: Arc<ReadCounts>,
    /// The error of a read that failed.
    failure: Cell<Option<Error>>,
}

impl StoredChunk {
    fn new(object: Box<dyn Object>, range: Range<u64>, reads: &Arc<ReadCounts>) -> Self {
        StoredChunk { object, range, reads: Arc::clone(reads), failure: Cell::new(None) }
    }

    /// Reads all bytes of the chunk into `out`, which has exactly their length.
    pub fn read_all(&self, out: &mut [u8]) -> Result<()> {
        read_counted(&self.reads, self.object.as_ref(), self.range.start, out)
    }

    /// Returns the outcome of decoding. If the store failed, its error replaces the codec's.
    pub fn outcome<T>(&self, decoded: CodecResult<T>, key: &str) -> Result<T> {
        decoded.map_err(|error| self.failure.take().unwrap_or_else(|| corrupt(key)(error)))
    }
}

impl StoredBytes for StoredChunk {
    fn size_bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> CodecResult<()> {
        let read = read_counted(&self.reads, self.object.as_ref(), self.range.start + offset, out);
        read.map_err(|error| {
            let reason = error.to_string();
            self.failure.set(Some(error));
            CodecError::new(reason)
        })
    }
}

/// Fills `out` from an offset of an object, and counts the read.
fn read_counted(reads: &ReadCounts, object: &dyn Object, offset: u64, out: &mut [u8]) -> Result<()> {
    let started = Instant::now();
    object.read_exact_at(offset, out)?;
    reads.record_bytes(out.len());
    reads.record_request(started.elapsed());
    Ok(())
}

/// The step from a shard of one level to an inner chunk.
struct ShardStep {
    /// The cache key of the shard's index.
    index_key: CacheKey,
    /// The place of the inner chunk in the shard, in stored order.
    inner: usize,
    /// One element of an empty inner chunk, as served.
    fill: Vec<u8>,
    /// The shard's codec chain.
    chain: Arc<Pipeline>,
}

impl ShardStep {
    /// Returns the index of the step's shard, at `range` of an object.
    fn index(
        &self,
        ctx: &LoadContext<'_>,
        object: &dyn Object,
        key: &str,
        range: Range<u64>,
    ) -> Result<Arc<ShardIndex>> {
        read_index(ctx, object, key, self.index_key, sharding(&self.chain, key)?.codec, range)
    }
}

/// What a load asks a shard for first.
pub(in crate::array) enum InnerWanted {
    /// The inner chunk.
    Chunk(Wanted),
    /// The index, which is not in the cache.
    Index(Wanted),
    /// The object's present index, because the one in the cache says that the inner chunk is empty.
    Nothing(Wanted),
}

impl InnerWanted {
    fn wanted(&self) -> &Wanted {
        match self {
            InnerWanted::Chunk(wanted) | InnerWanted::Index(wanted) | InnerWanted::Nothing(wanted) => wanted,
        }
    }
}

/// This many bytes of a shard are asked for together with its index, so that a small shard takes one request.
const INDEX_BYTES: u64 = 128 << 10;
/// A shard of at most this many decoded bytes is asked for as a whole.
const SMALL_SHARD_BYTES: u64 = 4 << 20;

impl ArraySource {
    /// Returns where a chunk is stored. Opens its object, at `key`, for a reader that begins with the bytes `wanted` of
    /// the chunk.
    pub(in crate::array) fn locate(
        &self,
        ctx: &LoadContext<'_>,
        chunk: &[u64],
        key: &str,
        wanted: &Wanted,
    ) -> Result<ChunkLocation> {
        let elements = self.levels.first_elements(chunk);
        // Only a remote store needs to know which part of the shard is wanted before it opens the object.
        let of_shard = if self.levels.is_sharded() && ctx.store.is_remote() {
            Some(self.wanted_of_shard(ctx, key, &elements)?)
        } else {
            None
        };
        let first = of_shard.as_ref().map_or(wanted, InnerWanted::wanted);
        let Some(object) = ctx.open(key, first)? else { return Ok(ChunkLocation::Missing(None)) };
        let version = object.version();
        let mut range = 0..object.size_bytes();
        for depth in 0..self.levels.count() {
            let step = self.step(ctx, key, depth, &elements)?;
            let index = step.index(ctx, object.as_ref(), key, range.clone())?;
            match index.chunk(step.inner).map_err(corrupt(key))? {
                Some(inner) => range = range.start + inner.start..range.start + inner.end,
                None if step.fill == self.fill => return Ok(ChunkLocation::Missing(Some(version))),
                None => return Ok(ChunkLocation::Empty(step.fill, version)),
            }
        }
        Ok(ChunkLocation::Stored(StoredChunk::new(object, range, ctx.reads)))
    }

    /// Returns what to ask the shard that holds `elements` for first: the inner chunk, if the index in the cache says
    /// where it is, otherwise the index. A cached index may be of another version; then the object is asked again.
    pub(in crate::array) fn wanted_of_shard(
        &self,
        ctx: &LoadContext<'_>,
        key: &str,
        elements: &[u64],
    ) -> Result<InnerWanted> {
        let step = self.step(ctx, key, 0, elements)?;
        let sharded = sharding(&step.chain, key)?;
        let bytes = (sharded.codec.index_size_bytes() as u64).max(INDEX_BYTES);
        let index = match sharded.codec.index_location {
            _ if step.chain.decoded_bytes() as u64 <= SMALL_SHARD_BYTES => {
                Wanted::Whole { at_most: step.chain.encoded_size().limit_bytes() }
            }
            IndexLocation::Start => Wanted::Range(0..bytes),
            IndexLocation::End => Wanted::Last(bytes),
        };
        Ok(match ctx.cache.peek_any(step.index_key) {
            Some(CachedContent::Index(known)) => match known.chunk(step.inner).map_err(corrupt(key))? {
                Some(range) => InnerWanted::Chunk(Wanted::Range(range)),
                None => InnerWanted::Nothing(index),
            },
            _ => InnerWanted::Index(index),
        })
    }

    /// Returns the shard of one level that holds `elements`, and the inner chunk in it.
    fn step(&self, ctx: &LoadContext<'_>, key: &str, depth: usize, elements: &[u64]) -> Result<ShardStep> {
        let level = self.levels.level(depth, key)?;
        let shard = level.shard_of(elements);
        let chain = level.chain(&shard)?;
        let sharded = sharding(&chain, key)?;
        let inner = self.levels.place_in_shard(depth, &sharded, elements, key)?;
        let (fill, index_key) = (sharded.fill.to_vec(), self.levels.index_key(ctx.array, depth, &shard));
        Ok(ShardStep { index_key, inner, fill, chain })
    }

    /// Reads the index of the outermost shard that holds `elements` into the cache.
    pub(in crate::array) fn load_index(
        &self,
        ctx: &LoadContext<'_>,
        key: &str,
        elements: &[u64],
        wanted: &Wanted,
    ) -> Result<()> {
        let Some(object) = ctx.open(key, wanted)? else { return Ok(()) };
        let (step, range) = (self.step(ctx, key, 0, elements)?, 0..object.size_bytes());
        step.index(ctx, object.as_ref(), key, range).map(drop)
    }

    /// Calls `each` with the number of each chunk that is stored in an object, until it breaks. Chunks that the index
    /// of a shard gives a wrong place are among them. Does nothing if the object is gone.
    pub(in crate::array) fn each_chunk_in(
        &self,
        ctx: &LoadContext<'_>,
        object: u64,
        each: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        if !self.levels.is_sharded() {
            return Ok(each(object));
        }
        let axes = self.levels.object_axes();
        let shard = numbers(axes, object);
        let elements: Vec<u64> =
            axes.iter().zip(&shard).map(|(axis, &number)| axis.span(number).start).collect();
        let key = self.keys.key(ctx.store, &shard)?;
        let Some(stored) = ctx.store.open(&key)? else { return Ok(ControlFlow::Continue(())) };
        let (step, range) = (self.step(ctx, &key, 0, &elements)?, 0..stored.size_bytes());
        let index = step.index(ctx, stored.as_ref(), &key, range)?;
        let sharded = sharding(&step.chain, &key)?;
        for place in (0..index.len()).filter(|&place| !matches!(index.chunk(place), Ok(None))) {
            // Shards at the edge have inner chunks that lie past the end.
            let Some(inner) = self.levels.inner_at(0, &shard, &sharded, place) else { continue };
            if self.levels.each_chunk_below(&inner, each).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Returns the index of the shard at `range` of an object. The cache's copy counts only if it is from this version of
/// the object.
pub(in crate::array) fn read_index(
    ctx: &LoadContext<'_>,
    object: &dyn Object,
    key: &str,
    index_key: CacheKey,
    codec: &ShardingIndexed,
    range: Range<u64>,
) -> Result<Arc<ShardIndex>> {
    let length = range.end - range.start;
    let load = || {
        let place = codec.index_range(length).map_err(corrupt(key))?;
        let mut bytes = vec![0; codec.index_size_bytes()];
        read_counted(ctx.reads, object, range.start + place.start, &mut bytes)?;
        Ok(CachedContent::Index(Arc::new(codec.parse_index(&bytes, length).map_err(corrupt(key))?)))
    };
    match ctx.cache.get_version(index_key, object.version(), load)? {
        CachedContent::Index(index) => Ok(index),
        _ => Err(Error::corrupt(key, "the cached entry is not a shard index")),
    }
}
