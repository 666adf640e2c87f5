//! The names of views, and their own files: `__views__/VIEW/PATH` is an array's flat file in another form.
//!
//! Uses `hierarchy`. The planes along an axis have a folder for each array, `__views__/planes@AXIS/PATH/INDEX`; `planes` is
//! short for `planes@0`. A slice is one file in `__views__/slice`, `PATH[INDEX]`, found by name and never listed. Companion files of a view are those of an array at `__views__/VIEW/PATH`.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::Format;
use super::flat_array::header_and_array;
use crate::hierarchy::{Node, View};
use crate::metadata::MAX_RANK;
use crate::store::join;

/// The folder of all views, below the root of the mount and below the folder of a format.
pub const VIEWS: &str = "__views__";
/// Views that are one file for each array, by the name of their folder.
const BY_NAME: [(&str, View); 6] = [
    ("big-endian", View::BigEndian),
    ("c-order", View::COrder),
    ("f-order", View::FOrder),
    ("little-endian", View::LittleEndian),
    ("mask", View::Mask),
    ("unpacked", View::Unpacked),
];
/// The folder of the planes along the first axis.
const PLANES: &str = "planes";
/// The folder of slices.
const SLICES: &str = "slice";
/// How many axes have a folder of planes that is listed.
const LISTED_AXES: u8 = 5;
/// The fewest digits of the name of a plane.
const LEAST_DIGITS: usize = 6;

/// The array's own bytes, or those of a view, without a header.
pub const FLAT: &Format = &Format {
    name: "flat",
    suffix: "",
    holds: "arrays of elements of one size",
    expresses: |node, _| matches!(node, Node::Array { metadata, .. } if metadata.flat_size().is_some()),
    open: |subject| header_and_array(subject, Vec::new()),
    ..Format::BASE
};

/// Returns the view with this folder: `planes@1` are the planes along the axis 1.
pub fn find(folder: &str) -> Option<View> {
    if folder == PLANES {
        return Some(View::Planes(0));
    }
    if let Some(axis) = folder.strip_prefix(PLANES).and_then(|rest| rest.strip_prefix('@')) {
        let number: u8 = axis.parse().ok().filter(|&number| usize::from(number) < MAX_RANK)?;
        return (number.to_string() == axis).then_some(View::Planes(number));
    }
    if folder == SLICES {
        return Some(View::Slices);
    }
    BY_NAME.iter().find(|(name, _)| *name == folder).map(|(_, view)| view.clone())
}

/// Returns the folder of a view.
pub fn folder(view: &View) -> Cow<'static, str> {
    match view {
        View::Planes(0) | View::Plane { axis: 0, .. } => PLANES.into(),
        View::Planes(axis) | View::Plane { axis, .. } => format!("{PLANES}@{axis}").into(),
        View::Slices | View::Slice(_) => SLICES.into(),
        view => BY_NAME.iter().find(|(_, other)| other == view).map_or("", |(name, _)| name).into(),
    }
}

/// Returns the views with a listed folder. The planes along further axes are found by name.
pub fn listed() -> impl Iterator<Item = View> {
    let by_name = BY_NAME.iter().map(|(_, view)| view.clone());
    by_name.chain((0..LISTED_AXES).map(View::Planes)).chain([View::Slices])
}

/// Returns the name of a plane among `length` planes, with leading zeros, so that names sort as numbers.
pub fn plane_name(index: u64, length: u64) -> String {
    let digits = length.saturating_sub(1).to_string().len().max(LEAST_DIGITS);
    format!("{index:0digits$}")
}

/// Returns the plane with this name, with or without the leading zeros.
pub fn plane_index(name: &str, length: u64) -> Option<u64> {
    let index: u64 = name.parse().ok().filter(|&index| index < length)?;
    (plane_name(index, length) == name || index.to_string() == name).then_some(index)
}

/// Returns the own file of a view of an array with this own file, both as paths from the root of what is served. `stored` is the
/// array's node.
pub fn own_file(view: &View, array_file: &str, stored: &Node) -> String {
    let file = join(VIEWS, &join(&folder(view), array_file));
    match (view, stored) {
        (View::Plane { axis, index }, Node::Array { metadata, .. }) => {
            let length = metadata.shape.get(usize::from(*axis)).copied().unwrap_or(0);
            join(&file, &plane_name(*index, length))
        }
        (View::Slice(slice), _) => format!("{file}[{}]", slice.index),
        _ => file,
    }
}

/// Returns the views of an array, given its own file: the own files of views, or the folders of planes, by view.
pub fn list_for_array(array_file: &str, node: &Node) -> Value {
    let Node::Array { metadata, .. } = node else { return Value::Object(Map::new()) };
    let planes = (0..metadata.shape.len()).filter_map(|axis| u8::try_from(axis).ok()).map(View::Planes);
    let views = BY_NAME.iter().map(|(_, view)| view.clone()).chain(planes);
    let exists = |view: &View| view.node(node).is_some();
    let entry = |view: View| (folder(&view).into_owned(), own_file(&view, array_file, node).into());
    Value::Object(views.filter(exists).map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_folders() {
        for view in listed() {
            assert_eq!(find(&folder(&view)), Some(view));
        }
        assert_eq!(find("planes@0"), Some(View::Planes(0)));
        assert_eq!(find("planes@31"), Some(View::Planes(31)));
        for name in
            ["", "f", "planes@", "planes@32", "planes@01", "planes@-1", "planes@+1", "planes1", "planes@x"]
        {
            assert_eq!(find(name), None, "{name}");
        }
    }

    #[test]
    fn names_of_planes() {
        assert_eq!(plane_name(7, 1), "000007");
        assert_eq!(plane_name(123, 1_000_000), "000123");
        assert_eq!(plane_name(123, 1_000_001), "0000123");
        assert_eq!(plane_name(0, 0), "000000");
        assert_eq!(plane_index("000123", 124), Some(123));
        assert_eq!(plane_index("123", 124), Some(123));
        assert_eq!(plane_index("0000123", 1_000_001), Some(123));
        assert_eq!(plane_index("999999999", 1_000_000_000), Some(999_999_999));
        for name in [
            "",
            "-1",
            "+1",
            "01",
            "00123",
            "000123",
            "000123x",
            " 1",
            "1.0",
            "99999999999999999999999",
            "124",
            "１",
        ] {
            assert_eq!(plane_index(name, 123), None, "{name}");
        }
    }
}
