//! HDF5 files, and netCDF-4, which is HDF5 with named dimensions.
//!
//! Spec: HDF5 File Format Specification; NetCDF-4 "HDF5 file format". Uses its neighbours, and the crate `hdf5-reader`. `dimensions.rs` finds the
//! names of dimensions, `elements.rs` the types and the elements, `filters.rs` decodes what the crate does not.
//!
//! Attributes with which netCDF-4 and the dimension scales keep their books do not become attributes.

mod dimensions;
mod elements;
mod filters;
mod found;

use std::fs::File;
use std::sync::Arc;

use hdf5_reader::group::Group;
use hdf5_reader::{Attribute as Hdf5Attribute, Datatype, FileStorage, Hdf5File, OpenOptions};

use super::attributes::{AttributeValue, VariableAttributes};
use super::source_file::SourceFile;
use super::variable::{MAX_DEPTH, MAX_NODES, SourceGroup, SourceVariable, guarded, refused};
use crate::error::Result;
use dimensions::Dimensions;
use elements::{Hdf5Elements, StoredType, small_floats};
use found::{Found, join, leaf};

/// The most bytes of decoded chunks that are kept.
const CACHE_BYTES: usize = 128 << 20;
/// The longest chunk that is decoded.
const MAX_CHUNK_BYTES: usize = 1 << 30;
/// The most bytes of elements that are read at a time, with the rest of the chunks that they are in.
const MAX_READ_BYTES: usize = 2 << 30;

/// Attributes of netCDF-4 and of dimension scales.
const INTERNAL: [&str; 9] = [
    "CLASS",
    "DIMENSION_LIST",
    "DIMENSION_LABELS",
    "REFERENCE_LIST",
    "_Netcdf4Coordinates",
    "_Netcdf4Dimid",
    "_NCProperties",
    "_nc3_strict",
    "_NCCOPY",
];

/// Opens a file.
pub fn open(file: File, name: &str, is_wanted: &dyn Fn(&str) -> bool) -> Result<SourceFile> {
    guarded(name, || open_unguarded(file, name, is_wanted))
}

fn open_unguarded(file: File, name: &str, is_wanted: &dyn Fn(&str) -> bool) -> Result<SourceFile> {
    let failed = |error: hdf5_reader::error::Error| refused(name, error);
    let storage = Arc::new(FileStorage::from_file(file).map_err(failed)?);
    let options = OpenOptions { chunk_cache_bytes: CACHE_BYTES, ..OpenOptions::default() }
        .with_max_chunk_bytes(MAX_CHUNK_BYTES)
        .with_filter_registry(filters::registered(MAX_CHUNK_BYTES).map_err(|error| refused(name, error))?)
        .with_max_read_bytes(MAX_READ_BYTES);
    let file = Hdf5File::from_storage_with_options(storage, options).map_err(failed)?;
    let root = file.root_group().map_err(failed)?;
    let mut contents = Contents { name, groups: Vec::new(), found: Vec::new(), left_out: Vec::new() };
    contents.enter(&root, "", 0)?;
    let dimensions = Dimensions::new(&contents.found, name)?;
    let (mut variables, mut datasets) = (Vec::new(), Vec::new());
    for number in 0..contents.found.len() {
        if !contents.found.get(number).is_some_and(|found| is_wanted(&found.path())) {
            continue;
        }
        if let Some((variable, elements)) = contents.variable(number, &dimensions)? {
            variables.push(variable);
            datasets.push(elements);
        }
    }
    elements::join_characters(&mut variables, &mut datasets, name)?;
    let elements = Box::new(elements::Hdf5File { name: name.to_owned(), datasets });
    let (groups, left_out) = (contents.groups, contents.left_out);
    Ok(SourceFile { name: name.to_owned(), groups, variables, left_out, elements })
}

/// What a walk of a file has found.
struct Contents<'a> {
    name: &'a str,
    groups: Vec<SourceGroup>,
    found: Vec<Found>,
    left_out: Vec<String>,
}

impl Contents<'_> {
    /// Adds a group, and what is below it.
    fn enter(&mut self, group: &Group, path: &str, depth: usize) -> Result<()> {
        let name = self.name;
        let failed = |error: hdf5_reader::error::Error| refused(name, format!("group '/{path}': {error}"));
        if depth > MAX_DEPTH {
            return Err(refused(
                name,
                format!("groups are nested more than {MAX_DEPTH} deep, or in a circle"),
            ));
        }
        let attributes = group.attributes().map_err(failed)?;
        let values = self.values(&attributes, path);
        let attributes = values.into_iter().map(|(name, value)| (name, value.json())).collect();
        self.groups.push(SourceGroup { path: path.to_owned(), attributes });
        let (groups, datasets) = group.members().map_err(failed)?;
        self.found.extend(datasets.into_iter().map(|dataset| Found { group: path.to_owned(), dataset }));
        if self.groups.len() + self.found.len() > MAX_NODES {
            return Err(refused(
                name,
                format!("it has more than {MAX_NODES} groups and datasets, or a circle of groups"),
            ));
        }
        for group in groups {
            let below = join(path, leaf(group.name()));
            self.enter(&group, &below, depth + 1)?;
        }
        Ok(())
    }

    /// Returns a dataset as a variable; `None` for one that only stands for a dimension.
    fn variable(
        &mut self,
        number: usize,
        dimensions: &Dimensions,
    ) -> Result<Option<(SourceVariable, Hdf5Elements)>> {
        let name = self.name;
        let Some(found) = self.found.get(number) else { return Ok(None) };
        let Some(axes) = dimensions.of(found, number, name)? else { return Ok(None) };
        let (path, shape) = (found.path(), axes.iter().map(|axis| axis.length).collect::<Vec<u64>>());
        let stored_shape = found.dataset.shape().to_vec();
        let dataset = found.dataset.clone();
        let dataset = if stored_shape == shape {
            dataset
        } else {
            dataset.with_padded_shape(&shape).map_err(|error| refused(name, error))?
        };
        let stored = StoredType::of(&dataset, &path, name)?;
        let mut values = self.values(&dataset.attributes(), &path);
        if dimensions::is_scale(&dataset) {
            values.retain(|(name, _)| name != "NAME");
        }
        for (name, value) in stored.flags() {
            if !values.iter().any(|(other, _)| *other == name) {
                values.push((name, value));
            }
        }
        let VariableAttributes { attributes, missing, left_out } =
            VariableAttributes::new(values, &stored.element, &path);
        self.left_out.extend(left_out);
        let chunks = dataset.chunks().map(|chunks| chunks.iter().map(|&length| length.into()).collect());
        let variable = SourceVariable {
            path,
            dimensions: axes.iter().map(|axis| axis.name.clone()).collect(),
            is_unlimited: axes.iter().map(|axis| axis.is_unlimited).collect(),
            shape,
            element: stored.element.clone(),
            byte_order: stored.byte_order,
            chunks,
            attributes,
            missing,
        };
        Ok(Some((variable, Hdf5Elements { dataset, stored, is_joined: false })))
    }

    /// Returns the values of attributes. Those that have no place in Zarr are recorded.
    fn values(&mut self, attributes: &[Hdf5Attribute], path: &str) -> Vec<(String, AttributeValue)> {
        let mut values = Vec::new();
        for attribute in attributes.iter().filter(|attribute| !INTERNAL.contains(&attribute.name.as_str())) {
            match value(attribute) {
                Some(value) => values.push((attribute.name.clone(), value)),
                None => self.left_out.push(format!(
                    "attribute '{}' of '/{path}': its type has no place in JSON",
                    attribute.name
                )),
            }
        }
        values
    }
}

/// Returns the value of an attribute; `None` if its type has no place in JSON, or if it is damaged.
fn value(attribute: &Hdf5Attribute) -> Option<AttributeValue> {
    if attribute.shape.contains(&0) {
        // netCDF-4 has a text without characters in this way.
        let is_text = matches!(attribute.datatype, Datatype::String { .. });
        return Some(if is_text {
            AttributeValue::Text(String::new())
        } else {
            AttributeValue::Texts(Vec::new())
        });
    }
    let texts = |texts: Vec<String>| match <[String; 1]>::try_from(texts) {
        Ok([text]) => AttributeValue::Text(text),
        Err(texts) => AttributeValue::Texts(texts),
    };
    if let Some(decoded) = &attribute.decoded_strings {
        return Some(texts(decoded.clone()));
    }
    let base = match &attribute.datatype {
        Datatype::Enum { base, .. } => base.as_ref(),
        other => other,
    };
    let plain = Hdf5Attribute { datatype: base.clone(), ..attribute.clone() };
    macro_rules! integers {
        ($integer:ty) => {
            plain.read_1d::<$integer>().ok()?.into_iter().map(i128::from).collect()
        };
    }
    Some(match base {
        Datatype::String { .. } | Datatype::VarLen { .. } => {
            texts(attribute.read_strings().or_else(|_| attribute.read_string().map(|text| vec![text])).ok()?)
        }
        Datatype::FixedPoint { size, signed, .. } => AttributeValue::Integers(match (size, signed) {
            (1, true) => integers!(i8),
            (1, false) => integers!(u8),
            (2, true) => integers!(i16),
            (2, false) => integers!(u16),
            (4, true) => integers!(i32),
            (4, false) => integers!(u32),
            (8, true) => integers!(i64),
            (8, false) => integers!(u64),
            _ => return None,
        }),
        Datatype::FloatingPoint { size: 8, .. } => AttributeValue::Floats(plain.read_1d::<f64>().ok()?),
        Datatype::FloatingPoint { size: 4, .. } => {
            AttributeValue::Floats(plain.read_1d::<f32>().ok()?.into_iter().map(f64::from).collect())
        }
        Datatype::FloatingPoint { size: 2, byte_order } => {
            AttributeValue::Floats(small_floats(&attribute.raw_data, *byte_order))
        }
        _ => return None,
    })
}
