//! Arrays with elements of no fixed size, read from front to back.
//!
//! Spec: v3 core "Chunk storage"; v2 "Chunk encoding". Uses `store`, `metadata`, `codec`, and in `array` `cache`,
//! `geometry` and `source`. `codec_chain.rs` decodes a chunk.
//!
//! Elements have different sizes, so there is no flat file that could be read in parts, and no chunk is cached. A read
//! goes through the array in C order, row of chunks by row of chunks along the first axis. Memory holds one row at a
//! time, as an [`ElementRow`], within the limit of the chunk cache.

pub mod codec_chain;
pub mod element_row;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod variable_tests;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use crate::array::Engine;
use crate::array::geometry::axis::{self, Axis, numbers};
use crate::array::geometry::axis_order::AxisOrder;
use crate::array::reservation::Reservation;
use crate::array::source::corrupt;
use crate::array::source::objects::hash_versions;
use crate::array::source::objects::keys::Keys;
use crate::array::variable::codec_chain::{DecodeTarget, VariableChain};
use crate::array::variable::element_row::{ElementRow, reserve};
use crate::codec::CodecError;
use crate::codec::vlen::Vlen;
use crate::error::{Error, Result};
use crate::metadata::{ArrayMetadata, DataType, VariableLength};
use crate::store::{ObjectVersion, Store};

/// The most chunks (or shards) that one read looks for.
const MAX_OBJECTS: u64 = 1 << 20;

/// An array of strings or of bytes.
pub struct VariableArray {
    store: Arc<dyn Store>,
    metadata: Arc<ArrayMetadata>,
    keys: Keys,
    axes: Vec<Axis>,
    vlen: Vlen,
    /// The chain of the largest chunk. In a regular grid, all chunks have it.
    chain: VariableChain,
    chain_shape: Vec<u64>,
}

/// The row of chunks that a reader of an array of one axis read last, with its memory.
pub struct ChunkOfStrings {
    row: u64,
    elements: ElementRow,
    _held: Reservation,
}

impl VariableArray {
    /// Builds the codec chain of an array at `path` (`""` is the root). Fails with `Unsupported` or `Metadata`, and
    /// names the document and the member.
    pub fn open(store: &Arc<dyn Store>, path: &str, metadata: &Arc<ArrayMetadata>) -> Result<VariableArray> {
        let document_key = metadata.document_key.as_str();
        let vlen = match &metadata.data_type {
            DataType::VariableLength(VariableLength::Utf8) => Vlen::Utf8,
            DataType::VariableLength(VariableLength::Bytes) => Vlen::Bytes,
            DataType::VariableLength(VariableLength::Other(name)) if name == "optional" => {
                let reason =
                    "optional elements of elements that are optional themselves or have no fixed size";
                return Err(Error::unsupported(document_key, reason));
            }
            DataType::VariableLength(VariableLength::Other(name)) => {
                return Err(Error::unsupported(document_key, format!("a text form of {name}")));
            }
            fixed => {
                let reason = format!("elements of variable length in data type {}", fixed.name());
                return Err(Error::unsupported(document_key, reason));
            }
        };
        let Some(axes) = axis::axes(&metadata.shape, &metadata.chunk_grid) else {
            return Err(Error::metadata(document_key, "the chunk grid ends before the array does"));
        };
        let chain_shape: Vec<u64> = axes.iter().map(Axis::longest).collect();
        let chain =
            VariableChain::build(&metadata.codecs, &chain_shape, vlen).map_err(of_document(document_key))?;
        let axis_order = AxisOrder::new(metadata.shape.len(), false, None);
        let keys = Keys::new(path, metadata.chunk_keys.clone(), axis_order);
        let (store, metadata) = (store.clone(), metadata.clone());
        Ok(VariableArray { store, metadata, keys, axes, vlen, chain, chain_shape })
    }

    /// Returns the array's metadata.
    pub fn metadata(&self) -> &ArrayMetadata {
        &self.metadata
    }

    /// Returns how many elements it has.
    pub fn elements(&self) -> u64 {
        if self.metadata.shape.contains(&0) {
            return 0;
        }
        self.metadata.shape.iter().fold(1, |product, &length| product.saturating_mul(length))
    }

    /// Returns a number that changes, in all likelihood, when a chunk is written, replaced or deleted. Reads only
    /// versions.
    pub fn version(&self) -> Result<u64> {
        self.check_objects()?;
        let mut version = DefaultHasher::new();
        let keys = (0..self.objects()).map(|object| self.key(object));
        hash_versions(self.store.as_ref(), keys, &mut version)?;
        Ok(version.finish())
    }

    /// Calls `visit` with each element in C order; a missing one is the fill value. `held` reserves the memory. Returns
    /// the [`VariableArray::version`] that was read.
    pub fn read(&self, held: &mut Reservation, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<u64> {
        self.check_objects()?;
        let mut version = DefaultHasher::new();
        for row in 0..self.rows() {
            let before = held.bytes();
            self.read_row(row, held, &mut version)?.visit(&self.metadata.fill_value.bytes, visit)?;
            held.shrink(held.bytes() - before);
        }
        Ok(version.finish())
    }

    /// Calls `visit` with each element of a range of an array of one axis. `last` is the chunk that was read last; a
    /// reader passes it on to its next read.
    pub fn read_range(
        &self,
        engine: &Arc<Engine>,
        range: Range<u64>,
        last: &mut Option<ChunkOfStrings>,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let past_the_end =
            || Error::InvalidValue(format!("elements {range:?} are past the end of the array"));
        let [axis] = self.axes.as_slice() else { return Err(past_the_end()) };
        let mut at = range.start;
        while at < range.end {
            if at >= axis.extent() {
                return Err(past_the_end());
            }
            let row = axis.locate(at).index;
            let chunk = match last.take().filter(|chunk| chunk.row == row) {
                Some(chunk) => last.insert(chunk),
                None => {
                    self.check_objects()?;
                    let mut held = Reservation::new(engine);
                    let elements = self.read_row(row, &mut held, &mut DefaultHasher::new())?;
                    last.insert(ChunkOfStrings { row, elements, _held: held })
                }
            };
            let start = axis.span(row).start;
            let end = range.end.min(start + chunk.elements.count() as u64);
            if end <= at {
                return Err(past_the_end());
            }
            let places = (at - start) as usize..(end - start) as usize;
            chunk.elements.visit_places(places, &self.metadata.fill_value.bytes, visit)?;
            at = end;
        }
        Ok(())
    }

    /// Returns how many chunks the first axis has.
    fn rows(&self) -> u64 {
        self.axes.first().map_or(1, Axis::count)
    }

    /// Returns how many chunks (or shards) there are.
    fn objects(&self) -> u64 {
        self.axes.iter().fold(1, |product: u64, axis| product.saturating_mul(axis.count()))
    }

    /// Returns the key of a chunk.
    fn key(&self, chunk: u64) -> Result<String> {
        self.keys.key(self.store.as_ref(), &numbers(&self.axes, chunk))
    }

    fn check_objects(&self) -> Result<()> {
        let objects = self.objects();
        if objects <= MAX_OBJECTS {
            return Ok(());
        }
        let reason = format!("{objects} chunks; a text form is made of at most {MAX_OBJECTS}");
        Err(Error::TooLarge { key: self.metadata.document_key.clone(), reason })
    }

    fn read_row(&self, row: u64, held: &mut Reservation, version: &mut DefaultHasher) -> Result<ElementRow> {
        let document_key = self.metadata.document_key.as_str();
        let mut elements = ElementRow::new(&self.axes, row, held, document_key)?;
        let per_row: u64 = self.axes.iter().skip(1).map(Axis::count).product();
        for chunk in row * per_row..(row + 1) * per_row {
            let key = self.key(chunk)?;
            let found = self.read_object(&key, held)?;
            found.as_ref().map(|(_, version)| *version).hash(version);
            let Some((encoded, _)) = found else { continue };
            let index = numbers(&self.axes, chunk);
            let spans = || self.axes.iter().zip(&index).map(|(axis, &number)| axis.span(number));
            let origin: Vec<u64> = spans().map(|span| span.start).collect();
            let shape: Vec<u64> = spans().map(|span| span.length).collect();
            let of_this_shape;
            let chain = if shape == self.chain_shape {
                &self.chain
            } else {
                let built = VariableChain::build(&self.metadata.codecs, &shape, self.vlen);
                of_this_shape = built.map_err(of_document(document_key))?;
                &of_this_shape
            };
            let mut target = DecodeTarget { key: &key, elements: &mut elements, held };
            chain.decode(&encoded, &origin, &mut target)?;
            held.shrink(encoded.len() as u64);
        }
        Ok(elements)
    }

    /// Reads a whole object and its version.
    fn read_object(&self, key: &str, held: &mut Reservation) -> Result<Option<(Vec<u8>, ObjectVersion)>> {
        let Some(object) = self.store.open(key)? else { return Ok(None) };
        let size_bytes = object.size_bytes();
        reserve(held, size_bytes, key)?;
        let length = usize::try_from(size_bytes)
            .map_err(|_| Error::corrupt(key, "more bytes than this machine can address"))?;
        let mut encoded = vec![0; length];
        object.read_exact_at(0, &mut encoded)?;
        Ok(Some((encoded, object.version())))
    }
}

/// Adds the document's key to a codec's error while a chain is built.
fn of_document(key: &str) -> impl Fn(CodecError) -> Error + '_ {
    move |error| {
        if error.is_unsupported { corrupt(key)(error) } else { Error::metadata(key, error.reason) }
    }
}
