//! Reading uncompressed chunks: ranges of their objects go straight into the reply, without the cache.
//!
//! Uses its neighbours in `array`, `codec`, `store`, `error` and `cancellation`.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::array::cache::CacheKey;
use crate::array::geometry::copy_plan::CopyPlan;
use crate::array::geometry::selection::Piece;
use crate::array::geometry::strided_copy::{StridedCopy, fill_items};
use crate::array::served::ServedArray;
use crate::array::source::corrupt;
use crate::array::source::loading::load_context::LoadContext;
use crate::cancellation::Cancellation;
use crate::codec::scratch;
use crate::error::{Error, Result};
use crate::store::{MaybeClaim, Object, Remote, Wanted};

/// A span of a chunk is read as a whole if at least one part in this many is wanted, else run by run.
const SPAN_SHARE: usize = 4;

/// What reading a run by itself costs, as the number of bytes that are loaded into fresh memory in that time: a third of a microsecond.
const RUN_COST_BYTES: u64 = 1024;

/// The read would block or fails. The blocking read reports the error.
struct WouldBlock;

impl From<Error> for WouldBlock {
    fn from(_: Error) -> Self {
        WouldBlock
    }
}

/// Reads ranges of the uncompressed chunks of one array.
pub struct RangeReader {
    served: Arc<ServedArray>,
}

impl RangeReader {
    /// Creates a reader of the ranges of an array.
    pub fn new(served: &Arc<ServedArray>) -> Self {
        RangeReader { served: Arc::clone(served) }
    }

    /// Returns the object that has exactly the bytes of the file, if there is one.
    pub fn sole_object(&self) -> Result<Option<Arc<dyn Object>>> {
        let (served, source) = (&self.served, self.served.source());
        if served.store().is_remote() || served.levels().objects() != 1 || !source.is_stored_as_served() {
            return Ok(None);
        }
        let object = self.object(&served.load_context(), 0, 0..0)?;
        Ok(object.filter(|object| object.size_bytes() == served.size_bytes()))
    }

    /// Reads from chunks that are stored as their elements: ranges of the objects, without the cache.
    pub fn read(&self, plan: &CopyPlan, out: &mut [u8], cancellation: &Cancellation) -> Result<()> {
        let ctx = self.served.load_context();
        ctx.with_one_version(|| self.read_once(&ctx, plan, out, cancellation))
    }

    fn read_once(
        &self,
        ctx: &LoadContext<'_>,
        plan: &CopyPlan,
        out: &mut [u8],
        cancellation: &Cancellation,
    ) -> Result<()> {
        let served = &self.served;
        let _claims = match served.store().remote() {
            Some(remote) => self.claim_copies(remote, ctx, plan)?,
            None => Vec::new(),
        };
        let mut open: Option<(u64, Option<Arc<dyn Object>>)> = None;
        let started = Instant::now();
        let read = plan.for_each_copy(|_, copy| {
            if open.as_ref().is_none_or(|(chunk, _)| *chunk != copy.chunk) {
                served.check(cancellation)?;
                open = Some((copy.chunk, self.object(ctx, copy.chunk, bytes_of(copy))?));
            }
            match &open {
                Some((_, Some(object))) => self.read_copy(|at, out| object.read_exact_at(at, out), copy, out),
                _ => {
                    copy.fill(plan.range().start, served.fill(), out);
                    Ok(())
                }
            }
        });
        self.served.loads().reads.record_request(started.elapsed());
        read
    }

    /// Reads as [`RangeReader::read`] does, but only from open objects and without disk I/O. Returns `false` if that is
    /// not possible; then `out` is undefined.
    pub fn try_read(&self, plan: &CopyPlan, out: &mut [u8]) -> bool {
        let epoch = self.served.epoch();
        let mut open: Option<(u64, Arc<dyn Object>)> = None;
        let started = Instant::now();
        let read = plan.for_each_copy(|_, copy| {
            let object = match open.take().filter(|(chunk, _)| *chunk == copy.chunk) {
                Some((_, object)) => object,
                None => self.open_object(copy.chunk, epoch).ok_or(WouldBlock)?,
            };
            let (_, object) = open.insert((copy.chunk, object));
            let read =
                |at, out: &mut [u8]| if object.try_read_at(at, out) { Ok(()) } else { Err(WouldBlock) };
            self.read_copy(read, copy, out)
        });
        if read.is_ok() {
            self.served.loads().reads.record_request(started.elapsed());
        }
        read.is_ok()
    }

    /// Fills a block with the elements that a slice has in one chunk. Blocks on the store.
    pub fn read_piece(&self, piece: &Piece, block: &mut [u8]) -> Result<()> {
        let ctx = self.served.load_context();
        let (span, started) = (piece.chunk_range(), Instant::now());
        let read = ctx.with_one_version(|| {
            match self.object(&ctx, piece.chunk, span.start as u64..span.end as u64)? {
                Some(object) => self.read_piece_of_object(object.as_ref(), piece, block),
                None => {
                    piece.fill(block, |run| fill_items(run, self.served.fill(), 0));
                    Ok(())
                }
            }
        });
        self.served.loads().reads.record_request(started.elapsed());
        read
    }

    /// Returns whether a piece is read as one span, with the bytes between its runs.
    fn reads_span(piece: &Piece) -> bool {
        piece.chunk_range().len() / SPAN_SHARE <= piece.total_bytes()
    }

    /// Returns what reading a piece costs, as the number of bytes that could be loaded in that time.
    pub fn cost_bytes(piece: &Piece) -> u64 {
        if Self::reads_span(piece) {
            return piece.chunk_range().len() as u64;
        }
        let runs = piece.total_bytes() / piece.run_bytes().max(1);
        (runs as u64).saturating_mul(RUN_COST_BYTES).saturating_add(piece.total_bytes() as u64)
    }

    fn read_piece_of_object(&self, object: &dyn Object, piece: &Piece, block: &mut [u8]) -> Result<()> {
        let (source, reads) = (self.served.source(), &self.served.loads().reads);
        let (span, run) = (piece.chunk_range(), piece.run_bytes());
        if Self::reads_span(piece) {
            reads.record_bytes(span.len());
            let mut read = |bytes: &mut [u8]| {
                object.read_exact_at(span.start as u64, bytes)?;
                source.decode_uncompressed(bytes)?;
                piece.gather(bytes, span.start, block);
                Ok(())
            };
            let read = scratch::with(span.len(), |bytes| Ok(read(bytes)));
            return read.map_err(corrupt(self.served.path()))?;
        }
        reads.record_bytes(piece.total_bytes());
        let mut outcome = Ok(());
        // A run has whole elements.
        piece.for_each_run(|from, to| {
            if outcome.is_ok() {
                let out = &mut block[to..to + run];
                let read = object.read_exact_at(from as u64, out);
                outcome = read.and_then(|()| source.decode_uncompressed(out));
            }
        });
        outcome
    }

    /// Has a remote store transfer the bytes of all copies at once.
    fn claim_copies(
        &self,
        remote: &dyn Remote,
        ctx: &LoadContext<'_>,
        plan: &CopyPlan,
    ) -> Result<Vec<MaybeClaim>> {
        let mut wanted: Vec<(String, Wanted)> = Vec::new();
        plan.for_each_copy(|_, copy| {
            let key = self.served.source().key(ctx, &self.served.grid().index(copy.chunk))?;
            wanted.push((key, Wanted::Range(bytes_of(copy))));
            Ok::<(), Error>(())
        })?;
        Ok(remote.will_need(&wanted))
    }

    /// Returns the object of an uncompressed chunk, opened for a reader that begins with the range `first`. It stays
    /// open while the array's epoch lasts; in a remote store, where an open object is only the bytes that came with it,
    /// it does not.
    fn object(
        &self,
        ctx: &LoadContext<'_>,
        chunk: u64,
        first: Range<u64>,
    ) -> Result<Option<Arc<dyn Object>>> {
        if let Some(object) = self.open_object(chunk, ctx.epoch) {
            return Ok(Some(object));
        }
        let served = &self.served;
        let index = served.grid().index(chunk);
        let object: Option<Arc<dyn Object>> =
            served.source().open_uncompressed(ctx, &index, first)?.map(Arc::from);
        if let Some(object) = object.as_ref().filter(|_| !served.store().is_remote()) {
            served.loads().objects.put(CacheKey::chunk(ctx.array, chunk), ctx.epoch, Arc::clone(object));
        }
        Ok(object)
    }

    /// Returns the object of a chunk, if it is open in this epoch.
    fn open_object(&self, chunk: u64, epoch: u64) -> Option<Arc<dyn Object>> {
        self.served.loads().objects.get(CacheKey::chunk(self.served.number(), chunk), epoch)
    }

    /// Reads one copy into `out`. `read` fills bytes from an offset in the chunk's object.
    fn read_copy<E: From<Error>>(
        &self,
        read: impl Fn(u64, &mut [u8]) -> std::result::Result<(), E>,
        copy: &StridedCopy<'_>,
        out: &mut [u8],
    ) -> std::result::Result<(), E> {
        let (item, source) = (self.served.fill().len(), self.served.source());
        if copy.loops.is_empty() && copy.chunk_offset.is_multiple_of(item) && copy.run.is_multiple_of(item) {
            let out = &mut out[copy.range_offset..copy.range_offset + copy.run];
            read(copy.chunk_offset as u64, out)?;
            self.served.loads().reads.record_bytes(out.len());
            return Ok(source.decode_uncompressed(out)?);
        }
        // Reads whole elements, because the fix-up works on them. `put` receives the offset of the first one and the
        // bytes.
        let read_span = |from: usize, length: usize, put: &mut dyn FnMut(usize, &[u8])| {
            let low = from / item * item;
            let length = (from + length).next_multiple_of(item) - low;
            let mut put_read = |span: &mut [u8]| {
                read(low as u64, span)?;
                source.decode_uncompressed(span)?;
                put(low, span);
                Ok(())
            };
            scratch::with(length, |span| Ok(put_read(span))).map_err(corrupt(self.served.path()))?
        };
        let extent = copy.chunk_extent();
        if extent / SPAN_SHARE <= copy.total_bytes() {
            self.served.loads().reads.record_bytes(extent);
            return read_span(copy.chunk_offset, extent, &mut |low, span| copy.gather(span, low, out));
        }
        self.served.loads().reads.record_bytes(copy.total_bytes());
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

/// Returns the bytes of a chunk from the first to the last one of a copy.
fn bytes_of(copy: &StridedCopy<'_>) -> Range<u64> {
    copy.chunk_offset as u64..(copy.chunk_offset + copy.chunk_extent()) as u64
}
