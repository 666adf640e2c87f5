//! A picture as pixels, and its PNG file. The crate embedded-graphics draws text and lines, with a font of Latin-1 (80 KB in the program);
//! plotters has no font of its own.
//!
//! Spec: PNG (ISO/IEC 15948), colour type 2 with 8 bits, one IDAT chunk, no filters. Uses flate2 and crc32fast. The crate png would add three
//! crates, among them a second implementation of deflate, to save these thirty lines.

use std::convert::Infallible;
use std::io::{self, Write};

use embedded_graphics::draw_target::DrawTarget;
use embedded_graphics::geometry::{OriginDimensions, Point, Size};
use embedded_graphics::mono_font::MonoTextStyle;
use embedded_graphics::mono_font::iso_8859_1::FONT_10X20;
use embedded_graphics::pixelcolor::{Rgb888, RgbColor};
use embedded_graphics::primitives::{Line, Primitive, PrimitiveStyle};
use embedded_graphics::text::{Baseline, Text};
use embedded_graphics::{Drawable, Pixel};
use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::colour::Rgb;

/// The width of a letter and of the gap after it.
pub const LETTER_WIDTH: usize = 10;
/// The height of a line of text.
pub const TEXT_HEIGHT: usize = 20;

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

    /// Colours a pixel. Does nothing outside the picture.
    pub fn set(&mut self, x: usize, y: usize, colour: Rgb) {
        if x < self.width
            && let Some(pixel) = self.pixels.get_mut(y * self.width + x)
        {
            *pixel = colour;
        }
    }

    /// Colours the part of a rectangle that lies inside the picture.
    pub fn fill(&mut self, (x, y): (usize, usize), (width, height): (usize, usize), colour: Rgb) {
        for row in y..(y + height).min(self.height) {
            for column in x..(x + width).min(self.width) {
                self.set(column, row, colour);
            }
        }
    }

    /// Draws a line that is two pixels wide.
    pub fn line(&mut self, from: (usize, usize), to: (usize, usize), colour: Rgb) {
        let style = PrimitiveStyle::with_stroke(rgb888(colour), 2);
        let Ok(()) = Line::new(point(from), point(to)).into_styled(style).draw(self);
    }

    /// Writes text with its upper left corner at this place. Characters outside Latin-1 become `?`.
    pub fn text(&mut self, corner: (usize, usize), text: &str, colour: Rgb) {
        let style = MonoTextStyle::new(&FONT_10X20, rgb888(colour));
        let text = drawable(text);
        let Ok(_) = Text::with_baseline(&text, point(corner), style, Baseline::Top).draw(self);
    }

    /// Returns the bytes of a PNG file.
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
        push_chunk(&mut file, b"IHDR", &header)?;
        push_chunk(&mut file, b"IDAT", &data.finish()?)?;
        push_chunk(&mut file, b"IEND", &[])?;
        Ok(file)
    }
}

impl OriginDimensions for Raster {
    fn size(&self) -> Size {
        Size::new(self.width as u32, self.height as u32)
    }
}

impl DrawTarget for Raster {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> Result<(), Infallible> {
        for Pixel(Point { x, y }, colour) in pixels {
            if let (Ok(x), Ok(y)) = (x.try_into(), y.try_into()) {
                self.set(x, y, [colour.r(), colour.g(), colour.b()]);
            }
        }
        Ok(())
    }
}

/// Returns how many pixels wide a text is.
pub fn text_width(text: &str) -> usize {
    drawable(text).chars().count() * LETTER_WIDTH
}

/// Replaces characters that the font lacks and that labels often have.
fn drawable(text: &str) -> String {
    text.replace('…', "...").replace('μ', "µ")
}

fn rgb888([red, green, blue]: Rgb) -> Rgb888 {
    Rgb888::new(red, green, blue)
}

fn point((x, y): (usize, usize)) -> Point {
    Point::new(x as i32, y as i32)
}

fn push_chunk(file: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) -> io::Result<()> {
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
        raster.set(3, 0, [3; 3]);
        assert_eq!(raster.pixels, [[0; 3], [0; 3], [0; 3], [0; 3], [0; 3], [1; 3]]);
        raster.line((0, 0), (9, 0), [2; 3]);
        raster.text((0, 0), "µ…", [4; 3]);
        assert_eq!((raster.pixels.len(), text_width("µ…")), (6, 40));
        assert!(raster.png().unwrap().ends_with(b"\0\0\0\0IEND\xae\x42\x60\x82"));
    }
}
