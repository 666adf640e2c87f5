//! Decoding ahead of a sequential reader.
//!
//! Uses its neighbours in `array`. A pass in served order revisits one row of strips, a *slab*, again and again before
//! it goes on to the next; the first read in a slab queues all of it, and those after it as far as there is room. What
//! lies behind the reader is the first to leave the cache.
//!
//! Invariant: what was queued for a reader that has gone elsewhere, or closed, or has it behind him, is not begun any more.

pub mod consumed;
pub mod replies;

use std::sync::Arc;

use crate::array::geometry::strips::Slab;
use crate::array::readahead::replies::Spans;
use crate::array::sync::Mutex;
use crate::array::sync::atomic::{AtomicU64, Ordering};
use crate::array::{Array, Inner};

/// How far apart requests of one sequential reader may arrive: the kernel sends readahead from several threads.
const SEQUENTIAL_WINDOW_BYTES: u64 = 4 << 20;
/// The same as [`SEQUENTIAL_WINDOW_BYTES`] in lengths of a request, for one that was not sequential so far.
const SEQUENTIAL_WINDOW_REQUESTS: u64 = 2;
/// Where only this cache keeps what was read: an array that takes at most this part of it stays.
const STAYING_PART: u64 = 16;
/// So far behind the reader, requests that came later than others still want something.
const BEHIND_BYTES: u64 = 1 << 20;
/// With no room for a slab, so many bytes of the file are decoded ahead.
const WINDOW_BYTES: u64 = 8 << 20;
/// So much is decoded ahead for each decoding thread, for all readers together, where there is room, and the next
/// slab at least.
const AHEAD_BYTES_PER_THREAD: u64 = 32 << 20;
/// A slab of more strips is not queued as a whole: what asks for one of them would do nothing else for long. Neither are more queued
/// with no room for a slab.
const MOST_QUEUED: u64 = 4096;

/// One reader of an array, and how it goes through it.
#[derive(Default)]
pub struct Reader {
    pass: Mutex<Pass>,
    wanted: Arc<Wanted>,
    pub(in crate::array) gathered: Mutex<Spans>,
}

/// What of the queued is still of use to a reader.
#[derive(Default)]
struct Wanted {
    /// Moves when nothing of what was queued is.
    generation: AtomicU64,
    /// The first slab that was not left behind.
    first_slab: AtomicU64,
}

impl Wanted {
    fn end(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Pass {
    /// Where a sequential reader would go on.
    next_offset: u64,
    /// The slabs that were queued and not left behind, while the reader is sequential.
    stream: Option<Stream>,
}

/// A sequential reader's place.
struct Stream {
    /// The first slab that was not left behind.
    first: u64,
    /// The first slab that was not queued, or not all of it.
    end: u64,
    /// Part of that one was queued, too.
    is_begun: bool,
    /// The first slab that is not among those that were [`Consumed`](crate::array::readahead::consumed::Consumed) by this reader; the largest
    /// number where none ever are.
    unpassed: u64,
    array: Arc<Inner>,
}

impl Stream {
    fn new(array: &Arc<Inner>, slab: u64) -> Self {
        array.streams.fetch_add(1, Ordering::Relaxed);
        Stream { first: slab, end: slab, is_begun: false, unpassed: slab, array: Arc::clone(array) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.array.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pass {
    /// The reader goes elsewhere, or closes: nothing that it was given is on its way any more. Whether it was sequential.
    fn end(&mut self) -> bool {
        let Some(stream) = self.stream.take() else { return false };
        let inner = &stream.array;
        if let Some((strips, slab)) = inner.strips.get().and_then(|strips| Some((strips, strips.slab()?))) {
            inner.note_passed(stream.unpassed..strips.slab_at(slab, self.next_offset));
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
    /// Whether it goes through the array in served order.
    pub(in crate::array) fn is_sequential(&self) -> bool {
        self.pass.lock().stream.is_some()
    }
}

impl Array {
    /// Tells that a reader was given the bytes from `offset` to `end`: if that is where it was expected, what follows is
    /// decoded in the background.
    pub fn note_read(&self, reader: &Reader, offset: u64, end: u64) {
        self.note(reader, offset, end);
    }

    /// As [`Array::note_read`], for a reader whose requests come one after the other: what a sequential one asks for next is put
    /// together in the background, too.
    pub fn note_lone_read(&self, reader: &Reader, offset: u64, end: u64) {
        if let Some(next) = self.note(reader, offset, end) {
            Inner::gather_ahead(&self.inner, &reader.gathered, next, end - offset);
        }
    }

    /// Where a sequential reader goes on, what follows being queued; `None` of another.
    fn note(&self, reader: &Reader, offset: u64, end: u64) -> Option<u64> {
        let mut pass = reader.pass.lock();
        let expected = pass.next_offset;
        let window_bytes = match pass.stream {
            Some(_) => SEQUENTIAL_WINDOW_BYTES,
            None => (end - offset).saturating_mul(SEQUENTIAL_WINDOW_REQUESTS),
        };
        if !is_sequential(expected, offset, window_bytes) {
            if pass.end() {
                reader.wanted.end();
            }
            pass.next_offset = end;
            reader.gathered.lock().clear();
            return None;
        }
        pass.next_offset = expected.max(end);
        self.go_on(reader, &mut pass, end);
        Some(pass.next_offset)
    }

    /// Queues what a sequential reader needs next, who has just asked for what ends at `asked`.
    fn go_on(&self, reader: &Reader, pass: &mut Pass, asked: u64) {
        let inner = &self.inner;
        let offset = pass.next_offset;
        if inner.source.is_raw() || offset >= self.size_bytes() {
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
            pass.stream.get_or_insert_with(|| Stream::new(inner, u64::MAX));
            return Inner::queue(inner, strips.into_iter(), wanted, u64::MAX);
        }
        let slab_at = |offset| strips.slab_at(slab, offset);
        let now = slab_at(offset);
        let is_asked_again = inner.passed.forget_if_asked(slab_at(asked.saturating_sub(1)));
        let stream = match pass.stream.take() {
            Some(stream) if (stream.first..=stream.end).contains(&now) && !is_asked_again => stream,
            _ => Stream::new(inner, now),
        };
        let stream = pass.stream.insert(stream);
        let behind = slab_at(offset.saturating_sub(BEHIND_BYTES));
        wanted.first_slab.store(behind.max(stream.first), Ordering::Relaxed);
        if stream.first < behind {
            let left = stream.first..behind;
            inner.leave_behind(left.flat_map(|n| slab_strips(slab, n, strips.grid().chunks())));
            stream.first = behind;
        }
        let ahead_bytes = AHEAD_BYTES_PER_THREAD.saturating_mul(inner.engine.workers.count() as u64)
            / inner.streams.load(Ordering::Relaxed).max(1) as u64;
        let ahead = (ahead_bytes / slab.bytes.max(1)).max(1);
        while stream.end <= now + ahead {
            let strips_of_it = slab_strips(slab, stream.end, strips.grid().chunks());
            if stream.end > now && inner.passed.contains(stream.end) {
                (stream.end, stream.is_begun) = (stream.end + 1, false);
                continue;
            }
            if stream.end > now {
                // Of those further ahead one is queued when all before it are under way, and no more of it than the
                // cache takes beside them and what was not left behind: that was used later than they were decoded,
                // and they would leave first. What is left behind in time gives its memory to the rest.
                let held = slab.bytes.saturating_mul(stream.end - stream.first);
                let taken = slab.bytes.saturating_mul(stream.end - now);
                let room = (limit / 16 * 15).saturating_sub(held);
                let room =
                    room.min((ahead_bytes + slab.bytes).saturating_sub(taken)) / inner.strip_bytes().max(1);
                if inner.engine.workers.waiting_ahead() > 0 || (stream.is_begun && room < slab.strips) {
                    break;
                }
                if room < slab.strips {
                    stream.is_begun = true;
                    Inner::queue(inner, strips_of_it.take(room as usize), wanted, stream.end);
                    break;
                }
            }
            Inner::queue(inner, strips_of_it, wanted, stream.end);
            (stream.end, stream.is_begun) = (stream.end + 1, false);
        }
        let passed = stream.unpassed..slab_at(offset.saturating_sub(SEQUENTIAL_WINDOW_BYTES));
        if inner.note_passed(passed.clone()) {
            stream.unpassed = passed.end;
        }
    }

    /// Bytes of decoded chunks that one pass in served order revisits before it goes on.
    pub fn slab_bytes(&self) -> u64 {
        crate::array::geometry::strips::slab(&self.inner.grid).map_or(0, |slab| slab.bytes)
    }
}

fn slab_strips(slab: Slab, number: u64, strips: u64) -> std::ops::Range<u64> {
    let from = number.saturating_mul(slab.strips).min(strips);
    from..from.saturating_add(slab.strips).min(strips)
}

impl Inner {
    /// Has strips of a slab decoded, if they are still wanted when it is their turn.
    fn queue(inner: &Arc<Inner>, strips: impl Iterator<Item = u64>, wanted: &Arc<Wanted>, slab: u64) {
        let generation = wanted.generation.load(Ordering::Relaxed);
        let epoch = inner.place().epoch;
        for strip in strips {
            if inner.engine.cache.is_known(inner.strip_key(strip), epoch) {
                continue;
            }
            let (task_inner, wanted) = (Arc::clone(inner), Arc::clone(wanted));
            inner.engine.workers.ahead(Box::new(move || {
                let epoch = task_inner.place().epoch;
                let is_wanted = wanted.generation.load(Ordering::Relaxed) == generation
                    && slab >= wanted.first_slab.load(Ordering::Relaxed);
                if is_wanted && !task_inner.engine.cache.is_known(task_inner.strip_key(strip), epoch) {
                    // A failure is reported to the reader that asks for the strip.
                    drop(task_inner.strip(strip, true));
                }
            }));
        }
    }

    /// Whether what a reader was given is not asked for again. Beside a writer some readers go past the page cache.
    fn is_kept_by_readers(&self) -> bool {
        self.engine.readers_keep.load(Ordering::Relaxed) && !self.writing.is_written.load(Ordering::Relaxed)
    }

    /// A reader was given these slabs in full; whether they count as [`Consumed`](crate::array::readahead::consumed::Consumed).
    fn note_passed(&self, slabs: std::ops::Range<u64>) -> bool {
        let is_passed = !slabs.is_empty() && self.is_kept_by_readers();
        if is_passed {
            self.passed.add(slabs);
        }
        is_passed
    }

    /// Tells the cache what a sequential reader was given in full. The kernel holds it for all of them, unless reads pass it
    /// by: then another such reader may still need it, a small array stays, and of a large one the memory is worth more than
    /// what it holds.
    fn leave_behind(&self, strips: impl Iterator<Item = u64>) {
        let is_kept = !self.engine.readers_keep.load(Ordering::Relaxed)
            && (self.grid.size_bytes() <= self.engine.cache.limit_bytes() / STAYING_PART
                || self.streams.load(Ordering::Relaxed) > 1);
        if !is_kept {
            self.engine.cache.demote(strips.map(|strip| self.strip_key(strip)));
        }
    }
}

/// Whether a read at `offset` continues one whose reader was expected at `expected`.
fn is_sequential(expected: u64, offset: u64, window_bytes: u64) -> bool {
    offset.abs_diff(expected) <= window_bytes && expected > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readahead_out_of_order_is_still_sequential() {
        let is_sequential = |expected, offset| is_sequential(expected, offset, SEQUENTIAL_WINDOW_BYTES);
        assert!(is_sequential(1 << 20, 1 << 20));
        assert!(is_sequential(1 << 20, (1 << 20) - 131_072));
        assert!(is_sequential(1 << 20, (1 << 20) + 131_072));
        assert!(!is_sequential(1 << 20, 1 << 30));
        assert!(!is_sequential(0, 0), "the first read is not yet a sequence");
    }
}
