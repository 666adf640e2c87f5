//! `n5_default`: a block of N5 in default mode, with a header that says its shape.
//!
//! Spec: zarr-extensions, codecs/n5_default; N5 4.0.0, "chunks are stored in the following binary format". Uses the pipeline.
//!
//! ```json
//! {"name": "n5_default", "configuration": {"codecs": [
//!   {"name": "transpose", "configuration": {"order": [1, 0]}},
//!   {"name": "bytes", "configuration": {"endian": "big"}},
//!   {"name": "gzip", "configuration": {"level": 5}}]}}
//! ```
//!
//! The header is the mode and the number of dimensions (u16), the lengths (u32) and, in the mode "varlength", the number of elements
//! (u32), all big-endian. A block at the edge of the array may be cut to the array or padded to the chunk. Elements that the block does
//! not have are fill value; those past the chunk are ignored. Blocks of the mode "varlength" are read if they have one number per
//! element, as some programs write them.
//!
//! In the family N5 the chunk has the dimensions of the block in reverse, so the chain has no transpose, and the header is reversed.

use crate::codec::array_to_bytes::sharding::fill_with;
use crate::codec::config::Configuration;
use crate::codec::{
    ArrayToBytes, Codec, CodecEntry, CodecError, CodecResult, Context, EncodedSize, Pipeline, Representation,
    scratch,
};
use crate::metadata::{CodecFamily, CodecSpec};

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["n5_default"], v2: &[], build };

/// The number of codecs that a block may have: a transpose, `bytes` and a compressor.
const MAX_CODECS: usize = 3;
/// A block with more bytes than its chunk may have this many. A grid with short chunks at the edge may have padded blocks there.
const MAX_PADDED_BYTES: u64 = 16 << 20;
/// The name of the compressor of the family N5.
const N5_COMPRESSOR: &str = "n5_lz4";
/// The mode of blocks of numbers.
const DEFAULT_MODE: u16 = 0;
/// The mode of blocks that say how many elements they have.
const VARLENGTH_MODE: u16 = 1;

/// The codec for one shape of chunk.
struct N5Default {
    specs: Vec<CodecSpec>,
    chunk: Representation,
    /// Whether the chunk has the dimensions of the block in reverse.
    is_reversed: bool,
    /// The chain of a block with the chunk's shape.
    whole: Pipeline,
}

/// A header that was read.
struct Block<'a> {
    shape: Vec<u64>,
    encoded: &'a [u8],
}

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let chunk = context.array()?.clone();
    let mut configuration = Configuration::new(context);
    let specs = configuration.codecs("codecs")?;
    let mut specs = configuration.require("codecs", specs)?;
    let is_reversed = context.family == CodecFamily::N5;
    if is_reversed {
        for spec in specs.iter_mut().filter(|spec| spec.name == N5_COMPRESSOR) {
            spec.family = CodecFamily::N5;
        }
        configuration.finish()?;
        let whole = Pipeline::build(&specs, &chunk).map_err(|error| nested(error, "codecs"))?;
        return Ok(Codec::ArrayToBytes(Box::new(N5Default { specs, chunk, is_reversed, whole })));
    }
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    if !matches!(names.as_slice(), ["transpose", "bytes", ..]) || names.len() > MAX_CODECS {
        return Err(configuration.error("codecs", "must be transpose, bytes and at most one compressor"));
    }
    let reversed: Vec<usize> = (0..chunk.shape.len()).rev().collect();
    let order = specs.first().and_then(|spec| spec.configuration.get("order"));
    if order != Some(&serde_json::json!(reversed)) {
        return Err(configuration.error("codecs", "must begin with a transpose that reverses all dimensions"));
    }
    if specs.get(1).is_some_and(|spec| spec.configuration.get("endian").is_some_and(|endian| endian != "big"))
    {
        return Err(configuration.error("codecs", "must have big-endian bytes"));
    }
    configuration.finish()?;
    let whole = Pipeline::build(&specs, &chunk).map_err(|error| nested(error, "codecs"))?;
    Ok(Codec::ArrayToBytes(Box::new(N5Default { specs, chunk, is_reversed, whole })))
}

fn nested(error: CodecError, place: &str) -> CodecError {
    CodecError { reason: format!("codec \"n5_default\": {place}: {}", error.reason), ..error }
}

/// Splits big-endian numbers off the front of some bytes.
fn take<const N: usize>(bytes: &mut &[u8]) -> CodecResult<[u8; N]> {
    let (number, rest) =
        bytes.split_first_chunk::<N>().ok_or_else(|| CodecError::new("the block ends in its header"))?;
    *bytes = rest;
    Ok(*number)
}

impl N5Default {
    fn header_bytes(&self) -> u64 {
        4 + 4 * self.chunk.shape.len() as u64
    }

    fn parse<'a>(&self, encoded: &'a [u8]) -> CodecResult<Block<'a>> {
        let mut rest = encoded;
        let mode = u16::from_be_bytes(take(&mut rest)?);
        let rank = usize::from(u16::from_be_bytes(take(&mut rest)?));
        if !matches!(mode, DEFAULT_MODE | VARLENGTH_MODE) {
            return Err(CodecError::new(format_args!("a block of mode {mode}, which has no flat form")));
        }
        if rank != self.chunk.shape.len() {
            let own = self.chunk.shape.len();
            return Err(CodecError::new(format_args!(
                "a block of {rank} dimensions, where {own} were expected"
            )));
        }
        let length = |rest: &mut &[u8]| Ok(u64::from(u32::from_be_bytes(take(rest)?)));
        let mut shape: Vec<u64> = (0..rank).map(|_| length(&mut rest)).collect::<CodecResult<_>>()?;
        if self.is_reversed {
            shape.reverse();
        }
        let block = Representation { shape, ..self.chunk.clone() };
        let (bytes, own) = (block.size_bytes()? as u64, self.chunk.size_bytes()? as u64);
        if bytes > own.max(MAX_PADDED_BYTES) {
            return Err(CodecError::new(format_args!("a block of {bytes} bytes in a chunk of {own}")));
        }
        if mode == VARLENGTH_MODE {
            let (count, elements) = (length(&mut rest)?, block.elements()?);
            if count != elements {
                return Err(CodecError::new(format_args!(
                    "{count} values for the {elements} elements of a block"
                )));
            }
        }
        Ok(Block { shape: block.shape, encoded: rest })
    }

    /// Copies the elements that a block and the chunk share.
    fn copy(&self, block: &[u8], shape: &[u64], out: &mut [u8]) -> CodecResult<()> {
        let item = self.chunk.item_size()?;
        let shared: Vec<u64> = shape.iter().zip(&self.chunk.shape).map(|(&a, &b)| a.min(b)).collect();
        if shared.contains(&0) {
            return Ok(());
        }
        let run = shared.last().map_or(1, |&length| length) as usize * item;
        let mut index = vec![0u64; shared.len().saturating_sub(1)];
        loop {
            // Both shapes have at most as many elements as their bytes, which fit usize.
            let offset = |of: &[u64]| {
                let before = index.iter().zip(of).fold(0, |at, (&position, &length)| at * length + position);
                before as usize * of.last().map_or(1, |&length| length) as usize * item
            };
            let (from, to) = (offset(shape), offset(&self.chunk.shape));
            match (block.get(from..from + run), out.get_mut(to..to + run)) {
                (Some(from), Some(to)) => to.copy_from_slice(from),
                _ => return Err(CodecError::new("a block that does not have its own elements")),
            }
            if !advance(&mut index, &shared) {
                return Ok(());
            }
        }
    }
}

/// Advances to the next index in C order. After the last one returns `false`.
fn advance(index: &mut [u64], lengths: &[u64]) -> bool {
    for (position, &length) in index.iter_mut().zip(lengths).rev() {
        *position += 1;
        if *position < length {
            return true;
        }
        *position = 0;
    }
    false
}

impl ArrayToBytes for N5Default {
    fn is_lossless(&self) -> bool {
        self.whole.is_lossless()
    }

    fn has_checksum(&self) -> bool {
        self.whole.has_checksum()
    }

    fn encoded_size(&self) -> EncodedSize {
        let padded = EncodedSize::AtMost(MAX_PADDED_BYTES).compressed().limit_bytes();
        let block = self.whole.encoded_size().limit_bytes().max(padded);
        // One number more in the mode "varlength".
        EncodedSize::AtMost(block.saturating_add(self.header_bytes() + 4))
    }

    fn decode(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let block = self.parse(encoded)?;
        if block.shape == self.chunk.shape {
            return self.whole.decode(block.encoded, out);
        }
        let representation = Representation { shape: block.shape.clone(), ..self.chunk.clone() };
        let pipeline = Pipeline::build(&self.specs, &representation)?;
        fill_with(&self.chunk.fill_value.bytes, out);
        scratch::with(pipeline.decoded_bytes(), |elements| {
            pipeline.decode(block.encoded, elements)?;
            self.copy(elements, &block.shape, out)
        })
    }

    fn encode(&self, input: &[u8]) -> CodecResult<Vec<u8>> {
        let too_long = || CodecError::new("a chunk that is too long for a block of N5");
        let rank = u16::try_from(self.chunk.shape.len()).map_err(|_| too_long())?;
        let mut encoded = DEFAULT_MODE.to_be_bytes().to_vec();
        encoded.extend(rank.to_be_bytes());
        let mut lengths = self.chunk.shape.clone();
        if self.is_reversed {
            lengths.reverse();
        }
        for length in lengths {
            encoded.extend(u32::try_from(length).map_err(|_| too_long())?.to_be_bytes());
        }
        encoded.extend_from_slice(&self.whole.encode(input)?);
        Ok(encoded)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::codec::{CodecInput, registry};
    use crate::metadata::{CodecFamily, DataType, FillValue};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn built(codecs: Value, shape: &[u64]) -> CodecResult<Box<dyn ArrayToBytes>> {
        let spec = CodecSpec {
            family: CodecFamily::V3,
            name: "n5_default".to_owned(),
            configuration: json!({"codecs": codecs}).as_object().unwrap().clone(),
            must_understand: true,
            place: "codecs[0]".to_owned(),
        };
        let fill_value = FillValue { bytes: vec![9, 0], is_undefined: false };
        let input = Representation { shape: shape.to_vec(), data_type: DataType::Int16, fill_value };
        match registry::build(&spec, CodecInput::Array(&input))? {
            Codec::ArrayToBytes(codec) => Ok(codec),
            _ => panic!("not array to bytes"),
        }
    }

    fn codec(shape: &[u64]) -> Box<dyn ArrayToBytes> {
        let order: Vec<usize> = (0..shape.len()).rev().collect();
        let transpose = json!({"name": "transpose", "configuration": {"order": order}});
        built(json!([transpose, {"name": "bytes", "configuration": {"endian": "big"}}]), shape).unwrap()
    }

    fn elements(codec: &dyn ArrayToBytes, encoded: &[u8], count: usize) -> CodecResult<Vec<i16>> {
        let mut out = vec![0; 2 * count];
        codec.decode(encoded, &mut out)?;
        Ok(out.chunks(2).map(|two| i16::from_le_bytes(two.try_into().unwrap())).collect())
    }

    #[test]
    fn blocks_cut_and_padded() {
        let codec = codec(&[2, 3]);
        // Columns of two, as N5 has the first axis fastest.
        let whole = b"\0\0\0\x02\0\0\0\x02\0\0\0\x03\0\x01\0\x04\0\x02\0\x05\0\x03\0\x06";
        assert_eq!(elements(&*codec, whole, 6).unwrap(), [1, 2, 3, 4, 5, 6]);
        let input: Vec<u8> = (1..=6i16).flat_map(i16::to_le_bytes).collect();
        assert_eq!(codec.encode(&input).unwrap(), whole);
        let cut = b"\0\0\0\x02\0\0\0\x01\0\0\0\x02\0\x01\0\x02";
        assert_eq!(elements(&*codec, cut, 6).unwrap(), [1, 2, 9, 9, 9, 9]);
        let padded = b"\0\0\0\x02\0\0\0\x03\0\0\0\x01\0\x01\0\x02\0\x03";
        assert_eq!(elements(&*codec, padded, 6).unwrap(), [1, 9, 9, 2, 9, 9]);
        let varlength = b"\0\x01\0\x02\0\0\0\x01\0\0\0\x02\0\0\0\x02\0\x01\0\x02";
        assert_eq!(elements(&*codec, varlength, 6).unwrap(), [1, 2, 9, 9, 9, 9]);
        let empty = b"\0\0\0\x02\0\0\0\0\0\0\0\x02";
        assert_eq!(elements(&*codec, empty, 6).unwrap(), [9; 6]);
    }

    #[test]
    fn blocks_with_the_dimensions_in_reverse() {
        let spec = CodecSpec {
            family: CodecFamily::N5,
            name: "n5_default".to_owned(),
            configuration:
                json!({"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}, "n5_lz4"]})
                    .as_object()
                    .unwrap()
                    .clone(),
            must_understand: true,
            place: "compression".to_owned(),
        };
        let fill_value = FillValue { bytes: vec![9, 0], is_undefined: false };
        let input = Representation { shape: vec![2, 3], data_type: DataType::Int16, fill_value };
        let Ok(Codec::ArrayToBytes(codec)) = registry::build(&spec, CodecInput::Array(&input)) else {
            panic!()
        };
        let elements_in: Vec<u8> = (1..=6i16).flat_map(i16::to_le_bytes).collect();
        let encoded = codec.encode(&elements_in).unwrap();
        assert!(encoded.starts_with(b"\0\0\0\x02\0\0\0\x03\0\0\0\x02LZ4Block"));
        assert_eq!(elements(&*codec, &encoded, 6).unwrap(), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn damaged_headers_are_errors() {
        let codec = codec(&[2, 3]);
        for (bad, reason) in [
            (&b"\0\0\0"[..], "ends in its header"),
            (b"\0\x02\0\x02\0\0\0\x01\0\0\0\x01\0\x01", "mode 2"),
            (b"\0\0\0\x01\0\0\0\x01\0\x01", "1 dimensions"),
            (b"\0\0\0\x02\xff\xff\xff\xff\0\0\0\x01\0\x01", "in a chunk of 12"),
            (b"\0\0\0\x02\xff\xff\xff\xff\xff\xff\xff\xff\0\x01", "too large"),
            (b"\0\x01\0\x02\0\0\0\x01\0\0\0\x01\0\0\0\x05\0\x01", "5 values for the 1 elements"),
            (b"\0\0\0\x02\0\0\0\x01\0\0\0\x02\0\x01", "2 bytes"),
        ] {
            let error = elements(&*codec, bad, 6).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn other_chains_are_refused() {
        let transpose = json!({"name": "transpose", "configuration": {"order": [1, 0]}});
        let big = json!({"name": "bytes", "configuration": {"endian": "big"}});
        let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
        let identity = json!({"name": "transpose", "configuration": {"order": [0, 1]}});
        for (codecs, reason) in [
            (json!([big]), "must be transpose, bytes"),
            (json!([transpose]), "must be transpose, bytes"),
            (json!([transpose, big, "crc32c", "crc32c"]), "at most one"),
            (json!([identity, big]), "reverses all"),
            (json!([transpose, little]), "big-endian"),
            (json!([transpose, big, "magic"]), "codec \"magic\""),
        ] {
            let error = built(codecs.clone(), &[2, 3]).err().unwrap().to_string();
            assert!(error.contains(reason), "{codecs}: {error}");
        }
        assert!(
            built(json!([transpose, big, {"name": "gzip", "configuration": {"level": 1}}]), &[2, 3]).is_ok()
        );
    }

    proptest! {
        #[test]
        fn any_block_fits_any_chunk(
            chunk in prop::collection::vec(1u64..5, 1..4),
            changes in prop::collection::vec(0u64..5, 3),
        ) {
            let block: Vec<u64> = chunk.iter().zip(&changes).map(|(_, &length)| length).collect();
            let count = |shape: &[u64]| shape.iter().product::<u64>() as usize;
            let input: Vec<u8> = (0..count(&block) as i16).flat_map(i16::to_le_bytes).collect();
            let encoded = codec(&block).encode(&input).unwrap();
            let found = elements(&*codec(&chunk), &encoded, count(&chunk)).unwrap();
            for (at, value) in found.into_iter().enumerate() {
                let (mut rest, mut index) = (at as u64, vec![0; chunk.len()]);
                for (position, &length) in index.iter_mut().zip(&chunk).rev() {
                    *position = rest % length;
                    rest /= length;
                }
                let is_inside = index.iter().zip(&block).all(|(position, length)| position < length);
                let number = index.iter().zip(&block).fold(0, |at, (position, length)| at * length + position);
                prop_assert_eq!(value, if is_inside { number as i16 } else { 9 });
            }
        }
    }
}
