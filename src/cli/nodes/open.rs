//! Opening the stores and nodes that a user names. Uses `store` and `hierarchy`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use zarrfs::array::Strays;
use zarrfs::error::{Error, Result};
use zarrfs::formats::text_file;
use zarrfs::hierarchy::{DOCUMENT_NAMES, Node, Tree, open_store};
use zarrfs::metadata::ArrayMetadata;
use zarrfs::nearest::nearest;
use zarrfs::store::overlay::Access;
use zarrfs::store::{Store, StoreOptions};

use super::strays;
use crate::cli::exit::{Exit, Outcome};
use crate::cli::options::StoreArguments;
use crate::cli::output::terminal;

/// How many folders are searched for a Zarr document before a folder is accepted as a store without one.
const MAX_FOLDERS_SEARCHED: usize = 10_000;
/// The same for a remote store, where each folder costs several round trips.
const MAX_REMOTE_FOLDERS_SEARCHED: usize = 20;
/// How long they are searched: folders of a file server may be slow, and those of /proc never end.
const SEARCH_TIME: Duration = Duration::from_secs(3);
/// The most names of a group that an error message lists.
const MAX_NAMES_SHOWN: usize = 12;

/// Opens a store. A folder without a Zarr document in it is an error.
pub fn zarr_store(location: &str, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    with_zarr(open_store(location, options)?)
}

/// Opens the store of a command that reads one.
pub fn store(arguments: &StoreArguments) -> Outcome<Arc<dyn Store>> {
    store_for(arguments, Access::Read)
}

/// Opens the store of a command that writes one, or its overlay.
pub fn store_for(arguments: &StoreArguments, access: Access) -> Outcome<Arc<dyn Store>> {
    Ok(zarr_store(&arguments.store, &arguments.access.options(&arguments.store, access)?)?)
}

fn with_zarr(store: Arc<dyn Store>) -> Result<Arc<dyn Store>> {
    let mut not_entered: Option<Error> = None;
    let started = Instant::now();
    for (folders, visit) in Tree::for_one_look(store.clone()).walk("", usize::MAX).enumerate() {
        if let Ok(Node::Broken { error: error @ Error::Store { .. }, .. }) | Err(error) = &visit.node
            && store.is_remote()
            && visit.path.is_empty()
        {
            // The service cannot be reached, so it is unknown whether this is a store.
            let (url, reason) = (store.describe(), error.to_string());
            let is_named = reason.starts_with(&url);
            return Err(Error::Usage(if is_named { reason } else { format!("{url}: {reason}") }));
        }
        let is_zarr = match visit.node {
            Ok(Node::Group { metadata, .. }) => metadata.zarr_format.is_some(),
            Ok(Node::Array { .. }) => true,
            Ok(Node::Broken { error, .. }) | Err(error) => {
                let is_document = is_broken_document(store.as_ref(), &error);
                not_entered = not_entered.or(Some(error));
                is_document
            }
        };
        let is_enough = folders > folders_searched(store.as_ref()) || started.elapsed() > SEARCH_TIME;
        if is_zarr || is_enough {
            return Ok(store);
        }
    }
    if is_repository(store.as_ref()) {
        let url = store.describe();
        return Err(Error::Usage(format!("{url} is an Icechunk repository: write icechunk+{url}")));
    }
    if let Some(sentence) = strays::sentence(&Strays::in_group(store.as_ref(), "")) {
        return Err(Error::Usage(format!("{}: not a Zarr store: {sentence}", store.describe())));
    }
    let not_entered = not_entered.map(|error| format!("; not all of them can be entered: {error}"));
    Err(Error::Usage(format!(
        "{}: not a Zarr store: no zarr.json (Zarr v3), .zgroup or .zarray (v2), meta (v1) or attributes.json (N5) is in it or in the folders below it{}",
        store.describe(),
        not_entered.unwrap_or_default()
    )))
}

/// Returns whether a store has the folders of an Icechunk repository.
fn is_repository(store: &dyn Store) -> bool {
    let names: Vec<String> = store.list("").unwrap_or_default().into_iter().map(|entry| entry.name).collect();
    ["snapshots", "manifests"].iter().all(|folder| names.iter().any(|name| name == folder))
}

fn folders_searched(store: &dyn Store) -> usize {
    if store.is_remote() { MAX_REMOTE_FOLDERS_SEARCHED } else { MAX_FOLDERS_SEARCHED }
}

/// Returns whether a node is broken because of a document that exists, and not because its folder cannot be entered: many folders
/// without any Zarr in them have links that cannot be followed.
fn is_broken_document(store: &dyn Store, error: &Error) -> bool {
    match error {
        Error::Store { key, .. } => {
            let (folder, document) = key.rsplit_once('/').unwrap_or(("", key));
            DOCUMENT_NAMES.contains(&document)
                && store.list(folder).is_ok_and(|names| names.iter().any(|entry| entry.name == document))
        }
        // A link that leads back up, or a folder that is nested too deep.
        Error::Unsupported { key, .. } => {
            let document = key.rsplit('/').next().unwrap_or(key);
            DOCUMENT_NAMES.contains(&document) || ["meta", "attributes.json"].contains(&document)
        }
        _ => true,
    }
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
