//! What is not in the store yet, by key, for reports that it cannot be stored. Uses its neighbours in `array`, and
//! `error`.

use std::collections::BTreeMap;

use crate::array::{Engine, Inner};
use crate::error::Error;

/// Objects of one array for which dirty chunks are not stored.
#[derive(Clone, Debug)]
pub struct DirtyReport {
    /// The array's path.
    pub path: String,
    /// Their keys; not all if there are very many.
    pub keys: Vec<String>,
    /// How many there are.
    pub count: u64,
    /// The error of the last attempt to store, if it failed.
    pub last_failure: Option<Error>,
}

/// The most keys that are reported for one array.
const MAX_KEYS: usize = 10_000;

impl Engine {
    /// Everything that is not in the store yet.
    pub fn unsaved(&self) -> Vec<DirtyReport> {
        self.written().iter().filter_map(|array| array.unsaved()).collect()
    }
}

impl Inner {
    fn unsaved(&self) -> Option<DirtyReport> {
        // One chunk of each object, because keys are made from chunks.
        let mut objects = BTreeMap::new();
        let mut zeroed = 0;
        {
            let chunks = self.writing.chunks.lock();
            for &number in chunks.dirty.keys() {
                objects.entry(self.object_of(number)).or_insert(Some(number));
            }
            if chunks.zero.is_some() {
                for object in (0..self.source.objects()).filter(|object| chunks.is_zero(*object)) {
                    zeroed += u64::from(!objects.contains_key(&object));
                    if objects.len() < MAX_KEYS {
                        objects.entry(object).or_insert(None);
                    }
                }
            }
        }
        let marked = objects.values().filter(|chunk| chunk.is_none()).count() as u64;
        let count = objects.len() as u64 - marked + zeroed;
        let key = |(&object, &chunk): (&u64, &Option<u64>)| {
            let chunk = chunk.or_else(|| self.source.chunks_of(object).first().copied())?;
            self.source.key(&self.load_context(), &self.grid.index(chunk)).ok()
        };
        let keys = objects.iter().take(MAX_KEYS).filter_map(key).collect();
        let last_failure = {
            let failures = self.writing.failures.lock();
            failures.last.clone().filter(|_| failures.logged_at.is_some())
        };
        (count > 0).then(|| DirtyReport { path: self.path.clone(), keys, count, last_failure })
    }
}
