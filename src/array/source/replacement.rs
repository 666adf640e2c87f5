//! What replaces a stored object: its chunks as they are to be stored, and where they go.
//!
//! Uses `codec`, `memory` and `store`. `write/encode.rs` makes the encoded chunks; the sources store them.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use crate::codec::pipeline::Pipeline;
use crate::codec::{CodecResult, EncodedBytes};
use crate::memory::Buffer;
use crate::store::{Info, Store, Writer};

/// What a source is given to store an object with.
pub(in crate::array) struct Target<'a> {
    /// The store, for what the object holds now.
    pub store: &'a dyn Store,
    /// Its writing half.
    pub writer: &'a dyn Writer,
    /// The array's folder.
    pub within: &'a str,
    /// Owner and mode of what is new.
    pub like: &'a Info,
    /// The array is zero where nothing was written: what the object holds now does not count.
    pub is_zero: bool,
}

/// DirtyMap of one object that are to be stored: encoded, `None` for all fill value.
pub(in crate::array) type Encoded = HashMap<u64, Option<EncodedChunk>>;

/// A chunk's bytes as they are to be stored.
pub enum EncodedChunk {
    /// Those that are served: a writer who comes meanwhile gets a copy of them to write to.
    AsServed(Arc<Buffer>),
    /// What codecs made of them.
    ByCodecs(EncodedBytes),
}

impl EncodedChunk {
    /// Encodes a chunk.
    pub fn new(pipeline: &Pipeline, bytes: &Arc<Buffer>) -> CodecResult<Self> {
        match pipeline.is_identity() {
            true => Ok(EncodedChunk::AsServed(Arc::clone(bytes))),
            false => pipeline.encode(bytes).map(EncodedChunk::ByCodecs),
        }
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
