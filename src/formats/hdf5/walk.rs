//! The groups and arrays below a group, as far as the readers of its file may see them.
//!
//! Uses `hierarchy` through the subject, and `nc` for names. Groups come level by level, so a group comes after the one above it, and arrays
//! come in the order of their groups. A link that leads back up is a broken node to `hierarchy`, so there are no circles.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::formats::Subject;
use crate::formats::nc::names::{UniqueNames, file_name};
use crate::hierarchy::Node;
use crate::metadata::ArrayMetadata;
use crate::store::join;

/// The most groups and arrays of a file.
const MAX_NODES: usize = 100_000;

/// What is below a group.
pub struct Walk {
    /// The groups. The first is the group itself.
    pub groups: Vec<WalkedGroup>,
    /// The arrays.
    pub arrays: Vec<WalkedArray>,
}

/// A group.
pub struct WalkedGroup {
    /// Its path in the store.
    pub path: String,
    /// Its name in the file.
    pub name: String,
    /// The group above, by index; `None` for the first.
    pub parent: Option<usize>,
    /// The group; `None` for the first.
    pub node: Option<Arc<Node>>,
    /// The names of groups that the file leaves out.
    pub left_out_groups: Vec<String>,
    /// The names of arrays that the file leaves out.
    pub left_out_arrays: Vec<String>,
    /// The names that its members have.
    pub names: UniqueNames,
}

/// An array.
pub struct WalkedArray {
    /// Its path in the store.
    pub path: String,
    /// Its own name.
    pub name: String,
    /// Its name in the file.
    pub file_name: String,
    /// Its group, by index.
    pub group: usize,
    /// The array.
    pub node: Arc<Node>,
    /// Its document.
    pub metadata: Arc<ArrayMetadata>,
}

impl WalkedGroup {
    fn new(path: String, name: String, parent: Option<usize>, node: Option<Arc<Node>>) -> Self {
        let (left_out_groups, left_out_arrays) = (Vec::new(), Vec::new());
        WalkedGroup {
            path,
            name,
            parent,
            node,
            left_out_groups,
            left_out_arrays,
            names: UniqueNames::default(),
        }
    }
}

impl Walk {
    /// Returns everything below the subject. The file's content and its owner, mode and time come from the same walk.
    pub fn of_subject(subject: &Subject<'_>) -> Result<Arc<Walk>> {
        if let Some(walk) = subject.walk.get().and_then(|walk| walk.clone().downcast().ok()) {
            return Ok(walk);
        }
        let walk = Arc::new(Walk::new(subject)?);
        // Only this format puts something there.
        let _ = subject.walk.set(walk.clone());
        Ok(walk)
    }

    /// Goes through everything below the subject.
    fn new(subject: &Subject<'_>) -> Result<Walk> {
        let first = WalkedGroup::new(subject.path.to_owned(), String::new(), None, None);
        let mut walk = Walk { groups: vec![first], arrays: Vec::new() };
        let mut next = 0;
        while next < walk.groups.len() {
            walk.add_members(subject, next)?;
            next += 1;
        }
        Ok(walk)
    }

    fn add_members(&mut self, subject: &Subject<'_>, parent: usize) -> Result<()> {
        let Some(group) = self.groups.get_mut(parent) else { return Ok(()) };
        let mut groups = Vec::new();
        for child in subject.surroundings.children(&group.path)? {
            let path = join(&group.path, &child.name);
            let node = subject.surroundings.node(&path)?;
            let name = file_name(&child.name).filter(|name| node.is_some() && group.names.take(name));
            match (node, name) {
                (Some(node), Some(name)) if matches!(&*node, Node::Group { .. }) => {
                    groups.push(WalkedGroup::new(path, name, Some(parent), Some(node)));
                }
                (Some(node), Some(file_name)) => match &*node {
                    Node::Array { metadata, .. } => {
                        let metadata = metadata.clone();
                        let name = child.name;
                        self.arrays.push(WalkedArray {
                            path,
                            name,
                            file_name,
                            group: parent,
                            node,
                            metadata,
                        });
                    }
                    Node::Group { .. } | Node::Broken { .. } => group.left_out_arrays.push(child.name),
                },
                _ if child.is_group => group.left_out_groups.push(child.name),
                _ => group.left_out_arrays.push(child.name),
            }
        }
        self.groups.append(&mut groups);
        if self.groups.len() + self.arrays.len() > MAX_NODES {
            let reason = format!("it has more than {MAX_NODES} groups and arrays");
            return Err(Error::TooLarge { key: subject.path.to_owned(), reason });
        }
        Ok(())
    }

    /// Returns a number that changes when a node changes. The nodes of a walk that is kept stay in memory, so their addresses are their
    /// own.
    pub fn version(&self) -> u64 {
        let mut version = DefaultHasher::new();
        for group in &self.groups {
            (&group.path, group.node.as_ref().map(Arc::as_ptr)).hash(&mut version);
            (&group.left_out_groups, &group.left_out_arrays).hash(&mut version);
        }
        for array in &self.arrays {
            (&array.path, Arc::as_ptr(&array.node)).hash(&mut version);
        }
        version.finish()
    }
}
