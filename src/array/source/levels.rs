//! The levels of sharding of an array: shards, and the codec chains that lead into them.
//!
//! Spec: v3 "Sharding codec". Uses `pipelines.rs`, `array/geometry`, `codec` and `error`. Shards may be nested: each level has
//! its own grid and its own chain.

use crate::array::geometry::axis::Axis;
use crate::array::source::pipelines::Pipelines;
use crate::codec::pipeline::{Pipeline, Sharded};
use crate::error::{Error, Result};

/// One level of sharding.
pub(in crate::array) struct Level {
    /// The shards of this level over the whole array.
    pub shards: Vec<Axis>,
    /// The codec chain that ends in this level's sharding codec.
    pub pipelines: Pipelines,
}

impl Level {
    /// Per-axis numbers of the shard that holds an element.
    pub fn shard_of(&self, elements: &[u64]) -> Vec<u64> {
        self.shards.iter().zip(elements).map(|(axis, &element)| axis.locate(element).index).collect()
    }

    /// The shape of a shard.
    pub fn shape_of(&self, shard: &[u64]) -> Vec<u64> {
        self.shards.iter().zip(shard).map(|(axis, &i)| axis.span(i).length).collect()
    }
}

/// The sharding codec at the end of a shard's chain.
pub(in crate::array) fn sharding<'a>(chain: &'a Pipeline, key: &str) -> Result<Sharded<'a>> {
    let reason = "the codec chain for this shard's shape has no sharding codec";
    chain.sharding().ok_or_else(|| Error::corrupt(key, reason))
}

/// The shape of the inner chunks in array coordinates: undoes the permutation of the codecs before.
pub(in crate::array) fn inner_shape(sharded: &Sharded<'_>) -> Vec<u64> {
    let mut shape = vec![0; sharded.permutation.len()];
    for (&axis, &length) in sharded.permutation.iter().zip(&sharded.codec.inner_shape) {
        if let Some(slot) = shape.get_mut(axis) {
            *slot = length;
        }
    }
    shape
}
