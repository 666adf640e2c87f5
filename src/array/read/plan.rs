//! The plan of a read, kept from the try that does not block to the blocking retry.
//!
//! Uses `geometry/copy_plan.rs` and the grids of its array.

use std::ops::Range;
use std::sync::{Arc, Weak};

use crate::array::geometry::copy_plan::CopyPlan;
use crate::array::sync::atomic::Ordering;
use crate::array::{Blocking, Inner};

/// What one read touches. Its memory is used again by the next read.
#[derive(Default)]
pub struct ReadPlan {
    /// The array that the plan is for; `None` if there is no plan.
    array: Option<Weak<Inner>>,
    is_uncompressed: bool,
    pub(in crate::array) copies: CopyPlan,
}

impl ReadPlan {
    /// Plans a range of an array, if that is not done. Returns `false` if the plan needs the store and must not wait for
    /// it.
    pub(in crate::array) fn prepare(
        &mut self,
        array: &Arc<Inner>,
        range: Range<u64>,
        blocking: Blocking,
        is_sequential: bool,
    ) -> bool {
        let mut is_uncompressed = array.reads_ranges(is_sequential);
        if is_uncompressed && array.writing.is_written.load(Ordering::Acquire) {
            if blocking == Blocking::No {
                return false;
            }
            is_uncompressed = !array.is_dirty();
        }
        let grid = match blocking {
            _ if is_uncompressed => &array.grid,
            Blocking::Yes => array.strips_at(range.start).grid(),
            Blocking::No => match array.strips.get() {
                Some(strips) => strips.grid(),
                None => return false,
            },
        };
        // The strips of an array never change.
        let is_made = self.array.as_ref().is_some_and(|known| known.as_ptr() == Arc::as_ptr(array))
            && self.is_uncompressed == is_uncompressed
            && self.copies.range() == range;
        if !is_made {
            self.copies.make(grid, range);
            (self.array, self.is_uncompressed) = (Some(Arc::downgrade(array)), is_uncompressed);
        }
        true
    }

    /// Ends the plan: its read is over.
    pub(in crate::array) fn forget(&mut self) {
        self.array = None;
    }

    /// Whether the copies are of uncompressed chunks, not of strips.
    pub(in crate::array) fn is_uncompressed(&self) -> bool {
        self.is_uncompressed
    }
}

impl Inner {
    /// Whether a reader's bytes are ranges of uncompressed objects, without the cache. A sequential reader of a remote store
    /// takes whole chunks, which can be transferred ahead.
    pub(in crate::array) fn reads_ranges(&self, is_sequential: bool) -> bool {
        self.source.is_uncompressed() && !(is_sequential && self.store.is_remote())
    }
}
