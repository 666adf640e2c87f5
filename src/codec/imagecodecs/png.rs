//! `imagecodecs_png`: PNG images of 8 and 16 bits, as TIFF's relatives have them in their tiles.
//!
//! Spec: W3C Portable Network Graphics, third edition. Uses the crate png, which compares all checksums. It is only read. Uses `whole_array`.
//!
//! ```json
//! {"name": "imagecodecs_png", "configuration": {"level": 9}}
//! ```
//!
//! The members are for the encoder. Samples of 16 bits are in the byte order of the machine, which is little-endian here. Palettes, samples of fewer bits and
//! transparent colours are refused, because imagecodecs makes other samples of them than the image has.

use std::io::Cursor;

use png::{BitDepth, ColorType, Decoder, Limits, Transformations};

use crate::codec::array_to_bytes::whole_array::{ArrayCompressor, build as build_compressor, exact_size};
use crate::codec::config::Configuration;
use crate::codec::{Codec, CodecEntry, CodecError, CodecResult, Context};

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["imagecodecs_png"], v2: &["imagecodecs_png"], build };

/// What the decoder may take in addition to the image: its window, and two rows.
const WORK_BYTES: usize = 1 << 20;

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    for of_encoder in ["level", "strategy", "filter", "squeeze", "primaries", "transfer", "matrix"] {
        configuration.value(of_encoder);
    }
    configuration.finish()?;
    Ok(build_compressor(context, Png, exact_size(context)?))
}

struct Png;

impl ArrayCompressor for Png {
    // It does not encode.
    fn is_lossless(&self) -> bool {
        false
    }

    fn has_checksum(&self) -> bool {
        true
    }

    fn decode(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let limits = Limits { bytes: out.len().saturating_add(WORK_BYTES) };
        let mut decoder = Decoder::new_with_limits(Cursor::new(encoded), limits);
        decoder.set_transformations(Transformations::IDENTITY);
        let mut reader = decoder.read_info().map_err(CodecError::new)?;
        let info = reader.info();
        let (width, height, kind, depth) = (info.width, info.height, info.color_type, info.bit_depth);
        if kind == ColorType::Indexed
            || !matches!(depth, BitDepth::Eight | BitDepth::Sixteen)
            || info.trns.is_some()
            || info.is_animated()
        {
            return Err(CodecError::unsupported(format_args!(
                "a PNG image of the kind {kind:?} with {} bits, or with transparent colours or several frames",
                depth as u8
            )));
        }
        // Before any pixel is decoded: the image has the size of the chunk.
        if reader.output_buffer_size() != Some(out.len()) {
            return Err(CodecError::new(format_args!(
                "an image of {width} × {height} pixels of {} samples of {} bits where {} bytes were expected",
                kind.samples(),
                depth as u8,
                out.len()
            )));
        }
        reader.next_frame(out).map_err(CodecError::new)?;
        // The checksums of what follows the pixels, and the end.
        reader.finish().map_err(CodecError::new)?;
        if depth == BitDepth::Sixteen {
            out.as_chunks_mut::<2>().0.iter_mut().for_each(|sample| sample.reverse());
        }
        Ok(())
    }

    fn encode(&self, _: &[u8]) -> CodecResult<Vec<u8>> {
        Err(CodecError::unsupported("encoding with codec \"imagecodecs_png\""))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    /// 6 rows of 40 pixels of two bytes.
    const IMAGE: &[u8] = include_bytes!("../../../tests/fuzz/recorded/imagecodecs-png");
    const BYTES: usize = 480;

    fn image(kind: ColorType, depth: BitDepth, pixels: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 8, 1);
        encoder.set_color(kind);
        encoder.set_depth(depth);
        if kind == ColorType::Indexed {
            encoder.set_palette(vec![0; 768]);
        }
        encoder.write_header().unwrap().write_image_data(pixels).unwrap();
        bytes
    }

    #[test]
    fn samples_of_16_bits_are_little_endian() {
        let mut out = [0; 16];
        let pixels: Vec<u8> = (0..16).collect();
        Png.decode(&image(ColorType::Grayscale, BitDepth::Sixteen, &pixels), &mut out).unwrap();
        assert_eq!(out, [1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14]);
    }

    #[test]
    fn other_kinds_and_sizes_are_errors() {
        for (kind, depth, pixels) in [
            (ColorType::Indexed, BitDepth::Eight, &[0; 8][..]),
            (ColorType::Grayscale, BitDepth::One, &[0; 1]),
            (ColorType::Grayscale, BitDepth::Four, &[0; 4]),
        ] {
            let error = Png.decode(&image(kind, depth, pixels), &mut [0; 8]).unwrap_err();
            assert!(error.is_unsupported, "{error}");
        }
        let grey = image(ColorType::Grayscale, BitDepth::Eight, &[7; 8]);
        for length in [0, 7, 9, 16] {
            assert!(Png.decode(&grey, &mut vec![0; length]).is_err());
        }
        for length in [0, 8, 40, grey.len() - 4] {
            assert!(Png.decode(&grey[..length], &mut [0; 8]).is_err(), "the first {length} bytes");
        }
    }

    #[test]
    fn a_changed_byte_is_an_error_or_changes_nothing() {
        let (mut sound, mut out) = (vec![0; BYTES], vec![0; BYTES]);
        Png.decode(IMAGE, &mut sound).unwrap();
        for at in 0..IMAGE.len() {
            let mut damaged = IMAGE.to_vec();
            damaged[at] ^= 0x41;
            assert!(Png.decode(&damaged, &mut out).is_err() || out == sound, "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn damaged_images_are_no_panic(at in 0usize..400, byte: u8) {
            let mut stream = IMAGE.to_vec();
            let length = stream.len();
            stream[at % length] = byte;
            let _ = Png.decode(&stream, &mut [0; BYTES]);
        }
    }
}
