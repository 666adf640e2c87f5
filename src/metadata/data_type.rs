//! Data types: the element of an array, its size and the parts of it that have a byte order.
//!
//! Spec: v3 "Data types", v2 "Data type encoding". Uses `error` only.
//!
//! The **canonical form** of an element, used everywhere behind the codecs: little-endian, packed, bool as
//! one byte 0 or 1, int2/int4 sign-extended to one byte, complex as real then imaginary, struct fields in order.

/// Units of datetime64 and timedelta64, NumPy's codes: `generic Y M W D h m s ms us ns ps fs as`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TimeUnit {
    /// NumPy's code.
    pub unit: String,
    /// Multiple of the unit that one step is (`[10ms]` is 10).
    pub scale_factor: u32,
}

/// One field of a struct.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// Its name; empty for padding.
    pub name: String,
    /// Its type.
    pub data_type: DataType,
    /// Shape of a subarray field; empty for a scalar.
    pub shape: Vec<u64>,
}

/// The type of an element. Floats below 8 bits and int2/int4 take one byte each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the variants are the specification's own names
pub enum DataType {
    Bool,
    Int2,
    Int4,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt2,
    UInt4,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Float4E2M1Fn,
    Float6E2M3Fn,
    Float6E3M2Fn,
    Float8E3M4,
    Float8E4M3,
    Float8E4M3B11Fnuz,
    Float8E4M3Fnuz,
    Float8E5M2,
    Float8E5M2Fnuz,
    Float8E8M0Fnu,
    Float16,
    BFloat16,
    Float32,
    Float64,
    Complex64,
    Complex128,
    /// `r*`, `raw_bytes`, v2 `V`: so many bytes, never swapped.
    Raw(usize),
    /// v2 `S`, v3 `null_terminated_bytes`: so many bytes, NUL-padded.
    NullTerminatedBytes(usize),
    /// v2 `U`, v3 `fixed_length_utf32`: so many code points, 4 bytes each.
    FixedLengthUtf32(usize),
    DateTime64(TimeUnit),
    TimeDelta64(TimeUnit),
    Struct(Vec<Field>),
}

/// A part of an element that is swapped as a whole when the byte order differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component {
    /// Where it starts in the element, in bytes.
    pub offset: usize,
    /// Its length in bytes (1 for what is never swapped).
    pub width: usize,
}
