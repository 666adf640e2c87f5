//! Unsharded arrays: each chunk is one object.
//!
//! Spec: v3 core "Chunk storage". Uses its neighbours, `store`, `metadata`, `codec` and `memory`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::array::cache::{Content, Loaded};
use crate::array::geometry::grid::{Axis, numbers};
use crate::array::source::replacement::Target;
use crate::array::source::replacement::{Encoded, EncodedChunk};
use crate::array::source::{
    Keys, LoadContext, MAX_CHUNK_BYTES, Source, StoredChunk, corrupt, is_all, read_whole, unencodable,
};
use crate::codec::Representation;
use crate::codec::pipeline::Pipeline;
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::metadata::{ByteOrder, CodecSpec};
use crate::store::{Object, ObjectPart, ObjectVersion};

/// The pipelines of one codec chain, one for each shape of chunk. A regular grid has one shape.
pub struct Pipelines {
    /// The chain, as stored.
    pub specs: Vec<CodecSpec>,
    /// What the chain encodes, with the shape of the largest chunk.
    pub decoded: Representation,
    /// Byte order of the decoded elements.
    pub byte_order: ByteOrder,
    /// The key of the metadata document.
    pub document_key: String,
    built: Mutex<HashMap<Vec<u64>, Arc<Pipeline>>>,
}

/// How many pipelines are kept. A rectilinear grid may have more chunk shapes.
const KEPT_PIPELINES: usize = 64;

impl Pipelines {
    /// Pipelines of `specs`. `decoded` has the shape of the largest chunk. Its pipeline is built now.
    pub fn new(
        specs: Vec<CodecSpec>,
        decoded: Representation,
        byte_order: ByteOrder,
        document_key: &str,
    ) -> Result<Self> {
        let document_key = document_key.to_owned();
        let pipelines = Pipelines { specs, decoded, byte_order, document_key, built: Mutex::default() };
        pipelines.of_shape(&pipelines.decoded.shape)?;
        Ok(pipelines)
    }

    /// The pipeline of the largest chunk.
    pub fn largest(&self) -> Result<Arc<Pipeline>> {
        self.of_shape(&self.decoded.shape)
    }

    /// The pipeline of chunks of this shape.
    pub fn of_shape(&self, shape: &[u64]) -> Result<Arc<Pipeline>> {
        if let Some(pipeline) = self.built.lock().get(shape) {
            return Ok(Arc::clone(pipeline));
        }
        let decoded = Representation { shape: shape.to_vec(), ..self.decoded.clone() };
        let built = Pipeline::build_served(&self.specs, &decoded, self.byte_order).map_err(|error| {
            if error.is_unsupported {
                Error::unsupported(&self.document_key, error.reason)
            } else {
                Error::metadata(&self.document_key, error.reason)
            }
        })?;
        let built = Arc::new(built);
        let mut kept = self.built.lock();
        if kept.len() >= KEPT_PIPELINES {
            kept.clear();
        }
        kept.insert(shape.to_vec(), Arc::clone(&built));
        Ok(built)
    }
}

/// The parts from which a source is built.
pub struct Parts {
    /// The axes of the grid of objects, in served order.
    pub axes: Vec<Axis>,
    /// The keys of the objects.
    pub keys: Keys,
    /// Decodes the objects.
    pub pipelines: Pipelines,
    /// One element of a missing object, as served.
    pub fill: Vec<u8>,
}

/// A source of unsharded chunks.
pub struct Plain {
    axes: Vec<Axis>,
    keys: Keys,
    pipelines: Pipelines,
    is_uncompressed: bool,
    is_lossless: bool,
    /// One element of a missing chunk, as served.
    fill: Vec<u8>,
    /// A chunk of fill value is stored all the same, because the fill value is undefined.
    keeps_fill: bool,
}

impl Plain {
    /// A source over `axes`. Refuses chunks that are too large for memory, unless they are uncompressed.
    pub fn new(parts: Parts) -> Result<Self> {
        let Parts { axes, keys, pipelines, fill } = parts;
        let largest = pipelines.largest()?;
        let (is_uncompressed, is_lossless) = (largest.plain_bytes().is_some(), largest.is_lossless());
        if !is_uncompressed && largest.decoded_bytes() as u64 > MAX_CHUNK_BYTES {
            let reason = format!(
                "chunks of {} bytes (at most {MAX_CHUNK_BYTES} are decoded as one)",
                largest.decoded_bytes()
            );
            return Err(Error::unsupported(&pipelines.document_key, reason));
        }
        let keeps_fill = pipelines.decoded.fill_value.is_undefined;
        Ok(Plain { axes, keys, pipelines, is_uncompressed, is_lossless, fill, keeps_fill })
    }

    fn pipeline(&self, chunk: &[u64]) -> Result<Arc<Pipeline>> {
        let shape: Vec<u64> = self.axes.iter().zip(chunk).map(|(axis, &i)| axis.span(i).length).collect();
        self.pipelines.of_shape(&shape)
    }

    /// Loads the next part of a chunk with a suspended decoder, or with a new one that is kept.
    fn load_next(
        &self,
        ctx: &LoadContext<'_>,
        chunk: &[u64],
        key: &str,
        pipeline: &Pipeline,
        part: Range<usize>,
    ) -> Result<Option<(Loaded, usize)>> {
        let (Some(decoders), Some(new)) = (ctx.decoders, pipeline.resumable_decoder()) else {
            return Ok(None);
        };
        let Some(object) = ctx.open(key)? else { return Ok(Some(((Content::Absent, None), 0))) };
        let version = object.version();
        let number = (ctx.array, self.object(chunk));
        let mut decoder = decoders.take(number, version, part.start).unwrap_or(new);
        let stored = StoredChunk::new(object.as_ref(), 0, object.size_bytes());
        let mut out = ctx.buffer(part.len());
        // If decoding in parts fails, the chunk is decoded as a whole, which reports the error.
        let Ok(decoded_bytes) = pipeline.decode_next(decoder.as_mut(), &stored, part.start, &mut out) else {
            return Ok(None);
        };
        if decoder.position() < pipeline.decoded_bytes() {
            decoders.keep(number, version, decoder);
        }
        Ok(Some(((Content::Chunk(Arc::new(out)), Some(version)), decoded_bytes)))
    }
}

impl Source for Plain {
    fn axes(&self) -> &[Axis] {
        &self.axes
    }

    fn key(&self, ctx: &LoadContext<'_>, chunk: &[u64]) -> Result<String> {
        self.keys.key(ctx.store, chunk)
    }

    fn load(&self, ctx: &LoadContext<'_>, chunk: &[u64]) -> Result<Loaded> {
        let key = self.key(ctx, chunk)?;
        let pipeline = self.pipeline(chunk)?;
        let found = read_whole(ctx, &key, pipeline.encoded_size().limit_bytes())?;
        let Some((encoded, version)) = found else { return Ok((Content::Absent, None)) };
        let mut chunk = ctx.buffer(pipeline.decoded_bytes());
        pipeline.decode(&encoded, &mut chunk).map_err(corrupt(&key))?;
        Ok((Content::Chunk(Arc::new(chunk)), Some(version)))
    }

    fn load_part(
        &self,
        ctx: &LoadContext<'_>,
        chunk: &[u64],
        part: Range<usize>,
    ) -> Result<Option<(Loaded, usize)>> {
        let key = self.key(ctx, chunk)?;
        let pipeline = self.pipeline(chunk)?;
        if !pipeline.decodes_parts() {
            return self.load_next(ctx, chunk, &key, &pipeline, part);
        }
        let Some(object) = ctx.open(&key)? else { return Ok(Some(((Content::Absent, None), 0))) };
        let stored = StoredChunk::new(object.as_ref(), 0, object.size_bytes());
        let mut out = ctx.buffer(part.len());
        let decoded_bytes = stored.outcome(pipeline.decode_part(&stored, part.start, &mut out), &key)?;
        Ok(Some(((Content::Chunk(Arc::new(out)), Some(object.version())), decoded_bytes)))
    }

    fn block_bytes(&self, ctx: &LoadContext<'_>, chunk: &[u64]) -> Result<Option<u64>> {
        let key = self.key(ctx, chunk)?;
        let pipeline = self.pipeline(chunk)?;
        let Some(object) = ctx.open(&key)?.filter(|_| pipeline.decodes_parts()) else { return Ok(None) };
        let stored = StoredChunk::new(object.as_ref(), 0, object.size_bytes());
        stored.outcome(pipeline.block_bytes(&stored), &key)
    }

    fn keys(&self) -> &Keys {
        &self.keys
    }

    fn object(&self, chunk: &[u64]) -> u64 {
        self.axes.iter().zip(chunk).fold(0, |n, (axis, &i)| n * axis.count() + i)
    }

    fn objects(&self) -> u64 {
        self.axes.iter().map(Axis::count).product()
    }

    fn chunk_ranges(&self, object: u64) -> Vec<Range<u64>> {
        numbers(&self.axes, object).into_iter().map(|number| number..number + 1).collect()
    }

    fn encode(
        &self,
        ctx: &LoadContext<'_>,
        chunk: &[u64],
        bytes: &Arc<Buffer>,
    ) -> Result<Option<EncodedChunk>> {
        if !self.keeps_fill && is_all(&self.fill, bytes) {
            return Ok(None);
        }
        let key = self.key(ctx, chunk)?;
        EncodedChunk::new(&*self.pipeline(chunk)?, bytes).map(Some).map_err(unencodable(&key))
    }

    fn store(
        &self,
        ctx: &LoadContext<'_>,
        target: &Target<'_>,
        object: u64,
        encoded: &Encoded,
    ) -> Result<(String, Option<ObjectVersion>)> {
        let key = self.key(ctx, &numbers(&self.axes, object))?;
        let version = match encoded.get(&object) {
            Some(Some(bytes)) => {
                Some(target.writer.put(&key, &[ObjectPart::Bytes(bytes)], &target.options())?)
            }
            Some(None) => {
                target.writer.delete(&key, target.options().precondition)?;
                None
            }
            None => target.store.head(&key)?.map(|info| info.version),
        };
        Ok((key, version))
    }

    fn is_lossless(&self) -> bool {
        self.is_lossless
    }

    fn is_uncompressed(&self) -> bool {
        self.is_uncompressed
    }

    fn is_stored_as_served(&self) -> bool {
        self.pipelines.largest().is_ok_and(|pipeline| pipeline.is_identity())
    }

    fn open_raw(&self, ctx: &LoadContext<'_>, chunk: &[u64]) -> Result<Option<Box<dyn Object>>> {
        let key = self.key(ctx, chunk)?;
        let Some(object) = ctx.open(&key)? else { return Ok(None) };
        let (stored, expected) = (object.size_bytes(), self.pipeline(chunk)?.decoded_bytes() as u64);
        if stored != expected {
            return Err(Error::corrupt(key, format!("{stored} bytes stored; a chunk has {expected}")));
        }
        Ok(Some(object))
    }

    fn fix_raw(&self, elements: &mut [u8]) -> Result<()> {
        let pipeline = self.pipelines.largest()?;
        let fixed = pipeline.plain_bytes().map_or(Ok(()), |codec| codec.decode(elements));
        fixed.map_err(corrupt(&self.pipelines.document_key))
    }
}
