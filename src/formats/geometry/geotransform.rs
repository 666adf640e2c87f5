//! Geotransforms: the corner and the size of a pixel, for the X and Y axes.
//!
//! Spec: GDAL's raster data model, "Affine GeoTransform" (`GeoTransform`, six numbers: x, dx, 0, y, 0, dy; the corner of the
//! first pixel), on the array or on its CF grid mapping, as rioxarray writes it; GeoZarr's `spatial:transform` (dx, 0, x, 0, dy, y) on the
//! array or its group, with `spatial:registration` (`pixel`: corners; `node`: centres). If a group above has GeoZarr's `multiscales`, it is
//! that of the array's entry in `layout`; the group's own is that of the full size. Rotated ones are left out, and so are arrays without
//! dimensions that are known as X and Y.
//!
//! ```json
//! {"multiscales": {"layout": [{"asset": "0", "spatial:transform": [10, 0, 500000, 0, -10, 4200000]},
//!   {"asset": "1", "derived_from": "0", "transform": {"scale": [2, 2]}, "spatial:transform": [20, 0, 500000, 0, -20, 4200000]}]}}
//! ```

use serde_json::{Map, Value};

use super::axis::{Axis, AxisKind, Regular, numbers, text};
use super::crs::grid_mapping;
use super::source::GeometrySource;
use crate::hierarchy::Node;

/// How many groups above the array are searched for GeoZarr's `multiscales`.
const MAX_LEVELS: usize = 4;
/// How many entries of a layout are searched.
const MAX_ENTRIES: usize = 1024;

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
        .or_else(|| geozarr_transform(attributes, attributes))
        .or_else(|| geozarr_transform_above(source))?;
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

/// Returns the transform of the array's group, or that of the array's level in the nearest multiscale above.
fn geozarr_transform_above(source: &GeometrySource<'_>) -> Option<Geotransform> {
    let (own, mut group) = (source.group?, source.group?);
    for _ in 0..MAX_LEVELS {
        let node = source.subject.surroundings.node(group).ok()?;
        if let Some(attributes) = node.as_deref().and_then(attributes_of) {
            let layout = attributes.get("multiscales").and_then(|multiscales| multiscales.get("layout"));
            if let Some(layout) = layout.and_then(Value::as_array) {
                let below = source.subject.path.get(group.len()..)?.trim_start_matches('/');
                return level_transform(layout, below, attributes);
            }
            let transform = if group == own { geozarr_transform(attributes, attributes) } else { None };
            if transform.is_some() {
                return transform;
            }
        }
        if group.is_empty() {
            return None;
        }
        group = group.rsplit_once('/').map_or("", |(above, _)| above);
    }
    None
}

/// Returns the transform of the level of a multiscale that is at a path or has it. The group has the transform of the full size.
fn level_transform(layout: &[Value], path: &str, group: &Map<String, Value>) -> Option<Geotransform> {
    let is_level = |level: &&Map<String, Value>| {
        let rest = text(level, "asset").and_then(|asset| path.strip_prefix(asset));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let level = layout.iter().take(MAX_ENTRIES).filter_map(Value::as_object).find(is_level)?;
    let scale = level.get("transform").and_then(|transform| transform.get("scale"));
    let is_full = !level.contains_key("derived_from")
        && scale.is_none_or(|scale| {
            scale.as_array().is_some_and(|all| all.iter().all(|one| one.as_f64() == Some(1.0)))
        });
    let of_group = || if is_full { geozarr_transform(group, group) } else { None };
    geozarr_transform(level, group).or_else(of_group)
}

/// Reads `spatial:transform`. `group` says what its corner is, if the attributes do not.
fn geozarr_transform(attributes: &Map<String, Value>, group: &Map<String, Value>) -> Option<Geotransform> {
    let six = numbers(attributes.get("spatial:transform")?, 6)?;
    let registration = |attributes| text(attributes, "spatial:registration");
    let to_centre = match registration(attributes).or_else(|| registration(group)) {
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
