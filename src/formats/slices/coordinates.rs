//! The coordinates of a dimension, read from the array of its name in the same group, and OME-Zarr's names of channels.
//!
//! Spec: CF conventions, chapters 4 and 5 (packed coordinates too); ngff.openmicroscopy.org, "omero" metadata. Uses `hierarchy` through the
//! subject. Chunks are read with the permissions of the subject's readers.

use std::sync::Arc;

use serde_json::Value;

use super::calendar::Clock;
use super::labels::{Labels, MAX_LABELS};
use super::refusal::Refusal;
use crate::array::{Reservation, VariableArray};
use crate::error::Error;
use crate::formats::Subject;
use crate::formats::numbers::Numbers;
use crate::hierarchy::{Node, View};
use crate::metadata::{ArrayMetadata, ByteOrder, DataType, VariableLength};
use crate::store::join;

/// How many groups above an array are searched for the names of its channels.
const MAX_LEVELS: usize = 4;
/// Coordinates that take less memory are not counted against the cache's limit.
const UNCOUNTED_BYTES: u64 = 1 << 20;

/// A dimension.
#[derive(Clone, Copy, Debug)]
pub struct Dimension<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its length.
    pub length: u64,
}

/// The coordinates in a group.
#[derive(Clone, Copy)]
pub struct Coordinates<'a> {
    /// The node that is sliced.
    pub subject: &'a Subject<'a>,
    /// The path of the group; `None` if an array is the root.
    pub group: Option<&'a str>,
}

/// The array with the coordinates of a dimension.
struct CoordinateArray {
    path: String,
    node: Arc<Node>,
}

impl CoordinateArray {
    fn metadata(&self) -> Option<&Arc<ArrayMetadata>> {
        match &*self.node {
            Node::Array { metadata, .. } => Some(metadata),
            Node::Group { .. } | Node::Broken { .. } => None,
        }
    }
}

impl Coordinates<'_> {
    /// Returns the length of the coordinate with this name, if the group has one.
    pub fn length(&self, name: &str) -> Result<Option<u64>, Refusal> {
        let found = self.array(name)?;
        let metadata = found.as_ref().and_then(CoordinateArray::metadata);
        Ok(metadata
            .filter(|metadata| is_coordinate(metadata, name))
            .and_then(|found| found.shape.first().copied()))
    }

    /// Returns the coordinates of a dimension, if the group has an array with them.
    pub fn labels(&self, dimension: &Dimension<'_>) -> Result<Option<Labels>, Refusal> {
        let Some(found) = self.array(dimension.name)? else { return Ok(None) };
        let Some(metadata) = found.metadata() else { return Ok(None) };
        if !is_coordinate(metadata, dimension.name) || metadata.shape != [dimension.length] {
            return Ok(None);
        }
        if dimension.length > MAX_LABELS {
            return Err(Refusal::Outside(format!(
                "'{}' has {} coordinates, and more than {MAX_LABELS} are not read: give positions",
                dimension.name, dimension.length
            )));
        }
        self.read(dimension, &found.path, metadata)
    }

    /// Returns the array with a name in the group. Fails if it may not be read.
    fn array(&self, name: &str) -> Result<Option<CoordinateArray>, Refusal> {
        let surroundings = &self.subject.surroundings;
        let is_name = !name.is_empty() && !name.contains(['/', '\0']) && name != "." && name != "..";
        let Some(group) = self.group.filter(|_| is_name) else { return Ok(None) };
        let path = join(group, name);
        match surroundings.whole_node(&path)? {
            Some(node) => {
                if let Node::Broken { error, .. } = &*node {
                    return Err(Refusal::Failed(error.clone()));
                }
                Ok(Some(CoordinateArray { path, node }))
            }
            // An array that the readers may not see must not look like a missing one.
            None if surroundings.is_node(&path)? => {
                let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
                Err(Refusal::Failed(Error::store(path, "read", denied)))
            }
            None => Ok(None),
        }
    }

    fn read(
        &self,
        dimension: &Dimension<'_>,
        path: &str,
        metadata: &Arc<ArrayMetadata>,
    ) -> Result<Option<Labels>, Refusal> {
        let arrays = self.subject.arrays;
        let mut held = Reservation::new(arrays.engine());
        let item_bytes = metadata.data_type.item_size().unwrap_or(0) as u64;
        let memory = dimension.length.saturating_mul(item_bytes + 8);
        if memory > UNCOUNTED_BYTES && !held.grow(memory) {
            let reason = format!("the coordinates of '{}' do not fit into the cache", dimension.name);
            return Err(Refusal::Failed(Error::TooLarge { key: path.to_owned(), reason }));
        }
        if metadata.data_type == DataType::VariableLength(VariableLength::Utf8) {
            let store = arrays.store_for(path, &self.subject.audience);
            let array = VariableArray::open(&store, path, metadata)?;
            let mut texts = Vec::new();
            array.read(&mut held, &mut |element| {
                texts.push(String::from_utf8_lossy(element).into_owned());
                Ok(())
            })?;
            return Ok(Some(Labels::Texts(texts)));
        }
        // Packed coordinates are named by the numbers that they stand for.
        let stored = Node::Array { metadata: metadata.clone(), info: *self.subject.node.info() };
        let Some(unpacked) = View::Unpacked.node(&stored) else { return Ok(None) };
        let Node::Array { metadata, .. } = &*unpacked else { return Ok(None) };
        let array = arrays.build(path, metadata, &self.subject.audience)?;
        let size = usize::try_from(array.size_bytes()).unwrap_or(usize::MAX);
        let mut bytes = vec![0; size];
        array.read_at(0, &mut bytes)?;
        labels_of_bytes(dimension.name, metadata, &bytes, arrays.layout().byte_order)
    }
}

/// Returns whether an array is the coordinate of the dimension with its name.
fn is_coordinate(metadata: &ArrayMetadata, name: &str) -> bool {
    metadata.shape.len() == 1 && metadata.dimension_names.as_deref() == Some(&[Some(name.to_owned())])
}

/// Returns the labels that the elements of a coordinate are; `None` if they are neither numbers nor texts.
fn labels_of_bytes(
    name: &str,
    metadata: &ArrayMetadata,
    bytes: &[u8],
    order: ByteOrder,
) -> Result<Option<Labels>, Refusal> {
    match &metadata.data_type {
        DataType::NullTerminatedBytes(size) if *size > 0 => {
            let text = |element: &[u8]| {
                let end = element.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                String::from_utf8_lossy(element.get(..end).unwrap_or_default()).into_owned()
            };
            return Ok(Some(Labels::Texts(bytes.chunks_exact(*size).map(text).collect())));
        }
        DataType::FixedLengthUtf32(count) if *count > 0 => {
            let text = |element: &[u8]| {
                let codes = element.as_chunks::<4>().0.iter().map(|code| match order {
                    ByteOrder::Little => u32::from_le_bytes(*code),
                    ByteOrder::Big => u32::from_be_bytes(*code),
                });
                let text: String = codes.map(|code| char::from_u32(code).unwrap_or('\u{fffd}')).collect();
                text.trim_end_matches('\0').to_owned()
            };
            return Ok(Some(Labels::Texts(bytes.chunks_exact(count * 4).map(text).collect())));
        }
        _ => {}
    }
    let Some(numbers) = Numbers::for_type(&metadata.data_type) else { return Ok(None) };
    if matches!(numbers, Numbers::Complex(_)) {
        return Ok(None);
    }
    if let Some(clock) = clock(name, metadata)? {
        let (mut values, mut has_missing) = (Vec::new(), false);
        let mut push = |instant: Option<i64>| {
            has_missing |= instant.is_none();
            values.push(instant.unwrap_or(i64::MIN));
        };
        if numbers.is_integer() {
            numbers.each_integer(bytes, order, |value| push(value.and_then(|value| clock.instant(value))));
        } else {
            numbers.each(bytes, order, |value| push(clock.instant_of_float(value)));
        }
        return Ok(Some(Labels::Times { values, clock, has_missing }));
    }
    let mut values = Vec::new();
    numbers.each(bytes, order, |value| values.push(value));
    let is_single = metadata.data_type == DataType::Float32;
    Ok(Some(Labels::Numbers { values, tolerance: 0.0, is_single }))
}

/// Returns the clock of a coordinate of times; `None` if it has numbers.
fn clock(name: &str, metadata: &ArrayMetadata) -> Result<Option<Clock>, Refusal> {
    let text = |attribute: &str| metadata.attributes.get(attribute).and_then(Value::as_str);
    let (unit, calendar) = (text("units"), text("calendar"));
    let clock = match (&metadata.data_type, unit) {
        (DataType::DateTime64(unit), _) => Clock::of_type(&unit.unit, unit.scale_factor),
        (_, Some(unit)) if unit.contains(" since ") => Clock::parse(unit, calendar),
        _ => return Ok(None),
    };
    clock.map(Some).ok_or_else(|| {
        let unit = unit.unwrap_or("datetime64");
        let calendar = calendar.map_or(String::new(), |calendar| format!(" in the calendar '{calendar}'"));
        Refusal::Outside(format!(
            "'{name}' has times in '{unit}'{calendar}, which is not known: give positions"
        ))
    })
}

/// Returns the names of an image's channels, from a group above the subject that has them.
pub fn channel_labels(subject: &Subject<'_>) -> Option<Vec<String>> {
    let mut path = subject.path;
    for _ in 0..MAX_LEVELS {
        path = path.rsplit_once('/').map_or("", |(above, _)| above);
        let node = subject.surroundings.node(path).ok()?;
        if let Some(Node::Group { metadata, .. }) = node.as_deref() {
            let attributes = &metadata.attributes;
            let newer = attributes.get("ome").and_then(|ome| ome.get("omero"));
            let channels = newer.or_else(|| attributes.get("omero")).and_then(|omero| omero.get("channels"));
            if let Some(channels) = channels.and_then(Value::as_array) {
                let label = |channel: &Value| channel.get("label")?.as_str().map(str::to_owned);
                return channels.iter().map(label).collect();
            }
        }
        if path.is_empty() {
            return None;
        }
    }
    None
}
