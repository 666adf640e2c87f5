//! The kinds of files, and the reader of each.
//!
//! Uses all of its neighbours.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::source_file::SourceFile;
use super::{classic, hdf5, tiff};
use crate::error::{Error, Result};

/// Whether the beginning of a file is that of one that can be brought in.
pub fn is_known(start: &[u8]) -> bool {
    Kind::of(start).is_some()
}

/// The kind of a file.
enum Kind {
    Classic,
    Hdf5,
    Tiff,
}

impl Kind {
    /// The most bytes at the beginning that say what a file is.
    const MAGIC_BYTES: usize = 8;

    fn of(start: &[u8]) -> Option<Kind> {
        match start {
            [b'C', b'D', b'F', 1 | 2 | 5, ..] => Some(Kind::Classic),
            [0x89, b'H', b'D', b'F', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Kind::Hdf5),
            [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..] => Some(Kind::Tiff),
            _ => None,
        }
    }
}

/// Opens a file of a known kind; `None` if it is of another one. Of HDF5, only variables with a wanted path are looked at. Errors name the
/// file `name`.
pub fn open(file: &File, name: &str, is_wanted: &dyn Fn(&str) -> bool) -> Result<Option<SourceFile>> {
    let mut start = [0; Kind::MAGIC_BYTES];
    let read = file.read_at(&mut start, 0).map_err(|error| Error::store(name, "read", error))?;
    let Some(kind) = Kind::of(start.get(..read).unwrap_or_default()) else { return Ok(None) };
    let file = file.try_clone().map_err(|error| Error::store(name, "read", error))?;
    let opened = match kind {
        Kind::Classic => classic::open(file, name),
        Kind::Hdf5 => hdf5::open(file, name, is_wanted),
        Kind::Tiff => tiff::open(file, name),
    }?;
    opened.check()?;
    Ok(Some(opened))
}
