//! `grads`: a text descriptor next to the array's own file, for GrADS and CDO (`import_binary`).
//!
//! Spec: cola.gmu.edu/grads, "Elements of a GrADS Data Descriptor File". Two axes are (y, x), three (time, y, x) or, if the
//! slowest is Z, (z, y, x), four (time, z, y, x). Unknown axes count from 1, and unknown times are days from 1 January of the
//! year 1. `levels.rs` has the axes of space, and `times.rs` has the axes of time.
//!
//! ```text
//! DSET ^temperature
//! XDEF 360 LINEAR 0.5 1.0
//! ```
//!
//! Absent: types but float32, 8- and 16-bit integers and int32 (uint8, uint16, int16), other ranks. Axes that are known and cannot
//! be expressed are an error that says why: a wrong date would be worse than no file.

mod levels;
mod times;

use super::data_names::data_name;
use crate::array::Layout;
use crate::error::{Error, Result};
use crate::formats::flat_array::{FlatArray, detached_header};
use crate::formats::geometry::{self, AxisKind, positions};
use crate::formats::{CompanionContent, Format, Role, Subject, documents_info};
use crate::hierarchy::Node;
use crate::metadata::data_type::numeric::NumericType;
use levels::Levels;
use times::Times;

/// `grads`.
pub const FORMAT: Format = Format {
    name: "grads",
    suffix: ".ctl",
    holds: "uint8, uint16, int16, int32 and float32, along 2 to 4 axes longer than 0",
    role: Role::Detached,
    expresses: |node, layout| expressed(node, layout).is_some(),
    refuses: Some(|subject| {
        FlatArray::from_subject(subject).ok().and_then(|array| header(subject, &array).err())
    }),
    left_out: Some(|node, _| geometry::left_out(node, &["_FillValue", "missing_value", "nodata"])),
    info: Some(documents_info),
    open,
    ..Format::BASE
};

/// The longest name of a variable.
const MAX_NAME_BYTES: usize = 15;
/// The value of UNDEF where the array has no value for missing data: no element has it.
const UNDEFINED: f64 = -9.99e33;

fn expressed(node: &Node, layout: Layout) -> Option<FlatArray> {
    let fits = |array: &FlatArray| {
        (2..=4).contains(&array.axes.len())
            && array.lengths().all(|length| i32::try_from(length).is_ok())
            && units_of(array.number).is_some()
    };
    FlatArray::from_node(node, layout).filter(fits)
}

/// Returns GrADS' code of the type.
fn units_of(number: NumericType) -> Option<&'static str> {
    Some(match number {
        NumericType::F32 => "99",
        NumericType::U8 => "-1,40,1",
        NumericType::U16 => "-1,40,2",
        NumericType::I16 => "-1,40,2,-1",
        NumericType::I32 => "-1,40,4",
        _ => return None,
    })
}

fn open(subject: &Subject<'_>) -> Result<CompanionContent> {
    let array = FlatArray::from_subject(subject)?;
    let header = header(subject, &array).map_err(|reason| {
        Error::unsupported(subject.path, format!("format 'grads' cannot express it: {reason}"))
    })?;
    detached_header(subject, header)
}

/// Returns the text of the descriptor, or the reason why the array cannot be expressed.
fn header(subject: &Subject<'_>, array: &FlatArray) -> std::result::Result<String, String> {
    let positions = positions::for_subject(subject);
    let axis = |place: usize| array.axes.get(place).and_then(|axis| positions.get(axis.index));
    let is_height = array.axes.len() == 3 && axis(2).is_some_and(|axis| axis.kind == AxisKind::Z);
    let (z, t) = match array.axes.len() {
        4 => (Some(2), Some(3)),
        3 if is_height => (Some(2), None),
        3 => (None, Some(2)),
        _ => (None, None),
    };
    let length = |place: Option<usize>| place.map_or(1, |place| array.length(place));
    let x = Levels::from_positions(axis(0), array.length(0))?.ascending("X")?;
    let y = Levels::from_positions(axis(1), array.length(1))?;
    let is_southward = y.is_descending();
    let y = if is_southward { y.reversed() } else { y }.ascending("Y")?;
    let z = match z {
        Some(place) => Levels::from_positions(axis(place), array.length(place))?.one_way("Z")?,
        None => Levels::count(1),
    };
    let time = match t.and_then(axis) {
        Some(positions) => Times::from_positions(positions)?,
        None => None,
    };
    let mut options = vec![if array.is_big_endian { "big_endian" } else { "little_endian" }];
    options.extend(is_southward.then_some("yrev"));
    options.extend(time.as_ref().filter(|time| time.is_without_leap_days).map(|_| "365_day_calendar"));
    let name = variable(subject.name());
    let no_data = geometry::no_data(subject.metadata().map_err(|error| error.to_string())?);
    let undefined = no_data.filter(|value| value.is_finite()).unwrap_or(UNDEFINED);
    let lines = [
        format!("DSET ^{}", data_name(subject.name())),
        format!("TITLE {name}"),
        format!("UNDEF {undefined:e}"),
        format!("OPTIONS {}", options.join(" ")),
        x.text("XDEF"),
        y.text("YDEF"),
        z.text("ZDEF"),
        format!(
            "TDEF {} LINEAR {}",
            length(t),
            time.map_or("00:00Z01JAN0001 1DY".to_owned(), |time| time.text())
        ),
        "VARS 1".to_owned(),
        format!(
            "{name} {} {} {name}",
            if array.axes.len() == 4 || is_height { array.length(2) } else { 0 },
            units_of(array.number).unwrap_or_default()
        ),
        "ENDVARS".to_owned(),
    ];
    Ok(lines.join("\n") + "\n")
}

/// Makes a name of a variable: a letter, followed by letters and digits.
fn variable(name: &str) -> String {
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    let begins_well = plain.starts_with(|c: char| c.is_ascii_alphabetic());
    let mut variable = if begins_well { plain } else { format!("v{plain}") };
    variable.truncate(MAX_NAME_BYTES);
    variable.to_lowercase()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::formats::flat_array::tests::{BIG_F, LITTLE, document, memory, text_of, with_subject};
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

    /// Opens a field of a group with a time coordinate, which has these attributes and values.
    fn with_time(attributes: serde_json::Value, values: &[f64]) -> Result<CompanionContent> {
        let length = values.len() as u64;
        let field = document(&[length, 2, 3], "float32", json!({"dimension_names": ["time", "y", "x"]}));
        let more = json!({"dimension_names": ["time"], "attributes": attributes});
        let memory = memory(&[("g/a", field), ("g/time", document(&[length], "float64", more))]);
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        memory.put("g/time/c/0", bytes).unwrap();
        let store: std::sync::Arc<dyn crate::store::Store> = std::sync::Arc::new(memory);
        with_subject(&store, "g/a", LITTLE, |subject| (FORMAT.open)(subject))
    }

    #[test]
    fn what_cannot_be_expressed_is_an_error() {
        let monthly = json!({"units": "days since 2001-01-01"});
        assert!(with_time(monthly.clone(), &[0.0, 31.0, 59.0, 90.0]).is_ok());
        let error = with_time(monthly, &[0.0, 31.0, 60.0, 90.0]).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("g/a") && error.contains("its axis 'time' has times with no step"), "{error}");
        let error = with_time(json!({"units": "days since 2001-01-01", "calendar": "360_day"}), &[0.0, 30.0]);
        assert!(error.map(|_| ()).unwrap_err().to_string().contains("a calendar that GrADS does not have"));
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
