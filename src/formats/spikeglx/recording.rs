//! The sampling rate and the gain of a recording: from the array's attributes, or from the group of SpikeInterface's traces.
//!
//! SpikeInterface's `save(format="zarr")` writes `traces_seg0`, `traces_seg1` and so on, the rate as an attribute of their group, and gains and offsets
//! as the arrays `properties/gain_to_uV` and `properties/offset_to_uV`, with one number for each channel. Small arrays are read here.

use serde_json::{Map, Value};

use crate::array::Order;
use crate::formats::Subject;
use crate::formats::flat_array::FlatArray;
use crate::formats::geometry::{AxisKind, PartAxis, part_axes};
use crate::formats::numbers::Numbers;
use crate::hierarchy::{Node, View};
use crate::metadata::{ArrayMetadata, DataType};
use crate::store::join;

/// The most channels. Each takes some 20 bytes of the text.
pub const MAX_CHANNELS: u64 = 65_536;
/// The attributes that name a sampling rate.
const RATES: [&str; 3] = ["sampling_frequency", "sampling_rate", "sample_rate"];
/// The begin of the names of SpikeInterface's arrays.
const TRACES: &str = "traces_seg";
const GAIN: &str = "gain_to_uV";
const OFFSET: &str = "offset_to_uV";
/// What a count is if the array does not say it.
const UNKNOWN_GAIN_MICROVOLTS: f64 = 1.0;

/// What a `.meta` says of the numbers.
pub struct Recording {
    /// The times in a second.
    pub rate: f64,
    /// The microvolts of a count, if they are known.
    pub microvolts: Option<f64>,
    /// The place of the first time among those of the array; above 0 for slices.
    pub first_sample: u64,
}

impl Recording {
    /// Returns the recording that an array is, or the reason why it has no files. May read small neighbouring arrays.
    pub fn from_subject(subject: &Subject<'_>) -> Result<Self, String> {
        let Node::Array { metadata, .. } = subject.node else { return Err("it is not an array".to_owned()) };
        let array = FlatArray::from_subject(subject).map_err(|error| error.to_string())?;
        let channels = array.length(0);
        let group = segment(subject.path).and_then(|_| group_of(subject));
        let group_node = group.and_then(|group| subject.surroundings.node(group).ok().flatten());
        let of_group = match group_node.as_deref() {
            Some(Node::Group { metadata, .. }) => Some(&metadata.attributes),
            _ => None,
        };
        let rate = rate(&metadata.attributes).or_else(|| of_group.and_then(rate));
        let rate = rate.ok_or(
            "its attributes and those of its group name no sampling rate, or some users who may read the array may not read those of the group",
        )?;
        let rate = rate.as_f64().filter(|rate| rate.is_finite() && *rate > 0.0);
        let rate = rate.ok_or("its sampling rate is not a number above 0")?;
        let group = group.filter(|_| of_group.is_some());
        let one = |name: &str| {
            let values = match metadata.attributes.get(name) {
                Some(value) => Some(numbers(value)),
                None => group.and_then(|group| property(subject, group, name)).transpose()?,
            };
            values.map(|values| one_number(name, &of_channels(subject, name, values, channels)?)).transpose()
        };
        let microvolts = one(GAIN)?;
        if microvolts == Some(0.0) {
            return Err("its gain is 0".to_owned());
        }
        if one(OFFSET)?.is_some_and(|offset| offset != 0.0) {
            return Err("its offset is not 0".to_owned());
        }
        let first_sample = first_sample(subject)?;
        let recording = Recording { rate, microvolts, first_sample };
        if !recording.range_volts().is_finite() {
            return Err("the range of its gain is not a number".to_owned());
        }
        Ok(recording)
    }

    /// Returns the volts of 32,768 counts.
    pub fn range_volts(&self) -> f64 {
        self.microvolts.unwrap_or(UNKNOWN_GAIN_MICROVOLTS) * 32_768.0 / 1e6
    }
}

/// Returns whether the attributes or the name of an array say that it may be a recording.
pub fn is_possible(metadata: &ArrayMetadata) -> bool {
    let path = metadata.document_key.rsplit_once('/').map_or("", |(path, _)| path);
    rate(&metadata.attributes).is_some() || segment(path).is_some()
}

/// Returns whether users may expect the files of a recording: of int16 along two axes, if attributes or name say that it may be one.
pub fn is_expected(node: &Node) -> bool {
    let Node::Array { metadata, .. } = node else { return false };
    metadata.shape.len() == 2 && metadata.data_type == DataType::Int16 && is_possible(metadata)
}

/// Returns whether the fastest axis is the one of channels. Axes without names are times and channels.
pub fn has_axes(metadata: &ArrayMetadata, array: &FlatArray) -> bool {
    let names = metadata.dimension_names.as_deref().unwrap_or_default();
    let kind = |place: usize| {
        let axis = array.axes.get(place)?;
        names.get(axis.index)?.as_deref().map(AxisKind::from_name)
    };
    match (kind(0), kind(1)) {
        (None, None) => array.axes.first().is_some_and(|axis| axis.index == 1),
        (channels, times) => {
            channels.is_none_or(|kind| kind == AxisKind::Channel)
                && times.is_none_or(|kind| kind == AxisKind::Time)
        }
    }
}

/// Returns the number of the segment that a path names: 2 of `rec/traces_seg2`.
pub fn segment(path: &str) -> Option<u32> {
    let digits = path.rsplit('/').next()?.strip_prefix(TRACES)?;
    let number: u32 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

/// Returns the path of the array's group.
fn group_of<'a>(subject: &Subject<'a>) -> Option<&'a str> {
    match subject.path.rsplit_once('/') {
        _ if subject.path.is_empty() => None,
        Some((group, _)) => Some(group),
        None => Some(""),
    }
}

fn rate(attributes: &Map<String, Value>) -> Option<&Value> {
    RATES.iter().find_map(|name| attributes.get(*name))
}

/// Returns the numbers of an attribute; NaN for other values.
fn numbers(value: &Value) -> Vec<f64> {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    match value {
        Value::Array(values) => values.iter().map(number).collect(),
        value => vec![number(value)],
    }
}

/// Returns the values of the channels that the subject has, from those of all channels or one for all.
fn of_channels(
    subject: &Subject<'_>,
    name: &str,
    values: Vec<f64>,
    channels: u64,
) -> Result<Vec<f64>, String> {
    if values.len() == 1 {
        return Ok(values);
    }
    let wrong = || format!("'{name}' does not have one number for each channel");
    let Some(channels_part) = slice_axes(subject).map(|axes| axes.channels) else {
        return if values.len() as u64 == channels && channels > 0 { Ok(values) } else { Err(wrong()) };
    };
    if values.len() as u64 != channels_part.length {
        return Err(wrong());
    }
    let selection = channels_part.part.selection;
    let at = |place: u64| values.get(usize::try_from(selection.element(place)).ok()?).copied();
    (0..selection.count).map(at).collect::<Option<_>>().ok_or_else(wrong)
}

/// Returns the number that all channels have.
fn one_number(name: &str, values: &[f64]) -> Result<f64, String> {
    let first = values.first().copied().unwrap_or(f64::NAN);
    if values.iter().any(|value| !value.is_finite()) || !first.is_finite() {
        return Err(format!("'{name}' is not a number"));
    }
    if values.iter().any(|&value| value != first) {
        return Err(format!("its channels have different values of '{name}'"));
    }
    Ok(first)
}

/// An axis of a slice, and its length in the whole array.
struct SliceAxis {
    part: PartAxis,
    length: u64,
}

/// The axes of a slice.
struct SliceAxes {
    times: SliceAxis,
    channels: SliceAxis,
}

/// Returns the axes of the subject if it is a slice.
fn slice_axes(subject: &Subject<'_>) -> Option<SliceAxes> {
    let Some((View::Slice(_), Node::Array { metadata, .. })) = &subject.view else { return None };
    let axis = |part: PartAxis| Some(SliceAxis { part, length: *metadata.shape.get(part.index)? });
    let parts = part_axes(subject)?;
    let (first, last) = (axis(*parts.first()?)?, axis(*parts.last()?)?);
    Some(match subject.layout().order {
        Order::C => SliceAxes { times: first, channels: last },
        Order::F => SliceAxes { times: last, channels: first },
    })
}

/// Reads a property of the channels; `None` if the recording does not have it.
fn property(subject: &Subject<'_>, group: &str, name: &str) -> Option<Result<Vec<f64>, String>> {
    let path = join(group, &format!("properties/{name}"));
    let unreadable = |reason: String| Some(Err(format!("'properties/{name}' cannot be read: {reason}")));
    let node = match subject.surroundings.whole_node(&path) {
        Ok(node) => node?,
        Err(error) => return unreadable(error.to_string()),
    };
    let Node::Array { metadata, .. } = &*node else { return None };
    let numbers = Numbers::for_type(&metadata.data_type);
    let Some(numbers) = numbers.filter(|numbers| {
        !matches!(numbers, Numbers::Complex(_) | Numbers::SmallComplex(..) | Numbers::Time)
    }) else {
        return unreadable("it does not have real numbers".to_owned());
    };
    let size = metadata.flat_size().filter(|&size| size <= MAX_CHANNELS * numbers.size() as u64);
    let Some(size) = size.and_then(|size| usize::try_from(size).ok()) else {
        return unreadable("it is too long".to_owned());
    };
    let mut bytes = vec![0; size];
    let array = subject.arrays.build(&path, metadata, &subject.audience);
    if let Err(error) = array.and_then(|array| array.read_at(0, &mut bytes)) {
        return unreadable(error.to_string());
    }
    let mut values = Vec::new();
    numbers.each(&bytes, subject.arrays.layout().byte_order, |value| values.push(value));
    Some(Ok(values))
}

/// Returns the place of a slice's first time. A slice that leaves out times has another rate.
fn first_sample(subject: &Subject<'_>) -> Result<u64, String> {
    let Some(times) = slice_axes(subject).map(|axes| axes.times.part.selection) else { return Ok(0) };
    if times.step == 1 || times.count == 1 {
        Ok(times.start)
    } else {
        Err("the slice leaves out times".to_owned())
    }
}
