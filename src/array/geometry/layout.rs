//! In which order the flat file shows the elements of an array.
//!
//! Uses `metadata` for the order of bytes.

use crate::metadata::ByteOrder;

/// Which index varies fastest in the served file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Last index fastest (row-major).
    #[default]
    C,
    /// First index fastest (column-major).
    F,
}

/// How the flat file shows the elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Order of the elements.
    pub order: Order,
    /// Order of the bytes in each component of an element.
    pub byte_order: ByteOrder,
}

/// A layout, perhaps with another axis as the slowest.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileLayout {
    /// The order of the elements and of their bytes.
    pub layout: Layout,
    /// The axis of the array that comes before all others, if the layout does not decide that.
    pub slowest: Option<usize>,
}
