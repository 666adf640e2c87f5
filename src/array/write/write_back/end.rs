//! The end of an array: its node is removed or renamed, and no write reaches the store afterwards.
//!
//! Uses `sync.rs`. Invariant: a later array of the same name never gets bytes from a handle of this one.

use crate::array::sync::atomic::{AtomicBool, Ordering};

/// How far the end of an array has come. Arrays that grew from each other share it.
#[derive(Default)]
pub struct ArrayEnd {
    /// The node is about to be removed or renamed: writes fail.
    refuses_writes: AtomicBool,
    /// The node was removed or renamed: nothing is stored any more.
    has_ended: AtomicBool,
    /// Something was written that was not stored by then.
    has_lost: AtomicBool,
}

impl ArrayEnd {
    /// Returns whether writes fail.
    pub fn refuses_writes(&self) -> bool {
        self.refuses_writes.load(Ordering::Acquire)
    }

    /// Makes writes fail, or succeed again.
    pub fn refuse_writes(&self, refuses: bool) {
        self.refuses_writes.store(refuses, Ordering::Release);
    }

    /// Returns whether nothing is stored any more.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Records that the node is gone, so nothing is stored any more.
    pub fn mark_ended(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    /// Returns whether something that was written is lost.
    pub fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::Acquire)
    }

    /// Records whether something that was written is lost.
    pub fn record_lost(&self, has_lost: bool) {
        self.has_lost.fetch_or(has_lost, Ordering::AcqRel);
    }
}
