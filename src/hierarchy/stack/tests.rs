//! Stacks in a folder: what hostile documents do, and what a virtual array reads.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{Node, Tree, open_store};
use crate::array::{Array, Engine, Layout};
use crate::error::Error;
use crate::metadata::conventions::no_data::NoData;
use crate::metadata::test_documents::v3_array;
use crate::store::{Store, StoreOptions};

/// Writes an array of int16 with its numbers from `first` on, in chunks of 2 by 2 that are decoded before they are read.
fn put(folder: &Path, name: &str, shape: [u64; 2], first: i16) {
    let chunks = json!({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 2]}},
        "dimension_names": ["y", "x"], "codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}},
            {"name": "bytes", "configuration": {"endian": "little"}}]});
    let document = v3_array(&shape, "int16", chunks);
    let folder = folder.join(name);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("zarr.json"), document.to_string()).unwrap();
    for (row, column) in
        (0..shape[0].div_ceil(2)).flat_map(|row| (0..shape[1].div_ceil(2)).map(move |c| (row, c)))
    {
        let element = |place: u64| {
            let (y, x) = (row * 2 + place % 2, column * 2 + place / 2);
            (first + (y * shape[1] + x) as i16).to_le_bytes()
        };
        let at = folder.join(format!("c/{row}"));
        fs::create_dir_all(&at).unwrap();
        fs::write(at.join(column.to_string()), (0..4).flat_map(element).collect::<Vec<u8>>()).unwrap();
    }
}

fn open(folder: &Path, document: &Value) -> Result<Arc<dyn Store>, Error> {
    let path = folder.join("stack.json");
    fs::write(&path, document.to_string()).unwrap();
    open_store(path.to_str().unwrap(), &StoreOptions::default())
}

fn arrays(folder: &Path, arrays: &Value) -> Result<Arc<dyn Store>, Error> {
    open(folder, &json!({"zarrfs_stack": 1, "arrays": arrays}))
}

fn array(store: &Arc<dyn Store>, engine: &Arc<Engine>, path: &str) -> Arc<Array> {
    match Tree::new(store.clone()).node(path).unwrap() {
        Some(Node::Array { metadata, .. }) => {
            Array::open(engine, store, path, metadata, Layout::default()).unwrap()
        }
        other => panic!("{path}: {other:?}"),
    }
}

fn numbers(array: &Array) -> Vec<i16> {
    let mut bytes = vec![0; array.size_bytes() as usize];
    array.read_at(0, &mut bytes).unwrap();
    bytes.chunks_exact(2).map(|two| i16::from_le_bytes(two.try_into().unwrap())).collect()
}

#[test]
fn two_virtual_arrays_share_the_chunks_of_a_target() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "a.zarr", [4, 4], 0);
    put(folder.path(), "b.zarr", [2, 4], 16);
    let layers = json!([{"store": "a.zarr"}, {"store": "b.zarr"}]);
    let store = arrays(
        folder.path(),
        &json!({"all": {"driver": "concat", "axis": "y", "layers": layers},
            "again": {"driver": "downsample", "downsample_factors": [2, 2], "downsample_method": "stride", "base":
                {"driver": "concat", "axis": 0, "layers": layers}}}),
    )
    .unwrap();
    let engine = Engine::new(1 << 20, 1);
    let (all, again) = (array(&store, &engine, "all"), array(&store, &engine, "again"));
    assert_eq!(numbers(&all), (0..24).collect::<Vec<i16>>());
    let loaded = engine.counters();
    assert_eq!(numbers(&again), [0, 2, 8, 10, 16, 18]);
    let more = engine.counters();
    assert_eq!(
        (more.misses, more.cached_bytes),
        (loaded.misses, loaded.cached_bytes),
        "nothing is decoded or kept twice"
    );
    // Bytes inside elements.
    let mut bytes = [0; 5];
    all.read_at(31, &mut bytes).unwrap();
    assert_eq!(bytes, [0, 16, 0, 17, 0]);
}

/// In v2, the fill value of a document may stand for missing data. The documents of virtual arrays are v3, in which only an attribute does.
#[test]
fn missing_data_of_v2_stays_missing() {
    let folder = tempfile::tempdir().unwrap();
    for (name, fill) in [("a", 9), ("b", 9), ("c", 7)] {
        let at = folder.path().join(name);
        fs::create_dir(&at).unwrap();
        let document = json!({"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "<i2", "compressor": null,
            "fill_value": fill, "order": "C", "filters": null});
        fs::write(at.join(".zarray"), document.to_string()).unwrap();
        fs::write(at.join(".zattrs"), r#"{"_ARRAY_DIMENSIONS": ["t"]}"#).unwrap();
    }
    let concat = |names: [&str; 2]| {
        let layers = names.map(|name| json!({"store": name}));
        arrays(folder.path(), &json!({"all": {"driver": "concat", "axis": "t", "layers": layers}}))
    };
    let store = concat(["a", "b"]).unwrap();
    let all = array(&store, &Engine::new(1 << 20, 1), "all");
    let missing: Vec<_> = NoData::read(all.metadata()).values.into_iter().map(|value| value.bytes).collect();
    assert_eq!(missing, [9_i16.to_le_bytes().to_vec()]);
    let refused = concat(["a", "c"]).err().unwrap().to_string();
    assert!(refused.contains("other values for missing data"), "{refused}");
}

#[test]
fn what_leads_outside_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("inside");
    fs::create_dir(&inside).unwrap();
    put(folder.path(), "a.zarr", [4, 4], 0);
    std::os::unix::fs::symlink("../a.zarr", inside.join("link.zarr")).unwrap();
    let whole = folder.path().join("a.zarr").to_str().unwrap().to_owned();
    for store in ["../a.zarr", &whole, &format!("file://{whole}"), "x/../../a.zarr"] {
        let refused = arrays(&inside, &json!({"a": {"store": store}})).err().unwrap().to_string();
        assert!(refused.contains("--allow-references"), "{store}: {refused}");
    }
    assert!(arrays(&inside, &json!({"a": {"store": "link.zarr"}})).is_err());
    let allowed_references = vec![folder.path().to_str().unwrap().to_owned()];
    let options = StoreOptions { allowed_references, ..StoreOptions::default() };
    let path = inside.join("stack.json");
    fs::write(&path, json!({"zarrfs_stack": 1, "arrays": {"a": {"store": "../a.zarr"}}}).to_string())
        .unwrap();
    assert!(open_store(path.to_str().unwrap(), &options).is_ok());
}

/// The bug: a document of 16 MiB took 16 GB, because all groups above each path are kept.
#[test]
fn many_deep_paths_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |number: usize| format!("{number}/{}", vec!["n".repeat(29); 125].join("/"));
    let groups: serde_json::Map<_, _> = (0..600).map(|number| (path(number), json!({}))).collect();
    let refused =
        open(folder.path(), &json!({"zarrfs_stack": 1, "groups": groups})).err().unwrap().to_string();
    assert!(refused.contains("the paths of its groups have more than"), "{refused}");
}

/// Groups are listed one by one, and each listing looks only at what is below its group.
#[test]
fn groups_list_what_is_below_them() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "a.zarr", [4, 4], 0);
    let leaf = json!({"store": "a.zarr", "path": ""});
    let paths = ["g/a", "g/h/b", "g-1/c", "g/h-2/d", "g0", "z/y/x"];
    let members: serde_json::Map<_, _> =
        paths.iter().map(|path| ((*path).to_owned(), leaf.clone())).collect();
    let store = arrays(folder.path(), &Value::Object(members)).unwrap();
    let names = |group: &str| {
        let children = Tree::new(store.clone()).children(group).unwrap();
        children.into_iter().map(|child| child.name).collect::<Vec<_>>().join(" ")
    };
    for (group, below) in
        [("", "g g-1 g0 z"), ("g", "a h h-2"), ("g/h", "b"), ("g-1", "c"), ("z", "y"), ("g0", ""), ("g/", "")]
    {
        assert_eq!(names(group), below, "{group}");
    }
}

fn hostile() -> Value {
    let leaf = |store: &str| json!({"store": store, "path": ""});
    json!({"zarrfs_stack": 1, "groups": {"g": {"attributes": {"a": 1}}}, "arrays": {
        "c": {"driver": "concat", "axis": "y", "layers": [leaf("a.zarr"), leaf("b.zarr")], "dimension_names": ["y", null]},
        "g/s": {"driver": "stack", "axis": 1, "name": "run", "layers": [leaf("a.zarr"), {"driver": "unpack", "base": leaf("a.zarr")}]},
        "d": {"driver": "downsample", "downsample_factors": [3, 2], "downsample_method": "mean",
            "base": {"driver": "slice", "index": [[0, 4, 2], [1, 3]],
                "base": {"driver": "cast", "dtype": "float32", "base": leaf("a.zarr")}}}}})
}

/// Replaces the n-th value in order.
fn exchange(value: &mut Value, left: &mut usize, new: &Value) {
    if *left == 0 {
        *value = new.clone();
    }
    *left = left.wrapping_sub(1);
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| exchange(item, left, new)),
        Value::Object(members) => members.values_mut().for_each(|item| exchange(item, left, new)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// A document with a wrong value anywhere is refused, or can be read from end to end.
    #[test]
    fn no_document_panics(nth in 0usize..90, value in 0usize..19) {
        let values = json!([null, true, -1, 0, 1, 2, 31, 32, 33, 255, u64::MAX, i64::MAX, "", "a.zarr", "stack.json", "int8", [], {},
            [[0, u64::MAX, u64::MAX], [3, 3]]]);
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "a.zarr", [4, 4], 0);
        put(folder.path(), "b.zarr", [2, 4], 16);
        let (mut document, mut left) = (hostile(), nth);
        exchange(&mut document, &mut left, &values[value]);
        let Ok(store) = open(folder.path(), &document) else { return Ok(()) };
        let engine = Engine::new(1 << 20, 1);
        let tree = Tree::new(store.clone());
        for visit in tree.walk("", usize::MAX) {
            if let Ok(Node::Array { metadata, .. }) = &visit.node
                && let Ok(array) = Array::open(&engine, &store, &visit.path, metadata.clone(), Layout::default())
            {
                let size = array.size_bytes();
                let mut bytes = vec![0; size.min(1 << 16) as usize];
                let _ = array.read_at(0, &mut bytes);
                let _ = array.read_at(size - bytes.len() as u64, &mut bytes);
                let _ = array.stored();
            }
        }
    }
}
