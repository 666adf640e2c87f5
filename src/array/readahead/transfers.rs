//! Transfers ahead of a sequential reader of a remote store.
//!
//! Uses its neighbours in `array`, and `store`. Requests take long and many run at once, so more is transferred ahead than is
//! decoded ahead: as much as the reader's share of the store's memory holds. The window of the file that is transferred grows
//! with what the reader has read, so that a short read costs little.
//!
//! Invariant: a reader that moves elsewhere or closes drops its claims, which cancels what is under way for it alone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::array::geometry::strips::{Strips, slab, slab_at};
use crate::array::readahead::AHEAD_BYTES_PER_THREAD;
use crate::array::source::ahead::Indexes;
use crate::array::source::load_context::LoadContext;
use crate::array::sync::atomic::Ordering;
use crate::array::{Engine, Inner};
use crate::store::{Claim, MaybeClaim, Remote};

/// The window begins with this many bytes of the file, and is at least this many times what the reader has read.
const MIN_WINDOW_BYTES: u64 = 2 << 20;
const GROWTH: u64 = 16;
/// The largest window.
const MAX_WINDOW_BYTES: u64 = 1 << 30;
/// How much of the window is decoded ahead, at most.
const DECODED_WINDOW_BYTES: u64 = 16 << 20;
/// The window moves when the reader has read this fraction of what is decoded ahead.
const STEPS: u64 = 8;
/// Chunks of so many decoded bytes are claimed together: inner chunks that are neighbours in their shard in one request.
const BATCH_BYTES: u64 = 64 << 20;
const MAX_BATCH: usize = 256;
/// Stored bytes that the reader wants soon: they should be here.
const SOON_BYTES: u64 = 16 << 20;
/// Stored bytes that are claimed at first. Doubled while chunks that are wanted soon are still on their way: a reader gets as
/// much as the link needs, and no more memory.
const FIRST_TARGET_BYTES: u64 = 64 << 20;
/// The most strips of a window.
const MAX_STRIPS: usize = 4096;

/// What is transferred ahead of one reader.
pub(super) struct Transfers {
    engine: Arc<Engine>,
    /// Where the reader began.
    start: u64,
    /// Where the reader was when the window moved last.
    moved_at: Option<u64>,
    /// The claims to chunks of the window that are not decoded yet, by the numbers of the chunks. `None` where nothing is stored.
    chunks: HashMap<u64, MaybeClaim>,
    /// To indexes of shards that some of the next chunks are in.
    indexes: Vec<Arc<dyn Claim>>,
    /// How many stored bytes are claimed, and the last claim that was made for the present number. Before it has arrived,
    /// nothing shows whether the number is large enough.
    target_bytes: u64,
    last_of_target: Option<Arc<dyn Claim>>,
    /// The strips of the window that are queued for decoding.
    queued: HashSet<u64>,
}

/// Where a reader is.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReaderPlace {
    /// It has received what is before this.
    pub received: u64,
    /// Its last request begins here.
    pub asked: u64,
    /// It is expected to go on here.
    pub offset: u64,
}

impl Transfers {
    /// Nothing yet, for a reader at `offset`.
    pub fn new(engine: &Arc<Engine>, offset: u64) -> Self {
        engine.transferring_readers.fetch_add(1, Ordering::Relaxed);
        Transfers {
            engine: Arc::clone(engine),
            start: offset,
            moved_at: None,
            chunks: HashMap::new(),
            indexes: Vec::new(),
            target_bytes: FIRST_TARGET_BYTES,
            last_of_target: None,
            queued: HashSet::new(),
        }
    }

    /// Moves the window to where a reader is. Returns the strips that are to be decoded now: none before it is known how chunks are cut.
    pub fn move_to(&mut self, inner: &Inner, strips: Option<&Strips>, place: ReaderPlace) -> Vec<u64> {
        let ReaderPlace { received, asked, offset } = place;
        let left = inner.grid.size_bytes().saturating_sub(offset);
        // Not of what is asked for: a reader of a plane asks for all of it at once, and goes on elsewhere.
        let grown = received.saturating_sub(self.start).saturating_mul(GROWTH);
        let window = grown.clamp(MIN_WINDOW_BYTES, MAX_WINDOW_BYTES).min(left);
        let decoded = window.min(DECODED_WINDOW_BYTES);
        let is_near = |at: u64| (at..at + decoded / STEPS).contains(&offset);
        if window == 0 || self.moved_at.is_some_and(is_near) {
            return Vec::new();
        }
        let grid = strips.map_or(&inner.grid, Strips::grid);
        let asked = asked.min(offset);
        let passed = self.claim(inner, &grid.chunks_of(asked, offset - asked + window, MAX_STRIPS));
        let Some(strips) = strips else { return Vec::new() };
        self.moved_at = Some(offset);
        if strips.is_cut() {
            // The next rows of the slab need the same chunks again.
            let slab = slab(&inner.grid);
            let first = slab.map_or(0, |slab| slab_at(&inner.grid, slab, offset) * slab.strips);
            self.chunks.extend(passed.into_iter().filter(|(chunk, _)| *chunk >= first));
        }
        let room = (self.engine.cache.limit_bytes() / 4 * 3).checked_div(inner.strip_bytes()).unwrap_or(1);
        let mut to_decode = strips.grid().chunks_of(offset, decoded, MAX_STRIPS.min(room as usize).max(1));
        if let Some(slab) = strips.slab() {
            // Of the next slabs no more than what is decoded while the reader reads the end of this one: their memory is that of
            // the slab that the reader passes.
            let next = (strips.slab_at(slab, offset) + 1) * slab.strips;
            let mut room = decoded_ahead(inner) / inner.strip_bytes().max(1);
            to_decode.retain(|&strip| {
                let is_left = strip < next || room > 0;
                room -= u64::from(is_left && strip >= next);
                is_left
            });
        }
        let new = to_decode.iter().copied().filter(|strip| !self.queued.contains(strip)).collect();
        self.queued = to_decode.into_iter().collect();
        new
    }

    /// Claims the chunks of these strips in this order, as far as the reader's share goes. Returns the claims of before to other
    /// chunks, and to those that are decoded.
    fn claim(&mut self, inner: &Inner, strips: &[u64]) -> HashMap<u64, MaybeClaim> {
        let ctx = inner.load_context();
        let readers = self.engine.transferring_readers.load(Ordering::Relaxed).max(1) as u64;
        let share = inner.store.remote().map_or(0, Remote::transfer_limit_bytes) / readers;
        let mut sum = Sum { target_bytes: self.target_bytes.min(share), ..Sum::default() };
        let batch = (BATCH_BYTES / inner.chunk_bytes().max(1)).clamp(1, MAX_BATCH as u64) as usize;
        let mut before = std::mem::take(&mut self.chunks);
        // An index that is claimed again stays here, because it is claimed before this is dropped.
        let _indexes = std::mem::take(&mut self.indexes);
        let mut new: Vec<u64> = Vec::new();
        let mut is_full = false;
        let mut strips = strips.iter().peekable();
        while let Some(&strip) = strips.next() {
            let chunk = inner.chunk_of(strip);
            let is_open = !self.chunks.contains_key(&chunk) && new.last() != Some(&chunk);
            let is_claimed = is_open && before.contains_key(&chunk);
            if is_open
                && (is_claimed || !is_full)
                && !self.engine.cache.is_known(inner.strip_key(strip), ctx.epoch)
            {
                let is_lost = |claim: &MaybeClaim| claim.as_ref().is_some_and(|claim| claim.is_lost());
                match before.remove(&chunk).filter(|claim| !is_lost(claim)) {
                    Some(claim) => {
                        sum.add(claim.as_ref());
                        self.chunks.insert(chunk, claim);
                        is_full |= sum.bytes >= sum.target_bytes;
                    }
                    None => new.push(chunk),
                }
            }
            if !new.is_empty() && !is_full && (new.len() == batch || strips.peek().is_none()) {
                is_full = !self.claim_new(inner, &ctx, &mut new, &mut sum);
            }
        }
        let is_shown = self.last_of_target.as_ref().is_none_or(|last| last.is_here());
        if sum.is_late && is_shown && sum.bytes >= self.target_bytes {
            self.target_bytes = self.target_bytes.saturating_mul(2);
            self.last_of_target = sum.last;
        }
        before
    }

    /// Claims chunks that are not claimed. Returns whether there is room for more.
    fn claim_new(&mut self, inner: &Inner, ctx: &LoadContext<'_>, new: &mut Vec<u64>, sum: &mut Sum) -> bool {
        let indexes: Vec<Vec<u64>> = new.iter().map(|&chunk| inner.grid.index(chunk)).collect();
        let found = inner.source.claim(ctx, &indexes, Indexes::AsTheyCome);
        let is_all = found.chunks.len() == new.len();
        self.indexes.extend(found.indexes);
        for (chunk, claim) in new.drain(..).zip(found.chunks) {
            sum.add(claim.as_ref());
            self.chunks.insert(chunk, claim);
        }
        is_all && sum.bytes < sum.target_bytes
    }
}

/// What is claimed of a window.
#[derive(Default)]
struct Sum {
    /// Stored bytes, each span once, and how many there should be.
    bytes: u64,
    target_bytes: u64,
    seen: HashSet<u64>,
    /// Whether one of the first [`SOON_BYTES`] is still on its way.
    is_late: bool,
    /// The last claim.
    last: Option<Arc<dyn Claim>>,
}

impl Sum {
    fn add(&mut self, claim: Option<&Arc<dyn Claim>>) {
        let Some(claim) = claim.filter(|claim| self.seen.insert(claim.id())) else { return };
        self.is_late |= self.bytes < SOON_BYTES && !claim.is_here();
        self.bytes += claim.size_bytes();
        self.last = Some(Arc::clone(claim));
    }
}

/// What is decoded ahead for one of the readers of an array.
fn decoded_ahead(inner: &Inner) -> u64 {
    AHEAD_BYTES_PER_THREAD.saturating_mul(inner.engine.workers.count() as u64)
        / inner.sequential_readers.load(Ordering::Relaxed).max(1) as u64
}

impl Drop for Transfers {
    fn drop(&mut self) {
        self.engine.transferring_readers.fetch_sub(1, Ordering::Relaxed);
    }
}
