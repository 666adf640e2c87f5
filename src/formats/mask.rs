//! `mask`: for each optional element one byte, 1 if it has a value and 0 if it is null, in the order of the array's own file.
//!
//! Spec: the proposed data type "optional" (zarr-extensions, pull request 33). The bytes are those of the view "mask".

use super::virtual_file::{Segment, VirtualFile};
use super::{CompanionContent, Format, Subject};
use crate::array::Layout;
use crate::error::Result;
use crate::hierarchy::{Node, View};

/// `mask`.
pub const FORMAT: Format = Format {
    name: "mask",
    suffix: ".mask",
    holds: "elements that may be null",
    expresses,
    // A view of an array has its elements in another order or form.
    check: Some(|subject| Ok(subject.view.is_none())),
    open,
    ..Format::BASE
};

fn expresses(node: &Node, _: Layout) -> bool {
    matches!(node, Node::Array { metadata, .. } if metadata.is_optional())
}

fn open(subject: &Subject<'_>) -> Result<CompanionContent> {
    let elements =
        subject.metadata()?.shape.iter().fold(1u64, |product, &length| product.saturating_mul(length));
    let array = subject.surroundings.open_view(View::Mask, subject.path)?;
    Ok(CompanionContent::Ready(VirtualFile::new([Segment::Array { array, range: 0..elements }])))
}
