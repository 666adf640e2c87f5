//! Strips of chunks: how a chunk is cut into them, and loading one.
//!
//! Uses its neighbours in `array`, `error` and `cancellation`.

use std::ops::Range;
use std::sync::{Arc, Weak};

use crate::array::cache::{Content, Key, Loaded, Version};
use crate::array::geometry::strips::{StripExtent, Strips, slab};
use crate::array::read::Access;
use crate::array::source::ahead::Indexes;
use crate::array::source::load_context::LoadContext;
use crate::array::source::resumable_decoders::MAX_DECODERS;
use crate::array::sync::atomic::Ordering;
use crate::array::{Blocking, Inner};
use crate::error::Result;
use crate::store::{Claim, Remote};

/// How many chunks of the first read are transferred before their strips are known.
const MAX_FIRST_CHUNKS: usize = 256;

/// Marks cache keys of strips that are smaller than chunks. Shards are never nested so deep.
const STRIP_LEVEL: u32 = u32::MAX;

impl Inner {
    /// The cache key of a chunk, where strips are chunks.
    pub(in crate::array) fn chunk_key(&self, number: u64) -> Key {
        Key { array: self.number, level: 0, number }
    }

    pub(in crate::array) fn strip_key(&self, number: u64) -> Key {
        let is_cut = self.strips.get().is_some_and(Strips::is_cut);
        Key { array: self.number, level: if is_cut { STRIP_LEVEL } else { 0 }, number }
    }

    /// The strips. The first read chooses them by the compression of the chunk at `offset`.
    pub(in crate::array) fn strips_at(&self, offset: u64) -> &Strips {
        self.strips.get_or_init(|| {
            let chunk = self.grid.chunk_at(offset).unwrap_or(0);
            let block = match self.store.is_remote() {
                true => self.block_bytes_of_remote(chunk),
                // A missing or damaged chunk gives no block size. A reader of that chunk gets the error.
                false => self
                    .source
                    .block_bytes(&self.load_context(), &self.grid.index(chunk))
                    .ok()
                    .flatten()
                    .map(|(block, _)| block),
            };
            Strips::new(&self.grid, self.engine.cache.limit_bytes(), block)
        })
    }

    /// Has a remote store transfer the chunks of the first read: how they are cut depends on one of them, and the others need
    /// not wait for it.
    pub(in crate::array) fn claim_before_strips(
        &self,
        range: &Range<u64>,
        access: Access<'_>,
    ) -> Vec<Arc<dyn Claim>> {
        if access.blocking == Blocking::No
            || !self.store.is_remote()
            || self.strips.get().is_some()
            || self.reads_ranges(access.is_sequential)
        {
            return Vec::new();
        }
        let chunks = self.grid.chunks_of(range.start, range.end - range.start, MAX_FIRST_CHUNKS);
        let chunks: Vec<Vec<u64>> = chunks.into_iter().map(|chunk| self.grid.index(chunk)).collect();
        self.source.claim(&self.load_context(), &chunks, Indexes::Waited).all()
    }

    /// The size of a block of a chunk in a remote store, if memory can hold the stored chunks of a slab: each of its strips
    /// needs them again. Of uncompressed chunks, sequential readers take the whole.
    fn block_bytes_of_remote(&self, chunk: u64) -> Option<u64> {
        if self.source.is_uncompressed() {
            return None;
        }
        // The transfer of the chunk that a reader is about to load.
        let (ctx, index) = (self.load_context(), self.grid.index(chunk));
        let _claims = self.source.claim(&ctx, std::slice::from_ref(&index), Indexes::Waited);
        let (block, stored_bytes) = self.source.block_bytes(&ctx, &index).ok().flatten()?;
        let chunks = slab(&self.grid)?.strips;
        let fits = stored_bytes.saturating_mul(chunks)
            <= self.store.remote().map_or(0, Remote::transfer_limit_bytes) / 2;
        fits.then_some(block)
    }

    /// Has a remote store transfer the chunks of these strips, for a reader that waits for them.
    pub(in crate::array) fn claim_strips(&self, strips: &[u64]) -> Vec<Arc<dyn Claim>> {
        if !self.store.is_remote() {
            return Vec::new();
        }
        let mut chunks: Vec<u64> = strips.iter().map(|&strip| self.chunk_of(strip)).collect();
        chunks.dedup();
        let chunks: Vec<Vec<u64>> = chunks.into_iter().map(|chunk| self.grid.index(chunk)).collect();
        self.source.claim(&self.load_context(), &chunks, Indexes::Waited).all()
    }

    /// The number of a strip's chunk.
    pub(in crate::array) fn chunk_of(&self, strip: u64) -> u64 {
        self.strips.get().map_or(strip, |strips| strips.extent_of(strip).chunk)
    }

    /// Bytes of the largest strip.
    pub(in crate::array) fn strip_bytes(&self) -> u64 {
        let grid = self.strips.get().map_or(&self.grid, Strips::grid);
        grid.largest_chunk_shape().iter().product::<u64>().saturating_mul(self.fill.len() as u64)
    }

    /// How many strips one read holds at a time.
    pub(in crate::array) fn batch_strips(&self) -> usize {
        let share = self.engine.cache.limit_bytes() / 4 / self.strip_bytes().max(1);
        (share as usize).min(256).max(2 * self.engine.workers.count())
    }

    /// Queues the load of a strip for a reader, which keeps `asking` alive until it has the strip.
    pub(in crate::array) fn demand(inner: &Arc<Inner>, strip: u64, is_sequential: bool, asking: Weak<()>) {
        let task_inner = Arc::clone(inner);
        inner.engine.workers.demand(Box::new(move || {
            if asking.strong_count() > 0 {
                // The reader sees a failure when it asks for the strip itself.
                drop(task_inner.strip(strip, is_sequential));
            }
        }));
    }

    /// One strip, from the cache or the store. A reader that is not `is_sequential` will probably want the chunk's
    /// other strips, too.
    pub(in crate::array) fn strip(&self, number: u64, is_sequential: bool) -> Result<Content> {
        let ctx = self.load_context();
        let strip = self.strips.get().map(|strips| (strips, strips.extent_of(number)));
        let index = self.grid.index(strip.as_ref().map_or(number, |(_, strip)| strip.chunk));
        self.engine.cache.get(
            self.strip_key(number),
            ctx.epoch,
            |object| {
                let key = self.source.key(&ctx, &index)?;
                Ok(ctx.version(&key)? == object)
            },
            || match &strip {
                Some((strips, strip)) if strips.is_cut() => {
                    self.load_strip(&ctx, &index, strips, strip, is_sequential)
                }
                _ => self.load(&ctx, &index),
            },
        )
    }

    pub(in crate::array) fn load(&self, ctx: &LoadContext<'_>, index: &[u64]) -> Result<Loaded> {
        let loaded = self.source.load(ctx, index)?;
        let decoded_bytes = if let Content::Chunk(buffer) = &loaded.0 { buffer.len() } else { 0 };
        self.note_loaded(&loaded, decoded_bytes);
        Ok(loaded)
    }

    /// Loads one strip of a chunk. If the whole chunk had to be decoded and is likely wanted, its other strips go into
    /// the cache.
    fn load_strip(
        &self,
        ctx: &LoadContext<'_>,
        index: &[u64],
        strips: &Strips,
        strip: &StripExtent,
        is_sequential: bool,
    ) -> Result<Loaded> {
        let has_few = strips.slab().is_some_and(|slab| slab.strips <= MAX_DECODERS as u64);
        let part_ctx = LoadContext { decoders: ctx.decoders.filter(|_| has_few), ..*ctx };
        if (is_sequential || strips.is_cheap())
            && let Some((loaded, decoded_bytes)) =
                self.source.load_part(&part_ctx, index, strip.bytes.clone())?
        {
            self.note_loaded(&loaded, decoded_bytes);
            return Ok(loaded);
        }
        let (content, object) = self.load(ctx, index)?;
        let Content::Chunk(chunk) = &content else { return Ok((content, object)) };
        let part = |strip: &StripExtent| {
            let bytes = chunk.get(strip.bytes.clone()).unwrap_or_default();
            let mut buffer = ctx.buffer(bytes.len());
            buffer.copy_from_slice(bytes);
            Content::Chunk(Arc::new(buffer))
        };
        if !is_sequential {
            let version = Version { object, epoch: ctx.epoch };
            for (number, other) in strips.of_chunk(strip.chunk) {
                if other != *strip {
                    self.engine.cache.put(self.strip_key(number), part(&other), version);
                }
            }
        }
        Ok((part(strip), object))
    }

    pub(in crate::array) fn note_loaded(&self, loaded: &Loaded, decoded_bytes: usize) {
        if let Content::Chunk(_) = &loaded.0 {
            self.engine.decoded_chunks.fetch_add(1, Ordering::Relaxed);
            self.engine.decoded_bytes.fetch_add(decoded_bytes as u64, Ordering::Relaxed);
        }
    }
}
