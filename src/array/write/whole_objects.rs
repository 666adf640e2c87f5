//! Storing all elements of an array that nobody else uses: its objects are made straight from a source of elements.
//!
//! Uses its neighbours in `array`, `memory` and `error`. Nothing is dirty meanwhile. Threads take boxes of neighbouring chunks
//! (`geometry/chunk_boxes.rs`), read their elements, encode them and store them, an object at a time. All chunks of a shard
//! are encoded before it is stored.
//!
//! Invariant: what is stored is what writing the elements and a write-back would store.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::array::geometry::chunk_boxes::{ChunkBoxes, Limits, for_each_range};
use crate::array::geometry::grid::each_index;
use crate::array::geometry::strided_copy::StridedCopy;
use crate::array::source::replacement::{Encoded, Target};
use crate::array::sync::atomic::{AtomicU64, Ordering};
use crate::array::sync::{self, Mutex};
use crate::array::{Array, Inner};
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::store::{Info, Precondition};

/// Longer runs are no faster to read.
const RUN_BYTES: u64 = 256 << 10;
/// The most bytes that are read at a time, if they do not go to one chunk.
const RANGE_BYTES: u64 = 1 << 20;
/// A box of several chunks has at most this many bytes: of an array that is cut into near-cubes, 64 MiB are mostly whole rows.
const BOX_BYTES: u64 = 64 << 20;
/// It may have this many, if less would give each thread several boxes.
const SMALL_BOX_BYTES: u64 = 8 << 20;
/// Threads end together if each has many boxes.
const BOXES_PER_THREAD: u64 = 4;
/// Threads per processor: while one waits for the disk, another encodes.
pub(in crate::array) const THREADS_PER_CORE: usize = 2;
/// Threads that store at a service: nearly all of them wait for a reply.
pub(in crate::array) const REMOTE_THREADS: usize = 32;

/// Where elements come from, in the order of the flat file. Several threads use it at once.
pub trait Elements: Sync {
    /// Reads the bytes at an offset. Fails if they are not all there.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()>;

    /// Bytes that were read more.
    fn note_progress(&self, bytes: u64);
}

/// What the threads share.
struct Work<'a> {
    elements: &'a dyn Elements,
    /// Owner and mode for new objects.
    like: &'a Info,
    /// Threads for the chunks of one object.
    threads: usize,
}

/// Runs `work` for all numbers below `count` on so many threads, until it fails.
pub(in crate::array) fn for_each(
    count: u64,
    threads: usize,
    name: &str,
    work: impl Fn(u64) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicU64::new(0);
    let failure: Mutex<Option<Error>> = Mutex::default();
    let run = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count || failure.lock().is_some() {
                return;
            }
            // A panic in a codec library is an error like any other.
            let panicked = |_| {
                let reason = std::io::Error::other("a codec panicked; this is a bug");
                Err(Error::store("", "encode", reason))
            };
            if let Err(error) = catch_unwind(AssertUnwindSafe(|| work(number))).unwrap_or_else(panicked) {
                failure.lock().get_or_insert(error);
            }
        }
    };
    sync::on_threads(threads.min(usize::try_from(count).unwrap_or(threads)), name, run);
    failure.into_inner().map_or(Ok(()), Err)
}

impl Array {
    /// Stores all elements. The array must be open for writing, and must have no dirty chunks and no other user. Its memory is
    /// bounded by the dirty limit, but is never less than one object takes. Durable after [`Array::sync`].
    pub fn store_all_elements(&self, elements: &dyn Elements) -> Result<()> {
        let inner = &self.inner;
        let _storing = inner.writing.storing.lock();
        inner.check_end()?;
        let like = inner.check_document()?;
        let cores = inner.engine.workers.count().max(1);
        match inner.source.is_sharded() {
            false => {
                let most = if inner.store.is_remote() { REMOTE_THREADS } else { THREADS_PER_CORE * cores };
                // A thread has the chunks of a box as they are, and one of them encoded.
                let share =
                    (inner.engine.dirty_limit_bytes() / cores as u64).saturating_sub(inner.chunk_bytes());
                let boxes = inner.boxes(inner.all_chunks(), self.size_bytes(), cores, share);
                let box_bytes = inner.chunk_bytes().saturating_mul(1 + boxes.chunks_per_box());
                let work = Work { elements, like: &like, threads: 1 };
                for_each(boxes.count(), inner.threads(box_bytes, most), "import", |number| {
                    inner.store_box(&boxes.get(number), &work)
                })
            }
            true => {
                let most = if inner.store.is_remote() { REMOTE_THREADS } else { cores };
                let objects = inner.source.objects();
                let at_once = inner.threads(inner.object_bytes(), most);
                let at_once = at_once.min(usize::try_from(objects).unwrap_or(at_once)).max(1);
                let work = Work { elements, like: &like, threads: cores.div_ceil(at_once) };
                for_each(objects, at_once, "import", |object| inner.store_shard(object, &work))
            }
        }
    }
}

impl Inner {
    fn all_chunks(&self) -> Vec<Range<u64>> {
        self.grid.axes().iter().map(|axis| 0..axis.count()).collect()
    }

    /// The most bytes of the chunks of one object.
    pub(in crate::array) fn object_bytes(&self) -> u64 {
        let elements = self.source.object_axes().iter().map(|axis| axis.longest()).product::<u64>();
        elements.saturating_mul(self.fill.len() as u64)
    }

    /// How many threads of so many bytes the dirty limit allows.
    pub(in crate::array) fn threads(&self, bytes: u64, most: usize) -> usize {
        let allowed = self.engine.dirty_limit_bytes() / bytes.max(1);
        usize::try_from(allowed).unwrap_or(most).clamp(1, most)
    }

    /// Boxes of these chunks, which have `bytes` in all; a box of several has at most `limit` bytes.
    fn boxes(&self, chunks: Vec<Range<u64>>, bytes: u64, threads: usize, limit: u64) -> ChunkBoxes {
        let share = bytes / (BOXES_PER_THREAD * threads as u64);
        let box_bytes = share.clamp(SMALL_BOX_BYTES, BOX_BYTES).min(limit);
        let limits = Limits { run_bytes: RUN_BYTES, box_bytes };
        ChunkBoxes::new(self.grid.axes(), chunks, self.fill.len() as u64, limits)
    }

    /// Stores a box of chunks that are objects.
    fn store_box(&self, chunks: &[Range<u64>], work: &Work<'_>) -> Result<()> {
        for (number, bytes) in self.read_box(chunks, work.elements)? {
            let mut encoded = Encoded::new();
            self.encode_read(number, bytes, &mut encoded)?;
            self.put_whole(number, encoded, work.like)?;
        }
        Ok(())
    }

    /// Stores one shard.
    fn store_shard(&self, object: u64, work: &Work<'_>) -> Result<()> {
        let encoded = Mutex::new(Encoded::new());
        let chunks = self.source.chunk_ranges(object);
        let threads = self.engine.workers.count().max(1);
        // The chunks of a box as they are, and all of them encoded.
        let limit = self.engine.dirty_limit_bytes() / (2 * threads as u64);
        let boxes = self.boxes(chunks, self.object_bytes(), threads, limit);
        for_each(boxes.count(), work.threads, "encode", |number| {
            for (number, bytes) in self.read_box(&boxes.get(number), work.elements)? {
                let mut one = Encoded::new();
                self.encode_read(number, bytes, &mut one)?;
                encoded.lock().extend(one);
            }
            Ok(())
        })?;
        self.put_whole(object, encoded.into_inner(), work.like)
    }

    /// Reads the elements of a box of chunks. The chunks are in the order of their numbers.
    fn read_box(&self, chunks: &[Range<u64>], elements: &dyn Elements) -> Result<Vec<(u64, Buffer)>> {
        let mut buffers: Vec<(u64, Buffer)> = Vec::new();
        let mut places: HashMap<u64, usize> = HashMap::new();
        let _ = each_index(self.grid.axes(), chunks, &mut |number| {
            let shape = self.chunk_shape(&self.grid.index(number));
            let length = shape.iter().product::<u64>() as usize * self.fill.len();
            places.insert(number, buffers.len());
            // Encoded chunks come and go as fast as these.
            let buffer = Buffer::transient(length).unwrap_or_else(|| Buffer::sparse(length));
            buffers.push((number, buffer));
            ControlFlow::Continue(())
        });
        let mut scratch = Vec::new();
        let longest = if buffers.len() == 1 { u64::MAX } else { RANGE_BYTES };
        let axes = self.grid.axes();
        // Many ranges may be short.
        let mut unnoted = 0;
        for_each_range(axes, chunks, self.fill.len() as u64, longest, &mut |offset, length| {
            unnoted += length;
            if unnoted >= RANGE_BYTES {
                elements.note_progress(std::mem::take(&mut unnoted));
            }
            let mut is_read = false;
            self.grid.for_each_copy(offset, length, &mut |copy: &StridedCopy<'_>| {
                let buffer = places.get(&copy.chunk).and_then(|&place| buffers.get_mut(place));
                let Some((_, buffer)) = buffer else { return Ok(()) };
                if copy.run as u64 == length {
                    let bytes = buffer.get_mut(copy.chunk_offset..copy.chunk_offset + copy.run);
                    let bytes = bytes.unwrap_or_default();
                    elements.read(offset, bytes)?;
                    return self.check_elements(bytes);
                }
                if !is_read {
                    scratch.resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
                    elements.read(offset, &mut scratch)?;
                    self.check_elements(&scratch)?;
                    is_read = true;
                }
                copy.for_each_run(|inside, from| {
                    buffer[inside..inside + copy.run].copy_from_slice(&scratch[from..from + copy.run]);
                });
                Ok(())
            })
        })?;
        elements.note_progress(unnoted);
        Ok(buffers)
    }

    fn encode_read(&self, number: u64, mut bytes: Buffer, encoded: &mut Encoded) -> Result<()> {
        let index = self.grid.index(number);
        self.fill_padding(&index, &mut bytes);
        let _permit = self.engine.encoders.take();
        encoded.insert(number, self.source.encode(&self.load_context(), &index, &Arc::new(bytes))?);
        Ok(())
    }

    /// Puts an object of which all chunks are encoded.
    fn put_whole(&self, object: u64, encoded: Encoded, like: &Info) -> Result<()> {
        let Some(writer) = self.store.writer() else {
            return Err(Error::ReadOnly(self.store.describe()));
        };
        let Some(&any) = encoded.keys().next() else { return Ok(()) };
        let key = self.source.key(&self.load_context(), &self.grid.index(any))?;
        self.while_others_are_first(&key, || {
            let old = self.store.head_object(&key)?.map(|info| info.version);
            let precondition = Precondition::found(old);
            let (store, within) = (self.store.as_ref(), self.path.as_str());
            let target = Target { store, writer, within, like, precondition, is_zero: true };
            let replacement = self.served.replace(&key);
            let (_, version) = self.source.rewrite(&self.load_context(), &target, object, &encoded)?;
            self.engine.objects_stored.fetch_add(1, Ordering::Relaxed);
            self.engine.chunks_encoded.fetch_add(encoded.len() as u64, Ordering::Relaxed);
            self.epoch.fetch_add(1, Ordering::AcqRel);
            self.writing.chunks.lock().unsynced.insert(key.clone());
            replacement.note(old, version);
            Ok(())
        })
    }
}
