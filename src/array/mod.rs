//! Arrays as flat files.
//!
//! A **chunk** is the smallest part of an array that decodes on its own: an inner chunk of a shard, or a chunk of the
//! chunk grid where the array is not sharded. All of this layer uses the word in this sense. A **stored object** holds
//! one shard, or one chunk of an array that is not sharded.
//!
//! [`Array::open`] turns metadata into the *served* array: the elements in the order in which the file shows them. For
//! another order than C it permutes the axes and puts a transpose before the codec chain, so all later code knows order
//! C only. Big-endian elements are a last fix-up of the pipeline.
//!
//! Uses `error`, `memory`, `metadata`, `store`, `codec`, `cancellation` and `sys`.
//!
//! | room | what lives there |
//! |---|---|
//! | `geometry/` | index arithmetic: the chunks that a range touches, and where their bytes lie in it |
//! | `cache/` | decoded chunks in memory |
//! | `source/` | where chunks are stored: keys, shards and their indexes, versions of objects |
//! | `served/` | one array as the file shows it, and its chunks through the cache |
//! | `write/` | from write(2) to the store: dirty chunks, encoding, write-back |
//! | `read/` | from read(2) to chunks |
//! | `readahead/` | fetching, decoding and copying ahead of sequential readers |
//! | `variable/` | arrays of strings and bytes, element by element |
//! | `interleavings/` | tests under random schedules |
//! | `request.rs` | one read of a reader: chooses among what the folders above have |
//! | `slice.rs` | the elements of a slice: in order, each chunk loaded once; or from any offset |
//! | `engine.rs` | what all arrays of a process share, for each part of an array |
//! | `workers.rs`, `semaphore.rs`, `sync.rs` | the decoding threads, and locks |
//! | `outside.rs` | what is stored outside an array, for code that changes its shape |
//! | `verify.rs` | decodes every stored chunk and reports damage |
//!
//! A folder uses only the folders above it in this list, and each has one type for one array, which owns its state:
//! `ServedArray` (geometry and source) and `StripCache` (chunks through the cache) in `served/`, [`ArrayWriter`] in
//! `write/`, `ArrayReader` in `read/`, `ArrayReadahead` in `readahead/`. An [`Array`] is nothing but these parts.

mod cache;
mod engine;
mod geometry;
#[cfg(all(test, feature = "shuttle"))]
#[allow(clippy::unwrap_used, clippy::panic)]
mod interleavings;
mod outside;
mod read;
mod readahead;
mod request;
mod reservation;
mod semaphore;
mod served;
mod slice;
mod source;
mod sync;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod test_arrays;
mod variable;
mod verify;
mod workers;
mod write;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::SystemTime;

use crate::cancellation::Cancellation;
use crate::error::{Error, Result};
use crate::metadata::ArrayMetadata;
use crate::store::{Object, Store};

pub use crate::metadata::ByteOrder;
pub use engine::{Engine, EngineCounters, EngineOptions};
pub use geometry::layout::{FileLayout, Layout, Order};
pub use geometry::selection::AxisSelection;
pub use outside::{clear_padding, delete_outside};
use read::ArrayReader;
pub use read::access::Blocking;
use read::access::ReadAccess;
use read::holes::HoleTiles;
pub use read::plan::ReadPlan;
pub use read::reply_buffer::{CachedSlice, ReadData, ReplyBuffer, ReplyBufferPool};
use read::revalidate::Comparison;
use readahead::ArrayReadahead;
pub use readahead::{Readahead, Reader};
pub use request::ReadRequest;
pub use reservation::Reservation;
use served::ServedArray;
use served::open::ArrayToOpen;
use served::strip_cache::StripCache;
pub use slice::SliceSink;
pub use source::loading::decode_meter::DecodeMeter;
pub use source::objects::stored_objects::StoredObjects;
pub use source::objects::strays::Strays;
pub use variable::{ChunkOfStrings, VariableArray};
pub use verify::CheckOutcome;
use workers::Workers;
pub use write::unstored_log::KeptBytes;
pub use write::whole_objects::ImportSource;
pub use write::write_back::DirtyReport;
pub use write::write_back::session::lock_folder;
pub use write::{ArrayWriter, PendingWrite};

/// One array, served as a flat file.
pub struct Array {
    served: Arc<ServedArray>,
    workers: Arc<Workers>,
    writer: Arc<ArrayWriter>,
    reader: Arc<ArrayReader>,
    readahead: Arc<ArrayReadahead>,
}

impl Array {
    /// Builds the codec chain of an array at `path` (`""` is the root). Fails with `Unsupported` or `Metadata`, and
    /// names the document and the member.
    pub fn open(
        engine: &Arc<Engine>,
        store: &Arc<dyn Store>,
        path: &str,
        metadata: Arc<ArrayMetadata>,
        layout: impl Into<FileLayout>,
    ) -> Result<Arc<Array>> {
        if let Some(composed) = store.composed() {
            composed.share_engine(Arc::clone(engine) as _);
        }
        let array = ArrayToOpen { store, path, metadata, layout: layout.into() };
        let workers = engine.workers_for(store.as_ref());
        let served = Arc::new(ServedArray::open(engine.loads(), array)?);
        let strips = Arc::new(StripCache::new(&served, &workers));
        let writer = Arc::new(ArrayWriter::new(&strips, &workers, &engine.writers_for(store.as_ref())));
        let reader = Arc::new(ArrayReader::new(&strips, writer.dirty()));
        let readahead = Arc::new(ArrayReadahead::new(&reader, engine.readahead()));
        Ok(Arc::new(Array { served, workers, writer, reader, readahead }))
    }

    /// Returns the same array with other metadata. Its writer has the dirty chunks of this one, and stores nothing
    /// before it takes over.
    fn successor(&self, metadata: Arc<ArrayMetadata>) -> Result<Arc<Array>> {
        let served = Arc::new(self.served.reopened(metadata)?);
        let strips = Arc::new(StripCache::new(&served, &self.workers));
        let writer = Arc::new(self.writer.successor(&strips));
        let reader = Arc::new(ArrayReader::new(&strips, writer.dirty()));
        let readahead = Arc::new(self.readahead.successor(&reader));
        Ok(Arc::new(Array { served, workers: Arc::clone(&self.workers), writer, reader, readahead }))
    }

    /// Returns the array after another program has made `self` longer along its slowest served axis. The dirty chunks,
    /// the writers and the lock move to the new array; `self` stores nothing from then on. Fails with `Stale` where the
    /// new array cannot continue the old one.
    pub fn grown(&self, metadata: Arc<ArrayMetadata>) -> Result<Arc<Array>> {
        let grown = self.successor(metadata)?;
        grown.writer.take_over(&self.writer)?;
        // Readers hold data that `self` served. The new array has no versions to compare with it.
        grown.served.seen().mark_incomplete();
        Ok(grown)
    }

    /// Returns the array's metadata with the smallest shape that has `size_bytes`, longer along the slowest axis of the
    /// file. Fails with `TooLarge` if there is no such shape.
    pub fn longer(&self, size_bytes: u64) -> Result<ArrayMetadata> {
        write::lengthen::longer(&self.served, size_bytes)
    }

    /// Makes the array as long as [`Array::longer`] said, while it is open for writing. `replace` replaces the
    /// document. Dirty chunks, writers and lock move to the array that is returned. Fails with `Changed` if the array
    /// is zeroed: then it must be flushed first.
    pub fn lengthen(
        &self,
        metadata: Arc<ArrayMetadata>,
        replace: impl FnOnce() -> Result<()>,
    ) -> Result<Arc<Array>> {
        let longer = self.successor(metadata)?;
        self.writer.lengthen(&longer.writer, replace)?;
        longer.served.seen().mark_incomplete();
        Ok(longer)
    }

    /// Returns the writer of the array, which all handles that have it open for writing share.
    pub fn writer(&self) -> &Arc<ArrayWriter> {
        &self.writer
    }

    // --- what the array is ---

    /// Fails if the store knows by now that the array's chunks have another form than its document says.
    pub fn check_form(&self) -> Result<()> {
        self.served.check_form()
    }

    /// Returns the array's metadata.
    pub fn metadata(&self) -> &Arc<ArrayMetadata> {
        self.served.metadata()
    }

    /// Returns whether a read after write-back always returns what was written.
    pub fn is_lossless(&self) -> bool {
        self.served.source().is_lossless()
    }

    /// Returns whether every byte of the fill value is zero.
    pub fn fills_with_zeros(&self) -> bool {
        self.served.fill().iter().all(|&byte| byte == 0)
    }

    /// Returns the length of the flat file in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.served.size_bytes()
    }

    /// Returns the bytes of decoded chunks that a sequential read visits repeatedly before it moves on.
    pub fn slab_bytes(&self) -> u64 {
        geometry::strips::slab(self.served.grid()).map_or(0, |slab| slab.bytes)
    }

    /// Returns the shape of a chunk. Where chunks vary in length, it has the longest length on each axis.
    pub fn chunk_shape(&self) -> Vec<u64> {
        self.served.source().keys().axis_order().own(&self.served.grid().largest_chunk_shape())
    }

    /// Returns the bytes of an element in the file.
    pub fn item_bytes(&self) -> u64 {
        self.served.grid().item_bytes()
    }

    /// Returns, for each axis of the file, the slowest first, its place among the array's own.
    pub fn file_axes(&self) -> Vec<usize> {
        self.served.source().keys().axis_order().axes().to_vec()
    }

    /// Returns how many chunks the array has, stored or not.
    pub fn chunks(&self) -> u64 {
        self.served.grid().chunks()
    }

    /// Returns the shape of the shards, if the array is sharded.
    pub fn shard_shape(&self) -> Option<&[u64]> {
        self.served.shard_shape()
    }

    /// Returns how many objects the array has if all of it is stored.
    pub fn objects(&self) -> u64 {
        self.served.levels().objects()
    }

    /// Returns the unknown codecs that were skipped because the document allows it. An array with skipped codecs is
    /// never written.
    pub fn skipped_codecs(&self) -> &[String] {
        self.served.skipped_codecs()
    }

    // --- what is stored ---

    /// Returns the elements that the object at a key stores, as a range on each axis of the array. `None` if no object
    /// of the array has this key.
    pub fn elements_of(&self, key: &str) -> Result<Option<Vec<Range<u64>>>> {
        self.served.listing().elements_of_key(key)
    }

    /// Calls `found` with the elements that each stored object has, as a range on each axis of the array, in no order,
    /// until it breaks. An object that is not listed has fill value everywhere. Fails if a folder cannot be listed.
    pub fn each_stored(&self, found: &mut dyn FnMut(Vec<Range<u64>>) -> ControlFlow<()>) -> Result<()> {
        let (listing, mut listed) = (self.served.listing(), Ok(()));
        let mut failed = |_: &str, error: &Error| listed = Err(error.clone());
        listing.each(&mut |object| found(listing.elements_of_object(object)), &mut failed, None);
        listed
    }

    /// Counts what is stored. Fails if a folder cannot be listed.
    pub fn stored(&self) -> Result<StoredObjects> {
        let (mut stored, mut listed) = (StoredObjects::default(), Ok(()));
        let mut found = |_| {
            stored.count += 1;
            ControlFlow::Continue(())
        };
        let mut failed = |_: &str, error: &Error| listed = Err(error.clone());
        self.served.listing().each(&mut found, &mut failed, Some(&mut stored.strays));
        listed.map(|()| stored)
    }

    /// Calls `each` with the key of each object that the array has if all of it is stored, until it breaks.
    pub fn each_object_key(&self, each: &mut dyn FnMut(String) -> ControlFlow<()>) -> Result<()> {
        for object in 0..self.objects() {
            if each(self.served.key_of_object(object)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Returns the object that has exactly the bytes of the file, if there is one.
    pub fn sole_object(&self) -> Result<Option<Arc<dyn Object>>> {
        self.reader.ranges().sole_object()
    }

    /// Compares every object that readers have seen with the store, for open(2). Returns `true` if nothing has changed,
    /// so the kernel's pages of the file are still right. Returns `false` if something changed, or if too many objects
    /// were read to compare them all. From then on every cached chunk is compared with the store before use.
    pub fn revalidate(&self, cancellation: &Cancellation) -> Result<bool> {
        let start_afresh = || {
            self.served.advance_epoch();
            self.writer.dirty().forget_bases();
        };
        let comparison = Comparison { served: &self.served, workers: &self.workers };
        comparison.is_unchanged(start_afresh, cancellation)
    }

    /// Returns a number that changes, in all likelihood, when this or another program changes an element. Looks up the
    /// versions of all objects of the array without reading them. Fails with `TooLarge` if there are too many objects.
    pub fn content_version(&self) -> Result<u64> {
        let mut version = DefaultHasher::new();
        self.writer.dirty().copies().hash(&mut version);
        let composed = self.served.store().composed();
        if let Some(of_targets) =
            composed.map_or(Ok(None), |store| store.content_version(self.served.path()))?
        {
            of_targets.hash(&mut version);
            return Ok(version.finish());
        }
        Comparison { served: &self.served, workers: &self.workers }.hash_versions(&mut version)?;
        Ok(version.finish())
    }

    /// Returns what distinguishes its store from another member of a catalogue: see [`Store::mark`].
    pub fn store_mark(&self) -> Option<String> {
        self.served.store().mark()
    }

    /// Returns when another program made the newest change of chunks that a reader or [`Array::revalidate`] has seen.
    pub fn changed_at(&self) -> Option<SystemTime> {
        self.served.seen().changed_at()
    }

    // --- reading ---

    /// Fills `out` from `offset`, for a caller that does not read in order. The range must lie in the file. Blocks on
    /// the store. A failure anywhere in the range fails the read.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let range = self.served.range(offset, out.len())?;
        let cancellation = Cancellation::never();
        let access =
            ReadAccess { blocking: Blocking::Yes, is_sequential: false, cancellation: &cancellation };
        self.reader.read(range, &mut ReadPlan::default(), out, access).map(drop)
    }

    /// Returns the first byte from `offset` on that may differ from zero. `None` if there is none before the end of the
    /// file. Blocks on the store.
    pub fn next_data(&self, offset: u64, cancellation: &Cancellation) -> Result<Option<u64>> {
        if offset >= self.size_bytes() {
            return Ok(None);
        }
        tiles(self, cancellation).map_or(Ok(Some(offset)), |tiles| tiles.next_data(offset))
    }

    /// Returns the first byte from `offset` on that lies in a hole, or the end of the file, which counts as a hole.
    /// `None` past the end. Blocks on the store.
    pub fn next_hole(&self, offset: u64, cancellation: &Cancellation) -> Result<Option<u64>> {
        if offset >= self.size_bytes() {
            return Ok(None);
        }
        let end = self.size_bytes();
        tiles(self, cancellation).map_or(Ok(end), |tiles| tiles.next_hole(offset)).map(Some)
    }
}

/// Cuts the file into tiles, to find its holes. Returns `None` if no hole may be reported: a missing chunk is not zero,
/// or the array has a writer. A writer's memory map may have pages that are not known here.
fn tiles<'a>(array: &'a Array, cancellation: &'a Cancellation) -> Option<HoleTiles<'a>> {
    if array.writer.has_writers() || array.writer.is_dirty() {
        return None;
    }
    HoleTiles::new(&array.served, cancellation)
}
