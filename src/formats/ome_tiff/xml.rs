//! The OME-XML of an image.
//!
//! Spec: the OME schema of June 2016.
//!
//! ```xml
//! <OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image ID="Image:0" Name="cells">
//! <Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint16" SizeX="512" SizeY="512" SizeZ="12" SizeC="1" SizeT="1" PhysicalSizeX="0.25"
//!  PhysicalSizeXUnit="µm"><Channel ID="Channel:0:0" Name="DAPI" Color="65535" SamplesPerPixel="1"/><TiffData IFD="0" PlaneCount="12"/></Pixels></Image></OME>
//! ```
//!
//! Lengths are in micrometres. A step with another unit, or none, has the unit `reference frame`, which does not say how long it is.

use std::fmt::Write as _;

use super::image::{OmeImage, micrometres, pixel_type, time_unit};
use crate::formats::detached::vrt::escaped;
use crate::formats::geometry::AxisKind;
use crate::formats::geometry::axis::Axis;

/// The most bytes of the document without its channels, and of each channel.
pub const MAX_BYTES: u64 = 64 << 10;
/// See [`MAX_BYTES`].
pub const MAX_CHANNEL_BYTES: u64 = 1 << 10;

/// Returns the OME-XML of an image.
pub fn document(image: &OmeImage) -> String {
    let mut xml = String::from(concat!(
        r#"<?xml version="1.0" encoding="UTF-8"?>"#,
        r#"<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" "#,
        r#"xsi:schemaLocation="http://www.openmicroscopy.org/Schemas/OME/2016-06 http://www.openmicroscopy.org/Schemas/OME/2016-06/ome.xsd" "#,
        r#"Creator="zarrfs">"#,
    ));
    let name = escaped(&image.name);
    let _ = write!(xml, r#"<Image ID="Image:0" Name="{name}">"#);
    if !image.left_out_levels.is_empty() {
        let names = escaped(&crate::formats::shortened(&image.left_out_levels).join(", "));
        let _ = write!(xml, "<Description>Left out: the levels {names}</Description>");
    }
    let big_endian = image.is_big_endian;
    let (order, kind) = (dimension_order(image), pixel_type(image.number).unwrap_or_default());
    let _ = write!(
        xml,
        r#"<Pixels ID="Pixels:0" DimensionOrder="{order}" Type="{kind}" BigEndian="{big_endian}""#
    );
    let planes = [("Z", AxisKind::Z), ("C", AxisKind::Channel), ("T", AxisKind::Time)];
    let first = image.levels.first();
    let lengths = [("X", first.map_or(1, |level| level.width)), ("Y", first.map_or(1, |level| level.height))];
    for (name, length) in lengths.into_iter().chain(planes.map(|(name, kind)| (name, image.length(kind)))) {
        let _ = write!(xml, r#" Size{name}="{length}""#);
    }
    let z = image.plane_axis(AxisKind::Z).map(|axis| &axis.axis);
    for (name, axis) in [("X", Some(&image.x)), ("Y", Some(&image.y)), ("Z", z)] {
        if let Some(PhysicalSize { value, unit }) = axis.and_then(physical_size) {
            let _ = write!(xml, r#" PhysicalSize{name}="{value:?}" PhysicalSize{name}Unit="{unit}""#);
        }
    }
    let time = image.plane_axis(AxisKind::Time).and_then(|axis| time_increment(&axis.axis));
    if let Some(PhysicalSize { value, unit }) = time {
        let _ = write!(xml, r#" TimeIncrement="{value:?}" TimeIncrementUnit="{unit}""#);
    }
    xml.push('>');
    for index in 0..image.length(AxisKind::Channel) {
        append_channel(&mut xml, image, index);
    }
    let _ = write!(xml, r#"<TiffData IFD="0" PlaneCount="{}"/></Pixels></Image></OME>"#, image.plane_count());
    xml
}

fn append_channel(xml: &mut String, image: &OmeImage, index: u64) {
    let channel = image.channel(index);
    let _ = write!(xml, r#"<Channel ID="Channel:0:{index}""#);
    if let Some(name) = &channel.name {
        let _ = write!(xml, r#" Name="{}""#, escaped(name));
    }
    if let Some([red, green, blue]) = channel.colour {
        let _ = write!(xml, r#" Color="{}""#, i32::from_be_bytes([red, green, blue, 255]));
    }
    xml.push_str(r#" SamplesPerPixel="1"/>"#);
}

/// Returns the order of the planes, the fastest axis first, with the axes that the image does not have at the end.
fn dimension_order(image: &OmeImage) -> String {
    let letter = |kind: AxisKind| match kind {
        AxisKind::Channel => 'C',
        AxisKind::Time => 'T',
        _ => 'Z',
    };
    let mut order = String::from("XY");
    order.extend(image.plane_axes.iter().map(|axis| letter(axis.axis.kind)));
    for letter in ['Z', 'C', 'T'] {
        if !order.contains(letter) {
            order.push(letter);
        }
    }
    order
}

struct PhysicalSize {
    value: f64,
    unit: &'static str,
}

fn physical_size(axis: &Axis) -> Option<PhysicalSize> {
    match micrometres(axis) {
        Some(value) => Some(PhysicalSize { value, unit: "µm" }),
        None => Some(PhysicalSize { value: axis.regular?.step.abs(), unit: "reference frame" }),
    }
}

/// Returns the time between two frames, if its unit is one of OME's.
fn time_increment(axis: &Axis) -> Option<PhysicalSize> {
    Some(PhysicalSize { value: axis.regular?.step.abs(), unit: time_unit(axis)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::geometry::Regular;

    #[test]
    fn sizes_in_micrometres() {
        let size = |step: f64, unit: Option<&str>| {
            let unit = unit.map(str::to_owned);
            let axis = Axis { regular: Regular::new(0.0, step), unit, ..Axis::default() };
            physical_size(&axis).map(|size| (size.value, size.unit))
        };
        assert_eq!(size(325.0, Some("nanometer")), Some((0.325, "µm")));
        assert_eq!(size(-2.0, Some("micrometer")), Some((2.0, "µm")));
        assert_eq!(size(2.0, Some("furlong")), Some((2.0, "reference frame")));
        assert_eq!(size(2.0, None), Some((2.0, "reference frame")));
        assert_eq!(size(1e308, Some("kilometer")), Some((1e308, "reference frame")));
        assert_eq!(physical_size(&Axis::default()).map(|size| size.value), None);
    }
}
