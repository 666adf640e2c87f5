//! The replacement of a stored object: its encoded chunks, and where they go.
//!
//! Uses `codec`, `memory` and `store`. `write/write_back/encode.rs` makes the encoded chunks; `rewrite.rs` stores them.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use crate::codec::pipeline::Pipeline;
use crate::codec::{CodecResult, EncodedBytes};
use crate::memory::Buffer;
use crate::store::{Info, Precondition, PutOptions, Store, Writer};

/// Where and how to store an object.
pub(in crate::array) struct PutTarget<'a> {
    /// The store, for the object's present content.
    pub store: &'a dyn Store,
    /// The store's writer.
    pub writer: &'a dyn Writer,
    /// The array's folder.
    pub within: &'a str,
    /// Owner and mode for new objects.
    pub like: &'a Info,
    /// The condition on what is replaced.
    pub precondition: Precondition,
    /// Whether the array is zero where nothing was written, so that the object's present content does not count.
    pub is_zero: bool,
}

impl<'a> PutTarget<'a> {
    /// Returns how to put the object.
    pub fn options(&self) -> PutOptions<'a> {
        PutOptions { precondition: self.precondition, ..PutOptions::new(self.within, self.like) }
    }
}

/// Encoded chunks of one object, by number. `None` for a chunk that is all fill value.
pub(in crate::array) type Encoded = HashMap<u64, Option<EncodedChunk>>;

/// The bytes of a chunk as they are stored.
pub enum EncodedChunk {
    /// The served bytes themselves. A writer that comes meanwhile gets its own copy.
    AsServed(Arc<Buffer>),
    /// The output of the codecs.
    ByCodecs(EncodedBytes),
}

impl EncodedChunk {
    /// Encodes a chunk.
    pub fn new(pipeline: &Pipeline, bytes: &Arc<Buffer>) -> CodecResult<Self> {
        if pipeline.is_identity() {
            return Ok(EncodedChunk::AsServed(Arc::clone(bytes)));
        }
        pipeline.encode(bytes).map(EncodedChunk::ByCodecs)
    }
}

impl Deref for EncodedChunk {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            EncodedChunk::AsServed(bytes) => bytes,
            EncodedChunk::ByCodecs(bytes) => bytes,
        }
    }
}
