//! A picture as pixels, and its PNG file.
//!
//! Spec: PNG (ISO/IEC 15948), colour type 2 with 8 bits, one IDAT chunk, no filters. Uses flate2 and crc32fast.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::colour::Rgb;

/// Pixels, row by row.
#[derive(Clone, Debug)]
pub struct Raster {
    pub width: usize,
    pub height: usize,
    pixels: Vec<Rgb>,
}

impl Raster {
    pub fn new(width: usize, height: usize, colour: Rgb) -> Self {
        Raster { width, height, pixels: vec![colour; width * height] }
    }

    /// The colour of a pixel; black outside.
    pub fn pixel(&self, x: usize, y: usize) -> Rgb {
        let inside = x < self.width;
        self.pixels.get(y * self.width + x).copied().filter(|_| inside).unwrap_or_default()
    }

    /// Colours a pixel; nothing happens outside.
    pub fn set(&mut self, x: usize, y: usize, colour: Rgb) {
        if x < self.width
            && let Some(pixel) = self.pixels.get_mut(y * self.width + x)
        {
            *pixel = colour;
        }
    }

    /// Colours a rectangle, as far as it lies inside.
    pub fn fill(&mut self, (x, y): (usize, usize), (width, height): (usize, usize), colour: Rgb) {
        for row in y..(y + height).min(self.height) {
            for column in x..(x + width).min(self.width) {
                self.set(column, row, colour);
            }
        }
    }

    /// Draws a line of one pixel.
    pub fn line(&mut self, from: (usize, usize), to: (usize, usize), colour: Rgb) {
        let (dx, dy) = (to.0 as f64 - from.0 as f64, to.1 as f64 - from.1 as f64);
        let steps = dx.abs().max(dy.abs()).max(1.0);
        for step in 0..=steps as usize {
            let part = step as f64 / steps;
            let at = |start: usize, length: f64| (start as f64 + length * part).round() as usize;
            self.set(at(from.0, dx), at(from.1, dy), colour);
        }
    }

    /// The bytes of a PNG file.
    pub fn png(&self) -> io::Result<Vec<u8>> {
        let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
        let mut header = Vec::new();
        for length in [self.width, self.height] {
            header.extend_from_slice(&u32::try_from(length).map_err(io::Error::other)?.to_be_bytes());
        }
        // 8 bits, red green blue, the only compression, the only kind of filters, not interlaced.
        header.extend_from_slice(&[8, 2, 0, 0, 0]);
        let mut data = ZlibEncoder::new(Vec::new(), Compression::default());
        for row in self.pixels.chunks_exact(self.width.max(1)) {
            // No filter.
            data.write_all(&[0])?;
            data.write_all(row.as_flattened())?;
        }
        chunk(&mut file, b"IHDR", &header)?;
        chunk(&mut file, b"IDAT", &data.finish()?)?;
        chunk(&mut file, b"IEND", &[])?;
        Ok(file)
    }
}

fn chunk(file: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) -> io::Result<()> {
    file.extend_from_slice(&u32::try_from(data.len()).map_err(io::Error::other)?.to_be_bytes());
    let start = file.len();
    file.extend_from_slice(name);
    file.extend_from_slice(data);
    let checksum = crc32fast::hash(file.get(start..).unwrap_or_default());
    file.extend_from_slice(&checksum.to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn drawing_stays_inside() {
        let mut raster = Raster::new(3, 2, [0; 3]);
        raster.fill((2, 1), (9, 9), [1; 3]);
        raster.line((0, 0), (9, 0), [2; 3]);
        raster.set(3, 0, [3; 3]);
        assert_eq!((raster.pixel(2, 1), raster.pixel(2, 0), raster.pixel(0, 1)), ([1; 3], [2; 3], [0; 3]));
        assert!(raster.png().unwrap().ends_with(b"\0\0\0\0IEND\xae\x42\x60\x82"));
    }
}
