//! Real numbers as the numeric data types hold them, and their exact conversion from one type to another.
//!
//! [`ExactNumber`] holds every value of every integer and float type without loss (a sign, 64 bits and a power of two),
//! so that a conversion is reading and writing: exact, and rounded once. [`ScalarFormat`] is how a data type represents
//! its values. The codecs `cast_value` and `scale_offset` use all of it, other modules the formats. Uses nothing.
//!
//! Spec: zarr-extensions, codecs/cast_value, "Procedure", "rounding" and "out_of_range"; IEEE 754-2019, 4.3.
//! How the text is read here:
//! - A float is rounded to the target's precision first, its range comes second. So 1e39 is out of float32's
//!   range by every rounding, towards-zero too, and what rounds down to the greatest value is within it.
//! - An infinity is never clamped: where the target has none, only the scalar map helps ("MUST error").
//! - A tie between two powers of two (float8_e8m0fnu has no lower digit to be even) goes to the greater
//!   magnitude, as IEEE 754 says for one-digit significands.
//! - A NaN keeps its sign and as much of its payload as there is room for, and becomes a quiet one.

/// How a value between two neighbours of the target is rounded (`rounding`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the specification's own names
pub enum Rounding {
    #[default]
    NearestEven,
    TowardsZero,
    TowardsPositive,
    TowardsNegative,
    NearestAway,
}

/// The treatment of a value beyond the target's range (`out_of_range`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutOfRange {
    /// An error.
    #[default]
    Refuse,
    /// The least or greatest value; ±Infinity where the target has it.
    Clamp,
    /// Modulo 2 to the number of bits. Integer targets only; an error for a float target.
    Wrap,
}

/// The reason why a value has no counterpart in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrepresentable {
    /// The target has no NaN.
    Nan,
    /// The target has no infinity.
    Infinity,
    /// The value is less or greater than all of the target's.
    OutOfRange,
}

/// A value of any integer or float type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExactNumber {
    /// `significand × 2^exponent`, negated if so. Zero has the significand 0 and keeps its sign.
    Finite {
        /// Whether it is negative.
        is_negative: bool,
        /// Not normalised: 2 × 2^0 and 1 × 2^1 are the same number.
        significand: u64,
        /// Power of two.
        exponent: i32,
    },
    /// ±Infinity.
    Infinity {
        /// Whether it is negative.
        is_negative: bool,
    },
    /// Not a number.
    Nan {
        /// The sign bit.
        is_negative: bool,
        /// The fraction, left-aligned; the top bit says quiet.
        payload: u64,
    },
}

impl ExactNumber {
    /// Creates the exact value of a float64.
    pub fn from_f64(value: f64) -> ExactNumber {
        ScalarFormat::FLOAT64.read(value.to_bits())
    }

    /// Returns whether two are the same number: −0 equals 0, and all NaNs are equal.
    pub fn is_same_number(self, other: ExactNumber) -> bool {
        self.normalised() == other.normalised()
    }

    /// Returns the one form that equal numbers share.
    fn normalised(self) -> ExactNumber {
        match self {
            ExactNumber::Finite { significand: 0, .. } => {
                ExactNumber::Finite { is_negative: false, significand: 0, exponent: 0 }
            }
            ExactNumber::Finite { is_negative, significand, exponent } => {
                let zeros = significand.trailing_zeros();
                ExactNumber::Finite {
                    is_negative,
                    significand: significand >> zeros,
                    exponent: exponent + zeros.cast_signed(),
                }
            }
            ExactNumber::Nan { .. } => ExactNumber::Nan { is_negative: false, payload: 0 },
            ExactNumber::Infinity { .. } => self,
        }
    }
}

/// Computes `significand / 2^shift`, rounded to a whole number. `shift` is at least 1.
#[inline]
fn shift_right(significand: u64, shift: u32, is_negative: bool, rounding: Rounding) -> u64 {
    let (quotient, remainder, half) = match shift {
        1..=63 => (significand >> shift, significand & ((1 << shift) - 1), 1 << (shift - 1)),
        64 => (0, significand, 1 << 63),
        // Less than half: it only matters whether it is zero.
        _ => (0, u64::from(significand != 0), u64::MAX),
    };
    let is_up = match rounding {
        Rounding::NearestEven => remainder > half || (remainder == half && quotient & 1 == 1),
        Rounding::TowardsZero => false,
        Rounding::TowardsPositive => !is_negative && remainder != 0,
        Rounding::TowardsNegative => is_negative && remainder != 0,
        Rounding::NearestAway => remainder >= half,
    };
    quotient + u64::from(is_up)
}

/// A two's complement or unsigned integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntegerFormat {
    /// Bits of a value. The other bits of its bytes repeat the sign, or are 0.
    pub bits: u32,
    /// Whether there are negative numbers.
    pub is_signed: bool,
}

/// The codes of a float type that are not finite numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// As in IEEE 754: the highest exponent is infinity and NaN.
    Ieee,
    /// No infinity; NaN is all ones below the sign (`fn`), or all ones where there is no sign.
    NanIsAllOnes,
    /// No infinity and no negative zero; NaN is the code of negative zero (`fnuz`).
    NanIsNegativeZero,
    /// Every code is a finite number.
    None,
}

/// A binary float type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatFormat {
    /// Whether there is a sign bit. Without one there are only powers of two, and no zero (`float8_e8m0fnu`).
    pub is_signed: bool,
    /// Bits of the exponent.
    pub exponent_bits: u32,
    /// Bits of the mantissa.
    pub mantissa_bits: u32,
    /// The number that is subtracted from the stored exponent.
    pub bias: i32,
    /// The codes that are not finite numbers.
    pub specials: Specials,
}

/// How a numeric data type lays its values out. Codes are the bits of an element in canonical form,
/// zero-extended to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarFormat {
    /// Integers.
    Integer(IntegerFormat),
    /// Floats.
    Float(FloatFormat),
}

impl ScalarFormat {
    /// float32.
    pub const FLOAT32: ScalarFormat = ScalarFormat::ieee(8, 23, 127);
    /// float64.
    pub const FLOAT64: ScalarFormat = ScalarFormat::ieee(11, 52, 1023);

    const fn ieee(exponent_bits: u32, mantissa_bits: u32, bias: i32) -> ScalarFormat {
        ScalarFormat::Float(FloatFormat {
            is_signed: true,
            exponent_bits,
            mantissa_bits,
            bias,
            specials: Specials::Ieee,
        })
    }

    /// Returns the bytes of an element: 1, 2, 4 or 8.
    pub fn width(self) -> usize {
        match self {
            ScalarFormat::Integer(format) => format.bits.div_ceil(8) as usize,
            ScalarFormat::Float(format) => format.bits().div_ceil(8) as usize,
        }
    }

    /// Decodes a code.
    #[inline]
    pub fn read(self, code: u64) -> ExactNumber {
        match self {
            ScalarFormat::Integer(format) => format.read(code),
            ScalarFormat::Float(format) => format.read(code),
        }
    }

    /// Encodes a value: exactly if the type has it, else rounded, else as `out_of_range` says.
    #[inline]
    pub fn write(
        self,
        value: ExactNumber,
        rounding: Rounding,
        out_of_range: OutOfRange,
    ) -> Result<u64, Unrepresentable> {
        match self {
            ScalarFormat::Integer(format) => format.write(value, rounding, out_of_range),
            ScalarFormat::Float(format) => format.write(value, rounding, out_of_range),
        }
    }

    /// Formats the number of a code for error messages.
    pub fn text(self, code: u64) -> String {
        let value = self.read(code);
        match (self, value) {
            (ScalarFormat::Integer(_), ExactNumber::Finite { is_negative, significand, .. }) => {
                format!("{}{significand}", if is_negative { "-" } else { "" })
            }
            _ => match ScalarFormat::FLOAT64.write(value, Rounding::NearestEven, OutOfRange::Clamp) {
                Ok(bits) if self.width() == 4 => format!("{:?}", f64::from_bits(bits) as f32),
                Ok(bits) => format!("{:?}", f64::from_bits(bits)),
                Err(_) => format!("{value:?}"),
            },
        }
    }
}

impl IntegerFormat {
    /// Returns the least and the greatest value.
    pub fn range(self) -> (i128, i128) {
        if self.is_signed {
            (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1)
        } else {
            (0, (1 << self.bits) - 1)
        }
    }

    #[inline]
    fn read(self, code: u64) -> ExactNumber {
        let above = 64 - self.bits;
        let (is_negative, significand) = if self.is_signed {
            let value = (code << above).cast_signed() >> above;
            (value < 0, value.unsigned_abs())
        } else {
            (false, (code << above) >> above)
        };
        ExactNumber::Finite { is_negative, significand, exponent: 0 }
    }

    #[inline]
    fn write(
        self,
        value: ExactNumber,
        rounding: Rounding,
        out_of_range: OutOfRange,
    ) -> Result<u64, Unrepresentable> {
        let (is_negative, significand, exponent) = match value {
            ExactNumber::Finite { is_negative, significand, exponent } => {
                (is_negative, significand, exponent)
            }
            ExactNumber::Infinity { .. } => return Err(Unrepresentable::Infinity),
            ExactNumber::Nan { .. } => return Err(Unrepresentable::Nan),
        };
        // The whole number modulo 2^64, and whether it has no more bits than that.
        let (magnitude, fits) = match exponent {
            0 => (significand, true),
            1.. => {
                let shifted = significand.checked_shl(exponent.unsigned_abs()).unwrap_or(0);
                (shifted, significand == 0 || exponent.unsigned_abs() <= significand.leading_zeros())
            }
            _ => (shift_right(significand, exponent.unsigned_abs(), is_negative, rounding), true),
        };
        let greatest = match (self.is_signed, is_negative) {
            (true, _) => (1 << (self.bits - 1)) - u64::from(!is_negative),
            (false, true) => 0,
            (false, false) => u64::MAX >> (64 - self.bits),
        };
        let magnitude = match out_of_range {
            _ if fits && magnitude <= greatest => magnitude,
            OutOfRange::Refuse => return Err(Unrepresentable::OutOfRange),
            OutOfRange::Clamp => greatest,
            OutOfRange::Wrap => magnitude,
        };
        let twos_complement = if is_negative { magnitude.wrapping_neg() } else { magnitude };
        Ok(self.canonical(twos_complement))
    }

    /// Returns the low bits of `code`, sign-extended within the element's bytes and no further.
    #[inline]
    fn canonical(self, code: u64) -> u64 {
        let above = 64 - self.bits;
        let beyond_bytes = 64 - self.bits.div_ceil(8) * 8;
        if self.is_signed {
            (((code << above).cast_signed() >> above).cast_unsigned() << beyond_bytes) >> beyond_bytes
        } else {
            (code << above) >> above
        }
    }
}

impl FloatFormat {
    /// Returns the bits of a code.
    pub fn bits(self) -> u32 {
        self.exponent_bits + self.mantissa_bits + u32::from(self.is_signed)
    }

    /// Returns the exponent of the last binary place of the smallest numbers.
    #[inline]
    fn least_place(self) -> i32 {
        i32::from(self.is_signed) - self.bias - self.mantissa_bits.cast_signed()
    }

    /// Returns the mask of all bits except the sign.
    #[inline]
    fn magnitude_mask(self) -> u64 {
        (1 << (self.exponent_bits + self.mantissa_bits)) - 1
    }

    #[inline]
    fn infinity(self) -> u64 {
        self.magnitude_mask() >> self.mantissa_bits << self.mantissa_bits
    }

    /// Returns the code of the greatest finite number.
    #[inline]
    fn greatest(self) -> u64 {
        match self.specials {
            Specials::Ieee => self.infinity() - 1,
            Specials::NanIsAllOnes => self.magnitude_mask() - 1,
            Specials::NanIsNegativeZero | Specials::None => self.magnitude_mask(),
        }
    }

    #[inline]
    fn sign(self, is_negative: bool) -> u64 {
        u64::from(is_negative && self.is_signed) << (self.exponent_bits + self.mantissa_bits)
    }

    /// Decodes a code.
    #[inline]
    pub fn read(self, code: u64) -> ExactNumber {
        let magnitude = code & self.magnitude_mask();
        let is_negative = code & self.sign(true) != 0;
        let exponent = (magnitude >> self.mantissa_bits) as i32;
        let fraction = magnitude & ((1 << self.mantissa_bits) - 1);
        match self.specials {
            Specials::Ieee if magnitude >= self.infinity() => match fraction {
                0 => ExactNumber::Infinity { is_negative },
                _ => ExactNumber::Nan { is_negative, payload: fraction << (64 - self.mantissa_bits) },
            },
            Specials::NanIsAllOnes if magnitude == self.magnitude_mask() => {
                ExactNumber::Nan { is_negative, payload: 0 }
            }
            Specials::NanIsNegativeZero if magnitude == 0 && is_negative => {
                ExactNumber::Nan { is_negative, payload: 0 }
            }
            // Subnormal: without the leading 1.
            _ if exponent == 0 && self.is_signed => {
                ExactNumber::Finite { is_negative, significand: fraction, exponent: self.least_place() }
            }
            _ => ExactNumber::Finite {
                is_negative,
                significand: fraction | (1 << self.mantissa_bits),
                exponent: self.least_place() + exponent - i32::from(self.is_signed),
            },
        }
    }

    /// Encodes a value as [`ScalarFormat::write`] does.
    #[inline]
    pub fn write(
        self,
        value: ExactNumber,
        rounding: Rounding,
        out_of_range: OutOfRange,
    ) -> Result<u64, Unrepresentable> {
        match value {
            ExactNumber::Finite { is_negative, significand, exponent } => {
                match self.magnitude(is_negative, significand, exponent, rounding) {
                    Some(0) if self.specials == Specials::NanIsNegativeZero => Ok(0),
                    Some(magnitude) => Ok(self.sign(is_negative) | magnitude),
                    None => self.beyond(value, out_of_range),
                }
            }
            ExactNumber::Infinity { is_negative } => match self.specials {
                Specials::Ieee => Ok(self.sign(is_negative) | self.infinity()),
                _ => Err(Unrepresentable::Infinity),
            },
            ExactNumber::Nan { is_negative, payload } => match self.specials {
                Specials::Ieee => {
                    let quiet = payload | (1 << 63);
                    Ok(self.sign(is_negative) | self.infinity() | (quiet >> (64 - self.mantissa_bits)))
                }
                Specials::NanIsAllOnes => Ok(self.sign(is_negative) | self.magnitude_mask()),
                Specials::NanIsNegativeZero => Ok(self.sign(true)),
                Specials::None => Err(Unrepresentable::Nan),
            },
        }
    }

    /// Encodes a finite number without its sign; `None` if it is out of range.
    #[inline]
    fn magnitude(
        self,
        is_negative: bool,
        significand: u64,
        exponent: i32,
        rounding: Rounding,
    ) -> Option<u64> {
        if significand == 0 {
            return self.is_signed.then_some(0);
        }
        if is_negative && !self.is_signed {
            return None;
        }
        let top = 63 - significand.leading_zeros().cast_signed() + exponent;
        let by_precision = top - self.mantissa_bits.cast_signed();
        let least = self.least_place();
        // The place that the last digit of the rounded significand has. Powers of two have no subnormals.
        let place = if self.is_signed { by_precision.max(least) } else { by_precision };
        let rounded = match place - exponent {
            0 => significand,
            up @ 1.. => shift_right(significand, up.unsigned_abs(), is_negative, rounding),
            down => significand << down.unsigned_abs(),
        };
        // The leading 1 of a normal number carries into the exponent, and so does one that rounding brought.
        // Powers of two have their leading 1 only, and no code below that of the least of them.
        let code = (i64::from(place - least) << self.mantissa_bits) + rounded.cast_signed()
            - i64::from(!self.is_signed);
        u64::try_from(code).ok().filter(|&code| code <= self.greatest())
    }

    /// Returns the code that replaces a finite number out of range.
    fn beyond(self, value: ExactNumber, out_of_range: OutOfRange) -> Result<u64, Unrepresentable> {
        let ExactNumber::Finite { is_negative, significand, exponent } = value else {
            return Err(Unrepresentable::OutOfRange);
        };
        match (out_of_range, self.specials) {
            (OutOfRange::Clamp, Specials::Ieee) => Ok(self.sign(is_negative) | self.infinity()),
            (OutOfRange::Clamp, _) => {
                let is_below = !self.is_signed && (is_negative || significand == 0 || exponent < 0);
                Ok(if is_below { 0 } else { self.sign(is_negative) | self.greatest() })
            }
            (OutOfRange::Refuse | OutOfRange::Wrap, _) => Err(Unrepresentable::OutOfRange),
        }
    }
}

#[cfg(test)]
mod tests;
