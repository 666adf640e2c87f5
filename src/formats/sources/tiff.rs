//! TIFF and BigTIFF files: strips and tiles, uncompressed, LZW, deflate, zstd and PackBits, with predictors.
//!
//! Spec: TIFF 6.0 and its supplements. Uses its neighbours, and the crate `tiff`. Pages of one shape and type that follow each other are one
//! array; its axes are `page`, `y`, `x` and `sample`, or `page`, `sample`, `y`, `x` if each sample has a plane of its own, those of length 1
//! left out. A file with pages of other shapes has several arrays, `page_N` after the number of their first page.
//!
//! The crate inverts samples of which 0 is white, and leaves out samples that have no place in the colour space. An array has what is stored:
//! the first are inverted back, and a file with the second is refused.

use std::fs::File;
use std::io::BufReader;

use tiff::decoder::{ChunkType, Decoder, DecodingSampleType, Limits};
use tiff::tags::{PhotometricInterpretation, PlanarConfiguration, Tag};

use super::attributes::AttributeValue;
use super::boxes::ElementBox;
use super::source_file::{Elements, SourceFile};
use super::variable::{Attribute, SourceGroup, SourceVariable, guarded, refused};
use crate::array::ByteOrder;
use crate::error::Result;
use crate::metadata::author::ElementType;

/// The most pages.
const MAX_PAGES: usize = 1 << 20;
/// The longest strip or tile that is decoded.
const MAX_CHUNK_BYTES: usize = 1 << 30;
/// The longest value of a tag.
const MAX_TAG_BYTES: usize = 64 << 20;

/// Tags that become attributes, and their names.
const TEXTS: [(Tag, &str); 5] = [
    (Tag::ImageDescription, "ImageDescription"),
    (Tag::Software, "Software"),
    (Tag::DateTime, "DateTime"),
    (Tag::Artist, "Artist"),
    (Tag::Copyright, "Copyright"),
];
/// The same for numbers.
const NUMBERS: [(Tag, &str); 2] = [(Tag::XResolution, "XResolution"), (Tag::YResolution, "YResolution")];
/// Tags that an array has no place for.
const LEFT_OUT: [(Tag, &str); 3] = [
    (Tag::SubIfd, "smaller copies of the image (SubIFDs)"),
    (Tag::GeoKeyDirectoryTag, "the position on the Earth (GeoTIFF)"),
    (Tag::IccProfile, "the colour profile"),
];

type TiffDecoder = Decoder<BufReader<File>>;

/// What is the same on all pages of an array.
#[derive(Clone, Debug, PartialEq)]
struct PageForm {
    width: u32,
    height: u32,
    samples: u16,
    /// Whether each sample has a plane of its own.
    is_planar: bool,
    /// Bits that a sample has in the file.
    bits: u8,
    sample: DecodingSampleType,
    is_inverted: bool,
    /// Width and height of a strip or tile.
    chunk: (u32, u32),
}

/// An array of pages.
struct Pages {
    first: usize,
    count: usize,
    form: PageForm,
}

/// Opens a file.
pub fn open(file: File, name: &str) -> Result<SourceFile> {
    guarded(name, || open_unguarded(file, name))
}

fn open_unguarded(file: File, name: &str) -> Result<SourceFile> {
    let failed = |error: tiff::TiffError| refused(name, error);
    let mut limits = Limits::default();
    limits.decoding_buffer_size = MAX_CHUNK_BYTES;
    limits.intermediate_buffer_size = MAX_CHUNK_BYTES;
    limits.ifd_value_size = MAX_TAG_BYTES;
    let mut decoder = Decoder::new(BufReader::new(file)).map_err(failed)?.with_limits(limits);
    let (mut series, mut variables, mut left_out): (Vec<Pages>, Vec<SourceVariable>, Vec<String>) =
        (Vec::new(), Vec::new(), Vec::new());
    for page in 0.. {
        if page >= MAX_PAGES {
            return Err(refused(name, format!("it has more than {MAX_PAGES} pages")));
        }
        let form = form(&mut decoder, page, name)?;
        match series.last_mut().filter(|pages| pages.form == form) {
            Some(pages) => pages.count += 1,
            None => {
                for (tag, what) in LEFT_OUT {
                    if decoder.find_tag(tag).ok().flatten().is_some() {
                        left_out.push(format!("page {page}: {what}"));
                    }
                }
                variables.push(variable(&mut decoder, &form, page, name)?);
                series.push(Pages { first: page, count: 1, form });
            }
        }
        if !decoder.more_images() {
            break;
        }
        decoder.next_image().map_err(failed)?;
    }
    let is_one = series.len() == 1;
    for (variable, pages) in variables.iter_mut().zip(&series) {
        if pages.count > 1 {
            variable.shape.insert(0, pages.count as u64);
            variable.dimensions.insert(0, "page".to_owned());
            variable.is_unlimited.insert(0, false);
            if let Some(chunks) = &mut variable.chunks {
                chunks.insert(0, 1);
            }
        }
        if !is_one {
            // In xarray a dimension has one length in a group.
            for dimension in &mut variable.dimensions {
                *dimension = format!("{}_{dimension}", variable.path);
            }
        }
    }
    // A file of one array is that array.
    let groups = if is_one { Vec::new() } else { vec![SourceGroup::default()] };
    if is_one && let Some(variable) = variables.first_mut() {
        variable.path = String::new();
    }
    let elements = Box::new(TiffElements { name: name.to_owned(), decoder, series, at: None });
    Ok(SourceFile { name: name.to_owned(), groups, variables, left_out, elements })
}

/// Returns the form of the page that the decoder is at.
fn form(decoder: &mut TiffDecoder, page: usize, name: &str) -> Result<PageForm> {
    let failed = |error: tiff::TiffError| refused(name, format!("page {page}: {error}"));
    let (width, height) = decoder.dimensions().map_err(failed)?;
    let colour = decoder.colortype().map_err(failed)?;
    let planar = decoder.find_tag_unsigned::<u16>(Tag::PlanarConfiguration).map_err(failed)?;
    let is_planar = planar == Some(PlanarConfiguration::Planar.to_u16());
    let samples = decoder.find_tag_unsigned::<u16>(Tag::SamplesPerPixel).map_err(failed)?.unwrap_or(1);
    if !is_planar && samples != colour.num_samples() {
        let has = colour.num_samples();
        return Err(refused(name, format!("page {page}: it has {samples} samples, and its colours {has}")));
    }
    let photometric = decoder.find_tag_unsigned::<u16>(Tag::PhotometricInterpretation).map_err(failed)?;
    let layout = decoder.image_chunk_buffer_layout(0).map_err(failed)?;
    let sample = layout
        .sample_type
        .ok_or_else(|| refused(name, format!("page {page}: its samples have a type that arrays lack")))?;
    let bits = colour.bit_depth();
    let is_known = matches!((bits, sample), (1 | 2 | 4, DecodingSampleType::U8) | (8 | 16 | 32 | 64, _));
    let is_float =
        matches!(sample, DecodingSampleType::F16 | DecodingSampleType::F32 | DecodingSampleType::F64);
    let is_inverted = photometric == Some(PhotometricInterpretation::WhiteIsZero.to_u16());
    if !is_known || is_inverted && is_float {
        return Err(refused(name, format!("page {page}: samples of {bits} bits are not supported")));
    }
    let chunk = decoder.chunk_dimensions();
    if width == 0 || height == 0 || chunk.0 == 0 || chunk.1 == 0 {
        return Err(refused(name, format!("page {page}: it is empty")));
    }
    Ok(PageForm { width, height, samples, is_planar, bits, sample, is_inverted, chunk })
}

impl PageForm {
    /// Returns NumPy's name of the type of a sample.
    fn type_name(&self) -> &'static str {
        match self.sample {
            DecodingSampleType::U8 if self.bits == 1 => "bool",
            DecodingSampleType::U8 => "uint8",
            DecodingSampleType::U16 => "uint16",
            DecodingSampleType::U32 => "uint32",
            DecodingSampleType::U64 => "uint64",
            DecodingSampleType::I8 => "int8",
            DecodingSampleType::I16 => "int16",
            DecodingSampleType::I32 => "int32",
            DecodingSampleType::I64 => "int64",
            DecodingSampleType::F16 => "float16",
            DecodingSampleType::F32 => "float32",
            DecodingSampleType::F64 => "float64",
        }
    }

    /// Returns the axes of a page: name, length, and length of a strip or tile.
    fn axes(&self) -> Vec<(&'static str, u64, u64)> {
        let sample_chunk = if self.is_planar { 1 } else { self.samples.into() };
        let sample = ("sample", u64::from(self.samples), sample_chunk);
        let (x, y) =
            (("x", self.width.into(), self.chunk.0.into()), ("y", self.height.into(), self.chunk.1.into()));
        match (self.samples, self.is_planar) {
            (1, _) => vec![y, x],
            (_, true) => vec![sample, y, x],
            (_, false) => vec![y, x, sample],
        }
    }

    /// Returns the samples that one pixel of a strip or tile has.
    fn samples_of_pixel(&self) -> usize {
        if self.is_planar { 1 } else { self.samples.into() }
    }
}

fn variable(decoder: &mut TiffDecoder, form: &PageForm, page: usize, name: &str) -> Result<SourceVariable> {
    let axes = form.axes();
    let element = ElementType::parse(form.type_name()).map_err(|error| refused(name, error))?;
    Ok(SourceVariable {
        path: format!("page_{page}"),
        dimensions: axes.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        is_unlimited: vec![false; axes.len()],
        shape: axes.iter().map(|&(_, length, _)| length).collect(),
        element,
        byte_order: if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little },
        chunks: Some(axes.iter().map(|&(_, _, length)| length).collect()),
        attributes: attributes(decoder),
        missing: None,
    })
}

fn attributes(decoder: &mut TiffDecoder) -> Vec<Attribute> {
    let mut attributes = Vec::new();
    for (tag, name) in TEXTS {
        if let Ok(text) = decoder.get_tag_ascii_string(tag) {
            attributes.push((name.to_owned(), AttributeValue::Text(text).json()));
        }
    }
    for (tag, name) in NUMBERS {
        if let Some(tiff::decoder::ifd::Value::Rational(over, under)) = decoder.find_tag(tag).ok().flatten()
            && under != 0
        {
            let number = f64::from(over) / f64::from(under);
            attributes.push((name.to_owned(), AttributeValue::Floats(vec![number]).json()));
        }
    }
    if let Ok(Some(unit)) = decoder.find_tag_unsigned::<u16>(Tag::ResolutionUnit) {
        let unit = match unit {
            2 => "inch",
            3 => "centimeter",
            _ => "none",
        };
        attributes.push(("ResolutionUnit".to_owned(), AttributeValue::Text(unit.to_owned()).json()));
    }
    attributes
}

struct TiffElements {
    name: String,
    decoder: TiffDecoder,
    series: Vec<Pages>,
    /// The page that the decoder is at, once it is known.
    at: Option<usize>,
}

/// A part of one page and of one plane.
struct Window {
    page: usize,
    plane: u64,
    y: std::ops::Range<u64>,
    x: std::ops::Range<u64>,
}

impl Elements for TiffElements {
    fn read(&mut self, variable: usize, part: &ElementBox) -> Result<Vec<u8>> {
        let Some(Pages { first, count, form }) = self.series.get(variable) else { return Ok(Vec::new()) };
        let (first, form) = (*first, form.clone());
        let mut axes = part.start.iter().zip(&part.count).map(|(&start, &count)| start..start + count);
        let pages = if *count > 1 { axes.next().unwrap_or(0..1) } else { 0..1 };
        let planes = if form.is_planar && form.samples > 1 { axes.next().unwrap_or(0..1) } else { 0..1 };
        let (y, x) = (axes.next().unwrap_or(0..0), axes.next().unwrap_or(0..0));
        let name = self.name.clone();
        let mut bytes = Vec::new();
        for page in pages {
            for plane in planes.clone() {
                let page = first + usize::try_from(page).unwrap_or(usize::MAX);
                let window = Window { page, plane, y: y.clone(), x: x.clone() };
                guarded(&name, || self.read_window(&form, &window, &mut bytes))?;
            }
        }
        Ok(bytes)
    }
}

impl TiffElements {
    /// Adds the pixels of a window, row by row.
    fn read_window(&mut self, form: &PageForm, window: &Window, bytes: &mut Vec<u8>) -> Result<()> {
        let page = window.page;
        let name = self.name.clone();
        let failed = |error: tiff::TiffError| refused(&name, format!("page {page}: {error}"));
        if self.at != Some(page) {
            self.decoder.seek_to_image(page).map_err(failed)?;
            self.at = Some(page);
        }
        let pixel = form.samples_of_pixel() * sample_bytes(form.sample);
        let (rows, columns) = (window.y.end - window.y.start, window.x.end - window.x.start);
        let row_bytes = usize::try_from(columns).unwrap_or(usize::MAX).saturating_mul(pixel);
        let start = bytes.len();
        bytes.resize(
            start.saturating_add(usize::try_from(rows).unwrap_or(usize::MAX).saturating_mul(row_bytes)),
            0,
        );
        let out = bytes.get_mut(start..).unwrap_or_default();
        let (width, height) = (u64::from(form.chunk.0), u64::from(form.chunk.1));
        let is_tiled = self.decoder.get_chunk_type() == ChunkType::Tile;
        let across = if is_tiled { u64::from(form.width).div_ceil(width) } else { 1 };
        let down = u64::from(form.height).div_ceil(height);
        for row in window.y.start / height..window.y.end.div_ceil(height) {
            for column in window.x.start / width..window.x.end.div_ceil(width) {
                let chunk = window.plane * across * down + row * across + column;
                let chunk = u32::try_from(chunk).map_err(|error| refused(&self.name, error))?;
                let layout = self.decoder.image_chunk_buffer_layout(chunk).map_err(failed)?;
                if layout.len > MAX_CHUNK_BYTES {
                    let reason = format!("page {page}: a strip or tile of {} bytes is too long", layout.len);
                    return Err(refused(&self.name, reason));
                }
                let mut decoded = vec![0; layout.len];
                self.decoder.read_chunk_bytes(chunk, &mut decoded).map_err(failed)?;
                if form.is_inverted {
                    decoded.iter_mut().for_each(|byte| *byte = !*byte);
                }
                let stride = layout.row_stride.map_or(layout.len, std::num::NonZero::get);
                let (top, left) = (row * height, column * width);
                for (y, line) in (top..).zip(decoded.chunks(stride)) {
                    if !window.y.contains(&y) {
                        continue;
                    }
                    let line = if form.bits < 8 { unpacked(line, form.bits) } else { line.to_vec() };
                    let from = window.x.start.max(left);
                    let to = window.x.end.min(left + width).min(form.width.into());
                    let place = |x: u64| usize::try_from(x).unwrap_or(usize::MAX).saturating_mul(pixel);
                    let line_number = usize::try_from(y - window.y.start).unwrap_or(usize::MAX);
                    let at =
                        line_number.saturating_mul(row_bytes).saturating_add(place(from - window.x.start));
                    let run = line.get(place(from - left)..place(to - left));
                    let run = run.ok_or_else(|| {
                        refused(&self.name, format!("page {page}: a strip or tile is too short"))
                    })?;
                    if let Some(out) = out.get_mut(at..at + run.len()) {
                        out.copy_from_slice(run);
                    }
                }
            }
        }
        Ok(())
    }
}

fn sample_bytes(sample: DecodingSampleType) -> usize {
    match sample {
        DecodingSampleType::U8 | DecodingSampleType::I8 => 1,
        DecodingSampleType::U16 | DecodingSampleType::I16 | DecodingSampleType::F16 => 2,
        DecodingSampleType::U32 | DecodingSampleType::I32 | DecodingSampleType::F32 => 4,
        DecodingSampleType::U64 | DecodingSampleType::I64 | DecodingSampleType::F64 => 8,
    }
}

/// Returns samples of fewer than 8 bits, the most significant first, as one byte each.
fn unpacked(line: &[u8], bits: u8) -> Vec<u8> {
    let mask = ((1u16 << bits) - 1) as u8;
    let shifts = (0..8 / bits).rev().map(|place| place * bits);
    line.iter().flat_map(|byte| shifts.clone().map(move |shift| byte >> shift & mask)).collect()
}
