//! Comparing what readers received with the store, for open(2).
//!
//! Uses its neighbours in `array`, `error` and `cancellation`.

use std::hash::Hasher;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::array::served::ServedArray;
use crate::array::source::objects::hash_versions;
use crate::array::sync::Mutex;
use crate::array::workers::Workers;
use crate::cancellation::Cancellation;
use crate::error::{Error, Result};

/// How many objects a remote store looks up before the request's deadline is checked again.
const BATCH_OBJECTS: usize = 512;
/// The most objects that are compared for the version of an array's content.
const MAX_COMPARED_OBJECTS: u64 = 1 << 20;

/// Compares what readers of an array received with the store.
pub struct Comparison<'a> {
    /// The array.
    pub served: &'a Arc<ServedArray>,
    /// The decoding threads.
    pub workers: &'a Workers,
}

impl Comparison<'_> {
    /// Compares every object that readers have seen. Returns `true` if nothing has changed, so the kernel's pages of
    /// the file are still right. Otherwise, or if too many objects were read to compare them all, calls `start_afresh`,
    /// which has every cached chunk compared with the store before use, and returns `false`.
    pub fn is_unchanged(&self, start_afresh: impl Fn(), cancellation: &Cancellation) -> Result<bool> {
        let (store, seen) = (self.served.store(), self.served.seen());
        let keys = seen.begin_comparison();
        // Transfers under way may bring content from before this comparison, and are not recorded yet.
        store.forget_transfers(self.served.path());
        if let Some(composed) = store.composed() {
            composed.begin_comparison(self.served.path());
        }
        let Some(keys) = keys else {
            start_afresh();
            return Ok(false);
        };
        let changed = self.changed(keys, cancellation)?;
        // Write-back or a reader may have found another program's version meanwhile.
        if changed.is_empty() && seen.is_complete() {
            return Ok(true);
        }
        start_afresh();
        seen.forget(&changed);
        Ok(false)
    }

    /// Adds the versions of all objects of the array to a hash. Reads no object. Fails with `TooLarge` if there are too
    /// many.
    pub fn hash_versions(&self, version: &mut impl Hasher) -> Result<()> {
        let (served, objects) = (self.served, self.served.levels().objects());
        if objects > MAX_COMPARED_OBJECTS {
            let reason = format!(
                "{objects} chunks or shards; at most {MAX_COMPARED_OBJECTS} are compared with the store"
            );
            return Err(Error::TooLarge { key: served.document_key().to_owned(), reason });
        }
        hash_versions(served.store(), (0..objects).map(|object| served.key_of_object(object)), version)
    }

    /// Returns the keys of objects that differ from what readers received. Asks for several at a time.
    fn changed(&self, keys: Vec<String>, cancellation: &Cancellation) -> Result<Vec<String>> {
        // Threads compare objects of a local store one by one. A remote store gets batches.
        let batch = if self.served.store().is_remote() { BATCH_OBJECTS } else { 1 };
        let count = keys.len().div_ceil(batch);
        let (array, cancellation) = (Arc::clone(self.served), cancellation.clone());
        let outcome = Arc::new(Mutex::new(ComparisonOutcome { compared: 0, changed: Ok(Vec::new()) }));
        let of_all = Arc::clone(&outcome);
        self.workers.share(count, move |number| {
            let Some(keys) = keys.chunks(batch).nth(number) else { return ControlFlow::Break(()) };
            let found = changed_of(&array, keys, &cancellation);
            let outcome = &mut *of_all.lock();
            outcome.compared += 1;
            match (found, &mut outcome.changed) {
                (Err(error), _) => {
                    outcome.changed = Err(error);
                    return ControlFlow::Break(());
                }
                (Ok(found), Ok(changed)) => changed.extend(found),
                _ => {}
            }
            ControlFlow::Continue(())
        });
        let empty = ComparisonOutcome { compared: 0, changed: Ok(Vec::new()) };
        let ComparisonOutcome { compared, changed } = std::mem::replace(&mut *outcome.lock(), empty);
        if compared < count && changed.is_ok() {
            let stopped = std::io::Error::other("the comparison stopped early");
            return Err(Error::store(self.served.path(), "compare objects with the store", stopped));
        }
        changed
    }
}

/// What the threads of one comparison found.
struct ComparisonOutcome {
    /// How many batches were compared.
    compared: usize,
    /// The keys of the objects that changed.
    changed: Result<Vec<String>>,
}

/// Returns the keys of those objects that differ from what readers received.
fn changed_of(array: &ServedArray, keys: &[String], cancellation: &Cancellation) -> Result<Vec<String>> {
    keys.first().map_or(Ok(()), |key| cancellation.check(key))?;
    let store = array.store();
    let unchanged = match keys {
        [key] => vec![array.seen().is_unchanged(store, key)],
        keys => array.seen().are_unchanged(store, keys),
    };
    let mut changed = Vec::new();
    for (key, is_unchanged) in keys.iter().zip(unchanged) {
        match is_unchanged {
            Ok(true) => {}
            Ok(false) => changed.push(key.clone()),
            // A user without access to an object must not get it from memory either.
            Err(error) if error.errno() == libc::EACCES => changed.push(key.clone()),
            Err(error) => return Err(error),
        }
    }
    Ok(changed)
}
