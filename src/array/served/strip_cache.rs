//! Chunks of one array through the cache, in strips.
//!
//! Uses its neighbours in `array`, `store` and `error`. A **strip** is the part of a chunk that is read and cached by
//! itself: usually the whole chunk (`geometry/strips.rs`). How chunks are cut is decided once, by the first read.

use std::ops::Range;
use std::sync::{Arc, Weak};

use crate::array::cache::{CacheKey, CachedContent, LoadedContent, ValidatedVersion};
use crate::array::geometry::strips::{StripExtent, Strips, slab};
use crate::array::served::ServedArray;
use crate::array::source::ahead::Indexes;
use crate::array::source::loading::decode_meter::DecodeMeter;
use crate::array::source::loading::load_context::LoadContext;
use crate::array::source::loading::resumable_decoders::MAX_DECODERS;
use crate::array::sync::OnceLock;
use crate::array::workers::Workers;
use crate::error::Result;
use crate::store::{Claim, Remote};

/// How many chunks of the first read are transferred before their strips are known.
const MAX_FIRST_CHUNKS: usize = 256;
/// The most strips that one read holds, unless each decoding thread could not have two.
const MAX_HELD_STRIPS: usize = 256;

/// The level in cache keys of strips that are smaller than chunks. Shards are never nested this deep.
const STRIP_LEVEL: u32 = u32::MAX;

/// The chunks of one array as readers and readahead get them.
pub struct StripCache {
    served: Arc<ServedArray>,
    workers: Arc<Workers>,
    /// Chosen by the first read.
    strips: OnceLock<Strips>,
}

impl StripCache {
    /// Creates the cache of an array that was not read yet.
    pub fn new(served: &Arc<ServedArray>, workers: &Arc<Workers>) -> Self {
        StripCache { served: Arc::clone(served), workers: Arc::clone(workers), strips: OnceLock::new() }
    }

    /// Returns the array.
    pub fn served(&self) -> &Arc<ServedArray> {
        &self.served
    }

    /// Returns the decoding threads.
    pub fn workers(&self) -> &Workers {
        &self.workers
    }

    /// Returns the strips, if a read has chosen them.
    pub fn strips(&self) -> Option<&Strips> {
        self.strips.get()
    }

    /// Returns the strips. The first read chooses them by the compression of the chunk at `offset`.
    pub fn strips_at(&self, offset: u64) -> &Strips {
        self.strips.get_or_init(|| {
            let served = &self.served;
            let chunk = served.grid().chunk_at(offset).unwrap_or(0);
            let block = if let Some(remote) = served.store().remote() {
                self.block_bytes_of_remote(remote, chunk)
            } else {
                // A missing or damaged chunk does not have a block size. The reader of that chunk gets the error.
                let index = served.grid().index(chunk);
                let block = served.source().block_bytes(&served.load_context(), &index).ok().flatten();
                block.map(|(block, _)| block)
            };
            Strips::new(served.grid(), self.cache_limit_bytes(), block)
        })
    }

    /// Returns the size of a block of a chunk in a remote store, if memory can hold the stored chunks of a slab,
    /// because each of its strips needs them again. Sequential readers take uncompressed chunks as a whole.
    fn block_bytes_of_remote(&self, remote: &dyn Remote, chunk: u64) -> Option<u64> {
        let served = &self.served;
        if served.source().is_uncompressed() {
            return None;
        }
        // The transfer of the chunk that a reader is about to load.
        let (ctx, index) = (served.load_context(), served.grid().index(chunk));
        let _claims = served.source().claim(remote, &ctx, std::slice::from_ref(&index), Indexes::Waited);
        let (block, stored_bytes) = served.source().block_bytes(&ctx, &index).ok().flatten()?;
        let chunks = slab(served.grid())?.strips;
        let fits = stored_bytes.saturating_mul(chunks) <= remote.transfer_limit_bytes() / 2;
        fits.then_some(block)
    }

    /// Has a remote store transfer the chunks of the first read: how they are cut depends on one of them, and the
    /// others need not wait for it.
    pub fn claim_before_strips(&self, range: &Range<u64>) -> Vec<Arc<dyn Claim>> {
        let Some(remote) = self.served.store().remote().filter(|_| self.strips.get().is_none()) else {
            return Vec::new();
        };
        let length = range.end - range.start;
        self.claim_chunks(remote, self.served.grid().chunks_of(range.start, length, MAX_FIRST_CHUNKS))
    }

    /// Has a remote store transfer the chunks of these strips, for a reader that waits for them.
    pub fn claim_strips(&self, strips: &[u64]) -> Vec<Arc<dyn Claim>> {
        let Some(remote) = self.served.store().remote() else { return Vec::new() };
        let mut chunks: Vec<u64> = strips.iter().map(|&strip| self.chunk_of(strip)).collect();
        chunks.dedup();
        self.claim_chunks(remote, chunks)
    }

    fn claim_chunks(&self, remote: &dyn Remote, chunks: Vec<u64>) -> Vec<Arc<dyn Claim>> {
        let served = &self.served;
        let chunks: Vec<Vec<u64>> = chunks.into_iter().map(|chunk| served.grid().index(chunk)).collect();
        served.source().claim(remote, &served.load_context(), &chunks, Indexes::Waited).all()
    }

    /// Returns the number of a strip's chunk.
    pub fn chunk_of(&self, strip: u64) -> u64 {
        self.strips.get().map_or(strip, |strips| strips.extent_of(strip).chunk)
    }

    /// Returns whether strips are smaller than chunks.
    fn is_cut(&self) -> bool {
        self.strips.get().is_some_and(Strips::is_cut)
    }

    /// Returns the bytes of the largest strip.
    pub fn strip_bytes(&self) -> u64 {
        self.strips.get().map_or(self.served.grid(), Strips::grid).largest_chunk_bytes()
    }

    /// Returns how many strips one read holds at a time.
    pub fn batch_strips(&self) -> usize {
        let share = self.cache_limit_bytes() / 4 / self.strip_bytes().max(1);
        (share as usize).min(MAX_HELD_STRIPS).max(2 * self.workers.count())
    }

    /// Returns the most bytes that the cache holds, of all arrays.
    pub fn cache_limit_bytes(&self) -> u64 {
        self.served.loads().cache.limit_bytes()
    }

    fn key(&self, strip: u64) -> CacheKey {
        let level = if self.is_cut() { STRIP_LEVEL } else { 0 };
        CacheKey { array: self.served.number(), level, number: strip }
    }

    /// Returns whether a strip is cached or being loaded, in this epoch.
    pub fn is_known(&self, strip: u64, epoch: u64) -> bool {
        self.served.loads().cache.is_known(self.key(strip), epoch)
    }

    /// Calls `each` with the name and the content of each of these strips that is cached. Loads nothing.
    pub fn peek<T>(
        &self,
        strips: impl IntoIterator<Item = (T, u64)>,
        epoch: u64,
        each: impl FnMut(T, CachedContent),
    ) {
        let keys = strips.into_iter().map(|(name, strip)| (name, self.key(strip)));
        self.served.loads().cache.peek(keys, epoch, each);
    }

    /// Counts strips that a reader found in the cache or among dirty chunks.
    pub fn record_hits(&self, hits: u64) {
        self.served.loads().cache.record_hits(hits);
    }

    /// Queues the load of a strip for a reader, which keeps `asking` alive until it has the strip.
    pub fn demand(this: &Arc<StripCache>, strip: u64, is_sequential: bool, asking: Weak<()>) {
        let (strips, meter) = (Arc::clone(this), DecodeMeter::current());
        this.workers.demand(Box::new(move || {
            if asking.strong_count() > 0 {
                // The reader sees a failure when it asks for the strip itself.
                drop(DecodeMeter::run(meter.as_ref(), || strips.load(strip, is_sequential)));
            }
        }));
    }

    /// Returns one strip, from the cache or the store. A reader that is not sequential will probably want the chunk's
    /// other strips, too.
    pub fn load(&self, number: u64, is_sequential: bool) -> Result<CachedContent> {
        let served = &self.served;
        let ctx = served.load_context();
        let strip = self.strips.get().map(|strips| (strips, strips.extent_of(number)));
        let index = served.grid().index(strip.as_ref().map_or(number, |(_, strip)| strip.chunk));
        served.loads().cache.get(
            self.key(number),
            ctx.epoch,
            |object| {
                let key = served.source().key(&ctx, &index)?;
                Ok(ctx.version(&key)? == object)
            },
            || match &strip {
                Some((strips, strip)) if strips.is_cut() => {
                    self.load_strip(&ctx, &index, strips, strip, is_sequential)
                }
                _ => served.load(&ctx, &index),
            },
        )
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
    ) -> Result<LoadedContent> {
        let has_few = slab(strips.grid()).is_some_and(|slab| slab.strips <= MAX_DECODERS as u64);
        let part_ctx = LoadContext { decoders: ctx.decoders.filter(|_| has_few), ..*ctx };
        if (is_sequential || strips.is_cheap())
            && let Some(loaded) = self.served.load_part(&part_ctx, index, strip.bytes.clone())?
        {
            return Ok(loaded);
        }
        let loaded = self.served.load(ctx, index)?;
        let CachedContent::Chunk(chunk) = &loaded.content else { return Ok(loaded) };
        let part = |strip: &StripExtent| {
            let bytes = chunk.get(strip.bytes.clone()).unwrap_or_default();
            let mut buffer = ctx.buffer(bytes.len());
            buffer.copy_from_slice(bytes);
            CachedContent::Chunk(Arc::new(buffer))
        };
        // A sequential reader comes to the other strips much later, when these would be evicted again.
        if !is_sequential {
            let version = ValidatedVersion { object: loaded.version, epoch: ctx.epoch };
            for (number, other) in strips.strips_in(strip.chunk) {
                if other != *strip {
                    self.served.loads().cache.put(self.key(number), part(&other), version);
                }
            }
        }
        Ok(LoadedContent { content: part(strip), version: loaded.version })
    }

    /// Keeps a chunk that was just stored, if a reader would load the same bytes as one strip. It is demoted if
    /// `is_demoted`: no reader is expected to ask for it, and others need the memory more. If a reader would load other
    /// bytes, drops the cached chunk.
    pub fn keep_stored(
        &self,
        number: u64,
        content: CachedContent,
        version: ValidatedVersion,
        is_demoted: bool,
    ) {
        let (cache, key) = (&self.served.loads().cache, CacheKey::chunk(self.served.number(), number));
        let source = self.served.source();
        // A lossy codec returns other bytes than were written. Uncompressed chunks are not cached. Where strips are
        // smaller than chunks, their cached entries have an older version.
        if !source.is_lossless() || source.is_uncompressed() || self.is_cut() {
            cache.forget(key);
            return;
        }
        cache.put(key, content, version);
        if is_demoted {
            cache.demote(std::iter::once(key));
        }
    }

    /// Makes these strips leave the cache before all others.
    pub fn demote(&self, strips: impl Iterator<Item = u64>) {
        self.served.loads().cache.demote(strips.map(|strip| self.key(strip)));
    }
}
