//! Slices: a part of an array, or the same part of all arrays of a group.
//!
//! Uses `metadata` and the selections of `array`; no I/O. `formats/slices/` makes a [`Slice`] from the text of an index, because that may
//! need coordinates. A slice is a view whose bytes are in the array's own file, at other places.
//!
//! Invariant: a slice shows only arrays that have all its elements.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::array::AxisSelection;
use crate::metadata::{ArrayMetadata, ChunkGrid};

/// Attributes about the places of an array's elements in space. They describe the whole array.
const PLACE_ATTRIBUTES: [&str; 3] = ["GeoTransform", "spatial:transform", "spatial:bbox"];
/// The same, if they are lists with one number for each axis.
const PLACE_LISTS: [&str; 2] = ["scale", "translation"];

/// A part of an array, or of all arrays of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// The index as it was given, without brackets.
    pub index: String,
    /// The selected elements of each axis of the array; `None` if the slice is of a group.
    pub axes: Option<Vec<AxisPart>>,
    /// The selected elements of dimensions. They apply to the arrays around, and to all arrays of a group.
    pub dimensions: Vec<DimensionPart>,
}

/// The selected elements of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AxisPart {
    /// The elements.
    pub selection: AxisSelection,
    /// Whether the axis is left out, because one element was named.
    pub is_dropped: bool,
}

/// The selected elements of a dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DimensionPart {
    /// Its name.
    pub name: String,
    /// Its length. An axis of this name with another length is not this dimension.
    pub length: u64,
    /// The elements.
    pub part: AxisPart,
}

impl AxisPart {
    /// Selects all elements of an axis.
    pub fn whole(length: u64) -> Self {
        let selection = AxisSelection { start: 0, step: 1, count: length };
        AxisPart { selection, is_dropped: false }
    }

    /// Selects one element, and leaves the axis out.
    pub fn single(start: u64) -> Self {
        AxisPart { selection: AxisSelection { start, step: 1, count: 1 }, is_dropped: true }
    }

    fn is_whole(&self, length: u64) -> bool {
        *self == AxisPart::whole(length)
    }
}

impl Slice {
    /// Returns the slice of the arrays around the sliced array.
    pub fn for_neighbours(&self) -> Slice {
        Slice { axes: None, ..self.clone() }
    }

    /// Returns the selected elements of each axis of an array; `None` if the array does not have all of them.
    pub fn parts(&self, metadata: &ArrayMetadata) -> Option<Vec<AxisPart>> {
        let shape = &metadata.shape;
        if let Some(axes) = &self.axes {
            let fits = |(part, length): (&AxisPart, &u64)| part.selection.is_inside(*length);
            let is_inside = axes.len() == shape.len() && axes.iter().zip(shape).all(fits);
            return is_inside.then(|| axes.clone());
        }
        let names = metadata.dimension_names.as_deref().unwrap_or_default();
        let part = |(axis, &length): (usize, &u64)| {
            let name = names.get(axis).and_then(Option::as_deref);
            let known = self
                .dimensions
                .iter()
                .find(|known| Some(known.name.as_str()) == name && known.length == length);
            known.map_or_else(|| AxisPart::whole(length), |known| known.part)
        };
        Some(shape.iter().enumerate().map(part).collect())
    }

    /// Returns the metadata of the part of an array; `None` if the array does not have all elements. The part does not have codecs.
    pub(super) fn metadata<'a>(
        &self,
        metadata: &'a Arc<ArrayMetadata>,
    ) -> Option<Cow<'a, Arc<ArrayMetadata>>> {
        let parts = self.parts(metadata)?;
        let is_whole = parts.iter().zip(&metadata.shape).all(|(part, length)| part.is_whole(*length));
        let is_placed = PLACE_ATTRIBUTES.iter().any(|name| metadata.attributes.contains_key(*name));
        if is_whole && (self.axes.is_some() || !is_placed) {
            return Some(Cow::Borrowed(metadata));
        }
        let kept: Vec<usize> =
            (0..parts.len()).filter(|axis| parts.get(*axis).is_some_and(|part| !part.is_dropped)).collect();
        let shape: Vec<u64> =
            kept.iter().filter_map(|axis| Some(parts.get(*axis)?.selection.count)).collect();
        let names = metadata.dimension_names.as_ref();
        let names = names.map(|names| kept.iter().map(|axis| names.get(*axis).cloned().flatten()).collect());
        let sliced = ArrayMetadata {
            chunk_grid: ChunkGrid::Regular(shape.iter().map(|length| (*length).max(1)).collect()),
            shape,
            codecs: Vec::new(),
            dimension_names: names,
            attributes: attributes_of_part(&metadata.attributes, parts.len()),
            ..ArrayMetadata::clone(metadata)
        };
        sliced.flat_size().map(|_| Cow::Owned(Arc::new(sliced)))
    }

    /// Returns the slice as text, for [`Slice::parse`] of another process.
    pub fn to_text(&self) -> String {
        let part = |part: &AxisPart| {
            let AxisSelection { start, step, count } = part.selection;
            json!([start, step, count, part.is_dropped])
        };
        let axes = self.axes.as_ref().map(|axes| axes.iter().map(part).collect::<Vec<_>>());
        let dimensions = self.dimensions.iter();
        let dimensions: Vec<Value> =
            dimensions.map(|known| json!([known.name, known.length, part(&known.part)])).collect();
        json!([self.index, axes, dimensions]).to_string()
    }

    /// Returns the slice that [`Slice::to_text`] wrote.
    pub fn parse(text: &str) -> Option<Self> {
        fn part(value: &Value) -> Option<AxisPart> {
            let [start, step, count, is_dropped] = value.as_array()?.as_slice() else { return None };
            let (start, step, count) = (start.as_u64()?, step.as_i64()?, count.as_u64()?);
            let selection = AxisSelection { start, step, count };
            Some(AxisPart { selection, is_dropped: is_dropped.as_bool()? })
        }
        fn dimension(value: &Value) -> Option<DimensionPart> {
            let [name, length, of_name] = value.as_array()?.as_slice() else { return None };
            Some(DimensionPart {
                name: name.as_str()?.to_owned(),
                length: length.as_u64()?,
                part: part(of_name)?,
            })
        }
        let value: Value = serde_json::from_str(text).ok()?;
        let [index, axes, dimensions] = value.as_array()?.as_slice() else { return None };
        Some(Slice {
            index: index.as_str()?.to_owned(),
            axes: match axes {
                Value::Null => None,
                axes => Some(axes.as_array()?.iter().map(part).collect::<Option<_>>()?),
            },
            dimensions: dimensions.as_array()?.iter().map(dimension).collect::<Option<_>>()?,
        })
    }
}

/// Returns the attributes of an array of this rank that also hold for a part of it.
fn attributes_of_part(attributes: &Map<String, Value>, rank: usize) -> Map<String, Value> {
    let is_of_whole = |name: &str, value: &Value| {
        let is_list = value.as_array().is_some_and(|list| list.len() == rank);
        PLACE_ATTRIBUTES.contains(&name) || (PLACE_LISTS.contains(&name) && is_list)
    };
    let kept = attributes.iter().filter(|(name, value)| !is_of_whole(name, value));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_read_as_they_were_written() {
        let selection = AxisSelection { start: u64::MAX, step: i64::MIN, count: 3 };
        let part = AxisPart { selection, is_dropped: true };
        let dimensions =
            vec![DimensionPart { name: "a \"b\"".to_owned(), length: 9, part: AxisPart::whole(9) }];
        let slice = Slice { index: "time=2001, -1".to_owned(), axes: Some(vec![part]), dimensions };
        for slice in [slice.for_neighbours(), slice] {
            assert_eq!(Slice::parse(&slice.to_text()), Some(slice));
        }
        for text in ["", "[]", "[1,null,[]]", "[\"\",[[0,0,0]],[]]", "[\"\",null,[[]]]"] {
            assert_eq!(Slice::parse(text), None, "{text}");
        }
    }
}
