//! `mhd`: MetaImage, a text header next to the array's own file, for ITK, elastix and Fiji.
//!
//! Spec: itk.org/Wiki/ITK/MetaIO/Documentation. Axes are listed by speed, the fastest first; `ElementDataFile` is the last line.
//!
//! ```text
//! ObjectType = Image
//! NDims = 3
//! DimSize = 512 512 64
//! ElementType = MET_USHORT
//! ElementDataFile = cells
//! ```
//!
//! A fastest axis of channels becomes the components of an element. A negative step is a positive spacing and a negative
//! direction. Axes of unknown steps have spacing 1. Absent: half precision, complex numbers, more than 10 axes.

use super::data_names::data_name;
use crate::array::Layout;
use crate::error::Result;
use crate::formats::flat_array::{FlatArray, detached_header, spaced};
use crate::formats::geometry::{Axis, Geometry, Regular};
use crate::formats::{CompanionContent, Format, Role, Subject, documents_info};
use crate::hierarchy::Node;
use crate::metadata::data_type::numeric::NumericType;

/// `mhd`.
pub const FORMAT: Format = Format {
    name: "mhd",
    suffix: ".mhd",
    holds: "integers, float32 and float64, along 1 to 10 axes longer than 0",
    role: Role::Detached,
    expresses: |node, layout| expressed(node, layout).is_some(),
    info: Some(documents_info),
    open,
    ..Format::BASE
};

const MAX_AXES: usize = 10;

fn expressed(node: &Node, layout: Layout) -> Option<FlatArray> {
    let fits = |array: &FlatArray| {
        array.axes.len() <= MAX_AXES
            && array.lengths().all(|length| i32::try_from(length).is_ok())
            && type_of(array.number).is_some()
    };
    FlatArray::from_node(node, layout).filter(fits)
}

fn type_of(number: NumericType) -> Option<&'static str> {
    Some(match number {
        NumericType::I8 => "MET_CHAR",
        NumericType::I16 => "MET_SHORT",
        NumericType::I32 => "MET_INT",
        NumericType::I64 => "MET_LONG_LONG",
        NumericType::U8 => "MET_UCHAR",
        NumericType::U16 => "MET_USHORT",
        NumericType::U32 => "MET_UINT",
        NumericType::U64 => "MET_ULONG_LONG",
        NumericType::F32 => "MET_FLOAT",
        NumericType::F64 => "MET_DOUBLE",
        NumericType::Bool | NumericType::F16 | NumericType::C64 | NumericType::C128 => return None,
    })
}

fn open(subject: &Subject<'_>) -> Result<CompanionContent> {
    let array = FlatArray::from_subject(subject)?;
    let geometry = Geometry::from_subject(subject);
    let axes: Vec<&Axis> = array.axes.iter().map(|axis| geometry.axis(axis.index)).collect();
    let skipped = usize::from(array.has_channels);
    let axes = axes.get(skipped..).unwrap_or_default();
    let mut lines = vec![
        "ObjectType = Image".to_owned(),
        format!("NDims = {}", axes.len()),
        "BinaryData = True".to_owned(),
        format!("BinaryDataByteOrderMSB = {}", if array.is_big_endian { "True" } else { "False" }),
        "CompressedData = False".to_owned(),
    ];
    if axes.iter().any(|axis| axis.regular.is_some()) {
        lines.extend(placed(axes));
    }
    lines.push(format!("DimSize = {}", spaced(array.lengths().skip(skipped))));
    if array.has_channels {
        lines.push(format!("ElementNumberOfChannels = {}", array.length(0)));
    }
    lines.push(format!("ElementType = {}", type_of(array.number).unwrap_or_default()));
    lines.push(format!("ElementDataFile = {}", data_name(subject.name())));
    detached_header(subject, lines.join("\n") + "\n")
}

/// Returns the lines that place the elements in space.
fn placed(axes: &[&Axis]) -> [String; 3] {
    let regular: Vec<Regular> =
        axes.iter().map(|axis| axis.regular.unwrap_or(Regular { first: 0.0, step: 1.0 })).collect();
    let directions = regular.iter().enumerate().flat_map(|(row, regular)| {
        let direction = if regular.step < 0.0 { "-1" } else { "1" };
        (0..axes.len()).map(move |column| if row == column { direction } else { "0" })
    });
    [
        format!("TransformMatrix = {}", spaced(directions)),
        format!("Offset = {}", spaced(regular.iter().map(|it| format!("{:?}", it.first)))),
        format!("ElementSpacing = {}", spaced(regular.iter().map(|it| format!("{:?}", it.step.abs())))),
    ]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::formats::flat_array::tests::{BIG_F, LITTLE, document, text_of};
    use serde_json::json;

    #[test]
    fn spacings_directions_and_channels() {
        let more = json!({"dimension_names": ["lat", "lon"], "attributes": {"scale": [-1.0, 0.5], "translation": [89.5, 0.25]}});
        assert_eq!(
            text_of(&FORMAT, document(&[180, 720], "float32", more), LITTLE).unwrap(),
            "ObjectType = Image\nNDims = 2\nBinaryData = True\nBinaryDataByteOrderMSB = False\nCompressedData = False\n\
             TransformMatrix = 1 0 0 -1\nOffset = 0.25 89.5\nElementSpacing = 0.5 1.0\nDimSize = 720 180\n\
             ElementType = MET_FLOAT\nElementDataFile = a\n"
        );
        let rgb = document(&[5, 7, 3], "uint8", json!({"dimension_names": ["y", "x", "rgb"]}));
        let text = text_of(&FORMAT, rgb.clone(), LITTLE).unwrap();
        assert!(
            text.contains("NDims = 2\n") && text.contains("DimSize = 7 5\nElementNumberOfChannels = 3\n"),
            "{text}"
        );
        let reversed = text_of(&FORMAT, rgb, BIG_F).unwrap();
        assert!(
            reversed.contains("DimSize = 5 7 3\nElementType"),
            "channels that are not the fastest axis: {reversed}"
        );
        assert_eq!(text_of(&FORMAT, document(&[1; 11], "int8", json!({})), LITTLE), None);
        assert_eq!(text_of(&FORMAT, document(&[1 << 31], "int8", json!({})), LITTLE), None);
    }
}
