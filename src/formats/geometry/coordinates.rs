//! CF coordinate variables: one-dimensional arrays in the same group with the name of the dimension.
//!
//! Spec: CF conventions, chapters 4 and 5. Its dimension must be named, too, and have the array's length. It counts as regular
//! if every value lies within a thousandth of the step (and what its type can express) from where it would lie exactly.
//! Packed coordinates (`scale_factor`, `add_offset`) are left out.

use std::sync::Arc;

use super::axis::{Axis, AxisKind, Regular, text, unit};
use super::source::GeometrySource;
use crate::formats::flat_array::number_type;
use crate::formats::numbers::Numbers;
use crate::hierarchy::Node;
use crate::metadata::ArrayMetadata;
use crate::metadata::data_type::numeric::NumericType;

/// The longest coordinate that is read, in bytes.
const MAX_COORDINATE_BYTES: u64 = 8 << 20;
/// The part of a step by which a value may deviate.
const TOLERANCE: f64 = 1e-3;

/// Returns the axes of an array, if at least one of them has a usable coordinate.
pub fn axes(source: &GeometrySource<'_>, named: &[Axis]) -> Option<Vec<Axis>> {
    let names = source.metadata.dimension_names.as_ref()?;
    let mut axes = named.to_vec();
    let mut is_any = false;
    for (index, axis) in axes.iter_mut().enumerate() {
        let Some(name) = names.get(index).and_then(Option::as_deref) else { continue };
        let Some((path, metadata)) = coordinate(source, name, index) else { continue };
        axis.kind = kind(&metadata, name);
        axis.unit = metadata.attributes.get("units").and_then(unit);
        axis.calendar = text(&metadata.attributes, "calendar").map(str::to_owned);
        axis.regular = values(source, &path, &metadata).and_then(|(values, number)| regular(&values, number));
        is_any |= axis.regular.is_some();
    }
    is_any.then_some(axes)
}

pub(super) fn coordinate(
    source: &GeometrySource<'_>,
    name: &str,
    index: usize,
) -> Option<(String, Arc<ArrayMetadata>)> {
    let (path, node) = source.sibling(name)?;
    let Node::Array { metadata, .. } = &*node else { return None };
    let is_coordinate = metadata.shape.as_slice() == source.metadata.shape.get(index..=index)?
        && metadata.dimension_names.as_deref() == Some(&[Some(name.to_owned())])
        && path != source.subject.path;
    is_coordinate.then(|| (path, metadata.clone()))
}

/// Returns the kind of an axis from the attributes of its coordinate, or else from its name.
pub(super) fn kind(metadata: &ArrayMetadata, name: &str) -> AxisKind {
    let attributes = &metadata.attributes;
    let by_axis = match text(attributes, "axis") {
        Some("X" | "x") => Some(AxisKind::X),
        Some("Y" | "y") => Some(AxisKind::Y),
        Some("Z" | "z") => Some(AxisKind::Z),
        Some("T" | "t") => Some(AxisKind::Time),
        _ => None,
    };
    let by_standard_name = match text(attributes, "standard_name") {
        Some("longitude" | "projection_x_coordinate" | "grid_longitude") => Some(AxisKind::X),
        Some("latitude" | "projection_y_coordinate" | "grid_latitude") => Some(AxisKind::Y),
        Some("depth" | "height" | "altitude" | "air_pressure") => Some(AxisKind::Z),
        Some("time" | "forecast_reference_time") => Some(AxisKind::Time),
        Some(_) => Some(AxisKind::Other),
        None => None,
    };
    let by_unit = match text(attributes, "units") {
        Some("degrees_east" | "degree_east" | "degrees_E" | "degree_E" | "degreesE" | "degreeE") => {
            Some(AxisKind::X)
        }
        Some("degrees_north" | "degree_north" | "degrees_N" | "degree_N" | "degreesN" | "degreeN") => {
            Some(AxisKind::Y)
        }
        Some(unit) if unit.contains(" since ") => Some(AxisKind::Time),
        _ => None,
    };
    by_axis.or(by_standard_name).or(by_unit).unwrap_or_else(|| AxisKind::from_name(name))
}

/// Reads all values of a coordinate. The subject's file shows something of them, so all users of the file must be able to read its
/// chunks.
fn values(
    source: &GeometrySource<'_>,
    path: &str,
    metadata: &Arc<ArrayMetadata>,
) -> Option<(Vec<f64>, NumericType)> {
    let is_packed = ["scale_factor", "add_offset"].iter().any(|name| metadata.attributes.contains_key(*name));
    let number = number_type(&metadata.data_type).filter(|number| !is_packed && !number.is_complex())?;
    let size_bytes = metadata.flat_size().filter(|&size| size <= MAX_COORDINATE_BYTES)?;
    let subject = source.subject;
    let array = subject.arrays.build(path, metadata, &subject.audience).ok()?;
    let mut bytes = vec![0; usize::try_from(size_bytes).ok()?];
    array.read_at(0, &mut bytes).ok()?;
    let mut values = Vec::new();
    Numbers::for_type(&metadata.data_type)?
        .each(&bytes, subject.layout().byte_order, |value| values.push(value));
    Some((values, number))
}

/// Returns the regular axis that these values form, if they form one.
pub(super) fn regular(values: &[f64], number: NumericType) -> Option<Regular> {
    let (first, last) = (*values.first()?, *values.last()?);
    let regular = Regular::new(first, (last - first) / (values.len().checked_sub(1)? as f64))?;
    let largest = values.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
    let rounding = match number {
        NumericType::F16 => f64::from(half::f16::EPSILON),
        NumericType::F32 => f64::from(f32::EPSILON),
        _ => f64::EPSILON,
    };
    let allowed = TOLERANCE * regular.step.abs() + largest * rounding;
    // With half a step, values could change places.
    let allowed = if allowed < regular.step.abs() / 4.0 { allowed } else { return None };
    let is_near = |(index, value): (usize, &f64)| {
        (value - (regular.first + index as f64 * regular.step)).abs() <= allowed
    };
    values.iter().enumerate().all(is_near).then_some(regular)
}
