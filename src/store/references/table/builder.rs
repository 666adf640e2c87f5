//! A table that is being filled with references in any order.
//!
//! Some mebibytes of references are collected, sorted, and encoded into a run of blocks. At the end the runs are merged, and
//! each of their blocks is freed when it is read, so that this never takes much more memory than the table. Uses `block` and
//! `texts`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::vec::IntoIter;

use super::ReferenceTable;
use super::block::{BlockWriter, EncodedBlock, TableEntry, TableRow, read_next};
use super::texts::TextsBuilder;
use crate::store::is_key;

/// The most memory for references, which are all in memory.
const MAX_TABLE_BYTES: usize = 512 << 20;
/// The most memory for references that are not sorted yet.
const UNSORTED_BYTES: usize = 16 << 20;

/// A reference that is not sorted yet.
struct UnsortedReference {
    key_start: u32,
    key_bytes: u32,
    row: TableRow,
}

/// A [`ReferenceTable`] that is being filled.
#[derive(Default)]
pub(in crate::store::references) struct TableBuilder {
    inline: Vec<u8>,
    targets: TextsBuilder,
    keys: String,
    unsorted: Vec<UnsortedReference>,
    /// Runs. For the same key, the later run counts.
    runs: Vec<BlockWriter>,
    run_bytes: usize,
    ignored: usize,
}

impl TableBuilder {
    fn check_size(&self, more: usize) -> Result<(), String> {
        let used = [self.run_bytes, self.inline.len(), self.targets.size_bytes(), self.keys.len()];
        if used.iter().fold(more, |sum, part| sum.saturating_add(*part)) > MAX_TABLE_BYTES {
            return Err(format!(
                "the references take more than {} MiB of memory: make Parquet references of them, which are read in parts",
                MAX_TABLE_BYTES >> 20
            ));
        }
        Ok(())
    }

    /// Adds a key with its bytes.
    pub(in crate::store::references) fn add_inline(&mut self, key: &str, bytes: &[u8]) -> Result<(), String> {
        self.check_size(bytes.len())?;
        let start = self.inline.len() as u64;
        self.inline.extend_from_slice(bytes);
        self.add_row(key, TableRow::new(0, Some(start..start + bytes.len() as u64)))
    }

    /// Adds a key that stands for a target, or a range of it.
    pub(in crate::store::references) fn add_target(
        &mut self,
        key: &str,
        url: &str,
        range: Option<Range<u64>>,
    ) -> Result<(), String> {
        self.check_size(url.len())?;
        let target = self.targets.number(url) + 1;
        self.add_row(key, TableRow::new(target, range))
    }

    fn add_row(&mut self, key: &str, row: TableRow) -> Result<(), String> {
        if key.is_empty() || !is_key(key) {
            if self.ignored == 0 {
                let shown: String = key.chars().take(100).collect();
                log::warn!("ignoring references to keys that are not possible, as {shown:?}");
            }
            self.ignored += 1;
            return Ok(());
        }
        self.check_size(key.len())?;
        // Both are below the limit, which is below 4 GiB.
        let (key_start, key_bytes) = (self.keys.len() as u32, key.len() as u32);
        self.keys.push_str(key);
        self.unsorted.push(UnsortedReference { key_start, key_bytes, row });
        if self.keys.len() + self.unsorted.len() * size_of::<UnsortedReference>() >= UNSORTED_BYTES {
            self.end_run();
        }
        Ok(())
    }

    /// Encodes the references that are not sorted yet, as a run of their own unless they come after the last run.
    fn end_run(&mut self) {
        let keys = self.keys.as_bytes();
        let key_of = |one: &UnsortedReference| {
            let start = one.key_start as usize;
            keys.get(start..start + one.key_bytes as usize).unwrap_or_default()
        };
        self.unsorted.sort_by(|a, b| key_of(a).cmp(key_of(b)));
        let Some(first) = self.unsorted.first() else { return };
        let goes_on = self.runs.pop_if(|run| run.last_key() < key_of(first));
        let mut run = goes_on.unwrap_or_default();
        let bytes_before = run.size_bytes();
        for (at, one) in self.unsorted.iter().enumerate() {
            // Of several references of one key the last one counts.
            let is_last = self.unsorted.get(at + 1).is_none_or(|next| key_of(next) != key_of(one));
            if is_last {
                run.push(key_of(one), one.row);
            }
        }
        self.run_bytes += run.size_bytes() - bytes_before;
        self.runs.push(run);
        self.keys.clear();
        self.unsorted.clear();
    }

    /// Returns the table.
    pub(in crate::store::references) fn finish(mut self) -> ReferenceTable {
        self.end_run();
        (self.keys, self.unsorted) = Default::default();
        let targets = self.targets.finish();
        self.inline.shrink_to_fit();
        let blocks = if self.runs.len() > 1 {
            merged(self.runs)
        } else {
            self.runs.pop().map(BlockWriter::finish).unwrap_or_default()
        };
        ReferenceTable { blocks, inline: self.inline, targets }
    }
}

/// A run that is read once. Each block is freed at its end.
struct SortedRun {
    later: IntoIter<EncodedBlock>,
    block: EncodedBlock,
    at: usize,
    row: TableRow,
}

impl SortedRun {
    /// Reads the next entry into `key`; `false` after the last one.
    fn read_next(&mut self, key: &mut Vec<u8>) -> bool {
        let mut entry = TableEntry { key: std::mem::take(key), row: self.row };
        while !read_next(&self.block, &mut self.at, &mut entry) {
            let Some(block) = self.later.next() else { return false };
            (self.block, self.at) = (block, 0);
            entry.key.clear();
            entry.row = TableRow::default();
        }
        (*key, self.row) = (entry.key, entry.row);
        true
    }
}

/// Merges the entries of all runs. For the same key, the last run counts.
fn merged(writers: Vec<BlockWriter>) -> Vec<EncodedBlock> {
    let mut runs = Vec::with_capacity(writers.len());
    let mut heap = BinaryHeap::with_capacity(writers.len());
    for (number, writer) in writers.into_iter().enumerate() {
        let later = writer.finish().into_iter();
        let mut run = SortedRun { later, block: EncodedBlock::default(), at: 0, row: TableRow::default() };
        let mut key = Vec::new();
        if run.read_next(&mut key) {
            heap.push(Reverse((key, Reverse(number))));
        }
        runs.push(run);
    }
    let mut out = BlockWriter::default();
    let mut last = Vec::new();
    while let Some(mut top) = heap.peek_mut() {
        let Reverse((key, Reverse(number))) = &mut *top;
        let Some(run) = runs.get_mut(*number) else { break };
        if *key != last {
            out.push(key, run.row);
            last.clone_from(key);
        }
        if !run.read_next(key) {
            std::collections::binary_heap::PeekMut::pop(top);
        }
    }
    out.finish()
}
