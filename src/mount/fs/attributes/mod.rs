//! Attributes of files, and changes of them, as in stat(2) and setattr.

pub mod permissions;

use std::time::{Duration, SystemTime};

/// Attributes of a file, as in stat(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The inode number.
    pub inode: u64,
    /// Whether this is a folder; otherwise it is a regular file.
    pub is_folder: bool,
    /// The size of the file.
    pub size_bytes: u64,
    /// The permission bits, and the sticky bit of a folder.
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The time of the last change, which stat(2) shows for all times.
    pub mtime: SystemTime,
}

/// Attributes, and how long the kernel may cache them and the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The attributes.
    pub attributes: Attributes,
    /// How long they may be cached.
    pub valid_for: Duration,
    /// How long the name may stand for this inode in the kernel.
    pub entry_valid_for: Duration,
}

/// The changes of a setattr request.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    /// The new mode.
    pub mode: Option<u32>,
    /// The new owner.
    pub uid: Option<u32>,
    /// The new group.
    pub gid: Option<u32>,
    /// The new size.
    pub size_bytes: Option<u64>,
    /// The user that makes the request.
    pub user: u32,
    /// Whether the request comes from ftruncate(2); otherwise from truncate(2) or open(2).
    pub by_handle: bool,
    /// The process that makes the request, 0 if unknown.
    pub process: u32,
}
