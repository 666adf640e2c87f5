//! The positions of an array's elements along its axes, for people: ranges, labels of a picture.
//!
//! Uses the other files of this folder. Unlike companion files it also has irregular coordinates, and the first and the last value of a
//! coordinate that is too long to be read.

use std::sync::Arc;

use super::axis::{AxisKind, Regular, text};
use super::source::{GeometrySource, PartAxis, part_axes, whole};
use super::times::CalendarClock;
use super::{Geometry, coordinates};
use crate::array::AxisSelection;
use crate::formats::Subject;
use crate::formats::numbers::{Numbers, time_text};
use crate::hierarchy::Node;
use crate::metadata::{ArrayMetadata, DataType};

/// The longest coordinate that is read as a whole, in bytes.
const MAX_COORDINATE_BYTES: u64 = 8 << 20;

/// The positions along one axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Positions {
    /// The name of the axis.
    pub name: Option<String>,
    /// The kind of the axis.
    pub kind: AxisKind,
    /// The unit of the values.
    pub unit: Option<String>,
    /// The length of the axis.
    pub length: u64,
    /// The CF calendar of times.
    pub calendar: Option<String>,
    /// The type of the values of a coordinate.
    pub data_type: Option<DataType>,
    /// The values.
    pub values: PositionValues,
}

/// The known values along an axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum PositionValues {
    /// Nothing is known.
    #[default]
    Unknown,
    /// The coordinate is packed.
    Packed,
    /// All values, which are regular.
    Regular(Regular),
    /// All values.
    Listed(Vec<f64>),
    /// The first and the last value of a coordinate that is too long to be read.
    Ends(f64, f64),
}

/// Returns the positions along every axis of a subject's array. Reads small neighbouring arrays, and nothing of the array itself.
pub fn for_subject(subject: &Subject<'_>) -> Vec<Positions> {
    let Node::Array { metadata, .. } = whole(subject) else { return Vec::new() };
    let geometry = Geometry::from_whole_subject(subject);
    let group = match subject.path.rsplit_once('/') {
        _ if subject.path.is_empty() => None,
        Some((group, _)) => Some(group),
        None => Some(""),
    };
    let source = GeometrySource { subject, metadata, group };
    let names = metadata.dimension_names.as_deref().unwrap_or_default();
    let axis = |(index, &length): (usize, &u64)| {
        let axis = geometry.axis(index).clone();
        let own_name = names.get(index).and_then(Option::as_deref);
        let positions = Positions {
            name: axis.name.or_else(|| own_name.map(str::to_owned)),
            kind: axis.kind,
            unit: axis.unit,
            calendar: axis.calendar,
            length,
            data_type: None,
            values: axis.regular.map_or(PositionValues::Unknown, PositionValues::Regular),
        };
        let is_unknown = positions.values == PositionValues::Unknown;
        let found =
            own_name.filter(|_| is_unknown).and_then(|name| coordinate_positions(&source, name, index));
        match found {
            Some(found) => Positions { name: positions.name, ..found },
            None => positions,
        }
    };
    let positions: Vec<_> = metadata.shape.iter().enumerate().map(axis).collect();
    match part_axes(subject) {
        Some(parts) => parts
            .into_iter()
            .filter_map(|PartAxis { index, selection }| Some(positions.get(index)?.part(selection)))
            .collect(),
        None => positions,
    }
}

/// Returns the values of the coordinate of this name.
fn coordinate_positions(source: &GeometrySource<'_>, name: &str, index: usize) -> Option<Positions> {
    let (path, metadata) = coordinates::coordinate(source, name, index)?;
    let attribute = |name: &str| text(&metadata.attributes, name).map(str::to_owned);
    let is_packed = ["scale_factor", "add_offset"].iter().any(|name| metadata.attributes.contains_key(*name));
    Some(Positions {
        name: None,
        kind: coordinates::kind(&metadata, name),
        unit: attribute("units"),
        length: *metadata.shape.first()?,
        calendar: attribute("calendar"),
        data_type: Some(metadata.data_type.clone()),
        values: if is_packed { PositionValues::Packed } else { values(source, &path, &metadata)? },
    })
}

fn values(source: &GeometrySource<'_>, path: &str, metadata: &Arc<ArrayMetadata>) -> Option<PositionValues> {
    let numbers = Numbers::for_type(&metadata.data_type)
        .filter(|numbers| !matches!(numbers, Numbers::Complex(_) | Numbers::SmallComplex(..)))?;
    let subject = source.subject;
    let order = subject.layout().byte_order;
    let array = subject.arrays.build(path, metadata, &subject.audience).ok()?;
    let read = |offset: u64, length: u64| {
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        array.read_at(offset, &mut bytes).ok()?;
        let mut values = Vec::new();
        numbers.each(&bytes, order, |value| values.push(value));
        Some(values)
    };
    let (size, item) = (metadata.flat_size()?, numbers.size() as u64);
    if size <= MAX_COORDINATE_BYTES {
        return Some(PositionValues::Listed(read(0, size)?));
    }
    let (first, last) = (read(0, item)?, read(size - item, item)?);
    Some(PositionValues::Ends(*first.first()?, *last.first()?))
}

impl Positions {
    /// Returns the positions of some of the elements.
    pub fn part(&self, selection: AxisSelection) -> Self {
        let at = |place: u64| self.at(selection.element(place));
        let count = selection.count;
        let is_all = selection == AxisSelection { start: 0, step: 1, count: self.length };
        let values = match &self.values {
            values if is_all => values.clone(),
            PositionValues::Regular(regular) => {
                regular.part(selection).map_or(PositionValues::Unknown, PositionValues::Regular)
            }
            PositionValues::Listed(_) => PositionValues::Listed((0..count).filter_map(at).collect()),
            PositionValues::Ends(..) => match (at(0), at(count.saturating_sub(1))) {
                (Some(first), Some(last)) if count > 0 => PositionValues::Ends(first, last),
                _ => PositionValues::Unknown,
            },
            PositionValues::Unknown | PositionValues::Packed => self.values.clone(),
        };
        Positions { length: count, values, ..self.clone() }
    }

    /// Returns the position of an element, where known.
    pub fn at(&self, index: u64) -> Option<f64> {
        match &self.values {
            PositionValues::Unknown | PositionValues::Packed => None,
            PositionValues::Regular(regular) => Some(regular.first + regular.step * index as f64),
            PositionValues::Listed(values) => values.get(usize::try_from(index).ok()?).copied(),
            PositionValues::Ends(first, _) if index == 0 => Some(*first),
            PositionValues::Ends(_, last) if index + 1 == self.length => Some(*last),
            PositionValues::Ends(..) => None,
        }
    }

    /// Returns the distance of two neighbours, if it is constant.
    pub fn step(&self) -> Option<f64> {
        match self.values {
            PositionValues::Regular(regular) => Some(regular.step),
            _ => None,
        }
    }

    /// Returns a position as text: a date if the unit is one of time, otherwise the shortest number that is exact to seven digits.
    pub fn text(&self, value: f64) -> String {
        if let Some(DataType::DateTime64(unit)) = &self.data_type
            && value.is_finite()
            && let Some(text) = time_text(value as i64, unit)
        {
            return text;
        }
        let date = self.unit.as_deref().and_then(|unit| CalendarClock::parse(unit, self.calendar.as_deref()));
        date.and_then(|clock| clock.text(value)).unwrap_or_else(|| number_text(value))
    }

    /// Returns whether later elements lie further north, so that people expect the last one at the top.
    pub fn is_northward(&self) -> bool {
        let is_north = self.unit.as_deref().is_some_and(|unit| {
            ["degrees_north", "degree_north", "degrees_N", "degree_N", "degreesN", "degreeN"].contains(&unit)
        });
        let ends = self.at(0).zip(self.at(self.length.saturating_sub(1)));
        is_north && ends.is_some_and(|(first, last)| first < last)
    }

    /// Returns whether [`Positions::text`] returns dates, which need no unit.
    pub fn has_dates(&self) -> bool {
        let by_unit =
            self.unit.as_deref().and_then(|unit| CalendarClock::parse(unit, self.calendar.as_deref()));
        by_unit.is_some() || matches!(self.data_type, Some(DataType::DateTime64(_)))
    }
}

/// Returns the shortest text of a number that is exact to seven digits.
pub fn number_text(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() { "NaN".to_owned() } else { format!("{value}") };
    }
    let rounded: f64 = format!("{value:.6e}").parse().unwrap_or(value);
    let magnitude = rounded.abs();
    if magnitude != 0.0 && !(1e-4..1e9).contains(&magnitude) {
        format!("{rounded:e}")
    } else {
        format!("{rounded}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.1 + 0.2, "0.3"),
            (-89.5, "-89.5"),
            (239.663_345_336_914_06, "239.6633"),
            (0.0, "0"),
            (1e20, "1e20"),
            (2.5e-7, "2.5e-7"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(number_text(value), text);
        }
    }
}
