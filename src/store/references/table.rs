//! References in memory: sorted keys in one text, so that millions of them take little more than their characters.
//!
//! Uses `key`. Invariant: the whole takes at most [`MAX_TABLE_BYTES`].

use std::collections::HashMap;
use std::ops::Range;

use super::Reference;
use crate::store::{Entry, is_key};

/// The most memory for references, which are all in memory.
pub(super) const MAX_TABLE_BYTES: usize = 512 << 20;
/// What a target takes beside its characters, twice: in the list, and in the map by which it is found.
const TARGET_BYTES: usize = 128;

/// One key.
#[derive(Clone, Copy)]
struct Row {
    key_start: u32,
    key_bytes: u32,
    /// The number of the target; `INLINE` for bytes of the table's own.
    target: u32,
    start: u64,
    /// `WHOLE` for all of the target.
    length: u64,
}

const INLINE: u32 = u32::MAX;
const WHOLE: u64 = u64::MAX;

/// References by key.
pub(super) struct Table {
    keys: String,
    inline: Vec<u8>,
    targets: Vec<Box<str>>,
    rows: Vec<Row>,
}

/// A table that is being filled.
#[derive(Default)]
pub(super) struct TableBuilder {
    keys: String,
    inline: Vec<u8>,
    targets: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u32>,
    rows: Vec<Row>,
    used_bytes: usize,
    ignored: usize,
}

impl TableBuilder {
    fn take(&mut self, bytes: usize) -> Result<(), String> {
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        if self.used_bytes > MAX_TABLE_BYTES {
            return Err(format!(
                "the references take more than {} MiB of memory: make Parquet references of them, which are read in parts",
                MAX_TABLE_BYTES >> 20
            ));
        }
        Ok(())
    }

    /// Adds the bytes of a key.
    pub(super) fn add_inline(&mut self, key: &str, bytes: &[u8]) -> Result<(), String> {
        self.take(bytes.len())?;
        let start = self.inline.len() as u64;
        self.inline.extend_from_slice(bytes);
        self.add_row(key, INLINE, start, bytes.len() as u64)
    }

    /// Adds a key that stands for a target, or a range of it.
    pub(super) fn add_target(
        &mut self,
        key: &str,
        url: &str,
        range: Option<Range<u64>>,
    ) -> Result<(), String> {
        let number = match self.numbers.get(url) {
            Some(number) => *number,
            None => {
                self.take(url.len() * 2 + TARGET_BYTES)?;
                let number = self.targets.len() as u32;
                self.targets.push(url.into());
                self.numbers.insert(url.into(), number);
                number
            }
        };
        let (start, length) = range.map_or((0, WHOLE), |range| (range.start, range.end - range.start));
        self.add_row(key, number, start, length)
    }

    fn add_row(&mut self, key: &str, target: u32, start: u64, length: u64) -> Result<(), String> {
        if key.is_empty() || !is_key(key) {
            if self.ignored == 0 {
                let shown: String = key.chars().take(100).collect();
                log::warn!("ignoring references to keys that are not possible, as {shown:?}");
            }
            self.ignored += 1;
            return Ok(());
        }
        self.take(key.len() + size_of::<Row>())?;
        // Both are below the limit, which is below 4 GiB.
        let row =
            Row { key_start: self.keys.len() as u32, key_bytes: key.len() as u32, target, start, length };
        self.keys.push_str(key);
        self.rows.push(row);
        Ok(())
    }

    /// The table. Of references to one key the last counts.
    pub(super) fn finish(self) -> Table {
        let TableBuilder { keys, inline, targets, mut rows, .. } = self;
        rows.sort_by(|a, b| key_of(&keys, a).cmp(key_of(&keys, b)));
        rows.reverse();
        rows.dedup_by(|a, b| key_of(&keys, a) == key_of(&keys, b));
        rows.reverse();
        Table { keys, inline, targets, rows }
    }
}

fn key_of<'a>(keys: &'a str, row: &Row) -> &'a str {
    let start = row.key_start as usize;
    keys.get(start..start + row.key_bytes as usize).unwrap_or_default()
}

impl Table {
    /// What a key stands for.
    pub(super) fn find(&self, key: &str) -> Option<Reference> {
        let at = self.rows.binary_search_by(|row| key_of(&self.keys, row).cmp(key)).ok()?;
        let row = self.rows.get(at)?;
        if row.target == INLINE {
            let start = row.start as usize;
            let bytes = self.inline.get(start..start + row.length as usize)?;
            return Some(Reference::Inline(bytes.to_vec()));
        }
        let url = self.targets.get(row.target as usize)?.to_string();
        let range = (row.length != WHOLE).then(|| row.start..row.start.saturating_add(row.length));
        Some(Reference::Target { url, range })
    }

    /// All targets.
    pub(super) fn targets(&self) -> impl Iterator<Item = &str> {
        self.targets.iter().map(AsRef::as_ref)
    }

    /// The place of the first key that is not before `text`.
    fn first_from(&self, text: &str) -> usize {
        self.rows.partition_point(|row| key_of(&self.keys, row) < text)
    }

    /// Whether any key is below `folder`.
    pub(super) fn is_folder(&self, folder: &str) -> bool {
        let prefix = format!("{folder}/");
        let row = self.rows.get(self.first_from(&prefix));
        row.is_some_and(|row| key_of(&self.keys, row).starts_with(&prefix))
    }

    /// The names right below a folder, sorted.
    pub(super) fn list(&self, folder: &str) -> Vec<Entry> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let mut names = std::collections::BTreeMap::<&str, bool>::new();
        let mut at = self.first_from(&prefix);
        while let Some(below) =
            self.rows.get(at).and_then(|row| key_of(&self.keys, row).strip_prefix(&prefix))
        {
            match below.split_once('/') {
                Some((name, _)) => {
                    names.insert(name, true);
                    // `0` comes right after `/`: this skips the rest of that folder.
                    at = self.first_from(&format!("{prefix}{name}0")).max(at + 1);
                }
                None => {
                    names.entry(below).or_default();
                    at += 1;
                }
            }
        }
        names.into_iter().map(|(name, is_folder)| Entry { name: name.to_owned(), is_folder }).collect()
    }
}
