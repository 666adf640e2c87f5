//! Every metadata document of the corpus parses into what its writer meant.
//!
//! The corpus is a folder with `expected.json` (per array: shape, dtype, nbytes), named by `ZARRFS_CORPUS`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::corpus::SHOWN_SINCE;
use crate::support::json_of;
use crate::support::level;
use serde_json::Value;
use zarrfs::metadata::{self, ArrayMetadata, ByteOrder, Document};

fn corpus() -> Option<PathBuf> {
    let folder = std::env::var_os("ZARRFS_CORPUS").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("SKIPPED: ZARRFS_CORPUS is not set, no document of another writer was read");
    }
    folder
}

fn array_in(folder: &Path) -> Option<ArrayMetadata> {
    let read = |name: &str| fs::read(folder.join(name)).ok();
    if let Some(document) = read("zarr.json") {
        return match metadata::parse_v3("zarr.json", &document).unwrap() {
            Document::Array(array) => Some(array),
            Document::Group(_) => None,
        };
    }
    let zarray = read(".zarray")?;
    Some(metadata::parse_v2_array(".zarray", &zarray, read(".zattrs").as_deref()).unwrap())
}

#[test]
fn arrays_have_the_shape_the_type_and_the_size_they_should() {
    let Some(corpus) = corpus() else { return };
    let expected: Value = json_of(corpus.join("expected.json"));
    let mut compared = 0;
    for (path, expected) in expected.as_object().unwrap() {
        let folder = corpus.join(path);
        if !folder.is_dir() {
            continue; // inside a zip
        }
        let array = array_in(&folder).unwrap_or_else(|| panic!("{path} holds no array"));
        let item_size = array.data_type.item_size();
        if SHOWN_SINCE.contains(&path.as_str()) {
            continue;
        }
        if expected.get("raw").is_some() {
            assert_eq!(item_size, None, "{path}");
            continue;
        }
        assert_eq!(Value::from(array.shape.clone()), expected["shape"], "{path}");
        assert_eq!(array.data_type.numpy_descr(ByteOrder::Little), expected["dtype"], "{path}");
        let size = array.shape.iter().product::<u64>() * item_size.unwrap() as u64;
        assert_eq!(Some(size), expected["nbytes"].as_u64(), "{path}");
        compared += 1;
    }
    eprintln!("{compared} arrays compared");
    assert!(compared > 50);
}

/// Cuts and flips in real documents: an answer or an error, never a panic; and a size where it is known.
#[test]
fn damaged_documents_are_errors() {
    let Some(corpus) = corpus() else { return };
    let mut folders = vec![corpus];
    let (mut documents, mut mutants) = (0, 0);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !["zarr.json", ".zarray", ".zgroup", ".zmetadata"].contains(&name.as_str()) {
                continue;
            }
            let document = fs::read(&path).unwrap();
            documents += 1;
            let steps = document.len().min(level::pick(40, 400));
            for step in 0..steps {
                let at = step * document.len() / steps;
                let mut flipped = document.clone();
                flipped[at] ^= 1 << (step % 8);
                let mut replaced = document.clone();
                replaced[at] = b"0-9[{\"ne"[step % 8];
                for mutant in [&document[..at], &flipped, &replaced] {
                    read_as_everything(mutant);
                    mutants += 1;
                }
            }
        }
    }
    eprintln!("{mutants} mutants of {documents} documents");
}

fn read_as_everything(document: &[u8]) {
    if let Ok(Document::Array(array)) = metadata::parse_v3("k", document) {
        check(&array);
    }
    if let Ok(array) = metadata::parse_v2_array("k", document, Some(document)) {
        check(&array);
    }
    if let Ok(array) = metadata::parse_v1_array("k", document, Some(document)) {
        check(&array);
    }
    if let Ok(group) = metadata::parse_v2_group("k", document, None, Some(document)) {
        for (name, _) in metadata::consolidated_children(&group, "") {
            let _ = metadata::consolidated_node(&group, &name);
        }
    }
    let _ = metadata::salvage(document);
}

fn check(array: &ArrayMetadata) {
    let rank = array.shape.len();
    assert!(rank <= metadata::MAX_RANK);
    assert_eq!(array.chunk_grid.chunk_counts(&array.shape).len(), rank);
    if let Some(size) = array.data_type.item_size() {
        assert_eq!(array.fill_value.bytes.len(), size);
        let components = array.data_type.components().unwrap();
        assert_eq!(components.iter().map(|run| run.width * run.count).sum::<usize>(), size);
    }
    let _ = (array.fill_value.to_json(&array.data_type), array.data_type.numpy_descr(ByteOrder::Big));
}
