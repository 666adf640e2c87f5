//! `json`: the sidecar, the description of a node as one JSON document (`"schema": "zarrfs/1"`).
//!
//! Spec: RFC 8259 (JSON); docs/sidecar.md explains every member.
//!
//! ```json
//! {
//!  "schema": "zarrfs/1",
//!  "name": "temperature",
//!  "path": "/climate/temperature",
//!  "attributes": {"units": "K"}
//! }
//! ```
//!
//! Arrays are in `array.rs`, the code that reads them in `snippets`.

mod array;
mod companions;
mod location;
pub mod snippets;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::documents::documents_info;
use super::virtual_file::VirtualFile;
use super::{CompanionContent, Format, Role, Subject};
use crate::error::{Error, Result};
use crate::hierarchy::Node;
use crate::metadata::{GroupMetadata, ZarrFormat};

pub use array::{chunk_and_shard_shape, fill_value};
use companions::{add_companions, reads_coordinates};
use location::{SCHEMA, SidecarLocation, head};

/// `json`.
pub const FORMAT: Format = Format {
    name: "json",
    suffix: ".json",
    holds: "every node",
    not_listed: Some("every node has its sidecar next to it"),
    group_file: Some("__group__.json"),
    role: Role::Sidecar,
    expresses: |_, _| true,
    info: Some(documents_info),
    open,
    ..Format::BASE
};

// Sidecars repeat them at the top level, because programs need them to interpret the values.
pub use crate::metadata::author::LIFTED_ATTRIBUTES;

/// The members that are written with a line for each of their own members.
const LISTS: [&str; 5] = ["snippets", "companions", "absent", "left_out", "views"];

/// The length of most sidecars: a text of this length is written without being moved.
const TYPICAL_BYTES: usize = 4 << 10;

fn open(subject: &Subject<'_>) -> Result<CompanionContent> {
    let members = members(subject)?;
    let file = VirtualFile::from_bytes(text(&members));
    // Another node may take the name of a companion, or be a coordinate or an array that rules it out. An error may be gone next time.
    let is_of_nodes = !subject.listed.is_empty()
        || members.contains_key("error")
        || (reads_coordinates(subject) && (has_dimension_names(subject) || has_files_of_nodes(subject)));
    Ok(if is_of_nodes { CompanionContent::OfNodes(file) } else { CompanionContent::Ready(file) })
}

fn has_dimension_names(subject: &Subject<'_>) -> bool {
    matches!(subject.node, Node::Array { metadata, .. } if metadata.dimension_names.is_some())
}

/// Returns whether other nodes decide on the files of a node.
fn has_files_of_nodes(subject: &Subject<'_>) -> bool {
    let depends =
        |format: &Format| format.refuses.is_some() && (format.expresses)(subject.node, subject.layout());
    subject.data_formats().any(depends)
}

/// Returns the members of a node's sidecar.
pub fn members(subject: &Subject<'_>) -> Result<Map<String, Value>> {
    let file = subject.array_file();
    let name = file.rsplit('/').next().unwrap_or(file);
    let place = SidecarLocation { path: subject.path, name, data_file: &subject.array_file_from_here() };
    Ok(match subject.node {
        Node::Group { metadata, .. } => {
            let mut sidecar =
                describe_group(subject.path, &subject.arrays.store_at(subject.path).describe(), metadata);
            add_companions(subject, &mut sidecar)?;
            sidecar
        }
        Node::Array { metadata, .. } => array::members(subject, place, metadata)?,
        Node::Broken { error, size_bytes, document, .. } => {
            describe_broken(place, *size_bytes, document.as_ref(), error)
        }
    })
}

/// Returns the sidecar of an array with a broken document: the error, and the document as it is.
fn describe_broken(
    place: SidecarLocation<'_>,
    size_bytes: Option<u64>,
    document: Option<&Value>,
    error: &Error,
) -> Map<String, Value> {
    let mut sidecar = head(place);
    sidecar.insert("offset".into(), json!(0));
    sidecar.insert("nbytes".into(), json!(size_bytes));
    let mut document = document.cloned().unwrap_or(Value::Null);
    let attributes = document.as_object_mut().and_then(|members| members.remove("attributes"));
    sidecar.insert("zarr".into(), document);
    sidecar.insert("attributes".into(), attributes.unwrap_or_else(|| json!({})));
    sidecar.insert("error".into(), json!(error.to_string()));
    sidecar
}

/// Returns the sidecar of a group: its attributes and their source.
fn describe_group(path: &str, store: &str, metadata: &GroupMetadata) -> Map<String, Value> {
    let mut sidecar = Map::new();
    sidecar.insert("schema".into(), json!(SCHEMA));
    sidecar.insert("name".into(), json!(path.rsplit('/').next().unwrap_or_default()));
    sidecar.insert("path".into(), json!(format!("/{path}")));
    let format = metadata.zarr_format.and_then(ZarrFormat::number);
    let document = metadata.zarr_format.is_some().then_some(&metadata.document_key);
    sidecar.insert("zarr".into(), json!({"zarr_format": format, "store": store, "document": document}));
    sidecar.insert("attributes".into(), Value::Object(metadata.attributes.clone()));
    if let Some(error) = &metadata.attributes_error {
        sidecar.insert("attributes_error".into(), json!(error));
    }
    sidecar
}

/// Returns the text of a sidecar: one line per member, so that it can be read and compared.
pub fn text(sidecar: &Map<String, Value>) -> Vec<u8> {
    let mut text = Vec::with_capacity(TYPICAL_BYTES);
    text.push(b'{');
    for (index, (name, value)) in sidecar.iter().enumerate() {
        text.extend_from_slice(if index == 0 { b"\n " } else { b",\n " });
        append(&mut text, name);
        text.extend_from_slice(b": ");
        match value {
            Value::Object(members) if LISTS.contains(&name.as_str()) => {
                text.push(b'{');
                for (index, (name, value)) in members.iter().enumerate() {
                    text.extend_from_slice(if index == 0 { b"\n  " } else { b",\n  " });
                    append(&mut text, name);
                    text.extend_from_slice(b": ");
                    append(&mut text, value);
                }
                text.push(b'}');
            }
            value => append(&mut text, value),
        }
    }
    text.extend_from_slice(b"\n}\n");
    text
}

fn append(text: &mut Vec<u8>, value: &impl Serialize) {
    // Writing to memory does not fail, and the keys of JSON are texts.
    let _ = serde_json::to_writer(text, value);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn broken_arrays_give_the_reason() {
        let place = SidecarLocation { path: "g/t", name: "t", data_file: "t" };
        let error = Error::unsupported("g/t/zarr.json", "codec \"squeeze\"");
        let document = json!({"shape": [2], "attributes": {"a": 1}});
        let broken = describe_broken(place, Some(8), Some(&document), &error);
        assert_eq!(broken.get("attributes"), Some(&json!({"a": 1})));
        assert_eq!(broken.get("zarr"), Some(&json!({"shape": [2]})));
        assert_eq!(describe_broken(place, None, None, &error).get("nbytes"), Some(&Value::Null));
    }
}
