//! OME-Zarr multiscales: the scale and the translation of a dataset.
//!
//! Spec: ngff.openmicroscopy.org, 0.4 to 0.6, "multiscales" metadata: attributes of a group above the array, from 0.5 on in its
//! attribute `ome`. Those of the dataset apply first, then those of the whole multiscale.
//!
//! ```json
//! {"multiscales": [{"axes": [{"name": "y", "type": "space", "unit": "micrometer"}, …],
//!   "datasets": [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [0.5, …]}]}]}]}
//! ```
//!
//! In 0.6 (RFC-5) the axes are those of a coordinate system, and the transformation of a dataset leads to it. Transformations of the
//! whole multiscale lead from there to other systems, and do not count.
//!
//! ```json
//! {"multiscales": [{"coordinateSystems": [{"name": "physical", "axes": [{"name": "y", "type": "space"}, …]}],
//!   "datasets": [{"path": "0", "coordinateTransformations": [{"type": "sequence", "input": "0", "output": "physical",
//!     "transformations": [{"type": "scale", "scale": [0.5, …]}, {"type": "translation", "translation": [1, …]}]}]}]}]}
//! ```

use serde_json::{Map, Value};

use super::axis::{Axis, AxisKind, Regular, numbers, plain_text, unit};
use super::source::GeometrySource;
use crate::hierarchy::Node;

/// How many groups above the array are searched for the attribute.
const MAX_LEVELS: usize = 4;
/// How many multiscales, and how many datasets of each, are searched.
const MAX_DATASETS: usize = 1024;

/// The most axes of an image, and of the levels of its pyramid.
const MAX_IMAGE_AXES: usize = 8;
const MAX_IMAGE_LEVELS: usize = 32;

/// An image that the attributes of a group describe.
pub struct MultiscaleImage {
    /// Its name.
    pub name: Option<String>,
    /// The arrays of its pyramid, the largest first.
    pub levels: Vec<ImageLevel>,
}

/// An array of an image.
pub struct ImageLevel {
    /// Its path from the group.
    pub path: String,
    /// Its axes. Without a known transformation they have no positions.
    pub axes: Vec<Axis>,
}

/// Returns the first image that the attributes of a group describe.
pub fn image(attributes: &Map<String, Value>) -> Option<MultiscaleImage> {
    let newer = attributes.get("ome").and_then(|ome| ome.get("multiscales"));
    let multiscale = newer.or_else(|| attributes.get("multiscales"))?.as_array()?.first()?;
    let level = |dataset: &Value| {
        let path = dataset.get("path").and_then(Value::as_str).filter(|path| is_path_below(path))?;
        Some(ImageLevel { path: path.to_owned(), axes: image_axes(multiscale, dataset)? })
    };
    let levels = multiscale.get("datasets")?.as_array()?.iter().take(MAX_IMAGE_LEVELS).map(level);
    let levels = levels.collect::<Option<Vec<_>>>().filter(|levels| !levels.is_empty())?;
    let name = multiscale.get("name").and_then(Value::as_str).and_then(plain_text).map(str::to_owned);
    Some(MultiscaleImage { name, levels })
}

fn is_path_below(path: &str) -> bool {
    const MAX_BYTES: usize = 1024;
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('\0');
    path.len() <= MAX_BYTES && path.split('/').all(is_name)
}

/// Returns the axes of a dataset, also if its transformation is unknown.
fn image_axes(multiscale: &Value, dataset: &Value) -> Option<Vec<Axis>> {
    let unknown = Value::Null;
    let transformations = dataset.get("coordinateTransformations").unwrap_or(&unknown);
    let described = coordinate_system(multiscale, transformations).unwrap_or(multiscale).get("axes")?;
    let described = described.as_array().filter(|axes| axes.len() <= MAX_IMAGE_AXES)?;
    dataset_axes(multiscale, dataset, described.len()).or_else(|| {
        let axis = |described: &Value| {
            let name = name(described).and_then(plain_text).map(str::to_owned);
            Some(Axis { name, kind: kind(described)?, ..Axis::default() })
        };
        described.iter().map(axis).collect()
    })
}

/// Returns the axes of the array, if a group above lists it as a dataset.
pub(super) fn axes(source: &GeometrySource<'_>) -> Option<Vec<Axis>> {
    let mut group = source.group?;
    for _ in 0..MAX_LEVELS {
        let node = source.subject.surroundings.node(group).ok()?;
        if let Some(Node::Group { metadata, .. }) = node.as_deref() {
            let below = source.subject.path.get(group.len()..)?.trim_start_matches('/');
            let attributes = &metadata.attributes;
            let newer = attributes.get("ome").and_then(|ome| ome.get("multiscales"));
            let multiscales = newer.or_else(|| attributes.get("multiscales")).and_then(Value::as_array);
            for multiscale in multiscales.into_iter().flatten().take(MAX_DATASETS) {
                if let Some(dataset) = dataset(multiscale, below) {
                    return dataset_axes(multiscale, dataset, source.metadata.shape.len());
                }
            }
        }
        if group.is_empty() {
            return None;
        }
        group = group.rsplit_once('/').map_or("", |(above, _)| above);
    }
    None
}

fn dataset<'a>(multiscale: &'a Value, path: &str) -> Option<&'a Value> {
    let mut datasets = multiscale.get("datasets")?.as_array()?.iter().take(MAX_DATASETS);
    datasets.find(|dataset| dataset.get("path").and_then(Value::as_str) == Some(path))
}

fn dataset_axes(multiscale: &Value, dataset: &Value, rank: usize) -> Option<Vec<Axis>> {
    let transformations = dataset.get("coordinateTransformations")?;
    let system = coordinate_system(multiscale, transformations);
    let described = system.unwrap_or(multiscale).get("axes")?.as_array().filter(|axes| axes.len() == rank)?;
    let (inner, outer) = match (system, multiscale.get("coordinateTransformations")) {
        (Some(_), _) => (transformation_to_system(transformations, rank)?, vec![(1.0, 0.0); rank]),
        (None, Some(outer)) => (transformation(transformations, rank)?, transformation(outer, rank)?),
        (None, None) => (transformation(transformations, rank)?, vec![(1.0, 0.0); rank]),
    };
    let mut axes = Vec::new();
    for ((described, (inner_scale, inner_translation)), (scale, translation)) in
        described.iter().zip(inner).zip(outer)
    {
        // An axis of channels is counted, not measured.
        let kind = kind(described)?;
        let is_measured = kind.is_space() || kind == AxisKind::Time;
        let regular = Regular::new(inner_translation * scale + translation, inner_scale * scale)?;
        axes.push(Axis {
            name: name(described).and_then(plain_text).map(str::to_owned),
            kind,
            regular: is_measured.then_some(regular),
            unit: described.get("unit").and_then(unit).filter(|_| is_measured),
            calendar: None,
        });
    }
    Some(axes)
}

/// Returns the coordinate system that the transformation of a dataset leads to, or else the first one; `None` before 0.6.
fn coordinate_system<'a>(multiscale: &'a Value, transformations: &Value) -> Option<&'a Value> {
    let systems = multiscale.get("coordinateSystems")?.as_array()?;
    let output = transformations.get(0).and_then(|first| first.get("output"));
    // 0.6rc0 has an object with the name, an earlier draft the name.
    let output = output.and_then(|output| output.as_str().or_else(|| output.get("name")?.as_str()));
    let is_it = |system: &&Value| system.get("name").and_then(Value::as_str) == output;
    match output {
        Some(_) => systems.iter().take(MAX_DATASETS).find(is_it),
        None => systems.first(),
    }
}

/// Reads the transformation of a dataset in 0.6: an identity, a scale, or a sequence of a scale and a translation.
fn transformation_to_system(value: &Value, rank: usize) -> Option<Vec<(f64, f64)>> {
    let [only] = value.as_array()?.as_slice() else { return None };
    match only.get("type").and_then(Value::as_str)? {
        "identity" => Some(vec![(1.0, 0.0); rank]),
        "sequence" => transformation(only.get("transformations")?, rank),
        _ => transformation(value, rank),
    }
}

/// Returns the name of an axis. In version 0.3 the axis is its name.
fn name(axis: &Value) -> Option<&str> {
    axis.as_str().or_else(|| axis.get("name")?.as_str())
}

fn kind(axis: &Value) -> Option<AxisKind> {
    let by_name = AxisKind::from_name(name(axis)?);
    Some(match axis.get("type").and_then(Value::as_str) {
        Some("space") if by_name.is_space() => by_name,
        Some("time") => AxisKind::Time,
        Some("channel") => AxisKind::Channel,
        Some(_) => AxisKind::Other,
        None => by_name,
    })
}

/// Reads the scale and translation along each axis from a scale that a translation may follow. Other transformations are unknown.
fn transformation(value: &Value, rank: usize) -> Option<Vec<(f64, f64)>> {
    let of_type = |value: &Value, name: &str| {
        let is_it = value.get("type").and_then(Value::as_str) == Some(name);
        is_it.then(|| numbers(value.get(name)?, rank)).flatten()
    };
    let (scale, translation) = match value.as_array()?.as_slice() {
        [scale] => (of_type(scale, "scale")?, vec![0.0; rank]),
        [scale, translation] => (of_type(scale, "scale")?, of_type(translation, "translation")?),
        _ => return None,
    };
    Some(scale.into_iter().zip(translation).collect())
}
