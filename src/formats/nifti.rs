//! `nifti`: a header of 4096 bytes before the bytes as they are, for neuroimaging.
//!
//! Spec: nifti.nimh.nih.gov, NIfTI-1.1 and NIfTI-2. The axes are those of the file, fastest first, whatever they mean. NIfTI-2 is
//! for arrays with an axis that is longer than 32,767.
//!
//! If the first three axes are axes of space with known steps in a unit of length, they are in `pixdim` and in the affine `sform`, in
//! millimetres (or in metres or micrometres, if the array has these). ITK flips the first two axes, as for all NIfTI files.
//!
//! Absent: half precision, more than seven axes.

use super::flat_array::{FlatArray, header_and_array};
use super::geometry::{self, Geometry, Regular, metres};
use super::{CompanionContent, Format, Subject, documents_info};
use crate::array::Layout;
use crate::error::Result;
use crate::hierarchy::Node;
use crate::metadata::data_type::numeric::NumericType;

/// `nifti`.
pub const FORMAT: Format = Format {
    name: "nifti",
    suffix: ".nii",
    holds: "integers, float32, float64 and complex numbers, along 1 to 7 axes longer than 0",
    expresses: |node, layout| expressed(node, layout).is_some(),
    left_out: Some(|node, _| geometry::left_out(node, &["units"])),
    info: Some(documents_info),
    open,
    ..Format::BASE
};

/// The offset of the elements in both versions: a multiple of the page size.
const DATA_OFFSET: u16 = 4096;
const MAX_AXES: usize = 7;

fn expressed(node: &Node, layout: Layout) -> Option<FlatArray> {
    FlatArray::from_node(node, layout)
        .filter(|array| array.axes.len() <= MAX_AXES && type_of(array.number).is_some())
}

fn type_of(number: NumericType) -> Option<i16> {
    Some(match number {
        NumericType::U8 => 2,
        NumericType::I16 => 4,
        NumericType::I32 => 8,
        NumericType::F32 => 16,
        NumericType::C64 => 32,
        NumericType::F64 => 64,
        NumericType::I8 => 256,
        NumericType::U16 => 512,
        NumericType::U32 => 768,
        NumericType::I64 => 1024,
        NumericType::U64 => 1280,
        NumericType::C128 => 1792,
        NumericType::Bool | NumericType::F16 => return None,
    })
}

fn open(subject: &Subject<'_>) -> Result<CompanionContent> {
    let array = FlatArray::from_subject(subject)?;
    header_and_array(
        subject,
        header(&array, &VoxelSpace::from_geometry(&array, &Geometry::from_subject(subject))),
    )
}

/// The space of the first three axes.
struct VoxelSpace {
    /// The positions along the axes, in the unit below; `None` unless all are known.
    axes: Option<[Regular; 3]>,
    /// NIfTI's code of the unit.
    unit: u8,
}

impl VoxelSpace {
    fn from_geometry(array: &FlatArray, geometry: &Geometry) -> Self {
        VoxelSpace::found(array, geometry).unwrap_or(VoxelSpace { axes: None, unit: 0 })
    }

    fn found(array: &FlatArray, geometry: &Geometry) -> Option<Self> {
        let places = array.axes.iter().take(3).map(|axis| geometry.axis(axis.index));
        let factors: Vec<f64> =
            places.clone().map(|axis| metres(axis.unit.as_deref()?)).collect::<Option<_>>()?;
        let same = factors.iter().all(|factor| Some(factor) == factors.first());
        let (unit, of_unit) = match factors.first() {
            Some(&factor) if same && factor == 1.0 => (1, 1.0),
            Some(&factor) if same && factor == 1e-6 => (3, 1e-6),
            _ => (2, 1e-3),
        };
        let mut axes = [Regular { first: 0.0, step: 1.0 }; 3];
        for ((axis, found), factor) in axes.iter_mut().zip(places).zip(factors) {
            let regular = found.regular.filter(|_| found.kind.is_space())?;
            // Usually 1, so that the numbers stay as they are.
            let scale = factor / of_unit;
            *axis = Regular { first: regular.first * scale, step: regular.step * scale };
        }
        Some(VoxelSpace { axes: Some(axes), unit })
    }

    /// Returns the sizes of a voxel, or 1 if they are unknown.
    fn sizes(&self) -> [f64; 3] {
        self.axes.map_or([1.0; 3], |axes| axes.map(|axis| axis.step.abs()))
    }

    /// Returns the rows of the affine.
    fn rows(&self) -> [[f64; 4]; 3] {
        let axes = self.axes.unwrap_or([Regular { first: 0.0, step: 0.0 }; 3]);
        let [x, y, z] = axes;
        [[x.step, 0.0, 0.0, x.first], [0.0, y.step, 0.0, y.first], [0.0, 0.0, z.step, z.first]]
    }

    fn code(&self) -> i16 {
        if self.axes.is_some() { 2 } else { 0 }
    }
}

fn header(array: &FlatArray, space: &VoxelSpace) -> Vec<u8> {
    let is_long = array.lengths().any(|length| i16::try_from(length).is_err());
    let mut header = if is_long { version_2(array, space) } else { version_1(array, space) };
    header.resize(DATA_OFFSET.into(), 0);
    header
}

/// Returns the rank and seven lengths.
fn dimensions(array: &FlatArray) -> impl Iterator<Item = u64> + '_ {
    std::iter::once(array.axes.len() as u64).chain((0..MAX_AXES).map(|place| array.length(place)))
}

fn pixel_sizes(space: &VoxelSpace) -> impl Iterator<Item = f64> {
    std::iter::once(1.0).chain(space.sizes()).chain([1.0; 4])
}

fn version_1(array: &FlatArray, space: &VoxelSpace) -> Vec<u8> {
    let short = |value: i16| array.bytes(value.to_le_bytes());
    let real = |value: f64| array.bytes((value as f32).to_le_bytes());
    let mut header = array.bytes(348i32.to_le_bytes()).to_vec();
    header.resize(40, 0);
    for length in dimensions(array) {
        header.extend(short(i16::try_from(length).unwrap_or(i16::MAX)));
    }
    header.resize(70, 0);
    header.extend(short(type_of(array.number).unwrap_or(0)));
    header.extend(short(array.item_bytes() as i16 * 8));
    header.extend(short(0));
    for size in pixel_sizes(space) {
        header.extend(real(size));
    }
    header.extend(real(DATA_OFFSET.into()));
    header.extend(real(1.0));
    header.extend(real(0.0));
    header.resize(123, 0);
    header.push(space.unit);
    header.resize(252, 0);
    header.extend(short(0));
    header.extend(short(space.code()));
    header.resize(280, 0);
    for value in space.rows().as_flattened() {
        header.extend(real(*value));
    }
    header.resize(344, 0);
    header.extend(b"n+1\0");
    header
}

fn version_2(array: &FlatArray, space: &VoxelSpace) -> Vec<u8> {
    let word = |value: i32| array.bytes(value.to_le_bytes());
    let short = |value: i16| array.bytes(value.to_le_bytes());
    let long = |value: i64| array.bytes(value.to_le_bytes());
    let real = |value: f64| array.bytes(value.to_le_bytes());
    let mut header = word(540).to_vec();
    header.extend(b"n+2\0\r\n\x1a\n");
    header.extend(short(type_of(array.number).unwrap_or(0)));
    header.extend(short(array.item_bytes() as i16 * 8));
    for length in dimensions(array) {
        header.extend(long(i64::try_from(length).unwrap_or(i64::MAX)));
    }
    header.resize(104, 0);
    for size in pixel_sizes(space) {
        header.extend(real(size));
    }
    header.extend(long(DATA_OFFSET.into()));
    header.extend(real(1.0));
    header.extend(real(0.0));
    header.resize(344, 0);
    header.extend(word(0));
    header.extend(word(space.code().into()));
    header.resize(400, 0);
    for value in space.rows().as_flattened() {
        header.extend(real(*value));
    }
    header.extend(word(0));
    header.extend(word(space.unit.into()));
    header
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::formats::flat_array::tests::{BIG_F, LITTLE, document, header_of};
    use serde_json::json;

    #[test]
    fn version_1_has_the_space() {
        let attributes = json!({"scale": [2.0, -0.5, 0.25], "translation": [10, 20, 30], "units": ["um", "um", "micrometer"]});
        let more = json!({"dimension_names": ["z", "y", "x"], "attributes": attributes});
        let header = header_of(&FORMAT, document(&[64, 512, 500], "uint16", more), LITTLE).unwrap();
        let short = |at: usize| i16::from_le_bytes(header[at..at + 2].try_into().unwrap());
        let real = |at: usize| f32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!(header.len(), 4096);
        assert_eq!([40, 42, 44, 46, 48, 70, 72, 254].map(short), [3, 500, 512, 64, 1, 512, 16, 2]);
        assert_eq!([76, 80, 84, 88, 108, 112].map(real), [1.0, 0.25, 0.5, 2.0, 4096.0, 1.0]);
        assert_eq!([280, 292, 300, 308, 320, 324].map(real), [0.25, 30.0, -0.5, 20.0, 2.0, 10.0]);
        assert_eq!((header[123], &header[344..348]), (3, &b"n+1\0"[..]));
    }

    #[test]
    fn version_2_for_long_axes() {
        let header = header_of(&FORMAT, document(&[2, 32_768], "float64", json!({})), BIG_F).unwrap();
        assert_eq!(header[..12], [0, 0, 2, 28, b'n', b'+', b'2', 0, 13, 10, 26, 10]);
        let long = |at: usize| i64::from_be_bytes(header[at..at + 8].try_into().unwrap());
        assert_eq!([16, 24, 32, 40].map(long), [2, 2, 32_768, 1]);
        assert_eq!(long(168), 4096);
        assert_eq!(header_of(&FORMAT, document(&[1; 8], "int8", json!({})), LITTLE), None);
    }
}
