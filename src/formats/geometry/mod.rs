//! Where the elements of an array lie in space and time, as far as its metadata and its neighbours' say so.
//!
//! Uses `metadata`, `hierarchy` and the open arrays. docs/companions.md lists every mapping. Each source is a file here; the
//! first of them that says anything about the axes is the only one that is used for them:
//!
//! 1. OME-Zarr multiscales (`multiscales.rs`): the attributes of a group above;
//! 2. CF coordinates (`coordinates.rs`): one-dimensional arrays in the same group;
//! 3. geotransforms (`geotransform.rs`): GDAL's, rioxarray's and GeoZarr's attributes;
//! 4. the plain attributes `scale`, `translation` and `units` (here).
//!
//! Coordinate reference systems (`crs.rs`) are independent of that. `positions.rs` has the values along axes for people, who also see
//! irregular ones; `times.rs` turns CF's numbers into dates.
//!
//! Invariant: a wrong guess is worse than none. What is missing, contradictory, irregular or not understood is left out; nothing
//! here fails. Users see only what they may read themselves.

mod coordinates;
pub mod crs;
mod geotransform;
mod multiscales;
pub mod positions;
pub mod times;

use serde_json::{Map, Value};

use super::Subject;
use super::flat_array::{FlatArray, plain_text};
use crate::hierarchy::{Node, View};
use crate::metadata::ArrayMetadata;
use crate::metadata::no_data::{self, NoData};
use crate::store::join;
use crs::Crs;

/// What an axis is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AxisKind {
    /// East, longitude, columns.
    X,
    /// North, latitude, rows.
    Y,
    /// Height, depth, slices.
    Z,
    /// Time.
    Time,
    /// Colours or other channels.
    Channel,
    /// Anything else.
    #[default]
    Other,
}

impl AxisKind {
    /// Whether it is a direction in space.
    pub fn is_space(self) -> bool {
        matches!(self, AxisKind::X | AxisKind::Y | AxisKind::Z)
    }

    /// By the name of a dimension: only names that mean the same everywhere.
    pub fn of_name(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "x" | "lon" | "longitude" => AxisKind::X,
            "y" | "lat" | "latitude" => AxisKind::Y,
            "z" => AxisKind::Z,
            "t" | "time" => AxisKind::Time,
            "c" | "channel" | "channels" | "rgb" | "rgba" => AxisKind::Channel,
            _ => AxisKind::Other,
        }
    }
}

/// A regular axis: element `i` lies at `first + i * step`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regular {
    /// The centre of the first element.
    pub first: f64,
    /// From one element to the next; not 0.
    pub step: f64,
}

impl Regular {
    /// If both are finite, and the step is not 0.
    pub fn new(first: f64, step: f64) -> Option<Self> {
        (first.is_finite() && step.is_finite() && step != 0.0).then_some(Regular { first, step })
    }
}

/// One axis of an array.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// Its name, if it is a plain text.
    pub name: Option<String>,
    /// What it is.
    pub kind: AxisKind,
    /// Where its elements lie, if they do so regularly.
    pub regular: Option<Regular>,
    /// The unit of that, if it is a plain text.
    pub unit: Option<String>,
    /// CF's calendar of an axis of time.
    pub calendar: Option<String>,
}

/// What is known of an array's place in space and time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Geometry {
    /// Its axes, in the order of the array's own.
    pub axes: Vec<Axis>,
    /// The coordinate reference system of its X and Y axes.
    pub crs: Option<Crs>,
    /// The value of elements without data.
    pub no_data: Option<f64>,
}

/// The array that is asked about.
struct Source<'a> {
    subject: &'a Subject<'a>,
    metadata: &'a ArrayMetadata,
    /// The path of its group; `None` for the root.
    group: Option<&'a str>,
}

impl Source<'_> {
    /// The array with a name in the same group.
    fn sibling(&self, name: &str) -> Option<(String, std::sync::Arc<Node>)> {
        let is_name = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
        let path = join(self.group.filter(|_| is_name)?, name);
        let node = (self.subject.find_node)(&path).ok()??;
        Some((path, node))
    }

    /// The attributes of the array's group.
    fn group_attributes(&self) -> Option<std::sync::Arc<Node>> {
        (self.subject.find_node)(self.group?).ok()?
    }
}

impl Geometry {
    /// What is known of a subject's array. May read small arrays beside it.
    pub fn of(subject: &Subject<'_>) -> Self {
        let mut geometry = Geometry::of_whole(subject);
        if let Some(removed) = removed_axis(subject).filter(|axis| *axis < geometry.axes.len()) {
            let removed = geometry.axes.remove(removed);
            // The reference system is one of both.
            geometry.crs = geometry.crs.filter(|_| !matches!(removed.kind, AxisKind::X | AxisKind::Y));
        }
        geometry
    }

    /// As [`Geometry::of`], of a plane with all axes of its array.
    fn of_whole(subject: &Subject<'_>) -> Self {
        let Node::Array { metadata, .. } = whole(subject) else { return Geometry::default() };
        let group = match subject.path.rsplit_once('/') {
            _ if subject.path.is_empty() => None,
            Some((group, _)) => Some(group),
            None => Some(""),
        };
        let source = Source { subject, metadata, group };
        let mut geometry = Geometry { axes: named_axes(metadata), crs: None, no_data: no_data(metadata) };
        let found = multiscales::axes(&source)
            .or_else(|| coordinates::axes(&source, &geometry.axes))
            .or_else(|| geotransform::axes(&source, &geometry.axes))
            .or_else(|| plain_attributes(metadata, &geometry.axes));
        geometry.axes = found.unwrap_or(geometry.axes);
        geometry.crs = crs::of(&source, &geometry.axes);
        geometry
    }

    /// GDAL's six numbers for images of an array: the corner and the size of a pixel. `None` unless the columns go along X and
    /// the rows along Y, both of known steps.
    pub fn geotransform(&self, array: &FlatArray) -> Option<[f64; 6]> {
        let columns = array.planes().columns;
        let along = |place: usize, kind: AxisKind| {
            let axis = self.axis(array.axes.get(place)?.index);
            axis.regular.filter(|_| axis.kind == kind)
        };
        let (x, y) = (along(columns, AxisKind::X)?, along(columns + 1, AxisKind::Y)?);
        Some([x.first - x.step / 2.0, x.step, 0.0, y.first - y.step / 2.0, 0.0, y.step])
    }

    /// The axis at this place among the array's own.
    pub fn axis(&self, index: usize) -> &Axis {
        const UNKNOWN: &Axis =
            &Axis { name: None, kind: AxisKind::Other, regular: None, unit: None, calendar: None };
        self.axes.get(index).unwrap_or(UNKNOWN)
    }
}

/// The array that the elements are of. Of a plane it is that with all axes, since metadata speaks of all.
fn whole<'a>(subject: &'a Subject<'_>) -> &'a Node {
    match subject.view {
        Some((View::Plane { .. }, stored)) => stored,
        _ => subject.node,
    }
}

/// The axis that a plane lacks.
fn removed_axis(subject: &Subject<'_>) -> Option<usize> {
    match subject.view {
        Some((View::Plane { axis, .. }, _)) => Some(axis.into()),
        _ => None,
    }
}

/// The axes as the array's own dimension names describe them.
fn named_axes(metadata: &ArrayMetadata) -> Vec<Axis> {
    let names = metadata.dimension_names.as_deref().unwrap_or_default();
    let axis = |index: usize| {
        let name = names.get(index).and_then(Option::as_deref);
        let kind = name.map(AxisKind::of_name).unwrap_or_default();
        Axis { name: name.and_then(plain_text).map(str::to_owned), kind, ..Axis::default() }
    };
    (0..metadata.shape.len()).map(axis).collect()
}

/// `"scale": [2.0, 0.5, 0.5]`, perhaps with `translation` and `units` of the same length.
fn plain_attributes(metadata: &ArrayMetadata, named: &[Axis]) -> Option<Vec<Axis>> {
    let attributes = &metadata.attributes;
    let scale = numbers(attributes.get("scale")?, named.len())?;
    let translation = match attributes.get("translation") {
        Some(value) => numbers(value, named.len())?,
        None => vec![0.0; named.len()],
    };
    let units = attributes.get("units").and_then(Value::as_array).filter(|units| units.len() == named.len());
    let mut axes = named.to_vec();
    for (index, axis) in axes.iter_mut().enumerate() {
        axis.regular = Regular::new(*translation.get(index)?, *scale.get(index)?);
        axis.regular?;
        axis.unit = units.and_then(|units| unit(units.get(index)?));
    }
    Some(axes)
}

/// A list of exactly so many finite numbers.
fn numbers(value: &Value, count: usize) -> Option<Vec<f64>> {
    let values = value.as_array().filter(|values| values.len() == count)?;
    values.iter().map(|value| value.as_f64().filter(|number| number.is_finite())).collect()
}

/// A unit, if it is a plain text.
fn unit(value: &Value) -> Option<String> {
    value.as_str().and_then(plain_text).map(str::to_owned)
}

/// An attribute that is a text.
fn text<'a>(attributes: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    attributes.get(name).and_then(Value::as_str)
}

/// Stands for the names of dimensions among attributes.
pub const DIMENSION_NAMES: &str = "dimension_names";

/// Which of these attributes of an array say something that no header can hold as it is: texts that could break it, values
/// without data beyond the one that it has room for, coordinate reference systems in no known form.
pub fn left_out(node: &Node, names: &[&str]) -> Vec<String> {
    let Node::Array { metadata, .. } = node else { return Vec::new() };
    let no_data = NoData::of(metadata);
    let is_float = no_data.first().is_none_or(|value| value.to_f64(&metadata.data_type).is_some());
    let is_first = |name: &str| no_data.first().is_some_and(|value| value.attribute == name);
    let is_text = |text: Option<&str>| text.is_none_or(|text| text.is_empty() || plain_text(text).is_some());
    let fits = |name: &str| match (name, metadata.attributes.get(name)) {
        (DIMENSION_NAMES, _) => {
            let names = metadata.dimension_names.as_deref().unwrap_or_default();
            names.iter().all(|name| is_text(name.as_deref()))
        }
        (_, None) => true,
        ("units", Some(Value::Array(units))) => units.iter().all(|unit| is_text(unit.as_str())),
        ("crs_wkt" | "spatial_ref", Some(value)) => value.as_str().is_some_and(Crs::is_known),
        (name, Some(_)) if no_data::ATTRIBUTES.contains(&name) => {
            no_data.is_shown(name) && (is_float || !is_first(name))
        }
        _ => true,
    };
    names.iter().filter(|name| !fits(name)).map(|name| (*name).to_owned()).collect()
}

/// The value of elements without data, for formats that have one float for it.
pub fn no_data(metadata: &ArrayMetadata) -> Option<f64> {
    NoData::of(metadata).first()?.to_f64(&metadata.data_type)
}

/// The factor from a unit of length to metres; `None` for other units.
pub fn metres(unit: &str) -> Option<f64> {
    Some(match unit {
        "m" | "metre" | "metres" | "meter" | "meters" => 1.0,
        "km" | "kilometre" | "kilometer" | "kilometres" | "kilometers" => 1e3,
        "cm" | "centimetre" | "centimeter" | "centimeters" => 1e-2,
        "mm" | "millimetre" | "millimeter" | "millimetres" | "millimeters" => 1e-3,
        "um" | "µm" | "μm" | "micrometre" | "micrometer" | "micrometres" | "micrometers" | "micron"
        | "microns" => 1e-6,
        "nm" | "nanometre" | "nanometer" | "nanometres" | "nanometers" => 1e-9,
        "angstrom" | "angstroms" | "Å" => 1e-10,
        "pm" | "picometre" | "picometer" => 1e-12,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
