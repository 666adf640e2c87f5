//! Metadata documents of Zarr v1, v2 and v3, all turned into one [`ArrayMetadata`].
//!
//! No I/O: a document comes in as bytes with its key, a value or an error comes out. v1 and v2 are
//! rewritten in v3's terms (a chunk grid, a chunk key encoding, a chain of codecs), so that there is
//! one pipeline behind this module. Spec: v3 core, "Metadata"; v2 and v1, "Metadata". Uses `error` only.
//!
//! Invariants of what comes out: `shape`, the grid and `dimension_names` have the same rank (≤
//! [`MAX_RANK`]); `product(shape) × item size` fits i64; no chunk is longer than [`MAX_CHUNK_BYTES`];
//! the fill value has exactly one item's bytes.

mod array;
mod chunk_grid;
mod chunk_keys;
pub mod codec_spec;
mod consolidated;
pub mod data_type;
mod data_type_v2;
pub mod data_type_v3;
pub mod decimal;
pub mod fault;
mod fill_json;
mod fill_number;
pub mod fill_value;
pub mod json;
pub mod minifloat;
mod v1;
mod v2;
mod v3;

use serde_json::{Map, Value};

use crate::error::Result;

pub use consolidated::{consolidated_children, consolidated_node};
pub use data_type::{ByteOrder, DataType, VariableLength};
pub use data_type_v2::{Dtype, Stored, parse as parse_dtype_v2};
pub use data_type_v3::parse as parse_data_type_v3;
pub use fill_value::FillValue;

/// The most dimensions an array may have.
pub const MAX_RANK: usize = 32;
/// The longest metadata document that is read, in bytes.
pub const MAX_DOCUMENT_BYTES: u64 = 64 << 20;
/// The most bytes that one decoded chunk (or shard) may have.
pub const MAX_CHUNK_BYTES: u64 = 1 << 40;

/// Which version of the Zarr specification wrote a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZarrFormat {
    /// `meta` and `attrs`.
    V1,
    /// `.zarray`, `.zgroup`, `.zattrs`.
    V2,
    /// `zarr.json`.
    V3,
}

/// How an array is cut into chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkGrid {
    /// Every chunk has this shape (v3 core, "Regular grids").
    Regular(Vec<u64>),
    /// Per axis, the lengths of the chunks in order, as runs of (length, count).
    Rectilinear(Vec<Vec<(u64, u64)>>),
}

/// How chunk indices become keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkKeyEncoding {
    /// `c/0/1` when true (v3 "default"), `0/1` when false ("v2").
    pub prefixed: bool,
    /// `/` or `.`.
    pub separator: char,
    /// v2 only: the document named no separator. `.` is meant; stores with `/` keys exist, so a reader
    /// probes for them when no `.` key is there.
    pub separator_is_assumed: bool,
}

/// Which table of names a codec's name belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecFamily {
    /// Registered and `numcodecs.*` names of v3.
    V3,
    /// numcodecs ids of v2 filters and compressors, plus `transpose` and `bytes` that v2's `order` and
    /// `dtype` are rewritten to. A v2 filter sees bytes in storage order and storage byte order.
    V2,
}

/// One member of a codec chain, as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct CodecSpec {
    /// The table that `name` is looked up in.
    pub family: CodecFamily,
    /// `name` (v3) or `id` (v2).
    pub name: String,
    /// The configuration object (v3) or the remaining members (v2).
    pub configuration: Map<String, Value>,
    /// v3 core "must_understand": false lets a reader skip what it does not know.
    pub must_understand: bool,
}

/// All that is needed to read an array.
#[derive(Clone, Debug)]
pub struct ArrayMetadata {
    /// Version of the document.
    pub zarr_format: ZarrFormat,
    /// The store key of the document, for error texts.
    pub document_key: String,
    /// Elements per dimension.
    pub shape: Vec<u64>,
    /// Type of the elements.
    pub data_type: DataType,
    /// What a missing chunk holds.
    pub fill_value: FillValue,
    /// How it is cut.
    pub chunk_grid: ChunkGrid,
    /// Where the chunks are.
    pub chunk_keys: ChunkKeyEncoding,
    /// From the array's elements to stored bytes, in the order of encoding.
    pub codecs: Vec<CodecSpec>,
    /// Names of the dimensions, where given (v3, or `_ARRAY_DIMENSIONS`).
    pub dimension_names: Option<Vec<Option<String>>>,
    /// The user's attributes, verbatim (bare NaN and Infinity as strings).
    pub attributes: Map<String, Value>,
    /// Why the attributes' own document (`.zattrs`, `attrs`) could not be read. The node is served
    /// all the same, with no attributes.
    pub attributes_error: Option<String>,
    /// Names of extensions that the document asks for and lets readers skip (`"must_understand": false`), and
    /// that were skipped: such an array must not be written.
    pub skipped: Vec<String>,
    /// The document's own members as stored, without `attributes` (bare NaN as strings).
    pub document: Map<String, Value>,
}

/// A group's document.
#[derive(Clone, Debug)]
pub struct GroupMetadata {
    /// Version, `None` for a folder without a document (an implicit group).
    pub zarr_format: Option<ZarrFormat>,
    /// The store key of the document; of the folder where there is none.
    pub document_key: String,
    /// The user's attributes, verbatim.
    pub attributes: Map<String, Value>,
    /// As [`ArrayMetadata::attributes_error`].
    pub attributes_error: Option<String>,
    /// Metadata of nodes below, by relative path, where the group carries a consolidated copy.
    pub consolidated: Option<Map<String, Value>>,
}

/// What a metadata document describes.
#[derive(Clone, Debug)]
pub enum Document {
    /// A group.
    Group(GroupMetadata),
    /// An array.
    Array(ArrayMetadata),
}

/// Reads a v3 `zarr.json`. `key` is its store key, for error texts and `document_key`.
pub fn parse_v3(key: &str, document: &[u8]) -> Result<Document> {
    let parsed = json::parse_object(document).and_then(|members| v3::parse(key, members));
    parsed.map_err(|fault| fault.into_error(key))
}

/// Reads a v2 array: `.zarray`, and `.zattrs` where there is one. `key` is that of the `.zarray`. A broken
/// `.zattrs` costs the attributes alone.
pub fn parse_v2_array(key: &str, zarray: &[u8], zattrs: Option<&[u8]>) -> Result<ArrayMetadata> {
    let parsed = json::parse_object(zarray)
        .and_then(|members| v2::parse_array(key, members, v2::attributes(key, zattrs)));
    parsed.map_err(|fault| fault.into_error(key))
}

/// Reads a v2 group: `.zgroup`, `.zattrs` and `.zmetadata` where there are such. `key` is that of the `.zgroup`.
/// A broken `.zattrs` costs the attributes alone, a broken `.zmetadata` nothing else.
pub fn parse_v2_group(
    key: &str,
    zgroup: &[u8],
    zattrs: Option<&[u8]>,
    zmetadata: Option<&[u8]>,
) -> Result<GroupMetadata> {
    let consolidated = zmetadata.and_then(|document| consolidated::zmetadata(key, document));
    let parsed = json::parse_object(zgroup)
        .and_then(|members| v2::parse_group(key, &members, v2::attributes(key, zattrs), consolidated));
    parsed.map_err(|fault| fault.into_error(key))
}

/// Reads a v1 array: `meta`, and `attrs` where there is one. `key` is that of `meta`. A broken `attrs` costs the
/// attributes alone.
pub fn parse_v1_array(key: &str, meta: &[u8], attrs: Option<&[u8]>) -> Result<ArrayMetadata> {
    let parsed = json::parse_object(meta)
        .and_then(|members| v1::parse_array(key, members, v2::attributes(key, attrs)));
    parsed.map_err(|fault| fault.into_error(key))
}

/// What can be told of an array's document that failed to parse: the JSON, where it is JSON, and the flat
/// size in bytes, where shape and data type can still be read.
pub fn salvage(document: &[u8]) -> (Option<Value>, Option<u64>) {
    let Ok(document) = json::parse(document) else { return (None, None) };
    let size = flat_size(&document);
    (Some(document), size)
}

fn flat_size(document: &Value) -> Option<u64> {
    let shape = array::shape(document.get("shape")?).ok()?;
    let data_type = match (document.get("data_type"), document.get("dtype")) {
        (Some(data_type), _) => data_type_v3::parse(data_type).ok()?,
        (None, Some(dtype)) => match data_type_v2::parse(dtype).ok()? {
            data_type_v2::Dtype::Fixed(stored) => stored.data_type,
            data_type_v2::Dtype::Object => return None,
        },
        (None, None) => return None,
    };
    array::flat_size(&shape, data_type.item_size()?)
}
