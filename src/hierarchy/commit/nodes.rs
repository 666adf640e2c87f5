//! The nodes that an overlay changes. Uses `hierarchy` and the overlay's list of changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::error::Result;
use crate::hierarchy::{DOCUMENT_NAMES, Node, Tree};
use crate::metadata::{ArrayMetadata, ChunkGrid, MAX_DOCUMENT_BYTES, parse_array};
use crate::store::overlay::{Change, ChangeKind, Commit, OverlayStore, Removal};
use crate::store::{Info, Store, join};

/// The documents that make a node.
const MAIN_DOCUMENTS: [&str; 4] = ["zarr.json", ".zarray", ".zgroup", "meta"];
/// Names of the documents of Zarr v1.
const V1_DOCUMENTS: [&str; 2] = ["meta", "attrs"];
/// How many objects of the base are looked at in one batch.
const BATCH_OBJECTS: usize = 1000;

/// What an overlay changes of one node.
#[derive(Default)]
pub struct NodeChanges {
    /// Present where it is an array.
    pub array: Option<Arc<ArrayMetadata>>,
    /// The node of the base that is removed, with all below it.
    pub removal: Option<Removal>,
    /// Its documents.
    pub documents: Vec<Change>,
    /// Its chunks and shards, and what no node knows.
    pub objects: Vec<Change>,
}

impl NodeChanges {
    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Change> {
        self.objects.iter().chain(&self.documents)
    }

    /// Whether the base had no such node when it was made, or that one is removed.
    pub fn is_new(&self) -> bool {
        self.documents.iter().any(|change| {
            is_main(change) && change.is_new() && matches!(change.kind, ChangeKind::Written { .. })
        })
    }

    /// `chunk`, `shard`, or `object` where it is no array.
    pub fn noun(&self) -> &'static str {
        match &self.array {
            Some(array) if array.codecs.iter().any(|codec| codec.name == "sharding_indexed") => "shard",
            Some(_) => "chunk",
            None => "object",
        }
    }

    /// How many objects were written, their bytes, and how many were deleted.
    pub fn sums(&self) -> (u64, u64, u64) {
        self.objects.iter().fold((0, 0, 0), |(written, bytes, deleted), change| match change.kind {
            ChangeKind::Written { size_bytes } => (written + 1, bytes + size_bytes, deleted),
            ChangeKind::Deleted => (written, bytes, deleted + 1),
        })
    }
}

/// Whether a change is of a document that makes a node.
pub fn is_main(change: &Change) -> bool {
    MAIN_DOCUMENTS.contains(&change.key.rsplit('/').next().unwrap_or_default())
}

/// The changes of an overlay by the paths of their nodes.
pub fn by_node(store: &Arc<OverlayStore>, tree: &Tree) -> Result<BTreeMap<String, NodeChanges>> {
    let mut known: HashMap<String, Option<Arc<ArrayMetadata>>> = HashMap::new();
    let mut nodes: BTreeMap<String, NodeChanges> = BTreeMap::new();
    for change in store.changes()? {
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
    for removal in store.removals()? {
        let node = nodes.entry(removal.path.clone()).or_default();
        node.removal = Some(removal);
    }
    for node in nodes.values_mut() {
        // The document that makes a node comes last.
        node.documents.sort_by_key(is_main);
    }
    Ok(nodes)
}

/// The array in the store, if the overlay changes it and has not made it anew.
pub fn old_array(below: &Tree, path: &str, node: &NodeChanges) -> Option<Arc<ArrayMetadata>> {
    match below.node(path) {
        Ok(Some(Node::Array { metadata, .. })) if !node.is_new() => Some(metadata),
        _ => None,
    }
}

/// The array at a path or above it.
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

/// Whether the store still has an array in the form in which an older zarrfs has written new chunks of it, which do not say their form.
pub fn has_same_form(store: &OverlayStore, path: &str) -> Result<bool> {
    if store.is_hidden(path)? {
        return Ok(true);
    }
    for key in ["zarr.json", ".zarray", "meta"].map(|name| join(path, name)) {
        let Some(then) = store.kept_document(&key)? else { continue };
        let Ok(Some(then)) = parse_array(&key, &then) else { continue };
        let now = store.base().get(&key, MAX_DOCUMENT_BYTES)?;
        let now = now.and_then(|now| parse_array(&key, &now).ok().flatten());
        if !now.is_some_and(|now| now.is_stored_as(&then)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the base has another document of an array, or none, than the one that the overlay has made its own document from, and the
/// chunks of the overlay are not for that array: it has another shape than the overlay's, or both have made it, or made it longer, at the
/// same time, and it has chunks of the other program where the overlay has its own.
pub fn has_another_shape(store: &OverlayStore, path: &str, node: &NodeChanges) -> Result<bool> {
    if store.is_hidden(path)? {
        return Ok(false);
    }
    for change in &node.documents {
        let base = store.base().as_ref();
        let now = base.head_object(&change.key)?.map(|info| info.version);
        let Some(own) = shape_in(store, &change.key)? else { continue };
        if store.compare(base, change, now)? == Commit::Conflict
            && (shape_in(base, &change.key)? != Some(own) || store.makes_room(change)?)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The number of an object of an array along each axis, by its key, and the lengths of objects. `None` where that is not known.
fn place<'a>(array: &'a ArrayMetadata, path: &str, key: &str) -> Option<(Vec<u64>, &'a [u64])> {
    let ChunkGrid::Regular(lengths) = &array.chunk_grid else { return None };
    let name = if path.is_empty() { key } else { key.strip_prefix(path)?.strip_prefix('/')? };
    let numbers = name.split(['/', '.']).skip(usize::from(array.chunk_keys.prefixed));
    let numbers: Vec<u64> = numbers.map(|number| number.parse().ok()).collect::<Option<_>>()?;
    (numbers.len() == array.shape.len()).then_some((numbers, lengths))
}

/// Whether all elements of an object are inside an array.
fn is_inside(array: &ArrayMetadata, path: &str, key: &str) -> bool {
    let Some((numbers, lengths)) = place(array, path, key) else { return array.shape.is_empty() };
    let ends =
        numbers.iter().zip(lengths).map(|(number, length)| number.saturating_add(1).saturating_mul(*length));
    ends.zip(&array.shape).all(|(end, length)| end <= *length)
}

/// Whether no element of an object is inside the array at `path`: it was made for a longer one.
pub fn is_outside(array: &ArrayMetadata, path: &str, change: &Change) -> bool {
    let Some((numbers, lengths)) = place(array, path, &change.key) else { return false };
    let mut starts =
        numbers.iter().zip(lengths).map(|(number, length)| number.saturating_mul(*length)).zip(&array.shape);
    matches!(change.kind, ChangeKind::Written { .. }) && starts.any(|(start, length)| start >= *length)
}

/// Whether the array of the base, if it has one, has all elements of these objects.
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

/// Whether the overlay has a document of an array that says another shape than the base's, or the base has none: what is committed of its
/// chunks is part of the array only when the base has that document.
pub fn has_own_shape(store: &OverlayStore, path: &str, node: &NodeChanges) -> Result<bool> {
    if node.objects.is_empty() {
        return Ok(false);
    }
    for change in &node.documents {
        let Some(own) = shape_in(store, &change.key)? else { continue };
        if store.is_hidden(path)? || shape_in(store.base().as_ref(), &change.key)? != Some(own) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The shape of the array that a document of a store describes, if it describes one.
fn shape_in(store: &dyn Store, key: &str) -> Result<Option<Vec<u64>>> {
    let document = store.get(key, MAX_DOCUMENT_BYTES)?;
    let array = document.and_then(|document| parse_array(key, &document).ok().flatten());
    Ok(array.map(|array| array.shape))
}

/// Calls `each` with every change and what the base has at its key now.
pub fn each_in_base<'a>(
    store: &OverlayStore,
    changes: impl Iterator<Item = &'a Change>,
    each: &mut dyn FnMut(&'a Change, Option<Info>) -> Result<()>,
) -> Result<()> {
    let changes: Vec<&Change> = changes.collect();
    for batch in changes.chunks(BATCH_OBJECTS) {
        let keys: Vec<&str> = batch.iter().map(|change| change.key.as_str()).collect();
        for (change, now) in batch.iter().zip(store.base().head_many(&keys)) {
            // What a removal hides is another node's.
            let now = if store.is_hidden(&change.key)? { None } else { now? };
            each(change, now)?;
        }
    }
    Ok(())
}
