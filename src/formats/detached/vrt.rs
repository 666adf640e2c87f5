//! `vrt`: GDAL's virtual format, an XML header next to the array's own file.
//!
//! Spec: gdal.org/drivers/raster/vrt.html, "VRTRawRasterBand". Axes before the last two become bands; a fastest axis of channels is
//! one of bands too. The geotransform and the coordinate reference system are written where they are known, also for images
//! with rows from south to north.
//!
//! ```xml
//! <VRTDataset rasterXSize="360" rasterYSize="180">
//!   <VRTRasterBand dataType="Float32" band="1" subClass="VRTRawRasterBand">…
//! ```
//!
//! Absent: half precision, channels with more than two other axes, headers of more than 4 MiB (some 11,000 bands).

use std::fmt::Write as _;

use super::data_names::data_name;
use crate::array::Layout;
use crate::error::Result;
use crate::formats::flat_array::{FlatArray, MAX_HEADER_BYTES, detached_header, no_data_text};
use crate::formats::geometry::{self, Geometry};
use crate::formats::{CompanionContent, Format, Role, Subject, documents_info};
use crate::hierarchy::Node;
use crate::metadata::data_type::numeric::NumericType;

/// `vrt`.
pub const FORMAT: Format = Format {
    name: "vrt",
    suffix: ".vrt",
    holds: "axes longer than 0 of integers, float32, float64 and complex numbers, in some 11,000 bands at most, or channels of one image",
    role: Role::Detached,
    expresses: |node, layout| expressed(node, layout).is_some(),
    left_out: Some(|node, _| {
        geometry::left_out(node, &["_FillValue", "missing_value", "nodata", "crs_wkt", "spatial_ref"])
    }),
    info: Some(documents_info),
    open,
    ..Format::BASE
};

/// The most bytes of the text of a band, without the name of the file.
const MAX_BAND_BYTES: u64 = 380;

fn expressed(node: &Node, layout: Layout) -> Option<FlatArray> {
    let fits = |array: &FlatArray| {
        let planes = array.planes();
        [planes.width, planes.height].iter().all(|&length| i32::try_from(length).is_ok())
            && planes.samples.saturating_mul(planes.count) <= MAX_HEADER_BYTES / MAX_BAND_BYTES
            && i32::try_from(planes.width.saturating_mul(planes.samples * array.item_bytes())).is_ok()
            && (planes.samples == 1 || planes.count == 1)
            && data_type(array.number).is_some()
    };
    FlatArray::from_node(node, layout).filter(fits)
}

fn data_type(number: NumericType) -> Option<&'static str> {
    Some(match number {
        NumericType::I8 => "Int8",
        NumericType::I16 => "Int16",
        NumericType::I32 => "Int32",
        NumericType::I64 => "Int64",
        NumericType::U8 => "Byte",
        NumericType::U16 => "UInt16",
        NumericType::U32 => "UInt32",
        NumericType::U64 => "UInt64",
        NumericType::F32 => "Float32",
        NumericType::F64 => "Float64",
        NumericType::C64 => "CFloat32",
        NumericType::C128 => "CFloat64",
        NumericType::Bool | NumericType::F16 => return None,
    })
}

fn open(subject: &Subject<'_>) -> Result<CompanionContent> {
    let array = FlatArray::from_subject(subject)?;
    let geometry = Geometry::from_subject(subject);
    let planes = array.planes();
    let size = array.item_bytes();
    let (pixel, line) = (planes.samples * size, planes.width * planes.samples * size);
    let bands = planes.samples * planes.count;
    let between_bands = if array.has_channels { size } else { line * planes.height };
    let order = if array.is_big_endian { "MSB" } else { "LSB" };
    let (data_type, file) = (data_type(array.number).unwrap_or_default(), data_name(subject.name()));
    let mut text =
        format!("<VRTDataset rasterXSize=\"{}\" rasterYSize=\"{}\">\n", planes.width, planes.height);
    // Writing to a String does not fail.
    if let Some(crs) = &geometry.crs {
        let _ = writeln!(text, "  <SRS>{}</SRS>", escaped(&crs.definition()));
    }
    if let Some([x, dx, _, y, _, dy]) = geometry.geotransform(&array) {
        let _ = writeln!(text, "  <GeoTransform>{x:?}, {dx:?}, 0, {y:?}, 0, {dy:?}</GeoTransform>");
    }
    for band in 0..bands {
        let offset = band * between_bands;
        let _ = writeln!(
            text,
            "  <VRTRasterBand dataType=\"{data_type}\" band=\"{}\" subClass=\"VRTRawRasterBand\">",
            band + 1
        );
        if let Some(value) = geometry.no_data {
            let _ = writeln!(text, "    <NoDataValue>{}</NoDataValue>", no_data_text(value));
        }
        let _ = writeln!(text, "    <SourceFilename relativeToVRT=\"1\">{file}</SourceFilename>");
        let _ = writeln!(
            text,
            "    <ImageOffset>{offset}</ImageOffset><PixelOffset>{pixel}</PixelOffset><LineOffset>{line}</LineOffset><ByteOrder>{order}</ByteOrder>"
        );
        text.push_str("  </VRTRasterBand>\n");
    }
    text.push_str("</VRTDataset>\n");
    detached_header(subject, text)
}

/// Escapes a text for XML.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::formats::flat_array::tests::{BIG_F, LITTLE, document, text_of};
    use serde_json::json;

    #[test]
    fn bands() {
        let attributes = json!({"GeoTransform": [0, 1, 0, 90, 0, -1], "crs_wkt": "GEOGCS[\"a<b\"]", "_FillValue": "AAAAAAAA+H8="});
        let more = json!({"dimension_names": ["t", "y", "x"], "attributes": attributes});
        let text = text_of(&FORMAT, document(&[2, 3, 5], "float32", more), LITTLE).unwrap();
        assert!(text.starts_with("<VRTDataset rasterXSize=\"5\" rasterYSize=\"3\">\n  <SRS>GEOGCS[&quot;a&lt;b&quot;]</SRS>\n  <GeoTransform>0.0, 1.0, 0, 90.0, 0, -1.0</GeoTransform>\n"), "{text}");
        assert!(text.contains("<ImageOffset>60</ImageOffset><PixelOffset>4</PixelOffset><LineOffset>20</LineOffset><ByteOrder>LSB"), "{text}");
        assert!(text.contains("<NoDataValue>nan<"), "{text}");
        let rgb = document(&[5, 7, 3], "int16", json!({"dimension_names": ["y", "x", "c"]}));
        let text = text_of(&FORMAT, rgb.clone(), LITTLE).unwrap();
        assert!(
            text.contains("<ImageOffset>4</ImageOffset><PixelOffset>6</PixelOffset><LineOffset>42<"),
            "{text}"
        );
        let text = text_of(&FORMAT, rgb, BIG_F).unwrap();
        assert!(text.contains("<ImageOffset>70</ImageOffset><PixelOffset>2</PixelOffset><LineOffset>10</LineOffset><ByteOrder>MSB"), "{text}");
    }

    #[test]
    fn headers_stay_within_their_limit() {
        let of = |bands: u64| {
            text_of(
                &FORMAT,
                document(
                    &[bands, 1, 1 << 20],
                    "complex128",
                    json!({"fill_value": [0, 0], "attributes": {"_FillValue": -1.7976931348623157e308}}),
                ),
                LITTLE,
            )
        };
        let most = MAX_HEADER_BYTES / MAX_BAND_BYTES;
        assert!((of(most).unwrap().len() as u64) < MAX_HEADER_BYTES * 2);
        assert_eq!(of(most + 1), None);
    }
}
