//! The array that a geometry describes, and its neighbours.

use std::sync::Arc;

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
        let node = self.subject.surroundings.node(&path).ok()??;
        Some((path, node))
    }

    /// Returns the attributes of the array's group.
    pub fn group_attributes(&self) -> Option<Arc<Node>> {
        self.subject.surroundings.node(self.group?).ok()?
    }
}

/// Returns the array that the metadata describes. For a plane, this is the array with all axes.
pub(super) fn whole<'a>(subject: &'a Subject<'_>) -> &'a Node {
    match subject.view {
        Some((View::Plane { .. }, stored)) => stored,
        _ => subject.node,
    }
}

/// Returns the axis that a plane does not have.
pub(super) fn removed_axis(subject: &Subject<'_>) -> Option<usize> {
    match subject.view {
        Some((View::Plane { axis, .. }, _)) => Some(axis.into()),
        _ => None,
    }
}
