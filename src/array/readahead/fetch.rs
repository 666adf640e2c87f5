//! Fetching the stored chunks of a window of the file from a remote store, before a sequential reader needs them.
//!
//! Uses `resources.rs` and `window.rs`, `served/`, `source/` and `store`. Requests take long and many run at once, so
//! more is fetched than decoded: as much as the reader's share of the store's memory holds.
//!
//! Invariant: a reader that moves elsewhere or closes drops its claims, which cancels what is under way for it alone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::array::geometry::strips::{Strips, slab, slab_at};
use crate::array::readahead::resources::{CountGuard, Counted, ReadaheadResources};
use crate::array::readahead::window::{FetchWindow, ReadaheadBudget, ReaderPlace, Slabs};
use crate::array::served::strip_cache::StripCache;
use crate::array::source::ahead::Indexes;
use crate::array::source::loading::load_context::LoadContext;
use crate::store::{Claim, MaybeClaim, Remote};

/// Chunks of this many decoded bytes are claimed together, so that inner chunks that are neighbours in their shard come
/// with one request.
const BATCH_BYTES: u64 = 64 << 20;
const MAX_BATCH: usize = 256;
/// Stored bytes that the reader wants soon. If they are still on their way, too little is fetched ahead.
const SOON_BYTES: u64 = 16 << 20;
/// Stored bytes that are claimed at first. The number is doubled while chunks that are wanted soon are still on their
/// way, so that a reader takes as much memory as the link needs and no more.
const FIRST_TARGET_BYTES: u64 = 64 << 20;
/// The most strips of a window.
const MAX_STRIPS: usize = 4096;

/// What is fetched ahead of one reader.
pub struct FetchQueue {
    /// Readers share the store's memory.
    count: CountGuard,
    window: FetchWindow,
    /// The claims on chunks of the window that are not decoded yet, by the numbers of the chunks. `None` if nothing is
    /// stored.
    chunks: HashMap<u64, MaybeClaim>,
    /// The claims on indexes of shards that have some of the next chunks.
    indexes: Vec<Arc<dyn Claim>>,
    /// How many stored bytes are claimed, and the last claim that was made for the present number. Before it has
    /// arrived, nothing shows whether the number is large enough.
    target_bytes: u64,
    last_of_target: Option<Arc<dyn Claim>>,
    /// The strips of the window that are queued for decoding.
    queued: HashSet<u64>,
}

impl FetchQueue {
    /// Creates an empty queue for a reader at `offset`.
    pub fn new(resources: &Arc<ReadaheadResources>, offset: u64) -> Self {
        FetchQueue {
            count: resources.count(Counted::FetchingReaders),
            window: FetchWindow::new(offset),
            chunks: HashMap::new(),
            indexes: Vec::new(),
            target_bytes: FIRST_TARGET_BYTES,
            last_of_target: None,
            queued: HashSet::new(),
        }
    }

    /// Moves the window to where a reader is. Returns the strips that are to be decoded now. It returns nothing before
    /// it is known how chunks are cut.
    pub fn move_to(
        &mut self,
        cache: &StripCache,
        strips: Option<&Strips>,
        place: ReaderPlace,
        budget: &ReadaheadBudget,
    ) -> Vec<u64> {
        let (chunks, offset) = (cache.served().grid(), place.offset);
        let left = chunks.size_bytes().saturating_sub(offset);
        let Some(extent) = self.window.extent(place, left) else { return Vec::new() };
        let asked = place.asked.min(offset);
        let grid = strips.map_or(chunks, Strips::grid);
        let wanted = grid.chunks_of(asked, offset - asked + extent.fetched, MAX_STRIPS);
        let passed = self.claim(cache, &wanted);
        let Some(strips) = strips else { return Vec::new() };
        self.window.move_to(offset);
        if strips.is_cut() {
            // The next rows of the slab need the same chunks again.
            let first = slab(chunks).map_or(0, |slab| slab_at(chunks, slab, offset) * slab.strips);
            self.chunks.extend(passed.into_iter().filter(|(chunk, _)| *chunk >= first));
        }
        let to_decode = strips_to_decode(strips, offset, extent.decoded, budget);
        let new = to_decode.iter().copied().filter(|strip| !self.queued.contains(strip)).collect();
        self.queued = to_decode.into_iter().collect();
        new
    }

    /// Claims the chunks of these strips in this order, as far as the reader's share goes. Returns the previous claims
    /// on other chunks, and on those that are decoded.
    fn claim(&mut self, cache: &StripCache, strips: &[u64]) -> HashMap<u64, MaybeClaim> {
        let served = cache.served();
        let ctx = served.load_context();
        let readers = self.count.resources().counted(Counted::FetchingReaders).max(1);
        let Some(remote) = served.store().remote() else { return HashMap::new() };
        let share = remote.transfer_limit_bytes() / readers;
        let mut claimed =
            ClaimedBytes { target_bytes: self.target_bytes.min(share), ..ClaimedBytes::default() };
        let chunk_bytes = served.grid().largest_chunk_bytes().max(1);
        let batch = (BATCH_BYTES / chunk_bytes).clamp(1, MAX_BATCH as u64) as usize;
        let mut before = std::mem::take(&mut self.chunks);
        // An index that is claimed again stays in memory, because it is claimed before this is dropped.
        let _indexes = std::mem::take(&mut self.indexes);
        let mut new: Vec<u64> = Vec::new();
        let mut is_full = false;
        let mut strips = strips.iter().peekable();
        while let Some(&strip) = strips.next() {
            let chunk = cache.chunk_of(strip);
            let is_open = !self.chunks.contains_key(&chunk) && new.last() != Some(&chunk);
            // A claimed chunk keeps its claim, also beyond the target: dropping the claim would cancel the transfer.
            let is_claimed = is_open && before.contains_key(&chunk);
            if is_open && (is_claimed || !is_full) && !cache.is_known(strip, ctx.epoch) {
                let is_lost = |claim: &MaybeClaim| claim.as_ref().is_some_and(|claim| claim.is_lost());
                match before.remove(&chunk).filter(|claim| !is_lost(claim)) {
                    Some(claim) => {
                        claimed.add(claim.as_ref());
                        self.chunks.insert(chunk, claim);
                        is_full |= claimed.is_enough();
                    }
                    None => new.push(chunk),
                }
            }
            // Claimed in batches, so that neighbours in a shard come with one request.
            if !new.is_empty() && !is_full && (new.len() == batch || strips.peek().is_none()) {
                is_full = !self.claim_new(remote, cache, &ctx, &mut new, &mut claimed);
            }
        }
        // More is claimed only if bytes are late although all that the present target asked for was claimed and has arrived:
        // before that, nothing shows that the target is too small.
        let has_arrived = self.last_of_target.as_ref().is_none_or(|last| last.is_here());
        if claimed.is_late && has_arrived && claimed.bytes >= self.target_bytes {
            self.target_bytes = self.target_bytes.saturating_mul(2);
            self.last_of_target = claimed.last;
        }
        before
    }

    /// Claims chunks that are not claimed. Returns whether there is room for more.
    fn claim_new(
        &mut self,
        remote: &dyn Remote,
        cache: &StripCache,
        ctx: &LoadContext<'_>,
        new: &mut Vec<u64>,
        claimed: &mut ClaimedBytes,
    ) -> bool {
        let served = cache.served();
        let indexes: Vec<Vec<u64>> = new.iter().map(|&chunk| served.grid().index(chunk)).collect();
        let found = served.source().claim(remote, ctx, &indexes, Indexes::AsTheyCome);
        let is_all = found.chunks.len() == new.len();
        self.indexes.extend(found.indexes);
        for (chunk, claim) in new.drain(..).zip(found.chunks) {
            claimed.add(claim.as_ref());
            self.chunks.insert(chunk, claim);
        }
        is_all && !claimed.is_enough()
    }
}

/// Returns the strips of the next `decoded` bytes, as far as the cache has room. Of later slabs it returns no more than
/// `ahead_bytes`: they take the memory of the slab that the reader is leaving.
fn strips_to_decode(strips: &Strips, offset: u64, decoded: u64, budget: &ReadaheadBudget) -> Vec<u64> {
    let in_cache = (budget.cache_limit_bytes / 4 * 3).checked_div(budget.strip_bytes).unwrap_or(1);
    let most = MAX_STRIPS.min(in_cache as usize).max(1);
    let mut to_decode = strips.grid().chunks_of(offset, decoded, most);
    if let Some(slabs) = Slabs::new(strips) {
        let next = slabs.next_first_strip(offset);
        let mut room = budget.ahead_bytes / budget.strip_bytes.max(1);
        to_decode.retain(|&strip| {
            let is_left = strip < next || room > 0;
            room -= u64::from(is_left && strip >= next);
            is_left
        });
    }
    to_decode
}

/// The claims on the chunks of a window, counted.
#[derive(Default)]
struct ClaimedBytes {
    /// Stored bytes, each transfer once, and how many there should be.
    bytes: u64,
    target_bytes: u64,
    seen: HashSet<u64>,
    /// Whether some of the first [`SOON_BYTES`] are still on their way.
    is_late: bool,
    /// The last claim.
    last: Option<Arc<dyn Claim>>,
}

impl ClaimedBytes {
    fn add(&mut self, claim: Option<&Arc<dyn Claim>>) {
        let Some(claim) = claim.filter(|claim| self.seen.insert(claim.id())) else { return };
        self.is_late |= self.bytes < SOON_BYTES && !claim.is_here();
        self.bytes += claim.size_bytes();
        self.last = Some(Arc::clone(claim));
    }

    fn is_enough(&self) -> bool {
        self.bytes >= self.target_bytes
    }
}
