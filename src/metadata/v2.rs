//! `.zarray`, `.zgroup` and `.zattrs`: Zarr v2, rewritten in v3's terms.
//!
//! Spec: v2, "Metadata", "Filters", "Hierarchies", "Attributes"; NCZarr and xarray for what they add. Uses the other
//! files of this folder.
//!
//! `order: "F"` becomes a `transpose` codec, `dtype`'s byte order a `bytes` codec, both of the family V2; the filters
//! and the compressor follow as they are. Members that v2 does not know are ignored, as the text asks.
//!
//! Attributes stand in a document of their own, so a broken one costs the attributes alone: the node is served
//! with none, and says why.

use serde_json::{Map, Value, json as object};

use super::data_type::{ByteOrder, DataType, VariableLength};
use super::data_type_v2::{Dtype, Stored};
use super::fault::{Fault, Parsed};
use super::{ArrayMetadata, ChunkGrid, CodecFamily, CodecSpec, FillValue, GroupMetadata, ZarrFormat};
use super::{array, chunk_keys, codec_spec, data_type_v2, json};

/// The attributes of a node, and why there are none where their document could not be read.
pub type Attributes = (Map<String, Value>, Option<String>);

/// Reads the members of a `.zarray`.
pub fn parse_array(key: &str, members: Map<String, Value>, attributes: Attributes) -> Parsed<ArrayMetadata> {
    array::expect_format(&members, 2)?;
    let member = |name: &'static str| json::required(&members, name);
    let filters = codecs_of(members.get("filters"))?;
    let compressor = match members.get("compressor") {
        None | Some(Value::Null) => None,
        Some(value) => Some(codec_spec::v2(value).map_err(|fault| fault.within("compressor"))?),
    };
    let element =
        element(member("dtype")?, &filters, compressor.as_ref()).map_err(|fault| fault.within("dtype"))?;
    let fill_value = match members.get("fill_value") {
        None => FillValue::undefined(&element.data_type),
        Some(value) => FillValue::from_v2(&element.data_type, &element.big_endian, value)
            .map_err(|fault| fault.within("fill_value"))?,
    };
    let chunk_keys = chunk_keys::parse_v2(members.get("dimension_separator"))?;
    let layout = Layout::parse(&members, &element)?;
    let (attributes, attributes_error) = attributes;
    let metadata = ArrayMetadata {
        zarr_format: ZarrFormat::V2,
        document_key: key.to_owned(),
        dimension_names: dimension_names(&attributes, layout.shape.len()),
        shape: layout.shape,
        data_type: element.data_type,
        fill_value,
        chunk_grid: layout.chunk_grid,
        chunk_keys,
        codecs: layout.codecs.into_iter().chain(filters).chain(compressor).collect(),
        attributes,
        attributes_error,
        skipped: Vec::new(),
        document: members,
    };
    array::check_size(&metadata)?;
    Ok(metadata)
}

/// Reads the members of a `.zgroup`.
pub fn parse_group(
    key: &str,
    members: &Map<String, Value>,
    attributes: Attributes,
    consolidated: Option<Map<String, Value>>,
) -> Parsed<GroupMetadata> {
    array::expect_format(members, 2)?;
    let (attributes, attributes_error) = attributes;
    Ok(GroupMetadata {
        zarr_format: Some(ZarrFormat::V2),
        document_key: key.to_owned(),
        attributes,
        attributes_error,
        consolidated,
    })
}

/// Reads a document of attributes that is not the node's own document.
pub fn attributes(key: &str, document: Option<&[u8]>) -> Attributes {
    attributes_of(key, document.map(json::parse_object))
}

/// As [`attributes`], of a document that is parsed already.
pub fn attributes_of(key: &str, parsed: Option<Parsed<Map<String, Value>>>) -> Attributes {
    match parsed {
        None => (Map::new(), None),
        Some(Ok(attributes)) => (attributes, None),
        Some(Err(fault)) => {
            log::warn!("{key}: the attributes beside it cannot be read: {fault}");
            (Map::new(), Some(fault.to_string()))
        }
    }
}

/// What v1 and v2 say in the same words: `shape`, `chunks`, `order`, and the codecs that `order` and `dtype` mean.
pub struct Layout {
    /// Elements per dimension.
    pub shape: Vec<u64>,
    /// A regular grid.
    pub chunk_grid: ChunkGrid,
    /// `transpose` and `bytes`, where needed.
    pub codecs: Vec<CodecSpec>,
}

impl Layout {
    /// Reads them.
    pub fn parse(members: &Map<String, Value>, element: &Stored) -> Parsed<Self> {
        let shape = array::shape(json::required(members, "shape")?)?;
        let chunk_grid = json::required(members, "chunks")
            .and_then(json::unsigned_list)
            .map(ChunkGrid::Regular)
            .and_then(|grid| grid.check(&shape, element.data_type.item_size()).map(|()| grid))
            .map_err(|fault| fault.within("chunks"))?;
        let order = json::required(members, "order")?;
        let is_transposed = match order.as_str() {
            Some("C") => false,
            Some("F") => shape.len() > 1,
            _ => {
                let found = json::shown(order);
                return Err(Fault::invalid(format_args!("order: must be \"C\" or \"F\", not {found}")));
            }
        };
        let mut codecs = Vec::new();
        if is_transposed {
            codecs.push(codec("transpose", object!({"order": "F"})));
        }
        if element.data_type.item_size().is_some() {
            codecs.push(bytes_codec(element));
        }
        Ok(Layout { shape, chunk_grid, codecs })
    }
}

fn codec(name: &str, configuration: Value) -> CodecSpec {
    let configuration = match configuration {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    CodecSpec { family: CodecFamily::V2, name: name.to_owned(), configuration, must_understand: true }
}

/// `{"endian": "little" | "big"}`, or `{"endian": "mixed", "big": [[offset, width, count], …]}` with the components
/// that are stored big-endian.
fn bytes_codec(element: &Stored) -> CodecSpec {
    codec(
        "bytes",
        match element.byte_order() {
            Some(ByteOrder::Little) => object!({"endian": "little"}),
            Some(ByteOrder::Big) => object!({"endian": "big"}),
            None => {
                let runs = element.big_endian.iter().map(|run| object!([run.offset, run.width, run.count]));
                object!({"endian": "mixed", "big": runs.collect::<Vec<_>>()})
            }
        },
    )
}

fn codecs_of(filters: Option<&Value>) -> Parsed<Vec<CodecSpec>> {
    let items = match filters {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(value) => json::list(value).map_err(|fault| fault.within("filters"))?,
    };
    let one =
        |(i, item)| codec_spec::v2(item).map_err(|fault: Fault| fault.within(format_args!("filters: {i}")));
    items.iter().enumerate().map(one).collect()
}

/// The element of an array: of its `dtype`, and for `|O` of the codec that turns objects into bytes, which then
/// is the chain's array-to-bytes codec.
fn element(dtype: &Value, filters: &[CodecSpec], compressor: Option<&CodecSpec>) -> Parsed<Stored> {
    match data_type_v2::parse(dtype)? {
        Dtype::Fixed(stored) => Ok(stored),
        Dtype::Object => {
            let first = filters.first().or(compressor).map(|codec| codec.name.as_str());
            let data_type = DataType::VariableLength(match first {
                Some("vlen-utf8") => VariableLength::Utf8,
                Some("vlen-bytes") => VariableLength::Bytes,
                Some("pickle") => VariableLength::Other(
                    "Python objects behind the filter \"pickle\", which is never unpickled".to_owned(),
                ),
                Some(name) => {
                    VariableLength::Other(format!("objects behind the codec {}", json::shown_text(name)))
                }
                None => VariableLength::Other("objects without a filter that stores them".to_owned()),
            });
            Ok(Stored { data_type, big_endian: Vec::new() })
        }
    }
}

/// xarray's and NCZarr's names of dimensions, where they fit.
pub fn dimension_names(attributes: &Map<String, Value>, rank: usize) -> Option<Vec<Option<String>>> {
    let names = attributes.get("_ARRAY_DIMENSIONS")?.as_array().filter(|names| names.len() == rank)?;
    names.iter().map(|name| json::name(name).ok().map(|name| Some(name.to_owned()))).collect()
}
