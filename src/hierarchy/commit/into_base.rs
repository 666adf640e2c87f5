//! Writes the changes of an overlay back into a base without versions.
//!
//! Chunks are committed before documents, and the documents of nodes before those of the groups above them. If the overlay has created an
//! array or changed its shape, its chunks leave the overlay after its document: until the base has the document, they are not part of the
//! array, and other programs may write in their place. Removed nodes are removed last, when consolidated metadata no longer names them,
//! or first if a new node takes their place. Nodes that another program has locked are left for the next commit.
//!
//! Invariant: a change replaces only the version that it was made from, in an array of the form that it was made for. Otherwise it is
//! reported as a conflict, and the overlay keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::forms::Forms;
use super::nodes::{self, NodeChanges};
use crate::error::{Error, Result};
use crate::hierarchy::{Node, Tree, author};
use crate::metadata::ZarrFormat;
use crate::store::overlay::{Change, ChangeOutcome, OverlayStore, Removal, RemovalState};
use crate::store::{ObjectVersion, Store};

/// How many changes are written before they are made durable and leave the overlay.
const BATCH_CHANGES: usize = 1000;
/// How many threads write to a folder.
const THREADS: usize = 8;
/// How many threads write to a service.
const REMOTE_THREADS: usize = 32;

const ANOTHER_FORM: &str = "the array in the store has another form than when it was written";
const ANOTHER_SHAPE: &str =
    "the array in the store has another shape than when it was written, and so has the one in the overlay";
const OUTSIDE: &str = "the array in the store is shorter than when it was written";
const INCOMPLETE: &str = "the store lacks chunks of the array's new length, which the overlay keeps";
const WITHOUT_DOCUMENT: &str = "the overlay keeps the document with the length that the array has in it";
const COPY_OF_KEPT: &str = "it has a copy of a document that the overlay keeps";
const REMOVED_AND_CHANGED: &str = "was removed, and has changed in the store since";
const REMOVED_AND_LOCKED: &str = "was removed, and another program has it open for writing: commit it later";
const LOCKED: &str = "another program has it open for writing: commit it later";

/// Changes of one key or node that the overlay keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptChanges {
    /// The key of the object, or the path of the node.
    pub key: String,
    /// The reason.
    pub reason: &'static str,
    /// How many changes.
    pub changes: u64,
}

/// How many changes were committed and kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Changes that the base has.
    pub committed: u64,
    /// Changes that the overlay keeps.
    pub kept: u64,
}

/// A commit that is under way.
struct Committing<'a> {
    store: &'a OverlayStore,
    tally: Tally,
    report: &'a mut dyn FnMut(KeptChanges),
    /// Committed chunks that wait for the document of their array, by its path.
    waiting: BTreeMap<String, Vec<WaitingChunk>>,
    /// The paths of arrays whose documents the overlay keeps.
    kept_documents: Vec<String>,
}

/// A chunk that is in the base, and not yet part of its array.
struct WaitingChunk {
    change: Change,
    /// The version that this commit has put, if it has put one.
    put: Option<ObjectVersion>,
}

/// Commits all changes. Calls `report` for changes that are kept.
pub fn into_base(store: &Arc<OverlayStore>, report: &mut dyn FnMut(KeptChanges)) -> Result<Tally> {
    store.base_writer()?;
    let nodes = nodes::by_node(store, &Tree::for_one_look(store.clone()))?;
    let is_n5 =
        |node: &NodeChanges| node.array.as_ref().is_some_and(|array| array.zarr_format == ZarrFormat::N5);
    if let Some((path, _)) = nodes.iter().find(|(_, node)| is_n5(node)) {
        return Err(Error::ReadOnly(format!("{path}: N5 is read-only, so the overlay keeps its changes")));
    }
    let (tally, waiting, kept_documents) = (Tally::default(), BTreeMap::new(), Vec::new());
    let mut committing = Committing { store, tally, report, waiting, kept_documents };
    let removals: Vec<&Removal> = nodes.values().filter_map(|node| node.removal.as_ref()).collect();
    let is_remade = |removal: &Removal| {
        nodes.iter().any(|(path, node)| is_below(path, &removal.path) && node.all().next().is_some())
    };
    let (first, last): (Vec<&Removal>, Vec<&Removal>) =
        removals.into_iter().partition(|removal| is_remade(removal));
    let mut in_the_way = Vec::new();
    for removal in first {
        if !committing.removal(removal)? {
            in_the_way.push(&removal.path);
        }
    }
    let is_kept = |path: &str| in_the_way.iter().any(|above| is_below(path, above));
    for (path, node) in &nodes {
        if is_kept(path) {
            committing.tally.kept += node.all().count() as u64
        } else {
            committing.chunks(path, node)?
        }
    }
    // The deepest first, so that groups come after their members.
    let mut with_documents: Vec<(&String, &NodeChanges)> =
        nodes.iter().filter(|(path, _)| !is_kept(path)).collect();
    with_documents.sort_by_key(|(path, _)| {
        std::cmp::Reverse(path.matches('/').count() + usize::from(!path.is_empty()))
    });
    for (path, node) in with_documents {
        committing.documents(path, node)?;
    }
    for removal in last {
        committing.removal(removal)?;
    }
    Ok(committing.tally)
}

/// What is locked against other writers of the base, if it has locks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lock {
    /// The array's folder, for chunks.
    Folder,
    /// The same, for chunks that leave the overlay after the document of their array.
    FolderOfWaiting,
    /// The documents themselves.
    Documents,
}

impl Committing<'_> {
    /// Counts and reports changes that the overlay keeps.
    fn keep(&mut self, key: &str, reason: &'static str, changes: usize) {
        self.tally.kept += changes as u64;
        (self.report)(KeptChanges { key: key.to_owned(), reason, changes: changes as u64 });
    }

    /// Removes a node with everything below it from the base; returns whether it is gone.
    fn removal(&mut self, removal: &Removal) -> Result<bool> {
        let (store, path) = (self.store, removal.path.as_str());
        match store.target().find_removed(removal)? {
            RemovalState::Gone => {}
            RemovalState::Changed => {
                self.keep(path, REMOVED_AND_CHANGED, 1);
                return Ok(false);
            }
            RemovalState::Same => {
                let Some(_lock) = store.base_writer()?.lock(path)? else {
                    self.keep(path, REMOVED_AND_LOCKED, 1);
                    return Ok(false);
                };
                store.folder().begin_removal(removal)?;
                match store.target().remove_folder(removal)? {
                    Some(true) => {}
                    Some(false) => {
                        self.keep(path, REMOVED_AND_CHANGED, 1);
                        return Ok(false);
                    }
                    None => author::remove_without_copies(store.base().as_ref(), path)?,
                }
            }
        }
        store.folder().forget_removal(removal)?;
        self.tally.committed += 1;
        Ok(true)
    }

    /// Commits the chunks of a node that belong to the base's present array.
    fn chunks(&mut self, path: &str, node: &NodeChanges) -> Result<()> {
        let (store, kept) = (self.store, self.tally.kept);
        if !node.objects.is_empty() && nodes::has_another_shape(store, path, node)? {
            self.keep(path, ANOTHER_SHAPE, node.objects.len());
            return Ok(());
        }
        let has_same_form = nodes::has_kept_form(store, store.base().as_ref(), path, &|_| false)?;
        let mut forms = Forms::default();
        let mut fitting = Vec::new();
        for change in &node.objects {
            let is_known = has_same_form || change.form.is_some();
            if node.array.as_ref().is_some_and(|array| nodes::is_outside(array, path, change)) {
                self.keep(&change.key, OUTSIDE, 1);
            } else if is_known && forms.fit(store, store.base().as_ref(), change)? {
                fitting.push(change.clone())
            } else {
                self.keep(&change.key, ANOTHER_FORM, 1)
            }
        }
        let lock = if nodes::needs_own_document(store, path, node)? {
            self.waiting.insert(path.to_owned(), Vec::new());
            Lock::FolderOfWaiting
        } else {
            Lock::Folder
        };
        self.all(path, &fitting, lock)?;
        let is_done = lock == Lock::Folder && self.tally.kept == kept;
        if is_done { store.folder().forget_documents(path) } else { Ok(()) }
    }

    /// Commits the documents of a node. Then its waiting chunks leave the overlay.
    fn documents(&mut self, path: &str, node: &NodeChanges) -> Result<()> {
        let waiting = self.waiting.remove(path);
        // A longer array would show the base's objects at the places of chunks that stay in the overlay.
        let is_complete = match &waiting {
            None => true,
            Some(waiting) => {
                let waiting: BTreeSet<&str> =
                    waiting.iter().map(|waiting| waiting.change.key.as_str()).collect();
                let staying = node.objects.iter().filter(|change| !waiting.contains(change.key.as_str()));
                nodes::are_inside(self.store, path, staying)
            }
        };
        let mut is_kept = false;
        for document in &node.documents {
            let is_main = nodes::is_main(document);
            // A reader of the group's consolidated metadata would see the document that is kept.
            let is_copy_kept = || -> Result<bool> {
                let mut kept = self.kept_documents.iter().filter(|below| is_below(below, path));
                kept.try_fold(false, |is_kept, below| {
                    Ok(is_kept || nodes::has_other_copy(self.store, document, below)?)
                })
            };
            if is_copy_kept()? {
                self.keep(&document.key, COPY_OF_KEPT, 1);
                is_kept |= is_main;
                continue;
            }
            if is_main && !is_complete {
                self.keep(&document.key, INCOMPLETE, 1);
                is_kept = true;
                continue;
            }
            let kept = self.tally.kept;
            self.all(path, std::slice::from_ref(document), Lock::Documents)?;
            // A conflict of attributes does not concern chunks.
            is_kept |= is_main && self.tally.kept != kept;
        }
        if is_kept {
            self.kept_documents.push(path.to_owned());
        }
        let waiting = waiting.unwrap_or_default();
        if !is_kept {
            let done: Vec<Change> = waiting.into_iter().map(|waiting| waiting.change).collect();
            self.tally.committed += done.len() as u64;
            self.store.folder().forget(&done)?;
            let is_done = !done.is_empty() && done.len() == node.objects.len();
            return if is_done { self.store.folder().forget_documents(path) } else { Ok(()) };
        }
        for WaitingChunk { change, put } in &waiting {
            if let Some(put) = put.filter(|_| change.is_new()) {
                self.store.target().take_back(change, put)?;
            }
        }
        if !waiting.is_empty() {
            self.keep(path, WITHOUT_DOCUMENT, waiting.len());
        }
        Ok(())
    }

    /// Commits changes of one node.
    fn all(&mut self, path: &str, changes: &[Change], lock: Lock) -> Result<()> {
        let store = self.store;
        let base = store.base().as_ref();
        if changes.is_empty() {
            return Ok(());
        }
        let within = existing_folder(base, path)?;
        let writer = store.base_writer()?;
        // Left by an earlier commit that was killed.
        writer.remove_unfinished(&within)?;
        let mut locks = Vec::new();
        match lock {
            Lock::Folder | Lock::FolderOfWaiting => locks.push(writer.lock(&within)?),
            Lock::Documents => {
                for change in changes {
                    if base.head_object(&change.key)?.is_some() {
                        locks.push(writer.lock(&change.key)?);
                    }
                }
            }
        }
        if locks.iter().any(Option::is_none) {
            self.keep(path, LOCKED, changes.len());
            return Ok(());
        }
        for batch in changes.chunks(BATCH_CHANGES) {
            let outcomes = commit_batch(store, batch, &within);
            let mut done = Vec::new();
            let mut waiting = Vec::new();
            let mut first_error = None;
            // Another program may have created another array meanwhile.
            let mut forms = Forms::default();
            let array = match Tree::for_one_look(Arc::new(store.clone())).node(path) {
                Ok(Some(Node::Array { metadata, .. })) => Some(metadata),
                _ => None,
            };
            let is_outside =
                |change| array.as_ref().is_some_and(|array| nodes::is_outside(array, path, change));
            for (change, outcome) in batch.iter().zip(outcomes) {
                match outcome {
                    Ok(ChangeOutcome::Done(Some(put)))
                        if change.is_new() && !forms.fit(store, base, change)? =>
                    {
                        store.target().take_back(change, put)?;
                        self.keep(&change.key, ANOTHER_FORM, 1);
                    }
                    Ok(ChangeOutcome::Done(Some(put))) if change.is_new() && is_outside(change) => {
                        store.target().take_back(change, put)?;
                        self.keep(&change.key, OUTSIDE, 1);
                    }
                    Ok(ChangeOutcome::Done(put)) => {
                        waiting.push(WaitingChunk { change: change.clone(), put });
                        done.push(change.clone());
                    }
                    Ok(ChangeOutcome::Already) => {
                        waiting.push(WaitingChunk { change: change.clone(), put: None });
                        done.push(change.clone());
                    }
                    Ok(ChangeOutcome::Conflict) => {
                        self.keep(&change.key, "changed in the store since the overlay was written", 1);
                    }
                    Err(error) => first_error = first_error.or(Some(error)),
                }
            }
            let keys: Vec<String> = done.iter().map(|change| change.key.clone()).collect();
            writer.sync(&keys, &within)?;
            if lock == Lock::FolderOfWaiting {
                self.waiting.entry(path.to_owned()).or_default().extend(waiting);
            } else {
                store.folder().forget(&done)?;
                self.tally.committed += done.len() as u64;
            }
            if let Some(error) = first_error {
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Commits changes, and returns their outcomes in the same order.
fn commit_batch(store: &OverlayStore, batch: &[Change], within: &str) -> Vec<Result<ChangeOutcome>> {
    let threads = if store.base().is_remote() { REMOTE_THREADS } else { THREADS };
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<(usize, Result<ChangeOutcome>)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..threads.min(batch.len()) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(change) = batch.get(place) else { return };
                    let outcome = store.target().commit(change, within);
                    outcomes.lock().push((place, outcome));
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner();
    outcomes.sort_by_key(|(place, _)| *place);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Returns whether a path is that of a node, or of one below it.
fn is_below(path: &str, node: &str) -> bool {
    node.is_empty() || path.strip_prefix(node).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the nearest folder of a path that the base has.
fn existing_folder(base: &dyn Store, path: &str) -> Result<String> {
    let mut folder = path;
    while !folder.is_empty() && !base.is_remote() && base.head(folder)?.is_none() {
        folder = folder.rsplit_once('/').map_or("", |(above, _)| above);
    }
    Ok(folder.to_owned())
}
