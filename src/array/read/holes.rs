//! Holes of the flat file, for SEEK_HOLE and SEEK_DATA.
//!
//! Uses its neighbours in `array`, `error` and `cancellation`. The file is cut into tiles of whole rows of chunks. A
//! tile with no stored object is part of a hole. Reporting a hole as data is always allowed; the reverse never is.
//!
//! Invariant: a hole begins and ends at page boundaries (or at the end of the file), whatever offset was asked for.

use std::cell::Cell;
use std::collections::HashSet;
use std::ops::Range;

use crate::array::geometry::strips::{Slab, slab, slab_at};
use crate::array::served::ServedArray;
use crate::cancellation::Cancellation;
use crate::error::Result;

/// Shorter holes are not reported.
const MIN_HOLE_BYTES: u64 = 1 << 20;
const PAGE_BYTES: u64 = 4096;
/// The most objects that one call looks up. All later ones count as data.
const MAX_LOOKS: u64 = 1 << 16;
/// The most chunks that one call visits: an object may have many.
const MAX_CHUNKS: u64 = 1 << 22;

/// The file as tiles of rows of chunks.
pub struct HoleTiles<'a> {
    served: &'a ServedArray,
    cancellation: &'a Cancellation,
    /// Chunks of one row.
    slab: Slab,
    /// Rows of one tile.
    slabs: u64,
    looks: Cell<u64>,
    /// How many chunks were visited.
    chunks: Cell<u64>,
}

impl<'a> HoleTiles<'a> {
    /// Cuts the file of an array into tiles. Returns `None` if it has no hole, because a chunk that is not stored is
    /// not zero.
    pub fn new(served: &'a ServedArray, cancellation: &'a Cancellation) -> Option<HoleTiles<'a>> {
        if served.fill().iter().any(|&byte| byte != 0) {
            return None;
        }
        let slab = slab(served.grid())?;
        let mut tiles =
            HoleTiles { served, cancellation, slab, slabs: 1, looks: Cell::new(0), chunks: Cell::new(0) };
        let row_bytes = tiles.slab_range(0).end.max(1);
        tiles.slabs = (MIN_HOLE_BYTES + 2 * PAGE_BYTES).div_ceil(row_bytes);
        Some(tiles)
    }

    /// Returns the first byte from `offset` on that may differ from zero. `offset` lies in the file. `None` if there is
    /// no data before the end of the file. Blocks on the store.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        let mut at = offset;
        while at < self.served.size_bytes() {
            match self.hole(self.tile_of(at))? {
                Some(hole) if hole.contains(&at) => at = hole.end,
                _ => return Ok(Some(at)),
            }
        }
        Ok(None)
    }

    /// Returns the first byte from `offset` on that is in a hole. `offset` lies in the file. The end of the file counts
    /// as a hole. Blocks on the store.
    pub fn next_hole(&self, offset: u64) -> Result<u64> {
        for tile in self.tile_of(offset)..self.count() {
            if let Some(hole) = self.hole(tile)?
                && offset < hole.end
            {
                return Ok(offset.max(hole.start));
            }
        }
        Ok(self.served.size_bytes())
    }
}

impl HoleTiles<'_> {
    fn rows(&self) -> u64 {
        self.served.grid().chunks() / self.slab.strips.max(1)
    }

    fn count(&self) -> u64 {
        self.rows().div_ceil(self.slabs)
    }

    /// Returns the contiguous bytes of the file that a row of chunks covers.
    fn slab_range(&self, row: u64) -> Range<u64> {
        let grid = self.served.grid();
        let index = grid.index(row.saturating_mul(self.slab.strips));
        let mut stride = grid.size_bytes();
        let mut start = 0;
        for (axis, &number) in grid.axes().iter().zip(&index) {
            stride /= axis.extent().max(1);
            let elements = axis.elements(number);
            start += elements.start * stride;
            if axis.longest() > 1 && axis.extent() > 1 {
                return start..start + (elements.end - elements.start) * stride;
            }
        }
        start..start + stride
    }

    fn range(&self, tile: u64) -> Range<u64> {
        let (first, end) = (tile * self.slabs, ((tile + 1) * self.slabs).min(self.rows()));
        self.slab_range(first).start..self.slab_range(end.saturating_sub(1)).end
    }

    fn tile_of(&self, offset: u64) -> u64 {
        slab_at(self.served.grid(), self.slab, offset) / self.slabs
    }

    /// Returns the part of a tile that is a hole: whole pages, but up to the boundary if the neighbour is missing, too.
    fn hole(&self, tile: u64) -> Result<Option<Range<u64>>> {
        if !self.is_missing(tile)? {
            return Ok(None);
        }
        let Range { mut start, mut end } = self.range(tile);
        if start % PAGE_BYTES != 0 && !self.is_missing(tile - 1)? {
            start = start.next_multiple_of(PAGE_BYTES);
        }
        let is_last = tile + 1 == self.count();
        if end % PAGE_BYTES != 0 && !is_last && !self.is_missing(tile + 1)? {
            end = end / PAGE_BYTES * PAGE_BYTES;
        }
        Ok(Some(start..end))
    }

    fn is_missing(&self, tile: u64) -> Result<bool> {
        let rows = tile * self.slabs..((tile + 1) * self.slabs).min(self.rows());
        let mut seen = HashSet::new();
        for chunk in rows.start * self.slab.strips..rows.end * self.slab.strips {
            let chunks = self.chunks.get();
            self.chunks.set(chunks + 1);
            if chunks >= MAX_CHUNKS {
                return Ok(false);
            }
            let index = self.served.grid().index(chunk);
            if !seen.insert(self.served.levels().object_of(&index)) {
                continue;
            }
            let looks = self.looks.get();
            self.looks.set(looks + 1);
            let key = self.served.key_of_chunk(&index)?;
            self.cancellation.check(&key)?;
            if looks >= MAX_LOOKS || self.served.store().head_object(&key)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::array::{Array, Engine, Layout, test_arrays};
    use crate::store::{MemoryStore, Store};

    /// 40 rows of 100,000 bytes in chunks of (8, 50,000). A tile is two rows of chunks, 1.6 MB.
    fn array(fill_value: u8, present: &[&str]) -> Arc<Array> {
        array_of(&[40, 100_000], &[8, 50_000], fill_value, present)
    }

    /// Opens an array of bytes that stores these chunks.
    fn array_of(shape: &[u64], chunk: &[u64], fill_value: u8, present: &[&str]) -> Arc<Array> {
        let store = MemoryStore::new();
        let document = json!({"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}}, "fill_value": fill_value,
            "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}]});
        for key in present {
            store.put(key, vec![1; chunk.iter().product::<u64>() as usize]).unwrap();
        }
        store.put("zarr.json", document.to_string().into_bytes()).unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        test_arrays::open(&Engine::new(1 << 20, 1), &store, "", Layout::default())
    }

    #[test]
    fn missing_rows_are_page_aligned_holes() {
        let (array, never) = (array(0, &["c/2/1"]), &Cancellation::never());
        // Rows of chunks 2 and 3 are the second tile: 1.6 to 3.2 MB, not aligned to pages.
        assert_eq!(array.next_hole(0, never).unwrap(), Some(0));
        assert_eq!(array.next_data(0, never).unwrap(), Some(1_597_440));
        assert_eq!(array.next_data(1_597_440, never).unwrap(), Some(1_597_440));
        assert_eq!(array.next_hole(1_597_440, never).unwrap(), Some(3_203_072));
        assert_eq!(array.next_hole(2_000_000, never).unwrap(), Some(3_203_072));
        assert_eq!(array.next_data(3_203_072, never).unwrap(), None, "the hole reaches the end");
        assert_eq!(array.next_hole(3_999_999, never).unwrap(), Some(3_999_999));
        assert_eq!(
            (array.next_hole(4_000_000, never).unwrap(), array.next_data(4_000_000, never).unwrap()),
            (None, None)
        );
    }

    /// Returns the first stored byte from `offset` on, looked for chunk by chunk and row by row.
    fn first_stored(shape: &[u64], chunk: &[u64], present: &[Vec<u64>], offset: u64) -> Option<u64> {
        let strides: Vec<u64> =
            (0..shape.len()).map(|axis| shape[axis + 1..].iter().product::<u64>()).collect();
        let mut first: Option<u64> = None;
        for index in present {
            let spans: Vec<Range<u64>> = (0..shape.len())
                .map(|axis| index[axis] * chunk[axis]..((index[axis] + 1) * chunk[axis]).min(shape[axis]))
                .collect();
            let (last, outer) = spans.split_last().unwrap();
            let rows: u64 = outer.iter().map(|span| span.end - span.start).product();
            for row in 0..rows {
                let (mut rest, mut start) = (row, last.start);
                for (span, stride) in outer.iter().zip(&strides).rev() {
                    let length = span.end - span.start;
                    start += (span.start + rest % length) * stride;
                    rest /= length;
                }
                if start + last.end - last.start > offset {
                    first = first.min(Some(start.max(offset))).or(Some(start.max(offset)));
                }
            }
        }
        first
    }

    /// A hole that has data in it is data lost, for programs that skip holes.
    #[test]
    fn no_stored_byte_is_in_a_hole() {
        let never = &Cancellation::never();
        for (shape, chunk) in [
            (vec![3, 1000, 4000], vec![1, 300, 4000]),
            (vec![3, 1000, 4000], vec![1, 300, 1500]),
            (vec![5, 700, 2000], vec![2, 300, 2000]),
            (vec![2, 2, 500, 3000], vec![1, 1, 200, 3000]),
            (vec![90, 100_000], vec![8, 50_000]),
        ] {
            let counts: Vec<u64> =
                shape.iter().zip(&chunk).map(|(n, c): (&u64, &u64)| n.div_ceil(*c)).collect();
            let chunk_count: u64 = counts.iter().product();
            for round in 0..12u64 {
                let is_present = |number: u64| {
                    (number.wrapping_mul(0x9e37_79b9) ^ round.wrapping_mul(0x85eb_ca6b)) >> 3 & 3 == 0
                };
                let present: Vec<Vec<u64>> = (0..chunk_count)
                    .filter(|number| is_present(*number))
                    .map(|number| {
                        let mut rest = number;
                        let mut index: Vec<u64> = counts
                            .iter()
                            .rev()
                            .map(|count| {
                                let at = rest % count;
                                rest /= count;
                                at
                            })
                            .collect();
                        index.reverse();
                        index
                    })
                    .collect();
                let keys: Vec<String> = present
                    .iter()
                    .map(|index| {
                        format!("c/{}", index.iter().map(u64::to_string).collect::<Vec<_>>().join("/"))
                    })
                    .collect();
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                let array = array_of(&shape, &chunk, 0, &keys);
                let size = array.size_bytes();
                for offset in (0..size).step_by(399_989) {
                    let stored = first_stored(&shape, &chunk, &present, offset);
                    let found = array.next_data(offset, never).unwrap();
                    let is_kept = stored.is_none_or(|stored| found.is_some_and(|found| found <= stored));
                    assert!(
                        is_kept,
                        "{shape:?} in {chunk:?}, {keys:?}: from {offset} on {found:?}, stored {stored:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_nonzero_fill_value_is_data() {
        let (array, never) = (array(1, &[]), &Cancellation::never());
        assert_eq!(
            (array.next_data(5, never).unwrap(), array.next_hole(5, never).unwrap()),
            (Some(5), Some(4_000_000))
        );
    }

    #[test]
    fn an_array_without_chunks_is_one_hole() {
        let (array, never) = (array(0, &[]), &Cancellation::never());
        assert_eq!((array.next_data(0, never).unwrap(), array.next_hole(7, never).unwrap()), (None, Some(7)));
    }
}
