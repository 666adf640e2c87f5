//! The positions of an array's elements in space and time, as far as its metadata and neighbouring arrays give them.
//!
//! Uses `metadata`, `hierarchy` and the open arrays. docs/companions.md lists every mapping. Each source is a file here, and only the
//! first source that describes the axes is used:
//!
//! 1. OME-Zarr multiscales (`multiscales.rs`): the attributes of a group above;
//! 2. CF coordinates (`coordinates.rs`): one-dimensional arrays in the same group;
//! 3. geotransforms (`geotransform.rs`): GDAL's, rioxarray's and GeoZarr's attributes;
//! 4. the attributes of N5 (`n5.rs`): `pixelResolution`, `resolution`, `downsamplingFactors`, `transform`;
//! 5. the plain attributes `scale`, `translation` and `units` (here).
//!
//! Coordinate reference systems (`crs.rs`) are independent of that. `positions.rs` has the values along axes for people, regular or not, and
//! `times.rs` turns CF's numbers into dates.
//!
//! Invariants: a wrong guess is worse than none, so missing, contradictory, irregular or unknown metadata is ignored, and nothing here
//! fails. Users see only what they may read themselves.

pub mod axis;
mod coordinates;
pub mod crs;
mod geotransform;
pub mod multiscales;
mod n5;
pub mod positions;
mod source;
pub mod times;

use serde_json::Value;

use super::Subject;
use super::flat_array::FlatArray;
use crate::hierarchy::Node;
use crate::metadata::conventions::no_data::{self, NoData};
use crate::metadata::{ArrayMetadata, ZarrFormat};
pub use axis::{Axis, AxisKind, Regular};
use axis::{numbers, plain_text, unit};
use crs::Crs;
use source::{GeometrySource, whole};
pub use source::{PartAxis, part_axes};

/// The known positions of an array in space and time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Geometry {
    /// Its axes, in the order of the array's own.
    pub axes: Vec<Axis>,
    /// The coordinate reference system of its X and Y axes.
    pub crs: Option<Crs>,
    /// The value for missing data.
    pub no_data: Option<f64>,
}

impl Geometry {
    /// Returns the geometry of a subject's array. May read small neighbouring arrays.
    pub fn from_subject(subject: &Subject<'_>) -> Self {
        let mut geometry = Geometry::from_whole_subject(subject);
        if let Some(parts) = part_axes(subject) {
            let is_kept = |index: usize| parts.iter().any(|part| part.index == index);
            let mut axes = geometry.axes.iter().enumerate();
            // The reference system needs both axes.
            let lacks_map =
                axes.any(|(index, axis)| matches!(axis.kind, AxisKind::X | AxisKind::Y) && !is_kept(index));
            geometry.crs = geometry.crs.filter(|_| !lacks_map);
            let axis = |part: &PartAxis| geometry.axis(part.index).part(part.selection);
            geometry.axes = parts.iter().map(axis).collect();
        }
        geometry
    }

    /// Returns the geometry with all axes of the array, also if the subject is a part of it.
    fn from_whole_subject(subject: &Subject<'_>) -> Self {
        let Node::Array { metadata, .. } = whole(subject) else { return Geometry::default() };
        let group = match subject.path.rsplit_once('/') {
            _ if subject.path.is_empty() => None,
            Some((group, _)) => Some(group),
            None => Some(""),
        };
        let source = GeometrySource { subject, metadata, group };
        let mut geometry = Geometry { axes: named_axes(metadata), crs: None, no_data: no_data(metadata) };
        let found = multiscales::axes(&source)
            .or_else(|| coordinates::axes(&source, &geometry.axes))
            .or_else(|| geotransform::axes(&source, &geometry.axes))
            .or_else(|| n5::axes(&source, &geometry.axes))
            .or_else(|| plain_attributes(metadata, &geometry.axes));
        geometry.axes = found.unwrap_or(geometry.axes);
        geometry.crs = crs::find(&source, &geometry.axes);
        geometry
    }

    /// Returns GDAL's six numbers for images of an array: the corner and the size of a pixel. Returns `None` unless the columns go along
    /// X and the rows along Y, both with known steps.
    pub fn geotransform(&self, array: &FlatArray) -> Option<[f64; 6]> {
        let columns = array.planes().columns;
        let along = |place: usize, kind: AxisKind| {
            let axis = self.axis(array.axes.get(place)?.index);
            axis.regular.filter(|_| axis.kind == kind)
        };
        let (x, y) = (along(columns, AxisKind::X)?, along(columns + 1, AxisKind::Y)?);
        Some([x.first - x.step / 2.0, x.step, 0.0, y.first - y.step / 2.0, 0.0, y.step])
    }

    /// Returns the axis with this index among the array's own.
    pub fn axis(&self, index: usize) -> &Axis {
        const UNKNOWN: &Axis =
            &Axis { name: None, kind: AxisKind::Other, regular: None, unit: None, calendar: None };
        self.axes.get(index).unwrap_or(UNKNOWN)
    }
}

/// Returns the axes that the array's own dimension names describe.
fn named_axes(metadata: &ArrayMetadata) -> Vec<Axis> {
    let names = metadata.dimension_names.as_deref().unwrap_or_default();
    let axis = |index: usize| {
        let name = names.get(index).and_then(Option::as_deref);
        let kind = name.map(AxisKind::from_name).unwrap_or_default();
        Axis { name: name.and_then(plain_text).map(str::to_owned), kind, ..Axis::default() }
    };
    (0..metadata.shape.len()).map(axis).collect()
}

/// Reads `"scale": [2.0, 0.5, 0.5]`, perhaps with `translation` and `units` of the same length.
fn plain_attributes(metadata: &ArrayMetadata, named: &[Axis]) -> Option<Vec<Axis>> {
    let attributes = &metadata.attributes;
    // Programs differ in the order in which they write them to N5.
    if metadata.zarr_format == ZarrFormat::N5 {
        return None;
    }
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

/// The entry that stands for the dimension names in a list of attributes.
pub const DIMENSION_NAMES: &str = "dimension_names";

/// Returns which of these attributes of an array cannot be written into a header: texts that could break it, values for missing data
/// beyond the first, and coordinate reference systems in an unknown form.
pub fn left_out(node: &Node, names: &[&str]) -> Vec<String> {
    let Node::Array { metadata, .. } = node else { return Vec::new() };
    let no_data = NoData::read(metadata);
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

/// Returns the value for missing data, for formats that have one float for it.
pub fn no_data(metadata: &ArrayMetadata) -> Option<f64> {
    NoData::read(metadata).first()?.to_f64(&metadata.data_type)
}

/// Returns the factor from a unit of length to metres; `None` for other units.
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
