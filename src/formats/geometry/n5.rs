//! The conventions of N5 for the size and place of voxels.
//!
//! Spec: none; n5-viewer and n5-universe ("N5 metadata dialects"), BigStitcher, Paintera, Neuroglancer, COSEM. Lists are in the order of
//! N5, the reverse of the array's; those of `transform` are in the order of the array.
//!
//! ```json
//! {"pixelResolution": {"dimensions": [4.0, 4.0, 3.24], "unit": "nm"}, "downsamplingFactors": [2, 2, 1]}
//! {"resolution": [4.0, 4.0, 40.0], "offset": [0.0, 0.0, 160.0], "units": ["nm", "nm", "nm"], "axes": ["x", "y", "z"]}
//! {"transform": {"axes": ["z", "y", "x"], "scale": [3.24, 4.0, 4.0], "translate": [0.0, 1.5, 1.5], "units": ["nm", "nm", "nm"]}}
//! ```
//!
//! The resolution is that of the full size: of the dataset, or of a group above. The factors are those of the dataset, or the ones with the
//! number of `sN` in the list of a group above (BigStitcher's `downsamplingFactors`, n5-viewer's `scales`). A voxel that is the mean of `f`
//! voxels has its centre at `(f - 1) / 2` of them.

use serde_json::{Map, Value};

use super::axis::{Axis, AxisKind, Regular, numbers, plain_text, unit};
use super::source::GeometrySource;
use crate::hierarchy::Node;
use crate::metadata::ZarrFormat;

/// How many groups above the array are searched.
const MAX_LEVELS: usize = 3;
/// The names of the axes if nothing names them: as many as there are directions in space.
const DIRECTIONS: [(&str, AxisKind); 3] = [("x", AxisKind::X), ("y", AxisKind::Y), ("z", AxisKind::Z)];

/// The size of a voxel in the order of N5.
struct Resolution {
    steps: Vec<f64>,
    offsets: Vec<f64>,
    units: Vec<Option<String>>,
}

/// Returns the axes of a dataset of N5, if its attributes or those of a group above give the size of its voxels.
pub fn axes(source: &GeometrySource<'_>, named: &[Axis]) -> Option<Vec<Axis>> {
    if source.metadata.zarr_format != ZarrFormat::N5 {
        return None;
    }
    let rank = named.len();
    let own = &source.metadata.attributes;
    if let Some(transform) = own.get("transform") {
        return transformed(transform, named);
    }
    let above = attributes_above(source);
    let all = || std::iter::once(own).chain(above.iter());
    let found = all().find_map(|attributes| resolution(attributes, rank))?;
    let factors = match own.get("downsamplingFactors") {
        Some(factors) => numbers(factors, rank)?,
        None => listed_factors(source, &above, rank)?,
    };
    // Without names, N5 has the directions of space in this order.
    let is_named = named.iter().any(|axis| axis.name.is_some());
    if !is_named && rank > DIRECTIONS.len() {
        return None;
    }
    let mut axes = named.to_vec();
    let of_n5 = found.steps.iter().zip(&found.offsets).zip(&factors).zip(&found.units);
    for (place, (axis, (((step, offset), factor), unit))) in axes.iter_mut().rev().zip(of_n5).enumerate() {
        if let Some((name, kind)) = DIRECTIONS.get(place).filter(|_| !is_named) {
            (axis.name, axis.kind) = (Some((*name).to_owned()), *kind);
        }
        // An axis of channels is counted, not measured.
        if axis.kind.is_space() || axis.kind == AxisKind::Time {
            axis.regular = Some(Regular::new(offset + step * (factor - 1.0) / 2.0, step * factor)?);
            axis.unit.clone_from(unit);
        }
    }
    Some(axes)
}

/// Returns the attributes of the groups above a dataset, nearest first.
fn attributes_above(source: &GeometrySource<'_>) -> Vec<Map<String, Value>> {
    let (mut found, mut place) = (Vec::new(), source.group);
    while let Some(group) = place.filter(|_| found.len() < MAX_LEVELS) {
        found.push(match source.subject.surroundings.node(group).ok().flatten().as_deref() {
            Some(Node::Group { metadata, .. }) => metadata.attributes.clone(),
            _ => Map::new(),
        });
        place = match group.rsplit_once('/') {
            Some((above, _)) => Some(above),
            None => (!group.is_empty()).then_some(""),
        };
    }
    found
}

fn resolution(attributes: &Map<String, Value>, rank: usize) -> Option<Resolution> {
    let same_unit = |value: Option<&Value>| vec![value.and_then(unit); rank];
    let (steps, units) = match attributes.get("pixelResolution") {
        Some(Value::Object(members)) => {
            (numbers(members.get("dimensions")?, rank)?, same_unit(members.get("unit")))
        }
        Some(list) => (numbers(list, rank)?, same_unit(None)),
        None => {
            let steps = numbers(attributes.get("resolution")?, rank)?;
            let units = attributes.get("units").and_then(Value::as_array).filter(|units| units.len() == rank);
            let units = units.map(|units| units.iter().map(unit).collect());
            (steps, units.unwrap_or_else(|| same_unit(attributes.get("unit"))))
        }
    };
    let offsets = match attributes.get("offset") {
        Some(offsets) => numbers(offsets, rank)?,
        None => vec![0.0; rank],
    };
    Some(Resolution { steps, offsets, units })
}

/// Returns the factors of `sN` in the list of a group above; 1 without a list.
fn listed_factors(
    source: &GeometrySource<'_>,
    above: &[Map<String, Value>],
    rank: usize,
) -> Option<Vec<f64>> {
    let lists = above.iter().find_map(|attributes| {
        let list = attributes.get("downsamplingFactors").or_else(|| attributes.get("scales"))?;
        list.as_array().filter(|list| list.iter().all(Value::is_array))
    });
    let Some(lists) = lists else { return Some(vec![1.0; rank]) };
    let name = source.subject.path.rsplit('/').next().unwrap_or_default();
    let level: usize = name.strip_prefix('s')?.parse().ok()?;
    numbers(lists.get(level)?, rank)
}

/// Reads COSEM's `transform`, whose lists are in the order of the array.
fn transformed(transform: &Value, named: &[Axis]) -> Option<Vec<Axis>> {
    let rank = named.len();
    let scale = numbers(transform.get("scale")?, rank)?;
    let translation = match transform.get("translate") {
        Some(translation) => numbers(translation, rank)?,
        None => vec![0.0; rank],
    };
    let list = |name: &str| transform.get(name).and_then(Value::as_array).filter(|list| list.len() == rank);
    let (names, units) = (list("axes")?, list("units"));
    let mut axes = named.to_vec();
    for (index, axis) in axes.iter_mut().enumerate() {
        let name = names.get(index)?.as_str()?;
        (axis.name, axis.kind) = (plain_text(name).map(str::to_owned), AxisKind::from_name(name));
        axis.regular = Some(Regular::new(*translation.get(index)?, *scale.get(index)?)?);
        axis.unit = units.and_then(|units| unit(units.get(index)?));
    }
    Some(axes)
}
