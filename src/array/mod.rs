//! Arrays as flat bytes: grid arithmetic, the chunk cache, and reading through both.
//!
//! Uses `error`, `store`, `metadata`, `codec`.

use std::sync::Arc;

use crate::error::Result;
use crate::metadata::ArrayMetadata;
pub use crate::metadata::ByteOrder;
use crate::store::Store;

/// Which index varies fastest in the served file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Last index fastest (row-major).
    #[default]
    C,
    /// First index fastest (column-major).
    F,
}

/// How the flat file shows the elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Order of the elements.
    pub order: Order,
    /// Order of the bytes in each component of an element.
    pub byte_order: ByteOrder,
}

/// What all arrays of one mount share: the chunk cache and the decoding threads.
pub struct Engine {}

impl Engine {
    /// An engine whose cache holds at most `cache_limit_bytes` and that decodes on `threads` threads.
    pub fn new(_cache_limit_bytes: u64, _threads: usize) -> Arc<Self> {
        Arc::new(Engine {})
    }
}

/// One array, open for reading as a flat file.
pub struct Array {
    metadata: Arc<ArrayMetadata>,
}

impl Array {
    /// Builds the codec chain of an array at `path` (`""` is the root). Fails with `Unsupported` or
    /// `Metadata`, naming the document and the member.
    pub fn open(
        _engine: &Arc<Engine>,
        _store: &Arc<dyn Store>,
        _path: &str,
        metadata: Arc<ArrayMetadata>,
        _layout: Layout,
    ) -> Result<Arc<Array>> {
        Ok(Arc::new(Array { metadata }))
    }

    /// Its metadata.
    pub fn metadata(&self) -> &Arc<ArrayMetadata> {
        &self.metadata
    }

    /// Length of the flat file in bytes.
    pub fn size_bytes(&self) -> u64 {
        0
    }

    /// Fills `out` from `offset`; the range must lie in the file. Blocks on the store; any failure inside the
    /// range fails the whole of it.
    pub fn read_at(&self, _offset: u64, _out: &mut [u8]) -> Result<()> {
        Ok(())
    }

    /// As [`Array::read_at`], but only if every chunk needed is in the cache now: `false` (and `out` undefined)
    /// otherwise. Never blocks on the store.
    pub fn read_cached(&self, _offset: u64, _out: &mut [u8]) -> bool {
        false
    }

    /// Tells that a reader went on sequentially from `offset`: chunks ahead may be decoded in the background.
    pub fn prefetch(&self, _offset: u64) {}

    /// Bytes of decoded chunks that one pass in served order needs at once.
    pub fn slab_bytes(&self) -> u64 {
        0
    }
}
