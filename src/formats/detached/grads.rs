//! `grads`: a descriptor of text beside the array's own file, for GrADS and CDO (`import_binary`).
//!
//! Spec: cola.gmu.edu/grads, "Elements of a GrADS Data Descriptor File". Two axes are (y, x), three (time, y, x) or, if the
//! slowest is Z, (z, y, x), four (time, z, y, x). Axes of unknown or unsuitable steps are counted from 1.
//!
//! ```text
//! DSET ^temperature
//! XDEF 360 LINEAR 0.5 1.0
//! ```
//!
//! Times are written where the axis counts minutes, hours or days of the Gregorian or the 365-day calendar in whole minutes;
//! otherwise they are days from 1 January of the year 1. Absent: types but float32, 8- and 16-bit integers and int32 (uint8,
//! uint16, int16), other ranks.

use super::data_names::data_name;
use crate::array::Layout;
use crate::error::Result;
use crate::formats::flat_array::{FlatArray, Number, beside_array};
use crate::formats::geometry::times::{Clock, MINUTES_OF_DAY};
use crate::formats::geometry::{self, Axis, AxisKind, Geometry, Regular};
use crate::formats::{Content, Format, Role, Subject, json};
use crate::hierarchy::Node;

/// `grads`.
pub const FORMAT: Format = Format {
    name: "grads",
    suffix: ".ctl",
    holds: "uint8, uint16, int16, int32 and float32, along 2 to 4 axes longer than 0",
    not_beside: None,
    group_file: None,
    role: Role::Detached,
    expresses: |node, layout| expressed(node, layout).is_some(),
    check: None,
    left_out: Some(|node, _| geometry::left_out(node, &["_FillValue", "missing_value", "nodata"])),
    info: Some(json::documents_info),
    open,
};

/// The longest name of a variable.
const MAX_NAME_BYTES: usize = 15;
/// What no element is, where nothing says what elements without data are.
const UNDEFINED: f64 = -9.99e33;

fn expressed(node: &Node, layout: Layout) -> Option<FlatArray> {
    let fits = |array: &FlatArray| {
        (2..=4).contains(&array.axes.len())
            && array.lengths().all(|length| i32::try_from(length).is_ok())
            && units_of(array.number).is_some()
    };
    FlatArray::of(node, layout).filter(fits)
}

/// GrADS' code of the type.
fn units_of(number: Number) -> Option<&'static str> {
    Some(match number {
        Number::F32 => "99",
        Number::U8 => "-1,40,1",
        Number::U16 => "-1,40,2",
        Number::I16 => "-1,40,2,-1",
        Number::I32 => "-1,40,4",
        _ => return None,
    })
}

fn open(subject: &Subject<'_>) -> Result<Content> {
    let array = FlatArray::of_subject(subject)?;
    let geometry = Geometry::of(subject);
    let axis = |place: usize| array.axes.get(place).map(|axis| geometry.axis(axis.index));
    let is_height = array.axes.len() == 3 && axis(2).is_some_and(|axis| axis.kind == AxisKind::Z);
    let (z, t) = match array.axes.len() {
        4 => (Some(2), Some(3)),
        3 if is_height => (Some(2), None),
        3 => (None, Some(2)),
        _ => (None, None),
    };
    let length = |place: Option<usize>| place.map_or(1, |place| array.length(place));
    let regular = |place: Option<usize>| axis(place?)?.regular;
    let y = regular(Some(1));
    let is_southward = y.is_some_and(|y| y.step < 0.0);
    let time = t.and_then(axis).and_then(Times::of);
    let mut options = vec![if array.is_big_endian { "big_endian" } else { "little_endian" }];
    options.extend(is_southward.then_some("yrev"));
    options.extend(time.as_ref().filter(|time| time.is_without_leap_days).map(|_| "365_day_calendar"));
    // From the south.
    let y = y.map(|y| match is_southward {
        true => Regular { first: y.first + y.step * (array.length(1) - 1) as f64, step: -y.step },
        false => y,
    });
    let name = variable(subject.name());
    let undefined = geometry.no_data.filter(|value| value.is_finite()).unwrap_or(UNDEFINED);
    let lines = [
        format!("DSET ^{}", data_name(subject.name())),
        format!("TITLE {name}"),
        format!("UNDEF {undefined:e}"),
        format!("OPTIONS {}", options.join(" ")),
        linear("XDEF", array.length(0), regular(Some(0))),
        linear("YDEF", array.length(1), y),
        linear("ZDEF", length(z), regular(z)),
        format!(
            "TDEF {} LINEAR {}",
            length(t),
            time.map_or("00:00Z01JAN0001 1DY".to_owned(), |time| time.text())
        ),
        "VARS 1".to_owned(),
        format!(
            "{name} {} {} {name}",
            if z.is_some() { length(z) } else { 0 },
            units_of(array.number).unwrap_or_default()
        ),
        "ENDVARS".to_owned(),
    ];
    beside_array(subject, lines.join("\n") + "\n")
}

fn linear(what: &str, length: u64, regular: Option<Regular>) -> String {
    let Regular { first, step } =
        regular.filter(|it| it.step > 0.0).unwrap_or(Regular { first: 1.0, step: 1.0 });
    format!("{what} {length} LINEAR {first:?} {step:?}")
}

/// A name of a variable: a letter, and letters and digits after it.
fn variable(name: &str) -> String {
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    let begins_well = plain.starts_with(|c: char| c.is_ascii_alphabetic());
    let mut variable = if begins_well { plain } else { format!("v{plain}") };
    variable.truncate(MAX_NAME_BYTES);
    variable.to_lowercase()
}

/// A regular axis of time, in minutes.
struct Times {
    /// Year, month and day.
    date: (i64, usize, i64),
    /// In the day.
    minute: i64,
    step: i64,
    is_without_leap_days: bool,
}

impl Times {
    /// From `hours since 2000-01-01 06:00` and its like.
    fn of(axis: &Axis) -> Option<Self> {
        let regular = axis.regular.filter(|_| axis.kind == AxisKind::Time)?;
        let clock = Clock::of(axis.unit.as_deref()?, axis.calendar.as_deref())?;
        let whole = |value: f64| (value.fract() == 0.0 && value.abs() < 1e12).then_some(value as i64);
        let minutes = clock.minutes_per_unit;
        let (first, step) =
            (whole(regular.first * minutes)?, whole(regular.step * minutes).filter(|&step| step > 0)?);
        let (date, minute) = clock.after(first)?;
        let is_without_leap_days = clock.is_without_leap_days;
        Some(Times { date, minute, step, is_without_leap_days })
    }

    fn text(&self) -> String {
        const MONTHS: [&str; 12] =
            ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
        let (year, month, day) = self.date;
        let month = MONTHS.get(month).copied().unwrap_or_default();
        let step = match self.step {
            step if step % MINUTES_OF_DAY == 0 => format!("{}DY", step / MINUTES_OF_DAY),
            step if step % 60 == 0 => format!("{}HR", step / 60),
            step => format!("{step}MN"),
        };
        format!("{:02}:{:02}Z{day:02}{month}{year:04} {step}", self.minute / 60, self.minute % 60)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::formats::flat_array::tests::{BIG_F, LITTLE, document, text_of};
    use serde_json::json;

    #[test]
    fn a_descriptor() {
        let more = json!({"dimension_names": ["time", "lat", "lon"], "attributes":
            {"scale": [1, -1, 1], "translation": [0, 89.5, 0.5], "_FillValue": -9999.0}});
        assert_eq!(
            text_of(&FORMAT, document(&[12, 180, 360], "float32", more), LITTLE).unwrap(),
            "DSET ^a\nTITLE a\nUNDEF -9.999e3\nOPTIONS little_endian yrev\nXDEF 360 LINEAR 0.5 1.0\nYDEF 180 LINEAR -89.5 1.0\n\
             ZDEF 1 LINEAR 1.0 1.0\nTDEF 12 LINEAR 00:00Z01JAN0001 1DY\nVARS 1\na 0 99 a\nENDVARS\n"
        );
        let text = text_of(
            &FORMAT,
            document(&[2, 3, 5], "uint16", json!({"dimension_names": ["z", "y", "x"]})),
            BIG_F,
        )
        .unwrap();
        assert!(
            text.contains("XDEF 2 ") && text.contains("TDEF 5 ") && text.contains("OPTIONS big_endian\n"),
            "{text}"
        );
        for (shape, data_type) in [(&[1][..], "float32"), (&[1; 5][..], "float32"), (&[1, 1][..], "float64")]
        {
            assert_eq!(text_of(&FORMAT, document(shape, data_type, json!({})), LITTLE), None);
        }
    }

    #[test]
    fn times() {
        let text = |unit: &str, calendar: Option<&str>, first: f64, step: f64| {
            let axis = Axis {
                kind: AxisKind::Time,
                regular: Regular::new(first, step),
                unit: Some(unit.to_owned()),
                calendar: calendar.map(str::to_owned),
                ..Axis::default()
            };
            Times::of(&axis).map(|times| times.text())
        };
        assert_eq!(text("days since 2000-01-01", None, 59.5, 1.0).unwrap(), "12:00Z29FEB2000 1DY");
        assert_eq!(
            text("days since 2000-01-01", Some("365_day"), 59.0, 30.0).unwrap(),
            "00:00Z01MAR2000 30DY"
        );
        assert_eq!(text("hours since 1900-1-1 06:30:00", None, -7.0, 6.0).unwrap(), "23:30Z31DEC1899 6HR");
        assert_eq!(
            text("seconds since 1970-01-01T00:00:00Z", None, 0.0, 90.0 * 60.0).unwrap(),
            "00:00Z01JAN1970 90MN"
        );
        assert_eq!(text("days since 0000-01-01", None, 0.0, 1.0), None);
        assert_eq!(text("days since 2000-01-01", Some("360_day"), 0.0, 1.0), None);
        assert_eq!(text("months since 2000-01-01", None, 0.0, 1.0), None);
        assert_eq!(text("days since yesterday", None, 0.0, 1.0), None);
        assert_eq!(text("days since 2000-01-01", None, 1e300, 1.0), None);
    }

    #[test]
    fn names() {
        for (name, expected) in
            [("Temperature_at_2m", "temperature_at_"), ("2m", "v2m"), ("Größe", "gre"), ("%\n", "v")]
        {
            assert_eq!(variable(name), expected);
        }
    }
}
