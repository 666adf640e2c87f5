//! Which versions of objects readers were given something of, as open(2) compares them with the store.
//!
//! Uses `store` and `error`.
//!
//! Invariants: an object is noted when it is opened, before any of its bytes are used, so that what is still being loaded is
//! compared, too. Every object that a cached unit came from is noted, or it shows that not all of them are.

use std::collections::HashMap;

use super::sync::Mutex;
use crate::error::Result;
use crate::store::{Object, Store, Validator};

/// The most objects whose versions are remembered between two opens.
const MAX_OBJECTS: usize = 4096;

/// The versions of the objects of an array that were served; `None` for one that was missing.
#[derive(Default)]
pub struct Served {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    objects: HashMap<String, Option<Validator>>,
    /// All that readers hold came from `objects` as noted there.
    is_complete: bool,
    /// How often they were asked for.
    looks: u64,
}

impl State {
    fn insert(&mut self, key: &str, version: Option<Validator>) {
        if let Some(seen) = self.objects.get_mut(key) {
            *seen = version;
        } else if self.objects.len() < MAX_OBJECTS {
            self.objects.insert(key.to_owned(), version);
        } else {
            self.is_complete = false;
        }
    }

    /// If readers have seen another version than `old`, some of what they hold is old.
    fn replace(&mut self, key: &str, old: Option<Validator>, new: Option<Validator>) {
        self.is_complete &= self.objects.get(key).is_none_or(|seen| *seen == old);
        self.insert(key, new);
    }
}

fn version_of(store: &dyn Store, key: &str) -> Result<Option<Validator>> {
    Ok(store.head(key)?.map(|info| info.validator))
}

impl Served {
    /// Opens an object for a reader.
    pub fn open(&self, store: &dyn Store, key: &str) -> Result<Option<Box<dyn Object>>> {
        loop {
            let looks = self.state.lock().looks;
            let object = store.open(key)?;
            let version = object.as_ref().map(|object| object.validator());
            // Who looked in between did not see it, but was not wrong if it is the same now.
            if self.note_since(looks, key, version) || version_of(store, key)? == version {
                return Ok(object);
            }
        }
    }

    /// The version of an object, for a reader who has something of it.
    pub fn version(&self, store: &dyn Store, key: &str) -> Result<Option<Validator>> {
        loop {
            let looks = self.state.lock().looks;
            let version = version_of(store, key)?;
            if self.note_since(looks, key, version) || version_of(store, key)? == version {
                return Ok(version);
            }
        }
    }

    /// Notes a version that was found after so many looks; whether there was none since.
    fn note_since(&self, looks: u64, key: &str, version: Option<Validator>) -> bool {
        let mut state = self.state.lock();
        state.replace(key, version, version);
        state.looks == looks
    }

    /// An object of version `old` was replaced by ours. If readers saw a version before `old`, what another program
    /// did in between is new to them.
    pub fn note_replaced(&self, key: &str, old: Option<Validator>, new: Option<Validator>) {
        self.state.lock().replace(key, old, new);
    }

    /// What readers and writers have seen is not what a reader gets now.
    pub fn note_change(&self) {
        self.state.lock().is_complete = false;
    }

    /// All objects that readers have something of; `None` where that is not known, and forgotten from now on.
    pub fn look(&self) -> Option<HashMap<String, Option<Validator>>> {
        let mut state = self.state.lock();
        state.looks += 1;
        if std::mem::replace(&mut state.is_complete, true) {
            return Some(state.objects.clone());
        }
        state.objects.clear();
        None
    }

    /// Forgets objects that are no longer what readers were given.
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

    #[test]
    fn what_is_looked_at_is_all_or_nothing() {
        let store = MemoryStore::new();
        store.put("a", vec![1]).unwrap();
        let served = Served::default();
        served.open(&store, "a").unwrap().unwrap();
        assert!(served.look().is_none(), "what came before is not known");
        assert!(served.look().unwrap().is_empty());
        assert!(
            served.open(&store, "a").unwrap().is_some() && served.version(&store, "b").unwrap().is_none()
        );
        assert_eq!(served.look().unwrap().len(), 2);
        let (old, new) = (served.version(&store, "a").unwrap(), None);
        served.note_replaced("a", old, new);
        assert!(served.look().is_some(), "ours");
        served.note_replaced("a", old, old);
        assert!(served.look().is_none(), "another program's before");
        for number in 0..=MAX_OBJECTS {
            served.version(&store, &number.to_string()).unwrap();
        }
        assert!(served.look().is_none() && served.look().unwrap().is_empty());
    }
}
