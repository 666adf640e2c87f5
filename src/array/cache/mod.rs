//! The chunk cache: decoded chunks by (array, chunk), weighted by their bytes, least recently used first out.
//!
//! A **chunk** is the smallest part of an array that decodes on its own: an inner chunk of a shard, else a
//! chunk. Uses `error`, `store` (for versions) and the `lru` crate for the order of eviction.
//!
//! Invariants:
//! - Single flight: however many readers miss one chunk at the same time, it is loaded once; the others wait for it.
//! - The weight of all entries, and what [`ChunkCache::hold`] gave away, never exceed the limit. A chunk heavier than
//!   that is handed out and not kept.
//! - An absent chunk has the weight of its entry only.
//! - An entry is used without a look at the store while it was validated in the array's present epoch; see
//!   [`Version`].
//! - Nobody joins a load that began in an earlier epoch than his own: it may bring what was there before. Nor does
//!   its result take the place of what is known from a later epoch.
//! - A load that fails leaves no entry: the next reader tries again.

pub mod reservation;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use lru::LruCache;

use crate::array::sync::atomic::{AtomicU64, Ordering};
use crate::array::sync::{Condvar, Mutex};
use crate::codec::shard_index::ShardIndex;
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::store::ObjectVersion;

/// Which chunk of which array. `level` tells the chunks (0) from the indexes of shards (1 for the outermost).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The array's number in this engine.
    pub array: u64,
    /// What `number` counts.
    pub level: u32,
    /// The chunk's number in C order over the served grid, or the shard's.
    pub number: u64,
}

/// What is cached.
#[derive(Clone)]
pub enum Content {
    /// No such chunk in the store: it is all fill value.
    Absent,
    /// The decoded chunk, in served order and byte order.
    Chunk(Arc<Buffer>),
    /// The index of a shard.
    Index(Arc<ShardIndex>),
}

/// Which stored object the content came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The object's version, `None` where it was missing.
    pub object: Option<ObjectVersion>,
    /// The array's epoch in which that was seen last.
    pub epoch: u64,
}

/// What a load brings.
pub type Loaded = (Content, Option<ObjectVersion>);

const ENTRY_BYTES: u64 = 160;

impl Content {
    fn weight_bytes(&self) -> u64 {
        ENTRY_BYTES
            + match self {
                Content::Absent => 0,
                Content::Chunk(buffer) => buffer.len() as u64,
                Content::Index(index) => index.size_bytes() as u64,
            }
    }
}

struct Entry {
    content: Content,
    version: Version,
    /// Its readers were given all of it, and nobody asked since.
    is_left_behind: bool,
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
    /// What was left behind, oldest first; some of it may be gone or asked for again.
    left_behind: VecDeque<Key>,
}

/// What the cache has done so far.
#[derive(Debug, Default)]
pub struct Counters {
    /// DirtyMap found.
    pub hits: AtomicU64,
    /// DirtyMap that had to be loaded.
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
        let left_behind = VecDeque::new();
        let state = State { entries, weight_bytes: 0, held_bytes: 0, flights, left_behind };
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
        match self.state.lock().entries.get_mut(&key) {
            Some(entry) if entry.version.epoch >= epoch => {
                entry.is_left_behind = false;
                Peek::Fresh(entry.content.clone())
            }
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
        unchanged: impl FnOnce(Option<ObjectVersion>) -> Result<bool>,
        load: impl FnOnce() -> Result<Loaded>,
    ) -> Result<Content> {
        let (flight, old) = {
            let mut state = self.state.lock();
            let old = match state.entries.get_mut(&key) {
                Some(entry) if entry.version.epoch >= epoch => {
                    entry.is_left_behind = false;
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
        version: ObjectVersion,
        load: impl Fn() -> Result<Content>,
    ) -> Result<Content> {
        let of_this = |object: Option<ObjectVersion>| object == Some(version);
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

    /// Tells that readers were given all of these chunks and are not expected to ask again: they are the first to go,
    /// and their memory the first to be used again.
    pub fn demote(&self, keys: impl Iterator<Item = Key>) {
        let mut state = self.state.lock();
        for key in keys {
            let Some(entry) = state.entries.peek_mut(&key) else { continue };
            if !std::mem::replace(&mut entry.is_left_behind, true) {
                state.entries.demote(&key);
                state.left_behind.push_back(key);
            }
        }
    }

    /// The memory of a chunk of exactly so many bytes that was left behind.
    pub fn reclaim(&self, length: usize) -> Option<Buffer> {
        let mut state = self.state.lock();
        while let Some(key) = state.left_behind.pop_front() {
            let is_free = state.entries.peek(&key).is_some_and(|entry| {
                let Content::Chunk(buffer) = &entry.content else { return false };
                entry.is_left_behind && buffer.len() == length && Arc::strong_count(buffer) == 1
            });
            if is_free && let Some(entry) = state.entries.pop(&key) {
                state.weight_bytes -= entry.content.weight_bytes();
                self.counters.evictions.fetch_add(1, Ordering::Relaxed);
                let Content::Chunk(buffer) = entry.content else { continue };
                // Nobody else can have taken it: whoever looks for an entry holds the lock.
                return Arc::into_inner(buffer);
            }
        }
        None
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
        state.entries.put(key, Entry { content, version, is_left_behind: false });
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
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
