//! References in memory, sorted by key and encoded so that ten million of them take a few hundred mebibytes.
//!
//! A key is found by a binary search over the first keys of the blocks (`block`), and then in sequence. Each URL of a target is
//! stored once (`texts`). `builder` makes the table from references in any order. Uses `key`. Invariant: the table takes at
//! most the limit of `builder`.

mod block;
mod builder;
mod texts;

use std::ops::{ControlFlow, Range};

use self::block::{EncodedBlock, TableEntry, TableRow, first_key, read_next};
pub(super) use self::builder::TableBuilder;
use self::texts::Texts;
use crate::store;

/// What a key stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    /// Bytes.
    Inline(Vec<u8>),
    /// An object, or a range of it.
    Target { url: String, range: Option<Range<u64>> },
}

/// References by key.
pub(super) struct ReferenceTable {
    blocks: Vec<EncodedBlock>,
    inline: Vec<u8>,
    targets: Texts,
}

/// A place in a table.
struct Cursor<'a> {
    table: &'a ReferenceTable,
    block: usize,
    at: usize,
    entry: TableEntry,
    is_past_end: bool,
}

impl Cursor<'_> {
    fn next(&mut self) {
        loop {
            let Some(block) = self.table.blocks.get(self.block) else {
                self.is_past_end = true;
                return;
            };
            if read_next(block, &mut self.at, &mut self.entry) {
                return;
            }
            self.block += 1;
            self.at = 0;
            self.entry.key.clear();
            self.entry.row = TableRow::default();
        }
    }

    fn key(&self) -> Option<&str> {
        if self.is_past_end { None } else { std::str::from_utf8(&self.entry.key).ok() }
    }
}

impl ReferenceTable {
    /// Returns the place of the first key that is not before `text`.
    fn first_from(&self, text: &str) -> Cursor<'_> {
        let after = self.blocks.partition_point(|block| first_key(block) <= text.as_bytes());
        let entry = TableEntry::default();
        let block = after.saturating_sub(1);
        let mut cursor = Cursor { table: self, block, at: 0, entry, is_past_end: false };
        cursor.next();
        while cursor.key().is_some_and(|key| key < text) {
            cursor.next();
        }
        cursor
    }

    /// Returns what a key stands for.
    pub(super) fn find(&self, key: &str) -> Option<Reference> {
        let cursor = self.first_from(key);
        if cursor.key() != Some(key) {
            return None;
        }
        let row = cursor.entry.row;
        let Some(target) = row.target.checked_sub(1) else {
            let range = row.range()?;
            let bytes = self.inline.get(range.start as usize..range.end as usize)?;
            return Some(Reference::Inline(bytes.to_vec()));
        };
        Some(Reference::Target { url: self.targets.text(target)?, range: row.range() })
    }

    /// Calls a function with the URL of each target, until it returns `false`.
    pub(super) fn each_target(&self, each: impl FnMut(&str) -> bool) {
        self.targets.each(each);
    }

    /// Whether there is a key below `folder`.
    pub(super) fn is_folder(&self, folder: &str) -> bool {
        let prefix = format!("{folder}/");
        self.first_from(&prefix).key().is_some_and(|key| key.starts_with(&prefix))
    }

    /// Calls `each` with the names directly below a folder, until it stops.
    pub(super) fn each_name(&self, folder: &str, each: &mut dyn FnMut(store::ListEntry) -> ControlFlow<()>) {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let mut cursor = self.first_from(&prefix);
        while let Some(below) = cursor.key().and_then(|key| key.strip_prefix(&prefix)) {
            let (name, is_below) = match below.split_once('/') {
                Some((name, _)) => (name.to_owned(), true),
                None => (below.to_owned(), false),
            };
            let path = format!("{prefix}{name}");
            let is_new = !is_below || self.first_from(&path).key() != Some(&path);
            if is_below {
                // `0` comes right after `/`: this skips the rest of that folder.
                cursor = self.first_from(&format!("{path}0"));
            } else {
                cursor.next();
            }
            // Keys below a name come soon after it; only characters such as '.' sort between.
            let after = cursor.key().and_then(|key| key.strip_prefix(&path)?.chars().next());
            let is_folder = is_below || (after.is_some_and(|after| after <= '/') && self.is_folder(&path));
            if is_new && each(store::ListEntry { name, is_folder }).is_break() {
                return;
            }
        }
    }
}

/// Returns the range of an offset and a length, within the longest possible file.
pub(in crate::store::references) fn checked_range(offset: u64, length: u64) -> Result<Range<u64>, String> {
    let end = offset.checked_add(length).filter(|end| *end <= i64::MAX as u64);
    end.map(|end| offset..end).ok_or_else(|| format!("{length} bytes at {offset} are in no file"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::store::is_key;

    type Model = BTreeMap<String, Reference>;

    fn table(references: &[(String, Reference)]) -> ReferenceTable {
        let mut builder = TableBuilder::default();
        for (key, reference) in references {
            match reference {
                Reference::Inline(bytes) => builder.add_inline(key, bytes).unwrap(),
                Reference::Target { url, range } => builder.add_target(key, url, range.clone()).unwrap(),
            }
        }
        builder.finish()
    }

    fn names(table: &ReferenceTable, folder: &str) -> Vec<(String, bool)> {
        let mut names = Vec::new();
        table.each_name(folder, &mut |entry| {
            names.push((entry.name, entry.is_folder));
            ControlFlow::Continue(())
        });
        names.sort();
        names
    }

    /// Compares every key, and the keys near it.
    fn compare(table: &ReferenceTable, model: &Model) {
        let mut folders = vec![String::new()];
        for key in model.keys() {
            let mut shorter = key.clone();
            shorter.pop();
            for near in [key.clone(), format!("{key}0"), format!("{key}/0"), shorter] {
                assert_eq!(table.find(&near), model.get(&near).cloned(), "{near}");
            }
            folders.extend(key.match_indices('/').map(|(at, _)| key[..at].to_owned()));
            folders.push(key.clone());
        }
        for folder in folders {
            let expected = store::names_below(model, &folder, |_| false);
            let expected: Vec<_> = expected.into_iter().map(|entry| (entry.name, entry.is_folder)).collect();
            assert_eq!(table.is_folder(&folder), store::is_any_below(model, &folder), "{folder}");
            assert_eq!(names(table, &folder), expected, "{folder}");
        }
    }

    fn key() -> impl Strategy<Value = String> {
        let name = prop_oneof!["[ab.]{1,3}", "[0-9]{1,3}", "[é-ü!0]{1,40}"];
        prop::collection::vec(name, 1..4)
            .prop_map(|names| names.join("/"))
            .prop_filter("a key", |key| is_key(key))
    }

    fn reference() -> impl Strategy<Value = Reference> {
        let number = prop_oneof![Just(0), 0..100_u64, 0..1_u64 << 62];
        let range = (number.clone(), number).prop_map(|(start, length)| start..start + length);
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..9).prop_map(Reference::Inline),
            ("[uv]{0,3}", prop::option::of(range)).prop_map(|(url, range)| Reference::Target { url, range }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::test_level::pick(64, 256)))]
        #[test]
        fn a_table_equals_a_map(references in prop::collection::vec((key(), reference()), 0..400)) {
            compare(&table(&references), &references.into_iter().collect());
        }
    }

    #[test]
    fn runs_are_merged_and_the_last_reference_counts() {
        // There are more than two runs, out of key order, with each key twice.
        let count = 250_000_u64;
        let reference = |number: u64| Reference::Target {
            url: format!("s3://bucket/folder/file-{:06}.nc", number % 50_021),
            range: Some(number * 7..number * 7 + number % 3),
        };
        let mut builder = TableBuilder::default();
        for round in 0..2 {
            for number in (0..count).map(|number| (number * 7919 + round) % count) {
                let Reference::Target { url, range } = reference(number + round) else { continue };
                builder.add_target(&format!("a/{number}"), &url, range).unwrap();
            }
        }
        let table = builder.finish();
        for number in (0..count).step_by(101) {
            assert_eq!(table.find(&format!("a/{number}")), Some(reference(number + 1)), "{number}");
        }
        assert_eq!(table.find(&format!("a/{count}")), None);
        assert_eq!(names(&table, "a").len() as u64, count);
        let mut targets = 0;
        table.each_target(|url| {
            targets += 1;
            url.starts_with("s3://bucket/folder/file-")
        });
        assert_eq!(targets, 50_021);
    }
}
