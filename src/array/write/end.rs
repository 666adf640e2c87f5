//! The end of an array that its node is removed or renamed: no write reaches the store after it.
//!
//! Uses its neighbours in `array`. Invariant: what another array of the same name has never comes from a handle of this one.

use crate::array::sync::atomic::Ordering;
use crate::array::{Array, Inner};
use crate::error::{Error, Result};

impl Array {
    /// From now on, writes fail with `Stale`. What was written before can still be stored.
    pub fn refuse_writes(&self) {
        self.inner.writing.refuses_writes.store(true, Ordering::Release);
    }

    /// The node stays after all: takes writes again.
    pub fn accept_writes(&self) {
        self.inner.writing.refuses_writes.store(false, Ordering::Release);
    }

    /// Runs `remove`, which takes the array's node out of the store, while nothing is being stored. Then drops what was
    /// written and not stored: it is never stored. Returns whether there was something. If `remove` fails, the array goes on.
    pub fn end(&self, remove: impl FnOnce() -> Result<()>) -> Result<bool> {
        let inner = &self.inner;
        self.refuse_writes();
        let _storing = inner.writing.storing.lock();
        if let Err(error) = remove() {
            self.accept_writes();
            return Err(error);
        }
        inner.writing.has_ended.store(true, Ordering::Release);
        Ok(inner.drop_dirty())
    }
}

impl Inner {
    /// Drops what a write left that was running when the array ended. The caller holds the lock of write-back.
    pub(in crate::array) fn check_end(&self) -> Result<()> {
        if !self.writing.has_ended.load(Ordering::Acquire) {
            return Ok(());
        }
        self.drop_dirty();
        match self.writing.has_lost.load(Ordering::Acquire) {
            true => Err(Error::Stale { key: self.metadata.document_key.clone() }),
            false => Ok(()),
        }
    }

    fn drop_dirty(&self) -> bool {
        let has_lost = self.is_dirty();
        let counted = self.writing.drop_dirty(None);
        self.writing.chunks.lock().unsynced.clear();
        self.engine.dirty_bytes.fetch_sub(counted, Ordering::AcqRel);
        self.engine.room.notify();
        self.writing.has_lost.fetch_or(has_lost, Ordering::AcqRel);
        has_lost
    }
}
