//! A file, or a stream, and how a user names a part of it. Uses the names of slices.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use zarrfs::formats::slices;
use zarrfs::store::join;

/// The bytes that are imported.
pub enum Input {
    /// A file that can be read at any offset: `start` is the offset of its first element, and `left_bytes` follow from there.
    File {
        /// The file.
        file: File,
        /// The offset of its first element.
        start: u64,
        /// The bytes from there on.
        left_bytes: u64,
    },
    /// A stream, which is read in order. Its header has been read.
    Stream(Box<dyn Read + Send>),
}

/// What `FILE`, `FILE:/PATH`, and these with `[INDEX]` name.
pub struct NamedFile<'a> {
    /// The file.
    pub file: &'a str,
    /// The path of a group or variable in it, without the slashes around; `""` is the root.
    pub inside: &'a str,
    /// The same with the index, which may be a part of the name.
    pub inside_whole: &'a str,
    /// The text between the brackets.
    pub index: Option<&'a str>,
}

impl<'a> NamedFile<'a> {
    /// Reads what a user writes. The longest part that is the name of a file wins.
    pub fn parse(whole: &'a str) -> Self {
        let exists = |name: &str| Path::new(name).exists();
        let plain = NamedFile { file: whole, inside: "", inside_whole: "", index: None };
        if whole == "-" || exists(whole) {
            return plain;
        }
        let (name, index) = slices::split(whole).map_or((whole, None), |(name, index)| (name, Some(index)));
        match name.rsplit_once(":/") {
            Some((file, inside)) if !exists(name) => {
                let inside_whole = whole.get(whole.len().min(file.len() + 2)..).unwrap_or_default();
                let (inside, inside_whole) = (inside.trim_matches('/'), inside_whole.trim_matches('/'));
                NamedFile { file, inside, inside_whole, index }
            }
            _ => NamedFile { file: name, index, ..plain },
        }
    }

    /// Returns the paths that the node may have.
    pub fn candidates(&self) -> impl Iterator<Item = &'a str> {
        let without_index = Some(self.inside);
        let whole = (self.index.is_some() && !self.inside_whole.is_empty()).then_some(self.inside_whole);
        without_index.into_iter().chain(whole)
    }

    /// Returns the paths that the coordinates have which the index names.
    pub fn coordinate_paths(&self) -> Vec<String> {
        self.index.map(|index| coordinates_of(self.inside, index)).unwrap_or_default()
    }
}

/// Returns the paths that the coordinates have which an index of `inside` names, which may be a variable or a group.
pub fn coordinates_of(inside: &str, index: &str) -> Vec<String> {
    // An index that cannot be read is refused when it is resolved.
    let names = slices::names(index).unwrap_or_default();
    let group = inside.rsplit_once('/').map_or("", |(group, _)| group);
    names.iter().flat_map(|name| [join(inside, name), join(group, name)]).collect()
}
