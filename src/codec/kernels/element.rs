//! Elements of NumPy's numeric dtypes, and NumPy's casts between them.
//!
//! Casts are those of `ndarray.astype` on x86-64, which C leaves open where a float is out of the integer's range:
//! there NaN and values that do not fit become the lowest i32 or i64, which is truncated to narrower integers. (NumPy's u32
//! has no rule: it depends on the element's place in the array. Here the i64 is truncated, so that it wraps.)
//! Uses `kernels::dtype`.

use half::f16;

use super::dtype::NumericDtype;
use crate::metadata::ByteOrder;
use crate::metadata::data_type::numeric::{Bool, Complex, NumericType, with_numeric_type};

/// A number of any type, wide enough to hold it exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WideNumber {
    /// Signed integers.
    Int(i64),
    /// Unsigned integers and bools.
    UInt(u64),
    /// Floats.
    Float(f64),
    /// Complex numbers: real and imaginary part.
    Complex(f64, f64),
}

/// One element.
pub trait Element: Copy + Default + PartialEq + 'static {
    /// The numeric type.
    const NUMERIC_TYPE: NumericType;
    /// The number of bytes.
    const SIZE: usize;
    /// Reads exactly [`Element::SIZE`] bytes (other lengths give the default).
    fn read(bytes: &[u8], byte_order: ByteOrder) -> Self;
    /// Writes exactly [`Element::SIZE`] bytes (other lengths stay unchanged).
    fn write(self, bytes: &mut [u8], byte_order: ByteOrder);
    /// Returns the exact number.
    fn widen(self) -> WideNumber;
    /// Casts the number as NumPy does.
    fn narrow(number: WideNumber) -> Self;
}

macro_rules! read_and_write {
    () => {
        #[inline(always)]
        fn read(bytes: &[u8], byte_order: ByteOrder) -> Self {
            let bytes = bytes.first_chunk().copied().unwrap_or_default();
            match byte_order {
                ByteOrder::Little => Self::from_le_bytes(bytes),
                ByteOrder::Big => Self::from_be_bytes(bytes),
            }
        }
        #[inline(always)]
        fn write(self, bytes: &mut [u8], byte_order: ByteOrder) {
            if let Some(bytes) = bytes.first_chunk_mut() {
                *bytes = match byte_order {
                    ByteOrder::Little => self.to_le_bytes(),
                    ByteOrder::Big => self.to_be_bytes(),
                };
            }
        }
    };
}

macro_rules! integer_element {
    ($($T:ident $numeric_type:ident $wide:ident $from_float:ident;)*) => {$(
        impl Element for $T {
            const NUMERIC_TYPE: NumericType = NumericType::$numeric_type;
            const SIZE: usize = size_of::<$T>();
            read_and_write!();
            #[inline(always)]
            fn widen(self) -> WideNumber {
                WideNumber::$wide(self.into())
            }
            #[inline(always)]
            fn narrow(number: WideNumber) -> Self {
                match number {
                    WideNumber::Int(number) => number as $T,
                    WideNumber::UInt(number) => number as $T,
                    WideNumber::Float(number) | WideNumber::Complex(number, _) => $from_float(number) as $T,
                }
            }
        }
    )*};
}

integer_element! {
    i8 I8 Int float_to_i32;
    i16 I16 Int float_to_i32;
    i32 I32 Int float_to_i32;
    i64 I64 Int float_to_i64;
    u8 U8 UInt float_to_i32;
    u16 U16 UInt float_to_i32;
    u32 U32 UInt float_to_i64;
    u64 U64 UInt float_to_u64;
}

/// Converts as the processor's instruction cvttsd2si does, to 32 bits.
#[inline(always)]
fn float_to_i32(number: f64) -> i32 {
    if number > -2_147_483_649.0 && number < 2_147_483_648.0 { number as i32 } else { i32::MIN }
}

/// Converts as the processor's instruction cvttsd2si does, to 64 bits.
#[inline(always)]
fn float_to_i64(number: f64) -> i64 {
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    if (-BOUND..BOUND).contains(&number) { number as i64 } else { i64::MIN }
}

/// Converts as compilers do with [`float_to_i64`]: above 2^63 in two parts.
#[inline(always)]
fn float_to_u64(number: f64) -> u64 {
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    if number >= BOUND {
        (float_to_i64(number - BOUND) as u64) ^ (1 << 63)
    } else {
        float_to_i64(number) as u64
    }
}

macro_rules! float_element {
    ($($T:ident $numeric_type:ident |$number:ident| $from_float:expr;)*) => {$(
        impl Element for $T {
            const NUMERIC_TYPE: NumericType = NumericType::$numeric_type;
            const SIZE: usize = size_of::<$T>();
            read_and_write!();
            #[inline(always)]
            fn widen(self) -> WideNumber {
                WideNumber::Float(self.into())
            }
            #[inline(always)]
            fn narrow(number: WideNumber) -> Self {
                match number {
                    WideNumber::Int(number) => ToFloat::<$T>::to_float(number),
                    WideNumber::UInt(number) => ToFloat::<$T>::to_float(number),
                    WideNumber::Float($number) | WideNumber::Complex($number, _) => $from_float,
                }
            }
        }
    )*};
}

float_element! {
    f16 F16 |number| float_to_half(number);
    f32 F32 |number| number as f32;
    f64 F64 |number| number;
}

/// Integers to floats, rounded once; to f16 by way of f32, as NumPy does.
trait ToFloat<F> {
    fn to_float(self) -> F;
}

macro_rules! to_float {
    ($($T:ident)*) => {$(
        impl ToFloat<f16> for $T {
            fn to_float(self) -> f16 { f16::from_f32(self as f32) }
        }
        impl ToFloat<f32> for $T {
            fn to_float(self) -> f32 { self as f32 }
        }
        impl ToFloat<f64> for $T {
            fn to_float(self) -> f64 { self as f64 }
        }
    )*};
}
to_float! { i64 u64 }

/// Converts f64 to f16, rounded once. The f32 in between is rounded to odd, so that the second rounding loses nothing.
fn float_to_half(number: f64) -> f16 {
    let single = number as f32;
    if single.is_nan() || f64::from(single) == number {
        return f16::from_f32(single);
    }
    let toward_zero =
        if f64::from(single).abs() > number.abs() { single.to_bits() - 1 } else { single.to_bits() };
    f16::from_f32(f32::from_bits(toward_zero | 1))
}

impl Element for Bool {
    const NUMERIC_TYPE: NumericType = NumericType::Bool;
    const SIZE: usize = 1;
    #[inline(always)]
    fn read(bytes: &[u8], _: ByteOrder) -> Self {
        Bool(bytes.first().copied().unwrap_or_default())
    }
    #[inline(always)]
    fn write(self, bytes: &mut [u8], _: ByteOrder) {
        if let Some(byte) = bytes.first_mut() {
            *byte = self.0;
        }
    }
    #[inline(always)]
    fn widen(self) -> WideNumber {
        WideNumber::UInt(u64::from(self.0 != 0))
    }
    #[inline(always)]
    fn narrow(number: WideNumber) -> Self {
        Bool(u8::from(match number {
            WideNumber::Int(number) => number != 0,
            WideNumber::UInt(number) => number != 0,
            WideNumber::Float(number) => number != 0.0,
            WideNumber::Complex(real, imaginary) => real != 0.0 || imaginary != 0.0,
        }))
    }
}

macro_rules! complex_element {
    ($($T:ident $numeric_type:ident;)*) => {$(
        impl Element for Complex<$T> {
            const NUMERIC_TYPE: NumericType = NumericType::$numeric_type;
            const SIZE: usize = 2 * size_of::<$T>();
            #[inline(always)]
            fn read(bytes: &[u8], byte_order: ByteOrder) -> Self {
                let (real, imaginary) = bytes.split_at_checked($T::SIZE).unwrap_or_default();
                Complex { real: $T::read(real, byte_order), imaginary: $T::read(imaginary, byte_order) }
            }
            #[inline(always)]
            fn write(self, bytes: &mut [u8], byte_order: ByteOrder) {
                if let Some((real, imaginary)) = bytes.split_at_mut_checked($T::SIZE) {
                    self.real.write(real, byte_order);
                    self.imaginary.write(imaginary, byte_order);
                }
            }
            #[inline(always)]
            fn widen(self) -> WideNumber {
                WideNumber::Complex(self.real.into(), self.imaginary.into())
            }
            #[inline(always)]
            fn narrow(number: WideNumber) -> Self {
                match number {
                    WideNumber::Complex(real, imaginary) => {
                        Complex { real: real as $T, imaginary: imaginary as $T }
                    }
                    number => Complex { real: $T::narrow(number), imaginary: 0.0 },
                }
            }
        }
    )*};
}

complex_element! {
    f32 C64;
    f64 C128;
}

/// Elements that are processed at a time: they stay in the processor's nearest cache.
const BLOCK: usize = 512;

/// Reads elements of `from`, casts them to `W`, lets `work` change them in blocks, in order, casts them to `to` and
/// writes them. `input` and `out` hold the same number of elements; a remainder on either side is left alone.
pub fn transform<W: Element>(
    input: &[u8],
    from: NumericDtype,
    out: &mut [u8],
    to: NumericDtype,
    mut work: impl FnMut(&mut [W]),
) {
    let mut block = [W::default(); BLOCK];
    let inputs = input.chunks(BLOCK * from.numeric_type.size());
    for (input, out) in inputs.zip(out.chunks_mut(BLOCK * to.numeric_type.size())) {
        let count = (input.len() / from.numeric_type.size()).min(out.len() / to.numeric_type.size());
        let block = block.get_mut(..count).unwrap_or_default();
        with_numeric_type!(from.numeric_type, S => load::<S, W>(input, from.byte_order, block));
        work(block);
        with_numeric_type!(to.numeric_type, T => store::<W, T>(block, out, to.byte_order));
    }
}

/// Casts elements as NumPy's `astype` does.
pub fn cast(input: &[u8], from: NumericDtype, out: &mut [u8], to: NumericDtype) {
    with_numeric_type!(from.numeric_type, S => transform::<S>(input, from, out, to, |_| {}))
}

/// Reads and casts. One type to itself is a copy, bit for bit.
#[inline(never)]
fn load<S: Element, W: Element>(input: &[u8], byte_order: ByteOrder, block: &mut [W]) {
    for (element, bytes) in block.iter_mut().zip(input.chunks_exact(S::SIZE)) {
        *element = if S::NUMERIC_TYPE == W::NUMERIC_TYPE {
            W::read(bytes, byte_order)
        } else {
            W::narrow(S::read(bytes, byte_order).widen())
        };
    }
}

/// Casts and writes, as [`load`].
#[inline(never)]
fn store<W: Element, T: Element>(block: &[W], out: &mut [u8], byte_order: ByteOrder) {
    for (element, bytes) in block.iter().zip(out.chunks_exact_mut(T::SIZE)) {
        if W::NUMERIC_TYPE == T::NUMERIC_TYPE {
            element.write(bytes, byte_order)
        } else {
            T::narrow(element.widen()).write(bytes, byte_order)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    fn dtype(text: &str) -> NumericDtype {
        NumericDtype::parse(text).unwrap()
    }

    /// NumPy's results out of range, where C leaves them open.
    #[test]
    fn casts_out_of_range() {
        let x = [300.7, -300.7, 2f64.powi(31), 2f64.powi(32) + 5.0, 2f64.powi(64), -1e30, f64::NAN, -1.5];
        fn all<T: Element>(x: &[f64]) -> Vec<T> {
            x.iter().map(|&x| T::narrow(WideNumber::Float(x))).collect()
        }
        assert_eq!(all::<i8>(&x), [44, -44, 0, 0, 0, 0, 0, -1]);
        assert_eq!(all::<u16>(&x), [300, 65236, 0, 0, 0, 0, 0, 65535]);
        let low = i32::MIN;
        assert_eq!(all::<i32>(&x), [300, -300, low, low, low, low, low, -1]);
        let half = 1 << 31;
        assert_eq!(all::<u32>(&x), [300, 4294966996, half, 5, 0, 0, 0, 4294967295]);
        let low = i64::MIN;
        assert_eq!(all::<i64>(&x), [300, -300, 1 << 31, (1 << 32) + 5, low, low, low, -1]);
        let half = 1 << 63;
        assert_eq!(
            all::<u64>(&x),
            [300, 300u64.wrapping_neg(), 1 << 31, (1 << 32) + 5, 0, half, half, u64::MAX]
        );
        assert_eq!(all::<Bool>(&[0.0, -0.0, f64::NAN, 0.1]), [Bool(0), Bool(0), Bool(1), Bool(1)]);
        assert_eq!(u8::narrow(WideNumber::Complex(300.0, 1.0)), 44);
        assert_eq!(Bool::narrow(WideNumber::Complex(0.0, 1.0)), Bool(1));
    }

    #[test]
    fn one_kind_to_itself_is_bit_for_bit() {
        let signalling = 0x7f80_0001u32;
        let mut out = [0; 4];
        cast(&signalling.to_le_bytes(), dtype("<f4"), &mut out, dtype(">f4"));
        assert_eq!(u32::from_be_bytes(out), signalling);
    }

    proptest! {
        /// Rounding to f16 in two steps differs from rounding once; compared with the exact neighbours.
        #[test]
        fn half_is_rounded_once(base in 0u16..0x7c00, fraction in 0u64..=1 << 30, shift in 0..30, sign in any::<bool>()) {
            let (low, high) = (f16::from_bits(base).to_f64(), f16::from_bits(base + 1).to_f64());
            // The neighbour of the largest half counts as 65536 when rounding.
            let high = if high.is_finite() { high } else { 65536.0 };
            let offset = ((1u64 << 30) + (fraction >> shift)) as f64 / (1u64 << 31) as f64;
            for offset in [offset, 1.0 - offset] {
                let x = low + (high - low) * offset;
                let (down, up) = (x - low, high - x);
                let expected = match down.partial_cmp(&up).unwrap() {
                    std::cmp::Ordering::Less => base,
                    std::cmp::Ordering::Greater => base + 1,
                    std::cmp::Ordering::Equal => base + (base & 1),
                };
                let sign = if sign { 0x8000 } else { 0 };
                let x = if sign == 0 { x } else { -x };
                prop_assert_eq!(float_to_half(x).to_bits(), expected | sign, "{}", x);
            }
        }
    }
}
