//! Reading: from a range of the flat file to strips of chunks, and back with their bytes.
//!
//! Uses its neighbours in `array`, `store`, `error`, `memory` and `request`.
//!
//! Invariants: a read returns all of its range or fails. A chunk that cannot be read is an error; only a missing chunk
//! is fill value. A read holds at most [`Inner::batch_strips`] strips at a time.

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
use crate::array::geometry::strided_copy::{CopyBatch, StridedCopy};
use crate::array::geometry::strips::{StripExtent, Strips};
use crate::array::source::LoadContext;
use crate::array::source::resumable_decoders::MAX_DECODERS;
use crate::array::sync::Mutex;
use crate::array::sync::atomic::Ordering;
use crate::array::write::Present;
use crate::array::{Array, Inner, Reader};
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::request;

/// Bytes of a cached strip. They stay in memory while this value lives.
pub struct CachedSlice {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

impl CachedSlice {
    pub(in crate::array) fn new(buffer: Arc<Buffer>, range: Range<usize>) -> Self {
        CachedSlice { buffer, range }
    }
}

impl Deref for CachedSlice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.buffer.get(self.range.clone()).unwrap_or_default()
    }
}

/// A read of more copies goes to a thread that may wait: a session thread has other requests to serve.
pub(in crate::array) const MAX_COPIES_WITHOUT_WAITING: usize = 4096;

/// Marks cache keys of strips that are smaller than chunks. Shards are never nested so deep.
const STRIP_LEVEL: u32 = u32::MAX;
/// How many objects a remote store is asked for before the request's deadline is looked at again.
const BATCH_OBJECTS: usize = 512;

impl Array {
    /// Fills `out` from `offset`. The range must lie in the file. Blocks on the store. A failure anywhere in the range
    /// fails the read.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.read(offset, out, false)
    }

    /// Like [`Array::read_at`], for a reader that [`Array::note_read`] follows.
    pub fn read_by(&self, reader: &Reader, offset: u64, out: &mut [u8]) -> Result<()> {
        self.read(offset, out, reader.is_sequential())
    }

    fn read(&self, offset: u64, out: &mut [u8], is_sequential: bool) -> Result<()> {
        let end = offset.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > self.size_bytes()) {
            return Err(self.past_the_end(offset, out.len()));
        }
        if out.is_empty() {
            return Ok(()); // of an array without chunks, perhaps
        }
        let inner = &self.inner;
        if inner.source.is_raw() && !(inner.writing.is_written.load(Ordering::Acquire) && inner.is_dirty()) {
            return inner.read_raw(offset, out);
        }
        let grid = inner.strips_at(offset).grid();
        let most = inner.batch_strips();
        let mut next = 0;
        loop {
            let strips = grid.lowest_chunks(offset, out.len() as u64, next, most);
            let (Some(&first), Some(&last)) = (strips.first(), strips.last()) else { return Ok(()) };
            next = last + 1;
            // A chunk that is stored between the lookup and the copy is in the cache or the store afterwards.
            loop {
                let contents = Inner::fetch(inner, &strips, is_sequential)?;
                if inner.copy_out((offset, first..next), out, |strip| contents.get(&strip), true) {
                    break;
                }
            }
            if strips.len() < most {
                return Ok(());
            }
        }
    }

    /// Like [`Array::read_at`], but only if the cache has every chunk, or the system's page cache has the uncompressed
    /// bytes. Otherwise returns `false`, and `out` is undefined. Never blocks on the store.
    pub fn try_read(&self, offset: u64, out: &mut [u8]) -> bool {
        self.inner.try_read(offset, out)
    }

    /// The bytes of a range without a copy, if they are contiguous in one cached strip. Never blocks on the store.
    pub fn lend(&self, offset: u64, length: u64) -> Option<CachedSlice> {
        let inner = &self.inner;
        let strips = inner.strips.get()?;
        let mut found = None;
        // The first copy decides: it covers the whole range, or there are more.
        let _ = strips.grid().for_each_copy(offset, length, &mut |copy: &StridedCopy<'_>| {
            if copy.loops.is_empty() && copy.run as u64 == length {
                found = Some((copy.chunk, copy.chunk_offset..copy.chunk_offset + copy.run));
            }
            Err(())
        });
        let (strip, range) = found?;
        if inner.writing.is_written.load(Ordering::Acquire)
            && inner.present_dirty(strips.extent_of(strip).chunk).is_some()
        {
            return None;
        }
        let epoch = inner.epoch.load(Ordering::Acquire);
        match inner.engine.cache.peek(inner.strip_key(strip), epoch) {
            Peek::Fresh(Content::Chunk(buffer)) if range.end <= buffer.len() => {
                inner.engine.cache.counters.hits.fetch_add(1, Ordering::Relaxed);
                Some(CachedSlice { buffer, range })
            }
            _ => None,
        }
    }

    /// Compares every object that readers have seen with the store, for open(2). `true`: nothing has changed, and the
    /// kernel's pages of the file are still right. `false`: something changed, or too many objects were read to tell;
    /// from now on every cached chunk is compared with the store before use.
    pub fn revalidate(&self) -> Result<bool> {
        let inner = &self.inner;
        let Some(keys) = inner.served.look() else {
            inner.look_afresh();
            return Ok(false);
        };
        let changed = Inner::changed(inner, keys)?;
        // Write-back or a reader may have found another program's version meanwhile.
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
    /// See the method of [`Array`].
    pub(in crate::array) fn try_read(&self, offset: u64, out: &mut [u8]) -> bool {
        let end = offset.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > self.grid.size_bytes()) {
            return false;
        }
        if self.source.is_raw() {
            return !self.writing.is_written.load(Ordering::Acquire) && self.read_raw_now(offset, out);
        }
        let Some(strips) = self.strips.get() else { return false };
        let is_written = self.writing.is_written.load(Ordering::Acquire);
        let mut found: Vec<(u64, Present)> = Vec::new();
        let mut copies = 0;
        let looked = strips.grid().for_each_copy(offset, out.len() as u64, &mut |copy: &StridedCopy<'_>| {
            let strip = copy.chunk;
            copies += 1;
            if copies > MAX_COPIES_WITHOUT_WAITING {
                return Err(());
            }
            if found.last().is_some_and(|(last, _)| *last == strip) {
                return Ok(());
            }
            if is_written && let Some(dirty) = self.present_dirty(strips.extent_of(strip).chunk) {
                found.push((strip, dirty.ok_or(())?));
                return Ok(());
            }
            // The epoch is read after the dirty chunks were looked up: a chunk stored before that has already
            // advanced the epoch.
            let epoch = self.epoch.load(Ordering::Acquire);
            match self.engine.cache.peek(self.strip_key(strip), epoch) {
                Peek::Fresh(content) => found.push((strip, Present::Stored(content))),
                Peek::Old | Peek::Missing => return Err(()),
            }
            Ok(())
        });
        if looked.is_err() {
            return false;
        }
        self.engine.cache.counters.hits.fetch_add(found.len() as u64, Ordering::Relaxed);
        // The copies come in the same order again.
        let mut rest = found.as_slice();
        let next = |strip: u64| {
            while let [(number, present), others @ ..] = rest {
                if *number == strip {
                    return Some(present);
                }
                rest = others;
            }
            None
        };
        self.copy_out((offset, 0..u64::MAX), out, next, false)
    }

    /// The keys of objects that differ from what readers received. Asks for several at a time.
    fn changed(inner: &Arc<Inner>, keys: Vec<String>) -> Result<Vec<String>> {
        // The threads share single objects of a local store. A remote store gets batches.
        let batch = if inner.store.is_remote() { BATCH_OBJECTS } else { 1 };
        let (array, count) = (Arc::clone(inner), keys.len().div_ceil(batch));
        let outcome = Arc::new(Mutex::new((0, Ok(Vec::new()))));
        let of_all = Arc::clone(&outcome);
        inner.engine.workers.share(count, move |number| {
            let Some(keys) = keys.chunks(batch).nth(number) else { return ControlFlow::Break(()) };
            let found = changed_of(&array, keys);
            let (looked, changed) = &mut *of_all.lock();
            *looked += 1;
            match (found, &mut *changed) {
                (Err(error), _) => {
                    *changed = Err(error);
                    return ControlFlow::Break(());
                }
                (Ok(found), Ok(changed)) => changed.extend(found),
                _ => {}
            }
            ControlFlow::Continue(())
        });
        let (looked, changed) = std::mem::replace(&mut *outcome.lock(), (0, Ok(Vec::new())));
        if looked < count && changed.is_ok() {
            let stopped = std::io::Error::other("the comparison stopped early");
            return Err(Error::store(inner.path.as_str(), "compare objects with the store", stopped));
        }
        changed
    }

    /// Makes later reads compare all earlier content with the store, or load it again.
    fn look_afresh(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.forget_bases();
    }

    /// The cache key of a chunk, where strips are chunks.
    pub(in crate::array) fn chunk_key(&self, number: u64) -> Key {
        Key { array: self.number, level: 0, number }
    }

    pub(in crate::array) fn strip_key(&self, number: u64) -> Key {
        let is_cut = self.strips.get().is_some_and(Strips::is_cut);
        Key { array: self.number, level: if is_cut { STRIP_LEVEL } else { 0 }, number }
    }

    /// The strips. The first read chooses them by the compression of the chunk at `offset`.
    pub(in crate::array) fn strips_at(&self, offset: u64) -> &Strips {
        self.strips.get_or_init(|| {
            let chunk = self.grid.chunk_at(offset).unwrap_or(0);
            // A missing or damaged chunk gives no block size. A reader of that chunk gets the error.
            let block = self.source.block_bytes(&self.load_context(), &self.grid.index(chunk)).ok().flatten();
            Strips::new(&self.grid, self.engine.cache.limit_bytes(), block)
        })
    }

    /// Bytes of the largest strip.
    pub(in crate::array) fn strip_bytes(&self) -> u64 {
        let grid = self.strips.get().map_or(&self.grid, Strips::grid);
        grid.largest_chunk_shape().iter().product::<u64>().saturating_mul(self.fill.len() as u64)
    }

    /// How many strips one read holds at a time.
    fn batch_strips(&self) -> usize {
        let share = self.engine.cache.limit_bytes() / 4 / self.strip_bytes().max(1);
        (share as usize).clamp(2 * self.engine.workers.count().max(1), 256)
    }

    /// The contents of strips. Missing ones are loaded in parallel.
    fn fetch(inner: &Arc<Inner>, numbers: &[u64], is_sequential: bool) -> Result<HashMap<u64, Present>> {
        let epoch = inner.epoch.load(Ordering::Acquire);
        let missing = numbers
            .iter()
            .copied()
            .filter(|&strip| !inner.engine.cache.is_known(inner.strip_key(strip), epoch));
        // This thread loads the first one itself. A zeroed chunk needs no load.
        let is_written = inner.writing.is_written.load(Ordering::Acquire);
        let chunk_of = |strip: u64| inner.strips.get().map_or(strip, |strips| strips.extent_of(strip).chunk);
        let asking = Arc::new(());
        for strip in missing.skip(1) {
            if !(is_written && inner.present_dirty(chunk_of(strip)).is_some()) {
                Inner::demand(inner, strip, is_sequential, Arc::downgrade(&asking));
            }
        }
        let present = |strip: u64| match is_written {
            true => inner.present(chunk_of(strip), || inner.strip(strip, is_sequential)),
            false => inner.strip(strip, is_sequential).map(Present::Stored),
        };
        let key = inner.metadata.document_key.as_str();
        let present = |&strip: &u64| request::check(key).and_then(|()| Ok((strip, present(strip)?)));
        numbers.iter().map(present).collect()
    }

    /// Queues the load of a strip for a reader, which keeps `asking` alive until it has the strip.
    fn demand(inner: &Arc<Inner>, strip: u64, is_sequential: bool, asking: Weak<()>) {
        let task_inner = Arc::clone(inner);
        inner.engine.workers.demand(Box::new(move || {
            if asking.strong_count() > 0 {
                // The reader sees a failure when it asks for the strip itself.
                drop(task_inner.strip(strip, is_sequential));
            }
        }));
    }

    /// One strip, from the cache or the store. A reader that is not `is_sequential` will probably want the chunk's
    /// other strips, too.
    pub(in crate::array) fn strip(&self, number: u64, is_sequential: bool) -> Result<Content> {
        let ctx = self.load_context();
        let strip = self.strips.get().map(|strips| (strips, strips.extent_of(number)));
        let index = self.grid.index(strip.as_ref().map_or(number, |(_, strip)| strip.chunk));
        self.engine.cache.get(
            self.strip_key(number),
            ctx.epoch,
            |object| {
                let key = self.source.key(&ctx, &index)?;
                Ok(ctx.version(&key)? == object)
            },
            || match &strip {
                Some((strips, strip)) if strips.is_cut() => {
                    self.load_strip(&ctx, &index, strips, strip, is_sequential)
                }
                _ => self.load(&ctx, &index),
            },
        )
    }

    fn load(&self, ctx: &LoadContext<'_>, index: &[u64]) -> Result<Loaded> {
        let loaded = self.source.load(ctx, index)?;
        let decoded_bytes = if let Content::Chunk(buffer) = &loaded.0 { buffer.len() } else { 0 };
        self.note_loaded(&loaded, decoded_bytes);
        Ok(loaded)
    }

    /// Loads one strip of a chunk. If the whole chunk had to be decoded and is likely wanted, its other strips go into
    /// the cache.
    fn load_strip(
        &self,
        ctx: &LoadContext<'_>,
        index: &[u64],
        strips: &Strips,
        strip: &StripExtent,
        is_sequential: bool,
    ) -> Result<Loaded> {
        let has_few = strips.slab().is_some_and(|slab| slab.strips <= MAX_DECODERS as u64);
        let part_ctx = LoadContext { decoders: ctx.decoders.filter(|_| has_few), ..*ctx };
        if (is_sequential || strips.is_cheap())
            && let Some((loaded, decoded_bytes)) =
                self.source.load_part(&part_ctx, index, strip.bytes.clone())?
        {
            self.note_loaded(&loaded, decoded_bytes);
            return Ok(loaded);
        }
        let (content, object) = self.load(ctx, index)?;
        let Content::Chunk(chunk) = &content else { return Ok((content, object)) };
        let part = |strip: &StripExtent| {
            let bytes = chunk.get(strip.bytes.clone()).unwrap_or_default();
            let mut buffer = ctx.buffer(bytes.len());
            buffer.copy_from_slice(bytes);
            Content::Chunk(Arc::new(buffer))
        };
        if !is_sequential {
            let version = Version { object, epoch: ctx.epoch };
            for (number, other) in strips.of_chunk(strip.chunk) {
                if other != *strip {
                    self.engine.cache.put(self.strip_key(number), part(&other), version);
                }
            }
        }
        Ok((part(strip), object))
    }

    fn note_loaded(&self, loaded: &Loaded, decoded_bytes: usize) {
        if let Content::Chunk(_) = &loaded.0 {
            self.engine.decoded_chunks.fetch_add(1, Ordering::Relaxed);
            self.engine.decoded_bytes.fetch_add(decoded_bytes as u64, Ordering::Relaxed);
        }
    }

    /// Copies the bytes of these strips, as `contents` gives them, to the range from `offset` on. Returns `false` if a
    /// dirty chunk was stored meanwhile, or if its lock is taken and `may_wait` is false.
    fn copy_out<'a>(
        &self,
        (offset, numbers): (u64, Range<u64>),
        out: &mut [u8],
        mut contents: impl FnMut(u64) -> Option<&'a Present>,
        may_wait: bool,
    ) -> bool {
        let length = out.len() as u64;
        let Some(strips) = self.strips.get() else { return false };
        let mut batch = CopyBatch::default();
        let copied =
            strips.grid().for_each_copy_in(offset, length, numbers, &mut |copy: &StridedCopy<'_>| {
                match contents(copy.chunk) {
                    Some(Present::Stored(Content::Chunk(buffer))) => batch.gather(copy, buffer, out),
                    Some(Present::Stored(_)) => copy.fill(offset, &self.fill, out),
                    Some(Present::Zero) => copy.fill(offset, &[0], out),
                    Some(Present::Dirty(chunk)) => {
                        let state = if may_wait { Some(chunk.state.lock()) } else { chunk.state.try_lock() };
                        match state.filter(|state| !state.is_retired) {
                            Some(state) => {
                                let of_strip = state.bytes.get(strips.extent_of(copy.chunk).bytes.start..);
                                copy.gather(of_strip.unwrap_or_default(), 0, out);
                            }
                            None => return Err(()),
                        }
                    }
                    None => {}
                }
                Ok(())
            });
        batch.finish(out);
        copied.is_ok()
    }
}

/// Those of these keys of objects that differ from what readers received.
fn changed_of(array: &Inner, keys: &[String]) -> Result<Vec<String>> {
    keys.first().map_or(Ok(()), |key| request::check(key))?;
    let store = array.store.as_ref();
    let unchanged = match keys {
        [key] => vec![array.served.is_unchanged(store, key)],
        keys => array.served.are_unchanged(store, keys),
    };
    let mut changed = Vec::new();
    for (key, is_unchanged) in keys.iter().zip(unchanged) {
        match is_unchanged {
            Ok(true) => {}
            Ok(false) => changed.push(key.clone()),
            // A user without access to an object must not get it from memory either.
            Err(error) if error.errno() == libc::EACCES => changed.push(key.clone()),
            Err(error) => return Err(error),
        }
    }
    Ok(changed)
}
