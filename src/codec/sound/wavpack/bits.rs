//! Bits of a stream of WavPack, the lowest of each byte first.

use crate::codec::{CodecError, CodecResult};

/// The longest run of ones that a number may begin with.
const MAX_ONES: u32 = 32;

/// The bits that were not read yet.
#[derive(Clone, Debug, Default)]
pub struct Bits<'a> {
    bytes: &'a [u8],
    /// Bits of the bytes before `bytes`, the next one lowest.
    held: u64,
    /// How many of them there are.
    count: u32,
}

fn truncated() -> CodecError {
    CodecError::new("a block's bits end too early")
}

impl<'a> Bits<'a> {
    /// Creates a reader of all bits of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Bits { bytes, held: 0, count: 0 }
    }

    /// Holds at least 33 bits, or all that are left.
    fn refill(&mut self) {
        while self.count <= 56
            && let Some((&byte, rest)) = self.bytes.split_first()
        {
            self.held |= u64::from(byte) << self.count;
            self.count += 8;
            self.bytes = rest;
        }
    }

    fn drop_bits(&mut self, count: u32) -> CodecResult<()> {
        self.count = self.count.checked_sub(count).ok_or_else(truncated)?;
        self.held = self.held.checked_shr(count).unwrap_or(0);
        Ok(())
    }

    /// Reads a number of at most 32 bits.
    pub fn number(&mut self, bits: u32) -> CodecResult<u32> {
        if self.count < bits {
            self.refill();
        }
        // The mask has at most 32 bits.
        let number = (self.held & ((1u64 << bits.min(32)) - 1)) as u32;
        self.drop_bits(bits.min(32))?;
        Ok(number)
    }

    /// Reads one bit.
    pub fn bit(&mut self) -> CodecResult<bool> {
        Ok(self.number(1)? == 1)
    }

    /// Reads ones up to a zero, which is read, too; more than `limit` ones are an error.
    pub fn ones(&mut self, limit: u32) -> CodecResult<u32> {
        self.refill();
        let ones = (!self.held).trailing_zeros();
        if ones > limit {
            return Err(CodecError::new("a run of ones is too long"));
        }
        self.drop_bits(ones + 1)?;
        Ok(ones)
    }

    /// Reads a number that begins with its length in ones: a number below 2 is its length, any other has this length with its highest
    /// bit left out.
    pub fn counted(&mut self) -> CodecResult<u32> {
        match self.ones(MAX_ONES)? {
            length @ 0..2 => Ok(length),
            length => Ok(self.number(length - 1)? | 1 << (length - 1)),
        }
    }

    /// Reads a number from 0 to `highest`. The lowest numbers have one bit less than the others, if the count of numbers is not a power of two.
    pub fn up_to(&mut self, highest: u32) -> CodecResult<u32> {
        let length = u32::BITS - highest.leading_zeros();
        let Some(short_length) = length.checked_sub(1) else { return Ok(0) };
        let number = u64::from(self.number(short_length)?);
        let short_numbers = (1u64 << length) - u64::from(highest) - 1;
        if number < short_numbers {
            return Ok(number as u32);
        }
        // Not above `highest`, which has 32 bits.
        Ok((number * 2 - short_numbers + u64::from(self.number(1)?)) as u32)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn numbers_have_their_lowest_bit_first() {
        let mut bits = Bits::new(&[0b1011_0101, 0xff, 0x00, 0xaa, 0x55, 0x01]);
        assert_eq!(bits.number(3), Ok(0b101));
        assert_eq!(bits.bit(), Ok(false));
        assert_eq!(bits.number(32), Ok(0x5aa0_0ffb));
        assert_eq!(bits.number(12), Ok(0x015));
        assert!(bits.bit().is_err());
    }

    #[test]
    fn ones_and_counted_numbers() {
        let mut bits = Bits::new(&[0b0110_0111, 0b0000_0000]);
        assert_eq!((bits.ones(16), bits.ones(16), bits.ones(16)), (Ok(3), Ok(0), Ok(2)));
        assert!(Bits::new(&[0xff, 0xff, 0xff]).ones(16).is_err());
        // Three ones, then the two low bits of 4 + 2.
        assert_eq!(Bits::new(&[0b0010_0111]).counted(), Ok(6));
        assert_eq!(Bits::new(&[0b0000_0001]).counted(), Ok(1));
        assert!(Bits::new(&[0xff; 9]).counted().is_err());
    }

    #[test]
    fn numbers_below_a_bound_have_one_of_two_lengths() {
        // Of 0 to 4, three have two bits and two have three.
        for (byte, expected, length) in
            [(0b00, 0, 2), (0b01, 1, 2), (0b10, 2, 2), (0b011, 3, 3), (0b111, 4, 3)]
        {
            let bytes = [byte];
            let mut bits = Bits::new(&bytes);
            assert_eq!((bits.up_to(4), bits.count), (Ok(expected), 8 - length));
        }
        assert_eq!(Bits::new(&[]).up_to(0), Ok(0));
        assert_eq!(Bits::new(&[0xff; 8]).up_to(u32::MAX), Ok(u32::MAX));
    }
}
