//! `tagged`, for tests: 16 bytes with the size of the array's file, then the bytes of that file.
//!
//! This is all that a format of header and bytes needs: this file, and a line in `FORMATS`.

use std::sync::Arc;

use super::virtual_file::{Segment, VirtualFile};
use super::{Companion, Format, Made, Subject};
use crate::error::Result;
use crate::hierarchy::SharedArray;
use crate::metadata::ArrayMetadata;

/// `tagged`.
pub const FORMAT: Format = Format { name: "tagged", suffix: ".tagged", is_text: false, expresses, open };

fn expresses(metadata: &ArrayMetadata) -> bool {
    metadata.data_type.item_size().is_some()
}

fn open(subject: &Subject<'_>) -> Result<Box<dyn Companion>> {
    let array = (subject.open_array)(subject.path)?;
    Ok(Box::new(Tagged { array, size_bytes: subject.metadata.flat_size().unwrap_or(0) }))
}

struct Tagged {
    array: Arc<SharedArray>,
    size_bytes: u64,
}

impl Companion for Tagged {
    /// The header follows from the metadata alone.
    fn version(&self) -> Result<u64> {
        Ok(0)
    }

    fn make(&self) -> Result<Made> {
        let header = format!("tagged{:>9}\n", self.size_bytes);
        let bytes = Segment::Array { array: self.array.clone(), range: 0..self.size_bytes };
        Ok(Made { version: 0, file: VirtualFile::new([Segment::Bytes(header.into_bytes()), bytes]) })
    }
}
