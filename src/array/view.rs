//! Reading: from a range of the flat file to units, and back with their bytes.
//!
//! Uses its neighbours in `array`, `store` and `error`.
//!
//! Invariants: a read is answered in full or fails as a whole; a chunk that cannot be read is an error, only a missing
//! one is fill value. A read holds at most [`Inner::batch_units`] units at a time. Every object that a cached
//! unit came from is in [`Served`], or `Served` has overflowed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::cache::{Content, Key, Loaded, Peek};
use super::grid::Piece;
use super::source::Place;
use super::write::Present;
use super::{Array, Inner};
use crate::error::{Error, Result};
use crate::store::{Object, Validator};

/// The most objects whose versions are remembered between two opens.
const SERVED_LIMIT: usize = 4096;

/// The versions of the objects that were served since the last time that all of them were forgotten.
#[derive(Default)]
pub(super) struct Served {
    objects: HashMap<String, Option<Validator>>,
    has_overflowed: bool,
    /// What readers have seen is no longer what is stored, and no version tells.
    has_changed: bool,
}

impl Served {
    /// An object was read in this version. If it was read in another before, which was not ours to replace, some of what
    /// readers hold is old.
    pub(super) fn note(&mut self, key: String, version: Option<Validator>) {
        self.has_changed |= self.objects.get(&key).is_some_and(|seen| *seen != version);
        self.insert(key, version);
    }

    fn insert(&mut self, key: String, version: Option<Validator>) {
        if self.objects.len() >= SERVED_LIMIT && !self.objects.contains_key(&key) {
            self.has_overflowed = true;
        } else {
            self.objects.insert(key, version);
        }
    }

    /// An object of version `old` was replaced by ours. If readers saw a version before `old`, what another program
    /// did in between is new to them.
    pub(super) fn note_replaced(&mut self, key: String, old: Option<Validator>, new: Option<Validator>) {
        self.has_changed |= self.objects.get(&key).is_some_and(|seen| *seen != old);
        self.insert(key, new);
    }

    /// What readers and writers have seen is not what a reader gets now.
    pub(super) fn note_change(&mut self) {
        self.has_changed = true;
    }
}

/// A span of a raw chunk is read as one when at least this share of it is wanted, else run by run.
const RAW_SPAN_SHARE: usize = 4;

impl Array {
    /// Fills `out` from `offset`; the range must lie in the file. Blocks on the store; any failure inside the
    /// range fails the whole of it.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > self.size_bytes()) {
            return Err(Error::InvalidValue(format!("{} bytes from {offset} lie behind the end", out.len())));
        }
        let inner = &self.inner;
        if inner.source.is_raw() && !(inner.writing.is_written.load(Ordering::Acquire) && inner.is_dirty()) {
            return inner.read_raw(offset, out);
        }
        let units = inner.units(offset, out.len() as u64);
        let batch = inner.batch_units();
        for units in units.chunks(batch) {
            // A unit that is stored between the look and the copy is in the cache or the store afterwards.
            while !inner.copy_out(offset, out, &Inner::fetch(inner, units)?, true) {}
        }
        Ok(())
    }

    /// As [`Array::read_at`], but only if every chunk needed is in the cache now: `false` (and `out` undefined)
    /// otherwise. Never blocks on the store.
    pub fn read_cached(&self, offset: u64, out: &mut [u8]) -> bool {
        let inner = &self.inner;
        let end = offset.checked_add(out.len() as u64);
        if inner.source.is_raw() || end.is_none_or(|end| end > self.size_bytes()) {
            return false;
        }
        let is_written = inner.writing.is_written.load(Ordering::Acquire);
        let mut contents = HashMap::new();
        for unit in inner.units(offset, out.len() as u64) {
            if is_written && let Some(dirty) = inner.present_dirty(unit) {
                match dirty {
                    Some(present) => contents.insert(unit, present),
                    None => return false,
                };
                continue;
            }
            // Read after the look at the dirty units: what was stored before that look has moved the epoch by now.
            let epoch = inner.epoch.load(Ordering::Acquire);
            match inner.engine.cache.peek(inner.unit_key(unit), epoch) {
                Peek::Fresh(content) => contents.insert(unit, Present::Stored(content)),
                Peek::Old | Peek::Missing => return false,
            };
        }
        inner.engine.cache.counters.hits.fetch_add(contents.len() as u64, Ordering::Relaxed);
        inner.copy_out(offset, out, &contents, false)
    }

    /// Compares every object served so far with the store, as open(2) wants it. `true`: nothing that any reader has
    /// seen has changed, and what the kernel keeps of the file is still right. `false`: something changed, or there
    /// were too many objects to tell; from now on every cached unit is compared with the store before it is used.
    pub fn revalidate(&self) -> Result<bool> {
        let inner = &self.inner;
        let objects = {
            let mut served = inner.served.lock();
            if served.has_overflowed || served.has_changed {
                *served = Served::default();
            }
            served.objects.clone()
        };
        if objects.is_empty() {
            // Either nothing was served yet or it was too much to remember: both end in looking afresh.
            inner.look_afresh();
            return Ok(false);
        }
        let mut changed = Vec::new();
        for (key, version) in objects {
            if inner.store.head(&key)?.map(|info| info.validator) != version {
                changed.push(key);
            }
        }
        if changed.is_empty() {
            return Ok(true);
        }
        inner.look_afresh();
        let mut served = inner.served.lock();
        for key in &changed {
            served.objects.remove(key);
        }
        Ok(false)
    }
}

impl Inner {
    /// From now on, what was read of the store before is compared with it, or read again.
    fn look_afresh(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.forget_bases();
    }

    pub(super) fn unit_key(&self, number: u64) -> Key {
        Key { array: self.number, level: 0, number }
    }

    /// How many units one read holds at a time.
    fn batch_units(&self) -> usize {
        let share = self.engine.cache.limit_bytes() / 4 / self.unit_bytes().max(1);
        (share as usize).clamp(2 * self.engine.workers.count().max(1), 256)
    }

    /// The units that a range touches, each once, in the order in which the range needs them.
    pub(super) fn units(&self, offset: u64, length: u64) -> Vec<u64> {
        let mut units: Vec<u64> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        let _ = self.grid.for_each_piece(offset, length, &mut |piece: &Piece<'_>| {
            if units.last() != Some(&piece.chunk) && seen.insert(piece.chunk) {
                units.push(piece.chunk);
            }
            Ok::<(), ()>(())
        });
        units
    }

    /// The contents of units, those that are missing loaded in parallel.
    fn fetch(inner: &Arc<Inner>, units: &[u64]) -> Result<HashMap<u64, Present>> {
        let epoch = inner.epoch.load(Ordering::Acquire);
        let missing =
            units.iter().copied().filter(|&unit| !inner.engine.cache.is_known(inner.unit_key(unit), epoch));
        // This thread loads the first itself. Of a zeroed array nothing is to be loaded.
        let is_written = inner.writing.is_written.load(Ordering::Acquire);
        for unit in missing.skip(1) {
            if !(is_written && inner.present_dirty(unit).is_some()) {
                Inner::demand(inner, unit);
            }
        }
        let present = |unit: u64| {
            if is_written { inner.present(unit) } else { inner.unit(unit).map(Present::Stored) }
        };
        units.iter().map(|&unit| Ok((unit, present(unit)?))).collect()
    }

    fn demand(inner: &Arc<Inner>, unit: u64) {
        let task_inner = Arc::clone(inner);
        // A failure is seen by the reader when it asks for the unit itself.
        inner.engine.workers.demand(Box::new(move || drop(task_inner.unit(unit))));
    }

    /// One unit, from the cache or the store.
    pub(super) fn unit(&self, unit: u64) -> Result<Content> {
        let place = self.place();
        let index = self.grid.index(unit);
        self.engine.cache.get(
            self.unit_key(unit),
            place.epoch,
            |object| {
                let key = self.source.key(&place, &index)?;
                let now = self.store.head(&key)?.map(|info| info.validator);
                self.served.lock().note(key, now);
                Ok(now == object)
            },
            || self.load(&place, &index),
        )
    }

    fn load(&self, place: &Place<'_>, index: &[u64]) -> Result<Loaded> {
        let loaded = self.source.load(place, index)?;
        if let Content::Unit(buffer) = &loaded.0 {
            self.engine.decoded_units.fetch_add(1, Ordering::Relaxed);
            self.engine.decoded_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        }
        self.served.lock().note(self.source.key(place, index)?, loaded.1);
        Ok(loaded)
    }

    /// Copies what the range wants of the units in `contents`; `false` where a dirty one was stored meanwhile, or would
    /// have to be waited for without `may_wait`.
    fn copy_out(
        &self,
        offset: u64,
        out: &mut [u8],
        contents: &HashMap<u64, Present>,
        may_wait: bool,
    ) -> bool {
        let length = out.len() as u64;
        let copied = self.grid.for_each_piece(offset, length, &mut |piece: &Piece<'_>| {
            match contents.get(&piece.chunk) {
                Some(Present::Stored(Content::Unit(buffer))) => piece.gather(buffer, 0, out),
                Some(Present::Stored(_)) => piece.fill(offset, &self.fill, out),
                Some(Present::Zero) => piece.fill(offset, &[0], out),
                Some(Present::Dirty(unit)) => {
                    let state = if may_wait { Some(unit.state.lock()) } else { unit.state.try_lock() };
                    match state.filter(|state| !state.is_retired) {
                        Some(state) => piece.gather(&state.bytes, 0, out),
                        None => return Err(()),
                    }
                }
                None => {}
            }
            Ok(())
        });
        copied.is_ok()
    }

    /// Reads from chunks whose stored bytes are their elements: ranges of the objects, no cache.
    fn read_raw(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let place = self.place();
        let mut open: Option<(u64, Option<Box<dyn Object>>)> = None;
        let mut span = Vec::new();
        let length = out.len() as u64;
        self.grid.for_each_piece(offset, length, &mut |piece: &Piece<'_>| {
            if open.as_ref().is_none_or(|(chunk, _)| *chunk != piece.chunk) {
                let index = self.grid.index(piece.chunk);
                let object = self.source.open_raw(&place, &index)?;
                let version = object.as_ref().map(|object| object.validator());
                self.served.lock().note(self.source.key(&place, &index)?, version);
                open = Some((piece.chunk, object));
            }
            match &open {
                Some((_, Some(object))) => self.read_raw_piece(object.as_ref(), piece, out, &mut span),
                _ => {
                    piece.fill(offset, &self.fill, out);
                    Ok(())
                }
            }
        })
    }

    fn read_raw_piece(
        &self,
        object: &dyn Object,
        piece: &Piece<'_>,
        out: &mut [u8],
        span: &mut Vec<u8>,
    ) -> Result<()> {
        let item = self.fill.len();
        // Whole elements, so that the fix-up can be applied.
        let widen = |from: usize, to: usize| (from / item * item, to.div_ceil(item) * item);
        let read = |from: usize, to: usize, span: &mut Vec<u8>| -> Result<usize> {
            let (low, high) = widen(from, to);
            span.resize(high - low, 0);
            object.read_exact_at(low as u64, span)?;
            self.source.fix_raw(span)?;
            Ok(low)
        };
        let extent = piece.chunk_extent();
        if extent / RAW_SPAN_SHARE <= piece.total_bytes() {
            let low = read(piece.chunk_offset, piece.chunk_offset + extent, span)?;
            piece.gather(span, low, out);
            return Ok(());
        }
        let mut outcome = Ok(());
        piece.for_each_run(|from, to| {
            if outcome.is_err() {
                return;
            }
            match read(from, from + piece.run, span) {
                Ok(low) => {
                    out[to..to + piece.run].copy_from_slice(&span[from - low..from - low + piece.run]);
                }
                Err(error) => outcome = Err(error),
            }
        });
        outcome
    }
}
