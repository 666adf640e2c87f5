//! What a reply says of an object, and what of that may be known without the service. Uses its neighbours.

use std::io;

use super::clock::{Fact, UNKNOWN};
use super::entry::ObjectMeta;
use super::folder_names::Names;
use super::name::Part;

/// What a reply says of an object, or of the names in a folder.
#[derive(Clone, Debug)]
pub enum Seen {
    /// It is this version.
    Version(ObjectMeta),
    /// It is there, and nothing tells its version from another one.
    There,
    /// The object is missing.
    Missing,
    /// The folder has these names.
    Names(Names),
    /// It is not what it was.
    Changed,
}

impl Seen {
    /// An entry of the object says the same as this.
    pub(super) fn part(&self) -> Option<Part> {
        match self {
            Seen::Version(meta) => Some(Part::bytes(&meta.e_tag, meta.size_bytes, 0..0)),
            Seen::Missing => Some(Part::Missing),
            Seen::Names(names) => Some(Part::listing(&names.encode())),
            Seen::There | Seen::Changed => None,
        }
    }

    /// Whether the object is there.
    pub(super) fn is_there(&self) -> Option<bool> {
        match self {
            Seen::Version(_) | Seen::There => Some(true),
            Seen::Missing => Some(false),
            Seen::Names(_) | Seen::Changed => None,
        }
    }
}

/// The fact that an entry stands for.
pub fn fact(part: &Part) -> Fact {
    let word = |tag: &str| u64::from_str_radix(tag.get(..16).unwrap_or_default(), 16).unwrap_or_default();
    let fact = match part {
        Part::Bytes { tag, size_bytes, .. } => word(tag) ^ size_bytes,
        Part::Missing => 1,
        Part::Listing { tag } | Part::FormerListing { tag } => word(tag),
    };
    if fact == UNKNOWN { 1 } else { fact }
}

/// What the cache knows of an object without the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is there, and its bytes here are as new as anything that is known of it.
    There,
    /// The object is missing.
    Missing,
    /// Nothing for sure.
    Unknown,
}

/// Why nothing is kept of what may be outdated.
pub fn overtaken() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "something else became known of it meanwhile: try it again")
}
