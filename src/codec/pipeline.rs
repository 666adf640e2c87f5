//! A chain of codecs, built for one chunk shape from an array's `codecs`.
//!
//! Spec: v3 core, "Codecs", "Determination of encoded representations", "Encoding procedure", "Decoding procedure".
//! The order is array → array codecs, exactly one array → bytes codec, bytes → bytes codecs. Uses `metadata`.
//!
//! Invariants:
//! - Adjacent permutations are merged, and a permutation that moves nothing is dropped.
//! - A decompressor writes directly into the chunk if only a fix-up in place follows it. Intermediate results are in the
//!   thread's scratch buffers.
//! - `decode` writes exactly the chunk, or fails; no encoded byte sizes an allocation.

use super::array_to_array::transpose::Transpose;
use super::array_to_bytes::sharding::ShardingIndexed;
use super::kernels::byte_swap::SwapPlan;
use super::{
    ArrayToArray, ArrayToBytes, BytesToBytes, Codec, CodecError, CodecInput, CodecResult, EncodedBytes,
    EncodedSize, InPlace, Items, Representation, check_chain_length, fill_round_trip, registry, scratch,
};
use crate::metadata::{ByteOrder, CodecFamily, CodecSpec};

/// A codec with its stored name, for error messages.
struct NamedCodec<T: ?Sized> {
    name: String,
    codec: Box<T>,
}

/// The built chain.
pub struct Pipeline {
    specs: Vec<CodecSpec>,
    skipped: Vec<String>,
    decoded_bytes: usize,
    array_codecs: Vec<NamedCodec<dyn ArrayToArray>>,
    array_to_bytes: NamedCodec<dyn ArrayToBytes>,
    /// Bytes of the input array of `array_to_bytes`.
    array_bytes: usize,
    bytes_codecs: Vec<NamedCodec<dyn BytesToBytes>>,
    /// The size before each of `bytes_codecs`, and after the last.
    sizes: Vec<EncodedSize>,
    /// From canonical to served byte order, where no codec converts it already.
    served_swap: SwapPlan,
    shard_place: Option<ShardPlace>,
}

/// The position of a sharding codec that inner chunks can be served from.
struct ShardPlace {
    prefix_length: usize,
    permutation: Vec<usize>,
    fill: Vec<u8>,
}

/// A chain that ends in a shard with inner chunks that can be decoded on their own.
pub struct Sharded<'a> {
    /// The codecs before the sharding codec: permutations and elementwise codecs. An inner chunk's chain is these,
    /// built for the inner chunk's shape in array coordinates, followed by [`ShardingIndexed::inner_specs`].
    pub prefix: &'a [CodecSpec],
    /// The shard's axis i is the array's axis `permutation[i]`.
    pub permutation: &'a [usize],
    /// The sharding codec.
    pub codec: &'a ShardingIndexed,
    /// One element of an empty inner chunk as this chain serves it. Not always the array's own fill value: the
    /// shard's fill value is encoded through `prefix`, then decoded through it.
    pub fill: &'a [u8],
}

/// A chain under construction: the codecs built so far, and the output of the last one.
#[derive(Default)]
struct Builder {
    specs: Vec<CodecSpec>,
    skipped: Vec<String>,
    array_codecs: Vec<NamedCodec<dyn ArrayToArray>>,
    array_to_bytes: Option<NamedCodec<dyn ArrayToBytes>>,
    bytes_codecs: Vec<NamedCodec<dyn BytesToBytes>>,
    sizes: Vec<EncodedSize>,
}

impl Pipeline {
    /// Builds the chain for chunks of `decoded`. Errors name the codec and its position.
    pub fn build(specs: &[CodecSpec], decoded: &Representation) -> CodecResult<Pipeline> {
        Pipeline::build_served(specs, decoded, ByteOrder::Little)
    }

    /// Builds the pipeline as [`Pipeline::build`] does, for decoded elements in `served` byte order.
    pub fn build_served(
        specs: &[CodecSpec],
        decoded: &Representation,
        served: ByteOrder,
    ) -> CodecResult<Pipeline> {
        check_chain_length(specs)?;
        let decoded_bytes = decoded.size_bytes()?;
        let mut builder = Builder::default();
        for spec in specs {
            builder.push(spec, decoded).map_err(|error| CodecError {
                reason: format!("{}: {}", spec.place, error.reason),
                ..error
            })?;
        }
        let Some(mut array_to_bytes) = builder.array_to_bytes else {
            return Err(CodecError::new("\"codecs\" has no codec that turns the array into bytes"));
        };
        let array_codecs: Vec<_> = builder.array_codecs.iter().map(|stage| stage.codec.as_ref()).collect();
        fill_round_trip::check(decoded, &array_codecs)?;
        let array = builder.array_codecs.last().map_or(decoded, |last| last.codec.encoded());
        let array_bytes = array.size_bytes()?;
        let only_permutes = builder.array_codecs.iter().all(|stage| stage.codec.permutation().is_some());
        let swap = match served {
            ByteOrder::Little => SwapPlan::none(),
            ByteOrder::Big => SwapPlan::all(&decoded.data_type)?,
        };
        if builder.array_codecs.last().is_some_and(|last| last.codec.takes_stored_bytes())
            && let Some(unswapped) = array_to_bytes.codec.without_byte_order()
        {
            array_to_bytes.codec = unswapped;
        }
        let shard_place =
            ShardPlace::find(&builder.specs, decoded, builder.array_codecs.len(), &array_to_bytes, &swap)?;
        let mut served_swap = swap;
        if !served_swap.is_empty()
            && only_permutes
            && let Some(swapped) = array_to_bytes.codec.with_big_endian_elements()
        {
            array_to_bytes.codec = swapped;
            served_swap = SwapPlan::none();
        }
        Ok(Pipeline {
            specs: builder.specs,
            skipped: builder.skipped,
            decoded_bytes,
            array_codecs: join_permutations(builder.array_codecs, decoded)?,
            array_to_bytes,
            array_bytes,
            bytes_codecs: builder.bytes_codecs,
            sizes: builder.sizes,
            served_swap,
            shard_place,
        })
    }

    /// Returns bytes of a decoded chunk.
    pub fn decoded_bytes(&self) -> usize {
        self.decoded_bytes
    }

    /// Returns the size of an encoded chunk. As an upper bound it limits a read.
    pub fn encoded_size(&self) -> EncodedSize {
        self.sizes.last().copied().unwrap_or(EncodedSize::Exact(0))
    }

    /// Returns the names of unknown codecs with `"must_understand": false`, which were left out. Data encoded without
    /// them would differ from what the array's writer expects, so such an array is read-only.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// Returns whether decoding restores every byte that can be encoded: whether every codec does.
    pub fn is_lossless(&self) -> bool {
        self.array_codecs.iter().all(|stage| stage.codec.is_lossless())
            && self.array_to_bytes.codec.is_lossless()
            && self.bytes_codecs.iter().all(|stage| stage.codec.is_lossless())
    }

    /// Returns whether a checksum guards the bytes of each chunk, or of each inner chunk of a shard.
    pub fn has_checksum(&self) -> bool {
        let inner_has_checksum = |codec: &ShardingIndexed| codec.inner().has_checksum();
        self.bytes_codecs.iter().any(|stage| stage.codec.has_checksum())
            || self.array_to_bytes.codec.has_checksum()
            || ShardingIndexed::downcast(self.array_to_bytes.codec.as_ref()).is_some_and(inner_has_checksum)
    }

    /// Returns the codec that fixes up any whole number of elements, if encoded chunks are the decoded elements in
    /// place. Ranges can then be read alone.
    pub fn plain_bytes(&self) -> Option<&dyn InPlace> {
        let is_plain =
            self.array_codecs.is_empty() && self.bytes_codecs.is_empty() && self.served_swap.is_empty();
        is_plain.then(|| self.array_to_bytes.codec.in_place())?
    }

    /// Returns whether encoded and served bytes are the same.
    pub fn is_identity(&self) -> bool {
        self.plain_bytes().is_some_and(|codec| codec.is_identity())
    }

    /// Returns the only bytes → bytes codec and the codec that fixes up its output, if a chunk is its elements in
    /// place after it.
    pub(super) fn lone_decompressor(&self) -> Option<(&dyn BytesToBytes, &dyn InPlace)> {
        let [codec] = self.bytes_codecs.as_slice() else { return None };
        let is_plain = self.array_codecs.is_empty() && self.served_swap.is_empty();
        let in_place = self.array_to_bytes.codec.in_place().filter(|_| is_plain)?;
        Some((&*codec.codec, in_place))
    }

    /// Returns the sharding, if encoded chunks are shards with inner chunks that can be decoded on their own.
    pub fn sharding(&self) -> Option<Sharded<'_>> {
        let place = self.shard_place.as_ref()?;
        Some(Sharded {
            prefix: self.specs.get(..place.prefix_length)?,
            permutation: &place.permutation,
            codec: ShardingIndexed::downcast(self.array_to_bytes.codec.as_ref())?,
            fill: &place.fill,
        })
    }

    /// Decodes a chunk into `out`, which has exactly [`Pipeline::decoded_bytes`].
    pub fn decode(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        check_length("the chunk's buffer", out.len(), self.decoded_bytes)?;
        if self.array_codecs.is_empty() {
            self.decode_bytes(self.bytes_codecs.len(), encoded, out)?;
        } else if self.bytes_codecs.is_empty() && is_identity(&*self.array_to_bytes.codec) {
            check_length("the stored chunk", encoded.len(), self.array_bytes)?;
            self.decode_array(self.array_codecs.len(), encoded, out)?;
        } else {
            scratch::with(self.array_bytes, |array| {
                self.decode_bytes(self.bytes_codecs.len(), encoded, array)?;
                self.decode_array(self.array_codecs.len(), array, out)
            })?;
        }
        self.served_swap.apply(out);
        Ok(())
    }

    /// Undoes the last `stages` bytes → bytes codecs and the array → bytes codec.
    fn decode_bytes(&self, stages: usize, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let Some(before) = stages.checked_sub(1) else {
            let array_to_bytes = &self.array_to_bytes;
            return array_to_bytes.codec.decode(encoded, out).map_err(|error| array_to_bytes.blame(error));
        };
        let (Some(stage), Some(&size)) = (self.bytes_codecs.get(before), self.sizes.get(before)) else {
            return Err(CodecError::new("the codec is unknown"));
        };
        let blame = |error| stage.blame(error);
        if before == 0
            && let Some(in_place) = self.array_to_bytes.codec.in_place()
        {
            stage.codec.decode_into(encoded, out).map_err(blame)?;
            return in_place.decode(out).map_err(|error| self.array_to_bytes.blame(error));
        }
        let too_long = |_| CodecError::new(format_args!("{} bytes are too many", size.limit_bytes()));
        let limit = usize::try_from(size.limit_bytes()).map_err(too_long)?;
        if matches!(size, EncodedSize::Exact(_)) && !stage.codec.borrows() {
            return scratch::with(limit, |bytes| {
                stage.codec.decode_into(encoded, bytes).map_err(blame)?;
                self.decode_bytes(before, bytes, out)
            });
        }
        let bytes = stage.codec.decode(encoded, limit).map_err(blame)?;
        if let EncodedSize::Exact(_) = size {
            check_length("what was decoded", bytes.len(), limit).map_err(blame)?;
        }
        self.decode_bytes(before, &bytes, out)
    }

    /// Undoes the last `stages` array → array codecs.
    fn decode_array(&self, stages: usize, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let Some(stage) = stages.checked_sub(1).and_then(|last| self.array_codecs.get(last)) else {
            return Err(CodecError::new("the codec is unknown"));
        };
        let Some(before) = stages.checked_sub(2).and_then(|last| self.array_codecs.get(last)) else {
            return stage.codec.decode(input, out).map_err(|error| stage.blame(error));
        };
        scratch::with(before.codec.encoded().size_bytes()?, |array| {
            stage.codec.decode(input, array).map_err(|error| stage.blame(error))?;
            self.decode_array(stages - 1, array, out)
        })
    }

    /// Encodes a chunk of exactly [`Pipeline::decoded_bytes`].
    pub fn encode(&self, decoded: &[u8]) -> CodecResult<EncodedBytes> {
        check_length("the chunk", decoded.len(), self.decoded_bytes)?;
        if self.served_swap.is_empty() {
            return self.encode_array(0, decoded);
        }
        scratch::with(decoded.len(), |canonical| {
            self.served_swap.copy(decoded, canonical);
            self.encode_array(0, canonical)
        })
    }

    /// Applies the codecs from the array → array codec `stage` on.
    fn encode_array(&self, stage: usize, input: &[u8]) -> CodecResult<EncodedBytes> {
        let Some(codec) = self.array_codecs.get(stage) else { return self.encode_bytes(input) };
        scratch::with(codec.codec.encoded().size_bytes()?, |array| {
            codec.codec.encode(input, array).map_err(|error| codec.blame(error))?;
            self.encode_array(stage + 1, array)
        })
    }

    /// Applies the array → bytes codec and all after it.
    fn encode_bytes(&self, input: &[u8]) -> CodecResult<EncodedBytes> {
        let array_to_bytes = &self.array_to_bytes;
        let blame = |error| array_to_bytes.blame(error);
        let Some((first, rest)) = self.bytes_codecs.split_first() else {
            return array_to_bytes.codec.encode(input).map_err(blame).map(Into::into);
        };
        let encode_first = |bytes: &[u8]| first.encode(bytes);
        let mut encoded = if is_identity(&*array_to_bytes.codec) {
            encode_first(input)?
        } else if let Some(in_place) = array_to_bytes.codec.in_place() {
            scratch::with(input.len(), |bytes| {
                bytes.copy_from_slice(input);
                in_place.encode(bytes).map_err(blame)?;
                encode_first(bytes)
            })?
        } else {
            encode_first(&array_to_bytes.codec.encode(input).map_err(blame)?)?
        };
        for stage in rest {
            encoded = stage.encode(&encoded)?;
        }
        Ok(encoded)
    }
}

fn is_identity(codec: &dyn ArrayToBytes) -> bool {
    codec.in_place().is_some_and(|codec| codec.is_identity())
}

impl NamedCodec<dyn BytesToBytes> {
    fn encode(&self, decoded: &[u8]) -> CodecResult<EncodedBytes> {
        let encoded = match self.codec.bounded() {
            Some(encoder) => {
                EncodedBytes::encode(encoder.bound(decoded.len()), |out| encoder.encode_into(decoded, out))
            }
            None => self.codec.encode(decoded).map(Into::into),
        };
        encoded.map_err(|error| self.blame(error))
    }
}

impl<T: ?Sized> NamedCodec<T> {
    /// Adds the codec's name to an error.
    fn blame(&self, error: CodecError) -> CodecError {
        CodecError { reason: format!("codec \"{}\": {}", self.name, error.reason), ..error }
    }
}

impl Builder {
    fn push(&mut self, spec: &CodecSpec, decoded: &Representation) -> CodecResult<()> {
        if !spec.must_understand && registry::find(spec.family, &spec.name).is_none() {
            self.skipped.push(spec.name.clone());
            return Ok(());
        }
        let array = self.array_codecs.last().map_or(decoded, |last| last.codec.encoded());
        let input = match &self.array_to_bytes {
            None => CodecInput::Array(array),
            Some(_) => self.bytes_input(array)?,
        };
        let name = spec.name.clone();
        match (registry::build(spec, input)?, input) {
            (Codec::ArrayToArray(codec), CodecInput::Array(_)) => {
                self.array_codecs.push(NamedCodec { name, codec })
            }
            (Codec::ArrayToBytes(codec), CodecInput::Array(_)) => {
                self.sizes.push(codec.encoded_size());
                self.array_to_bytes = Some(NamedCodec { name, codec });
            }
            (Codec::BytesToBytes(codec), CodecInput::Bytes { size, .. }) => {
                self.sizes.push(codec.encoded_size(size));
                self.bytes_codecs.push(NamedCodec { name, codec });
            }
            _ => return Err(CodecError::new(format_args!("codec \"{name}\" cannot be at this position"))),
        }
        self.specs.push(spec.clone());
        Ok(())
    }

    /// Returns the input of the next bytes → bytes codec, after an array → bytes codec with the input `array`.
    fn bytes_input<'a>(&'a self, array: &Representation) -> CodecResult<CodecInput<'a>> {
        let size = self.sizes.last().copied().unwrap_or(EncodedSize::Exact(0));
        let is_v2 = self.specs.last().is_some_and(|spec| spec.family == CodecFamily::V2);
        let items: Option<&Items> = match self.bytes_codecs.last() {
            Some(last) => last.codec.encoded_items(),
            None => self.array_to_bytes.as_ref().and_then(|codec| codec.codec.encoded_items()),
        };
        let item_size = match items {
            Some(items) => items.data_type.item_size().unwrap_or(1),
            None if is_v2 || !self.bytes_codecs.is_empty() => 1,
            None => array.item_size()?,
        };
        Ok(CodecInput::Bytes { size, item_size, items })
    }
}

impl ShardPlace {
    /// Returns the place of a shard codec that is last and that only permutations and elementwise codecs precede, in a
    /// chain with `array_count` array → array codecs.
    fn find(
        specs: &[CodecSpec],
        decoded: &Representation,
        array_count: usize,
        array_to_bytes: &NamedCodec<dyn ArrayToBytes>,
        served_swap: &SwapPlan,
    ) -> CodecResult<Option<ShardPlace>> {
        let Some((_, prefix)) = specs.split_last() else { return Ok(None) };
        if ShardingIndexed::downcast(array_to_bytes.codec.as_ref()).is_none() || array_count != prefix.len() {
            return Ok(None);
        }
        // The prefix again, for a chunk of one element: its codecs work on elements and on their order.
        let one = Representation { shape: vec![1; decoded.shape.len()], ..decoded.clone() };
        let mut builder = Builder::default();
        let mut permutation: Vec<usize> = (0..decoded.shape.len()).collect();
        for spec in prefix {
            // A codec that takes a whole chunk and no single element (reshape) is not elementwise.
            let built = builder.push(spec, &one);
            let (Ok(()), Some(stage)) = (built, builder.array_codecs.last()) else { return Ok(None) };
            match stage.codec.permutation() {
                Some(order) => permutation = compose(&permutation, order),
                None if stage.codec.is_elementwise() => {}
                None => return Ok(None),
            }
        }
        let mut fill = match builder.array_codecs.last() {
            Some(last) => last.codec.encoded().fill_value.bytes.clone(),
            None => decoded.fill_value.bytes.clone(),
        };
        while let Some(stage) = builder.array_codecs.pop() {
            let before = builder.array_codecs.last().map_or(&one, |last| last.codec.encoded());
            let mut element = vec![0; before.item_size()?];
            stage.codec.decode(&fill, &mut element).map_err(|error| stage.blame(error))?;
            fill = element;
        }
        served_swap.apply(&mut fill);
        Ok(Some(ShardPlace { prefix_length: prefix.len(), permutation, fill }))
    }
}

/// Returns the order of first `first` and then `second`.
fn compose(first: &[usize], second: &[usize]) -> Vec<usize> {
    second.iter().filter_map(|&axis| first.get(axis).copied()).collect()
}

/// Merges adjacent permutations, and drops one that moves nothing.
fn join_permutations(
    stages: Vec<NamedCodec<dyn ArrayToArray>>,
    decoded: &Representation,
) -> CodecResult<Vec<NamedCodec<dyn ArrayToArray>>> {
    let mut joined: Vec<NamedCodec<dyn ArrayToArray>> = Vec::with_capacity(stages.len());
    let mut pending: Option<(String, Vec<usize>)> = None;
    for stage in stages {
        if let Some(order) = stage.codec.permutation() {
            let order = match &pending {
                Some((_, first)) => compose(first, order),
                None => order.to_vec(),
            };
            pending = Some((stage.name, order));
            continue;
        }
        flush_permutation(&mut joined, pending.take(), decoded)?;
        joined.push(stage);
    }
    flush_permutation(&mut joined, pending, decoded)?;
    Ok(joined)
}

fn flush_permutation(
    joined: &mut Vec<NamedCodec<dyn ArrayToArray>>,
    pending: Option<(String, Vec<usize>)>,
    decoded: &Representation,
) -> CodecResult<()> {
    let Some((name, order)) = pending else { return Ok(()) };
    let input = joined.last().map_or(decoded, |last| last.codec.encoded());
    let transpose = Transpose::new(order, input)?;
    if !transpose.is_identity() {
        joined.push(NamedCodec { name, codec: Box::new(transpose) });
    }
    Ok(())
}

fn check_length(what: &str, found: usize, expected: usize) -> CodecResult<()> {
    if found == expected {
        Ok(())
    } else {
        Err(CodecError::new(format_args!("{what} has {found} bytes instead of {expected}")))
    }
}

#[cfg(test)]
mod tests;
