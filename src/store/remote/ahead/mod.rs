//! Transfers ahead of readers, and the bytes that they brought.
//!
//! Uses its neighbours in `store/remote`, and `tokio` through them.
//!
//! Invariants:
//! - The memory of all spans never exceeds the limit, provided that the service announces the sizes of bodies: a body that does
//!   not fit is not received.
//! - A span with a claim stays. Without a claim it is cancelled if it is being transferred; otherwise it stays for a while.
//! - A failed span is not an error: the reader sends its own request.
//! - Every span ends: once its [`SpanTransfer`] is dropped, for any reason, no reader waits for the span.
//! - No span is older than the last [`Ahead::forget`] of its key. After the first span of an object the others are requested in
//!   its version, so that a shard in the disk cache is validated only once.

mod span;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use lru::LruCache;
use parking_lot::{Condvar, Mutex};
use tokio::task::AbortHandle;

pub(super) use self::span::{Outcome, Span};
use self::span::{Progress, Reservation};
use super::first_bytes::FirstBytes;
use crate::store::remote::counters::Counters;
use crate::store::{Claim, Wanted};

/// The expected size of a span if its size is not known and nothing was transferred yet.
const UNKNOWN_SIZE_BYTES: u64 = 4 << 20;
/// The most bytes without a claim that are kept, and the part of the limit: memory that is reused soon costs less than more
/// memory.
const MAX_IDLE_BYTES: u64 = 16 << 20;
const IDLE_PART_OF_LIMIT: u64 = 4;
/// Ranges of one object with at most this much between them are transferred together.
const MAX_GAP_BYTES: u64 = 256 << 10;
/// The longest range that is transferred as one.
const MAX_RANGE_BYTES: u64 = 8 << 20;

/// The most objects whose versions are known.
const MAX_KNOWN_VERSIONS: usize = 4096;

/// All spans of a store.
pub(super) struct Ahead {
    state: Mutex<SpanTable>,
    /// Memory of all spans that a reader or the table still holds.
    taken_bytes: Arc<AtomicU64>,
    limit_bytes: u64,
    /// Spans that are being transferred, and the most of them at one time.
    under_way: AtomicUsize,
    most_under_way: usize,
    counters: Arc<Counters>,
}

struct SpanTable {
    by_key: HashMap<String, Vec<Arc<Span>>>,
    /// The ETags of objects whose spans have arrived.
    tags: HashMap<String, String>,
    /// Spans in memory without a claim, kept for the next reader, and their bytes.
    idle: LruCache<u64, Arc<Span>>,
    idle_bytes: u64,
    next_id: u64,
    /// The most spans that may be transferred now, and how often the service had asked for fewer when this was last changed. It
    /// is halved each time, and increased by one after as many spans have arrived.
    depth: usize,
    slowed: u64,
    arrived: usize,
    /// The approximate size of the last objects that were transferred as a whole.
    usual_bytes: Option<u64>,
}

/// A claim to a span.
pub(super) struct SpanClaim {
    ahead: Arc<Ahead>,
    pub span: Arc<Span>,
}

impl Claim for SpanClaim {
    fn is_here(&self) -> bool {
        !matches!(*self.span.progress.lock(), Progress::UnderWay(_))
    }

    fn is_lost(&self) -> bool {
        !self.ahead.state.lock().knows(&self.span)
    }

    fn id(&self) -> u64 {
        self.span.id
    }

    fn size_bytes(&self) -> u64 {
        self.span.bytes()
    }
}

impl Drop for SpanClaim {
    fn drop(&mut self) {
        let mut state = self.ahead.state.lock();
        if self.span.claims.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        let is_here = matches!(*self.span.progress.lock(), Progress::Here(_));
        if is_here && state.knows(&self.span) {
            state.keep_idle(&self.span, self.ahead.limit_bytes);
            return;
        }
        state.remove(&self.span);
        drop(state);
        self.ahead.cancel(&self.span);
    }
}

/// The transfer of a span, owned by the task that carries it out. The span ends with it at the latest: an early return, a
/// dropped task or a panic leaves no reader waiting.
pub(super) struct SpanTransfer {
    ahead: Arc<Ahead>,
    span: Arc<Span>,
}

impl Deref for SpanTransfer {
    type Target = Span;

    fn deref(&self) -> &Span {
        &self.span
    }
}

impl SpanTransfer {
    /// Whether a body of this length may be received.
    pub fn admits(&self, bytes: u64) -> bool {
        self.ahead.admits(&self.span, bytes)
    }

    /// Ends the transfer with the bytes of the span.
    pub fn arrived(self, first: FirstBytes) {
        self.ahead.arrived(&self.span, first);
    }

    /// Ends the transfer, because the object is missing.
    pub fn missing(self) {
        self.ahead.end(&self.span, Progress::Missing);
    }

    /// Ends the transfer, because it failed.
    pub fn failed(self) {
        self.ahead.failed(&self.span);
    }
}

impl Drop for SpanTransfer {
    fn drop(&mut self) {
        // This does not take the table's lock, which `Ahead::claim` may hold. A span that has ended stays as it is.
        self.ahead.end(&self.span, Progress::Void);
    }
}

impl SpanTable {
    fn knows(&self, span: &Arc<Span>) -> bool {
        self.by_key.get(&span.key).is_some_and(|spans| spans.iter().any(|known| Arc::ptr_eq(known, span)))
    }

    /// Keeps a span that has lost its last claim, and evicts others above the limit.
    fn keep_idle(&mut self, span: &Arc<Span>, limit_bytes: u64) {
        self.idle_bytes += span.bytes();
        self.idle.put(span.id, Arc::clone(span));
        while self.idle_bytes > MAX_IDLE_BYTES.min(limit_bytes / IDLE_PART_OF_LIMIT) {
            if !self.evict() {
                break;
            }
        }
    }

    fn no_longer_idle(&mut self, span: &Span) {
        if self.idle.pop(&span.id).is_some() {
            self.idle_bytes = self.idle_bytes.saturating_sub(span.bytes());
        }
    }

    /// Drops the span that has been idle longest.
    fn evict(&mut self) -> bool {
        let oldest = self.idle.peek_lru().map(|(_, oldest)| Arc::clone(oldest));
        oldest.inspect(|oldest| self.remove(oldest)).is_some()
    }

    fn remove(&mut self, span: &Arc<Span>) {
        self.no_longer_idle(span);
        if let Some(spans) = self.by_key.get_mut(&span.key) {
            spans.retain(|known| !Arc::ptr_eq(known, span));
            if spans.is_empty() {
                self.by_key.remove(&span.key);
            }
        }
    }

    fn find(&self, key: &str, wanted: &Wanted) -> Option<Arc<Span>> {
        let spans = self.by_key.get(key)?.iter();
        spans.rev().find(|span| span.covers(wanted)).map(Arc::clone)
    }
}

impl Ahead {
    /// Creates a table for spans of at most `limit_bytes` in all, with at most `most_under_way` of them transferred at one
    /// time.
    pub fn new(limit_bytes: u64, most_under_way: usize, counters: Arc<Counters>) -> Self {
        let state = SpanTable {
            by_key: HashMap::new(),
            tags: HashMap::new(),
            idle: LruCache::unbounded(),
            idle_bytes: 0,
            next_id: 0,
            depth: most_under_way,
            slowed: 0,
            arrived: 0,
            usual_bytes: None,
        };
        Ahead {
            state: Mutex::new(state),
            counters,
            taken_bytes: Arc::default(),
            limit_bytes,
            under_way: AtomicUsize::new(0),
            most_under_way,
        }
    }

    /// Claims these bytes, and returns the claims in their order. `begin` starts a transfer, and returns a handle that cancels
    /// it.
    pub fn claim(
        self: &Arc<Self>,
        wanted: &[(String, Wanted)],
        begin: impl Fn(SpanTransfer) -> Option<AbortHandle>,
    ) -> Vec<Option<Arc<SpanClaim>>> {
        let mut claims: Vec<Option<Arc<SpanClaim>>> = Vec::with_capacity(wanted.len());
        while let Some((key, first)) = wanted.get(claims.len()) {
            let mut state = self.state.lock();
            let (span, count) = match state.find(key, first) {
                Some(span) => {
                    state.no_longer_idle(&span);
                    span.claims.fetch_add(1, Ordering::Relaxed);
                    (Some(span), 1)
                }
                None => {
                    let (together, count) = merged(&wanted[claims.len()..], &state);
                    let span = self.add(&mut state, key, together).inspect(|span| {
                        // Under the lock, so that no claim is dropped before the transfer can be cancelled.
                        let transfer = SpanTransfer { ahead: Arc::clone(self), span: Arc::clone(span) };
                        let handle = begin(transfer);
                        if let Progress::UnderWay(place) = &mut *span.progress.lock() {
                            *place = handle;
                        }
                    });
                    (span, count)
                }
            };
            drop(state);
            let claim = span.map(|span| Arc::new(SpanClaim { ahead: Arc::clone(self), span }));
            claims.resize(claims.len() + count, claim);
        }
        claims
    }

    /// Adds a span with one claim, if there is memory for it.
    fn add(&self, state: &mut SpanTable, key: &str, wanted: Wanted) -> Option<Arc<Span>> {
        let slowed = self.counters.slowed();
        if slowed != state.slowed {
            (state.slowed, state.depth, state.arrived) = (slowed, (state.depth / 2).max(1), 0);
        }
        if self.under_way.load(Ordering::Relaxed) >= state.depth {
            return None;
        }
        let bytes = match &wanted {
            Wanted::Whole { at_most } => {
                let usual = state.usual_bytes.map_or(UNKNOWN_SIZE_BYTES, |usual| usual + usual / 4);
                usual.min(*at_most)
            }
            Wanted::Range(range) => range.end.saturating_sub(range.start),
            Wanted::Last(bytes) => *bytes,
        };
        while self.taken_bytes.load(Ordering::Relaxed) + bytes > self.limit_bytes {
            if !state.evict() {
                return None;
            }
        }
        self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        let reservation =
            Reservation { taken_bytes: Arc::clone(&self.taken_bytes), bytes: AtomicU64::new(bytes) };
        state.next_id += 1;
        let span = Arc::new(Span {
            id: state.next_id,
            key: key.to_owned(),
            wanted,
            tag: state.tags.get(key).cloned(),
            progress: Mutex::new(Progress::UnderWay(None)),
            ended: Condvar::new(),
            claims: AtomicUsize::new(1),
            reservation,
        });
        self.under_way.fetch_add(1, Ordering::Relaxed);
        state.by_key.entry(key.to_owned()).or_default().push(Arc::clone(&span));
        Some(span)
    }

    /// Finds the span that has these bytes or will have them.
    pub fn find(self: &Arc<Self>, key: &str, wanted: &Wanted) -> Option<SpanClaim> {
        let mut state = self.state.lock();
        let span = state.find(key, wanted)?;
        state.no_longer_idle(&span);
        span.claims.fetch_add(1, Ordering::Relaxed);
        drop(state);
        Some(SpanClaim { ahead: Arc::clone(self), span })
    }

    /// Whether a body of this length may be received for a span.
    fn admits(&self, span: &Span, bytes: u64) -> bool {
        if span.reservation.resize(bytes, self.limit_bytes) {
            return true;
        }
        let mut state = self.state.lock();
        while state.evict() {
            if span.reservation.resize(bytes, self.limit_bytes) {
                return true;
            }
        }
        false
    }

    /// Ends a transfer with the bytes of its span.
    fn arrived(&self, span: &Arc<Span>, first: FirstBytes) {
        let mut state = self.state.lock();
        let length = first.range.end - first.range.start;
        if let Wanted::Whole { .. } = span.wanted {
            let usual = state.usual_bytes.map_or(length, |usual| usual - usual / 8 + length / 8);
            state.usual_bytes = Some(usual);
        }
        // If-Match with a weak ETag is never true.
        let tag = first.meta.e_tag.clone().filter(|tag| !tag.starts_with("W/"));
        if !self.end(span, Progress::Here(Arc::new(first))) {
            return;
        }
        if let Some(tag) = tag.filter(|_| state.knows(span)) {
            if state.tags.len() >= MAX_KNOWN_VERSIONS {
                state.tags.clear();
            }
            state.tags.insert(span.key.clone(), tag);
        }
        state.arrived += 1;
        if state.arrived >= state.depth && state.depth < self.most_under_way {
            (state.depth, state.arrived) = (state.depth + 1, 0);
        }
        if span.claims.load(Ordering::Relaxed) == 0 && state.knows(span) {
            state.keep_idle(span, self.limit_bytes);
        }
    }

    /// Ends a transfer that failed.
    fn failed(&self, span: &Arc<Span>) {
        let mut state = self.state.lock();
        state.remove(span);
        state.tags.remove(&span.key);
        drop(state);
        self.end(span, Progress::Void);
    }

    /// Ends a transfer, unless it has already ended.
    fn end(&self, span: &Span, outcome: Progress) -> bool {
        let mut progress = span.progress.lock();
        if !matches!(*progress, Progress::UnderWay(_)) {
            return false;
        }
        if !matches!(outcome, Progress::Here(_)) {
            span.reservation.resize(0, self.limit_bytes);
        }
        *progress = outcome;
        drop(progress);
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        span.ended.notify_all();
        true
    }

    /// Cancels the transfer of a span that is not in the table.
    fn cancel(&self, span: &Span) {
        let handle = match &mut *span.progress.lock() {
            Progress::UnderWay(handle) => handle.take(),
            _ => return,
        };
        if let Some(handle) = handle {
            handle.abort();
        }
        self.end(span, Progress::Void);
    }

    /// Forgets the spans of these keys, because they may be older than the objects.
    pub fn forget(&self, is_forgotten: impl Fn(&str) -> bool) {
        let mut state = self.state.lock();
        let keys: Vec<String> = state.by_key.keys().filter(|key| is_forgotten(key)).cloned().collect();
        let spans: Vec<Arc<Span>> =
            keys.iter().filter_map(|key| state.by_key.get(key)).flatten().map(Arc::clone).collect();
        for span in &spans {
            state.remove(span);
        }
        state.tags.retain(|key, _| !is_forgotten(key));
        drop(state);
        for span in spans {
            self.cancel(&span);
        }
    }

    /// Returns the limit on the memory of all spans.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Returns the memory of all spans.
    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes.load(Ordering::Relaxed)
    }

    /// Returns the counts of the store's requests.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// Merges the first of these with the ranges after it that are near it in the same object and in no span yet. Also returns how
/// many were merged.
fn merged(wanted: &[(String, Wanted)], state: &SpanTable) -> (Wanted, usize) {
    let Some((key, first)) = wanted.first() else { return (Wanted::Last(0), 1) };
    let Wanted::Range(first) = first else { return (first.clone(), 1) };
    let mut all: Range<u64> = first.clone();
    let mut count = 1;
    for (other, next) in wanted.iter().skip(1) {
        let Wanted::Range(range) = next else { break };
        let is_near = range.start >= all.start && range.start <= all.end.saturating_add(MAX_GAP_BYTES);
        let end = all.end.max(range.end);
        let is_one = other == key && is_near && end - all.start <= MAX_RANGE_BYTES;
        if !is_one || state.find(other, next).is_some() {
            break;
        }
        all.end = end;
        count += 1;
    }
    (Wanted::Range(all), count)
}
