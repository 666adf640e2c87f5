//! Reading: from a range of the flat file to bands of units, and back with their bytes.
//!
//! Uses its neighbours in `array`, `store` and `error`.
//!
//! Invariants: a read is answered in full or fails as a whole; a chunk that cannot be read is an error, only a missing
//! one is fill value. A read holds at most [`Inner::batch_bands`] bands at a time.

pub mod holes;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod large_tests;
pub mod uncompressed;

use std::collections::HashMap;
use std::ops::{ControlFlow, Deref, Range};
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use crate::array::cache::{Content, Key, Loaded, Peek, Version};
use crate::array::geometry::strided_copy::{Alike, Piece};
use crate::array::geometry::strips::{BandPlace, Bands};
use crate::array::source::Place;
use crate::array::source::resumable_decoders::MOST_STREAMS;
use crate::array::sync::Mutex;
use crate::array::sync::atomic::Ordering;
use crate::array::write::Present;
use crate::array::{Array, Inner, Reader};
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::request;

/// Bytes of a cached band, kept from being evicted while they are on loan.
pub struct Lent {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

impl Lent {
    pub(in crate::array) fn new(buffer: Arc<Buffer>, range: Range<usize>) -> Self {
        Lent { buffer, range }
    }
}

impl Deref for Lent {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.buffer.get(self.range.clone()).unwrap_or_default()
    }
}

/// A range of more pieces is read by a thread that may wait: a session thread has others to answer.
pub(in crate::array) const MOST_PIECES_NOW: usize = 4096;

/// Marks keys of bands that are less than units; shards are never nested so deep.
const BAND_LEVEL: u32 = u32::MAX;

impl Array {
    /// Fills `out` from `offset`; the range must lie in the file. Blocks on the store; any failure inside the
    /// range fails the whole of it.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.read(offset, out, false)
    }

    /// As [`Array::read_at`], for a reader that [`Array::note_read`] knows.
    pub fn read_by(&self, reader: &Reader, offset: u64, out: &mut [u8]) -> Result<()> {
        self.read(offset, out, reader.is_sequential())
    }

    fn read(&self, offset: u64, out: &mut [u8], is_sequential: bool) -> Result<()> {
        let end = offset.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > self.size_bytes()) {
            return Err(Error::InvalidValue(format!("{} bytes from {offset} lie behind the end", out.len())));
        }
        if out.is_empty() {
            return Ok(()); // of an array without chunks, perhaps
        }
        let inner = &self.inner;
        if inner.source.is_raw() && !(inner.writing.is_written.load(Ordering::Acquire) && inner.is_dirty()) {
            return inner.read_raw(offset, out);
        }
        let grid = inner.bands_at(offset).grid();
        let most = inner.batch_bands();
        let mut next = 0;
        loop {
            let bands = grid.lowest_chunks(offset, out.len() as u64, next, most);
            let (Some(&first), Some(&last)) = (bands.first(), bands.last()) else { return Ok(()) };
            next = last + 1;
            // A unit that is stored between the look and the copy is in the cache or the store afterwards.
            loop {
                let contents = Inner::fetch(inner, &bands, is_sequential)?;
                if inner.copy_out((offset, first..next), out, |band| contents.get(&band), true) {
                    break;
                }
            }
            if bands.len() < most {
                return Ok(());
            }
        }
    }

    /// As [`Array::read_at`], but only if every chunk needed is in the cache now, or as raw bytes in the system's: `false` (and
    /// `out` undefined) otherwise. Never blocks on the store.
    pub fn read_cached(&self, offset: u64, out: &mut [u8]) -> bool {
        self.inner.read_cached(offset, out)
    }

    /// The bytes of a range where they are contiguous in one band that is in the cache now, without copying them. Never
    /// blocks on the store.
    pub fn lend(&self, offset: u64, length: u64) -> Option<Lent> {
        let inner = &self.inner;
        let bands = inner.bands.get()?;
        let mut found = None;
        // The first piece tells: it has all of the range, or there are more.
        let _ = bands.grid().for_each_piece(offset, length, &mut |piece: &Piece<'_>| {
            if piece.loops.is_empty() && piece.run as u64 == length {
                found = Some((piece.chunk, piece.chunk_offset..piece.chunk_offset + piece.run));
            }
            Err(())
        });
        let (band, range) = found?;
        if inner.writing.is_written.load(Ordering::Acquire)
            && inner.present_dirty(bands.place(band).unit).is_some()
        {
            return None;
        }
        let epoch = inner.epoch.load(Ordering::Acquire);
        match inner.engine.cache.peek(inner.band_key(band), epoch) {
            Peek::Fresh(Content::Unit(buffer)) if range.end <= buffer.len() => {
                inner.engine.cache.counters.hits.fetch_add(1, Ordering::Relaxed);
                Some(Lent { buffer, range })
            }
            _ => None,
        }
    }

    /// Compares every object served so far with the store, as open(2) wants it. `true`: nothing that any reader has
    /// seen has changed, and what the kernel keeps of the file is still right. `false`: something changed, or there
    /// were too many objects to tell; from now on every cached unit is compared with the store before it is used.
    pub fn revalidate(&self) -> Result<bool> {
        let inner = &self.inner;
        let Some(keys) = inner.served.look() else {
            inner.look_afresh();
            return Ok(false);
        };
        let changed = Inner::changed(inner, keys)?;
        // Write-back, or a reader, may have met another program's version meanwhile.
        if changed.is_empty() && inner.served.is_complete() {
            return Ok(true);
        }
        inner.look_afresh();
        inner.served.forget(&changed);
        Ok(false)
    }

    /// When another program made the newest change of chunks that was seen, by a reader or by [`Array::revalidate`].
    pub fn changed_at(&self) -> Option<SystemTime> {
        self.inner.served.changed_at()
    }
}

impl Inner {
    /// As [`Array::read_cached`].
    pub(in crate::array) fn read_cached(&self, offset: u64, out: &mut [u8]) -> bool {
        let end = offset.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > self.grid.size_bytes()) {
            return false;
        }
        if self.source.is_raw() {
            return !self.writing.is_written.load(Ordering::Acquire) && self.read_raw_now(offset, out);
        }
        let Some(bands) = self.bands.get() else { return false };
        let is_written = self.writing.is_written.load(Ordering::Acquire);
        let mut found: Vec<(u64, Present)> = Vec::new();
        let mut pieces = 0;
        let looked = bands.grid().for_each_piece(offset, out.len() as u64, &mut |piece: &Piece<'_>| {
            let band = piece.chunk;
            pieces += 1;
            if pieces > MOST_PIECES_NOW {
                return Err(());
            }
            if found.last().is_some_and(|(last, _)| *last == band) {
                return Ok(());
            }
            if is_written && let Some(dirty) = self.present_dirty(bands.place(band).unit) {
                found.push((band, dirty.ok_or(())?));
                return Ok(());
            }
            // Read after the look at the dirty units: what was stored before that look has moved the epoch by now.
            let epoch = self.epoch.load(Ordering::Acquire);
            match self.engine.cache.peek(self.band_key(band), epoch) {
                Peek::Fresh(content) => found.push((band, Present::Stored(content))),
                Peek::Old | Peek::Missing => return Err(()),
            }
            Ok(())
        });
        if looked.is_err() {
            return false;
        }
        self.engine.cache.counters.hits.fetch_add(found.len() as u64, Ordering::Relaxed);
        // The pieces come in the same order again.
        let mut rest = found.as_slice();
        let next = |band: u64| {
            while let [(number, present), others @ ..] = rest {
                if *number == band {
                    return Some(present);
                }
                rest = others;
            }
            None
        };
        self.copy_out((offset, 0..u64::MAX), out, next, false)
    }

    /// Those of the objects that are not what readers were given. Asks for several at a time.
    fn changed(inner: &Arc<Inner>, keys: Vec<String>) -> Result<Vec<String>> {
        let (array, count) = (Arc::clone(inner), keys.len());
        let outcome = Arc::new(Mutex::new((0, Ok(Vec::new()))));
        let of_all = Arc::clone(&outcome);
        inner.engine.workers.share(count, move |number| {
            let Some(key) = keys.get(number) else { return ControlFlow::Break(()) };
            let is_unchanged = request::check(key)
                .and_then(|()| array.served.is_unchanged(array.store.as_ref(), key))
                // A user that opens it now may not have it: what is in memory is not given out either.
                .or_else(|error| if error.errno() == libc::EACCES { Ok(false) } else { Err(error) });
            let (looked, changed) = &mut *of_all.lock();
            *looked += 1;
            match (is_unchanged, &mut *changed) {
                (Err(error), _) => {
                    *changed = Err(error);
                    return ControlFlow::Break(());
                }
                (Ok(false), Ok(changed)) => changed.push(key.clone()),
                _ => {}
            }
            ControlFlow::Continue(())
        });
        let (looked, changed) = std::mem::replace(&mut *outcome.lock(), (0, Ok(Vec::new())));
        if looked < count && changed.is_ok() {
            let abandoned = std::io::Error::other("looking at a chunk was abandoned");
            return Err(Error::store(inner.path.as_str(), "look at", abandoned));
        }
        changed
    }

    /// From now on, what was read of the store before is compared with it, or read again.
    fn look_afresh(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.forget_bases();
    }

    /// The key of a unit in the cache, where bands are units.
    pub(in crate::array) fn unit_key(&self, number: u64) -> Key {
        Key { array: self.number, level: 0, number }
    }

    pub(in crate::array) fn band_key(&self, number: u64) -> Key {
        let is_cut = self.bands.get().is_some_and(Bands::is_cut);
        Key { array: self.number, level: if is_cut { BAND_LEVEL } else { 0 }, number }
    }

    /// The bands, chosen now if this is the first read, by how the unit at `offset` is compressed.
    pub(in crate::array) fn bands_at(&self, offset: u64) -> &Bands {
        self.bands.get_or_init(|| {
            let unit = self.grid.chunk_at(offset).unwrap_or(0);
            // A unit that is missing or damaged says nothing; whoever reads it is told.
            let block = self.source.block_bytes(&self.place(), &self.grid.index(unit)).ok().flatten();
            Bands::new(&self.grid, self.engine.cache.limit_bytes(), block)
        })
    }

    /// Bytes of the largest band.
    pub(in crate::array) fn band_bytes(&self) -> u64 {
        let grid = self.bands.get().map_or(&self.grid, Bands::grid);
        grid.largest_chunk_shape().iter().product::<u64>().saturating_mul(self.fill.len() as u64)
    }

    /// How many bands one read holds at a time.
    fn batch_bands(&self) -> usize {
        let share = self.engine.cache.limit_bytes() / 4 / self.band_bytes().max(1);
        (share as usize).clamp(2 * self.engine.workers.count().max(1), 256)
    }

    /// The contents of bands, those that are missing loaded in parallel.
    fn fetch(inner: &Arc<Inner>, numbers: &[u64], is_sequential: bool) -> Result<HashMap<u64, Present>> {
        let epoch = inner.epoch.load(Ordering::Acquire);
        let missing =
            numbers.iter().copied().filter(|&band| !inner.engine.cache.is_known(inner.band_key(band), epoch));
        // This thread loads the first itself. Of a zeroed array nothing is to be loaded.
        let is_written = inner.writing.is_written.load(Ordering::Acquire);
        let unit_of = |band: u64| inner.bands.get().map_or(band, |bands| bands.place(band).unit);
        let asking = Arc::new(());
        for band in missing.skip(1) {
            if !(is_written && inner.present_dirty(unit_of(band)).is_some()) {
                Inner::demand(inner, band, is_sequential, Arc::downgrade(&asking));
            }
        }
        let present = |band: u64| match is_written {
            true => inner.present(unit_of(band), || inner.band(band, is_sequential)),
            false => inner.band(band, is_sequential).map(Present::Stored),
        };
        let key = inner.metadata.document_key.as_str();
        let present = |&band: &u64| request::check(key).and_then(|()| Ok((band, present(band)?)));
        numbers.iter().map(present).collect()
    }

    /// Has a band loaded for a reader who keeps `asking` alive until he has it.
    fn demand(inner: &Arc<Inner>, band: u64, is_sequential: bool, asking: Weak<()>) {
        let task_inner = Arc::clone(inner);
        inner.engine.workers.demand(Box::new(move || {
            if asking.strong_count() > 0 {
                // A failure is seen by the reader when it asks for the band itself.
                drop(task_inner.band(band, is_sequential));
            }
        }));
    }

    /// One band, from the cache or the store. A reader that is not `is_sequential` is expected to want the unit's other
    /// bands, too.
    pub(in crate::array) fn band(&self, number: u64, is_sequential: bool) -> Result<Content> {
        let place = self.place();
        let band = self.bands.get().map(|bands| (bands, bands.place(number)));
        let index = self.grid.index(band.as_ref().map_or(number, |(_, band)| band.unit));
        self.engine.cache.get(
            self.band_key(number),
            place.epoch,
            |object| {
                let key = self.source.key(&place, &index)?;
                Ok(place.version(&key)? == object)
            },
            || match &band {
                Some((bands, band)) if bands.is_cut() => {
                    self.load_band(&place, &index, bands, band, is_sequential)
                }
                _ => self.load(&place, &index),
            },
        )
    }

    fn load(&self, place: &Place<'_>, index: &[u64]) -> Result<Loaded> {
        let loaded = self.source.load(place, index)?;
        let decoded_bytes = if let Content::Unit(buffer) = &loaded.0 { buffer.len() } else { 0 };
        self.note_loaded(&loaded, decoded_bytes);
        Ok(loaded)
    }

    /// Loads one band of a unit; the other bands go into the cache where all had to be decoded and are likely wanted.
    fn load_band(
        &self,
        place: &Place<'_>,
        index: &[u64],
        bands: &Bands,
        band: &BandPlace,
        is_sequential: bool,
    ) -> Result<Loaded> {
        let has_few = bands.slab().is_some_and(|slab| slab.bands <= MOST_STREAMS as u64);
        let part_place = Place { streams: place.streams.filter(|_| has_few), ..*place };
        if (is_sequential || bands.is_cheap())
            && let Some((loaded, decoded_bytes)) =
                self.source.load_part(&part_place, index, band.bytes.clone())?
        {
            self.note_loaded(&loaded, decoded_bytes);
            return Ok(loaded);
        }
        let (content, object) = self.load(place, index)?;
        let Content::Unit(unit) = &content else { return Ok((content, object)) };
        let part = |band: &BandPlace| {
            let bytes = unit.get(band.bytes.clone()).unwrap_or_default();
            let mut buffer = place.buffer(bytes.len());
            buffer.copy_from_slice(bytes);
            Content::Unit(Arc::new(buffer))
        };
        if !is_sequential {
            let version = Version { object, epoch: place.epoch };
            for (number, other) in bands.of_unit(band.unit) {
                if other != *band {
                    self.engine.cache.put(self.band_key(number), part(&other), version);
                }
            }
        }
        Ok((part(band), object))
    }

    fn note_loaded(&self, loaded: &Loaded, decoded_bytes: usize) {
        if let Content::Unit(_) = &loaded.0 {
            self.engine.decoded_units.fetch_add(1, Ordering::Relaxed);
            self.engine.decoded_bytes.fetch_add(decoded_bytes as u64, Ordering::Relaxed);
        }
    }

    /// Copies what the range from `offset` on wants of these bands, as `contents` knows them; `false` where a dirty one was stored meanwhile, or
    /// would have to be waited for without `may_wait`.
    fn copy_out<'a>(
        &self,
        (offset, numbers): (u64, Range<u64>),
        out: &mut [u8],
        mut contents: impl FnMut(u64) -> Option<&'a Present>,
        may_wait: bool,
    ) -> bool {
        let length = out.len() as u64;
        let Some(bands) = self.bands.get() else { return false };
        let mut alike = Alike::default();
        let copied = bands.grid().for_each_piece_in(offset, length, numbers, &mut |piece: &Piece<'_>| {
            match contents(piece.chunk) {
                Some(Present::Stored(Content::Unit(buffer))) => alike.gather(piece, buffer, out),
                Some(Present::Stored(_)) => piece.fill(offset, &self.fill, out),
                Some(Present::Zero) => piece.fill(offset, &[0], out),
                Some(Present::Dirty(unit)) => {
                    let state = if may_wait { Some(unit.state.lock()) } else { unit.state.try_lock() };
                    match state.filter(|state| !state.is_retired) {
                        Some(state) => {
                            let of_band = state.bytes.get(bands.place(piece.chunk).bytes.start..);
                            piece.gather(of_band.unwrap_or_default(), 0, out);
                        }
                        None => return Err(()),
                    }
                }
                None => {}
            }
            Ok(())
        });
        alike.finish(out);
        copied.is_ok()
    }
}
