//! Where chunks are stored.
//!
//! An [`ArraySource`] *locates* chunks: it turns the number of a chunk into a store key and, where the array is
//! sharded, into a range of that object (`locate.rs`). [`ShardLevels`] says which object that is, and which chunks an
//! object has. What is done with the stored bytes exists once, whether the array is sharded or not: `load.rs` decodes a
//! chunk or a part of it, `rewrite.rs` encodes chunks and replaces an object.
//!
//! | folder | what lives there |
//! |---|---|
//! | `objects/` | the keys of objects, those that are stored, and strays among them |
//! | `loading/` | what loads use: the record of versions, memory, and what earlier loads left |
//!
//! Uses `store`, `metadata`, `codec`, `memory`, and in `array` `cache` and `geometry`.

pub mod ahead;
pub mod levels;
pub mod load;
pub mod loading;
pub mod locate;
pub mod objects;
pub mod pipelines;
pub mod replacement;
pub mod rewrite;

use std::sync::Arc;

use crate::array::geometry::axis::Axis;
use crate::array::source::levels::{Level, ShardLevels, inner_shape};
use crate::array::source::loading::load_context::LoadContext;
use crate::array::source::objects::keys::Keys;
use crate::array::source::pipelines::Pipelines;
use crate::codec::pipeline::Pipeline;
use crate::codec::{CodecError, Representation};
use crate::error::{Error, Result};
use crate::metadata::CodecSpec;

/// The most bytes of a decoded chunk, which memory holds as a whole.
pub const MAX_CHUNK_BYTES: u64 = 4 << 30;
/// The deepest nesting of shards in shards.
pub const MAX_LEVELS: usize = 8;

/// The parts from which a source is built.
pub struct SourceParts {
    /// The axes of the grid of objects, in served order.
    pub axes: Vec<Axis>,
    /// The keys of the objects.
    pub keys: Keys,
    /// Decodes the objects.
    pub pipelines: Pipelines,
    /// One element of a missing object, as served.
    pub fill: Vec<u8>,
}

/// Locates the chunks of an array.
pub struct ArraySource {
    keys: Keys,
    levels: ShardLevels,
    /// Decodes the chunks.
    pipelines: Pipelines,
    /// The pipeline of the largest chunk.
    largest: Arc<Pipeline>,
    /// One element of a missing object, as served.
    fill: Vec<u8>,
    /// A chunk that repeats this element, as served, is not stored. `None` if every chunk is, because the fill value is
    /// undefined.
    unstored: Option<Vec<u8>>,
    /// Whether an empty inner shard reads like its own empty inner chunks.
    fills_agree: bool,
}

impl ArraySource {
    /// Creates a source of the parts. Chunks are as small as can be read on their own: inner chunks, if the chain ends
    /// in a sharding codec. Refuses chunks that are too large for memory, unless they are uncompressed.
    pub fn new(parts: SourceParts) -> Result<Self> {
        let SourceParts { mut axes, keys, mut pipelines, fill } = parts;
        let (decoded, byte_order) = (pipelines.decoded.clone(), pipelines.byte_order);
        let document_key = pipelines.document_key.clone();
        let mut levels: Vec<Level> = Vec::new();
        let mut unstored = (!decoded.fill_value.is_undefined).then(|| fill.clone());
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
                axes.iter().zip(&inner_shape).map(|(axis, &length)| axis.subdivided(length)).collect();
            let Some(inner_axes) = subdivided else {
                let reason = format!("inner chunk shape {inner_shape:?} does not divide every shard");
                return Err(Error::metadata(&document_key, reason));
            };
            // The codecs before the sharding codec apply to each inner chunk instead of to the shard, so that an inner
            // chunk decodes on its own.
            let mut specs: Vec<CodecSpec> = sharded.prefix.to_vec();
            specs.extend_from_slice(&sharded.codec.inner_specs);
            let inner = Representation { shape: inner_shape, ..decoded.clone() };
            let next = Pipelines::new(specs, inner, byte_order, &document_key)?;
            fills_agree &= levels.is_empty() || unstored.as_deref() == Some(sharded.fill);
            unstored = Some(sharded.fill.to_vec());
            drop(chain);
            levels.push(Level { shards: axes, pipelines });
            (axes, pipelines) = (inner_axes, next);
        }
        let (largest, levels) = (pipelines.largest()?, ShardLevels::new(levels, axes));
        let source = ArraySource { keys, levels, pipelines, largest, fill, unstored, fills_agree };
        let bytes = source.largest.decoded_bytes() as u64;
        if !source.is_uncompressed() && bytes > MAX_CHUNK_BYTES {
            let chunks = if source.levels.is_sharded() { "inner chunks" } else { "chunks" };
            let reason = format!("{chunks} of {bytes} bytes (at most {MAX_CHUNK_BYTES} are decoded as one)");
            return Err(Error::unsupported(&document_key, reason));
        }
        Ok(source)
    }

    /// Returns the keys of the objects.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Returns the grid of chunks, and the levels of sharding above it.
    pub fn levels(&self) -> &ShardLevels {
        &self.levels
    }

    /// Returns whether chunks are objects and uncompressed, so that ranges of them can be read without the cache.
    pub fn is_uncompressed(&self) -> bool {
        !self.levels.is_sharded() && self.largest.plain_bytes().is_some()
    }

    /// Returns whether uncompressed chunks are stored exactly as they are served.
    pub fn is_stored_as_served(&self) -> bool {
        !self.levels.is_sharded() && self.largest.is_identity()
    }

    /// Returns whether decoding always returns what was encoded.
    pub fn is_lossless(&self) -> bool {
        self.largest.is_lossless()
    }

    /// Returns whether a checksum guards the bytes of each chunk: its own, or one of a shard that is read as a whole.
    pub fn has_checksum(&self) -> bool {
        self.largest.has_checksum()
    }

    /// Returns the store key of the object that holds the chunk.
    pub fn key(&self, ctx: &LoadContext<'_>, chunk: &[u64]) -> Result<String> {
        self.keys.key(ctx.store, &self.levels.object_index(chunk))
    }

    /// Returns the pipeline of a chunk.
    fn pipeline(&self, chunk: &[u64]) -> Result<Arc<Pipeline>> {
        let spans = || self.levels.chunk_axes().iter().zip(chunk).map(|(axis, &i)| axis.span(i).length);
        // Nearly all chunks have the same shape: this one needs no lock.
        if spans().eq(self.pipelines.decoded.shape.iter().copied()) {
            return Ok(Arc::clone(&self.largest));
        }
        self.pipelines.for_shape(&spans().collect::<Vec<u64>>())
    }
}

/// Adds the key of the object to a codec's error.
pub fn corrupt(key: &str) -> impl Fn(CodecError) -> Error + '_ {
    move |error| {
        if error.is_unsupported {
            Error::unsupported(key, error.reason)
        } else {
            Error::corrupt(key, error.reason)
        }
    }
}

/// Adds the key of the object to a codec's error while encoding.
pub fn unencodable(key: &str) -> impl Fn(CodecError) -> Error + '_ {
    move |error| Error::Unencodable { key: key.to_owned(), reason: error.reason }
}
