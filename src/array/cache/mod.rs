//! The chunk cache: decoded chunks by array and number, weighted by their bytes, with LRU eviction.
//!
//! Uses `error`, `memory`, `codec` (for shard indexes), `store` (for versions) and the `lru` crate for the order of
//! eviction.
//!
//! Invariants:
//! - Single flight: if several readers miss one chunk at the same time, one loads it and the others wait for that load.
//! - The weight of all entries and the bytes reserved by [`ChunkCache::hold`] together never exceed the limit. A chunk
//!   heavier than that goes to its reader and is not kept.
//! - An absent chunk weighs only its entry.
//! - An entry is used without asking the store only if it was validated in the array's present epoch; see [`ValidatedVersion`].
//! - A reader never joins a load that began in an earlier epoch than its own: that load may return old data. The result
//!   of such a load does not replace an entry of a later epoch.
//! - A load that fails leaves no entry: the next reader tries again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use lru::LruCache;

use crate::array::sync::atomic::{AtomicU64, Ordering};
use crate::array::sync::{Condvar, Mutex};
use crate::codec::shard_index::ShardIndex;
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::store::ObjectVersion;

/// A chunk or shard index of an array. `level` is 0 for chunks, and 1 for indexes of the outermost shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey {
    /// The array's number in this engine.
    pub array: u64,
    /// Says what `number` counts.
    pub level: u32,
    /// The number of the chunk, or shard, in C order over the served grid.
    pub number: u64,
}

/// A cached value.
#[derive(Clone)]
pub enum CachedContent {
    /// The store has no such chunk: all of it is fill value.
    Absent,
    /// The decoded chunk, in served order and byte order.
    Chunk(Arc<Buffer>),
    /// The index of a shard.
    Index(Arc<ShardIndex>),
}

/// The version of the stored object that the content came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidatedVersion {
    /// The object's version, `None` if it was missing.
    pub object: Option<ObjectVersion>,
    /// The array's epoch in which this version was last validated.
    pub epoch: u64,
}

/// The result of a load.
pub type LoadedContent = (CachedContent, Option<ObjectVersion>);

const ENTRY_BYTES: u64 = 160;

impl CachedContent {
    /// Bytes of a decoded chunk, 0 for anything else.
    pub fn chunk_bytes(&self) -> usize {
        if let CachedContent::Chunk(buffer) = self { buffer.len() } else { 0 }
    }

    fn weight_bytes(&self) -> u64 {
        ENTRY_BYTES
            + match self {
                CachedContent::Absent => 0,
                CachedContent::Chunk(buffer) => buffer.len() as u64,
                CachedContent::Index(index) => index.size_bytes() as u64,
            }
    }
}

struct CacheEntry {
    content: CachedContent,
    version: ValidatedVersion,
    /// Its readers received all of it, and no reader has asked for it since.
    is_demoted: bool,
}

/// A load that is running. Its readers wait here.
struct LoadFlight {
    /// The epoch in which the load began.
    epoch: u64,
    outcome: Mutex<Option<Result<LoadedContent>>>,
    landed: Condvar,
}

struct CacheState {
    entries: LruCache<CacheKey, CacheEntry>,
    weight_bytes: u64,
    held_bytes: u64,
    flights: HashMap<CacheKey, Arc<LoadFlight>>,
    /// Keys of demoted entries, oldest first. Some entries may be gone or in use again.
    demoted: VecDeque<CacheKey>,
}

/// Counts since the start.
#[derive(Debug, Default)]
pub struct CacheCounters {
    /// Chunks found.
    pub hits: AtomicU64,
    /// Chunks loaded.
    pub misses: AtomicU64,
    /// Entries evicted.
    pub evictions: AtomicU64,
}

/// The cache of one engine.
pub struct ChunkCache {
    state: Mutex<CacheState>,
    limit_bytes: u64,
    /// The counts.
    pub counters: CacheCounters,
}

impl ChunkCache {
    /// A cache that holds at most `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Self {
        let (entries, flights) = (LruCache::unbounded(), HashMap::new());
        let demoted = VecDeque::new();
        let state = CacheState { entries, weight_bytes: 0, held_bytes: 0, flights, demoted };
        ChunkCache { state: Mutex::new(state), limit_bytes, counters: CacheCounters::default() }
    }

    /// The limit in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Counts chunks that were found without [`ChunkCache::get`].
    pub fn record_hits(&self, hits: u64) {
        self.counters.hits.fetch_add(hits, Ordering::Relaxed);
    }

    /// Bytes of all entries.
    pub fn weight_bytes(&self) -> u64 {
        self.state.lock().weight_bytes
    }

    /// Looks for several keys without loading, and calls `each` with the content of those that are cached and were
    /// validated in this epoch. They become the most recently used.
    pub fn peek<T>(
        &self,
        keys: impl IntoIterator<Item = (T, CacheKey)>,
        epoch: u64,
        mut each: impl FnMut(T, CachedContent),
    ) {
        let mut state = self.state.lock();
        for (name, key) in keys {
            if let Some(entry) = state.entries.get_mut(&key).filter(|entry| entry.version.epoch >= epoch) {
                entry.is_demoted = false;
                each(name, entry.content.clone());
            }
        }
    }

    /// The content of a key: from the cache, from a running load, or by `load`.
    ///
    /// For an entry of an earlier epoch, `unchanged` says whether its object still has this version.
    pub fn get(
        &self,
        key: CacheKey,
        epoch: u64,
        unchanged: impl FnOnce(Option<ObjectVersion>) -> Result<bool>,
        load: impl FnOnce() -> Result<LoadedContent>,
    ) -> Result<CachedContent> {
        let (flight, old) = {
            let mut state = self.state.lock();
            let old = match state.entries.get_mut(&key) {
                Some(entry) if entry.version.epoch >= epoch => {
                    entry.is_demoted = false;
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
            let flight = Arc::new(LoadFlight { epoch, outcome: Mutex::default(), landed: Condvar::new() });
            state.flights.insert(key, Arc::clone(&flight));
            (flight, old)
        };
        let mut guard = LoadGuard { cache: self, key, flight, outcome: None };
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
            self.insert(key, content.clone(), ValidatedVersion { object: *object, epoch });
        }
        guard.outcome = Some(outcome.clone());
        outcome.map(|(content, _)| content)
    }

    /// The content of a key in one version of its object, whatever the epoch. An entry of another version is loaded
    /// again.
    pub fn get_version(
        &self,
        key: CacheKey,
        version: ObjectVersion,
        load: impl Fn() -> Result<CachedContent>,
    ) -> Result<CachedContent> {
        let of_this = |object: Option<ObjectVersion>| object == Some(version);
        if let Some(entry) = self.state.lock().entries.get(&key)
            && of_this(entry.version.object)
        {
            return Ok(entry.content.clone());
        }
        // No entry reaches this epoch, so `get` always asks whether the entry has this version.
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
        // Another reader's load gave the content, perhaps of another version.
        match self.state.lock().entries.peek(&key) {
            Some(entry) if of_this(entry.version.object) => Ok(entry.content.clone()),
            _ => load(),
        }
    }

    /// The content of a key, whatever its version and epoch, without loading.
    pub fn peek_any(&self, key: CacheKey) -> Option<CachedContent> {
        self.state.lock().entries.peek(&key).map(|entry| entry.content.clone())
    }

    /// Whether the key is cached or a load of it runs, in this epoch.
    pub fn is_known(&self, key: CacheKey, epoch: u64) -> bool {
        let state = self.state.lock();
        state.flights.get(&key).is_some_and(|flight| flight.epoch >= epoch)
            || state.entries.peek(&key).is_some_and(|entry| entry.version.epoch >= epoch)
    }

    /// Inserts content that was just stored.
    pub fn put(&self, key: CacheKey, content: CachedContent, version: ValidatedVersion) {
        self.insert(key, content, version);
    }

    /// Marks chunks that readers received in full and are not expected to ask for again. They are evicted first, and
    /// their memory is reused first.
    pub fn demote(&self, keys: impl Iterator<Item = CacheKey>) {
        let mut state = self.state.lock();
        for key in keys {
            let Some(entry) = state.entries.peek_mut(&key) else { continue };
            if !std::mem::replace(&mut entry.is_demoted, true) {
                state.entries.demote(&key);
                state.demoted.push_back(key);
            }
        }
    }

    /// The memory of a demoted chunk of exactly this length.
    pub fn reclaim(&self, length: usize) -> Option<Buffer> {
        let mut state = self.state.lock();
        while let Some(key) = state.demoted.pop_front() {
            let is_free = state.entries.peek(&key).is_some_and(|entry| {
                let CachedContent::Chunk(buffer) = &entry.content else { return false };
                entry.is_demoted && buffer.len() == length && Arc::strong_count(buffer) == 1
            });
            if is_free && let Some(entry) = state.entries.pop(&key) {
                state.weight_bytes -= entry.content.weight_bytes();
                self.counters.evictions.fetch_add(1, Ordering::Relaxed);
                let CachedContent::Chunk(buffer) = entry.content else { continue };
                // No other thread can have taken it: looking up an entry needs the lock.
                return Arc::into_inner(buffer);
            }
        }
        None
    }

    /// Removes one key.
    pub fn forget(&self, key: CacheKey) {
        let mut state = self.state.lock();
        if let Some(entry) = state.entries.pop(&key) {
            state.weight_bytes -= entry.content.weight_bytes();
        }
    }

    fn insert(&self, key: CacheKey, content: CachedContent, version: ValidatedVersion) {
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
        state.entries.put(key, CacheEntry { content, version, is_demoted: false });
        drop(state); // buffers are freed outside the lock
        drop(dropped);
    }

    /// Evicts the oldest entries until `bytes` fit. The caller has checked that the limit allows them.
    fn make_room(&self, state: &mut CacheState, bytes: u64) -> Vec<CacheEntry> {
        let mut dropped = Vec::new();
        while state.weight_bytes + state.held_bytes + bytes > self.limit_bytes {
            let Some((_, oldest)) = state.entries.pop_lru() else { break };
            state.weight_bytes -= oldest.content.weight_bytes();
            self.counters.evictions.fetch_add(1, Ordering::Relaxed);
            dropped.push(oldest);
        }
        dropped
    }

    /// Evicts the oldest entries until the others weigh at most `bytes`. Returns the weight of those that went.
    pub fn shrink_to(&self, bytes: u64) -> u64 {
        let mut dropped = Vec::new();
        let mut state = self.state.lock();
        let before = state.weight_bytes;
        while state.weight_bytes > bytes {
            let Some((_, oldest)) = state.entries.pop_lru() else { break };
            state.weight_bytes -= oldest.content.weight_bytes();
            self.counters.evictions.fetch_add(1, Ordering::Relaxed);
            dropped.push(oldest);
        }
        let freed = before - state.weight_bytes;
        drop(state); // buffers are freed outside the lock
        drop(dropped);
        freed
    }

    /// Reserves a part of the limit for something else than chunks. Returns `false`, and reserves nothing, if less is
    /// left.
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

    /// Returns bytes that [`ChunkCache::hold`] reserved.
    pub fn release(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.held_bytes = state.held_bytes.saturating_sub(bytes);
    }

    /// Removes all entries of an array.
    pub fn forget_array(&self, array: u64) {
        let mut state = self.state.lock();
        let keys: Vec<CacheKey> =
            state.entries.iter().map(|(key, _)| *key).filter(|key| key.array == array).collect();
        for key in keys {
            if let Some(entry) = state.entries.pop(&key) {
                state.weight_bytes -= entry.content.weight_bytes();
            }
        }
    }
}

impl LoadFlight {
    fn wait(&self) -> Result<CachedContent> {
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(outcome) = outcome.as_ref() {
                return outcome.clone().map(|(content, _)| content);
            }
            self.landed.wait(&mut outcome);
        }
    }
}

/// Ends a flight, also when the load panics or returns early, so no reader waits for ever.
struct LoadGuard<'a> {
    cache: &'a ChunkCache,
    key: CacheKey,
    flight: Arc<LoadFlight>,
    outcome: Option<Result<LoadedContent>>,
}

impl Drop for LoadGuard<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.cache.state.lock();
            // A reader of a later epoch may have started another load.
            if state.flights.get(&self.key).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
                state.flights.remove(&self.key);
            }
        }
        let failed =
            || Err(Error::store("", "load the chunk", std::io::Error::other("the load stopped early")));
        *self.flight.outcome.lock() = Some(self.outcome.take().unwrap_or_else(failed));
        self.flight.landed.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
