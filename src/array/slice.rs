//! One slice of an array, from its selection to its bytes: in order, or from any offset (`read/slices.rs`).
//!
//! Uses `geometry/`, `source/`, `write/`, `readahead/`, `cancellation` and `error`. In order, long contiguous parts are read as
//! ranges of the file. Everything else is made block by block (`geometry/selection.rs`): each chunk of a block is
//! loaded once, on the decoding threads, and past the cache. A block has whole chunks along the axis where it ends, as
//! long as one row of them fits into half of the cache's limit; so a chunk is loaded once for the whole slice, and more
//! often only if the selected elements of one row of chunks need more memory.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::array::Array;
use crate::array::cache::CachedContent;
use crate::array::geometry::selection::{AxisSelection, GridSelection, Piece, SelectionBlock};
use crate::array::geometry::strided_copy::fill_items;
use crate::array::read::access::{Blocking, ReadAccess};
use crate::array::read::reply_buffer::ReplyBuffer;
use crate::array::read::slices::SliceRange;
use crate::array::readahead::Reader;
use crate::array::request::ReadRequest;
use crate::array::served::ServedArray;
use crate::array::source::ahead::Indexes;
use crate::array::source::loading::load_context::LoadContext;
use crate::array::workers::Workers;
use crate::array::write::dirty_chunks::{ChunkSource, DirtyChunks};
use crate::cancellation::Cancellation;
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::store::Claim;

/// Blocks have at least this many bytes if memory allows it: enough chunks for all threads.
const BLOCK_BYTES: u64 = 32 << 20;
/// The bytes of one read of a long range.
const READ_BYTES: u64 = 1 << 20;
/// How many chunks a remote store transfers at a time.
const TRANSFERRED_CHUNKS: usize = 64;

/// The bytes of a chunk, for one piece.
enum PieceBytes {
    /// All of them are fill value.
    Fill,
    /// All of them are zero.
    Zero,
    /// The chunk without its first bytes.
    Chunk(Arc<Buffer>, usize),
}

/// A function that takes the next bytes of a slice, until it breaks.
pub type SliceSink<'a, E> = dyn FnMut(&[u8]) -> std::result::Result<ControlFlow<()>, E> + 'a;

/// What a decoding thread sends back.
type LoadedPiece = (Piece, Result<PieceBytes>);

/// Sends the outcome of one load: an error if the load panics.
struct LoadReply {
    sender: Sender<LoadedPiece>,
    piece: Option<Piece>,
    key: String,
}

impl LoadReply {
    fn send(mut self, bytes: Result<PieceBytes>) {
        if let Some(piece) = self.piece.take() {
            // The caller has gone after an error.
            let _ = self.sender.send((piece, bytes));
        }
    }
}

impl Drop for LoadReply {
    fn drop(&mut self) {
        if let Some(piece) = self.piece.take() {
            let error = Error::corrupt(&self.key, "decoding failed");
            let _ = self.sender.send((piece, Err(error)));
        }
    }
}

/// Reads blocks of one array.
struct BlockReader<'a> {
    dirty: &'a Arc<DirtyChunks>,
    workers: &'a Workers,
}

impl Array {
    /// Fills `out` with the bytes of a slice from `offset`, through the cache. `selection` has one entry for each axis of the
    /// array, in the array's own order. Returns `false` only if the read must not block and would have to; then `out` is undefined.
    pub fn read_slice_at(
        &self,
        selection: &[AxisSelection],
        offset: u64,
        out: &mut [u8],
        blocking: Blocking,
        cancellation: &Cancellation,
    ) -> Result<bool> {
        let axes = &served_axes(self, selection)?;
        let access = ReadAccess { blocking, is_sequential: false, cancellation };
        self.reader.read_slice(SliceRange { axes, offset }, out, access)
    }

    /// Returns the range of the flat file that has exactly the bytes of a slice, if there is one.
    pub fn range_of_slice(&self, selection: &[AxisSelection]) -> Result<Option<Range<u64>>> {
        let axes = served_axes(self, selection)?;
        Ok(GridSelection::new(self.served.grid(), axes).single_range())
    }

    /// Calls `write` with the bytes of a slice, part by part and in the order of the flat file, until it breaks.
    /// `selection` has one entry for each axis of the array, in the array's own order. Blocks on the store.
    pub fn read_slice<E: From<Error>>(
        &self,
        selection: &[AxisSelection],
        cancellation: &Cancellation,
        write: &mut SliceSink<'_, E>,
    ) -> std::result::Result<(), E> {
        let served = &self.served;
        let selection = GridSelection::new(served.grid(), served_axes(self, selection)?);
        if selection.size_bytes() == 0 {
            return Ok(());
        }
        let blocks = BlockReader { dirty: self.writer().dirty(), workers: &self.workers };
        let cache_limit_bytes = served.loads().cache.limit_bytes();
        let most = (cache_limit_bytes / 2).max(served.grid().item_bytes());
        if let Some((length, offsets)) = selection.long_ranges(most) {
            for offset in offsets {
                if read_range(self, offset, length, cancellation, write)?.is_break() {
                    break;
                }
            }
            return Ok(());
        }
        let mut out = Vec::new();
        for block in selection.blocks(BLOCK_BYTES.min(most), most) {
            let counts = block.iter().map(|range| range.end - range.start);
            let length = counts.product::<u64>() as usize * served.fill().len();
            out.resize(length, 0);
            blocks.read(&selection, &block, cancellation, &mut out)?;
            if write(&out)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Returns the selected elements of each served axis. Fails if one of them is not in the array.
fn served_axes(array: &Array, selection: &[AxisSelection]) -> Result<Vec<AxisSelection>> {
    let served = &array.served;
    let lies_inside = |(selected, extent): (&AxisSelection, &u64)| selected.is_inside(*extent);
    let shape = &served.metadata().shape;
    if selection.len() != shape.len() || !selection.iter().zip(shape).all(lies_inside) {
        let reason = format!("{}: the slice is not inside the array", served.path());
        return Err(Error::InvalidValue(reason));
    }
    Ok(served.source().keys().axis_order().served(selection))
}

/// Calls `write` with the bytes of a range of the file, until it breaks.
fn read_range<E: From<Error>>(
    array: &Array,
    offset: u64,
    length: u64,
    cancellation: &Cancellation,
    write: &mut SliceSink<'_, E>,
) -> std::result::Result<ControlFlow<()>, E> {
    let (reader, mut buffer) = (Reader::default(), ReplyBuffer::default());
    let end = offset + length;
    let mut at = offset;
    while at < end {
        let range = at..end.min(at + READ_BYTES);
        at = range.end;
        let request = ReadRequest { reader: &reader, range, blocking: Blocking::Yes, cancellation };
        let Some(part) = array.read(&request, &mut buffer)? else { break };
        if write(&part)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

impl BlockReader<'_> {
    /// Fills `out` with a block.
    fn read(
        &self,
        selection: &GridSelection,
        block: &SelectionBlock,
        cancellation: &Cancellation,
        out: &mut [u8],
    ) -> Result<()> {
        let (sender, receiver): (_, Receiver<LoadedPiece>) = channel();
        let served = self.dirty.served();
        let is_remote = served.store().is_remote();
        let mut pieces = selection.pieces(block);
        let mut claimed = VecDeque::new();
        let mut under_way = 0;
        loop {
            let wanted = if is_remote { TRANSFERRED_CHUNKS } else { 1 };
            if claimed.len() <= wanted / 2 {
                let next: Vec<Piece> = pieces.by_ref().take(wanted - claimed.len()).collect();
                let claims = claim_pieces(served, &next);
                claimed.extend(next.into_iter().map(|piece| (piece, Arc::clone(&claims))));
            }
            let has_room = under_way < 2 * self.workers.count().max(1);
            if has_room && let Some((piece, claims)) = claimed.pop_front() {
                self.start_load(piece, claims, &sender);
                under_way += 1;
                continue;
            }
            if under_way == 0 {
                return Ok(());
            }
            served.check(cancellation)?;
            let Ok((piece, bytes)) = receiver.recv() else { return Ok(()) };
            under_way -= 1;
            put_piece(&piece, &bytes?, served.fill(), out);
        }
    }

    fn start_load(&self, piece: Piece, claims: Arc<Vec<Arc<dyn Claim>>>, sender: &Sender<LoadedPiece>) {
        let key = self.dirty.served().document_key().to_owned();
        let reply = LoadReply { sender: sender.clone(), piece: Some(piece.clone()), key };
        let dirty = Arc::clone(self.dirty);
        let load = move || {
            let bytes = bytes_of_piece(&dirty, &piece);
            drop(claims);
            reply.send(bytes);
        };
        if self.workers.count() == 0 { load() } else { self.workers.demand(Box::new(load)) }
    }
}

/// Has a remote store fetch the chunks of these pieces.
fn claim_pieces(served: &ServedArray, pieces: &[Piece]) -> Arc<Vec<Arc<dyn Claim>>> {
    let Some(remote) = served.store().remote().filter(|_| !pieces.is_empty()) else { return Arc::default() };
    let chunks: Vec<Vec<u64>> = pieces.iter().map(|piece| served.grid().index(piece.chunk)).collect();
    Arc::new(served.source().claim(remote, &served.load_context(), &chunks, Indexes::Waited).all())
}

/// Returns the bytes of a chunk that a piece needs, as they are now.
fn bytes_of_piece(dirty: &DirtyChunks, piece: &Piece) -> Result<PieceBytes> {
    loop {
        // What is not dirty is loaded below, perhaps in part.
        match dirty.find(piece.chunk, || Ok(CachedContent::Absent))? {
            ChunkSource::Stored(_) => return load_piece(dirty.served(), piece),
            ChunkSource::Zero => return Ok(PieceBytes::Zero),
            ChunkSource::Dirty(chunk) => {
                let state = chunk.lock();
                if !state.is_retired {
                    let mut copy = dirty.served().load_context().buffer(state.bytes.len());
                    copy.copy_from_slice(&state.bytes);
                    return Ok(PieceBytes::Chunk(Arc::new(copy), 0));
                }
            }
        }
    }
}

/// Loads the part of a chunk that holds a piece, if that part is at most half of the chunk and decodes on its own.
/// Otherwise loads the chunk.
fn load_piece(served: &ServedArray, piece: &Piece) -> Result<PieceBytes> {
    let (index, range) = (served.grid().index(piece.chunk), piece.chunk_range());
    let ctx = LoadContext { decoders: None, ..served.load_context() };
    let is_part = range.len() <= served.grid().chunk_bytes(&index) / 2;
    let part = if is_part { served.load_part(&ctx, &index, range.clone())? } else { None };
    let (loaded, skipped) = match part {
        Some(loaded) => (loaded, range.start),
        None => (served.load(&ctx, &index)?, 0),
    };
    Ok(match loaded.content {
        CachedContent::Chunk(buffer) => PieceBytes::Chunk(buffer, skipped),
        CachedContent::Absent | CachedContent::Index(_) => PieceBytes::Fill,
    })
}

/// Copies a piece to its block. `fill` is one element of the fill value.
fn put_piece(piece: &Piece, bytes: &PieceBytes, fill: &[u8], out: &mut [u8]) {
    match bytes {
        PieceBytes::Fill => piece.fill(out, |run| fill_items(run, fill, 0)),
        PieceBytes::Zero => piece.fill(out, |run| run.fill(0)),
        PieceBytes::Chunk(chunk, skipped) => piece.gather(chunk, *skipped, out),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::array::{Engine, Layout, test_arrays};
    use crate::store::{MemoryStore, Store};

    /// 100 × 100 bytes in chunks of 10 × 10, all different from the fill value.
    fn store() -> Arc<dyn Store> {
        let document = json!({"zarr_format": 3, "node_type": "array", "shape": [100, 100], "data_type": "uint8", "fill_value": 0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10, 10]}},
            "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}]});
        let store = MemoryStore::new();
        store.put("zarr.json", document.to_string().into_bytes()).unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        let (_, array) = open(&store, 1 << 20);
        array.writer().open_for_writing().unwrap();
        array.writer().write_at(0, &content()).unwrap();
        array.writer().flush().unwrap();
        array.writer().close_for_writing();
        store
    }

    fn content() -> Vec<u8> {
        (0..10_000).map(|at| (at % 251) as u8 + 1).collect()
    }

    fn open(store: &Arc<dyn Store>, cache_limit_bytes: u64) -> (Arc<Engine>, Arc<Array>) {
        let engine = Engine::new(cache_limit_bytes, 2);
        let array = test_arrays::open(&engine, store, "", Layout::default());
        (engine, array)
    }

    fn read(array: &Array, selection: &[AxisSelection]) -> Vec<u8> {
        let mut found = Vec::new();
        let never = Cancellation::never();
        let outcome = array.read_slice(selection, &never, &mut |bytes| {
            found.extend_from_slice(bytes);
            Ok::<_, Error>(ControlFlow::Continue(()))
        });
        outcome.unwrap();
        found
    }

    fn every(step: i64, count: u64) -> AxisSelection {
        AxisSelection { start: 0, step, count }
    }

    #[test]
    fn a_chunk_is_decoded_once_even_without_a_cache() {
        let (store, content) = (store(), content());
        // The cache's limit, and how often each chunk of a slab may be decoded with it.
        for (limit, times) in [(1 << 20, 1), (600, 1), (100, 4), (0, 100)] {
            for (rows, columns, chunks) in [
                (every(1, 100), every(1, 1), 10),
                (every(1, 100), AxisSelection { start: 99, step: -98, count: 2 }, 20),
                (every(25, 4), every(1, 100), 40),
                (every(3, 34), every(20, 5), 50),
            ] {
                let (engine, array) = open(&store, limit);
                let indices =
                    (0..rows.count).flat_map(|row| (0..columns.count).map(move |column| (row, column)));
                let at = |selected: &AxisSelection, place: u64| {
                    (selected.start as i64 + place as i64 * selected.step) as usize
                };
                let expected: Vec<u8> = indices
                    .map(|(row, column)| content[at(&rows, row) * 100 + at(&columns, column)])
                    .collect();
                assert_eq!(read(&array, &[rows, columns]), expected);
                let decoded = engine.counters().decoded_chunks;
                assert!(decoded >= chunks && decoded <= chunks * times, "{decoded} of {chunks}, {limit}");
            }
        }
    }

    #[test]
    fn any_range_of_a_slice_is_read_as_the_slice_is() {
        let (store, content) = (store(), content());
        let (whole, reversed) = (every(1, 100), AxisSelection { start: 97, step: -7, count: 14 });
        let slices = [
            ([whole, every(20, 5)], 50),
            ([every(25, 4), whole], 40),
            ([reversed, AxisSelection { start: 3, step: 1, count: 1 }], 10),
            ([reversed, reversed], 100),
        ];
        for (selection, chunks) in slices {
            let (engine, array) = open(&store, 1 << 20);
            let expected = read(&array, &selection);
            let (engine_of_parts, array) = {
                drop(engine);
                open(&store, 1 << 20)
            };
            let never = Cancellation::never();
            for length in [1, 13, expected.len()] {
                for offset in (0..expected.len()).step_by(length) {
                    let mut out = vec![0; length.min(expected.len() - offset)];
                    for blocking in [Blocking::No, Blocking::Yes] {
                        let is_read = array
                            .read_slice_at(&selection, offset as u64, &mut out, blocking, &never)
                            .unwrap();
                        if is_read {
                            break;
                        }
                    }
                    assert_eq!(out, expected[offset..offset + out.len()], "{selection:?} {length} {offset}");
                }
            }
            assert!(
                array
                    .read_slice_at(&selection, expected.len() as u64, &mut [0], Blocking::Yes, &never)
                    .is_err()
            );
            assert!(engine_of_parts.counters().decoded_chunks <= chunks, "each chunk is decoded once");
        }
        let (_, array) = open(&store, 1 << 20);
        let rows = AxisSelection { start: 3, step: 1, count: 4 };
        assert_eq!(array.range_of_slice(&[rows, whole]).unwrap(), Some(300..700));
        assert_eq!(array.range_of_slice(&[every(3, 2), whole]).unwrap(), None);
        assert_eq!(content.len(), 10_000);
    }

    #[test]
    fn what_is_not_stored_yet_is_read_too() {
        let (_, array) = open(&store(), 1 << 20);
        array.writer().open_for_writing().unwrap();
        array.writer().write_at(205, &[0; 3]).unwrap();
        let column = read(&array, &[every(1, 100), AxisSelection { start: 5, step: 1, count: 1 }]);
        let expected = (0..100).map(|row| if row == 2 { 0 } else { content()[row * 100 + 5] });
        assert_eq!(column, expected.collect::<Vec<u8>>());
        array.writer().flush().unwrap();
        array.writer().close_for_writing();
    }

    /// A plane across the fastest axis has one element in each row of a chunk, and the next plane has its neighbours.
    #[test]
    fn uncompressed_chunks_are_loaded_when_their_elements_have_cost_as_much() {
        const CHUNK_BYTES: u64 = 32 * 8192;
        let document = json!({"zarr_format": 3, "node_type": "array", "shape": [64, 16384], "data_type": "uint8", "fill_value": 0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [32, 8192]}},
            "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}]});
        let store = MemoryStore::new();
        store.put("zarr.json", document.to_string().into_bytes()).unwrap();
        let value = |row: u64, column: u64| (row * 31 + column * 7 + 1) as u8;
        for (row, column) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let rows = row * 32..row * 32 + 32;
            let columns = column * 8192..column * 8192 + 8192;
            let chunk: Vec<u8> =
                rows.flat_map(|row| columns.clone().map(move |column| value(row, column))).collect();
            store.put(&format!("c/{row}/{column}"), chunk).unwrap();
        }
        let store: Arc<dyn Store> = Arc::new(store);
        let read_column = |array: &Arc<Array>, column: u64| {
            let selection = [every(1, 64), AxisSelection { start: column, step: 1, count: 1 }];
            let mut out = vec![0; 64];
            let never = Cancellation::never();
            assert!(array.read_slice_at(&selection, 0, &mut out, Blocking::Yes, &never).unwrap());
            assert_eq!(out, (0..64).map(|row| value(row, column)).collect::<Vec<u8>>(), "{column}");
        };
        let (engine, array) = open(&store, 8 * CHUNK_BYTES);
        let loaded = || engine.counters().decoded_chunks;
        // 64 system calls are worth an eighth of two chunks.
        (0..7).for_each(|column| read_column(&array, column));
        assert_eq!(loaded(), 0);
        (7..100).for_each(|column| read_column(&array, column));
        assert_eq!(loaded(), 2);
        // Reading elsewhere has to cost as much again.
        (16_000..16_007).for_each(|column| read_column(&array, column));
        assert_eq!(loaded(), 2);
        (16_000..16_100).for_each(|column| read_column(&array, column));
        assert_eq!(loaded(), 4);
        // What is written is not hidden by what was loaded.
        array.writer().open_for_writing().unwrap();
        array.writer().write_at(5, &[200]).unwrap();
        array.writer().flush().unwrap();
        array.writer().close_for_writing();
        let column = [every(1, 1), AxisSelection { start: 5, step: 1, count: 1 }];
        assert_eq!(read(&array, &column), [200]);
        let mut out = [0];
        assert!(array.read_slice_at(&column, 0, &mut out, Blocking::Yes, &Cancellation::never()).unwrap());
        assert_eq!(out, [200]);
        // A cache without room for them does not get them.
        let (engine, array) = open(&store, 4 * CHUNK_BYTES);
        (10..100).for_each(|column| read_column(&array, column));
        assert_eq!(engine.counters().decoded_chunks, 0);
    }

    #[test]
    fn a_slice_outside_is_refused() {
        let (_, array) = open(&store(), 1 << 20);
        let refused = |selection: Vec<AxisSelection>| {
            let read = array.read_slice(&selection, &Cancellation::never(), &mut |_| {
                Ok::<_, Error>(ControlFlow::Continue(()))
            });
            assert!(matches!(read, Err(Error::InvalidValue(_))));
        };
        refused(vec![every(1, 100)]);
        refused(vec![every(1, 101), every(1, 1)]);
        refused(vec![every(-1, 2), every(1, 1)]);
        refused(vec![every(i64::MAX, u64::MAX), every(1, 1)]);
    }
}
