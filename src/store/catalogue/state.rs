//! What is known about the members of a catalogue: their rights, their state, and how they differ from their definitions. Uses `error`.

use crate::error::Error;

/// What programs may do in a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberRights {
    /// Write to its arrays.
    pub write: bool,
    /// Make groups and arrays, and make arrays longer.
    pub create: bool,
    /// Remove and rename groups and arrays.
    pub delete: bool,
}

/// What is known about a member.
#[derive(Clone, Debug)]
pub enum MemberState {
    /// It is being opened for the first time.
    Opening,
    /// It is open.
    Open,
    /// It cannot be opened. It is tried again.
    Failed(Error),
}

/// A difference between the members of a catalogue and their definitions.
pub struct CatalogueChange {
    /// The names of members that are new.
    pub added: Vec<String>,
    /// The names of members that have other options or another store.
    pub changed: Vec<String>,
    /// The names of members that have no definition any more.
    pub removed: Vec<String>,
}

impl CatalogueChange {
    /// Returns the names of the members that leave, or that others take the place of.
    pub fn leaving(&self) -> impl Iterator<Item = &String> {
        self.changed.iter().chain(&self.removed)
    }
}
