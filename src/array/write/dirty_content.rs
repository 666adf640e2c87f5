//! The bytes of one array's dirty chunks: the buffer of the first write, what no writer has written, and the memory that both take.
//!
//! Uses `dirty.rs` and `resources.rs`, `geometry/`, `served/`, `memory` and `store`. It does not know which chunks are dirty: the caller holds
//! the lock of each chunk that it passes.

use std::sync::Arc;

use crate::array::cache::LoadedContent;
use crate::array::geometry::strips::slab;
use crate::array::served::ServedArray;
use crate::array::workers::Workers;
use crate::array::write::dirty::ChunkState;
use crate::array::write::resources::WriteResources;
use crate::error::Result;
use crate::memory::Buffer;
use crate::store::ObjectVersion;

/// Requests of this length come from programs that write whole chunks.
const MIN_FULL_REQUEST_BYTES: usize = 16 << 10;

/// Provides the bytes of dirty chunks, and counts their memory toward the dirty limit.
pub struct DirtyContent {
    served: Arc<ServedArray>,
    workers: Arc<Workers>,
    resources: Arc<WriteResources>,
}

impl DirtyContent {
    /// Creates the content of an array's dirty chunks.
    pub fn new(served: &Arc<ServedArray>, workers: &Arc<Workers>, resources: &Arc<WriteResources>) -> Self {
        DirtyContent {
            served: Arc::clone(served),
            workers: Arc::clone(workers),
            resources: Arc::clone(resources),
        }
    }

    /// Returns the content for an array that continues this one.
    pub fn successor(&self, served: &Arc<ServedArray>) -> Self {
        DirtyContent::new(served, &self.workers, &self.resources)
    }

    /// Creates a chunk without written bytes, for a write that brings `request_bytes` of it.
    pub fn empty_chunk(&self, number: u64, request_bytes: usize) -> ChunkState {
        let length = self.served.grid().chunk_bytes(&self.served.grid().index(number));
        ChunkState::new(self.first_buffer(length, request_bytes))
    }

    /// Returns a buffer for a chunk's first write, which brings `request_bytes` of it.
    ///
    /// A writer of long requests with a slab within the dirty limit fills the chunk, so it gets a recycled buffer.
    /// Other writers get a buffer that takes memory only where it is touched.
    fn first_buffer(&self, length: usize, request_bytes: usize) -> Buffer {
        let slab_bytes = slab(self.served.grid()).map_or(u64::MAX, |slab| slab.bytes);
        let is_filled = request_bytes >= length.min(MIN_FULL_REQUEST_BYTES)
            && slab_bytes <= self.resources.dirty_limit_bytes();
        if !is_filled {
            return Buffer::sparse(length);
        }
        let buffer = self.served.load_context().buffer(length);
        if let Some(untouched) = buffer.untouched() {
            // Another thread provides the memory: the writer waits for each reply and leaves a processor idle.
            self.workers.ahead(Box::new(move || untouched.provide()));
        }
        buffer
    }

    /// Returns whether all bytes of a chunk are there, so that it can be read.
    pub fn is_complete(&self, number: u64, state: &ChunkState) -> bool {
        state.base.is_some() || self.is_full(number, state)
    }

    /// Returns whether writers have written all bytes of a chunk that lie in the array.
    pub fn is_full(&self, number: u64, state: &ChunkState) -> bool {
        state.written.total() >= self.served.grid().inside_bytes(number)
    }

    /// Loads the bytes of a chunk that no writer has written from the store.
    pub fn complete(&self, number: u64, state: &mut ChunkState, is_zero: bool) -> Result<()> {
        if self.is_complete(number, state) {
            return Ok(());
        }
        let loaded = if is_zero { None } else { Some(self.load_base(number)?) };
        state.merge(loaded, self.served.fill());
        self.count(state);
        Ok(())
    }

    /// Completes a chunk before it is stored in place of an object that has version `now`: its base must be of that
    /// version.
    pub fn complete_for_storing(
        &self,
        number: u64,
        state: &mut ChunkState,
        is_zero: bool,
        now: Option<ObjectVersion>,
    ) -> Result<()> {
        match state.base {
            Some(base) if !is_zero && !self.is_full(number, state) => {
                if base != now {
                    let loaded = self.load_base(number)?;
                    state.merge(Some(loaded), self.served.fill());
                }
                Ok(())
            }
            _ => self.complete(number, state, is_zero),
        }
    }

    /// Loads the stored chunk without the cache.
    fn load_base(&self, number: u64) -> Result<LoadedContent> {
        self.resources.record_base();
        self.served.source().load(&self.served.load_context(), &self.served.grid().index(number))
    }

    /// Counts the chunk's memory toward the dirty limit.
    pub fn count(&self, state: &mut ChunkState) {
        let now = state.memory_bytes();
        if now >= state.counted {
            self.resources.add_dirty(now - state.counted);
        } else {
            self.resources.remove_dirty(state.counted - now);
        }
        state.counted = now;
    }

    /// Takes a chunk's memory out of the dirty limit, because the chunk is dirty no longer.
    pub fn end_count(&self, state: &mut ChunkState) {
        self.resources.remove_dirty(std::mem::take(&mut state.counted));
    }
}
