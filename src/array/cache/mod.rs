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
//! - An entry is used without asking the store only if it was validated in the array's present epoch; see
//!   [`ValidatedVersion`].
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

/// The key of a chunk, a strip of one, or the index of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey {
    /// The array's number in this engine.
    pub array: u64,
    /// What `number` counts: 0 for chunks, 1 for indexes of the outermost shards.
    pub level: u32,
    /// The number of the chunk, or shard, in C order over the served grid.
    pub number: u64,
}

impl CacheKey {
    /// Returns the key of a chunk.
    pub fn chunk(array: u64, number: u64) -> CacheKey {
        CacheKey { array, level: 0, number }
    }
}

/// A cached value.
#[derive(Clone)]
pub enum CachedContent {
    /// The store does not have the chunk: all of it is fill value.
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
#[derive(Clone)]
pub struct LoadedContent {
    /// The content.
    pub content: CachedContent,
    /// The version of the object that it came from, `None` if it was missing.
    pub version: Option<ObjectVersion>,
}

/// The memory of an entry without its content.
const ENTRY_BYTES: u64 = 160;

impl CachedContent {
    /// Returns the bytes of a decoded chunk, 0 for anything else.
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

impl CacheState {
    fn remove(&mut self, key: CacheKey) -> Option<CacheEntry> {
        let entry = self.entries.pop(&key)?;
        self.weight_bytes -= entry.content.weight_bytes();
        Some(entry)
    }
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
    /// Creates a cache that holds at most `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Self {
        let (entries, flights) = (LruCache::unbounded(), HashMap::new());
        let demoted = VecDeque::new();
        let state = CacheState { entries, weight_bytes: 0, held_bytes: 0, flights, demoted };
        ChunkCache { state: Mutex::new(state), limit_bytes, counters: CacheCounters::default() }
    }

    /// Returns the limit in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Counts chunks that were found without [`ChunkCache::get`].
    pub fn record_hits(&self, hits: u64) {
        self.counters.hits.fetch_add(hits, Ordering::Relaxed);
    }

    /// Returns the bytes of all entries.
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

    /// Returns the content of a key: from the cache, from a running load, or by `load`.
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
                    self.record_hits(1);
                    return Ok(entry.content.clone());
                }
                Some(entry) => {
                    Some(LoadedContent { content: entry.content.clone(), version: entry.version.object })
                }
                None => None,
            };
            if let Some(flight) = state.flights.get(&key).filter(|flight| flight.epoch >= epoch) {
                let flight = Arc::clone(flight);
                drop(state);
                self.record_hits(1);
                return flight.wait();
            }
            let flight = Arc::new(LoadFlight { epoch, outcome: Mutex::default(), landed: Condvar::new() });
            state.flights.insert(key, Arc::clone(&flight));
            (flight, old)
        };
        let mut guard = LoadGuard { cache: self, key, flight, outcome: None };
        let reload = || {
            if let Some(old) = old
                && unchanged(old.version)?
            {
                self.record_hits(1);
                return Ok(old);
            }
            self.counters.misses.fetch_add(1, Ordering::Relaxed);
            load()
        };
        let outcome = reload();
        if let Ok(loaded) = &outcome {
            self.put(key, loaded.content.clone(), ValidatedVersion { object: loaded.version, epoch });
        }
        guard.outcome = Some(outcome.clone());
        outcome.map(|loaded| loaded.content)
    }

    /// Returns the content of a key in one version of its object, whatever the epoch. An entry of another version is
    /// loaded again.
    pub fn get_version(
        &self,
        key: CacheKey,
        version: ObjectVersion,
        load: impl Fn() -> Result<CachedContent>,
    ) -> Result<CachedContent> {
        let is_wanted = |object: Option<ObjectVersion>| object == Some(version);
        if let Some(entry) = self.state.lock().entries.get(&key)
            && is_wanted(entry.version.object)
        {
            return Ok(entry.content.clone());
        }
        // No entry reaches this epoch, so `get` always asks whether the entry has this version.
        let mut loaded_here = false;
        let content = self.get(
            key,
            u64::MAX,
            |object| Ok(is_wanted(object)),
            || {
                loaded_here = true;
                Ok(LoadedContent { content: load()?, version: Some(version) })
            },
        )?;
        if loaded_here {
            return Ok(content);
        }
        // Another reader's load gave the content, perhaps of another version.
        match self.state.lock().entries.peek(&key) {
            Some(entry) if is_wanted(entry.version.object) => Ok(entry.content.clone()),
            _ => load(),
        }
    }

    /// Returns the content of a key, whatever its version and epoch, without loading.
    pub fn peek_any(&self, key: CacheKey) -> Option<CachedContent> {
        self.state.lock().entries.peek(&key).map(|entry| entry.content.clone())
    }

    /// Returns whether the key is cached or a load of it runs, in this epoch.
    pub fn is_known(&self, key: CacheKey, epoch: u64) -> bool {
        let state = self.state.lock();
        state.flights.get(&key).is_some_and(|flight| flight.epoch >= epoch)
            || state.entries.peek(&key).is_some_and(|entry| entry.version.epoch >= epoch)
    }

    /// Adds content that was just loaded or stored. Does nothing if the entry is of a later epoch, or if the content is
    /// too heavy.
    pub fn put(&self, key: CacheKey, content: CachedContent, version: ValidatedVersion) {
        let weight = content.weight_bytes();
        let mut state = self.state.lock();
        if state.entries.peek(&key).is_some_and(|entry| entry.version.epoch > version.epoch) {
            return;
        }
        let replaced = state.remove(key);
        let mut evicted = Vec::new();
        if weight <= self.limit_bytes - state.held_bytes {
            evicted = self.make_room(&mut state, weight);
            state.weight_bytes += weight;
            state.entries.put(key, CacheEntry { content, version, is_demoted: false });
        }
        drop(state); // buffers are freed outside the lock
        drop((replaced, evicted));
    }

    /// Marks chunks that readers received in full and are not expected to ask for again. They are evicted first, and
    /// their memory is reused first.
    ///
    /// A sequential reader would otherwise evict what others use: by plain LRU, what it has just read is the last to
    /// go, although the kernel's page cache has it.
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

    /// Takes the memory of a demoted chunk of exactly this length.
    pub fn reclaim(&self, length: usize) -> Option<Buffer> {
        let mut state = self.state.lock();
        while let Some(key) = state.demoted.pop_front() {
            let is_free = state.entries.peek(&key).is_some_and(|entry| {
                let CachedContent::Chunk(buffer) = &entry.content else { return false };
                entry.is_demoted && buffer.len() == length && Arc::strong_count(buffer) == 1
            });
            if is_free && let Some(entry) = state.remove(key) {
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
        self.state.lock().remove(key);
    }

    /// Removes all entries of an array.
    pub fn forget_array(&self, array: u64) {
        let mut state = self.state.lock();
        let keys: Vec<CacheKey> =
            state.entries.iter().map(|(key, _)| *key).filter(|key| key.array == array).collect();
        for key in keys {
            state.remove(key);
        }
    }

    /// Evicts the oldest entries until `bytes` fit. The caller has checked that the limit allows them.
    fn make_room(&self, state: &mut CacheState, bytes: u64) -> Vec<CacheEntry> {
        let most = self.limit_bytes.saturating_sub(state.held_bytes + bytes);
        self.evict(state, most)
    }

    /// Evicts the oldest entries until the others weigh at most `most` bytes.
    fn evict(&self, state: &mut CacheState, most: u64) -> Vec<CacheEntry> {
        let mut evicted = Vec::new();
        while state.weight_bytes > most {
            let Some((_, oldest)) = state.entries.pop_lru() else { break };
            state.weight_bytes -= oldest.content.weight_bytes();
            evicted.push(oldest);
        }
        self.counters.evictions.fetch_add(evicted.len() as u64, Ordering::Relaxed);
        evicted
    }

    /// Evicts the oldest entries until the others weigh at most `bytes`. Returns the weight of those that went.
    pub fn shrink_to(&self, bytes: u64) -> u64 {
        let mut state = self.state.lock();
        let before = state.weight_bytes;
        let evicted = self.evict(&mut state, bytes);
        let freed = before - state.weight_bytes;
        drop(state); // buffers are freed outside the lock
        drop(evicted);
        freed
    }

    /// Reserves a part of the limit for something else than chunks. Returns `false`, and reserves nothing, if less is
    /// left.
    pub fn hold(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        if bytes > self.limit_bytes - state.held_bytes {
            return false;
        }
        let evicted = self.make_room(&mut state, bytes);
        state.held_bytes += bytes;
        drop(state); // buffers are freed outside the lock
        drop(evicted);
        true
    }

    /// Gives back bytes that [`ChunkCache::hold`] reserved.
    pub fn release(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.held_bytes = state.held_bytes.saturating_sub(bytes);
    }
}

impl LoadFlight {
    fn wait(&self) -> Result<CachedContent> {
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(outcome) = outcome.as_ref() {
                return outcome.clone().map(|loaded| loaded.content);
            }
            self.landed.wait(&mut outcome);
        }
    }
}

/// Ends a flight, also when the load panics or returns early, so that its readers do not wait forever.
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
