//! `mrc`: a header of 1024 bytes before the bytes as they are, for electron microscopy.
//!
//! Spec: ccpem.ac.uk/mrc-format/mrc2014. Two axes are an image, three a volume, four a stack of volumes (space group 401).
//! The cell is written if the steps of all axes of the image or volume are lengths; otherwise it is 0, which means unknown.
//!
//! Absent: types without a mode (the eight-bit mode is signed), other ranks.

use super::flat_array::{FlatArray, header_and_array};
use super::geometry::{self, Geometry, metres};
use super::{CompanionContent, Format, Subject, documents_info};
use crate::array::Layout;
use crate::error::Result;
use crate::hierarchy::Node;
use crate::metadata::data_type::numeric::NumericType;

/// `mrc`.
pub const FORMAT: Format = Format {
    name: "mrc",
    suffix: ".mrc",
    holds: "int8, int16, uint16, float16, float32 and complex64, along 2 to 4 axes longer than 0",
    expresses: |node, layout| expressed(node, layout).is_some(),
    left_out: Some(|node, _| geometry::left_out(node, &["units"])),
    info: Some(documents_info),
    open,
    ..Format::BASE
};

const HEADER_BYTES: usize = 1024;
const ANGSTROM_PER_METRE: f64 = 1e10;

fn expressed(node: &Node, layout: Layout) -> Option<FlatArray> {
    let fits = |array: &FlatArray| {
        (2..=4).contains(&array.axes.len())
            && array.lengths().all(|length| i32::try_from(length).is_ok())
            && i32::try_from(array.count_from(2)).is_ok()
            && mode(array.number).is_some()
    };
    FlatArray::from_node(node, layout).filter(fits)
}

fn mode(number: NumericType) -> Option<i32> {
    Some(match number {
        NumericType::I8 => 0,
        NumericType::I16 => 1,
        NumericType::F32 => 2,
        NumericType::C64 => 4,
        NumericType::U16 => 6,
        NumericType::F16 => 12,
        _ => return None,
    })
}

fn open(subject: &Subject<'_>) -> Result<CompanionContent> {
    let array = FlatArray::from_subject(subject)?;
    header_and_array(subject, header(&array, &Geometry::from_subject(subject)))
}

fn header(array: &FlatArray, geometry: &Geometry) -> Vec<u8> {
    let as_i32 = |length: u64| i32::try_from(length).unwrap_or(i32::MAX);
    let [x, y, z] = [0, 1, 2].map(|place| as_i32(array.length(place)));
    let space_group = match array.axes.len() {
        2 => 0,
        3 => 1,
        _ => 401,
    };
    let mut header = Vec::with_capacity(HEADER_BYTES);
    let mut put = |word: [u8; 4]| header.extend_from_slice(&array.bytes(word));
    let sections = as_i32(array.count_from(2));
    for number in [x, y, sections, mode(array.number).unwrap_or(0), 0, 0, 0, x, y, z] {
        put(number.to_le_bytes());
    }
    for number in cell(array, geometry).into_iter().chain([90.0; 3]) {
        put(number.to_le_bytes());
    }
    for number in [1, 2, 3] {
        put(i32::to_le_bytes(number));
    }
    // Minimum, maximum and mean: a minimum above the maximum means that they are unknown.
    for number in [0.0, -1.0, -2.0] {
        put(f32::to_le_bytes(number));
    }
    for number in [space_group, 0] {
        put(i32::to_le_bytes(number));
    }
    header.resize(108, 0);
    header.extend_from_slice(&array.bytes(20140i32.to_le_bytes()));
    header.resize(208, 0);
    header.extend_from_slice(b"MAP ");
    header.extend_from_slice(if array.is_big_endian { &[0x11, 0x11, 0, 0] } else { &[0x44, 0x44, 0, 0] });
    header.extend_from_slice(&array.bytes((-1.0f32).to_le_bytes()));
    header.resize(HEADER_BYTES, 0);
    header
}

/// Returns the size of the image or volume in angstroms, or 0 if it is unknown.
fn cell(array: &FlatArray, geometry: &Geometry) -> [f32; 3] {
    let along = |place: usize| {
        let axis = geometry.axis(array.axes.get(place)?.index);
        let factor = metres(axis.unit.as_deref()?)? * ANGSTROM_PER_METRE;
        let size = axis.regular?.step.abs() * array.length(place) as f64 * factor;
        Some(size as f32).filter(|size| size.is_finite())
    };
    let needed = array.axes.len().min(3);
    let mut cell = [0.0; 3];
    for (place, size) in cell.iter_mut().enumerate().take(needed) {
        match along(place) {
            Some(found) => *size = found,
            None => return [0.0; 3],
        }
    }
    cell
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::formats::flat_array::tests::{BIG_F, LITTLE, document, header_of};
    use serde_json::json;

    #[test]
    fn headers() {
        let more =
            json!({"attributes": {"scale": [20.0, 5.0, 2.5], "units": ["angstrom", "angstrom", "angstrom"]}});
        let header = header_of(&FORMAT, document(&[64, 512, 500], "uint16", more), LITTLE).unwrap();
        let word = |at: usize| i32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        let real = |at: usize| f32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!(header.len(), 1024);
        assert_eq!([0, 4, 8, 12].map(word), [500, 512, 64, 6]);
        assert_eq!([40, 44, 48].map(real), [1250.0, 2560.0, 1280.0]);
        assert_eq!(&header[208..216], b"MAP \x44\x44\0\0");
        let stack = header_of(&FORMAT, document(&[2, 3, 5, 7], "int16", json!({})), BIG_F).unwrap();
        assert_eq!(stack[..12], [0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 35]);
        assert_eq!(&stack[88..92], &401i32.to_be_bytes());
        for (shape, data_type) in [(&[2, 2][..], "uint8"), (&[2][..], "int16"), (&[1; 5][..], "int16")] {
            assert_eq!(header_of(&FORMAT, document(shape, data_type, json!({})), LITTLE), None);
        }
    }
}
