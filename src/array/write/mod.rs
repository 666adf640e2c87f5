//! Writing: from a range of the flat file to dirty units, and reading what is dirty.
//!
//! Uses its neighbours in `array`, `store` and `error`. The way back to the store is in `write_back.rs`.

pub mod dirty;
pub mod dirty_report;
pub mod encode;
pub mod flush_all;
pub mod semaphore;
pub mod streaming;
pub mod write_back;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod write_tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::array::cache::{Content, Loaded};
use crate::array::geometry::strided_copy::{Piece, fill_items};
use crate::array::source::MAX_UNIT_BYTES;
use crate::array::sync::MutexGuard;
use crate::array::sync::atomic::Ordering;
use crate::array::write::dirty::{DirtyUnit, Opened, UnitState};
use crate::array::write::write_back::DirtyUnits;
use crate::array::{Array, Inner};
use crate::error::{Error, Result};
use crate::metadata::{DataType, MAX_DOCUMENT_BYTES, parse_array};
use crate::store::{ObjectVersion, Writer};

/// The most objects of an array that can be set to zero.
const MAX_ZEROED_OBJECTS: u64 = 1 << 24;

/// How long a session thread waits for the states of units: another may just be copying to them, which it has accepted.
/// Who holds one while the store is asked is waited for no longer either.
const STATE_PATIENCE: Duration = Duration::from_micros(200);

/// A write to more units is taken by a thread that may wait: their states are all locked while it is copied.
const MOST_UNITS_NOW: usize = 1024;

/// How long another writer is waited for.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);

/// Where the bytes of a unit are for a reader.
pub(in crate::array) enum Present {
    /// In the cache or the store.
    Stored(Content),
    /// In a dirty unit, whose other bytes were filled in.
    Dirty(Arc<DirtyUnit>),
    /// Nowhere: all zero since the size was set to 0.
    Zero,
}

impl Array {
    /// Makes the array ready for one more writer: takes the lock that keeps other writers out, and removes what
    /// a writer that died left unfinished. To be paired with [`Array::close_for_writing`].
    pub fn open_for_writing(&self) -> Result<()> {
        let inner = &self.inner;
        let document_key = inner.metadata.document_key.as_str();
        let mut opened = inner.writing.opened.lock();
        if let Some(opened) = opened.as_mut() {
            opened.writers += 1;
            return Ok(());
        }
        let Some(writer) = inner.store.writer() else {
            return Err(Error::ReadOnly(format!("{} cannot be written to", inner.store.describe())));
        };
        if let Some(codec) = inner.skipped_codecs.first().or(inner.metadata.skipped.first()) {
            let reason = format!("writing: codec \"{codec}\" is unknown and was skipped for reading");
            return Err(Error::unsupported(document_key, reason));
        }
        if inner.unit_bytes() > MAX_UNIT_BYTES {
            let reason = format!("writing chunks of {} bytes (at most {MAX_UNIT_BYTES})", inner.unit_bytes());
            return Err(Error::unsupported(document_key, reason));
        }
        let Some(lock) = lock_folder(writer, &inner.path)? else {
            let busy = std::io::Error::new(
                std::io::ErrorKind::ResourceBusy,
                "another writer has this array open, here or in another mount: close it there first",
            );
            return Err(Error::store(document_key, "lock", busy));
        };
        let Some(info) = inner.store.head(document_key)? else {
            let reason =
                format!("{document_key} is missing: an array without a document of its own is not written");
            return Err(Error::ReadOnly(reason));
        };
        let document = inner.store.get(document_key, MAX_DOCUMENT_BYTES)?;
        let document = document.filter(|document| inner.is_described_by(document));
        let document = document.ok_or_else(|| Error::Stale { key: document_key.to_owned() })?;
        let folder = inner.folder_identity()?;
        let removed = writer.remove_unfinished(&inner.path)?;
        if removed > 0 {
            log::warn!("{document_key}: removed {removed} unfinished files of a writer that died");
        }
        inner.writing.is_written.store(true, Ordering::Release);
        let version = Some(info.version);
        *opened = Some(Opened { writers: 1, _lock: lock, document, version, array: inner.number, folder });
        inner.engine.register(&self.inner);
        Ok(())
    }

    /// One writer less; the last one lets the lock go once nothing is dirty.
    pub fn close_for_writing(&self) {
        if let Some(opened) = self.inner.writing.opened.lock().as_mut() {
            opened.writers = opened.writers.saturating_sub(1);
        }
        self.inner.let_go_if_idle();
    }

    /// Whether anybody has it open for writing.
    pub fn has_writers(&self) -> bool {
        self.writers() > 0
    }

    /// How many have it open for writing.
    pub fn writers(&self) -> usize {
        self.inner.writing.opened.lock().as_ref().map_or(0, |opened| opened.writers)
    }

    /// Whether another folder has come into the place of the one that is written to.
    pub fn is_displaced(&self) -> bool {
        let written = self.inner.writing.opened.lock().as_ref().map(|opened| opened.folder);
        written.is_some_and(|folder| self.inner.folder_identity().is_ok_and(|now| now != folder))
    }

    /// Writes `data` at `offset`; the range must lie in the file. The bytes are dirty until [`Array::flush`]. When more is
    /// dirty than the limit, some of it is stored first; if that fails and leaves no room, nothing is taken.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_write(offset, data)?;
        self.inner.make_room()?;
        self.take(offset, data);
        Ok(())
    }

    /// As [`Array::write_at`], but only if nothing has to be waited for: `false` otherwise, and nothing is taken.
    ///
    /// `accept` is called when nothing can fail any more, and before the bytes are copied: who writes goes on meanwhile, and
    /// whoever asks for them waits until they are. Nothing is taken either if it fails.
    pub fn write_now<E: From<Error>>(
        &self,
        offset: u64,
        data: &[u8],
        accept: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<bool, E> {
        self.check_write(offset, data)?;
        let inner = &self.inner;
        if inner.is_crowded() {
            return Ok(false);
        }
        let Some(units) = inner.units_to_write(offset, data.len() as u64) else { return Ok(false) };
        let Some(mut states) = lock_soon(&units) else { return Ok(false) };
        accept()?;
        let mut full_bytes = 0;
        let _ = inner.grid.for_each_piece(offset, data.len() as u64, &mut |piece: &Piece<'_>| {
            let unit = units.binary_search_by_key(&piece.chunk, |(number, _)| *number);
            if let Some(state) = unit.ok().and_then(|at| states.get_mut(at)) {
                full_bytes += inner.put_piece(piece, data, state);
            }
            Ok::<(), ()>(())
        });
        drop(states);
        Inner::note_full(inner, full_bytes);
        Ok(true)
    }

    /// As [`Array::write_at`], for pages of a memory map: never refused because storing fails, since the kernel would
    /// drop the page for good. The failure is counted and told by the next flush.
    pub fn write_page(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_write(offset, data)?;
        let _ = self.inner.make_room();
        self.take(offset, data);
        Ok(())
    }

    /// Makes every byte zero and keeps the size. Refused where the array has more objects than can be kept track of.
    pub fn zero(&self) -> Result<()> {
        if self.inner.source.objects() > MAX_ZEROED_OBJECTS {
            let reason = format!("setting an array of more than {MAX_ZEROED_OBJECTS} objects to zero");
            return Err(Error::unsupported(&self.inner.metadata.document_key, reason));
        }
        let counted = self.inner.writing.zero();
        self.inner.engine.dirty_bytes.fetch_sub(counted, Ordering::AcqRel);
        self.inner.engine.room.notify();
        Ok(())
    }

    fn check_write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.checked_add(data.len() as u64);
        if end.is_none_or(|end| end > self.size_bytes()) {
            return Err(Error::InvalidValue(format!("{} bytes at {offset} lie behind the end", data.len())));
        }
        if self.inner.metadata.data_type == DataType::Bool && data.iter().any(|&byte| byte > 1) {
            return Err(Error::InvalidValue("a bool is one byte, 0 or 1".to_owned()));
        }
        Ok(())
    }

    fn take(&self, offset: u64, data: &[u8]) {
        let inner = &self.inner;
        let _ = inner.grid.for_each_piece(offset, data.len() as u64, &mut |piece: &Piece<'_>| {
            Inner::take_piece(inner, piece, data);
            Ok::<(), ()>(())
        });
    }
}

/// The states of units, all of them or none: `None` where one is in use for long, or retired.
fn lock_soon(units: &DirtyUnits) -> Option<Vec<MutexGuard<'_, UnitState>>> {
    let deadline = Instant::now() + STATE_PATIENCE;
    units
        .iter()
        .map(|(_, unit)| unit.state.try_lock_until(deadline).filter(|state| !state.is_retired))
        .collect()
}

/// Locks a folder. Who has just closed the last file there lets go in a moment: the kernel tells of the end of a file behind its
/// close(2).
fn lock_folder(writer: &dyn Writer, folder: &str) -> Result<Option<Box<dyn Send + Sync>>> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match writer.lock(folder)? {
            None if Instant::now() < deadline => std::thread::sleep(LOCK_PATIENCE / 25),
            lock => return Ok(lock),
        }
    }
}

impl Inner {
    /// Device and inode of the array's folder, where the store has such.
    pub(in crate::array) fn folder_identity(&self) -> Result<Option<(u64, u64)>> {
        let folder = self.store.head(&self.path)?.map(|info| info.version);
        Ok(folder.filter(|folder| folder.inode != 0).map(|folder| (folder.device, folder.inode)))
    }

    /// Whether a document still describes the array as it was opened; its attributes do not matter.
    pub(in crate::array) fn is_described_by(&self, document: &[u8]) -> bool {
        let key = self.metadata.document_key.as_str();
        parse_array(key, document).is_ok_and(|parsed| {
            parsed.is_some_and(|now| now.shape == self.metadata.shape && now.is_stored_as(&self.metadata))
        })
    }

    /// The units of a range, dirty from now on, by number; `None`, and nothing is dirty, where there are too many.
    fn units_to_write(&self, offset: u64, length: u64) -> Option<DirtyUnits> {
        let mut brought: BTreeMap<u64, usize> = BTreeMap::new();
        let counted = self.grid.for_each_piece(offset, length, &mut |piece: &Piece<'_>| {
            *brought.entry(piece.chunk).or_default() += piece.total_bytes();
            if brought.len() > MOST_UNITS_NOW { Err(()) } else { Ok(()) }
        });
        counted.ok()?;
        Some(brought.into_iter().map(|(number, bytes)| (number, self.dirty_unit(number, bytes))).collect())
    }

    fn take_piece(inner: &Arc<Inner>, piece: &Piece<'_>, data: &[u8]) {
        loop {
            let unit = inner.dirty_unit(piece.chunk, piece.total_bytes());
            let mut state = unit.state.lock();
            if state.is_retired {
                continue;
            }
            let full_bytes = inner.put_piece(piece, data, &mut state);
            drop(state);
            return Inner::note_full(inner, full_bytes);
        }
    }

    /// Copies a piece of `data` to its unit; the unit's bytes if that made it full, and 0 if not.
    fn put_piece(&self, piece: &Piece<'_>, data: &[u8], state: &mut UnitState) -> u64 {
        let was_written = state.written.total();
        let bytes = Arc::make_mut(&mut state.bytes);
        piece.for_each_run(|inside, from| {
            bytes[inside..inside + piece.run].copy_from_slice(&data[from..from + piece.run]);
        });
        // Runs that follow one another in the unit are one interval.
        let mut joined = 0..0;
        piece.for_each_run(|inside, _| {
            if joined.end != inside {
                state.insert(joined.clone());
                joined.start = inside;
            }
            joined.end = inside + piece.run;
        });
        state.insert(joined);
        state.generation += 1;
        state.last_write = Instant::now();
        self.count(state);
        let inside_bytes = self.inside_bytes(piece.chunk);
        let became_full = was_written < inside_bytes && state.written.total() >= inside_bytes;
        if became_full { inside_bytes as u64 } else { 0 }
    }

    /// Counts what a unit takes of the dirty limit.
    fn count(&self, state: &mut UnitState) {
        let now = state.memory_bytes();
        if now >= state.counted {
            self.engine.dirty_bytes.fetch_add(now - state.counted, Ordering::AcqRel);
        } else {
            self.engine.dirty_bytes.fetch_sub(state.counted - now, Ordering::AcqRel);
            self.engine.room.notify();
        }
        state.counted = now;
    }

    fn dirty_unit(&self, number: u64, piece_bytes: usize) -> Arc<DirtyUnit> {
        let mut units = self.writing.units.lock();
        let unit = units.dirty.entry(number).or_insert_with(|| {
            let shape = self.unit_shape(&self.grid.index(number));
            let length = shape.iter().product::<u64>() as usize * self.fill.len();
            let state = UnitState::new(self.first_buffer(length, piece_bytes));
            Arc::new(DirtyUnit { state: state.into() })
        });
        Arc::clone(unit)
    }

    pub(in crate::array) fn unit_shape(&self, index: &[u64]) -> Vec<u64> {
        self.grid.axes().iter().zip(index).map(|(axis, &i)| axis.span(i).length).collect()
    }

    /// Where a reader finds a unit; what is not dirty comes from `stored`.
    pub(in crate::array) fn present(
        &self,
        number: u64,
        stored: impl Fn() -> Result<Content>,
    ) -> Result<Present> {
        loop {
            let (dirty, is_zero) = {
                let units = self.writing.units.lock();
                let is_zero = units.zero.is_some() && units.is_zero(self.object_of(number));
                (units.dirty.get(&number).cloned(), is_zero)
            };
            match dirty {
                None if is_zero => return Ok(Present::Zero),
                None => return stored().map(Present::Stored),
                Some(unit) => {
                    let mut state = unit.state.lock();
                    if state.is_retired {
                        continue;
                    }
                    self.complete(number, &mut state, is_zero)?;
                    drop(state);
                    return Ok(Present::Dirty(unit));
                }
            }
        }
    }

    /// Whether a reader needs nothing of the store for a unit that may be dirty: `None` where it is not dirty,
    /// `Some(None)` where it is and a reader would have to wait.
    pub(in crate::array) fn present_dirty(&self, number: u64) -> Option<Option<Present>> {
        let units = self.writing.units.lock();
        if let Some(unit) = units.dirty.get(&number) {
            let Some(state) = unit.state.try_lock() else { return Some(None) };
            let is_ready = !state.is_retired && self.is_complete(number, &state);
            return Some(is_ready.then(|| Present::Dirty(Arc::clone(unit))));
        }
        (units.zero.is_some() && units.is_zero(self.object_of(number))).then_some(Some(Present::Zero))
    }

    pub(in crate::array) fn object_of(&self, number: u64) -> u64 {
        self.source.object(&self.grid.index(number))
    }

    fn is_complete(&self, number: u64, state: &UnitState) -> bool {
        state.base.is_some() || state.written.total() >= self.inside_bytes(number)
    }

    /// Bytes of a unit that lie in the array.
    pub(in crate::array) fn inside_bytes(&self, number: u64) -> usize {
        let inside = self.grid.axes().iter().zip(self.grid.index(number)).map(|(axis, i)| {
            let span = axis.span(i);
            span.length.min(axis.extent() - span.start)
        });
        inside.product::<u64>() as usize * self.fill.len()
    }

    /// Fills in the bytes of a unit that nobody wrote, from what the store has now.
    pub(in crate::array) fn complete(&self, number: u64, state: &mut UnitState, is_zero: bool) -> Result<()> {
        if self.is_complete(number, state) {
            return Ok(());
        }
        let index = self.grid.index(number);
        let loaded = if is_zero { None } else { Some(self.load_base(&index)?) };
        self.merge(state, loaded);
        self.count(state);
        Ok(())
    }

    /// The unit as stored now, around the cache.
    pub(in crate::array) fn load_base(&self, index: &[u64]) -> Result<Loaded> {
        self.engine.bases_read.fetch_add(1, Ordering::Relaxed);
        self.source.load(&self.place(), index)
    }

    /// What dirty units hold besides what was written to them is read again when it is needed.
    pub(in crate::array) fn forget_bases(&self) {
        let units: Vec<_> = self.writing.units.lock().dirty.values().cloned().collect();
        for unit in units {
            let mut state = unit.state.lock();
            if !state.is_retired && state.base.take().is_some() {
                self.count(&mut state);
            }
        }
    }

    /// Puts the base's bytes where nobody wrote. `None` is zeros.
    pub(in crate::array) fn merge(&self, state: &mut UnitState, mut base: Option<Loaded>) {
        let UnitState { bytes, written, .. } = &mut *state;
        if bytes.is_sparse()
            && let Some((Content::Unit(base), version)) = &mut base
            && base.len() == bytes.len()
            && let Some(whole) = Arc::get_mut(base)
        {
            // The base becomes the unit: less is copied, and the sparse buffer's pages go back.
            written.each(bytes.len(), |range| {
                if let (Some(to), Some(from)) = (whole.get_mut(range.clone()), bytes.get(range)) {
                    to.copy_from_slice(from);
                }
            });
            *bytes = Arc::clone(base);
            state.base = Some(*version);
            return;
        }
        let bytes = Arc::make_mut(bytes);
        let item = self.fill.len();
        for gap in written.gaps(bytes.len()) {
            let Some(out) = bytes.get_mut(gap.clone()) else { continue };
            match &base {
                None => out.fill(0),
                Some((Content::Unit(base), _)) => {
                    if let Some(from) = base.get(gap) {
                        out.copy_from_slice(from);
                    }
                }
                Some(_) => fill_items(out, &self.fill, gap.start % item),
            }
        }
        state.base = Some(base.and_then(|(_, version): (Content, Option<ObjectVersion>)| version));
    }

    /// Puts the fill value where a unit at the edge reaches beyond the array.
    pub(in crate::array) fn fill_padding(&self, index: &[u64], bytes: &mut [u8]) {
        let axes = self.grid.axes();
        let item = self.fill.len();
        let spans: Vec<(usize, usize)> = axes
            .iter()
            .zip(index)
            .map(|(axis, &i)| {
                let span = axis.span(i);
                (span.length as usize, span.length.min(axis.extent() - span.start) as usize)
            })
            .collect();
        if spans.iter().all(|(length, inside)| length == inside) {
            return;
        }
        fn pad(spans: &[(usize, usize)], item: usize, fill: &[u8], bytes: &mut [u8]) {
            let [(length, inside), rest @ ..] = spans else { return };
            let step: usize = rest.iter().map(|(length, _)| length).product::<usize>() * item;
            let (kept, padding) = bytes.split_at_mut(inside * step);
            debug_assert_eq!(padding.len(), (length - inside) * step);
            fill_items(padding, fill, 0);
            if rest.iter().any(|(length, inside)| length != inside) {
                for part in kept.chunks_exact_mut(step) {
                    pad(rest, item, fill, part);
                }
            }
        }
        pad(&spans, item, &self.fill, bytes);
    }
}
