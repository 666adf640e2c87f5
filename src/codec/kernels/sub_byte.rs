//! Types that use fewer than the eight bits of their byte: bool, int2, int4, uint2, uint4.
//!
//! Spec: v3 "Data types" (bool), the registered extensions int2, int4, uint2, uint4 (the high bits of a stored byte
//! are ignored). zarr-python reads every bool byte other than 0 as True. Uses `metadata`.

use crate::codec::{CodecError, CodecResult};
use crate::metadata::DataType;
use crate::metadata::data_type::MAX_COMPONENTS;
use crate::metadata::data_type::exact_number::IntegerFormat;

/// How one byte is made canonical.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SubByteFormat {
    /// 0 stays, every other byte becomes 1.
    Bool,
    /// The lowest bits, sign-extended if the format is signed.
    Integer(IntegerFormat),
}

/// The bytes of an element that have spare bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubByte {
    item_size: usize,
    /// (offset of the first byte, bytes in a row, format).
    runs: Vec<(usize, usize, SubByteFormat)>,
}

impl SubByteFormat {
    /// Returns the format of a type that uses fewer than eight bits.
    fn new(data_type: &DataType) -> Option<SubByteFormat> {
        match data_type {
            DataType::Bool => Some(SubByteFormat::Bool),
            _ => data_type.integer_format().filter(|format| format.bits < 8).map(SubByteFormat::Integer),
        }
    }

    fn widen(self, bytes: &mut [u8]) {
        match self {
            SubByteFormat::Bool => bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0)),
            SubByteFormat::Integer(IntegerFormat { bits, is_signed: true }) => {
                let spare = 8 - bits;
                bytes.iter_mut().for_each(|byte| *byte = (((*byte << spare) as i8) >> spare) as u8);
            }
            SubByteFormat::Integer(IntegerFormat { bits, is_signed: false }) => {
                bytes.iter_mut().for_each(|byte| *byte &= (1 << bits) - 1);
            }
        }
    }

    fn check(self, bytes: &[u8]) -> CodecResult<()> {
        let is_canonical = |byte: &u8| {
            let mut widened = [*byte];
            self.widen(&mut widened);
            match self {
                SubByteFormat::Bool => *byte <= 1,
                SubByteFormat::Integer(_) => widened == [*byte],
            }
        };
        let Some(byte) = bytes.iter().find(|byte| !is_canonical(byte)) else { return Ok(()) };
        Err(CodecError::new(match self {
            SubByteFormat::Bool => format!("a bool is 0 or 1, and not {byte}"),
            SubByteFormat::Integer(IntegerFormat { bits, is_signed: true }) => {
                format!("{} is not an int{bits}", *byte as i8)
            }
            SubByteFormat::Integer(IntegerFormat { bits, is_signed: false }) => {
                format!("{byte} is not a uint{bits}")
            }
        }))
    }
}

impl SubByte {
    /// Finds the sub-byte parts of a type.
    pub fn new(data_type: &DataType) -> CodecResult<Self> {
        let item_size = data_type.item_size();
        let mut narrow = SubByte { item_size: item_size.unwrap_or(0), runs: Vec::new() };
        match item_size.and_then(|_| narrow.collect(data_type, 0)) {
            Some(()) => Ok(narrow),
            None => Err(CodecError::unsupported("a data type without a fixed size, or with too many parts")),
        }
    }

    /// Appends the sub-byte parts of a type that starts at `offset`; `None` where they are too many.
    fn collect(&mut self, data_type: &DataType, offset: usize) -> Option<()> {
        if let Some(format) = SubByteFormat::new(data_type) {
            return self.push(offset, 1, format);
        }
        let DataType::Struct(fields) = data_type else { return Some(()) };
        let mut at = offset;
        for field in fields {
            let size = field.size()?;
            let size_of_one = field.data_type.item_size()?;
            if let Some(format) = SubByteFormat::new(&field.data_type) {
                self.push(at, size, format)?;
            } else if matches!(field.data_type, DataType::Struct(_)) && size_of_one > 0 {
                let before = self.runs.len();
                for index in 0..size / size_of_one {
                    self.collect(&field.data_type, at + index * size_of_one)?;
                    if self.runs.len() == before {
                        break; // if one value has no sub-byte part, none has
                    }
                }
            }
            at = at.checked_add(size)?;
        }
        Some(())
    }

    fn push(&mut self, offset: usize, count: usize, format: SubByteFormat) -> Option<()> {
        if count == 0 {
            return Some(());
        }
        (self.runs.len() < MAX_COMPONENTS).then(|| self.runs.push((offset, count, format)))
    }

    /// Returns whether the type has no sub-byte parts.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the format of the elements, if they consist of nothing else.
    fn uniform_format(&self) -> Option<SubByteFormat> {
        match self.runs.as_slice() {
            [(0, count, format)] if *count == self.item_size => Some(*format),
            _ => None,
        }
    }

    /// Makes stored bytes canonical. `data` is a whole number of elements.
    pub fn widen(&self, data: &mut [u8]) {
        if self.is_empty() || self.item_size == 0 {
            return;
        }
        if let Some(format) = self.uniform_format() {
            return format.widen(data);
        }
        for item in data.chunks_exact_mut(self.item_size) {
            for &(offset, count, format) in &self.runs {
                if let Some(bytes) = item.get_mut(offset..offset + count) {
                    format.widen(bytes);
                }
            }
        }
    }

    /// Fails on bytes that are not canonical.
    pub fn check(&self, data: &[u8]) -> CodecResult<()> {
        if self.is_empty() || self.item_size == 0 {
            return Ok(());
        }
        if let Some(format) = self.uniform_format() {
            return format.check(data);
        }
        for item in data.chunks_exact(self.item_size) {
            for &(offset, count, format) in &self.runs {
                format.check(item.get(offset..offset + count).unwrap_or_default())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::metadata::data_type::Field;

    #[test]
    fn stored_bytes_become_canonical() {
        for (data_type, expected) in [
            (DataType::Bool, [0, 1, 1, 1]),
            (DataType::Int4, [0, 1, 0xf8, 0xff]),
            (DataType::Int2, [0, 1, 0, 0xff]),
            (DataType::UInt4, [0, 1, 8, 15]),
            (DataType::UInt2, [0, 1, 0, 3]),
            (DataType::UInt8, [0, 1, 0x68, 0xff]),
        ] {
            let narrow = SubByte::new(&data_type).unwrap();
            let mut data = [0, 1, 0x68, 0xff];
            let stored = data;
            narrow.widen(&mut data);
            assert_eq!(data, expected, "{data_type:?}");
            assert_eq!(narrow.check(&data), Ok(()));
            assert_eq!(narrow.check(&stored).is_ok(), stored == expected, "{data_type:?}");
        }
    }

    #[test]
    fn narrow_fields_of_structs_too() {
        let inner = DataType::Struct(vec![
            Field { name: "x".into(), data_type: DataType::Int16, shape: vec![] },
            Field { name: "y".into(), data_type: DataType::Bool, shape: vec![2] },
        ]);
        let outer = DataType::Struct(vec![Field { name: "p".into(), data_type: inner, shape: vec![2] }]);
        let narrow = SubByte::new(&outer).unwrap();
        let mut data = [7; 8];
        narrow.widen(&mut data);
        assert_eq!(data, [7, 7, 1, 1, 7, 7, 1, 1]);
        assert!(narrow.check(&[7; 8]).is_err());
    }
}
