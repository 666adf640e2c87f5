//! Reading chunks that are stored raw: ranges of their objects, put in place, past the cache.
//!
//! Uses its neighbours in `array`, `codec`, `store` and `error`.

use std::sync::Arc;

use crate::array::geometry::strided_copy::StridedCopy;
use crate::array::read::MOST_PIECES_NOW;
use crate::array::source::{LoadContext, corrupt};
use crate::array::sync::atomic::Ordering;
use crate::array::{Array, Inner};
use crate::codec::scratch;
use crate::error::{Error, Result};
use crate::request;
use crate::store::Object;

/// A span of a raw chunk is read as one when at least this share of it is wanted, else run by run.
const RAW_SPAN_SHARE: usize = 4;

impl Array {
    /// The object that has the bytes of the file and no others, where there is one.
    pub fn sole_object(&self) -> Result<Option<Arc<dyn Object>>> {
        let inner = &self.inner;
        if inner.source.objects() != 1 || !inner.source.is_stored_as_served() {
            return Ok(None);
        }
        let object = inner.raw_object(&inner.place(), 0)?;
        Ok(object.filter(|object| object.size_bytes() == self.size_bytes()))
    }
}

/// It would have to wait, or fails: what waits tells.
struct NotNow;

impl From<Error> for NotNow {
    fn from(_: Error) -> Self {
        NotNow
    }
}

impl Inner {
    /// Reads from chunks whose stored bytes are their elements: ranges of the objects, no cache.
    pub(in crate::array) fn read_raw(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let place = self.place();
        let mut open: Option<(u64, Option<Arc<dyn Object>>)> = None;
        let length = out.len() as u64;
        self.grid.for_each_piece(offset, length, &mut |piece: &StridedCopy<'_>| {
            if open.as_ref().is_none_or(|(chunk, _)| *chunk != piece.chunk) {
                request::check(&self.metadata.document_key)?;
                open = Some((piece.chunk, self.raw_object(&place, piece.chunk)?));
            }
            match &open {
                Some((_, Some(object))) => {
                    self.read_raw_piece(|at, out| object.read_exact_at(at, out), piece, out)
                }
                _ => {
                    piece.fill(offset, &self.fill, out);
                    Ok(())
                }
            }
        })
    }

    /// As [`Inner::read_raw`], from objects that are open, and only if no disk is needed: `false`, and `out` undefined,
    /// otherwise.
    pub(in crate::array) fn read_raw_now(&self, offset: u64, out: &mut [u8]) -> bool {
        let epoch = self.epoch.load(Ordering::Acquire);
        let mut open: Option<(u64, Arc<dyn Object>)> = None;
        let (length, mut pieces) = (out.len() as u64, 0);
        let read = self.grid.for_each_piece(offset, length, &mut |piece: &StridedCopy<'_>| {
            pieces += 1;
            if pieces > MOST_PIECES_NOW {
                return Err(NotNow);
            }
            let object = match open.take().filter(|(chunk, _)| *chunk == piece.chunk) {
                Some((_, object)) => object,
                None => self.engine.objects.get((self.number, piece.chunk), epoch).ok_or(NotNow)?,
            };
            let (_, object) = open.insert((piece.chunk, object));
            let read = |at, out: &mut [u8]| if object.try_read_at(at, out) { Ok(()) } else { Err(NotNow) };
            self.read_raw_piece(read, piece, out)
        });
        read.is_ok()
    }

    /// The object of a raw chunk, kept open while the array's epoch lasts.
    fn raw_object(&self, place: &LoadContext<'_>, chunk: u64) -> Result<Option<Arc<dyn Object>>> {
        if let Some(object) = self.engine.objects.get((self.number, chunk), place.epoch) {
            return Ok(Some(object));
        }
        let index = self.grid.index(chunk);
        let object: Option<Arc<dyn Object>> = self.source.open_raw(place, &index)?.map(Arc::from);
        if let Some(object) = &object {
            self.engine.objects.put((self.number, chunk), place.epoch, Arc::clone(object));
        }
        Ok(object)
    }

    /// Puts a piece in place. `read` fills bytes from an offset in its chunk's object.
    fn read_raw_piece<E: From<Error>>(
        &self,
        read: impl Fn(u64, &mut [u8]) -> std::result::Result<(), E>,
        piece: &StridedCopy<'_>,
        out: &mut [u8],
    ) -> std::result::Result<(), E> {
        let item = self.fill.len();
        if piece.loops.is_empty() && piece.chunk_offset.is_multiple_of(item) && piece.run.is_multiple_of(item)
        {
            let out = &mut out[piece.range_offset..piece.range_offset + piece.run];
            read(piece.chunk_offset as u64, out)?;
            return Ok(self.source.fix_raw(out)?);
        }
        // Whole elements, so that the fix-up can be applied: where the first begins, and the bytes from there.
        let read_span = |from: usize, length: usize, put: &mut dyn FnMut(usize, &[u8])| {
            let low = from / item * item;
            let length = (from + length).next_multiple_of(item) - low;
            let mut put_read = |span: &mut [u8]| {
                read(low as u64, span)?;
                self.source.fix_raw(span)?;
                put(low, span);
                Ok(())
            };
            scratch::with(length, |span| Ok(put_read(span))).map_err(corrupt(&self.path))?
        };
        let extent = piece.chunk_extent();
        if extent / RAW_SPAN_SHARE <= piece.total_bytes() {
            return read_span(piece.chunk_offset, extent, &mut |low, span| piece.gather(span, low, out));
        }
        let mut outcome = Ok(());
        piece.for_each_run(|from, to| {
            if outcome.is_ok() {
                outcome = read_span(from, piece.run, &mut |low, span| {
                    out[to..to + piece.run].copy_from_slice(&span[from - low..from - low + piece.run]);
                });
            }
        });
        outcome
    }
}
