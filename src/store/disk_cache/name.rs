//! Names of entries: the object, its version, the range of bytes in the file, and when these were known. Uses `sha2`.
//!
//! A name has everything that a lookup needs, so that no file is opened to find an entry: the digest of the object, the times
//! of the request that it comes from (`clock.rs`), and for bytes the digest of the object's ETag, its size and the range. The
//! file's header has the texts themselves, and is compared with the request. The mark of a missing object has no header: the
//! digest is enough because no two paths with the same SHA-256 can be found.

use std::fmt::Write;
use std::ops::Range;

use sha2::{Digest, Sha256};

/// The number of hexadecimal digits of the object's digest that name its folder.
const FOLDER_DIGITS: usize = 3;
/// The number of digits of an ETag's digest in a name. The header has the ETag itself.
const TAG_DIGITS: usize = 32;

/// An object of a store, or the listing of a folder, by which entries are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    /// The store: its service, address and bucket.
    pub store: String,
    /// The path of the object in the store. The path of a listing ends with a slash, unlike that of an object.
    pub path: String,
}

impl ObjectName {
    /// Returns the digest with which the names of its entries begin.
    pub fn digest(&self) -> String {
        sha256(&format!("{}\0{}", self.store, self.path))
    }

    /// Returns the listing of the folder at this path.
    pub fn listing(&self) -> Self {
        ObjectName { store: self.store.clone(), path: format!("{}/", self.path) }
    }

    /// Returns the listings that should name an object or a folder: one for each folder above, nearest first, with the name in
    /// it.
    pub fn above(&self) -> impl Iterator<Item = ParentListing<'_>> {
        let path = self.path.trim_end_matches('/');
        let mut rest = Some(path).filter(|path| !path.is_empty());
        let mut is_object = !self.path.ends_with('/');
        std::iter::from_fn(move || {
            let (folder, name) = rest?.rsplit_once('/').map_or(("", rest?), |(folder, name)| (folder, name));
            rest = Some(folder).filter(|folder| !folder.is_empty());
            let listing = ObjectName { store: self.store.clone(), path: format!("{folder}/") };
            Some(ParentListing { listing, name, is_object: std::mem::take(&mut is_object) })
        })
    }
}

/// A listing that should name an object or a folder.
pub struct ParentListing<'a> {
    /// The listing of a folder above the object.
    pub listing: ObjectName,
    /// The name in this folder.
    pub name: &'a str,
    /// Whether this is the name of the object itself and not of a folder above it.
    pub is_object: bool,
}

/// Returns the SHA-256 of a text, in hexadecimal.
pub fn sha256(text: &str) -> String {
    let mut digest = String::with_capacity(64);
    for byte in Sha256::digest(text.as_bytes()) {
        let _ = write!(digest, "{byte:02x}");
    }
    digest
}

/// Returns the folder of an object's entries.
pub fn entry_folder(digest: &str) -> &str {
    digest.get(..FOLDER_DIGITS).unwrap_or(digest)
}

/// The times at which something was requested and known, by the cache's clock. A fact that was requested after another one was
/// known is newer than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryTimes {
    /// When the request was sent.
    pub asked: u64,
    /// When the reply arrived.
    pub known: u64,
}

/// The content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryContent {
    /// Bytes of an object.
    Bytes {
        /// The digest of its ETag.
        tag: String,
        /// The size of the whole object.
        size_bytes: u64,
        /// The range of the bytes.
        range: Range<u64>,
    },
    /// The fact that there is no object at this path.
    Missing,
    /// The names in a folder.
    Listing {
        /// The digest of the names.
        tag: String,
    },
    /// The former names in a folder: something else became known about some of them.
    FormerListing {
        /// The digest of the names.
        tag: String,
    },
}

impl EntryContent {
    /// Returns the content of an entry that has this range of an object.
    pub fn bytes(e_tag: &str, size_bytes: u64, range: Range<u64>) -> Self {
        EntryContent::Bytes { tag: tag_digest(e_tag), size_bytes, range }
    }

    /// Returns the content of an entry that has this encoded listing.
    pub fn listing(names: &str) -> Self {
        EntryContent::Listing { tag: tag_digest(names) }
    }

    /// Returns whether both say the same about an object. If they do not, one of them is outdated.
    pub fn says_the_same(&self, other: &EntryContent) -> bool {
        match (self, other) {
            (
                EntryContent::Bytes { tag, size_bytes, .. },
                EntryContent::Bytes { tag: other_tag, size_bytes: other_size, .. },
            ) => tag == other_tag && size_bytes == other_size,
            _ => self == other,
        }
    }

    /// Returns whether it contains everything that another one has.
    pub fn covers(&self, other: &EntryContent) -> bool {
        self.says_the_same(other)
            && match (self, other) {
                (EntryContent::Bytes { range, .. }, EntryContent::Bytes { range: part, .. }) => {
                    range.start <= part.start && part.end <= range.end
                }
                _ => true,
            }
    }
}

fn tag_digest(tag: &str) -> String {
    let mut digest = sha256(tag);
    digest.truncate(TAG_DIGITS);
    digest
}

/// The parsed name of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryName {
    /// The content of the file.
    pub part: EntryContent,
    /// The times at which it was known.
    pub times: EntryTimes,
}

impl EntryName {
    /// Returns the name of the file, for an object with this digest.
    pub fn text(&self, digest: &str) -> String {
        let EntryTimes { asked, known } = self.times;
        let what = match &self.part {
            EntryContent::Bytes { tag, size_bytes, range } => {
                format!("{tag}-{size_bytes}-{}-{}", range.start, range.end)
            }
            EntryContent::Missing => "missing".to_owned(),
            EntryContent::Listing { tag } => format!("listing-{tag}"),
            EntryContent::FormerListing { tag } => format!("former-{tag}"),
        };
        format!("{digest}-{asked:x}-{known:x}-{what}")
    }

    /// Parses the name of a file of this object; `None` if it belongs to another one.
    pub fn parse(name: &str, digest: &str) -> Option<Self> {
        let rest = name.strip_prefix(digest)?.strip_prefix('-')?;
        let (asked, rest) = rest.split_once('-')?;
        let (known, what) = rest.split_once('-')?;
        let time = |text: &str| u64::from_str_radix(text, 16).ok();
        let times = EntryTimes { asked: time(asked)?, known: time(known)? };
        let mut words = what.split('-');
        let part = match words.next()? {
            "missing" => EntryContent::Missing,
            "listing" => EntryContent::Listing { tag: words.next()?.to_owned() },
            "former" => EntryContent::FormerListing { tag: words.next()?.to_owned() },
            tag => {
                let mut number = || words.next()?.parse::<u64>().ok();
                let (size_bytes, start, end) = (number()?, number()?, number()?);
                if start > end || end > size_bytes {
                    return None;
                }
                EntryContent::Bytes { tag: tag.to_owned(), size_bytes, range: start..end }
            }
        };
        words.next().is_none().then_some(EntryName { part, times })
    }

    /// Returns the name of a listing's file after it became a former one.
    pub fn former(&self) -> Option<Self> {
        let EntryContent::Listing { tag } = &self.part else { return None };
        Some(EntryName { part: EntryContent::FormerListing { tag: tag.clone() }, times: self.times })
    }

    /// Returns when the file with this name was known, for any object.
    pub fn known(name: &str) -> Option<u64> {
        u64::from_str_radix(name.split('-').nth(2)?, 16).ok()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn name(path: &str) -> ObjectName {
        ObjectName { store: "s".to_owned(), path: path.to_owned() }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        let object = name("a/zarr.json");
        let digest = object.digest();
        assert_eq!((entry_folder(&digest).len(), digest.len()), (3, 64));
        let times = EntryTimes { asked: u64::MAX, known: 31 };
        for part in
            [EntryContent::bytes("\"x\"", 10, 2..10), EntryContent::Missing, EntryContent::listing("{}")]
        {
            let entry = EntryName { part, times };
            let name = entry.text(&digest);
            assert!(name.len() < 255);
            assert_eq!(EntryName::known(&name), Some(31));
            assert_eq!(EntryName::parse(&name, &digest), Some(entry));
            let later = EntryName::parse(&name, &digest).unwrap().former();
            assert_eq!(later.is_some(), name.contains("-listing-"));
            assert!(later.is_none_or(|later| EntryName::parse(&later.text(&digest), &digest) == Some(later)));
            assert_eq!(EntryName::parse(&name, &digest.replace('a', "b").replace('1', "2")), None);
        }
        let tag = tag_digest("x");
        for rest in ["", "-", "-x-1-0", "-x-1-1-0", "-x-1-0-2", "-x-1-0-1-1", "-x-1--1-1"] {
            let name = format!("{digest}-1-2{}", rest.replace('x', &tag));
            assert_eq!(EntryName::parse(&name, &digest), None, "{rest}");
        }
        assert_ne!(name("a/zarr.jso").digest(), digest);
        assert_ne!(name("a").digest(), name("a").listing().digest());
    }

    #[test]
    fn objects_are_named_in_the_folders_above() {
        let above = |path: &str| {
            let object = name(path);
            let above = object.above().map(|above| {
                let ParentListing { listing, name, is_object } = above;
                format!("{} {name} {is_object}", listing.path)
            });
            above.collect::<Vec<_>>()
        };
        assert_eq!(above("a/c/0"), ["a/c/ 0 true", "a/ c false", "/ a false"]);
        assert_eq!(above("a/c/"), ["a/ c false", "/ a false"]);
        assert_eq!(above("zarr.json"), ["/ zarr.json true"]);
        assert!(above("/").is_empty());
    }

    /// Paths with the same FNV-1a hash can be computed, so digests must be cryptographic. A known text shows that this is
    /// SHA-256.
    #[test]
    fn digests_are_cryptographic() {
        assert_eq!(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
