//! Reading uncompressed chunks: ranges of their objects go straight into the reply, without the cache.
//!
//! Uses its neighbours in `array`, `codec`, `store`, `error` and `cancellation`.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::array::geometry::copy_plan::CopyPlan;
use crate::array::geometry::strided_copy::StridedCopy;
use crate::array::source::corrupt;
use crate::array::source::load_context::LoadContext;
use crate::array::sync::atomic::Ordering;
use crate::array::{Array, Inner};
use crate::cancellation::Cancellation;
use crate::codec::scratch;
use crate::error::{Error, Result};
use crate::store::{MaybeClaim, Object, Wanted};

/// A span of a chunk is read as a whole if at least one part in this many is wanted, else run by run.
const SPAN_SHARE: usize = 4;

impl Array {
    /// The object that has exactly the bytes of the file, if there is one.
    pub fn sole_object(&self) -> Result<Option<Arc<dyn Object>>> {
        let inner = &self.inner;
        if inner.store.is_remote() || inner.source.objects() != 1 || !inner.source.is_stored_as_served() {
            return Ok(None);
        }
        let object = inner.uncompressed_object(&inner.load_context(), 0, 0..0)?;
        Ok(object.filter(|object| object.size_bytes() == self.size_bytes()))
    }
}

/// The read would block, or fails. The blocking read reports the error.
struct NotNow;

impl From<Error> for NotNow {
    fn from(_: Error) -> Self {
        NotNow
    }
}

impl Inner {
    /// Reads from chunks that are stored as their elements: ranges of the objects, without the cache.
    pub(in crate::array) fn read_uncompressed(
        &self,
        plan: &CopyPlan,
        out: &mut [u8],
        cancellation: &Cancellation,
    ) -> Result<()> {
        let ctx = self.load_context();
        ctx.of_one_version(|| self.read_ranges(&ctx, plan, out, cancellation))
    }

    fn read_ranges(
        &self,
        ctx: &LoadContext<'_>,
        plan: &CopyPlan,
        out: &mut [u8],
        cancellation: &Cancellation,
    ) -> Result<()> {
        let _claims = if self.store.is_remote() { self.claim_copies(ctx, plan)? } else { Vec::new() };
        let mut open: Option<(u64, Option<Arc<dyn Object>>)> = None;
        let started = Instant::now();
        let read = plan.for_each_copy(|_, copy| {
            if open.as_ref().is_none_or(|(chunk, _)| *chunk != copy.chunk) {
                cancellation.check(&self.metadata.document_key)?;
                open = Some((copy.chunk, self.uncompressed_object(ctx, copy.chunk, bytes_of(copy))?));
            }
            match &open {
                Some((_, Some(object))) => {
                    self.read_uncompressed_copy(|at, out| object.read_exact_at(at, out), copy, out)
                }
                _ => {
                    copy.fill(plan.range().start, &self.fill, out);
                    Ok(())
                }
            }
        });
        self.engine.reads.note_request(started.elapsed());
        read
    }

    /// Like [`Inner::read_uncompressed`], but only from open objects and without disk I/O. Otherwise returns `false`, and
    /// `out` is undefined.
    pub(in crate::array) fn try_read_uncompressed(&self, plan: &CopyPlan, out: &mut [u8]) -> bool {
        let epoch = self.epoch.load(Ordering::Acquire);
        let mut open: Option<(u64, Arc<dyn Object>)> = None;
        let started = Instant::now();
        let read = plan.for_each_copy(|_, copy| {
            let object = match open.take().filter(|(chunk, _)| *chunk == copy.chunk) {
                Some((_, object)) => object,
                None => self.engine.objects.get((self.number, copy.chunk), epoch).ok_or(NotNow)?,
            };
            let (_, object) = open.insert((copy.chunk, object));
            let read = |at, out: &mut [u8]| if object.try_read_at(at, out) { Ok(()) } else { Err(NotNow) };
            self.read_uncompressed_copy(read, copy, out)
        });
        if read.is_ok() {
            self.engine.reads.note_request(started.elapsed());
        }
        read.is_ok()
    }

    /// Has a remote store transfer the bytes of all copies at once.
    fn claim_copies(&self, ctx: &LoadContext<'_>, plan: &CopyPlan) -> Result<Vec<MaybeClaim>> {
        let mut wanted: Vec<(String, Wanted)> = Vec::new();
        plan.for_each_copy(|_, copy| {
            let key = self.source.key(ctx, &self.grid.index(copy.chunk))?;
            wanted.push((key, Wanted::Range(bytes_of(copy))));
            Ok::<(), Error>(())
        })?;
        Ok(self.store.remote().map_or_else(Vec::new, |remote| remote.will_need(&wanted)))
    }

    /// The object of an uncompressed chunk, opened for a reader that begins with the range `first`. It stays open while the
    /// array's epoch lasts; in a remote store, where an open object is only the bytes that came with it, it does not.
    fn uncompressed_object(
        &self,
        ctx: &LoadContext<'_>,
        chunk: u64,
        first: Range<u64>,
    ) -> Result<Option<Arc<dyn Object>>> {
        if let Some(object) = self.engine.objects.get((self.number, chunk), ctx.epoch) {
            return Ok(Some(object));
        }
        let index = self.grid.index(chunk);
        let object: Option<Arc<dyn Object>> =
            self.source.open_uncompressed(ctx, &index, first)?.map(Arc::from);
        if let Some(object) = object.as_ref().filter(|_| !self.store.is_remote()) {
            self.engine.objects.put((self.number, chunk), ctx.epoch, Arc::clone(object));
        }
        Ok(object)
    }

    /// Reads one copy into `out`. `read` fills bytes from an offset in the chunk's object.
    fn read_uncompressed_copy<E: From<Error>>(
        &self,
        read: impl Fn(u64, &mut [u8]) -> std::result::Result<(), E>,
        copy: &StridedCopy<'_>,
        out: &mut [u8],
    ) -> std::result::Result<(), E> {
        let item = self.fill.len();
        if copy.loops.is_empty() && copy.chunk_offset.is_multiple_of(item) && copy.run.is_multiple_of(item) {
            let out = &mut out[copy.range_offset..copy.range_offset + copy.run];
            read(copy.chunk_offset as u64, out)?;
            self.engine.reads.note_bytes(out.len());
            return Ok(self.source.decode_uncompressed(out)?);
        }
        // Reads whole elements, because the fix-up works on them. `put` receives the offset of the first one and the
        // bytes.
        let read_span = |from: usize, length: usize, put: &mut dyn FnMut(usize, &[u8])| {
            let low = from / item * item;
            let length = (from + length).next_multiple_of(item) - low;
            let mut put_read = |span: &mut [u8]| {
                read(low as u64, span)?;
                self.source.decode_uncompressed(span)?;
                put(low, span);
                Ok(())
            };
            scratch::with(length, |span| Ok(put_read(span))).map_err(corrupt(&self.path))?
        };
        let extent = copy.chunk_extent();
        if extent / SPAN_SHARE <= copy.total_bytes() {
            self.engine.reads.note_bytes(extent);
            return read_span(copy.chunk_offset, extent, &mut |low, span| copy.gather(span, low, out));
        }
        self.engine.reads.note_bytes(copy.total_bytes());
        let mut outcome = Ok(());
        copy.for_each_run(|from, to| {
            if outcome.is_ok() {
                outcome = read_span(from, copy.run, &mut |low, span| {
                    out[to..to + copy.run].copy_from_slice(&span[from - low..from - low + copy.run]);
                });
            }
        });
        outcome
    }
}

/// The bytes of a chunk from the first to the last one of a copy.
fn bytes_of(copy: &StridedCopy<'_>) -> Range<u64> {
    copy.chunk_offset as u64..(copy.chunk_offset + copy.chunk_extent()) as u64
}
