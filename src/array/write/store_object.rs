//! Storing one object: encoding its dirty chunks, replacing it, and making the chunks clean.
//!
//! Uses its neighbours in `array`, `store` and `error`.
//!
//! Other programs take no lock, and a remote store has none. So an object is put only in place of the version that its unwritten bytes
//! were read from, or that was found just before. If another program was first, the object is read again, and only the bytes that
//! programs wrote through this mount are laid over it.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use crate::array::Inner;
use crate::array::cache::{Content, Version};
use crate::array::geometry::strips::Strips;
use crate::array::source::replacement::Target;
use crate::array::sync::atomic::Ordering;
use crate::array::sync::thread;
use crate::array::write::dirty::{ChunkState, DirtyChunk};
use crate::array::write::encode::EncodedChunks;
use crate::error::{Error, Result};
use crate::store::{Info, ObjectVersion, Precondition};

/// How often an object is read again because another program was first.
const MAX_MERGES: u32 = 12;
/// The longest pause before the first of these attempts; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// An object, and where it goes.
struct ObjectToStore<'a> {
    object: u64,
    key: &'a str,
    chunks: &'a [(u64, Arc<DirtyChunk>)],
    /// Owner and mode for new objects.
    like: &'a Info,
    /// How many threads encode.
    threads: usize,
}

impl Inner {
    /// Stores the dirty chunks of an object. They become clean, unless they are written meanwhile.
    pub(in crate::array) fn store_object(
        &self,
        object: u64,
        chunks: &[(u64, Arc<DirtyChunk>)],
        like: &Info,
        threads: usize,
    ) -> Result<()> {
        let Some(any) = chunks.first().map(|(number, _)| *number).or_else(|| self.first_chunk_of(object))
        else {
            return Ok(());
        };
        let key = self.source.key(&self.load_context(), &self.grid.index(any))?;
        let to_store = ObjectToStore { object, key: &key, chunks, like, threads };
        self.while_others_are_first(&key, || self.replace_object(&to_store))
    }

    /// Stores an object, and again where another program was first.
    pub(in crate::array) fn while_others_are_first(
        &self,
        key: &str,
        store: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let mut merges = 0;
        loop {
            match store() {
                Err(Error::Changed { key: changed } | Error::Stale { key: changed }) if changed == key => {
                    if merges == MAX_MERGES {
                        return Err(Error::Changed { key: changed });
                    }
                    log::debug!("{key}: another program was first; its change is merged");
                    thread::sleep(pause(merges));
                    merges += 1;
                }
                stored => return stored,
            }
        }
    }

    fn replace_object(&self, to_store: &ObjectToStore<'_>) -> Result<()> {
        let ObjectToStore { object, key, chunks, like, threads } = *to_store;
        let Some(writer) = self.store.writer() else {
            return Err(Error::ReadOnly(self.store.describe()));
        };
        let is_zero = self.writing.chunks.lock().is_zero(object);
        let old = self.store.head_object(key)?.map(|info| info.version);
        // What was transferred for readers may be older.
        self.store.forget_transfers(key);
        if old.is_some() && self.is_padded(object) {
            // What lies after the array's end is stored as fill value. It may be what another program has just made the array longer by: then
            // it has replaced the document before it stored what was found here.
            self.check_document()?;
        }
        let EncodedChunks { mut encoded, generations } = self.encode_chunks(chunks, is_zero, old, threads)?;
        // Even where programs wrote all of it: a put whose reply was lost may be carried out after later ones, and must not
        // replace what they put.
        let precondition = Precondition::found(old);
        if is_zero {
            self.encode_zeros(object, &mut encoded)?;
        }
        let store = self.store.as_ref();
        let target = Target { store, writer, within: &self.path, like, precondition, is_zero };
        let replacement = self.served.replace(key);
        let (_, version) = self.source.rewrite(&self.load_context(), &target, object, &encoded)?;
        self.engine.objects_stored.fetch_add(1, Ordering::Relaxed);
        self.engine.chunks_encoded.fetch_add(encoded.len() as u64, Ordering::Relaxed);
        drop(encoded);
        // Content that readers loaded before this moment is compared with the store before use.
        let epoch = self.epoch.fetch_add(1, Ordering::AcqRel) + 1;
        {
            // This precedes retiring any chunk: a reader that looks afterwards must find the stored object.
            let mut all = self.writing.chunks.lock();
            all.unsynced.insert(key.to_owned());
            if let Some(mark) = all.zero.as_mut() {
                mark.settled.insert(object);
            }
        }
        for (number, chunk) in chunks {
            let mut state = chunk.lock();
            match generations.get(number) {
                Some(generation) if *generation == state.generation => {
                    self.retire(*number, &mut state, Version { object: version, epoch });
                }
                // A writer has written to the chunk meanwhile. Its other bytes are those that were just stored.
                Some(_) if self.store.lacks_locks() => {
                    state.written = state.since.take().unwrap_or_default();
                    state.base = self.source.is_lossless().then_some(version);
                    self.count(&mut state);
                }
                Some(_) if state.base.is_some() && self.source.is_lossless() => state.base = Some(version),
                _ => {}
            }
        }
        replacement.note(old, version);
        if !self.source.is_lossless() {
            // The kernel's pages have the bytes as written. From now on reads return them as the codecs changed them.
            self.served.note_change();
        }
        Ok(())
    }

    fn first_chunk_of(&self, object: u64) -> Option<u64> {
        self.source.chunks_of(object).first().copied()
    }

    /// Makes a chunk clean: all its bytes are in the store.
    fn retire(&self, number: u64, state: &mut ChunkState, version: Version) {
        self.engine.dirty_bytes.fetch_sub(state.counted, Ordering::AcqRel);
        self.engine.room.notify();
        state.counted = 0;
        let bytes = std::mem::take(&mut state.bytes);
        // A lossy codec returns other bytes than were written. Uncompressed chunks are not cached. Where strips are
        // smaller than chunks, their cached entries have an older version.
        let is_cut = self.strips.get().is_some_and(Strips::is_cut);
        if self.source.is_lossless() && !self.source.is_uncompressed() && !is_cut {
            let key = self.chunk_key(number);
            self.engine.cache.put(key, Content::Chunk(bytes), version);
            if self.engine.page_cache_keeps {
                // The kernel keeps what it wrote, and the next writes need the memory more.
                self.engine.cache.demote(std::iter::once(key));
            }
        } else {
            self.engine.cache.forget(self.chunk_key(number));
        }
        // A thread that waits for this lock finds the chunk retired and looks again; by then the map no longer has it.
        state.is_retired = true;
        self.writing.chunks.lock().dirty.remove(&number);
    }

    /// Loads what no writer has written from the object as it is now, in version `now`.
    pub(in crate::array) fn complete_for_storing(
        &self,
        number: u64,
        state: &mut ChunkState,
        is_zero: bool,
        now: Option<ObjectVersion>,
    ) -> Result<()> {
        if let Some(base) = state.base
            && !is_zero
            && state.written.total() < self.inside_bytes(number)
        {
            if base != now {
                let loaded = self.load_base(&self.grid.index(number))?;
                self.merge(state, Some(loaded));
            }
            return Ok(());
        }
        self.complete(number, state, is_zero)
    }
}

/// A random pause, so that programs that overtake each other do not do so again.
fn pause(attempt: u32) -> Duration {
    let longest = (FIRST_PAUSE * (1 << attempt.min(16))).min(LAST_PAUSE);
    // The keys of a new hasher are random.
    longest.mul_f64(RandomState::new().hash_one(attempt) as f64 / u64::MAX as f64)
}
