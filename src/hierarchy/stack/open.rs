//! Opening the store that a location names: a stack, or any other store.
//!
//! Uses `document.rs`, `expand.rs`, `virtual_array.rs`, `store` and `error`. Every array of a stack is built once before it is served,
//! so that types and shapes that do not agree are one sentence of the command that opens it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde_json::Map;

use super::document::{MAX_STACK_BYTES, StackDocument, StackOperation};
use super::expand::expanded;
use super::targets::StackTargets;
use super::virtual_array::{LayerLength, LayersAlong};
use super::{SharedStack, StackEntry, StackStore};
use crate::error::{Error, Result};
use crate::store::{
    self, LinkedStores, LinkingDocument, ObjectContent, Store, StoreOptions, info_narrowed, without_secrets,
};

/// How many targets at services are looked up at a time.
const LOOKED_UP_AT_ONCE: usize = 16;
/// The most bytes that the paths of all groups have which the document does not name itself.
const MAX_GROUP_PATHS_BYTES: usize = 32 << 20;

/// Opens the store at a location, as [`store::open_with`] does; the location may also be that of a stack.
pub fn open_store(location: &str, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    let Some(found) = LinkingDocument::open(location, options, MAX_STACK_BYTES, StackDocument::begins)?
    else {
        return store::open_with(location, options);
    };
    let shown = without_secrets(location);
    if options.overlay.is_some() {
        return Err(Error::Usage(format!("{shown}: is a stack, which is read-only: leave out --overlay")));
    }
    if options.remote.disk_cache.is_some() {
        return Err(Error::Usage(format!(
            "{shown}: is a stack, which has no disk cache: leave out --disk-cache"
        )));
    }
    let LinkingDocument { content, stores } = found;
    let document =
        StackDocument::parse(&content.bytes).map_err(|reason| Error::Usage(format!("{shown}: {reason}")))?;
    open_document(&document, location, content, stores).map_err(|error| match error {
        Error::Usage(sentence) if sentence.starts_with(&shown) => Error::Usage(sentence),
        error => Error::Usage(format!("{shown}: {error}")),
    })
}

/// Opens a document. Fails if an array cannot be served.
pub(super) fn open_document(
    document: &StackDocument,
    location: &str,
    content: ObjectContent,
    stores: LinkedStores,
) -> Result<Arc<dyn Store>> {
    let expanded = expanded(document, location, &stores)?;
    let targets = Arc::new(StackTargets::new(stores));
    let info = info_narrowed(content.info, expanded.documents.iter().map(|info| info.posix));
    let mut groups = document.groups.clone();
    // The root is a group, unless it is an array; so is all that is above a node.
    let mut left_bytes = MAX_GROUP_PATHS_BYTES;
    for path in document.arrays.keys().chain(document.groups.keys()) {
        let mut above = path.as_str();
        while !above.is_empty() {
            above = above.rsplit_once('/').map_or("", |(above, _)| above);
            if groups.contains_key(above) {
                continue;
            }
            left_bytes = left_bytes.checked_sub(above.len()).ok_or_else(|| {
                Error::Usage(format!("the paths of its groups have more than {MAX_GROUP_PATHS_BYTES} bytes"))
            })?;
            groups.insert(above.to_owned(), Map::new());
        }
    }
    if document.arrays.is_empty() {
        groups.entry(String::new()).or_default();
    }
    let entry = |(path, operation)| (path, StackEntry { operation, latest: Mutex::default() });
    let shared = SharedStack {
        location: without_secrets(location),
        info,
        groups,
        arrays: expanded.arrays.into_iter().map(entry).collect(),
        targets,
        engine: OnceLock::new(),
        comparisons: AtomicU64::new(0),
        compared: Mutex::default(),
    };
    look_up(&shared);
    check_arrays(&shared)?;
    Ok(Arc::new(StackStore::new(Arc::new(shared))))
}

/// Looks up all targets at services, several at a time. A failure is found again when the target is needed.
fn look_up(shared: &SharedStack) {
    if !shared.targets.stores().may_be_remote() {
        return;
    }
    let mut names = BTreeSet::new();
    for entry in shared.arrays.values() {
        add_targets(&entry.operation, &mut names);
    }
    let (names, next) = (names.into_iter().collect::<Vec<_>>(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..LOOKED_UP_AT_ONCE.min(names.len()) {
            scope.spawn(|| {
                while let Some((store, path)) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let _ = shared.targets.state(store, path, path);
                }
            });
        }
    });
}

fn add_targets<'a>(operation: &'a StackOperation, names: &mut BTreeSet<(&'a str, &'a str)>) {
    match operation {
        StackOperation::Array { store, path } => drop(names.insert((store, path))),
        StackOperation::Slice { base, .. }
        | StackOperation::Cast { base, .. }
        | StackOperation::Unpack { base }
        | StackOperation::Downsample { base, .. }
        | StackOperation::Described { base, .. } => add_targets(base, names),
        StackOperation::Concat { layers, .. } | StackOperation::Stack { layers, .. } => {
            layers.iter().for_each(|layer| add_targets(layer, names));
        }
    }
}

/// Fails if an array cannot be built, or if arrays that are concatenated along one dimension get other lengths of it from the same stores.
fn check_arrays(shared: &SharedStack) -> Result<()> {
    let mut known: BTreeMap<(String, String), Vec<LayerLength>> = BTreeMap::new();
    for (path, entry) in &shared.arrays {
        if let StackOperation::Array { store, path: target } = &entry.operation {
            shared.targets.state(store, target, path)?;
            continue;
        }
        let Some(along) = shared.array(path, entry)?.lengths_of_layers() else { continue };
        let LayersAlong { axis, layers } = along;
        let group = path.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
        let Some(others) = known.get(&(group.clone(), axis.clone())) else {
            known.insert((group, axis), layers);
            continue;
        };
        let wrong = others.iter().zip(&layers).find(|(other, layer)| {
            other.target.store_text == layer.target.store_text && other.elements != layer.elements
        });
        if let Some((other, layer)) = wrong {
            let reason = format!(
                "{} has {} elements along {axis}, but {} has {}",
                layer.target.name(),
                layer.elements,
                other.target.name(),
                other.elements
            );
            return Err(Error::metadata(path, reason));
        }
    }
    Ok(())
}
