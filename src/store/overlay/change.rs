//! One key at which an overlay differs from its base. Uses `origin.rs` and the traits of `store`.

use super::origin::Origin;
use crate::error::Result;
use crate::store::{Form, ObjectVersion, Store, VersionDigest};

/// One key at which the overlay differs from its base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: String,
    /// What was changed.
    pub kind: ChangeKind,
    /// The form of the array that a chunk belongs to; `None` for documents, and where it is not known.
    pub form: Option<Form>,
    /// The object that the base had; `None` if it had none.
    pub(super) from: Option<Origin>,
    /// The mark of the object that an earlier commit has put into the base, or was about to.
    pub(super) sent: Option<VersionDigest>,
}

/// What an overlay has at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// An object.
    Written {
        /// Its size.
        size_bytes: u64,
    },
    /// No object, where the base had one.
    Deleted,
}

impl Change {
    /// Returns whether the base had no object at the key.
    pub fn is_new(&self) -> bool {
        self.from.is_none()
    }

    /// Returns whether two changes were made from the same object of the base.
    #[cfg(test)]
    pub(crate) fn has_same_origin(&self, other: &Change) -> bool {
        self.from == other.from
    }

    /// Returns whether the change was made from what a store has at the key now. The store is the base, or a transaction over it.
    pub fn is_from(&self, store: &dyn Store, now: Option<ObjectVersion>) -> Result<bool> {
        match (self.from, now) {
            (None, None) => Ok(true),
            (Some(from), Some(now)) => from.is(store, &self.key, now),
            _ => Ok(false),
        }
    }
}
