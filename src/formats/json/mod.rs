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
pub mod snippets;

use serde_json::{Map, Value, json};

use super::virtual_file::VirtualFile;
use super::{Content, Format, Role, Subject};
use crate::error::{Error, Result};
use crate::formats;
use crate::hierarchy::Node;
use crate::metadata::{GroupMetadata, ZarrFormat};
use crate::store::{Info, Posix, join};

pub use array::{chunk_and_shard_shape, fill_value};

/// `json`.
pub const FORMAT: Format = Format {
    name: "json",
    suffix: ".json",
    holds: "every node",
    not_beside: Some("every node has its sidecar next to it"),
    group_file: Some("__group__.json"),
    role: Role::Sidecar,
    expresses: |_, _| true,
    check: None,
    refuses: None,
    left_out: None,
    info: Some(documents_info),
    open,
};

/// The longest file name on Linux.
const MAX_NAME_BYTES: usize = 255;

/// Name and version of the schema.
const SCHEMA: &str = "zarrfs/1";

// They are repeated at the top level, since programs need them to interpret the raw values.
pub use crate::metadata::author::LIFTED_ATTRIBUTES;

/// Members with a line for each of their own members.
const LISTS: [&str; 5] = ["snippets", "companions", "absent", "left_out", "views"];

fn open(subject: &Subject<'_>) -> Result<Content> {
    let file = VirtualFile::of_bytes(text(&members(subject)?).into_bytes());
    // A node that takes the name of a companion moves it, and one that is a coordinate may end it.
    let is_of_nodes =
        !subject.beside.is_empty() || (reads_coordinates(subject) && has_dimension_names(subject));
    Ok(if is_of_nodes { Content::OfNodes(file) } else { Content::Ready(file) })
}

/// Whether a sidecar names the companions that the coordinates do not allow. Of a remote store that would cost requests.
fn reads_coordinates(subject: &Subject<'_>) -> bool {
    !subject.arrays.store().is_remote()
}

fn has_dimension_names(subject: &Subject<'_>) -> bool {
    matches!(subject.node, Node::Array { metadata, .. } if metadata.dimension_names.is_some())
}

/// The members of a node's sidecar.
pub fn members(subject: &Subject<'_>) -> Result<Map<String, Value>> {
    let file = subject.array_file();
    let name = file.rsplit('/').next().unwrap_or(file);
    let place = SidecarLocation { path: subject.path, name, data_file: &subject.array_file_from_here() };
    Ok(match subject.node {
        Node::Group { metadata, .. } => {
            let mut sidecar = describe_group(subject.path, &subject.arrays.store().describe(), metadata);
            add_companions(subject, &mut sidecar)?;
            sidecar
        }
        Node::Array { metadata, .. } => array::members(subject, place, metadata)?,
        Node::Broken { error, size_bytes, document, .. } => {
            describe_broken(place, *size_bytes, document.as_ref(), error)
        }
    })
}

/// Adds the node's files in other formats, the formats that cannot hold it, and what its files lack.
fn add_companions(subject: &Subject<'_>, sidecar: &mut Map<String, Value>) -> Result<()> {
    let layout = subject.layout();
    let (mut companions, mut absent, mut left_out) = (Map::new(), Map::new(), Map::new());
    for format in formats::of_data() {
        if !(format.expresses)(subject.node, layout) {
            if matches!(subject.node, Node::Array { .. }) {
                absent.insert(format.name.into(), json!(format!("holds {}", format.holds)));
            }
            continue;
        }
        let refuses = format.refuses.filter(|_| reads_coordinates(subject));
        if let Some(reason) = refuses.and_then(|refuses| refuses(subject)) {
            absent.insert(format.name.into(), json!(reason));
            continue;
        }
        let file = subject.companion_file(format)?;
        if file.rsplit('/').next().is_some_and(|name| name.len() > MAX_NAME_BYTES) {
            absent.insert(format.name.into(), json!(format!("a name of more than {MAX_NAME_BYTES} bytes")));
            continue;
        }
        companions.insert(format.name.into(), json!(file));
        let lacking = format.left_out.map(|left_out| left_out(subject.node, layout)).unwrap_or_default();
        if !lacking.is_empty() {
            left_out.insert(format.name.into(), json!(formats::shortened(&lacking)));
        }
    }
    for (name, members) in [("companions", companions), ("absent", absent), ("left_out", left_out)] {
        if !members.is_empty() {
            sidecar.insert(name.into(), Value::Object(members));
        }
    }
    Ok(())
}

/// The place of an array in the hierarchy and relative to its sidecar.
#[derive(Clone, Copy, Debug)]
struct SidecarLocation<'a> {
    /// Path in the hierarchy, without the leading `/` (`""` is the root).
    path: &'a str,
    /// The name of the array's file.
    name: &'a str,
    /// The file, relative to the sidecar.
    data_file: &'a str,
}

fn head(place: SidecarLocation<'_>) -> Map<String, Value> {
    let mut sidecar = Map::new();
    sidecar.insert("schema".into(), json!(SCHEMA));
    sidecar.insert("name".into(), json!(place.name));
    sidecar.insert("path".into(), json!(format!("/{}", place.path)));
    sidecar.insert("data_file".into(), json!(place.data_file));
    sidecar
}

/// The sidecar of an array with a broken document: the error, and the document as it is.
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

/// The sidecar of a group: its attributes and their source.
fn describe_group(path: &str, store: &str, metadata: &GroupMetadata) -> Map<String, Value> {
    let mut sidecar = Map::new();
    sidecar.insert("schema".into(), json!(SCHEMA));
    sidecar.insert("name".into(), json!(path.rsplit('/').next().unwrap_or_default()));
    sidecar.insert("path".into(), json!(format!("/{path}")));
    let format = metadata.zarr_format.map(format_number);
    let document = metadata.zarr_format.is_some().then_some(&metadata.document_key);
    sidecar.insert("zarr".into(), json!({"zarr_format": format, "store": store, "document": document}));
    sidecar.insert("attributes".into(), Value::Object(metadata.attributes.clone()));
    if let Some(error) = &metadata.attributes_error {
        sidecar.insert("attributes_error".into(), json!(error));
    }
    sidecar
}

/// The text of a sidecar: one line per member, so that it can be read and compared.
pub fn text(sidecar: &Map<String, Value>) -> String {
    let mut text = String::from("{");
    for (index, (name, value)) in sidecar.iter().enumerate() {
        let separator = if index == 0 { "\n " } else { ",\n " };
        text.push_str(separator);
        text.push_str(&format!("{}: ", Value::String(name.clone())));
        match value {
            Value::Object(members) if LISTS.contains(&name.as_str()) => {
                text.push('{');
                for (index, (name, value)) in members.iter().enumerate() {
                    let separator = if index == 0 { "\n  " } else { ",\n  " };
                    text.push_str(&format!("{separator}{}: {value}", Value::String(name.clone())));
                }
                text.push('}');
            }
            value => text.push_str(&value.to_string()),
        }
    }
    text.push_str("\n}\n");
    text
}

/// The number of the format, as documents write it.
pub fn format_number(format: ZarrFormat) -> u8 {
    match format {
        ZarrFormat::V1 => 1,
        ZarrFormat::V2 => 2,
        ZarrFormat::V3 => 3,
    }
}

/// Owner, mode and time of a sidecar, from its documents. In v2 the attributes have a document of their
/// own, and the sidecar shows both.
pub fn documents_info(subject: &Subject<'_>) -> Result<Info> {
    let store = subject.arrays.store();
    let mut info = *subject.node.info();
    if store.is_remote() {
        // Its documents have no owners and modes.
        return Ok(info);
    }
    let document = match subject.node {
        Node::Array { metadata, .. } => &*metadata.document_key,
        Node::Broken { .. } => "",
        Node::Group { metadata, .. } => {
            if metadata.zarr_format.is_some() {
                info = store.head_object(&metadata.document_key)?.unwrap_or(info);
            }
            &*metadata.document_key
        }
    };
    if document.ends_with("zarr.json") {
        return Ok(info);
    }
    let attributes = match document.strip_suffix("meta") {
        Some(folder) if folder.is_empty() || folder.ends_with('/') => join(subject.path, "attrs"),
        _ => join(subject.path, ".zattrs"),
    };
    let of_attributes = match (store.head_object(&attributes), subject.node) {
        // The sidecar says why the node cannot be read, and shows no attributes of it.
        (Err(_), Node::Broken { .. }) => None,
        (of_attributes, _) => of_attributes?,
    };
    Ok(of_attributes.map_or(info, |of_attributes| intersect_documents(&info, &of_attributes)))
}

/// Attributes of a file that is made from two documents: owned like the first, no more readable than either.
/// A user that owns only one of them, or is only in the group of one, counts as "others" for the other
/// document.
pub fn intersect_documents(first: &Info, second: &Info) -> Info {
    let common = |first: &Posix, second: &Posix| {
        let others = second.mode & 0o007;
        let of_owner = if first.uid == second.uid { second.mode & 0o700 } else { others << 6 };
        let of_group = if first.gid == second.gid { second.mode & 0o070 } else { others << 3 };
        first.mode & (of_owner | of_group | others)
    };
    let second_posix = second.posix.unwrap_or_else(Posix::of_object);
    let modified = first.modified.max(second.modified);
    Info { modified, ..first.with_mode(|first| common(first, &second_posix)) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::SystemTime;

    use super::*;
    use crate::store::ObjectVersion;

    fn info(gid: u32, mode: u32) -> Info {
        let posix = Some(Posix { uid: 7, gid, mode, file: None });
        let version = ObjectVersion::of_number(0);
        Info { size_bytes: 0, modified: Some(SystemTime::UNIX_EPOCH), version, posix }
    }

    #[test]
    fn a_sidecar_of_two_documents_shows_no_more_than_either() {
        let both = |a: (u32, u32), b: (u32, u32)| {
            intersect_documents(&info(a.0, a.1), &info(b.0, b.1)).posix.map_or(0, |posix| posix.mode & 0o777)
        };
        assert_eq!(both((1, 0o644), (1, 0o600)), 0o600);
        assert_eq!(both((1, 0o644), (1, 0o640)), 0o640);
        assert_eq!(both((1, 0o644), (2, 0o640)), 0o600, "group 1 reads the second as others do");
        assert_eq!(both((1, 0o644), (2, 0o644)), 0o644);
    }

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
