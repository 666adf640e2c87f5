//! The versions of the objects that readers have seen. open(2) compares these versions with the store.
//!
//! Uses `store`, `error` and `sync.rs`.
//!
//! Invariants: an object is recorded when it is opened, before any of its bytes are used, so running loads are
//! compared, too. Either every object that a cached chunk came from is recorded, or the record says that it is
//! incomplete.

use std::collections::HashMap;
use std::time::SystemTime;

use crate::array::sync::{Condvar, Mutex};
use crate::error::Result;
use crate::store::{Info, Object, ObjectVersion, Store, Wanted};

/// The most objects that are recorded between two opens.
const MAX_OBJECTS: usize = 4096;

/// The versions of an array's objects that readers have seen; `None` for an object that was missing.
#[derive(Default)]
pub struct SeenVersions {
    state: Mutex<SeenState>,
    /// Signals the end of a replacement.
    replaced: Condvar,
}

#[derive(Default)]
struct SeenState {
    objects: HashMap<String, SeenObject>,
    /// Objects that write-back is replacing now.
    replacing: HashMap<String, OngoingReplacements>,
    /// Whether everything that readers hold came from `objects` in the recorded versions.
    is_complete: bool,
    /// How many comparisons have begun.
    comparisons: u64,
    /// The time of the newest change by another program that was seen.
    changed_at: Option<SystemTime>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SeenObject {
    version: Option<ObjectVersion>,
    /// The time of last change of this version, if known.
    modified: Option<SystemTime>,
    /// How many times write-back has replaced the object since it was first recorded.
    replacements: u64,
}

#[derive(Debug, Default)]
struct OngoingReplacements {
    /// How many threads replace it.
    count: usize,
    /// Versions that readers found meanwhile and had not seen before: the new version, unless another program replaces
    /// the object, too.
    found: Vec<Option<ObjectVersion>>,
}

/// The state of the record before the store is asked for an object.
#[derive(Clone, Copy, PartialEq, Eq)]
struct RecordSnapshot {
    comparisons: u64,
    replacements: u64,
}

impl SeenState {
    fn replacements(&self, key: &str) -> u64 {
        self.objects.get(key).map_or(0, |seen| seen.replacements)
    }

    fn insert(&mut self, key: &str, seen: SeenObject) {
        if let Some(known) = self.objects.get_mut(key) {
            *known = seen;
        } else if self.objects.len() < MAX_OBJECTS {
            self.objects.insert(key.to_owned(), seen);
        } else {
            self.is_complete = false;
        }
    }

    /// Records that another program changed an object. The change has the time of the new version, or the present time
    /// if the new version is not newer than the old one.
    fn record_foreign_change(&mut self, old: Option<SystemTime>, new: Option<SystemTime>) {
        let newer = new.filter(|new| old.is_none_or(|old| old < *new));
        let at = newer.unwrap_or_else(SystemTime::now);
        self.changed_at = self.changed_at.max(Some(at));
    }

    /// Records that a reader received something of this version. If readers have seen another version, some of what
    /// they hold is old.
    fn record(&mut self, key: &str, found: Option<Info>) {
        let (version, modified) = (found.map(|info| info.version), found.and_then(|info| info.modified));
        let Some(seen) = self.objects.get(key).copied() else {
            return self.insert(key, SeenObject { version, modified, replacements: 0 });
        };
        if seen.version == version {
            return;
        }
        match self.replacing.get_mut(key) {
            Some(replacing) if !replacing.found.contains(&version) => replacing.found.push(version),
            Some(_) => {}
            None => {
                self.is_complete = false;
                self.record_foreign_change(seen.modified, modified);
                self.insert(key, SeenObject { version, modified, ..seen });
            }
        }
    }
}

/// A replacement of an object by write-back, from before its put until its new version is recorded. Readers do not
/// count it as a change. Dropping it ends it.
pub struct Replacement<'a> {
    served: &'a SeenVersions,
    key: &'a str,
}

impl Replacement<'_> {
    /// Records that version `new` replaced version `old`. If readers saw a third version before, they have not seen
    /// what another program did in between.
    pub fn record(&self, old: Option<ObjectVersion>, new: Option<ObjectVersion>) {
        let mut state = self.served.state.lock();
        let seen = state.objects.get(self.key).copied();
        let found = state.replacing.get_mut(self.key).map(|replacing| std::mem::take(&mut replacing.found));
        let mut versions = found.unwrap_or_default().into_iter().chain(seen.map(|seen| seen.version));
        state.is_complete &= versions.all(|version| version == old || version == new);
        let replacements = seen.map_or(0, |seen| seen.replacements) + 1;
        let modified = new.map(|_| SystemTime::now());
        state.insert(self.key, SeenObject { version: new, modified, replacements });
    }
}

impl Drop for Replacement<'_> {
    fn drop(&mut self) {
        let mut state = self.served.state.lock();
        if let Some(replacing) = state.replacing.get_mut(self.key) {
            replacing.count -= 1;
            if replacing.count == 0 && state.replacing.remove(self.key).is_some_and(|it| !it.found.is_empty())
            {
                // The put failed, perhaps after the object had changed.
                state.is_complete = false;
            }
        }
        drop(state);
        self.served.replaced.notify_all();
    }
}

impl SeenVersions {
    /// Opens an object for a reader that begins with these bytes.
    pub fn open(&self, store: &dyn Store, key: &str, wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        self.ask(
            store,
            key,
            || store.open_for(key, wanted),
            |object| object.as_ref().map(|object| object.info()),
        )
    }

    /// Returns the version of an object for a reader that holds content of it.
    pub fn version(&self, store: &dyn Store, key: &str) -> Result<Option<ObjectVersion>> {
        let found = self.ask(store, key, || store.head_object(key), |info| *info)?;
        Ok(found.map(|info| info.version))
    }

    /// Asks the store for an object and records the version that it returns.
    fn ask<T>(
        &self,
        store: &dyn Store,
        key: &str,
        ask: impl Fn() -> Result<T>,
        info: impl Fn(&T) -> Option<Info>,
    ) -> Result<T> {
        loop {
            let before = self.before(key);
            let found = ask()?;
            let info = info(&found);
            let mut state = self.state.lock();
            let now =
                RecordSnapshot { comparisons: state.comparisons, replacements: state.replacements(key) };
            if now.replacements != before.replacements {
                // Write-back has replaced the object since. The result may be older than that and must not be recorded.
                continue;
            }
            state.record(key, info);
            drop(state);
            // A comparison for open(2) began in between and missed this object. That does no harm if the object still
            // has the same version.
            let is_same = |now: Option<Info>| now.map(|now| now.version) == info.map(|info| info.version);
            if now.comparisons == before.comparisons || is_same(store.head_object(key)?) {
                return Ok(found);
            }
        }
    }

    fn before(&self, key: &str) -> RecordSnapshot {
        let state = self.state.lock();
        RecordSnapshot { comparisons: state.comparisons, replacements: state.replacements(key) }
    }

    /// Announces that write-back replaces an object.
    pub fn replace<'a>(&'a self, key: &'a str) -> Replacement<'a> {
        self.state.lock().replacing.entry(key.to_owned()).or_default().count += 1;
        Replacement { served: self, key }
    }

    /// Records that what readers and writers have seen differs from what a read returns now.
    pub fn mark_incomplete(&self) {
        self.state.lock().is_complete = false;
    }

    /// Begins a comparison for open(2): returns the keys of all objects that readers hold content of. Returns `None` if
    /// they are not all known; then the record starts afresh.
    pub fn begin_comparison(&self) -> Option<Vec<String>> {
        let mut state = self.state.lock();
        state.comparisons += 1;
        if std::mem::replace(&mut state.is_complete, true) {
            return Some(state.objects.keys().cloned().collect());
        }
        state.objects.clear();
        None
    }

    /// Returns whether readers hold only what was recorded since the last comparison began.
    pub fn is_complete(&self) -> bool {
        self.state.lock().is_complete
    }

    /// Returns whether the object in the store has the version that readers have seen, or one that write-back has put
    /// since. Waits for running replacements.
    pub fn is_unchanged(&self, store: &dyn Store, key: &str) -> Result<bool> {
        loop {
            let seen = {
                let mut state = self.state.lock();
                while state.replacing.contains_key(key) {
                    self.replaced.wait(&mut state);
                }
                state.objects.get(key).copied()
            };
            let Some(seen) = seen else { return Ok(true) };
            let now = store.head_object(key)?;
            if now.map(|now| now.version) == seen.version {
                return Ok(true);
            }
            if self.is_change(key, seen, now) {
                return Ok(false);
            }
        }
    }

    /// Returns whether another program has made the version found `now`, which differs from the one seen before.
    /// Returns `false` if write-back may have made it: then the caller compares again.
    fn is_change(&self, key: &str, seen: SeenObject, now: Option<Info>) -> bool {
        let mut state = self.state.lock();
        let is_theirs = !state.replacing.contains_key(key) && state.objects.get(key) == Some(&seen);
        if is_theirs {
            state.record_foreign_change(seen.modified, now.and_then(|now| now.modified));
        }
        is_theirs
    }

    /// Compares several objects as [`SeenVersions::is_unchanged`] does. The store looks them up in one batch.
    pub fn are_unchanged(&self, store: &dyn Store, keys: &[String]) -> Vec<Result<bool>> {
        let seen: Vec<Option<SeenObject>> = {
            let state = self.state.lock();
            keys.iter().map(|key| state.objects.get(key).copied()).collect()
        };
        let asked: Vec<&str> = keys.iter().map(String::as_str).collect();
        let compare = |((key, seen), now): ((&String, Option<SeenObject>), Result<Option<Info>>)| {
            let now = now?;
            match seen {
                Some(seen) if seen.version != now.map(|now| now.version) => {
                    if self.is_change(key, seen, now) { Ok(false) } else { self.is_unchanged(store, key) }
                }
                _ => Ok(true),
            }
        };
        keys.iter().zip(seen).zip(store.head_many(&asked)).map(compare).collect()
    }

    /// Returns when another program made the newest change that was seen. `None` if there was no change.
    pub fn changed_at(&self) -> Option<SystemTime> {
        self.state.lock().changed_at
    }

    /// Removes objects that differ from what readers received.
    pub fn forget(&self, keys: &[String]) {
        let mut state = self.state.lock();
        for key in keys {
            state.objects.remove(key);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    fn served_by(store: &MemoryStore) -> Option<ObjectVersion> {
        store.head("a").unwrap().map(|info| info.version)
    }

    #[test]
    fn a_comparison_is_complete_or_none() {
        let store = MemoryStore::new();
        store.put("a", vec![1]).unwrap();
        let served = SeenVersions::default();
        served.open(&store, "a", &Wanted::Last(1)).unwrap().unwrap();
        assert!(served.begin_comparison().is_none(), "what came before is not known");
        assert!(served.begin_comparison().unwrap().is_empty());
        assert!(
            served.open(&store, "a", &Wanted::Last(1)).unwrap().is_some()
                && served.version(&store, "b").unwrap().is_none()
        );
        assert_eq!(served.begin_comparison().unwrap().len(), 2);
        let (old, new) = (served.version(&store, "a").unwrap(), None);
        served.replace("a").record(old, new);
        assert!(served.begin_comparison().is_some(), "ours");
        served.replace("a").record(old, old);
        assert!(served.begin_comparison().is_none(), "another program's before");
        assert!(served.version(&store, "a").unwrap() == old && served.begin_comparison().is_some());
        let replacement = served.replace("a");
        store.put("a", vec![2]).unwrap();
        let new = served.version(&store, "a").unwrap();
        assert!(new != old);
        replacement.record(old, new);
        drop(replacement);
        assert!(served.begin_comparison().is_some(), "ours, which a reader found before it was recorded");
        assert!(served.is_unchanged(&store, "a").unwrap());
        let replacement = served.replace("a");
        store.put("a", vec![3]).unwrap();
        served.version(&store, "a").unwrap();
        store.put("a", vec![4]).unwrap();
        replacement.record(new, served_by(&store));
        drop(replacement);
        assert!(served.begin_comparison().is_none(), "another program's in between");
        for number in 0..=MAX_OBJECTS {
            served.version(&store, &number.to_string()).unwrap();
        }
        assert!(served.begin_comparison().is_none() && served.begin_comparison().unwrap().is_empty());
    }
}
