//! Dimension names for a new array without any, because xarray refuses a whole group for one array without them.
//!
//! Uses `tree`. In xarray a dimension name has one length in its group. So a new name is not one that another array has with another
//! length.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Result;
use crate::hierarchy::lineage::parent;
use crate::hierarchy::{Node, Tree};
use crate::metadata::ArrayMetadata;
use crate::store::{Info, Store};

use super::Place;

/// The most members of a group that are read.
const MAX_MEMBERS: usize = 1024;

/// The dimensions of the other arrays in a group: the lengths of each, by name.
#[derive(Debug, Default, PartialEq, Eq)]
struct Dimensions {
    lengths: BTreeMap<String, Vec<u64>>,
    /// The shapes of arrays that have names for all dimensions, and these names.
    whole: Vec<(Vec<u64>, Vec<String>)>,
}

/// Returns dimension names for a new array of this shape: those of another array of the group with the same shape; otherwise, for each
/// dimension, the only name in the group with its length, or else a new name (`dim_0`).
pub fn dimension_names(store: &Arc<dyn Store>, place: &Place, shape: &[u64]) -> Vec<Option<String>> {
    let name = place.path.rsplit('/').next().unwrap_or_default();
    let names = match members(store, place) {
        Ok(Some(dimensions)) => dimensions.names(name, shape),
        // Names with the array's own name in them do not depend on other arrays.
        Ok(None) | Err(_) => (0..shape.len()).map(|axis| format!("{name}_dim_{axis}")).collect(),
    };
    names.into_iter().map(Some).collect()
}

/// Returns whether other arrays in the group have dimension names; `false` if that cannot be seen.
pub fn has_named_siblings(store: &Arc<dyn Store>, place: &Place) -> bool {
    matches!(members(store, place), Ok(Some(dimensions)) if !dimensions.lengths.is_empty())
}

/// Returns the dimensions of the other arrays in the group; `None` if there are too many arrays.
fn members(store: &Arc<dyn Store>, place: &Place) -> Result<Option<Dimensions>> {
    let mut dimensions = Dimensions::default();
    let Some(group) = parent(&place.path) else { return Ok(Some(dimensions)) };
    let tree = Tree::new(store.clone());
    let children = tree.children(group)?;
    if children.len() > MAX_MEMBERS {
        return Ok(None);
    }
    for child in children.iter().filter(|child| !child.is_group) {
        if let Some(Node::Array { metadata, info }) = tree.node(&crate::store::join(group, &child.name))?
            && is_open(&info, &place.like)
        {
            dimensions.add(&metadata);
        }
    }
    Ok(Some(dimensions))
}

/// Returns whether the owner of the new array may see another array.
fn is_open(info: &Info, new: &Info) -> bool {
    let (Some(other), Some(new)) = (info.posix, new.posix) else { return true };
    other.mode & 0o004 != 0 || other.uid == new.uid || new.uid == 0
}

impl Dimensions {
    fn add(&mut self, metadata: &ArrayMetadata) {
        let names = metadata.dimension_names.as_deref().unwrap_or_default();
        for (name, &length) in names.iter().zip(&metadata.shape) {
            let Some(name) = name else { continue };
            let lengths = self.lengths.entry(name.clone()).or_default();
            if !lengths.contains(&length) {
                lengths.push(length);
            }
        }
        let all = names.iter().cloned().collect::<Option<Vec<String>>>();
        // An array without names has an empty list of them.
        if let Some(names) = all.filter(|names| names.len() == metadata.shape.len()) {
            self.whole.push((metadata.shape.clone(), names));
        }
    }

    /// Returns dimension names for an array with this name and shape.
    fn names(&self, own_name: &str, shape: &[u64]) -> Vec<String> {
        // An array of one dimension with the dimension's name is its coordinate. With more dimensions, xarray refuses the array.
        let is_free = |name: &String| shape.len() == 1 || name != own_name;
        if let [length] = shape
            && self.lengths.get(own_name).is_some_and(|lengths| lengths.contains(length))
        {
            return vec![own_name.to_owned()];
        }
        let is_alike =
            |(other, names): &&(Vec<u64>, Vec<String>)| other == shape && names.iter().all(is_free);
        if let Some((_, names)) = self.whole.iter().find(is_alike) {
            return names.clone();
        }
        let mut names: Vec<String> = Vec::new();
        for &length in shape {
            let has_length = |(name, lengths): &(&String, &Vec<u64>)| {
                lengths.as_slice() == [length] && is_free(name) && !names.contains(name)
            };
            let mut known = self.lengths.iter().filter(has_length);
            let name = match (known.next(), known.next()) {
                (Some((name, _)), None) => name.clone(),
                _ => self.new_name(own_name, length, &names),
            };
            names.push(name);
        }
        names
    }

    /// Returns a name that no dimension has with another length.
    fn new_name(&self, own_name: &str, length: u64, taken: &[String]) -> String {
        let is_free = |name: &String| {
            let is_of_length = self.lengths.get(name).is_none_or(|lengths| lengths.as_slice() == [length]);
            is_of_length && name != own_name && !taken.contains(name)
        };
        let names = (taken.len()..).map(|number| format!("dim_{number}"));
        names
            .take(MAX_MEMBERS * crate::metadata::MAX_RANK)
            .find(is_free)
            .unwrap_or_else(|| own_name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(arrays: &[(&[u64], &[&str])]) -> Dimensions {
        let mut dimensions = Dimensions::default();
        for (shape, names) in arrays {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            for (name, &length) in names.iter().zip(*shape) {
                let lengths = dimensions.lengths.entry(name.clone()).or_default();
                if !lengths.contains(&length) {
                    lengths.push(length);
                }
            }
            dimensions.whole.push((shape.to_vec(), names));
        }
        dimensions
    }

    #[test]
    fn names_of_the_group_are_used_if_lengths_agree() {
        let climate = group(&[(&[12, 180, 360], &["time", "lat", "lon"]), (&[180, 180], &["lat", "other"])]);
        for (name, shape, expected) in [
            ("mask", &[12, 180, 360][..], &["time", "lat", "lon"][..]),
            ("mask", &[360, 12], &["lon", "time"]),
            // Two dimensions have this length.
            ("mask", &[180], &["dim_0"]),
            ("lat", &[180], &["lat"]),
            ("lon", &[360, 5], &["dim_0", "dim_1"]),
            ("mask", &[12, 12], &["time", "dim_1"]),
            ("mask", &[], &[]),
        ] {
            assert_eq!(climate.names(name, shape), expected, "{name} {shape:?}");
        }
        let unnamed = group(&[(&[3], &["dim_0"]), (&[4, 5], &["dim_0", "dim_1"])]);
        assert_eq!(unnamed.names("a", &[3, 4]), ["dim_2", "dim_3"], "these names have other lengths");
        assert_eq!(group(&[]).names("a", &[3, 3]), ["dim_0", "dim_1"]);
    }
}
