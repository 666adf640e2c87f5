//! The policy of readahead: what a sequential reader will need next, and how much of it to have ready.
//!
//! Uses `geometry/`. Nothing here reads, decodes or waits: [`SlabWindow`] and [`FetchWindow`] turn a reader's place
//! into work for `prefetch.rs` and `fetch.rs`.
//!
//! A sequential read visits one row of strips, a *slab*, again and again before it continues. So a slab is decoded as a
//! whole.
//!
//! **Backpressure** bounds twice how far ahead of a reader chunks are decoded. From memory: no more is decoded than the
//! cache holds together with what the reader has not passed, because what was decoded first would be evicted first.
//! From the processor: no later slab is queued while tasks of readahead wait for a thread.

use std::ops::Range;

use crate::array::geometry::strips::{Slab, Strips, slab, slab_at};

/// How far from the expected place a request of a sequential reader may begin: the kernel sends its own readahead from
/// several threads, in any order.
pub const SEEK_WINDOW_BYTES: u64 = 4 << 20;
/// The same for a reader that was not sequential so far, in lengths of a request. With the larger window, random
/// readers counted as sequential by chance, and megabytes were decoded ahead of each read.
const SEEK_WINDOW_REQUESTS: u64 = 2;
/// Late requests may still want bytes this far before the reader's place.
pub const LATE_BYTES: u64 = 1 << 20;
/// If the cache has no room for a slab, readahead covers this many bytes of the file.
const BYTE_WINDOW: u64 = 8 << 20;
/// How much is decoded ahead for each decoding thread, shared by all readers, if there is room; at least the next slab.
/// With only two small slabs ahead, threads slept until the reader took one and woke late: planes of 4 MiB (blosc-lz4)
/// took 0.293 s instead of 0.247 s.
pub const AHEAD_BYTES_PER_THREAD: u64 = 32 << 20;
/// A slab of more strips is not queued as a whole, because that would delay the request that queues it. The limit also
/// holds if the cache has no room for a slab.
const MOST_QUEUED: u64 = 4096;

/// The window of the file that is fetched begins with this many bytes, and is at least this many times what the reader
/// has read.
const MIN_FETCH_BYTES: u64 = 2 << 20;
const FETCH_GROWTH: u64 = 16;
/// The largest window.
const MAX_FETCH_BYTES: u64 = 1 << 30;
/// How much of the window is decoded ahead, at most.
const MAX_DECODE_BYTES: u64 = 16 << 20;
/// The window moves when the reader has read this fraction of what is decoded ahead.
const FETCH_STEPS: u64 = 8;

/// Returns how far from its expected place a request may begin, for its reader to count as sequential. `request_bytes`
/// is the request's length.
pub fn seek_window_bytes(is_sequential: bool, request_bytes: u64) -> u64 {
    if is_sequential { SEEK_WINDOW_BYTES } else { request_bytes.saturating_mul(SEEK_WINDOW_REQUESTS) }
}

/// Returns whether a request at `offset` continues a sequence that was expected at `expected`.
pub fn continues(expected: u64, offset: u64, window_bytes: u64) -> bool {
    offset.abs_diff(expected) <= window_bytes && expected > 0
}

/// The memory and the threads that readahead for one reader may use.
#[derive(Clone, Copy, Debug)]
pub struct ReadaheadBudget {
    /// The limit of the cache.
    pub cache_limit_bytes: u64,
    /// How much may be decoded ahead for this reader.
    pub ahead_bytes: u64,
    /// Bytes of the largest strip.
    pub strip_bytes: u64,
}

/// A row of strips, or the first of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlabPart {
    /// The number of the slab.
    pub slab: u64,
    /// The strips, which are consecutive.
    pub strips: Range<u64>,
}

/// The slabs that are queued for a sequential reader of a local store, or that it reads.
#[derive(Debug)]
pub struct SlabWindow {
    /// The first slab that the reader has not passed.
    first: u64,
    /// The first slab that is not queued, or only in part.
    end: u64,
    /// A part of that slab is queued.
    is_partly_queued: bool,
}

impl SlabWindow {
    /// Creates the window of a reader in this slab, with nothing queued.
    pub fn new(slab: u64) -> Self {
        SlabWindow { first: slab, end: slab, is_partly_queued: false }
    }

    /// Returns whether a reader in this slab is where the window expects it.
    pub fn contains(&self, slab: u64) -> bool {
        (self.first..=self.end).contains(&slab)
    }

    /// Returns the first slab that the reader has not passed.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Moves the beginning to the slab `passed`, before which the reader has passed everything. Returns the slabs that
    /// it has passed now.
    pub fn pass(&mut self, passed: u64) -> Range<u64> {
        let left = self.first.min(passed)..passed;
        self.first = self.first.max(passed);
        left
    }

    /// Returns what to queue next for a reader in the slab `now`, if anything. The reader's own slab is always queued.
    /// `is_consumed` says whether readers keep a slab themselves, so that no reader is expected to ask for it;
    /// `is_busy`, whether tasks of readahead wait for a thread.
    pub fn next(
        &mut self,
        now: u64,
        slabs: &Slabs,
        budget: &ReadaheadBudget,
        is_consumed: impl Fn(u64) -> bool,
        is_busy: impl Fn() -> bool,
    ) -> Option<SlabPart> {
        let ahead = (budget.ahead_bytes / slabs.slab.bytes.max(1)).max(1);
        while self.end <= now + ahead {
            let (slab, strips) = (self.end, slabs.strips(self.end));
            if slab <= now {
                self.close_slab();
                return Some(SlabPart { slab, strips });
            }
            if is_consumed(slab) {
                self.close_slab();
                continue;
            }
            let room = self.room(now, slabs, budget);
            let is_whole = room >= slabs.slab.strips;
            // A later slab is queued only when all before it are being decoded.
            if is_busy() || (self.is_partly_queued && !is_whole) {
                return None;
            }
            if !is_whole {
                // The rest is queued when slabs that the reader passes give their memory back.
                self.is_partly_queued = true;
                let end = strips.end.min(strips.start + room);
                return Some(SlabPart { slab, strips: strips.start..end });
            }
            self.close_slab();
            return Some(SlabPart { slab, strips });
        }
        None
    }

    fn close_slab(&mut self) {
        self.end += 1;
        self.is_partly_queued = false;
    }

    /// Returns how many strips of the next slab there is room for. No more is queued than the cache can take next to
    /// the slabs that are queued and not passed: those were used later than they were decoded, and would be evicted
    /// first.
    fn room(&self, now: u64, slabs: &Slabs, budget: &ReadaheadBudget) -> u64 {
        let slab_bytes = slabs.slab.bytes;
        let held = slab_bytes.saturating_mul(self.end - self.first);
        let taken = slab_bytes.saturating_mul(self.end - now);
        let in_cache = (budget.cache_limit_bytes / 16 * 15).saturating_sub(held);
        let ahead = (budget.ahead_bytes + slab_bytes).saturating_sub(taken);
        in_cache.min(ahead) / budget.strip_bytes.max(1)
    }
}

/// The slabs of an array.
pub struct Slabs<'a> {
    strips: &'a Strips,
    slab: Slab,
}

impl<'a> Slabs<'a> {
    /// Creates the slabs of these strips. `None` for an empty array.
    pub fn new(strips: &'a Strips) -> Option<Slabs<'a>> {
        Some(Slabs { strips, slab: slab(strips.grid())? })
    }

    /// Returns the number of the slab that holds a byte of the file. From the end of the file on, the number of slabs.
    pub fn at(&self, offset: u64) -> u64 {
        slab_at(self.strips.grid(), self.slab, offset)
    }

    /// Returns the strips of a slab.
    pub fn strips(&self, slab: u64) -> Range<u64> {
        let strips = self.strips.grid().chunks();
        let from = slab.saturating_mul(self.slab.strips).min(strips);
        from..from.saturating_add(self.slab.strips).min(strips)
    }

    /// Returns the strips of several slabs.
    pub fn strips_of(&self, slabs: Range<u64>) -> impl Iterator<Item = u64> + '_ {
        slabs.flat_map(|slab| self.strips(slab))
    }

    /// Returns the first strip of the slab after the one that holds a byte of the file.
    pub fn next_first_strip(&self, offset: u64) -> u64 {
        (self.at(offset) + 1) * self.slab.strips
    }

    /// Returns the strips of the next few bytes of the file, if the cache has no room for a slab, or if a slab has too
    /// many strips to queue it as a whole.
    pub fn byte_window(&self, offset: u64, budget: &ReadaheadBudget) -> Option<Vec<u64>> {
        let limit = budget.cache_limit_bytes;
        if self.slab.bytes <= limit / 4 * 3 && self.slab.strips <= MOST_QUEUED {
            return None;
        }
        let grid = self.strips.grid();
        let length = BYTE_WINDOW.min(grid.size_bytes() - offset);
        let room = (limit / 4).checked_div(budget.strip_bytes).unwrap_or(1).min(MOST_QUEUED);
        Some(grid.chunks_of(offset, length, room as usize))
    }
}

/// Where a reader is.
#[derive(Clone, Copy, Debug)]
pub struct ReaderPlace {
    /// It has received what is before this.
    pub received: u64,
    /// Its last request begins here.
    pub asked: u64,
    /// It is expected to continue here.
    pub offset: u64,
}

/// The window of the file that is fetched from a remote store for a reader. Requests take long and many run at once, so
/// more is fetched than decoded. The window grows with what the reader has received, so that a short read costs little.
#[derive(Debug)]
pub struct FetchWindow {
    /// Where the reader began.
    start: u64,
    /// Where the reader was when the window moved last.
    moved_at: Option<u64>,
}

/// How much to fetch and to decode from a reader's place on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchExtent {
    /// For how many bytes of the file chunks are fetched.
    pub fetched: u64,
    /// For how many bytes of the file strips are decoded.
    pub decoded: u64,
}

impl FetchWindow {
    /// Creates the window of a reader that begins at `offset`.
    pub fn new(offset: u64) -> Self {
        FetchWindow { start: offset, moved_at: None }
    }

    /// Returns how much to have for a reader at `place`, which has `left` bytes before it. `None` if the window need
    /// not move: the reader is near the place where it moved last, or at the end.
    pub fn extent(&self, place: ReaderPlace, left: u64) -> Option<FetchExtent> {
        // The window grows with what was received, not with what was asked for: a reader of planes asks for all of one
        // at once and continues elsewhere. When requests grew the window, such readers fetched 6.4 bytes for each byte
        // that they read instead of 4.6, and waited 2.5 s instead of 1.1 s.
        let grown = place.received.saturating_sub(self.start).saturating_mul(FETCH_GROWTH);
        let fetched = grown.clamp(MIN_FETCH_BYTES, MAX_FETCH_BYTES).min(left);
        let decoded = fetched.min(MAX_DECODE_BYTES);
        let is_near = |at: u64| (at..at + decoded / FETCH_STEPS).contains(&place.offset);
        let moves = fetched > 0 && !self.moved_at.is_some_and(is_near);
        moves.then_some(FetchExtent { fetched, decoded })
    }

    /// Records that the window has moved to a reader at `offset`.
    pub fn move_to(&mut self, offset: u64) {
        self.moved_at = Some(offset);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::array::geometry::axis::Axis;
    use crate::array::geometry::grid::Grid;

    /// Ten slabs of four strips. The first axis has chunks that are longer than one element, so it numbers the slabs.
    fn strips() -> Strips {
        let axes = [(20, 2), (4096, 1024)];
        let axes = axes.map(|(extent, length)| Axis::new(extent, &[(length, u64::MAX)]).unwrap());
        Strips::new(&Grid::new(axes.to_vec(), 1), 1 << 30, None)
    }

    #[test]
    fn requests_out_of_order_are_still_sequential() {
        let is_sequential = |expected, offset| continues(expected, offset, seek_window_bytes(true, 0));
        assert!(is_sequential(1 << 20, 1 << 20));
        assert!(is_sequential(1 << 20, (1 << 20) - 131_072));
        assert!(is_sequential(1 << 20, (1 << 20) + 131_072));
        assert!(!is_sequential(1 << 20, 1 << 30));
        assert!(!is_sequential(0, 0), "the first read is not yet a sequence");
    }

    #[test]
    fn a_window_ends_where_the_budget_does() {
        let strips = strips();
        let slabs = Slabs::new(&strips).unwrap();
        let slab_bytes = slabs.slab.bytes;
        let queued = |cache: u64, ahead: u64, is_busy: bool| {
            let budget = ReadaheadBudget {
                cache_limit_bytes: cache * slab_bytes,
                ahead_bytes: ahead * slab_bytes,
                strip_bytes: strips.grid().largest_chunk_bytes(),
            };
            let mut window = SlabWindow::new(2);
            let next = || window.next(2, &slabs, &budget, |slab| slab == 4, || is_busy);
            let strips = |part: SlabPart| (part.slab, part.strips.end - part.strips.start);
            std::iter::from_fn(next).map(strips).collect::<Vec<(u64, u64)>>()
        };
        assert_eq!(queued(100, 3, false), [(2, 4), (3, 4), (5, 4)], "without the slab that readers keep");
        assert_eq!(queued(2, 3, false), [(2, 4), (3, 3)], "the cache holds no more");
        assert_eq!(queued(100, 3, true), [(2, 4)], "threads are busy");
    }

    #[test]
    fn a_fetch_window_grows_with_what_was_received() {
        const MIB: u64 = 1 << 20;
        let window = FetchWindow::new(8 * MIB);
        let fetched = |received: u64, left: u64| {
            let place = ReaderPlace { received: received * MIB, asked: 8 * MIB, offset: 9 * MIB };
            window.extent(place, left * MIB).map(|extent| extent.fetched / MIB)
        };
        assert_eq!(fetched(8, 100), Some(2), "at first");
        assert_eq!(fetched(9, 100), Some(16));
        assert_eq!(fetched(9, 5), Some(5), "no more than the file has");
        assert_eq!(fetched(9, 0), None);
    }
}
