//! Opening the stores and nodes that a user names. Uses `store` and `hierarchy`.

use std::sync::Arc;

use zarrfs::error::{Error, Result};
use zarrfs::formats::text_file;
use zarrfs::hierarchy::{Node, Tree};
use zarrfs::metadata::ArrayMetadata;
use zarrfs::nearest::nearest;
use zarrfs::store::overlay::Access;
use zarrfs::store::{Store, StoreOptions};

use super::catalogue::{self, CatalogueUse};
use super::search::{folders_searched, zarr_store_itself};
use crate::cli::exit::{Exit, Outcome};
use crate::cli::options::StoreArguments;
use crate::cli::output::terminal;

/// The most names of a group that an error message lists.
const MAX_NAMES_SHOWN: usize = 12;

/// Opens a store, or a catalogue of stores for reading. A folder without a Zarr document in it is an error.
pub fn zarr_store(location: &str, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    if catalogue::is_catalogue(location) {
        return catalogue::store(location, CatalogueUse::of(options));
    }
    zarr_store_itself(location, options)
}

/// Opens the store of a command that reads one.
pub fn store(arguments: &StoreArguments) -> Outcome<Arc<dyn Store>> {
    store_for(arguments, Access::Read)
}

/// Opens the store of a command that writes one, or its overlay.
pub fn store_for(arguments: &StoreArguments, access: Access) -> Outcome<Arc<dyn Store>> {
    Ok(zarr_store(&arguments.store, &arguments.access.options(&arguments.store, access)?)?)
}

/// Returns a path in the store as it is shown.
pub fn shown(path: &str) -> String {
    if path.is_empty() { "/".to_owned() } else { terminal::printable(path) }
}

/// Returns the path in the store that a user means. `""`, `.` and `/` are the root.
pub fn path(name: &str) -> String {
    name.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("/")
}

/// Returns the metadata of the array at a path.
pub fn array(tree: &Tree, path: &str) -> Outcome<Arc<ArrayMetadata>> {
    match array_node(tree, path)? {
        Node::Array { metadata, .. } => Ok(metadata),
        Node::Group { .. } | Node::Broken { .. } => Err(unknown_array(tree, path)),
    }
}

/// Returns the array at a path.
pub fn array_node(tree: &Tree, path: &str) -> Outcome<Node> {
    match tree.node(path)? {
        Some(node @ Node::Array { .. }) => Ok(node),
        Some(Node::Broken { error, .. }) => Err(error.into()),
        Some(Node::Group { .. }) => Err(Exit::Failed(match arrays(tree, path).next() {
            Some(inside) => {
                format!("'{}' is a group, not an array; '{inside}' is an array in it", shown(path))
            }
            None => format!("'{}' is a group, not an array", shown(path)),
        })),
        None => Err(unknown_array(tree, path)),
    }
}

/// Returns the node at a path.
pub fn node(tree: &Tree, path: &str) -> Outcome<Node> {
    match tree.node(path)? {
        Some(Node::Broken { error, .. }) => Err(error.into()),
        Some(node) => Ok(node),
        None => Err(unknown_node(tree, path)),
    }
}

/// Returns why an array has no flat bytes, and which file of a mount has its elements as text instead.
pub fn no_flat_bytes(
    store: &Arc<dyn Store>,
    path: &str,
    metadata: &Arc<ArrayMetadata>,
    error: &Error,
) -> String {
    match text_file(store, path, metadata) {
        Some(file) => format!("{error}; 'zarrfs cat --format jsonl' and a mount have it as text: {file}"),
        None => error.to_string(),
    }
}

/// Returns the error for a path without an array.
pub fn unknown_array(tree: &Tree, path: &str) -> Exit {
    let place = tree.store().describe();
    let known: Vec<String> = arrays(tree, "").take(folders_searched(tree.store().as_ref())).collect();
    Exit::Failed(match nearest(path, known) {
        Some(near) => format!("no array '{path}' in {place}: did you mean '{near}'?"),
        None => format!("no array '{path}' in {place}: 'zarrfs ls {place}' lists what is there"),
    })
}

/// Returns the error for a path without a node. It says what is there instead.
pub fn unknown_node(tree: &Tree, path: &str) -> Exit {
    let place = tree.store().describe();
    if path.contains('=') {
        return Exit::Usage(format!(
            "NODE is missing before '{path}': write 'zarrfs attrs {place} NODE {path}'"
        ));
    }
    let mut above = path;
    let node = loop {
        above = above.rsplit_once('/').map_or("", |(above, _)| above);
        match tree.node(above) {
            Ok(None) if !above.is_empty() => {}
            node => break node,
        }
    };
    let there = match node {
        Err(error) | Ok(Some(Node::Broken { error, .. })) => return error.into(),
        Ok(Some(Node::Array { .. })) => format!("'{}' is an array, and nothing is below it", shown(above)),
        Ok(_) => {
            let names = tree.children(above).unwrap_or_default();
            let more = if names.len() > MAX_NAMES_SHOWN { ", …" } else { "" };
            let names: Vec<String> =
                names.into_iter().take(MAX_NAMES_SHOWN).map(|child| child.name).collect();
            if names.is_empty() {
                format!("'{}' is an empty group", shown(above))
            } else {
                format!("'{}' contains {}{more}", shown(above), names.join(", "))
            }
        }
    };
    Exit::Failed(format!("no array or group '{path}' in {place}: {there}"))
}

/// Returns the paths of the arrays below a group.
fn arrays(tree: &Tree, path: &str) -> impl Iterator<Item = String> {
    tree.walk(path, usize::MAX).filter_map(|visit| match visit.node {
        Ok(Node::Array { .. } | Node::Broken { .. }) => Some(visit.path),
        _ => None,
    })
}
