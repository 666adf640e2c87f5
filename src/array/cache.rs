//! The chunk cache: decoded chunks by (array, unit), weighted by their bytes, least recently used first out.
//!
//! A **unit** is the smallest part of an array that decodes on its own: an inner chunk of a shard, else a
//! chunk. Uses `error`, `store` (for versions) and the `lru` crate for the order of eviction.
//!
//! Invariants:
//! - Single flight: however many readers miss one unit at the same time, it is loaded once; the others wait for it.
//! - The weight of all entries, and what [`ChunkCache::hold`] gave away, never exceed the limit. A unit heavier than
//!   that is handed out and not kept.
//! - An absent chunk has the weight of its entry only.
//! - An entry is used without a look at the store while it was validated in the array's present epoch; see
//!   [`Version`].
//! - Nobody joins a load that began in an earlier epoch than his own: it may bring what was there before. Nor does
//!   its result take the place of what is known from a later epoch.
//! - A load that fails leaves no entry: the next reader tries again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lru::LruCache;
use parking_lot::{Condvar, Mutex};

use super::buffer::Buffer;
use crate::codec::shard_index::ShardIndex;
use crate::error::{Error, Result};
use crate::store::Validator;

/// Which unit of which array. `level` tells the units (0) from the indexes of shards (1 for the outermost).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The array's number in this engine.
    pub array: u64,
    /// What `number` counts.
    pub level: u32,
    /// The unit's number in C order over the served grid, or the shard's.
    pub number: u64,
}

/// What is cached.
#[derive(Clone)]
pub enum Content {
    /// No such chunk in the store: it is all fill value.
    Absent,
    /// The decoded unit, in served order and byte order.
    Unit(Arc<Buffer>),
    /// The index of a shard.
    Index(Arc<ShardIndex>),
}

/// Which stored object the content came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The object's validator, `None` where it was missing.
    pub object: Option<Validator>,
    /// The array's epoch in which that was seen last.
    pub epoch: u64,
}

/// What a load brings.
pub type Loaded = (Content, Option<Validator>);

const ENTRY_BYTES: u64 = 160;

impl Content {
    fn weight_bytes(&self) -> u64 {
        ENTRY_BYTES
            + match self {
                Content::Absent => 0,
                Content::Unit(buffer) => buffer.len() as u64,
                Content::Index(index) => index.size_bytes() as u64,
            }
    }
}

struct Entry {
    content: Content,
    version: Version,
}

/// A load under way: the readers that wait for it sleep here.
struct Flight {
    /// The epoch in which it began.
    epoch: u64,
    outcome: Mutex<Option<Result<Loaded>>>,
    landed: Condvar,
}

struct State {
    entries: LruCache<Key, Entry>,
    weight_bytes: u64,
    held_bytes: u64,
    flights: HashMap<Key, Arc<Flight>>,
}

/// What the cache has done so far.
#[derive(Debug, Default)]
pub struct Counters {
    /// Units found.
    pub hits: AtomicU64,
    /// Units that had to be loaded.
    pub misses: AtomicU64,
    /// Entries dropped to make room.
    pub evictions: AtomicU64,
}

/// The cache of one engine.
pub struct ChunkCache {
    state: Mutex<State>,
    limit_bytes: u64,
    /// Counts for the statistics.
    pub counters: Counters,
}

/// The answer of [`ChunkCache::peek`].
pub enum Peek {
    /// There, and validated in this epoch.
    Fresh(Content),
    /// There, but to be compared with the store first.
    Old,
    /// Not there.
    Missing,
}

impl ChunkCache {
    /// A cache that holds at most `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Self {
        let (entries, flights) = (LruCache::unbounded(), HashMap::new());
        let state = State { entries, weight_bytes: 0, held_bytes: 0, flights };
        ChunkCache { state: Mutex::new(state), limit_bytes, counters: Counters::default() }
    }

    /// The limit in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Bytes held now.
    pub fn weight_bytes(&self) -> u64 {
        self.state.lock().weight_bytes
    }

    /// Looks without loading; a fresh entry becomes the most recently used.
    pub fn peek(&self, key: Key, epoch: u64) -> Peek {
        match self.state.lock().entries.get(&key) {
            Some(entry) if entry.version.epoch >= epoch => Peek::Fresh(entry.content.clone()),
            Some(_) => Peek::Old,
            None => Peek::Missing,
        }
    }

    /// The content of a key: from the cache, from a load that is under way, or by `load`.
    ///
    /// `unchanged` is asked whether the object of an entry from an earlier epoch is still the same.
    pub fn get(
        &self,
        key: Key,
        epoch: u64,
        unchanged: impl FnOnce(Option<Validator>) -> Result<bool>,
        load: impl FnOnce() -> Result<Loaded>,
    ) -> Result<Content> {
        let (flight, old) = {
            let mut state = self.state.lock();
            let old = match state.entries.get(&key) {
                Some(entry) if entry.version.epoch >= epoch => {
                    self.counters.hits.fetch_add(1, Ordering::Relaxed);
                    return Ok(entry.content.clone());
                }
                Some(entry) => Some((entry.content.clone(), entry.version.object)),
                None => None,
            };
            if let Some(flight) = state.flights.get(&key).filter(|flight| flight.epoch >= epoch) {
                let flight = Arc::clone(flight);
                drop(state);
                self.counters.hits.fetch_add(1, Ordering::Relaxed);
                return flight.wait();
            }
            let flight = Arc::new(Flight { epoch, outcome: Mutex::default(), landed: Condvar::new() });
            state.flights.insert(key, Arc::clone(&flight));
            (flight, old)
        };
        let mut landing = Landing { cache: self, key, flight, outcome: None };
        let reload = || {
            if let Some((content, object)) = old
                && unchanged(object)?
            {
                self.counters.hits.fetch_add(1, Ordering::Relaxed);
                return Ok((content, object));
            }
            self.counters.misses.fetch_add(1, Ordering::Relaxed);
            load()
        };
        let outcome = reload();
        if let Ok((content, object)) = &outcome {
            self.insert(key, content.clone(), Version { object: *object, epoch });
        }
        landing.outcome = Some(outcome.clone());
        outcome.map(|(content, _)| content)
    }

    /// The content of a key as it is in one version of its object, whatever the epoch: what is cached of
    /// another version is loaded anew.
    pub fn get_version(
        &self,
        key: Key,
        version: Validator,
        load: impl Fn() -> Result<Content>,
    ) -> Result<Content> {
        let of_this = |object: Option<Validator>| object == Some(version);
        if let Some(entry) = self.state.lock().entries.get(&key)
            && of_this(entry.version.object)
        {
            return Ok(entry.content.clone());
        }
        // An epoch that no entry has reached makes `get` ask whether the entry's version is this one.
        let mut loaded_here = false;
        let content = self.get(
            key,
            u64::MAX,
            |object| Ok(of_this(object)),
            || {
                loaded_here = true;
                Ok((load()?, Some(version)))
            },
        )?;
        if loaded_here {
            return Ok(content);
        }
        // It came from a load that another reader began, perhaps of another version.
        match self.state.lock().entries.peek(&key) {
            Some(entry) if of_this(entry.version.object) => Ok(entry.content.clone()),
            _ => load(),
        }
    }

    /// Whether a load of the key is under way or done.
    pub fn is_known(&self, key: Key, epoch: u64) -> bool {
        let state = self.state.lock();
        state.flights.get(&key).is_some_and(|flight| flight.epoch >= epoch)
            || state.entries.peek(&key).is_some_and(|entry| entry.version.epoch >= epoch)
    }

    /// Puts what was just stored.
    pub fn put(&self, key: Key, content: Content, version: Version) {
        self.insert(key, content, version);
    }

    /// Forgets one key.
    pub fn forget(&self, key: Key) {
        let mut state = self.state.lock();
        if let Some(entry) = state.entries.pop(&key) {
            state.weight_bytes -= entry.content.weight_bytes();
        }
    }

    fn insert(&self, key: Key, content: Content, version: Version) {
        let weight = content.weight_bytes();
        let mut dropped = Vec::new();
        let mut state = self.state.lock();
        if state.entries.peek(&key).is_some_and(|entry| entry.version.epoch > version.epoch) {
            return;
        }
        if let Some(old) = state.entries.pop(&key) {
            state.weight_bytes -= old.content.weight_bytes();
            dropped.push(old);
        }
        if weight > self.limit_bytes - state.held_bytes {
            return;
        }
        dropped.extend(self.make_room(&mut state, weight));
        state.weight_bytes += weight;
        state.entries.put(key, Entry { content, version });
        drop(state); // buffers are freed outside the lock
        drop(dropped);
    }

    /// Drops the oldest entries until there is room for `bytes`, which the limit allows for.
    fn make_room(&self, state: &mut State, bytes: u64) -> Vec<Entry> {
        let mut dropped = Vec::new();
        while state.weight_bytes + state.held_bytes + bytes > self.limit_bytes {
            let Some((_, oldest)) = state.entries.pop_lru() else { break };
            state.weight_bytes -= oldest.content.weight_bytes();
            self.counters.evictions.fetch_add(1, Ordering::Relaxed);
            dropped.push(oldest);
        }
        dropped
    }

    /// Gives away some of the limit to what is no chunk; `false`, and nothing, where that is more than is left of it.
    pub fn hold(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        if bytes > self.limit_bytes - state.held_bytes {
            return false;
        }
        let dropped = self.make_room(&mut state, bytes);
        state.held_bytes += bytes;
        drop(state); // buffers are freed outside the lock
        drop(dropped);
        true
    }

    /// Takes back what [`ChunkCache::hold`] gave.
    pub fn release(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.held_bytes = state.held_bytes.saturating_sub(bytes);
    }

    /// Forgets all that belongs to an array.
    pub fn forget_array(&self, array: u64) {
        let mut state = self.state.lock();
        let keys: Vec<Key> =
            state.entries.iter().map(|(key, _)| *key).filter(|key| key.array == array).collect();
        for key in keys {
            if let Some(entry) = state.entries.pop(&key) {
                state.weight_bytes -= entry.content.weight_bytes();
            }
        }
    }
}

impl Flight {
    fn wait(&self) -> Result<Content> {
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(outcome) = outcome.as_ref() {
                return outcome.clone().map(|(content, _)| content);
            }
            self.landed.wait(&mut outcome);
        }
    }
}

/// Ends a flight, also when the load panics or returns early: nobody waits for ever.
struct Landing<'a> {
    cache: &'a ChunkCache,
    key: Key,
    flight: Arc<Flight>,
    outcome: Option<Result<Loaded>>,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.cache.state.lock();
            // A reader of a later epoch may have begun another.
            if state.flights.get(&self.key).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
                state.flights.remove(&self.key);
            }
        }
        let failed =
            || Err(Error::store("", "load", std::io::Error::other("the load of a chunk was abandoned")));
        *self.flight.outcome.lock() = Some(self.outcome.take().unwrap_or_else(failed));
        self.flight.landed.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::array::buffer::BufferPool;

    fn unit(pool: &Arc<BufferPool>, bytes: usize) -> Loaded {
        (Content::Unit(Arc::new(pool.take(bytes))), None)
    }

    fn key(number: u64) -> Key {
        Key { array: 1, level: 0, number }
    }

    #[test]
    fn many_readers_of_one_missing_unit_load_it_once() {
        let cache = ChunkCache::new(1 << 20);
        let pool = BufferPool::new(0);
        let loads = AtomicU64::new(0);
        let barrier = Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    cache
                        .get(
                            key(3),
                            0,
                            |_| Ok(true),
                            || {
                                loads.fetch_add(1, Ordering::SeqCst);
                                std::thread::sleep(std::time::Duration::from_millis(20));
                                Ok(unit(&pool, 10))
                            },
                        )
                        .unwrap();
                });
            }
        });
        assert_eq!(loads.load(Ordering::SeqCst), 1);
    }

    /// A program that has fsynced and reads again must not be given what a slow load brings that began before.
    #[test]
    fn a_load_from_before_a_change_is_neither_joined_nor_kept() {
        let cache = ChunkCache::new(1 << 20);
        let pool = BufferPool::new(0);
        let content = |byte: u8| {
            let mut buffer = pool.take(1);
            buffer.fill(byte);
            Ok((Content::Unit(Arc::new(buffer)), None))
        };
        let byte = |content: Content| match content {
            Content::Unit(buffer) => buffer[0],
            _ => 0,
        };
        let (begun, old_may_land) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| {
                let load = || {
                    begun.wait();
                    old_may_land.wait();
                    content(1)
                };
                byte(cache.get(key(3), 0, |_| Ok(true), load).unwrap())
            });
            begun.wait();
            assert!(!cache.is_known(key(3), 1));
            let new = cache.get(key(3), 1, |_| Ok(true), || content(2)).unwrap();
            assert_eq!(byte(new), 2);
            old_may_land.wait();
            assert_eq!(slow.join().unwrap(), 1);
        });
        let Peek::Fresh(kept) = cache.peek(key(3), 1) else { unreachable!("the newer one stays") };
        assert_eq!(byte(kept), 2);
        assert!(cache.state.lock().flights.is_empty());
    }

    #[test]
    fn the_weight_stays_within_the_limit_and_the_oldest_goes_first() {
        let cache = ChunkCache::new(3 * (1000 + ENTRY_BYTES));
        let pool = BufferPool::new(0);
        for number in 0..10 {
            cache.get(key(number), 0, |_| Ok(true), || Ok(unit(&pool, 1000))).unwrap();
            assert!(cache.weight_bytes() <= cache.limit_bytes());
        }
        assert!(matches!(cache.peek(key(9), 0), Peek::Fresh(_)));
        assert!(matches!(cache.peek(key(6), 0), Peek::Missing));
        cache.get(key(50), 0, |_| Ok(true), || Ok(unit(&pool, 100_000))).unwrap();
        assert!(matches!(cache.peek(key(50), 0), Peek::Missing));
    }

    #[test]
    fn what_is_held_takes_the_place_of_chunks() {
        let cache = ChunkCache::new(3 * (1000 + ENTRY_BYTES));
        let pool = BufferPool::new(0);
        let load =
            |number| cache.get(key(number), 0, |_| Ok(true), || Ok(unit(&pool, 1000))).map(drop).unwrap();
        (0..3).for_each(load);
        assert!(cache.hold(1500));
        assert_eq!(cache.weight_bytes(), 1000 + ENTRY_BYTES);
        (3..6).for_each(load);
        assert_eq!(cache.weight_bytes(), 1000 + ENTRY_BYTES);
        assert!(!cache.hold(cache.limit_bytes() - 1499));
        assert!(cache.hold(cache.limit_bytes() - 1500));
        assert_eq!(cache.weight_bytes(), 0);
        load(6);
        assert!(matches!(cache.peek(key(6), 0), Peek::Missing));
        cache.release(cache.limit_bytes());
        (0..3).for_each(load);
        assert_eq!(cache.weight_bytes(), cache.limit_bytes());
    }

    #[test]
    fn absent_chunks_weigh_next_to_nothing() {
        let cache = ChunkCache::new(1 << 20);
        for number in 0..100 {
            cache.get(key(number), 0, |_| Ok(true), || Ok((Content::Absent, None))).unwrap();
        }
        assert_eq!(cache.weight_bytes(), 100 * ENTRY_BYTES);
    }

    #[test]
    fn a_failed_load_is_tried_again_and_an_old_entry_is_validated() {
        let cache = ChunkCache::new(1 << 20);
        let pool = BufferPool::new(0);
        assert!(cache.get(key(1), 0, |_| Ok(true), || Err(Error::corrupt("a", "b"))).is_err());
        cache.get(key(1), 0, |_| Ok(true), || Ok(unit(&pool, 8))).unwrap();
        let unread = || -> Result<Loaded> { Err(Error::corrupt("x", "must not load")) };
        cache.get(key(1), 1, |_| Ok(true), unread).unwrap();
        assert!(matches!(cache.peek(key(1), 1), Peek::Fresh(_)));
        assert!(cache.get(key(1), 2, |_| Ok(false), unread).is_err());
    }
}
