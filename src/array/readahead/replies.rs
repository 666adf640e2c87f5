//! Replies prepared ahead of a sequential reader that sends one request at a time (direct I/O): while the kernel
//! copies one reply, another thread prepares the next.
//!
//! Uses its neighbours in `array`, `memory` and `cancellation`. A span of the file is copied from memory; for uncompressed
//! chunks it is read from the store.
//!
//! Invariants: a span is used only if a read would return the same: the array was never written here, and its epoch is
//! the same. No reader waits for a span that is only queued, and no session thread for a span that waits for the store.
//! All spans of an engine share one limit.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::array::read::Access;
use crate::array::read::plan::ReadPlan;
use crate::array::read::reply_buffer::CachedSlice;
use crate::array::sync::atomic::{AtomicU64, Ordering};
use crate::array::sync::{Condvar, Mutex};
use crate::array::{Blocking, Inner};
use crate::cancellation::Cancellation;
use crate::memory::Buffer;

/// Shorter requests share a span of about this length.
const SPAN_BYTES: u64 = 1 << 20;
/// How far ahead of a reader spans are prepared.
const AHEAD_BYTES: u64 = 4 << 20;
/// The limit for the spans of all readers. For a small cache, this fraction of it.
const MOST_BYTES: u64 = 16 << 20;
const PART_OF_CACHE: u64 = 8;

/// The memory of the spans of all readers.
pub struct ReplyBudget {
    taken: Arc<AtomicU64>,
    limit: u64,
}

impl ReplyBudget {
    /// The limit for an engine with this cache limit.
    pub fn new(cache_limit_bytes: u64) -> Self {
        ReplyBudget { taken: Arc::default(), limit: MOST_BYTES.min(cache_limit_bytes / PART_OF_CACHE) }
    }
}

/// The spans of one reader, in file order.
#[derive(Default)]
pub struct Spans(VecDeque<Arc<Span>>);

struct Span {
    array: u64,
    range: Range<u64>,
    state: Mutex<State>,
    is_over: Condvar,
    taken: Arc<AtomicU64>,
}

enum State {
    /// In the queue.
    Queued,
    /// A thread fills it. `may_block`: that thread may wait for the store.
    Filling {
        may_block: bool,
    },
    Ready {
        bytes: Arc<Buffer>,
        epoch: u64,
    },
    /// Not in memory, failed, or no longer wanted.
    Void,
}

/// The reply that was prepared for a reader.
pub enum ReadyReply {
    /// The bytes of a span.
    Ready(CachedSlice),
    /// A thread reads them from the store.
    Blocks,
    /// No reply was prepared.
    None,
}

impl Drop for Spans {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.length(), Ordering::Relaxed);
    }
}

impl Spans {
    /// Drops all spans: the reader has moved elsewhere.
    pub fn clear(&mut self) {
        for span in self.0.drain(..) {
            let mut state = span.state.lock();
            if let State::Queued = *state {
                *state = State::Void;
            }
        }
    }

    /// The span that covers a range. Drops spans that end before the range.
    fn find(&mut self, wanted: &Range<u64>) -> Option<Arc<Span>> {
        while self.0.front().is_some_and(|span| span.range.end <= wanted.start) {
            self.0.pop_front();
        }
        let first = self.0.front()?;
        (first.range.start <= wanted.start && wanted.end <= first.range.end).then(|| Arc::clone(first))
    }
}

impl Span {
    fn length(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Fills the span, if it is still wanted.
    fn fill(&self, array: &Arc<Inner>, cancellation: &Cancellation) {
        {
            let mut state = self.state.lock();
            if !matches!(*state, State::Queued) {
                return;
            }
            *state = State::Filling { may_block: false };
        }
        // Wakes the waiting reader also if a library panics.
        let _guard = FillGuard(self);
        let epoch = array.epoch.load(Ordering::Acquire);
        let Ok(length) = usize::try_from(self.length()) else { return };
        let mut bytes = array.load_context().buffer(length);
        let (range, mut plan) = (self.range.clone(), ReadPlan::default());
        let mut read = |blocking| {
            let access = Access { blocking, is_sequential: true, cancellation };
            // The reader that asks for the bytes gets the error.
            Inner::read(array, range.clone(), &mut plan, &mut bytes, access).unwrap_or(false)
        };
        let is_filled = read(Blocking::No) || {
            *self.state.lock() = State::Filling { may_block: true };
            self.is_over.notify_all();
            let is_written = array.writing.is_written.load(Ordering::Acquire);
            array.reads_ranges(true) && !is_written && read(Blocking::Yes)
        };
        if is_filled {
            *self.state.lock() = State::Ready { bytes: Arc::new(bytes), epoch };
        }
    }
}

struct FillGuard<'a>(&'a Span);

impl Drop for FillGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if let State::Filling { .. } = *state {
            *state = State::Void;
        }
        drop(state);
        self.0.is_over.notify_all();
    }
}

impl Inner {
    /// A prepared reply for a range, if it equals what a read returns. Waits while a thread fills it, but for the store only
    /// if `blocking` allows.
    pub(in crate::array) fn take_reply(
        &self,
        spans: &Mutex<Spans>,
        wanted: Range<u64>,
        blocking: Blocking,
    ) -> ReadyReply {
        let Some(span) = spans.lock().find(&wanted) else { return ReadyReply::None };
        let mut state = span.state.lock();
        loop {
            match &*state {
                State::Filling { may_block: true } if blocking == Blocking::No => return ReadyReply::Blocks,
                State::Filling { .. } => span.is_over.wait(&mut state),
                State::Queued => *state = State::Void,
                State::Void => return ReadyReply::None,
                State::Ready { bytes, epoch } => {
                    let is_as_read = span.array == self.number
                        && !self.writing.is_written.load(Ordering::Acquire)
                        && *epoch == self.epoch.load(Ordering::Acquire);
                    if !is_as_read {
                        return ReadyReply::None;
                    }
                    let from = (wanted.start - span.range.start) as usize;
                    let to = (wanted.end - span.range.start) as usize;
                    return ReadyReply::Ready(CachedSlice::new(Arc::clone(bytes), from..to));
                }
            }
        }
    }

    /// Prepares what a sequential reader asks for next, in requests of `request_bytes` from `next` on.
    pub(in crate::array) fn prepare_replies(
        inner: &Arc<Inner>,
        spans: &Mutex<Spans>,
        next: u64,
        request_bytes: u64,
    ) {
        let step = request_bytes.saturating_mul(SPAN_BYTES.div_ceil(request_bytes.max(1)));
        if step == 0 || step > AHEAD_BYTES || inner.writing.is_written.load(Ordering::Relaxed) {
            return;
        }
        let size_bytes = inner.grid.size_bytes();
        let mut spans = spans.lock();
        let mut from = spans.0.back().map_or(next, |last| last.range.end.max(next));
        let ReplyBudget { taken, limit } = &inner.engine.reply_budget;
        while from < size_bytes.min(next.saturating_add(AHEAD_BYTES)) {
            let range = from..from.saturating_add(step).min(size_bytes);
            let length = range.end - range.start;
            if taken.fetch_add(length, Ordering::Relaxed) + length > *limit {
                taken.fetch_sub(length, Ordering::Relaxed);
                return;
            }
            from = range.end;
            let (state, is_over) = (Mutex::new(State::Queued), Condvar::new());
            let span = Span { array: inner.number, range, state, is_over, taken: Arc::clone(taken) };
            let (span, array) = (Arc::new(span), Arc::clone(inner));
            spans.0.push_back(Arc::clone(&span));
            let known = Arc::downgrade(&span);
            inner.engine.workers.demand(Box::new(move || {
                // Once the reader has moved elsewhere, only this task holds the span.
                span.fill(&array, &Cancellation::when(move || known.strong_count() <= 1));
            }));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::array::{Array, Engine, Layout, Readahead, Reader};
    use crate::metadata::{Document, parse_v3};
    use crate::store::{MemoryStore, Store};

    const MIB: u64 = 1 << 20;

    /// 16 MiB in planes of 4 MiB, each in chunks of 2 MiB.
    fn open(codecs: Value) -> (Arc<Engine>, Arc<Array>, Vec<u8>) {
        let content: Vec<u8> = (0..16 * MIB).map(|at| ((at * at) >> 9) as u8 & 0x3f).collect();
        let document = json!({"zarr_format": 3, "node_type": "array", "shape": [4, 2048, 2048], "data_type": "uint8",
            "fill_value": 0, "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 2048, 1024]}},
            "chunk_key_encoding": {"name": "default"}, "codecs": codecs});
        let Document::Array(metadata) = parse_v3("zarr.json", document.to_string().as_bytes()).unwrap()
        else {
            panic!("an array")
        };
        let store = MemoryStore::new();
        store.put("zarr.json", document.to_string().into_bytes()).unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        let metadata = Arc::new(metadata);
        let writer =
            Array::open(&Engine::new(64 * MIB, 2), &store, "", Arc::clone(&metadata), Layout::default())
                .unwrap();
        writer.open_for_writing().unwrap();
        writer.write_at(0, &content).unwrap();
        writer.flush().unwrap();
        writer.close_for_writing();
        let engine = Engine::new(64 * MIB, 2);
        let array = Array::open(&engine, &store, "", metadata, Layout::default()).unwrap();
        (engine, array, content)
    }

    fn read(array: &Array, reader: &Reader, offset: u64, length: u64) {
        array.read_for(reader, offset..offset + length).unwrap();
    }

    fn settle(reader: &Reader) {
        let is_under_way = || {
            let spans = reader.replies.lock();
            spans.0.iter().any(|span| matches!(*span.state.lock(), State::Queued | State::Filling { .. }))
        };
        while is_under_way() {
            std::thread::yield_now();
        }
    }

    fn taken(array: &Array, reader: &Reader, range: Range<u64>) -> Option<Vec<u8>> {
        match array.inner.take_reply(&reader.replies, range, Blocking::Yes) {
            ReadyReply::Ready(slice) => Some(slice.to_vec()),
            ReadyReply::Blocks => panic!("it may block"),
            ReadyReply::None => None,
        }
    }

    fn raw_and_compressed() -> [Value; 2] {
        let zstd = json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}});
        [json!([{"name": "bytes"}]), json!([{"name": "bytes"}, zstd])]
    }

    #[test]
    fn prepared_replies_equal_reads() {
        for codecs in raw_and_compressed() {
            for length in [MIB, 96 << 10, 4096] {
                let (engine, array, content) = open(codecs.clone());
                let reader = Reader::new(Readahead::Replies);
                let mut found = 0;
                for offset in (0..content.len() as u64).step_by(length as usize) {
                    let range = offset..(offset + length).min(content.len() as u64);
                    let expected = &content[range.start as usize..range.end as usize];
                    match taken(&array, &reader, range.clone()) {
                        Some(bytes) => {
                            assert!(bytes == expected, "{range:?}");
                            found += 1;
                            read(&array, &reader, range.start, range.end - range.start);
                        }
                        None => read(&array, &reader, range.start, range.end - range.start),
                    }
                    settle(&reader);
                    assert!(engine.reply_budget.taken.load(Ordering::Relaxed) <= 6 * MIB);
                }
                assert!(found > 0, "requests of {length} bytes");
                drop(reader);
                assert_eq!(engine.reply_budget.taken.load(Ordering::Relaxed), 0);
            }
        }
    }

    #[test]
    fn writes_changes_and_seeks_discard_replies() {
        for codecs in raw_and_compressed() {
            let prepared = || {
                let (engine, array, _) = open(codecs.clone());
                let reader = Reader::new(Readahead::Replies);
                read(&array, &reader, 0, MIB);
                read(&array, &reader, MIB, MIB);
                settle(&reader);
                (engine, array, reader)
            };
            let next = 2 * MIB..3 * MIB;
            let (_engine, array, reader) = prepared();
            assert!(taken(&array, &reader, next.clone()).is_some());

            let (_engine, array, reader) = prepared();
            array.open_for_writing().unwrap();
            array.write_at(2 * MIB, b"new").unwrap();
            assert!(taken(&array, &reader, next.clone()).is_none());
            array.flush().unwrap();
            array.close_for_writing();
            read(&array, &reader, 2 * MIB, MIB);
            assert!(taken(&array, &reader, 3 * MIB..4 * MIB).is_none());

            let (_engine, array, reader) = prepared();
            array.inner.epoch.fetch_add(1, Ordering::AcqRel);
            assert!(taken(&array, &reader, next.clone()).is_none());

            let (engine, array, reader) = prepared();
            read(&array, &reader, 12 * MIB, MIB);
            assert!(taken(&array, &reader, next).is_none());
            assert_eq!(engine.reply_budget.taken.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn all_readers_share_one_limit() {
        let (engine, array, _) = open(json!([{"name": "bytes"}]));
        let readers: Vec<Reader> = (0..8).map(|_| Reader::new(Readahead::Replies)).collect();
        for reader in &readers {
            read(&array, reader, 0, MIB);
            read(&array, reader, MIB, MIB);
        }
        assert_eq!(engine.reply_budget.taken.load(Ordering::Relaxed), 8 * MIB, "of a cache of 64 MiB");
        drop(readers);
        drop(array);
        while engine.reply_budget.taken.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
    }
}
