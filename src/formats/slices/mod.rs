//! Slices by their index: `temperature[0:10,:,3]`, `temperature[time=2001-03:2001-06,lat=-30:30]`.
//!
//! Uses `hierarchy` for nodes and views, and `geometry/` for positions. An index is NumPy's basic indexing without newaxis
//! (`index.rs`), and may name dimensions and give coordinates (`labels.rs`), which are read from neighbouring arrays
//! (`coordinates.rs`), in any CF calendar (`calendar.rs`). docs/views.md has the rules.
//!
//! Invariants: an index that does not select exactly what it says is refused with a one-sentence reason. A coordinate that cannot
//! be read, or may not be, is an error and never counts as missing.

mod calendar;
mod coordinates;
mod index;
mod labels;
mod refusal;

use crate::formats::Subject;
use crate::formats::geometry::axis::AxisKind;
use crate::formats::geometry::{Geometry, positions::PositionValues, positions::Positions};
use crate::hierarchy::Node;
use crate::hierarchy::slices::{AxisPart, DimensionPart, Slice};
use crate::metadata::ArrayMetadata;
use crate::store::join;
use coordinates::{Coordinates, Dimension};
use index::{Index, Name};
use labels::Labels;
pub use labels::MAX_LABELS;
pub use refusal::Refusal;

/// Splits a name with an index into the name and the text between the brackets; `None` without an index.
pub fn split(name: &str) -> Option<(&str, &str)> {
    name.strip_suffix(']')?.rsplit_once('[')
}

/// Returns the slice that an index gives of the subject's node, which is an array or a group, without a view. May read neighbouring arrays.
pub fn resolve(subject: &Subject<'_>, text: &str) -> Result<Slice, Refusal> {
    let index = Index::parse(text)?;
    match subject.node {
        Node::Array { metadata, .. } => of_array(subject, metadata, &index, text),
        Node::Group { .. } => of_group(subject, &index, text),
        Node::Broken { error, .. } => Err(Refusal::Failed(error.clone())),
    }
}

/// Returns whether reading this index may need arrays other than the sliced one.
pub fn has_names(text: &str) -> bool {
    text.contains('=')
}

/// Returns the dimensions that an index names.
pub fn names(text: &str) -> Result<Vec<String>, Refusal> {
    Ok(Index::parse(text)?.names.into_iter().map(|name| name.name).collect())
}

fn of_array(
    subject: &Subject<'_>,
    metadata: &ArrayMetadata,
    index: &Index<'_>,
    text: &str,
) -> Result<Slice, Refusal> {
    let mut parts = index.positions(text, &metadata.shape)?;
    let group = match subject.path.rsplit_once('/') {
        _ if subject.path.is_empty() => None,
        Some((group, _)) => Some(group),
        None => Some(""),
    };
    let coordinates = Coordinates { subject, group };
    let mut geometry = None;
    for Name { name, text: wanted } in &index.names {
        let axis = match axis_with_name(metadata, name)? {
            Some(axis) => axis,
            None => {
                let geometry = geometry.get_or_insert_with(|| Geometry::from_subject(subject));
                axis_of_geometry(geometry, name).ok_or_else(|| unknown_name(name, &names_of(metadata)))?
            }
        };
        let (Some(slot), Some(&length)) = (parts.get_mut(axis), metadata.shape.get(axis)) else { continue };
        if slot.is_some() {
            return Err(Refusal::Syntax(format!(
                "'{name}' has an index already: give one for each dimension"
            )));
        }
        let own_name = metadata.dimension_names.as_ref().and_then(|names| names.get(axis)?.as_deref());
        let dimension = Dimension { name: own_name.unwrap_or(name), length };
        let labels = match coordinates.labels(&dimension)? {
            Some(labels) => Some(labels),
            None => {
                let geometry = geometry.get_or_insert_with(|| Geometry::from_subject(subject));
                labels_of_geometry(subject, geometry, axis, length)
            }
        };
        *slot = Some(part_of_dimension(&dimension, labels.as_ref(), wanted)?);
    }
    let whole = metadata.shape.iter().map(|length| AxisPart::whole(*length));
    let axes: Vec<AxisPart> = parts.iter().zip(whole).map(|(part, whole)| part.unwrap_or(whole)).collect();
    let names = metadata.dimension_names.as_deref().unwrap_or_default();
    let mut dimensions: Vec<DimensionPart> = Vec::new();
    for ((name, part), &length) in names.iter().zip(&axes).zip(&metadata.shape) {
        if let Some(name) = name
            && *part != AxisPart::whole(length)
            && dimensions.iter().all(|known| known.name != *name)
        {
            dimensions.push(DimensionPart { name: name.clone(), length, part: *part });
        }
    }
    Ok(Slice { index: text.to_owned(), axes: Some(axes), dimensions })
}

/// Returns the slice of a group: each of its arrays, sliced.
fn of_group(subject: &Subject<'_>, index: &Index<'_>, text: &str) -> Result<Slice, Refusal> {
    if index.has_positions() {
        let sentence = format!("[{text}]: the dimensions of a group have names: write [time=…,lat=…]");
        return Err(Refusal::Syntax(sentence));
    }
    let coordinates = Coordinates { subject, group: Some(subject.path) };
    let mut dimensions: Vec<DimensionPart> = Vec::new();
    for Name { name, text: wanted } in &index.names {
        if dimensions.iter().any(|known| known.name == *name) {
            return Err(Refusal::Syntax(format!(
                "'{name}' has an index already: give one for each dimension"
            )));
        }
        let length = length_in_group(&coordinates, name)?;
        let dimension = Dimension { name, length };
        let labels = coordinates.labels(&dimension)?;
        let part = part_of_dimension(&dimension, labels.as_ref(), wanted)?;
        dimensions.push(DimensionPart { name: name.clone(), length, part });
    }
    Ok(Slice { index: text.to_owned(), axes: None, dimensions })
}

/// Returns the length of a dimension of a group: that of its coordinate, or else that of all arrays with the dimension.
fn length_in_group(coordinates: &Coordinates<'_>, name: &str) -> Result<u64, Refusal> {
    if let Some(length) = coordinates.length(name)? {
        return Ok(length);
    }
    let (subject, mut lengths, mut names) = (coordinates.subject, Vec::new(), Vec::new());
    for child in subject.surroundings.children(subject.path)?.into_iter().filter(|child| !child.is_group) {
        let node = subject.surroundings.whole_node(&join(subject.path, &child.name))?;
        let Some(Node::Array { metadata, .. }) = node.as_deref() else { continue };
        for (own, &length) in metadata.dimension_names.iter().flatten().zip(&metadata.shape) {
            if own.as_deref() == Some(name) && !lengths.contains(&length) {
                lengths.push(length);
            }
            names.extend(own.clone().filter(|own| !names.contains(own)));
        }
    }
    match lengths.as_slice() {
        [length] => Ok(*length),
        [] => Err(unknown_name(name, &names)),
        _ => Err(Refusal::Outside(format!(
            "'{name}' has several lengths in this group and no coordinate: slice the arrays one by one"
        ))),
    }
}

/// Returns the elements that the text after a dimension's name selects.
fn part_of_dimension(
    dimension: &Dimension<'_>,
    labels: Option<&Labels>,
    text: &str,
) -> Result<AxisPart, Refusal> {
    match labels {
        Some(labels) => labels.select(dimension.name, text),
        None if text.starts_with('~') => Err(Refusal::Outside(format!(
            "'{}' has no coordinates, so nothing is nearest: give positions",
            dimension.name
        ))),
        None => index::Part::parse(text)?.select(&format!("'{}'", dimension.name), dimension.length),
    }
}

/// Returns the axis whose dimension has this name.
fn axis_with_name(metadata: &ArrayMetadata, name: &str) -> Result<Option<usize>, Refusal> {
    let names = metadata.dimension_names.as_deref().unwrap_or_default();
    let mut axes = names.iter().enumerate().filter(|(_, own)| own.as_deref() == Some(name));
    let first = axes.next();
    if axes.next().is_some() {
        return Err(Refusal::Outside(format!("two axes have the name '{name}': index them by their places")));
    }
    Ok(first.map(|(axis, _)| axis))
}

/// Returns the axis that OME-Zarr gives this name. The axis of channels is also `channel`.
fn axis_of_geometry(geometry: &Geometry, name: &str) -> Option<usize> {
    let mut axes = geometry.axes.iter();
    if let Some(axis) = axes.position(|axis| axis.name.as_deref() == Some(name)) {
        return Some(axis);
    }
    let mut channels = geometry.axes.iter().enumerate().filter(|(_, axis)| axis.kind == AxisKind::Channel);
    let (axis, _) = channels.next().filter(|_| name == "channel")?;
    channels.next().is_none().then_some(axis)
}

/// Returns the labels of an axis without a coordinate array: the names of channels, or positions at equal distances.
fn labels_of_geometry(
    subject: &Subject<'_>,
    geometry: &Geometry,
    axis: usize,
    length: u64,
) -> Option<Labels> {
    let known = geometry.axis(axis);
    if known.kind == AxisKind::Channel {
        let labels = coordinates::channel_labels(subject)?;
        return (labels.len() as u64 == length).then_some(Labels::Texts(labels));
    }
    let positions =
        Positions { length, values: PositionValues::Regular(known.regular?), ..Positions::default() };
    Labels::regular(&positions)
}

fn names_of(metadata: &ArrayMetadata) -> Vec<String> {
    metadata.dimension_names.iter().flatten().flatten().cloned().collect()
}

fn unknown_name(name: &str, names: &[String]) -> Refusal {
    Refusal::Outside(match names {
        [] => format!("no dimension '{name}': the dimensions do not have names"),
        names => format!("no dimension '{name}': the dimensions are {}", names.join(", ")),
    })
}
