//! Sends the changes of an overlay into a transaction. Uses `store`, `metadata` and `author/`.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::forms::Forms;
use super::nodes;
use crate::error::{Error, Result};
use crate::hierarchy::author;
use crate::store::overlay::{
    ARRAY_DOCUMENTS, Change, ChangeOutcome, CommitTarget, OverlayStore, RecordedChanges, RemovalState,
};
use crate::store::versions::Transaction;
use crate::store::{ObjectVersion, Store};

/// How many threads send. Most of them wait for a reply.
const THREADS: usize = 32;
/// How many changes are compared and sent at a time.
const BATCH_CHANGES: usize = 1000;

const CHANGED: &str = "changed on the branch since the overlay was written";
const REMOVED: &str = "was removed, and has changed on the branch since";
const ANOTHER_FORM: &str = "the array on the branch has another form than when it was written";

/// A change that was made from another version than the branch now has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The key of the object, or the path of the node.
    pub key: String,
    /// The reason.
    pub reason: &'static str,
}

/// A transaction that takes the changes of an overlay.
pub(super) struct Sender<'a> {
    store: &'a OverlayStore,
    transaction: Box<dyn Transaction>,
    /// The versions that the transaction began with, at the keys that were sent.
    before: HashMap<String, Option<ObjectVersion>>,
    conflicts: Vec<Conflict>,
    removed_nodes: u64,
    /// Keys at which the transaction differs from its beginning.
    changed: HashSet<String>,
    /// Whether writers are kept out.
    is_frozen: bool,
    sent: &'a AtomicU64,
}

/// Whether arrays still have the form of the documents that an older zarrfs kept of them, by path.
type KeptDocuments = HashMap<String, bool>;

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

    /// Returns a sender for an overlay whose writers are kept out.
    pub fn for_frozen(self) -> Self {
        Sender { is_frozen: true, ..self }
    }

    fn transaction(&self) -> &dyn Store {
        &*self.transaction
    }

    fn target(&self) -> CommitTarget<'_> {
        self.store.target_in(&*self.transaction)
    }

    /// Sends all changes. After the first conflict, the rest is only compared.
    pub fn send_all(&mut self) -> Result<()> {
        for removal in self.store.folder().removals()? {
            match self.target().find_removed(&removal)? {
                RemovalState::Gone => {}
                RemovalState::Changed => {
                    self.conflicts.push(Conflict { key: removal.path.clone(), reason: REMOVED })
                }
                RemovalState::Same => {
                    author::remove_without_copies(self.transaction(), &removal.path)?;
                    self.removed_nodes += 1;
                }
            }
        }
        let changes = self.store.folder().changes()?;
        let (mut forms, mut kept_documents) = (Forms::default(), KeptDocuments::default());
        for batch in changes.chunks(BATCH_CHANGES) {
            let keys: Vec<&str> = batch.iter().map(|change| change.key.as_str()).collect();
            let before: Vec<Option<ObjectVersion>> = self
                .transaction()
                .head_many(&keys)
                .into_iter()
                .map(|found| Ok(found?.map(|info| info.version)))
                .collect::<Result<_>>()?;
            let mut fitting = Vec::new();
            for (change, before) in batch.iter().zip(before) {
                self.before.insert(change.key.clone(), before);
                if self.fits(change, &mut forms, &mut kept_documents)? {
                    fitting.push((change, before))
                } else {
                    self.conflicts.push(Conflict { key: change.key.clone(), reason: ANOTHER_FORM })
                }
            }
            self.send_batch(&fitting, |target, change, then| target.commit_new(change, then))?;
        }
        Ok(())
    }

    /// Sends the changes that writers have made since all were sent. Returns `false` if everything must be sent again.
    pub fn send_recorded(&mut self, recorded: &RecordedChanges) -> Result<bool> {
        self.is_frozen = true;
        if recorded.has_folders {
            return Ok(false);
        }
        if recorded.keys.is_empty() {
            return Ok(true);
        }
        let changes = self.store.folder().changes()?;
        let changed: Vec<&Change> =
            changes.iter().filter(|change| recorded.keys.contains(&change.key)).collect();
        let is_listed = |key: &String| changed.binary_search_by_key(&key, |change| &change.key).is_ok();
        if recorded.keys.iter().any(|key| self.before.contains_key(key) && !is_listed(key)) {
            // It was sent, and is not a change any more.
            return Ok(false);
        }
        let (mut forms, mut kept_documents) = (Forms::default(), KeptDocuments::default());
        let (mut new, mut again) = (Vec::new(), Vec::new());
        for change in changed {
            match self.before.get(&change.key).copied() {
                Some(before) => again.push((change, before)),
                None if !self.fits(change, &mut forms, &mut kept_documents)? => {
                    self.conflicts.push(Conflict { key: change.key.clone(), reason: ANOTHER_FORM });
                }
                None => {
                    let before = self.transaction().head_object(&change.key)?.map(|info| info.version);
                    new.push((change, before));
                }
            }
        }
        self.send_batch(&new, |target, change, then| target.commit_new(change, then))?;
        self.send_batch(&again, |target, change, then| target.commit_again(change, then))?;
        Ok(true)
    }

    fn send_batch(
        &mut self,
        batch: &[(&Change, Option<ObjectVersion>)],
        send: impl Fn(&CommitTarget<'_>, &Change, Option<ObjectVersion>) -> Result<ChangeOutcome> + Sync,
    ) -> Result<()> {
        if !self.conflicts.is_empty() {
            // Nothing will be published, so the rest is only compared.
            return self.compare(batch);
        }
        let (target, sent) = (self.target(), self.sent);
        let next = AtomicUsize::new(0);
        let outcomes: Mutex<Vec<(usize, Result<ChangeOutcome>)>> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..THREADS.min(batch.len()) {
                scope.spawn(|| {
                    loop {
                        let place = next.fetch_add(1, Ordering::Relaxed);
                        let Some((change, before)) = batch.get(place) else { return };
                        let outcome = send(&target, change, *before);
                        sent.fetch_add(1, Ordering::Relaxed);
                        outcomes.lock().push((place, outcome));
                    }
                });
            }
        });
        for (place, outcome) in outcomes.into_inner() {
            let Some((change, _)) = batch.get(place) else { continue };
            match outcome {
                Ok(ChangeOutcome::Done(_)) => drop(self.changed.insert(change.key.clone())),
                Ok(ChangeOutcome::Already) => {}
                Ok(ChangeOutcome::Conflict) => {
                    self.conflicts.push(Conflict { key: change.key.clone(), reason: CHANGED });
                }
                // It was written or removed while it was sent. That was recorded, so it is sent again.
                Err(Error::Stale { key }) if key == change.key && !self.is_frozen => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn compare(&mut self, batch: &[(&Change, Option<ObjectVersion>)]) -> Result<()> {
        for (change, before) in batch {
            if self.target().compare(change, *before)? == ChangeOutcome::Conflict {
                self.conflicts.push(Conflict { key: change.key.clone(), reason: CHANGED });
            }
        }
        Ok(())
    }

    /// Returns whether the array of a change has the form that the change was made for.
    fn fits(&self, change: &Change, forms: &mut Forms, kept: &mut KeptDocuments) -> Result<bool> {
        if !forms.fit(self.store, self.transaction(), change)? {
            return Ok(false);
        }
        let (folder, name) = change.key.rsplit_once('/').unwrap_or(("", &change.key));
        if ARRAY_DOCUMENTS.contains(&name) || change.form.is_some() {
            return Ok(true);
        }
        // An older zarrfs wrote the chunk, and kept the document instead of a form.
        let ends = folder.match_indices('/').map(|(at, _)| at).chain([folder.len()]);
        for above in [""].into_iter().chain(ends.filter_map(|end| folder.get(..end))) {
            let is_same = match kept.get(above) {
                Some(is_same) => *is_same,
                None => {
                    // The overlay's own document, if it has one, takes the place of the branch's.
                    let is_own = |key: &str| self.before.contains_key(key);
                    let is_same = nodes::has_kept_form(self.store, self.transaction(), above, &is_own)?;
                    kept.insert(above.to_owned(), is_same);
                    is_same
                }
            };
            if !is_same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the conflicts, if there are any.
    pub fn take_conflicts(&mut self) -> Option<Vec<Conflict>> {
        let mut conflicts = std::mem::take(&mut self.conflicts);
        conflicts.sort();
        conflicts.dedup();
        (!conflicts.is_empty()).then_some(conflicts)
    }

    /// Returns the transaction, and how many changes it has.
    pub fn end(self) -> (Box<dyn Transaction>, u64) {
        let changes = self.removed_nodes + self.changed.len() as u64;
        (self.transaction, changes)
    }
}
