//! Stores: where the documents, chunks and shards of a hierarchy are kept.
//!
//! A store maps keys (`"a/b/zarr.json"`, `"a/b/c/0/1"`: relative, `/`-separated, no empty segment, no
//! `.` or `..`; the root of the store is `""`) to objects. Spec: v3 core, "Stores". One file per kind of
//! store; `contract.rs` holds the tests that every one of them passes. Uses `error` and `sys` only.
//!
//! Invariants: `None` means that the object is missing, and nothing else does (every other failure
//! is an error); every read is bounded by the caller; all ranges read from one [`Object`] come from
//! the same stored object, even when the key is replaced meanwhile.

use std::time::SystemTime;

use crate::error::Result;

/// What tells one version of an object from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Validator {
    /// Device number, or 0.
    pub device: u64,
    /// Inode number, or a running number.
    pub inode: u64,
    /// Time of last change in nanoseconds since the epoch.
    pub mtime_ns: i128,
    /// Size in bytes.
    pub size_bytes: u64,
}

/// What is known of an object or a folder without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Tells versions apart; holds the size.
    pub validator: Validator,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits (0o7777), with `group_obj & mask` as group bits where a POSIX ACL is set.
    pub mode: u32,
    /// Time of last change.
    pub mtime: SystemTime,
}

/// One name in a folder of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The last segment of the key. Names that are not UTF-8 are left out of listings and logged.
    pub name: String,
    /// Whether it is a folder (a prefix with something below it).
    pub is_folder: bool,
}

/// Room of the store's filesystem, as statfs(2) counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Unit of the block counts, in bytes.
    pub block_bytes: u32,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks for unprivileged users.
    pub blocks_available: u64,
    /// All inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
}

/// One stored object, open: all reads see the same version.
pub trait Object: Send + Sync {
    /// Size and version at the time of opening.
    fn validator(&self) -> Validator;
    /// Size in bytes.
    fn size_bytes(&self) -> u64 {
        self.validator().size_bytes
    }
    /// Fills `out` from `offset`. Fewer bytes there than asked for is an error (`UnexpectedEof`).
    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<()>;
}

/// A store of objects by key.
pub trait Store: Send + Sync {
    /// Opens one object; `None` when there is none at this key (a folder is not an object).
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>>;

    /// The whole object; more than `limit_bytes` is an error, before anything is allocated.
    fn get(&self, key: &str, limit_bytes: u64) -> Result<Option<Vec<u8>>>;

    /// Size, owner, mode and time of an object or a folder (`""` is the root).
    fn head(&self, key: &str) -> Result<Option<Info>>;

    /// The names directly below a folder, sorted; empty when the folder is missing.
    fn list(&self, folder: &str) -> Result<Vec<Entry>>;

    /// Room left where the store is.
    fn room(&self) -> Result<Room>;

    /// What the user would call the store: its path or URL.
    fn describe(&self) -> String;
}
