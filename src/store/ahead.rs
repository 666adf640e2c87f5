//! Bytes that a remote store transfers ahead of their reader. Uses nothing.

use std::ops::Range;
use std::sync::Arc;

/// The bytes of an object that its reader needs first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// The whole object. More bytes than expected are transferred when they are read.
    Whole {
        /// An upper estimate of its size, for the memory that is reserved.
        at_most: u64,
    },
    /// A range; the object may be shorter.
    Range(Range<u64>),
    /// This many bytes at the end of the object, or all of it if it is shorter.
    Last(u64),
}

/// A reader's claim to bytes that are being transferred or in memory. When the last claim is dropped, an unfinished transfer is
/// cancelled, and bytes in memory may be evicted.
pub trait Claim: Send + Sync {
    /// Whether the bytes are in memory or could not be transferred: opening the object for them does not wait.
    fn is_here(&self) -> bool;
    /// Whether the bytes could not be transferred, or were forgotten: another claim may get them.
    fn is_lost(&self) -> bool;
    /// Returns a number that is the same for claims to the same bytes.
    fn id(&self) -> u64;
    /// Returns the memory that is reserved for them.
    fn size_bytes(&self) -> u64;
}

/// A claim that readers of neighbouring bytes share. `None` if the store transfers nothing ahead, or has no memory left for it.
pub type MaybeClaim = Option<Arc<dyn Claim>>;
