//! Store keys of an array's objects.
//!
//! Spec: v3 core "Chunk key encoding"; v2 "Chunks" leaves the separator to the store. Uses `store`, `metadata`, `error`
//! and `geometry`.

use std::ops::ControlFlow;
use std::sync::OnceLock;

use crate::array::geometry::axis_order::AxisOrder;
use crate::error::{Error, Result};
use crate::metadata::ChunkKeyEncoding;
use crate::store::{Store, join};

/// Turns per-axis chunk numbers in served order into store keys.
pub struct Keys {
    /// Path of the array, `""` for the root.
    path: String,
    encoding: ChunkKeyEncoding,
    /// How the numbers in a key become those of the served axes.
    axis_order: AxisOrder,
    /// The separator found in the store, if the document does not name one.
    found: OnceLock<char>,
}

impl Keys {
    /// Creates the keys of the objects of the array at `path`.
    pub fn new(path: &str, encoding: ChunkKeyEncoding, axis_order: AxisOrder) -> Self {
        Keys { path: path.to_owned(), encoding, axis_order, found: OnceLock::new() }
    }

    /// Returns the path of the array.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the order in which the array's axes are served.
    pub fn axis_order(&self) -> &AxisOrder {
        &self.axis_order
    }

    /// Returns the key of a chunk.
    pub fn key(&self, store: &dyn Store, chunk: &[u64]) -> Result<String> {
        let index = self.axis_order.own(chunk);
        let mut encoding = self.encoding.clone();
        if encoding.separator_is_assumed && index.len() > 1 {
            encoding.separator = match self.found.get() {
                Some(separator) => *separator,
                None => self.find_separator(store, &index)?,
            };
        }
        Ok(join(&self.path, &encoding.key(&index)))
    }

    /// Finds the separator where v2 leaves it open: it is the one in the key of the first chunk that is stored, `.`
    /// before `/`. A chunk that is missing under both keys is missing, and the next one decides.
    fn find_separator(&self, store: &dyn Store, index: &[u64]) -> Result<char> {
        const SEPARATORS: [char; 2] = ['.', '/'];
        let key =
            |separator| join(&self.path, &ChunkKeyEncoding { separator, ..self.encoding.clone() }.key(index));
        let keys = SEPARATORS.map(key);
        for (separator, info) in
            SEPARATORS.into_iter().zip(store.head_many(&keys.each_ref().map(String::as_str)))
        {
            if info?.is_some() {
                return Ok(*self.found.get_or_init(|| separator));
            }
        }
        Ok('.')
    }

    /// Returns the chunk key encoding for this many numbers, for a caller that writes chunks or lists them. If v2
    /// leaves the separator open and no chunk was read yet, lists the array's folder once: nested keys count only if no
    /// `.` key exists.
    pub fn encoding(&self, store: &dyn Store, rank: usize) -> Result<ChunkKeyEncoding> {
        let mut encoding = self.encoding.clone();
        if encoding.separator_is_assumed && rank > 1 {
            encoding.separator = match self.found.get() {
                Some(separator) => *separator,
                None => {
                    let found = probe_separator(store, &self.path)?;
                    *self.found.get_or_init(|| found)
                }
            };
        }
        Ok(encoding)
    }
}

/// Returns `.`, unless the folder has folders with numbers as names and no object like `0.1`. `.` is also the
/// specification's default, which holds if the store does not list the folder.
fn probe_separator(store: &dyn Store, folder: &str) -> Result<char> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let (mut nested, mut flat) = (false, false);
    let listed = store.each_name(folder, &mut |entry| {
        nested |= entry.is_folder && is_number(&entry.name);
        flat = !entry.is_folder && entry.name.contains('.') && entry.name.split('.').all(is_number);
        if flat { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    if let Err(error) = listed
        && !matches!(error, Error::Unlisted { .. })
    {
        return Err(error);
    }
    Ok(if nested && !flat { '/' } else { '.' })
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
