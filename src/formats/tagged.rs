//! `tagged`, for tests: 16 bytes with the size of the array's file, then the bytes of that file.
//!
//! A format of a header and bytes needs no more than this file and a line in `FORMATS`.

use super::virtual_file::{Segment, VirtualFile};
use super::{CompanionContent, Format, Subject};
use crate::array::Layout;
use crate::error::Result;
use crate::hierarchy::Node;

/// `tagged`.
pub const FORMAT: Format = Format {
    name: "tagged",
    suffix: ".tagged",
    holds: "all elements of a fixed size",
    expresses,
    open,
    ..Format::BASE
};

fn expresses(node: &Node, _: Layout) -> bool {
    matches!(node, Node::Array { metadata, .. } if metadata.data_type.item_size().is_some())
}

fn open(subject: &Subject<'_>) -> Result<CompanionContent> {
    let size_bytes = subject.metadata()?.flat_size().unwrap_or(0);
    let header = Segment::Bytes(format!("tagged{size_bytes:>9}\n").into_bytes());
    let array = subject.surroundings.open_array(subject.path)?;
    Ok(CompanionContent::Ready(VirtualFile::new([header, Segment::Array { array, range: 0..size_bytes }])))
}
