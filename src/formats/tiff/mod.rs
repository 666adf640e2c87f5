//! `tiff`: directories before the bytes as they are, for ImageJ, GDAL and other programs for pictures.
//!
//! Spec: TIFF 6.0; BigTIFF (awaresystems.be/imaging/tiff/bigtiff.html) for files of more than 4 GiB. There is one directory for each
//! image of the two fastest axes, with one strip, which is the image's bytes in the array. A fastest axis of channels becomes samples. The
//! first directory has a description: ImageJ's, if its hyperstacks can express the array (8 and 16 bits unsigned, float32; axes in the order
//! time, slices, channels), otherwise the shape as tifffile writes it:
//!
//! ```json
//! {"shape": [12, 180, 360]}
//! ```
//!
//! `directory.rs` makes the bytes. Absent: arrays without axes, and those with directories of more than 4 MiB (some 10,000
//! images).

pub mod directory;

use super::flat_array::{FlatArray, MAX_HEADER_BYTES, Planes, header_and_array, no_data_text};
use super::geometry::{self, Axis, AxisKind, Geometry};
use super::{CompanionContent, Format, Subject, documents_info};
use crate::array::Layout;
use crate::error::{Error, Result};
use crate::hierarchy::Node;
use crate::metadata::data_type::numeric::{NumberClass, NumericType};
use directory::{TiffDirectory, TiffEncoding, TiffField};

/// `tiff`.
pub const FORMAT: Format = Format {
    name: "tiff",
    suffix: ".tif",
    holds: "axes longer than 0 of integers, floats and complex numbers, in some 10,000 images at most",
    expresses: |node, layout| expressed(node, layout).is_some(),
    left_out: Some(|node, _| geometry::left_out(node, &["_FillValue", "missing_value", "nodata", "units"])),
    info: Some(documents_info),
    open,
    ..Format::BASE
};

/// The bytes of images begin at a multiple of this.
const ALIGNMENT: u64 = 4096;
/// GDAL's field for the value for missing data.
const GDAL_NODATA: u16 = 42113;
/// The most bytes of values outside the directories.
const MAX_VALUES_BYTES: u64 = 512 << 10;

fn expressed(node: &Node, layout: Layout) -> Option<FlatArray> {
    let fits = |array: &FlatArray| {
        let planes = array.planes();
        [planes.width, planes.height].iter().all(|&length| u32::try_from(length).is_ok())
            && u16::try_from(planes.samples).is_ok()
            && planes.count <= MAX_HEADER_BYTES / TiffEncoding::Big.directory_bytes(directory::MAX_FIELDS)
    };
    FlatArray::from_node(node, layout).filter(fits)
}

fn open(subject: &Subject<'_>) -> Result<CompanionContent> {
    let array = FlatArray::from_subject(subject)?;
    let geometry = Geometry::from_subject(subject);
    let longest = array.size_bytes.saturating_add(MAX_HEADER_BYTES + MAX_VALUES_BYTES + ALIGNMENT);
    let encoding = if longest > u64::from(u32::MAX) { TiffEncoding::Big } else { TiffEncoding::Classic };
    let names = subject.metadata()?.dimension_names.as_deref().unwrap_or_default();
    let name = |place: usize| names.get(array.axes.get(place)?.index)?.as_deref();
    let is_rgb =
        array.has_channels && name(0).is_some_and(|name| name.to_ascii_lowercase().starts_with("rgb"));
    let fields = fields(&array, &geometry, encoding, is_rgb);
    let header = TiffDirectory { encoding, array: &array, fields }.file_header(ALIGNMENT);
    header_and_array(subject, header.ok_or_else(|| Error::Stale { key: subject.path.to_owned() })?)
}

/// Returns the fields of the first directory, without those that differ from image to image.
fn fields(array: &FlatArray, geometry: &Geometry, encoding: TiffEncoding, is_rgb: bool) -> Vec<TiffField> {
    let planes = array.planes();
    let samples = usize::try_from(planes.samples).unwrap_or(1);
    let is_colour = is_rgb
        && matches!(planes.samples, 3 | 4)
        && matches!(array.number, NumericType::U8 | NumericType::U16);
    let sample_format = match array.number.class() {
        NumberClass::Bool | NumberClass::Unsigned => 1,
        NumberClass::Signed => 2,
        NumberClass::Float => 3,
        NumberClass::Complex => 6,
    };
    let mut fields = vec![
        TiffField::long(254, 0),
        TiffField::long(256, planes.width),
        TiffField::long(257, planes.height),
        TiffField::shorts(258, vec![array.item_bytes() as u16 * 8; samples]),
        TiffField::shorts(259, vec![1]),
        TiffField::shorts(262, vec![if is_colour { 2 } else { 1 }]),
        TiffField::shorts(277, vec![samples as u16]),
        TiffField::long(278, planes.height),
        TiffField::shorts(284, vec![1]),
        TiffField::shorts(339, vec![sample_format; samples]),
    ];
    let extra = samples - if is_colour { 3 } else { 1 };
    if extra > 0 {
        // Unassociated alpha for colours, unspecified otherwise.
        fields.push(TiffField::shorts(338, vec![if is_colour { 2 } else { 0 }; extra]));
    }
    let resolutions = [0, 1].map(|place| {
        let axis = geometry.axis(array.axes.get(planes.columns + place)?.index);
        ratio(axis.regular.filter(|_| axis.kind.is_space())?.step.abs())
    });
    if let [Some(x), Some(y)] = resolutions {
        fields.extend([TiffField::ratio(282, x), TiffField::ratio(283, y), TiffField::shorts(296, vec![1])]);
    }
    if let Some(value) = geometry.no_data {
        fields.push(TiffField::text(GDAL_NODATA, no_data_text(value)));
    }
    let hyperstack =
        || image_j(array, &planes, geometry, is_colour).filter(|_| encoding == TiffEncoding::Classic);
    fields.push(TiffField::text(270, hyperstack().unwrap_or_else(|| shape(array))));
    fields
}

/// Returns the description that tifffile writes and reads.
fn shape(array: &FlatArray) -> String {
    serde_json::json!({"shape": array.lengths().rev().collect::<Vec<_>>()}).to_string()
}

/// Returns the pixels per unit as a ratio of 32-bit numbers; `None` if no ratio is close enough.
pub fn ratio(step: f64) -> Option<(u32, u32)> {
    const PARTS: f64 = 1e6;
    let rounded = |value: f64| {
        (value.round() >= 1.0 && value.round() <= f64::from(u32::MAX)).then_some(value.round() as u32)
    };
    let is_near =
        |&(pixels, units): &(u32, u32)| (f64::from(units) / f64::from(pixels) / step - 1.0).abs() < 1e-6;
    let by_step = rounded(PARTS * step).map(|units| (PARTS as u32, units)).filter(is_near);
    by_step.or_else(|| rounded(PARTS / step).map(|pixels| (pixels, PARTS as u32)).filter(is_near))
}

/// Returns ImageJ's description, if its hyperstacks can express the array.
fn image_j(array: &FlatArray, planes: &Planes, geometry: &Geometry, is_colour: bool) -> Option<String> {
    let is_known = match array.number {
        NumericType::U8 => planes.samples == 1 || is_colour,
        NumericType::U16 | NumericType::F32 => planes.samples == 1,
        _ => false,
    };
    let axis = |place: usize| -> Option<(&Axis, u64)> {
        let axis = array.axes.get(place)?;
        Some((geometry.axis(axis.index), axis.length))
    };
    if !is_known {
        return None;
    }
    let leading: Vec<(&Axis, u64)> = (planes.columns + 2..array.axes.len()).filter_map(axis).collect();
    let mut lines = vec!["ImageJ=1.11a".to_owned(), format!("images={}", planes.count)];
    // The fastest axis first: channels, slices, frames.
    let mut rank = 0;
    for (axis, length) in &leading {
        let (name, place) = match axis.kind {
            AxisKind::Channel => ("channels", 1),
            AxisKind::Z => ("slices", 2),
            AxisKind::Time => ("frames", 3),
            _ if leading.len() == 1 => ("slices", 2),
            _ => return None,
        };
        if place <= rank {
            return None;
        }
        rank = place;
        lines.push(format!("{name}={length}"));
    }
    if leading.len() > 1 || rank == 1 || rank == 3 {
        lines.push("hyperstack=true".to_owned());
    }
    let unit = axis(planes.columns).and_then(|(axis, _)| axis.unit.as_deref()).filter(|unit| unit.is_ascii());
    if let Some(unit) = unit {
        lines.push(format!("unit={}", if unit == "micrometer" { "micron" } else { unit }));
    }
    let z = leading.iter().find(|(axis, _)| axis.kind == AxisKind::Z).and_then(|(axis, _)| axis.regular);
    if let Some(z) = z {
        lines.push(format!("spacing={:?}", z.step.abs()));
    }
    lines.push("loop=false\n".to_owned());
    Some(lines.join("\n"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::formats::flat_array::tests::{BIG_F, LITTLE, document, header_of};
    use serde_json::json;

    fn contains(header: &[u8], text: &str) -> bool {
        header.windows(text.len()).any(|part| part == text.as_bytes())
    }

    #[test]
    fn descriptions() {
        let of = |shape: &[u64], data_type: &str, names: &[&str]| {
            let more = json!({"dimension_names": names, "attributes": {"scale": vec![0.5; shape.len()]}});
            header_of(&FORMAT, document(shape, data_type, more), LITTLE).unwrap()
        };
        let stack = of(&[2, 3, 4, 5, 6], "uint16", &["t", "z", "c", "y", "x"]);
        assert!(contains(
            &stack,
            "ImageJ=1.11a\nimages=24\nchannels=4\nslices=3\nframes=2\nhyperstack=true\nspacing=0.5\nloop=false\n\0"
        ));
        let other_order = of(&[2, 4, 3, 5, 6], "uint16", &["t", "c", "z", "y", "x"]);
        assert!(contains(&other_order, "{\"shape\":[2,4,3,5,6]}\0"));
        assert!(contains(&of(&[5, 6], "int32", &["y", "x"]), "{\"shape\":[5,6]}\0"));
        assert_eq!(stack.len() % 4096, 0);
    }

    #[test]
    fn big_files_and_limits() {
        let big = header_of(&FORMAT, document(&[1 << 16, 1 << 15, 3], "int16", json!({})), BIG_F).unwrap();
        assert_eq!(big[..8], [b'M', b'M', 0, 43, 0, 8, 0, 0]);
        let most = MAX_HEADER_BYTES / TiffEncoding::Big.directory_bytes(directory::MAX_FIELDS);
        let of =
            |count: u64| header_of(&FORMAT, document(&[count, 1 << 10, 1 << 10], "uint8", json!({})), LITTLE);
        assert!(of(most).unwrap().len() as u64 <= MAX_HEADER_BYTES + ALIGNMENT);
        assert_eq!(of(most + 1), None);
        assert_eq!(header_of(&FORMAT, document(&[2, 2], "bfloat16", json!({})), LITTLE), None);
        let channels = json!({"dimension_names": ["y", "x", "c"]});
        assert!(
            header_of(&FORMAT, document(&[2, 2, 65_535], "uint8", channels), LITTLE).unwrap().len() < 1 << 19
        );
    }

    #[test]
    fn ratios() {
        assert_eq!(ratio(0.5), Some((1_000_000, 500_000)));
        assert_eq!(ratio(1e-5), Some((1_000_000, 10)));
        assert_eq!(ratio(1e12), None);
    }
}
