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
    /// The node, or why the names below the group at this path (which came before) cannot be listed, or not all of them.
    pub node: Result<Node>,
}

/// Iterates over a node and all below it, each group before what it holds, names in order. See [`Tree::walk`].
pub struct Walk<'t> {
    tree: &'t Tree,
    max_depth: usize,
    /// The steps left, the next one last.
    left: Vec<Step>,
    /// The group that was visited last, with its depth: what it holds is read when somebody asks for it.
    entered: Option<(String, usize)>,
}

enum Step {
    Node {
        path: String,
        depth: usize,
        above: Arc<Lineage>,
    },
    /// A node that was read with its neighbours.
    Read {
        path: String,
        depth: usize,
        node: Node,
    },
    /// The names below a group cannot be listed.
    Unlisted {
        path: String,
        depth: usize,
        error: Error,
    },
}

impl Tree {
    /// The node at `path` and all below it, groups before what they hold, names in order; nothing deeper than
    /// `max_depth` below `path`.
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
        if self.tree.store().is_remote() {
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
    /// Visits what is known not to be all below a group, after those that are known.
    fn push_unseen(&mut self, path: &str, depth: usize, unlisted: Option<Error>) {
        let left_out = || {
            let reason = self.tree.store().left_out(path)?;
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
                    // Deleted since its name was listed.
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
