//! Readahead: what a reader that goes through an array sequentially needs next is fetched and decoded before it asks.
//!
//! Uses its neighbours in `array`. `window.rs` is the policy: it decides which readers are sequential and how much to
//! have ready for them. `prefetch.rs` (decoding), `fetch.rs` (requests to a remote store) and `replies.rs` (whole
//! replies) carry that out, and `consumed.rs` says what need not be prepared. This file keeps the place of each reader,
//! asks the policy, and passes its answer on.
//!
//! Slabs that the reader has passed are the first to leave the cache.

pub mod consumed;
mod fetch;
mod prefetch;
pub mod replies;
pub mod resources;
#[cfg(test)]
mod tests;
mod window;

use std::ops::Range;
use std::sync::Arc;

use crate::array::read::ArrayReader;
use crate::array::read::access::Blocking;
use crate::array::readahead::consumed::ConsumedSlabs;
use crate::array::readahead::fetch::FetchQueue;
use crate::array::readahead::prefetch::{Prefetcher, ScanGeneration};
use crate::array::readahead::replies::PreparedReplies;
use crate::array::readahead::resources::ReadaheadResources;
use crate::array::readahead::window::{
    AHEAD_BYTES_PER_THREAD, LATE_BYTES, ReadaheadBudget, ReaderPlace, SEEK_WINDOW_BYTES, SlabWindow, Slabs,
};
use crate::array::served::ServedArray;
use crate::array::sync::Mutex;
use crate::array::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// If reads bypass the page cache, an array of at most this fraction of the cache stays in it.
const STAYING_PART: u64 = 16;
/// One that is read again and again may take this fraction.
const STAYING_PART_IF_READ_AGAIN: u64 = 4;

/// What is prepared for a reader that goes through an array sequentially.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readahead {
    /// Nothing.
    Off,
    /// The next chunks are decoded.
    #[default]
    Chunks,
    /// The next chunks are decoded, and the next replies are made of them. For a reader that bypasses the page cache
    /// and sends one request at a time.
    Replies,
}

/// One reader of an array, and its access pattern.
#[derive(Default)]
pub struct Reader {
    readahead: Readahead,
    scan: Mutex<ScanState>,
    wanted: Arc<ScanGeneration>,
    replies: PreparedReplies,
}

/// How far a reader has come.
#[derive(Default)]
struct ScanState {
    /// Where a sequential reader is expected to continue.
    next_offset: u64,
    /// The end of what it has received. It may have asked a remote store for more.
    received: u64,
    /// What is ready for the reader, if it is sequential.
    sequence: Option<SequentialRead>,
}

/// A sequential read of one array. It counts toward the array's sequential readers while it lives.
struct SequentialRead {
    array: Arc<ArrayReadahead>,
    /// The slabs that are queued and that the reader has not passed.
    slabs: Option<SlabWindow>,
    /// The first slab that this reader has not added to [`ConsumedSlabs`]; `None` if it never adds any.
    first_unconsumed: Option<u64>,
    /// What is fetched from a remote store for the reader.
    fetches: Option<FetchQueue>,
}

/// The readahead of one array.
pub struct ArrayReadahead {
    reader: Arc<ArrayReader>,
    prefetcher: Prefetcher,
    /// How many readers go through the array sequentially.
    sequential_readers: AtomicUsize,
    /// Slabs that sequential readers received in full and keep themselves.
    consumed: ConsumedSlabs,
    /// The slab before which some sequential reader has passed everything.
    furthest: AtomicU64,
    /// A sequential reader has begun where another one, or the same one before, had passed.
    is_read_again: AtomicBool,
}

impl SequentialRead {
    fn new(array: &Arc<ArrayReadahead>) -> Self {
        array.sequential_readers.fetch_add(1, Ordering::Relaxed);
        SequentialRead { array: Arc::clone(array), slabs: None, first_unconsumed: None, fetches: None }
    }
}

impl Drop for SequentialRead {
    fn drop(&mut self) {
        self.array.sequential_readers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ScanState {
    /// Ends a sequential read: the reader moves elsewhere or closes, and has received everything up to here. Returns
    /// whether it was sequential.
    fn end(&mut self) -> bool {
        let Some(sequence) = self.sequence.take() else { return false };
        let array = &sequence.array;
        if let Some(first) = sequence.first_unconsumed
            && let Some(slabs) = array.slabs()
        {
            array.record_consumed(first..slabs.at(self.next_offset));
        }
        true
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.wanted.end();
        self.scan.lock().end();
    }
}

impl Reader {
    /// Creates a reader that has read nothing.
    pub fn new(readahead: Readahead) -> Self {
        let mut reader = Reader::default();
        reader.readahead = readahead;
        reader
    }

    /// Returns what is prepared for the reader.
    pub(in crate::array) fn readahead(&self) -> Readahead {
        self.readahead
    }

    /// Returns the replies that are prepared for the reader.
    pub(in crate::array) fn replies(&self) -> &PreparedReplies {
        &self.replies
    }

    /// Returns whether the reader goes through the array sequentially.
    pub(in crate::array) fn is_sequential(&self) -> bool {
        self.scan.lock().sequence.is_some()
    }

    /// Returns whether a request is where the reader was expected. If not, what was prepared for it ends.
    fn continues(&self, scan: &mut ScanState, range: &Range<u64>) -> bool {
        let window_bytes = window::seek_window_bytes(scan.sequence.is_some(), range.end - range.start);
        if !window::continues(scan.next_offset, range.start, window_bytes) {
            if scan.end() {
                self.wanted.end();
            }
            (scan.next_offset, scan.received) = (range.end, range.start);
            self.replies.clear();
            return false;
        }
        scan.next_offset = scan.next_offset.max(range.end);
        true
    }
}

impl ArrayReadahead {
    /// Creates the readahead of an array.
    pub fn new(reader: &Arc<ArrayReader>, resources: &Arc<ReadaheadResources>) -> Self {
        ArrayReadahead {
            reader: Arc::clone(reader),
            prefetcher: Prefetcher::new(reader.strips(), resources),
            sequential_readers: AtomicUsize::new(0),
            consumed: ConsumedSlabs::default(),
            furthest: AtomicU64::new(0),
            is_read_again: AtomicBool::new(false),
        }
    }

    /// Returns the readahead of an array that continues this one.
    pub fn successor(&self, reader: &Arc<ArrayReader>) -> Self {
        ArrayReadahead::new(reader, self.prefetcher.resources())
    }

    fn served(&self) -> &ServedArray {
        self.reader.served()
    }

    fn slabs(&self) -> Option<Slabs<'_>> {
        self.reader.strips().strips().and_then(Slabs::new)
    }

    /// Returns what may be decoded ahead for one of the array's sequential readers.
    fn budget(&self) -> ReadaheadBudget {
        let strips = self.reader.strips();
        let readers = self.sequential_readers.load(Ordering::Relaxed).max(1) as u64;
        ReadaheadBudget {
            cache_limit_bytes: strips.cache_limit_bytes(),
            ahead_bytes: AHEAD_BYTES_PER_THREAD.saturating_mul(strips.workers().count() as u64) / readers,
            strip_bytes: strips.strip_bytes(),
        }
    }

    /// Has a remote store fetch what a reader will probably ask for next, while the reader waits for `range`. Returns
    /// `false` for other stores, and if the reader does not wait. If the next requests followed only the reply, the
    /// first reads of an array would take two to four round trips.
    pub fn prefetch_before(
        self: &Arc<Self>,
        reader: &Reader,
        range: &Range<u64>,
        blocking: Blocking,
    ) -> bool {
        let is_waiting = blocking == Blocking::Yes && reader.readahead != Readahead::Off;
        if !is_waiting || !self.served().store().is_remote() || range.is_empty() {
            return false;
        }
        let mut scan = reader.scan.lock();
        if reader.continues(&mut scan, range) {
            self.extend_remote_readahead(reader, &mut scan, range.start);
        }
        true
    }

    /// Has what a reader will probably ask for next prepared, after it received `range`. `is_prefetched` is what
    /// [`ArrayReadahead::prefetch_before`] returned. Returns where a sequential reader continues, and `None` for any
    /// other reader.
    pub fn prefetch_after(
        self: &Arc<Self>,
        reader: &Reader,
        range: &Range<u64>,
        is_prefetched: bool,
    ) -> Option<u64> {
        if reader.readahead == Readahead::Off {
            return None;
        }
        let mut scan = reader.scan.lock();
        if !is_prefetched && !reader.continues(&mut scan, range) {
            return None;
        }
        // While the reader waited, a request on another thread may have moved it elsewhere.
        if range.end <= scan.next_offset {
            scan.received = scan.received.max(range.end);
        }
        if !self.served().store().is_remote() {
            self.extend_readahead(reader, &mut scan, range.end);
            return Some(scan.next_offset);
        }
        if is_prefetched && scan.sequence.is_none() {
            return None;
        }
        let asked = if is_prefetched { range.end } else { range.start };
        self.extend_remote_readahead(reader, &mut scan, asked);
        self.demote_received(&mut scan);
        Some(scan.next_offset)
    }

    /// Prepares the replies that a sequential reader asks for next, in requests of `request_bytes` from `next` on.
    pub fn prepare_replies(&self, reader: &Reader, next: u64, request_bytes: u64) {
        reader.replies.prepare(&self.reader, self.prefetcher.resources(), next, request_bytes);
    }

    /// Queues what a sequential reader of a local store needs next. Its last request ended at `asked`.
    fn extend_readahead(self: &Arc<Self>, reader: &Reader, scan: &mut ScanState, asked: u64) {
        let offset = scan.next_offset;
        // Ranges of uncompressed objects need no decoding, and the kernel reads ahead in them.
        if self.served().reads_ranges(true) || offset >= self.served().size_bytes() {
            return;
        }
        let Some(slabs) = self.slabs() else { return };
        let sequence = scan.sequence.get_or_insert_with(|| SequentialRead::new(self));
        let budget = self.budget();
        if let Some(strips) = slabs.byte_window(offset, &budget) {
            return self.prefetcher.decode(strips.into_iter(), &reader.wanted, u64::MAX);
        }
        let now = slabs.at(offset);
        // A reader that asks for a consumed slab shows that readers do not keep what they receive, so its window starts
        // anew.
        let is_asked_again = self.consumed.forget_if_asked(slabs.at(asked.saturating_sub(1)));
        let window = match sequence.slabs.take().filter(|window| window.contains(now) && !is_asked_again) {
            Some(window) => window,
            None => {
                sequence.first_unconsumed = Some(now);
                self.begin_pass(now)
            }
        };
        let window = sequence.slabs.insert(window);
        let passed = slabs.at(offset.saturating_sub(LATE_BYTES));
        reader.wanted.pass(passed.max(window.first()));
        self.end_slabs(&slabs, window, passed);
        let is_consumed = |slab| self.consumed.contains(slab);
        while let Some(part) = window.next(now, &slabs, &budget, is_consumed, || self.prefetcher.is_busy()) {
            self.prefetcher.decode(part.strips, &reader.wanted, part.slab);
        }
        // Requests may still come out of order within the seek window.
        let consumed_end = slabs.at(offset.saturating_sub(SEEK_WINDOW_BYTES));
        if let Some(first) = &mut sequence.first_unconsumed
            && self.record_consumed(*first..consumed_end)
        {
            *first = consumed_end;
        }
    }

    /// Fetches and queues what a sequential reader of a remote store needs next. Its last request began at `asked`.
    fn extend_remote_readahead(self: &Arc<Self>, reader: &Reader, scan: &mut ScanState, asked: u64) {
        let (offset, received) = (scan.next_offset, scan.received);
        if offset >= self.served().size_bytes() {
            return;
        }
        let cache = self.prefetcher.strips();
        let strips = if self.served().source().is_uncompressed() {
            Some(cache.strips_at(offset)) // which does not ask the store
        } else {
            cache.strips()
        };
        let sequence = scan.sequence.get_or_insert_with(|| SequentialRead::new(self));
        let resources = self.prefetcher.resources();
        let fetches = sequence.fetches.get_or_insert_with(|| FetchQueue::new(resources, asked));
        let place = ReaderPlace { received, asked, offset };
        let new = fetches.move_to(cache, strips, place, &self.budget());
        self.prefetcher.decode(new.into_iter(), &reader.wanted, u64::MAX);
    }

    /// Demotes what a sequential reader of a remote store has received.
    fn demote_received(&self, scan: &mut ScanState) {
        let (Some(slabs), Some(sequence)) = (self.slabs(), scan.sequence.as_mut()) else { return };
        let passed = slabs.at(scan.received.saturating_sub(LATE_BYTES));
        let window = sequence.slabs.get_or_insert_with(|| self.begin_pass(passed));
        self.end_slabs(&slabs, window, passed);
    }

    /// Begins to read sequentially from a slab on.
    fn begin_pass(&self, slab: u64) -> SlabWindow {
        if slab < self.furthest.load(Ordering::Relaxed) {
            self.is_read_again.store(true, Ordering::Relaxed);
        }
        SlabWindow::new(slab)
    }

    /// Demotes the slabs before `passed`, all of which a reader has received.
    fn end_slabs(&self, slabs: &Slabs<'_>, window: &mut SlabWindow, passed: u64) {
        self.furthest.fetch_max(passed, Ordering::Relaxed);
        self.demote(slabs.strips_of(window.pass(passed)));
    }

    /// Records that a reader received these slabs in full. Returns whether they count as [`ConsumedSlabs`], which they
    /// do only if readers keep what they receive: while the array is written, some readers bypass the page cache.
    fn record_consumed(&self, slabs: Range<u64>) -> bool {
        let readers_keep = self.prefetcher.resources().readers_keep() && !self.reader.dirty().is_written();
        let is_consumed = !slabs.is_empty() && readers_keep;
        if is_consumed {
            self.consumed.add(slabs);
        }
        is_consumed
    }

    /// Demotes strips that a sequential reader received in full. Usually the kernel keeps them for all readers. If
    /// reads bypass the page cache, another sequential reader may still need them and a small array stays; the memory
    /// of a large array is worth more than its content, unless it is read again and again.
    fn demote(&self, strips: impl Iterator<Item = u64>) {
        let cache = self.prefetcher.strips();
        let is_read_again = self.is_read_again.load(Ordering::Relaxed);
        let part = if is_read_again { STAYING_PART_IF_READ_AGAIN } else { STAYING_PART };
        let is_small = self.served().size_bytes() <= cache.cache_limit_bytes() / part;
        let has_others = self.sequential_readers.load(Ordering::Relaxed) > 1;
        if self.prefetcher.resources().readers_keep() || !(is_small || has_others) {
            cache.demote(strips);
        }
    }
}
