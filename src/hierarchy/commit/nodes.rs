//! The nodes that an overlay changes. Uses `hierarchy` and the overlay's list of changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::error::Result;
use crate::hierarchy::{DOCUMENT_NAMES, Node, Tree};
use crate::metadata::json::edit;
use crate::metadata::{ArrayMetadata, ChunkGrid, ChunkKeyScheme, MAX_DOCUMENT_BYTES, parse_array};
use crate::store::overlay::{ARRAY_DOCUMENTS, Change, ChangeKind, ChangeOutcome, OverlayStore, Removal};
use crate::store::{Info, Store, join};

/// The names of the documents that make a node.
const MAIN_DOCUMENTS: [&str; 4] = ["zarr.json", ".zarray", ".zgroup", "meta"];
/// The names of the documents of Zarr v1.
const V1_DOCUMENTS: [&str; 2] = ["meta", "attrs"];
/// How many objects of the base are looked up in one batch.
const BATCH_OBJECTS: usize = 1000;

/// The changes of one node in an overlay.
#[derive(Default)]
pub struct NodeChanges {
    /// Its metadata, if it is an array.
    pub array: Option<Arc<ArrayMetadata>>,
    /// The removal of the base's node, if it is removed.
    pub removal: Option<Removal>,
    /// The changes of its documents.
    pub documents: Vec<Change>,
    /// The changes of its chunks and shards, and of other objects in its folder.
    pub objects: Vec<Change>,
}

impl NodeChanges {
    /// Returns all changes.
    pub fn all(&self) -> impl Iterator<Item = &Change> {
        self.objects.iter().chain(&self.documents)
    }

    /// Returns whether the overlay has created the node: the base had none, or it was removed.
    pub fn is_new(&self) -> bool {
        self.documents.iter().any(|change| {
            is_main(change) && change.is_new() && matches!(change.kind, ChangeKind::Written { .. })
        })
    }

    /// Returns the noun for its objects: `chunk` or `shard`, or `object` if it is not an array.
    pub fn noun(&self) -> &'static str {
        match &self.array {
            Some(array) if array.codecs.iter().any(|codec| codec.name == "sharding_indexed") => "shard",
            Some(_) => "chunk",
            None => "object",
        }
    }

    /// Returns how many objects were written, how many bytes they have, and how many were deleted.
    pub fn sums(&self) -> (u64, u64, u64) {
        self.objects.iter().fold((0, 0, 0), |(written, bytes, deleted), change| match change.kind {
            ChangeKind::Written { size_bytes } => (written + 1, bytes + size_bytes, deleted),
            ChangeKind::Deleted => (written, bytes, deleted + 1),
        })
    }
}

/// Returns whether a change is one of a document that makes a node.
pub fn is_main(change: &Change) -> bool {
    MAIN_DOCUMENTS.contains(&change.key.rsplit('/').next().unwrap_or_default())
}

/// Returns the changes of an overlay, by the paths of their nodes.
pub fn by_node(store: &Arc<OverlayStore>, tree: &Tree) -> Result<BTreeMap<String, NodeChanges>> {
    let mut known: HashMap<String, Option<Arc<ArrayMetadata>>> = HashMap::new();
    let mut nodes: BTreeMap<String, NodeChanges> = BTreeMap::new();
    for change in store.folder().changes()? {
        let (folder, name) = change.key.rsplit_once('/').unwrap_or(("", &change.key));
        let array = array_above(tree, &mut known, folder);
        let is_v1 =
            || V1_DOCUMENTS.contains(&name) && array.as_ref().is_some_and(|(path, _)| *path == folder);
        if DOCUMENT_NAMES.contains(&name) || is_v1() {
            let node = nodes.entry(folder.to_owned()).or_default();
            node.array = array.filter(|(path, _)| *path == folder).map(|(_, metadata)| metadata);
            node.documents.push(change);
            continue;
        }
        let (path, metadata) = match array {
            Some((path, metadata)) => (path.to_owned(), Some(metadata)),
            None => (folder.to_owned(), None),
        };
        let node = nodes.entry(path).or_default();
        node.array = metadata;
        node.objects.push(change);
    }
    for removal in store.folder().removals()? {
        let node = nodes.entry(removal.path.clone()).or_default();
        node.removal = Some(removal);
    }
    for node in nodes.values_mut() {
        // The document that makes a node comes last.
        node.documents.sort_by_key(is_main);
    }
    Ok(nodes)
}

/// Returns the array in the store, if the overlay changes it and has not created it anew.
pub fn old_array(below: &Tree, path: &str, node: &NodeChanges) -> Option<Arc<ArrayMetadata>> {
    match below.node(path) {
        Ok(Some(Node::Array { metadata, .. })) if !node.is_new() => Some(metadata),
        _ => None,
    }
}

/// Returns the array at a path or above it.
fn array_above<'a>(
    tree: &Tree,
    known: &mut HashMap<String, Option<Arc<ArrayMetadata>>>,
    path: &'a str,
) -> Option<(&'a str, Arc<ArrayMetadata>)> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    for above in [""].into_iter().chain(ends.filter_map(|end| path.get(..end))) {
        let array = match known.get(above) {
            Some(array) => array.clone(),
            None => {
                let array = match tree.node(above) {
                    Ok(Some(Node::Array { metadata, .. })) => Some(metadata),
                    _ => None,
                };
                known.insert(above.to_owned(), array.clone());
                array
            }
        };
        if let Some(metadata) = array {
            return Some((above, metadata));
        }
    }
    None
}

/// Returns whether `store`, the base or a transaction over it, still has an array in the form of the documents that an older zarrfs kept of
/// it. The chunks of that zarrfs have no form of their own. Documents for which `is_own` are not compared.
pub fn has_kept_form(
    overlay: &OverlayStore,
    store: &dyn Store,
    path: &str,
    is_own: &dyn Fn(&str) -> bool,
) -> Result<bool> {
    if overlay.folder().is_hidden(path)? {
        return Ok(true);
    }
    for key in ARRAY_DOCUMENTS.map(|name| join(path, name)) {
        let Some(then) = overlay.folder().kept_document(&key)? else { continue };
        let Ok(Some(then)) = parse_array(&key, &then) else { continue };
        if is_own(&key) {
            continue;
        }
        let now = store.get(&key, MAX_DOCUMENT_BYTES)?;
        let now = now.and_then(|now| parse_array(&key, &now).ok().flatten());
        if !now.is_some_and(|now| now.is_stored_as(&then)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether another program has replaced or removed the document of an array, so that the overlay's chunks do not belong to the
/// base's array. That is so if the shapes differ now, or if both programs have created the array or changed its shape: then the base has
/// the other program's chunks at the places of the overlay's.
pub fn has_another_shape(store: &OverlayStore, path: &str, node: &NodeChanges) -> Result<bool> {
    if store.folder().is_hidden(path)? {
        return Ok(false);
    }
    for change in &node.documents {
        let base = store.base().as_ref();
        let now = base.head_object(&change.key)?.map(|info| info.version);
        let Some(own) = shape_in(store, &change.key)? else { continue };
        if store.target().compare(change, now)? == ChangeOutcome::Conflict
            && (shape_in(base, &change.key)? != Some(own) || store.folder().changes_shape(change)?)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the index of an array's object along each axis, and the shape of objects; `None` if the key does not say that.
fn grid_index<'a>(array: &'a ArrayMetadata, path: &str, key: &str) -> Option<(Vec<u64>, &'a [u64])> {
    let ChunkGrid::Regular(lengths) = &array.chunk_grid else { return None };
    let name = if path.is_empty() { key } else { key.strip_prefix(path)?.strip_prefix('/')? };
    let numbers =
        name.split(['/', '.']).skip(usize::from(array.chunk_keys.scheme == ChunkKeyScheme::Default));
    let mut numbers: Vec<u64> = numbers.map(|number| number.parse().ok()).collect::<Option<_>>()?;
    if array.chunk_keys.scheme == ChunkKeyScheme::N5 {
        numbers.reverse();
    }
    (numbers.len() == array.shape.len()).then_some((numbers, lengths))
}

/// Returns whether all elements of an object are inside an array.
fn is_inside(array: &ArrayMetadata, path: &str, key: &str) -> bool {
    let Some((numbers, lengths)) = grid_index(array, path, key) else { return array.shape.is_empty() };
    let ends =
        numbers.iter().zip(lengths).map(|(number, length)| number.saturating_add(1).saturating_mul(*length));
    ends.zip(&array.shape).all(|(end, length)| end <= *length)
}

/// Returns whether no element of an object is inside the array at `path`, because it was written for a longer one.
pub fn is_outside(array: &ArrayMetadata, path: &str, change: &Change) -> bool {
    let Some((numbers, lengths)) = grid_index(array, path, &change.key) else { return false };
    let mut starts =
        numbers.iter().zip(lengths).map(|(number, length)| number.saturating_mul(*length)).zip(&array.shape);
    matches!(change.kind, ChangeKind::Written { .. }) && starts.any(|(start, length)| start >= *length)
}

/// Returns whether the base has an array that contains all elements of these objects.
pub fn are_inside<'a>(
    store: &OverlayStore,
    path: &str,
    mut objects: impl Iterator<Item = &'a Change>,
) -> bool {
    let Some(first) = objects.next() else { return true };
    match Tree::for_one_look(Arc::clone(store.base())).node(path) {
        Ok(Some(Node::Array { metadata, .. })) => {
            std::iter::once(first).chain(objects).all(|change| is_inside(&metadata, path, &change.key))
        }
        _ => false,
    }
}

/// Returns whether the overlay's chunks of an array belong to a document that the overlay has: one that creates the array or changes its
/// shape. Committed chunks are part of the array only when the base has that document. The base's present shape does not decide alone,
/// because another program may just have given its array the same shape.
pub fn needs_own_document(store: &OverlayStore, path: &str, node: &NodeChanges) -> Result<bool> {
    if node.objects.is_empty() {
        return Ok(false);
    }
    for change in &node.documents {
        let Some(own) = shape_in(store, &change.key)? else { continue };
        if store.folder().changes_shape(change)?
            || store.folder().is_hidden(path)?
            || shape_in(store.base().as_ref(), &change.key)? != Some(own)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether a changed document of a group has another copy of the documents of the node `below` in its consolidated metadata than
/// the base's document has.
pub fn has_other_copy(store: &OverlayStore, change: &Change, below: &str) -> Result<bool> {
    let (group, name) = change.key.rsplit_once('/').unwrap_or(("", &change.key));
    let relative = below.strip_prefix(group).unwrap_or(below).trim_start_matches('/');
    let copies = |store: &dyn Store| -> Result<Vec<String>> {
        let document = store.get(&change.key, MAX_DOCUMENT_BYTES)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&document);
        let copies = if name == ".zmetadata" {
            let keys = DOCUMENT_NAMES.map(|name| join(relative, name));
            keys.iter().filter_map(|key| edit::find(&text, &["metadata", key])).map(str::to_owned).collect()
        } else {
            let copy = edit::find(&text, &["consolidated_metadata", "metadata", relative]);
            copy.map(str::to_owned).into_iter().collect()
        };
        Ok(copies)
    };
    Ok(copies(store)? != copies(store.base().as_ref())?)
}

/// Returns the shape of the array that a document of a store describes, if it describes one.
fn shape_in(store: &dyn Store, key: &str) -> Result<Option<Vec<u64>>> {
    let document = store.get(key, MAX_DOCUMENT_BYTES)?;
    let array = document.and_then(|document| parse_array(key, &document).ok().flatten());
    Ok(array.map(|array| array.shape))
}

/// Calls `each` with every change and the info of the base's object at its key.
pub fn each_in_base<'a>(
    store: &OverlayStore,
    changes: impl Iterator<Item = &'a Change>,
    each: &mut dyn FnMut(&'a Change, Option<Info>) -> Result<()>,
) -> Result<()> {
    let changes: Vec<&Change> = changes.collect();
    for batch in changes.chunks(BATCH_OBJECTS) {
        let keys: Vec<&str> = batch.iter().map(|change| change.key.as_str()).collect();
        for (change, now) in batch.iter().zip(store.base().head_many(&keys)) {
            // An object that a removal hides belongs to another node.
            let now = if store.folder().is_hidden(&change.key)? { None } else { now? };
            each(change, now)?;
        }
    }
    Ok(())
}
