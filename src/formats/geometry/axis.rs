//! The axes of arrays, and the attributes that describe them.

use serde_json::{Map, Value};

use crate::array::AxisSelection;

/// The kind of an axis.
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
    /// Returns whether the axis is a direction in space.
    pub fn is_space(self) -> bool {
        matches!(self, AxisKind::X | AxisKind::Y | AxisKind::Z)
    }

    /// Returns the kind of an axis from its dimension name. Only names that mean the same everywhere count.
    pub fn from_name(name: &str) -> Self {
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
    /// The distance of two elements, which is not 0.
    pub step: f64,
}

impl Regular {
    /// Returns a regular axis if both numbers are finite and the step is not 0.
    pub fn new(first: f64, step: f64) -> Option<Self> {
        (first.is_finite() && step.is_finite() && step != 0.0).then_some(Regular { first, step })
    }

    /// Returns the positions of some of the elements.
    pub fn part(self, selection: AxisSelection) -> Option<Self> {
        let first = self.first + self.step * selection.start as f64;
        Regular::new(first, self.step * selection.step as f64)
    }
}

/// One axis of an array.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// Its name, if that is plain text.
    pub name: Option<String>,
    /// Its kind.
    pub kind: AxisKind,
    /// The positions of its elements, if they are regular.
    pub regular: Option<Regular>,
    /// The unit of the positions, if that is plain text.
    pub unit: Option<String>,
    /// The CF calendar of a time axis.
    pub calendar: Option<String>,
}

impl Axis {
    /// Returns the axis with some of its elements.
    pub fn part(&self, selection: AxisSelection) -> Self {
        Axis { regular: self.regular.and_then(|regular| regular.part(selection)), ..self.clone() }
    }
}

/// Reads a list of exactly `count` finite numbers.
pub(super) fn numbers(value: &Value, count: usize) -> Option<Vec<f64>> {
    let values = value.as_array().filter(|values| values.len() == count)?;
    values.iter().map(|value| value.as_f64().filter(|number| number.is_finite())).collect()
}

/// Reads a unit, if it is plain text.
pub(super) fn unit(value: &Value) -> Option<String> {
    value.as_str().and_then(plain_text).map(str::to_owned)
}

/// Returns an attribute that is a string.
pub(super) fn text<'a>(attributes: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    attributes.get(name).and_then(Value::as_str)
}

/// Returns a text if it can stand on one line of any header as it is: short, without quotes, backslashes, braces and control characters.
pub fn plain_text(text: &str) -> Option<&str> {
    const MAX_BYTES: usize = 128;
    let is_plain = |c: char| {
        !(c.is_control() || matches!(c, '"' | '\'' | '\\' | '{' | '}' | '<' | '>' | '\u{2028}' | '\u{2029}'))
    };
    let text = text.trim();
    (!text.is_empty() && text.len() <= MAX_BYTES && text.chars().all(is_plain)).then_some(text)
}
