//! The array whose place is asked for, and its neighbours.

use std::sync::Arc;

use crate::formats::Subject;
use crate::hierarchy::{Node, View};
use crate::metadata::ArrayMetadata;
use crate::store::join;

/// The array that is asked about.
pub(super) struct GeometrySource<'a> {
    pub subject: &'a Subject<'a>,
    pub metadata: &'a ArrayMetadata,
    /// The path of its group; `None` for the root.
    pub group: Option<&'a str>,
}

impl GeometrySource<'_> {
    /// The array with a name in the same group.
    pub fn sibling(&self, name: &str) -> Option<(String, Arc<Node>)> {
        let is_name = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
        let path = join(self.group.filter(|_| is_name)?, name);
        let node = self.subject.surroundings.node(&path).ok()??;
        Some((path, node))
    }

    /// The attributes of the array's group.
    pub fn group_attributes(&self) -> Option<Arc<Node>> {
        self.subject.surroundings.node(self.group?).ok()?
    }
}

/// The array that the elements are of. Of a plane it is that with all axes, since metadata speaks of all.
pub(super) fn whole<'a>(subject: &'a Subject<'_>) -> &'a Node {
    match subject.view {
        Some((View::Plane { .. }, stored)) => stored,
        _ => subject.node,
    }
}

/// The axis that a plane lacks.
pub(super) fn removed_axis(subject: &Subject<'_>) -> Option<usize> {
    match subject.view {
        Some((View::Plane { axis, .. }, _)) => Some(axis.into()),
        _ => None,
    }
}
