//! Where chunks are stored.
//!
//! A [`Source`] *locates* chunks: it turns the number of a chunk into a store key and, where the array is sharded, into a
//! range of that object (`locate.rs`). What is done with the stored bytes exists once, for both: `load.rs` decodes a chunk
//! or a part of it, `rewrite.rs` encodes chunks and replaces an object. An array without shards is a source with no levels of
//! sharding: each chunk is the whole of an object.
//!
//! Uses `store`, `metadata`, `codec`, `memory`, and in `array` `cache` and `geometry`.

pub mod ahead;
pub mod keys;
pub mod levels;
pub mod load;
pub mod load_context;
pub mod load_resources;
pub mod locate;
pub mod open_objects;
pub mod pipelines;
pub mod replacement;
pub mod resumable_decoders;
pub mod rewrite;
pub mod stored_objects;
pub mod strays;
pub mod versions;

use std::ops::Range;
use std::sync::Arc;

use crate::array::geometry::axis::{Axis, number_of, numbers};
use crate::array::source::keys::Keys;
use crate::array::source::levels::{Level, inner_shape};
use crate::array::source::load_context::LoadContext;
use crate::array::source::pipelines::Pipelines;
use crate::codec::pipeline::Pipeline;
use crate::codec::{CodecError, Representation};
use crate::error::{Error, Result};
use crate::metadata::CodecSpec;

/// The most bytes of a decoded chunk, which memory holds as a whole.
pub const MAX_CHUNK_BYTES: u64 = 4 << 30;
/// The deepest nesting of shards in shards.
const MAX_LEVELS: usize = 8;

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
pub struct Source {
    keys: Keys,
    /// From the outermost level of sharding inwards; none if each chunk is an object. The shards of the outermost level are
    /// objects.
    levels: Vec<Level>,
    /// The axes of the grid of chunks, in served order.
    axes: Vec<Axis>,
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

impl Source {
    /// A source of the parts. Chunks are as small as can be read on their own: inner chunks, if the chain ends in a
    /// sharding codec. Refuses chunks that are too large for memory, unless they are uncompressed.
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
        let largest = pipelines.largest()?;
        let source = Source { keys, levels, axes, pipelines, largest, fill, unstored, fills_agree };
        let bytes = source.largest.decoded_bytes() as u64;
        if !source.is_uncompressed() && bytes > MAX_CHUNK_BYTES {
            let chunks = if source.is_sharded() { "inner chunks" } else { "chunks" };
            let reason = format!("{chunks} of {bytes} bytes (at most {MAX_CHUNK_BYTES} are decoded as one)");
            return Err(Error::unsupported(&document_key, reason));
        }
        Ok(source)
    }

    /// The axes of the grid of chunks, in served order.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The keys of the objects.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Whether objects hold several chunks.
    pub fn is_sharded(&self) -> bool {
        !self.levels.is_empty()
    }

    /// Whether chunks are objects and uncompressed, so that ranges of them can be read without the cache.
    pub fn is_uncompressed(&self) -> bool {
        !self.is_sharded() && self.largest.plain_bytes().is_some()
    }

    /// Whether uncompressed chunks are stored exactly as they are served.
    pub fn is_stored_as_served(&self) -> bool {
        !self.is_sharded() && self.largest.is_identity()
    }

    /// Whether decoding always returns what was encoded.
    pub fn is_lossless(&self) -> bool {
        self.largest.is_lossless()
    }

    /// Whether a checksum guards the bytes of each chunk: its own, or one of a shard that is read as a whole.
    pub fn has_checksum(&self) -> bool {
        self.largest.has_checksum()
    }

    /// The axes of the grid of objects, in served order.
    pub fn object_axes(&self) -> &[Axis] {
        self.levels.first().map_or(&self.axes, |level| &level.shards)
    }

    /// How many objects the array has, stored or not.
    pub fn objects(&self) -> u64 {
        self.object_axes().iter().map(Axis::count).product()
    }

    /// The number of the object that holds the chunk.
    pub fn object_of(&self, chunk: &[u64]) -> u64 {
        number_of(self.object_axes(), &self.object_index(chunk))
    }

    /// The store key of the object that holds the chunk.
    pub fn key(&self, ctx: &LoadContext<'_>, chunk: &[u64]) -> Result<String> {
        self.keys.key(ctx.store, &self.object_index(chunk))
    }

    /// The per-axis numbers of the object that holds the chunk.
    fn object_index(&self, chunk: &[u64]) -> Vec<u64> {
        match self.levels.first() {
            Some(level) => level.shard_of(&self.first_elements(chunk)),
            None => chunk.to_vec(),
        }
    }

    /// The per-axis numbers of the chunks in an object.
    pub fn chunk_ranges(&self, object: u64) -> Vec<Range<u64>> {
        let index = numbers(self.object_axes(), object);
        let Some(level) = self.levels.first() else {
            return index.into_iter().map(|number| number..number + 1).collect();
        };
        let axes = self.axes.iter().zip(&level.shards).zip(&index);
        axes.map(|((axis, outer), &number)| {
            let span = outer.span(number);
            let end = (span.start + span.length).min(axis.extent());
            axis.locate(span.start).index..axis.locate(end.saturating_sub(1)).index + 1
        })
        .collect()
    }

    /// How many chunks an object has.
    pub fn chunk_count(&self, object: u64) -> u64 {
        self.chunk_ranges(object).into_iter().map(|range| range.end - range.start).product()
    }

    /// The numbers of the chunks in an object.
    pub fn chunks_of(&self, object: u64) -> Vec<u64> {
        let ranges = self.chunk_ranges(object);
        self.axes.iter().zip(ranges).fold(vec![0], |chunks, (axis, range)| {
            chunks
                .iter()
                .flat_map(|&chunk| range.clone().map(move |number| chunk * axis.count() + number))
                .collect()
        })
    }

    /// The per-axis numbers of a chunk's first elements.
    fn first_elements(&self, chunk: &[u64]) -> Vec<u64> {
        self.axes.iter().zip(chunk).map(|(axis, &i)| axis.span(i).start).collect()
    }

    /// The pipeline of a chunk.
    fn pipeline(&self, chunk: &[u64]) -> Result<Arc<Pipeline>> {
        let spans = || self.axes.iter().zip(chunk).map(|(axis, &i)| axis.span(i).length);
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
