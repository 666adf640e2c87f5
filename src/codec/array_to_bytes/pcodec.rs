//! `numcodecs.pcodec`: Pcodec's standalone format for numbers of 8 to 64 bits. v2 id: `pcodec`.
//!
//! Format: numcodecs `PCodec`, over the `pco` crate. The data states its number type; the configuration only
//! matters to the encoder. Complex numbers are two floats each, as zarrs has them.
//! Uses `whole_array`.
//!
//! ```json
//! {"name": "numcodecs.pcodec", "configuration": {"level": 8, "mode_spec": "auto", "delta_spec": "auto",
//!  "paging_spec": "equal_pages_up_to", "delta_encoding_order": null, "equal_pages_up_to": 262144}}
//! ```
//!
//! Invariant: numbers are decoded in small batches, and counts in the data are compared with the expected ones.

use pco::data_types::{Number, NumberType};
use pco::standalone::{DecompressorItem, FileDecompressor};
use pco::{ChunkConfig, DeltaSpec, FULL_BATCH_N, ModeSpec, PagingSpec};

use super::whole_array::{ArrayCompressor, NumericArray, build as build_compressor};
use crate::codec::config::Configuration;
use crate::codec::kernels::element::Element;
use crate::codec::{Codec, CodecEntry, CodecError, CodecResult, Context};
use crate::metadata::ByteOrder;
use crate::metadata::data_type::numeric::{NumericType, with_numeric_type};

/// The codec's names and constructor.
pub const ENTRY: CodecEntry = CodecEntry {
    v3: &["numcodecs.pcodec", "pcodec", "https://codec.zarrs.dev/array_to_bytes/pcodec"],
    v2: &["pcodec"],
    build,
};

/// Numbers decoded at a time; Pcodec wants a multiple of its own batch.
const BATCH: usize = 16 * FULL_BATCH_N;

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    let config = read_config(&mut configuration)?;
    configuration.finish()?;
    let array = NumericArray::from_input(context)?;
    let numeric_type = match array.numeric_type {
        NumericType::Bool => {
            return Err(CodecError::unsupported(format_args!("codec \"{}\" for bools", context.name)));
        }
        NumericType::C64 => NumericType::F32,
        NumericType::C128 => NumericType::F64,
        numeric_type => numeric_type,
    };
    Ok(build_compressor(context, Pcodec { numeric_type, config }, array.size_bytes))
}

/// Reads the encoder's settings, by numcodecs' rules.
fn read_config(configuration: &mut Configuration<'_>) -> CodecResult<ChunkConfig> {
    let level = configuration.integer("level", 0..=12)?.unwrap_or(8);
    let mode = configuration.choice("mode_spec", &[("auto", true), ("classic", false)])?;
    let delta = configuration.choice(
        "delta_spec",
        &[("auto", 'a'), ("no_op", 'n'), ("none", 'n'), ("try_consecutive", 'c'), ("try_lookback", 'l')],
    )?;
    let order = configuration.integer("delta_encoding_order", 0..=7)?;
    let order = order.and_then(|order| usize::try_from(order).ok());
    let delta = match (delta.unwrap_or('a'), order) {
        ('a' | 'c', Some(order)) => DeltaSpec::TryConsecutive(order),
        (_, Some(_)) => {
            let reason = "is only allowed with the \"delta_spec\" \"try_consecutive\"";
            return Err(configuration.error("delta_encoding_order", reason));
        }
        ('c', None) => return Err(configuration.error("delta_encoding_order", "is required")),
        ('n', None) => DeltaSpec::NoOp,
        ('l', None) => DeltaSpec::TryLookback,
        (_, None) => DeltaSpec::Auto,
    };
    configuration.choice("paging_spec", &[("equal_pages_up_to", ())])?;
    let page = configuration.integer("equal_pages_up_to", 1..=i64::MAX)?.unwrap_or(1 << 18);
    Ok(ChunkConfig::default()
        .with_compression_level(usize::try_from(level).unwrap_or(8))
        .with_mode_spec(if mode == Some(false) { ModeSpec::Classic } else { ModeSpec::Auto })
        .with_delta_spec(delta)
        .with_paging_spec(PagingSpec::EqualPagesUpTo(usize::try_from(page).unwrap_or(usize::MAX)))
        .with_enable_8_bit(true))
}

struct Pcodec {
    /// The type of the array's numbers; never bool or complex.
    numeric_type: NumericType,
    /// The encoder's settings.
    config: ChunkConfig,
}

impl ArrayCompressor for Pcodec {
    fn is_lossless(&self) -> bool {
        true
    }

    fn decode(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let (file, source) = FileDecompressor::new(encoded).map_err(failed)?;
        let stored = match file.peek_number_type_or_termination(source).map_err(failed)? {
            Some(number_type) => numeric_type(number_type),
            None => self.numeric_type,
        };
        // An integer may be read as another of its size, as NumPy's views do.
        let is_alike = stored.is_integer()
            && self.numeric_type.is_integer()
            && stored.size() == self.numeric_type.size();
        if stored != self.numeric_type && !is_alike {
            return Err(CodecError::new(format_args!(
                "{stored:?} numbers where {:?} were expected",
                self.numeric_type
            )));
        }
        with_numeric_type!(stored, real T => decode::<T>(&file, source, out), else Ok(()))
    }

    fn encode(&self, input: &[u8]) -> CodecResult<Vec<u8>> {
        with_numeric_type!(self.numeric_type, real T => {
            let numbers = input.chunks_exact(T::SIZE).map(|bytes| T::read(bytes, ByteOrder::Little));
            let numbers: Vec<T> = numbers.collect();
            pco::standalone::simple_compress(&numbers, &self.config).map_err(failed)
        }, else Err(CodecError::new("no numbers")))
    }
}

/// Converts Pcodec's error.
fn failed(error: pco::errors::PcoError) -> CodecError {
    CodecError::new(error)
}

fn numeric_type(number_type: NumberType) -> NumericType {
    match number_type {
        NumberType::I8 => NumericType::I8,
        NumberType::I16 => NumericType::I16,
        NumberType::I32 => NumericType::I32,
        NumberType::I64 => NumericType::I64,
        NumberType::U8 => NumericType::U8,
        NumberType::U16 => NumericType::U16,
        NumberType::U32 => NumericType::U32,
        NumberType::U64 => NumericType::U64,
        NumberType::F16 => NumericType::F16,
        NumberType::F32 => NumericType::F32,
        NumberType::F64 => NumericType::F64,
        // Pcodec may support more types in the future; no array here has them.
        _ => NumericType::Bool,
    }
}

/// Decodes all chunks of a file into exactly `out.len()` bytes.
fn decode<T: Number + Element>(
    file: &FileDecompressor,
    mut source: &[u8],
    out: &mut [u8],
) -> CodecResult<()> {
    let expected = out.len() / T::SIZE;
    let mut batch = vec![T::default(); BATCH.min(expected.max(1))];
    let mut rest = out;
    while let DecompressorItem::Chunk(mut chunk) = file.chunk_decompressor::<T, _>(source).map_err(failed)? {
        let mut left = chunk.n();
        if left > rest.len() / T::SIZE {
            return Err(CodecError::new(format_args!("more than the expected {expected} numbers")));
        }
        while left > 0 {
            let numbers = batch.get_mut(..left.min(BATCH)).unwrap_or_default();
            let read = chunk.read(numbers).map_err(failed)?.n_processed;
            if read != numbers.len() {
                return Err(CodecError::new("a chunk ends too early"));
            }
            let (bytes, after) = rest.split_at_mut_checked(read * T::SIZE).unwrap_or_default();
            for (number, bytes) in numbers.iter().zip(bytes.chunks_exact_mut(T::SIZE)) {
                number.write(bytes, ByteOrder::Little);
            }
            rest = after;
            left -= read;
        }
        source = chunk.into_src();
    }
    match rest.len() {
        0 => Ok(()),
        bytes => Err(CodecError::new(format_args!(
            "{} numbers where {expected} were expected",
            expected - bytes / T::SIZE
        ))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    fn codec(numeric_type: NumericType) -> Pcodec {
        Pcodec { numeric_type, config: ChunkConfig::default().with_enable_8_bit(true) }
    }

    #[test]
    fn counts_and_types_are_checked() {
        let numbers: Vec<u8> = (0..1000u32).flat_map(u32::to_le_bytes).collect();
        let encoded = codec(NumericType::U32).encode(&numbers).unwrap();
        let mut out = vec![0; 4000];
        codec(NumericType::I32).decode(&encoded, &mut out).unwrap();
        assert_eq!(out, numbers);
        assert!(codec(NumericType::F32).decode(&encoded, &mut out).is_err());
        assert!(codec(NumericType::U64).decode(&encoded, &mut [0; 8000]).is_err());
        for wrong in [0, 3996, 4004] {
            assert!(codec(NumericType::U32).decode(&encoded, &mut vec![0; wrong]).is_err(), "{wrong}");
        }
        let empty = codec(NumericType::F16).encode(&[]).unwrap();
        codec(NumericType::F16).decode(&empty, &mut []).unwrap();
    }

    proptest! {
        #[test]
        fn round_trip_and_damage(
            bytes in prop::collection::vec(prop_oneof![Just(0u8), 0u8..3, any::<u8>()], 0..6000),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in any::<prop::sample::Index>(),
        ) {
            for numeric_type in [NumericType::I8, NumericType::U16, NumericType::F32, NumericType::I64, NumericType::F64] {
                let input = &bytes[..bytes.len() / 8 * 8];
                let mut encoded = codec(numeric_type).encode(input).unwrap();
                let mut out = vec![0xa5; input.len()];
                codec(numeric_type).decode(&encoded, &mut out).unwrap();
                prop_assert_eq!(&out, input);
                for (at, byte) in &flips {
                    let at = at.index(encoded.len());
                    encoded[at] = *byte;
                }
                let _ = codec(numeric_type).decode(&encoded, &mut out);
                encoded.truncate(cut.index(encoded.len() + 1));
                let _ = codec(numeric_type).decode(&encoded, &mut out);
            }
        }
    }
}
