//! A name in a group, which a node has or may get.

use crate::store::join;

/// A name in a group.
#[derive(Clone, Copy, Debug)]
pub struct NodeName<'n> {
    /// The path of the group.
    pub group: &'n str,
    /// The name.
    pub name: &'n str,
}

impl NodeName<'_> {
    /// Returns the path of the node.
    pub fn path(&self) -> String {
        join(self.group, self.name)
    }
}
