//! The plan of a read, kept from the try that does not block to the blocking retry.
//!
//! Uses `geometry/copy_plan.rs`, and `served/` to know its array again.

use std::ops::Range;
use std::sync::{Arc, Weak};

use crate::array::geometry::copy_plan::CopyPlan;
use crate::array::geometry::grid::Grid;
use crate::array::served::ServedArray;

/// What one read touches. Its memory is used again by the next read.
#[derive(Default)]
pub struct ReadPlan {
    /// The array that the plan is for; `None` if there is no plan.
    array: Option<Weak<ServedArray>>,
    is_uncompressed: bool,
    pub(in crate::array) copies: CopyPlan,
}

impl ReadPlan {
    /// Plans a range of an array over `grid`: of its chunks if they are uncompressed, else of its strips. Keeps the
    /// plan that there is if it is the same.
    pub(in crate::array) fn prepare(
        &mut self,
        array: &Arc<ServedArray>,
        range: Range<u64>,
        grid: &Grid,
        is_uncompressed: bool,
    ) {
        // The strips of an array never change.
        let is_made = self.array.as_ref().is_some_and(|known| known.as_ptr() == Arc::as_ptr(array))
            && self.is_uncompressed == is_uncompressed
            && self.copies.range() == range;
        if !is_made {
            self.copies.make(grid, range);
            (self.array, self.is_uncompressed) = (Some(Arc::downgrade(array)), is_uncompressed);
        }
    }

    /// Ends the plan: its read is over.
    pub(in crate::array) fn forget(&mut self) {
        self.array = None;
    }

    /// Returns whether the copies are of uncompressed chunks, not of strips.
    pub(in crate::array) fn is_uncompressed(&self) -> bool {
        self.is_uncompressed
    }
}
