//! `imagecodecs_webp`: WebP images of three or four samples of 8 bits, lossy and lossless.
//!
//! Spec: RFC 9649. Uses the crate image-webp. It is only read. Uses `whole_array`.
//!
//! ```json
//! {"name": "imagecodecs_webp", "configuration": {"hasalpha": true}}
//! ```
//!
//! A pixel has the sample of its opacity if `hasalpha` says so; by default, if the image has it. Opacity that an image does not have
//! is 255. The other members are for the encoder.

use std::io::Cursor;

use image_webp::WebPDecoder;

use crate::codec::array_to_bytes::whole_array::{ArrayCompressor, build as build_compressor, exact_size};
use crate::codec::config::Configuration;
use crate::codec::{Codec, CodecEntry, CodecError, CodecResult, Context, scratch};

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["imagecodecs_webp"], v2: &["imagecodecs_webp"], build };

/// Bytes of the header of the file.
const HEADER_BYTES: usize = 12;
/// Samples of a pixel that has opacity.
const WITH_OPACITY: usize = 4;
/// Samples of a pixel that does not have it.
const WITHOUT_OPACITY: usize = 3;

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    let has_opacity = configuration.boolean("hasalpha")?;
    // Images of several frames are refused when they are read.
    configuration.integer("index", 0..=0)?;
    for of_encoder in ["level", "lossless", "method", "numthreads", "delay", "squeeze"] {
        configuration.value(of_encoder);
    }
    configuration.finish()?;
    Ok(build_compressor(context, WebP { has_opacity }, exact_size(context)?))
}

struct WebP {
    /// Whether pixels have the sample of opacity, where that is stated.
    has_opacity: Option<bool>,
}

/// Returns the width and height that a lossy frame states. The decoder takes memory for them before it compares them with those of the file.
fn lossy_frame_size(frame: &[u8]) -> Option<(u32, u32)> {
    let sides = frame.get(6..10)?;
    let side = |low: u8, high: u8| u32::from(u16::from_le_bytes([low, high]) & 0x3fff);
    match sides {
        [a, b, c, d] => Some((side(*a, *b), side(*c, *d))),
        _ => None,
    }
}

/// Fails if a lossy frame of the file has another size than the image.
fn check_frames(encoded: &[u8], width: u32, height: u32) -> CodecResult<()> {
    let mut rest = encoded.get(HEADER_BYTES..).unwrap_or_default();
    while let Some((head, after)) = rest.split_first_chunk::<8>() {
        let [name @ .., a, b, c, d] = head;
        let length = usize::try_from(u32::from_le_bytes([*a, *b, *c, *d])).unwrap_or(usize::MAX);
        let content = after.get(..length).unwrap_or(after);
        if name == b"VP8 " && lossy_frame_size(content).is_some_and(|size| size != (width, height)) {
            return Err(CodecError::new("a frame has another size than its image"));
        }
        // A chunk of an odd length is padded.
        rest = after.get(length.saturating_add(length & 1)..).unwrap_or_default();
    }
    Ok(())
}

impl ArrayCompressor for WebP {
    // It does not encode.
    fn is_lossless(&self) -> bool {
        false
    }

    fn decode(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let mut decoder = WebPDecoder::new(Cursor::new(encoded)).map_err(CodecError::new)?;
        decoder.set_memory_limit(out.len());
        let (width, height) = decoder.dimensions();
        let is_stored = decoder.has_alpha();
        let is_wanted = self.has_opacity.unwrap_or(is_stored);
        let samples = if is_wanted { WITH_OPACITY } else { WITHOUT_OPACITY };
        // Before any pixel is decoded: the image has the size of the chunk.
        let pixels = usize::try_from(u64::from(width) * u64::from(height)).ok();
        if pixels.and_then(|pixels| pixels.checked_mul(samples)) != Some(out.len()) {
            return Err(CodecError::new(format_args!(
                "an image of {width} × {height} pixels of {samples} bytes where {} bytes were expected",
                out.len()
            )));
        }
        if decoder.is_animated() {
            return Err(CodecError::unsupported("a WebP image of several frames"));
        }
        check_frames(encoded, width, height)?;
        if is_stored == is_wanted {
            return decoder.read_image(out).map_err(CodecError::new);
        }
        let stored_samples = if is_stored { WITH_OPACITY } else { WITHOUT_OPACITY };
        scratch::with(out.len() / samples * stored_samples, |stored| {
            decoder.read_image(stored).map_err(CodecError::new)?;
            for (pixel, own) in out.chunks_exact_mut(samples).zip(stored.chunks_exact(stored_samples)) {
                for (at, sample) in pixel.iter_mut().enumerate() {
                    *sample = own.get(at).copied().unwrap_or(u8::MAX);
                }
            }
            Ok(())
        })
    }

    fn encode(&self, _: &[u8]) -> CodecResult<Vec<u8>> {
        Err(CodecError::unsupported("encoding with codec \"imagecodecs_webp\""))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    /// 6 rows of 40 pixels.
    const LOSSY: &[u8] = include_bytes!("../../../tests/fuzz/recorded/imagecodecs-webp");
    const LOSSLESS: &[u8] = include_bytes!("../../../tests/fuzz/recorded/imagecodecs-webp-lossless");
    const PIXELS: usize = 240;

    fn decode(has_opacity: Option<bool>, encoded: &[u8], samples: usize) -> CodecResult<Vec<u8>> {
        let mut out = vec![7; PIXELS * samples];
        WebP { has_opacity }.decode(encoded, &mut out)?;
        Ok(out)
    }

    #[test]
    fn opacity_is_added_and_left_out() {
        let three = decode(None, LOSSY, 3).unwrap();
        let four = decode(Some(true), LOSSY, 4).unwrap();
        assert!(four.chunks(4).zip(three.chunks(3)).all(|(one, other)| &one[..3] == other && one[3] == 255));
        let own = decode(None, LOSSLESS, 4).unwrap();
        let without = decode(Some(false), LOSSLESS, 3).unwrap();
        assert!(own.chunks(4).zip(without.chunks(3)).all(|(one, other)| &one[..3] == other));
    }

    #[test]
    fn images_that_do_not_fit_are_errors() {
        let error = decode(Some(true), LOSSY, 3).unwrap_err().to_string();
        assert_eq!(error, "an image of 40 × 6 pixels of 4 bytes where 720 bytes were expected");
        assert!(decode(None, &LOSSY[..LOSSY.len() - 12], 3).is_err() && decode(None, &[], 3).is_err());
        // A frame that says that it is larger than its image.
        let large = [&LOSSY[..26], &[0xff, 0x3f, 0xff, 0x3f]].concat();
        assert!(check_frames(LOSSY, 40, 6).is_ok() && check_frames(&large, 40, 6).is_err());
    }

    proptest! {
        #[test]
        fn damaged_images_are_no_panic(at in 0usize..72, byte: u8) {
            for (stream, samples) in [(LOSSY, 3), (LOSSLESS, 4)] {
                let mut stream = stream.to_vec();
                let length = stream.len();
                stream[at % length] = byte;
                let _ = decode(None, &stream, samples);
            }
        }
    }
}
