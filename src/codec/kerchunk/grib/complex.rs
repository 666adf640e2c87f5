//! Complex packing: groups of values, each with a reference and a length in bits of its own; with differences, values are those between
//! neighbours.

use super::bits::Bits;
use super::field::{damaged, scale};
use crate::codec::{CodecError, CodecResult, scratch};

/// How values without data are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// Not at all.
    None,
    /// As the highest number of their group.
    Highest,
    /// As one of the two highest numbers.
    TwoHighest,
}

/// The members of the template.
struct Groups {
    count: usize,
    missing: Missing,
    least_width: u32,
    width_bits: u32,
    least_length: u32,
    length_step: u32,
    last_length: u32,
    length_bits: u32,
}

impl Groups {
    /// Reads the members after those that all packings have; returns the rest of the template.
    fn read(template: &[u8]) -> CodecResult<(Groups, &[u8])> {
        let wrong = || damaged("has a section of a wrong length");
        // The type of the original values, the method, and the two substitutes do not matter.
        let (head, rest) = template.split_at_checked(36).ok_or_else(wrong)?;
        let number = |at: usize| -> CodecResult<u32> {
            let bytes = head.get(at..).and_then(|bytes| bytes.first_chunk()).ok_or_else(wrong)?;
            Ok(u32::from_be_bytes(*bytes))
        };
        let byte = |at: usize| head.get(at).map(|byte| u32::from(*byte)).ok_or_else(wrong);
        let missing = match byte(11)? {
            0 => Missing::None,
            1 => Missing::Highest,
            2 => Missing::TwoHighest,
            other => return Err(CodecError::unsupported(format_args!("missing values {other} of GRIB"))),
        };
        let groups = Groups {
            count: number(20)? as usize,
            missing,
            least_width: byte(24)?,
            width_bits: byte(25)?,
            least_length: number(26)?,
            length_step: byte(30)?,
            last_length: number(31)?,
            length_bits: byte(35)?,
        };
        Ok((groups, rest))
    }

    /// Returns whether a number of `bits` stands for no data.
    fn is_missing(&self, number: u32, bits: u32) -> bool {
        let highest = u32::MAX.checked_shr(u32::BITS.saturating_sub(bits)).unwrap_or(0);
        match self.missing {
            Missing::None => false,
            Missing::Highest => number == highest,
            Missing::TwoHighest => number == highest || (bits > 0 && number == highest - 1),
        }
    }

    /// Returns the integers, `None` where there is no data.
    fn integers(&self, bits: u32, numbers: &mut Bits<'_>, count: usize) -> CodecResult<Vec<Option<i64>>> {
        let references = self.list(numbers, bits)?;
        let widths = self.list(numbers, self.width_bits)?;
        let mut lengths = self.list(numbers, self.length_bits)?;
        for length in &mut lengths {
            *length = length.saturating_mul(self.length_step).saturating_add(self.least_length);
        }
        if let Some(last) = lengths.last_mut() {
            *last = self.last_length;
        }
        let total = lengths.iter().fold(0u64, |sum, &length| sum.saturating_add(u64::from(length)));
        if total != count as u64 {
            return Err(damaged("has groups for another number of values"));
        }
        scratch::probe(count.saturating_mul(size_of::<Option<i64>>()))?;
        let mut integers = Vec::with_capacity(count);
        for ((&reference, width), &length) in references.iter().zip(widths).zip(&lengths) {
            let width = width.saturating_add(self.least_width);
            numbers.check(length as usize, width)?;
            for _ in 0..length {
                let number = numbers.number(width)?;
                let is_missing = if width == 0 {
                    self.is_missing(reference, bits)
                } else {
                    self.is_missing(number, width)
                };
                integers.push((!is_missing).then_some(i64::from(reference) + i64::from(number)));
            }
        }
        Ok(integers)
    }

    /// Reads one number for each group. Groups without bits have zeros.
    fn list(&self, numbers: &mut Bits<'_>, bits: u32) -> CodecResult<Vec<u32>> {
        numbers.check(self.count, bits)?;
        let list = (0..self.count).map(|_| numbers.number(bits)).collect();
        numbers.align();
        list
    }
}

/// What differences begin with.
struct Differences {
    /// The first values.
    first: Vec<i64>,
    /// What is added to each difference.
    least: i64,
}

impl Differences {
    /// Reads the first values, in as many bytes as the template says.
    fn read(template: &[u8], numbers: &mut Bits<'_>) -> CodecResult<Differences> {
        let [order @ (1 | 2), bytes @ 0..=4] = template.get(..2).unwrap_or_default() else {
            return Err(CodecError::unsupported("these differences of GRIB"));
        };
        let bits = u32::from(*bytes) * 8;
        let mut number = || -> CodecResult<i64> {
            let stored = numbers.number(bits)?;
            let sign = if bits == 0 { 0 } else { 1u32 << (bits - 1) };
            let magnitude = i64::from(stored & !sign);
            Ok(if stored & sign == 0 { magnitude } else { -magnitude })
        };
        let first = (0..*order).map(|_| number()).collect::<CodecResult<_>>()?;
        Ok(Differences { first, least: number()? })
    }

    /// Turns differences into values.
    fn undo(&self, integers: &mut [Option<i64>]) {
        let (mut last, mut before) = (0i64, 0i64);
        for (at, integer) in integers.iter_mut().flatten().enumerate() {
            let own = match self.first.get(at) {
                Some(first) => *first,
                None if self.first.len() == 1 => integer.wrapping_add(self.least).wrapping_add(last),
                None => {
                    integer.wrapping_add(self.least).wrapping_add(last.wrapping_mul(2)).wrapping_sub(before)
                }
            };
            (before, last) = (last, own);
            *integer = own;
        }
    }
}

/// Returns the `count` values of a field.
pub fn read(template: &[u8], data: &[u8], count: usize, has_differences: bool) -> CodecResult<Vec<f64>> {
    let (scale, bits) = scale(template)?;
    // The members after the number of bits.
    let (groups, rest) = Groups::read(template)?;
    if groups.count == 0 {
        scratch::probe(count.saturating_mul(size_of::<f64>()))?;
        return Ok(vec![scale.reference; count]);
    }
    // Each group needs at least one value.
    if groups.count > count {
        return Err(damaged("has more groups than values"));
    }
    let mut numbers = Bits::new(data);
    let differences = if has_differences { Some(Differences::read(rest, &mut numbers)?) } else { None };
    let mut integers = groups.integers(bits, &mut numbers, count)?;
    if let Some(differences) = differences {
        differences.undo(&mut integers);
    }
    let value = scale.apply();
    Ok(integers
        .into_iter()
        .map(|integer| integer.map_or(f64::NAN, |integer| value(integer as f64)))
        .collect())
}
