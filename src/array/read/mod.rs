//! Reading: from a range of the flat file to strips of chunks, and back with their bytes.
//!
//! Uses its neighbours in `array`, `error`, `memory` and `cancellation`. `request.rs`, one level up, begins here with a
//! plan ([`ReadPlan`]) of what a request touches.
//!
//! Invariants: a read returns all of its range or fails. A chunk that cannot be read is an error; only a missing chunk
//! is fill value. A read holds at most [`Inner::batch_strips`] strips at a time, or what the cache has already.

pub mod holes;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod large_tests;
pub mod plan;
pub mod reply_buffer;
pub mod revalidate;
pub mod strips;
pub mod uncompressed;

use std::ops::Range;
use std::sync::Arc;

use crate::array::cache::Content;
use crate::array::geometry::copy_plan::{CopyPlan, MAX_COPIES};
use crate::array::geometry::strided_copy::CopyBatch;
use crate::array::geometry::strips::Strips;
use crate::array::read::plan::ReadPlan;
use crate::array::read::reply_buffer::CachedSlice;
use crate::array::sync::atomic::Ordering;
use crate::array::write::Present;
use crate::array::{Array, Blocking, Inner};
#[cfg(test)]
use crate::array::{ReadRequest, Reader, ReplyBuffer};
use crate::cancellation::Cancellation;
use crate::error::Result;

/// How a range is read.
#[derive(Clone, Copy)]
pub(in crate::array) struct Access<'a> {
    /// Whether the read may wait for the store.
    pub blocking: Blocking,
    /// Whether the reader goes through the array sequentially.
    pub is_sequential: bool,
    /// Ends the read early.
    pub cancellation: &'a Cancellation,
}

/// What a read has found, by the places of strips in its plan.
type Found = Vec<Option<Present>>;

impl Array {
    /// Fills `out` from `offset`, for a caller that reads here and there. The range must lie in the file. Blocks on the
    /// store. A failure anywhere in the range fails the read.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let range = self.range(offset, out.len())?;
        let cancellation = Cancellation::never();
        let access = Access { blocking: Blocking::Yes, is_sequential: false, cancellation: &cancellation };
        Inner::read(&self.inner, range, &mut ReadPlan::default(), out, access).map(drop)
    }

    /// Like [`Array::read_at`], without waiting. Returns `false` if that cannot be.
    #[cfg(test)]
    pub(in crate::array) fn try_read(&self, offset: u64, out: &mut [u8]) -> bool {
        let range = offset..offset + out.len() as u64;
        let cancellation = Cancellation::never();
        let access = Access { blocking: Blocking::No, is_sequential: false, cancellation: &cancellation };
        Inner::read(&self.inner, range, &mut ReadPlan::default(), out, access).is_ok_and(|is_read| is_read)
    }

    /// Reads for a reader as the mount does: without waiting if possible, else with the plan of that try.
    #[cfg(test)]
    pub(in crate::array) fn read_for(&self, reader: &Reader, range: Range<u64>) -> Result<Vec<u8>> {
        let mut buffer = ReplyBuffer::default();
        let cancellation = Cancellation::never();
        for blocking in [Blocking::No, Blocking::Yes] {
            let request = ReadRequest { reader, range: range.clone(), blocking, cancellation: &cancellation };
            if let Some(data) = self.read(&request, &mut buffer)? {
                return Ok(data.to_vec());
            }
        }
        unreachable!("a read that may block waits")
    }

    /// The range of `length` bytes from `offset`, if it lies in the file.
    pub(in crate::array) fn range(&self, offset: u64, length: usize) -> Result<Range<u64>> {
        let end = offset.checked_add(length as u64).filter(|&end| end <= self.size_bytes());
        end.map(|end| offset..end).ok_or_else(|| self.past_the_end(offset, length))
    }
}

impl Inner {
    /// Fills `out` with a range, which lies in the file. `Ok(false)`, only if the read must not block: it would have to
    /// wait; then `out` is undefined, and the plan is kept for the blocking retry.
    pub(in crate::array) fn read(
        inner: &Arc<Inner>,
        range: Range<u64>,
        plan: &mut ReadPlan,
        out: &mut [u8],
        access: Access<'_>,
    ) -> Result<bool> {
        if range.is_empty() {
            return Ok(true); // of an array without chunks, perhaps
        }
        let _claims = inner.claim_before_strips(&range, access);
        if !plan.prepare(inner, range, access.blocking, access.is_sequential)
            || !Inner::read_planned(inner, plan, out, access)?
        {
            return Ok(false);
        }
        plan.forget();
        Ok(true)
    }

    fn read_planned(
        inner: &Arc<Inner>,
        plan: &mut ReadPlan,
        out: &mut [u8],
        access: Access<'_>,
    ) -> Result<bool> {
        let is_uncompressed = plan.is_uncompressed();
        let copies = &mut plan.copies;
        if access.blocking == Blocking::No {
            return Ok(match is_uncompressed {
                _ if !copies.is_complete() => false,
                true => inner.try_read_uncompressed(copies, out),
                false => inner.try_read_strips(copies, out),
            });
        }
        let (grid, most) = match (is_uncompressed, inner.strips.get()) {
            (false, Some(strips)) => (strips.grid(), inner.batch_strips()),
            _ => (&inner.grid, MAX_COPIES),
        };
        if copies.is_complete() && copies.chunks().len() > most {
            copies.begin_batches();
        }
        let mut is_planned = copies.is_complete() || copies.make_next_batch(grid, most);
        while is_planned {
            match is_uncompressed {
                true => inner.read_uncompressed(copies, out, access.cancellation)?,
                false => Inner::read_strips(inner, copies, out, access)?,
            }
            is_planned = copies.make_next_batch(grid, most);
        }
        Ok(true)
    }

    /// Copies from the cache and from dirty chunks, if they have all strips of the plan.
    fn try_read_strips(&self, plan: &CopyPlan, out: &mut [u8]) -> bool {
        let Some(strips) = self.strips.get() else { return false };
        let mut found = Found::new();
        self.find(strips, plan, &mut found);
        if found.iter().any(Option::is_none) || !self.copy_out(strips, plan, &found, out, Blocking::No) {
            return false;
        }
        self.engine.cache.counters.hits.fetch_add(found.len() as u64, Ordering::Relaxed);
        true
    }

    fn read_strips(inner: &Arc<Inner>, plan: &CopyPlan, out: &mut [u8], access: Access<'_>) -> Result<()> {
        let strips = inner.strips_at(plan.range().start);
        let mut found = Found::new();
        // A chunk that is stored between the lookup and the copy is in the cache or the store afterwards.
        loop {
            inner.find(strips, plan, &mut found);
            let hits = found.iter().flatten().count() as u64;
            inner.engine.cache.counters.hits.fetch_add(hits, Ordering::Relaxed);
            Inner::load_missing(inner, strips, plan, &mut found, access)?;
            if inner.copy_out(strips, plan, &found, out, Blocking::Yes) {
                return Ok(());
            }
        }
    }

    /// What the cache and the dirty chunks have of a plan, without waiting.
    fn find(&self, strips: &Strips, plan: &CopyPlan, found: &mut Found) {
        found.clear();
        found.reserve(plan.chunks().len());
        let is_written = self.writing.is_written.load(Ordering::Acquire);
        let mut is_of_writer = Vec::new();
        for &strip in plan.chunks() {
            let dirty = if is_written { self.present_dirty(strips.extent_of(strip).chunk) } else { None };
            if is_written {
                is_of_writer.push(dirty.is_some());
            }
            found.push(dirty.flatten());
        }
        // The epoch is read after the dirty chunks were looked up: a chunk stored before that has already advanced the
        // epoch.
        let epoch = self.epoch.load(Ordering::Acquire);
        let stored = plan.chunks().iter().enumerate();
        let stored = stored.filter(|(place, _)| !is_of_writer.get(*place).is_some_and(|is| *is));
        let keys = stored.map(|(place, &strip)| (place, self.strip_key(strip)));
        self.engine.cache.peek(keys, epoch, |place, content| {
            if let Some(found) = found.get_mut(place) {
                *found = Some(Present::Stored(content));
            }
        });
    }

    /// Loads the strips of a plan that were not found, in parallel.
    fn load_missing(
        inner: &Arc<Inner>,
        strips: &Strips,
        plan: &CopyPlan,
        found: &mut Found,
        access: Access<'_>,
    ) -> Result<()> {
        let is_sequential = access.is_sequential;
        let is_written = inner.writing.is_written.load(Ordering::Acquire);
        let epoch = inner.epoch.load(Ordering::Acquire);
        let missing = plan.chunks().iter().zip(found.iter()).filter(|(_, found)| found.is_none());
        let missing = missing
            .map(|(&strip, _)| strip)
            .filter(|&strip| !inner.engine.cache.is_known(inner.strip_key(strip), epoch));
        let missing: Vec<u64> = missing.collect();
        let _claims = inner.claim_strips(&missing);
        let missing = missing.into_iter();
        let asking = Arc::new(());
        // This thread loads the first one itself. A zeroed chunk needs no load.
        for strip in missing.skip(1) {
            if !(is_written && inner.present_dirty(strips.extent_of(strip).chunk).is_some()) {
                Inner::demand(inner, strip, is_sequential, Arc::downgrade(&asking));
            }
        }
        let missing = plan.chunks().iter().zip(found.iter_mut()).filter(|(_, found)| found.is_none());
        for (&strip, found) in missing {
            access.cancellation.check(&inner.metadata.document_key)?;
            let stored = || inner.strip(strip, is_sequential);
            *found = Some(match is_written {
                true => inner.present(strips.extent_of(strip).chunk, stored)?,
                false => Present::Stored(stored()?),
            });
        }
        Ok(())
    }

    /// Copies what was found to the range of a plan. Returns `false` if a dirty chunk was stored meanwhile, or if its
    /// lock is taken and the read must not block.
    fn copy_out(
        &self,
        strips: &Strips,
        plan: &CopyPlan,
        found: &Found,
        out: &mut [u8],
        blocking: Blocking,
    ) -> bool {
        let offset = plan.range().start;
        let mut batch = CopyBatch::default();
        let copied = plan.for_each_copy(|place, copy| {
            match found.get(place).and_then(Option::as_ref) {
                Some(Present::Stored(Content::Chunk(buffer))) => batch.gather(copy, buffer, out),
                Some(Present::Stored(_)) => copy.fill(offset, &self.fill, out),
                Some(Present::Zero) => copy.fill(offset, &[0], out),
                Some(Present::Dirty(chunk)) => {
                    let state = match blocking {
                        Blocking::Yes => Some(chunk.lock()),
                        Blocking::No => chunk.try_lock(),
                    };
                    let state = state.filter(|state| !state.is_retired).ok_or(())?;
                    let of_strip = state.bytes.get(strips.extent_of(copy.chunk).bytes.start..);
                    copy.gather(of_strip.unwrap_or_default(), 0, out);
                }
                None => return Err(()),
            }
            Ok(())
        });
        batch.finish(out);
        copied.is_ok()
    }

    /// The bytes of a plan without a copy, if they are contiguous in one cached strip.
    pub(in crate::array) fn cached_slice(&self, plan: &ReadPlan) -> Option<CachedSlice> {
        let (strip, range) = plan.copies.single_run()?;
        let strips = self.strips.get().filter(|_| !plan.is_uncompressed())?;
        if self.writing.is_written.load(Ordering::Acquire)
            && self.present_dirty(strips.extent_of(strip).chunk).is_some()
        {
            return None;
        }
        let epoch = self.epoch.load(Ordering::Acquire);
        let mut slice = None;
        self.engine.cache.peek([((), self.strip_key(strip))], epoch, |(), content| match content {
            Content::Chunk(buffer) if range.end <= buffer.len() => {
                slice = Some(CachedSlice::new(buffer, range.clone()));
            }
            _ => {}
        });
        if slice.is_some() {
            self.engine.cache.counters.hits.fetch_add(1, Ordering::Relaxed);
        }
        slice
    }
}
