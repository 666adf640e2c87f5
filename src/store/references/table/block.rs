//! Blocks: some kibibytes of references, sorted by key, each encoded relative to the one before it.
//!
//! A reference consists of: the number of bytes of the last key that are dropped and the number that follow, in four bits each
//! (from 15 on, a number with the rest comes next); those bytes; the difference of the target's number, zigzag-encoded, with
//! two flags below it; the start, unless it is where the last reference ended; the length, unless it is the same as before.
//! Numbers have seven bits in a byte, low bits first. The first reference of a block is relative to an empty one. Uses nothing.

use std::ops::Range;

/// The size at which a block ends.
const BLOCK_BYTES: usize = 2048;
/// The length that stands for a whole target.
const WHOLE: u64 = u64::MAX;

/// Encoded references in sequence.
pub(super) type EncodedBlock = Box<[u8]>;

/// What a key stands for, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TableRow {
    /// The number of the target, from 1; 0 for bytes in the table itself.
    pub target: u32,
    pub start: u64,
    length: u64,
}

impl TableRow {
    pub(super) fn new(target: u32, range: Option<Range<u64>>) -> Self {
        match range {
            Some(range) => TableRow { target, start: range.start, length: range.end - range.start },
            None => TableRow { target, start: 0, length: WHOLE },
        }
    }

    /// Returns the range of the target; `None` for all of it.
    pub(super) fn range(&self) -> Option<Range<u64>> {
        (self.length != WHOLE).then(|| self.start..self.start.saturating_add(self.length))
    }

    fn end(&self) -> u64 {
        self.start.wrapping_add(self.length)
    }
}

/// A key and what it stands for. The empty key precedes all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TableEntry {
    pub key: Vec<u8>,
    pub row: TableRow,
}

const IS_NEXT: u64 = 1;
const IS_AS_LONG: u64 = 2;

/// A writer of blocks, for entries in the order of their keys.
#[derive(Default)]
pub(super) struct BlockWriter {
    blocks: Vec<EncodedBlock>,
    bytes: Vec<u8>,
    last: TableEntry,
    finished_bytes: usize,
}

impl BlockWriter {
    pub(super) fn push(&mut self, key: &[u8], row: TableRow) {
        if self.bytes.len() >= BLOCK_BYTES {
            self.end_block();
        }
        let last = &mut self.last;
        let shared = last.key.iter().zip(key).take_while(|(a, b)| a == b).count();
        let (dropped, added) = (last.key.len() - shared, key.len() - shared);
        self.bytes.push((dropped.min(15) << 4 | added.min(15)) as u8);
        for number in [dropped, added] {
            if number >= 15 {
                put(&mut self.bytes, number as u64 - 15);
            }
        }
        self.bytes.extend_from_slice(key.get(shared..).unwrap_or_default());
        let (is_next, is_as_long) = (row.start == last.row.end(), row.length == last.row.length);
        let flags = if is_next { IS_NEXT } else { 0 } | if is_as_long { IS_AS_LONG } else { 0 };
        let target = i64::from(row.target) - i64::from(last.row.target);
        put(&mut self.bytes, to_unsigned(target) << 2 | flags);
        if !is_next {
            put(&mut self.bytes, to_unsigned(row.start.wrapping_sub(last.row.end()) as i64));
        }
        if !is_as_long {
            put(&mut self.bytes, row.length.wrapping_add(1));
        }
        last.key.truncate(shared);
        last.key.extend_from_slice(key.get(shared..).unwrap_or_default());
        last.row = row;
    }

    fn end_block(&mut self) {
        if !self.bytes.is_empty() {
            self.finished_bytes += self.bytes.len() + size_of::<EncodedBlock>();
            self.blocks.push(self.bytes.as_slice().into());
            self.bytes.clear();
            self.last = TableEntry::default();
        }
    }

    /// Returns the last key.
    pub(super) fn last_key(&self) -> &[u8] {
        &self.last.key
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.finished_bytes + self.bytes.len()
    }

    pub(super) fn finish(mut self) -> Vec<EncodedBlock> {
        self.end_block();
        self.blocks
    }
}

/// Reads the entry at `at` of a block into the one before it; `false` at the end.
pub(super) fn read_next(block: &[u8], at: &mut usize, entry: &mut TableEntry) -> bool {
    next(block, at, entry).is_some()
}

fn next(block: &[u8], at: &mut usize, entry: &mut TableEntry) -> Option<()> {
    let lengths = usize::from(*block.get(*at)?);
    *at += 1;
    let mut length = |low: usize| {
        if low < 15 { Some(low) } else { Some(15 + usize::try_from(get(block, at)?).ok()?) }
    };
    let (dropped, added) = (length(lengths >> 4)?, length(lengths & 15)?);
    let text = block.get(*at..at.checked_add(added)?)?;
    *at += added;
    entry.key.truncate(entry.key.len().saturating_sub(dropped));
    entry.key.extend_from_slice(text);
    let coded = get(block, at)?;
    let TableRow { target, length, .. } = entry.row;
    let target = (i64::from(target) + to_signed(coded >> 2)) as u32;
    let moved = if coded & IS_NEXT == 0 { to_signed(get(block, at)?) as u64 } else { 0 };
    let start = entry.row.end().wrapping_add(moved);
    let length = if coded & IS_AS_LONG == 0 { get(block, at)?.wrapping_sub(1) } else { length };
    entry.row = TableRow { target, start, length };
    Some(())
}

/// Returns the first key of a block.
pub(super) fn first_key(block: &[u8]) -> &[u8] {
    let mut at = 1;
    let added = match block.first().map(|lengths| usize::from(lengths & 15)) {
        Some(15) => get(block, &mut at).and_then(|rest| usize::try_from(rest).ok()?.checked_add(15)),
        added => added,
    };
    added.and_then(|added| block.get(at..at.checked_add(added)?)).unwrap_or_default()
}

/// Appends a number.
pub(super) fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads a number.
pub(super) fn get(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Encodes numbers near 0 as small numbers.
fn to_unsigned(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

fn to_signed(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}
