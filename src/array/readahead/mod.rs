//! Decoding ahead of a sequential reader.
//!
//! Uses its neighbours in `array`. A sequential read visits one row of strips, a *slab*, again and again before it
//! moves on. The first read in a slab queues all of it, and then as many of the next slabs as there is room for. Slabs
//! that the reader has passed are the first to leave the cache.
//!
//! Invariant: a queued strip is not decoded if its reader has meanwhile moved elsewhere, closed, or passed the strip.

pub mod consumed;
pub mod replies;
#[cfg(test)]
mod tests;
mod transfers;

use std::sync::Arc;

use crate::array::geometry::strips::Slab;
use crate::array::readahead::replies::Spans;
use crate::array::readahead::transfers::{ReaderPlace, Transfers};
use crate::array::sync::Mutex;
use crate::array::sync::atomic::{AtomicU64, Ordering};
use crate::array::{Array, Inner};

/// How far apart requests of one sequential reader may arrive: the kernel sends readahead from several threads.
const SEQUENTIAL_WINDOW_BYTES: u64 = 4 << 20;
/// The same for a reader that was not sequential so far, in lengths of a request.
const SEQUENTIAL_WINDOW_REQUESTS: u64 = 2;
/// If only this cache keeps what was read, an array of at most this fraction of the cache stays in it.
const STAYING_PART: u64 = 16;
/// Late requests may still want bytes this far before the reader's place.
const LATE_BYTES: u64 = 1 << 20;
/// If the cache has no room for a slab, readahead covers this many bytes of the file.
const WINDOW_BYTES: u64 = 8 << 20;
/// Readahead for each decoding thread, shared by all readers, if there is room. At least the next slab.
const AHEAD_BYTES_PER_THREAD: u64 = 32 << 20;
/// A slab of more strips is not queued as a whole, because that would delay the request that queues it. The same limit
/// holds if the cache has no room for a slab.
const MOST_QUEUED: u64 = 4096;

/// What is prepared for a reader that goes through an array sequentially.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readahead {
    /// Nothing.
    Off,
    /// The next chunks are decoded.
    #[default]
    Chunks,
    /// The next chunks are decoded, and the next replies are made of them. For a reader that bypasses the page cache and
    /// sends one request at a time.
    Replies,
}

/// One reader of an array, and its access pattern.
#[derive(Default)]
pub struct Reader {
    pub(in crate::array) readahead: Readahead,
    pass: Mutex<Pass>,
    wanted: Arc<Interest>,
    pub(in crate::array) replies: Mutex<Spans>,
}

/// The queued strips that a reader still wants.
#[derive(Default)]
struct Interest {
    /// Changes when the reader wants none of the queued strips any more.
    generation: AtomicU64,
    /// The first slab that the reader has not passed.
    first_slab: AtomicU64,
}

impl Interest {
    fn end(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Pass {
    /// Where a sequential reader is expected to continue.
    next_offset: u64,
    /// What it has received ends here. Of a remote store more was asked for, perhaps.
    received: u64,
    /// The slabs that are queued and not passed, if the reader is sequential.
    sequence: Option<SequentialState>,
}

/// The position of a sequential reader.
struct SequentialState {
    /// The first slab that the reader has not passed.
    first: u64,
    /// The first slab that is not queued, or only in part.
    end: u64,
    /// A part of that slab is queued.
    is_partly_queued: bool,
    /// The first slab that this reader has not added to [`Consumed`](crate::array::readahead::consumed::Consumed); the
    /// largest number if it never adds any.
    first_unconsumed: u64,
    array: Arc<Inner>,
    /// What a remote store transfers for the reader.
    transfers: Option<Transfers>,
}

impl SequentialState {
    fn new(array: &Arc<Inner>, slab: u64) -> Self {
        array.sequential_readers.fetch_add(1, Ordering::Relaxed);
        SequentialState {
            first: slab,
            end: slab,
            is_partly_queued: false,
            first_unconsumed: slab,
            array: Arc::clone(array),
            transfers: None,
        }
    }
}

impl Drop for SequentialState {
    fn drop(&mut self) {
        self.array.sequential_readers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pass {
    /// Ends a sequential read: the reader moves elsewhere or closes, and has received everything up to here. Returns
    /// whether it was sequential.
    fn end(&mut self) -> bool {
        let Some(sequence) = self.sequence.take() else { return false };
        let inner = &sequence.array;
        if let Some((strips, slab)) = inner.strips.get().and_then(|strips| Some((strips, strips.slab()?))) {
            inner.note_consumed(sequence.first_unconsumed..strips.slab_at(slab, self.next_offset));
        }
        true
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.wanted.end();
        self.pass.lock().end();
    }
}

impl Reader {
    /// A reader that has read nothing.
    pub fn new(readahead: Readahead) -> Self {
        let mut reader = Reader::default();
        reader.readahead = readahead;
        reader
    }

    /// Whether the reader goes through the array sequentially.
    pub(in crate::array) fn is_sequential(&self) -> bool {
        self.pass.lock().sequence.is_some()
    }
}

impl Array {
    /// Notes that a reader asks for the bytes from `offset` to `end`, and will wait for a remote store: what it is expected to ask
    /// for next is transferred meanwhile.
    pub(in crate::array) fn note_request(&self, reader: &Reader, offset: u64, end: u64) {
        let mut pass = reader.pass.lock();
        if self.continues(reader, &mut pass, offset, end) {
            self.go_on_remotely(reader, &mut pass, offset);
        }
    }

    /// Notes that a reader received what it was noted to ask for, which ends at `end`. Returns where it continues, as
    /// [`Array::note`] does.
    pub(in crate::array) fn note_reply(&self, reader: &Reader, end: u64) -> Option<u64> {
        let mut pass = reader.pass.lock();
        if end <= pass.next_offset {
            pass.received = pass.received.max(end);
        }
        pass.sequence.as_ref()?;
        self.go_on_remotely(reader, &mut pass, end);
        self.demote_received(&mut pass);
        Some(pass.next_offset)
    }

    /// Notes that a reader received the bytes from `offset` to `end`. If it was expected there, queues what follows and
    /// returns where it continues; `None` for any other reader.
    pub(in crate::array) fn note(&self, reader: &Reader, offset: u64, end: u64) -> Option<u64> {
        let mut pass = reader.pass.lock();
        if !self.continues(reader, &mut pass, offset, end) {
            return None;
        }
        match self.inner.store.is_remote() {
            true => {
                pass.received = pass.received.max(end);
                self.go_on_remotely(reader, &mut pass, offset);
                self.demote_received(&mut pass);
            }
            false => self.go_on(reader, &mut pass, end),
        }
        Some(pass.next_offset)
    }

    /// Whether a reader is where it was expected. If not, what was prepared for it ends.
    fn continues(&self, reader: &Reader, pass: &mut Pass, offset: u64, end: u64) -> bool {
        let expected = pass.next_offset;
        let window_bytes = match pass.sequence {
            Some(_) => SEQUENTIAL_WINDOW_BYTES,
            None => (end - offset).saturating_mul(SEQUENTIAL_WINDOW_REQUESTS),
        };
        if !is_sequential(expected, offset, window_bytes) {
            if pass.end() {
                reader.wanted.end();
            }
            (pass.next_offset, pass.received) = (end, offset);
            reader.replies.lock().clear();
            return false;
        }
        pass.next_offset = expected.max(end);
        true
    }

    /// Queues what a sequential reader needs next. Its last request ended at `asked`.
    fn go_on(&self, reader: &Reader, pass: &mut Pass, asked: u64) {
        let inner = &self.inner;
        let offset = pass.next_offset;
        if inner.reads_ranges(true) || offset >= self.size_bytes() {
            return;
        }
        let Some(strips) = inner.strips.get() else { return };
        let Some(slab) = strips.slab() else { return };
        let limit = inner.engine.cache.limit_bytes();
        let wanted = &reader.wanted;
        if slab.bytes > limit / 4 * 3 || slab.strips > MOST_QUEUED {
            let length = WINDOW_BYTES.min(self.size_bytes() - offset);
            let room = (limit / 4).checked_div(inner.strip_bytes()).unwrap_or(1).min(MOST_QUEUED) as usize;
            let strips = strips.grid().chunks_of(offset, length, room);
            pass.sequence.get_or_insert_with(|| SequentialState::new(inner, u64::MAX));
            return Inner::queue(inner, strips.into_iter(), wanted, u64::MAX);
        }
        let slab_at = |offset| strips.slab_at(slab, offset);
        let now = slab_at(offset);
        let is_asked_again = inner.consumed.forget_if_asked(slab_at(asked.saturating_sub(1)));
        let sequence = match pass.sequence.take() {
            Some(sequence) if (sequence.first..=sequence.end).contains(&now) && !is_asked_again => sequence,
            _ => SequentialState::new(inner, now),
        };
        let sequence = pass.sequence.insert(sequence);
        let passed = slab_at(offset.saturating_sub(LATE_BYTES));
        wanted.first_slab.store(passed.max(sequence.first), Ordering::Relaxed);
        if sequence.first < passed {
            let left = sequence.first..passed;
            inner.demote(left.flat_map(|n| slab_strips(slab, n, strips.grid().chunks())));
            sequence.first = passed;
        }
        let ahead_bytes = AHEAD_BYTES_PER_THREAD.saturating_mul(inner.engine.workers.count() as u64)
            / inner.sequential_readers.load(Ordering::Relaxed).max(1) as u64;
        let ahead = (ahead_bytes / slab.bytes.max(1)).max(1);
        while sequence.end <= now + ahead {
            let strips_of_it = slab_strips(slab, sequence.end, strips.grid().chunks());
            if sequence.end > now && inner.consumed.contains(sequence.end) {
                (sequence.end, sequence.is_partly_queued) = (sequence.end + 1, false);
                continue;
            }
            if sequence.end > now {
                // A later slab is queued only when all before it are being decoded. No more of it is queued than the
                // cache can take beside the slabs that are queued and not passed: those were used later than they were
                // decoded, and would be evicted first. Slabs that the reader passes give their memory to the rest.
                let held = slab.bytes.saturating_mul(sequence.end - sequence.first);
                let taken = slab.bytes.saturating_mul(sequence.end - now);
                let room = (limit / 16 * 15).saturating_sub(held);
                let room =
                    room.min((ahead_bytes + slab.bytes).saturating_sub(taken)) / inner.strip_bytes().max(1);
                if inner.engine.workers.waiting_ahead() > 0
                    || (sequence.is_partly_queued && room < slab.strips)
                {
                    break;
                }
                if room < slab.strips {
                    sequence.is_partly_queued = true;
                    Inner::queue(inner, strips_of_it.take(room as usize), wanted, sequence.end);
                    break;
                }
            }
            Inner::queue(inner, strips_of_it, wanted, sequence.end);
            (sequence.end, sequence.is_partly_queued) = (sequence.end + 1, false);
        }
        let consumed = sequence.first_unconsumed..slab_at(offset.saturating_sub(SEQUENTIAL_WINDOW_BYTES));
        if inner.note_consumed(consumed.clone()) {
            sequence.first_unconsumed = consumed.end;
        }
    }

    /// As [`Array::go_on`], where chunks come from a remote store. The last request began at `asked`.
    fn go_on_remotely(&self, reader: &Reader, pass: &mut Pass, asked: u64) {
        let (inner, offset) = (&self.inner, pass.next_offset);
        if offset >= self.size_bytes() {
            return;
        }
        let strips = match inner.source.is_uncompressed() {
            true => Some(inner.strips_at(offset)), // which asks the store nothing
            false => inner.strips.get(),
        };
        let sequence = pass.sequence.get_or_insert_with(|| SequentialState::new(inner, u64::MAX));
        let transfers = sequence.transfers.get_or_insert_with(|| Transfers::new(&inner.engine, asked));
        let place = ReaderPlace { received: pass.received, asked, offset };
        let new = transfers.move_to(inner, strips, place);
        Inner::queue(inner, new.into_iter(), &reader.wanted, u64::MAX);
    }

    /// Demotes what a sequential reader of a remote store has received.
    fn demote_received(&self, pass: &mut Pass) {
        let inner = &self.inner;
        let (Some(strips), Some(sequence)) = (inner.strips.get(), pass.sequence.as_mut()) else { return };
        let Some(slab) = strips.slab() else { return };
        let passed = strips.slab_at(slab, pass.received.saturating_sub(LATE_BYTES));
        let left = sequence.first.min(passed)..passed;
        inner.demote(left.flat_map(|n| slab_strips(slab, n, strips.grid().chunks())));
        sequence.first = passed;
    }

    /// Bytes of decoded chunks that a sequential read visits repeatedly before it moves on.
    pub fn slab_bytes(&self) -> u64 {
        crate::array::geometry::strips::slab(&self.inner.grid).map_or(0, |slab| slab.bytes)
    }
}

fn slab_strips(slab: Slab, number: u64, strips: u64) -> std::ops::Range<u64> {
    let from = number.saturating_mul(slab.strips).min(strips);
    from..from.saturating_add(slab.strips).min(strips)
}

/// Counts a strip that is decoded ahead, as long as its task exists.
struct StripAhead(Arc<Inner>);

impl StripAhead {
    fn of(inner: &Arc<Inner>) -> Self {
        inner.engine.strips_ahead.fetch_add(1, Ordering::Relaxed);
        StripAhead(Arc::clone(inner))
    }
}

impl Drop for StripAhead {
    fn drop(&mut self) {
        self.0.engine.strips_ahead.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Inner {
    /// Queues the strips of a slab. A strip that is no longer wanted when its turn comes is skipped.
    fn queue(inner: &Arc<Inner>, strips: impl Iterator<Item = u64>, wanted: &Arc<Interest>, slab: u64) {
        let generation = wanted.generation.load(Ordering::Relaxed);
        let epoch = inner.load_context().epoch;
        for strip in strips {
            if inner.engine.cache.is_known(inner.strip_key(strip), epoch) {
                continue;
            }
            let (task_inner, wanted) = (Arc::clone(inner), Arc::clone(wanted));
            let ahead = StripAhead::of(inner);
            inner.engine.workers.ahead(Box::new(move || {
                let epoch = task_inner.load_context().epoch;
                let is_wanted = wanted.generation.load(Ordering::Relaxed) == generation
                    && slab >= wanted.first_slab.load(Ordering::Relaxed);
                if is_wanted && !task_inner.engine.cache.is_known(task_inner.strip_key(strip), epoch) {
                    // The reader that asks for the strip gets the error.
                    drop(task_inner.strip(strip, true));
                }
                drop(ahead);
            }));
        }
    }

    /// Whether readers keep what they receive. Beside a writer some readers bypass the page cache.
    fn is_kept_by_readers(&self) -> bool {
        self.engine.page_cache_keeps && !self.writing.is_written.load(Ordering::Relaxed)
    }

    /// Notes that a reader received these slabs in full. Returns whether they count as
    /// [`Consumed`](crate::array::readahead::consumed::Consumed).
    fn note_consumed(&self, slabs: std::ops::Range<u64>) -> bool {
        let is_consumed = !slabs.is_empty() && self.is_kept_by_readers();
        if is_consumed {
            self.consumed.add(slabs);
        }
        is_consumed
    }

    /// Demotes strips that a sequential reader received in full. Usually the kernel keeps them for all readers. If
    /// reads bypass the page cache, another sequential reader may still need them and a small array stays; the memory
    /// of a large array is worth more than its content.
    fn demote(&self, strips: impl Iterator<Item = u64>) {
        let is_kept = !self.engine.page_cache_keeps
            && (self.grid.size_bytes() <= self.engine.cache.limit_bytes() / STAYING_PART
                || self.sequential_readers.load(Ordering::Relaxed) > 1);
        if !is_kept {
            self.engine.cache.demote(strips.map(|strip| self.strip_key(strip)));
        }
    }
}

/// Whether a read at `offset` continues a sequence that was expected at `expected`.
fn is_sequential(expected: u64, offset: u64, window_bytes: u64) -> bool {
    offset.abs_diff(expected) <= window_bytes && expected > 0
}
