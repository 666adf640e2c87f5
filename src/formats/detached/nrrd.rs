//! `nrrd`: a text header next to the array's own file, for ITK, Slicer, ParaView and teem.
//!
//! Spec: teem.sourceforge.net/nrrd/format.html, version 5. Axes are listed by speed, the fastest first.
//!
//! ```text
//! NRRD0005
//! type: uint16
//! dimension: 3
//! sizes: 512 512 64
//! encoding: raw
//! endian: little
//! data file: cells
//! ```
//!
//! If all axes but channels are of space or time, and of known steps, they give a space; otherwise known steps are spacings. Absent: half precision, complex
//! numbers, more than 16 axes.

use super::data_names::data_name;
use crate::array::Layout;
use crate::error::Result;
use crate::formats::flat_array::{FlatArray, detached_header, spaced};
use crate::formats::geometry::{self, Axis, AxisKind, DIMENSION_NAMES, Geometry};
use crate::formats::{CompanionContent, Format, Role, Subject, documents_info};
use crate::hierarchy::Node;
use crate::metadata::data_type::numeric::NumericType;

/// `nrrd`.
pub const FORMAT: Format = Format {
    name: "nrrd",
    suffix: ".nhdr",
    holds: "integers, float32 and float64, along 1 to 16 axes longer than 0",
    role: Role::Detached,
    expresses: |node, layout| expressed(node, layout).is_some(),
    left_out: Some(|node, _| geometry::left_out(node, &["units", DIMENSION_NAMES])),
    info: Some(documents_info),
    open,
    ..Format::BASE
};

const MAX_AXES: usize = 16;
const MAX_SPACE: usize = 8;

fn expressed(node: &Node, layout: Layout) -> Option<FlatArray> {
    FlatArray::from_node(node, layout)
        .filter(|array| array.axes.len() <= MAX_AXES && type_of(array.number).is_some())
}

fn type_of(number: NumericType) -> Option<&'static str> {
    Some(match number {
        NumericType::I8 => "int8",
        NumericType::I16 => "int16",
        NumericType::I32 => "int32",
        NumericType::I64 => "int64",
        NumericType::U8 => "uint8",
        NumericType::U16 => "uint16",
        NumericType::U32 => "uint32",
        NumericType::U64 => "uint64",
        NumericType::F32 => "float",
        NumericType::F64 => "double",
        NumericType::Bool | NumericType::F16 | NumericType::C64 | NumericType::C128 => return None,
    })
}

fn open(subject: &Subject<'_>) -> Result<CompanionContent> {
    let array = FlatArray::from_subject(subject)?;
    let geometry = Geometry::from_subject(subject);
    let axes: Vec<&Axis> = array.axes.iter().map(|axis| geometry.axis(axis.index)).collect();
    let mut lines = vec![
        "NRRD0005".to_owned(),
        format!("type: {}", type_of(array.number).unwrap_or_default()),
        format!("dimension: {}", array.axes.len()),
        format!("sizes: {}", spaced(array.lengths())),
        "encoding: raw".to_owned(),
    ];
    if array.item_bytes() > 1 {
        lines.push(format!("endian: {}", if array.is_big_endian { "big" } else { "little" }));
    }
    lines.extend(placed(&axes));
    if axes.iter().any(|axis| axis.name.is_some()) {
        let labels = axes.iter().map(|axis| quoted(axis.name.as_deref()));
        lines.push(format!("labels: {}", spaced(labels)));
    }
    lines.push(format!("data file: {}", data_name(subject.name())));
    detached_header(subject, lines.join("\n") + "\n\n")
}

/// Returns the lines that place the elements in space.
fn placed(axes: &[&Axis]) -> Vec<String> {
    let space: Vec<&Axis> = axes.iter().copied().filter(|axis| axis.kind != AxisKind::Channel).collect();
    // NRRD has spaces with time, too.
    let is_place = |axis: &&Axis| axis.kind.is_space() || axis.kind == AxisKind::Time;
    let regular: Vec<_> =
        space.iter().filter(|axis| is_place(axis)).filter_map(|axis| axis.regular).collect();
    let mut lines = Vec::new();
    if (1..=MAX_SPACE).contains(&space.len()) && regular.len() == space.len() {
        let mut place = 0;
        let directions =
            axes.iter().map(|axis| match axis.regular.filter(|_| axis.kind != AxisKind::Channel) {
                None => "none".to_owned(),
                Some(regular) => {
                    let steps = (0..space.len()).map(|at| if at == place { regular.step } else { 0.0 });
                    let vector = steps.map(|step| format!("{step:?}")).collect::<Vec<_>>().join(",");
                    place += 1;
                    format!("({vector})")
                }
            });
        let directions = spaced(directions);
        lines.push(format!("space dimension: {}", space.len()));
        lines.push(format!("space directions: {directions}"));
        if space.iter().all(|axis| axis.unit.is_some()) {
            let units = space.iter().map(|axis| quoted(axis.unit.as_deref()));
            lines.push(format!("space units: {}", spaced(units)));
        }
        let origin =
            regular.iter().map(|regular| format!("{:?}", regular.first)).collect::<Vec<_>>().join(",");
        lines.push(format!("space origin: ({origin})"));
    } else if axes.iter().any(|axis| axis.regular.is_some()) {
        let steps =
            axes.iter().map(|axis| axis.regular.map_or("nan".to_owned(), |it| format!("{:?}", it.step)));
        lines.push(format!("spacings: {}", spaced(steps)));
        if axes.iter().any(|axis| axis.unit.is_some()) {
            lines.push(format!("units: {}", spaced(axes.iter().map(|axis| quoted(axis.unit.as_deref())))));
        }
    }
    let kinds = axes.iter().map(|axis| match axis.kind {
        AxisKind::X | AxisKind::Y | AxisKind::Z => "space",
        AxisKind::Time => "time",
        AxisKind::Channel => "vector",
        AxisKind::Other => "domain",
    });
    lines.push(format!("kinds: {}", spaced(kinds)));
    lines
}

/// Returns a plain text in quotes; without one, empty ones.
fn quoted(text: Option<&str>) -> String {
    format!("\"{}\"", text.unwrap_or_default())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::formats::flat_array::tests::{BIG_F, LITTLE, document, text_of};
    use serde_json::json;

    #[test]
    fn a_volume_in_space() {
        let more = json!({"dimension_names": ["z", "y", "x"], "attributes":
            {"scale": [2.0, 0.5, 0.25], "translation": [10, 20, 30], "units": ["micrometer", "micrometer", "micrometer"]}});
        let cells = document(&[64, 512, 500], "uint16", more);
        assert_eq!(
            text_of(&FORMAT, cells.clone(), LITTLE).unwrap(),
            "NRRD0005\ntype: uint16\ndimension: 3\nsizes: 500 512 64\nencoding: raw\nendian: little\nspace dimension: 3\n\
             space directions: (0.25,0.0,0.0) (0.0,0.5,0.0) (0.0,0.0,2.0)\n\
             space units: \"micrometer\" \"micrometer\" \"micrometer\"\nspace origin: (30.0,20.0,10.0)\n\
             kinds: space space space\nlabels: \"x\" \"y\" \"z\"\ndata file: a\n\n"
        );
        let other = text_of(&FORMAT, cells, BIG_F).unwrap();
        assert!(other.contains("\nsizes: 64 512 500\nencoding: raw\nendian: big\n"), "{other}");
        assert!(other.contains("\nspace origin: (10.0,20.0,30.0)\n"), "{other}");
    }

    #[test]
    fn absent_and_hostile() {
        for (shape, data_type) in
            [(&[][..], "int8"), (&[0][..], "int8"), (&[2][..], "float16"), (&[2][..], "bool")]
        {
            let fill = if data_type == "bool" { json!(false) } else { json!(0) };
            assert_eq!(
                text_of(&FORMAT, document(shape, data_type, json!({"fill_value": fill})), LITTLE),
                None
            );
        }
        assert_eq!(text_of(&FORMAT, document(&[1; 17], "int8", json!({})), LITTLE), None);
        let names = json!({"dimension_names": ["a\n\ndata file: /etc/passwd", "\"", null]});
        let text = text_of(&FORMAT, document(&[2, 3, 4], "int8", names), LITTLE).unwrap();
        assert_eq!(
            text,
            "NRRD0005\ntype: int8\ndimension: 3\nsizes: 4 3 2\nencoding: raw\nkinds: domain domain domain\ndata file: a\n\n"
        );
    }
}
