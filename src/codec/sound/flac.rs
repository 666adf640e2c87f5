//! `flac`: FLAC, for elements of 16 bits.
//!
//! Spec: RFC 9639. Format: flac-numcodecs. Uses the crate claxon, which compares the checksum of each frame. It is only read.
//! Uses `whole_array`.
//!
//! ```json
//! {"id": "flac", "level": 5, "blocksize": null, "sample_rate": 48000, "tmpdir": null}
//! ```
//!
//! The members are for the encoder. An array of two dimensions with at most two columns has a channel for each column; any other
//! array has one channel with its elements in C order. Both are the elements in C order once the channels are interleaved.

use std::io::Cursor;

use claxon::{Block, FlacReader, FlacReaderOptions};

use crate::codec::array_to_bytes::whole_array::{ArrayCompressor, NumericArray, build as build_compressor};
use crate::codec::config::Configuration;
use crate::codec::{Codec, CodecEntry, CodecError, CodecResult, Context};

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["numcodecs.flac", "flac"], v2: &["flac"], build };

/// Bits of an element.
const ELEMENT_BITS: u32 = 16;
/// Bytes of an element.
const ELEMENT_BYTES: usize = 2;

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    for of_encoder in ["level", "blocksize", "sample_rate", "tmpdir"] {
        configuration.value(of_encoder);
    }
    configuration.finish()?;
    let array = NumericArray::from_input(context)?;
    if !array.numeric_type.is_integer() || array.numeric_type.size() != ELEMENT_BYTES {
        return Err(CodecError::unsupported("codec \"flac\" for elements that are not integers of 16 bits"));
    }
    Ok(build_compressor(context, Flac, array.size_bytes))
}

struct Flac;

/// Interleaves the channels of a block into the first elements of `out`; returns the rest.
fn interleave<'a>(block: &Block, out: &'a mut [u8]) -> CodecResult<&'a mut [u8]> {
    let channels = block.channels() as usize;
    let size = block.len() as usize * ELEMENT_BYTES;
    let too_long = || CodecError::new("more elements decoded than expected");
    let (own, rest) = out.split_at_mut_checked(size).ok_or_else(too_long)?;
    for (channel, number) in (0..block.channels()).enumerate() {
        let places = own.as_chunks_mut::<ELEMENT_BYTES>().0.iter_mut().skip(channel).step_by(channels.max(1));
        for (place, &sample) in places.zip(block.channel(number)) {
            let element = i16::try_from(sample)
                .map_err(|_| CodecError::new(format_args!("{sample} does not have {ELEMENT_BITS} bits")))?;
            *place = element.to_le_bytes();
        }
    }
    Ok(rest)
}

impl ArrayCompressor for Flac {
    // It does not encode.
    fn is_lossless(&self) -> bool {
        false
    }

    fn has_checksum(&self) -> bool {
        true
    }

    fn decode(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let options = FlacReaderOptions { metadata_only: false, read_vorbis_comment: false };
        let mut reader = FlacReader::new_ext(Cursor::new(encoded), options).map_err(CodecError::new)?;
        let bits = reader.streaminfo().bits_per_sample;
        if bits != ELEMENT_BITS {
            return Err(CodecError::new(format_args!(
                "samples of {bits} bits where {ELEMENT_BITS} were expected"
            )));
        }
        let mut rest = out;
        let mut blocks = reader.blocks();
        let mut buffer = Vec::new();
        // A block has at most 65536 elements in each of 8 channels.
        while let Some(block) = blocks.read_next_or_eof(buffer).map_err(CodecError::new)? {
            rest = interleave(&block, rest)?;
            buffer = block.into_buffer();
        }
        if rest.is_empty() {
            return Ok(());
        }
        Err(CodecError::new(format_args!("the sound ends {} bytes too early", rest.len())))
    }

    fn encode(&self, _: &[u8]) -> CodecResult<Vec<u8>> {
        Err(CodecError::unsupported("encoding with codec \"flac\""))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    /// 240 samples of two channels.
    const SOUND: &[u8] = include_bytes!("../../../tests/fuzz/recorded/flac");
    const BYTES: usize = 960;

    #[test]
    fn sound_of_another_length_is_an_error() {
        let mut out = vec![0; BYTES];
        Flac.decode(SOUND, &mut out).unwrap();
        for length in [0, BYTES - 4, BYTES + 4] {
            assert!(Flac.decode(SOUND, &mut vec![0; length]).is_err());
        }
        assert!(Flac.decode(&SOUND[..SOUND.len() - 1], &mut out).is_err());
        assert!(Flac.encode(&out).unwrap_err().is_unsupported);
    }

    #[test]
    fn a_changed_byte_is_an_error_or_changes_nothing() {
        let (mut sound, mut out) = (vec![0; BYTES], vec![0; BYTES]);
        Flac.decode(SOUND, &mut sound).unwrap();
        for at in 0..SOUND.len() {
            let mut damaged = SOUND.to_vec();
            damaged[at] ^= 0x41;
            assert!(Flac.decode(&damaged, &mut out).is_err() || out == sound, "byte {at}");
        }
    }
}
