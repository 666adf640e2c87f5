//! `envi`: a text header next to the array's own file, for ENVI, IDL, GDAL, QGIS and spectral.
//!
//! Spec: nv5geospatialsoftware.com, "ENVI Header Files". The header of `temp` is `temp.hdr`, and programs open `temp`.
//!
//! ```text
//! ENVI
//! samples = 360
//! lines = 180
//! bands = 12
//! data type = 4
//! interleave = bsq
//! ```
//!
//! Axes before the last two become bands, at most 65,536. A fastest axis of channels is interleaved by pixel. Map info is
//! written for pixels that go east and lines that go south: a header cannot say the opposite. Absent: signed bytes, half
//! precision, channels with more than two other axes.

use crate::array::Layout;
use crate::error::Result;
use crate::formats::flat_array::{FlatArray, detached_header, no_data_text};
use crate::formats::geometry::crs::Crs;
use crate::formats::geometry::{self, Geometry};
use crate::formats::{CompanionContent, Format, Role, Subject, documents_info};
use crate::hierarchy::Node;
use crate::metadata::data_type::numeric::NumericType;

/// `envi`.
pub const FORMAT: Format = Format {
    name: "envi",
    suffix: ".hdr",
    holds: "axes longer than 0 of uint8, integers of 16 to 64 bits, float32, float64 and complex numbers, in 65,536 bands at most, or channels of one image",
    not_listed: Some(
        "GDAL takes every file temp.* next to temp.hdr for ENVI data and shows wrong values: its folder is __formats__/envi",
    ),
    role: Role::Detached,
    expresses: |node, layout| expressed(node, layout).is_some(),
    left_out: Some(|node, _| {
        geometry::left_out(node, &["_FillValue", "missing_value", "nodata", "crs_wkt", "spatial_ref"])
    }),
    info: Some(documents_info),
    open,
    ..Format::BASE
};

const MAX_BANDS: u64 = 65_536;

fn expressed(node: &Node, layout: Layout) -> Option<FlatArray> {
    let fits = |array: &FlatArray| {
        let planes = array.planes();
        [planes.width, planes.height].iter().all(|&length| i32::try_from(length).is_ok())
            && planes.count <= MAX_BANDS
            && planes.samples <= MAX_BANDS
            && (planes.samples == 1 || planes.count == 1)
            && data_type(array.number).is_some()
    };
    FlatArray::from_node(node, layout).filter(fits)
}

fn data_type(number: NumericType) -> Option<u8> {
    Some(match number {
        NumericType::U8 => 1,
        NumericType::I16 => 2,
        NumericType::I32 => 3,
        NumericType::F32 => 4,
        NumericType::F64 => 5,
        NumericType::C64 => 6,
        NumericType::C128 => 9,
        NumericType::U16 => 12,
        NumericType::U32 => 13,
        NumericType::I64 => 14,
        NumericType::U64 => 15,
        NumericType::Bool | NumericType::I8 | NumericType::F16 => return None,
    })
}

fn open(subject: &Subject<'_>) -> Result<CompanionContent> {
    let array = FlatArray::from_subject(subject)?;
    let geometry = Geometry::from_subject(subject);
    let planes = array.planes();
    let (bands, interleave) =
        if array.has_channels { (planes.samples, "bip") } else { (planes.count, "bsq") };
    let mut lines = vec![
        "ENVI".to_owned(),
        format!("samples = {}", planes.width),
        format!("lines = {}", planes.height),
        format!("bands = {bands}"),
        "header offset = 0".to_owned(),
        "file type = ENVI Standard".to_owned(),
        format!("data type = {}", data_type(array.number).unwrap_or_default()),
        format!("interleave = {interleave}"),
        format!("byte order = {}", u8::from(array.is_big_endian)),
    ];
    lines.extend(map_info(&array, &geometry));
    if let Some(value) = geometry.no_data {
        lines.push(format!("data ignore value = {}", no_data_text(value)));
    }
    detached_header(subject, lines.join("\n") + "\n")
}

/// Returns the lines that place the pixels on the earth.
fn map_info(array: &FlatArray, geometry: &Geometry) -> Vec<String> {
    let Some([x, dx, _, y, _, dy]) = geometry.geotransform(array).filter(|it| it[1] > 0.0 && it[5] < 0.0)
    else {
        return Vec::new();
    };
    let info = |projection: &str, after: &str| {
        format!("map info = {{{projection}, 1, 1, {x:?}, {y:?}, {dx:?}, {:?}{after}}}", -dy)
    };
    match &geometry.crs {
        Some(Crs::Epsg(4326)) => vec![info("Geographic Lat/Lon", ", WGS-84, units=Degrees")],
        Some(Crs::Epsg(code @ 32601..=32660)) => {
            vec![info("UTM", &format!(", {}, North, WGS-84, units=Meters", code - 32600))]
        }
        Some(Crs::Epsg(code @ 32701..=32760)) => {
            vec![info("UTM", &format!(", {}, South, WGS-84, units=Meters", code - 32700))]
        }
        Some(Crs::Wkt(text)) if !text.contains(['{', '}']) => {
            vec![info("Arbitrary", ""), format!("coordinate system string = {{{text}}}")]
        }
        // Programs take an arbitrary projection without a definition for one in metres.
        Some(Crs::Epsg(_) | Crs::Wkt(_)) | None => Vec::new(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::formats::flat_array::tests::{BIG_F, LITTLE, document, text_of};
    use serde_json::json;

    #[test]
    fn a_map() {
        let attributes =
            json!({"GeoTransform": "0 1 0 90 0 -1", "spatial_ref": "EPSG:4326", "_FillValue": -9999.0});
        let more = json!({"dimension_names": ["time", "lat", "lon"], "attributes": attributes});
        assert_eq!(
            text_of(&FORMAT, document(&[12, 180, 360], "float32", more), LITTLE).unwrap(),
            "ENVI\nsamples = 360\nlines = 180\nbands = 12\nheader offset = 0\nfile type = ENVI Standard\ndata type = 4\n\
             interleave = bsq\nbyte order = 0\nmap info = {Geographic Lat/Lon, 1, 1, 0.0, 90.0, 1.0, 1.0, WGS-84, units=Degrees}\n\
             data ignore value = -9999.0\n"
        );
        let northward =
            json!({"dimension_names": ["lat", "lon"], "attributes": {"GeoTransform": "0 1 0 -90 0 1"}});
        let text = text_of(&FORMAT, document(&[180, 360], "float32", northward), LITTLE).unwrap();
        assert!(!text.contains("map info"), "{text}");
        let microscope = json!({"dimension_names": ["y", "x"], "attributes": {"scale": [-1, 1]}});
        let text = text_of(&FORMAT, document(&[18, 36], "float32", microscope), LITTLE).unwrap();
        assert!(!text.contains("map info"), "{text}");
    }

    #[test]
    fn channels_and_limits() {
        let rgb = json!({"dimension_names": ["y", "x", "rgb"]});
        let text = text_of(&FORMAT, document(&[5, 7, 3], "uint16", rgb.clone()), LITTLE).unwrap();
        assert!(text.contains("samples = 7\nlines = 5\nbands = 3\n") && text.contains("bip"), "{text}");
        let text = text_of(&FORMAT, document(&[5, 7, 3], "uint16", rgb), BIG_F).unwrap();
        assert!(
            text.contains("samples = 5\nlines = 7\nbands = 3\n") && text.contains("bsq\nbyte order = 1"),
            "{text}"
        );
        let deep = json!({"dimension_names": ["z", "y", "x", "c"]});
        assert_eq!(text_of(&FORMAT, document(&[2, 5, 7, 3], "uint8", deep), LITTLE), None);
        assert_eq!(text_of(&FORMAT, document(&[65_537, 1, 1], "uint8", json!({})), LITTLE), None);
        assert_eq!(text_of(&FORMAT, document(&[1, 1], "int8", json!({})), LITTLE), None);
    }
}
