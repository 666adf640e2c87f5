//! Writing documents: from a user's description of a new array or group to the text of its metadata.
//!
//! Spec: v3 core "Metadata", v2 "Metadata". Uses its neighbours in `metadata`; no I/O. Every member is what zarr-python
//! writes for the same call (`docs/authoring.md` names the exceptions; tests/formats/authoring.rs compares).
//!
//! Invariant: every document has been read back, so this program can serve the node.

mod chunk_shape;
mod codecs;
mod declaration;
mod element_type;
mod fill_value;

use serde_json::{Map, Value, json};

use super::json::edit;
use super::json::parse_error::{ParseError, ParseResult};
use super::{ZarrFormat, json};
pub use chunk_shape::chunk_shape;
pub use declaration::{LIFTED_ATTRIBUTES, declared};
pub use element_type::ElementType;

/// A new array. Texts are as a user writes them on the command line.
#[derive(Clone, Debug)]
pub struct ArraySpec<'a> {
    /// Version 2 or 3.
    pub zarr_format: ZarrFormat,
    /// Elements per dimension.
    pub shape: Vec<u64>,
    /// Type of the elements.
    pub element: ElementType,
    /// Shape of the chunks, or of the inner chunks if there are shards. The default is [`chunk_shape`].
    pub chunks: Option<Vec<u64>>,
    /// Shape of the shards (v3).
    pub shards: Option<Vec<u64>>,
    /// Codecs in words (`zstd:3,crc32c`), or JSON as in the document. The default is that of zarr-python.
    pub codecs: Option<&'a str>,
    /// JSON as in a v3 document, or a plain word. The default is zero, or not-a-time. In v2 with dimension names it is
    /// undefined, or NaN.
    pub fill_value: Option<&'a str>,
    /// Names of the dimensions.
    pub dimension_names: Option<Vec<Option<String>>>,
    /// Attributes with the JSON of their values.
    pub attributes: Vec<(String, String)>,
}

/// A document of a new node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDocument {
    /// Its name in the node's folder.
    pub name: &'static str,
    /// Its text.
    pub text: String,
}

impl ArraySpec<'_> {
    /// Returns the documents of the array. The last one is the main one, which makes the folder an array.
    pub fn documents(&self) -> ParseResult<Vec<NodeDocument>> {
        let documents = match self.zarr_format {
            ZarrFormat::V3 => self.v3()?,
            ZarrFormat::V2 => self.v2()?,
            ZarrFormat::V1 => return Err(ParseError::unsupported("arrays of Zarr v1 cannot be created")),
            ZarrFormat::N5 => return Err(ParseError::unsupported("arrays of N5 cannot be created")),
        };
        if let Some(NodeDocument { name, text }) = documents.last() {
            match super::parse_array(name, text.as_bytes()) {
                Ok(Some(_)) => {}
                Ok(None) => return Err(ParseError::invalid("this does not describe an array")),
                Err(error) => return Err(ParseError::invalid(reason(&error.to_string(), name))),
            }
        }
        Ok(documents)
    }

    fn v3(&self) -> ParseResult<Vec<NodeDocument>> {
        let chunks = self.chunks()?;
        let mut codecs = codecs::v3(self.codecs, &self.element.data_type)?;
        let grid = match &self.shards {
            None => &chunks,
            Some(shards) => {
                codecs = vec![sharding(shards, &chunks, codecs)?];
                shards
            }
        };
        let mut members = json!({
            "shape": self.shape,
            "data_type": self.element.v3()?,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": grid}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": fill_value::v3(self.fill_value, &self.element.data_type)?,
            "codecs": codecs,
            "attributes": {},
        });
        if let (Some(names), Value::Object(members)) = (&self.dimension_names, &mut members) {
            members.insert("dimension_names".to_owned(), json!(self.checked(names)?));
        }
        Ok(vec![v3_document(members, "array", &self.attributes)?])
    }

    fn v2(&self) -> ParseResult<Vec<NodeDocument>> {
        if self.shards.is_some() {
            return Err(ParseError::invalid("Zarr v2 has no shards"));
        }
        let (filters, compressor) = codecs::v2(self.codecs)?;
        let document = json!({
            "shape": self.shape,
            "chunks": self.chunks()?,
            "dtype": self.element.v2()?,
            "fill_value": fill_value::v2(self.fill_value, &self.element, self.dimension_names.is_some())?,
            "order": "C",
            "filters": filters,
            "dimension_separator": ".",
            "compressor": compressor,
            "zarr_format": 2,
        });
        let mut attributes = self.attributes.clone();
        if let Some(names) = &self.dimension_names {
            // v2 has no member for them; readers know xarray's attribute.
            let names: Option<Vec<&String>> = self.checked(names)?.iter().map(Option::as_ref).collect();
            let names = names.ok_or_else(|| ParseError::invalid("in Zarr v2 each dimension needs a name"))?;
            attributes.push(("_ARRAY_DIMENSIONS".to_owned(), json!(names).to_string()));
        }
        let zattrs = NodeDocument { name: ".zattrs", text: attributes_text(&attributes)? };
        Ok(vec![zattrs, NodeDocument { name: ".zarray", text: pretty(&document) }])
    }

    fn chunks(&self) -> ParseResult<Vec<u64>> {
        let Some(chunks) = &self.chunks else {
            if self.shards.is_some() {
                return Err(ParseError::invalid("shards also need the shape of their chunks"));
            }
            let item_bytes = self.element.data_type.item_size().unwrap_or(1);
            return Ok(chunk_shape(&self.shape, item_bytes as u64));
        };
        self.check_rank("chunks", chunks.len())?;
        Ok(chunks.clone())
    }

    fn checked<'n>(&self, names: &'n [Option<String>]) -> ParseResult<&'n [Option<String>]> {
        self.check_rank("dimension names", names.len())?;
        Ok(names)
    }

    fn check_rank(&self, what: &str, rank: usize) -> ParseResult<()> {
        if rank == self.shape.len() {
            return Ok(());
        }
        let shape = self.shape.len();
        Err(ParseError::invalid(format_args!("{what}: {rank} for a shape of {shape} dimensions")))
    }
}

/// Returns the documents of a new group. The last one is the main one.
pub fn group_documents(
    zarr_format: ZarrFormat,
    attributes: &[(String, String)],
) -> ParseResult<Vec<NodeDocument>> {
    match zarr_format {
        ZarrFormat::V3 => Ok(vec![v3_document(json!({"attributes": {}}), "group", attributes)?]),
        ZarrFormat::V2 => {
            let zattrs = NodeDocument { name: ".zattrs", text: attributes_text(attributes)? };
            Ok(vec![zattrs, NodeDocument { name: ".zgroup", text: pretty(&json!({"zarr_format": 2})) }])
        }
        ZarrFormat::V1 => Err(ParseError::unsupported("Zarr v1 has no groups")),
        ZarrFormat::N5 => Err(ParseError::unsupported("groups of N5 cannot be created")),
    }
}

/// Returns an array's document with another shape, for a new array like it or for a resize.
pub fn with_shape(text: &str, shape: &[u64]) -> ParseResult<String> {
    let shape = json!(shape).to_string();
    edit::replace(text, &["shape"], &shape)
        .ok_or_else(|| ParseError::invalid("the document has no place for the shape"))
}

/// Returns the documents of a new node like another one of the same version, with some attributes added or replaced.
/// The last one is the main one.
pub fn like(
    mut documents: Vec<NodeDocument>,
    zarr_format: ZarrFormat,
    attributes: &[(String, String)],
) -> ParseResult<Vec<NodeDocument>> {
    let main = if zarr_format == ZarrFormat::V3 { "zarr.json" } else { ".zarray" };
    if documents.last().is_none_or(|document| document.name != main) {
        return Err(ParseError::invalid("an array can only be like one of the same version of Zarr"));
    }
    let members: Vec<_> = attributes.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
    for document in documents.iter_mut().filter(|_| !members.is_empty()) {
        document.text = match document.name {
            "zarr.json" => {
                let own = edit::find(&document.text, &["attributes"]).unwrap_or("{}");
                let own = edit::set(own, &members)?;
                let text = edit::replace(&document.text, &["attributes"], &own);
                text.ok_or_else(|| ParseError::invalid("the document has no place for attributes"))?
            }
            ".zattrs" => edit::set(&document.text, &members)?,
            _ => continue,
        };
    }
    if main == ".zarray" && !documents.iter().any(|document| document.name == ".zattrs") {
        documents.insert(0, NodeDocument { name: ".zattrs", text: attributes_text(attributes)? });
    }
    Ok(documents)
}

fn v3_document(
    members: Value,
    node_type: &str,
    attributes: &[(String, String)],
) -> ParseResult<NodeDocument> {
    let mut document = match members {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    document.insert("zarr_format".to_owned(), json!(3));
    document.insert("node_type".to_owned(), json!(node_type));
    if node_type == "array" {
        document.insert("storage_transformers".to_owned(), json!([]));
    }
    let mut text = pretty(&Value::Object(document));
    if !attributes.is_empty() {
        let attributes = attributes_text(attributes)?;
        text = edit::replace(&text, &["attributes"], &attributes).unwrap_or(text);
    }
    Ok(NodeDocument { name: "zarr.json", text })
}

/// Returns the text of an object of attributes. Values keep their text.
fn attributes_text(attributes: &[(String, String)]) -> ParseResult<String> {
    let members: Vec<_> = attributes.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
    let text = edit::set("{}", &members)?;
    json::parse_object(text.as_bytes()).map_err(|error| error.within("attributes"))?;
    Ok(text)
}

/// Formats a document as zarr-python does, with two spaces for each level.
fn pretty(document: &Value) -> String {
    serde_json::to_string_pretty(document).unwrap_or_default()
}

fn sharding(shards: &[u64], chunks: &[u64], codecs: Vec<Value>) -> ParseResult<Value> {
    let divides = |(shard, chunk): (&u64, &u64)| *chunk > 0 && shard.is_multiple_of(*chunk);
    if shards.len() != chunks.len() || !shards.iter().zip(chunks).all(divides) {
        return Err(ParseError::invalid(format_args!(
            "shards {shards:?} are not multiples of chunks {chunks:?}"
        )));
    }
    Ok(json!({"name": "sharding_indexed", "configuration": {
        "chunk_shape": chunks,
        "codecs": codecs,
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
        "index_location": "end",
    }}))
}

/// Returns an error's text without the name of the document, which the user has never seen.
fn reason(text: &str, name: &str) -> String {
    text.strip_prefix(name).and_then(|text| text.strip_prefix(": ")).unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests;
