//! Storing all elements of an array that is not in use: its objects are made straight from a source of elements.
//!
//! Uses its neighbours in `array`, `memory` and `error`. Nothing is dirty meanwhile. Threads take boxes of neighbouring
//! chunks (`geometry/chunk_boxes.rs`), read their elements, encode them and store them, an object at a time. All chunks
//! of a shard are encoded before it is stored.
//!
//! Invariant: the stored objects are those that a write of the elements and a write-back would store.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::ops::Range;
use std::sync::Arc;

use crate::array::geometry::axis::each_index;
use crate::array::geometry::chunk_boxes::{BoxLimits, ChunkBoxes, for_each_range};
use crate::array::geometry::strided_copy::StridedCopy;
use crate::array::served::ServedArray;
use crate::array::source::replacement::Encoded;
use crate::array::sync::Mutex;
use crate::array::write::ArrayWriter;
use crate::array::write::dirty_chunks::DirtyChunks;
use crate::array::write::write_back::created::CreatedObjects;
use crate::array::write::write_back::object_writer::{NewObject, ObjectWriter, THREADS_PER_CORE};
use crate::array::write::write_back::session::WriteSession;
use crate::error::Result;
use crate::memory::Buffer;
use crate::store::{Info, Precondition};

/// Longer runs are no faster to read.
const RUN_BYTES: u64 = 256 << 10;
/// The most bytes that are read at a time, if they do not go to one chunk.
const RANGE_BYTES: u64 = 1 << 20;
/// A box of several chunks has at most this many bytes. In an array that is cut into near-cubes, 64 MiB are mostly
/// whole rows. With boxes of two near-cubes, 128 MiB took 196,614 reads of 684 bytes, and the cost of each read was
/// half of the processor time.
const BOX_BYTES: u64 = 64 << 20;
/// A box may have this many bytes even if there are then fewer than [`BOXES_PER_THREAD`].
const SMALL_BOX_BYTES: u64 = 8 << 20;
/// Threads end together if each has many boxes.
const BOXES_PER_THREAD: u64 = 4;

/// Where elements come from, in the order of the flat file. Several threads use it at once.
pub trait ImportSource: Sync {
    /// Reads the bytes at an offset. Fails if they are not all there.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()>;

    /// Records that more bytes were read.
    fn record_progress(&self, bytes: u64);
}

/// An import into one array.
struct ElementImport<'a> {
    objects: &'a ObjectWriter,
    session: &'a WriteSession,
    created: &'a CreatedObjects,
    elements: &'a dyn ImportSource,
    /// Owner and mode for new objects.
    like: &'a Info,
    /// Decoding threads.
    cores: usize,
    /// Records stored objects, for readers and write-back.
    dirty: &'a DirtyChunks,
}

impl ArrayWriter {
    /// Stores all elements. The array must be open for writing, and must have no dirty chunks and no other user. It
    /// takes no more memory than the dirty limit, or than one object if that is more. Durable after
    /// [`ArrayWriter::sync`].
    pub fn store_all_elements(&self, elements: &dyn ImportSource) -> Result<()> {
        let write_back = &self.write_back;
        let _storing = write_back.storing().lock();
        write_back.check_end()?;
        let like = write_back.session.check_document()?;
        let cores = self.workers.count().max(1);
        let (objects, session, dirty) = (&write_back.objects, &write_back.session, &self.dirty);
        let created = write_back.created();
        let import = ElementImport { objects, session, created, elements, like: &like, cores, dirty };
        if self.served.levels().is_sharded() { import.store_shards() } else { import.store_chunks() }?;
        created.confirm(objects, session)
    }
}

impl ElementImport<'_> {
    fn served(&self) -> &ServedArray {
        self.objects.served()
    }

    /// Stores all chunks, each as an object.
    fn store_chunks(&self) -> Result<()> {
        let served = self.served();
        let most = self.objects.storing_threads(self.cores, THREADS_PER_CORE);
        let chunk_bytes = served.grid().largest_chunk_bytes();
        // A thread has the chunks of a box as they are, and one of them encoded.
        let dirty_limit_bytes = self.objects.resources().dirty_limit_bytes();
        let share = (dirty_limit_bytes / self.cores as u64).saturating_sub(chunk_bytes);
        let all_chunks = served.grid().axes().iter().map(|axis| 0..axis.count()).collect();
        let boxes = self.boxes(all_chunks, served.size_bytes(), share);
        let box_bytes = chunk_bytes.saturating_mul(1 + boxes.chunks_per_box());
        self.objects.for_each(
            boxes.count(),
            self.objects.threads_within(box_bytes, most),
            "import",
            |number| {
                for (number, bytes) in self.read_box(&boxes.get(number))? {
                    let mut encoded = Encoded::new();
                    encoded.insert(number, self.objects.encode(number, &mut Arc::new(bytes))?);
                    self.put_whole(number, &encoded)?;
                }
                Ok(())
            },
        )
    }

    /// Stores all shards.
    fn store_shards(&self) -> Result<()> {
        let objects = self.served().levels().objects();
        let most = self.objects.storing_threads(self.cores, 1);
        let at_once = self.objects.threads_within(self.served().object_bytes(), most);
        let at_once = at_once.min(usize::try_from(objects).unwrap_or(at_once)).max(1);
        let threads_of_shard = self.cores.div_ceil(at_once);
        self.objects.for_each(objects, at_once, "import", |object| self.store_shard(object, threads_of_shard))
    }

    /// Stores one shard. Its chunks are encoded on this many threads.
    fn store_shard(&self, object: u64, threads: usize) -> Result<()> {
        let encoded = Mutex::new(Encoded::new());
        let chunks = self.served().levels().chunk_ranges(object);
        // The chunks of a box as they are, and all of them encoded.
        let limit = self.objects.resources().dirty_limit_bytes() / (2 * self.cores as u64);
        let boxes = self.boxes(chunks, self.served().object_bytes(), limit);
        self.objects.for_each(boxes.count(), threads, "encode", |number| {
            for (number, bytes) in self.read_box(&boxes.get(number))? {
                let chunk = self.objects.encode(number, &mut Arc::new(bytes))?;
                encoded.lock().insert(number, chunk);
            }
            Ok(())
        })?;
        self.put_whole(object, &encoded.into_inner())
    }

    /// Cuts these chunks, which have `bytes` in all, into boxes. A box of several chunks has at most `limit` bytes.
    fn boxes(&self, chunks: Vec<Range<u64>>, bytes: u64, limit: u64) -> ChunkBoxes {
        let share = bytes / (BOXES_PER_THREAD * self.cores as u64);
        let box_bytes = share.clamp(SMALL_BOX_BYTES, BOX_BYTES).min(limit);
        let limits = BoxLimits { run_bytes: RUN_BYTES, box_bytes };
        let grid = self.served().grid();
        ChunkBoxes::new(grid.axes(), chunks, grid.item_bytes(), limits)
    }

    /// Reads the elements of a box of chunks. The chunks are in the order of their numbers.
    fn read_box(&self, chunks: &[Range<u64>]) -> Result<Vec<(u64, Buffer)>> {
        let (elements, grid) = (self.elements, self.served().grid());
        let mut buffers: Vec<(u64, Buffer)> = Vec::new();
        let mut places: HashMap<u64, usize> = HashMap::new();
        let _ = each_index(grid.axes(), chunks, &mut |number| {
            let length = grid.chunk_bytes(&grid.index(number));
            places.insert(number, buffers.len());
            // Encoded chunks come and go as fast as these.
            let buffer = Buffer::transient(length).unwrap_or_else(|| Buffer::sparse(length));
            buffers.push((number, buffer));
            ControlFlow::Continue(())
        });
        let mut scratch = Vec::new();
        let longest = if buffers.len() == 1 { u64::MAX } else { RANGE_BYTES };
        // Many ranges are short, so progress is not reported for each.
        let mut unreported = 0;
        for_each_range(grid.axes(), chunks, grid.item_bytes(), longest, &mut |offset, length| {
            unreported += length;
            if unreported >= RANGE_BYTES {
                elements.record_progress(std::mem::take(&mut unreported));
            }
            let mut is_read = false;
            grid.for_each_copy(offset, length, &mut |copy: &StridedCopy<'_>| {
                let buffer = places.get(&copy.chunk).and_then(|&place| buffers.get_mut(place));
                let Some((_, buffer)) = buffer else { return Ok(()) };
                if copy.run as u64 == length {
                    let bytes = buffer.get_mut(copy.chunk_offset..copy.chunk_offset + copy.run);
                    let bytes = bytes.unwrap_or_default();
                    elements.read(offset, bytes)?;
                    return self.served().check_values(bytes);
                }
                if !is_read {
                    scratch.resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
                    elements.read(offset, &mut scratch)?;
                    self.served().check_values(&scratch)?;
                    is_read = true;
                }
                copy.for_each_run(|inside, from| {
                    buffer[inside..inside + copy.run].copy_from_slice(&scratch[from..from + copy.run]);
                });
                Ok(())
            })
        })?;
        elements.record_progress(unreported);
        Ok(buffers)
    }

    /// Puts an object with all of its chunks encoded.
    fn put_whole(&self, object: u64, encoded: &Encoded) -> Result<()> {
        if encoded.is_empty() {
            return Ok(());
        }
        let served = self.served();
        let key = served.key_of_object(object)?;
        self.objects.retry_if_overtaken(&key, self.session, || {
            let old = served.store().head_object(&key)?.map(|info| info.version);
            let precondition = Precondition::found(old);
            let replacement = served.seen().replace(&key);
            let new = NewObject { object, encoded, like: self.like, precondition, is_zero: true };
            let version = self.objects.put(&new)?;
            if let (None, Some(version)) = (old, version)
                && self.created.record(&key, version)
            {
                self.created.confirm(self.objects, self.session)?;
            }
            served.advance_epoch();
            self.dirty.mark_stored(object, &key);
            replacement.record(old, version);
            Ok(())
        })
    }
}
