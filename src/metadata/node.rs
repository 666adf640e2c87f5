//! The metadata of an array or a group, whatever the version of its document.

use serde_json::{Map, Value};

use super::data_type::{DataType, OPTIONAL};
use super::fill_value::FillValue;
use super::json;
use super::zarr_format::ZarrFormat;

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
    /// What precedes the numbers, and how each is written.
    pub scheme: ChunkKeyScheme,
    /// `/` or `.`.
    pub separator: char,
    /// v2 only: the document does not name a separator. It means `.`, but stores with `/` keys exist, so a reader probes
    /// for them if there is no `.` key.
    pub separator_is_assumed: bool,
    /// The end of every key, such as `.tiff` (the proposed encoding "suffix"); empty in most arrays.
    pub suffix: String,
}

/// The form of a chunk key without its suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkKeyScheme {
    /// `c/0/1`: v3 "default".
    Default,
    /// `0/1`: "v2".
    V2,
    /// `1/0`: the numbers in reverse, as in N5, whose dimensions the array has in reverse.
    N5,
    /// `d0/0/d1/12/34/c`: the proposed encoding "fanout". Each number is written in digits of this base, which are decimal numbers.
    Fanout {
        /// One less than the most names in a folder.
        base: u64,
    },
}

/// The table of names in which a codec's name is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecFamily {
    /// Registered and `numcodecs.*` names of v3.
    V3,
    /// numcodecs ids of v2 filters and compressors, plus `transpose` and `bytes` that v2's `order` and
    /// `dtype` are rewritten to. A v2 filter sees bytes in storage order and storage byte order.
    V2,
    /// Codecs that the blocks of N5 have in addition. No document can name them.
    N5,
    /// Codecs that make a view of a stored array. No document can name them.
    View,
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
    /// Whether a reader must know the codec (v3 core, "must_understand").
    pub must_understand: bool,
    /// The place in the document, for error messages: `codecs[0]`, `filters[1]`, `compressor`.
    pub place: String,
}

/// Everything that is needed to read an array.
#[derive(Clone, Debug)]
pub struct ArrayMetadata {
    /// Version of the document.
    pub zarr_format: ZarrFormat,
    /// The store key of the document, for error messages.
    pub document_key: String,
    /// Elements per dimension.
    pub shape: Vec<u64>,
    /// Type of the elements.
    pub data_type: DataType,
    /// The value of every element of a missing chunk.
    pub fill_value: FillValue,
    /// How it is cut into chunks.
    pub chunk_grid: ChunkGrid,
    /// How chunk indices become keys.
    pub chunk_keys: ChunkKeyEncoding,
    /// From the array's elements to stored bytes, in the order of encoding.
    pub codecs: Vec<CodecSpec>,
    /// Names of the dimensions, if given (v3, or `_ARRAY_DIMENSIONS`).
    pub dimension_names: Option<Vec<Option<String>>>,
    /// The user's attributes, verbatim (bare NaN and Infinity as strings).
    pub attributes: Map<String, Value>,
    /// Why the attributes' own document (`.zattrs`, `attrs`) could not be read. The node is still served, without
    /// attributes.
    pub attributes_error: Option<String>,
    /// Names of extensions that were skipped because the document allows it (`"must_understand": false`). An array with
    /// skipped extensions must not be written.
    pub skipped: Vec<String>,
    /// The document's own members as stored, without `attributes` (bare NaN as strings).
    pub document: Map<String, Value>,
}

impl ArrayMetadata {
    /// Returns whether the same elements in another array of the same shape would be stored in the same places as the
    /// same bytes.
    pub fn is_stored_as(&self, other: &ArrayMetadata) -> bool {
        self.data_type == other.data_type
            && self.fill_value == other.fill_value
            && self.chunk_grid == other.chunk_grid
            && self.chunk_keys == other.chunk_keys
            && self.codecs == other.codecs
    }

    /// Returns the extensions of the array that are proposals, and not registered. Their specifications may change, so the array is only
    /// read.
    pub fn proposals(&self) -> Vec<&'static str> {
        let ChunkKeyEncoding { scheme, suffix, .. } = &self.chunk_keys;
        let is_fanout = matches!(scheme, ChunkKeyScheme::Fanout { .. });
        let grid = self.document.get("chunk_grid").and_then(|grid| grid.get("name").or(Some(grid)));
        let is_grid = |name: &str| grid.is_some_and(|grid| grid == name);
        [
            ("chunk grid \"rectangular\"", is_grid("rectangular")),
            ("chunk grid \"zarrs.regular_bounded\"", is_grid("zarrs.regular_bounded")),
            ("chunk key encoding \"fanout\"", is_fanout),
            ("chunk key encoding \"suffix\"", !suffix.is_empty()),
            ("data type \"optional\"", self.is_optional()),
        ]
        .into_iter()
        .filter_map(|(proposal, is_used)| is_used.then_some(proposal))
        .collect()
    }

    /// Returns whether each element has a value or is null (the proposed data type "optional"). [`ArrayMetadata::data_type`] is that of the
    /// values.
    pub fn is_optional(&self) -> bool {
        let name = self.document.get("data_type").and_then(|data_type| data_type.get("name"));
        let is_optional = name.and_then(Value::as_str).is_some_and(|name| OPTIONAL.contains(&name));
        is_optional && self.data_type.item_size().is_some()
    }

    /// Returns the bytes of the flat file; `None` if the elements have no fixed size.
    pub fn flat_size(&self) -> Option<u64> {
        flat_size(&self.shape, self.data_type.item_size()?)
    }

    /// Estimates the memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        json::memory_bytes(&self.attributes) + json::memory_bytes(&self.document)
    }

    /// Returns a copy with everything except the user's attributes.
    #[must_use]
    pub fn without_attributes(&self) -> ArrayMetadata {
        ArrayMetadata {
            zarr_format: self.zarr_format,
            document_key: self.document_key.clone(),
            shape: self.shape.clone(),
            data_type: self.data_type.clone(),
            fill_value: self.fill_value.clone(),
            chunk_grid: self.chunk_grid.clone(),
            chunk_keys: self.chunk_keys.clone(),
            codecs: self.codecs.clone(),
            dimension_names: self.dimension_names.clone(),
            attributes: Map::new(),
            attributes_error: self.attributes_error.clone(),
            skipped: self.skipped.clone(),
            document: self.document.clone(),
        }
    }

    /// Explains a deviation from the specification that is accepted, and how it is read.
    pub fn deviation(&self) -> Option<String> {
        let fill = self.document.get("fill_value")?;
        let is_number_for_bool =
            self.zarr_format == ZarrFormat::V3 && self.data_type == DataType::Bool && fill.is_number();
        let truth = self.fill_value.bytes.first() == Some(&1);
        if self.zarr_format == ZarrFormat::V3 && is_zero_without_sign(&self.data_type, fill) {
            return Some(format!(
                "fill_value: the data type has no {fill}; it is read as 2^-127, as tensorstore does"
            ));
        }
        let has_empty_chunks = matches!(&self.chunk_grid, ChunkGrid::Regular(chunk) if chunk.contains(&0));
        if self.zarr_format == ZarrFormat::V3 && has_empty_chunks {
            return Some("chunk_grid: chunks of length 0, in a dimension without elements".to_owned());
        }
        is_number_for_bool
            .then(|| format!("fill_value: {fill} is not a bool of Zarr v3; it is read as {truth}"))
    }
}

/// A group's document.
#[derive(Clone, Debug)]
pub struct GroupMetadata {
    /// Version, `None` for a folder without a document (an implicit group).
    pub zarr_format: Option<ZarrFormat>,
    /// The store key of the document, or of the folder if there is no document.
    pub document_key: String,
    /// The user's attributes, verbatim.
    pub attributes: Map<String, Value>,
    /// As [`ArrayMetadata::attributes_error`].
    pub attributes_error: Option<String>,
    /// Documents of nodes below, if the group has a consolidated copy: by relative path in v3 (`a/b`), by relative key in
    /// v2 (`a/b/.zarray`). Read with [`super::consolidated_node`] and [`super::consolidated_children`].
    pub consolidated: Option<Map<String, Value>>,
}

impl GroupMetadata {
    /// Estimates the memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        json::memory_bytes(&self.attributes) + self.consolidated.as_ref().map_or(0, json::memory_bytes)
    }
}

/// The node that a metadata document describes.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // one lives at a time, until it is taken apart
pub enum Document {
    /// A group.
    Group(GroupMetadata),
    /// An array.
    Array(ArrayMetadata),
}

/// Returns the bytes of the flat file of an array; `None` if there are more than 2^63-1.
pub fn flat_size(shape: &[u64], item_size: usize) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    let item = u64::try_from(item_size).ok()?;
    let bytes = shape.iter().try_fold(item, |product, &n| product.checked_mul(n))?;
    i64::try_from(bytes).is_ok().then_some(bytes)
}

/// Returns whether a document has tensorstore's fill value for the type that has no zero: 0.0, which tensorstore reads
/// as the element with all bits 0.
pub fn is_zero_without_sign(data_type: &DataType, fill_value: &Value) -> bool {
    *data_type == DataType::Float8E8M0Fnu && fill_value.as_f64() == Some(0.0)
}
