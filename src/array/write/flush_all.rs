//! A round: storing several arrays, of which some may hang in the store.
//!
//! One array after the other, since each is stored in parallel by itself; but one that takes long no longer holds up the
//! next. Uses its neighbours in `array`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::array::Inner;
use crate::array::engine::Engine;
use crate::array::sync::{self, Condvar, Mutex};
use crate::error::{Error, Result};

/// With no array in the making the next is begun at once, behind one after this time, behind two after twice this time: where all
/// are slow, few run together, and where some hang, the others get through.
const PATIENCE: Duration = Duration::from_millis(500);

struct State {
    waiting: VecDeque<Arc<Inner>>,
    /// By the array's number: since when.
    running: HashMap<u64, (Arc<Inner>, Instant)>,
    failed: Vec<(String, Error)>,
    /// Whoever started the round has gone on.
    is_over: bool,
}

struct Round {
    state: Mutex<State>,
    finished: Condvar,
}

/// Runs `store` for each array. An array that is not through when nothing has been stored anywhere for `quiet` is given up as
/// timed out (its thread goes on, should the store come back). What failed: the array's path, and why.
pub(in crate::array) fn store_each(
    engine: &Arc<Engine>,
    arrays: Vec<Arc<Inner>>,
    quiet: Duration,
    store: impl Fn(&Inner) -> Result<()> + Copy + Send + 'static,
) -> Vec<(String, Error)> {
    let state = State { waiting: arrays.into(), running: HashMap::new(), failed: Vec::new(), is_over: false };
    let round = Arc::new(Round { state: Mutex::new(state), finished: Condvar::new() });
    let mut state = round.state.lock();
    let mut stored = engine.counters().objects_stored;
    let mut last_news = Instant::now();
    loop {
        while let Some(array) = state.next(Instant::now()) {
            start(&round, &mut state, engine, array, store);
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
        round.finished.wait_for(&mut state, PATIENCE.min(quiet));
    }
}

impl State {
    /// The array to begin with now.
    fn next(&mut self, now: Instant) -> Option<Arc<Inner>> {
        let running = u32::try_from(self.running.len()).unwrap_or(u32::MAX);
        let last_begun = self.running.values().map(|(_, since)| *since).max();
        let is_time =
            last_begun.is_none_or(|since| now.duration_since(since) >= PATIENCE.saturating_mul(running));
        if is_time { self.waiting.pop_front() } else { None }
    }

    /// Leaves what is not through to itself.
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
    round: &Arc<Round>,
    state: &mut State,
    engine: &Arc<Engine>,
    array: Arc<Inner>,
    store: impl FnOnce(&Inner) -> Result<()> + Send + 'static,
) {
    state.running.insert(array.number, (array.clone(), Instant::now()));
    let (of_thread, engine, ours) = (round.clone(), engine.clone(), array.clone());
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
        state
            .failed
            .push((array.path.clone(), Error::store(array.path.as_str(), "start a thread for", error)));
    }
}
