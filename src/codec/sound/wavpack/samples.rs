//! What turns the numbers of a block into its samples: shifts, bits that are all the same, bits that are stored apart, and floats.

use super::bits::Bits;
use super::block::{Contents, Header};
use crate::codec::{CodecError, CodecResult};

/// Bits of the flags of floats.
const SHIFTED_ONES: u8 = 1;
const SHIFTED_SAME: u8 = 2;
const SHIFTED_STORED: u8 = 4;
const STORED_ZEROS: u8 = 8;
const NEGATIVE_ZEROS: u8 = 16;

/// The number that stands for infinity and for what is not a number.
const NOT_FINITE: u32 = 0x100_0000;
/// The leading bit of a mantissa.
const LEADING_BIT: u32 = 0x80_0000;
/// The bits of a mantissa without it.
const MANTISSA: u32 = 0x7f_ffff;

/// Completes the samples of a block.
pub fn complete(header: &Header, contents: &Contents<'_>, samples: &mut [i32]) -> CodecResult<()> {
    let mut shift = header.shift();
    if header.has_floats() {
        let missing = || CodecError::new("a block of floats does not say how they are stored");
        return Floats::new(contents, contents.floats.ok_or_else(missing)?)?.complete(contents, samples);
    }
    if header.has_extended_integers() {
        let missing = || CodecError::new("a block of long integers does not say how they are stored");
        let integers = Integers::new(contents.integers.ok_or_else(missing)?);
        match &contents.extension {
            Some(_) => integers.extend(contents, samples)?,
            None if integers.stored > 0 => return Err(CodecError::unsupported("lossy WavPack")),
            None => samples.iter_mut().for_each(|sample| *sample = integers.padded(*sample)),
        }
    }
    shift &= 31;
    if shift > 0 {
        samples.iter_mut().for_each(|sample| *sample <<= shift);
    }
    Ok(())
}

/// How integers are extended.
struct Integers {
    /// Bits that are stored apart.
    stored: u32,
    /// Bits that are all 0.
    zeros: u32,
    /// Bits that are all 1.
    ones: u32,
    /// Bits that are the same as the one before.
    same: u32,
}

impl Integers {
    fn new(bytes: [u8; 4]) -> Self {
        let [stored, zeros, ones, same] = bytes.map(|byte| u32::from(byte & 31));
        Integers { stored, zeros, ones, same }
    }

    /// Returns the number with the bits that are all alike.
    fn padded(&self, number: i32) -> i32 {
        if self.zeros > 0 {
            number << self.zeros
        } else if self.ones > 0 {
            (number.wrapping_add(1) << self.ones).wrapping_sub(1)
        } else if self.same > 0 {
            let last = number & 1;
            (number.wrapping_add(last) << self.same).wrapping_sub(last)
        } else {
            number
        }
    }

    fn extend(&self, contents: &Contents<'_>, samples: &mut [i32]) -> CodecResult<()> {
        let Some(extension) = &contents.extension else { return Ok(()) };
        let mut bits = extension.bits.clone();
        // A limit of 0 is none.
        let most = if extension.has_limits { bits.number(5)? } else { 0 };
        let mut sum = u32::MAX;
        for sample in samples {
            if self.stored > 0 {
                let magnitude = if *sample < 0 { !*sample } else { *sample };
                let width = u32::BITS - magnitude.cast_unsigned().leading_zeros() + self.stored;
                let left_out = if most > 0 { width.saturating_sub(most).min(self.stored) } else { 0 };
                let own = self.stored - left_out;
                let number = if own > 0 { bits.number(own)?.cast_signed() } else { 0 };
                *sample = (*sample << own | number) << left_out;
            }
            *sample = self.padded(*sample);
            let number = sample.cast_unsigned();
            sum = sum
                .wrapping_mul(9)
                .wrapping_add((number & 0xffff).wrapping_mul(3))
                .wrapping_add(number >> 16);
        }
        compare(sum, extension.checksum)
    }
}

fn compare(sum: u32, stored: u32) -> CodecResult<()> {
    if sum == stored {
        return Ok(());
    }
    Err(CodecError::new("the checksum of a block is not that of its samples"))
}

/// How integers become floats.
struct Floats<'a> {
    flags: u8,
    shift: u32,
    /// The exponent of the largest float.
    exponent: u32,
    bits: Option<Bits<'a>>,
    /// The least zeros that follow the bits which are stored.
    least_zeros: u32,
    /// The most bits that are stored. 0: any number.
    most_bits: u32,
}

impl<'a> Floats<'a> {
    fn new(contents: &Contents<'a>, [flags, shift, exponent, _]: [u8; 4]) -> CodecResult<Self> {
        let mut floats = Floats {
            flags,
            shift: u32::from(shift & 31),
            exponent: u32::from(exponent),
            bits: contents.extension.as_ref().map(|extension| extension.bits.clone()),
            least_zeros: 0,
            most_bits: 0,
        };
        if let Some(bits) = &mut floats.bits
            && contents.extension.as_ref().is_some_and(|extension| extension.has_limits)
        {
            floats.least_zeros = bits.number(5)?;
            floats.most_bits = bits.number(5)?;
        }
        let needs_bits = flags & (SHIFTED_SAME | SHIFTED_STORED | STORED_ZEROS) != 0;
        if floats.bits.is_none() && needs_bits {
            return Err(CodecError::unsupported("lossy WavPack"));
        }
        Ok(floats)
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn number(&mut self, count: u32) -> CodecResult<u32> {
        match &mut self.bits {
            Some(bits) => bits.number(count),
            None => Ok(0),
        }
    }

    fn complete(mut self, contents: &Contents<'_>, samples: &mut [i32]) -> CodecResult<()> {
        let mut sum = u32::MAX;
        for sample in samples {
            let float = if *sample == 0 { self.zero()? } else { self.float(*sample)? };
            sum = sum
                .wrapping_mul(27)
                .wrapping_add((float & MANTISSA).wrapping_mul(9))
                .wrapping_add((float >> 23 & 0xff).wrapping_mul(3))
                .wrapping_add(float >> 31);
            *sample = float.cast_signed();
        }
        match &contents.extension {
            Some(extension) => compare(sum, extension.checksum),
            None => Ok(()),
        }
    }

    /// Returns the bits of a float that is stored as 0.
    fn zero(&mut self) -> CodecResult<u32> {
        if !self.has(STORED_ZEROS) || self.bits.is_none() {
            return Ok(0);
        }
        if self.number(1)? == 1 {
            let mantissa = self.number(23)?;
            let exponent = if self.exponent >= 25 { self.number(8)? } else { 0 };
            return Ok(mantissa | exponent << 23 | self.number(1)? << 31);
        }
        Ok(if self.has(NEGATIVE_ZEROS) { self.number(1)? << 31 } else { 0 })
    }

    /// Returns the bits of a float that is stored as another number.
    fn float(&mut self, stored: i32) -> CodecResult<u32> {
        let shifted = stored << self.shift;
        let sign = u32::from(shifted < 0) << 31;
        let mut mantissa = shifted.unsigned_abs();
        let mut exponent = self.exponent;
        if mantissa == NOT_FINITE && self.bits.is_some() {
            let payload = if self.number(1)? == 1 { self.number(23)? } else { 0 };
            return Ok(sign | 255 << 23 | payload);
        }
        if mantissa >= NOT_FINITE && self.bits.is_none() {
            while mantissa & 0xf00_0000 != 0 {
                mantissa >>= 1;
                exponent += 1;
            }
            return Ok(sign | exponent << 23 | mantissa & MANTISSA);
        }
        let mut missing = 0;
        while exponent > 0 && mantissa & LEADING_BIT == 0 {
            exponent -= 1;
            if exponent == 0 {
                break;
            }
            missing += 1;
            mantissa <<= 1;
        }
        missing &= 31;
        if missing > 0 {
            mantissa |= self.missing_bits(missing)?;
        }
        Ok(sign | exponent << 23 | mantissa & MANTISSA)
    }

    /// Returns the lowest bits of a mantissa, which became zeros.
    fn missing_bits(&mut self, missing: u32) -> CodecResult<u32> {
        let all = (1u32 << missing) - 1;
        if self.has(SHIFTED_ONES) || self.has(SHIFTED_SAME) && self.number(1)? == 1 {
            return Ok(all);
        }
        if !self.has(SHIFTED_STORED) {
            return Ok(0);
        }
        let beyond = if self.most_bits > 0 { missing.saturating_sub(self.most_bits) } else { 0 };
        let zeros = beyond.max(self.least_zeros.min(missing));
        let own = missing - zeros;
        Ok(if own > 0 { self.number(own)? << zeros & all } else { 0 })
    }
}
