//! How a range is read.
//!
//! Uses `cancellation`.

use crate::cancellation::Cancellation;

/// Whether an operation may block on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocking {
    /// Memory only: returns at once where the store is needed.
    No,
    /// May wait for the store, for any time.
    Yes,
}

/// How a range is read.
#[derive(Clone, Copy)]
pub struct ReadAccess<'a> {
    /// Whether the read may wait for the store.
    pub blocking: Blocking,
    /// Whether the reader goes through the array sequentially.
    pub is_sequential: bool,
    /// Ends the read early.
    pub cancellation: &'a Cancellation,
}
