//! Names of entries: which bytes of which version of which object a file has. Uses `version` for digests.
//!
//! A name tells all that a lookup needs, so that no file is opened to find one: the digest of the object, and for bytes the digest of
//! the object's ETag, its size and the range. The file's header has the texts themselves, and is compared with what was asked for.

use std::ops::Range;

use crate::store::version::VersionDigest;

/// How many folders the entries are spread over, as hexadecimal digits of the object's digest.
const FOLDER_DIGITS: usize = 3;

/// An object of a store: what entries are found by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    /// The store: its service, address and bucket.
    pub store: String,
    /// The path of the object in it.
    pub path: String,
}

impl ObjectName {
    /// What the names of its entries begin with.
    pub fn digest(&self) -> String {
        VersionDigest::of(&format!("{}\0{}", self.store, self.path)).to_string()
    }
}

/// The folder of an object's entries.
pub fn folder_of(digest: &str) -> &str {
    digest.get(..FOLDER_DIGITS).unwrap_or(digest)
}

/// What an entry has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Bytes of an object.
    Bytes {
        /// The digest of its ETag.
        tag: String,
        /// The size of the whole object.
        size_bytes: u64,
        /// Which bytes.
        range: Range<u64>,
    },
    /// There is no object at this path.
    Missing,
    /// The names below this path.
    Listing,
}

impl Part {
    /// The part with these bytes.
    pub fn bytes(e_tag: &str, size_bytes: u64, range: Range<u64>) -> Self {
        Part::Bytes { tag: VersionDigest::of(e_tag).to_string(), size_bytes, range }
    }

    /// The name of its file.
    pub fn name(&self, digest: &str) -> String {
        match self {
            Part::Bytes { tag, size_bytes, range } => {
                format!("{digest}-{tag}-{size_bytes}-{}-{}", range.start, range.end)
            }
            Part::Missing => format!("{digest}-missing"),
            Part::Listing => format!("{digest}-listing"),
        }
    }

    /// The part that a file of this object has; `None` if the file is of another one.
    pub fn parse(name: &str, digest: &str) -> Option<Self> {
        let rest = name.strip_prefix(digest)?.strip_prefix('-')?;
        match rest {
            "missing" => return Some(Part::Missing),
            "listing" => return Some(Part::Listing),
            _ => {}
        }
        let mut words = rest.split('-');
        let tag = words.next()?.to_owned();
        let mut number = || words.next()?.parse::<u64>().ok();
        let (size_bytes, start, end) = (number()?, number()?, number()?);
        let is_sound = words.next().is_none() && start <= end && end <= size_bytes;
        is_sound.then_some(Part::Bytes { tag, size_bytes, range: start..end })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let object = ObjectName { store: "s".to_owned(), path: "a/zarr.json".to_owned() };
        let digest = object.digest();
        assert_eq!(folder_of(&digest).len(), 3);
        for part in [Part::bytes("\"x\"", 10, 2..10), Part::Missing, Part::Listing] {
            let name = part.name(&digest);
            assert!(name.len() < 255);
            assert_eq!(Part::parse(&name, &digest), Some(part));
            assert_eq!(Part::parse(&name, &digest.replace('a', "b").replace('1', "2")), None);
        }
        let tag = VersionDigest::of("x").to_string();
        for rest in ["", "-", "-x-1-0", "-x-1-1-0", "-x-1-0-2", "-x-1-0-1-1", "-x-1--1-1"] {
            assert_eq!(Part::parse(&format!("{digest}{}", rest.replace('x', &tag)), &digest), None, "{rest}");
        }
        let other = ObjectName { path: "a/zarr.jso".to_owned(), ..object };
        assert_ne!(other.digest(), digest);
    }
}
