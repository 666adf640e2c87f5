//! Comparing what readers received with the store, for open(2).
//!
//! Uses its neighbours in `array`, `error` and `cancellation`.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::SystemTime;

use crate::array::sync::Mutex;
use crate::array::sync::atomic::Ordering;
use crate::array::{Array, Inner};
use crate::cancellation::Cancellation;
use crate::error::{Error, Result};

impl Array {
    /// Compares every object that readers have seen with the store, for open(2). `true`: nothing has changed, and the
    /// kernel's pages of the file are still right. `false`: something changed, or too many objects were read to tell;
    /// from now on every cached chunk is compared with the store before use.
    pub fn revalidate(&self, cancellation: &Cancellation) -> Result<bool> {
        let inner = &self.inner;
        let Some(keys) = inner.served.look() else {
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

    /// When another program made the newest change of chunks that was seen, by a reader or by [`Array::revalidate`].
    pub fn changed_at(&self) -> Option<SystemTime> {
        self.inner.served.changed_at()
    }
}

impl Inner {
    /// The keys of objects that differ from what readers received. Asks for several at a time.
    fn changed(inner: &Arc<Inner>, keys: Vec<String>, cancellation: &Cancellation) -> Result<Vec<String>> {
        let (array, cancellation, count) = (Arc::clone(inner), cancellation.clone(), keys.len());
        let outcome = Arc::new(Mutex::new((0, Ok(Vec::new()))));
        let of_all = Arc::clone(&outcome);
        inner.engine.workers.share(count, move |number| {
            let Some(key) = keys.get(number) else { return ControlFlow::Break(()) };
            let is_unchanged = cancellation
                .check(key)
                .and_then(|()| array.served.is_unchanged(array.store.as_ref(), key))
                // A user without access to an object must not get it from memory either.
                .or_else(|error| if error.errno() == libc::EACCES { Ok(false) } else { Err(error) });
            let (looked, changed) = &mut *of_all.lock();
            *looked += 1;
            match (is_unchanged, &mut *changed) {
                (Err(error), _) => {
                    *changed = Err(error);
                    return ControlFlow::Break(());
                }
                (Ok(false), Ok(changed)) => changed.push(key.clone()),
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
