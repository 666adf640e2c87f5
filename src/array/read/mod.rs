//! Reading: from a range of the flat file to strips of chunks, and back with their bytes.
//!
//! Uses its neighbours in `array`, `error`, `memory` and `cancellation`. `request.rs`, one level up, begins here with a
//! plan ([`ReadPlan`]) of what a request touches.
//!
//! Invariants: a read returns all of its range or fails. A chunk that cannot be read is an error; only a missing chunk
//! is fill value. A read holds at most [`StripCache::batch_strips`] strips at a time, in addition to what the cache has
//! already.

pub mod access;
pub mod holes;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod large_tests;
pub mod plan;
pub mod range_cost;
pub mod reply_buffer;
pub mod revalidate;
pub mod slices;
pub mod uncompressed;

use std::ops::Range;
use std::sync::Arc;

use crate::array::cache::CachedContent;
use crate::array::geometry::copy_plan::{CopyPlan, MAX_COPIES};
use crate::array::geometry::strided_copy::CopyBatch;
use crate::array::geometry::strips::Strips;
use crate::array::read::access::{Blocking, ReadAccess};
use crate::array::read::plan::ReadPlan;
use crate::array::read::range_cost::RangeCost;
use crate::array::read::reply_buffer::CachedSlice;
use crate::array::read::uncompressed::RangeReader;
use crate::array::served::ServedArray;
use crate::array::served::strip_cache::StripCache;
use crate::array::write::dirty_chunks::{ChunkSource, DirtyChunks, DirtyLookup};
use crate::error::Result;

/// What a read has found, by the places of strips in its plan.
type FoundStrips = Vec<Option<ChunkSource>>;

/// Reads ranges of the file of one array.
pub struct ArrayReader {
    strips: Arc<StripCache>,
    dirty: Arc<DirtyChunks>,
    ranges: RangeReader,
    range_cost: RangeCost,
}

impl ArrayReader {
    /// Creates a reader of an array with these strips and dirty chunks.
    pub fn new(strips: &Arc<StripCache>, dirty: &Arc<DirtyChunks>) -> Self {
        let ranges = RangeReader::new(strips.served());
        let range_cost = RangeCost::default();
        ArrayReader { strips: Arc::clone(strips), dirty: Arc::clone(dirty), ranges, range_cost }
    }

    /// Returns the array.
    pub fn served(&self) -> &Arc<ServedArray> {
        self.strips.served()
    }

    /// Returns the strips of the array.
    pub fn strips(&self) -> &Arc<StripCache> {
        &self.strips
    }

    /// Returns the dirty chunks of the array.
    pub fn dirty(&self) -> &Arc<DirtyChunks> {
        &self.dirty
    }

    /// Returns what ranges for slices have cost.
    pub fn range_cost(&self) -> &RangeCost {
        &self.range_cost
    }

    /// Returns the reader of uncompressed chunks.
    pub fn ranges(&self) -> &RangeReader {
        &self.ranges
    }

    /// Fills `out` with a range, which lies in the file. Returns `false` only if the read must not block and would have
    /// to. Then `out` is undefined, and the plan is kept for the blocking retry.
    pub fn read(
        &self,
        range: Range<u64>,
        plan: &mut ReadPlan,
        out: &mut [u8],
        access: ReadAccess<'_>,
    ) -> Result<bool> {
        if range.is_empty() {
            return Ok(true); // perhaps of an array without chunks
        }
        let is_waiting =
            access.blocking == Blocking::Yes && !self.served().reads_ranges(access.is_sequential);
        let _claims = if is_waiting { self.strips.claim_before_strips(&range) } else { Vec::new() };
        if !self.prepare(plan, range, access.blocking, access.is_sequential)
            || !self.read_planned(plan, out, access)?
        {
            return Ok(false);
        }
        plan.forget();
        Ok(true)
    }

    /// Plans a range, if it is not planned yet. Returns `false` if the plan needs the store and must not wait for it.
    pub fn prepare(
        &self,
        plan: &mut ReadPlan,
        range: Range<u64>,
        blocking: Blocking,
        is_sequential: bool,
    ) -> bool {
        let served = self.served();
        let mut is_uncompressed = served.reads_ranges(is_sequential);
        if is_uncompressed && self.dirty.is_written() {
            if blocking == Blocking::No {
                return false;
            }
            is_uncompressed = !self.dirty.is_dirty();
        }
        let grid = match blocking {
            _ if is_uncompressed => served.grid(),
            Blocking::Yes => self.strips.strips_at(range.start).grid(),
            Blocking::No => match self.strips.strips() {
                Some(strips) => strips.grid(),
                None => return false,
            },
        };
        plan.prepare(served, range, grid, is_uncompressed);
        true
    }

    fn read_planned(&self, plan: &mut ReadPlan, out: &mut [u8], access: ReadAccess<'_>) -> Result<bool> {
        let is_uncompressed = plan.is_uncompressed();
        let copies = &mut plan.copies;
        if access.blocking == Blocking::No {
            if !copies.is_complete() {
                return Ok(false);
            }
            let is_read = if is_uncompressed {
                self.ranges.try_read(copies, out)
            } else {
                self.try_read_strips(copies, out)
            };
            return Ok(is_read);
        }
        let (grid, most) = match (is_uncompressed, self.strips.strips()) {
            (false, Some(strips)) => (strips.grid(), self.strips.batch_strips()),
            _ => (self.served().grid(), MAX_COPIES),
        };
        if copies.is_complete() && copies.chunks().len() > most {
            copies.begin_batches();
        }
        let mut is_planned = copies.is_complete() || copies.make_next_batch(grid, most);
        while is_planned {
            if is_uncompressed {
                self.ranges.read(copies, out, access.cancellation)?;
            } else {
                self.read_strips(copies, out, access)?;
            }
            is_planned = copies.make_next_batch(grid, most);
        }
        Ok(true)
    }

    /// Copies from the cache and from dirty chunks, if they have all strips of the plan.
    fn try_read_strips(&self, plan: &CopyPlan, out: &mut [u8]) -> bool {
        let Some(strips) = self.strips.strips() else { return false };
        let mut found = FoundStrips::new();
        self.find(strips, plan.chunks(), &mut found);
        if found.iter().any(Option::is_none) || !self.copy_out(strips, plan, &found, out, Blocking::No) {
            return false;
        }
        self.strips.record_hits(found.len() as u64);
        true
    }

    fn read_strips(&self, plan: &CopyPlan, out: &mut [u8], access: ReadAccess<'_>) -> Result<()> {
        let strips = self.strips.strips_at(plan.range().start);
        let mut found = FoundStrips::new();
        // A chunk that is stored between the lookup and the copy is in the cache or the store afterwards.
        loop {
            self.find(strips, plan.chunks(), &mut found);
            self.strips.record_hits(found.iter().flatten().count() as u64);
            self.load_missing(strips, plan.chunks(), &mut found, access)?;
            if self.copy_out(strips, plan, &found, out, Blocking::Yes) {
                return Ok(());
            }
        }
    }

    /// Finds what the cache and the dirty chunks have of these strips, without waiting.
    fn find(&self, strips: &Strips, wanted: &[u64], found: &mut FoundStrips) {
        found.clear();
        found.reserve(wanted.len());
        let is_written = self.dirty.is_written();
        let mut is_of_writer = Vec::new();
        for &strip in wanted {
            if !is_written {
                found.push(None);
                continue;
            }
            let dirty = self.dirty.try_find(strips.extent_of(strip).chunk);
            is_of_writer.push(!matches!(dirty, DirtyLookup::Clean));
            found.push(if let DirtyLookup::Ready(source) = dirty { Some(source) } else { None });
        }
        // The epoch is read after the dirty chunks were looked up: a chunk stored before that has already advanced the
        // epoch.
        let epoch = self.served().epoch();
        let stored = wanted.iter().enumerate();
        let stored = stored.filter(|(place, _)| !is_of_writer.get(*place).is_some_and(|is| *is));
        self.strips.peek(stored.map(|(place, &strip)| (place, strip)), epoch, |place, content| {
            if let Some(found) = found.get_mut(place) {
                *found = Some(ChunkSource::Stored(content));
            }
        });
    }

    /// Loads the strips that were not found, in parallel.
    fn load_missing(
        &self,
        strips: &Strips,
        wanted: &[u64],
        found: &mut FoundStrips,
        access: ReadAccess<'_>,
    ) -> Result<()> {
        let is_sequential = access.is_sequential;
        let is_written = self.dirty.is_written();
        let epoch = self.served().epoch();
        let missing = wanted.iter().zip(found.iter()).filter(|(_, found)| found.is_none());
        let missing = missing.map(|(&strip, _)| strip).filter(|&strip| !self.strips.is_known(strip, epoch));
        let missing: Vec<u64> = missing.collect();
        let _claims = self.strips.claim_strips(&missing);
        let asking = Arc::new(());
        // This thread loads the first one itself. A zeroed chunk needs no load.
        for strip in missing.into_iter().skip(1) {
            let is_clean = !is_written
                || matches!(self.dirty.try_find(strips.extent_of(strip).chunk), DirtyLookup::Clean);
            if is_clean {
                StripCache::demand(&self.strips, strip, is_sequential, Arc::downgrade(&asking));
            }
        }
        let missing = wanted.iter().zip(found.iter_mut()).filter(|(_, found)| found.is_none());
        for (&strip, found) in missing {
            self.served().check(access.cancellation)?;
            let stored = || self.strips.load(strip, is_sequential);
            *found = Some(if is_written {
                self.dirty.find(strips.extent_of(strip).chunk, stored)?
            } else {
                ChunkSource::Stored(stored()?)
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
        found: &FoundStrips,
        out: &mut [u8],
        blocking: Blocking,
    ) -> bool {
        let offset = plan.range().start;
        let mut batch = CopyBatch::default();
        let copied = plan.for_each_copy(|place, copy| {
            match found.get(place).and_then(Option::as_ref) {
                Some(ChunkSource::Stored(CachedContent::Chunk(buffer))) => batch.gather(copy, buffer, out),
                Some(ChunkSource::Stored(_)) => copy.fill(offset, self.served().fill(), out),
                Some(ChunkSource::Zero) => copy.fill(offset, &[0], out),
                Some(ChunkSource::Dirty(chunk)) => {
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

    /// Returns the bytes of a plan without a copy, if they are contiguous in one cached strip.
    pub fn cached_slice(&self, plan: &ReadPlan) -> Option<CachedSlice> {
        let (strip, range) = plan.copies.single_run()?;
        let strips = self.strips.strips().filter(|_| !plan.is_uncompressed())?;
        if self.dirty.is_written()
            && !matches!(self.dirty.try_find(strips.extent_of(strip).chunk), DirtyLookup::Clean)
        {
            return None;
        }
        let epoch = self.served().epoch();
        let mut slice = None;
        self.strips.peek([((), strip)], epoch, |(), content| match content {
            CachedContent::Chunk(buffer) if range.end <= buffer.len() => {
                slice = Some(CachedSlice::new(buffer, range.clone()));
            }
            _ => {}
        });
        if slice.is_some() {
            self.strips.record_hits(1);
        }
        slice
    }
}
