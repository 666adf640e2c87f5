//! Companion files: an array in another form, which some programs read better than flat bytes.
//!
//! Uses every layer below, and nothing of mounts. A format is one file with a [`Format`] and one line in [`FORMATS`].
//! Its content is a [`VirtualFile`]: bytes that the format makes, and ranges of arrays that are read as their own files are
//! (`virtual_file.rs`).
//! It is served as `__formats__/NAME/PATH.SUFFIX`, for those arrays that it can express; other arrays have no such
//! file: an approximate one would be wrong.

mod jsonl;
#[cfg(test)]
mod tagged;
pub mod virtual_file;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::array::Engine;
use crate::error::Result;
use crate::hierarchy::SharedArray;
use crate::metadata::ArrayMetadata;
use crate::store::{Store, join};
use virtual_file::VirtualFile;

/// The folder of all companion files, below the root of what is served.
pub const FOLDER: &str = "__formats__";

/// Every format, in alphabetical order.
pub const FORMATS: &[&Format] = &[
    &jsonl::FORMAT,
    #[cfg(test)]
    &tagged::FORMAT,
];

/// One format.
pub struct Format {
    /// Its folder.
    pub name: &'static str,
    /// The suffix after the array's name.
    pub suffix: &'static str,
    /// Whether it is the readable form of arrays that have no flat file.
    pub is_text: bool,
    /// Whether it can express such an array.
    pub expresses: fn(&ArrayMetadata) -> bool,
    /// The file of an array, where that can be made. Reads nothing yet.
    pub open: fn(&Subject<'_>) -> Result<Box<dyn Companion>>,
}

/// What a companion file is made of.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The process's limits.
    pub engine: &'a Arc<Engine>,
    /// The store of the array.
    pub store: &'a Arc<dyn Store>,
    /// The array's path (`""` is the root).
    pub path: &'a str,
    /// Its metadata.
    pub metadata: &'a Arc<ArrayMetadata>,
    /// The open array at a path, which its own file shares.
    pub open_array: &'a dyn Fn(&str) -> Result<Arc<SharedArray>>,
}

/// The companion file of one array.
pub trait Companion: Send + Sync {
    /// A number that changes, in all likelihood, when the file does. Calls stat on the store and reads nothing.
    fn version(&self) -> Result<u64>;
    /// Makes the file as it is now.
    fn make(&self) -> Result<Made>;
}

/// A companion file that was made.
pub struct Made {
    /// Its [`Companion::version`].
    pub version: u64,
    /// Its content.
    pub file: VirtualFile,
}

/// The format with this name.
pub fn find(name: &str) -> Option<&'static Format> {
    FORMATS.iter().copied().find(|format| format.name == name)
}

/// The format in which an array that has no flat file can be read.
pub fn text_form(metadata: &ArrayMetadata) -> Option<&'static Format> {
    FORMATS.iter().copied().find(|format| format.is_text && (format.expresses)(metadata))
}

impl Format {
    /// The file of an array that is shown as `path`, from the root of what is served.
    pub fn file(&self, path: &str) -> String {
        join(FOLDER, &format!("{}/{path}{}", self.name, self.suffix))
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Format) -> bool {
        self.name == other.name
    }
}

impl Eq for Format {}

impl Hash for Format {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_unique() {
        assert!(FORMATS.iter().map(|format| format.name).is_sorted_by(|a, b| a < b));
        assert!(FORMATS.iter().all(|format| find(format.name) == Some(format)));
        assert_eq!(find("json"), None, "sidecars are not made of arrays alone, and are the mount's own");
    }
}
