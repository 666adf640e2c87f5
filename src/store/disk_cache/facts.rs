//! What a reply says about an object, and what the cache knows without the service. Uses its neighbours.

use std::io;

use super::clock::{Fact, UNKNOWN};
use super::entry::ObjectMeta;
use super::folder_names::FolderNames;
use super::name::EntryContent;

/// A reply's statement about an object, or about the names in a folder.
#[derive(Clone, Debug)]
pub enum Observation {
    /// The object is this version.
    Version(ObjectMeta),
    /// The object exists, and its version is not certain.
    There,
    /// The object is missing.
    Missing,
    /// The folder has these names.
    Names(FolderNames),
    /// The object is not what it was.
    Changed,
}

impl Observation {
    /// Returns the content of an entry that says the same.
    pub(super) fn part(&self) -> Option<EntryContent> {
        match self {
            Observation::Version(meta) => Some(EntryContent::bytes(&meta.e_tag, meta.size_bytes, 0..0)),
            Observation::Missing => Some(EntryContent::Missing),
            Observation::Names(names) => Some(EntryContent::listing(&names.encode())),
            Observation::There | Observation::Changed => None,
        }
    }

    /// Whether the object exists, if this is known.
    pub(super) fn is_there(&self) -> Option<bool> {
        match self {
            Observation::Version(_) | Observation::There => Some(true),
            Observation::Missing => Some(false),
            Observation::Names(_) | Observation::Changed => None,
        }
    }
}

/// Returns the fact that an entry stands for.
pub fn fact(part: &EntryContent) -> Fact {
    let word = |tag: &str| u64::from_str_radix(tag.get(..16).unwrap_or_default(), 16).unwrap_or_default();
    let fact = match part {
        EntryContent::Bytes { tag, size_bytes, .. } => word(tag) ^ size_bytes,
        EntryContent::Missing => 1,
        EntryContent::Listing { tag } | EntryContent::FormerListing { tag } => word(tag),
    };
    if fact == UNKNOWN { 1 } else { fact }
}

/// What the cache knows about an object without the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The object exists, and its cached bytes are as new as everything that is known about it.
    There,
    /// The object is missing.
    Missing,
    /// Nothing is certain.
    Unknown,
}

/// Returns the error for bytes that are not cached because they may be outdated.
pub fn overtaken() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "something else became known about it meanwhile: try again")
}
