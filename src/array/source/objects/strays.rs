//! Strays: objects in the folder of a node that are neither documents nor chunks, so that no reader ever sees them.
//!
//! Uses `metadata` and `store`. If a program names chunks otherwise than the document says, the array reads as fill
//! value everywhere. Nothing fails, and only the names of the strays show the mistake.

use std::ops::ControlFlow;

use crate::metadata::{ChunkKeyEncoding, ChunkKeyScheme, KeyMatch};
use crate::store::{ListEntry, Store, join};

/// The most strays that are counted.
const MAX_COUNTED: u64 = 10_000;
/// The most strays that are named.
const MAX_NAMED: usize = 8;
/// Documents that are not hidden: those of v3, v1 and N5.
const DOCUMENTS: [&str; 4] = ["zarr.json", "meta", "attrs", "attributes.json"];

/// Why a program may have given a stray its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StrayCause {
    /// The numbers of a chunk, with the other separator.
    Separator,
    /// The numbers of a chunk, with or without `c` in front of them.
    Prefix,
    /// The name has a backslash.
    Backslash,
    /// The key of a chunk that a longer array would have.
    Outside,
    /// It is not like the key of a chunk.
    Unknown,
}

const CAUSES: [StrayCause; 5] = [
    StrayCause::Separator,
    StrayCause::Prefix,
    StrayCause::Backslash,
    StrayCause::Outside,
    StrayCause::Unknown,
];

/// The strays of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strays {
    count: u64,
    /// How many folders and objects were visited.
    looked_at: u64,
    names: Vec<String>,
    /// How many have each of [`CAUSES`].
    causes: [u64; CAUSES.len()],
    /// How the node's chunks are named, and along how many axes; `None` for a group.
    expected: Option<(ChunkKeyEncoding, usize)>,
}

impl Strays {
    /// Creates an empty set for an array with `rank` axes.
    pub(super) fn in_array(encoding: ChunkKeyEncoding, rank: usize) -> Self {
        Strays { expected: Some((encoding, rank)), ..Strays::default() }
    }

    /// Finds the objects in a group's folder that have a backslash in their names, which a zip file made on Windows may
    /// have instead of `/`. Any other object may lie in a group.
    pub fn in_group(store: &dyn Store, path: &str) -> Self {
        let mut strays = Strays::default();
        let listed = store.each_name(path, &mut |entry| {
            if entry.name.contains('\\') {
                strays.add(store, path, "", entry);
            }
            strays.flow()
        });
        if let Err(error) = listed {
            log::debug!("cannot list {path}: {error}");
        }
        strays
    }

    /// Returns how many objects there are; a lower bound if [`Strays::is_cut`].
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns whether there may be more than were counted.
    pub fn is_cut(&self) -> bool {
        self.looked_at >= MAX_COUNTED
    }

    /// Returns the first names, relative to the node, sorted.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns why most of them are strays, if their names show it.
    pub fn reason(&self) -> Option<String> {
        let most = self.causes.iter().zip(CAUSES).max_by_key(|(count, _)| **count)?.1;
        let (separator, is_prefixed) = match &self.expected {
            Some((encoding, _)) => (encoding.separator, encoding.scheme == ChunkKeyScheme::Default),
            None => ('/', false),
        };
        Some(match most {
            StrayCause::Separator => {
                format!("chunks named with '{}' while the document says '{separator}'", other(separator))
            }
            StrayCause::Prefix if is_prefixed => {
                format!(
                    "chunks named without 'c' in front of the numbers while the document says 'c{separator}'"
                )
            }
            StrayCause::Prefix => {
                "chunks named with 'c' in front of the numbers while the document says numbers alone"
                    .to_owned()
            }
            StrayCause::Backslash => {
                r"names with '\' instead of '/', as a zip file made on Windows may have them".to_owned()
            }
            StrayCause::Outside => "chunks past the end of the array".to_owned(),
            StrayCause::Unknown => return None,
        })
    }

    /// Adds an entry of a folder that leads to no chunk. `below` is the folder's path below the node.
    pub(super) fn add(&mut self, store: &dyn Store, folder: &str, below: &str, entry: ListEntry) {
        if below.is_empty() && DOCUMENTS.contains(&entry.name.as_str()) {
            return;
        }
        // This is a list and not a recursion, because only the store's limits bound the depth.
        let mut waiting = vec![(join(below, &entry.name), join(folder, &entry.name), entry)];
        while let Some((below, key, entry)) = waiting.pop() {
            // Hidden files are other programs' notes, or unfinished files of this one.
            if self.is_cut() || entry.name.starts_with('.') {
                continue;
            }
            self.looked_at += 1;
            if !entry.is_folder {
                self.add_object(below);
                continue;
            }
            let room = MAX_COUNTED.saturating_sub(self.looked_at + waiting.len() as u64);
            let mut found = 0;
            let listed = store.each_name(&key, &mut |entry| {
                if found == room {
                    return ControlFlow::Break(());
                }
                found += 1;
                waiting.push((join(&below, &entry.name), join(&key, &entry.name), entry));
                ControlFlow::Continue(())
            });
            if let Err(error) = listed {
                log::debug!("cannot list {key}: {error}");
            }
        }
    }

    fn add_object(&mut self, below: String) {
        self.count += 1;
        let cause = self.cause(&below);
        if let Some(place) = CAUSES.iter().position(|known| *known == cause)
            && let Some(count) = self.causes.get_mut(place)
        {
            *count += 1;
        }
        // Stores list in no order.
        let place = self.names.partition_point(|name| *name < below);
        self.names.insert(place, below);
        self.names.truncate(MAX_NAMED);
    }

    fn flow(&self) -> ControlFlow<()> {
        if self.is_cut() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Returns why an object may have this name below the node.
    fn cause(&self, name: &str) -> StrayCause {
        if name.contains('\\') {
            return StrayCause::Backslash;
        }
        let Some((encoding, rank)) = &self.expected else { return StrayCause::Unknown };
        let is_key =
            |encoding: ChunkKeyEncoding| matches!(encoding.parse(name, *rank), Some(KeyMatch::Chunk(_)));
        let with = |scheme, separator| ChunkKeyEncoding { scheme, separator, ..encoding.clone() };
        let scheme = match encoding.scheme {
            ChunkKeyScheme::Default => ChunkKeyScheme::V2,
            ChunkKeyScheme::V2 | ChunkKeyScheme::N5 | ChunkKeyScheme::Fanout { .. } => {
                ChunkKeyScheme::Default
            }
        };
        if is_key(encoding.clone()) {
            StrayCause::Outside
        } else if is_key(with(encoding.scheme, other(encoding.separator))) {
            StrayCause::Separator
        } else if ['/', '.'].into_iter().any(|separator| is_key(with(scheme, separator))) {
            StrayCause::Prefix
        } else {
            StrayCause::Unknown
        }
    }
}

fn other(separator: char) -> char {
    if separator == '/' { '.' } else { '/' }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(prefixed: bool, separator: char, rank: usize, name: &str) -> Option<String> {
        let scheme = if prefixed { ChunkKeyScheme::Default } else { ChunkKeyScheme::V2 };
        let encoding = ChunkKeyEncoding { scheme, ..ChunkKeyEncoding::v2(separator, false) };
        let mut strays = Strays::in_array(encoding, rank);
        strays.add_object(name.to_owned());
        strays.reason()
    }

    #[test]
    fn names_show_why() {
        for (prefixed, separator, name, expected) in [
            (false, '.', "0/1", "with '/' while the document says '.'"),
            (false, '/', "0.1", "with '.' while the document says '/'"),
            (true, '/', "c.0.1", "with '.' while the document says '/'"),
            (true, '.', "c/0/1", "with '/' while the document says '.'"),
            (true, '/', "0.1", "without 'c'"),
            (false, '.', "c/0/1", "with 'c' in front"),
            (true, '/', r"c\0\1", "Windows"),
            (false, '.', "9.0", "past the end"),
        ] {
            let found = reason(prefixed, separator, 2, name).unwrap_or_default();
            assert!(found.contains(expected), "{name}: {found}");
        }
        for (prefixed, rank, name) in [(true, 2, "c/0"), (true, 2, "README"), (false, 1, "x.0")] {
            assert_eq!(reason(prefixed, '/', rank, name), None, "{name}");
        }
        assert!(reason(true, '/', 0, "0").is_some_and(|reason| reason.contains("without 'c'")));
    }
}
