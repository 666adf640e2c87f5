//! Encoding chunks, and rewriting the object that holds them.
//!
//! Spec: v3 "Sharding codec", "Implementation notes", Encoding. A chunk that is an object is put as it is. A shard is
//! one new object with the changed inner chunks, and with the encoded bytes of the others copied. Uses its neighbours,
//! `array/geometry`, `store`, `codec` and `memory`.

use std::ops::Range;
use std::sync::Arc;

use crate::array::geometry::axis::{number_of, numbers};
use crate::array::source::levels::sharding;
use crate::array::source::loading::load_context::LoadContext;
use crate::array::source::locate::read_index;
use crate::array::source::replacement::{Encoded, EncodedChunk, PutTarget};
use crate::array::source::{ArraySource, corrupt, unencodable};
use crate::codec::sharding_indexed::IndexLocation;
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::store::{Object, ObjectPart, ObjectVersion};

/// A part of a new shard.
enum ShardPart<'a> {
    /// An inner chunk that changed.
    Encoded(&'a [u8]),
    /// An index.
    Index(Vec<u8>),
    /// A copy of these bytes of the old object.
    Copy(Range<u64>),
}

impl ShardPart<'_> {
    fn size_bytes(&self) -> u64 {
        match self {
            ShardPart::Encoded(bytes) => bytes.len() as u64,
            ShardPart::Index(bytes) => bytes.len() as u64,
            ShardPart::Copy(range) => range.end - range.start,
        }
    }

    /// Returns the part for a put. `old` has the bytes that are copied.
    fn object_part<'b>(&'b self, old: Option<&'b dyn Object>, key: &str) -> Result<ObjectPart<'b>> {
        match (self, old) {
            (ShardPart::Encoded(bytes), _) => Ok(ObjectPart::Bytes(bytes)),
            (ShardPart::Index(bytes), _) => Ok(ObjectPart::Bytes(bytes)),
            (ShardPart::Copy(range), Some(old)) => Ok(ObjectPart::Copy(old, range.clone())),
            (ShardPart::Copy(_), None) => {
                Err(Error::corrupt(key, "the shard disappeared during its rewrite"))
            }
        }
    }
}

/// A rewrite of one object.
struct Rewrite<'a> {
    source: &'a ArraySource,
    ctx: &'a LoadContext<'a>,
    key: &'a str,
    /// The object's present content.
    old: Option<&'a dyn Object>,
    encoded: &'a Encoded,
    /// First elements of the changed chunks.
    changed: Vec<Vec<u64>>,
}

impl ArraySource {
    /// Encodes a chunk. `None` if it need not be stored, because it is all fill value.
    pub(in crate::array) fn encode(
        &self,
        ctx: &LoadContext<'_>,
        chunk: &[u64],
        bytes: &Arc<Buffer>,
    ) -> Result<Option<EncodedChunk>> {
        if self.unstored.as_ref().is_some_and(|unstored| is_all(unstored, bytes)) {
            return Ok(None);
        }
        let key = self.key(ctx, chunk)?;
        EncodedChunk::new(&*self.pipeline(chunk)?, bytes).map(Some).map_err(unencodable(&key))
    }

    /// Replaces these chunks of an object. Deletes the object if nothing is left in it. Returns its key and new
    /// version.
    pub(in crate::array) fn rewrite(
        &self,
        ctx: &LoadContext<'_>,
        target: &PutTarget<'_>,
        object: u64,
        encoded: &Encoded,
    ) -> Result<(String, Option<ObjectVersion>)> {
        let index = numbers(self.levels.object_axes(), object);
        let key = self.keys.key(ctx.store, &index)?;
        // Nothing was encoded, because all chunks are retired.
        if encoded.is_empty() {
            let version = target.store.head_object(&key)?.map(|info| info.version);
            return Ok((key, version));
        }
        // Chunks past the array's edge are dropped, like the elements past the edge inside a chunk.
        let is_whole = || self.levels.chunks_of(object).iter().all(|chunk| encoded.contains_key(chunk));
        let is_new = target.is_zero || is_whole();
        let old = if is_new { None } else { target.store.open(&key)? };
        if !is_new {
            // What is copied comes from the version that is replaced.
            target.precondition.check(&key, || Ok(old.as_ref().map(|old| old.version())))?;
        }
        let changed = encoded
            .keys()
            .map(|&chunk| self.levels.first_elements(&numbers(self.levels.chunk_axes(), chunk)))
            .collect();
        let rewrite = Rewrite { source: self, ctx, key: &key, old: old.as_deref(), encoded, changed };
        let extent = old.as_ref().map(|object| 0..object.size_bytes());
        let new = if self.levels.is_sharded() {
            rewrite.shard(0, &index, extent)?
        } else {
            rewrite.inner_chunk(object, None)
        };
        let version = match new {
            None => {
                target.writer.delete(&key, target.options().precondition)?;
                None
            }
            Some(parts) => {
                let parts = parts.iter().map(|part| part.object_part(old.as_deref(), &key));
                let parts = parts.collect::<Result<Vec<ObjectPart<'_>>>>()?;
                Some(target.writer.put(&key, &parts, &target.options())?)
            }
        };
        Ok((key, version))
    }
}

impl<'a> Rewrite<'a> {
    /// Returns the parts of one shard of a level; `None` if it is empty. `old` is its range in the old object.
    fn shard(
        &self,
        depth: usize,
        shard: &[u64],
        old: Option<Range<u64>>,
    ) -> Result<Option<Vec<ShardPart<'a>>>> {
        let (source, key) = (self.source, self.key);
        let chain = source.levels.level(depth, key)?.chain(shard)?;
        let sharded = sharding(&chain, key)?;
        let index = match (self.old, &old) {
            (Some(object), Some(range)) => {
                let index_key = source.levels.index_key(self.ctx.array, depth, shard);
                Some(read_index(self.ctx, object, key, index_key, sharded.codec, range.clone())?)
            }
            _ => None,
        };
        let index_size = sharded.codec.index_size_bytes() as u64;
        let is_first = sharded.codec.index_location == IndexLocation::Start;
        let mut shard_parts = Vec::new();
        let mut places = Vec::with_capacity(sharded.codec.chunk_count());
        let mut offset = if is_first { index_size } else { 0 };
        for number in 0..sharded.codec.chunk_count() {
            let kept = match &index {
                Some(index) => index.chunk(number).map_err(corrupt(key))?,
                None => None,
            };
            let base = old.as_ref().map_or(0, |range| range.start);
            let kept = kept.map(|range| base + range.start..base + range.end);
            let inner = source.levels.inner_at(depth, shard, &sharded, number);
            let new = match inner {
                // It lies past the array's edge: no reader sees it, but a rewrite must not drop it.
                None => kept.map(|range| vec![ShardPart::Copy(range)]),
                Some(inner) => self.inner_parts(depth, &inner, kept)?,
            };
            let length: Option<u64> = new.as_ref().map(|new| new.iter().map(ShardPart::size_bytes).sum());
            places.push(length.map(|length| offset..offset + length));
            offset += length.unwrap_or(0);
            shard_parts.extend(new.into_iter().flatten());
        }
        let reads_as_missing = if depth == 0 { sharded.fill == source.fill } else { source.fills_agree };
        if shard_parts.is_empty() && reads_as_missing {
            return Ok(None);
        }
        let index = ShardPart::Index(sharded.codec.encode_index(&places).map_err(unencodable(key))?);
        if is_first {
            shard_parts.insert(0, index);
        } else {
            shard_parts.push(index);
        }
        Ok(Some(shard_parts))
    }

    /// Returns the parts of one inner chunk, which is a chunk or a shard of the next level.
    fn inner_parts(
        &self,
        depth: usize,
        inner: &[u64],
        kept: Option<Range<u64>>,
    ) -> Result<Option<Vec<ShardPart<'a>>>> {
        let levels = &self.source.levels;
        if depth + 1 == levels.count() {
            return Ok(self.inner_chunk(number_of(levels.chunk_axes(), inner), kept));
        }
        let next = levels.level(depth + 1, self.key)?;
        if self.changed.iter().any(|elements| next.shard_of(elements) == inner) {
            self.shard(depth + 1, inner, kept)
        } else {
            Ok(kept.map(|range| vec![ShardPart::Copy(range)]))
        }
    }

    /// Returns the parts of one chunk: the encoded ones, or else those of the old object.
    fn inner_chunk(&self, chunk: u64, kept: Option<Range<u64>>) -> Option<Vec<ShardPart<'a>>> {
        match self.encoded.get(&chunk) {
            Some(encoded) => encoded.as_deref().map(|bytes| vec![ShardPart::Encoded(bytes)]),
            None => kept.map(|range| vec![ShardPart::Copy(range)]),
        }
    }
}

/// Returns whether `bytes` repeat `fill`.
fn is_all(fill: &[u8], bytes: &[u8]) -> bool {
    let is_periodic = || match bytes.len().checked_sub(fill.len()) {
        Some(rest) => bytes.get(fill.len()..) == bytes.get(..rest),
        None => false,
    };
    bytes.starts_with(fill) && is_periodic()
}
