//! Consolidated metadata: a group's copy of the documents below it.
//!
//! Spec: none. v2: `.zmetadata`, `{"zarr_consolidated_format": 1, "metadata": {"a/.zarray": {…}, "a/.zattrs": {…}}}`.
//! v3: `consolidated_metadata` in the group's `zarr.json`, `{"kind": "inline", "must_understand": false,
//! "metadata": {"a": {…}}}`. Uses `json`, `v2` and `v3`.
//!
//! The copy may be stale: if a store can be read node by node, the nodes' own documents win.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::error::Result;
use crate::metadata::documents::{v2, v3};
use crate::metadata::json;
use crate::metadata::json::parse_error::{ParseError, ParseResult};
use crate::metadata::{Document, GroupMetadata, ZarrFormat};

/// Reads a v2 `.zmetadata`. It is only a copy, so a broken one is logged and ignored.
pub fn zmetadata(key: &str, document: &[u8]) -> Option<Map<String, Value>> {
    let documents =
        json::parse_object(document).and_then(|mut members| match members.shift_remove("metadata") {
            Some(Value::Object(documents)) => Ok(documents),
            _ => Err(ParseError::invalid("metadata: must be an object")),
        });
    match documents {
        Ok(documents) => Some(documents),
        Err(error) => {
            log::warn!("{key}: ignoring the .zmetadata in the same folder: {error}");
            None
        }
    }
}

/// Returns the node at `relative_path` below `group` from the group's consolidated metadata; `None` if the node is not
/// there. A group that is returned has no consolidated metadata: its nodes are also in `group`.
pub fn consolidated_node(group: &GroupMetadata, relative_path: &str) -> Option<Result<Document>> {
    let documents = group.consolidated.as_ref()?;
    let folder = match group.document_key.rsplit_once('/') {
        Some((folder, _)) => format!("{folder}/"),
        None => String::new(),
    };
    let below = match relative_path {
        "" => String::new(),
        path => format!("{path}/"),
    };
    let get = |name: &str| documents.get(&format!("{below}{name}"));
    if group.zarr_format == Some(ZarrFormat::V3) {
        let key = format!("{folder}{below}zarr.json");
        let document = documents.get(relative_path)?;
        let node = members(document).and_then(|members| v3::parse(&key, members));
        return Some(node.map(without_consolidated).map_err(|error| error.into_error(&key)));
    }
    let attributes = |key: &str| v2::parsed_attributes(key, get(".zattrs").map(members));
    if let Some(zarray) = get(".zarray") {
        let key = format!("{folder}{below}.zarray");
        let node = members(zarray).and_then(|members| v2::parse_array(&key, members, attributes(&key)));
        return Some(node.map(Document::Array).map_err(|error| error.into_error(&key)));
    }
    let zgroup = get(".zgroup")?;
    let key = format!("{folder}{below}.zgroup");
    let node = members(zgroup).and_then(|members| v2::parse_group(&key, &members, attributes(&key), None));
    Some(node.map(Document::Group).map_err(|error| error.into_error(&key)))
}

fn members(document: &Value) -> ParseResult<Map<String, Value>> {
    json::object(document).cloned().map_err(|error| error.within("consolidated metadata"))
}

fn without_consolidated(document: Document) -> Document {
    match document {
        Document::Group(group) => Document::Group(GroupMetadata { consolidated: None, ..group }),
        array => array,
    }
}

/// Returns the names of the nodes directly below `relative_path` (`""` is the group itself) in the group's
/// consolidated metadata, and whether each is a group. They are sorted. A folder that only leads to deeper nodes
/// counts as a group.
pub fn consolidated_children(group: &GroupMetadata, relative_path: &str) -> Vec<(String, bool)> {
    let Some(documents) = &group.consolidated else { return Vec::new() };
    let is_v3 = group.zarr_format == Some(ZarrFormat::V3);
    let mut children: BTreeMap<&str, bool> = BTreeMap::new();
    for (path, document) in documents {
        let below = match relative_path {
            "" => Some(path.as_str()),
            parent => path.strip_prefix(parent).and_then(|rest| rest.strip_prefix('/')),
        };
        let Some((name, rest)) = below.map(|below| below.split_once('/').unwrap_or((below, ""))) else {
            continue;
        };
        let is_array = match (is_v3, rest) {
            (true, "") => document.get("node_type").and_then(Value::as_str) == Some("array"),
            (false, "") => continue, // a document of the parent itself
            (false, rest) => rest == ".zarray",
            (true, _) => false,
        };
        if !name.is_empty() {
            let is_group = children.entry(name).or_insert(true);
            *is_group = *is_group && !is_array;
        }
    }
    children.into_iter().map(|(name, is_group)| (name.to_owned(), is_group)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::metadata::test_documents::v3_array;
    use crate::metadata::{parse_v2_group, parse_v3};
    use serde_json::json;

    fn array_v3() -> Value {
        v3_array(&[4], "int16", json!({}))
    }

    fn group_v3() -> Value {
        json!({"zarr_format": 3, "node_type": "group",
            "consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": {}}})
    }

    fn root_v3() -> GroupMetadata {
        let mut document = group_v3();
        document["consolidated_metadata"]["metadata"] = json!({
            "b": group_v3(), "a": array_v3(), "b/c": array_v3(), "deep/er/x": array_v3(), "bad": {"node_type": "array"},
            "b/text": 5,
        });
        match parse_v3("g/zarr.json", document.to_string().as_bytes()).unwrap() {
            Document::Group(group) => group,
            Document::Array(_) => panic!(),
        }
    }

    fn root_v2() -> GroupMetadata {
        let zarray = json!({"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i2", "fill_value": 0, "order": "C",
            "filters": null, "compressor": null});
        let zmetadata = json!({"zarr_consolidated_format": 1, "metadata": {
            ".zgroup": {"zarr_format": 2}, ".zattrs": {"title": "t"}, "b/.zgroup": {"zarr_format": 2},
            "a/.zarray": zarray, "a/.zattrs": {"units": "K"}, "b/c/.zarray": zarray, "b/c/.zattrs": 5, "deep/er/x/.zarray": zarray,
        }});
        let zgroup = br#"{"zarr_format": 2}"#;
        parse_v2_group("g/.zgroup", zgroup, None, Some(zmetadata.to_string().as_bytes())).unwrap()
    }

    fn array(group: &GroupMetadata, path: &str) -> crate::metadata::ArrayMetadata {
        match consolidated_node(group, path).unwrap().unwrap() {
            Document::Array(array) => array,
            Document::Group(_) => panic!("{path} is a group"),
        }
    }

    #[test]
    fn nodes_of_both_versions() {
        for (group, name) in [(root_v3(), "zarr.json"), (root_v2(), ".zarray")] {
            assert_eq!(array(&group, "a").document_key, format!("g/a/{name}"));
            assert_eq!(array(&group, "b/c").document_key, format!("g/b/c/{name}"));
            assert!(consolidated_node(&group, "nothing").is_none());
            assert!(consolidated_node(&group, "deep").is_none());
            match consolidated_node(&group, "b").unwrap().unwrap() {
                Document::Group(below) => assert!(below.consolidated.is_none()),
                Document::Array(_) => panic!(),
            }
        }
        assert_eq!(array(&root_v2(), "a").attributes["units"], "K");
        assert!(array(&root_v2(), "b/c").attributes_error.is_some());
    }

    #[test]
    fn broken_nodes_are_errors_with_their_key() {
        for path in ["bad", "b/text"] {
            let error = consolidated_node(&root_v3(), path).unwrap().unwrap_err().to_string();
            assert!(error.starts_with(&format!("g/{path}/zarr.json: ")), "{error}");
        }
    }

    #[test]
    fn children() {
        let children = |group: &GroupMetadata, path| {
            consolidated_children(group, path)
                .into_iter()
                .map(|(name, is_group)| format!("{name}{}", if is_group { "/" } else { "" }))
                .collect::<Vec<_>>()
        };
        assert_eq!(children(&root_v3(), ""), ["a", "b/", "bad", "deep/"]);
        assert_eq!(children(&root_v2(), ""), ["a", "b/", "deep/"]);
        for group in [root_v3(), root_v2()] {
            assert_eq!(children(&group, "deep"), ["er/"]);
            assert_eq!(children(&group, "deep/er"), ["x"]);
            assert_eq!(children(&group, "dee"), [""; 0]);
        }
        assert_eq!(children(&root_v2(), "b"), ["c"]);
    }
}
