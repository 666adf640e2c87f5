//! Storing one object of an array: encoding its chunks and putting them in place of what is stored, on the condition
//! that no other program was first.
//!
//! Uses `write/resources.rs`, `session.rs`, `served/`, and `memory`, `store` and `error`.
//!
//! Other programs take no lock, and a remote store has none. So an object is put only in place of the version that was
//! found just before, or that its unwritten bytes were read from. If another program was first, the object is read
//! again.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::array::served::ServedArray;
use crate::array::source::replacement::{Encoded, EncodedChunk, PutTarget};
use crate::array::sync::atomic::{AtomicU64, Ordering};
use crate::array::sync::{self, Mutex, thread};
use crate::array::write::resources::WriteResources;
use crate::array::write::write_back::session::WriteSession;
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::store::{Info, ObjectVersion, Precondition, Writer};

/// How often an object is read again because another program was first.
const MAX_MERGES: u32 = 12;
/// The longest pause before the first of these attempts. It doubles each time, up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// Threads per processor: while one waits for the disk, another encodes.
pub const THREADS_PER_CORE: usize = 2;
/// Threads that store at a service: nearly all of them wait for a reply.
pub const REMOTE_THREADS: usize = 32;

/// Stores objects of one array. It does not know about dirty chunks.
#[derive(Clone)]
pub struct ObjectWriter {
    served: Arc<ServedArray>,
    resources: Arc<WriteResources>,
}

/// What an object becomes.
pub struct NewObject<'a> {
    /// The object's number.
    pub object: u64,
    /// Its encoded chunks.
    pub encoded: &'a Encoded,
    /// Owner and mode, if it is new.
    pub like: &'a Info,
    /// What is replaced.
    pub precondition: Precondition,
    /// Whether chunks that are not encoded are zero, so that the object's present content does not count.
    pub is_zero: bool,
}

impl ObjectWriter {
    /// Creates a writer of the objects of an array.
    pub fn new(served: &Arc<ServedArray>, resources: &Arc<WriteResources>) -> Self {
        ObjectWriter { served: Arc::clone(served), resources: Arc::clone(resources) }
    }

    /// Returns the array.
    pub fn served(&self) -> &Arc<ServedArray> {
        &self.served
    }

    /// Returns what the writers of all arrays share.
    pub fn resources(&self) -> &WriteResources {
        &self.resources
    }

    /// Returns the store's writer.
    pub fn writer(&self) -> Result<&dyn Writer> {
        let store = self.served.store();
        store
            .writer()
            .ok_or_else(|| Error::ReadOnly(format!("{} does not support writing", store.describe())))
    }

    /// Returns how many threads store whole objects at most, with `cores` processors: `per_core` for each of them, but
    /// another number at a service.
    pub fn storing_threads(&self, cores: usize, per_core: usize) -> usize {
        if self.served.store().is_remote() { REMOTE_THREADS } else { per_core * cores }
    }

    /// Returns how many threads, each of which needs this many bytes, the dirty limit allows; at most `most`.
    pub fn threads_within(&self, bytes: u64, most: usize) -> usize {
        let allowed = self.resources.dirty_limit_bytes() / bytes.max(1);
        usize::try_from(allowed).unwrap_or(most).clamp(1, most)
    }

    /// Fills a chunk's part past the edge of the array and encodes the chunk. Returns `None` if it need not be stored,
    /// because it is all fill value.
    pub fn encode(&self, number: u64, bytes: &mut Arc<Buffer>) -> Result<Option<EncodedChunk>> {
        let index = self.served.grid().index(number);
        let chunk: &mut Buffer = Arc::make_mut(bytes);
        self.served.grid().fill_padding(&index, self.served.fill(), chunk);
        // More threads store than there are processors, but only as many encode: eight threads that encoded on two
        // processors were slower than two.
        let _permit = self.resources.encoder();
        self.served.source().encode(&self.served.load_context(), &index, bytes)
    }

    /// Adds the chunks of a zeroed object that are not among those encoded.
    pub fn encode_zeros(&self, object: u64, encoded: &mut Encoded) -> Result<()> {
        let (served, source) = (&self.served, self.served.source());
        for number in served.levels().chunks_of(object) {
            if let std::collections::hash_map::Entry::Vacant(entry) = encoded.entry(number) {
                let index = served.grid().index(number);
                let mut zeros = Buffer::sparse(served.grid().chunk_bytes(&index));
                served.grid().fill_padding(&index, served.fill(), &mut zeros);
                entry.insert(source.encode(&served.load_context(), &index, &Arc::new(zeros))?);
            }
        }
        Ok(())
    }

    /// Replaces chunks of an object in the store, or deletes the object if nothing is left in it. Returns its new
    /// version.
    pub fn put(&self, new: &NewObject<'_>) -> Result<Option<ObjectVersion>> {
        let target = PutTarget {
            store: self.served.store(),
            writer: self.writer()?,
            within: self.served.path(),
            like: new.like,
            precondition: new.precondition,
            is_zero: new.is_zero,
        };
        let ctx = self.served.load_context();
        let (_, version) = self.served.source().rewrite(&ctx, &target, new.object, new.encoded)?;
        self.resources.record_object(new.encoded.len());
        Ok(version)
    }

    /// Calls `store`, which stores the object at `key`, and calls it again if another program was first, as long as the
    /// session's document describes this array.
    pub fn retry_if_overtaken(
        &self,
        key: &str,
        session: &WriteSession,
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
                    // It may have made a new array in the place of this one, into which no chunk of this one may go.
                    session.check_document()?;
                }
                stored => return stored,
            }
        }
    }

    /// Deletes those objects that still have these versions, durably. Returns how many it deleted.
    pub fn delete(&self, objects: Vec<(String, ObjectVersion)>) -> Result<u64> {
        let writer = self.writer()?;
        // One key for each folder that lost names.
        let mut folders: BTreeMap<String, String> = BTreeMap::new();
        let mut deleted = 0;
        for (key, version) in objects {
            match writer.delete(&key, Precondition::Version(version)) {
                // Another program has stored it since, so it stays.
                Err(Error::Changed { .. }) => continue,
                is_deleted => deleted += u64::from(is_deleted?),
            }
            let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
            folders.insert(folder, key);
        }
        if !folders.is_empty() {
            writer.sync(&folders.into_values().collect::<Vec<_>>(), self.served.path())?;
        }
        Ok(deleted)
    }

    /// Calls `work` with each number below `count`, on up to `threads` threads, until a call fails.
    pub fn for_each(
        &self,
        count: u64,
        threads: usize,
        name: &str,
        work: impl Fn(u64) -> Result<()> + Sync,
    ) -> Result<()> {
        let next = AtomicU64::new(0);
        let failure: Mutex<Option<Error>> = Mutex::default();
        let run = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count || failure.lock().is_some() {
                    return;
                }
                if let Err(error) = self.without_panic(|| work(number)) {
                    failure.lock().get_or_insert(error);
                }
            }
        };
        sync::on_threads(threads.min(usize::try_from(count).unwrap_or(threads)), name, run);
        failure.into_inner().map_or(Ok(()), Err)
    }

    /// Turns a panic into an error: a bug in a codec library fails one object, not the thread.
    pub fn without_panic(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let panicked = |_| {
            let reason = std::io::Error::other("a codec panicked; this is a bug");
            Err(Error::store(self.served.path(), "encode", reason))
        };
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked)
    }
}

/// Returns a random pause, so that programs that overtake each other do not do so again.
fn pause(attempt: u32) -> Duration {
    let longest = (FIRST_PAUSE * (1 << attempt.min(16))).min(LAST_PAUSE);
    // The keys of a new hasher are random.
    longest.mul_f64(RandomState::new().hash_one(attempt) as f64 / u64::MAX as f64)
}
