//! Rewriting shards: one new object with the changed inner chunks, and with the encoded bytes of the others copied.
//!
//! Spec: v3 "Sharding codec", "Implementation notes", Encoding. Uses its neighbours, `store` and `codec`.

use std::ops::Range;

use crate::array::cache::Key;
use crate::array::geometry::grid::numbers;
use crate::array::source::replacement::Encoded;
use crate::array::source::replacement::Target;
use crate::array::source::sharded::{Sharded, read_index};
use crate::array::source::{LoadContext, Source, corrupt, unencodable};
use crate::error::{Error, Result};
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
}

/// The input of a rewrite of one object.
struct Rebuild<'a> {
    ctx: &'a LoadContext<'a>,
    key: &'a str,
    /// The object's present content.
    old: Option<&'a dyn Object>,
    encoded: &'a Encoded,
    /// First elements of the changed chunks.
    changed: Vec<Vec<u64>>,
}

impl Sharded {
    /// The per-axis numbers of the chunks in a shard of the outermost level.
    pub(in crate::array) fn chunks_of_shard(&self, object: u64) -> Vec<Range<u64>> {
        let shard = numbers(self.shards(), object);
        let axes = self.axes.iter().zip(self.shards()).zip(&shard);
        axes.map(|((axis, outer), &number)| {
            let span = outer.span(number);
            let end = (span.start + span.length).min(axis.extent());
            axis.locate(span.start).index..axis.locate(end.saturating_sub(1)).index + 1
        })
        .collect()
    }

    /// Whether these chunks replace everything in the shard that lies in the array. Chunks past the array's edge are
    /// dropped, like the elements past the edge inside a chunk.
    fn is_whole(&self, object: u64, encoded: &Encoded) -> bool {
        self.chunks_of(object).iter().all(|chunk| encoded.contains_key(chunk))
    }

    /// Replaces these inner chunks of a shard. Deletes the shard if all its inner chunks are empty.
    pub(in crate::array) fn store_shard(
        &self,
        ctx: &LoadContext<'_>,
        target: &Target<'_>,
        object: u64,
        encoded: &Encoded,
    ) -> Result<(String, Option<ObjectVersion>)> {
        let shard = numbers(self.shards(), object);
        let key = self.keys.key(ctx.store, &shard)?;
        let is_new = target.is_zero || self.is_whole(object, encoded);
        let old = if is_new { None } else { target.store.open(&key)? };
        let changed = encoded.keys().map(|&chunk| self.first_elements(&numbers(&self.axes, chunk))).collect();
        let rebuild = Rebuild { ctx, key: &key, old: old.as_deref(), encoded, changed };
        let extent = old.as_ref().map(|object| 0..object.size_bytes());
        let shard_parts = self.rebuild(&rebuild, 0, &shard, extent)?;
        let version = match shard_parts {
            None => {
                target.writer.delete(&key, target.options().precondition)?;
                None
            }
            Some(shard_parts) => {
                let mut parts = Vec::with_capacity(shard_parts.len());
                for part in &shard_parts {
                    parts.push(match (part, old.as_deref()) {
                        (ShardPart::Encoded(bytes), _) => ObjectPart::Bytes(bytes),
                        (ShardPart::Index(bytes), _) => ObjectPart::Bytes(bytes),
                        (ShardPart::Copy(range), Some(old)) => ObjectPart::Copy(old, range.clone()),
                        (ShardPart::Copy(_), None) => {
                            return Err(Error::corrupt(key, "the shard disappeared during its rewrite"));
                        }
                    });
                }
                Some(target.writer.put(&key, &parts, &target.options())?)
            }
        };
        Ok((key, version))
    }

    /// The parts of one shard of a level; `None` if it is empty. `old` is its range in the old object.
    fn rebuild<'a>(
        &self,
        from: &Rebuild<'a>,
        depth: usize,
        shard: &[u64],
        old: Option<Range<u64>>,
    ) -> Result<Option<Vec<ShardPart<'a>>>> {
        let key = from.key;
        let Some(level) = self.levels.get(depth) else {
            return Err(Error::corrupt(key, "the array has no shards at this level"));
        };
        let shape: Vec<u64> = level.shards.iter().zip(shard).map(|(a, &i)| a.span(i).length).collect();
        let chain = level.pipelines.of_shape(&shape)?;
        let Some(sharded) = chain.sharding() else {
            return Err(Error::corrupt(key, "the codec chain for this shard's shape has no sharding codec"));
        };
        let index = match (from.old, &old) {
            (Some(object), Some(range)) => {
                let number = level.shards.iter().zip(shard).fold(0, |n, (axis, &i)| n * axis.count() + i);
                let cache_key = Key { array: from.ctx.array, level: depth as u32 + 1, number };
                let extent = (range.start, range.end - range.start);
                Some(read_index(from.ctx, object, key, cache_key, sharded.codec, extent)?)
            }
            _ => None,
        };
        let index_size = sharded.codec.index_size_bytes() as u64;
        let is_first = sharded.codec.index_location == crate::codec::sharding_indexed::IndexLocation::Start;
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
            let inner = self.inner_of(depth, shard, &sharded, number);
            let new = match inner {
                // Past the array's edge: no reader sees it, but this program must not drop it.
                None => kept.map(|range| vec![ShardPart::Copy(range)]),
                Some(inner) => self.inner_parts(from, depth, &inner, kept)?,
            };
            let length: Option<u64> = new.as_ref().map(|new| new.iter().map(ShardPart::size_bytes).sum());
            places.push(length.map(|length| offset..offset + length));
            offset += length.unwrap_or(0);
            shard_parts.extend(new.into_iter().flatten());
        }
        let reads_as_missing = if depth == 0 { sharded.fill == self.fill } else { self.fills_agree };
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

    /// The parts of one inner chunk, which is a chunk or a shard of the next level.
    fn inner_parts<'a>(
        &self,
        from: &Rebuild<'a>,
        depth: usize,
        inner: &[u64],
        kept: Option<Range<u64>>,
    ) -> Result<Option<Vec<ShardPart<'a>>>> {
        match self.levels.get(depth + 1) {
            None => {
                let chunk = self.axes.iter().zip(inner).fold(0, |n, (axis, &i)| n * axis.count() + i);
                Ok(match from.encoded.get(&chunk) {
                    Some(encoded) => encoded.as_deref().map(|bytes| vec![ShardPart::Encoded(bytes)]),
                    None => kept.map(|range| vec![ShardPart::Copy(range)]),
                })
            }
            Some(next) => {
                let is_changed = from.changed.iter().any(|elements| {
                    let shard = next.shards.iter().zip(elements);
                    shard.zip(inner).all(|((axis, &element), &i)| axis.locate(element).index == i)
                });
                if is_changed {
                    self.rebuild(from, depth + 1, inner, kept)
                } else {
                    Ok(kept.map(|range| vec![ShardPart::Copy(range)]))
                }
            }
        }
    }

    /// Per-axis numbers, over the whole array, of inner chunk `number` (in stored order) of a shard. `None` if it lies
    /// past the array's edge.
    fn inner_of(
        &self,
        depth: usize,
        shard: &[u64],
        sharded: &crate::codec::pipeline::Sharded<'_>,
        number: usize,
    ) -> Option<Vec<u64>> {
        let level = self.levels.get(depth)?;
        let inner_axes = self.levels.get(depth + 1).map_or(&self.axes, |next| &next.shards);
        let mut rest = number as u64;
        let mut inner = vec![0; shard.len()];
        for (&axis, &count) in sharded.permutation.iter().zip(&sharded.codec.chunks_per_shard).rev() {
            let (inside, outer) = (rest % count.max(1), level.shards.get(axis)?.span(*shard.get(axis)?));
            rest /= count.max(1);
            let cut = inner_axes.get(axis)?;
            let element = outer.start + inside * cut.longest();
            if element >= cut.extent() {
                return None;
            }
            *inner.get_mut(axis)? = cut.locate(element).index;
        }
        Some(inner)
    }
}
