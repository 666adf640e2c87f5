//! The search for Zarr in a store that is opened: a folder without a document in it is probably a mistake. Uses `hierarchy`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use zarrfs::array::Strays;
use zarrfs::error::{Error, Result};
use zarrfs::hierarchy::{DOCUMENT_NAMES, Node, Tree, open_store};
use zarrfs::store::{Store, StoreOptions};

use super::strays;

/// How many folders are searched for a Zarr document before a folder is accepted as a store without one.
const MAX_FOLDERS_SEARCHED: usize = 10_000;
/// The same for a remote store, where each folder costs several round trips.
const MAX_REMOTE_FOLDERS_SEARCHED: usize = 20;
/// How long they are searched: folders of a file server may be slow, and those of /proc never end.
const SEARCH_TIME: Duration = Duration::from_secs(3);
/// Opens a store that is not a catalogue.
pub fn zarr_store_itself(location: &str, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    with_zarr(open_store(location, options)?)
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

/// Returns how many folders of a store are searched.
pub fn folders_searched(store: &dyn Store) -> usize {
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
