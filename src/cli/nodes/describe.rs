//! The summary of a node that the commands show: its type, shapes, codecs and sizes. Uses `hierarchy` and `formats`.

use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::{Map, Value};
use zarrfs::array::{Array, Engine, Layout};
use zarrfs::error::Result;
use zarrfs::formats::{self, json};
use zarrfs::hierarchy::Node;
use zarrfs::metadata::{ArrayMetadata, ZarrFormat};
use zarrfs::store::{Store, join};

use super::open;

/// How many objects of a folder are looked up in one batch.
const BATCH_OBJECTS: usize = 1000;

/// Summary of one node.
pub struct Description {
    /// Its path; `""` is the root.
    pub path: String,
    /// The version of its document.
    pub zarr_format: Option<ZarrFormat>,
    /// The summary of the array, if the node is one.
    pub array: Option<ArrayDescription>,
    /// The sizes of a node with a document that cannot be read.
    pub broken: Option<Sizes>,
    /// Why it cannot be read.
    pub error: Option<String>,
}

/// The sizes of a node, where known.
#[derive(Default)]
pub struct Sizes {
    /// Bytes of its stored objects, the documents left out.
    pub stored_bytes: Option<u64>,
    /// Bytes of its flat file.
    pub flat_bytes: Option<u64>,
}

/// Summary of one array.
pub struct ArrayDescription {
    /// The type as the document spells it.
    pub data_type: String,
    /// The shape.
    pub shape: Vec<u64>,
    /// The names of the axes.
    pub dimension_names: Option<Vec<Option<String>>>,
    /// The shape of the chunks, or the lengths of a rectilinear grid.
    pub chunk_shape: Value,
    /// The shape of the shards; `null` if there are none.
    pub shard_shape: Value,
    /// The fill value, as in the sidecar.
    pub fill_value: Value,
    /// The codecs by name.
    pub codecs: Vec<String>,
    /// The sizes.
    pub sizes: Sizes,
    /// The memory that one pass over the array takes.
    pub slab_bytes: Option<u64>,
    /// The file of a mount that has the elements as text, if there is no flat file.
    pub text_form: Option<String>,
}

impl Description {
    /// Describes a node that a walk met at a path.
    pub fn new(engine: &Arc<Engine>, store: &Arc<dyn Store>, path: &str, node: &Result<Node>) -> Self {
        let row =
            Description { path: path.to_owned(), zarr_format: None, array: None, broken: None, error: None };
        match node {
            Ok(Node::Group { metadata, .. }) => Description { zarr_format: metadata.zarr_format, ..row },
            Ok(Node::Array { metadata, .. }) => {
                let opened = Array::open(engine, store, path, metadata.clone(), Layout::default());
                let text_form = match &opened {
                    Ok(_) => None,
                    Err(_) => formats::text_file(store, path, metadata),
                };
                let stored_bytes = stored_bytes(store.as_ref(), path).ok();
                let array = ArrayDescription {
                    text_form,
                    ..describe_array(metadata, stored_bytes, opened.as_deref().ok())
                };
                let error = opened.err().map(|error| open::no_flat_bytes(store, path, metadata, &error));
                let zarr_format = Some(metadata.zarr_format);
                Description { zarr_format, array: Some(array), error, ..row }
            }
            Ok(Node::Broken { error, size_bytes, .. }) => {
                let stored_bytes = stored_bytes(store.as_ref(), path).ok();
                let sizes = Sizes { stored_bytes, flat_bytes: *size_bytes };
                Description { broken: Some(sizes), error: Some(error.to_string()), ..row }
            }
            Err(error) => Description { error: Some(error.to_string()), ..row },
        }
    }

    /// Returns the sizes of an array or of a broken node.
    pub fn sizes(&self) -> Option<&Sizes> {
        self.array.as_ref().map(|array| &array.sizes).or(self.broken.as_ref())
    }

    /// Returns `array`, `group` or `broken`.
    pub fn kind(&self) -> &'static str {
        match (&self.array, &self.error) {
            (Some(_), _) => "array",
            (None, None) => "group",
            (None, Some(_)) => "broken",
        }
    }

    /// Returns the summary for programs, followed by the other members of the sidecar.
    pub fn to_json(&self, sidecar: Map<String, Value>) -> Map<String, Value> {
        let mut members = Map::new();
        members.insert("path".into(), format!("/{}", self.path).into());
        members.insert("kind".into(), self.kind().into());
        members.insert("zarr_format".into(), self.zarr_format.and_then(ZarrFormat::number).into());
        if let Some(array) = &self.array {
            members.insert("data_type".into(), array.data_type.as_str().into());
            members.insert("shape".into(), array.shape.clone().into());
            members.insert("chunk_shape".into(), array.chunk_shape.clone());
            members.insert("shard_shape".into(), array.shard_shape.clone());
            members.insert("codecs".into(), array.codecs.clone().into());
        }
        if let Some(sizes) = self.sizes() {
            members.insert("stored_bytes".into(), sizes.stored_bytes.into());
            members.insert("flat_bytes".into(), sizes.flat_bytes.into());
        }
        if let Some(array) = &self.array {
            members.insert("slab_bytes".into(), array.slab_bytes.into());
        }
        if let Some(error) = &self.error {
            members.insert("error".into(), error.as_str().into());
        }
        for (name, value) in sidecar {
            members.entry(name).or_insert(value);
        }
        members
    }
}

fn describe_array(
    metadata: &ArrayMetadata,
    stored_bytes: Option<u64>,
    array: Option<&Array>,
) -> ArrayDescription {
    let (chunk_shape, shard_shape) = json::chunk_and_shard_shape(metadata);
    ArrayDescription {
        data_type: data_type(&metadata.document),
        shape: metadata.shape.clone(),
        dimension_names: metadata.dimension_names.clone(),
        chunk_shape,
        shard_shape,
        fill_value: json::fill_value(metadata),
        codecs: metadata.codecs.iter().map(|codec| codec_name(&codec.name, &codec.configuration)).collect(),
        sizes: Sizes { stored_bytes, flat_bytes: array.map(Array::size_bytes) },
        slab_bytes: array.map(Array::slab_bytes),
        text_form: None,
    }
}

/// Returns the data type as the document spells it, and for a structured type the names of the fields.
pub fn data_type(document: &Map<String, Value>) -> String {
    match ["data_type", "dtype", "dataType"].iter().find_map(|name| document.get(*name)) {
        Some(Value::String(name)) => name.clone(),
        Some(Value::Array(fields)) => {
            let name = |field: &Value| field.get(0).and_then(Value::as_str).unwrap_or("?").to_owned();
            format!("struct({})", fields.iter().map(name).collect::<Vec<_>>().join(", "))
        }
        Some(Value::Object(object)) => match object.get("name") {
            Some(Value::String(name)) => name.clone(),
            _ => Value::Object(object.clone()).to_string(),
        },
        Some(other) => other.to_string(),
        None => "?".to_owned(),
    }
}

/// Returns a codec as text: `zstd`, `blosc(lz4)`, `sharding_indexed(bytes, zstd)`.
fn codec_name(name: &str, configuration: &Map<String, Value>) -> String {
    let inside = match (configuration.get("cname"), configuration.get("codecs")) {
        (Some(Value::String(compressor)), _) => compressor.clone(),
        (_, Some(Value::Array(codecs))) => {
            let empty = Map::new();
            let names = codecs.iter().map(|codec| {
                let configuration = codec.get("configuration").and_then(Value::as_object).unwrap_or(&empty);
                let name = codec.get("name").or(Some(codec)).and_then(Value::as_str).unwrap_or("?");
                codec_name(name, configuration)
            });
            names.collect::<Vec<_>>().join(", ")
        }
        _ => return name.to_owned(),
    };
    format!("{name}({inside})")
}

/// Returns the size of all stored objects of an array together, without its metadata documents.
fn stored_bytes(store: &dyn Store, array: &str) -> Result<u64> {
    const DOCUMENTS: [&str; 7] =
        ["zarr.json", ".zarray", ".zattrs", ".zmetadata", "meta", "attrs", "attributes.json"];
    let mut bytes = 0u64;
    let mut folders = vec![array.to_owned()];
    while let Some(folder) = folders.pop() {
        let mut batch = Vec::new();
        let mut seen = Ok(());
        // One batch at a time: an array may have millions of objects.
        store.each_name(&folder, &mut |entry| {
            let key = join(&folder, &entry.name);
            if entry.is_folder {
                folders.push(key);
            } else if folder != array || !DOCUMENTS.contains(&entry.name.as_str()) {
                batch.push(key);
            }
            if batch.len() < BATCH_OBJECTS {
                return ControlFlow::Continue(());
            }
            seen = total_bytes(store, &batch).map(|more| bytes = bytes.saturating_add(more));
            batch.clear();
            if seen.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        seen?;
        bytes = bytes.saturating_add(total_bytes(store, &batch)?);
    }
    Ok(bytes)
}

/// Returns the size of these objects together.
fn total_bytes(store: &dyn Store, keys: &[String]) -> Result<u64> {
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let mut bytes = 0u64;
    for info in store.head_many(&keys) {
        bytes = bytes.saturating_add(info?.map_or(0, |info| info.size_bytes));
    }
    Ok(bytes)
}

/// Returns a shape as text: `(12, 180, 360)`, `varying` for the chunks of a rectilinear grid, and `-` if there is none.
pub fn tuple(shape: &Value) -> String {
    match shape {
        Value::Array(lengths) if lengths.iter().any(Value::is_array) => "varying".to_owned(),
        Value::Array(lengths) => {
            let lengths: Vec<String> = lengths.iter().map(Value::to_string).collect();
            format!("({})", lengths.join(", "))
        }
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_are_named() {
        let of = |text: &str| {
            let configuration: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
            codec_name("x", &configuration)
        };
        assert_eq!(of("{}"), "x");
        assert_eq!(of(r#"{"cname":"lz4"}"#), "x(lz4)");
        assert_eq!(of(r#"{"codecs":[{"name":"bytes"},"crc32c"]}"#), "x(bytes, crc32c)");
    }
}
