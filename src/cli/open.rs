//! Opening what a user names: a store, an array in it; and the walk over all nodes. Uses `store` and `hierarchy`.

use std::sync::Arc;

use zarrfs::error::{Error, Result};
use zarrfs::hierarchy::{Node, Tree};
use zarrfs::metadata::ArrayMetadata;
use zarrfs::nearest::nearest;
use zarrfs::store::Store;

use super::exit::{Exit, Outcome};

/// Folders looked into for a first trace of Zarr, before a store is taken on trust.
const MAX_FOLDERS_SEARCHED: usize = 10_000;

/// Opens a store, and refuses a folder in which nothing is of Zarr.
pub fn zarr_store(location: &str, follow_symlinks: bool) -> Result<Arc<dyn Store>> {
    let store = zarrfs::store::open(location, follow_symlinks)?;
    for (folders, (_, node)) in Walk::new(&store, "").enumerate() {
        let is_trace = match node {
            Ok(Node::Group { metadata, .. }) => metadata.zarr_format.is_some(),
            Ok(_) | Err(_) => true,
        };
        if is_trace || folders > MAX_FOLDERS_SEARCHED {
            return Ok(store);
        }
    }
    Err(Error::Usage(format!(
        "{} is not a Zarr store: no zarr.json (Zarr v3), .zgroup or .zarray (v2) or meta (v1) is in it or in the folders below it",
        store.describe()
    )))
}

/// A path in the store as people name it.
pub fn shown(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

/// The path in the store that a user means; the root by `""`, `.` or `/`.
pub fn path(name: &str) -> String {
    name.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("/")
}

/// The array at a path.
pub fn array(store: &Arc<dyn Store>, path: &str) -> Outcome<Arc<ArrayMetadata>> {
    match Tree::new(store.clone()).node(path)? {
        Some(Node::Array { metadata, .. }) => Ok(metadata),
        Some(Node::Broken { error, .. }) => Err(error.into()),
        Some(Node::Group { .. }) => Err(Exit::Failed(match arrays(store, path).next() {
            Some(inside) => {
                format!("'{}' is a group, not an array; '{inside}' is an array in it", shown(path))
            }
            None => format!("'{}' is a group, not an array", shown(path)),
        })),
        None => Err(unknown(store, path)),
    }
}

/// What to say of a path that is not in the store.
pub fn unknown(store: &Arc<dyn Store>, path: &str) -> Exit {
    let place = store.describe();
    let known: Vec<String> = arrays(store, "").take(MAX_FOLDERS_SEARCHED).collect();
    Exit::Failed(match nearest(path, known) {
        Some(near) => format!("no array '{path}' in {place}: did you mean '{near}'?"),
        None => format!("no array '{path}' in {place}: 'zarrfs ls {place}' lists what is there"),
    })
}

/// The paths of the arrays below a group.
fn arrays(store: &Arc<dyn Store>, path: &str) -> impl Iterator<Item = String> {
    Walk::new(store, path).filter_map(|(path, node)| match node {
        Ok(Node::Array { .. } | Node::Broken { .. }) => Some(path),
        _ => None,
    })
}

/// All nodes from one downward, parents first, siblings by name. A group that cannot be listed gives an error, and the
/// walk goes on beside it.
pub struct Walk {
    tree: Tree,
    pending: Vec<String>,
}

impl Walk {
    /// The node at `path` and all below it.
    pub fn new(store: &Arc<dyn Store>, path: &str) -> Self {
        Walk { tree: Tree::new(store.clone()), pending: vec![path.to_owned()] }
    }
}

impl Iterator for Walk {
    type Item = (String, Result<Node>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let path = self.pending.pop()?;
            let node = match self.tree.node(&path) {
                Ok(Some(node)) => node,
                Ok(None) => continue,
                Err(error) => return Some((path, Err(error))),
            };
            if let Node::Group { .. } = node {
                match self.tree.children(&path) {
                    Ok(children) => {
                        self.pending.extend(children.iter().rev().map(|child| below(&path, &child.name)));
                    }
                    Err(error) => return Some((path, Err(error))),
                }
            }
            return Some((path, Ok(node)));
        }
    }
}

/// The path of a child.
pub fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}
