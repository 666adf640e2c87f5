//! What ImageJ 1.x reads of an image: the description of a hyperstack, and the colours and ranges of its channels.
//!
//! Spec: ImageJ's source, `TiffDecoder`, `Opener` and `FileOpener`. ImageJ does not read OME-XML. It takes the last description of the first directory,
//! so this one follows the OME-XML, which other readers take.
//!
//! ```text
//! ImageJ=1.53t
//! channels=3
//! slices=12
//! frames=2
//! hyperstack=true
//! mode=composite
//! order=zct
//! ```
//!
//! The channels of a hyperstack are the fastest, then the slices, then the frames. ImageJ knows one more order, `zct`, which most images of
//! OME-Zarr have. It obeys the word only for planes that do not follow each other without a gap.

use super::image::{OmeImage, micrometres, seconds};
use crate::formats::geometry::AxisKind;
use crate::formats::tiff::directory::TiffField;
use crate::metadata::data_type::numeric::NumericType;

/// The fields with colours and ranges.
const METADATA_BYTE_COUNTS: u16 = 50838;
const METADATA: u16 = 50839;
/// More planes have no labels.
const MAX_LABELS: u64 = 4096;
/// The most bytes of labels, which have as many characters as names of channels.
pub const MAX_LABEL_BYTES: u64 = MAX_LABELS * 512;
/// ImageJ shows this many channels at once.
const MAX_COMPOSITE_CHANNELS: u64 = 7;

/// An order of planes that ImageJ knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HyperstackOrder {
    /// Channels, slices, frames.
    Own,
    /// Slices, channels, frames.
    SlicesFirst,
}

/// Returns the order of the planes, if ImageJ can read the elements and knows it.
pub fn order(image: &OmeImage) -> Option<HyperstackOrder> {
    if !matches!(image.number, NumericType::U8 | NumericType::U16 | NumericType::F32) {
        return None;
    }
    let kinds = image.plane_axes.iter().filter(|axis| axis.length > 1).map(|axis| axis.axis.kind);
    let kinds: Vec<AxisKind> = kinds.collect();
    let rank = |kind: &AxisKind| match kind {
        AxisKind::Channel => 0,
        AxisKind::Z => 1,
        _ => 2,
    };
    match kinds.as_slice() {
        kinds if kinds.is_sorted_by_key(rank) => Some(HyperstackOrder::Own),
        [AxisKind::Z, AxisKind::Channel] | [AxisKind::Z, AxisKind::Channel, AxisKind::Time] => {
            Some(HyperstackOrder::SlicesFirst)
        }
        _ => None,
    }
}

/// Returns the description.
pub fn description(image: &OmeImage, order: HyperstackOrder) -> String {
    let mut lines = vec!["ImageJ=1.53t".to_owned()];
    if order == HyperstackOrder::Own {
        // ImageJ then reads this many planes and no more directories.
        lines.push(format!("images={}", image.plane_count()));
    }
    let channels = image.length(AxisKind::Channel);
    let lengths = [("channels", AxisKind::Channel), ("slices", AxisKind::Z), ("frames", AxisKind::Time)];
    for (name, kind) in lengths {
        let length = image.length(kind);
        if length > 1 {
            lines.push(format!("{name}={length}"));
        }
    }
    if image.plane_count() > 1 {
        lines.push("hyperstack=true".to_owned());
    }
    if channels > 1 {
        let mode = if channels <= MAX_COMPOSITE_CHANNELS { "composite" } else { "color" };
        lines.push(format!("mode={mode}"));
    }
    if order == HyperstackOrder::SlicesFirst {
        lines.push("order=zct".to_owned());
    }
    if let Some(scale) = PixelScale::of(image) {
        lines.push(format!("unit={}", scale.unit));
        let z = image.plane_axis(AxisKind::Z).and_then(|axis| axis.axis.regular);
        if let Some(z) = z {
            let step = image.plane_axis(AxisKind::Z).and_then(|axis| micrometres(&axis.axis));
            lines.push(format!(
                "spacing={:?}",
                step.filter(|_| scale.unit == "micron").unwrap_or(z.step.abs())
            ));
        }
    }
    let seconds = image.plane_axis(AxisKind::Time).and_then(|axis| seconds(&axis.axis));
    lines.extend(seconds.map(|seconds| format!("finterval={seconds:?}")));
    if let Some([start, end]) = image.channel(0).window.filter(|_| channels == 1) {
        lines.extend([format!("min={start:?}"), format!("max={end:?}")]);
    }
    lines.push("loop=false\n".to_owned());
    lines.join("\n")
}

/// The size of a pixel in the unit of ImageJ's description.
pub struct PixelScale {
    /// The unit.
    pub unit: &'static str,
    /// The width of a pixel.
    pub x: f64,
    /// The height of a pixel.
    pub y: f64,
}

impl PixelScale {
    /// Returns the size of an image's pixels, if it is known.
    pub fn of(image: &OmeImage) -> Option<Self> {
        if let (Some(x), Some(y)) = (micrometres(&image.x), micrometres(&image.y)) {
            return Some(PixelScale { unit: "micron", x, y });
        }
        let step = |regular: Option<crate::formats::geometry::Regular>| Some(regular?.step.abs());
        Some(PixelScale { unit: "pixel", x: step(image.x.regular)?, y: step(image.y.regular)? })
    }
}

/// Returns the fields with the colours, ranges and names of channels, if all channels have them. ImageJ reads names for planes in its own order only.
pub fn channel_fields(image: &OmeImage, order: HyperstackOrder) -> Vec<TiffField> {
    let is_big_endian = image.is_big_endian;
    let count = image.length(AxisKind::Channel);
    let channels: Vec<_> = (0..count).map(|index| image.channel(index)).collect();
    let number =
        |bytes: [u8; 4]| if is_big_endian { bytes } else { [bytes[3], bytes[2], bytes[1], bytes[0]] };
    let mut kinds = Vec::new();
    let mut values: Vec<Vec<u8>> = Vec::new();
    if let Some(windows) = channels.iter().map(|channel| channel.window).collect::<Option<Vec<_>>>() {
        let bytes = |value: f64| if is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        kinds.push((*b"rang", 1u32));
        values.push(windows.into_iter().flatten().flat_map(bytes).collect());
    }
    if let Some(colours) = channels.iter().map(|channel| channel.colour).collect::<Option<Vec<_>>>() {
        kinds.push((*b"luts", count as u32));
        values.extend(colours.into_iter().map(colour_table));
    }
    let names = channels.iter().map(|channel| channel.name.as_deref()).collect::<Option<Vec<_>>>();
    if let Some(names) = names.filter(|_| order == HyperstackOrder::Own && image.plane_count() <= MAX_LABELS)
    {
        kinds.push((*b"labl", image.plane_count() as u32));
        let unit = |unit: u16| if is_big_endian { unit.to_be_bytes() } else { unit.to_le_bytes() };
        let label = |name: &str| name.encode_utf16().flat_map(unit).collect::<Vec<u8>>();
        values.extend(names.iter().cycle().take(image.plane_count() as usize).map(|name| label(name)));
    }
    if count < 2 || kinds.is_empty() {
        return Vec::new();
    }
    let mut bytes = number(*b"IJIJ").to_vec();
    for (kind, count) in kinds {
        bytes.extend(number(kind));
        bytes.extend(number(count.to_be_bytes()));
    }
    let counts: Vec<u32> =
        [bytes.len()].into_iter().chain(values.iter().map(Vec::len)).map(|length| length as u32).collect();
    bytes.extend(values.into_iter().flatten());
    vec![TiffField::longs(METADATA_BYTE_COUNTS, &counts), TiffField::bytes(METADATA, bytes)]
}

/// Returns 256 values of red, then of green, then of blue, from black to a colour.
fn colour_table(colour: [u8; 3]) -> Vec<u8> {
    let ramp = |full: u8| (0..=255u16).map(move |step| (step * u16::from(full) / 255) as u8);
    colour.into_iter().flat_map(ramp).collect()
}
