//! `xdmf`: an XML header next to the array's own file, for ParaView, VisIt and VTK.
//!
//! Spec: xdmf.org, "XDMF Model and Format", version 2: a uniform grid with one attribute at its nodes. Four axes with time as the slowest
//! are a collection of grids.
//!
//! ```xml
//! <Topology TopologyType="3DCoRectMesh" Dimensions="64 512 512"/>
//! ```
//!
//! Axes with unknown steps have step 1; times need no constant step. Absent: half precision, complex numbers, 64-bit unsigned
//! integers, other ranks, more than 4,096 times.

use std::fmt::Write as _;

use super::data_names::data_name;
use super::vrt::escaped;
use crate::array::Layout;
use crate::error::Result;
use crate::formats::flat_array::{FlatArray, detached_header, spaced};
use crate::formats::geometry::{AxisKind, Geometry, Regular, positions};
use crate::formats::{CompanionContent, Format, Role, Subject, documents_info};
use crate::hierarchy::Node;
use crate::metadata::data_type::numeric::NumericType;

/// `xdmf`.
pub const FORMAT: Format = Format {
    name: "xdmf",
    suffix: ".xmf",
    holds: "integers but uint64, float32 and float64, along 2 or 3 axes longer than 0, or 4 of which the slowest is time",
    role: Role::Detached,
    expresses: |node, layout| expressed(node, layout).is_some(),
    info: Some(documents_info),
    open,
    ..Format::BASE
};

const MAX_TIMES: u64 = 4096;

fn expressed(node: &Node, layout: Layout) -> Option<FlatArray> {
    let Node::Array { metadata, .. } = node else { return None };
    let is_time = |index: usize| {
        let name = metadata.dimension_names.as_ref()?.get(index)?.as_deref()?;
        (AxisKind::from_name(name) == AxisKind::Time).then_some(())
    };
    let fits = |array: &FlatArray| {
        let has_rank = match array.axes.as_slice() {
            [_, _] | [_, _, _] => true,
            [_, _, _, slowest] => is_time(slowest.index).is_some() && slowest.length <= MAX_TIMES,
            _ => false,
        };
        has_rank && type_of(array.number).is_some()
    };
    FlatArray::from_node(node, layout).filter(fits)
}

fn type_of(number: NumericType) -> Option<&'static str> {
    Some(match number {
        // Readers of version 2 recognize an integer of 16 bits only by its name.
        NumericType::I8 => "Char",
        NumericType::U8 => "UChar",
        NumericType::I16 => "Short",
        NumericType::U16 => "UShort",
        NumericType::I32 | NumericType::I64 => "Int",
        NumericType::U32 => "UInt",
        NumericType::F32 | NumericType::F64 => "Float",
        NumericType::Bool | NumericType::U64 | NumericType::F16 | NumericType::C64 | NumericType::C128 => {
            return None;
        }
    })
}

fn open(subject: &Subject<'_>) -> Result<CompanionContent> {
    let array = FlatArray::from_subject(subject)?;
    let geometry = Geometry::from_subject(subject);
    let name = escaped(&subject.name().replace(char::is_control, "?"));
    let rank = array.axes.len().min(3);
    // The slowest axis comes first, as everywhere in this format.
    let axes: Vec<_> = array.axes.iter().take(rank).rev().collect();
    let regular: Vec<Regular> = axes
        .iter()
        .map(|axis| geometry.axis(axis.index).regular.unwrap_or(Regular { first: 0.0, step: 1.0 }))
        .collect();
    let dimensions = spaced(axes.iter().map(|axis| axis.length));
    let of_grid = array.lengths().take(rank).fold(array.item_bytes(), u64::saturating_mul);
    let (mesh, origin) =
        if rank == 2 { ("2DCoRectMesh", "ORIGIN_DXDY") } else { ("3DCoRectMesh", "ORIGIN_DXDYDZ") };
    let endian = if array.is_big_endian { "Big" } else { "Little" };
    let item = |values: String| {
        format!(
            "<DataItem Dimensions=\"{rank}\" NumberType=\"Float\" Precision=\"8\" Format=\"XML\">{values}</DataItem>"
        )
    };
    let grid = |seek: u64, time: &str| {
        let mut text = format!("<Grid Name=\"{name}\" GridType=\"Uniform\">{time}\n");
        // Writing to a String does not fail.
        let _ = writeln!(text, "<Topology TopologyType=\"{mesh}\" Dimensions=\"{dimensions}\"/>");
        let first = item(spaced(regular.iter().map(|it| format!("{:?}", it.first))));
        let step = item(spaced(regular.iter().map(|it| format!("{:?}", it.step))));
        let _ = writeln!(text, "<Geometry GeometryType=\"{origin}\">{first}{step}</Geometry>");
        let _ = writeln!(text, "<Attribute Name=\"{name}\" AttributeType=\"Scalar\" Center=\"Node\">");
        let _ = writeln!(
            text,
            "<DataItem Format=\"Binary\" Dimensions=\"{dimensions}\" NumberType=\"{}\" Precision=\"{}\" Endian=\"{endian}\" Seek=\"{seek}\">{}</DataItem>",
            type_of(array.number).unwrap_or_default(),
            array.item_bytes(),
            data_name(subject.name())
        );
        text + "</Attribute>\n</Grid>\n"
    };
    let grids = match array.axes.get(3) {
        None => grid(0, ""),
        Some(times) => {
            let positions = positions::for_subject(subject);
            let at = |index| positions.get(times.index)?.at(index).filter(|time| time.is_finite());
            let of_time = |index: u64| {
                let time = format!("<Time Value=\"{:?}\"/>", at(index).unwrap_or(index as f64));
                grid(index * of_grid, &time)
            };
            let all: String = (0..times.length).map(of_time).collect();
            format!(
                "<Grid Name=\"{name}\" GridType=\"Collection\" CollectionType=\"Temporal\">\n{all}</Grid>\n"
            )
        }
    };
    detached_header(
        subject,
        format!("<?xml version=\"1.0\"?>\n<Xdmf Version=\"2.0\"><Domain>\n{grids}</Domain></Xdmf>\n"),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::formats::flat_array::tests::{LITTLE, document, text_of};
    use serde_json::json;

    #[test]
    fn grids() {
        let text = text_of(
            &FORMAT,
            document(&[2, 3, 5], "int16", json!({"attributes": {"scale": [2.0, 1.0, 0.5]}})),
            LITTLE,
        )
        .unwrap();
        assert!(text.contains("Dimensions=\"2 3 5\""), "{text}");
        assert!(text.contains(">2.0 1.0 0.5<") && text.contains("Seek=\"0\">a<"), "{text}");
        let times = json!({"dimension_names": ["t", "z", "y", "x"]});
        let text = text_of(&FORMAT, document(&[3, 2, 3, 5], "int16", times), LITTLE).unwrap();
        assert!(
            text.contains("Temporal")
                && text.contains("Seek=\"120\"")
                && text.contains("<Time Value=\"2.0\"/>"),
            "{text}"
        );
        for (shape, data_type) in [(&[1][..], "int8"), (&[1; 4][..], "int8"), (&[1, 1][..], "uint64")] {
            assert_eq!(text_of(&FORMAT, document(shape, data_type, json!({})), LITTLE), None);
        }
    }
}
