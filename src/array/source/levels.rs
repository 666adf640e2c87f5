//! The grid of an array's chunks, and the levels of sharding above it.
//!
//! Spec: v3 "Sharding codec". Uses `pipelines.rs`, `array/geometry`, `array/cache`, `codec` and `error`. Shards may be
//! nested: each level has its own grid and its own codec chain. Without a level, each chunk is an object.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::array::cache::CacheKey;
use crate::array::geometry::axis::{Axis, each_index, number_of, numbers};
use crate::array::source::pipelines::Pipelines;
use crate::codec::pipeline::{Pipeline, Sharded};
use crate::error::{Error, Result};

/// One level of sharding.
pub struct Level {
    /// The shards of this level over the whole array.
    pub shards: Vec<Axis>,
    /// The codec chain that ends in this level's sharding codec.
    pub pipelines: Pipelines,
}

impl Level {
    /// Returns the per-axis numbers of the shard that holds an element.
    pub fn shard_of(&self, elements: &[u64]) -> Vec<u64> {
        self.shards.iter().zip(elements).map(|(axis, &element)| axis.locate(element).index).collect()
    }

    /// Returns the codec chain of a shard, which depends on its shape.
    pub fn chain(&self, shard: &[u64]) -> Result<Arc<Pipeline>> {
        let shape = self.shards.iter().zip(shard).map(|(axis, &i)| axis.span(i).length);
        self.pipelines.for_shape(&shape.collect::<Vec<u64>>())
    }
}

/// The grid of an array's chunks, and the levels of sharding above it.
pub struct ShardLevels {
    /// From the outermost level inwards. The shards of the outermost level are objects.
    levels: Vec<Level>,
    /// The axes of the grid of chunks, in served order.
    chunk_axes: Vec<Axis>,
}

impl ShardLevels {
    /// Creates levels of shards over chunks with this grid.
    pub fn new(levels: Vec<Level>, chunk_axes: Vec<Axis>) -> Self {
        ShardLevels { levels, chunk_axes }
    }

    /// Returns whether objects hold several chunks.
    pub fn is_sharded(&self) -> bool {
        !self.levels.is_empty()
    }

    /// Returns how many levels of sharding there are.
    pub fn count(&self) -> usize {
        self.levels.len()
    }

    /// Returns a level, counted from the outermost one. `key` names the object in the error.
    pub fn level(&self, depth: usize, key: &str) -> Result<&Level> {
        self.levels.get(depth).ok_or_else(|| Error::corrupt(key, "the array has no shards at this level"))
    }

    /// Returns the axes of the grid of chunks, in served order.
    pub fn chunk_axes(&self) -> &[Axis] {
        &self.chunk_axes
    }

    /// Returns the axes of the grid of objects, in served order.
    pub fn object_axes(&self) -> &[Axis] {
        self.axes_at(0)
    }

    /// Returns the axes of the grid of what the shards of a level have inside.
    pub fn inner_axes(&self, depth: usize) -> &[Axis] {
        self.axes_at(depth + 1)
    }

    fn axes_at(&self, depth: usize) -> &[Axis] {
        self.levels.get(depth).map_or(&self.chunk_axes, |level| &level.shards)
    }

    /// Returns how many objects the array has, stored or not.
    pub fn objects(&self) -> u64 {
        self.object_axes().iter().map(Axis::count).product()
    }

    /// Returns the number of the object that holds the chunk.
    pub fn object_of(&self, chunk: &[u64]) -> u64 {
        number_of(self.object_axes(), &self.object_index(chunk))
    }

    /// Returns the per-axis numbers of the object that holds the chunk.
    pub fn object_index(&self, chunk: &[u64]) -> Vec<u64> {
        match self.levels.first() {
            Some(level) => level.shard_of(&self.first_elements(chunk)),
            None => chunk.to_vec(),
        }
    }

    /// Returns the per-axis numbers of a chunk's first elements.
    pub fn first_elements(&self, chunk: &[u64]) -> Vec<u64> {
        self.chunk_axes.iter().zip(chunk).map(|(axis, &i)| axis.span(i).start).collect()
    }

    /// Returns the per-axis numbers of the chunks in an object.
    pub fn chunk_ranges(&self, object: u64) -> Vec<Range<u64>> {
        self.chunks_below(self.object_axes(), &numbers(self.object_axes(), object))
    }

    /// Returns the per-axis numbers of the chunks in one box of a coarser grid.
    fn chunks_below(&self, coarser: &[Axis], index: &[u64]) -> Vec<Range<u64>> {
        let axes = self.chunk_axes.iter().zip(coarser).zip(index);
        axes.map(|((axis, outer), &number)| axis.chunks_of(&outer.elements(number))).collect()
    }

    /// Returns how many chunks an object has.
    pub fn chunk_count(&self, object: u64) -> u64 {
        self.chunk_ranges(object).into_iter().map(|range| range.end - range.start).product()
    }

    /// Returns the numbers of the chunks in an object.
    pub fn chunks_of(&self, object: u64) -> Vec<u64> {
        let mut chunks = Vec::new();
        let _ = each_index(&self.chunk_axes, &self.chunk_ranges(object), &mut |chunk| {
            chunks.push(chunk);
            ControlFlow::Continue(())
        });
        chunks
    }

    /// Calls `each` with the number of each chunk in an inner chunk of the outermost shards, which may be a shard
    /// itself.
    pub fn each_chunk_below(
        &self,
        inner: &[u64],
        each: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        each_index(&self.chunk_axes, &self.chunks_below(self.inner_axes(0), inner), each)
    }

    /// Returns the cache key of the index of a level's shard, in the array with the number `array`.
    pub fn index_key(&self, array: u64, depth: usize, shard: &[u64]) -> CacheKey {
        CacheKey { array, level: depth as u32 + 1, number: number_of(self.axes_at(depth), shard) }
    }

    /// Returns the place, in stored order, of the inner chunk that holds `elements` in its shard of a level. `key`
    /// names the object in the error.
    pub fn place_in_shard(
        &self,
        depth: usize,
        sharded: &Sharded<'_>,
        elements: &[u64],
        key: &str,
    ) -> Result<usize> {
        let (shards, inner_axes) = (self.axes_at(depth), self.inner_axes(depth));
        let mut place = 0;
        for (&axis, &count) in sharded.permutation.iter().zip(&sharded.codec.chunks_per_shard) {
            let (Some(&element), Some(cut), Some(outer)) =
                (elements.get(axis), inner_axes.get(axis), shards.get(axis))
            else {
                return Err(Error::corrupt(key, "the shard's rank differs from the array's"));
            };
            let inside = element - outer.locate(element).start;
            place = place * count + inside / cut.longest().max(1);
        }
        Ok(place as usize)
    }

    /// Returns the per-axis numbers, over the whole array, of the inner chunk at a place of a shard: the inverse of
    /// [`ShardLevels::place_in_shard`]. `None` if the inner chunk lies past the array's edge.
    pub fn inner_at(
        &self,
        depth: usize,
        shard: &[u64],
        sharded: &Sharded<'_>,
        place: usize,
    ) -> Option<Vec<u64>> {
        let (shards, inner_axes) = (self.axes_at(depth), self.inner_axes(depth));
        let mut rest = place as u64;
        let mut inner = vec![0; shard.len()];
        for (&axis, &count) in sharded.permutation.iter().zip(&sharded.codec.chunks_per_shard).rev() {
            let (inside, outer) = (rest % count.max(1), shards.get(axis)?.span(*shard.get(axis)?));
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

/// Returns the sharding codec at the end of a shard's chain.
pub fn sharding<'a>(chain: &'a Pipeline, key: &str) -> Result<Sharded<'a>> {
    let reason = "the codec chain for this shard's shape has no sharding codec";
    chain.sharding().ok_or_else(|| Error::corrupt(key, reason))
}

/// Returns the shape of the inner chunks in array coordinates: undoes the permutation of the codecs before.
pub fn inner_shape(sharded: &Sharded<'_>) -> Vec<u64> {
    let mut shape = vec![0; sharded.permutation.len()];
    for (&axis, &length) in sharded.permutation.iter().zip(&sharded.codec.inner_shape) {
        if let Some(slot) = shape.get_mut(axis) {
            *slot = length;
        }
    }
    shape
}
