//! The groups and variables of a file of another format, and why one cannot be brought in.
//!
//! Uses `metadata` and `error`.

use crate::array::ByteOrder;
use crate::error::{Error, Result};
use crate::metadata::author::ElementType;

/// The most groups and variables of a file.
pub const MAX_NODES: usize = 100_000;
/// The deepest nesting of groups.
pub const MAX_DEPTH: usize = 64;

/// An attribute, and its value as JSON.
pub type Attribute = (String, String);

/// A group of a file.
#[derive(Clone, Debug, Default)]
pub struct SourceGroup {
    /// Its path in the file; `""` is the root.
    pub path: String,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
}

/// A variable of a file, as an array.
#[derive(Clone, Debug)]
pub struct SourceVariable {
    /// Its path in the file.
    pub path: String,
    /// The names of its dimensions.
    pub dimensions: Vec<String>,
    /// Which dimensions the file calls unlimited.
    pub is_unlimited: Vec<bool>,
    /// Elements per dimension.
    pub shape: Vec<u64>,
    /// Type of the elements.
    pub element: ElementType,
    /// Byte order in which the elements are read.
    pub byte_order: ByteOrder,
    /// Shape of the chunks in the file.
    pub chunks: Option<Vec<u64>>,
    /// Its attributes, without `_FillValue`.
    pub attributes: Vec<Attribute>,
    /// The value of missing elements.
    pub missing: Option<MissingValue>,
}

/// The attribute `_FillValue` of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingValue {
    /// The element, as JSON of a fill value of Zarr v3; `None` for text.
    pub fill_value: Option<String>,
    /// The attribute as xarray writes it in Zarr v3, as JSON.
    pub attribute: String,
}

impl SourceVariable {
    /// Returns the size of an element.
    pub fn item_bytes(&self) -> u64 {
        self.element.data_type.item_size().unwrap_or(1) as u64
    }

    /// Returns the bytes of all elements.
    pub fn size_bytes(&self) -> u64 {
        self.shape.iter().fold(self.item_bytes(), |bytes, &length| bytes.saturating_mul(length))
    }
}

/// Returns the error for a file that cannot be brought in.
pub fn refused(name: &str, reason: impl std::fmt::Display) -> Error {
    Error::Usage(format!("{name} cannot be imported: {reason}"))
}

/// Calls a library's code, and makes a panic in it an error: it means that the file is damaged in a way that the library does not expect.
pub fn guarded<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    outcome.unwrap_or_else(|_| Err(refused(name, "it is damaged: its reader gave up")))
}
