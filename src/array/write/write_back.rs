//! Write-back: from dirty units to the store.
//!
//! Uses its neighbours in `array`, `store` and `error`. All dirty units of one object are stored in one replacement of it.
//!
//! Invariants: a unit is clean only when exactly what it holds is in the store; a failure leaves it dirty and is counted,
//! so that every handle hears of it; an object that changed since its unit's base was read gives a new base.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::array::cache::{Content, Version};
use crate::array::geometry::strips::Bands;
use crate::array::source::replacement::Target;
use crate::array::sync::atomic::{AtomicUsize, Ordering};
use crate::array::sync::{self, Mutex};
use crate::array::write::dirty::{DirtyUnit, UnitState};
use crate::array::{Array, Inner};
use crate::error::{Error, Result};
use crate::metadata::MAX_DOCUMENT_BYTES;
use crate::store::{Info, ObjectVersion};

/// Threads that store: most of them wait for the disk.
const THREADS_PER_CORE: usize = 4;

/// What these threads encode at one time takes no more than this, where at least one a core stores.
const ENCODED_BYTES: u64 = 16 << 20;

/// So many objects are looked up while writers wait for the map of dirty units.
const LOOKS_PER_LOCK: usize = 4096;

/// Failures of one attempt that are logged one by one.
const LOGGED_FAILURES: usize = 8;

/// Failures of one array are logged this often at most, while nothing gets through.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Which dirty units are to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::array) enum Which {
    /// All, and the rest of a zeroed array.
    Everything,
    /// If more is dirty than the limit: those that were written in full, or else all that are dirty.
    ToMakeRoom,
    /// Those that were written in full.
    Full,
    /// Those that were not written for so long.
    Settled(Duration),
}

/// Dirty units of one object, by number.
pub(in crate::array) type DirtyUnits = Vec<(u64, Arc<DirtyUnit>)>;

impl Array {
    /// Stores all that is dirty, as close(2) does. The first failure is the answer; what failed stays dirty.
    pub fn flush(&self) -> Result<()> {
        self.inner.store_dirty(Which::Everything)
    }

    /// Stores all that is dirty and makes it last, as fsync(2) does.
    pub fn sync(&self) -> Result<()> {
        self.flush()?;
        self.inner.sync_names()
    }

    /// How many write-backs have failed so far, and the last failure: a handle that has seen fewer is to report it.
    pub fn failures(&self) -> (u64, Option<Error>) {
        let failures = self.inner.writing.failures.lock();
        (failures.count, failures.last.clone())
    }

    /// Counts a write-back that failed before anything was tried: the array is no longer what was opened.
    pub fn note_failure(&self, error: &Error) {
        self.inner.writing.fail(error);
    }

    /// Whether something is not yet in the store.
    pub fn is_dirty(&self) -> bool {
        self.inner.is_dirty()
    }

    /// Whether it was opened for writing at some time.
    pub fn was_written(&self) -> bool {
        self.inner.writing.is_written.load(Ordering::Acquire)
    }
}

impl Inner {
    pub(in crate::array) fn is_dirty(&self) -> bool {
        let units = self.writing.units.lock();
        !units.dirty.is_empty() || units.zero.is_some()
    }

    /// Stores units that have settled, and makes last what is stored; the timer's part. Failures are counted, and logged.
    pub(in crate::array) fn store_settled(&self, settle: Duration) {
        let now = Instant::now();
        if !self.writing.waits(now) {
            let has_writers = self.writing.opened.lock().as_ref().is_some_and(|opened| opened.writers > 0);
            let stored = match (self.is_dirty(), has_writers) {
                (true, true) => self.store_dirty(Which::Settled(settle)),
                // Nobody is left to do it.
                (true, false) => self.store_dirty(Which::Everything),
                (false, _) => self.sync_names(),
            };
            if let Err(error @ Error::Stale { .. }) = &stored
                && self.writing.failures.lock().in_a_row == 0
            {
                log::error!("{error}; the changes are kept and tried again");
            }
            self.writing.note_timer(stored.is_ok(), now);
        }
        self.let_go_if_idle();
    }

    /// Stores everything and makes it last; unmounting's part.
    pub(in crate::array) fn store_all(&self) -> Result<()> {
        let stored = self.store_dirty(Which::Everything).and_then(|()| self.sync_names());
        self.let_go_if_idle();
        stored
    }

    /// Stores what is dirty when more is dirty than the limit. Fails where that leaves no room. What others have dirty
    /// and cannot store is no reason to refuse this array's writes: it has nothing dirty then but what comes next.
    pub(in crate::array) fn make_room(&self) -> Result<()> {
        if !self.is_crowded() || self.waits_for_room() {
            return Ok(());
        }
        let stored = self.store_now();
        if self.engine.is_over_dirty_limit() {
            self.engine.make_others_store(self);
        }
        if self.engine.is_over_dirty_limit() { stored } else { Ok(()) }
    }

    /// Stores what is dirty, if more is dirty than the limit.
    pub(in crate::array) fn store_now(&self) -> Result<()> {
        self.store_dirty(Which::ToMakeRoom)
    }

    /// Lets the lock go when nobody writes and nothing is dirty. What is not yet sure to last keeps the array known, so
    /// that the end of the mount finds it.
    pub(in crate::array) fn let_go_if_idle(&self) {
        let mut opened = self.writing.opened.lock();
        if opened.as_ref().is_some_and(|opened| opened.writers == 0) && !self.is_dirty() {
            *opened = None;
        }
        // Names that are being made last may turn out not to.
        let Some(_syncing) = self.writing.syncing.try_lock() else { return };
        if opened.is_none() && self.writing.units.lock().unsynced.is_empty() {
            self.engine.unregister(self);
        }
    }

    /// Takes over from the array that this one grew out of: from now on this one stores.
    pub(in crate::array) fn take_over(self: &Arc<Self>, old: &Inner) -> Result<()> {
        let stale = || Err(Error::Stale { key: self.metadata.document_key.clone() });
        let _storing = self.writing.storing.lock();
        let mut opened = self.writing.opened.lock();
        // What is zero by the mark alone is not told from what the other program added.
        if self.writing.units.lock().zero.is_some() {
            return stale();
        }
        if let Some(opened) = opened.as_mut() {
            if opened.array != old.number {
                return stale();
            }
            (opened.array, opened.version) = (self.number, None);
        }
        if self.engine.is_registered(self) {
            self.engine.register(self);
        }
        Ok(())
    }

    fn sync_names(&self) -> Result<()> {
        let _syncing = self.writing.syncing.lock();
        let Some(writer) = self.store.writer() else { return Ok(()) };
        // Taken out first: what is put again meanwhile has to be synced again.
        let keys = std::mem::take(&mut self.writing.units.lock().unsynced);
        if keys.is_empty() {
            return Ok(());
        }
        let keys: Vec<String> = keys.into_iter().collect();
        writer.sync(&keys, &self.path).inspect_err(|error| {
            log::error!("{error}");
            self.writing.units.lock().unsynced.extend(keys.iter().cloned());
            self.writing.fail(error);
        })
    }

    pub(in crate::array) fn store_dirty(&self, which: Which) -> Result<()> {
        let _storing = self.writing.storing.lock();
        if which == Which::ToMakeRoom && !self.engine.is_over_dirty_limit() {
            // Somebody else made room while this writer waited.
            return Ok(());
        }
        let objects = self.objects_to_store(which);
        if objects.is_empty() {
            self.end_zero(which);
            return Ok(());
        }
        let failures = match self.check_document() {
            // It may have grown, and its successor may go on: who asked finds that out, and counts it if not.
            Err(error @ Error::Stale { .. }) => return Err(error),
            Err(error) => vec![error],
            Ok(like) => {
                let failures = self.store_objects(&objects, &like);
                if failures.len() < objects.len() {
                    self.touch_document();
                }
                failures
            }
        };
        self.log_failures(&failures);
        match failures.into_iter().next() {
            Some(error) => {
                self.writing.fail(&error);
                Err(error)
            }
            None => {
                self.end_zero(which);
                Ok(())
            }
        }
    }

    /// Not each time: a program that writes on while nothing can be stored must not fill the disk with it.
    fn log_failures(&self, failures: &[Error]) {
        let mut counted = self.writing.failures.lock();
        if failures.is_empty() {
            counted.logged_at = None;
            return;
        }
        let now = Instant::now();
        if counted.logged_at.is_some_and(|at| now.duration_since(at) < LOG_INTERVAL) {
            return;
        }
        counted.logged_at = Some(now);
        drop(counted);
        for error in failures.iter().take(LOGGED_FAILURES) {
            log::error!("{error}; the changes are kept and tried again");
        }
        if failures.len() > LOGGED_FAILURES {
            log::error!("and {} more like it", failures.len() - LOGGED_FAILURES);
        }
    }

    /// Stores objects in parallel; what failed.
    fn store_objects(&self, objects: &[(u64, DirtyUnits)], like: &Info) -> Vec<Error> {
        let next = AtomicUsize::new(0);
        let failures: Mutex<Vec<Error>> = Mutex::default();
        let cores = self.engine.workers.count();
        let threads = self.storing_threads(objects).min(objects.len());
        // Few shards keep all processors busy, too.
        let threads_of_object = cores.saturating_mul(2).div_ceil(threads).min(cores);
        let run = || {
            while let Some((object, units)) = objects.get(next.fetch_add(1, Ordering::Relaxed)) {
                // A panic in a codec library costs one object's write-back, not the write-back of all others.
                let stored = catch_unwind(AssertUnwindSafe(|| {
                    self.store_object(*object, units, like, threads_of_object)
                }));
                let panicked = |_| {
                    let reason = std::io::Error::other("a codec panicked, which is a bug");
                    Err(Error::store(self.path.as_str(), "encode", reason))
                };
                if let Err(error) = stored.unwrap_or_else(panicked) {
                    failures.lock().push(error);
                }
            }
        };
        sync::on_threads(threads, "encode", run);
        failures.into_inner()
    }

    /// How many threads store: as many as keep the disk busy, and fewer where what they encode at one time takes much memory.
    fn storing_threads(&self, objects: &[(u64, DirtyUnits)]) -> usize {
        let cores = self.engine.workers.count().max(1);
        let most = THREADS_PER_CORE.saturating_mul(cores);
        if self.source.is_raw() {
            return most; // stored from where the units are
        }
        let units = objects.iter().map(|(_, units)| units.len()).max().unwrap_or(0) as u64;
        let object_bytes = self.unit_bytes().saturating_mul(units).max(1);
        usize::try_from(ENCODED_BYTES / object_bytes).unwrap_or(most).clamp(cores, most)
    }

    /// The objects to store with their dirty units, by number.
    fn objects_to_store(&self, which: Which) -> Vec<(u64, DirtyUnits)> {
        // Writers wait for the map: no more is done under its lock than to copy it.
        let (dirty, is_zeroed) = {
            let units = self.writing.units.lock();
            let dirty: DirtyUnits =
                units.dirty.iter().map(|(&number, unit)| (number, Arc::clone(unit))).collect();
            (dirty, units.zero.is_some())
        };
        let mut objects: HashMap<u64, DirtyUnits> = HashMap::new();
        for (number, unit) in dirty {
            objects.entry(self.object_of(number)).or_default().push((number, unit));
        }
        if let Which::Settled(settle) = which {
            let now = Instant::now();
            let is_settled = |unit: &Arc<DirtyUnit>| {
                unit.state.try_lock().is_some_and(|state| now.duration_since(state.last_write) >= settle)
            };
            objects.retain(|_, units| units.iter().all(|(_, unit)| is_settled(unit)));
        }
        if which == Which::Full {
            objects.retain(|object, units| self.is_full(*object, units));
        }
        if which == Which::ToMakeRoom {
            self.prefer_full(&mut objects);
        }
        if which == Which::Everything && is_zeroed {
            // Nobody else changes the mark while this thread stores.
            for first in (0..self.source.objects()).step_by(LOOKS_PER_LOCK) {
                let units = self.writing.units.lock();
                for object in (first..self.source.objects()).take(LOOKS_PER_LOCK) {
                    if units.is_zero(object) {
                        objects.entry(object).or_default();
                    }
                }
            }
        }
        let mut objects: Vec<_> = objects.into_iter().collect();
        objects.sort_unstable_by_key(|(object, _)| *object);
        objects
    }

    /// After everything was stored, nothing is zero by the mark alone.
    fn end_zero(&self, which: Which) {
        if which == Which::Everything {
            let mut units = self.writing.units.lock();
            let all_settled = {
                let objects = self.source.objects();
                units.zero.as_ref().is_some_and(|mark| mark.settled.len() as u64 >= objects)
            };
            if all_settled {
                units.zero = None;
            }
        }
    }

    /// The metadata document's owner and mode, if it still describes this array.
    fn check_document(&self) -> Result<Info> {
        let key = self.metadata.document_key.as_str();
        let stale = || Error::Stale { key: key.to_owned() };
        let mut opened = self.writing.opened.lock();
        let opened = opened.as_mut().filter(|opened| opened.array == self.number).ok_or_else(stale)?;
        if let Some(writer) = self.store.writer() {
            writer.check_place().map_err(|_| stale())?;
        }
        // Another folder with the same document is another array.
        if self.folder_identity()? != opened.folder {
            return Err(stale());
        }
        let now = self.store.head(key)?.ok_or_else(stale)?;
        if opened.version != Some(now.version) {
            let document = self.store.get(key, MAX_DOCUMENT_BYTES)?.ok_or_else(stale)?;
            if document != opened.document {
                if !self.is_described_by(&document) {
                    return Err(stale());
                }
                opened.document = document;
            }
            opened.version = Some(now.version);
        }
        Ok(now)
    }

    /// Sets the document's time, so that make and rsync see that the array changed.
    fn touch_document(&self) {
        let mut opened = self.writing.opened.lock();
        let (Some(writer), Some(opened)) = (self.store.writer(), opened.as_mut()) else { return };
        let Some(version) = opened.version else { return };
        match writer.touch(&self.metadata.document_key, version) {
            // `None`: another program has just changed it, which the next flush will look at.
            Ok(touched) => opened.version = touched,
            // The data are stored; a document that belongs to somebody else keeps its time.
            Err(error) => log::debug!("{error}"),
        }
    }

    fn store_object(
        &self,
        object: u64,
        units: &[(u64, Arc<DirtyUnit>)],
        like: &Info,
        threads: usize,
    ) -> Result<()> {
        let Some(writer) = self.store.writer() else {
            return Err(Error::ReadOnly(self.store.describe()));
        };
        let is_zero = self.writing.units.lock().is_zero(object);
        let Some(any) = units.first().map(|(number, _)| *number).or_else(|| self.first_unit_of(object))
        else {
            return Ok(());
        };
        let key = self.source.key(&self.place(), &self.grid.index(any))?;
        let old = self.store.head(&key)?.map(|info| info.version);
        let (mut encoded, generations) = self.encode_units(units, is_zero, old, threads)?;
        if is_zero {
            self.encode_zeros(object, &mut encoded)?;
        }
        let target = Target { store: self.store.as_ref(), writer, within: &self.path, like, is_zero };
        let replacement = self.served.replace(&key);
        let (_, version) = self.source.store(&self.place(), &target, object, &encoded)?;
        self.engine.objects_stored.fetch_add(1, Ordering::Relaxed);
        self.engine.units_encoded.fetch_add(encoded.len() as u64, Ordering::Relaxed);
        drop(encoded);
        // Whatever a reader loads from before this moment is compared with the store before it is used again.
        let epoch = self.epoch.fetch_add(1, Ordering::AcqRel) + 1;
        {
            // Before any unit retires: whoever then looks for it must find what was stored.
            let mut all = self.writing.units.lock();
            all.unsynced.insert(key.clone());
            if let Some(mark) = all.zero.as_mut() {
                mark.settled.insert(object);
            }
        }
        for (number, unit) in units {
            let mut state = unit.state.lock();
            match generations.get(number) {
                Some(generation) if *generation == state.generation => {
                    self.retire(*number, &mut state, Version { object: version, epoch });
                }
                // Written to meanwhile. What nobody wrote is what was just stored.
                Some(_) if state.base.is_some() && self.source.is_lossless() => state.base = Some(version),
                _ => {}
            }
        }
        replacement.note(old, version);
        if !self.source.is_lossless() {
            // The kernel holds what was written; what is read from now on is what came through the codecs.
            self.served.note_change();
        }
        Ok(())
    }

    fn first_unit_of(&self, object: u64) -> Option<u64> {
        self.source.units_of(object).first().copied()
    }

    /// A unit whose bytes are all in the store: clean from now on.
    fn retire(&self, number: u64, state: &mut UnitState, version: Version) {
        self.engine.dirty_bytes.fetch_sub(state.counted, Ordering::AcqRel);
        self.engine.room.notify();
        state.counted = 0;
        let bytes = std::mem::take(&mut state.bytes);
        // Through a lossy codec the store gives back other bytes than were written; raw chunks are not cached, and where
        // bands are less than units their old entries are of another version.
        let is_cut = self.bands.get().is_some_and(Bands::is_cut);
        if self.source.is_lossless() && !self.source.is_raw() && !is_cut {
            let key = self.unit_key(number);
            self.engine.cache.put(key, Content::Unit(bytes), version);
            if self.engine.readers_keep.load(Ordering::Relaxed) {
                // The kernel holds what it was given to write; the memory is of more use to what is written next.
                self.engine.cache.demote(std::iter::once(key));
            }
        } else {
            self.engine.cache.forget(self.unit_key(number));
        }
        // Who waits for the state finds it retired and looks again; by then it is out of the map.
        state.is_retired = true;
        self.writing.units.lock().dirty.remove(&number);
    }

    /// Fills in what nobody wrote, from the object as it is now, in version `now`.
    pub(in crate::array) fn complete_for_storing(
        &self,
        number: u64,
        state: &mut UnitState,
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
