//! Reading a part of a slice, at any offset.
//!
//! Uses its neighbours, `geometry/selection.rs`, `error` and `cancellation`. `array/slice.rs` streams a slice from front to back
//! and bypasses the cache. This file is for reads of mounted files: a read can begin anywhere, needs only its own chunks, and uses
//! the same cache as reads of the array.
//!
//! Elements of uncompressed chunks are read from the objects, without the cache, until that has cost as much as loading the chunks
//! would have (`range_cost.rs`).
//!
//! Invariants: those of `read/`. A chunk is looked up only if the range has a selected element in it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::array::cache::CachedContent;
use crate::array::geometry::selection::{AxisSelection, GridSelection, Piece, SelectionBlock};
use crate::array::geometry::strided_copy::fill_items;
use crate::array::geometry::strips::Strips;
use crate::array::read::access::{Blocking, ReadAccess};
use crate::array::read::uncompressed::RangeReader;
use crate::array::read::{ArrayReader, FoundStrips};
use crate::array::write::dirty_chunks::ChunkSource;
use crate::error::{Error, Result};

/// The maximum number of pieces in a batch.
const MAX_PIECES: usize = 4096;

/// The share of the cache that one read may fill with uncompressed chunks.
const LOADED_SHARE: u64 = 4;

/// A slice of an array, as its file shows it.
#[derive(Clone, Copy)]
pub struct SliceRange<'a> {
    /// The elements of each served axis.
    pub axes: &'a [AxisSelection],
    /// Where the read begins in the slice, in bytes.
    pub offset: u64,
}

/// Blocks of a selection, one after the other in the output.
#[derive(Clone, Copy)]
struct SelectedBlocks<'a> {
    selection: &'a GridSelection,
    blocks: &'a [SelectionBlock],
}

impl<'a> SelectedBlocks<'a> {
    /// Returns the pieces of all blocks, each with the bytes of its block in the output.
    fn pieces(self) -> impl Iterator<Item = (Piece, Range<usize>)> + 'a {
        let item = self.selection.item_bytes();
        let mut end = 0;
        self.blocks.iter().flat_map(move |block| {
            let start = end;
            end += (block.iter().map(|places| places.end - places.start).product::<u64>() * item) as usize;
            self.selection.pieces(block).map(move |piece| (piece, start..end))
        })
    }
}

/// Pieces that are read together.
#[derive(Default)]
struct PieceBatch {
    /// Each strip once.
    strips: Vec<u64>,
    places: HashMap<u64, usize>,
    pieces: Vec<PlacedPiece>,
}

struct PlacedPiece {
    piece: Piece,
    /// The place of its strip in the batch.
    place: usize,
    /// The bytes of its block.
    block: Range<usize>,
}

impl PieceBatch {
    fn add(&mut self, piece: Piece, block: Range<usize>) {
        let PieceBatch { strips, places, pieces } = self;
        let place = *places.entry(piece.chunk).or_insert_with(|| {
            strips.push(piece.chunk);
            strips.len() - 1
        });
        pieces.push(PlacedPiece { piece, place, block });
    }
}

impl ArrayReader {
    /// Fills `out` with bytes of a slice. Returns `false` only if the read must not block and would have to; then `out` is
    /// undefined.
    pub fn read_slice(&self, slice: SliceRange<'_>, out: &mut [u8], access: ReadAccess<'_>) -> Result<bool> {
        if out.is_empty() {
            return Ok(true);
        }
        let Some(is_uncompressed) = self.takes_ranges(access.blocking) else { return Ok(false) };
        let selection = GridSelection::new(self.served().grid(), slice.axes.to_vec());
        let end = slice.offset.saturating_add(out.len() as u64);
        if end > selection.size_bytes() {
            let reason = format!("{}: a read past the end of the slice", self.served().path());
            return Err(Error::InvalidValue(reason));
        }
        let item = self.served().grid().item_bytes();
        let elements = slice.offset / item..end.div_ceil(item);
        let blocks = selection.blocks_of(elements.clone());
        if access.blocking == Blocking::No && self.strips().strips().is_none() {
            return Ok(false);
        }
        let first = blocks.first().map_or(0, |block| selection.file_offset(block));
        let of_strips = GridSelection::new(self.strips().strips_at(first).grid(), slice.axes.to_vec());
        let of_strips = SelectedBlocks { selection: &of_strips, blocks: &blocks };
        let of_chunks = SelectedBlocks { selection: &selection, blocks: &blocks };
        let read = |out: &mut [u8]| {
            if is_uncompressed && !self.prefers_strips(of_chunks, of_strips) {
                self.read_from_objects(of_chunks, out, access)
            } else {
                self.read_from_strips(of_strips, out, access)
            }
        };
        let begins_inside = (slice.offset % item) as usize;
        if begins_inside == 0 && (out.len() as u64).is_multiple_of(item) {
            return read(out);
        }
        let mut all = vec![0; ((elements.end - elements.start) * item) as usize];
        let is_read = read(&mut all)?;
        out.copy_from_slice(&all[begins_inside..begins_inside + out.len()]);
        Ok(is_read)
    }

    /// Returns whether to read ranges of uncompressed objects; `None` if that is not known without waiting, or if the ranges need a
    /// read that may block. In a remote store, whole chunks come through the cache: each request for a part of a slice would
    /// transfer most of its chunks again.
    fn takes_ranges(&self, blocking: Blocking) -> Option<bool> {
        if !self.served().reads_ranges(true) {
            return Some(false);
        }
        if blocking == Blocking::No {
            return None;
        }
        Some(!self.dirty().is_written() || !self.dirty().is_dirty())
    }

    /// Returns whether to read blocks of uncompressed chunks through the cache.
    fn prefers_strips(&self, of_chunks: SelectedBlocks<'_>, of_strips: SelectedBlocks<'_>) -> bool {
        // A composed store reads ranges through the cache itself.
        if self.served().store().composed().is_some() {
            return false;
        }
        let epoch = self.served().epoch();
        let strips: HashSet<u64> = of_strips.pieces().map(|(piece, _)| piece.chunk).collect();
        let missing = strips.iter().filter(|&&strip| !self.strips().is_known(strip, epoch)).count();
        let missing_bytes = (missing as u64).saturating_mul(self.strips().strip_bytes());
        if missing == 0 {
            return true;
        }
        // A chunk that is not compressed may have any size.
        if missing_bytes > self.strips().cache_limit_bytes() / LOADED_SHARE {
            return false;
        }
        let range_bytes = of_chunks.pieces().map(|(piece, _)| RangeReader::cost_bytes(&piece)).sum();
        self.range_cost().prefers_loading(range_bytes, missing_bytes)
    }

    /// Reads blocks from strips, a batch of pieces at a time.
    fn read_from_strips(
        &self,
        blocks: SelectedBlocks<'_>,
        out: &mut [u8],
        access: ReadAccess<'_>,
    ) -> Result<bool> {
        let most = self.strips().batch_strips();
        let mut batch = PieceBatch::default();
        for (piece, block) in blocks.pieces() {
            if batch.strips.len() >= most || batch.pieces.len() >= MAX_PIECES {
                if access.blocking == Blocking::No {
                    return Ok(false);
                }
                self.read_batch(&batch, out, access)?;
                batch = PieceBatch::default();
            }
            batch.add(piece, block);
        }
        self.read_batch(&batch, out, access)
    }

    fn read_batch(&self, batch: &PieceBatch, out: &mut [u8], access: ReadAccess<'_>) -> Result<bool> {
        let Some(strips) = self.strips().strips() else { return Ok(batch.pieces.is_empty()) };
        let mut found = FoundStrips::new();
        // A chunk that is stored between the lookup and the copy is in the cache or the store afterwards.
        loop {
            self.find(strips, &batch.strips, &mut found);
            let is_complete = found.iter().all(Option::is_some);
            if !is_complete && access.blocking == Blocking::No {
                return Ok(false);
            }
            self.strips().record_hits(found.iter().flatten().count() as u64);
            self.load_missing(strips, &batch.strips, &mut found, access)?;
            if self.gather_pieces(strips, batch, &found, out, access.blocking) {
                return Ok(true);
            }
            if access.blocking == Blocking::No {
                return Ok(false);
            }
        }
    }

    /// Copies what was found. Returns `false` if a dirty chunk was stored meanwhile, or if its lock is taken and the read must
    /// not block.
    fn gather_pieces(
        &self,
        strips: &Strips,
        batch: &PieceBatch,
        found: &FoundStrips,
        out: &mut [u8],
        blocking: Blocking,
    ) -> bool {
        for PlacedPiece { piece, place, block } in &batch.pieces {
            let Some(out) = out.get_mut(block.clone()) else { return false };
            match found.get(*place).and_then(Option::as_ref) {
                Some(ChunkSource::Stored(CachedContent::Chunk(chunk))) => piece.gather(chunk, 0, out),
                Some(ChunkSource::Stored(_)) => {
                    piece.fill(out, |run| fill_items(run, self.served().fill(), 0));
                }
                Some(ChunkSource::Zero) => piece.fill(out, |run| run.fill(0)),
                Some(ChunkSource::Dirty(chunk)) => {
                    let state = match blocking {
                        Blocking::Yes => Some(chunk.lock()),
                        Blocking::No => chunk.try_lock(),
                    };
                    let Some(state) = state.filter(|state| !state.is_retired) else { return false };
                    let of_strip = state.bytes.get(strips.extent_of(piece.chunk).bytes.start..);
                    piece.gather(of_strip.unwrap_or_default(), 0, out);
                }
                None => return false,
            }
        }
        true
    }

    /// Reads blocks from the objects of uncompressed chunks.
    fn read_from_objects(
        &self,
        blocks: SelectedBlocks<'_>,
        out: &mut [u8],
        access: ReadAccess<'_>,
    ) -> Result<bool> {
        for (piece, block) in blocks.pieces() {
            self.served().check(access.cancellation)?;
            self.ranges().read_piece(&piece, out.get_mut(block).unwrap_or_default())?;
        }
        Ok(true)
    }
}
