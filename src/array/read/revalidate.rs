//! Comparing what readers received with the store, for open(2).
//!
//! Uses its neighbours in `array`, `error` and `cancellation`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::SystemTime;

use crate::array::sync::Mutex;
use crate::array::sync::atomic::Ordering;
use crate::array::{Array, Inner};
use crate::cancellation::Cancellation;
use crate::error::{Error, Result};

/// How many objects a remote store is asked for before the request's deadline is looked at again.
const BATCH_OBJECTS: usize = 512;
/// The most objects that are compared for the version of an array's content.
const MAX_COMPARED_OBJECTS: u64 = 1 << 20;

impl Array {
    /// Compares every object that readers have seen with the store, for open(2). `true`: nothing has changed, and the
    /// kernel's pages of the file are still right. `false`: something changed, or too many objects were read to tell;
    /// from now on every cached chunk is compared with the store before use.
    pub fn revalidate(&self, cancellation: &Cancellation) -> Result<bool> {
        let inner = &self.inner;
        let seen = inner.served.look();
        // What is on its way may be older than this comparison, and is in no record yet.
        inner.store.forget_transfers(&inner.path);
        let Some(keys) = seen else {
            inner.look_afresh();
            return Ok(false);
        };
        let changed = Inner::changed(inner, keys, cancellation)?;
        // Write-back or a reader may have found another program's version meanwhile.
        if changed.is_empty() && inner.served.is_complete() {
            return Ok(true);
        }
        inner.look_afresh();
        inner.served.forget(&changed);
        Ok(false)
    }

    /// A number that changes, in all likelihood, when an element does, also by another program. Calls stat on all objects of the array, and
    /// reads none. Fails with `TooLarge` where there are too many.
    pub fn content_version(&self) -> Result<u64> {
        let inner = &self.inner;
        let (source, objects) = (&inner.source, inner.source.objects());
        if objects > MAX_COMPARED_OBJECTS {
            let reason = format!(
                "{objects} chunks or shards; at most {MAX_COMPARED_OBJECTS} are compared with the store"
            );
            return Err(Error::TooLarge { key: inner.metadata.document_key.clone(), reason });
        }
        let mut version = DefaultHasher::new();
        inner.writing.copies.load(Ordering::Acquire).hash(&mut version);
        let ctx = inner.load_context();
        let mut keys = Vec::new();
        for object in 0..objects {
            let chunk: Vec<u64> = source.chunk_ranges(object).iter().map(|range| range.start).collect();
            keys.push(source.key(&ctx, &chunk)?);
            if keys.len() == BATCH_OBJECTS || object + 1 == objects {
                let asked: Vec<&str> = keys.iter().map(String::as_str).collect();
                for found in inner.store.head_many(&asked) {
                    found?.map(|info| info.version).hash(&mut version);
                }
                keys.clear();
            }
        }
        Ok(version.finish())
    }

    /// When another program made the newest change of chunks that was seen, by a reader or by [`Array::revalidate`].
    pub fn changed_at(&self) -> Option<SystemTime> {
        self.inner.served.changed_at()
    }
}

impl Inner {
    /// The keys of objects that differ from what readers received. Asks for several at a time.
    fn changed(inner: &Arc<Inner>, keys: Vec<String>, cancellation: &Cancellation) -> Result<Vec<String>> {
        // The threads share single objects of a local store. A remote store gets batches.
        let batch = if inner.store.is_remote() { BATCH_OBJECTS } else { 1 };
        let count = keys.len().div_ceil(batch);
        let (array, cancellation) = (Arc::clone(inner), cancellation.clone());
        let outcome = Arc::new(Mutex::new((0, Ok(Vec::new()))));
        let of_all = Arc::clone(&outcome);
        inner.engine.workers.share(count, move |number| {
            let Some(keys) = keys.chunks(batch).nth(number) else { return ControlFlow::Break(()) };
            let found = changed_of(&array, keys, &cancellation);
            let (looked, changed) = &mut *of_all.lock();
            *looked += 1;
            match (found, &mut *changed) {
                (Err(error), _) => {
                    *changed = Err(error);
                    return ControlFlow::Break(());
                }
                (Ok(found), Ok(changed)) => changed.extend(found),
                _ => {}
            }
            ControlFlow::Continue(())
        });
        let (looked, changed) = std::mem::replace(&mut *outcome.lock(), (0, Ok(Vec::new())));
        if looked < count && changed.is_ok() {
            let stopped = std::io::Error::other("the comparison stopped early");
            return Err(Error::store(inner.path.as_str(), "compare objects with the store", stopped));
        }
        changed
    }

    /// Makes later reads compare all earlier content with the store, or load it again.
    fn look_afresh(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.forget_bases();
    }
}

/// Those of these keys of objects that differ from what readers received.
fn changed_of(array: &Inner, keys: &[String], cancellation: &Cancellation) -> Result<Vec<String>> {
    keys.first().map_or(Ok(()), |key| cancellation.check(key))?;
    let store = array.store.as_ref();
    let unchanged = match keys {
        [key] => vec![array.served.is_unchanged(store, key)],
        keys => array.served.are_unchanged(store, keys),
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
