//! Reading chunks that are stored raw: ranges of their objects, put in place, past the cache.
//!
//! Uses its neighbours in `array`, `codec`, `store` and `error`.

use std::sync::Arc;

use super::piece::Piece;
use super::source::{Place, corrupt};
use super::sync::atomic::Ordering;
use super::{Array, Inner};
use crate::codec::scratch::Reading;
use crate::error::{Error, Result};
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

/// Why a read ended before it was complete.
enum Stop {
    /// It would have to wait.
    NotNow,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

/// Reads ranges of objects.
#[derive(Default)]
struct Ranges {
    buffer: Reading,
    /// Not from a disk.
    only_now: bool,
}

impl Ranges {
    fn read(
        object: &dyn Object,
        only_now: bool,
        offset: usize,
        out: &mut [u8],
    ) -> std::result::Result<(), Stop> {
        match only_now {
            false => Ok(object.read_exact_at(offset as u64, out)?),
            true if object.read_now(offset as u64, out) => Ok(()),
            true => Err(Stop::NotNow),
        }
    }
}

impl Inner {
    /// Reads from chunks whose stored bytes are their elements: ranges of the objects, no cache.
    pub(super) fn read_raw(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let place = self.place();
        let mut open: Option<(u64, Option<Arc<dyn Object>>)> = None;
        let mut ranges = Ranges::default();
        let length = out.len() as u64;
        let read = self.grid.for_each_piece(offset, length, &mut |piece: &Piece<'_>| {
            if open.as_ref().is_none_or(|(chunk, _)| *chunk != piece.chunk) {
                open = Some((piece.chunk, self.raw_object(&place, piece.chunk)?));
            }
            match &open {
                Some((_, Some(object))) => self.read_raw_piece(object.as_ref(), piece, out, &mut ranges),
                _ => {
                    piece.fill(offset, &self.fill, out);
                    Ok(())
                }
            }
        });
        match read {
            Err(Stop::Failed(error)) => Err(error),
            Ok(()) | Err(Stop::NotNow) => Ok(()),
        }
    }

    /// As [`Inner::read_raw`], from objects that are open, and only if no disk is needed: `false`, and `out` undefined,
    /// otherwise.
    pub(super) fn read_raw_now(&self, offset: u64, out: &mut [u8]) -> bool {
        let epoch = self.epoch.load(Ordering::Acquire);
        let mut open: Option<(u64, Arc<dyn Object>)> = None;
        let mut ranges = Ranges { only_now: true, ..Ranges::default() };
        let length = out.len() as u64;
        let read = self.grid.for_each_piece(offset, length, &mut |piece: &Piece<'_>| {
            if open.as_ref().is_none_or(|(chunk, _)| *chunk != piece.chunk) {
                let object = self.engine.objects.get((self.number, piece.chunk), epoch);
                open = Some((piece.chunk, object.ok_or(Stop::NotNow)?));
            }
            match &open {
                Some((_, object)) => self.read_raw_piece(object.as_ref(), piece, out, &mut ranges),
                None => Err(Stop::NotNow),
            }
        });
        read.is_ok()
    }

    /// The object of a raw chunk, kept open while the array's epoch lasts.
    fn raw_object(&self, place: &Place<'_>, chunk: u64) -> Result<Option<Arc<dyn Object>>> {
        if let Some(object) = self.engine.objects.get((self.number, chunk), place.epoch) {
            return Ok(Some(object));
        }
        let index = self.grid.index(chunk);
        let object: Option<Arc<dyn Object>> = self.source.open_raw(place, &index)?.map(Arc::from);
        let version = object.as_ref().map(|object| object.validator());
        self.served.lock().note(self.source.key(place, &index)?, version);
        if let Some(object) = &object {
            self.engine.objects.put((self.number, chunk), place.epoch, Arc::clone(object));
        }
        Ok(object)
    }

    fn read_raw_piece(
        &self,
        object: &dyn Object,
        piece: &Piece<'_>,
        out: &mut [u8],
        ranges: &mut Ranges,
    ) -> std::result::Result<(), Stop> {
        let is_whole = |bytes: usize| bytes.is_multiple_of(self.fill.len());
        if piece.loops.is_empty() && is_whole(piece.chunk_offset) && is_whole(piece.run) {
            let out = &mut out[piece.range_offset..piece.range_offset + piece.run];
            Ranges::read(object, ranges.only_now, piece.chunk_offset, out)?;
            return Ok(self.source.fix_raw(out)?);
        }
        let extent = piece.chunk_extent();
        if extent / RAW_SPAN_SHARE <= piece.total_bytes() {
            let (low, span) =
                self.read_span(object, piece.chunk_offset, piece.chunk_offset + extent, ranges)?;
            piece.gather(span, low, out);
            return Ok(());
        }
        let mut outcome = Ok(());
        piece.for_each_run(|from, to| {
            if outcome.is_err() {
                return;
            }
            match self.read_span(object, from, from + piece.run, ranges) {
                Ok((low, span)) => {
                    out[to..to + piece.run].copy_from_slice(&span[from - low..from - low + piece.run]);
                }
                Err(stop) => outcome = Err(stop),
            }
        });
        outcome
    }

    /// The bytes of a raw chunk in served form from where the element begins that holds `from` to where the one ends that
    /// holds the last before `to`, and where that beginning is.
    fn read_span<'a>(
        &self,
        object: &dyn Object,
        from: usize,
        to: usize,
        ranges: &'a mut Ranges,
    ) -> std::result::Result<(usize, &'a [u8]), Stop> {
        let item = self.fill.len();
        let low = from / item * item;
        let length = to.next_multiple_of(item) - low;
        let span = ranges.buffer.bytes(length).map_err(corrupt(&self.path))?;
        Ranges::read(object, ranges.only_now, low, span)?;
        self.source.fix_raw(span)?;
        Ok((low, span))
    }
}
