//! Keys of a repository: the document of a node, or a chunk of an array.
//!
//! Spec: Icechunk, "Zarr key-value interface": `a/b/zarr.json` for a document, `a/b/c/0/1` for a chunk, and `a/b/c` for the
//! chunk of an array without axes. A repository has nothing at other keys. Uses the crate's paths.

use icechunk::format::{ChunkIndices, Path};

/// The name of every document.
pub(super) const DOCUMENT: &str = "zarr.json";
/// The name above the numbers of a chunk.
pub(super) const CHUNKS: &str = "c";

/// A key of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// The document of a node.
    Document(Path),
    /// A chunk of an array.
    Chunk(Path, ChunkIndices),
    /// A key at which nothing can be.
    Other,
}

impl Key {
    pub(super) fn parse(key: &str) -> Self {
        let (folder, name) = key.rsplit_once('/').unwrap_or(("", key));
        if name == DOCUMENT {
            return path(folder).map_or(Key::Other, Key::Document);
        }
        let (mut above, mut numbers) = (key, Vec::new());
        loop {
            let (folder, name) = above.rsplit_once('/').unwrap_or(("", above));
            if name == CHUNKS {
                numbers.reverse();
                return path(folder).map_or(Key::Other, |array| Key::Chunk(array, ChunkIndices(numbers)));
            }
            match number(name) {
                Some(number) if !folder.is_empty() => numbers.push(number),
                _ => return Key::Other,
            }
            above = folder;
        }
    }

    /// Returns the key of a chunk.
    pub(super) fn chunk(array: &Path, chunk: &ChunkIndices) -> String {
        let mut key = format!("{}/{CHUNKS}", array.as_str().trim_end_matches('/'));
        chunk.0.iter().for_each(|number| key.push_str(&format!("/{number}")));
        key.trim_start_matches('/').to_owned()
    }

    /// Returns the key of a document.
    pub(super) fn document(node: &Path) -> String {
        format!("{}/{DOCUMENT}", node.as_str().trim_end_matches('/')).trim_start_matches('/').to_owned()
    }
}

/// Returns the crate's path of a node.
pub(super) fn path(key: &str) -> Option<Path> {
    Path::new(&format!("/{key}")).ok()
}

/// Parses a number as it is written in keys.
fn number(name: &str) -> Option<u32> {
    name.parse().ok().filter(|number: &u32| number.to_string() == name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn documents_and_chunks() {
        let at = |key: &str| path(key).unwrap();
        for (key, parsed) in [
            ("zarr.json", Key::Document(at(""))),
            ("a/b/zarr.json", Key::Document(at("a/b"))),
            ("c/zarr.json", Key::Document(at("c"))),
            ("a/c/0/10", Key::Chunk(at("a"), ChunkIndices(vec![0, 10]))),
            ("c/c/3", Key::Chunk(at("c"), ChunkIndices(vec![3]))),
            ("c/3", Key::Chunk(at(""), ChunkIndices(vec![3]))),
            ("a/c/c", Key::Chunk(at("a/c"), ChunkIndices(Vec::new()))),
            ("c", Key::Chunk(at(""), ChunkIndices(Vec::new()))),
        ] {
            assert_eq!(Key::parse(key), parsed, "{key}");
            match parsed {
                Key::Document(node) => assert_eq!(Key::document(&node), key),
                Key::Chunk(array, chunk) => assert_eq!(Key::chunk(&array, &chunk), key),
                Key::Other => {}
            }
        }
        for key in ["", "a", "a/.zarray", "a/c/00", "a/c/+1", "a/c/0.0", "0/1", "a/c/4294967296", "a/meta"] {
            assert_eq!(Key::parse(key), Key::Other, "{key}");
        }
    }
}
