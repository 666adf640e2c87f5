//! The array that a snippet reads, and its elements as languages without Zarr see them.

use serde_json::Value;

use crate::array::{ByteOrder, Layout, Order};
use crate::metadata::DataType;
use crate::metadata::data_type::numeric::{NumberClass, NumericType};

/// The array that a snippet reads.
#[derive(Clone, Copy, Debug)]
pub struct SnippetSubject<'a> {
    pub(super) file: &'a str,
    pub(super) data_type: &'a DataType,
    pub(super) descr: &'a Value,
    pub(super) shape: &'a [u64],
    pub(super) layout: Layout,
}

/// An element as languages without Zarr see it; the numbers are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SnippetElement {
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
    /// Structs, raw bits, and complex numbers that no language has.
    Bytes(usize),
}

impl<'a> SnippetSubject<'a> {
    /// Describes an array in a file.
    pub fn new(
        file: &'a str,
        data_type: &'a DataType,
        descr: &'a Value,
        shape: &'a [u64],
        layout: Layout,
    ) -> Self {
        SnippetSubject { file, data_type, descr, shape, layout }
    }

    /// Returns the kind of the elements; `None` if they have no fixed size, or size zero.
    pub(super) fn element(&self) -> Option<SnippetElement> {
        let size = self.data_type.item_size().filter(|&size| size > 0)?;
        Some(match self.data_type {
            DataType::DateTime64(_) | DataType::TimeDelta64(_) => SnippetElement::Int(8),
            DataType::BFloat16 => SnippetElement::BFloat16,
            DataType::NullTerminatedBytes(_) => SnippetElement::Text(size),
            DataType::FixedLengthUtf32(points) => SnippetElement::Utf32(*points),
            DataType::Raw(_) | DataType::Struct(_) | DataType::VariableLength(_) => {
                SnippetElement::Bytes(size)
            }
            narrow if narrow.complex_part().is_some() && narrow.numeric_type().is_none() => {
                SnippetElement::Bytes(size)
            }
            _ => match self.data_type.numeric_type().map(NumericType::class) {
                Some(NumberClass::Bool) => SnippetElement::Bool,
                Some(NumberClass::Signed) => SnippetElement::Int(size),
                Some(NumberClass::Unsigned) => SnippetElement::UInt(size),
                Some(NumberClass::Float) => SnippetElement::Float(size),
                Some(NumberClass::Complex) => SnippetElement::Complex(size / 2),
                None => SnippetElement::SmallFloat(self.data_type.number_format()?.name),
            },
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

    /// Returns the number of elements; the metadata guarantees that their bytes fit.
    pub(super) fn count(&self) -> u64 {
        self.shape.iter().fold(1, |product, &length| product.saturating_mul(length))
    }

    /// Returns the axes as the file has them, fastest first: what a column-major language declares.
    pub(super) fn fastest_first(&self) -> Vec<u64> {
        let mut axes = self.shape.to_vec();
        if !self.is_fortran() {
            axes.reverse();
        }
        axes
    }
}

/// Joins numbers with a separator.
pub(super) fn list(numbers: &[u64], separator: &str) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(separator)
}

/// Returns the numbers n, n-1, …, 1: the permutation that reverses all axes in languages that count from 1.
pub(super) fn reversal(rank: usize) -> Vec<u64> {
    (1..=rank as u64).rev().collect()
}
