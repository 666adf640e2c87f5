//! Bytes that a remote store transfers ahead of their reader. Uses nothing.

use std::ops::Range;
use std::sync::Arc;

/// The bytes of an object that its reader asks for first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// All of them. `at_most` bytes are expected; an object may have more, which are transferred when they are read.
    Whole {
        /// An upper estimate of its size, for the memory that is reserved.
        at_most: u64,
    },
    /// A range; the object may be shorter.
    Range(Range<u64>),
    /// So many at its end, or all of them if it is shorter.
    Last(u64),
}

/// A reader's claim to bytes that are on their way or in memory. When the last claim is dropped, a transfer that has not
/// ended is cancelled, and bytes that are in memory may be evicted.
pub trait Claim: Send + Sync {
    /// Whether the bytes are in memory, or cannot be had: opening the object for them does not wait.
    fn is_here(&self) -> bool;
    /// Whether the bytes could not be had, or were forgotten: another claim may get them.
    fn is_lost(&self) -> bool;
    /// A number of the bytes that are claimed: the same for claims that share them.
    fn id(&self) -> u64;
    /// Memory that is reserved for them.
    fn size_bytes(&self) -> u64;
}

/// A claim, shared by the readers of neighbouring bytes. `None` if the store transfers nothing ahead, or has no room.
pub type MaybeClaim = Option<Arc<dyn Claim>>;
