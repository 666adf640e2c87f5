//! The numeric data types: one table with a row for each type. Sizes, names and ranges follow from it.
//!
//! [`NumberFormat`] is a row, found by [`DataType::number_format`]. [`NumericType`] is a type that Rust computes in;
//! `with_numeric_type` runs code with that Rust type. Uses `data_type`, `exact_number`.

use super::DataType;
use super::exact_number::Specials::{self, Ieee, NanIsAllOnes, NanIsNegativeZero};
use super::exact_number::{FloatFormat, IntegerFormat, ScalarFormat};

/// How the elements of a numeric data type represent numbers, and what the type is called.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberFormat {
    /// The data type.
    pub data_type: DataType,
    /// The name in v3.
    pub name: &'static str,
    /// NumPy's code without a byte order. An integer below 8 bits has the code of one with 8 bits; a float that NumPy
    /// does not have has the code of void bytes.
    pub numpy_code: &'static str,
    /// What one component is. A bool is an integer of one bit.
    pub scalar: ScalarFormat,
    /// The number of components: 2 (real, imaginary) in complex numbers, else 1.
    pub components: usize,
}

const fn row(
    data_type: DataType,
    name: &'static str,
    numpy_code: &'static str,
    scalar: ScalarFormat,
) -> NumberFormat {
    NumberFormat { data_type, name, numpy_code, scalar, components: 1 }
}

const fn complex(
    data_type: DataType,
    name: &'static str,
    numpy_code: &'static str,
    scalar: ScalarFormat,
) -> NumberFormat {
    NumberFormat { data_type, name, numpy_code, scalar, components: 2 }
}

const fn signed(bits: u32) -> ScalarFormat {
    ScalarFormat::Integer(IntegerFormat { bits, is_signed: true })
}

const fn unsigned(bits: u32) -> ScalarFormat {
    ScalarFormat::Integer(IntegerFormat { bits, is_signed: false })
}

/// Returns the format of a float with a sign bit.
const fn float(exponent_bits: u32, mantissa_bits: u32, bias: i32, specials: Specials) -> ScalarFormat {
    ScalarFormat::Float(FloatFormat { is_signed: true, exponent_bits, mantissa_bits, bias, specials })
}

/// A power of two: an exponent of 8 bits and nothing else.
const E8M0: ScalarFormat = ScalarFormat::Float(FloatFormat {
    is_signed: false,
    exponent_bits: 8,
    mantissa_bits: 0,
    bias: 127,
    specials: Specials::NanIsAllOnes,
});

/// The table. A float is given by the bits of its exponent and mantissa, its bias and its special values.
pub static NUMBER_FORMATS: [NumberFormat; 42] = [
    row(DataType::Bool, "bool", "b1", unsigned(1)),
    row(DataType::Int2, "int2", "i1", signed(2)),
    row(DataType::Int4, "int4", "i1", signed(4)),
    row(DataType::Int8, "int8", "i1", signed(8)),
    row(DataType::Int16, "int16", "i2", signed(16)),
    row(DataType::Int32, "int32", "i4", signed(32)),
    row(DataType::Int64, "int64", "i8", signed(64)),
    row(DataType::UInt2, "uint2", "u1", unsigned(2)),
    row(DataType::UInt4, "uint4", "u1", unsigned(4)),
    row(DataType::UInt8, "uint8", "u1", unsigned(8)),
    row(DataType::UInt16, "uint16", "u2", unsigned(16)),
    row(DataType::UInt32, "uint32", "u4", unsigned(32)),
    row(DataType::UInt64, "uint64", "u8", unsigned(64)),
    row(DataType::Float4E2M1Fn, "float4_e2m1fn", "V1", float(2, 1, 1, Specials::None)),
    row(DataType::Float6E2M3Fn, "float6_e2m3fn", "V1", float(2, 3, 1, Specials::None)),
    row(DataType::Float6E3M2Fn, "float6_e3m2fn", "V1", float(3, 2, 3, Specials::None)),
    row(DataType::Float8E3M4, "float8_e3m4", "V1", float(3, 4, 3, Ieee)),
    row(DataType::Float8E4M3, "float8_e4m3", "V1", float(4, 3, 7, Ieee)),
    row(DataType::Float8E4M3Fn, "float8_e4m3fn", "V1", float(4, 3, 7, NanIsAllOnes)),
    row(DataType::Float8E4M3B11Fnuz, "float8_e4m3b11fnuz", "V1", float(4, 3, 11, NanIsNegativeZero)),
    row(DataType::Float8E4M3Fnuz, "float8_e4m3fnuz", "V1", float(4, 3, 8, NanIsNegativeZero)),
    row(DataType::Float8E5M2, "float8_e5m2", "V1", float(5, 2, 15, Ieee)),
    row(DataType::Float8E5M2Fnuz, "float8_e5m2fnuz", "V1", float(5, 2, 16, NanIsNegativeZero)),
    row(DataType::Float8E8M0Fnu, "float8_e8m0fnu", "V1", E8M0),
    row(DataType::Float16, "float16", "f2", float(5, 10, 15, Ieee)),
    row(DataType::BFloat16, "bfloat16", "V2", float(8, 7, 127, Ieee)),
    row(DataType::Float32, "float32", "f4", ScalarFormat::FLOAT32),
    row(DataType::Float64, "float64", "f8", ScalarFormat::FLOAT64),
    complex(DataType::ComplexFloat4E2M1Fn, "complex_float4_e2m1fn", "V2", float(2, 1, 1, Specials::None)),
    complex(DataType::ComplexFloat6E2M3Fn, "complex_float6_e2m3fn", "V2", float(2, 3, 1, Specials::None)),
    complex(DataType::ComplexFloat6E3M2Fn, "complex_float6_e3m2fn", "V2", float(3, 2, 3, Specials::None)),
    complex(DataType::ComplexFloat8E3M4, "complex_float8_e3m4", "V2", float(3, 4, 3, Ieee)),
    complex(DataType::ComplexFloat8E4M3, "complex_float8_e4m3", "V2", float(4, 3, 7, Ieee)),
    complex(
        DataType::ComplexFloat8E4M3B11Fnuz,
        "complex_float8_e4m3b11fnuz",
        "V2",
        float(4, 3, 11, NanIsNegativeZero),
    ),
    complex(
        DataType::ComplexFloat8E4M3Fnuz,
        "complex_float8_e4m3fnuz",
        "V2",
        float(4, 3, 8, NanIsNegativeZero),
    ),
    complex(DataType::ComplexFloat8E5M2, "complex_float8_e5m2", "V2", float(5, 2, 15, Ieee)),
    complex(
        DataType::ComplexFloat8E5M2Fnuz,
        "complex_float8_e5m2fnuz",
        "V2",
        float(5, 2, 16, NanIsNegativeZero),
    ),
    complex(DataType::ComplexFloat8E8M0Fnu, "complex_float8_e8m0fnu", "V2", E8M0),
    complex(DataType::ComplexFloat16, "complex_float16", "V4", float(5, 10, 15, Ieee)),
    complex(DataType::ComplexBFloat16, "complex_bfloat16", "V4", float(8, 7, 127, Ieee)),
    complex(DataType::Complex64, "complex64", "c8", ScalarFormat::FLOAT32),
    complex(DataType::Complex128, "complex128", "c16", ScalarFormat::FLOAT64),
];

impl NumberFormat {
    /// Returns the bytes of an element.
    pub fn size(&self) -> usize {
        self.components * self.scalar.width()
    }
}

impl DataType {
    /// Returns the type's row in the table of numeric types. Times have no row: a caller decides whether to treat them
    /// as `int64`.
    pub fn number_format(&self) -> Option<&'static NumberFormat> {
        NUMBER_FORMATS.iter().find(|format| format.data_type == *self)
    }

    /// Returns the format of an integer or real float type.
    pub fn real_format(&self) -> Option<ScalarFormat> {
        let format = self.number_format()?;
        (format.components == 1 && *self != DataType::Bool).then_some(format.scalar)
    }

    /// Returns the type of the real part and of the imaginary part of a complex type.
    pub fn complex_part(&self) -> Option<&'static DataType> {
        let complex = self.number_format().filter(|format| format.components == 2)?;
        let part = NUMBER_FORMATS.iter().find(|row| row.components == 1 && row.scalar == complex.scalar);
        part.map(|row| &row.data_type)
    }

    /// Returns the format of an integer type.
    pub fn integer_format(&self) -> Option<IntegerFormat> {
        match self.real_format()? {
            ScalarFormat::Integer(format) => Some(format),
            _ => None,
        }
    }

    /// Returns the format of a real float type of at most 16 bits.
    pub fn minifloat(&self) -> Option<FloatFormat> {
        match self.real_format()? {
            ScalarFormat::Float(format) if format.bits() <= 16 => Some(format),
            _ => None,
        }
    }

    /// Returns the Rust type that holds an element in canonical form. Integers below 8 bits have that of 8 bits.
    pub fn numeric_type(&self) -> Option<NumericType> {
        let code = self.number_format()?.numpy_code;
        NumericType::ALL.into_iter().find(|numeric_type| numeric_type.numpy_code() == code)
    }
}

/// A bool: false for 0, true for every other byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bool(pub u8);

/// A complex number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Complex<F> {
    /// The real part.
    pub real: F,
    /// The imaginary part.
    pub imaginary: F,
}

/// What a [`NumericType`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NumberClass {
    Bool,
    Signed,
    Unsigned,
    Float,
    Complex,
}

macro_rules! numeric_types {
    ($($numeric_type:ident $data_type:ident $numpy_code:literal $rust_type:ty, $class:ident;)*) => {
        /// A number type that Rust computes in: the types that NumPy and most other programs have.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum NumericType { $($numeric_type,)* }

        impl NumericType {
            /// All of them.
            pub const ALL: [NumericType; 14] = [$(NumericType::$numeric_type,)*];

            /// Returns the bytes of an element.
            pub const fn size(self) -> usize {
                match self { $(NumericType::$numeric_type => size_of::<$rust_type>(),)* }
            }

            /// Returns NumPy's code without a byte order.
            pub const fn numpy_code(self) -> &'static str {
                match self { $(NumericType::$numeric_type => $numpy_code,)* }
            }

            /// Returns the data type.
            pub const fn data_type(self) -> DataType {
                match self { $(NumericType::$numeric_type => DataType::$data_type,)* }
            }

            /// Returns whether it is a bool, an integer, a float or complex.
            pub const fn class(self) -> NumberClass {
                match self { $(NumericType::$numeric_type => NumberClass::$class,)* }
            }
        }
    };
}

numeric_types! {
    Bool Bool "b1" Bool, Bool;
    I8 Int8 "i1" i8, Signed;
    I16 Int16 "i2" i16, Signed;
    I32 Int32 "i4" i32, Signed;
    I64 Int64 "i8" i64, Signed;
    U8 UInt8 "u1" u8, Unsigned;
    U16 UInt16 "u2" u16, Unsigned;
    U32 UInt32 "u4" u32, Unsigned;
    U64 UInt64 "u8" u64, Unsigned;
    F16 Float16 "f2" half::f16, Float;
    F32 Float32 "f4" f32, Float;
    F64 Float64 "f8" f64, Float;
    C64 Complex64 "c8" Complex<f32>, Complex;
    C128 Complex128 "c16" Complex<f64>, Complex;
}

impl NumericType {
    /// Returns whether it is an integer. A bool is not.
    pub fn is_integer(self) -> bool {
        matches!(self.class(), NumberClass::Signed | NumberClass::Unsigned)
    }

    /// Returns whether it is a signed integer.
    pub fn is_signed_integer(self) -> bool {
        self.class() == NumberClass::Signed
    }

    /// Returns whether it is a real float.
    pub fn is_float(self) -> bool {
        self.class() == NumberClass::Float
    }

    /// Returns whether it is complex.
    pub fn is_complex(self) -> bool {
        self.class() == NumberClass::Complex
    }
}

/// Evaluates an expression in which a name stands for the Rust type of a [`NumericType`]: one expression for all types,
/// or one for integers (`integer`) or for integers and floats (`real`) and another for the rest.
macro_rules! with_numeric_type {
    (@alias $T:ident = $rust_type:ty, $body:expr) => {{
        // An expression need not name its type.
        #[allow(dead_code)]
        type $T = $rust_type;
        $body
    }};
    (@match $numeric_type:expr, $B:ident $bool:expr, $I:ident $integer:expr, $F:ident $float:expr, $C:ident $complex:expr) => {{
        use $crate::metadata::data_type::numeric::{self as numeric, NumericType, with_numeric_type};
        match $numeric_type {
            NumericType::Bool => with_numeric_type!(@alias $B = numeric::Bool, $bool),
            NumericType::I8 => with_numeric_type!(@alias $I = i8, $integer),
            NumericType::I16 => with_numeric_type!(@alias $I = i16, $integer),
            NumericType::I32 => with_numeric_type!(@alias $I = i32, $integer),
            NumericType::I64 => with_numeric_type!(@alias $I = i64, $integer),
            NumericType::U8 => with_numeric_type!(@alias $I = u8, $integer),
            NumericType::U16 => with_numeric_type!(@alias $I = u16, $integer),
            NumericType::U32 => with_numeric_type!(@alias $I = u32, $integer),
            NumericType::U64 => with_numeric_type!(@alias $I = u64, $integer),
            NumericType::F16 => with_numeric_type!(@alias $F = half::f16, $float),
            NumericType::F32 => with_numeric_type!(@alias $F = f32, $float),
            NumericType::F64 => with_numeric_type!(@alias $F = f64, $float),
            NumericType::C64 => with_numeric_type!(@alias $C = numeric::Complex<f32>, $complex),
            NumericType::C128 => with_numeric_type!(@alias $C = numeric::Complex<f64>, $complex),
        }
    }};
    ($numeric_type:expr, $T:ident => $body:expr) => {
        $crate::metadata::data_type::numeric::with_numeric_type!(
            @match $numeric_type, $T $body, $T $body, $T $body, $T $body
        )
    };
    ($numeric_type:expr, real $T:ident => $body:expr, else $other:expr) => {
        $crate::metadata::data_type::numeric::with_numeric_type!(
            @match $numeric_type, $T $other, $T $body, $T $body, $T $other
        )
    };
    ($numeric_type:expr, integer $T:ident => $body:expr, else $other:expr) => {
        $crate::metadata::data_type::numeric::with_numeric_type!(
            @match $numeric_type, $T $other, $T $body, $T $other, $T $other
        )
    };
}
pub(crate) use with_numeric_type;
