//! What tells two versions of a stored object apart. Uses nothing.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// 128 bits of a version, the same in every process: for comparison with a version that was found earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionDigest(u128);

impl VersionDigest {
    /// FNV-1a of a text.
    pub(super) fn of(text: &str) -> Self {
        Self::of_bytes(text.as_bytes())
    }

    /// FNV-1a.
    pub(super) fn of_bytes(bytes: &[u8]) -> Self {
        const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        let fold = |hash: u128, byte: u8| (hash ^ u128::from(byte)).wrapping_mul(PRIME);
        VersionDigest(bytes.iter().copied().fold(BASIS, fold))
    }

    /// The digest with these halves.
    #[cfg(feature = "remote")]
    pub(super) fn of_halves(high: u64, low: u64) -> Self {
        VersionDigest(u128::from(high) << 64 | u128::from(low))
    }

    /// Half of it, for a name that has no room for all.
    pub(super) fn short(self) -> u64 {
        (self.0 >> 64) as u64 ^ self.0 as u64
    }

    /// The digest that was shown so.
    pub fn parse(text: &str) -> Option<Self> {
        u128::from_str_radix(text, 16).ok().map(VersionDigest)
    }
}

impl fmt::Display for VersionDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Identifies one version of an object. Stores make it; everything else compares it. Size and time of an object are not in
/// it: [`Info`](super::Info) has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectVersion(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// A file, compared exactly: the members of a [`FileVersion`], which take less room here.
    File { device: u64, inode: u64, size_bytes: u64, seconds: i64, nanoseconds: u32, changed: i64 },
    /// A tag, as the service spells it.
    Tag(Tag),
    /// 128 bits of a hash, in two halves: a tag may have any length, and a version is copied freely.
    Digest(u64, u64),
    /// A running number.
    Number(u64),
}

/// The state of a file that changes whenever another program replaces or rewrites it. The time of the last change of its content
/// can be set to any value, and its inode's cannot: so both are in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileVersion {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Time of last change of the content: seconds since the epoch.
    pub seconds: i64,
    /// And the nanoseconds after them.
    pub nanoseconds: u32,
    /// Time of last change of the inode, in nanoseconds since the epoch: new permissions and new names change it, too.
    pub changed: i64,
}

/// The longest tag that is kept as it is: no version becomes larger for it. S3's are at most 40 bytes long, Azure's 19.
const TAG_BYTES: usize = 46;

/// A short text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tag {
    length: u8,
    /// Zeros after the text.
    bytes: [u8; TAG_BYTES],
}

impl ObjectVersion {
    /// The version of a file.
    pub(super) fn of_file(file: FileVersion) -> Self {
        let FileVersion { device, inode, size_bytes, seconds, nanoseconds, changed } = file;
        ObjectVersion(Kind::File { device, inode, size_bytes, seconds, nanoseconds, changed })
    }

    /// The version with this number, in a store that counts its changes.
    pub fn of_number(number: u64) -> Self {
        ObjectVersion(Kind::Number(number))
    }

    /// The version of an object with this ETag.
    pub fn of_tag(tag: &str) -> Self {
        let mut bytes = [0; TAG_BYTES];
        match (bytes.get_mut(..tag.len()), u8::try_from(tag.len())) {
            (Some(kept), Ok(length)) => {
                kept.copy_from_slice(tag.as_bytes());
                ObjectVersion(Kind::Tag(Tag { length, bytes }))
            }
            _ => Self::of_parts(tag),
        }
    }

    /// The ETag, for a request that names it. `None` if it is too long to be kept, or the version is no ETag.
    pub fn tag(&self) -> Option<&str> {
        match &self.0 {
            Kind::Tag(Tag { length, bytes }) => std::str::from_utf8(bytes.get(..usize::from(*length))?).ok(),
            Kind::File { .. } | Kind::Digest(..) | Kind::Number(_) => None,
        }
    }

    /// What tells this version apart in another process, and after a restart of the machine, which may give devices other
    /// numbers. A version of several parts compares only within builds of one standard library.
    ///
    /// The time of change of a file's inode is not in it ([`ObjectVersion::changed`]).
    pub fn digest(&self) -> VersionDigest {
        match &self.0 {
            Kind::File { inode, size_bytes, seconds, nanoseconds, .. } => {
                VersionDigest::of(&format!("file {inode} {size_bytes} {seconds} {nanoseconds}"))
            }
            Kind::Tag(_) => VersionDigest::of(&format!("tag {self}")),
            Kind::Digest(..) => VersionDigest::of(&format!("digest {self}")),
            Kind::Number(_) => VersionDigest::of(&format!("number {self}")),
        }
    }

    /// When the inode of a file was changed, in nanoseconds since the epoch: other permissions or names of a file are not other
    /// content, while content that was rewritten may have the old size and time. `None` if the version is not a file's.
    pub fn changed(&self) -> Option<i64> {
        match &self.0 {
            Kind::File { changed, .. } => Some(*changed),
            Kind::Tag(_) | Kind::Digest(..) | Kind::Number(_) => None,
        }
    }

    /// The version of something that is made from several objects, or known by several values: all that tells its versions
    /// apart.
    pub fn of_parts(parts: impl Hash) -> Self {
        let half = |number: u8| {
            let mut hasher = DefaultHasher::new();
            number.hash(&mut hasher);
            parts.hash(&mut hasher);
            hasher.finish()
        };
        ObjectVersion(Kind::Digest(half(0), half(1)))
    }
}

impl fmt::Display for ObjectVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::File { device, inode, size_bytes, seconds, nanoseconds, .. } => {
                write!(f, "{device}:{inode}, {size_bytes} bytes, {seconds}.{nanoseconds:09}")
            }
            Kind::Tag(_) => f.write_str(self.tag().unwrap_or_default()),
            Kind::Digest(high, low) => write!(f, "{high:016x}{low:016x}"),
            Kind::Number(number) => write!(f, "{number}"),
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
        let version = ObjectVersion::of_file(file);
        assert!(others.iter().all(|other| ObjectVersion::of_file(*other) != version));
        assert_eq!(version.to_string(), "1:2, 3 bytes, -4.000000005");
        let tag = ObjectVersion::of_tag("\"5d41402abc4b2a76b9719d911017c592-38\"");
        assert_eq!(tag, ObjectVersion::of_tag("\"5d41402abc4b2a76b9719d911017c592-38\""));
        assert_ne!(tag, ObjectVersion::of_tag("\"5d41402abc4b2a76b9719d911017c592-39\""));
        assert_eq!(tag.tag(), Some("\"5d41402abc4b2a76b9719d911017c592-38\""));
        assert_eq!(ObjectVersion::of_tag("").tag(), Some(""));
        let long = "x".repeat(300);
        let (one, other) = (ObjectVersion::of_tag(&long), ObjectVersion::of_tag(&long[1..]));
        assert!(one == ObjectVersion::of_tag(&long) && one != other && one.tag().is_none());
        assert_eq!(one.to_string().len(), 32);
        assert_ne!(ObjectVersion::of_parts(("a", 1)), ObjectVersion::of_parts(("a", 2)));
        assert_ne!(ObjectVersion::of_number(1), ObjectVersion::of_number(2));
    }

    #[test]
    fn digests_are_the_same_in_every_process() {
        let file =
            FileVersion { device: 1, inode: 2, size_bytes: 3, seconds: -4, nanoseconds: 5, changed: 6 };
        let digest = ObjectVersion::of_file(file).digest();
        assert_eq!(digest, ObjectVersion::of_file(FileVersion { device: 9, ..file }).digest());
        assert_ne!(digest, ObjectVersion::of_file(FileVersion { inode: 9, ..file }).digest());
        let chmodded = ObjectVersion::of_file(FileVersion { changed: 9, ..file });
        assert_eq!((digest, chmodded.changed()), (chmodded.digest(), Some(9)));
        assert_eq!(VersionDigest::parse(&digest.to_string()), Some(digest));
        let tag = ObjectVersion::of_tag("\"5d41402abc4b2a76b9719d911017c592\"").digest();
        assert_eq!(tag.to_string(), "fed640b1eb4e3e4113a9481e9196aa8b");
        assert_ne!(ObjectVersion::of_number(1).digest(), ObjectVersion::of_tag("1").digest());
    }

    #[test]
    fn a_version_is_small() {
        assert!(size_of::<ObjectVersion>() <= 48);
    }
}
