//! Names of entries: the object, its version and the range of bytes that a file has, and when that was known. Uses `sha2`.
//!
//! A name says all that a lookup needs, so that no file is opened to find one: the digest of the object, the times of the request that
//! it comes from (`clock.rs`), and for bytes the digest of the object's ETag, its size and the range. The file's header has the texts
//! themselves, and is compared with what was asked for. The mark of a missing object has no header: a mark counts for its object
//! because nobody finds two paths with one SHA-256.

use std::fmt::Write;
use std::ops::Range;

use sha2::{Digest, Sha256};

/// How many folders the entries are spread over, as hexadecimal digits of the object's digest.
const FOLDER_DIGITS: usize = 3;
/// How much of an ETag's digest is in a name. The header has the ETag.
const TAG_DIGITS: usize = 32;

/// An object of a store, or the listing of a folder: what entries are found by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    /// The store: its service, address and bucket.
    pub store: String,
    /// The path of the object in it. That of a listing ends with a slash, which no object's path does.
    pub path: String,
}

impl ObjectName {
    /// What the names of its entries begin with.
    pub fn digest(&self) -> String {
        sha256(&format!("{}\0{}", self.store, self.path))
    }

    /// The listing of the folder at this path.
    pub fn listing(&self) -> Self {
        ObjectName { store: self.store.clone(), path: format!("{}/", self.path) }
    }

    /// The listings that an object or a folder is named in, or would be: for each folder above, the nearest first, the name there.
    pub fn above(&self) -> impl Iterator<Item = Above<'_>> {
        let path = self.path.trim_end_matches('/');
        let mut rest = Some(path).filter(|path| !path.is_empty());
        let mut is_object = !self.path.ends_with('/');
        std::iter::from_fn(move || {
            let (folder, name) = rest?.rsplit_once('/').map_or(("", rest?), |(folder, name)| (folder, name));
            rest = Some(folder).filter(|folder| !folder.is_empty());
            let listing = ObjectName { store: self.store.clone(), path: format!("{folder}/") };
            Some(Above { listing, name, is_object: std::mem::take(&mut is_object) })
        })
    }
}

/// Where something is named.
pub struct Above<'a> {
    /// The listing of a folder above it.
    pub listing: ObjectName,
    /// The name in this folder.
    pub name: &'a str,
    /// Whether it is the name of the object itself, not of a folder above it.
    pub is_object: bool,
}

/// The SHA-256 of a text, in hexadecimal.
pub fn sha256(text: &str) -> String {
    let mut digest = String::with_capacity(64);
    for byte in Sha256::digest(text.as_bytes()) {
        let _ = write!(digest, "{byte:02x}");
    }
    digest
}

/// The folder of an object's entries.
pub fn folder_of(digest: &str) -> &str {
    digest.get(..FOLDER_DIGITS).unwrap_or(digest)
}

/// When something was known, as the cache's clock counts. What was asked for after something else was known is newer than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// When the request was sent.
    pub asked: u64,
    /// When its answer was here.
    pub known: u64,
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
    /// The names in a folder.
    Listing {
        /// The digest of the names.
        tag: String,
    },
    /// The names that were in a folder: something else became known of some of them.
    FormerListing {
        /// The digest of the names.
        tag: String,
    },
}

impl Part {
    /// The part with these bytes.
    pub fn bytes(e_tag: &str, size_bytes: u64, range: Range<u64>) -> Self {
        Part::Bytes { tag: digest_of_tag(e_tag), size_bytes, range }
    }

    /// The part with a listing, as it is written.
    pub fn listing(names: &str) -> Self {
        Part::Listing { tag: digest_of_tag(names) }
    }

    /// What both say of an object: parts of one object that say something else are not true at one time.
    pub fn says_the_same(&self, other: &Part) -> bool {
        match (self, other) {
            (
                Part::Bytes { tag, size_bytes, .. },
                Part::Bytes { tag: other_tag, size_bytes: other_size, .. },
            ) => tag == other_tag && size_bytes == other_size,
            _ => self == other,
        }
    }

    /// Whether it has all that another one would.
    pub fn covers(&self, other: &Part) -> bool {
        self.says_the_same(other)
            && match (self, other) {
                (Part::Bytes { range, .. }, Part::Bytes { range: part, .. }) => {
                    range.start <= part.start && part.end <= range.end
                }
                _ => true,
            }
    }
}

fn digest_of_tag(tag: &str) -> String {
    let mut digest = sha256(tag);
    digest.truncate(TAG_DIGITS);
    digest
}

/// What the name of a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryName {
    /// What the file has.
    pub part: Part,
    /// When that was known.
    pub times: Times,
}

impl EntryName {
    /// The name of the file of an object with this digest.
    pub fn text(&self, digest: &str) -> String {
        let Times { asked, known } = self.times;
        let what = match &self.part {
            Part::Bytes { tag, size_bytes, range } => {
                format!("{tag}-{size_bytes}-{}-{}", range.start, range.end)
            }
            Part::Missing => "missing".to_owned(),
            Part::Listing { tag } => format!("listing-{tag}"),
            Part::FormerListing { tag } => format!("former-{tag}"),
        };
        format!("{digest}-{asked:x}-{known:x}-{what}")
    }

    /// What the name of a file of this object says; `None` if the file is of another one.
    pub fn parse(name: &str, digest: &str) -> Option<Self> {
        let rest = name.strip_prefix(digest)?.strip_prefix('-')?;
        let (asked, rest) = rest.split_once('-')?;
        let (known, what) = rest.split_once('-')?;
        let time = |text: &str| u64::from_str_radix(text, 16).ok();
        let times = Times { asked: time(asked)?, known: time(known)? };
        let mut words = what.split('-');
        let part = match words.next()? {
            "missing" => Part::Missing,
            "listing" => Part::Listing { tag: words.next()?.to_owned() },
            "former" => Part::FormerListing { tag: words.next()?.to_owned() },
            tag => {
                let mut number = || words.next()?.parse::<u64>().ok();
                let (size_bytes, start, end) = (number()?, number()?, number()?);
                if start > end || end > size_bytes {
                    return None;
                }
                Part::Bytes { tag: tag.to_owned(), size_bytes, range: start..end }
            }
        };
        words.next().is_none().then_some(EntryName { part, times })
    }

    /// The name that a listing's file has later, when it is not the whole truth any more.
    pub fn former(&self) -> Option<Self> {
        let Part::Listing { tag } = &self.part else { return None };
        Some(EntryName { part: Part::FormerListing { tag: tag.clone() }, times: self.times })
    }

    /// When the file with this name was known, whatever object it is of.
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
        assert_eq!((folder_of(&digest).len(), digest.len()), (3, 64));
        let times = Times { asked: u64::MAX, known: 31 };
        for part in [Part::bytes("\"x\"", 10, 2..10), Part::Missing, Part::listing("{}")] {
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
        let tag = digest_of_tag("x");
        for rest in ["", "-", "-x-1-0", "-x-1-1-0", "-x-1-0-2", "-x-1-0-1-1", "-x-1--1-1"] {
            let name = format!("{digest}-1-2{}", rest.replace('x', &tag));
            assert_eq!(EntryName::parse(&name, &digest), None, "{rest}");
        }
        assert_ne!(name("a/zarr.jso").digest(), digest);
        assert_ne!(name("a").digest(), name("a").listing().digest());
    }

    #[test]
    fn everything_is_named_in_the_folders_above() {
        let above = |path: &str| {
            let object = name(path);
            let above = object.above().map(|above| {
                let Above { listing, name, is_object } = above;
                format!("{} {name} {is_object}", listing.path)
            });
            above.collect::<Vec<_>>()
        };
        assert_eq!(above("a/c/0"), ["a/c/ 0 true", "a/ c false", "/ a false"]);
        assert_eq!(above("a/c/"), ["a/ c false", "/ a false"]);
        assert_eq!(above("zarr.json"), ["/ zarr.json true"]);
        assert!(above("/").is_empty());
    }

    /// Two paths that FNV-1a cannot tell apart are two objects: it only multiplies and combines, so that paths with one digest can be
    /// computed. SHA-256 of a known text shows that this is it.
    #[test]
    fn digests_are_cryptographic() {
        assert_eq!(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
