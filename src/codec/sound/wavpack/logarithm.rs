//! Numbers that WavPack stores as logarithms of 8 fractional bits, or as weights of one byte.

use std::sync::LazyLock;

/// 2^(i/256) in 256ths, without the leading 1.
static FRACTIONS: LazyLock<[u8; 256]> = LazyLock::new(|| {
    std::array::from_fn(|at| {
        // From 0 to 255.
        ((256.0 * (at as f64 / 256.0).exp2()).round() - 256.0) as u8
    })
});

/// Returns the number with this logarithm. It may need 32 bits.
pub fn exponential(logarithm: u16) -> u32 {
    let [fraction, exponent] = logarithm.to_le_bytes();
    let mantissa = 0x100 | u32::from(FRACTIONS.get(usize::from(fraction)).copied().unwrap_or(0));
    match exponent {
        0..=9 => mantissa >> (9 - exponent),
        _ => mantissa << (u32::from(exponent - 9) & 31),
    }
}

/// Returns the number with this logarithm, which is negative for a negative number.
pub fn signed_exponential(logarithm: i16) -> i32 {
    let number = exponential(logarithm.unsigned_abs()).cast_signed();
    if logarithm < 0 { number.wrapping_neg() } else { number }
}

/// Returns the weight that is stored in a byte: 1024 is 1.
pub fn weight(stored: i8) -> i32 {
    let weight = i32::from(stored) * 8;
    if weight > 0 { weight + ((weight + 64) >> 7) } else { weight }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn logarithms_and_weights() {
        assert_eq!((exponential(0), exponential(0x100), exponential(0x0a00)), (0, 1, 512));
        assert_eq!(exponential(0x0980), 362);
        assert_eq!((signed_exponential(-0x0a00), signed_exponential(0x2000)), (-512, 256 << 23));
        assert_eq!((weight(127), weight(1), weight(0), weight(-128)), (1024, 8, 0, -1024));
    }
}
