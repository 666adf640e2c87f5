//! The coordinates of a dimension as an index names them: numbers, times or texts.
//!
//! Uses `calendar.rs`; no I/O. docs/views.md has the rules. One value names one element, and its axis is dropped; a date (a year, a
//! month, a day, an hour) and a range keep the axis.

use super::calendar::{Clock, Span};
use super::index::decoded;
use super::refusal::Refusal;
use crate::array::AxisSelection;
use crate::formats::geometry::positions::{PositionValues, Positions, number_text};
use crate::hierarchy::slices::AxisPart;

/// The longest dimension whose coordinates are read.
pub const MAX_LABELS: u64 = 1 << 22;
/// The fraction of a step by which computed positions may deviate.
const TOLERANCE: f64 = 1e-6;
/// How many texts an error message lists.
const MAX_SHOWN: usize = 8;

/// The coordinates of a dimension.
#[derive(Clone, Debug)]
pub enum Labels {
    /// Numbers.
    Numbers {
        /// The values.
        values: Vec<f64>,
        /// How far a value may be from the number that names it.
        tolerance: f64,
        /// Whether they are single-precision floats, to which numbers in an index are rounded.
        is_single: bool,
    },
    /// Microseconds on a clock.
    Times {
        /// The values.
        values: Vec<i64>,
        /// The clock.
        clock: Clock,
        /// Whether some values are not times.
        has_missing: bool,
    },
    /// Texts.
    Texts(Vec<String>),
}

/// The order of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Ascending,
    Descending,
}

/// The values from the lower end to the upper end.
#[derive(Clone, Copy)]
struct Ends<T> {
    low: Option<T>,
    high: Option<T>,
    /// Whether the upper end belongs to it.
    includes_high: bool,
}

/// A range as it is written.
struct RangeText<'a> {
    start: &'a str,
    stop: &'a str,
    step: i64,
}

impl Labels {
    /// Returns the positions of a regular axis, if they are not too many.
    pub fn regular(positions: &Positions) -> Option<Self> {
        let PositionValues::Regular(regular) = positions.values else { return None };
        let values = (positions.length <= MAX_LABELS)
            .then(|| (0..positions.length).map(|index| regular.first + regular.step * index as f64))?;
        let tolerance = regular.step.abs() * TOLERANCE;
        Some(Labels::Numbers { values: values.collect(), tolerance, is_single: false })
    }

    /// Returns the elements that the text after the dimension's name selects.
    pub fn select(&self, name: &str, text: &str) -> Result<AxisPart, Refusal> {
        if self.is_empty() {
            return Err(Refusal::Outside(format!("'{name}' has no elements")));
        }
        if let Some(nearest) = text.strip_prefix('~') {
            return self.nearest(name, nearest.trim());
        }
        if !text.contains(':') {
            return self.one(name, text);
        }
        let range = RangeText::parse(name, text)?;
        let (first, end) = self.range(name, &range)?;
        let selection = stepped(first as u64, (end - first) as u64, range.step);
        Ok(AxisPart { selection, is_dropped: false })
    }

    fn is_empty(&self) -> bool {
        match self {
            Labels::Numbers { values, .. } => values.is_empty(),
            Labels::Times { values, .. } => values.is_empty(),
            Labels::Texts(values) => values.is_empty(),
        }
    }

    fn one(&self, name: &str, text: &str) -> Result<AxisPart, Refusal> {
        let found = match self {
            Labels::Texts(values) => {
                let wanted = decoded(text);
                only(name, text, places(values, |value| *value == wanted))?
            }
            Labels::Numbers { values, tolerance, .. } => {
                let wanted = self.number(name, text)?;
                let is_near = |value: &f64| (value - wanted).abs() <= *tolerance || *value == wanted;
                only(name, text, places(values, is_near))?
            }
            Labels::Times { values, clock, .. } => {
                let span = self.span(name, text, clock)?;
                if span.is_instant {
                    only(name, text, places(values, |value| *value == span.start))?
                } else {
                    let ends = Ends { low: Some(span.start), high: Some(span.end), includes_high: false };
                    let (first, end) = self.between(name, text, values, ends)?;
                    let selection = stepped(first as u64, (end - first) as u64, 1);
                    return Ok(AxisPart { selection, is_dropped: false });
                }
            }
        };
        found.map(AxisPart::single).ok_or_else(|| self.absent(name, text))
    }

    fn nearest(&self, name: &str, text: &str) -> Result<AxisPart, Refusal> {
        let found = match self {
            Labels::Texts(_) => {
                let sentence = format!("'{name}' has texts, and no text is nearest to '{}'", decoded(text));
                return Err(Refusal::Outside(sentence));
            }
            Labels::Numbers { values, .. } => {
                let wanted = self.number(name, text)?;
                let distance = |value: f64| (value - wanted).abs();
                nearest_place(values, distance)
            }
            Labels::Times { values, clock, has_missing } => {
                let start = self.span(name, text, clock)?.start;
                if *has_missing { None } else { nearest_place(values, |value| value.abs_diff(start)) }
            }
        };
        found.map(AxisPart::single).ok_or_else(|| self.absent(name, text))
    }

    /// Returns the first element of a range, and the one after the last.
    fn range(&self, name: &str, text: &RangeText<'_>) -> Result<(usize, usize), Refusal> {
        let shown = format!("{}:{}", text.start, text.stop);
        match self {
            Labels::Texts(values) => {
                let place = |label: &str, open: usize| {
                    if label.is_empty() {
                        return Ok(open);
                    }
                    let wanted = decoded(label);
                    let found = only(name, label, places(values, |value| *value == wanted))?;
                    found.map(|place| place as usize).ok_or_else(|| self.absent(name, label))
                };
                let (first, last) = (place(text.start, 0)?, place(text.stop, values.len() - 1)?);
                if first > last {
                    return Err(Refusal::Outside(format!(
                        "'{name}' has {} after {}: write {1}:{0}",
                        text.start, text.stop
                    )));
                }
                Ok((first, last + 1))
            }
            Labels::Numbers { values, tolerance, .. } => {
                let end = |label: &str| (!label.is_empty()).then(|| self.number(name, label)).transpose();
                let (mut low, mut high) = (end(text.start)?, end(text.stop)?);
                if self.is_exchanged(name, text, direction(values), low > high && high.is_some())? {
                    (low, high) = (high, low);
                }
                let (low, high) = (low.map(|low| low - tolerance), high.map(|high| high + tolerance));
                self.between(name, &shown, values, Ends { low, high, includes_high: true })
            }
            Labels::Times { values, clock, .. } => {
                let end =
                    |label: &str| (!label.is_empty()).then(|| self.span(name, label, clock)).transpose();
                let (mut first, mut last) = (end(text.start)?, end(text.stop)?);
                let is_down = matches!((&first, &last), (Some(first), Some(last)) if first.start >= last.end);
                if self.is_exchanged(name, text, direction(values), is_down)? {
                    (first, last) = (last, first);
                }
                let (low, high) = (first.map(|span| span.start), last.map(|span| span.end));
                self.between(name, &shown, values, Ends { low, high, includes_high: false })
            }
        }
    }

    /// Returns whether the ends of a range are written from high to low. That is allowed only along a descending dimension, or with
    /// a negative step: elsewhere a range such as `350:10` would mean something other than it says.
    fn is_exchanged(
        &self,
        name: &str,
        text: &RangeText<'_>,
        direction: Option<Direction>,
        is_down: bool,
    ) -> Result<bool, Refusal> {
        let RangeText { start, stop, step } = text;
        match direction {
            Some(Direction::Descending) if start.is_empty() != stop.is_empty() => {
                Err(Refusal::Outside(format!("'{name}' descends: give both ends of '{start}:{stop}'")))
            }
            Some(Direction::Ascending) if is_down && *step > 0 => Err(Refusal::Outside(format!(
                "'{name}' ascends, and '{start}:{stop}' descends: write {stop}:{start}"
            ))),
            _ => Ok(is_down),
        }
    }

    fn between<T: PartialOrd + Copy>(
        &self,
        name: &str,
        text: &str,
        values: &[T],
        ends: Ends<T>,
    ) -> Result<(usize, usize), Refusal> {
        let has_missing = matches!(self, Labels::Times { has_missing: true, .. });
        let Some(direction) = direction(values).filter(|_| !has_missing) else {
            return Err(Refusal::Outside(format!(
                "the coordinates of '{name}' are not in order, so '{text}' is not a range of them"
            )));
        };
        let is_below = |value: &T| ends.low.is_some_and(|low| *value < low);
        let is_above = |value: &T| {
            ends.high.is_some_and(|high| *value > high || (!ends.includes_high && *value == high))
        };
        let (first, end) = match direction {
            Direction::Ascending => {
                (values.partition_point(is_below), values.partition_point(|value| !is_above(value)))
            }
            Direction::Descending => {
                (values.partition_point(is_above), values.partition_point(|value| !is_below(value)))
            }
        };
        if first < end { Ok((first, end)) } else { Err(self.absent(name, text)) }
    }

    fn number(&self, name: &str, text: &str) -> Result<f64, Refusal> {
        let number = decoded(text).trim().parse::<f64>().ok().filter(|number| number.is_finite());
        let number = number
            .ok_or_else(|| Refusal::Syntax(format!("'{text}' is not a number: '{name}' {}", self.ends())))?;
        let is_single = matches!(self, Labels::Numbers { is_single: true, .. });
        Ok(if is_single { f64::from(number as f32) } else { number })
    }

    fn span(&self, name: &str, text: &str, clock: &Clock) -> Result<Span, Refusal> {
        clock.span(&decoded(text)).map_err(|reason| Refusal::Syntax(format!("'{name}': {reason}")))
    }

    fn absent(&self, name: &str, text: &str) -> Refusal {
        Refusal::Outside(format!("'{name}' has nothing at '{text}': it {}", self.ends()))
    }

    /// Describes the available coordinates, for an error message.
    fn ends(&self) -> String {
        fn ends<T: Copy>(values: &[T]) -> Option<(T, T)> {
            Some((*values.first()?, *values.last()?))
        }
        let shown = match self {
            Labels::Numbers { values, .. } => {
                ends(values).map(|(first, last)| (number_text(first), number_text(last)))
            }
            Labels::Times { values, clock, .. } => {
                ends(values).map(|(first, last)| (clock.text(first), clock.text(last)))
            }
            Labels::Texts(values) => {
                let shown: Vec<&str> = values.iter().take(MAX_SHOWN).map(String::as_str).collect();
                let more = if values.len() > MAX_SHOWN { ", …" } else { "" };
                return format!("has {}{more}", shown.join(", "));
            }
        };
        shown.map_or("has no elements".to_owned(), |(first, last)| format!("goes from {first} to {last}"))
    }
}

impl<'a> RangeText<'a> {
    fn parse(name: &str, text: &'a str) -> Result<Self, Refusal> {
        let parts: Vec<&str> = text.split(':').map(str::trim).collect();
        let is_time_of_day = |pair: &[&str]| matches!(pair, [before, after] if before.contains('T') && after.len() == 2 && after.parse::<u8>().is_ok());
        if parts.windows(2).any(is_time_of_day) {
            let sentence = format!("'{name}={text}': write times of day without colons, as 2001-03-01T1230");
            return Err(Refusal::Syntax(sentence));
        }
        let (start, stop, step) = match parts.as_slice() {
            [start, stop] => (*start, *stop, "1"),
            [start, stop, step] => (*start, *stop, *step),
            _ => {
                let sentence = format!("'{name}={text}' is not a range: write START:STOP or START:STOP:STEP");
                return Err(Refusal::Syntax(sentence));
            }
        };
        match if step.is_empty() { Ok(1) } else { step.parse::<i64>() } {
            Ok(0) => Err(Refusal::Outside(format!("'{name}={text}' has a step of zero"))),
            Ok(step) => Ok(RangeText { start, stop, step }),
            Err(_) => Err(Refusal::Syntax(format!("'{name}={text}': the step '{step}' is not an integer"))),
        }
    }
}

/// Returns every `step`th of some elements, backwards if the step is negative.
fn stepped(first: u64, count: u64, step: i64) -> AxisSelection {
    let start = if step < 0 { first + count.saturating_sub(1) } else { first };
    let count = count.div_ceil(step.unsigned_abs().max(1));
    AxisSelection { start, step: if count > 1 { step } else { 1 }, count }
}

fn places<T>(values: &[T], is_wanted: impl Fn(&T) -> bool) -> impl Iterator<Item = u64> {
    values.iter().enumerate().filter(move |(_, value)| is_wanted(value)).map(|(place, _)| place as u64)
}

/// Returns the only place, if there is exactly one. A coordinate that several elements share does not identify an element.
fn only(name: &str, text: &str, mut places: impl Iterator<Item = u64>) -> Result<Option<u64>, Refusal> {
    let first = places.next();
    match places.count() {
        0 => Ok(first),
        more => {
            Err(Refusal::Outside(format!("'{name}' has {} elements at '{text}': give a position", more + 1)))
        }
    }
}

/// Returns the place of the value with the smallest distance; the larger value of two.
fn nearest_place<T: PartialOrd + Copy, D: PartialOrd>(
    values: &[T],
    distance: impl Fn(T) -> D,
) -> Option<u64> {
    let mut best: Option<(usize, T)> = None;
    for (place, &value) in values.iter().enumerate().filter(|(_, value)| value.partial_cmp(value).is_some()) {
        let is_better = best.is_none_or(|(_, known)| {
            let (new, old) = (distance(value), distance(known));
            new < old || (new == old && value > known)
        });
        if is_better {
            best = Some((place, value));
        }
    }
    best.map(|(place, _)| place as u64)
}

/// Returns the order of values; `None` if they are not in order, or if one of them is not a number.
fn direction<T: PartialOrd>(values: &[T]) -> Option<Direction> {
    let are_all = |is_right: &dyn Fn(&T, &T) -> bool| {
        values.windows(2).all(|pair| matches!(pair, [one, two] if is_right(one, two)))
    };
    if values.iter().any(|value| value.partial_cmp(value).is_none()) {
        None
    } else if are_all(&|one, two| one <= two) {
        Some(Direction::Ascending)
    } else {
        are_all(&|one, two| one >= two).then_some(Direction::Descending)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn numbers(values: &[f64]) -> Labels {
        Labels::Numbers { values: values.to_vec(), tolerance: 0.0, is_single: false }
    }

    fn texts(values: &[&str]) -> Labels {
        Labels::Texts(values.iter().map(|text| (*text).to_owned()).collect())
    }

    fn found(labels: &Labels, text: &str) -> Result<(u64, i64, u64, bool), String> {
        match labels.select("x", text) {
            Ok(AxisPart { selection, is_dropped }) => {
                Ok((selection.start, selection.step, selection.count, is_dropped))
            }
            Err(Refusal::Syntax(sentence) | Refusal::Outside(sentence)) => Err(sentence),
            Err(Refusal::Failed(error)) => Err(error.to_string()),
        }
    }

    #[test]
    fn numbers_up_and_down() {
        let (up, down) = (numbers(&[-1.0, 0.0, 1.5, 3.0]), numbers(&[3.0, 1.5, 0.0, -1.0]));
        assert_eq!(found(&up, "1.5"), Ok((2, 1, 1, true)));
        assert_eq!(found(&up, "-0.5:2"), Ok((1, 1, 2, false)));
        assert_eq!(found(&up, "0:3:2"), Ok((1, 2, 2, false)));
        assert_eq!(found(&up, "3:0:-2"), Ok((3, -2, 2, false)));
        assert_eq!(found(&up, ":"), Ok((0, 1, 4, false)));
        assert_eq!(found(&up, "1:"), Ok((2, 1, 2, false)));
        assert_eq!(found(&down, "0:2"), Ok((1, 1, 2, false)));
        assert_eq!(found(&down, "2:0"), Ok((1, 1, 2, false)));
        assert_eq!(found(&down, "~0.75"), Ok((1, 1, 1, true)), "the larger of two");
        assert_eq!(found(&up, "~99"), Ok((3, 1, 1, true)));
        for (labels, text, part) in [
            (&up, "2", "goes from -1 to 3"),
            (&up, "4:5", "goes from -1 to 3"),
            (&up, "2:1", "ascends"),
            (&down, "1:", "descends: give both ends"),
            (&up, "a", "not a number"),
            (&up, "0:1:0", "step of zero"),
            (&up, "0:1:2:3", "is not a range"),
            (&up, "0:1:x", "is not an integer"),
            (&numbers(&[0.0, 2.0, 1.0]), "0:1", "not in order"),
            (&numbers(&[0.0, f64::NAN]), "0:1", "not in order"),
            (&numbers(&[1.0, 1.0]), "1", "has 2 elements"),
            (&numbers(&[]), "1", "has no elements"),
        ] {
            let sentence = found(labels, text).unwrap_err();
            assert!(sentence.contains(part), "{text}: {sentence}");
        }
        assert_eq!(found(&numbers(&[1.0, 1.0, 2.0]), "1:1"), Ok((0, 1, 2, false)));
    }

    #[test]
    fn texts_by_their_names() {
        let channels = texts(&["DAPI", "GFP", "a,b"]);
        assert_eq!(found(&channels, "GFP"), Ok((1, 1, 1, true)));
        assert_eq!(found(&channels, "a%2Cb"), Ok((2, 1, 1, true)));
        assert_eq!(found(&channels, "DAPI:GFP"), Ok((0, 1, 2, false)));
        assert_eq!(found(&channels, "GFP:"), Ok((1, 1, 2, false)));
        assert!(found(&channels, "gfp").unwrap_err().contains("has DAPI, GFP, a,b"));
        assert!(found(&channels, "GFP:DAPI").unwrap_err().contains("write DAPI:GFP"));
        assert!(found(&channels, "~GFP").is_err());
        assert!(found(&texts(&["a", "a"]), "a").is_err());
    }

    #[test]
    fn times_of_day_have_no_colons() {
        let clock = Clock::parse("hours since 2001-01-01", None).unwrap();
        let values = (0..48).map(|hour| clock.instant(hour.into()).unwrap()).collect();
        let times = Labels::Times { values, clock, has_missing: false };
        assert_eq!(found(&times, "2001-01-02"), Ok((24, 1, 24, false)));
        assert_eq!(found(&times, "2001-01-01T1200"), Ok((12, 1, 1, true)));
        assert_eq!(found(&times, "2001-01-01T12:2001-01-01T13"), Ok((12, 1, 2, false)));
        assert_eq!(found(&times, "~2001-01-01T1231"), Ok((13, 1, 1, true)));
        assert!(found(&times, "2001-01-01T12:30").unwrap_err().contains("without colons"));
        assert!(found(&times, "2002").unwrap_err().contains("goes from 2001-01-01 to 2001-01-02T2300"));
    }
}
