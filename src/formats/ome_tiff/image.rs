//! The image of a group: its planes, levels and channels, and the reasons why others have no file.
//!
//! Spec: ngff.openmicroscopy.org, "multiscales" and "omero" metadata. All numbers and texts in the attributes are checked here, and bounded.

use serde_json::Value;

use crate::error::Error;
use crate::formats::Subject;
use crate::formats::flat_array::FlatArray;
use crate::formats::geometry::axis::Axis;
use crate::formats::geometry::multiscales::{self, ImageLevel};
use crate::formats::geometry::{AxisKind, metres};
use crate::hierarchy::{Node, View};
use crate::metadata::data_type::numeric::NumericType;
use crate::store::join;

/// The most channels.
pub const MAX_CHANNELS: u64 = 1024;
/// The longest name of a channel.
const MAX_NAME_CHARACTERS: usize = 128;
/// The longest reason why a level is left out.
const MAX_REASON_CHARACTERS: usize = 256;
/// What a level is that cannot be shown.
const NOT_NUMBERS: &str = "is not an array of numbers, or some users who may read the group may not read it";
/// The most bytes of a level.
const MAX_LEVEL_BYTES: u64 = 1 << 56;

/// Why a group has no file.
pub enum ImageRefusal {
    /// OME-TIFF cannot express it.
    NotExpressible(String),
    /// Its arrays could not be looked up.
    Failed(Error),
}

impl ImageRefusal {
    /// Returns the error of an open.
    pub fn into_error(self, key: &str) -> Error {
        match self {
            ImageRefusal::NotExpressible(reason) => Error::unsupported(key, format!("in OME-TIFF: {reason}")),
            ImageRefusal::Failed(error) => error,
        }
    }
}

impl From<Error> for ImageRefusal {
    fn from(error: Error) -> Self {
        ImageRefusal::Failed(error)
    }
}

/// An image as OME-TIFF has it.
pub struct OmeImage {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub number: NumericType,
    /// Whether the most significant byte comes first.
    pub is_big_endian: bool,
    /// The axes of its planes, the fastest first.
    pub plane_axes: Vec<PlaneAxis>,
    /// The positions along X and Y.
    pub x: Axis,
    /// See `x`.
    pub y: Axis,
    /// Its arrays, the largest first.
    pub levels: Vec<OmeLevel>,
    /// Its channels, as far as they are described.
    pub channels: Vec<OmeChannel>,
    /// The levels that the file cannot have, with the reasons.
    pub left_out_levels: Vec<String>,
}

/// An axis along which planes follow each other.
pub struct PlaneAxis {
    /// The axis: T, C or Z.
    pub axis: Axis,
    /// The number of elements.
    pub length: u64,
}

/// An array of the pyramid.
pub struct OmeLevel {
    /// Its path in the store.
    pub path: String,
    /// The columns of a plane.
    pub width: u64,
    /// The rows of a plane.
    pub height: u64,
    /// The bytes of all planes.
    pub size_bytes: u64,
}

/// A channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OmeChannel {
    /// Its name.
    pub name: Option<String>,
    /// Red, green and blue.
    pub colour: Option<[u8; 3]>,
    /// The values that are shown as black and as its colour.
    pub window: Option<[f64; 2]>,
}

impl OmeImage {
    /// Returns the image that a group describes.
    pub fn from_subject(subject: &Subject<'_>) -> Result<Self, ImageRefusal> {
        let cannot = |reason: &str| ImageRefusal::NotExpressible(reason.to_owned());
        let Node::Group { metadata, .. } = subject.node else { return Err(cannot("it is not a group")) };
        // Another part of each level would be selected.
        if matches!(subject.view, Some((View::Slice(_), _))) {
            return Err(cannot("a slice of an image has no file: 'tiff' has slices of its arrays"));
        }
        let described = multiscales::image(&metadata.attributes);
        let described = described.ok_or_else(|| cannot("its attributes do not describe an image"))?;
        let mut levels = described.levels.iter();
        let first = levels.next().ok_or_else(|| cannot("its attributes name no array"))?;
        let array = level_array(subject, first)?
            .ok_or_else(|| ImageRefusal::NotExpressible(format!("'{}' {NOT_NUMBERS}", first.path)))?;
        if pixel_type(array.number).is_none() {
            return Err(cannot("its elements are integers of 64 bits or half-precision floats"));
        }
        let planes = Planes::new(first, &array)?;
        let name = described.name.unwrap_or_else(|| {
            let name = subject.path.rsplit('/').next().filter(|name| !name.is_empty());
            short_text(name.unwrap_or(subject.root_name))
        });
        let mut image = OmeImage {
            name,
            number: array.number,
            is_big_endian: array.is_big_endian,
            plane_axes: planes.leading,
            x: planes.x,
            y: planes.y,
            levels: vec![level(subject, first, &array)],
            channels: channels(
                metadata
                    .attributes
                    .get("ome")
                    .and_then(|ome| ome.get("omero"))
                    .or_else(|| metadata.attributes.get("omero")),
            ),
            left_out_levels: Vec::new(),
        };
        for smaller in levels {
            let found = smaller_array(subject, smaller)?.and_then(|found| {
                let has_planes = image.has_level(&array, &found);
                if has_planes { Ok(found) } else { Err("it does not have the same planes".to_owned()) }
            });
            match found {
                Ok(found) => image.levels.push(level(subject, smaller, &found)),
                Err(reason) => {
                    let name = short_text(&smaller.path);
                    image.left_out_levels.push(format!("{name} ({})", reason_text(&reason)));
                }
            }
        }
        if image.length(AxisKind::Channel) > MAX_CHANNELS {
            return Err(cannot("it has more than 1,024 channels"));
        }
        if image.levels[0].width.max(image.levels[0].height) > u64::from(u32::MAX) {
            return Err(cannot("its planes have more than 4,294,967,295 rows or columns"));
        }
        if image.levels.iter().any(|level| level.size_bytes > MAX_LEVEL_BYTES) {
            return Err(cannot("it has more than 2^56 bytes"));
        }
        Ok(image)
    }

    /// Returns whether an array can be the next level: the same planes, with fewer pixels.
    fn has_level(&self, first: &FlatArray, array: &FlatArray) -> bool {
        let Some(before) = self.levels.last() else { return false };
        let has_same_planes =
            array.axes.len() == first.axes.len() && array.lengths().skip(2).eq(first.lengths().skip(2));
        let (width, height) = (array.length(0), array.length(1));
        let is_smaller = width <= before.width
            && height <= before.height
            && (width, height) != (before.width, before.height);
        array.number == first.number && has_same_planes && is_smaller
    }

    /// Returns the number of planes.
    pub fn plane_count(&self) -> u64 {
        self.plane_axes.iter().fold(1, |count, axis| count.saturating_mul(axis.length))
    }

    /// Returns the bytes of a plane of a level.
    pub fn plane_bytes(&self, level: &OmeLevel) -> u64 {
        level.size_bytes / self.plane_count().max(1)
    }

    /// Returns the number of elements along an axis of planes.
    pub fn length(&self, kind: AxisKind) -> u64 {
        self.plane_axis(kind).map_or(1, |axis| axis.length)
    }

    /// Returns an axis of planes.
    pub fn plane_axis(&self, kind: AxisKind) -> Option<&PlaneAxis> {
        self.plane_axes.iter().find(|axis| axis.axis.kind == kind)
    }

    /// Returns a channel, without a description if there is none.
    pub fn channel(&self, index: u64) -> OmeChannel {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        self.channels.get(index).cloned().unwrap_or_default()
    }
}

/// Returns OME's name of a type.
pub fn pixel_type(number: NumericType) -> Option<&'static str> {
    Some(match number {
        NumericType::I8 => "int8",
        NumericType::U8 => "uint8",
        NumericType::I16 => "int16",
        NumericType::U16 => "uint16",
        NumericType::I32 => "int32",
        NumericType::U32 => "uint32",
        NumericType::F32 => "float",
        NumericType::F64 => "double",
        NumericType::C64 => "complex",
        NumericType::C128 => "double-complex",
        NumericType::Bool | NumericType::I64 | NumericType::U64 | NumericType::F16 => return None,
    })
}

/// Returns the distance of two elements in micrometres, if its unit is one of length.
pub fn micrometres(axis: &Axis) -> Option<f64> {
    let step = axis.regular?.step.abs();
    let micrometres = step * (metres(axis.unit.as_deref()?)? / 1e-6);
    (micrometres.is_finite() && micrometres > 0.0).then_some(micrometres)
}

/// Returns the time between two elements in seconds, if its unit is one of time.
pub fn seconds(axis: &Axis) -> Option<f64> {
    let factor = match time_unit(axis)? {
        "ns" => 1e-9,
        "µs" => 1e-6,
        "ms" => 1e-3,
        "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => 1.0,
    };
    Some(axis.regular?.step.abs() * factor)
}

/// Returns OME's name of the unit of an axis of time.
pub fn time_unit(axis: &Axis) -> Option<&'static str> {
    Some(match axis.unit.as_deref()? {
        "nanosecond" | "nanoseconds" | "ns" => "ns",
        "microsecond" | "microseconds" | "us" | "µs" => "µs",
        "millisecond" | "milliseconds" | "ms" => "ms",
        "second" | "seconds" | "s" => "s",
        "minute" | "minutes" | "min" => "min",
        "hour" | "hours" | "h" => "h",
        "day" | "days" | "d" => "d",
        _ => return None,
    })
}

/// The axes of an image.
struct Planes {
    x: Axis,
    y: Axis,
    leading: Vec<PlaneAxis>,
}

impl Planes {
    fn new(level: &ImageLevel, array: &FlatArray) -> Result<Self, ImageRefusal> {
        let cannot = |reason: String| Err(ImageRefusal::NotExpressible(reason));
        if array.axes.len() != level.axes.len() {
            return cannot(format!("'{}' has another number of axes than the attributes", level.path));
        }
        let mut axes =
            array.axes.iter().filter_map(|axis| Some((level.axes.get(axis.index)?.clone(), axis.length)));
        let (x, y) = match (axes.next(), axes.next()) {
            (Some((x, _)), Some((y, _))) if (x.kind, y.kind) == (AxisKind::X, AxisKind::Y) => (x, y),
            _ => return cannot("the fastest axes of its array are not X and Y".to_owned()),
        };
        let mut leading: Vec<PlaneAxis> = Vec::new();
        for (axis, length) in axes {
            let name = axis.name.clone().unwrap_or_default();
            if !matches!(axis.kind, AxisKind::Time | AxisKind::Channel | AxisKind::Z) {
                return cannot(format!("its axis '{name}' is not T, C, Z, Y or X"));
            }
            if leading.iter().any(|other| other.axis.kind == axis.kind) {
                return cannot(format!("its axis '{name}' is the second of its kind"));
            }
            leading.push(PlaneAxis { axis, length });
        }
        Ok(Planes { x, y, leading })
    }
}

/// Returns the array of a level, if it has numbers and all users who may read the group may read it.
fn level_array(subject: &Subject<'_>, level: &ImageLevel) -> Result<Option<FlatArray>, ImageRefusal> {
    let node = subject.surroundings.node(&join(subject.path, &level.path))?;
    Ok(node.and_then(|node| FlatArray::from_node(&node, subject.layout())))
}

/// Returns the array of a smaller level, or the reason why the file is without it. Only a store that is too slow makes the whole file
/// fail, because the next attempt may have the level.
fn smaller_array(
    subject: &Subject<'_>,
    level: &ImageLevel,
) -> Result<Result<FlatArray, String>, ImageRefusal> {
    let path = join(subject.path, &level.path);
    let found = subject.surroundings.node(&path).and_then(|node| match node.as_deref() {
        Some(Node::Broken { error, .. }) => Err(error.clone()),
        Some(node) => match FlatArray::from_node(node, subject.layout()) {
            Some(array) => subject.surroundings.open_array(&path).map(|_| Some(array)),
            None => Ok(None),
        },
        None => Ok(None),
    });
    match found {
        Ok(Some(array)) => Ok(Ok(array)),
        Ok(None) => Ok(Err(format!("it {NOT_NUMBERS}"))),
        Err(error @ (Error::TimedOut { .. } | Error::Cancelled { .. })) => Err(error.into()),
        Err(error) => Ok(Err(error.to_string())),
    }
}

fn level(subject: &Subject<'_>, level: &ImageLevel, array: &FlatArray) -> OmeLevel {
    let path = join(subject.path, &level.path);
    OmeLevel { path, width: array.length(0), height: array.length(1), size_bytes: array.size_bytes }
}

fn channels(omero: Option<&Value>) -> Vec<OmeChannel> {
    let channels = omero.and_then(|omero| omero.get("channels")).and_then(Value::as_array);
    channels.into_iter().flatten().take(MAX_CHANNELS as usize).map(channel).collect()
}

fn channel(described: &Value) -> OmeChannel {
    let label = described.get("label").and_then(Value::as_str).map(short_text);
    let colour = described.get("color").and_then(Value::as_str).and_then(colour);
    let end = |name: &str| described.get("window")?.get(name)?.as_f64().filter(|value| value.is_finite());
    let window = end("start").zip(end("end")).filter(|(start, end)| start < end);
    OmeChannel {
        name: label.filter(|name| !name.is_empty()),
        colour,
        window: window.map(|(start, end)| [start, end]),
    }
}

/// Returns a name, without control characters and not too long.
fn short_text(text: &str) -> String {
    plain_start(text, MAX_NAME_CHARACTERS)
}

fn reason_text(text: &str) -> String {
    plain_start(text, MAX_REASON_CHARACTERS)
}

/// Returns the first characters of a text, without control characters.
fn plain_start(text: &str, characters: usize) -> String {
    let is_plain =
        |character: &char| !character.is_control() && !matches!(character, '\u{fffe}' | '\u{ffff}');
    text.trim().chars().filter(is_plain).take(characters).collect()
}

/// Reads `00FF7F`.
fn colour(text: &str) -> Option<[u8; 3]> {
    let digits = text.trim_start_matches('#');
    let number = u32::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 6 && digits.is_ascii())?;
    let [_, red, green, blue] = number.to_be_bytes();
    Some([red, green, blue])
}
