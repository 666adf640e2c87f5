//! Values as the pixels of a PNG image, as the radar mosaics of NOAA have them. Uses the crate png.

use std::io::Cursor;

use png::{ColorType, Decoder, Limits, Transformations};

use super::bits::Bits;
use super::field::{damaged, scale};
use crate::codec::{CodecError, CodecResult, scratch};

/// What the decoder may take in addition to the image: its window, and two rows.
const WORK_BYTES: usize = 1 << 20;

/// Returns the `count` values of a field. A value has all bits of a pixel, the samples of a coloured one as one number.
pub fn read(template: &[u8], data: &[u8], count: usize) -> CodecResult<Vec<f64>> {
    let (scale, bits) = scale(template)?;
    scratch::probe(count.saturating_mul(size_of::<f64>()))?;
    if bits == 0 {
        return Ok(vec![scale.reference; count]);
    }
    let limits = Limits { bytes: count.saturating_mul(4).saturating_add(WORK_BYTES) };
    let mut decoder = Decoder::new_with_limits(Cursor::new(data), limits);
    decoder.set_transformations(Transformations::IDENTITY);
    let mut reader = decoder.read_info().map_err(CodecError::new)?;
    let info = reader.info();
    let (width, height) = (info.width as usize, info.height as usize);
    // Before any pixel is decoded: the image has one for each value.
    if width.checked_mul(height) != Some(count) || count == 0 {
        return Err(CodecError::new(format_args!(
            "the GRIB message has a PNG image of {width} × {height} pixels where {count} were expected"
        )));
    }
    let pixel_bits = match info.color_type {
        ColorType::Grayscale => info.bit_depth as u32,
        ColorType::Rgb if info.bit_depth as u32 == 8 => 24,
        ColorType::Rgba if info.bit_depth as u32 == 8 => 32,
        other => {
            return Err(CodecError::unsupported(format_args!(
                "a GRIB message with a PNG image of the kind {other:?}"
            )));
        }
    };
    let size = reader.output_buffer_size().ok_or_else(|| damaged("has a PNG image that is too large"))?;
    let value = scale.apply();
    scratch::with(size, |pixels| {
        reader.next_frame(pixels).map_err(CodecError::new)?;
        // Rows begin at a whole byte.
        let rows = pixels.chunks_exact((size / height).max(1));
        let mut values = Vec::with_capacity(count);
        for mut row in rows.map(Bits::new) {
            for _ in 0..width {
                values.push(value(f64::from(row.number(pixel_bits)?)));
            }
        }
        Ok(values)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    /// Values begin at 3, have a binary exponent of 1 and a decimal one of 1.
    const TEMPLATE: [u8; 11] = [0x40, 0x40, 0, 0, 0, 1, 0, 1, 8, 0, 0];

    fn image(kind: ColorType, depth: png::BitDepth, width: u32, pixels: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, 2);
        encoder.set_color(kind);
        encoder.set_depth(depth);
        encoder.write_header().unwrap().write_image_data(pixels).unwrap();
        bytes
    }

    #[test]
    fn a_value_has_all_bits_of_its_pixel() {
        for (kind, depth, pixels, numbers) in [
            (ColorType::Grayscale, png::BitDepth::Four, &[0x12, 0x30, 0x45, 0x60][..], [1, 2, 3, 4, 5, 6]),
            (ColorType::Grayscale, png::BitDepth::Eight, &[9, 8, 7, 6, 5, 4], [9, 8, 7, 6, 5, 4]),
            (
                ColorType::Grayscale,
                png::BitDepth::Sixteen,
                &[1, 0, 0, 1, 0, 2, 0, 3, 0, 4, 255, 255],
                [256, 1, 2, 3, 4, 65535],
            ),
            (
                ColorType::Rgb,
                png::BitDepth::Eight,
                &[1, 0, 0, 0, 0, 2, 0, 0, 3, 0, 0, 4, 0, 0, 5, 0, 1, 0],
                [65536, 2, 3, 4, 5, 256],
            ),
        ] {
            let encoded = image(kind, depth, 3, pixels);
            let expected = numbers.map(|number: u32| (f64::from(number) * 2.0 + 3.0) * 10f64.powi(-1));
            assert_eq!(read(&TEMPLATE, &encoded, 6).unwrap(), expected);
            assert!(read(&TEMPLATE, &encoded, 5).is_err() && read(&TEMPLATE, &encoded, 12).is_err());
            assert!(read(&TEMPLATE, &encoded[..encoded.len() - 20], 6).is_err());
        }
        let grey_with_opacity = image(ColorType::GrayscaleAlpha, png::BitDepth::Eight, 3, &[0; 12]);
        assert!(read(&TEMPLATE, &grey_with_opacity, 6).unwrap_err().is_unsupported);
    }

    /// The image says that it has 4 billion pixels in a row, and the message as many values as the array.
    #[test]
    fn a_size_that_is_stated_takes_no_memory() {
        let mut encoded = image(ColorType::Grayscale, png::BitDepth::Eight, 3, &[0; 6]);
        encoded[16..20].copy_from_slice(&0x7fff_ffffu32.to_be_bytes());
        assert!(read(&TEMPLATE, &encoded, 6).is_err());
    }

    proptest! {
        #[test]
        fn damaged_images_are_no_panic(at in 0usize..200, byte: u8) {
            let mut encoded = image(ColorType::Grayscale, png::BitDepth::Sixteen, 3, &[7; 12]);
            let length = encoded.len();
            encoded[at % length] = byte;
            let _ = read(&TEMPLATE, &encoded, 6);
        }
    }
}
