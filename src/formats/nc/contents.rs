//! The content of a netCDF file: variables, and the dimensions that they share.
//!
//! Spec: netCDF "The NetCDF Data Model"; CF conventions, "Coordinate Variables". Uses its neighbours and `metadata`.
//!
//! - A dimension is a name and a length. All arrays of a file share it.
//! - A one-dimensional array with the name of its own dimension is the coordinate variable of that dimension, for arrays of
//!   the same length along it.
//! - A name has one length: that of its coordinate variable, or else that of the first array in the order of names. With another length, or if
//!   another variable has the name, the dimension is `NAME_LENGTH`.
//! - Byte strings are characters along one more axis, the last, as in netCDF's classic model, because many programs know no other
//!   strings. The dimension of this axis is `stringLENGTH`.
//! - A dimension without a name belongs to its array alone: `ARRAY_dim_AXIS`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::attributes::Attribute;
use super::hdf5::datatype;
use super::names::{UniqueNames, file_name};
use crate::metadata::{ArrayMetadata, ByteOrder, DataType, MAX_RANK};

/// An array in a file.
pub struct SourceArray {
    /// Its path in the store.
    pub path: String,
    /// Its name.
    pub name: String,
    /// Its document.
    pub metadata: Arc<ArrayMetadata>,
}

/// One axis of a variable, in the order in which it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VariableAxis<'a> {
    /// The name of its dimension, if it has one.
    pub name: Option<&'a str>,
    /// Its length.
    pub length: u64,
    /// Its index among the array's own axes.
    pub own_place: usize,
}

/// A dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dimension {
    /// Its name in the file.
    pub name: String,
    /// Its length.
    pub length: u64,
    /// Its coordinate variable, by index.
    pub variable: Option<usize>,
    /// The group that has it, by index.
    pub group: usize,
}

/// A variable.
pub struct Variable {
    /// Its name in the file.
    pub name: String,
    /// The type of its elements.
    pub datatype: Vec<u8>,
    /// Its shape as it is served.
    pub shape: Vec<u64>,
    /// Its dimensions, by index.
    pub dimensions: Vec<usize>,
    /// The dimension that has this coordinate variable.
    pub coordinate_of: Option<usize>,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
    /// The size of its elements in bytes.
    pub size_bytes: u64,
    /// The group that has it, by index.
    pub group: usize,
}

impl SourceArray {
    /// Returns the axes as they are served: reversed in order F.
    pub fn axes(&self, is_reversed: bool) -> Vec<VariableAxis<'_>> {
        let names = self.metadata.dimension_names.as_deref().unwrap_or_default();
        let axis = |(own_place, &length): (usize, &u64)| {
            let name = names.get(own_place).and_then(Option::as_deref);
            VariableAxis { name: name.filter(|name| file_name(name).is_some()), length, own_place }
        };
        let mut axes: Vec<_> = self.metadata.shape.iter().enumerate().map(axis).collect();
        if is_reversed {
            axes.reverse();
        }
        axes
    }

    /// Returns whether it is the coordinate variable of its own dimension.
    pub fn is_coordinate(&self) -> bool {
        matches!(self.axes(false).as_slice(), [axis] if axis.name == Some(&self.name))
    }
}

/// Returns the type of a variable's elements, if HDF5 has it: the type of the array's elements, or of their characters.
pub fn element_type(metadata: &ArrayMetadata, order: ByteOrder) -> Option<Vec<u8>> {
    match characters(metadata) {
        Some(_) if metadata.shape.len() == MAX_RANK => None,
        Some(_) => Some(datatype::fixed_string(1, true)),
        None => datatype::for_type(&metadata.data_type, order),
    }
}

/// Returns whether an array may be in a file with other arrays. A netCDF library that was built with HDF5 2 crashes when it reads floats
/// that a float16 can hold; HDF5 programs read them from the array's own file.
pub fn is_companionable(metadata: &ArrayMetadata) -> bool {
    use DataType::{Float8E3M4, Float8E4M3, Float8E5M2, Float16};
    !matches!(metadata.data_type, Float16 | Float8E3M4 | Float8E4M3 | Float8E5M2)
}

/// Returns the number of characters of an element; `None` unless elements are byte strings of more than one byte.
pub fn characters(metadata: &ArrayMetadata) -> Option<u64> {
    match metadata.data_type {
        DataType::NullTerminatedBytes(length) if length > 1 => Some(length as u64),
        _ => None,
    }
}

/// The dimensions of a file in the making.
#[derive(Default)]
pub struct Dimensions<'a> {
    /// The dimensions in the order of their first use.
    pub all: Vec<Dimension>,
    /// What each group has.
    groups: Vec<GroupDimensions<'a>>,
}

/// The dimensions of one group.
#[derive(Default)]
struct GroupDimensions<'a> {
    /// The group above.
    parent: Option<usize>,
    names: UniqueNames,
    /// Coordinate variables by name.
    coordinates: HashMap<&'a str, CoordinateVariable>,
    /// The index of the dimension with a name and a length that arrays of the group use.
    known: HashMap<(String, u64), usize>,
    /// The names of dimensions that stand for one of this group, or of a group above.
    used: HashSet<String>,
}

/// A coordinate variable.
#[derive(Clone)]
pub struct CoordinateVariable {
    /// Its index.
    pub index: usize,
    /// Its length.
    pub length: u64,
    /// Its name in the file.
    pub name: String,
}

/// What is in a group, before its dimensions are known.
pub struct GroupNames<'a> {
    /// The group above.
    pub parent: Option<usize>,
    /// The names of its members in the file.
    pub names: Vec<String>,
    /// Its coordinate variables, by the names of their arrays.
    pub coordinates: HashMap<&'a str, CoordinateVariable>,
}

impl<'a> Dimensions<'a> {
    /// Begins without dimensions, for one group of variables with these names.
    pub fn new(sources: &'a [SourceArray], variable_names: &[String]) -> Self {
        let coordinate = |((index, source), name): ((usize, &'a SourceArray), &String)| {
            let length = source.metadata.shape.first().copied().filter(|_| source.is_coordinate())?;
            Some((source.name.as_str(), CoordinateVariable { index, length, name: name.clone() }))
        };
        let coordinates = sources.iter().enumerate().zip(variable_names).filter_map(coordinate).collect();
        let mut dimensions = Dimensions::default();
        dimensions.add_group(GroupNames { parent: None, names: variable_names.to_vec(), coordinates });
        dimensions
    }

    /// Adds a group. A group comes after the one above it, and after the variables there.
    pub fn add_group(&mut self, group: GroupNames<'a>) {
        let mut names = UniqueNames::default();
        for name in &group.names {
            names.take(name);
        }
        let GroupNames { parent, coordinates, .. } = group;
        self.groups.push(GroupDimensions { parent, names, coordinates, ..GroupDimensions::default() });
    }

    /// Returns the dimension of an axis of the variable with this name in a group. As in netCDF, it is one of the nearest group that has
    /// a dimension of this name.
    pub fn dimension_of_axis(&mut self, group: usize, variable: &str, axis: VariableAxis<'_>) -> usize {
        let Some(name) = axis.name else {
            let similar = format!("{variable}_dim_{}", axis.own_place);
            let name =
                self.groups.get_mut(group).map_or(similar.clone(), |group| group.names.take_similar(similar));
            return self.add(Dimension { name, length: axis.length, variable: None, group });
        };
        let key = (name.to_owned(), axis.length);
        let index = match self.inherited(group, &key) {
            Some(known) => known,
            None => self.add_named(group, name, axis.length),
        };
        if let Some(group) = self.groups.get_mut(group) {
            group.used.insert(key.0.clone());
            group.known.insert(key, index);
        }
        index
    }

    /// Gives a group the dimension with a name and a length of the nearest group above that has the name, if there is one.
    pub fn inherit(&mut self, group: usize, name: &str, length: u64) {
        let key = (name.to_owned(), length);
        if let Some(index) = self.inherited(group, &key)
            && let Some(group) = self.groups.get_mut(group)
        {
            group.used.insert(key.0.clone());
            group.known.insert(key, index);
        }
    }

    /// Returns the dimension with a name and a length in a group or above it; `None` if a nearer one has the name.
    fn inherited(&self, group: usize, key: &(String, u64)) -> Option<usize> {
        let mut next = Some(group);
        while let Some(group) = next.and_then(|index| self.groups.get(index)) {
            if let Some(&known) = group.known.get(key) {
                return Some(known);
            }
            if group.used.contains(&key.0) || group.coordinates.contains_key(key.0.as_str()) {
                return None;
            }
            next = group.parent;
        }
        None
    }

    /// Adds a dimension to a group.
    fn add_named(&mut self, group: usize, name: &str, length: u64) -> usize {
        let plain = file_name(name).unwrap_or_default();
        let dimension = match self.groups.get_mut(group) {
            Some(own) => match own.coordinates.get(name) {
                Some(coordinate) if coordinate.length == length => Dimension {
                    name: coordinate.name.clone(),
                    length,
                    variable: Some(coordinate.index),
                    group,
                },
                coordinate => {
                    let is_free = coordinate.is_none() && !own.used.contains(name) && own.names.take(&plain);
                    let name =
                        if is_free { plain } else { own.names.take_similar(format!("{plain}_{length}")) };
                    Dimension { name, length, variable: None, group }
                }
            },
            None => Dimension { name: plain, length, variable: None, group },
        };
        self.add(dimension)
    }

    /// Returns the dimension of the characters of strings.
    pub fn dimension_of_characters(&mut self, group: usize, variable: &str, length: u64) -> usize {
        let (name, own_place) = (format!("string{length}"), MAX_RANK);
        self.dimension_of_axis(group, variable, VariableAxis { name: Some(&name), length, own_place })
    }

    fn add(&mut self, dimension: Dimension) -> usize {
        self.all.push(dimension);
        self.all.len() - 1
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::metadata::{Document, parse_v3};
    use serde_json::json;

    fn source(name: &str, axes: &[(Option<&str>, u64)]) -> SourceArray {
        let shape: Vec<u64> = axes.iter().map(|axis| axis.1).collect();
        let chunks: Vec<u64> = shape.iter().map(|length| 1.max(*length)).collect();
        let names: Vec<_> = axes.iter().map(|axis| axis.0).collect();
        let document = json!({"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "int8", "fill_value": 0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}}, "dimension_names": names,
            "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}]});
        let metadata = match parse_v3("a/zarr.json", document.to_string().as_bytes()) {
            Ok(Document::Array(metadata)) => Arc::new(metadata),
            other => panic!("{other:?}"),
        };
        SourceArray { path: name.to_owned(), name: name.to_owned(), metadata }
    }

    /// The dimensions of each source by name.
    type DimensionsOfSources = Vec<Vec<String>>;
    /// All dimensions by name, with their length and whether they have a variable.
    type AllDimensions = Vec<(String, u64, bool)>;

    fn resolved(sources: &[SourceArray]) -> (DimensionsOfSources, AllDimensions) {
        let names: Vec<String> = sources.iter().map(|source| source.name.clone()).collect();
        let mut dimensions = Dimensions::new(sources, &names);
        let mut of_sources = Vec::new();
        for source in sources {
            let axes = source.axes(false);
            let of_axes = axes.iter().map(|axis| dimensions.dimension_of_axis(0, &source.name, *axis));
            of_sources.push(of_axes.collect::<Vec<_>>());
        }
        let name = |index: &usize| dimensions.all[*index].name.clone();
        let of_sources = of_sources.iter().map(|indices| indices.iter().map(name).collect()).collect();
        let all = dimensions.all.iter();
        (of_sources, all.map(|d| (d.name.clone(), d.length, d.variable.is_some())).collect())
    }

    #[test]
    fn dimensions_are_shared_by_name_and_length() {
        let (of_sources, all) = resolved(&[
            source("a", &[(Some("x"), 3), (Some("y"), 4)]),
            source("b", &[(Some("y"), 4), (Some("x"), 5)]),
            source("x", &[(Some("x"), 5)]),
        ]);
        assert_eq!(of_sources, [vec!["x_3", "y"], vec!["y", "x"], vec!["x"]]);
        assert_eq!(all, [("x_3".into(), 3, false), ("y".into(), 4, false), ("x".into(), 5, true)]);
    }

    #[test]
    fn names_that_are_missing_or_taken() {
        let (of_sources, _) = resolved(&[
            source("a", &[(None, 3), (Some(""), 3), (Some("b"), 2)]),
            source("b", &[(Some("t"), 2), (Some("t"), 2)]),
            source("a_dim_0", &[]),
            source("c", &[(Some("t"), 9), (Some("t_9"), 1)]),
        ]);
        assert_eq!(of_sources[0], ["a_dim_0_2", "a_dim_1", "b_2"]);
        assert_eq!(of_sources[1], ["t", "t"]);
        assert_eq!(of_sources[3], ["t_9", "t_9_1"]);
    }

    #[test]
    fn order_f_reverses_the_axes() {
        let source = source("a", &[(Some("x"), 3), (Some("y"), 4)]);
        let names: Vec<_> = source.axes(true).iter().map(|axis| (axis.name, axis.own_place)).collect();
        assert_eq!(names, [(Some("y"), 1), (Some("x"), 0)]);
    }
}
