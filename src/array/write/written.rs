//! The arrays of one process that have writers or dirty chunks, and storing several of them although some may hang in
//! the store.
//!
//! Uses `resources.rs`, `sync.rs` and `error`. It uses arrays only through [`WrittenArray`].
//!
//! Arrays follow one another, because storing one array is parallel already. An array that takes long does not hold up
//! the next.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Once, Weak};
use std::time::{Duration, Instant};

use crate::array::sync::{self, Condvar, Mutex};
use crate::array::write::resources::WriteResources;
use crate::error::{Error, Result};

/// How often the timer looks for chunks to store.
const TICK: Duration = Duration::from_secs(1);

/// When one array's write-back hangs, the others wait no longer than this.
const QUIET: Duration = Duration::from_secs(2);

/// If no array is being stored, the next starts at once; if one is, after this time; if two are, after twice this time.
/// So few slow arrays run together, and arrays that hang do not stop the others.
const PATIENCE: Duration = Duration::from_millis(500);

/// An array that has writers or dirty chunks.
pub trait WrittenArray: Send + Sync + 'static {
    /// Returns the array's number.
    fn number(&self) -> u64;
    /// Returns the array's path.
    fn path(&self) -> &str;
    /// Returns the key of its metadata document.
    fn document_key(&self) -> &str;
    /// Returns whether one of two arrays grew from the other.
    fn is_same_file(&self, other: &Self) -> bool;
    /// Returns whether one of two arrays may make room for the other: a member of a catalogue waits for no other one.
    fn shares_limit_with(&self, other: &Self) -> bool;
    /// Returns whether something is not yet in the store.
    fn is_dirty(&self) -> bool;
    /// Stores dirty chunks if the dirty limit is exceeded.
    fn store_to_make_room(&self) -> Result<()>;
    /// Stores what has had no write for this long. Counts and logs failures.
    fn store_settled(&self, writeback_delay: Duration);
    /// Stores everything and makes it durable.
    fn store_all(&self) -> Result<()>;
}

/// The written arrays. The list keeps them alive.
pub struct WrittenArrays<A> {
    arrays: Mutex<Vec<Arc<A>>>,
    /// Numbers of the arrays that hang in the store during write-back. Only explicit requests store them.
    hanging: Mutex<HashSet<u64>>,
    /// The timer stores a chunk after this time without a write. `None`: there is no timer.
    writeback_delay: Option<Duration>,
    timer: Once,
    /// Counts stored objects: as long as the count grows, nothing hangs.
    resources: Arc<WriteResources>,
}

impl<A: WrittenArray> WrittenArrays<A> {
    /// Creates an empty list.
    pub fn new(writeback_delay: Option<Duration>, resources: &Arc<WriteResources>) -> Self {
        WrittenArrays {
            arrays: Mutex::default(),
            hanging: Mutex::default(),
            writeback_delay,
            timer: Once::new(),
            resources: Arc::clone(resources),
        }
    }

    /// Adds an array in place of the one that it grew from, and starts the timer.
    pub fn register(self: &Arc<Self>, array: &Arc<A>) {
        let mut arrays = self.arrays.lock();
        arrays.retain(|known| !known.is_same_file(array));
        arrays.push(Arc::clone(array));
        drop(arrays);
        if self.writeback_delay.is_none() {
            return;
        }
        self.timer.call_once(|| {
            let arrays = Arc::downgrade(self);
            if let Err(error) = sync::spawn("write-back".to_owned(), move || tick(&arrays)) {
                log::warn!(
                    "cannot start the write-back timer: {error}; changes are stored by close and fsync"
                );
            }
        });
    }

    /// Removes an array that has no writer and no dirty chunk.
    pub fn unregister(&self, array: &A) {
        self.arrays.lock().retain(|known| !known.is_same_file(array));
    }

    /// Returns whether an array, or the one that it grew from, is among them.
    pub fn is_registered(&self, array: &A) -> bool {
        self.arrays.lock().iter().any(|known| known.is_same_file(array))
    }

    /// Returns the arrays.
    pub fn all(&self) -> Vec<Arc<A>> {
        self.arrays.lock().clone()
    }

    /// Returns the arrays that do not hang in the store.
    fn answering(&self) -> Vec<Arc<A>> {
        let mut arrays = self.all();
        let hanging = self.hanging.lock();
        arrays.retain(|array| !hanging.contains(&array.number()));
        arrays
    }

    /// Stores what no write has touched for `writeback_delay`. The timer calls this each second.
    pub fn store_settled(self: &Arc<Self>, writeback_delay: Duration) {
        self.store_each(self.answering(), QUIET, move |array| {
            array.store_settled(writeback_delay);
            Ok(())
        });
    }

    /// Stores dirty chunks of all arrays that share the limit with one, except of that, until dirty bytes are below the limit. Each array counts its own
    /// failures.
    pub fn make_others_store(self: &Arc<Self>, except: &A) {
        let mut others = self.answering();
        others.retain(|array| {
            array.shares_limit_with(except) && !array.is_same_file(except) && array.is_dirty()
        });
        self.store_each(others, QUIET, A::store_to_make_room);
    }

    /// Stores all dirty chunks of the arrays at the paths that `is_meant` admits, and makes them durable. Gives up on arrays that
    /// hang after `quiet` without a stored object. Returns the path and the error of each array that failed.
    pub fn store_all(
        self: &Arc<Self>,
        quiet: Duration,
        is_meant: impl Fn(&str) -> bool,
    ) -> Vec<(String, Error)> {
        let mut arrays = self.all();
        arrays.retain(|array| is_meant(array.path()));
        self.store_each(arrays, quiet, A::store_all)
    }

    /// Calls `store` for each array. If nothing is stored anywhere for `quiet`, gives up: the arrays that are left
    /// count as timed out (their threads continue if the store comes back). Returns the path and the error of each
    /// array that failed.
    fn store_each(
        self: &Arc<Self>,
        arrays: Vec<Arc<A>>,
        quiet: Duration,
        store: impl Fn(&A) -> Result<()> + Copy + Send + 'static,
    ) -> Vec<(String, Error)> {
        let progress = FlushProgress {
            waiting: arrays.into(),
            running: HashMap::new(),
            failed: Vec::new(),
            is_over: false,
        };
        let flush = Arc::new(FlushPass {
            arrays: Arc::clone(self),
            progress: Mutex::new(progress),
            finished: Condvar::new(),
        });
        let mut progress = flush.progress.lock();
        let mut stored = self.resources.objects_stored();
        let mut last_news = Instant::now();
        loop {
            while let Some(array) = progress.next(Instant::now()) {
                start_store(&flush, &mut progress, array, store);
            }
            if progress.waiting.is_empty() && progress.running.is_empty() {
                return std::mem::take(&mut progress.failed);
            }
            let stored_now = self.resources.objects_stored();
            if stored_now != stored {
                (stored, last_news) = (stored_now, Instant::now());
            }
            if last_news.elapsed() >= quiet {
                return progress.give_up(&self.hanging);
            }
            flush.finished.wait_for(&mut progress, PATIENCE.min(quiet));
        }
    }
}

fn tick<A: WrittenArray>(arrays: &Weak<WrittenArrays<A>>) {
    loop {
        sync::thread::sleep(TICK);
        let Some(arrays) = arrays.upgrade() else { return };
        let Some(writeback_delay) = arrays.writeback_delay else { return };
        arrays.store_settled(writeback_delay);
    }
}

/// One pass through several arrays.
struct FlushPass<A> {
    arrays: Arc<WrittenArrays<A>>,
    progress: Mutex<FlushProgress<A>>,
    finished: Condvar,
}

struct FlushProgress<A> {
    waiting: VecDeque<Arc<A>>,
    /// The arrays being stored, by number, and when each started.
    running: HashMap<u64, (Arc<A>, Instant)>,
    failed: Vec<(String, Error)>,
    /// The caller has stopped waiting.
    is_over: bool,
}

impl<A: WrittenArray> FlushProgress<A> {
    /// Returns the array to start now.
    fn next(&mut self, now: Instant) -> Option<Arc<A>> {
        let running = u32::try_from(self.running.len()).unwrap_or(u32::MAX);
        let last_begun = self.running.values().map(|(_, since)| *since).max();
        let is_time =
            last_begun.is_none_or(|since| now.duration_since(since) >= PATIENCE.saturating_mul(running));
        if is_time { self.waiting.pop_front() } else { None }
    }

    /// Stops waiting for the arrays that are left.
    fn give_up(&mut self, hanging: &Mutex<HashSet<u64>>) -> Vec<(String, Error)> {
        self.is_over = true;
        let mut failed = std::mem::take(&mut self.failed);
        let running = self.running.drain().map(|(number, (array, _))| {
            hanging.lock().insert(number);
            array
        });
        for array in running.chain(self.waiting.drain(..)) {
            let timed_out = Error::TimedOut { key: array.document_key().to_owned() };
            failed.push((array.path().to_owned(), timed_out));
        }
        failed
    }
}

fn start_store<A: WrittenArray>(
    flush: &Arc<FlushPass<A>>,
    progress: &mut FlushProgress<A>,
    array: Arc<A>,
    store: impl FnOnce(&A) -> Result<()> + Send + 'static,
) {
    progress.running.insert(array.number(), (array.clone(), Instant::now()));
    let (of_thread, ours) = (flush.clone(), array.clone());
    let run = move || {
        let outcome = store(&ours);
        let mut progress = of_thread.progress.lock();
        of_thread.arrays.hanging.lock().remove(&ours.number());
        progress.running.remove(&ours.number());
        if let (Err(error), false) = (outcome, progress.is_over) {
            progress.failed.push((ours.path().to_owned(), error));
        }
        of_thread.finished.notify_all();
    };
    if let Err(error) = sync::spawn("store".to_owned(), run) {
        progress.running.remove(&array.number());
        let failure = Error::store(array.path(), "start the write-back thread", error);
        progress.failed.push((array.path().to_owned(), failure));
    }
}
