//! NumPy's numeric dtypes, as the numcodecs filters name them: their names, and the type that two fit in.
//!
//! Format: NumPy's `dtype.str` (`"<f4"`, `">i2"`, `"|b1"`), its names (`"float32"`) and one-letter codes; a name
//! without byte order is little-endian. Uses `metadata`.

use crate::metadata::data_type::numeric::NumericType;
use crate::metadata::{ByteOrder, DataType};

/// A numeric dtype: type and byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumericDtype {
    /// The type of the elements.
    pub numeric_type: NumericType,
    /// The byte order of each element, or of each half of a complex one.
    pub byte_order: ByteOrder,
}

/// Returns the type that a codec computes in for elements of a data type. Times are computed as int64. Integers below
/// 8 bits have no type, since a result may be out of their range.
pub fn computed_type(data_type: &DataType) -> Option<NumericType> {
    match data_type {
        DataType::DateTime64(_) | DataType::TimeDelta64(_) => Some(NumericType::I64),
        _ => data_type.numeric_type().filter(|numeric_type| numeric_type.data_type() == *data_type),
    }
}

/// Returns the type that both fit in, as NumPy's `result_type` of two arrays.
pub fn promote(one: NumericType, two: NumericType) -> NumericType {
    use NumericType::*;
    // The narrowest float that holds the type's values: 2, 4 or 8 bytes.
    let float_bytes = |numeric_type: NumericType| match numeric_type {
        Bool | I8 | U8 | F16 => 2,
        I16 | U16 | F32 | C64 => 4,
        _ => 8,
    };
    let bytes = float_bytes(one).max(float_bytes(two));
    match (one, two) {
        (one, two) if one == two => one,
        (Bool, other) | (other, Bool) => other,
        (one, two) if one.is_complex() || two.is_complex() => [C64, C128][usize::from(bytes == 8)],
        (one, two) if one.is_float() || two.is_float() => match bytes {
            2 => F16,
            4 => F32,
            _ => F64,
        },
        (one, two) => promote_integers(one, two),
    }
}

/// Does the same as [`promote`] for two integers.
fn promote_integers(one: NumericType, two: NumericType) -> NumericType {
    use NumericType::*;
    let (wide, narrow) = if one.size() >= two.size() { (one, two) } else { (two, one) };
    let is_signed = wide.is_signed_integer();
    if is_signed == narrow.is_signed_integer() || (is_signed && wide.size() > narrow.size()) {
        return wide;
    }
    // An unsigned type at least as wide as a signed one: the next wider signed type.
    match wide.size() {
        1 => I16,
        2 => I32,
        4 => I64,
        _ => F64,
    }
}

impl NumericDtype {
    /// Returns the dtype that NumPy makes of `text`; `None` if it is not numeric.
    pub fn parse(text: &str) -> Option<NumericDtype> {
        use NumericType::*;
        let (byte_order, name) = match text.split_at_checked(1) {
            Some((">", name)) => (ByteOrder::Big, name),
            Some(("<" | "|" | "=", name)) => (ByteOrder::Little, name),
            _ => (ByteOrder::Little, text),
        };
        let by_name = |it: &NumericType| it.numpy_code() == name || (it.data_type().name() == name);
        let numeric_type = match name {
            _ if let Some(numeric_type) = NumericType::ALL.into_iter().find(by_name) => numeric_type,
            "?" | "bool_" => Bool,
            "b" | "byte" => I8,
            "h" | "short" => I16,
            "i" | "intc" => I32,
            "l" | "q" | "p" | "int" | "int_" | "intp" | "long" | "longlong" => I64,
            "B" | "ubyte" => U8,
            "H" | "ushort" => U16,
            "I" | "uintc" => U32,
            "L" | "Q" | "P" | "uint" | "uintp" | "ulong" | "ulonglong" => U64,
            "e" | "half" => F16,
            "f" | "single" => F32,
            "d" | "float" | "double" => F64,
            "F" | "csingle" => C64,
            "D" | "complex" | "cdouble" => C128,
            _ => match name.split_once('[').map_or(name, |(code, _)| code) {
                "M8" | "m8" | "datetime64" | "timedelta64" => I64,
                _ => return None,
            },
        };
        Some(NumericDtype { numeric_type, byte_order })
    }

    /// Returns the same type, little-endian.
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
        let big = |numeric_type| NumericDtype { numeric_type, byte_order: ByteOrder::Big };
        assert_eq!(dtype(">i2"), big(NumericType::I16));
        assert_eq!(dtype(">complex64"), big(NumericType::C64));
        for text in ["<f4", "f4", "=f4", "float32", "f", "single"] {
            assert_eq!(
                dtype(text),
                NumericDtype { numeric_type: NumericType::F32, byte_order: ByteOrder::Little }
            );
        }
        for text in ["|b1", "?", "bool"] {
            assert_eq!(dtype(text).numeric_type, NumericType::Bool);
        }
        assert_eq!(dtype("<M8[ns]").numeric_type, NumericType::I64);
        for text in ["", "<", "é", "S3", "<U4", "O", "V8", "f3", "f16", "<<f4", "i4 "] {
            assert_eq!(NumericDtype::parse(text), None, "{text}");
        }
    }

    /// NumPy's result_type for every pair, a row per type.
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
                assert_eq!(
                    promote(dtype(one).numeric_type, dtype(two).numeric_type),
                    dtype(both).numeric_type,
                    "{one} {two}"
                );
            }
        }
    }
}
