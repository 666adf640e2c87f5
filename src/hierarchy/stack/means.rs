//! Means of boxes of numbers.
//!
//! Spec: tensorstore's driver "downsample" with the method "mean": boxes at the end of an axis have the elements that there are, and
//! means of integers are rounded to the nearest one, ties to even. Floats are added as float64. Uses `codec`'s numbers; elements are
//! little-endian.

use crate::codec::element::{Element, WideNumber};
use crate::metadata::ByteOrder;
use crate::metadata::data_type::numeric::{NumericType, with_numeric_type};

/// A box of elements, for its means.
pub struct MeanInput<'a> {
    /// The type.
    pub numeric: NumericType,
    /// The elements, in order C.
    pub elements: &'a [u8],
    /// How many along each axis.
    pub counts: &'a [u64],
    /// How many become one along each axis.
    pub factors: &'a [u64],
}

impl MeanInput<'_> {
    /// Fills `out` with the means, in order C.
    pub fn means(&self, out: &mut [u8]) {
        with_numeric_type!(
            self.numeric,
            integer T => self.write::<T, i128>(out, whole, nearest),
            else with_numeric_type!(self.numeric, real T => self.write::<T, f64>(out, f64::narrow, |sum, count| {
                WideNumber::Float(sum / count as f64)
            }), else ())
        );
    }

    fn write<T: Element, S: Copy + Default + std::ops::Add<Output = S>>(
        &self,
        out: &mut [u8],
        number: impl Fn(WideNumber) -> S,
        mean: impl Fn(S, u64) -> WideNumber,
    ) {
        let shape: Vec<usize> = self
            .counts
            .iter()
            .zip(self.factors)
            .map(|(count, factor)| count.div_ceil(*factor) as usize)
            .collect();
        let mut sums: Vec<(S, u64)> = vec![(S::default(), 0); out.len() / T::SIZE];
        let row = self.counts.last().copied().unwrap_or(1) as usize;
        let last_factor = self.factors.last().copied().unwrap_or(1) as usize;
        let mut index = vec![0_u64; self.counts.len()];
        for elements in self.elements.chunks_exact((row * T::SIZE).max(1)) {
            let mut first = 0;
            for ((at, factor), length) in index.iter().zip(self.factors).zip(&shape) {
                first = first * length + (at / factor) as usize;
            }
            for (group, sum) in elements.chunks(last_factor * T::SIZE).zip(sums.iter_mut().skip(first)) {
                for element in group.chunks_exact(T::SIZE) {
                    let value = number(T::read(element, ByteOrder::Little).widen());
                    *sum = (sum.0 + value, sum.1 + 1);
                }
            }
            // The next row.
            for (at, count) in index.iter_mut().zip(self.counts).rev().skip(1) {
                *at += 1;
                if *at < *count {
                    break;
                }
                *at = 0;
            }
        }
        for ((sum, count), out) in sums.into_iter().zip(out.chunks_exact_mut(T::SIZE)) {
            T::narrow(mean(sum, count.max(1))).write(out, ByteOrder::Little);
        }
    }
}

fn whole(number: WideNumber) -> i128 {
    match number {
        WideNumber::Int(number) => number.into(),
        WideNumber::UInt(number) => number.into(),
        WideNumber::Float(number) | WideNumber::Complex(number, _) => number as i128,
    }
}

/// Returns the integer that is nearest to a mean, and the even one if two are equally near.
fn nearest(sum: i128, count: u64) -> WideNumber {
    let count = i128::from(count);
    let (floor, rest) = (sum.div_euclid(count), sum.rem_euclid(count));
    let is_up = rest * 2 > count || (rest * 2 == count && floor % 2 != 0);
    let mean = floor + i128::from(is_up);
    // The mean lies between the least and the greatest element.
    match u64::try_from(mean) {
        Ok(mean) => WideNumber::UInt(mean),
        Err(_) => WideNumber::Int(mean as i64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn means(elements: &[i16], counts: &[u64], factors: &[u64]) -> Vec<i16> {
        let bytes: Vec<u8> = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
        let length: u64 = counts.iter().zip(factors).map(|(count, factor)| count.div_ceil(*factor)).product();
        let mut out = vec![0; length as usize * 2];
        MeanInput { numeric: NumericType::I16, elements: &bytes, counts, factors }.means(&mut out);
        out.chunks_exact(2).map(|two| i16::read(two, ByteOrder::Little)).collect()
    }

    #[test]
    fn means_are_rounded_to_even() {
        assert_eq!(means(&[1, 2, 3, 4, -1, -2, i16::MIN], &[7], &[2]), [2, 4, -2, i16::MIN]);
        assert_eq!(means(&[0, 1, 2, 3, 4, 5], &[2, 3], &[2, 2]), [2, 4]);
        assert_eq!(means(&[7], &[], &[]), [7]);
        assert_eq!(means(&[1, 2, 3, 4, 5, 6, 7, 8], &[2, 2, 2], &[2, 1, 2]), [4, 6]);
    }
}
