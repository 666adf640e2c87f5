//! NumPy's numeric dtypes, as the numcodecs filters name them: their names, and the kind that two fit in.
//!
//! Format: NumPy's `dtype.str` (`"<f4"`, `">i2"`, `"|b1"`), its names (`"float32"`) and one-letter codes; a name
//! without byte order is little-endian. Uses `metadata`.

use crate::metadata::{ByteOrder, DataType};

/// Kinds of numbers, NumPy's codes in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NumericKind {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    F32,
    F64,
    C64,
    C128,
}

/// A numeric dtype: kind and byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumericDtype {
    /// What the elements are.
    pub kind: NumericKind,
    /// The byte order of each element, or of each half of a complex one.
    pub byte_order: ByteOrder,
}

impl NumericKind {
    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            NumericKind::Bool | NumericKind::I8 | NumericKind::U8 => 1,
            NumericKind::I16 | NumericKind::U16 | NumericKind::F16 => 2,
            NumericKind::I32 | NumericKind::U32 | NumericKind::F32 => 4,
            NumericKind::I64 | NumericKind::U64 | NumericKind::F64 | NumericKind::C64 => 8,
            NumericKind::C128 => 16,
        }
    }

    /// Whether it is an integer (bool is not).
    pub fn is_integer(self) -> bool {
        use NumericKind::*;
        matches!(self, I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64)
    }

    /// Whether it is a real float.
    pub fn is_float(self) -> bool {
        matches!(self, NumericKind::F16 | NumericKind::F32 | NumericKind::F64)
    }

    /// Whether it is complex.
    pub fn is_complex(self) -> bool {
        matches!(self, NumericKind::C64 | NumericKind::C128)
    }

    /// The kind of a data type's elements; times are their int64.
    pub fn of(data_type: &DataType) -> Option<NumericKind> {
        Some(match data_type {
            DataType::Bool => NumericKind::Bool,
            DataType::Int8 => NumericKind::I8,
            DataType::Int16 => NumericKind::I16,
            DataType::Int32 => NumericKind::I32,
            DataType::Int64 | DataType::DateTime64(_) | DataType::TimeDelta64(_) => NumericKind::I64,
            DataType::UInt8 => NumericKind::U8,
            DataType::UInt16 => NumericKind::U16,
            DataType::UInt32 => NumericKind::U32,
            DataType::UInt64 => NumericKind::U64,
            DataType::Float16 => NumericKind::F16,
            DataType::Float32 => NumericKind::F32,
            DataType::Float64 => NumericKind::F64,
            DataType::Complex64 => NumericKind::C64,
            DataType::Complex128 => NumericKind::C128,
            _ => return None,
        })
    }

    /// The data type with such elements.
    pub fn data_type(self) -> DataType {
        match self {
            NumericKind::Bool => DataType::Bool,
            NumericKind::I8 => DataType::Int8,
            NumericKind::I16 => DataType::Int16,
            NumericKind::I32 => DataType::Int32,
            NumericKind::I64 => DataType::Int64,
            NumericKind::U8 => DataType::UInt8,
            NumericKind::U16 => DataType::UInt16,
            NumericKind::U32 => DataType::UInt32,
            NumericKind::U64 => DataType::UInt64,
            NumericKind::F16 => DataType::Float16,
            NumericKind::F32 => DataType::Float32,
            NumericKind::F64 => DataType::Float64,
            NumericKind::C64 => DataType::Complex64,
            NumericKind::C128 => DataType::Complex128,
        }
    }

    /// The kind that both fit in, as NumPy's `result_type` of two arrays.
    pub fn promote(self, other: NumericKind) -> NumericKind {
        use NumericKind::*;
        // The narrowest float that takes the kind: 2, 4 or 8 bytes.
        let float_bytes = |kind: NumericKind| match kind {
            Bool | I8 | U8 | F16 => 2,
            I16 | U16 | F32 | C64 => 4,
            _ => 8,
        };
        let bytes = float_bytes(self).max(float_bytes(other));
        match (self, other) {
            (one, two) if one == two => one,
            (Bool, kind) | (kind, Bool) => kind,
            (one, two) if one.is_complex() || two.is_complex() => [C64, C128][usize::from(bytes == 8)],
            (one, two) if one.is_float() || two.is_float() => match bytes {
                2 => F16,
                4 => F32,
                _ => F64,
            },
            (one, two) => promote_integers(one, two),
        }
    }
}

/// [`NumericKind::promote`] of two integers.
fn promote_integers(one: NumericKind, two: NumericKind) -> NumericKind {
    use NumericKind::*;
    let signed = |kind: NumericKind| matches!(kind, I8 | I16 | I32 | I64);
    let (wide, narrow) = if one.size() >= two.size() { (one, two) } else { (two, one) };
    if signed(wide) == signed(narrow) || (signed(wide) && wide.size() > narrow.size()) {
        return wide;
    }
    // An unsigned kind at least as wide as a signed one: the next wider signed kind.
    match wide.size() {
        1 => I16,
        2 => I32,
        4 => I64,
        _ => F64,
    }
}

impl NumericDtype {
    /// The dtype that NumPy makes of `text`; `None` where that is not numeric.
    pub fn parse(text: &str) -> Option<NumericDtype> {
        use NumericKind::*;
        let (byte_order, name) = match text.split_at_checked(1) {
            Some((">", name)) => (ByteOrder::Big, name),
            Some(("<" | "|" | "=", name)) => (ByteOrder::Little, name),
            _ => (ByteOrder::Little, text),
        };
        let kind = match name {
            "b1" | "?" | "bool" | "bool_" => Bool,
            "i1" | "b" | "int8" | "byte" => I8,
            "i2" | "h" | "int16" | "short" => I16,
            "i4" | "i" | "int32" | "intc" => I32,
            "i8" | "l" | "q" | "p" | "int64" | "int" | "int_" | "intp" | "long" | "longlong" => I64,
            "u1" | "B" | "uint8" | "ubyte" => U8,
            "u2" | "H" | "uint16" | "ushort" => U16,
            "u4" | "I" | "uint32" | "uintc" => U32,
            "u8" | "L" | "Q" | "P" | "uint64" | "uint" | "uintp" | "ulong" | "ulonglong" => U64,
            "f2" | "e" | "float16" | "half" => F16,
            "f4" | "f" | "float32" | "single" => F32,
            "f8" | "d" | "float64" | "float" | "double" => F64,
            "c8" | "F" | "complex64" | "csingle" => C64,
            "c16" | "D" | "complex128" | "complex" | "cdouble" => C128,
            _ => match name.split_once('[').map_or(name, |(code, _)| code) {
                "M8" | "m8" | "datetime64" | "timedelta64" => I64,
                _ => return None,
            },
        };
        Some(NumericDtype { kind, byte_order })
    }

    /// The same kind, little-endian.
    pub fn little(self) -> NumericDtype {
        NumericDtype { byte_order: ByteOrder::Little, ..self }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn dtype(text: &str) -> NumericDtype {
        NumericDtype::parse(text).unwrap()
    }

    #[test]
    fn names() {
        let big = |kind| NumericDtype { kind, byte_order: ByteOrder::Big };
        assert_eq!(dtype(">i2"), big(NumericKind::I16));
        assert_eq!(dtype(">complex64"), big(NumericKind::C64));
        for text in ["<f4", "f4", "=f4", "float32", "f", "single"] {
            assert_eq!(dtype(text), NumericDtype { kind: NumericKind::F32, byte_order: ByteOrder::Little });
        }
        for text in ["|b1", "?", "bool"] {
            assert_eq!(dtype(text).kind, NumericKind::Bool);
        }
        assert_eq!(dtype("<M8[ns]").kind, NumericKind::I64);
        for text in ["", "<", "é", "S3", "<U4", "O", "V8", "f3", "f16", "<<f4", "i4 "] {
            assert_eq!(NumericDtype::parse(text), None, "{text}");
        }
    }

    /// NumPy's result_type for every pair, a row per kind.
    #[test]
    fn promotion() {
        let kinds = "b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16";
        let table = [
            "b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16",
            "i1 i1 i2 i4 i8 i2 i4 i8 f8 f2 f4 f8 c8 c16",
            "i2 i2 i2 i4 i8 i2 i4 i8 f8 f4 f4 f8 c8 c16",
            "i4 i4 i4 i4 i8 i4 i4 i8 f8 f8 f8 f8 c16 c16",
            "i8 i8 i8 i8 i8 i8 i8 i8 f8 f8 f8 f8 c16 c16",
            "u1 i2 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16",
            "u2 i4 i4 i4 i8 u2 u2 u4 u8 f4 f4 f8 c8 c16",
            "u4 i8 i8 i8 i8 u4 u4 u4 u8 f8 f8 f8 c16 c16",
            "u8 f8 f8 f8 f8 u8 u8 u8 u8 f8 f8 f8 c16 c16",
            "f2 f2 f4 f8 f8 f2 f4 f8 f8 f2 f4 f8 c8 c16",
            "f4 f4 f4 f8 f8 f4 f4 f8 f8 f4 f4 f8 c8 c16",
            "f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 c16 c16",
            "c8 c8 c8 c16 c16 c8 c8 c16 c16 c8 c8 c16 c8 c16",
            "c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16",
        ];
        for (one, row) in kinds.split(' ').zip(table) {
            for (two, both) in kinds.split(' ').zip(row.split(' ')) {
                assert_eq!(dtype(one).kind.promote(dtype(two).kind), dtype(both).kind, "{one} {two}");
            }
        }
    }
}
