//! What a store knows about an object or a folder without reading it. Uses `sys` for the defaults.

use std::time::SystemTime;

use crate::store::ObjectVersion;
use crate::sys;

/// Size, time and version of an object or a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Time of the last change, if the store knows it.
    pub modified: Option<SystemTime>,
    /// The version.
    pub version: ObjectVersion,
    /// Owner and permissions, if the store has them.
    pub posix: Option<Posix>,
}

/// Attributes that only files and folders of a file system have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posix {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits (0o7777), with `group_obj & mask` as group bits where a POSIX ACL is set.
    pub mode: u32,
    /// The file or folder, under any name; `None` if it is part of a file.
    pub file: Option<FileId>,
}

/// The permission bit of a folder that gives the folder's group to what is created in it.
pub const SET_GROUP: u32 = 0o2000;

/// The identity of a file or folder as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

impl Posix {
    /// Returns what is shown for an object without owner and mode: it belongs to the user of this program, and all may read it.
    pub fn default_for_object() -> Self {
        let (uid, gid) = sys::effective_ids();
        Posix { uid, gid, mode: 0o644, file: None }
    }

    /// Returns what is shown for a folder without owner and mode.
    pub fn default_for_folder() -> Self {
        Posix { mode: 0o755, ..Self::default_for_object() }
    }

    /// Returns the permission bits for a folder that holds what this document describes: permission to read the document
    /// becomes permission to search the folder.
    pub fn folder_mode(&self) -> u32 {
        self.mode | (self.mode & 0o444) >> 2
    }
}

impl Info {
    /// Returns what to show for a folder that holds what this document describes.
    pub fn as_folder(self) -> Self {
        self.with_mode(Posix::folder_mode)
    }

    /// Changes the permission bits, if there are any.
    #[must_use]
    pub fn with_mode(mut self, mode: impl FnOnce(&Posix) -> u32) -> Self {
        if let Some(posix) = &mut self.posix {
            posix.mode = mode(posix);
        }
        self
    }

    /// Returns the file or folder, under any name, if the store knows it.
    pub fn file(&self) -> Option<FileId> {
        self.posix?.file
    }
}
