//! A walk over a tree, for commands that need every node: `ls`, `check`. Uses `tree`.

use std::sync::Arc;

use super::lineage::{Lineage, parent};
use super::tree::{Node, Tree};
use crate::error::{Error, Result};
use crate::store::join;

/// A node met on a walk.
#[derive(Debug)]
pub struct Visit {
    /// Its path; `""` is the root.
    pub path: String,
    /// How many groups were entered on the way from where the walk began.
    pub depth: usize,
    /// The node, or why the names below the group at this path (which came before) cannot be listed.
    pub node: Result<Node>,
}

/// Iterates over a node and all below it, each group before what it holds, names in order. See [`Tree::walk`].
pub struct Walk<'t> {
    tree: &'t Tree,
    max_depth: usize,
    /// The steps left, the next one last.
    left: Vec<Step>,
}

enum Step {
    Node {
        path: String,
        depth: usize,
        above: Arc<Lineage>,
    },
    /// The names below a group cannot be listed.
    Unlisted {
        path: String,
        depth: usize,
        error: Error,
    },
}

impl<'t> Walk<'t> {
    pub(super) fn new(tree: &'t Tree, path: &str, max_depth: usize) -> Self {
        let above = Arc::new(tree.above(parent(path)));
        Walk { tree, max_depth, left: vec![Step::Node { path: path.to_owned(), depth: 0, above }] }
    }

    fn enter(&mut self, path: &str, depth: usize) {
        if depth >= self.max_depth {
            return;
        }
        let above = Arc::new(self.tree.above(Some(path)));
        match self.tree.children_under(path, &above) {
            Ok(children) => {
                let step = |name: &str| Step::Node {
                    path: join(path, name),
                    depth: depth + 1,
                    above: Arc::clone(&above),
                };
                self.left.extend(children.iter().rev().map(|child| step(&child.name)));
            }
            Err(error) => self.left.push(Step::Unlisted { path: path.to_owned(), depth, error }),
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Visit;

    fn next(&mut self) -> Option<Visit> {
        loop {
            let (path, depth, above) = match self.left.pop()? {
                Step::Unlisted { path, depth, error } => {
                    return Some(Visit { path, depth, node: Err(error) });
                }
                Step::Node { path, depth, above } => (path, depth, above),
            };
            let node = match self.tree.node_under(&path, &above) {
                Ok(Some(node)) => Ok(node),
                // Deleted since its name was listed.
                Ok(None) => continue,
                Err(error) => Err(error),
            };
            if matches!(node, Ok(Node::Group { .. })) {
                self.enter(&path, depth);
            }
            return Some(Visit { path, depth, node });
        }
    }
}
