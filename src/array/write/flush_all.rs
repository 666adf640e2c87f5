//! Stores several arrays, some of which may hang in the store.
//!
//! Arrays follow one another, because storing one array is parallel already. An array that takes long does not hold up
//! the next. Uses its neighbours in `array`, and `error`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::array::Inner;
use crate::array::engine::Engine;
use crate::array::sync::{self, Condvar, Mutex};
use crate::error::{Error, Result};

/// If no array is being stored, the next starts at once; if one is, after this time; if two are, after twice this time.
/// So few slow arrays run together, and arrays that hang do not stop the others.
const PATIENCE: Duration = Duration::from_millis(500);

struct State {
    waiting: VecDeque<Arc<Inner>>,
    /// The arrays being stored, by number, and when each started.
    running: HashMap<u64, (Arc<Inner>, Instant)>,
    failed: Vec<(String, Error)>,
    /// The caller has stopped waiting.
    is_over: bool,
}

struct FlushAll {
    state: Mutex<State>,
    finished: Condvar,
}

/// Calls `store` for each array. If nothing is stored anywhere for `quiet`, gives up: the arrays that are left count as
/// timed out (their threads continue if the store comes back). Returns the path and the error of each array that
/// failed.
pub(in crate::array) fn store_each(
    engine: &Arc<Engine>,
    arrays: Vec<Arc<Inner>>,
    quiet: Duration,
    store: impl Fn(&Inner) -> Result<()> + Copy + Send + 'static,
) -> Vec<(String, Error)> {
    let state = State { waiting: arrays.into(), running: HashMap::new(), failed: Vec::new(), is_over: false };
    let flush = Arc::new(FlushAll { state: Mutex::new(state), finished: Condvar::new() });
    let mut state = flush.state.lock();
    let mut stored = engine.counters().objects_stored;
    let mut last_news = Instant::now();
    loop {
        while let Some(array) = state.next(Instant::now()) {
            start(&flush, &mut state, engine, array, store);
        }
        if state.waiting.is_empty() && state.running.is_empty() {
            return std::mem::take(&mut state.failed);
        }
        let stored_now = engine.counters().objects_stored;
        if stored_now != stored {
            (stored, last_news) = (stored_now, Instant::now());
        }
        if last_news.elapsed() >= quiet {
            return state.give_up(engine);
        }
        flush.finished.wait_for(&mut state, PATIENCE.min(quiet));
    }
}

impl State {
    /// The array to start now.
    fn next(&mut self, now: Instant) -> Option<Arc<Inner>> {
        let running = u32::try_from(self.running.len()).unwrap_or(u32::MAX);
        let last_begun = self.running.values().map(|(_, since)| *since).max();
        let is_time =
            last_begun.is_none_or(|since| now.duration_since(since) >= PATIENCE.saturating_mul(running));
        if is_time { self.waiting.pop_front() } else { None }
    }

    /// Stops waiting for the arrays that are left.
    fn give_up(&mut self, engine: &Engine) -> Vec<(String, Error)> {
        self.is_over = true;
        let mut failed = std::mem::take(&mut self.failed);
        let running = self.running.drain().map(|(number, (array, _))| {
            engine.hanging.lock().insert(number);
            array
        });
        for array in running.chain(self.waiting.drain(..)) {
            failed.push((array.path.clone(), Error::TimedOut { key: array.metadata.document_key.clone() }));
        }
        failed
    }
}

fn start(
    flush: &Arc<FlushAll>,
    state: &mut State,
    engine: &Arc<Engine>,
    array: Arc<Inner>,
    store: impl FnOnce(&Inner) -> Result<()> + Send + 'static,
) {
    state.running.insert(array.number, (array.clone(), Instant::now()));
    let (of_thread, engine, ours) = (flush.clone(), engine.clone(), array.clone());
    let run = move || {
        let outcome = store(&ours);
        let mut state = of_thread.state.lock();
        engine.hanging.lock().remove(&ours.number);
        state.running.remove(&ours.number);
        if let (Err(error), false) = (outcome, state.is_over) {
            state.failed.push((ours.path.clone(), error));
        }
        of_thread.finished.notify_all();
    };
    if let Err(error) = sync::spawn("store".to_owned(), run) {
        state.running.remove(&array.number);
        state.failed.push((
            array.path.clone(),
            Error::store(array.path.as_str(), "start the write-back thread", error),
        ));
    }
}
