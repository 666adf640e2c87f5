//! The residuals of a block: numbers near 0, each coded by how it compares with three medians that follow the numbers.

use super::bits::Bits;
use crate::codec::CodecResult;

/// The most ones before the size of a residual; that many precede a number of more.
const MOST_ONES: u32 = 16;
/// How slowly each median follows.
const DIVISORS: [u32; 3] = [128, 64, 32];

/// The medians of one channel, in 16ths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Medians(pub [u32; 3]);

impl Medians {
    fn width(&self, which: usize) -> u32 {
        (self.0.get(which).copied().unwrap_or(0) >> 4).wrapping_add(1)
    }

    fn raise(&mut self, which: usize) {
        if let (Some(median), Some(divisor)) = (self.0.get_mut(which), DIVISORS.get(which)) {
            *median = median.wrapping_add((median.wrapping_add(*divisor) / divisor).wrapping_mul(5));
        }
    }

    fn lower(&mut self, which: usize) {
        if let (Some(median), Some(divisor)) = (self.0.get_mut(which), DIVISORS.get(which)) {
            *median = median.wrapping_sub((median.wrapping_add(divisor - 2) / divisor).wrapping_mul(2));
        }
    }

    /// Returns the lowest number of a zone and how many numbers above it the zone has, and lets the medians follow.
    fn zone(&mut self, zone: u32) -> (u32, u32) {
        let mut lowest = 0u32;
        // Zones after the third have its width.
        for which in 0..3u32 {
            let width = self.width(which as usize);
            if zone == which {
                self.lower(which as usize);
                return (lowest, width.wrapping_sub(1));
            }
            self.raise(which as usize);
            if which < 2 {
                lowest = lowest.wrapping_add(width);
            } else {
                lowest = lowest.wrapping_add((zone - 2).wrapping_mul(width));
                return (lowest, width.wrapping_sub(1));
            }
        }
        (lowest, 0)
    }
}

/// The decoder of the residuals of one or two channels.
pub struct Residuals<'a> {
    bits: Bits<'a>,
    medians: [Medians; 2],
    /// Whether the size before counts for the next one, too.
    is_one_held: bool,
    /// Whether the next residual is in the first zone, without a size of its own.
    is_zero_held: bool,
    /// Zeros that follow.
    zeros: u32,
}

impl<'a> Residuals<'a> {
    /// Creates a decoder. With one channel, the second medians are 0.
    pub fn new(bits: Bits<'a>, medians: [Medians; 2]) -> Self {
        Residuals { bits, medians, is_one_held: false, is_zero_held: false, zeros: 0 }
    }

    /// Fills `out` with residuals; those of two channels alternate.
    pub fn read(&mut self, out: &mut [i32], channels: usize) -> CodecResult<()> {
        for (at, residual) in out.iter_mut().enumerate() {
            *residual = self.next(at % channels.max(1))?;
        }
        Ok(())
    }

    fn next(&mut self, channel: usize) -> CodecResult<i32> {
        if self.is_zero_held {
            self.is_zero_held = false;
            return self.in_zone(0, channel);
        }
        if !self.is_one_held && self.medians.iter().all(|medians| medians.0[0] < 2) && self.is_in_silence()? {
            return Ok(0);
        }
        let mut ones = self.bits.ones(MOST_ONES)?;
        if ones == MOST_ONES {
            ones = ones.saturating_add(self.bits.counted()?);
        }
        let zone = (ones >> 1) + u32::from(self.is_one_held);
        self.is_one_held = ones & 1 == 1;
        self.is_zero_held = !self.is_one_held;
        self.in_zone(zone, channel)
    }

    /// Returns whether this residual is one of a counted run of zeros.
    fn is_in_silence(&mut self) -> CodecResult<bool> {
        if self.zeros > 0 {
            self.zeros -= 1;
            return Ok(self.zeros > 0);
        }
        self.zeros = self.bits.counted()?;
        if self.zeros > 0 {
            self.medians = [Medians::default(); 2];
        }
        Ok(self.zeros > 0)
    }

    fn in_zone(&mut self, zone: u32, channel: usize) -> CodecResult<i32> {
        let (lowest, above) = match self.medians.get_mut(channel) {
            Some(medians) => medians.zone(zone),
            None => (0, 0),
        };
        let number = lowest.wrapping_add(self.bits.up_to(above)?).cast_signed();
        Ok(if self.bits.bit()? { !number } else { number })
    }
}
