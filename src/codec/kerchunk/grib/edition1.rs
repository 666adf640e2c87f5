//! Messages of edition 1: sections in a fixed order, each with its length in three bytes. Only simple packing of points of a grid.

use super::field::{Field, Scale, check_points, count_ones, damaged, signed, simple};
use crate::codec::{CodecError, CodecResult};

/// Bytes of the indicator section.
const INDICATOR_BYTES: usize = 8;
/// Bytes of the data section before its values.
const DATA_HEAD_BYTES: usize = 11;
/// Bits of the flags of the product section.
const HAS_GRID: u8 = 0x80;
const HAS_BITMAP: u8 = 0x40;
/// Flags of the data section that only say that the values were integers.
const WERE_INTEGERS: u8 = 0x20;

/// Takes the next section.
fn take<'a>(rest: &mut &'a [u8], least: usize) -> CodecResult<&'a [u8]> {
    let length = match **rest {
        [a, b, c, ..] => u32::from_be_bytes([0, a, b, c]) as usize,
        _ => 0,
    };
    let section = rest.get(..length).filter(|_| length >= least);
    let section = section.ok_or_else(|| damaged("has a section of a wrong length"))?;
    *rest = rest.get(length..).unwrap_or_default();
    Ok(section)
}

/// Returns a float of IBM: a sign, an exponent of 16, and 24 bits.
fn ibm_float([head, a, b, c]: [u8; 4]) -> f64 {
    let magnitude = f64::from(u32::from_be_bytes([0, a, b, c])) * 16f64.powi(i32::from(head & 0x7f) - 70);
    if head & 0x80 == 0 { magnitude } else { -magnitude }
}

/// Reads the field of a message.
pub fn read(message: &[u8], points: usize) -> CodecResult<Field<'_>> {
    let length = match message {
        [_, _, _, _, a, b, c, ..] => u32::from_be_bytes([0, *a, *b, *c]) as usize,
        _ => 0,
    };
    let whole = message.get(INDICATOR_BYTES..length).and_then(|rest| rest.strip_suffix(b"7777"));
    let mut rest = whole.ok_or_else(|| damaged("does not have its end"))?;
    let product = take(&mut rest, 28)?;
    let (flags, decimal) = match product {
        [_, _, _, _, _, _, _, flags, ..] => (*flags, product.get(26..28).unwrap_or_default()),
        _ => return Err(damaged("has a section of a wrong length")),
    };
    let decimal = match decimal {
        [a, b] => signed(u16::from_be_bytes([*a, *b])),
        _ => 0,
    };
    if flags & HAS_GRID != 0 {
        let grid = take(&mut rest, 10)?;
        // Rows of different lengths do not have one length.
        if let [_, _, _, _, _, _, i1, i2, j1, j2, ..] = grid
            && let (columns, rows) = (u16::from_be_bytes([*i1, *i2]), u16::from_be_bytes([*j1, *j2]))
            && columns != u16::MAX
            && rows != u16::MAX
        {
            check_points(usize::from(columns) * usize::from(rows), points)?;
        }
    }
    let mut bitmap = None;
    if flags & HAS_BITMAP != 0 {
        let [_, _, _, unused, 0, 0, own @ ..] = take(&mut rest, 6)? else {
            return Err(CodecError::unsupported("a GRIB message with a bitmap that its centre defines"));
        };
        check_points((own.len() * 8).saturating_sub(usize::from(*unused)), points)?;
        bitmap = Some(own);
    }
    let data = take(&mut rest, DATA_HEAD_BYTES)?;
    let [_, _, _, kind, e1, e2, r1, r2, r3, r4, bits, packed @ ..] = data else {
        return Err(damaged("has a section of a wrong length"));
    };
    if kind & 0xf0 & !WERE_INTEGERS != 0 {
        return Err(CodecError::unsupported("a GRIB message of edition 1 without simple packing"));
    }
    let scale = Scale {
        reference: ibm_float([*r1, *r2, *r3, *r4]),
        binary: signed(u16::from_be_bytes([*e1, *e2])),
        decimal,
    };
    let count = match bitmap {
        Some(bitmap) => count_ones(bitmap, points)?,
        None => points,
    };
    // The data section does not state their number, but how many bits it leaves.
    let left = (packed.len() * 8).checked_sub(count.saturating_mul(usize::from(*bits)));
    if *bits > 0 && left != Some(usize::from(kind & 0x0f)) {
        return Err(damaged("has another number of values than points"));
    }
    let values = simple(packed, u32::from(*bits), scale, count)?;
    Ok(Field { values, bitmap })
}
