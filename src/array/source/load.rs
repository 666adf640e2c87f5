//! Loading a chunk, or a part of one: its stored bytes, decoded.
//!
//! Uses its neighbours, `array/cache`, `array/geometry`, `store`, `codec` and `memory`.

use std::ops::Range;
use std::sync::Arc;

use crate::array::cache::{CacheKey, CachedContent, LoadedContent};
use crate::array::geometry::axis::number_of;
use crate::array::geometry::strided_copy::fill_items;
use crate::array::source::loading::load_context::LoadContext;
use crate::array::source::locate::{ChunkLocation, StoredChunk};
use crate::array::source::{ArraySource, corrupt};
use crate::codec::pipeline::Pipeline;
use crate::codec::{CodecError, CodecResult, StoredBytes, scratch};
use crate::error::{Error, Result};
use crate::store::{Object, Wanted};

/// The load of one chunk.
struct ChunkLoad<'a> {
    source: &'a ArraySource,
    ctx: &'a LoadContext<'a>,
    chunk: &'a [u64],
    key: String,
    pipeline: Arc<Pipeline>,
}

/// What the store has of a chunk.
enum FoundChunk {
    /// Bytes to decode.
    Stored(StoredChunk),
    /// Nothing: fill value.
    Unstored(LoadedContent),
}

impl ArraySource {
    /// Loads a chunk, all of it from one version of its object.
    pub(in crate::array) fn load(&self, ctx: &LoadContext<'_>, chunk: &[u64]) -> Result<LoadedContent> {
        ctx.with_one_version(|| self.begin(ctx, chunk)?.whole())
    }

    /// Loads these bytes of the decoded chunk, which begin and end between elements. Also returns how many bytes were
    /// decoded for them. Returns `None` if only a whole chunk can be loaded.
    pub(in crate::array) fn load_part(
        &self,
        ctx: &LoadContext<'_>,
        chunk: &[u64],
        part: Range<usize>,
    ) -> Result<Option<(LoadedContent, usize)>> {
        ctx.with_one_version(|| self.begin(ctx, chunk)?.part(part.clone()))
    }

    /// Returns the size of a block of the decoded chunk that decodes on its own, and how many bytes the chunk is stored
    /// in. `None` if there are no blocks, or the chunk is missing.
    pub(in crate::array) fn block_bytes(
        &self,
        ctx: &LoadContext<'_>,
        chunk: &[u64],
    ) -> Result<Option<(u64, u64)>> {
        let load = self.begin(ctx, chunk)?;
        if !load.pipeline.decodes_parts() {
            return Ok(None);
        }
        let FoundChunk::Stored(stored) = load.find(0..0)? else { return Ok(None) };
        let block = stored.outcome(load.pipeline.block_bytes(&stored), &load.key)?;
        Ok(block.map(|block| (block, stored.size_bytes())))
    }

    /// Opens the object of an uncompressed chunk, for a reader of ranges that begins with `first`. `None` if the chunk
    /// is missing.
    pub(in crate::array) fn open_uncompressed(
        &self,
        ctx: &LoadContext<'_>,
        chunk: &[u64],
        first: Range<u64>,
    ) -> Result<Option<Box<dyn Object>>> {
        let key = self.key(ctx, chunk)?;
        let ChunkLocation::Stored(stored) = self.locate(ctx, chunk, &key, &Wanted::Range(first))? else {
            return Ok(None);
        };
        let (size, expected) = (stored.size_bytes(), self.pipeline(chunk)?.decoded_bytes() as u64);
        if size != expected {
            return Err(Error::corrupt(key, format!("{size} bytes stored; a chunk has {expected}")));
        }
        Ok(Some(stored.object))
    }

    /// Turns uncompressed bytes (whole elements) into their served form.
    pub(in crate::array) fn decode_uncompressed(&self, elements: &mut [u8]) -> Result<()> {
        let decoded = self.largest.plain_bytes().map_or(Ok(()), |codec| codec.decode(elements));
        decoded.map_err(corrupt(&self.pipelines.document_key))
    }

    fn begin<'a>(&'a self, ctx: &'a LoadContext<'a>, chunk: &'a [u64]) -> Result<ChunkLoad<'a>> {
        Ok(ChunkLoad {
            source: self,
            ctx,
            chunk,
            key: self.key(ctx, chunk)?,
            pipeline: self.pipeline(chunk)?,
        })
    }
}

impl ChunkLoad<'_> {
    /// Loads the whole chunk.
    fn whole(&self) -> Result<LoadedContent> {
        let length = self.pipeline.decoded_bytes();
        let stored = match self.find(0..length)? {
            FoundChunk::Stored(stored) => stored,
            FoundChunk::Unstored(loaded) => return Ok(loaded),
        };
        // What a remote store received is the chunk itself and is not copied.
        if self.pipeline.is_identity()
            && let Some(whole) = stored
                .object
                .whole()
                .filter(|whole| !self.source.levels.is_sharded() && whole.len() == length)
        {
            return Ok(loaded(CachedContent::Chunk(whole), &stored));
        }
        let corrupt = corrupt(&self.key);
        // Uncompressed bytes are read to where they stay.
        if let Some(codec) = self.pipeline.plain_bytes().filter(|_| stored.size_bytes() == length as u64) {
            let mut decoded = self.ctx.buffer(length);
            stored.read_all(&mut decoded)?;
            self.name_chunk(codec.decode(&mut decoded)).map_err(&corrupt)?;
            return Ok(loaded(CachedContent::Chunk(Arc::new(decoded)), &stored));
        }
        let size = usize::try_from(stored.size_bytes())
            .map_err(|_| Error::corrupt(&self.key, "too large for this machine"))?;
        let decode = |encoded: &[u8]| {
            let mut decoded = self.ctx.buffer(length);
            self.name_chunk(self.pipeline.decode(encoded, &mut decoded)).map(|()| decoded)
        };
        let decoded = match stored.object.in_memory(&stored.range) {
            Some(encoded) => decode(encoded).map_err(&corrupt)?,
            None => {
                // The store says that an object of this size exists, and the size is within the limit.
                let mut encoded = scratch::transient(size).map_err(&corrupt)?;
                stored.read_all(&mut encoded)?;
                decode(&encoded).map_err(&corrupt)?
            }
        };
        Ok(loaded(CachedContent::Chunk(Arc::new(decoded)), &stored))
    }

    /// Loads a part of the chunk. Also returns how many bytes were decoded for it.
    fn part(&self, part: Range<usize>) -> Result<Option<(LoadedContent, usize)>> {
        if !self.pipeline.decodes_parts() {
            return self.next(part);
        }
        let stored = match self.find(part.clone())? {
            FoundChunk::Stored(stored) => stored,
            FoundChunk::Unstored(loaded) => return Ok(Some((loaded, part.len()))),
        };
        let mut out = self.ctx.buffer(part.len());
        let decoded = self.name_chunk(self.pipeline.decode_part(&stored, part.start, &mut out));
        let decoded_bytes = stored.outcome(decoded, &self.key)?;
        Ok(Some((loaded(CachedContent::Chunk(Arc::new(out)), &stored), decoded_bytes)))
    }

    /// Loads the next part of a chunk with a suspended decoder, or with a new one that is kept.
    fn next(&self, part: Range<usize>) -> Result<Option<(LoadedContent, usize)>> {
        let ChunkLoad { source, ctx, chunk, pipeline, .. } = self;
        let (Some(decoders), Some(new)) = (ctx.decoders, pipeline.resumable_decoder()) else {
            return Ok(None);
        };
        let stored = match self.find(part.clone())? {
            FoundChunk::Stored(stored) => stored,
            FoundChunk::Unstored(loaded) => return Ok(Some((loaded, part.len()))),
        };
        let version = stored.object.version();
        let key = CacheKey::chunk(ctx.array, number_of(source.levels.chunk_axes(), chunk));
        let mut decoder = decoders.take(key, version, part.start).unwrap_or(new);
        let mut out = ctx.buffer(part.len());
        // If decoding in parts fails, the chunk is decoded as a whole, which reports the error.
        let Ok(decoded_bytes) = pipeline.decode_next(decoder.as_mut(), &stored, part.start, &mut out) else {
            return Ok(None);
        };
        if decoder.position() < pipeline.decoded_bytes() {
            decoders.keep(key, version, decoder);
        }
        Ok(Some((loaded(CachedContent::Chunk(Arc::new(out)), &stored), decoded_bytes)))
    }

    /// Finds the stored bytes of a chunk, for a load of `part`. If the chunk is not stored, returns that part.
    fn find(&self, part: Range<usize>) -> Result<FoundChunk> {
        let ChunkLoad { source, ctx, chunk, key, pipeline } = self;
        let wanted = match pipeline.plain_bytes() {
            Some(_) if part.len() < pipeline.decoded_bytes() => {
                Wanted::Range(part.start as u64..part.end as u64)
            }
            _ => wanted_of_object(pipeline),
        };
        let stored = match source.locate(ctx, chunk, key, &wanted)? {
            ChunkLocation::Missing(version) => {
                return Ok(FoundChunk::Unstored(LoadedContent { content: CachedContent::Absent, version }));
            }
            ChunkLocation::Empty(fill, version) => {
                let mut decoded = ctx.buffer(part.len());
                fill_items(&mut decoded, &fill, 0);
                let content = CachedContent::Chunk(Arc::new(decoded));
                return Ok(FoundChunk::Unstored(LoadedContent { content, version: Some(version) }));
            }
            ChunkLocation::Stored(stored) => stored,
        };
        let (length, limit) = (stored.size_bytes(), pipeline.encoded_size().limit_bytes());
        if length > limit {
            let reason = format!("{length} bytes stored; a chunk has at most {limit}");
            return Err(corrupt(key)(self.name(CodecError::new(reason))));
        }
        Ok(FoundChunk::Stored(stored))
    }

    /// Adds the inner chunk, if it is one, to a codec's error.
    fn name_chunk<T>(&self, result: CodecResult<T>) -> CodecResult<T> {
        result.map_err(|error| self.name(error))
    }

    fn name(&self, error: CodecError) -> CodecError {
        if !self.source.levels.is_sharded() {
            return error;
        }
        CodecError { reason: format!("inner chunk {:?}: {}", self.chunk, error.reason), ..error }
    }
}

/// Returns content with the version of the object that it was decoded from.
fn loaded(content: CachedContent, stored: &StoredChunk) -> LoadedContent {
    LoadedContent { content, version: Some(stored.object.version()) }
}

/// Returns what a load of a chunk that is an object asks for.
pub(in crate::array) fn wanted_of_object(pipeline: &Pipeline) -> Wanted {
    Wanted::Whole { at_most: pipeline.encoded_size().limit_bytes() }
}
