//! Where chunks come from: a source loads and decodes one chunk of an array.
//!
//! There are two kinds: `unsharded.rs`, where each chunk is an object, and `sharded.rs`, where each shard is an object
//! and its inner chunks are the chunks. Uses `store`, `metadata`, `codec`, `memory`, and in `array` `cache` and
//! `geometry`.

#[cfg(test)]
mod key_tests;
pub mod open_objects;
pub mod replacement;
pub mod resumable_decoders;
pub mod shard_rewrite;
pub mod sharded;
pub mod stored_objects;
pub mod unsharded;
pub mod versions;

use std::cell::Cell;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, OnceLock};

use crate::array::cache::{ChunkCache, Loaded};
use crate::array::geometry::grid::Axis;
use crate::array::source::replacement::Target;
use crate::array::source::replacement::{Encoded, EncodedChunk};
use crate::array::source::resumable_decoders::ResumableDecoders;
use crate::array::source::versions::SeenVersions;
use crate::codec::{CodecError, CodecResult, StoredBytes, scratch};
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::metadata::ChunkKeyEncoding;
use crate::store::{Object, ObjectVersion, Store, join};

/// The most bytes of a decoded chunk, which memory holds as a whole.
pub const MAX_CHUNK_BYTES: u64 = 4 << 30;

/// Loads, decodes, encodes and stores chunks.
pub trait Source: Send + Sync {
    /// The axes of the grid of chunks, in served order.
    fn axes(&self) -> &[Axis];
    /// Loads the chunk with these per-axis numbers.
    fn load(&self, ctx: &LoadContext<'_>, chunk: &[u64]) -> Result<Loaded>;
    /// Loads these bytes of the decoded chunk, which begin and end between elements. Also returns how many bytes were
    /// decoded for them. `None` if only a whole chunk can be loaded.
    fn load_part(
        &self,
        ctx: &LoadContext<'_>,
        chunk: &[u64],
        part: Range<usize>,
    ) -> Result<Option<(Loaded, usize)>>;
    /// The size of a block of the decoded chunk that decodes on its own. `None` if there are no blocks, or the chunk is
    /// missing.
    fn block_bytes(&self, ctx: &LoadContext<'_>, chunk: &[u64]) -> Result<Option<u64>>;
    /// The store key of the object that holds the chunk.
    fn key(&self, ctx: &LoadContext<'_>, chunk: &[u64]) -> Result<String>;
    /// Opens the object of an uncompressed chunk, for reading ranges. `None` if the chunk is missing.
    fn open_raw(&self, _ctx: &LoadContext<'_>, _chunk: &[u64]) -> Result<Option<Box<dyn Object>>> {
        Ok(None)
    }
    /// Whether chunks are uncompressed, so reads use [`Source::open_raw`] rather than the cache.
    fn is_uncompressed(&self) -> bool {
        false
    }
    /// Whether uncompressed chunks are stored exactly as they are served.
    fn is_stored_as_served(&self) -> bool {
        false
    }
    /// The keys of the objects.
    fn keys(&self) -> &Keys;
    /// The axes of the grid of objects, in served order.
    fn object_axes(&self) -> &[Axis] {
        self.axes()
    }
    /// The number of the object that holds the chunk.
    fn object(&self, chunk: &[u64]) -> u64;
    /// How many objects the array has, stored or not.
    fn objects(&self) -> u64;
    /// The per-axis numbers of the chunks in an object.
    fn chunk_ranges(&self, object: u64) -> Vec<Range<u64>>;
    /// How many chunks an object has.
    fn chunk_count(&self, object: u64) -> u64 {
        self.chunk_ranges(object).into_iter().map(|range| range.end - range.start).product()
    }
    /// The numbers of the chunks in an object.
    fn chunks_of(&self, object: u64) -> Vec<u64> {
        let ranges = self.chunk_ranges(object);
        self.axes().iter().zip(ranges).fold(vec![0], |chunks, (axis, range)| {
            chunks
                .iter()
                .flat_map(|&chunk| range.clone().map(move |number| chunk * axis.count() + number))
                .collect()
        })
    }
    /// Encodes a chunk. `None` if all of it is fill value and it need not be stored.
    fn encode(
        &self,
        ctx: &LoadContext<'_>,
        chunk: &[u64],
        bytes: &Arc<Buffer>,
    ) -> Result<Option<EncodedChunk>>;
    /// Replaces these chunks of an object. Deletes the object if nothing is left in it. Returns its key and new
    /// version.
    fn store(
        &self,
        ctx: &LoadContext<'_>,
        target: &Target<'_>,
        object: u64,
        encoded: &Encoded,
    ) -> Result<(String, Option<ObjectVersion>)>;
    /// Whether decoding always returns what was encoded.
    fn is_lossless(&self) -> bool;
    /// Turns uncompressed bytes (whole elements) into their served form.
    fn fix_raw(&self, _elements: &mut [u8]) -> Result<()> {
        Ok(())
    }
}

/// What a source may use during a load.
#[derive(Clone, Copy)]
pub struct LoadContext<'a> {
    /// The store.
    pub store: &'a dyn Store,
    /// Records the versions of the objects that are read.
    pub served: &'a SeenVersions,
    /// Holds shard indexes.
    pub cache: &'a ChunkCache,
    /// Suspended decoders, for chunks that are decoded in parts; `None` if too many chunks take turns.
    pub decoders: Option<&'a ResumableDecoders>,
    /// The array's number in the engine.
    pub array: u64,
    /// The array's present epoch.
    pub epoch: u64,
}

impl LoadContext<'_> {
    /// Opens an object for reading parts of it.
    pub fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        self.served.open(self.store, key)
    }

    /// The present version of an object, of which the caller uses something.
    pub fn version(&self, key: &str) -> Result<Option<ObjectVersion>> {
        self.served.version(self.store, key)
    }

    /// A buffer of exactly `length` bytes with undefined content, recycled if possible.
    pub fn buffer(&self, length: usize) -> Buffer {
        // Idle memory is left to buffers that return it: what goes into the cache does not come back soon.
        self.cache.reclaim(length).unwrap_or_else(|| Buffer::new(length))
    }
}

/// The stored bytes of one chunk in its object.
pub struct StoredChunk<'a> {
    object: &'a dyn Object,
    start: u64,
    size_bytes: u64,
    /// The error of a read that failed.
    failure: Cell<Option<Error>>,
}

impl<'a> StoredChunk<'a> {
    /// `size_bytes` of an object from `start`.
    pub fn new(object: &'a dyn Object, start: u64, size_bytes: u64) -> Self {
        StoredChunk { object, start, size_bytes, failure: Cell::new(None) }
    }

    /// The outcome of decoding. If the store failed, its error replaces the codec's.
    pub fn outcome<T>(&self, decoded: CodecResult<T>, key: &str) -> Result<T> {
        decoded.map_err(|error| self.failure.take().unwrap_or_else(|| corrupt(key)(error)))
    }
}

impl StoredBytes for StoredChunk<'_> {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> CodecResult<()> {
        self.object.read_exact_at(self.start + offset, out).map_err(|error| {
            let reason = error.to_string();
            self.failure.set(Some(error));
            CodecError::new(reason)
        })
    }
}

/// Turns per-axis chunk numbers in served order into store keys.
pub struct Keys {
    /// Path of the array, `""` for the root.
    path: String,
    encoding: ChunkKeyEncoding,
    /// The served axes are the array's in reverse.
    is_reversed: bool,
    /// The separator found in the store, if the document names none.
    found: OnceLock<char>,
}

impl Keys {
    /// Keys below the array at `path`.
    pub fn new(path: &str, encoding: ChunkKeyEncoding, is_reversed: bool) -> Self {
        Keys { path: path.to_owned(), encoding, is_reversed, found: OnceLock::new() }
    }

    /// Path of the array.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether the served axes are the array's in reverse.
    pub fn is_reversed(&self) -> bool {
        self.is_reversed
    }

    /// The key of a chunk.
    pub fn key(&self, store: &dyn Store, chunk: &[u64]) -> Result<String> {
        let mut index = chunk.to_vec();
        if self.is_reversed {
            index.reverse();
        }
        let mut encoding = self.encoding.clone();
        if encoding.separator_is_assumed && index.len() > 1 {
            encoding.separator = match self.found.get() {
                Some(separator) => *separator,
                None => self.find_separator(store, &index)?,
            };
        }
        Ok(join(&self.path, &encoding.key(&index)))
    }

    /// v2 leaves the separator open: it is the one in the key of the first chunk that is stored, `.` before `/`. A chunk that
    /// is missing under both keys is missing, and the next one decides.
    fn find_separator(&self, store: &dyn Store, index: &[u64]) -> Result<char> {
        const SEPARATORS: [char; 2] = ['.', '/'];
        let key =
            |separator| join(&self.path, &ChunkKeyEncoding { separator, ..self.encoding.clone() }.key(index));
        let keys = SEPARATORS.map(key);
        for (separator, info) in
            SEPARATORS.into_iter().zip(store.head_many(&keys.each_ref().map(String::as_str)))
        {
            if info?.is_some() {
                return Ok(*self.found.get_or_init(|| separator));
            }
        }
        Ok('.')
    }

    /// The chunk key encoding for this many numbers, for a caller that writes chunks or lists them. If v2 leaves the separator
    /// open and no chunk was read yet, lists the array's folder once: nested keys count only if no `.` key exists.
    pub fn encoding(&self, store: &dyn Store, rank: usize) -> Result<ChunkKeyEncoding> {
        let mut encoding = self.encoding.clone();
        if encoding.separator_is_assumed && rank > 1 {
            encoding.separator = match self.found.get() {
                Some(separator) => *separator,
                None => {
                    let found = probe_separator(store, &self.path)?;
                    *self.found.get_or_init(|| found)
                }
            };
        }
        Ok(encoding)
    }
}

/// `.`, unless the folder has folders with numbers as names and no object like `0.1`.
fn probe_separator(store: &dyn Store, folder: &str) -> Result<char> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let (mut nested, mut flat) = (false, false);
    store.each_name(folder, &mut |entry| {
        nested |= entry.is_folder && is_number(&entry.name);
        flat = !entry.is_folder && entry.name.contains('.') && entry.name.split('.').all(is_number);
        if flat { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(if nested && !flat { '/' } else { '.' })
}

/// Adds the key of the object to a codec's error.
pub fn corrupt(key: &str) -> impl Fn(CodecError) -> Error + '_ {
    move |error| {
        if error.is_unsupported {
            Error::unsupported(key, error.reason)
        } else {
            Error::corrupt(key, error.reason)
        }
    }
}

/// Reads a whole object of at most `limit_bytes`. Returns its bytes and version.
pub fn read_whole(
    ctx: &LoadContext<'_>,
    key: &str,
    limit_bytes: u64,
) -> Result<Option<(Buffer, ObjectVersion)>> {
    let Some(object) = ctx.open(key)? else { return Ok(None) };
    let size = object.size_bytes();
    if size > limit_bytes {
        let reason = format!("{size} bytes stored; a chunk has at most {limit_bytes}");
        return Err(Error::corrupt(key, reason));
    }
    // The store says that an object of this size exists, and the size is within the limit.
    let size = usize::try_from(size).map_err(|_| Error::corrupt(key, "too large for this machine"))?;
    let mut bytes = scratch::transient(size).map_err(corrupt(key))?;
    object.read_exact_at(0, &mut bytes)?;
    Ok(Some((bytes, object.version())))
}

/// Adds the key of the object to a codec's error while encoding.
pub fn unencodable(key: &str) -> impl Fn(CodecError) -> Error + '_ {
    move |error| Error::Unencodable { key: key.to_owned(), reason: error.reason }
}

/// Whether `bytes` repeat `fill`.
pub fn is_all(fill: &[u8], bytes: &[u8]) -> bool {
    let is_periodic = || match bytes.len().checked_sub(fill.len()) {
        Some(rest) => bytes.get(fill.len()..) == bytes.get(..rest),
        None => false,
    };
    bytes.starts_with(fill) && is_periodic()
}
