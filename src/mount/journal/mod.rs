//! The state of a session that outlives its daemon: what the kernel knows of the mount, in memory that a keeper holds.
//!
//! A journal is an unnamed file (memfd_create(2)). The daemon appends a record before each reply that gives the kernel an inode
//! number or a handle; a read appends nothing. When the daemon dies, the next one reads the journal, rebuilds its tables, and
//! continues. `record.rs` has the records, `encoding.rs` their bytes, `state.rs` the state that they add up to, `intents.rs` the
//! changes of names that have begun, and `held.rs` the descriptors that outlive a daemon. Uses neither `fs` nor `fuse`.
//!
//! Layout: a header with the format's name and the place of the current part; then that part, one record after the other. When half
//! of the part may no longer count, the records that do are written after it as a new part. Then the header names the new part, and
//! the old one is freed.
//!
//! Invariants: a record counts when it is complete, which its checksum proves, so a daemon may die at any instruction. Only the
//! last record can be torn, and no reply that depends on it was sent. If a record cannot be written, the header says so, and the
//! journal is never used again.

mod encoding;
pub mod held;
pub mod intents;
pub mod record;
pub mod state;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::mount::journal::record::Record;
use crate::mount::journal::state::SessionState;
use crate::sys::{self, SharedMemory};

/// The name of the format. It gets another number when the fields of a record change: a version that does not know the format, or a
/// record, stores what is unstored and makes the mount anew.
const FORMAT: &[u8; 16] = b"zarrfs session 4";
/// The name instead of that in a journal that lacks records.
const BROKEN: &[u8; 16] = b"zarrfs broken   ";
/// Where the header has the place of the current part.
const START_AT: u64 = 16;
const HEADER_BYTES: u64 = 4096;
/// The length and the checksum before each record.
const PREFIX_BYTES: usize = 8;
/// A part is not rewritten before so much of it may no longer count.
const SMALLEST_REWRITE: u64 = 1 << 20;
/// The length of most records of inodes.
const TYPICAL_INODE_BYTES: u64 = 64;
/// The longest part: with about 100 bytes for an inode, more than a million of them.
const LIMIT_BYTES: u64 = 256 << 20;
/// So much of a part is mapped at one time.
const WINDOW_BYTES: u64 = 256 << 10;
/// A window begins at a multiple of this.
const PAGE_BYTES: u64 = 4096;

/// The journal of a session.
pub struct Journal {
    file: File,
    part: Mutex<Part>,
}

/// The part of the file that counts.
struct Part {
    start: u64,
    end: u64,
    /// The bytes of it that may no longer count.
    superseded_bytes: u64,
    is_broken: bool,
    /// The memory for the next records.
    window: Option<SharedMemory>,
}

impl Part {
    fn new(start: u64, end: u64, superseded_bytes: u64) -> Self {
        Part { start, end, superseded_bytes, is_broken: false, window: None }
    }

    /// Returns whether it is worth the time and the memory to drop what no longer counts.
    fn is_to_be_rewritten(&self) -> bool {
        let length = self.end - self.start;
        self.superseded_bytes > SMALLEST_REWRITE.max(length / 2) || length > 2 * LIMIT_BYTES
    }

    /// Copies a record to the end. Each open file and each name adds one, so there is no system call.
    fn add(&mut self, file: &File, bytes: &[u8]) -> io::Result<()> {
        let length = bytes.len() as u64;
        if self.window.as_ref().is_none_or(|window| bytes.len() > window.remaining()) {
            self.window = None;
            let start = self.end - self.end % PAGE_BYTES;
            let end = (self.end + length.max(WINDOW_BYTES)).next_multiple_of(PAGE_BYTES);
            file.set_len(end)?;
            let mut window =
                SharedMemory::map(file, start, usize::try_from(end - start).map_err(io::Error::other)?)?;
            window.take(usize::try_from(self.end - start).map_err(io::Error::other)?)?;
            self.window = Some(window);
        }
        if let Some(window) = &mut self.window {
            window.take(bytes.len())?.copy_from_slice(bytes);
            self.end += length;
        }
        Ok(())
    }
}

impl Journal {
    /// Makes an empty journal in an empty file.
    pub fn create(file: File) -> io::Result<Journal> {
        file.write_all_at(&HEADER_BYTES.to_le_bytes(), START_AT)?;
        file.write_all_at(FORMAT, 0)?;
        let part = Part::new(HEADER_BYTES, HEADER_BYTES, 0);
        Ok(Journal { file, part: Mutex::new(part) })
    }

    /// Reads the journal that a daemon left. Returns it with the state that its complete records amount to.
    pub fn open(file: File) -> Result<(Journal, SessionState)> {
        let failed =
            |error: io::Error| Error::Usage(format!("cannot read the state of the session: {error}"));
        let mut header = [0; 24];
        file.read_exact_at(&mut header, 0).map_err(failed)?;
        let (format, start) = header.split_at(FORMAT.len());
        if format != FORMAT {
            let shown = String::from_utf8_lossy(format);
            return Err(Error::Usage(format!(
                "the state of the session is of another kind: '{}'",
                shown.trim_end()
            )));
        }
        let start = start.try_into().map(u64::from_le_bytes).unwrap_or(HEADER_BYTES);
        let Records { state, end, superseded_bytes } = read(&file, start).map_err(failed)?;
        // A torn record would hide those that come after it.
        file.set_len(end).map_err(failed)?;
        let part = Part::new(start, end, superseded_bytes);
        Ok((Journal { file, part: Mutex::new(part) }, state))
    }

    /// Appends a record. A journal that cannot take it is broken from then on: the mount goes on, and ends with its daemon.
    pub fn append(&self, record: &Record) {
        let mut part = self.part.lock();
        if part.is_broken {
            return;
        }
        let bytes = framed(record);
        let appended = part.add(&self.file, &bytes).and_then(|()| {
            part.superseded_bytes += superseded_bytes(record, bytes.len());
            if part.is_to_be_rewritten() { self.rewrite(&mut part) } else { Ok(()) }
        });
        if let Err(error) = appended {
            part.is_broken = true;
            log::warn!("cannot record the state of the session, which ends with this daemon: {error}");
            let _ = self.file.write_all_at(BROKEN, 0);
        }
    }

    /// Writes what still counts behind the current part, and frees that.
    fn rewrite(&self, part: &mut Part) -> io::Result<()> {
        let mut bytes = Vec::new();
        for record in read(&self.file, part.start)?.state.records() {
            bytes.extend(framed(&record));
        }
        let length = bytes.len() as u64;
        if length > LIMIT_BYTES {
            return Err(io::Error::other("it has too many inodes and open files"));
        }
        let start = next_part(part.end);
        part.window = None;
        self.file.write_all_at(&bytes, start)?;
        // The kernel copies these few bytes as a whole, or not at all.
        self.file.write_all_at(&start.to_le_bytes(), START_AT)?;
        sys::free_range(&self.file, part.start, start - part.start)?;
        (part.start, part.end, part.superseded_bytes) = (start, start + length, 0);
        Ok(())
    }
}

/// Returns where the part after one that ends here begins. Zeros lie between them, at which a reader of the first part ends: a daemon that
/// dies before the header names the new part would otherwise read a piece of it as the end of the old one.
fn next_part(end: u64) -> u64 {
    (end + PREFIX_BYTES as u64).next_multiple_of(HEADER_BYTES)
}

/// Returns a record with its length and checksum.
fn framed(record: &Record) -> Vec<u8> {
    let mut bytes = vec![0; PREFIX_BYTES];
    record.write(&mut bytes);
    let (prefix, body) = bytes.split_at_mut(PREFIX_BYTES);
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
    let checksum = checksum(&length, body).to_le_bytes();
    prefix.copy_from_slice(&[length, checksum].concat());
    bytes
}

fn checksum(length: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(length);
    hasher.update(body);
    hasher.finalize()
}

/// Returns how many bytes may no longer count when a record comes: its own ones later, if another one takes its place, and those of an inode that
/// is forgotten. Most inodes are never forgotten, and a part that has nothing else is not rewritten.
fn superseded_bytes(record: &Record, length: usize) -> u64 {
    match record {
        Record::Inode { .. } => 0,
        Record::Forgotten { .. } => length as u64 + TYPICAL_INODE_BYTES,
        _ => length as u64,
    }
}

/// What is read from a part.
struct Records {
    /// What its complete records amount to.
    state: SessionState,
    /// Where the last complete one ends.
    end: u64,
    /// As [`Part::superseded_bytes`].
    superseded_bytes: u64,
}

/// Reads the records from `start` on. Fails at a record that this version does not know.
fn read(file: &File, start: u64) -> io::Result<Records> {
    let length = file.metadata()?.len().saturating_sub(start).min(4 * LIMIT_BYTES);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_exact_at(&mut bytes, start)?;
    let (mut state, mut superseded, mut rest) = (SessionState::default(), 0, bytes.as_slice());
    while let Some((bytes, after)) = first_complete(rest) {
        // A session without what this record says would be another one, so it must not be continued.
        let unknown = || io::Error::other("it has a record of another version of this program");
        let record = Record::read(bytes).ok_or_else(unknown)?;
        superseded += superseded_bytes(&record, bytes.len() + PREFIX_BYTES);
        state.apply(record);
        rest = after;
    }
    Ok(Records { state, end: start + length - rest.len() as u64, superseded_bytes: superseded })
}

/// Splits the bytes of the first record off; `None` if it is torn or missing.
fn first_complete(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (expected, rest) = rest.split_first_chunk::<4>()?;
    let (body, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    let is_complete = !body.is_empty() && checksum(length, body) == u32::from_le_bytes(*expected);
    is_complete.then_some((body, rest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::mount::journal::record::{Content, OpenRecord};

    fn empty() -> File {
        File::from(sys::memory_file(c"zarrfs-test").unwrap())
    }

    fn inode(number: u64, path: &str) -> Record {
        Record::Inode { number, kind: "array".into(), view: String::new(), path: path.into() }
    }

    fn opened(handle: u64, inode: u64) -> Record {
        let content = Content::Bytes(b"{}".to_vec());
        let (request, is_direct, is_passthrough, writing) = (0, true, false, None);
        Record::Opened(OpenRecord { handle, inode, request, is_direct, is_passthrough, writing, content })
    }

    #[test]
    fn a_journal_that_is_cut_anywhere_has_its_complete_records() {
        let file = empty();
        let journal = Journal::create(file.try_clone().unwrap()).unwrap();
        let records = [inode(2, "a"), opened(1, 2), inode(3, "b/c"), Record::Released { handle: 1 }];
        let mut ends = vec![HEADER_BYTES];
        for record in &records {
            journal.append(record);
            ends.push(journal.part.lock().end);
        }
        let last = *ends.last().unwrap();
        for length in HEADER_BYTES..=last {
            for is_damaged in [false, true] {
                let copy = empty();
                let mut bytes = vec![0; usize::try_from(length).unwrap()];
                file.read_exact_at(&mut bytes, 0).unwrap();
                if is_damaged && length > HEADER_BYTES {
                    *bytes.last_mut().unwrap() ^= 1;
                }
                copy.write_all_at(&bytes, 0).unwrap();
                let (_, state) = Journal::open(copy).unwrap();
                let whole = ends.iter().filter(|&&end| end <= length).count() - 1;
                let whole = if is_damaged && ends[whole] == length { whole.saturating_sub(1) } else { whole };
                let mut expected = SessionState::default();
                records[..whole].iter().for_each(|record| expected.apply(record.clone()));
                assert_eq!(state, expected, "{length} {is_damaged}");
            }
        }
    }

    /// The next part began where the old one ended if that was a multiple of 4096. The first records of a new part that was cut off by
    /// the end of the daemon then counted as the last of the old one: an inode was there again, and its lookups were not.
    #[test]
    fn a_new_part_that_is_not_named_yet_does_not_count() {
        let file = empty();
        let journal = Journal::create(file.try_clone().unwrap()).unwrap();
        let lookups = Record::Lookups { number: 2, count: 3 };
        journal.append(&inode(2, "a"));
        journal.append(&lookups);
        let used = journal.part.lock().end - HEADER_BYTES;
        let empty_path = framed(&inode(3, "")).len() as u64;
        journal.append(&inode(3, &"x".repeat((HEADER_BYTES - used - empty_path) as usize)));
        let end = journal.part.lock().end;
        assert_eq!(end, 2 * HEADER_BYTES);
        // The first record of the new part, whose second one is torn.
        file.write_all_at(&framed(&inode(2, "a")), next_part(end)).unwrap();
        let (_, state) = Journal::open(file).unwrap();
        assert_eq!(state.inodes.get(&2).map(|inode| inode.lookups), Some(3));
    }

    /// A record with a tag that this version does not know counted as torn. It was cut off with all that came after it, and the session went on
    /// without these inodes and handles.
    #[test]
    fn a_journal_with_an_unknown_record_is_refused() {
        let file = empty();
        let journal = Journal::create(file.try_clone().unwrap()).unwrap();
        journal.append(&inode(2, "a"));
        let end = journal.part.lock().end;
        let mut bytes = framed(&Record::Retired { number: 2 });
        bytes[PREFIX_BYTES] = u8::MAX;
        let (prefix, body) = bytes.split_at_mut(PREFIX_BYTES);
        let sum = checksum(&prefix[..4], body);
        prefix[4..].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&bytes, end).unwrap();
        let length = file.metadata().unwrap().len();
        let error = Journal::open(file.try_clone().unwrap()).err().unwrap().to_string();
        assert!(error.contains("another version"), "{error}");
        assert_eq!(file.metadata().unwrap().len(), length, "it is left to the version that wrote it");
    }

    /// A listing of many files made a daemon read its journal at each doubling, and drop nothing from it.
    #[test]
    fn a_journal_of_inodes_is_not_rewritten_before_they_are_forgotten() {
        let file = empty();
        let journal = Journal::create(file.try_clone().unwrap()).unwrap();
        let numbers = 2..60_000;
        for number in numbers.clone() {
            journal.append(&inode(number, &format!("group/array-{number}")));
            journal.append(&Record::Lookups { number, count: 1 });
        }
        assert_eq!(journal.part.lock().start, HEADER_BYTES);
        assert!(journal.part.lock().end > 3 * SMALLEST_REWRITE);
        drop(journal);
        let (journal, state) = Journal::open(file.try_clone().unwrap()).unwrap();
        assert_eq!(state.inodes.len(), numbers.clone().count());
        for number in numbers {
            journal.append(&Record::Forgotten { number, count: 1 });
        }
        let part = journal.part.lock();
        assert!(part.start > HEADER_BYTES && part.end - part.start < 3 * SMALLEST_REWRITE);
    }

    #[test]
    fn a_journal_stays_short_and_is_read_after_any_number_of_opens() {
        let file = empty();
        let journal = Journal::create(file.try_clone().unwrap()).unwrap();
        journal.append(&inode(2, "a"));
        journal.append(&opened(1, 2));
        for handle in 2..100_000 {
            journal.append(&opened(handle, 2));
            journal.append(&Record::Released { handle });
        }
        drop(journal);
        let blocks = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap());
        assert!(blocks * 512 < 4 * SMALLEST_REWRITE, "{blocks}");
        let (journal, state) = Journal::open(file.try_clone().unwrap()).unwrap();
        assert_eq!(state.open.keys().collect::<Vec<_>>(), [&1]);
        assert_eq!((state.inodes.len(), state.last_handle), (1, 99_999));
        journal.append(&opened(100_000, 2));
        let (_, state) = Journal::open(file.try_clone().unwrap()).unwrap();
        assert_eq!(state.open.len(), 2);
        file.write_all_at(BROKEN, 0).unwrap();
        assert!(Journal::open(file).err().unwrap().to_string().contains("of another kind"));
    }
}
