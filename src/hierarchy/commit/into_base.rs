//! Writes the changes of an overlay back into a base without versions.
//!
//! Chunks go before documents, and the documents of nodes before those of the groups above them. Chunks of an array that is new, or has
//! another length than in the base, leave the overlay after its document: until the base has that, they are not part of its array, and
//! other programs may write in their place. Removed nodes go last, when no
//! consolidated copy names them any more, unless a new node takes their place. A node that another program has locked is left
//! for the next time.
//!
//! Invariant: what goes away in the base is the version that a change was made from, and of an array in the form that it was made for. All
//! else is a conflict, which is reported, and the overlay keeps the change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::forms::Forms;
use super::nodes::{self, NodeChanges};
use crate::error::Result;
use crate::hierarchy::{Node, Tree, author};
use crate::store::overlay::{Change, Commit, InBase, OverlayStore, Removal};
use crate::store::{ObjectVersion, Store};

/// How many changes are written before they are made durable and leave the overlay.
const BATCH_CHANGES: usize = 1000;
/// Threads that write: to a folder, and to a service.
const THREADS: usize = 8;
const REMOTE_THREADS: usize = 32;

const ANOTHER_FORM: &str = "the array in the store has another form than when it was written";
const ANOTHER_SHAPE: &str =
    "the array in the store has another shape than when it was written, and so has the one in the overlay";
const OUTSIDE: &str = "the array in the store is shorter than when it was written";
const INCOMPLETE: &str = "the store lacks chunks of the array's new length, which the overlay keeps";
const WITHOUT_DOCUMENT: &str = "the overlay keeps the document with the length that the array has in it";
const REMOVED_AND_CHANGED: &str = "was removed, and has changed in the store since";
const REMOVED_AND_LOCKED: &str = "was removed, and another program has it open for writing: commit it later";
const LOCKED: &str = "another program has it open for writing: commit it later";

/// Changes that the overlay keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The key of the object, or the path of the node.
    pub key: String,
    /// Why.
    pub reason: &'static str,
    /// How many they are.
    pub changes: u64,
}

/// What became of the changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The base has them.
    pub committed: u64,
    /// The overlay keeps them.
    pub kept: u64,
}

/// A commit that is under way.
struct Committing<'a> {
    store: &'a OverlayStore,
    tally: Tally,
    say: &'a mut dyn FnMut(Kept),
    /// What the base has by the path of an array whose new length it does not have yet.
    waiting: BTreeMap<String, Vec<Waiting>>,
}

/// A chunk that is in the base, and not yet in its array.
struct Waiting {
    change: Change,
    /// The version that this commit has put.
    put: Option<ObjectVersion>,
}

/// Commits all changes; `say` gets a sentence for each one that is kept.
pub fn into_base(store: &Arc<OverlayStore>, say: &mut dyn FnMut(Kept)) -> Result<Tally> {
    store.base_writer()?;
    let nodes = nodes::by_node(store, &Tree::for_one_look(store.clone()))?;
    let mut committing = Committing { store, tally: Tally::default(), say, waiting: BTreeMap::new() };
    let is_at = |path: &str, above: &str| {
        path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let removals: Vec<&Removal> = nodes.values().filter_map(|node| node.removal.as_ref()).collect();
    let is_remade = |removal: &Removal| {
        nodes.iter().any(|(path, node)| is_at(path, &removal.path) && node.all().next().is_some())
    };
    let (first, last): (Vec<&Removal>, Vec<&Removal>) =
        removals.into_iter().partition(|removal| is_remade(removal));
    let mut in_the_way = Vec::new();
    for removal in first {
        if !committing.removal(removal)? {
            in_the_way.push(&removal.path);
        }
    }
    let is_kept = |path: &str| in_the_way.iter().any(|above| is_at(path, above));
    for (path, node) in &nodes {
        if is_kept(path) {
            committing.tally.kept += node.all().count() as u64
        } else {
            committing.chunks(path, node)?
        }
    }
    // From the deepest on, so that groups come after their members.
    let mut of_documents: Vec<(&String, &NodeChanges)> =
        nodes.iter().filter(|(path, _)| !is_kept(path)).collect();
    of_documents.sort_by_key(|(path, _)| {
        std::cmp::Reverse(path.matches('/').count() + usize::from(!path.is_empty()))
    });
    for (path, node) in of_documents {
        committing.documents(path, node)?;
    }
    for removal in last {
        committing.removal(removal)?;
    }
    Ok(committing.tally)
}

/// What excludes other writers of the base, where it has locks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lock {
    /// For chunks, lock the array's folder.
    Folder,
    /// As `Folder`, for chunks that leave the overlay after the document of their array.
    FolderOfNew,
    /// For documents, lock these themselves.
    Documents,
}

impl Committing<'_> {
    fn keep(&mut self, key: &str, reason: &'static str, changes: usize) {
        self.tally.kept += changes as u64;
        (self.say)(Kept { key: key.to_owned(), reason, changes: changes as u64 });
    }

    /// Removes a node, with all below it, from the base; returns whether it is gone.
    fn removal(&mut self, removal: &Removal) -> Result<bool> {
        let (store, path) = (self.store, removal.path.as_str());
        match store.find_removed(removal)? {
            InBase::Gone => {}
            InBase::Changed => {
                self.keep(path, REMOVED_AND_CHANGED, 1);
                return Ok(false);
            }
            InBase::Same => {
                let Some(_lock) = store.base_writer()?.lock(path)? else {
                    self.keep(path, REMOVED_AND_LOCKED, 1);
                    return Ok(false);
                };
                store.begin_removal(removal)?;
                match store.remove_from_base(removal)? {
                    Some(true) => {}
                    Some(false) => {
                        self.keep(path, REMOVED_AND_CHANGED, 1);
                        return Ok(false);
                    }
                    None => author::remove_without_copies(store.base().as_ref(), path)?,
                }
            }
        }
        store.forget_removal(removal)?;
        self.tally.committed += 1;
        Ok(true)
    }

    /// Commits the chunks of a node that are of its array as it is in the base now.
    fn chunks(&mut self, path: &str, node: &NodeChanges) -> Result<()> {
        let (store, kept) = (self.store, self.tally.kept);
        if !node.objects.is_empty() && nodes::has_another_shape(store, path, node)? {
            self.keep(path, ANOTHER_SHAPE, node.objects.len());
            return Ok(());
        }
        let has_same_form = nodes::has_same_form(store, path)?;
        let mut forms = Forms::default();
        let mut of_form = Vec::new();
        for change in &node.objects {
            let is_known = has_same_form || change.form.is_some();
            if node.array.as_ref().is_some_and(|array| nodes::is_outside(array, path, change)) {
                self.keep(&change.key, OUTSIDE, 1);
            } else if is_known && forms.have(store, store.base().as_ref(), change)? {
                of_form.push(change.clone())
            } else {
                self.keep(&change.key, ANOTHER_FORM, 1)
            }
        }
        let lock = if nodes::has_own_shape(store, path, node)? {
            self.waiting.insert(path.to_owned(), Vec::new());
            Lock::FolderOfNew
        } else {
            Lock::Folder
        };
        self.all(path, &of_form, lock)?;
        let is_done = lock == Lock::Folder && self.tally.kept == kept;
        if is_done { store.forget_documents(path) } else { Ok(()) }
    }

    /// Commits the documents of a node, and has its chunks leave the overlay that have waited for them.
    fn documents(&mut self, path: &str, node: &NodeChanges) -> Result<()> {
        let waiting = self.waiting.remove(path);
        // With its new length, the array would show what the base has where a chunk stays in the overlay.
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
            if is_main && !is_complete {
                self.keep(&document.key, INCOMPLETE, 1);
                is_kept = true;
                continue;
            }
            let kept = self.tally.kept;
            self.all(path, std::slice::from_ref(document), Lock::Documents)?;
            // Attributes that both have changed say nothing of chunks.
            is_kept |= is_main && self.tally.kept != kept;
        }
        let waiting = waiting.unwrap_or_default();
        if !is_kept {
            let done: Vec<Change> = waiting.into_iter().map(|waiting| waiting.change).collect();
            self.tally.committed += done.len() as u64;
            self.store.forget(&done)?;
            let is_done = !done.is_empty() && done.len() == node.objects.len();
            return if is_done { self.store.forget_documents(path) } else { Ok(()) };
        }
        for Waiting { change, put } in &waiting {
            if let Some(put) = put.filter(|_| change.is_new()) {
                self.store.take_back(change, put)?;
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
        // What an earlier commit has left, that was killed.
        writer.remove_unfinished(&within)?;
        let mut locks = Vec::new();
        match lock {
            Lock::Folder | Lock::FolderOfNew => locks.push(writer.lock(&within)?),
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
            // Another program may have made another array meanwhile.
            let mut forms = Forms::default();
            let array = match Tree::for_one_look(Arc::new(store.clone())).node(path) {
                Ok(Some(Node::Array { metadata, .. })) => Some(metadata),
                _ => None,
            };
            let is_outside =
                |change| array.as_ref().is_some_and(|array| nodes::is_outside(array, path, change));
            for (change, outcome) in batch.iter().zip(outcomes) {
                match outcome {
                    Ok(Commit::Done(Some(put))) if change.is_new() && !forms.have(store, base, change)? => {
                        store.take_back(change, put)?;
                        self.keep(&change.key, ANOTHER_FORM, 1);
                    }
                    Ok(Commit::Done(Some(put))) if change.is_new() && is_outside(change) => {
                        store.take_back(change, put)?;
                        self.keep(&change.key, OUTSIDE, 1);
                    }
                    Ok(Commit::Done(put)) => {
                        waiting.push(Waiting { change: change.clone(), put });
                        done.push(change.clone());
                    }
                    Ok(Commit::Already) => {
                        waiting.push(Waiting { change: change.clone(), put: None });
                        done.push(change.clone());
                    }
                    Ok(Commit::Conflict) => {
                        self.keep(&change.key, "changed in the store since the overlay was written", 1);
                    }
                    Err(error) => first_error = first_error.or(Some(error)),
                }
            }
            let keys: Vec<String> = done.iter().map(|change| change.key.clone()).collect();
            writer.sync(&keys, &within)?;
            if lock == Lock::FolderOfNew {
                self.waiting.entry(path.to_owned()).or_default().extend(waiting);
            } else {
                store.forget(&done)?;
                self.tally.committed += done.len() as u64;
            }
            if let Some(error) = first_error {
                return Err(error);
            }
        }
        Ok(())
    }
}

/// The outcomes of changes, in their order.
fn commit_batch(store: &OverlayStore, batch: &[Change], within: &str) -> Vec<Result<Commit>> {
    let threads = if store.base().is_remote() { REMOTE_THREADS } else { THREADS };
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<(usize, Result<Commit>)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..threads.min(batch.len()) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(change) = batch.get(place) else { return };
                    let outcome = store.commit(change, within);
                    outcomes.lock().push((place, outcome));
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner();
    outcomes.sort_by_key(|(place, _)| *place);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// The nearest folder of a path that the base has.
fn existing_folder(base: &dyn Store, path: &str) -> Result<String> {
    let mut folder = path;
    while !folder.is_empty() && !base.is_remote() && base.head(folder)?.is_none() {
        folder = folder.rsplit_once('/').map_or("", |(above, _)| above);
    }
    Ok(folder.to_owned())
}
