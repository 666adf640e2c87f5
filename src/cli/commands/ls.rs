//! `zarrfs ls STORE`: the hierarchy as a tree, or as JSON.

use std::sync::Arc;

use clap::Args;
use serde_json::{Map, Value, json};
use zarrfs::array::{Array, Engine, Layout};
use zarrfs::error::Result;
use zarrfs::hierarchy::{Node, Tree};
use zarrfs::metadata::{ArrayMetadata, ChunkGrid, ZarrFormat};
use zarrfs::store::{Store, join};

use crate::cli::exit::Outcome;
use crate::cli::options::{LogArguments, StoreArguments};
use crate::cli::{log, open, output, size};

/// List what is in a store
///
/// ONE PASS is the memory for decoded chunks that reading the array once from end to end takes; with a smaller
/// --cache-size, chunks are decoded more than once.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,

    /// For programs: a list with one JSON object per node
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    /// Lists.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let store = open::store(&self.store)?;
        let engine = Engine::new(0, 1);
        let hierarchy = Tree::for_one_look(store.clone());
        let nodes = hierarchy.walk("", usize::MAX);
        let nodes = nodes.map(|visit| describe(&engine, &store, visit.path, visit.node));
        let text = if self.json {
            let objects: Vec<Value> = nodes.map(|row| row.to_json()).collect();
            format!("{:#}\n", Value::Array(objects))
        } else {
            tree(&store.describe(), &nodes.collect::<Vec<_>>())
        };
        output::write(text.as_bytes()).map(|_| ())
    }
}

/// What is listed of one node.
struct Row {
    path: String,
    zarr_format: Option<ZarrFormat>,
    array: Option<ArrayRow>,
    /// Of a node with a document that cannot be read.
    broken: Option<Sizes>,
    error: Option<String>,
}

/// The sizes of a node, where known.
#[derive(Default)]
struct Sizes {
    stored_bytes: Option<u64>,
    flat_bytes: Option<u64>,
}

/// What is listed of one array.
struct ArrayRow {
    data_type: String,
    shape: Vec<u64>,
    chunk_shape: Value,
    shard_shape: Value,
    codecs: Vec<String>,
    sizes: Sizes,
    slab_bytes: Option<u64>,
}

fn describe(engine: &Arc<Engine>, store: &Arc<dyn Store>, path: String, node: Result<Node>) -> Row {
    match node {
        Ok(Node::Group { metadata, .. }) => {
            Row { path, zarr_format: metadata.zarr_format, array: None, broken: None, error: None }
        }
        Ok(Node::Array { metadata, .. }) => {
            let zarr_format = Some(metadata.zarr_format);
            let opened = Array::open(engine, store, &path, metadata.clone(), Layout::default());
            let stored_bytes = stored_bytes(store.as_ref(), &path).ok();
            let array = Some(describe_array(&metadata, stored_bytes, opened.as_deref().ok()));
            let error = opened.err().map(|error| open::refusal(store, &path, &metadata, &error));
            Row { path, zarr_format, array, broken: None, error }
        }
        Ok(Node::Broken { error, size_bytes, .. }) => {
            let sizes =
                Sizes { stored_bytes: stored_bytes(store.as_ref(), &path).ok(), flat_bytes: size_bytes };
            Row { path, zarr_format: None, array: None, broken: Some(sizes), error: Some(error.to_string()) }
        }
        Err(error) => {
            Row { path, zarr_format: None, array: None, broken: None, error: Some(error.to_string()) }
        }
    }
}

fn describe_array(metadata: &ArrayMetadata, stored_bytes: Option<u64>, array: Option<&Array>) -> ArrayRow {
    let grid = match &metadata.chunk_grid {
        ChunkGrid::Regular(shape) => json!(shape),
        ChunkGrid::Rectilinear(axes) => json!(axes),
    };
    let sharding = metadata.codecs.iter().find(|codec| codec.name == "sharding_indexed");
    let inner = sharding.and_then(|codec| codec.configuration.get("chunk_shape")).cloned();
    let (chunk_shape, shard_shape) = match inner {
        Some(inner) => (inner, grid),
        None => (grid, Value::Null),
    };
    ArrayRow {
        data_type: data_type(&metadata.document),
        shape: metadata.shape.clone(),
        chunk_shape,
        shard_shape,
        codecs: metadata.codecs.iter().map(|codec| codec_name(&codec.name, &codec.configuration)).collect(),
        sizes: Sizes { stored_bytes, flat_bytes: array.map(Array::size_bytes) },
        slab_bytes: array.map(Array::slab_bytes),
    }
}

/// The data type as the document spells it; of a structured one, the names of the fields.
pub fn data_type(document: &Map<String, Value>) -> String {
    match document.get("data_type").or_else(|| document.get("dtype")) {
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

/// `zstd`, `blosc(lz4)`, `sharding_indexed(bytes, zstd)`.
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

/// Sizes of all stored objects of an array, its metadata documents left out.
fn stored_bytes(store: &dyn Store, array: &str) -> Result<u64> {
    const DOCUMENTS: [&str; 6] = ["zarr.json", ".zarray", ".zattrs", ".zmetadata", "meta", "attrs"];
    let mut bytes = 0u64;
    let mut folders = vec![array.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in store.list(&folder)? {
            let key = join(&folder, &entry.name);
            if entry.is_folder {
                folders.push(key);
            } else if folder != array || !DOCUMENTS.contains(&entry.name.as_str()) {
                bytes = bytes.saturating_add(store.head_object(&key)?.map_or(0, |info| info.size_bytes));
            }
        }
    }
    Ok(bytes)
}

impl Row {
    fn to_json(&self) -> Value {
        let kind = match (&self.array, &self.error) {
            (Some(_), _) => "array",
            (None, None) => "group",
            (None, Some(_)) => "broken",
        };
        let mut object = json!({ "path": format!("/{}", self.path), "kind": kind });
        let Some(members) = object.as_object_mut() else { return object };
        let format = self.zarr_format.map(|format| match format {
            ZarrFormat::V1 => 1,
            ZarrFormat::V2 => 2,
            ZarrFormat::V3 => 3,
        });
        members.insert("zarr_format".into(), json!(format));
        if let Some(array) = &self.array {
            members.insert("data_type".into(), json!(array.data_type));
            members.insert("shape".into(), json!(array.shape));
            members.insert("chunk_shape".into(), array.chunk_shape.clone());
            members.insert("shard_shape".into(), array.shard_shape.clone());
            members.insert("codecs".into(), json!(array.codecs));
        }
        if let Some(sizes) = self.sizes() {
            members.insert("stored_bytes".into(), json!(sizes.stored_bytes));
            members.insert("flat_bytes".into(), json!(sizes.flat_bytes));
        }
        if let Some(array) = &self.array {
            members.insert("slab_bytes".into(), json!(array.slab_bytes));
        }
        if let Some(error) = &self.error {
            members.insert("error".into(), json!(error));
        }
        object
    }

    fn sizes(&self) -> Option<&Sizes> {
        self.array.as_ref().map(|array| &array.sizes).or(self.broken.as_ref())
    }

    /// The cells after the name. What is unknown of a broken node is `?`, as for an array that is not supported.
    fn cells(&self) -> [String; 8] {
        let size = |bytes: Option<u64>| bytes.map_or("?".to_owned(), size::show);
        match &self.array {
            Some(array) => [
                array.data_type.clone(),
                tuple(&json!(array.shape)),
                tuple(&array.chunk_shape),
                tuple(&array.shard_shape),
                array.codecs.join(", "),
                size(array.sizes.stored_bytes),
                size(array.sizes.flat_bytes),
                size(array.slab_bytes),
            ],
            None => match &self.broken {
                Some(sizes) => {
                    let unknown = || "?".to_owned();
                    let (stored, flat) = (size(sizes.stored_bytes), size(sizes.flat_bytes));
                    [unknown(), unknown(), unknown(), unknown(), unknown(), stored, flat, unknown()]
                }
                None => Default::default(),
            },
        }
    }
}

/// `(12, 180, 360)`; `-` where there is none; the varying chunk lengths of a rectilinear grid as `varying`.
fn tuple(shape: &Value) -> String {
    match shape {
        Value::Array(lengths) if lengths.iter().any(Value::is_array) => "varying".to_owned(),
        Value::Array(lengths) => {
            let lengths: Vec<String> = lengths.iter().map(Value::to_string).collect();
            format!("({})", lengths.join(", "))
        }
        _ => "-".to_owned(),
    }
}

const HEADER: [&str; 9] =
    ["NAME", "TYPE", "SHAPE", "CHUNKS", "SHARDS", "CODECS", "STORED", "FLAT", "ONE PASS"];

/// All nodes as lines of aligned columns, the names drawn as a tree.
fn tree(store: &str, rows: &[Row]) -> String {
    let mut lines: Vec<(String, [String; 8], Option<&str>)> = Vec::new();
    for (row, branch) in rows.iter().zip(branches(rows)) {
        let name = if row.path.is_empty() { store.to_owned() } else { branch };
        let is_group = row.array.is_none() && row.error.is_none();
        let name = if is_group && !row.path.is_empty() { name + "/" } else { name };
        lines.push((name, row.cells(), row.error.as_deref()));
    }
    let has_arrays = rows.iter().any(|row| row.sizes().is_some());
    let mut widths = [0usize; 9];
    if has_arrays {
        widths = HEADER.map(|title| title.len());
    }
    for (name, cells, _) in lines.iter().filter(|(_, cells, _)| !cells.iter().all(String::is_empty)) {
        for (width, cell) in widths.iter_mut().zip(std::iter::once(name).chain(cells)) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let mut push = |cells: &[String]| {
        let padded: Vec<String> =
            cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    };
    if has_arrays {
        push(&HEADER.map(str::to_owned));
    }
    for (name, cells, error) in lines {
        let cells: Vec<String> = std::iter::once(name.clone()).chain(cells).collect();
        push(&cells);
        if let Some(error) = error {
            // Below the name, in line with it.
            let indent = name.chars().take_while(|character| " │├└─".contains(*character)).count();
            push(&[format!("{:indent$}! {error}", "")]);
        }
    }
    text
}

/// The names of the nodes, each after the lines that lead to it. Parents come first in the rows.
fn branches(rows: &[Row]) -> Vec<String> {
    // Backwards, since whether a line goes on depends on what comes below: `has_later[depth]` says whether the branch
    // at that depth has another node further down.
    let mut has_later: Vec<bool> = Vec::new();
    let mut names: Vec<String> = rows
        .iter()
        .rev()
        .map(|row| {
            let segments: Vec<&str> = row.path.split('/').filter(|segment| !segment.is_empty()).collect();
            has_later.resize(segments.len(), false);
            let mut text = String::new();
            for (depth, later) in has_later.iter().enumerate() {
                text.push_str(match (depth + 1 == segments.len(), *later) {
                    (true, true) => "├── ",
                    (true, false) => "└── ",
                    (false, true) => "│   ",
                    (false, false) => "    ",
                });
            }
            if let Some(last) = has_later.last_mut() {
                *last = true;
            }
            text + &printable(segments.last().copied().unwrap_or_default())
        })
        .collect();
    names.reverse();
    names
}

/// A name without what would break a line.
fn printable(name: &str) -> String {
    let escape = |character: char| character.is_control().then(|| character.escape_default().to_string());
    name.chars().map(|character| escape(character).unwrap_or_else(|| character.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(path: &str) -> Row {
        Row { path: path.to_owned(), zarr_format: None, array: None, broken: None, error: None }
    }

    #[test]
    fn the_tree_is_drawn() {
        let rows = ["", "a", "a/b", "a/b/c", "a/d", "e", "e/f\ng"].map(group);
        let expected = "\
data
├── a/
│   ├── b/
│   │   └── c/
│   └── d/
└── e/
    └── f\\ng/
";
        assert_eq!(tree("data", &rows), expected);
    }

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
