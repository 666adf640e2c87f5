//! Attributes of files, and changes of them, as in stat(2) and setattr.

use std::time::{Duration, SystemTime};

/// Attributes of a file, as in stat(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number.
    pub inode: u64,
    /// A folder; otherwise a regular file.
    pub is_folder: bool,
    /// Size of the file.
    pub size_bytes: u64,
    /// Permission bits, 0o777 at most.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last change, used for all times.
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
    /// chmod
    pub mode: Option<u32>,
    /// chown
    pub uid: Option<u32>,
    /// chgrp
    pub gid: Option<u32>,
    /// truncate
    pub size_bytes: Option<u64>,
    /// The user that asks.
    pub user: u32,
    /// By ftruncate; otherwise by truncate or open.
    pub by_handle: bool,
    /// The id of the calling process, 0 if unknown.
    pub process: u32,
}
