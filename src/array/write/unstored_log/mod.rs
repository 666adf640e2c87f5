//! The log of unstored bytes: what programs have written and the store does not have yet, in memory that outlives the daemon.
//!
//! The memory is an unnamed file (memfd_create(2)) that a keeper holds. Each write adds a record before its reply. If the daemon
//! dies, the next one makes the dirty chunks again from the records (`replay.rs`), so nothing that write(2) accepted is lost.
//! `record.rs` has the format, `segments.rs` the memory, `former.rs` what a daemon finds, and `recorder.rs` what one array records.
//! If only synced bytes are to be kept, an array with other bytes is marked instead (`mark.rs`).
//! Uses `dirty.rs` and `resources.rs`, `store` for the identity of a folder, and `sys`.
//!
//! Records are freed in order. A dirty chunk refers to its first record, so all later ones stay. When the log is longer than its
//! limit, the chunks with the oldest records are recorded again as they are now ([`UnstoredLog::old_segments`]), so the log is
//! never much larger than the dirty chunks.
//!
//! Invariants: a record is complete before the write has its reply; records of one chunk are in the order in which they changed it; after
//! a chunk was stored, a record says so before the chunk leaves the dirty ones; a record that voids others is later than these.

mod former;
mod mark;
mod record;
pub mod recorder;
mod replay;
mod segments;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::array::sync::Mutex;
use crate::array::write::unstored_log::record::{CHECKSUM_AT, HEADER_BYTES};
use crate::array::write::unstored_log::segments::{SegmentFile, Segments};
use crate::error::{Error, Result};
use crate::sys::{SharedBytes, SharedMemory};

pub use former::{ArrayDescription, FormerArray, FormerRecord};
pub use mark::{KeptBytes, MarkedWrite, UnstoredMark};
pub use record::{Header, Kind};
pub use segments::Segment;

/// A record that does not fit into the rest of a segment begins there only if at least this much room is left.
const MIN_ROOM_BYTES: u64 = 64 << 10;
/// An array with a longer description cannot be recorded.
const MAX_DESCRIPTION_BYTES: usize = 256 << 10;
/// The limit is at least this many segments.
const MIN_SEGMENTS: u64 = 4;
/// A log that is this many times as long as its limit accepts no more records. It becomes that long only if the store hangs for an array.
const MOST_LIMITS: u64 = 8;

/// The log of one session.
pub struct UnstoredLog {
    file: SegmentFile,
    state: Mutex<LogState>,
    /// If the log is longer than this, and more than twice as long as the dirty bytes, chunks with old records are recorded again.
    limit_bytes: u64,
}

struct LogState {
    segments: Segments,
    current: Option<CurrentSegment>,
    /// The numbers of records that are not in the dirty chunks yet.
    under_way: BTreeSet<u64>,
    last_array: u64,
    /// The arrays of a former daemon that were not opened yet.
    former: BTreeMap<u64, FormerArray>,
}

/// The segment to which records are added.
struct CurrentSegment {
    segment: Arc<Segment>,
    /// The room for records.
    memory: SharedMemory,
    /// The arrays that are described in it.
    described: HashSet<u64>,
}

/// A record without its payload.
struct BegunRecord {
    number: u64,
    bytes: SharedBytes,
    end_of_header: [u8; 8],
}

impl BegunRecord {
    /// Writes the payload, and then marks the record as complete.
    fn complete(mut self, payload: &[u8]) -> io::Result<()> {
        let (_, room) = self.bytes.split_at_mut(HEADER_BYTES as usize);
        // The room is as long as the payload, and padded.
        room.get_mut(..payload.len()).ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(payload);
        self.bytes.publish(CHECKSUM_AT, record::as_complete(self.end_of_header))
    }
}

impl LogState {
    /// Returns the current segment if it has room for this many bytes, and otherwise begins the next one.
    fn with_room(&mut self, file: &SegmentFile, bytes: u64) -> io::Result<&mut CurrentSegment> {
        if self.current.as_ref().is_none_or(|current| bytes > current.remaining()) {
            let former = self.current.take().map(|former| former.memory);
            let (segment, memory) = self.segments.begin(file, former)?;
            self.current = Some(CurrentSegment { segment, memory, described: HashSet::new() });
            self.segments.free(file);
        }
        self.current.as_mut().ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }
}

impl CurrentSegment {
    /// Returns how many bytes of records have room.
    fn remaining(&self) -> u64 {
        self.memory.remaining() as u64
    }

    /// Begins a record, which has room in this segment. The next one may begin before this one has its payload.
    fn begin(&mut self, file: &SegmentFile, header: Header) -> io::Result<BegunRecord> {
        let at = file.segment_bytes() - self.remaining();
        let length = HEADER_BYTES + header.length.next_multiple_of(HEADER_BYTES);
        let mut bytes = self.memory.take(usize::try_from(length).map_err(io::Error::other)?)?;
        let (start, end) = header.to_bytes(self.segment.number());
        // The bytes of an earlier record may be here, which was complete. Until the new checksum is there, the header is not valid.
        bytes.get_mut(..CHECKSUM_AT).ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(&start);
        bytes.publish(CHECKSUM_AT, end)?;
        Ok(BegunRecord { number: file.record_number(&self.segment, at), bytes, end_of_header: end })
    }
}

/// A record that was added. As long as this value exists, the record counts as under way: its bytes may not be in a dirty chunk yet.
pub struct Recorded {
    log: Arc<UnstoredLog>,
    segment: Arc<Segment>,
    first_number: u64,
    last_number: u64,
}

impl Recorded {
    /// Returns the segment of its first part, which keeps it in the log.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Returns the number of its last part.
    pub fn last_number(&self) -> u64 {
        self.last_number
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.log.state.lock().under_way.remove(&self.first_number);
    }
}

impl UnstoredLog {
    /// Begins a log in an empty file. It may have about `limit_bytes`.
    pub fn create(file: File, limit_bytes: u64) -> io::Result<Self> {
        Ok(Self::with(
            SegmentFile::create(file, limit_bytes)?,
            Segments::none(),
            BTreeMap::new(),
            limit_bytes,
        ))
    }

    /// Opens the log of a former daemon.
    pub fn open(file: File, limit_bytes: u64) -> Result<Self> {
        let opened = SegmentFile::open(file).and_then(|file| {
            let segments = Segments::find(&file)?;
            let used: Vec<_> = segments.used().cloned().collect();
            let former = former::read(&file, &used)?;
            Ok(Self::with(file, segments, former, limit_bytes))
        });
        opened.map_err(|error| Error::Usage(format!("cannot read what was written and not stored: {error}")))
    }

    fn with(
        file: SegmentFile,
        segments: Segments,
        former: BTreeMap<u64, FormerArray>,
        limit_bytes: u64,
    ) -> Self {
        let last_array = former.keys().next_back().copied().unwrap_or(0);
        let state = LogState { segments, current: None, under_way: BTreeSet::new(), last_array, former };
        let limit_bytes = limit_bytes.max(MIN_SEGMENTS * file.segment_bytes());
        UnstoredLog { file, state: Mutex::new(state), limit_bytes }
    }

    /// Returns the file, for the payloads of a former daemon.
    pub fn file(&self) -> &File {
        self.file.file()
    }

    /// Returns a number for an array that has none in the log.
    pub fn new_array(&self) -> u64 {
        let mut state = self.state.lock();
        state.last_array += 1;
        state.last_array
    }

    /// Adds a record with this payload. `describe` describes the array, once in each segment.
    pub fn add(
        self: &Arc<Self>,
        header: Header,
        payload: &[u8],
        describe: &dyn Fn() -> Result<ArrayDescription>,
    ) -> io::Result<Recorded> {
        let mut added: Option<Recorded> = None;
        let mut rest = payload;
        loop {
            let place = header.place + (payload.len() - rest.len()) as u64;
            let part = self.add_part(Header { place, ..header }, &mut rest, describe)?;
            let number = part.last_number;
            match added.as_mut() {
                None => added = Some(part),
                Some(added) => added.last_number = number,
            }
            if rest.is_empty() {
                return added.ok_or_else(|| io::ErrorKind::InvalidInput.into());
            }
        }
    }

    /// Adds a record of as much of the payload as fits into one segment, and removes that part from `rest`.
    fn add_part(
        self: &Arc<Self>,
        header: Header,
        rest: &mut &[u8],
        describe: &dyn Fn() -> Result<ArrayDescription>,
    ) -> io::Result<Recorded> {
        let file = &self.file;
        let mut state = self.state.lock();
        if state.segments.count() * file.segment_bytes() > MOST_LIMITS * self.limit_bytes {
            return Err(io::Error::other("too much is written that is not stored"));
        }
        let wanted = HEADER_BYTES + (rest.len() as u64).min(MIN_ROOM_BYTES);
        let current = state.with_room(file, wanted)?;
        if !current.described.contains(&header.array) {
            let text = describe().map_err(io::Error::other)?.to_text();
            if text.len() > MAX_DESCRIPTION_BYTES {
                return Err(io::Error::other("its metadata is too long to record what is written"));
            }
            let length = text.len() as u64;
            let needed = HEADER_BYTES + length.next_multiple_of(HEADER_BYTES) + wanted;
            let description = Header { length, ..Header::without_payload(Kind::Array, header.array, 0, 0) };
            let current = state.with_room(file, needed)?;
            current.begin(file, description)?.complete(text.as_bytes())?;
            current.described.insert(header.array);
        }
        let current = state.with_room(file, wanted)?;
        let room = current.remaining() - HEADER_BYTES;
        let length = usize::try_from(room).unwrap_or(usize::MAX).min(rest.len());
        let (payload, after) = rest.split_at(length);
        let header = Header { length: length as u64, ..header };
        let record = current.begin(file, header)?;
        let (segment, number) = (Arc::clone(&current.segment), record.number);
        state.under_way.insert(number);
        // A long payload is written after the lock is released. A reader of the log can skip it, since the header has its length.
        drop(state);
        let recorded = Recorded { log: Arc::clone(self), segment, first_number: number, last_number: number };
        record.complete(payload)?;
        *rest = after;
        Ok(recorded)
    }

    /// Returns a record of a former daemon as if it was added now. It does not count as under way.
    pub fn recorded(self: &Arc<Self>, former: &FormerRecord) -> Recorded {
        let (segment, number) = (Arc::clone(&former.segment), former.number);
        Recorded { log: Arc::clone(self), segment, first_number: number, last_number: number }
    }

    /// Returns the last record of a chunk that is in the store: `last`, or the one before the first that is under way.
    pub fn last_stored(&self, last: u64) -> u64 {
        let state = self.state.lock();
        state.under_way.first().map_or(last, |&first| last.min(first.saturating_sub(1)))
    }

    /// Returns the last record before the first one that is under way.
    pub fn last_settled(&self) -> u64 {
        self.last_stored(u64::MAX)
    }

    /// Frees the records at the start that no dirty chunk refers to.
    pub fn free(&self) {
        self.state.lock().segments.free(&self.file);
    }

    /// Returns the number of a segment such that chunks with records in earlier segments are to be recorded again; `None` if the
    /// log is short enough, or if most of it is needed.
    pub fn old_segments(&self, dirty_bytes: u64) -> Option<u64> {
        let state = self.state.lock();
        let bytes = state.segments.count() * self.file.segment_bytes();
        let is_long = bytes > self.limit_bytes && bytes / 2 > dirty_bytes + 2 * self.file.segment_bytes();
        is_long
            .then(|| state.segments.first_number().map(|first| first + state.segments.count() / 2))
            .flatten()
    }

    // --- what a former daemon has left ---

    /// Returns the paths of arrays with records of a former daemon.
    pub fn former_paths(&self) -> Vec<String> {
        self.state.lock().former.values().map(|array| array.description.path.clone()).collect()
    }

    /// Returns whether a former daemon has left records of an array at this path.
    pub fn has_former(&self, path: &str) -> bool {
        let state = self.state.lock();
        state.former.values().any(|array| array.description.path == path)
    }

    /// Returns the records that a former daemon has left of the arrays at this path, the oldest array first.
    pub fn former(&self, path: &str) -> Vec<FormerArray> {
        let state = self.state.lock();
        state.former.values().filter(|array| array.description.path == path).cloned().collect()
    }

    /// Makes the records of an array void, because they can no longer be stored, or were recorded again: later daemons ignore them.
    pub fn end_former(self: &Arc<Self>, array: &FormerArray) {
        let ended = Header::without_payload(Kind::Ended, array.number, 0, 0);
        if let Err(error) = self.add(ended, &[], &|| Ok(array.description.clone())) {
            log::warn!(
                "{}: cannot record that what was written before is void: {error}",
                array.description.path
            );
        }
        self.forget_former(array.number);
    }

    /// Forgets the records of an array, which the dirty chunks have now.
    pub fn forget_former(&self, number: u64) {
        // What the records refer to is freed outside of the lock.
        let forgotten = self.state.lock().former.remove(&number);
        drop(forgotten);
        self.free();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::array::write::unstored_log::record::COMPLETE_AT;
    use crate::array::write::unstored_log::segments::SEGMENT_HEADER_BYTES;
    use crate::sys;

    const LIMIT_BYTES: u64 = 16 << 20;

    fn memory() -> File {
        File::from(sys::memory_file(c"zarrfs-test").unwrap())
    }

    fn describe() -> Result<ArrayDescription> {
        Ok(ArrayDescription { path: "a".to_owned(), form: "uint8".to_owned(), folder: None })
    }

    fn bytes_at(place: u64) -> Header {
        Header::without_payload(Kind::Bytes, 1, 0, place)
    }

    /// Returns the kinds and payloads of the records of an array in a copy of the first `length` bytes of a file.
    fn found(file: &File, length: u64, array: u64) -> Vec<(Kind, u64, Vec<u8>)> {
        let copy = memory();
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        copy.write_all_at(&bytes, 0).unwrap();
        copy.set_len(file.metadata().unwrap().len()).unwrap();
        let log = UnstoredLog::open(copy, LIMIT_BYTES).unwrap();
        let former = log.former("a").into_iter().find(|former| former.number == array);
        let records = former.map(|former| former.records).unwrap_or_default();
        let payload = |record: &former::FormerRecord| {
            let mut payload = vec![0; record.header.length as usize];
            record.read_payload(log.file(), 0, &mut payload).unwrap();
            (record.header.kind, record.header.place, payload)
        };
        records.iter().map(payload).collect()
    }

    #[test]
    fn a_log_that_is_cut_anywhere_has_its_complete_records() {
        let file = memory();
        let log = Arc::new(UnstoredLog::create(file.try_clone().unwrap(), LIMIT_BYTES).unwrap());
        let payloads = [vec![1; 10], vec![], vec![3; 64], vec![2; 5000]];
        let mut starts = Vec::new();
        let mut kept = Vec::new();
        let mut at = 4096 + SEGMENT_HEADER_BYTES;
        at += HEADER_BYTES + (describe().unwrap().to_text().len() as u64).next_multiple_of(HEADER_BYTES);
        for payload in &payloads {
            let header = Header { length: 0, ..bytes_at(7) };
            kept.push(log.add(header, payload, &describe).unwrap());
            starts.push(at);
            at += HEADER_BYTES + (payload.len() as u64).next_multiple_of(HEADER_BYTES);
        }
        for (number, start) in starts.into_iter().enumerate() {
            for length in start..start + COMPLETE_AT {
                assert_eq!(found(&file, length, 1).len(), number, "{length}");
            }
        }
        let all = found(&file, at, 1);
        let expected: Vec<_> = payloads.iter().map(|payload| (Kind::Bytes, 7, payload.clone())).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn an_incomplete_record_hides_no_later_one() {
        let file = memory();
        let log = Arc::new(UnstoredLog::create(file.try_clone().unwrap(), LIMIT_BYTES).unwrap());
        let first = log.add(bytes_at(0), &[1; 100_000], &describe).unwrap();
        let second = log.add(bytes_at(5), b"second", &describe).unwrap();
        let header_at = log.file.place(first.segment(), first.last_number() - log.file.segment_bytes());
        file.write_all_at(&0u32.to_le_bytes(), header_at + COMPLETE_AT).unwrap();
        assert_eq!(found(&file, file.metadata().unwrap().len(), 1), [(Kind::Bytes, 5, b"second".to_vec())]);
        drop((first, second));
    }

    #[test]
    fn long_payloads_go_on_in_the_next_segment_and_segments_are_freed_in_order() {
        let file = memory();
        let log = Arc::new(UnstoredLog::create(file.try_clone().unwrap(), LIMIT_BYTES).unwrap());
        let payload: Vec<u8> = (0..5 << 20).map(|i: u32| (i / 1000) as u8).collect();
        let long = log.add(bytes_at(3), &payload, &describe).unwrap();
        let length = file.metadata().unwrap().len();
        let mut place = 3;
        for (_, at, part) in found(&file, length, 1) {
            assert_eq!((at, &part[..]), (place, &payload[(place - 3) as usize..][..part.len()]));
            place += part.len() as u64;
        }
        assert_eq!(place, 3 + payload.len() as u64);
        let segment = Arc::clone(long.segment());
        drop(long);
        for _ in 0..16 {
            drop(log.add(bytes_at(0), &payload, &describe).unwrap());
        }
        assert!(log.state.lock().segments.count() > 80, "the first one is still needed");
        assert!(log.old_segments(0).is_some_and(|old| old > segment.number()));
        drop(segment);
        log.free();
        assert_eq!(log.state.lock().segments.count(), 1);
        let blocks = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap());
        assert!(blocks * 512 < 40 << 20, "{blocks}");
        let before = file.metadata().unwrap().len();
        drop(log.add(bytes_at(0), &payload, &describe).unwrap());
        assert_eq!(file.metadata().unwrap().len(), before, "free segments are used again");
        assert!(log.old_segments(0).is_none());
    }

    /// Adds records, each of which fills a segment and is kept, until the log has this many segments.
    fn fill(log: &Arc<UnstoredLog>, segments: u64, kept: &mut Vec<Recorded>) {
        while log.state.lock().segments.count() < segments {
            let payload = vec![7; log.file.segment_bytes() as usize * 3 / 4];
            kept.push(log.add(bytes_at(0), &payload, &describe).unwrap());
        }
    }

    #[test]
    fn chunks_are_recorded_again_where_the_log_is_longer_than_its_limit_and_than_twice_what_is_dirty() {
        let log = Arc::new(UnstoredLog::create(memory(), LIMIT_BYTES).unwrap());
        let (segment_bytes, mut kept) = (log.file.segment_bytes(), Vec::new());
        let of_limit = LIMIT_BYTES / segment_bytes;
        fill(&log, of_limit, &mut kept);
        assert_eq!(log.old_segments(0), None, "it is as long as it may be");
        fill(&log, of_limit + 1, &mut kept);
        let count = of_limit + 1;
        let first = kept.first().unwrap().segment().number();
        assert_eq!(log.old_segments(0), Some(first + count / 2), "the older half");
        let most = count * segment_bytes / 2 - 2 * segment_bytes;
        assert_eq!(log.old_segments(most), None, "most of it is needed");
        assert_eq!(log.old_segments(most - 1), Some(first + count / 2));
        // The limit of a small log has at least these segments.
        let small = Arc::new(UnstoredLog::create(memory(), 1).unwrap());
        let mut kept = Vec::new();
        fill(&small, MIN_SEGMENTS, &mut kept);
        assert_eq!(small.old_segments(0), None);
        fill(&small, MIN_SEGMENTS + 3, &mut kept);
        assert!(small.old_segments(0).is_some());
    }

    #[test]
    fn a_log_that_is_eight_times_too_long_takes_no_more_until_something_is_stored() {
        let log = Arc::new(UnstoredLog::create(memory(), 1).unwrap());
        let mut kept = Vec::new();
        fill(&log, MOST_LIMITS * MIN_SEGMENTS + 1, &mut kept);
        let refused = log.add(bytes_at(0), &[1], &describe).err().unwrap();
        assert!(refused.to_string().contains("too much is written that is not stored"), "{refused}");
        // The second record begins in the first segment, too.
        kept.drain(..2);
        log.free();
        drop(log.add(bytes_at(0), &[1], &describe).unwrap());
    }

    #[test]
    fn another_daemon_finds_what_counts() {
        let file = memory();
        let log = Arc::new(UnstoredLog::create(file.try_clone().unwrap(), LIMIT_BYTES).unwrap());
        let (first, second) = (log.new_array(), log.new_array());
        let of = |array| move |kind, chunk, place| Header::without_payload(kind, array, chunk, place);
        let add = |header, payload: &[u8]| log.add(header, payload, &describe).unwrap();
        let written = add(of(first)(Kind::Bytes, 0, 0), b"abc");
        let number = log.last_stored(written.last_number());
        assert!(number < written.last_number(), "it is under way");
        let number = written.last_number();
        drop(written);
        assert_eq!(log.last_stored(number), number);
        drop(add(of(first)(Kind::Stored, 4, number), b""));
        drop(add(of(second)(Kind::Bytes, 0, 0), b"void"));
        drop(add(of(second)(Kind::Ended, 0, 0), b""));
        let copy = file.try_clone().unwrap();
        let next = UnstoredLog::open(copy, LIMIT_BYTES).unwrap();
        assert_eq!(next.former_paths(), ["a"]);
        let former = next.former("a").remove(0);
        assert_eq!((former.number, former.description.clone()), (first, describe().unwrap()));
        assert_eq!(former.stored().into_iter().collect::<Vec<_>>(), [(4, number)]);
        assert_eq!(next.new_array(), 2);
        next.forget_former(first);
        assert!(next.former("a").is_empty());
        file.write_all_at(b"zarrfs unstored9", 0).unwrap();
        let error = UnstoredLog::open(file, LIMIT_BYTES).err().unwrap();
        assert!(error.to_string().contains("'zarrfs unstored9' is unknown"), "{error}");
    }
}
