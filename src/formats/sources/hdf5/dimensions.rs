//! The names of the dimensions of datasets.
//!
//! Spec: HDF5 Dimension Scale Specification; NetCDF-4 "Dimensions". Uses its neighbours. An attribute of a dataset refers to the scale of each
//! of its axes, and the scale's own name is that of the dimension. Dimensions without a scale get the names that netCDF-C gives them:
//! `phony_dim_0` and so on, one for each length in a group.

use std::collections::HashMap;

use hdf5_reader::Dataset;
use hdf5_reader::reference::read_object_references;

use super::found::{Found, leaf};
use crate::error::Result;
use crate::formats::sources::variable::refused;

/// How netCDF-4 calls a dataset that only stands for a dimension.
const ONLY_DIMENSION: &str = "This is a netCDF dimension but not a netCDF variable";

/// One axis of a dataset.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The name of the dimension.
    pub name: String,
    /// The length of the dimension. An unlimited one may be longer than the dataset.
    pub length: u64,
    /// Whether it has no greatest length.
    pub is_unlimited: bool,
}

/// A dimension scale.
struct Scale {
    name: String,
    number: Option<i64>,
    is_unlimited: bool,
    /// The greatest length of an axis that refers to it.
    length: u64,
}

/// The dimensions of a file.
pub struct Dimensions {
    /// The scales, by the address of their dataset.
    scales: HashMap<u64, Scale>,
    /// The names of all axes without a scale, by the number of the dataset and the axis.
    phony: HashMap<(usize, usize), String>,
}

/// Returns whether a dataset is a dimension scale.
pub fn is_scale(dataset: &Dataset) -> bool {
    text(dataset, "CLASS").is_some_and(|class| class == "DIMENSION_SCALE")
}

fn text(dataset: &Dataset, name: &str) -> Option<String> {
    dataset.attribute(name).ok()?.read_string().ok()
}

fn is_unlimited(dataset: &Dataset, axis: usize) -> bool {
    dataset.max_dims().and_then(|lengths| lengths.get(axis)) == Some(&u64::MAX)
}

impl Dimensions {
    /// Finds the dimensions of the datasets of a file.
    pub fn new(found: &[Found], name: &str) -> Result<Self> {
        let mut dimensions = Dimensions { scales: HashMap::new(), phony: HashMap::new() };
        for Found { dataset, .. } in found.iter().filter(|found| is_scale(&found.dataset)) {
            let number =
                dataset.attribute("_Netcdf4Dimid").and_then(|attribute| attribute.read_scalar::<i32>());
            let own_name = leaf(dataset.name()).to_owned();
            let scale = Scale {
                name: own_name,
                number: number.ok().map(i64::from),
                is_unlimited: is_unlimited(dataset, 0),
                length: dataset.shape().first().copied().unwrap_or(0),
            };
            dimensions.scales.insert(dataset.address(), scale);
        }
        // A variable may be longer than its dimension's own dataset.
        for Found { dataset, .. } in found {
            let addresses = dimensions.addresses(dataset, name)?;
            for (axis, address) in addresses.into_iter().enumerate() {
                let length = dataset.shape().get(axis).copied().unwrap_or(0);
                if let Some(scale) = address.and_then(|address| dimensions.scales.get_mut(&address))
                    && scale.is_unlimited
                {
                    scale.length = scale.length.max(length);
                }
            }
        }
        dimensions.name_others(found, name)?;
        Ok(dimensions)
    }

    /// Names the axes that have no scale.
    fn name_others(&mut self, found: &[Found], name: &str) -> Result<()> {
        // By group: the lengths that have a name, in the order of their numbers.
        let mut lengths: HashMap<&str, Vec<u64>> = HashMap::new();
        for (number, Found { group, dataset }) in found.iter().enumerate() {
            let mut used = Vec::new();
            for (axis, address) in self.addresses(dataset, name)?.into_iter().enumerate() {
                if address.is_some_and(|address| self.scales.contains_key(&address)) {
                    continue;
                }
                let length = dataset.shape().get(axis).copied().unwrap_or(0);
                let known = lengths.entry(group).or_default();
                let place = (0..known.len())
                    .find(|place| known.get(*place) == Some(&length) && !used.contains(place));
                let place = place.unwrap_or_else(|| {
                    known.push(length);
                    known.len() - 1
                });
                used.push(place);
                let label = labels(dataset).into_iter().nth(axis).filter(|label| !label.is_empty());
                self.phony.insert((number, axis), label.unwrap_or_else(|| format!("phony_dim_{place}")));
            }
        }
        Ok(())
    }

    /// Returns the axes of a dataset; `None` if it only stands for a dimension.
    pub fn of(&self, found: &Found, number: usize, name: &str) -> Result<Option<Vec<Axis>>> {
        let dataset = &found.dataset;
        if is_scale(dataset) && text(dataset, "NAME").is_some_and(|name| name.starts_with(ONLY_DIMENSION)) {
            return Ok(None);
        }
        let mut axes = Vec::new();
        for (axis, address) in self.addresses(dataset, name)?.into_iter().enumerate() {
            let own_length = dataset.shape().get(axis).copied().unwrap_or(0);
            let is_unlimited = is_unlimited(dataset, axis);
            axes.push(match address.and_then(|address| self.scales.get(&address)) {
                Some(scale) => {
                    let length = if is_unlimited { scale.length.max(own_length) } else { own_length };
                    Axis { name: scale.name.clone(), length, is_unlimited }
                }
                None => {
                    let name = self.phony.get(&(number, axis)).cloned().unwrap_or_default();
                    Axis { name, length: own_length, is_unlimited }
                }
            });
        }
        Ok(Some(axes))
    }

    /// Returns the address of each axis's scale.
    fn addresses(&self, dataset: &Dataset, name: &str) -> Result<Vec<Option<u64>>> {
        let rank = dataset.shape().len();
        let failed =
            |error: hdf5_reader::error::Error| refused(name, format!("'{}': {error}", dataset.name()));
        if is_scale(dataset) {
            let numbers =
                dataset.attribute("_Netcdf4Coordinates").and_then(|attribute| attribute.read_1d::<i32>());
            if let Ok(numbers) = numbers
                && numbers.len() == rank
                && rank > 1
            {
                let address = |number: &i32| {
                    let is_it = |scale: &&Scale| scale.number == Some(i64::from(*number));
                    self.scales.iter().find(|(_, scale)| is_it(scale)).map(|(address, _)| *address)
                };
                return Ok(numbers.iter().map(address).collect());
            }
            let mut own = vec![None; rank];
            if let Some(first) = own.first_mut() {
                *first = Some(dataset.address());
            }
            return Ok(own);
        }
        let Ok(list) = dataset.attribute("DIMENSION_LIST") else { return Ok(vec![None; rank]) };
        let reference_bytes = dataset.vlen_reference_size();
        let address_bytes = reference_bytes.saturating_sub(8);
        let mut addresses = Vec::with_capacity(rank.min(list.raw_data.len()));
        for reference in list.raw_data.chunks_exact(reference_bytes.max(1)).take(rank) {
            let is_null = reference.iter().take(4).all(|&byte| byte == 0);
            if is_null {
                addresses.push(None);
                continue;
            }
            let bytes = dataset.resolve_vlen_reference_bytes(reference, address_bytes).map_err(failed)?;
            let size = u8::try_from(address_bytes).unwrap_or(8);
            addresses.push(read_object_references(&bytes, size).map_err(failed)?.first().copied());
        }
        addresses.resize(rank, None);
        Ok(addresses)
    }
}

/// Returns the labels of a dataset's axes, if it has them.
fn labels(dataset: &Dataset) -> Vec<String> {
    let Ok(labels) = dataset.attribute("DIMENSION_LABELS") else { return Vec::new() };
    labels.decoded_strings.clone().or_else(|| labels.read_strings().ok()).unwrap_or_default()
}
