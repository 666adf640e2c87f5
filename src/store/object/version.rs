//! Versions of stored objects, and their digests. Uses nothing.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A digest (128 bits) of a version, the same in every process, for comparison with a version that was found earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionDigest(u128);

impl VersionDigest {
    /// Returns the FNV-1a hash of a text or of bytes.
    pub(in crate::store) fn fnv1a(content: impl AsRef<[u8]>) -> Self {
        const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        let fold = |hash: u128, byte: u8| (hash ^ u128::from(byte)).wrapping_mul(PRIME);
        VersionDigest(content.as_ref().iter().copied().fold(BASIS, fold))
    }

    /// Joins two halves to a digest.
    #[cfg(feature = "remote")]
    pub(in crate::store) fn joined(high: u64, low: u64) -> Self {
        VersionDigest(u128::from(high) << 64 | u128::from(low))
    }

    /// Returns half of it, for a name that has no room for all.
    pub(in crate::store) fn short(self) -> u64 {
        (self.0 >> 64) as u64 ^ self.0 as u64
    }

    /// Parses a digest that was displayed.
    pub fn parse(text: &str) -> Option<Self> {
        u128::from_str_radix(text, 16).ok().map(VersionDigest)
    }
}

impl fmt::Display for VersionDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The identity of one version of an object. Stores make it, and everything else only compares it. Size and time of an object
/// are not in it: [`Info`](super::Info) has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectVersion(VersionRepr);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum VersionRepr {
    /// The members of a [`FileVersion`], which take less room here.
    File { device: u64, inode: u64, size_bytes: u64, seconds: i64, nanoseconds: u32, changed: i64 },
    /// An ETag, as the service spells it.
    Tag(ShortTag),
    /// A hash of 128 bits, in two halves: an ETag may have any length, and a version is copied often.
    Digest(u64, u64),
    /// A running number.
    Number(u64),
}

/// The state of a file that changes whenever another program replaces or rewrites it. It contains the time of the last change
/// of the content and that of the inode, because the first can be set to any value and the second cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::store) struct FileVersion {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Time of the last change of the content: seconds since the epoch.
    pub seconds: i64,
    /// Nanoseconds after these seconds.
    pub nanoseconds: u32,
    /// Time of the last change of the inode, in nanoseconds since the epoch. New permissions and new names change it, too.
    pub changed: i64,
}

/// The longest ETag that is kept as it is: it makes no version larger. S3's are at most 40 bytes long, Azure's 19.
const TAG_BYTES: usize = 46;

/// A short ETag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ShortTag {
    length: u8,
    /// Zeros after the text.
    bytes: [u8; TAG_BYTES],
}

impl ObjectVersion {
    /// Returns the version of a file.
    pub(in crate::store) fn for_file(file: FileVersion) -> Self {
        let FileVersion { device, inode, size_bytes, seconds, nanoseconds, changed } = file;
        ObjectVersion(VersionRepr::File { device, inode, size_bytes, seconds, nanoseconds, changed })
    }

    /// Returns the version with this number, in a store that counts its changes.
    pub fn numbered(number: u64) -> Self {
        ObjectVersion(VersionRepr::Number(number))
    }

    /// Returns the version of an object with this ETag.
    pub fn for_etag(tag: &str) -> Self {
        let mut bytes = [0; TAG_BYTES];
        match (bytes.get_mut(..tag.len()), u8::try_from(tag.len())) {
            (Some(kept), Ok(length)) => {
                kept.copy_from_slice(tag.as_bytes());
                ObjectVersion(VersionRepr::Tag(ShortTag { length, bytes }))
            }
            _ => Self::hashed(tag),
        }
    }

    /// Returns the ETag, for a request that names it; `None` if it is too long to be kept, or if the version is not an ETag.
    pub fn etag(&self) -> Option<&str> {
        match &self.0 {
            VersionRepr::Tag(ShortTag { length, bytes }) => {
                std::str::from_utf8(bytes.get(..usize::from(*length))?).ok()
            }
            VersionRepr::File { .. } | VersionRepr::Digest(..) | VersionRepr::Number(_) => None,
        }
    }

    /// Returns a digest that is the same in another process, and after a restart of the machine, which may give devices other
    /// numbers. The digest of a hashed version is the same only in builds with the same standard library.
    ///
    /// The time of change of a file's inode is not in it ([`ObjectVersion::changed`]).
    pub fn digest(&self) -> VersionDigest {
        match &self.0 {
            VersionRepr::File { inode, size_bytes, seconds, nanoseconds, .. } => {
                VersionDigest::fnv1a(format!("file {inode} {size_bytes} {seconds} {nanoseconds}"))
            }
            VersionRepr::Tag(_) => VersionDigest::fnv1a(format!("tag {self}")),
            VersionRepr::Digest(..) => VersionDigest::fnv1a(format!("digest {self}")),
            VersionRepr::Number(_) => VersionDigest::fnv1a(format!("number {self}")),
        }
    }

    /// Returns when the inode of a file was changed, in nanoseconds since the epoch; `None` if the version is not a file's.
    /// Other permissions or names of a file are not other content, while rewritten content may have the old size and time.
    pub fn changed(&self) -> Option<i64> {
        match &self.0 {
            VersionRepr::File { changed, .. } => Some(*changed),
            VersionRepr::Tag(_) | VersionRepr::Digest(..) | VersionRepr::Number(_) => None,
        }
    }

    /// Returns the version of something that consists of several objects, or is known by several values: everything that
    /// distinguishes its versions.
    pub fn hashed(parts: impl Hash) -> Self {
        let half = |number: u8| {
            let mut hasher = DefaultHasher::new();
            number.hash(&mut hasher);
            parts.hash(&mut hasher);
            hasher.finish()
        };
        ObjectVersion(VersionRepr::Digest(half(0), half(1)))
    }
}

impl fmt::Display for ObjectVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            VersionRepr::File { device, inode, size_bytes, seconds, nanoseconds, .. } => {
                write!(f, "{device}:{inode}, {size_bytes} bytes, {seconds}.{nanoseconds:09}")
            }
            VersionRepr::Tag(_) => f.write_str(self.etag().unwrap_or_default()),
            VersionRepr::Digest(high, low) => write!(f, "{high:016x}{low:016x}"),
            VersionRepr::Number(number) => write!(f, "{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_differ_where_a_part_does() {
        let file =
            FileVersion { device: 1, inode: 2, size_bytes: 3, seconds: -4, nanoseconds: 5, changed: 6 };
        let others = [
            FileVersion { device: 9, ..file },
            FileVersion { inode: 9, ..file },
            FileVersion { size_bytes: 9, ..file },
            FileVersion { seconds: 9, ..file },
            FileVersion { nanoseconds: 9, ..file },
            FileVersion { changed: 9, ..file },
        ];
        let version = ObjectVersion::for_file(file);
        assert!(others.iter().all(|other| ObjectVersion::for_file(*other) != version));
        assert_eq!(version.to_string(), "1:2, 3 bytes, -4.000000005");
        let tag = ObjectVersion::for_etag("\"5d41402abc4b2a76b9719d911017c592-38\"");
        assert_eq!(tag, ObjectVersion::for_etag("\"5d41402abc4b2a76b9719d911017c592-38\""));
        assert_ne!(tag, ObjectVersion::for_etag("\"5d41402abc4b2a76b9719d911017c592-39\""));
        assert_eq!(tag.etag(), Some("\"5d41402abc4b2a76b9719d911017c592-38\""));
        assert_eq!(ObjectVersion::for_etag("").etag(), Some(""));
        let long = "x".repeat(300);
        let (one, other) = (ObjectVersion::for_etag(&long), ObjectVersion::for_etag(&long[1..]));
        assert!(one == ObjectVersion::for_etag(&long) && one != other && one.etag().is_none());
        assert_eq!(one.to_string().len(), 32);
        assert_ne!(ObjectVersion::hashed(("a", 1)), ObjectVersion::hashed(("a", 2)));
        assert_ne!(ObjectVersion::numbered(1), ObjectVersion::numbered(2));
    }

    #[test]
    fn digests_are_the_same_in_every_process() {
        let file =
            FileVersion { device: 1, inode: 2, size_bytes: 3, seconds: -4, nanoseconds: 5, changed: 6 };
        let digest = ObjectVersion::for_file(file).digest();
        assert_eq!(digest, ObjectVersion::for_file(FileVersion { device: 9, ..file }).digest());
        assert_ne!(digest, ObjectVersion::for_file(FileVersion { inode: 9, ..file }).digest());
        let chmodded = ObjectVersion::for_file(FileVersion { changed: 9, ..file });
        assert_eq!((digest, chmodded.changed()), (chmodded.digest(), Some(9)));
        assert_eq!(VersionDigest::parse(&digest.to_string()), Some(digest));
        let tag = ObjectVersion::for_etag("\"5d41402abc4b2a76b9719d911017c592\"").digest();
        assert_eq!(tag.to_string(), "fed640b1eb4e3e4113a9481e9196aa8b");
        assert_ne!(ObjectVersion::numbered(1).digest(), ObjectVersion::for_etag("1").digest());
    }

    #[test]
    fn a_version_is_small() {
        assert!(size_of::<ObjectVersion>() <= 48);
    }
}
