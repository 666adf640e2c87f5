//! `wavpack`: WavPack without loss, for integers of 8, 16 and 32 bits and floats of 32 bits.
//!
//! Format: "WavPack 4 & 5 Binary File / Block Format" and its reference decoder, libwavpack; wavpack-numcodecs, and
//! `imagecodecs_wavpack`. It is only read. Uses `whole_array`.
//!
//! ```json
//! {"id": "wavpack", "level": 2, "bps": 0.0, "dynamic_noise_shaping": true, "shaping_weight": 0.0}
//! ```
//!
//! The elements in C order are the samples of all channels, one after the other. Blocks follow each other; each has one or two channels
//! of at most 131072 samples, and those of the other channels follow it. The members are for the encoder; `bps` above 0, or a
//! `bitrate`, is lossy and not read. Elements without a sign are stored as if they had one.
//!
//! Invariant: a block takes memory for its samples only if the array has place for them.

mod bits;
mod block;
mod decorrelation;
mod logarithm;
mod residuals;
mod samples;

use self::block::{Block, Header};
use self::residuals::Residuals;
use crate::codec::array_to_bytes::whole_array::{ArrayCompressor, NumericArray, build as build_compressor};
use crate::codec::config::Configuration;
use crate::codec::{Codec, CodecEntry, CodecError, CodecResult, Context, scratch};

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry {
    v3: &["imagecodecs_wavpack", "numcodecs.wavpack", "wavpack"],
    v2: &["imagecodecs_wavpack", "wavpack"],
    build,
};

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    for key in ["bps", "bitrate"] {
        if configuration.number(key)?.is_some_and(|bits| bits > 0.0) {
            let reason = configuration.error(key, "asks for lossy WavPack (hybrid mode)");
            return Err(CodecError::unsupported(reason));
        }
    }
    for of_encoder in [
        "level",
        "channels",
        "dynamic_noise_shaping",
        "shaping_weight",
        "num_encoding_threads",
        "num_decoding_threads",
        "numthreads",
    ] {
        configuration.value(of_encoder);
    }
    configuration.finish()?;
    let array = NumericArray::from_input(context)?;
    let (numeric_type, width) = (array.numeric_type, array.numeric_type.size());
    let is_integer = numeric_type.is_integer() && width <= 4;
    let is_float = numeric_type.is_float() && width == 4;
    if !is_integer && !is_float {
        return Err(CodecError::unsupported(format_args!(
            "codec \"{}\" for elements that are not integers of 8, 16 or 32 bits or floats of 32 bits",
            context.name
        )));
    }
    let codec = WavPack { width, has_floats: numeric_type.is_float() };
    Ok(build_compressor(context, codec, array.size_bytes))
}

struct WavPack {
    /// Bytes of an element.
    width: usize,
    has_floats: bool,
}

/// Decodes the samples of a block.
fn decode_block(block: &Block<'_>, numbers: &mut [i32]) -> CodecResult<()> {
    let (header, channels) = (&block.header, block.header.stored_channels());
    let mut contents = block.contents()?;
    match contents.residuals.take() {
        Some(bits) => Residuals::new(bits, contents.medians).read(numbers, channels)?,
        None => return Err(CodecError::new("a block does not have its samples")),
    }
    // Passes are stored in the order in which the encoder ran them.
    for pass in contents.passes.iter_mut().rev() {
        pass.run(numbers, channels);
    }
    if header.is_joint() && channels == 2 {
        for [first, second] in numbers.as_chunks_mut().0 {
            *second = second.wrapping_sub(*first >> 1);
            *first = first.wrapping_add(*second);
        }
    }
    if checksum(numbers, channels) != header.checksum {
        return Err(CodecError::new("the checksum of a block is not that of its samples"));
    }
    samples::complete(header, &contents, numbers)
}

fn checksum(numbers: &[i32], channels: usize) -> u32 {
    let add = |sum: u32, number: &i32| sum.wrapping_mul(3).wrapping_add(number.cast_unsigned());
    if channels == 1 {
        return numbers.iter().fold(u32::MAX, add);
    }
    // Three times the first, and the second, so the sum is multiplied by 9.
    numbers.as_chunks::<2>().0.iter().fold(u32::MAX, |sum, pair| pair.iter().fold(sum, add))
}

/// Samples of all channels that are written.
struct Frame<'a> {
    /// The elements.
    out: &'a mut [u8],
    /// Channels of the array.
    channels: usize,
}

impl WavPack {
    fn check(&self, header: &Header) -> CodecResult<()> {
        if header.sample_bytes() != self.width || header.has_floats() != self.has_floats {
            let kind = if header.has_floats() { "floats" } else { "integers" };
            return Err(CodecError::new(format_args!(
                "{kind} of {} bytes, which the array does not have",
                header.sample_bytes()
            )));
        }
        Ok(())
    }

    /// Writes the samples of a block to its channels, from `first` on.
    fn put(&self, header: &Header, numbers: &[i32], frame: &mut Frame<'_>, first: usize) {
        let stored = header.stored_channels();
        let rows = frame.out.chunks_exact_mut(frame.channels.max(1) * self.width);
        for (row, own) in rows.zip(numbers.chunks_exact(stored)) {
            let places = row.chunks_exact_mut(self.width).skip(first).take(header.channels());
            // Of "false stereo", both channels are the same.
            for (place, number) in places.zip(own.iter().cycle()) {
                let bytes = number.to_le_bytes();
                place.copy_from_slice(bytes.get(..self.width).unwrap_or_default());
            }
        }
    }

    /// Decodes the blocks of all channels for the same samples; returns the bytes of the elements.
    fn decode_channels(&self, blocks: &[Block<'_>], out: &mut [u8]) -> CodecResult<usize> {
        let Some(header) = blocks.first().map(|block| block.header) else { return Ok(0) };
        let channels = blocks.iter().map(|block| block.header.channels()).sum();
        let samples = usize::try_from(header.samples).unwrap_or(usize::MAX);
        let size = samples.checked_mul(channels).and_then(|count| count.checked_mul(self.width));
        let own = size.and_then(|size| out.get_mut(..size));
        let out = own.ok_or_else(|| CodecError::new("more elements decoded than expected"))?;
        let size = out.len();
        let mut frame = Frame { out, channels };
        let mut first = 0;
        for block in blocks {
            self.check(&block.header)?;
            if block.header.samples != header.samples {
                return Err(CodecError::new("channels of different lengths"));
            }
            let mut numbers = Vec::new();
            let count = samples * block.header.stored_channels();
            scratch::probe(count.saturating_mul(size_of::<i32>()))?;
            numbers.resize(count, 0);
            decode_block(block, &mut numbers)?;
            self.put(&block.header, &numbers, &mut frame, first);
            first += block.header.channels();
        }
        Ok(size)
    }
}

impl ArrayCompressor for WavPack {
    // It does not encode.
    fn is_lossless(&self) -> bool {
        false
    }

    fn has_checksum(&self) -> bool {
        true
    }

    fn decode(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let (mut rest, mut done) = (encoded, 0);
        // The number of the first sample, and how many samples precede the next block.
        let (mut start, mut samples) = (None, 0u64);
        let mut blocks: Vec<Block<'_>> = Vec::new();
        while !rest.is_empty() {
            let block = Block::take(&mut rest)?;
            if block.header.samples == 0 {
                continue;
            }
            let header = block.header;
            if header.is_first() != blocks.is_empty() {
                return Err(CodecError::new("channels are not in their order"));
            }
            blocks.push(block);
            if !header.is_last() {
                continue;
            }
            if header.index.wrapping_sub(*start.get_or_insert(header.index)) != samples {
                return Err(CodecError::new("a block is missing"));
            }
            samples += u64::from(header.samples);
            done += self.decode_channels(&blocks, out.get_mut(done..).unwrap_or_default())?;
            blocks.clear();
        }
        if !blocks.is_empty() || done != out.len() {
            let left = out.len() - done;
            return Err(CodecError::new(format_args!("the sound ends {left} bytes too early")));
        }
        Ok(())
    }

    fn encode(&self, _: &[u8]) -> CodecResult<Vec<u8>> {
        Err(CodecError::unsupported("encoding with codec \"wavpack\""))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::codec::{CodecInput, Representation, registry};
    use crate::metadata::{CodecFamily, CodecSpec, DataType, FillValue};
    use serde_json::{Value, json};

    /// 240 samples of two channels.
    const SOUND: &[u8] = include_bytes!("../../../../tests/fuzz/recorded/wavpack");
    const FLOATS: &[u8] = include_bytes!("../../../../tests/fuzz/recorded/wavpack-floats");
    const INTEGERS_16: WavPack = WavPack { width: 2, has_floats: false };
    const FLOATS_32: WavPack = WavPack { width: 4, has_floats: true };

    #[test]
    fn sound_of_another_length_or_type_is_an_error() {
        INTEGERS_16.decode(SOUND, &mut [0; 960]).unwrap();
        FLOATS_32.decode(FLOATS, &mut [0; 1920]).unwrap();
        for length in [0, 956, 964] {
            assert!(INTEGERS_16.decode(SOUND, &mut vec![0; length]).is_err());
        }
        let error = FLOATS_32.decode(SOUND, &mut [0; 1920]).unwrap_err().to_string();
        assert_eq!(error, "integers of 2 bytes, which the array does not have");
        for length in [0, 20, 40, SOUND.len() - 1] {
            assert!(INTEGERS_16.decode(&SOUND[..length], &mut [0; 960]).is_err());
        }
        let error = INTEGERS_16.decode(&[SOUND, b"TAG"].concat(), &mut [0; 960]).unwrap_err().to_string();
        assert_eq!(error, "a block ends too early");
        // The same block twice is not what follows it.
        let error = INTEGERS_16.decode(&[SOUND, SOUND].concat(), &mut [0; 1920]).unwrap_err().to_string();
        assert_eq!(error, "a block is missing");
    }

    #[test]
    fn a_changed_byte_is_an_error_or_changes_nothing() {
        for (codec, encoded, bytes) in [(&INTEGERS_16, SOUND, 960), (&FLOATS_32, FLOATS, 1920)] {
            let (mut sound, mut out) = (vec![0; bytes], vec![0; bytes]);
            codec.decode(encoded, &mut sound).unwrap();
            for at in 0..encoded.len() {
                for flip in [0x01, 0x80, 0xff] {
                    let mut damaged = encoded.to_vec();
                    damaged[at] ^= flip;
                    assert!(codec.decode(&damaged, &mut out).is_err() || out == sound, "byte {at}");
                }
            }
        }
    }

    fn build(configuration: Value, data_type: DataType) -> CodecResult<Codec> {
        let spec = CodecSpec {
            family: CodecFamily::V3,
            name: "wavpack".to_owned(),
            configuration: configuration.as_object().unwrap().clone(),
            must_understand: true,
            place: "codecs[0]".to_owned(),
        };
        let bytes = vec![0; data_type.item_size().unwrap()];
        let array = Representation {
            shape: vec![240, 2],
            data_type,
            fill_value: FillValue { bytes, is_undefined: false },
        };
        registry::build(&spec, CodecInput::Array(&array))
    }

    #[test]
    fn lossy_modes_and_other_types_are_refused() {
        assert!(build(json!({"level": 2, "bps": 0.0}), DataType::Int16).is_ok());
        for (configuration, data_type, reason) in [
            (json!({"bps": 2.25}), DataType::Int16, "lossy"),
            (json!({"bitrate": 300}), DataType::Int16, "lossy"),
            (json!({}), DataType::Float64, "32 bits"),
            (json!({}), DataType::Int64, "32 bits"),
        ] {
            let error = build(configuration, data_type).err().unwrap();
            assert!(error.is_unsupported && error.reason.contains(reason), "{error}");
        }
    }
}
