//! The operations of `scale_offset` in each data type. Uses `metadata`.
//!
//! [`Native`] is for the types that Rust (or `half`) computes in, [`Narrow`] for the rest: each of its operations
//! is done in float64 or int64 and then rounded once to the type, which is the correctly rounded result, because
//! those have more than twice the digits.

use std::fmt;

use half::f16;

use crate::codec::{CodecError, CodecResult};
use crate::metadata::data_type::exact_number::{ExactNumber, OutOfRange, Rounding, ScalarFormat};

/// Elements that are computed between two checks that all of them were representable.
const BLOCK_ELEMENTS: usize = 1024;

/// Encodes and decodes elements. Input and output have the same length.
pub trait Arithmetic: Send + Sync {
    /// Computes `(in − offset) × scale`.
    fn encode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()>;
    /// Computes `in / scale + offset`.
    fn decode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()>;
}

/// A type that is computed in directly.
pub trait NativeNumber: Copy + fmt::Debug + Send + Sync + 'static {
    /// Its bytes, `[u8; N]`.
    type Bytes: AsRef<[u8]> + for<'a> TryFrom<&'a [u8]> + Default;
    /// 0, the offset where none is given.
    const ZERO: Self;
    /// 1, the scale where none is given.
    const ONE: Self;
    /// Reads little-endian bytes.
    fn from_bytes(bytes: Self::Bytes) -> Self;
    /// Returns little-endian bytes.
    fn to_bytes(self) -> Self::Bytes;
    /// Returns whether it is neither infinite nor NaN.
    fn is_finite(self) -> bool;
    /// Returns the encoded value, and whether it and the intermediate values are finite values of the type.
    fn encode(self, offset: Self, scale: Self) -> (Self, bool);
    /// Returns the decoded value, and whether it and the intermediate values are finite values of the type.
    fn decode(self, offset: Self, scale: Self) -> (Self, bool);
}

macro_rules! number {
    ($type:ty, $zero:expr, $one:expr, { $($operations:item)* }) => {
        impl NativeNumber for $type {
            type Bytes = [u8; size_of::<$type>()];
            const ZERO: Self = $zero;
            const ONE: Self = $one;
            #[inline(always)]
            fn from_bytes(bytes: Self::Bytes) -> Self {
                <$type>::from_le_bytes(bytes)
            }
            #[inline(always)]
            fn to_bytes(self) -> Self::Bytes {
                self.to_le_bytes()
            }
            $($operations)*
        }
    };
}

macro_rules! integer {
    ($($type:ty)*) => { $(
        number!($type, 0, 1, {
            fn is_finite(self) -> bool {
                true
            }
            #[inline(always)]
            fn encode(self, offset: Self, scale: Self) -> (Self, bool) {
                let (difference, is_beyond) = self.overflowing_sub(offset);
                let (product, is_also) = difference.overflowing_mul(scale);
                (product, !(is_beyond | is_also))
            }
            #[inline(always)]
            fn decode(self, offset: Self, scale: Self) -> (Self, bool) {
                // None: by 0, which no codec is built with, or the least number by −1.
                let Some(quotient) = self.checked_div(scale) else { return (0, false) };
                let (sum, is_beyond) = quotient.overflowing_add(offset);
                (sum, !is_beyond & (quotient.wrapping_mul(scale) == self))
            }
        });
    )* };
}

macro_rules! float {
    ($($type:ty, $zero:expr, $one:expr;)*) => { $(
        number!($type, $zero, $one, {
            fn is_finite(self) -> bool {
                <$type>::is_finite(self)
            }
            #[inline(always)]
            fn encode(self, offset: Self, scale: Self) -> (Self, bool) {
                let product = (self - offset) * scale;
                (product, product.is_finite())
            }
            #[inline(always)]
            fn decode(self, offset: Self, scale: Self) -> (Self, bool) {
                let sum = self / scale + offset;
                (sum, sum.is_finite())
            }
        });
    )* };
}

integer! { i8 i16 i32 i64 u8 u16 u32 u64 }
float! {
    f16, f16::ZERO, f16::ONE;
    f32, 0.0, 1.0;
    f64, 0.0, 1.0;
}

/// Encoding or decoding, for error messages.
#[derive(Clone, Copy)]
enum Direction {
    Encode,
    Decode,
}

/// Creates the error for an element with a result that its type cannot hold.
fn unrepresentable(
    direction: Direction,
    name: &str,
    index: usize,
    [value, offset, scale]: [String; 3],
) -> CodecError {
    let expression = match direction {
        Direction::Encode => format!("({value} - {offset}) * {scale}"),
        Direction::Decode => format!("{value} / {scale} + {offset}"),
    };
    CodecError::new(format_args!(
        "codec \"scale_offset\": element {index}: {expression} is not representable in {name}"
    ))
}

/// Arithmetic in a type of [`NativeNumber`].
pub struct Native<T> {
    name: String,
    offset: T,
    scale: T,
}

/// Reads the element at the beginning of `bytes`.
#[inline(always)]
fn load<T: NativeNumber>(bytes: &[u8]) -> T {
    let bytes = bytes.get(..size_of::<T>()).unwrap_or(&[]);
    T::from_bytes(T::Bytes::try_from(bytes).unwrap_or_default())
}

impl<T: NativeNumber> Native<T> {
    /// Creates the arithmetic of the type `name`, with parameters as its codes.
    pub fn boxed(name: String, offset: Option<u64>, scale: Option<u64>) -> Box<dyn Arithmetic> {
        let of = |code: Option<u64>, or: T| code.map_or(or, |code| load(&code.to_le_bytes()));
        Box::new(Native { name, offset: of(offset, T::ZERO), scale: of(scale, T::ONE) })
    }

    /// Applies `operation` to every element; the first result that the type cannot hold is an error.
    #[inline(always)]
    fn each(
        &self,
        input: &[u8],
        out: &mut [u8],
        operation: impl Fn(T, T, T) -> (T, bool),
        direction: Direction,
    ) -> CodecResult<()> {
        let width = size_of::<T>();
        let blocks = input.chunks(BLOCK_ELEMENTS * width).zip(out.chunks_mut(BLOCK_ELEMENTS * width));
        for (index, (input, out)) in blocks.enumerate() {
            let mut is_finite = true;
            for (element, out) in input.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
                let (result, is_so) = operation(load(element), self.offset, self.scale);
                is_finite &= is_so;
                out.copy_from_slice(result.to_bytes().as_ref());
            }
            if !is_finite {
                self.check(input, index * BLOCK_ELEMENTS, &operation, direction)?;
            }
        }
        Ok(())
    }

    /// Checks a block with results that are not finite: an error if finite numbers gave one of them.
    #[cold]
    fn check(
        &self,
        input: &[u8],
        first: usize,
        operation: impl Fn(T, T, T) -> (T, bool),
        direction: Direction,
    ) -> CodecResult<()> {
        if !(self.offset.is_finite() && self.scale.is_finite()) {
            return Ok(());
        }
        for (index, element) in input.chunks_exact(size_of::<T>()).enumerate() {
            let value: T = load(element);
            if value.is_finite() && !operation(value, self.offset, self.scale).1 {
                let numbers = [value, self.offset, self.scale].map(|number| format!("{number:?}"));
                return Err(unrepresentable(direction, &self.name, first + index, numbers));
            }
        }
        Ok(())
    }
}

impl<T: NativeNumber> Arithmetic for Native<T> {
    fn encode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        self.each(input, out, T::encode, Direction::Encode)
    }

    fn decode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        self.each(input, out, T::decode, Direction::Decode)
    }
}

/// Arithmetic in a type of at most 16 bits by its [`ScalarFormat`], with parameters as its codes.
pub struct Narrow {
    /// The type's name.
    pub name: String,
    /// The layout of its values.
    pub format: ScalarFormat,
    /// `None` where the type has no default: e8m0 has no 0, so nothing is subtracted or added.
    pub offset: Option<u64>,
    /// As `offset`: a type without 1 has no default.
    pub scale: Option<u64>,
}

impl Narrow {
    /// Computes in an integer type; `None` if the type cannot hold the result or an intermediate value.
    fn integer(&self, code: u64, direction: Direction) -> Option<u64> {
        let of = |code: u64| match self.format.read(code) {
            ExactNumber::Finite { is_negative: true, significand, .. } => {
                0i64.checked_sub_unsigned(significand)
            }
            ExactNumber::Finite { significand, .. } => 0i64.checked_add_unsigned(significand),
            _ => None,
        };
        let code_of = |value: i64| {
            let (is_negative, significand) = (value < 0, value.unsigned_abs());
            let value = ExactNumber::Finite { is_negative, significand, exponent: 0 };
            self.format.write(value, Rounding::NearestEven, OutOfRange::Refuse).ok()
        };
        let (value, offset) = (of(code)?, self.offset.map_or(Some(0), of)?);
        let scale = self.scale.map_or(Some(1), of)?;
        match direction {
            Direction::Encode => {
                let difference = of(code_of(value.checked_sub(offset)?)?)?;
                code_of(difference.checked_mul(scale)?)
            }
            Direction::Decode => {
                if value.checked_rem(scale)? != 0 {
                    return None;
                }
                let quotient = of(code_of(value.checked_div(scale)?)?)?;
                code_of(quotient.checked_add(offset)?)
            }
        }
    }

    /// Computes in a float type; `None` if the type cannot hold the result or an intermediate value.
    fn float(&self, code: u64, direction: Direction) -> Option<u64> {
        let of = |code: u64| {
            let value = self.format.read(code);
            let bits = ScalarFormat::FLOAT64.write(value, Rounding::NearestEven, OutOfRange::Refuse).ok()?;
            Some(f64::from_bits(bits))
        };
        let code_of = |value: f64| {
            self.format.write(ExactNumber::from_f64(value), Rounding::NearestEven, OutOfRange::Refuse).ok()
        };
        let then = |code: u64, parameter: Option<u64>, operation: fn(f64, f64) -> f64| match parameter {
            Some(parameter) => code_of(operation(of(code)?, of(parameter)?)),
            None => Some(code),
        };
        match direction {
            Direction::Encode => then(then(code, self.offset, |a, b| a - b)?, self.scale, |a, b| a * b),
            Direction::Decode => then(then(code, self.scale, |a, b| a / b)?, self.offset, |a, b| a + b),
        }
    }

    fn each(&self, input: &[u8], out: &mut [u8], direction: Direction) -> CodecResult<()> {
        let width = self.format.width();
        for (index, (element, out)) in input.chunks_exact(width).zip(out.chunks_exact_mut(width)).enumerate()
        {
            let code = element.iter().rev().fold(0, |code, &byte| code << 8 | u64::from(byte));
            let result = match self.format {
                ScalarFormat::Integer(_) => self.integer(code, direction),
                ScalarFormat::Float(_) => self.float(code, direction),
            };
            let Some(result) = result else {
                let text = |code: Option<u64>, or: &str| match code {
                    Some(code) => self.format.text(code),
                    None => or.to_owned(),
                };
                let numbers = [text(Some(code), ""), text(self.offset, "0"), text(self.scale, "1")];
                return Err(unrepresentable(direction, &self.name, index, numbers));
            };
            for (to, from) in out.iter_mut().zip(result.to_le_bytes()) {
                *to = from;
            }
        }
        Ok(())
    }
}

impl Arithmetic for Narrow {
    fn encode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        self.each(input, out, Direction::Encode)
    }

    fn decode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        self.each(input, out, Direction::Decode)
    }
}
