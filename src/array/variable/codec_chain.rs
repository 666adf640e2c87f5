//! The codec chain of an array with elements of no fixed size: from stored bytes to elements.
//!
//! Spec: v3 core "Codecs"; zarr-extensions vlen-utf8 and vlen-bytes; v3 "Sharding codec". Uses `metadata`, `codec`, and
//! in `array` `cache` and `source`.
//!
//! A chain has transposes, then `vlen-utf8`, `vlen-bytes` or a `sharding_indexed` with such a chain inside, then
//! bytes-to-bytes codecs. A transpose does not move elements here: it says where in its chunk an element is stored. A
//! shard is split in memory. Its index is that of a `sharding_indexed` over elements of one byte, so that codec applies
//! its rules.

use serde_json::json;

use crate::array::reservation::Reservation;
use crate::array::source::{MAX_LEVELS, corrupt};
use crate::array::variable::element_row::{ChunkLayout, ElementRow, next_index, reserve};
use crate::codec::shard_index::ShardIndex;
use crate::codec::sharding_indexed::ShardingIndexed;
use crate::codec::vlen::Vlen;
use crate::codec::vlen_indexed::VlenIndexed;
use crate::codec::{
    ArrayToBytes, BytesToBytes, Codec, CodecError, CodecInput, CodecResult, EncodedSize, Representation,
    check_chain_length, registry,
};
use crate::error::{Error, Result};
use crate::metadata::{CodecFamily, CodecSpec, DataType, FillValue, codec_spec};

/// A codec chain for one shape of chunk.
pub struct VariableChain {
    inside: ChainEnd,
    bytes_codecs: Vec<(String, Box<dyn BytesToBytes>)>,
}

enum ChainEnd {
    /// The elements of the chunk.
    Elements { vlen: Vlen, chunk: ChunkLayout },
    /// The elements of the chunk, after their offsets.
    Indexed { vlen: Vlen, chunk: ChunkLayout, codec: Box<VlenIndexed> },
    /// Inner chunks, all of one shape.
    Shard {
        /// `sharding_indexed` over elements of one byte.
        codec: Box<dyn ArrayToBytes>,
        /// The step from one inner chunk to the next, in array coordinates, for each stored axis.
        steps: Vec<(usize, u64)>,
        inner: Box<VariableChain>,
    },
}

/// Where a decoded chunk goes.
pub struct DecodeTarget<'a> {
    /// The key of the object.
    pub key: &'a str,
    /// Receives the elements.
    pub elements: &'a mut ElementRow,
    /// The reservation for all the memory.
    pub held: &'a mut Reservation,
}

impl VariableChain {
    /// Builds the chain for chunks of this shape, with elements of `vlen`.
    pub fn build(specs: &[CodecSpec], shape: &[u64], vlen: Vlen) -> CodecResult<VariableChain> {
        let axes: Vec<usize> = (0..shape.len()).collect();
        VariableChain::build_level(specs, shape, axes, vlen, 0)
    }

    /// Builds the chain of one level of sharding. `axes[i]` is the axis of the array that is axis i at this level.
    /// `shape` is in the order of this level.
    fn build_level(
        specs: &[CodecSpec],
        shape: &[u64],
        mut axes: Vec<usize>,
        vlen: Vlen,
        level: usize,
    ) -> CodecResult<VariableChain> {
        check_chain_length(specs)?;
        let mut shape = shape.to_vec();
        let mut inside = None;
        let mut bytes_codecs = Vec::new();
        for spec in specs {
            let is_known = registry::find(spec.family, &spec.name).is_some();
            if inside.is_some() {
                if is_known || spec.must_understand {
                    bytes_codecs.push((spec.name.clone(), bytes_codec(spec).map_err(at(spec))?));
                }
            } else if VlenIndexed::is_named(spec) {
                let chunk = layout(&shape, &axes)?;
                let codec = Box::new(VlenIndexed::build(spec, chunk.count).map_err(at(spec))?);
                inside = Some(ChainEnd::Indexed { vlen, chunk, codec });
            } else if let Some(found) = Vlen::find(spec.family, &spec.name, vlen) {
                if found != vlen {
                    let reason = format!("codec \"{}\" does not match the data type", spec.name);
                    return Err(at(spec)(CodecError::unsupported(reason)));
                }
                inside = Some(ChainEnd::Elements { vlen, chunk: layout(&shape, &axes)? });
            } else if spec.family == CodecFamily::V3 && spec.name == "sharding_indexed" {
                inside = Some(shard(spec, &shape, &axes, vlen, level).map_err(at(spec))?);
            } else if is_known || spec.must_understand {
                let order = permutation(spec, &shape).map_err(at(spec))?;
                shape = order.iter().filter_map(|&axis| shape.get(axis).copied()).collect();
                axes = order.iter().filter_map(|&axis| axes.get(axis).copied()).collect();
            }
        }
        let inside = inside.ok_or_else(|| {
            CodecError::new("\"codecs\" has no codec that turns elements of variable length into bytes")
        })?;
        Ok(VariableChain { inside, bytes_codecs })
    }

    /// Decodes a chunk that begins at element `origin`. Skips elements outside the row.
    pub fn decode(&self, encoded: &[u8], origin: &[u64], into: &mut DecodeTarget<'_>) -> Result<()> {
        self.undo(self.bytes_codecs.len(), encoded, origin, into)
    }

    /// Undoes the last `stages` bytes-to-bytes codecs, then decodes what is inside.
    fn undo(&self, stages: usize, bytes: &[u8], origin: &[u64], into: &mut DecodeTarget<'_>) -> Result<()> {
        let Some(before) = stages.checked_sub(1) else { return self.place(bytes, origin, into) };
        let Some((name, codec)) = self.bytes_codecs.get(before) else {
            return Err(Error::corrupt(into.key, "no such codec"));
        };
        let limit_bytes = usize::try_from(into.held.limit_bytes()).unwrap_or(usize::MAX);
        let decoded = codec.decode(bytes, limit_bytes).map_err(|error| {
            let reason = format!("codec \"{name}\": {}", error.reason);
            corrupt(into.key)(CodecError { reason, ..error })
        })?;
        into.reserve(decoded.len())?;
        self.undo(before, &decoded, origin, into)?;
        into.held.shrink(decoded.len() as u64);
        Ok(())
    }

    fn place(&self, bytes: &[u8], origin: &[u64], into: &mut DecodeTarget<'_>) -> Result<()> {
        match &self.inside {
            ChainEnd::Elements { vlen, chunk } => {
                let elements = vlen.decode(bytes, chunk.count).map_err(corrupt(into.key))?;
                into.elements.put(origin, chunk, &elements, into.held, into.key)
            }
            ChainEnd::Indexed { vlen, chunk, codec } => {
                into.reserve(codec.index_bytes())?;
                let index = codec.decode_index(bytes).map_err(corrupt(into.key))?;
                reserve(into.held, index.data_bytes(), into.key)?;
                let data = codec.decode_data(&index).map_err(corrupt(into.key))?;
                let elements = index.elements(&data).map_err(corrupt(into.key))?;
                vlen.check(&elements).map_err(corrupt(into.key))?;
                into.elements.put(origin, chunk, &elements, into.held, into.key)?;
                into.held.shrink(index.data_bytes() + codec.index_bytes() as u64);
                Ok(())
            }
            ChainEnd::Shard { codec, steps, inner } => {
                let Some(sharding) = ShardingIndexed::downcast(codec.as_ref()) else {
                    return Err(Error::corrupt(into.key, "the codec is not a sharding codec"));
                };
                let place = sharding.index_range(bytes.len() as u64).map_err(corrupt(into.key))?;
                // Both ends are at most `bytes.len()`.
                let encoded = bytes.get(place.start as usize..place.end as usize).unwrap_or_default();
                let index_bytes = sharding.index_pipeline.decoded_bytes();
                into.reserve(index_bytes)?;
                let mut entries = vec![0; index_bytes];
                let decoded = sharding.index_pipeline.decode(encoded, &mut entries);
                decoded.map_err(|error| {
                    let reason = format!("shard index: {}", error.reason);
                    corrupt(into.key)(CodecError { reason, ..error })
                })?;
                let index = ShardIndex::new(entries, bytes.len() as u64, u64::MAX);
                let mut number = vec![0; sharding.chunks_per_shard.len()];
                for chunk in 0..sharding.chunk_count() {
                    let mut start = origin.to_vec();
                    for (&(axis, step), &position) in steps.iter().zip(&number) {
                        if let Some(start) = start.get_mut(axis) {
                            *start += step * position;
                        }
                    }
                    // The padding past the array's edge may hold anything.
                    if into.elements.holds(&start)
                        && let Some(range) = index.chunk(chunk).map_err(corrupt(into.key))?
                    {
                        let encoded = bytes.get(range.start as usize..range.end as usize);
                        inner.decode(encoded.unwrap_or_default(), &start, into)?;
                    }
                    next_index(&mut number, &sharding.chunks_per_shard);
                }
                drop(index);
                into.held.shrink(index_bytes as u64);
                Ok(())
            }
        }
    }
}

impl DecodeTarget<'_> {
    /// Reserves memory for this many bytes.
    pub fn reserve(&mut self, bytes: usize) -> Result<()> {
        reserve(self.held, bytes as u64, self.key)
    }
}

/// Returns the layout of a chunk in C order over `shape`, where axis i is the array's axis `axes[i]`.
fn layout(shape: &[u64], axes: &[usize]) -> CodecResult<ChunkLayout> {
    let count = stand_in(shape).size_bytes()?;
    let (mut lengths, mut strides) = (vec![0; axes.len()], vec![0; axes.len()]);
    let mut stride = 1;
    for (&axis, &length) in axes.iter().zip(shape).rev() {
        if let (Some(to_length), Some(to_stride)) = (lengths.get_mut(axis), strides.get_mut(axis)) {
            (*to_length, *to_stride) = (length, stride);
        }
        // At most `count`, unless there is no element.
        stride = length.saturating_mul(stride);
    }
    Ok(ChunkLayout { lengths, strides, count })
}

/// Returns a chunk of this shape with elements of one byte, for codecs that move elements without looking at them.
fn stand_in(shape: &[u64]) -> Representation {
    let data_type = DataType::UInt8;
    Representation { shape: shape.to_vec(), fill_value: FillValue::zeros(&data_type), data_type }
}

/// Adds the codec's place in the document to an error.
fn at(spec: &CodecSpec) -> impl Fn(CodecError) -> CodecError + '_ {
    |error| CodecError { reason: format!("{}: {}", spec.place, error.reason), ..error }
}

fn misplaced(spec: &CodecSpec) -> CodecError {
    CodecError::unsupported(format!("codec \"{}\" does not accept elements of variable length", spec.name))
}

/// Returns the order of a transpose: axis i after it is axis `order[i]` before it.
fn permutation(spec: &CodecSpec, shape: &[u64]) -> CodecResult<Vec<usize>> {
    // The smallest chunk is enough, because no elements are moved.
    let order = match registry::build(spec, CodecInput::Array(&stand_in(&vec![1; shape.len()])))? {
        Codec::ArrayToArray(codec) => codec.permutation().map(<[usize]>::to_vec),
        _ => None,
    };
    order.ok_or_else(|| misplaced(spec))
}

fn bytes_codec(spec: &CodecSpec) -> CodecResult<Box<dyn BytesToBytes>> {
    let input = CodecInput::Bytes { size: EncodedSize::AtMost(u64::MAX), item_size: 1, items: None };
    match registry::build(spec, input)? {
        Codec::BytesToBytes(codec) => Ok(codec),
        _ => Err(misplaced(spec)),
    }
}

fn shard(spec: &CodecSpec, shape: &[u64], axes: &[usize], vlen: Vlen, level: usize) -> CodecResult<ChainEnd> {
    if level == MAX_LEVELS {
        return Err(CodecError::unsupported(format!("shards nested more than {MAX_LEVELS} deep")));
    }
    let mut of_bytes = spec.clone();
    let stored = of_bytes.configuration.insert("codecs".to_owned(), json!(["bytes"]));
    let Codec::ArrayToBytes(codec) = registry::build(&of_bytes, CodecInput::Array(&stand_in(shape)))? else {
        return Err(misplaced(spec));
    };
    let sharding = ShardingIndexed::downcast(codec.as_ref()).ok_or_else(|| misplaced(spec))?;
    let stored =
        stored.ok_or_else(|| CodecError::new("codec \"sharding_indexed\": \"codecs\" is required"))?;
    let inner_specs = codec_spec::v3_list(&stored)
        .map_err(|fault| CodecError::new(format!("codec \"sharding_indexed\": \"codecs\" {fault}")))?;
    let inner =
        VariableChain::build_level(&inner_specs, &sharding.inner_shape, axes.to_vec(), vlen, level + 1)?;
    let steps = axes.iter().copied().zip(sharding.inner_shape.iter().copied()).collect();
    Ok(ChainEnd::Shard { steps, inner: Box::new(inner), codec })
}
