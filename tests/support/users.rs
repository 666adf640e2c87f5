//! A folder with the stores of two users, for `tests/mount/users.rs`. Needs root.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::PathBuf;

use serde_json::json;
use tempfile::TempDir;

/// Owns `a.zarr`.
pub const A: u32 = 54_321;
/// Owns `b.zarr`.
pub const B: u32 = 54_322;
/// A group that both are in, where a test says so.
pub const SHARED: u32 = 54_330;
/// Length of each array's file.
pub const SIZE_BYTES: usize = 16;

/// Returns the document of all of them.
pub fn document() -> String {
    json!({"zarr_format": 3, "node_type": "array", "shape": [8, 2], "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 2]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}]})
    .to_string()
}

/// A folder of stores.
pub struct Stores {
    /// The folder that has both.
    pub folder: TempDir,
}

impl Stores {
    /// Makes the stores of both users.
    pub fn new() -> Self {
        let stores = Stores { folder: tempfile::tempdir().unwrap() };
        fs::set_permissions(stores.folder.path(), Permissions::from_mode(0o755)).unwrap();
        for (store, user) in [("a.zarr", A), ("b.zarr", B)] {
            stores.folder(store, user, 0o755);
        }
        stores
    }

    /// Returns a path below the folder.
    pub fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    /// Makes a folder.
    pub fn folder(&self, below: &str, user: u32, mode: u32) {
        fs::create_dir_all(self.path(below)).unwrap();
        self.give(below, user, mode);
    }

    /// Sets owner and mode.
    pub fn give(&self, below: &str, user: u32, mode: u32) {
        chown(self.path(below), Some(user), Some(user)).unwrap();
        fs::set_permissions(self.path(below), Permissions::from_mode(mode)).unwrap();
    }

    /// Makes a file.
    pub fn file(&self, below: &str, content: impl AsRef<[u8]>, user: u32, mode: u32) {
        fs::write(self.path(below), content).unwrap();
        self.give(below, user, mode);
    }

    /// Makes a link.
    pub fn link(&self, text: &str, below: &str, user: u32) {
        symlink(text, self.path(below)).unwrap();
        lchown(self.path(below), Some(user), Some(user)).unwrap();
    }

    /// Makes an array's folder with its document, and no chunks.
    pub fn empty_array(&self, below: &str, user: u32, mode: u32) {
        self.folder(below, user, 0o755);
        self.file(&format!("{below}/zarr.json"), document(), user, mode);
    }

    /// Chunks of one letter.
    pub fn chunks(&self, below: &str, letter: u8, user: u32, mode: u32) {
        for row in 0..2 {
            self.folder(below, user, 0o755);
            self.folder(&format!("{below}/{row}"), user, 0o755);
            self.file(&format!("{below}/{row}/0"), [letter; SIZE_BYTES / 2], user, mode);
        }
    }

    /// Makes an array with its chunks.
    pub fn array(&self, below: &str, letter: u8, user: u32, modes: (u32, u32)) {
        self.empty_array(below, user, modes.0);
        self.chunks(&format!("{below}/c"), letter, user, modes.1);
    }

    /// Returns all that is below `a.zarr`, with owners and modes.
    pub fn all_of_a(&self) -> BTreeMap<PathBuf, (u32, u32, Vec<u8>)> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.path("a.zarr")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let metadata = entry.metadata().unwrap();
                let content = if metadata.is_file() { fs::read(entry.path()).unwrap() } else { Vec::new() };
                if metadata.is_dir() {
                    folders.push(entry.path());
                }
                found.insert(entry.path(), (metadata.uid(), metadata.mode(), content));
            }
        }
        found
    }
}
