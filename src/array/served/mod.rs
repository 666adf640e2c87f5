//! One array as the file shows it: where its elements lie in the file, and where its chunks are stored.
//!
//! Uses `geometry/`, `cache/`, `source/`, and `metadata`, `codec`, `store` and `error`. `open.rs` builds a
//! [`ServedArray`] from metadata. `strip_cache.rs` reads its chunks through the cache. Nothing here is dirty: `write/`
//! has what is not stored yet.
//!
//! Invariant: only two things change in a [`ServedArray`]: its epoch, and the versions of objects that readers have
//! seen.

pub mod open;
pub mod strip_cache;

use std::ops::Range;
use std::sync::Arc;

use serde_json::json;

use crate::array::cache::LoadedContent;
use crate::array::geometry::axis::{Axis, numbers};
use crate::array::geometry::grid::Grid;
use crate::array::geometry::layout::FileLayout;
use crate::array::source::ArraySource;
use crate::array::source::levels::ShardLevels;
use crate::array::source::loading::load_context::LoadContext;
use crate::array::source::loading::load_resources::LoadResources;
use crate::array::source::loading::versions::SeenVersions;
use crate::array::source::objects::stored_objects::ObjectListing;
use crate::array::sync::atomic::{AtomicU64, Ordering};
use crate::cancellation::Cancellation;
use crate::error::{Error, Result};
use crate::metadata::{ArrayMetadata, DataType, parse_array};
use crate::store::{FileId, ObjectVersion, Store};

/// One array, served as a flat file. The parts of an [`Array`](crate::array::Array) that read and write share it.
pub struct ServedArray {
    loads: Arc<LoadResources>,
    /// The store. If it knows the forms of arrays, it checks that of each object.
    store: Arc<dyn Store>,
    metadata: Arc<ArrayMetadata>,
    /// Path of the array, `""` for the root.
    path: String,
    /// Distinguishes its entries in the shared caches from those of other arrays.
    number: u64,
    /// Advances when content that was loaded before must be compared with the store before it is used again.
    epoch: AtomicU64,
    /// The versions of the objects that readers have seen.
    seen: SeenVersions,
    /// The grid of chunks.
    grid: Grid,
    source: ArraySource,
    /// One element of the fill value as served.
    fill: Vec<u8>,
    layout: FileLayout,
    /// Shape of the shards in array order, if the array is sharded.
    shard_shape: Option<Vec<u64>>,
    skipped_codecs: Vec<String>,
}

impl ServedArray {
    /// Returns what the loads of all arrays share.
    pub fn loads(&self) -> &LoadResources {
        &self.loads
    }

    /// Returns the store.
    pub fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// Returns the array's metadata.
    pub fn metadata(&self) -> &Arc<ArrayMetadata> {
        &self.metadata
    }

    /// Returns the key of the array's metadata document.
    pub fn document_key(&self) -> &str {
        &self.metadata.document_key
    }

    /// Returns the path of the array, `""` for the root.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the array's number in the shared caches.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the versions of the objects that readers have seen.
    pub fn seen(&self) -> &SeenVersions {
        &self.seen
    }

    /// Returns the grid of chunks.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Returns the source, which locates, decodes and encodes the chunks.
    pub fn source(&self) -> &ArraySource {
        &self.source
    }

    /// Returns the grid of chunks, and the levels of sharding above it.
    pub fn levels(&self) -> &ShardLevels {
        self.source.levels()
    }

    /// Returns a listing of the stored objects.
    pub fn listing(&self) -> ObjectListing<'_> {
        let (keys, axes) = (self.source.keys(), self.levels().object_axes());
        ObjectListing { store: self.store(), keys, axes }
    }

    /// Returns one element of the fill value as served.
    pub fn fill(&self) -> &[u8] {
        &self.fill
    }

    /// Returns the shape of the shards in array order, if the array is sharded.
    pub fn shard_shape(&self) -> Option<&[u64]> {
        self.shard_shape.as_deref()
    }

    /// Returns the unknown codecs that were skipped because the document allows it.
    pub fn skipped_codecs(&self) -> &[String] {
        &self.skipped_codecs
    }

    /// Returns the length of the flat file in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.grid.size_bytes()
    }

    /// Returns the range of `length` bytes from `offset`, if it lies in the file.
    pub fn range(&self, offset: u64, length: usize) -> Result<Range<u64>> {
        let end = offset.checked_add(length as u64).filter(|&end| end <= self.size_bytes());
        end.map(|end| offset..end).ok_or_else(|| {
            let (end, size) = (offset.saturating_add(length as u64), self.size_bytes());
            Error::InvalidValue(format!("range {offset}..{end} is past the end of the file ({size} bytes)"))
        })
    }

    /// Fails if the request was cancelled.
    pub fn check(&self, cancellation: &Cancellation) -> Result<()> {
        cancellation.check(self.document_key())
    }

    /// Fails if these bytes are not values of the data type.
    pub fn check_values(&self, data: &[u8]) -> Result<()> {
        if self.metadata.data_type == DataType::Bool && data.iter().any(|&byte| byte > 1) {
            return Err(Error::InvalidValue("a bool is one byte, 0 or 1".to_owned()));
        }
        Ok(())
    }

    /// Returns the present epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Makes later reads compare all content that was loaded before with the store. Returns the new epoch.
    pub fn advance_epoch(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns what a load may use, in the present epoch.
    pub fn load_context(&self) -> LoadContext<'_> {
        LoadContext {
            store: self.store.as_ref(),
            seen: &self.seen,
            cache: &self.loads.cache,
            decoders: Some(&self.loads.decoders),
            reads: &self.loads.reads,
            array: self.number,
            epoch: self.epoch(),
        }
    }

    /// Loads a chunk, past the cache.
    pub fn load(&self, ctx: &LoadContext<'_>, index: &[u64]) -> Result<LoadedContent> {
        let loaded = self.source.load(ctx, index)?;
        let decoded_bytes = loaded.content.chunk_bytes();
        self.loads.record_load(&loaded, decoded_bytes);
        Ok(loaded)
    }

    /// Loads these bytes of a chunk, past the cache. Returns `None` if only a whole chunk can be loaded.
    pub fn load_part(
        &self,
        ctx: &LoadContext<'_>,
        index: &[u64],
        part: Range<usize>,
    ) -> Result<Option<LoadedContent>> {
        let Some((loaded, decoded_bytes)) = self.source.load_part(ctx, index, part)? else { return Ok(None) };
        self.loads.record_load(&loaded, decoded_bytes);
        Ok(Some(loaded))
    }

    /// Returns whether a reader's bytes are ranges of uncompressed objects, without the cache. A sequential reader of a
    /// remote store takes whole chunks, because these can be transferred ahead.
    pub fn reads_ranges(&self, is_sequential: bool) -> bool {
        self.source.is_uncompressed() && !(is_sequential && self.store.is_remote())
    }

    /// Returns the number of the object that holds a chunk.
    pub fn object_of(&self, chunk: u64) -> u64 {
        self.levels().object_of(&self.grid.index(chunk))
    }

    /// Returns the key of an object.
    pub fn key_of_object(&self, object: u64) -> Result<String> {
        self.source.keys().key(self.store.as_ref(), &numbers(self.levels().object_axes(), object))
    }

    /// Returns the key of the object that holds the chunk with these per-axis numbers.
    pub fn key_of_chunk(&self, index: &[u64]) -> Result<String> {
        self.source.key(&self.load_context(), index)
    }

    /// Returns the most bytes of the chunks of one object.
    pub fn object_bytes(&self) -> u64 {
        let elements = self.levels().object_axes().iter().map(|axis| axis.longest()).product::<u64>();
        elements.saturating_mul(self.fill.len() as u64)
    }

    /// Returns whether an object has room for elements after the end of the array.
    pub fn is_padded(&self, object: u64) -> bool {
        let index = numbers(self.levels().object_axes(), object);
        let spans = self.levels().object_axes().iter().zip(&index).map(|(axis, &i)| axis.span(i));
        let ends = self.grid.axes().iter().map(Axis::extent);
        spans.zip(ends).any(|(span, end)| span.start + span.length > end)
    }

    /// Returns the identity of the array's folder, if the store has one.
    pub fn folder_identity(&self) -> Result<Option<FileId>> {
        self.store.folder_id(&self.path)
    }

    /// Returns whether a document still describes the array as it was opened. Its attributes do not matter.
    pub fn is_described_by(&self, document: &[u8]) -> bool {
        parse_array(self.document_key(), document).is_ok_and(|parsed| {
            // The documents' own shapes are compared, because an array that is opened to clear padding has a longer one
            // (`write/clear.rs`).
            let is_of_shape =
                |now: &ArrayMetadata| now.document.get("shape") == self.metadata.document.get("shape");
            parsed.is_some_and(|now| is_of_shape(&now) && now.is_stored_as(&self.metadata))
        })
    }

    /// Returns the metadata with another shape.
    pub fn metadata_with_shape(&self, shape: Vec<u64>) -> ArrayMetadata {
        let mut metadata = ArrayMetadata::clone(&self.metadata);
        metadata.document.insert("shape".to_owned(), json!(shape));
        ArrayMetadata { shape, ..metadata }
    }

    /// Returns the objects at these keys that are stored, with their present versions.
    pub fn with_versions(&self, keys: Vec<String>) -> Result<Vec<(String, ObjectVersion)>> {
        let found = self.store.head_many(&keys.iter().map(String::as_str).collect::<Vec<_>>());
        let versions =
            keys.into_iter().zip(found).map(|(key, found)| Ok(found?.map(|info| (key, info.version))));
        Ok(versions.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }
}

impl Drop for ServedArray {
    fn drop(&mut self) {
        self.loads.forget_array(self.number);
    }
}
