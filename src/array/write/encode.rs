//! Encodes the dirty chunks of one object, several at once.
//!
//! Uses its neighbours in `array`, `store`, `memory` and `error`.

use std::collections::HashMap;
use std::sync::Arc;

use crate::array::Inner;
use crate::array::geometry::byte_ranges::ByteRanges;
use crate::array::source::replacement::{Encoded, EncodedChunk};
use crate::array::sync::atomic::{AtomicUsize, Ordering};
use crate::array::sync::{self, Mutex};
use crate::array::write::dirty::DirtyChunk;
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::store::ObjectVersion;

/// The generation of each chunk when it was encoded.
pub(in crate::array) type Generations = HashMap<u64, u64>;

/// Chunks of an object, encoded.
pub(in crate::array) struct EncodedChunks {
    /// By number.
    pub encoded: Encoded,
    /// Their generations.
    pub generations: Generations,
}

/// One of them.
struct Chunk {
    /// `None` if all of it is fill value.
    encoded: Option<EncodedChunk>,
    generation: u64,
}

impl Inner {
    /// Encodes dirty chunks of an object. Elsewhere the object is zero (`is_zero`), or has the version `old` now.
    /// Leaves out chunks that are retired. The first failure ends the work.
    pub(in crate::array) fn encode_chunks(
        &self,
        chunks: &[(u64, Arc<DirtyChunk>)],
        is_zero: bool,
        old: Option<ObjectVersion>,
        threads: usize,
    ) -> Result<EncodedChunks> {
        let next = AtomicUsize::new(0);
        let none = EncodedChunks { encoded: Encoded::new(), generations: Generations::new() };
        let done = Mutex::new(none);
        let failure: Mutex<Option<Error>> = Mutex::default();
        let run = || {
            while let Some((number, chunk)) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                match self.encode_chunk(*number, chunk, is_zero, old) {
                    Ok(Some(chunk)) => {
                        let mut done = done.lock();
                        done.encoded.insert(*number, chunk.encoded);
                        done.generations.insert(*number, chunk.generation);
                    }
                    Ok(None) => {}
                    Err(error) => {
                        next.store(chunks.len(), Ordering::Relaxed);
                        failure.lock().get_or_insert(error);
                    }
                }
            }
        };
        sync::on_threads(threads.min(chunks.len()), "encode", run);
        match failure.into_inner() {
            Some(error) => Err(error),
            None => Ok(done.into_inner()),
        }
    }

    /// Encodes a chunk; `None` if the chunk is retired.
    fn encode_chunk(
        &self,
        number: u64,
        chunk: &DirtyChunk,
        is_zero: bool,
        old: Option<ObjectVersion>,
    ) -> Result<Option<Chunk>> {
        let mut state = chunk.lock();
        if state.is_retired {
            return Ok(None);
        }
        let index = self.grid.index(number);
        self.complete_for_storing(number, &mut state, is_zero, old)?;
        let is_written = state.written.total() >= self.inside_bytes(number);
        if self.store.lacks_locks() {
            if !is_zero && !is_written && state.base != Some(old) {
                // The object changed after it was looked at.
                return Err(Error::Changed { key: self.source.key(&self.load_context(), &index)? });
            }
            state.since = Some(ByteRanges::default());
        }
        let bytes = Arc::make_mut(&mut state.bytes);
        self.fill_padding(&index, bytes);
        let _permit = self.engine.encoders.take();
        let encoded = self.source.encode(&self.load_context(), &index, &state.bytes)?;
        Ok(Some(Chunk { encoded, generation: state.generation }))
    }

    /// Adds the chunks of a zeroed object that no writer has written since.
    pub(in crate::array) fn encode_zeros(&self, object: u64, encoded: &mut Encoded) -> Result<()> {
        for number in self.source.chunks_of(object) {
            if let std::collections::hash_map::Entry::Vacant(entry) = encoded.entry(number) {
                let index = self.grid.index(number);
                let length = self.chunk_shape(&index).iter().product::<u64>() as usize * self.fill.len();
                let mut zeros = Buffer::sparse(length);
                self.fill_padding(&index, &mut zeros);
                entry.insert(self.source.encode(&self.load_context(), &index, &Arc::new(zeros))?);
            }
        }
        Ok(())
    }
}
