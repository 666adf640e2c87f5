//! Dimensions in HDF5: dimension scales, and the attributes that netCDF adds to them.
//!
//! Spec: "HDF5 Dimension Scale Specification and Design Notes"; netCDF "The NetCDF-4 File Format", sections "Dimensions
//! without HDF5 Dimension Scales" and "Variables". Uses its neighbours.
//!
//! A scale is a dataset of one axis: the coordinate variable of the dimension, or a dataset with only fill values. A variable refers to the
//! scales of its axes, and a scale refers to its variables.

use super::attributes::{Attribute, AttributeData};
use super::contents::{Dimension, Variable};
use super::hdf5::datatype::{self, REFERRER_BYTES};
use super::hdf5::global_heap::{GlobalHeap, HeapObject, HeapSlot};
use super::hdf5::messages::Dataspace;

/// The longest list of references in an attribute.
const MAX_LIST_BYTES: usize = 60_000;

/// The attributes that make datasets scales, and that connect variables with scales.
pub struct Scales {
    /// The attributes of the scale of each dimension.
    pub of_dimensions: Vec<Vec<Attribute>>,
    /// The attributes of each variable.
    pub of_variables: Vec<Vec<Attribute>>,
}

/// Returns the index of the object that is the scale of each dimension: its coordinate variable, or else an object after all variables.
pub fn scale_objects(dimensions: &[Dimension], variables: usize) -> Vec<usize> {
    let mut next = variables;
    let scale = |dimension: &Dimension| {
        dimension.variable.unwrap_or_else(|| {
            next += 1;
            next - 1
        })
    };
    dimensions.iter().map(scale).collect()
}

impl Scales {
    /// Makes the attributes for these dimensions and variables.
    pub fn new(dimensions: &[Dimension], variables: &[Variable], heap: &mut GlobalHeap) -> Self {
        let objects = scale_objects(dimensions, variables.len());
        let slots: Vec<HeapSlot> =
            objects.iter().map(|object| heap.add(HeapObject::AddressOf(*object))).collect();
        let mut referrers = vec![Vec::new(); dimensions.len()];
        for (index, variable) in variables.iter().enumerate().filter(|(_, v)| v.coordinate_of.is_none()) {
            for (axis, dimension) in variable.dimensions.iter().enumerate() {
                if let Some(referrers) = referrers.get_mut(*dimension) {
                    referrers.push((index, axis as u32));
                }
            }
        }
        let of_dimensions = dimensions.iter().zip(referrers).enumerate();
        Scales {
            of_dimensions: of_dimensions
                .map(|(id, (dimension, referrers))| scale_attributes(id, dimension, referrers))
                .collect(),
            of_variables: variables.iter().map(|variable| variable_attributes(variable, &slots)).collect(),
        }
    }
}

fn scale_attributes(id: usize, dimension: &Dimension, referrers: Vec<(usize, u32)>) -> Vec<Attribute> {
    let name = match dimension.variable {
        Some(_) => dimension.name.clone(),
        None => format!("This is a netCDF dimension but not a netCDF variable.{:10}", dimension.length),
    };
    let mut attributes = vec![
        terminated_text("CLASS", "DIMENSION_SCALE"),
        terminated_text("NAME", &name),
        Attribute::integers("_Netcdf4Dimid", &[id as i32], false),
    ];
    attributes.extend(reference_list(referrers));
    attributes
}

/// Makes an attribute with a string as HDF5's library expects it of scales.
fn terminated_text(name: &str, text: &str) -> Attribute {
    let bytes = [text.as_bytes(), &[0]].concat();
    Attribute {
        name: name.to_owned(),
        datatype: datatype::terminated_string(bytes.len() as u32),
        dataspace: Dataspace::Scalar,
        data: AttributeData::Bytes(bytes),
    }
}

/// Returns the variables that have a dimension. Programs do without a list that would be too long.
fn reference_list(referrers: Vec<(usize, u32)>) -> Option<Attribute> {
    if referrers.is_empty() || referrers.len() * REFERRER_BYTES as usize > MAX_LIST_BYTES {
        return None;
    }
    Some(Attribute {
        name: "REFERENCE_LIST".to_owned(),
        datatype: datatype::referrer()?,
        dataspace: Dataspace::Simple(vec![referrers.len() as u64]),
        data: AttributeData::Referrers(referrers),
    })
}

fn variable_attributes(variable: &Variable, slots: &[HeapSlot]) -> Vec<Attribute> {
    let scale = |dimension: &usize| slots.get(*dimension).map(|slot| (1, *slot));
    let dimension_list = Attribute {
        name: "DIMENSION_LIST".to_owned(),
        datatype: datatype::sequence_of_references(),
        dataspace: Dataspace::Simple(vec![variable.dimensions.len() as u64]),
        data: AttributeData::InHeap(variable.dimensions.iter().filter_map(scale).collect()),
    };
    let ids: Vec<i32> = variable.dimensions.iter().map(|&dimension| dimension as i32).collect();
    let ids = Attribute::integers("_Netcdf4Coordinates", &ids, true);
    match (variable.coordinate_of, variable.dimensions.len()) {
        (_, 0) | (Some(_), 1) => Vec::new(),
        // A scale does not refer to other scales.
        (Some(_), _) => vec![ids],
        (None, _) => vec![dimension_list, ids],
    }
}
