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

/// A layout, perhaps with another axis as the slowest: everything at one index along that axis is one range of the
/// file.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileLayout {
    /// The order of the elements and of their bytes.
    pub layout: Layout,
    /// The axis of the array that comes before all others, which keep the order of the layout. `None` if the layout
    /// decides.
    pub slowest: Option<usize>,
}

impl From<Layout> for FileLayout {
    fn from(layout: Layout) -> Self {
        FileLayout { layout, slowest: None }
    }
}
