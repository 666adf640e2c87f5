//! A walk over a tree, for commands that need every node: `ls`, `check`. Uses `tree`.

use std::sync::Arc;

use super::lineage::{Lineage, parent};
use super::node::Node;
use super::tree::Tree;
use crate::error::{Error, Result};
use crate::store::join;

/// A node that a walk has reached.
#[derive(Debug)]
pub struct Visit {
    /// Its path; `""` is the root.
    pub path: String,
    /// How many groups are between the node and the start of the walk.
    pub depth: usize,
    /// The node. An error says why the names below the group at this path, which came before, are not all listed.
    pub node: Result<Node>,
}

/// An iterator over a node and all nodes below it, each group before its members, names in order. See [`Tree::walk`].
pub struct Walk<'t> {
    tree: &'t Tree,
    max_depth: usize,
    /// The remaining steps, the next one last.
    left: Vec<Step>,
    /// The group that was returned last, with its depth. Its members are read when the next item is requested.
    entered: Option<(String, usize)>,
}

/// A step of a walk.
enum Step {
    /// A node that is to be read.
    Node { path: String, depth: usize, above: Arc<Lineage> },
    /// A node that was read in one batch with its neighbours.
    Read { path: String, depth: usize, node: Node },
    /// The names below a group are not all listed.
    Unlisted { path: String, depth: usize, error: Error },
}

impl Tree {
    /// Walks over the node at `path` and all nodes below it, at most `max_depth` deep. Groups come before their members, names in order.
    pub fn walk(&self, path: &str, max_depth: usize) -> Walk<'_> {
        Walk::new(self, path, max_depth)
    }
}

impl<'t> Walk<'t> {
    fn new(tree: &'t Tree, path: &str, max_depth: usize) -> Self {
        let above = Arc::new(tree.above(parent(path)));
        let left = vec![Step::Node { path: path.to_owned(), depth: 0, above }];
        Walk { tree, max_depth, left, entered: None }
    }

    fn enter(&mut self, path: &str, depth: usize) {
        if depth >= self.max_depth {
            return;
        }
        let above = Arc::new(self.tree.above(Some(path)));
        let depth_of_children = depth + 1;
        if self.tree.store_at(path).is_remote() {
            return match self.tree.remote_children_under(path, &above) {
                Ok(children) => {
                    self.push_unseen(path, depth, children.unlisted);
                    self.left.extend(children.nodes.into_iter().rev().map(|(name, found)| Step::Read {
                        path: join(path, &name),
                        depth: depth_of_children,
                        node: found.node,
                    }));
                }
                Err(error) => self.left.push(Step::Unlisted { path: path.to_owned(), depth, error }),
            };
        }
        match self.tree.children_under(path, &above) {
            Ok(children) => {
                let step = |name: &str| Step::Node {
                    path: join(path, name),
                    depth: depth_of_children,
                    above: Arc::clone(&above),
                };
                self.push_unseen(path, depth, None);
                self.left.extend(children.iter().rev().map(|child| step(&child.name)));
            }
            Err(error) => self.left.push(Step::Unlisted { path: path.to_owned(), depth, error }),
        }
    }
}

impl Walk<'_> {
    /// Adds a step that says why the listing of a group is incomplete, after its known members.
    fn push_unseen(&mut self, path: &str, depth: usize, unlisted: Option<Error>) {
        let left_out = || {
            let reason = self.tree.store_at(path).left_out(path)?;
            Some(Error::Unlisted { key: path.to_owned(), reason })
        };
        if let Some(error) = unlisted.or_else(left_out) {
            self.left.push(Step::Unlisted { path: path.to_owned(), depth, error });
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Visit;

    fn next(&mut self) -> Option<Visit> {
        if let Some((path, depth)) = self.entered.take() {
            self.enter(&path, depth);
        }
        loop {
            let (path, depth, node) = match self.left.pop()? {
                Step::Unlisted { path, depth, error } => {
                    return Some(Visit { path, depth, node: Err(error) });
                }
                Step::Read { path, depth, node } => (path, depth, Ok(node)),
                Step::Node { path, depth, above } => match self.tree.node_under(&path, &above) {
                    Ok(Some(node)) => (path, depth, Ok(node)),
                    // It was deleted after its name was listed.
                    Ok(None) => continue,
                    Err(error) => (path, depth, Err(error)),
                },
            };
            if matches!(node, Ok(Node::Group { .. })) {
                self.entered = Some((path.clone(), depth));
            }
            return Some(Visit { path, depth, node });
        }
    }
}
