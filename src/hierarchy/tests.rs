//! Tests of the tree as a whole, over stores in memory and on disk.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::error::Error;
use crate::metadata::ZarrFormat;
use crate::store::{DirectoryStore, MemoryStore, Posix};
use crate::test_store::{Hook, Hooked, Request};

const V3_GROUP: &str = r#"{"zarr_format":3,"node_type":"group","attributes":{"a":1}}"#;
const V2_GROUP: &str = r#"{"zarr_format":2}"#;
const V3_ARRAY: &str = r#"{"zarr_format":3,"node_type":"array","shape":[4],"data_type":"int32",
    "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[2]}},
    "chunk_key_encoding":{"name":"default"},"fill_value":0,"codecs":["bytes"]}"#;
const V2_ARRAY: &str = r#"{"zarr_format":2,"shape":[4],"chunks":[2],"dtype":"<i4","compressor":null,
    "fill_value":0,"order":"C","filters":null}"#;
const V1_ARRAY: &str = r#"{"zarr_format":1,"shape":[4],"chunks":[2],"dtype":"<i4","compression":null,
    "compression_opts":null,"fill_value":0,"order":"C"}"#;

fn memory(objects: &[(&str, &str)]) -> Tree {
    let store = MemoryStore::new();
    for (key, text) in objects {
        store.put(key, text.as_bytes()).unwrap();
    }
    Tree::new(Arc::new(store))
}

fn folder(objects: &[(&str, &str)]) -> (Tree, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    for (key, text) in objects {
        write(folder.path(), key, text);
    }
    (Tree::new(Arc::new(DirectoryStore::open(folder.path(), false).unwrap())), folder)
}

fn write(root: &Path, key: &str, text: &str) {
    let path = root.join(key);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Returns the paths of all nodes below the root, each with `g`roup, `a`rray or `b`roken.
fn outline(tree: &Tree) -> Vec<String> {
    let kind = |node: Node| match node {
        Node::Group { .. } => "g",
        Node::Array { .. } => "a",
        Node::Broken { .. } => "b",
    };
    tree.walk("", MAX_DEPTH).map(|visit| format!("{} {}", kind(visit.node.unwrap()), visit.path)).collect()
}

fn reason(tree: &Tree, path: &str) -> String {
    match tree.node(path).unwrap() {
        Some(Node::Broken { error, .. }) => error.to_string(),
        other => panic!("{path}: {other:?}"),
    }
}

/// Checks for every folder of the store that `node` finds exactly the nodes that `children` names.
fn assert_consistent(tree: &Tree, paths: &[&str]) {
    for path in paths.iter().filter(|path| !path.is_empty()) {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let listed = tree.children(parent).unwrap().into_iter().find(|child| child.name == name);
        let node = tree.node(path).unwrap();
        assert_eq!(listed.is_some(), node.is_some(), "{path}");
        let is_group = matches!(node, Some(Node::Group { .. }));
        assert_eq!(listed.is_some_and(|child| child.is_group), is_group, "{path}");
        assert!(node.is_none() || tree.version(path).unwrap().is_some(), "{path}");
    }
}

#[test]
fn documents_of_all_versions() {
    let tree = memory(&[
        ("zarr.json", V3_GROUP),
        ("three/zarr.json", V3_ARRAY),
        ("three/c/0", "chunk"),
        ("two/.zgroup", V2_GROUP),
        ("two/.zattrs", r#"{"b":2}"#),
        ("two/t/.zarray", V2_ARRAY),
        ("two/t/.zattrs", r#"{"x":NaN}"#),
        ("two/t/0", "chunk"),
        ("one/meta", V1_ARRAY),
        ("one/attrs", "{}"),
        ("notes/meta", r#"{"zarr_format":7}"#),
        ("notes/readme.txt", "text"),
        ("both/zarr.json", V3_GROUP),
        ("both/.zarray", V2_ARRAY),
        ("v2both/.zarray", V2_ARRAY),
        ("v2both/.zgroup", V2_GROUP),
    ]);
    assert_eq!(outline(&tree), ["g ", "g both", "a one", "a three", "g two", "a two/t", "a v2both"]);
    assert_consistent(
        &tree,
        &["three", "three/c", "two", "two/t", "one", "notes", "both", "v2both", "zarr.json", "nothing"],
    );
    let Some(Node::Group { metadata, .. }) = tree.node("two").unwrap() else { panic!() };
    assert_eq!(metadata.attributes.get("b").unwrap().as_u64(), Some(2));
    assert_eq!(metadata.zarr_format, Some(ZarrFormat::V2));
    let Some(Node::Array { metadata, .. }) = tree.node("two/t").unwrap() else { panic!() };
    assert_eq!(metadata.document_key, "two/t/.zarray");
    assert_eq!(metadata.attributes.len(), 1);
    let Some(Node::Array { metadata, .. }) = tree.node("one").unwrap() else { panic!() };
    assert_eq!(metadata.zarr_format, ZarrFormat::V1);
}

#[test]
fn a_root_that_is_an_array() {
    for (name, document) in [("zarr.json", V3_ARRAY), (".zarray", V2_ARRAY), ("meta", V1_ARRAY)] {
        let tree = memory(&[(name, document), ("c/0", "chunk"), ("0", "chunk")]);
        assert_eq!(outline(&tree), ["a "], "{name}");
        assert!(tree.children("").unwrap().is_empty());
    }
}

#[test]
fn a_folder_of_stores() {
    let tree = memory(&[
        ("first.zarr/zarr.json", V3_GROUP),
        ("first.zarr/t/zarr.json", V3_ARRAY),
        ("year/second.zarr/.zgroup", V2_GROUP),
        ("docs/readme.txt", "text"),
        ("other.zip", "PK"),
        (".git/objects/ab/cd", "x"),
        ("__pycache__/x/y", "x"),
        (".hidden.zarr/zarr.json", V3_GROUP),
    ]);
    let expected = ["g ", "g .hidden.zarr", "g first.zarr", "a first.zarr/t", "g year", "g year/second.zarr"];
    assert_eq!(outline(&tree), expected);
    assert_consistent(
        &tree,
        &["first.zarr", "year", "docs", "other.zip", ".git", ".git/objects", "__pycache__"],
    );
    let Some(Node::Group { metadata, .. }) = tree.node("year").unwrap() else { panic!() };
    assert_eq!(metadata.zarr_format, None);
    // An empty store is an empty group. A command may say that it contains no Zarr.
    assert_eq!(outline(&memory(&[])), ["g "]);
}

#[test]
fn names() {
    let long = "x".repeat(256);
    let long_key = format!("two/{long}/.zgroup");
    let tree = memory(&[
        ("zarr.json", V3_GROUP),
        ("__reserved/zarr.json", V3_GROUP),
        (".../zarr.json", V3_GROUP),
        (".zgroup/zarr.json", V3_GROUP),
        ("sub/zarr.json", V3_GROUP),
        ("sub/zarr.json/zarr.json", V3_GROUP),
        ("a b%\n/zarr.json", V3_ARRAY),
        ("日本/zarr.json", V3_ARRAY),
        ("two/.zgroup", V2_GROUP),
        ("two/__fine/.zgroup", V2_GROUP),
        (&long_key, V2_GROUP),
    ]);
    assert_eq!(outline(&tree), ["g ", "a a b%\n", "g sub", "g two", "g two/__fine", "a 日本"]);
    assert_consistent(
        &tree,
        &["__reserved", "...", ".zgroup", "sub/zarr.json", "two/__fine", &format!("two/{long}")],
    );
    for path in ["/", "two/", "a//b", "..", "two/../two", "two\0"] {
        assert!(tree.node(path).unwrap().is_none(), "{path:?}");
        assert!(tree.version(path).unwrap().is_none(), "{path:?}");
    }
}

#[test]
fn broken_documents_cost_one_node() {
    let unknown = V3_ARRAY.replace(r#"["bytes"]"#, r#"[{"name":"bytes"}]"#).replace("int32", "unheard-of");
    let deep = "[".repeat(100_000);
    let tree = memory(&[
        ("zarr.json", V3_GROUP),
        ("good/zarr.json", V3_ARRAY),
        ("cut/zarr.json", r#"{"zarr_format":3,"#),
        ("cut/.zarray", V2_ARRAY),
        ("deep/zarr.json", &deep),
        ("empty/.zarray", ""),
        ("group/.zgroup", "[]"),
        ("group/below/.zarray", V2_ARRAY),
        ("unknown/zarr.json", &unknown),
    ]);
    let expected = ["g ", "b cut", "b deep", "b empty", "a good", "b group", "b unknown"];
    assert_eq!(outline(&tree), expected);
    let paths = ["cut", "deep", "empty", "group", "group/below", "unknown", "good"];
    assert_consistent(&tree, &paths);
    assert!(reason(&tree, "cut").starts_with("cut/zarr.json: "), "{}", reason(&tree, "cut"));
    assert!(reason(&tree, "unknown").contains("unheard-of"), "{}", reason(&tree, "unknown"));
    let Some(Node::Broken { document, .. }) = tree.node("unknown").unwrap() else { panic!() };
    assert!(document.is_some());
}

fn copies() -> (String, String) {
    let v3 = format!(
        r#"{{"zarr_format":3,"node_type":"group","attributes":{{}},"consolidated_metadata":{{"kind":"inline",
        "must_understand":false,"metadata":{{"t":{V3_ARRAY},"g":{V3_GROUP},"g/u":{V3_ARRAY},"lonely/deep":{V3_ARRAY},
        "own":{V3_ARRAY},"bad":{{"zarr_format":3,"node_type":"array"}},"../up":{V3_ARRAY},"__no":{V3_GROUP}}}}}}}"#
    );
    let v2 = format!(
        r#"{{"zarr_consolidated_format":1,"metadata":{{".zgroup":{V2_GROUP},".zattrs":{{"root":true}},
        "t/.zarray":{V2_ARRAY},"t/.zattrs":{{"k":1}},"g/.zgroup":{V2_GROUP},"g/u/.zarray":{V2_ARRAY},
        "lonely/deep/.zarray":{V2_ARRAY},"own/.zarray":{V2_ARRAY},"bad/.zarray":{{}},"../up/.zarray":{V2_ARRAY}}}}}"#
    );
    (v3, v2)
}

#[test]
fn consolidated_copies_stand_in() {
    let (v3, v2) = copies();
    let expected = ["g ", "b bad", "g g", "a g/u", "g lonely", "a lonely/deep", "g own", "a t"];
    let stores: [&[(&str, &str)]; 3] = [
        &[("zarr.json", &v3), ("own/zarr.json", V3_GROUP)],
        &[(".zgroup", V2_GROUP), (".zmetadata", &v2), ("own/.zgroup", V2_GROUP)],
        &[(".zmetadata", &v2), ("own/.zgroup", V2_GROUP)],
    ];
    for objects in stores {
        let tree = memory(objects);
        assert_eq!(outline(&tree), expected);
        assert_consistent(
            &tree,
            &["bad", "g", "g/u", "lonely", "lonely/deep", "own", "t", "t/c", "up", "__no"],
        );
        let Some(Node::Group { info, .. }) = tree.node("g").unwrap() else { panic!() };
        assert_eq!(info.posix.unwrap_or_else(Posix::default_for_folder).mode & 0o555, 0o555);
    }
    // The same with copies in groups below the root.
    let moved = memory(&[("x/y/.zgroup", V2_GROUP), ("x/y/.zmetadata", &v2), ("x/y/own/.zgroup", V2_GROUP)]);
    let below: Vec<String> = expected.iter().map(|line| line.replacen(' ', " x/y/", 1)).collect();
    assert_eq!(outline(&moved)[3..], below[1..]);
}

#[test]
fn a_broken_copy_costs_nothing() {
    let tree = memory(&[(".zgroup", V2_GROUP), (".zmetadata", "{"), ("t/.zarray", V2_ARRAY)]);
    assert_eq!(outline(&tree), ["g ", "a t"]);
    assert_eq!(outline(&memory(&[("x/.zmetadata", "{"), ("x/t/.zarray", V2_ARRAY)])), ["g ", "b x"]);
}

#[test]
fn links_that_lead_back_or_out() {
    let (tree, root) =
        folder(&[("zarr.json", V3_GROUP), ("g/zarr.json", V3_GROUP), ("g/t/zarr.json", V3_ARRAY)]);
    let outside = tempfile::tempdir().unwrap();
    write(outside.path(), "zarr.json", V3_GROUP);
    let link = |target: &Path, name: &str| symlink(target, root.path().join(name)).unwrap();
    link(Path::new("."), "again");
    link(Path::new(".."), "g/up");
    link(Path::new("g/t"), "same");
    link(outside.path(), "out");
    link(Path::new("nowhere"), "dangling");
    link(Path::new("user@host.1234"), ".#lock");
    assert_eq!(outline(&tree), ["g ", "b again", "b dangling", "g g", "a g/t", "b g/up", "b out", "a same"]);
    assert_consistent(&tree, &["again", "again/g", "dangling", "g/up", "g/up/g", "out", "same", ".#lock"]);
    assert!(reason(&tree, "g/up").contains("leads back up to the root"));
    assert!(reason(&tree, "out").contains("follow-symlinks"));
    assert!(reason(&tree, "dangling").contains("is a link to a path that does not exist"));
}

#[test]
fn nested_deeper_than_the_limit() {
    let store = MemoryStore::new();
    let mut path = String::new();
    for _ in 0..MAX_DEPTH + 20 {
        store.put(&format!("{path}zarr.json"), V3_GROUP.as_bytes()).unwrap();
        path.push_str("g/");
    }
    let tree = Tree::new(Arc::new(store));
    let nodes = outline(&tree);
    assert_eq!(nodes.len(), MAX_DEPTH + 1);
    assert_eq!(tree.walk("", 3).count(), 4);
    assert!(tree.node(path.trim_end_matches('/')).unwrap().is_none());
}

#[test]
fn rights_of_an_array_are_those_of_document_and_folder() {
    let (tree, root) = folder(&[("zarr.json", V3_GROUP), ("t/zarr.json", V3_ARRAY)]);
    let mode = |document: u32, folder: u32| {
        let set = |name: &str, mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(root.path().join(name), permissions).unwrap();
        };
        set("t/zarr.json", document);
        set("t", folder);
        match tree.node("t").unwrap().unwrap() {
            Node::Array { info, .. } => info.posix.unwrap().mode,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(mode(0o644, 0o755), 0o644);
    assert_eq!(mode(0o644, 0o700), 0o600);
    assert_eq!(mode(0o664, 0o750), 0o660);
    assert_eq!(mode(0o640, 0o711), 0o640);
}

#[test]
fn versions_change_with_what_is_shown() {
    let (tree, root) = folder(&[
        (".zgroup", V2_GROUP),
        ("t/.zarray", V2_ARRAY),
        ("one/meta", V1_ARRAY),
        ("implicit/deep/.zgroup", V2_GROUP),
    ]);
    for (path, name, text) in [
        ("t", "t/.zattrs", "{}"),
        ("t", "t/.zattrs", r#"{"longer":1}"#),
        ("", ".zmetadata", r#"{"metadata":{}}"#),
        ("one", "one/attrs", "{}"),
        ("implicit", "implicit/zarr.json", V3_GROUP),
    ] {
        let before = tree.version(path).unwrap();
        assert_eq!(tree.version(path).unwrap(), before);
        write(root.path(), name, text);
        assert_ne!(tree.version(path).unwrap(), before, "{path} after {name}");
    }
    let before = tree.version("t").unwrap();
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(root.path().join("t/.zarray"), private).unwrap();
    assert_ne!(tree.version("t").unwrap(), before);
    std::fs::remove_dir_all(root.path().join("t")).unwrap();
    assert_eq!(tree.version("t").unwrap(), None);
}

/// A cached group is read again after it has changed.
#[test]
fn groups_are_seen_to_change() {
    let (_, v2) = copies();
    let (tree, root) = folder(&[(".zgroup", V2_GROUP), (".zmetadata", &v2)]);
    let past = std::time::SystemTime::now() - std::time::Duration::from_secs(100);
    for name in [".zgroup", ".zmetadata"] {
        std::fs::File::open(root.path().join(name)).unwrap().set_modified(past).unwrap();
    }
    for _ in 0..3 {
        assert!(tree.node("g/u").unwrap().is_some());
    }
    write(root.path(), ".zmetadata", r#"{"metadata":{}}"#);
    assert!(tree.node("g/u").unwrap().is_none());
    std::fs::remove_file(root.path().join(".zmetadata")).unwrap();
    write(root.path(), "g/u/.zarray", V2_ARRAY);
    assert!(tree.node("g/u").unwrap().is_some());
}

/// `scripts/bench` measures the time.
/// Does not read the documents of a group.
struct Unreadable(Error);

impl Hook for Unreadable {
    fn before(&self, request: &Request<'_>) -> Result<(), Error> {
        if request.key().starts_with("left/") && !request.key().starts_with("left/a") {
            return Err(self.0.clone());
        }
        Ok(())
    }
}

/// The bug: if the documents of a group could not be read, because of the disk or because another store had taken the place of its own, the
/// nodes below it did not exist, and the kernel remembered that for a while.
#[test]
fn below_a_group_that_cannot_be_read_nothing_is_known() {
    let store = MemoryStore::new();
    for (key, text) in [("zarr.json", V3_GROUP), ("left/zarr.json", V3_GROUP), ("left/a/zarr.json", V3_ARRAY)]
    {
        store.put(key, text.as_bytes()).unwrap();
    }
    let store = Arc::new(store);
    let has_left = Error::Stale { key: "left".to_owned() };
    let of_disk = Error::store("left/zarr.json", "reading", std::io::Error::from_raw_os_error(libc::EIO));
    for error in [has_left, of_disk] {
        let tree = Tree::new(Hooked::new(store.clone(), Unreadable(error.clone())));
        assert_eq!(reason(&tree, "left/a"), error.to_string());
        assert_eq!(tree.children("left").unwrap_err().to_string(), error.to_string());
    }
}

#[test]
fn ten_thousand_arrays_are_listed_whole() {
    let (tree, root) = folder(&[("three/zarr.json", V3_GROUP), ("two/.zgroup", V2_GROUP)]);
    let count = crate::test_level::pick(2000, 10_000);
    for index in 0..count {
        write(root.path(), &format!("three/t{index}/zarr.json"), V3_ARRAY);
        write(root.path(), &format!("two/t{index}/.zarray"), V2_ARRAY);
    }
    for path in ["three", "two"] {
        assert_eq!(tree.children(path).unwrap().len(), count);
        assert_eq!(tree.walk(path, 1).count(), count + 1);
    }
}
