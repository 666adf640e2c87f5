//! The slices that users name: `PATH[INDEX]`. Uses `formats` and `hierarchy`.

use std::sync::Arc;

use zarrfs::array::{AxisSelection, Engine, Layout};
use zarrfs::error::{Error, Result};
use zarrfs::formats::slices::{self, Refusal};
use zarrfs::hierarchy::slices::Slice;
use zarrfs::hierarchy::{Node, Tree};

use super::open;
use super::subject::with_subject;
use crate::cli::exit::{Exit, Outcome};

/// A path, and perhaps an index after it.
pub struct NamedPath {
    /// The path in the store.
    pub path: String,
    /// The text between the brackets.
    pub index: Option<String>,
}

/// The selected elements of an array.
#[derive(Debug, PartialEq, Eq)]
pub struct Selection {
    /// The elements of each axis of the array.
    pub axes: Vec<AxisSelection>,
    /// The lengths of the axes that remain.
    pub shape: Vec<u64>,
}

impl NamedPath {
    /// Reads what a user writes. A node with exactly this name wins over an index.
    pub fn parse(tree: &Tree, name: &str) -> Outcome<Self> {
        let whole = open::path(name);
        Ok(match slices::split(name) {
            Some((path, index)) if !is_node(tree, &whole)? => {
                NamedPath { path: open::path(path), index: Some(index.to_owned()) }
            }
            _ => NamedPath { path: whole, index: None },
        })
    }

    /// Returns the slice of the node at the path; `None` without an index.
    pub fn slice(&self, engine: &Arc<Engine>, tree: &Tree, node: &Node) -> Outcome<Option<Arc<Slice>>> {
        let Some(index) = &self.index else { return Ok(None) };
        let resolved = with_subject(engine, tree, (&self.path, node), Layout::default(), |subject| {
            slices::resolve(subject, index)
        });
        match resolved {
            Ok(slice) => Ok(Some(Arc::new(slice))),
            Err(Refusal::Syntax(sentence)) => Err(Exit::Usage(sentence)),
            Err(Refusal::Outside(sentence)) => Err(Exit::Failed(sentence)),
            Err(Refusal::Failed(error)) => Err(error.into()),
        }
    }

    /// Returns the path and the index, as they are shown.
    pub fn shown(&self) -> String {
        match &self.index {
            Some(index) => format!("{}[{index}]", open::shown(&self.path)),
            None => open::shown(&self.path),
        }
    }
}

impl Selection {
    /// Returns the elements of a slice of an array; all elements without a slice.
    pub fn new(slice: Option<&Slice>, shape: &[u64]) -> Self {
        let Some(parts) = slice.and_then(|slice| slice.axes.as_ref()) else {
            let axes = shape.iter().map(|&count| AxisSelection { start: 0, step: 1, count });
            return Selection { axes: axes.collect(), shape: shape.to_vec() };
        };
        let kept = parts.iter().filter(|part| !part.is_dropped);
        Selection {
            axes: parts.iter().map(|part| part.selection).collect(),
            shape: kept.map(|part| part.selection.count).collect(),
        }
    }
}

/// Returns whether there is a node with exactly this name. Offline the cache may not know, because the name was never looked up: then it is
/// an index.
fn is_node(tree: &Tree, path: &str) -> Result<bool> {
    let is_unknown = |error: &Error| matches!(error, Error::Store { source, .. } if source.kind() == std::io::ErrorKind::NetworkUnreachable);
    match tree.node(path) {
        Err(error) | Ok(Some(Node::Broken { error, .. })) if is_unknown(&error) => Ok(false),
        found => Ok(found?.is_some()),
    }
}
