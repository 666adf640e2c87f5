//! Numbers of any length in bits, the highest bit first.

use crate::codec::{CodecError, CodecResult};

/// The longest number.
const MAX_BITS: u32 = 32;

/// The numbers that were not read yet.
pub struct Bits<'a> {
    bytes: &'a [u8],
    /// The place of the next bit.
    next: usize,
}

impl<'a> Bits<'a> {
    /// Creates a reader of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Bits { bytes, next: 0 }
    }

    /// Fails if there are not `count` numbers of `bits` more.
    pub fn check(&self, count: usize, bits: u32) -> CodecResult<()> {
        let end = count.checked_mul(bits as usize).and_then(|length| length.checked_add(self.next));
        if bits <= MAX_BITS && end.is_some_and(|end| end <= self.bytes.len().saturating_mul(8)) {
            return Ok(());
        }
        Err(CodecError::new("the GRIB message ends before its last value"))
    }

    /// Reads a number.
    pub fn number(&mut self, bits: u32) -> CodecResult<u32> {
        self.check(1, bits)?;
        let first = self.next / 8;
        let mut word = [0; 8];
        let held = self.bytes.get(first..).unwrap_or_default();
        let length = held.len().min(word.len());
        if let (Some(place), Some(own)) = (word.get_mut(..length), held.get(..length)) {
            place.copy_from_slice(own);
        }
        let word = u64::from_be_bytes(word) << (self.next % 8);
        self.next += bits as usize;
        // At most 32 bits are left.
        Ok(if bits == 0 { 0 } else { (word >> (64 - bits)) as u32 })
    }

    /// Goes to the next whole byte.
    pub fn align(&mut self) {
        self.next = self.next.next_multiple_of(8);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn numbers_have_their_highest_bit_first() {
        let mut bits = Bits::new(&[0b1010_0110, 0xff, 0, 0xaa, 0x55]);
        assert_eq!((bits.number(3), bits.number(0), bits.number(2)), (Ok(0b101), Ok(0), Ok(0)));
        bits.align();
        assert_eq!(bits.number(32), Ok(0xff00_aa55));
        assert!(bits.number(1).is_err() && bits.number(0).is_ok());
        assert!(Bits::new(&[0; 9]).number(33).is_err());
        assert!(Bits::new(&[0]).check(usize::MAX, 8).is_err());
    }
}
