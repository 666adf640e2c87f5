//! The memory of the log: segments of equal length in a file, used one after the other and freed in the same order.
//!
//! Segments are freed in order, so a record that voids an earlier one is never freed before that one.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::sys::{self, SharedMemory};

/// The name of the format.
const FORMAT: &[u8; 16] = b"zarrfs unstored1";
/// Before the first segment: the name of the format, then the length of a segment.
const FILE_HEADER_BYTES: u64 = 4096;
/// At the start of a segment: its number, 0 if it is free.
pub const SEGMENT_HEADER_BYTES: u64 = 64;
/// The shortest and the longest segment.
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=8 << 20;
/// A segment has this part of the limit.
const SEGMENTS_IN_LIMIT: u64 = 16;
/// This much free memory is kept for the next segments, because fresh memory costs several times as much as memory that was used before.
const KEPT_BYTES: u64 = 32 << 20;

/// A part of the log. It is kept as long as something refers to it, or to an earlier one.
#[derive(Debug)]
pub struct Segment {
    /// Where it is in the file, counted in segments.
    index: u64,
    number: u64,
}

impl Segment {
    /// Returns its number: later segments have higher ones, the first one is 1.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// The file, and how it is divided.
pub struct SegmentFile {
    file: File,
    segment_bytes: u64,
}

impl SegmentFile {
    /// Begins an empty file, for a log of about this many bytes.
    pub fn create(file: File, limit_bytes: u64) -> io::Result<Self> {
        let part = (limit_bytes / SEGMENTS_IN_LIMIT).clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end());
        let segment_bytes = part.next_multiple_of(4096);
        file.write_all_at(&segment_bytes.to_le_bytes(), FORMAT.len() as u64)?;
        file.write_all_at(FORMAT, 0)?;
        Ok(SegmentFile { file, segment_bytes })
    }

    /// Opens the file of a former daemon. Fails if another version of this program has made it, which has another format.
    pub fn open(file: File) -> io::Result<Self> {
        let mut header = [0; 24];
        file.read_exact_at(&mut header, 0)?;
        let (format, length) = header.split_at(FORMAT.len());
        let segment_bytes = length.try_into().map(u64::from_le_bytes).unwrap_or_default();
        if format != FORMAT || !SEGMENT_BYTES.contains(&segment_bytes) || !segment_bytes.is_multiple_of(4096)
        {
            let shown = String::from_utf8_lossy(format).into_owned();
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("'{shown}' is unknown")));
        }
        Ok(SegmentFile { file, segment_bytes })
    }

    /// Returns the file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the length of a segment.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Returns where a byte of a segment is in the file.
    pub fn place(&self, segment: &Segment, at: u64) -> u64 {
        self.place_of(segment.index) + at
    }

    /// Maps a segment. The bytes before its first record are taken.
    fn map(&self, index: u64) -> io::Result<SharedMemory> {
        let length = usize::try_from(self.segment_bytes).map_err(io::Error::other)?;
        SharedMemory::map(&self.file, self.place_of(index), length)
    }

    fn place_of(&self, index: u64) -> u64 {
        FILE_HEADER_BYTES + index * self.segment_bytes
    }

    /// Returns the number of the record at a place of a segment. Later records have higher numbers.
    pub fn record_number(&self, segment: &Segment, at: u64) -> u64 {
        segment.number.saturating_mul(self.segment_bytes).saturating_add(at)
    }
}

/// A segment in use.
struct UsedSegment {
    segment: Arc<Segment>,
    /// Its memory, if records were added by this daemon, and if it is not the one to which they are added.
    memory: Option<SharedMemory>,
}

/// A place with memory that is free.
struct SparePlace {
    index: u64,
    memory: Option<SharedMemory>,
}

/// The segments in use, and the memory of those that are free.
pub struct Segments {
    used: VecDeque<UsedSegment>,
    last_number: u64,
    /// Places with memory.
    spare: Vec<SparePlace>,
    /// Places without memory.
    empty: Vec<u64>,
    /// How many places the file has.
    places: u64,
}

impl Segments {
    /// Returns the segments of an empty file.
    pub fn none() -> Self {
        Segments { used: VecDeque::new(), last_number: 0, spare: Vec::new(), empty: Vec::new(), places: 0 }
    }

    /// Finds the segments that a former daemon has used.
    pub fn find(file: &SegmentFile) -> io::Result<Self> {
        let length = file.file.metadata()?.len();
        let places = length.saturating_sub(FILE_HEADER_BYTES).div_ceil(file.segment_bytes);
        let mut found = Segments { places, ..Segments::none() };
        let mut used = Vec::new();
        for index in 0..places {
            let mut number = [0; 8];
            file.file.read_exact_at(&mut number, file.place_of(index))?;
            match u64::from_le_bytes(number) {
                0 => found.spare.push(SparePlace { index, memory: None }),
                number => {
                    used.push(UsedSegment { segment: Arc::new(Segment { index, number }), memory: None });
                }
            }
        }
        used.sort_unstable_by_key(|used| used.segment.number);
        found.last_number = used.last().map_or(0, |used| used.segment.number);
        found.used = used.into();
        Ok(found)
    }

    /// Returns the segments in use, in order.
    pub fn used(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.used.iter().map(|used| &used.segment)
    }

    /// Returns the number of the first of them.
    pub fn first_number(&self) -> Option<u64> {
        self.used.front().map(|used| used.segment.number)
    }

    /// Returns how many segments are in use.
    pub fn count(&self) -> u64 {
        self.used.len() as u64
    }

    /// Begins the next segment, after the one to which records were added until now. Returns it with the memory for its records.
    pub fn begin(
        &mut self,
        file: &SegmentFile,
        former: Option<SharedMemory>,
    ) -> io::Result<(Arc<Segment>, SharedMemory)> {
        if let Some(last) = self.used.back_mut()
            && former.is_some()
        {
            last.memory = former;
        }
        let spare = self.spare.pop();
        let index =
            spare.as_ref().map(|spare| spare.index).or_else(|| self.empty.pop()).unwrap_or(self.places);
        let begun = self.begin_at(file, index, spare.and_then(|spare| spare.memory));
        if begun.is_err() && index < self.places {
            self.empty.push(index);
        }
        begun
    }

    fn begin_at(
        &mut self,
        file: &SegmentFile,
        index: u64,
        memory: Option<SharedMemory>,
    ) -> io::Result<(Arc<Segment>, SharedMemory)> {
        if index == self.places {
            file.file.set_len(file.place_of(index + 1))?;
            self.places += 1;
        }
        let mut memory = memory.map_or_else(|| file.map(index), Ok)?;
        memory.take(SEGMENT_HEADER_BYTES as usize)?;
        let number = self.last_number + 1;
        // The bytes of an earlier segment in this place name that one.
        file.file.write_all_at(&number.to_le_bytes(), file.place_of(index))?;
        self.last_number = number;
        let segment = Arc::new(Segment { index, number });
        self.used.push_back(UsedSegment { segment: Arc::clone(&segment), memory: None });
        Ok((segment, memory))
    }

    /// Frees the first segments that nothing refers to. The last one stays, because records are added to it.
    pub fn free(&mut self, file: &SegmentFile) {
        while self.used.len() > 1
            && self.used.front().is_some_and(|first| Arc::strong_count(&first.segment) == 1)
        {
            let Some(UsedSegment { segment, memory }) = self.used.pop_front() else { return };
            let index = segment.index;
            // A failure does no harm: a daemon that finds the segment only reads bytes that are in the store already.
            let _ = file.file.write_all_at(&0u64.to_le_bytes(), file.place_of(index));
            if (self.spare.len() as u64 + 1) * file.segment_bytes <= KEPT_BYTES {
                // Records hold the segment as long as they are written, so all their bytes are given back.
                let memory = memory.and_then(|mut memory| memory.rewind().then_some(memory));
                self.spare.push(SparePlace { index, memory });
            } else {
                drop(memory);
                let _ = sys::free_range(&file.file, file.place_of(index), file.segment_bytes);
                self.empty.push(index);
            }
        }
    }
}
