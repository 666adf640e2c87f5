//! Checking: every unit of an array decoded once, damage reported by key.
//!
//! Uses its neighbours in `array`. Nothing is kept in the cache.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::Array;
use super::cache::Content;
use crate::error::{Error, Result};
use crate::store::Object;

/// How far a check is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Units looked at.
    pub done: u64,
    /// Units in all.
    pub total: u64,
}

/// What a check found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckOutcome {
    /// Units that are stored and decode.
    pub sound: u64,
    /// Units that are not stored (fill value).
    pub missing: u64,
    /// Units that cannot be read.
    pub damaged: u64,
}

impl Array {
    /// Decodes every unit on `threads` threads. `report` is told of each one that cannot be read, with the key of its
    /// object; `progress` now and then, from any of the threads.
    pub fn check(
        &self,
        threads: usize,
        progress: &(dyn Fn(Progress) + Sync),
        report: &(dyn Fn(&str, &Error) + Sync),
    ) -> CheckOutcome {
        let inner = &self.inner;
        let total = inner.grid.chunks();
        let next = AtomicU64::new(0);
        let outcome = Mutex::new(CheckOutcome::default());
        std::thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(|| {
                    loop {
                        let unit = next.fetch_add(1, Ordering::Relaxed);
                        if unit >= total {
                            return;
                        }
                        self.check_unit(unit, &outcome, report);
                        progress(Progress { done: unit + 1, total });
                    }
                });
            }
        });
        outcome.into_inner()
    }

    fn check_unit(&self, unit: u64, outcome: &Mutex<CheckOutcome>, report: &(dyn Fn(&str, &Error) + Sync)) {
        let inner = &self.inner;
        let place = inner.place();
        let index = inner.grid.index(unit);
        let found = if inner.source.is_raw() {
            inner.source.open_raw(&place, &index).and_then(|object| match object {
                Some(object) => read_through(object.as_ref()).map(|()| true),
                None => Ok(false),
            })
        } else {
            inner.source.load(&place, &index).map(|(content, _)| !matches!(content, Content::Absent))
        };
        let mut outcome = outcome.lock();
        match found {
            Ok(false) => outcome.missing += 1,
            Ok(true) => outcome.sound += 1,
            Err(error) => {
                outcome.damaged += 1;
                drop(outcome);
                let key = inner.source.key(&place, &index).unwrap_or_default();
                report(&key, &error);
            }
        }
    }
}

/// Reads all of an object, to see whether the store gives it.
fn read_through(object: &dyn Object) -> Result<()> {
    let mut part = vec![0; 1 << 20];
    let mut offset = 0;
    while offset < object.size_bytes() {
        let length = (object.size_bytes() - offset).min(part.len() as u64);
        let Some(out) = part.get_mut(..length as usize) else { break };
        object.read_exact_at(offset, out)?;
        offset += length;
    }
    Ok(())
}
