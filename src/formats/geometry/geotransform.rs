//! Geotransforms: the corner and the size of a pixel, for the X and Y axes.
//!
//! Spec: GDAL's raster data model, "Affine GeoTransform" (`GeoTransform`, six numbers: x, dx, 0, y, 0, dy; the corner of the
//! first pixel), on the array or on its CF grid mapping, as rioxarray writes it; GeoZarr's `spatial:transform` (dx, 0, x, 0, dy, y) on the
//! array or its group, with `spatial:registration` (`pixel`: corners; `node`: centres). Rotated ones are left out, and so are
//! arrays without dimensions that are known as X and Y.

use serde_json::{Map, Value};

use super::axis::{Axis, AxisKind, Regular, numbers, text};
use super::crs::grid_mapping;
use super::source::Source;
use crate::hierarchy::Node;

/// The two axes that a transform is about, and where they begin.
struct Transform {
    x: Regular,
    y: Regular,
}

/// The axes of an array that has a transform.
pub fn axes(source: &Source<'_>, named: &[Axis]) -> Option<Vec<Axis>> {
    let attributes = &source.metadata.attributes;
    let mapping = grid_mapping(source);
    let transform = of_gdal(attributes)
        .or_else(|| of_gdal(attributes_of(mapping.as_deref()?)?))
        .or_else(|| of_geozarr(attributes))
        .or_else(|| of_geozarr(attributes_of(&*source.group_attributes()?)?))?;
    let mut axes = named.to_vec();
    for (kind, regular) in [(AxisKind::X, transform.x), (AxisKind::Y, transform.y)] {
        let mut of_kind = axes.iter_mut().filter(|axis| axis.kind == kind);
        let axis = of_kind.next()?;
        axis.regular = Some(regular);
        if of_kind.next().is_some() {
            return None;
        }
    }
    Some(axes)
}

fn attributes_of(node: &Node) -> Option<&Map<String, Value>> {
    match node {
        Node::Group { metadata, .. } => Some(&metadata.attributes),
        Node::Array { metadata, .. } => Some(&metadata.attributes),
        Node::Broken { .. } => None,
    }
}

fn of_gdal(attributes: &Map<String, Value>) -> Option<Transform> {
    let value = attributes.get("GeoTransform")?;
    let of_text = |text: &str| {
        text.split([' ', ','])
            .filter(|word| !word.is_empty())
            .map(|word| word.parse::<f64>().ok())
            .collect::<Option<Vec<f64>>>()
    };
    let six: Vec<f64> = match value.as_str() {
        Some(text) if text.len() < 1024 => of_text(text)?,
        _ => numbers(value, 6)?,
    };
    let [x, dx, x_by_row, y, y_by_column, dy] = six.as_slice() else { return None };
    of_corner([*x, *dx, *x_by_row], [*y, *dy, *y_by_column], 0.5)
}

fn of_geozarr(attributes: &Map<String, Value>) -> Option<Transform> {
    let six = numbers(attributes.get("spatial:transform")?, 6)?;
    let to_centre = match text(attributes, "spatial:registration") {
        None | Some("pixel") => 0.5,
        Some("node") => 0.0,
        Some(_) => return None,
    };
    let [dx, x_by_row, x, y_by_column, dy, y] = six.as_slice() else { return None };
    of_corner([*x, *dx, *x_by_row], [*y, *dy, *y_by_column], to_centre)
}

fn of_corner(x: [f64; 3], y: [f64; 3], to_centre: f64) -> Option<Transform> {
    let along = |[first, step, rotation]: [f64; 3]| {
        let regular = Regular::new(first + to_centre * step, step);
        regular.filter(|_| rotation == 0.0)
    };
    Some(Transform { x: along(x)?, y: along(y)? })
}
