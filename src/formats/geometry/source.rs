//! The array that a geometry describes, and its neighbours.

use std::sync::Arc;

use crate::array::AxisSelection;
use crate::formats::Subject;
use crate::hierarchy::{Node, View};
use crate::metadata::ArrayMetadata;
use crate::store::join;

/// The array that a geometry describes.
pub(super) struct GeometrySource<'a> {
    pub subject: &'a Subject<'a>,
    pub metadata: &'a ArrayMetadata,
    /// The path of its group; `None` if the array is the root.
    pub group: Option<&'a str>,
}

impl GeometrySource<'_> {
    /// Returns the array with a name in the same group.
    pub fn sibling(&self, name: &str) -> Option<(String, Arc<Node>)> {
        let is_name = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
        let path = join(self.group.filter(|_| is_name)?, name);
        let node = self.subject.surroundings.whole_node(&path).ok()??;
        Some((path, node))
    }

    /// Returns the attributes of the array's group.
    pub fn group_attributes(&self) -> Option<Arc<Node>> {
        self.subject.surroundings.node(self.group?).ok()?
    }
}

/// Returns the array that the metadata describes. For a plane and a slice, this is the array with all axes and elements.
pub(super) fn whole<'a>(subject: &'a Subject<'_>) -> &'a Node {
    match subject.view {
        Some((View::Plane { .. } | View::Slice(_), stored)) => stored,
        _ => subject.node,
    }
}

/// An axis of a plane or a slice.
#[derive(Clone, Copy)]
pub struct PartAxis {
    /// Its index among the axes of the whole array.
    pub index: usize,
    /// The elements that the part has.
    pub selection: AxisSelection,
}

/// Returns the axes that a plane or a slice has; `None` for other views.
pub fn part_axes(subject: &Subject<'_>) -> Option<Vec<PartAxis>> {
    let Some((view, Node::Array { metadata, .. })) = &subject.view else { return None };
    let lengths = metadata.shape.iter().enumerate();
    let all = lengths
        .map(|(index, &count)| PartAxis { index, selection: AxisSelection { start: 0, step: 1, count } });
    match view {
        View::Plane { axis, .. } => Some(all.filter(|part| part.index != usize::from(*axis)).collect()),
        View::Slice(slice) => {
            let parts = slice.parts(metadata)?;
            let kept = parts.iter().enumerate().filter(|(_, part)| !part.is_dropped);
            Some(kept.map(|(index, part)| PartAxis { index, selection: part.selection }).collect())
        }
        _ => None,
    }
}
