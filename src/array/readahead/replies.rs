//! Spans of the file that are gathered ahead of a sequential reader whose requests come one after the other (direct I/O): while
//! the kernel takes one answer, another thread makes the next.
//!
//! Uses its neighbours in `array`, and `request`. Spans are gathered from what is in memory; of raw chunks they are read, too.
//!
//! Invariants: a span is given only while it is what a read would find: the array was never written here, and its epoch is the
//! same. Nobody waits for a span that was not begun, and a session thread for none that waits for the store. All spans of
//! an engine together have a limit.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::array::read::CachedSlice;
use crate::array::sync::atomic::{AtomicU64, Ordering};
use crate::array::sync::{Condvar, Mutex};
use crate::array::{Array, Inner, Reader};
use crate::memory::Buffer;
use crate::request;

/// Shorter requests share a span of about this length.
const SPAN_BYTES: u64 = 1 << 20;
/// So far ahead of a reader spans are gathered.
const AHEAD_BYTES: u64 = 4 << 20;
/// The most that the spans of all readers take; with a small cache, this part of it.
const MOST_BYTES: u64 = 16 << 20;
const PART_OF_CACHE: u64 = 8;

/// What the spans of all readers take.
pub struct GatheredBytes {
    taken: Arc<AtomicU64>,
    limit: u64,
}

impl GatheredBytes {
    /// For an engine whose cache holds so much.
    pub fn new(cache_limit_bytes: u64) -> Self {
        GatheredBytes { taken: Arc::default(), limit: MOST_BYTES.min(cache_limit_bytes / PART_OF_CACHE) }
    }
}

/// The spans of one reader, those that come first in front.
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
    Waiting,
    /// A thread is at it, and waits for the store or not.
    Begun {
        may_block: bool,
    },
    Ready {
        bytes: Arc<Buffer>,
        epoch: u64,
    },
    /// Not in memory, failed, or not wanted any more.
    Void,
}

/// What a reader gets of what was gathered for him.
pub enum ReadyReply {
    /// The bytes of a span.
    Ready(CachedSlice),
    /// They will be there soon, but wait for the store.
    Blocks,
    /// Nothing.
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
    /// Forgets all of them: the reader has gone elsewhere.
    pub fn clear(&mut self) {
        for span in self.0.drain(..) {
            let mut state = span.state.lock();
            if let State::Waiting = *state {
                *state = State::Void;
            }
        }
    }

    /// The span that has a range. What ends before the range is not kept.
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

    /// Gathers it, if it is still wanted.
    fn gather(&self, array: &Inner) {
        {
            let mut state = self.state.lock();
            if !matches!(*state, State::Waiting) {
                return;
            }
            *state = State::Begun { may_block: false };
        }
        // Also where a library panics, who waits for it goes on.
        let _ending = Ending(self);
        let epoch = array.epoch.load(Ordering::Acquire);
        let Ok(length) = usize::try_from(self.length()) else { return };
        let mut bytes = Buffer::new(length);
        let is_gathered = array.try_read(self.range.start, &mut bytes) || {
            *self.state.lock() = State::Begun { may_block: true };
            self.is_over.notify_all();
            // A failure is told to the reader who asks for the bytes.
            array.source.is_raw() && array.read_raw(self.range.start, &mut bytes).is_ok()
        };
        if is_gathered {
            *self.state.lock() = State::Ready { bytes: Arc::new(bytes), epoch };
        }
    }
}

struct Ending<'a>(&'a Span);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if let State::Begun { .. } = *state {
            *state = State::Void;
        }
        drop(state);
        self.0.is_over.notify_all();
    }
}

impl Array {
    /// A range that was gathered ahead for a reader, while it is what [`Array::read_at`] gives. Waits while another thread copies it;
    /// for the store only if it `may_block`.
    pub fn gathered(&self, reader: &Reader, range: Range<u64>, may_block: bool) -> ReadyReply {
        self.inner.take_gathered(&reader.gathered, range, may_block)
    }
}

impl Inner {
    /// A range that was gathered for a reader. Waits while it is gathered; for the store only if it `may_block`.
    pub(in crate::array) fn take_gathered(
        &self,
        spans: &Mutex<Spans>,
        wanted: Range<u64>,
        may_block: bool,
    ) -> ReadyReply {
        let Some(span) = spans.lock().find(&wanted) else { return ReadyReply::None };
        let mut state = span.state.lock();
        loop {
            match &*state {
                State::Begun { may_block: true } if !may_block => return ReadyReply::Blocks,
                State::Begun { .. } => span.is_over.wait(&mut state),
                State::Waiting => *state = State::Void,
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

    /// Has what a sequential reader asks for next, in requests of `request_bytes` from `next` on, gathered.
    pub(in crate::array) fn gather_ahead(
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
        let GatheredBytes { taken, limit } = &inner.engine.gathered_bytes;
        while from < size_bytes.min(next.saturating_add(AHEAD_BYTES)) {
            let range = from..from.saturating_add(step).min(size_bytes);
            let length = range.end - range.start;
            if taken.fetch_add(length, Ordering::Relaxed) + length > *limit {
                taken.fetch_sub(length, Ordering::Relaxed);
                return;
            }
            from = range.end;
            let (state, is_over) = (Mutex::new(State::Waiting), Condvar::new());
            let span = Span { array: inner.number, range, state, is_over, taken: Arc::clone(taken) };
            let (span, array) = (Arc::new(span), Arc::clone(inner));
            spans.0.push_back(Arc::clone(&span));
            let known = Arc::downgrade(&span);
            inner.engine.workers.demand(Box::new(move || {
                // Only this thread has it once its reader has gone elsewhere.
                request::work_for(move || known.strong_count() > 1, || span.gather(&array));
            }));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::array::{Array, Engine, Layout, Reader};
    use crate::metadata::{Document, parse_v3};
    use crate::store::{MemoryStore, Store};

    const MIB: u64 = 1 << 20;

    /// 16 MiB of bytes in planes of 4 MiB, each in chunks of 2 MiB.
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
        array.read_by(reader, offset, &mut vec![0; length as usize]).unwrap();
        array.note_lone_read(reader, offset, offset + length);
    }

    fn settle(reader: &Reader) {
        let is_under_way = || {
            let spans = reader.gathered.lock();
            spans.0.iter().any(|span| matches!(*span.state.lock(), State::Waiting | State::Begun { .. }))
        };
        while is_under_way() {
            std::thread::yield_now();
        }
    }

    fn taken(array: &Array, reader: &Reader, range: Range<u64>) -> Option<Vec<u8>> {
        match array.gathered(reader, range, true) {
            ReadyReply::Ready(lent) => Some(lent.to_vec()),
            ReadyReply::Blocks => panic!("it may block"),
            ReadyReply::None => None,
        }
    }

    fn raw_and_compressed() -> [Value; 2] {
        let zstd = json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}});
        [json!([{"name": "bytes"}]), json!([{"name": "bytes"}, zstd])]
    }

    #[test]
    fn what_comes_next_is_there_and_is_what_a_read_gives() {
        for codecs in raw_and_compressed() {
            for length in [MIB, 96 << 10, 4096] {
                let (engine, array, content) = open(codecs.clone());
                let reader = Reader::default();
                let mut found = 0;
                for offset in (0..content.len() as u64).step_by(length as usize) {
                    let range = offset..(offset + length).min(content.len() as u64);
                    let expected = &content[range.start as usize..range.end as usize];
                    match taken(&array, &reader, range.clone()) {
                        Some(bytes) => {
                            assert!(bytes == expected, "{range:?}");
                            found += 1;
                            array.note_lone_read(&reader, range.start, range.end);
                        }
                        None => read(&array, &reader, range.start, range.end - range.start),
                    }
                    settle(&reader);
                    assert!(engine.gathered_bytes.taken.load(Ordering::Relaxed) <= 6 * MIB);
                }
                assert!(found > 0, "requests of {length} bytes");
                drop(reader);
                assert_eq!(engine.gathered_bytes.taken.load(Ordering::Relaxed), 0);
            }
        }
    }

    #[test]
    fn nothing_is_given_behind_a_write_a_change_in_the_store_or_a_seek() {
        for codecs in raw_and_compressed() {
            let prepared = || {
                let (engine, array, _) = open(codecs.clone());
                let reader = Reader::default();
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
            assert_eq!(engine.gathered_bytes.taken.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn all_readers_together_keep_to_the_limit() {
        let (engine, array, _) = open(json!([{"name": "bytes"}]));
        let readers: Vec<Reader> = (0..8).map(|_| Reader::default()).collect();
        for reader in &readers {
            read(&array, reader, 0, MIB);
            read(&array, reader, MIB, MIB);
        }
        assert_eq!(engine.gathered_bytes.taken.load(Ordering::Relaxed), 8 * MIB, "of a cache of 64 MiB");
        drop(readers);
        drop(array);
        while engine.gathered_bytes.taken.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
    }
}
