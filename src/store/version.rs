//! What tells two versions of a stored object apart. Uses nothing.

/// Identifies one version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectVersion {
    /// Device number, or 0.
    pub device: u64,
    /// Inode number, or a running number.
    pub inode: u64,
    /// Time of last change in nanoseconds since the epoch.
    pub mtime_ns: i128,
    /// Size in bytes.
    pub size_bytes: u64,
}
