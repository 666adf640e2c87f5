//! Storing shards: the inner chunks that changed are replaced, the others copied as bytes, in one new object.
//!
//! Spec: v3 "Sharding codec", "Implementation notes", Encoding. Uses `store` and `codec`.

use std::ops::Range;

use crate::array::cache::Key;
use crate::array::geometry::grid::numbers;
use crate::array::source::replacement::Encoded;
use crate::array::source::replacement::Target;
use crate::array::source::sharded::{Sharded, read_index};
use crate::array::source::{LoadContext, Source, corrupt, unencodable};
use crate::error::{Error, Result};
use crate::store::{Object, ObjectPart, ObjectVersion};

/// A piece of a new shard.
enum Piece<'a> {
    /// An inner chunk that changed.
    Encoded(&'a [u8]),
    /// An index.
    Index(Vec<u8>),
    /// What the old object has there.
    Kept(Range<u64>),
}

impl Piece<'_> {
    fn size_bytes(&self) -> u64 {
        match self {
            Piece::Encoded(bytes) => bytes.len() as u64,
            Piece::Index(bytes) => bytes.len() as u64,
            Piece::Kept(range) => range.end - range.start,
        }
    }
}

/// What the shards of one object are rebuilt from.
struct Rebuild<'a> {
    at: &'a LoadContext<'a>,
    key: &'a str,
    /// The object as it is now.
    old: Option<&'a dyn Object>,
    encoded: &'a Encoded,
    /// First elements of the chunks that changed.
    changed: Vec<Vec<u64>>,
}

impl Sharded {
    /// The numbers on each axis of the chunks in a shard of the outermost level.
    pub(in crate::array) fn chunks_of_shard(&self, object: u64) -> Vec<Range<u64>> {
        let shard = numbers(self.shards(), object);
        let axes = self.axes.iter().zip(self.shards()).zip(&shard);
        axes.map(|((axis, outer), &number)| {
            let span = outer.span(number);
            let behind = (span.start + span.length).min(axis.extent());
            axis.locate(span.start).index..axis.locate(behind.saturating_sub(1)).index + 1
        })
        .collect()
    }

    /// Whether nothing of a shard that anybody reads is left when these of its chunks are replaced. What lies beyond the array goes
    /// with it, as the elements of a chunk do that lie there.
    fn is_whole(&self, object: u64, encoded: &Encoded) -> bool {
        self.chunks_of(object).iter().all(|chunk| encoded.contains_key(chunk))
    }

    /// Puts a shard with these of its inner chunks replaced, or deletes it where all are empty.
    pub(in crate::array) fn store_shard(
        &self,
        at: &LoadContext<'_>,
        target: &Target<'_>,
        object: u64,
        encoded: &Encoded,
    ) -> Result<(String, Option<ObjectVersion>)> {
        let shard = numbers(self.shards(), object);
        let key = self.keys.key(at.store, &shard)?;
        let is_new = target.is_zero || self.is_whole(object, encoded);
        let old = if is_new { None } else { target.store.open(&key)? };
        let changed = encoded.keys().map(|&chunk| self.first_elements(&numbers(&self.axes, chunk))).collect();
        let rebuild = Rebuild { at, key: &key, old: old.as_deref(), encoded, changed };
        let extent = old.as_ref().map(|object| 0..object.size_bytes());
        let pieces = self.rebuild(&rebuild, 0, &shard, extent)?;
        let version = match pieces {
            None => {
                target.writer.delete(&key)?;
                None
            }
            Some(pieces) => {
                let mut parts = Vec::with_capacity(pieces.len());
                for piece in &pieces {
                    parts.push(match (piece, old.as_deref()) {
                        (Piece::Encoded(bytes), _) => ObjectPart::Bytes(bytes),
                        (Piece::Index(bytes), _) => ObjectPart::Bytes(bytes),
                        (Piece::Kept(range), Some(old)) => ObjectPart::Copy(old, range.clone()),
                        (Piece::Kept(_), None) => {
                            return Err(Error::corrupt(key, "a part is kept of a shard that is missing"));
                        }
                    });
                }
                Some(target.writer.put(&key, &parts, target.within, target.like)?)
            }
        };
        Ok((key, version))
    }

    /// The pieces of one shard of a level, `None` where it holds nothing. `old` is where it lies in the old object.
    fn rebuild<'a>(
        &self,
        from: &Rebuild<'a>,
        depth: usize,
        shard: &[u64],
        old: Option<Range<u64>>,
    ) -> Result<Option<Vec<Piece<'a>>>> {
        let key = from.key;
        let Some(level) = self.levels.get(depth) else {
            return Err(Error::corrupt(key, "no such level of shards"));
        };
        let shape: Vec<u64> = level.shards.iter().zip(shard).map(|(a, &i)| a.span(i).length).collect();
        let chain = level.pipelines.of_shape(&shape)?;
        let Some(sharded) = chain.sharding() else {
            return Err(Error::corrupt(key, "the chain of this shard's shape is another"));
        };
        let index = match (from.old, &old) {
            (Some(object), Some(range)) => {
                let number = level.shards.iter().zip(shard).fold(0, |n, (axis, &i)| n * axis.count() + i);
                let cache_key = Key { array: from.at.array, level: depth as u32 + 1, number };
                let extent = (range.start, range.end - range.start);
                Some(read_index(from.at, object, key, cache_key, sharded.codec, extent)?)
            }
            _ => None,
        };
        let index_size = sharded.codec.index_size_bytes() as u64;
        let is_first = sharded.codec.index_location == crate::codec::sharding_indexed::IndexLocation::Start;
        let mut pieces = Vec::new();
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
                // Beyond the array: nobody reads it, but it is not ours to drop.
                None => kept.map(|range| vec![Piece::Kept(range)]),
                Some(inner) => self.inner_pieces(from, depth, &inner, kept)?,
            };
            let length: Option<u64> = new.as_ref().map(|new| new.iter().map(Piece::size_bytes).sum());
            places.push(length.map(|length| offset..offset + length));
            offset += length.unwrap_or(0);
            pieces.extend(new.into_iter().flatten());
        }
        let reads_as_missing = if depth == 0 { sharded.fill == self.fill } else { self.fills_agree };
        if pieces.is_empty() && reads_as_missing {
            return Ok(None);
        }
        let index = Piece::Index(sharded.codec.encode_index(&places).map_err(unencodable(key))?);
        if is_first {
            pieces.insert(0, index);
        } else {
            pieces.push(index);
        }
        Ok(Some(pieces))
    }

    /// The pieces of one inner chunk, which is a chunk or a shard of the next level.
    fn inner_pieces<'a>(
        &self,
        from: &Rebuild<'a>,
        depth: usize,
        inner: &[u64],
        kept: Option<Range<u64>>,
    ) -> Result<Option<Vec<Piece<'a>>>> {
        match self.levels.get(depth + 1) {
            None => {
                let chunk = self.axes.iter().zip(inner).fold(0, |n, (axis, &i)| n * axis.count() + i);
                Ok(match from.encoded.get(&chunk) {
                    Some(encoded) => encoded.as_deref().map(|bytes| vec![Piece::Encoded(bytes)]),
                    None => kept.map(|range| vec![Piece::Kept(range)]),
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
                    Ok(kept.map(|range| vec![Piece::Kept(range)]))
                }
            }
        }
    }

    /// Per-axis numbers, over the whole array, of inner chunk `number` (in stored order) of a shard; `None` where it lies
    /// beyond the array.
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
