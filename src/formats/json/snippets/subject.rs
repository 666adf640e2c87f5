//! The array that a snippet reads, and its elements as languages without Zarr see them.

use serde_json::Value;

use crate::array::{ByteOrder, Layout, Order};
use crate::metadata::DataType;

/// The array that a snippet reads.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub(super) file: &'a str,
    pub(super) data_type: &'a DataType,
    pub(super) descr: &'a Value,
    pub(super) shape: &'a [u64],
    pub(super) layout: Layout,
}

/// An element as languages without Zarr see it; the numbers are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Bool,
    Int(usize),
    UInt(usize),
    Float(usize),
    BFloat16,
    /// A float below 16 bits, in one byte, by the name of its type in ml_dtypes.
    SmallFloat(&'static str),
    /// Two floats of this many bytes each.
    Complex(usize),
    /// NUL-padded text.
    Text(usize),
    /// This many code points of 4 bytes.
    Utf32(usize),
    /// Structs and raw bits.
    Bytes(usize),
}

impl<'a> Subject<'a> {
    /// An array in a file.
    pub fn new(
        file: &'a str,
        data_type: &'a DataType,
        descr: &'a Value,
        shape: &'a [u64],
        layout: Layout,
    ) -> Self {
        Subject { file, data_type, descr, shape, layout }
    }

    /// `None` for elements without a fixed size, or of size zero.
    pub(super) fn element(&self) -> Option<Element> {
        let size = self.data_type.item_size().filter(|&size| size > 0)?;
        Some(match self.data_type {
            DataType::Bool => Element::Bool,
            DataType::Int2 | DataType::Int4 | DataType::Int8 => Element::Int(1),
            DataType::Int16 | DataType::Int32 | DataType::Int64 => Element::Int(size),
            DataType::DateTime64(_) | DataType::TimeDelta64(_) => Element::Int(8),
            DataType::UInt2 | DataType::UInt4 | DataType::UInt8 => Element::UInt(1),
            DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => Element::UInt(size),
            DataType::Float4E2M1Fn => Element::SmallFloat("float4_e2m1fn"),
            DataType::Float6E2M3Fn => Element::SmallFloat("float6_e2m3fn"),
            DataType::Float6E3M2Fn => Element::SmallFloat("float6_e3m2fn"),
            DataType::Float8E3M4 => Element::SmallFloat("float8_e3m4"),
            DataType::Float8E4M3 => Element::SmallFloat("float8_e4m3"),
            DataType::Float8E4M3Fn => Element::SmallFloat("float8_e4m3fn"),
            DataType::Float8E4M3B11Fnuz => Element::SmallFloat("float8_e4m3b11fnuz"),
            DataType::Float8E4M3Fnuz => Element::SmallFloat("float8_e4m3fnuz"),
            DataType::Float8E5M2 => Element::SmallFloat("float8_e5m2"),
            DataType::Float8E5M2Fnuz => Element::SmallFloat("float8_e5m2fnuz"),
            DataType::Float8E8M0Fnu => Element::SmallFloat("float8_e8m0fnu"),
            DataType::Float16 | DataType::Float32 | DataType::Float64 => Element::Float(size),
            DataType::BFloat16 => Element::BFloat16,
            DataType::Complex64 | DataType::Complex128 => Element::Complex(size / 2),
            DataType::NullTerminatedBytes(_) => Element::Text(size),
            DataType::FixedLengthUtf32(points) => Element::Utf32(*points),
            DataType::Raw(_) | DataType::Struct(_) | DataType::VariableLength(_) => Element::Bytes(size),
        })
    }

    pub(super) fn is_big(&self) -> bool {
        self.layout.byte_order == ByteOrder::Big
    }

    pub(super) fn is_fortran(&self) -> bool {
        self.layout.order == Order::F
    }

    pub(super) fn rank(&self) -> usize {
        self.shape.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// The number of elements; the metadata guarantees that their bytes fit.
    pub(super) fn count(&self) -> u64 {
        self.shape.iter().fold(1, |product, &length| product.saturating_mul(length))
    }

    /// The axes as the file has them, fastest first: what a column-major language declares.
    pub(super) fn fastest_first(&self) -> Vec<u64> {
        let mut axes = self.shape.to_vec();
        if !self.is_fortran() {
            axes.reverse();
        }
        axes
    }
}

/// Numbers, separated.
pub(super) fn list(numbers: &[u64], separator: &str) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(separator)
}

/// The numbers n, n-1, …, 1: the permutation that reverses all axes in languages that count from 1.
pub(super) fn reversal(rank: usize) -> Vec<u64> {
    (1..=rank as u64).rev().collect()
}
