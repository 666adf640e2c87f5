//! Sends the changes of an overlay into a transaction. Uses `store`, `metadata` and `author/`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::forms::Forms as ChunkForms;
use crate::error::{Error, Result};
use crate::hierarchy::author;
use crate::metadata::{MAX_DOCUMENT_BYTES, parse_array};
use crate::store::overlay::{Change, Commit, InBase, OverlayStore, Recorded};
use crate::store::versions::Transaction;
use crate::store::{ObjectVersion, Store, join};

/// Threads that send, most of which wait for a reply.
const THREADS: usize = 32;
/// How many changes are compared and sent at a time.
const BATCH_CHANGES: usize = 1000;
/// The documents that say how an array is stored.
const DOCUMENTS: [&str; 3] = ["zarr.json", ".zarray", "meta"];

const CHANGED: &str = "changed on the branch since the overlay was written";
const REMOVED: &str = "was removed, and has changed on the branch since";
const ANOTHER_FORM: &str = "the array on the branch has another form than when it was written";

/// A change that was made from another version than the branch has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The key of the object, or the path of the node.
    pub key: String,
    /// What is different.
    pub reason: &'static str,
}

/// A transaction that takes the changes of an overlay.
pub(super) struct Sender<'a> {
    store: &'a OverlayStore,
    transaction: Box<dyn Transaction>,
    /// What the transaction began with at the keys that were sent.
    before: HashMap<String, Option<ObjectVersion>>,
    conflicts: Vec<Conflict>,
    removed_nodes: u64,
    /// Keys at which the transaction has something else than it began with.
    changed: HashSet<String>,
    /// Nothing changes any more.
    is_frozen: bool,
    sent: &'a AtomicU64,
}

/// Whether arrays have the form that the overlay has written new chunks for, by path.
type Forms = BTreeMap<String, bool>;

impl<'a> Sender<'a> {
    pub fn new(store: &'a OverlayStore, transaction: Box<dyn Transaction>, sent: &'a AtomicU64) -> Self {
        Sender {
            store,
            transaction,
            before: HashMap::new(),
            conflicts: Vec::new(),
            removed_nodes: 0,
            changed: HashSet::new(),
            is_frozen: false,
            sent,
        }
    }

    /// For an overlay in which nothing changes any more.
    pub fn for_frozen(self) -> Self {
        Sender { is_frozen: true, ..self }
    }

    fn target(&self) -> &dyn Store {
        &*self.transaction
    }

    /// Sends all changes, or as many as tell the conflicts.
    pub fn send_all(&mut self) -> Result<()> {
        for removal in self.store.removals()? {
            match self.store.find_removed_in(self.target(), &removal)? {
                InBase::Gone => {}
                InBase::Changed => {
                    self.conflicts.push(Conflict { key: removal.path.clone(), reason: REMOVED })
                }
                InBase::Same => {
                    author::remove_without_copies(self.target(), &removal.path)?;
                    self.removed_nodes += 1;
                }
            }
        }
        let changes = self.store.changes()?;
        let (mut forms, mut chunk_forms) = (Forms::new(), ChunkForms::default());
        for batch in changes.chunks(BATCH_CHANGES) {
            let keys: Vec<&str> = batch.iter().map(|change| change.key.as_str()).collect();
            let before: Vec<Option<ObjectVersion>> = self
                .target()
                .head_many(&keys)
                .into_iter()
                .map(|found| Ok(found?.map(|info| info.version)))
                .collect::<Result<_>>()?;
            let mut fitting = Vec::new();
            for (change, before) in batch.iter().zip(before) {
                self.before.insert(change.key.clone(), before);
                let is_of_form = chunk_forms.have(self.store, self.target(), change)?;
                match is_of_form && self.has_same_form(&mut forms, change)? {
                    true => fitting.push((change, before)),
                    false => self.conflicts.push(Conflict { key: change.key.clone(), reason: ANOTHER_FORM }),
                }
            }
            self.send_batch(&fitting, OverlayStore::send)?;
        }
        Ok(())
    }

    /// Sends changes that writers have made since all was sent. `false` where that is not enough.
    pub fn send_recorded(&mut self, recorded: &Recorded) -> Result<bool> {
        self.is_frozen = true;
        if recorded.has_folders {
            return Ok(false);
        }
        if recorded.keys.is_empty() {
            return Ok(true);
        }
        let changes = self.store.changes()?;
        let changed: Vec<&Change> =
            changes.iter().filter(|change| recorded.keys.contains(&change.key)).collect();
        let is_listed = |key: &String| changed.binary_search_by_key(&key, |change| &change.key).is_ok();
        if recorded.keys.iter().any(|key| self.before.contains_key(key) && !is_listed(key)) {
            // It was sent, and is no change any more.
            return Ok(false);
        }
        let (mut forms, mut chunk_forms) = (Forms::new(), ChunkForms::default());
        let (mut new, mut again) = (Vec::new(), Vec::new());
        for change in changed {
            match self.before.get(&change.key).copied() {
                Some(before) => again.push((change, before)),
                None if !(chunk_forms.have(self.store, self.target(), change)?
                    && self.has_same_form(&mut forms, change)?) =>
                {
                    self.conflicts.push(Conflict { key: change.key.clone(), reason: ANOTHER_FORM });
                }
                None => {
                    let before = self.target().head_object(&change.key)?.map(|info| info.version);
                    new.push((change, before));
                }
            }
        }
        self.send_batch(&new, OverlayStore::send)?;
        self.send_batch(&again, OverlayStore::send_again)?;
        Ok(true)
    }

    fn send_batch(
        &mut self,
        batch: &[(&Change, Option<ObjectVersion>)],
        send: impl Fn(&OverlayStore, &dyn Store, &Change, Option<ObjectVersion>) -> Result<Commit> + Sync,
    ) -> Result<()> {
        if !self.conflicts.is_empty() {
            // Nothing is published: what is left is only compared.
            return self.compare(batch);
        }
        let (store, target, sent) = (self.store, &*self.transaction as &dyn Store, self.sent);
        let next = AtomicUsize::new(0);
        let outcomes: Mutex<Vec<(usize, Result<Commit>)>> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..THREADS.min(batch.len()) {
                scope.spawn(|| {
                    loop {
                        let place = next.fetch_add(1, Ordering::Relaxed);
                        let Some((change, before)) = batch.get(place) else { return };
                        let outcome = send(store, target, change, *before);
                        sent.fetch_add(1, Ordering::Relaxed);
                        outcomes.lock().push((place, outcome));
                    }
                });
            }
        });
        for (place, outcome) in outcomes.into_inner() {
            let Some((change, _)) = batch.get(place) else { continue };
            match outcome {
                Ok(Commit::Done(_)) => drop(self.changed.insert(change.key.clone())),
                Ok(Commit::Already) => {}
                Ok(Commit::Conflict) => {
                    self.conflicts.push(Conflict { key: change.key.clone(), reason: CHANGED });
                }
                // Written again or removed while it was sent: it is recorded, and sent once more.
                Err(Error::Stale { key }) if key == change.key && !self.is_frozen => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn compare(&mut self, batch: &[(&Change, Option<ObjectVersion>)]) -> Result<()> {
        for (change, before) in batch {
            if self.store.compare(self.target(), change, *before)? == Commit::Conflict {
                self.conflicts.push(Conflict { key: change.key.clone(), reason: CHANGED });
            }
        }
        Ok(())
    }

    /// Whether the branch has the array of a change in the form in which an older zarrfs has written new chunks of it.
    fn has_same_form(&self, forms: &mut Forms, change: &Change) -> Result<bool> {
        let (folder, name) = change.key.rsplit_once('/').unwrap_or(("", &change.key));
        if DOCUMENTS.contains(&name) || change.form.is_some() {
            return Ok(true);
        }
        let ends = folder.match_indices('/').map(|(at, _)| at).chain([folder.len()]);
        for above in [""].into_iter().chain(ends.filter_map(|end| folder.get(..end))) {
            let is_same = match forms.get(above) {
                Some(is_same) => *is_same,
                None => {
                    let is_same = self.is_in_same_form(above)?;
                    forms.insert(above.to_owned(), is_same);
                    is_same
                }
            };
            if !is_same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_in_same_form(&self, path: &str) -> Result<bool> {
        if self.store.is_hidden(path)? {
            return Ok(true);
        }
        for key in DOCUMENTS.map(|name| join(path, name)) {
            let Some(then) = self.store.kept_document(&key)? else { continue };
            let Ok(Some(then)) = parse_array(&key, &then) else { continue };
            // The overlay's own document takes the place of this one later on, if it has one.
            let now = match self.before.get(&key) {
                Some(_) => continue,
                None => self.target().get(&key, MAX_DOCUMENT_BYTES)?,
            };
            let now = now.and_then(|now| parse_array(&key, &now).ok().flatten());
            if !now.is_some_and(|now| now.is_stored_as(&then)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The conflicts, if there are any.
    pub fn take_conflicts(&mut self) -> Option<Vec<Conflict>> {
        let mut conflicts = std::mem::take(&mut self.conflicts);
        conflicts.sort();
        conflicts.dedup();
        (!conflicts.is_empty()).then_some(conflicts)
    }

    /// The transaction, and how many changes it has.
    pub fn end(self) -> (Box<dyn Transaction>, u64) {
        let changes = self.removed_nodes + self.changed.len() as u64;
        (self.transaction, changes)
    }
}
