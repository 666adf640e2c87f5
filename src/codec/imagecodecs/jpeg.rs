//! `imagecodecs_jpeg`: JPEG, as TIFF and its relatives have it in their tiles.
//!
//! Spec: ITU-T T.81; TIFF Technical Note 2. Uses the crate libjpeg-turbo-rs, which rounds like libjpeg-turbo: JPEG leaves the rounding
//! open, and other decoders differ from what imagecodecs reads by one or two. It is only read. Uses `whole_array`.
//!
//! ```json
//! {"name": "imagecodecs_jpeg", "configuration": {"tables": "/9j/2wBDAA…", "colorspace_jpeg": null, "colorspace_data": 2}}
//! ```
//!
//! `tables` is TIFF's tag JPEGTables, and `header` precedes a stream that lacks its beginning and its end; both are in base64.
//! `colorspace_jpeg` says what is stored, if the stream does not, and `colorspace_data` what is wanted: names, or libjpeg's numbers.
//! The other members are for the encoder. Without the two, colours become RGB, and four components stay CMYK. Two components, YCCK, and
//! components at several resolutions that stay as they are, are refused: the crate does not read them as libjpeg-turbo does.
//! `imagecodecs_jpeg8` is virtual-tiff's name for one of TIFF's older numbers of the same compression.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use libjpeg_turbo_rs::{DecodeLimits, Decoder, PixelFormat, precision};
use serde_json::Value;

use crate::codec::array_to_bytes::whole_array::{ArrayCompressor, build as build_compressor, exact_size};
use crate::codec::config::Configuration;
use crate::codec::error::check_length;
use crate::codec::{Codec, CodecEntry, CodecError, CodecResult, Context};

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry {
    v3: &["imagecodecs_jpeg", "imagecodecs_jpeg8"],
    v2: &["imagecodecs_jpeg", "imagecodecs_jpeg8"],
    build,
};

/// The most bytes of tables or of a header. The four tables of each kind have less than 3 KiB.
const MAX_TABLES_BYTES: usize = 64 << 10;
/// The most scans of a progressive image. Encoders write about ten.
const MAX_SCANS: usize = 500;
/// The marker that begins a stream.
const START: &[u8] = b"\xff\xd8";
/// The marker that ends a stream.
const END: &[u8] = b"\xff\xd9";

/// What the components of an image mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColourSpace {
    Grey,
    Rgb,
    YCbCr,
    Cmyk,
    Ycck,
}

/// Colour spaces as libjpeg numbers them and as imagecodecs names them.
const COLOUR_SPACES: &[(&str, i64, Option<ColourSpace>)] = &[
    ("UNKNOWN", 0, None),
    ("GRAYSCALE", 1, Some(ColourSpace::Grey)),
    ("GRAY", 1, Some(ColourSpace::Grey)),
    ("MINISWHITE", 1, Some(ColourSpace::Grey)),
    ("MINISBLACK", 1, Some(ColourSpace::Grey)),
    ("RGB", 2, Some(ColourSpace::Rgb)),
    ("YCBCR", 3, Some(ColourSpace::YCbCr)),
    ("CMYK", 4, Some(ColourSpace::Cmyk)),
    ("SEPARATED", 4, Some(ColourSpace::Cmyk)),
    ("YCCK", 5, Some(ColourSpace::Ycck)),
];

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    let tables = read_bytes(&mut configuration, "tables")?;
    let header = read_bytes(&mut configuration, "header")?;
    let stored = read_colour_space(&mut configuration, "colorspace_jpeg")?;
    let wanted = read_colour_space(&mut configuration, "colorspace_data")?;
    let is_smooth = configuration.boolean("fancyupsampling")?.unwrap_or(true);
    for of_encoder in
        ["level", "bitspersample", "subsampling", "optimize", "smoothing", "lossless", "predictor", "squeeze"]
    {
        configuration.value(of_encoder);
    }
    configuration.finish()?;
    let size_bytes = exact_size(context)?;
    let tables = tables.map(|tables| between_markers(&tables).to_vec());
    Ok(build_compressor(context, Jpeg { tables, header, stored, wanted, is_smooth }, size_bytes))
}

fn read_bytes(configuration: &mut Configuration<'_>, key: &'static str) -> CodecResult<Option<Vec<u8>>> {
    let Some(text) = configuration.string(key)? else { return Ok(None) };
    match STANDARD.decode(text) {
        Ok(bytes) if bytes.len() <= MAX_TABLES_BYTES => Ok(Some(bytes)),
        Ok(bytes) => {
            let reason = format_args!("has {} bytes, more than the limit of {MAX_TABLES_BYTES}", bytes.len());
            Err(configuration.error(key, reason))
        }
        Err(error) => Err(configuration.error(key, format_args!("is not base64: {error}"))),
    }
}

fn read_colour_space(
    configuration: &mut Configuration<'_>,
    key: &'static str,
) -> CodecResult<Option<ColourSpace>> {
    let Some(value) = configuration.value(key) else { return Ok(None) };
    let found = COLOUR_SPACES.iter().find(|(name, number, _)| match value {
        Value::String(text) => text.eq_ignore_ascii_case(name),
        _ => value.as_i64() == Some(*number),
    });
    let unsupported = || {
        CodecError::unsupported(
            configuration.error(key, format_args!("is {value}, which is not a colour space of JPEG")),
        )
    };
    found.map(|(_, _, space)| *space).ok_or_else(unsupported)
}

/// Returns a stream without the markers around it.
fn between_markers(stream: &[u8]) -> &[u8] {
    let stream = stream.strip_prefix(START).unwrap_or(stream);
    stream.strip_suffix(END).unwrap_or(stream)
}

struct Jpeg {
    /// Segments with tables that streams lack.
    tables: Option<Vec<u8>>,
    /// The beginning that streams lack.
    header: Option<Vec<u8>>,
    stored: Option<ColourSpace>,
    wanted: Option<ColourSpace>,
    /// Whether colours that are stored at a lower resolution are interpolated.
    is_smooth: bool,
}

impl Jpeg {
    /// Returns a stream with all that it needs.
    fn whole_stream<'a>(&self, encoded: &'a [u8]) -> CodecResult<Cow<'a, [u8]>> {
        let with_header: Cow<'a, [u8]> = match &self.header {
            Some(header) => Cow::Owned([header, encoded, END].concat()),
            None => Cow::Borrowed(encoded),
        };
        let Some(tables) = &self.tables else { return Ok(with_header) };
        let body = with_header.strip_prefix(START).ok_or_else(no_stream)?;
        Ok(Cow::Owned([START, tables, body].concat()))
    }

    /// Returns how a stream is read.
    fn conversion(&self, frame: &Frame) -> CodecResult<Conversion> {
        let detected = frame.colour_space()?;
        let stored = self.stored.unwrap_or(detected);
        let usual = match detected {
            ColourSpace::YCbCr => ColourSpace::Rgb,
            ColourSpace::Ycck => ColourSpace::Cmyk,
            other => other,
        };
        let wanted = self.wanted.or(self.stored).unwrap_or(usual);
        let components = frame.components.len();
        let is_alike = frame.components.iter().all(|own| Some(own.sampling) == frame.sampling());
        let plain = Conversion { transform: 0, format: None, samples: components };
        match (stored, wanted, components) {
            (ColourSpace::YCbCr, ColourSpace::Rgb, 3) => Ok(Conversion { transform: 1, ..plain }),
            (ColourSpace::YCbCr, ColourSpace::Grey, 3) => {
                Ok(Conversion { transform: 1, format: Some(PixelFormat::Grayscale), samples: 1 })
            }
            // Nothing is converted.
            _ if stored == wanted && is_alike && matches!(components, 1 | 3 | 4) => Ok(plain),
            _ => Err(CodecError::unsupported(format_args!(
                "a JPEG image of {components} components as {wanted:?} that are stored as {stored:?}"
            ))),
        }
    }
}

fn no_stream() -> CodecError {
    CodecError::new("the data is not a JPEG stream")
}

/// How the components of a stream become samples.
#[derive(Debug)]
struct Conversion {
    /// What Adobe's marker says for it, which is all that the decoder looks at.
    transform: u8,
    /// The format that the decoder is asked for, if that is not the usual one.
    format: Option<PixelFormat>,
    /// Samples of a pixel.
    samples: usize,
}

/// A component of an image.
#[derive(Debug)]
struct Component {
    name: u8,
    /// Its resolution, across and down.
    sampling: u8,
}

/// What the segments before the first scan say.
#[derive(Debug, Default)]
struct Frame {
    /// Bits of a sample.
    bits: u8,
    height: u16,
    width: u16,
    /// Whether it is lossless JPEG, which has no transform of cosines.
    is_lossless: bool,
    components: Vec<Component>,
    has_jfif: bool,
    /// The transform of colours in Adobe's marker.
    adobe: Option<u8>,
    /// The stream without Adobe's marker, up to the first scan.
    segments: Vec<u8>,
}

impl Frame {
    /// Reads the segments of a stream; returns the frame and the rest of the stream.
    fn read(stream: &[u8]) -> CodecResult<(Frame, &[u8])> {
        let mut frame = Frame::default();
        let mut rest = stream.strip_prefix(START).ok_or_else(no_stream)?;
        loop {
            let [0xff, marker, after @ ..] = rest else { return Err(no_stream()) };
            let own = match marker {
                // Padding between segments.
                0xff => {
                    rest = rest.get(1..).unwrap_or_default();
                    continue;
                }
                0x01 | 0xd0..=0xd7 => {
                    rest = after;
                    continue;
                }
                0xd8 | 0xd9 => return Err(no_stream()),
                0xda => break,
                _ => {
                    let (length, _) = after.split_first_chunk().ok_or_else(no_stream)?;
                    let length = usize::from(u16::from_be_bytes(*length));
                    after.get(2..length).ok_or_else(no_stream)?
                }
            };
            let is_replaced = frame.read_segment(*marker, own)?;
            let (segment, after) = rest.split_at_checked(own.len() + 4).ok_or_else(no_stream)?;
            if !is_replaced {
                frame.segments.extend_from_slice(segment);
            }
            rest = after;
        }
        if frame.components.is_empty() {
            return Err(no_stream());
        }
        Ok((frame, rest))
    }

    /// Reads a segment; returns whether it is left out.
    fn read_segment(&mut self, marker: u8, data: &[u8]) -> CodecResult<bool> {
        match (marker, data) {
            (0xc0..=0xcf, [bits, h1, h2, w1, w2, count, components @ ..])
                if !matches!(marker, 0xc4 | 0xc8 | 0xcc) =>
            {
                if !self.components.is_empty() {
                    return Err(CodecError::new("the JPEG stream has two frames"));
                }
                (self.bits, self.is_lossless) = (*bits, marker == 0xc3);
                (self.height, self.width) = (u16::from_be_bytes([*h1, *h2]), u16::from_be_bytes([*w1, *w2]));
                let components = components.as_chunks::<3>().0.iter().take(usize::from(*count));
                self.components = components
                    .map(|[name, sampling, _]| Component { name: *name, sampling: *sampling })
                    .collect();
            }
            (0xe0, [b'J', b'F', b'I', b'F', 0, ..]) => self.has_jfif = true,
            (0xee, [b'A', b'd', b'o', b'b', b'e', _, _, _, _, _, _, transform, ..]) => {
                self.adobe = Some(*transform);
                return Ok(true);
            }
            _ => {}
        }
        Ok(false)
    }

    fn sampling(&self) -> Option<u8> {
        self.components.first().map(|component| component.sampling)
    }

    /// Returns what libjpeg takes the components for.
    fn colour_space(&self) -> CodecResult<ColourSpace> {
        let names: Vec<u8> = self.components.iter().map(|component| component.name).collect();
        match (names.as_slice(), self.adobe) {
            ([_], _) => Ok(ColourSpace::Grey),
            ([_, _, _], _) if self.has_jfif => Ok(ColourSpace::YCbCr),
            ([_, _, _], Some(0)) | (b"RGB", None) => Ok(ColourSpace::Rgb),
            ([_, _, _], None) if self.is_lossless && names != [1, 2, 3] => Ok(ColourSpace::Rgb),
            ([_, _, _], _) => Ok(ColourSpace::YCbCr),
            ([_, _, _, _], None | Some(0)) => Ok(ColourSpace::Cmyk),
            ([_, _, _, _], _) => Ok(ColourSpace::Ycck),
            _ => Err(CodecError::unsupported(format_args!("a JPEG image of {} components", names.len()))),
        }
    }
}

/// Copies samples of more than 8 bits.
fn put_words(words: impl ExactSizeIterator<Item = u16>, out: &mut [u8]) -> CodecResult<()> {
    check_length(words.len() * 2, out.len())?;
    for (place, word) in out.as_chunks_mut().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    Ok(())
}

impl ArrayCompressor for Jpeg {
    // It does not encode.
    fn is_lossless(&self) -> bool {
        false
    }

    fn decode(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let stream = self.whole_stream(encoded)?;
        let (frame, scans) = Frame::read(&stream)?;
        // The decoder takes bits that are missing at the end for zeros.
        if !scans.windows(END.len()).rev().any(|bytes| bytes == END) {
            return Err(CodecError::new("the JPEG stream does not have its end"));
        }
        let conversion = self.conversion(&frame)?;
        // Before any pixel is decoded: the image has the size of the chunk.
        let (width, height) = (usize::from(frame.width), usize::from(frame.height));
        let pixel_bytes = conversion.samples * if frame.bits > 8 { 2 } else { 1 };
        if width.checked_mul(height).and_then(|pixels| pixels.checked_mul(pixel_bytes)) != Some(out.len()) {
            return Err(CodecError::new(format_args!(
                "an image of {width} × {height} pixels of {pixel_bytes} bytes where {} bytes were expected",
                out.len()
            )));
        }
        let adobe =
            [0xff, 0xee, 0, 14, b'A', b'd', b'o', b'b', b'e', 0, 100, 0, 0, 0, 0, conversion.transform];
        let stream = [START, &adobe, &frame.segments, scans].concat();
        if frame.bits > 8 && frame.components.len() > 1 {
            return Err(CodecError::unsupported(format_args!(
                "a JPEG image of {} components of {} bits",
                frame.components.len(),
                frame.bits
            )));
        }
        match (frame.bits, frame.is_lossless) {
            (0..=8, _) => {
                let limits = DecodeLimits {
                    max_pixels: out.len() as u64,
                    max_scans: MAX_SCANS,
                    ..DecodeLimits::default()
                };
                let mut decoder = Decoder::new_with_limits(&stream, limits).map_err(CodecError::new)?;
                if let Some(format) = conversion.format {
                    decoder.set_output_format(format);
                }
                decoder.set_fast_upsample(!self.is_smooth);
                decoder.set_stop_on_warning(true);
                let image = decoder.decode_image().map_err(CodecError::new)?;
                check_length(image.data.len(), out.len())?;
                out.copy_from_slice(&image.data);
                Ok(())
            }
            (12, false) => {
                let image = precision::decompress_12bit(&stream).map_err(CodecError::new)?;
                put_words(image.data.iter().map(|sample| sample.cast_unsigned()), out)
            }
            (_, true) => {
                let image = precision::decompress_lossless_arbitrary(&stream).map_err(CodecError::new)?;
                put_words(image.data.iter().copied(), out)
            }
            (bits, false) => Err(CodecError::unsupported(format_args!("a JPEG image of {bits} bits"))),
        }
    }

    fn encode(&self, _: &[u8]) -> CodecResult<Vec<u8>> {
        Err(CodecError::unsupported("encoding with codec \"imagecodecs_jpeg\""))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::codec::{BytesToBytes, CodecInput, EncodedSize, registry};
    use crate::metadata::{CodecFamily, CodecSpec};
    use proptest::prelude::*;
    use serde_json::json;

    /// 6 rows of 40 pixels, with subsampled colours and in shades of grey.
    const COLOUR: &[u8] = include_bytes!("../../../tests/fuzz/recorded/imagecodecs-jpeg");
    const GREY: &[u8] = include_bytes!("../../../tests/fuzz/recorded/imagecodecs-jpeg-grey");
    const PIXELS: usize = 240;

    fn codec(configuration: Value, size: usize) -> CodecResult<Box<dyn BytesToBytes>> {
        let spec = CodecSpec {
            family: CodecFamily::V3,
            name: "imagecodecs_jpeg".to_owned(),
            configuration: configuration.as_object().unwrap().clone(),
            must_understand: true,
            place: "codecs[1]".to_owned(),
        };
        let size = EncodedSize::Exact(size as u64);
        match registry::build(&spec, CodecInput::Bytes { size, item_size: 1, items: None })? {
            Codec::BytesToBytes(codec) => Ok(codec),
            _ => panic!("not bytes to bytes"),
        }
    }

    /// Returns the tables of a stream, and the stream without them.
    fn split_tables(stream: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (mut tables, mut body) = (START.to_vec(), START.to_vec());
        let mut rest = &stream[2..];
        while rest[1] != 0xda {
            let (segment, after) = rest.split_at(2 + usize::from(u16::from_be_bytes([rest[2], rest[3]])));
            let part = if matches!(segment[1], 0xdb | 0xc4) { &mut tables } else { &mut body };
            part.extend_from_slice(segment);
            rest = after;
        }
        tables.extend_from_slice(END);
        body.extend_from_slice(rest);
        (tables, body)
    }

    #[test]
    fn images_with_and_without_their_tables() {
        let whole = codec(json!({}), 3 * PIXELS).unwrap().decode(COLOUR, 3 * PIXELS).unwrap().into_owned();
        let (tables, body) = split_tables(COLOUR);
        assert!(codec(json!({}), 3 * PIXELS).unwrap().decode(&body, 3 * PIXELS).is_err());
        let with_tables = codec(json!({"tables": STANDARD.encode(tables)}), 3 * PIXELS).unwrap();
        assert_eq!(*with_tables.decode(&body, 3 * PIXELS).unwrap(), whole);
        let (header, scan) = COLOUR.split_at(COLOUR.len() - 200);
        let with_header = codec(json!({"header": STANDARD.encode(header)}), 3 * PIXELS).unwrap();
        assert_eq!(*with_header.decode(&scan[..198], 3 * PIXELS).unwrap(), whole);
        let luma = codec(json!({"colorspace_data": "Grayscale"}), PIXELS).unwrap();
        assert!(luma.decode(COLOUR, PIXELS).is_ok());
    }

    #[test]
    fn images_that_do_not_fit_are_errors() {
        let grey = codec(json!({}), PIXELS).unwrap();
        assert!(grey.decode(GREY, PIXELS).is_ok());
        let error = grey.decode(COLOUR, PIXELS).unwrap_err().to_string();
        assert_eq!(error, "an image of 40 × 6 pixels of 3 bytes where 240 bytes were expected");
        for damaged in [&GREY[..300], &GREY[2..], &[], b"\xff\xd8\xff\xda"] {
            assert!(grey.decode(damaged, PIXELS).is_err());
        }
        assert!(grey.encode(&[0; PIXELS]).unwrap_err().is_unsupported);
        let raw = codec(json!({"colorspace_jpeg": 3, "colorspace_data": 3}), 3 * PIXELS).unwrap();
        let error = raw.decode(COLOUR, 3 * PIXELS).unwrap_err();
        assert!(error.is_unsupported, "{error}");
    }

    #[test]
    fn configurations_that_are_refused() {
        for (configuration, reason) in [
            (json!({"tables": "?"}), "is not base64"),
            (json!({"header": "A".repeat(4 << 20)}), "more than the limit"),
            (json!({"colorspace_data": "CIELAB"}), "is not a colour space of JPEG"),
            (json!({"colorspace_jpeg": 77}), "is not a colour space of JPEG"),
            (json!({"quality": 3}), "does not know"),
        ] {
            let error = codec(configuration, PIXELS).err().unwrap().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    proptest! {
        #[test]
        fn damaged_images_are_no_panic(at in 0usize..750, byte: u8, cut in 0usize..755) {
            let mut stream = COLOUR.to_vec();
            stream[at] = byte;
            stream.truncate(cut.max(3));
            let _ = codec(json!({}), 3 * PIXELS).unwrap().decode(&stream, 3 * PIXELS);
        }
    }
}
