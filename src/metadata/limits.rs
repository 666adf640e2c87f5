//! Limits for documents, checked before anything is allocated.

/// The most dimensions an array may have.
pub const MAX_RANK: usize = 32;
/// The longest metadata document that is read, in bytes.
pub const MAX_DOCUMENT_BYTES: u64 = 64 << 20;
/// The most bytes that one decoded chunk (or shard) may have.
pub const MAX_CHUNK_BYTES: u64 = 1 << 40;
