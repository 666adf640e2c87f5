//! Geotransforms: the corner and the size of a pixel, for the X and Y axes.
//!
//! Spec: GDAL's raster data model, "Affine GeoTransform" (`GeoTransform`, six numbers: x, dx, 0, y, 0, dy; the corner of the
//! first pixel), on the array or on its CF grid mapping, as rioxarray writes it; GeoZarr's `spatial:transform` (dx, 0, x, 0, dy, y) on the
//! array or its group, with `spatial:registration` (`pixel`: corners; `node`: centres). Rotated ones are left out, and so are
//! arrays without dimensions that are known as X and Y.

use serde_json::{Map, Value};

use super::axis::{Axis, AxisKind, Regular, numbers, text};
use super::crs::grid_mapping;
use super::source::GeometrySource;
use crate::hierarchy::Node;

/// The two axes of a geotransform.
struct Geotransform {
    x: Regular,
    y: Regular,
}

/// Returns the axes of an array that has a transform.
pub fn axes(source: &GeometrySource<'_>, named: &[Axis]) -> Option<Vec<Axis>> {
    let attributes = &source.metadata.attributes;
    let mapping = grid_mapping(source);
    let transform = gdal_transform(attributes)
        .or_else(|| gdal_transform(attributes_of(mapping.as_deref()?)?))
        .or_else(|| geozarr_transform(attributes))
        .or_else(|| geozarr_transform(attributes_of(&*source.group_attributes()?)?))?;
    let mut axes = named.to_vec();
    for (kind, regular) in [(AxisKind::X, transform.x), (AxisKind::Y, transform.y)] {
        let mut same_kind = axes.iter_mut().filter(|axis| axis.kind == kind);
        let axis = same_kind.next()?;
        axis.regular = Some(regular);
        if same_kind.next().is_some() {
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

fn gdal_transform(attributes: &Map<String, Value>) -> Option<Geotransform> {
    let value = attributes.get("GeoTransform")?;
    let parse_numbers = |text: &str| {
        text.split([' ', ','])
            .filter(|word| !word.is_empty())
            .map(|word| word.parse::<f64>().ok())
            .collect::<Option<Vec<f64>>>()
    };
    let six: Vec<f64> = match value.as_str() {
        Some(text) if text.len() < 1024 => parse_numbers(text)?,
        _ => numbers(value, 6)?,
    };
    let [x, dx, x_by_row, y, y_by_column, dy] = six.as_slice() else { return None };
    transform_from_corner([*x, *dx, *x_by_row], [*y, *dy, *y_by_column], 0.5)
}

fn geozarr_transform(attributes: &Map<String, Value>) -> Option<Geotransform> {
    let six = numbers(attributes.get("spatial:transform")?, 6)?;
    let to_centre = match text(attributes, "spatial:registration") {
        None | Some("pixel") => 0.5,
        Some("node") => 0.0,
        Some(_) => return None,
    };
    let [dx, x_by_row, x, y_by_column, dy, y] = six.as_slice() else { return None };
    transform_from_corner([*x, *dx, *x_by_row], [*y, *dy, *y_by_column], to_centre)
}

fn transform_from_corner(x: [f64; 3], y: [f64; 3], to_centre: f64) -> Option<Geotransform> {
    let along = |[first, step, rotation]: [f64; 3]| {
        let regular = Regular::new(first + to_centre * step, step);
        regular.filter(|_| rotation == 0.0)
    };
    Some(Geotransform { x: along(x)?, y: along(y)? })
}
