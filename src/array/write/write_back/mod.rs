//! Write-back: from dirty chunks to the store.
//!
//! One replacement stores all dirty chunks of an object: `encode.rs` makes its bytes, `object_writer.rs` stores it, and `created.rs`
//! keeps those that are new until it is certain that they belong to the array. `session.rs` has the lock and the document of the
//! array, `end.rs` its end, `failures.rs` what could not be stored. Uses `dirty.rs`, `dirty_chunks.rs` and `resources.rs`,
//! `served/`, and `store` and `error`.
//!
//! Invariants: a chunk becomes clean only when exactly its content is in the store. A failure leaves it dirty and is
//! counted, so that every handle reports it. If an object changed since a chunk's base was loaded, the base is loaded
//! again, and only the bytes that programs wrote through this mount are laid over it.

pub mod created;
mod encode;
mod end;
mod failures;
pub mod object_writer;
pub mod session;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::array::cache::{CachedContent, ValidatedVersion};
use crate::array::served::ServedArray;
use crate::array::served::strip_cache::StripCache;
use crate::array::sync::Mutex;
use crate::array::write::dirty::{ChunkState, DirtyObject, FlushScope};
use crate::array::write::dirty_chunks::{DirtyChunks, Unsaved};
use crate::array::write::resources::WriteResources;
use crate::array::write::write_back::created::CreatedObjects;
use crate::array::write::write_back::encode::{DirtyEncoder, EncodedChunks};
use crate::array::write::write_back::end::ArrayEnd;
use crate::array::write::write_back::failures::WriteFailures;
use crate::array::write::write_back::object_writer::{NewObject, ObjectWriter, REMOTE_THREADS};
use crate::array::write::write_back::session::WriteSession;
use crate::error::{Error, Result};
use crate::store::{Info, Precondition};

/// Threads that store, per processor: most of them wait for the disk.
const THREADS_PER_CORE: usize = 4;
/// The most bytes that these threads encode at one time, unless that leaves less than one thread per processor.
const ENCODED_BYTES: u64 = 16 << 20;
/// The same for threads that store at a service: bytes under way are what makes it fast.
const REMOTE_ENCODED_BYTES: u64 = 64 << 20;

/// The most keys that are reported for one array.
const MAX_REPORTED_KEYS: usize = 10_000;

/// The objects of one array that have dirty chunks.
#[derive(Clone, Debug)]
pub struct DirtyReport {
    /// The array's path.
    pub path: String,
    /// Their keys; not all of them if there are very many.
    pub keys: Vec<String>,
    /// How many there are.
    pub count: u64,
    /// The error of the last attempt to store, if it failed.
    pub last_failure: Option<Error>,
}

/// Stores the dirty chunks of one array.
pub struct WriteBack {
    strips: Arc<StripCache>,
    dirty: Arc<DirtyChunks>,
    pub(in crate::array::write) objects: ObjectWriter,
    pub(in crate::array::write) session: WriteSession,
    /// Shared with the arrays from which this one grew.
    state: Arc<WriteBackState>,
}

#[derive(Default)]
struct WriteBackState {
    failures: WriteFailures,
    end: ArrayEnd,
    created: CreatedObjects,
    /// Serialises write-back: one thread stores chunks at a time.
    storing: Mutex<()>,
    /// Serialises directory fsyncs: a second fsync(2) waits for the first.
    syncing: Mutex<()>,
}

impl WriteBack {
    /// Creates the write-back of an array.
    pub fn new(strips: &Arc<StripCache>, dirty: &Arc<DirtyChunks>, resources: &Arc<WriteResources>) -> Self {
        WriteBack {
            strips: Arc::clone(strips),
            dirty: Arc::clone(dirty),
            objects: ObjectWriter::new(strips.served(), resources),
            session: WriteSession::new(strips.served()),
            state: Arc::default(),
        }
    }

    /// Creates the write-back of an array that continues this one. `dirty` has the dirty chunks of this one.
    pub fn successor(
        &self,
        strips: &Arc<StripCache>,
        dirty: &Arc<DirtyChunks>,
        resources: &Arc<WriteResources>,
    ) -> Self {
        WriteBack {
            session: self.session.successor(strips.served()),
            state: Arc::clone(&self.state),
            ..WriteBack::new(strips, dirty, resources)
        }
    }

    /// Returns the array.
    pub fn served(&self) -> &Arc<ServedArray> {
        self.dirty.served()
    }

    /// Returns the failures of write-back.
    pub fn failures(&self) -> &WriteFailures {
        &self.state.failures
    }

    /// Counts a failure, for the array and for the process.
    pub fn record_failure(&self, error: &Error) {
        self.failures().record(error);
        self.objects.resources().record_failed_store();
    }

    /// Returns the objects that were created and not yet confirmed.
    pub fn created(&self) -> &CreatedObjects {
        &self.state.created
    }

    /// Returns how far the end of the array has come.
    pub fn end(&self) -> &ArrayEnd {
        &self.state.end
    }

    /// Returns the lock that a thread holds while it stores chunks.
    pub fn storing(&self) -> &Mutex<()> {
        &self.state.storing
    }

    /// Returns whether all that was put or deleted is durable. Returns `false` while a sync is running.
    pub fn is_synced(&self) -> bool {
        // A directory fsync that is running may still fail.
        let syncing = self.state.syncing.try_lock();
        syncing.is_some() && self.dirty.unsynced().is_empty()
    }

    /// Makes stored objects durable.
    pub fn sync_names(&self) -> Result<()> {
        let _syncing = self.state.syncing.lock();
        let served = self.served();
        let Some(writer) = served.store().writer() else { return Ok(()) };
        let resources = self.objects.resources();
        resources.sync_former_names(|| writer.sync_all()).inspect_err(|error| self.record_failure(error))?;
        // The keys are taken first: an object that is put again meanwhile needs another sync.
        let keys = self.dirty.unsynced().take();
        if keys.is_empty() {
            return Ok(());
        }
        writer.sync(&keys, served.path()).inspect_err(|error| {
            log::error!("{error}");
            self.dirty.unsynced().add(keys.iter().cloned());
            self.record_failure(error);
        })
    }

    /// Drops what a write left behind that was running when the array ended. Fails if anything is lost. The caller
    /// holds [`WriteBack::storing`].
    pub fn check_end(&self) -> Result<()> {
        if !self.end().has_ended() {
            return Ok(());
        }
        self.drop_dirty();
        if self.end().has_lost() { Err(self.session.stale()) } else { Ok(()) }
    }

    /// Drops what was written and not stored. Returns whether there was something. The caller holds
    /// [`WriteBack::storing`].
    pub fn drop_dirty(&self) -> bool {
        let has_lost = self.dirty.is_dirty();
        self.dirty.drop_all(None);
        self.dirty.unsynced().take();
        self.end().record_lost(has_lost);
        has_lost
    }

    /// Stores dirty chunks. Returns the first failure; what failed stays dirty.
    pub fn store(&self, scope: FlushScope) -> Result<()> {
        let _storing = self.storing().lock();
        self.check_end()?;
        if scope == FlushScope::ToMakeRoom && !self.objects.resources().is_over_dirty_limit() {
            // Another thread made room while this writer waited.
            return Ok(());
        }
        let objects = self.dirty.objects_to_store(scope);
        if !objects.is_empty() || !self.created().is_empty() {
            let failures = self.store_checked(&objects)?;
            self.failures().log(&failures);
            if let Some(error) = failures.into_iter().next() {
                self.record_failure(&error);
                return Err(error);
            }
        }
        if scope == FlushScope::Everything {
            self.dirty.end_zero();
            self.dirty.record_clean();
        }
        Ok(())
    }

    /// Stores objects if the document still describes the array. Returns the failures. Fails with `Stale` if it does
    /// not: the array may have grown, and its successor may continue. The caller finds out, and counts the failure if
    /// not.
    fn store_checked(&self, objects: &[DirtyObject]) -> Result<Vec<Error>> {
        let like = match self.session.check_document() {
            Ok(like) => like,
            Err(error @ Error::Stale { .. }) => return Err(error),
            Err(error) => return Ok(vec![error]),
        };
        let mut failures = self.store_objects(objects, &like);
        match self.created().confirm(&self.objects, &self.session) {
            Ok(()) => {}
            Err(error @ Error::Stale { .. }) => {
                // What is removed was clean already, so no later attempt would report it.
                self.record_failure(&error);
                return Err(error);
            }
            Err(error) => failures.push(error),
        }
        if failures.len() < objects.len() {
            self.session.touch_document();
        }
        let is_stale =
            |error: &&Error| matches!(error, Error::Stale { key } if key == self.served().document_key());
        match failures.iter().find(is_stale) {
            // Another program was first while objects were stored. The array may have grown, as above.
            Some(stale) => Err(stale.clone()),
            None => Ok(failures),
        }
    }

    /// Stores objects in parallel. Returns the failures. One object's failure does not keep the others from being
    /// stored.
    fn store_objects(&self, objects: &[DirtyObject], like: &Info) -> Vec<Error> {
        let failures: Mutex<Vec<Error>> = Mutex::default();
        let cores = self.strips.workers().count();
        let threads = self.storing_threads(objects).min(objects.len());
        // If there are only a few objects, each is encoded on several threads, so that all processors are busy.
        let threads_of_object = cores.saturating_mul(2).div_ceil(threads).min(cores);
        let _ = self.objects.for_each(objects.len() as u64, threads, "encode", |place| {
            let Some(object) = objects.get(place as usize) else { return Ok(()) };
            let stored = self.objects.without_panic(|| self.store_object(object, like, threads_of_object));
            failures.lock().extend(stored.err());
            Ok(())
        });
        failures.into_inner()
    }

    /// Returns how many threads store: enough to keep the disk busy, but fewer if the chunks they encode take much
    /// memory.
    fn storing_threads(&self, objects: &[DirtyObject]) -> usize {
        let cores = self.strips.workers().count().max(1);
        // The limits are measured. With 32 MiB encoded at a time in a folder, an hour of mixed load took 135 to 153 MiB
        // in its first minute, where 128 MiB are promised; with 16 MiB it stayed below 122 MiB. At a service, four
        // chunks of 4 MiB at a time left most connections unused.
        let (most, encoded_bytes) = if self.served().store().is_remote() {
            (REMOTE_THREADS.max(cores), REMOTE_ENCODED_BYTES)
        } else {
            (THREADS_PER_CORE.saturating_mul(cores), ENCODED_BYTES)
        };
        if self.served().source().is_uncompressed() {
            return most; // stored from where the chunks are
        }
        let chunks = objects.iter().map(|object| object.chunks.len()).max().unwrap_or(0) as u64;
        let object_bytes = self.served().grid().largest_chunk_bytes().saturating_mul(chunks).max(1);
        usize::try_from(encoded_bytes / object_bytes).unwrap_or(most).clamp(cores, most)
    }

    /// Stores the dirty chunks of an object on up to `threads` threads. They become clean, unless they are written
    /// meanwhile.
    fn store_object(&self, object: &DirtyObject, like: &Info, threads: usize) -> Result<()> {
        let key = self.served().key_of_object(object.object)?;
        let replace = || self.replace_object(object, &key, like, threads);
        self.objects.retry_if_overtaken(&key, &self.session, replace)
    }

    fn replace_object(&self, dirty: &DirtyObject, key: &str, like: &Info, threads: usize) -> Result<()> {
        let (served, object) = (self.served(), dirty.object);
        let is_zero = self.dirty.is_zero(object);
        let old = served.store().head_object(key)?.map(|info| info.version);
        // What was transferred for readers may be older.
        served.store().forget_transfers(key);
        if old.is_some() && served.is_padded(object) {
            // The put stores fill value after the array's end. Another program may have just made the array longer and
            // stored elements there; it replaced the document before that, so the document is checked once more.
            self.session.check_document()?;
        }
        let encoder = DirtyEncoder { dirty: &self.dirty, objects: &self.objects, is_zero, old };
        let EncodedChunks { mut encoded, generations } = encoder.encode(&dirty.chunks, threads)?;
        if is_zero {
            self.objects.encode_zeros(object, &mut encoded)?;
        }
        // The put has a condition even if programs wrote all of the object: a put whose reply was lost may be carried
        // out after later ones, and must not replace what they put.
        let precondition = Precondition::found(old);
        let replacement = served.seen().replace(key);
        let version =
            self.objects.put(&NewObject { object, encoded: &encoded, like, precondition, is_zero })?;
        drop(encoded);
        if let (None, Some(version)) = (old, version)
            && self.created().record(key, version)
        {
            let confirmed = self.created().confirm(&self.objects, &self.session);
            confirmed.inspect_err(|error| self.record_failure(error))?;
        }
        // Content that readers loaded before this moment is compared with the store before use.
        let stored = ValidatedVersion { object: version, epoch: served.advance_epoch() };
        self.dirty.mark_stored(object, key);
        for (number, chunk) in &dirty.chunks {
            let mut state = chunk.lock();
            if let Some(generation) = generations.get(number) {
                self.make_clean(*number, &mut state, *generation, stored);
            }
        }
        replacement.record(old, version);
        if !served.source().is_lossless() {
            // The kernel's pages have the bytes as written. From now on reads return them as the codecs changed them.
            served.seen().mark_incomplete();
        }
        Ok(())
    }

    /// Makes a chunk clean that was stored with the content of `generation`. If a writer has written to it meanwhile,
    /// its other bytes are those that were stored, unless the codecs changed them.
    fn make_clean(&self, number: u64, state: &mut ChunkState, generation: u64, stored: ValidatedVersion) {
        let source = self.served().source();
        self.dirty.recorder().record_stored(number, state);
        if generation == state.generation {
            // If the kernel keeps what it wrote, the next writes need the memory more.
            let is_demoted = self.objects.resources().readers_keep();
            self.dirty.retire(number, state, |bytes| {
                self.strips.keep_stored(number, CachedContent::Chunk(bytes), stored, is_demoted);
            });
        } else if self.served().store().lacks_locks() {
            self.dirty.keep_rest(state, source.is_lossless().then_some(stored.object));
        } else if state.base.is_some() && source.is_lossless() {
            state.base = Some(stored.object);
        }
    }

    /// Returns the objects that are not in the store yet. `None` if everything is stored.
    pub fn unsaved(&self) -> Option<DirtyReport> {
        let served = self.served();
        // Whether a writer has written to the object since a truncation.
        let mut objects: BTreeMap<u64, bool> = BTreeMap::new();
        let mut zeroed = 0;
        self.dirty.each_unsaved(&mut |unsaved| match unsaved {
            Unsaved::Chunk(number) => {
                objects.insert(served.object_of(number), true);
            }
            Unsaved::ZeroObject(object) => {
                zeroed += u64::from(!objects.contains_key(&object));
                if objects.len() < MAX_REPORTED_KEYS {
                    objects.entry(object).or_insert(false);
                }
            }
        });
        let count = objects.values().filter(|is_written| **is_written).count() as u64 + zeroed;
        let keys = objects.keys().take(MAX_REPORTED_KEYS);
        let keys = keys.filter_map(|&object| served.key_of_object(object).ok()).collect();
        let last_failure = self.failures().present();
        (count > 0).then(|| DirtyReport { path: served.path().to_owned(), keys, count, last_failure })
    }
}
