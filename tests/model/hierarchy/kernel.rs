//! What the kernel does with the page cache between a program and the file system, in its own time: a write fills pages
//! before it is sent, a read into the page cache is answered later, an open waits until pages are dropped.
//!
//! A page is one byte here. As in the kernel, one write of a file at most is between its pages and its answer, since it holds
//! the inode's lock; a page that is being read is locked; a drop waits for locked pages.

use std::ops::Range;

use crate::support::handles::Handles;
use zarrfs::cancellation::Cancellation;
use zarrfs::mount::fs::page_cache::page_drops::{PageDrop, PageRead};

use super::files::{Model, Open};

/// What the kernel is at with one file.
#[derive(Default)]
pub struct Kernel {
    /// A write that has filled its pages and was not sent yet.
    filled: Option<Fill>,
    reads: Vec<Read>,
    /// Opens that are not answered yet.
    opening: Vec<Open>,
}

struct Fill {
    handle: u64,
    offset: usize,
    data: Vec<u8>,
}

struct Read {
    range: Range<usize>,
    bytes: Vec<u8>,
    /// Kept until the kernel has the answer.
    _unanswered: Option<PageRead>,
}

impl Model {
    /// Writes through the page cache, up to the moment before the write is sent.
    pub fn fill(&mut self, slot: usize, offset: usize, data: &[u8]) {
        let open = self.open[slot];
        self.send(open.file);
        let file = &mut self.files[open.file];
        let room = file.bytes.len().saturating_sub(offset).min(data.len());
        if !open.writes || open.is_direct || open.appends || room == 0 {
            return;
        }
        let mut data = data[..room].to_vec();
        if file.case.is_bool() {
            data.iter_mut().for_each(|byte| *byte &= 1);
        }
        let range = offset..offset + room;
        self.end_reads(open.file, &range);
        let file = &mut self.files[open.file];
        file.cached[range].iter_mut().zip(&data).for_each(|(cached, &byte)| *cached = Some(byte));
        file.kernel.filled = Some(Fill { handle: open.handle, offset, data });
    }

    /// Sends what was filled, and has it answered. From then on no page of the range is from before.
    pub fn send(&mut self, file: usize) {
        let Some(Fill { handle, offset, data }) = self.files[file].kernel.filled.take() else { return };
        let range = offset..offset + data.len();
        let gap = self.gap(file, offset);
        let mut written = self.put(file, handle, offset, &data, false);
        if written == Err(libc::ENOSPC) && gap.is_some() {
            assert!(self.fails());
            self.store.set(false, false);
            self.drop_gap(file, offset);
            written = self.put(file, handle, offset, &data, false);
        }
        if let Err(code) = written {
            assert!(self.fails() && code == libc::ENOSPC, "write: {code}");
            // The filled pages are outdated now.
            self.files[file].cached[range].fill(None);
            return;
        }
        let cached = self.files[file].cached.clone();
        self.close_gap(file, offset, false);
        self.files[file].record(offset, &data);
        self.files[file].cached = cached;
        self.advance(file, offset, offset + data.len());
        let known = &self.files[file];
        for at in gap.map_or(range.start, |gap| gap.start)..range.end {
            let cached = known.cached[at];
            let is_written = cached.is_none_or(|cached| cached == known.bytes[at]);
            assert!(is_written, "the page cache has {cached:?} for {} at byte {at}", known.bytes[at]);
        }
    }

    /// Begins a read into the page cache of what it lacks from there on; the answer is not taken yet.
    pub fn begin_read(&mut self, slot: usize, offset: usize, length: usize) {
        let open = self.open[slot];
        let file = &self.files[open.file];
        let is_free = |at: &usize| {
            file.cached[*at].is_none() && !file.kernel.reads.iter().any(|read| read.range.contains(at))
        };
        let end = (offset + length).min(file.shown());
        let Some(start) = (offset..end).find(is_free) else { return };
        let end = (start..end).find(|at| !is_free(at)).unwrap_or(end);
        if open.is_direct {
            return;
        }
        let length = (end - start) as u32;
        let unanswered = self.fs.record_page_read(open.handle, start as u64, length.into());
        let mut buffer = Default::default();
        let bytes = self
            .fs
            .read(open.handle, start as u64, length, &mut buffer, &Cancellation::never())
            .unwrap()
            .to_vec();
        let read = Read { range: start..end, bytes, _unanswered: unanswered };
        self.files[open.file].kernel.reads.push(read);
    }

    /// Takes the answers to reads of a range, as the kernel does: the pages are there, and no longer locked.
    pub fn end_reads(&mut self, file: usize, range: &Range<usize>) {
        let file = &mut self.files[file];
        let meets = |read: &mut Read| read.range.start < range.end && range.start < read.range.end;
        for read in file.kernel.reads.extract_if(.., meets) {
            file.cached[read.range]
                .iter_mut()
                .zip(read.bytes)
                .for_each(|(cached, byte)| *cached = Some(byte));
        }
    }

    pub(super) fn drop_pages(&mut self, file: usize, drop: PageDrop) {
        let all = 0..self.files[file].cached.len();
        // The kernel has nothing of the part by which a file has just grown.
        let within =
            |range: Range<u64>| (range.start as usize).min(all.end)..(range.end as usize).min(all.end);
        let range = drop.range.clone().map_or(all.clone(), within);
        self.end_reads(file, &range);
        self.files[file].cached[range].fill(None);
        drop.done();
    }

    /// Begins an open with a thread that drops all pages before it goes on.
    pub(super) fn wait_to_open(&mut self, open: Open) {
        self.files[open.file].kernel.opening.push(open);
    }

    /// Answers the opens of a file that wait.
    pub fn answer_opens(&mut self, file: usize) {
        for open in std::mem::take(&mut self.files[file].kernel.opening) {
            self.end_reads(file, &(0..usize::MAX));
            self.files[file].cached.fill(None);
            self.is_open(open);
        }
    }

    /// Lets all that is on its way arrive, as it does before a request that takes the inode's lock, or the end.
    pub fn settle_kernel(&mut self, file: usize) {
        self.answer_opens(file);
        self.send(file);
        self.end_reads(file, &(0..usize::MAX));
    }
}

impl Kernel {
    /// Writers among the opens that wait.
    pub(super) fn opening_writers(&self) -> usize {
        self.opening.iter().filter(|open| open.writes).count()
    }

    /// Returns whether pages of a file are newer than what is known to be written.
    pub fn is_filled(&self, at: usize) -> bool {
        self.filled.as_ref().is_some_and(|fill| (fill.offset..fill.offset + fill.data.len()).contains(&at))
    }
}
