//! Messages of edition 2: numbered sections, of which the first of each number counts.

use super::coordinates::{self, Grid};
use super::field::{Field, check_points, damaged, scale, simple};
use super::{complex, png};
use crate::codec::{CodecError, CodecResult};

/// Bytes of the indicator section.
const INDICATOR_BYTES: usize = 16;
/// Bytes of a section before its content: its length and its number.
const HEAD_BYTES: usize = 5;
/// The kinds of bitmaps: in the section, and none.
const BITMAP_FOLLOWS: u8 = 0;
const NO_BITMAP: u8 = 255;

/// The sections that are needed, without their heads.
#[derive(Default)]
struct Sections<'a> {
    grid: Option<&'a [u8]>,
    representation: Option<&'a [u8]>,
    bitmap: Option<&'a [u8]>,
    data: Option<&'a [u8]>,
}

impl<'a> Sections<'a> {
    fn read(message: &'a [u8]) -> CodecResult<Self> {
        let length = message.get(8..INDICATOR_BYTES).and_then(|bytes| bytes.first_chunk());
        let length = length.map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let whole = message.get(INDICATOR_BYTES..length).and_then(|rest| rest.strip_suffix(b"7777"));
        let mut rest = whole.ok_or_else(|| damaged("does not have its end"))?;
        let mut sections = Sections::default();
        while !rest.is_empty() {
            let wrong = || damaged("has a section of a wrong length");
            let [a, b, c, d, number, ..] = rest else { return Err(wrong()) };
            let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
            let content = rest.get(HEAD_BYTES..length).ok_or_else(wrong)?;
            match number {
                3 => sections.grid = sections.grid.or(Some(content)),
                5 => sections.representation = sections.representation.or(Some(content)),
                6 => sections.bitmap = sections.bitmap.or(Some(content)),
                7 => sections.data = sections.data.or(Some(content)),
                _ => {}
            }
            rest = rest.get(length..).unwrap_or_default();
        }
        Ok(sections)
    }
}

fn lacking(what: &str) -> CodecError {
    CodecError::new(format_args!("the GRIB message has no section of {what}"))
}

/// Returns the length of a row of a message whose rows follow each other to the north.
pub fn northward_row(message: &[u8], points: usize) -> CodecResult<Option<usize>> {
    coordinates::northward_row(Sections::read(message)?.grid.ok_or_else(|| lacking("the grid"))?, points)
}

/// Reads the grid of a message.
pub fn read_grid(message: &[u8], points: usize) -> CodecResult<Grid> {
    Grid::read(Sections::read(message)?.grid.ok_or_else(|| lacking("the grid"))?, points)
}

/// Reads the field of a message.
pub fn read(message: &[u8], points: usize) -> CodecResult<Field<'_>> {
    let sections = Sections::read(message)?;
    let points_of_grid = match sections.grid.ok_or_else(|| lacking("the grid"))? {
        [_, a, b, c, d, ..] => u32::from_be_bytes([*a, *b, *c, *d]) as usize,
        _ => return Err(damaged("has a section of a wrong length")),
    };
    check_points(points_of_grid, points)?;
    let representation = sections.representation.ok_or_else(|| lacking("the representation of data"))?;
    let data = sections.data.ok_or_else(|| lacking("data"))?;
    let bitmap = match sections.bitmap {
        None | Some([NO_BITMAP, ..]) => None,
        Some([BITMAP_FOLLOWS, bitmap @ ..]) => Some(bitmap),
        Some(_) => {
            return Err(CodecError::unsupported("a GRIB message with a bitmap that is not in it"));
        }
    };
    let [c1, c2, c3, c4, t1, t2, template @ ..] = representation else {
        return Err(damaged("has a section of a wrong length"));
    };
    let count = u32::from_be_bytes([*c1, *c2, *c3, *c4]) as usize;
    // Nothing is taken for more values than the array has.
    if count > points {
        return Err(CodecError::new(format_args!(
            "the GRIB message has {count} values where at most {points} were expected"
        )));
    }
    let values = match u16::from_be_bytes([*t1, *t2]) {
        // No point has data, and the section of data may be empty.
        _ if count == 0 => Vec::new(),
        0 => {
            let (scale, bits) = scale(template)?;
            simple(data, bits, scale, count)?
        }
        2 => complex::read(template, data, count, false)?,
        3 => complex::read(template, data, count, true)?,
        4 => floats(template, data, count)?,
        40 => return Err(CodecError::unsupported("a GRIB message in JPEG 2000")),
        41 => png::read(template, data, count)?,
        42 => return Err(CodecError::unsupported("a GRIB message in CCSDS lossless compression")),
        other => return Err(CodecError::unsupported(format_args!("packing {other} of GRIB"))),
    };
    Ok(Field { values, bitmap })
}

/// Returns values that are stored as floats.
fn floats(template: &[u8], data: &[u8], count: usize) -> CodecResult<Vec<f64>> {
    let short = || damaged("ends before its last value");
    let own = |bytes: usize| data.get(..count.saturating_mul(bytes)).ok_or_else(short);
    match template.first() {
        Some(1) => {
            Ok(own(4)?.as_chunks().0.iter().map(|four| f64::from(f32::from_be_bytes(*four))).collect())
        }
        Some(2) => Ok(own(8)?.as_chunks().0.iter().map(|eight| f64::from_be_bytes(*eight)).collect()),
        _ => Err(CodecError::unsupported("a GRIB message with floats of more than 64 bits")),
    }
}
