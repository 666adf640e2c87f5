//! Encodes the dirty chunks of one object, several at once.
//!
//! Uses `write/dirty_chunks.rs` and `object_writer.rs`, and `store` and `error`.

use std::collections::HashMap;
use std::sync::Arc;

use crate::array::geometry::byte_ranges::ByteRanges;
use crate::array::source::replacement::Encoded;
use crate::array::sync::Mutex;
use crate::array::write::dirty::DirtyChunk;
use crate::array::write::dirty_chunks::DirtyChunks;
use crate::array::write::write_back::object_writer::ObjectWriter;
use crate::error::{Error, Result};
use crate::store::ObjectVersion;

/// Chunks of an object, encoded.
#[derive(Default)]
pub struct EncodedChunks {
    /// The chunks, by number.
    pub encoded: Encoded,
    /// The generation of each chunk when it was encoded.
    pub generations: HashMap<u64, u64>,
}

/// Encodes dirty chunks of one object.
pub struct DirtyEncoder<'a> {
    /// The dirty chunks of the array.
    pub dirty: &'a DirtyChunks,
    /// Encodes the chunks.
    pub objects: &'a ObjectWriter,
    /// Whether the object is zero where no writer has written.
    pub is_zero: bool,
    /// The object's present version: the unwritten bytes of its chunks must be of that version.
    pub old: Option<ObjectVersion>,
}

impl DirtyEncoder<'_> {
    /// Encodes chunks on up to `threads` threads. Leaves out chunks that are retired. The first failure ends the work.
    pub fn encode(&self, chunks: &[(u64, Arc<DirtyChunk>)], threads: usize) -> Result<EncodedChunks> {
        let done = Mutex::new(EncodedChunks::default());
        self.objects.for_each(chunks.len() as u64, threads, "encode", |place| {
            match chunks.get(place as usize) {
                Some((number, chunk)) => self.encode_chunk(*number, chunk, &done),
                None => Ok(()),
            }
        })?;
        Ok(done.into_inner())
    }

    /// Encodes a chunk, if it is not retired.
    fn encode_chunk(&self, number: u64, chunk: &DirtyChunk, done: &Mutex<EncodedChunks>) -> Result<()> {
        let mut state = chunk.lock();
        if state.is_retired {
            return Ok(());
        }
        self.dirty.content().complete_for_storing(number, &mut state, self.is_zero, self.old)?;
        let served = self.dirty.served();
        if served.store().lacks_locks() {
            if !self.is_zero && !self.dirty.content().is_full(number, &state) && state.base != Some(self.old)
            {
                // The object changed after its version was looked up.
                return Err(Error::Changed { key: served.key_of_chunk(&served.grid().index(number))? });
            }
            // From now on, what is written is recorded apart: only these bytes may be laid over another program's later
            // ones.
            state.since = Some(ByteRanges::default());
        }
        self.dirty.recorder().record_encoded(&mut state);
        let encoded = self.objects.encode(number, &mut state.bytes)?;
        let generation = state.generation;
        drop(state);
        let mut done = done.lock();
        done.encoded.insert(number, encoded);
        done.generations.insert(number, generation);
        Ok(())
    }
}
