//! The lengths of sidecars, which are kept longer than the nodes. The arrays here have one axis: the sidecars of others depend on the
//! coordinates around them.

use std::fs::{self, File};
use std::path::Path;
use std::time::SystemTime;

use super::*;
use crate::store::DirectoryStore;

/// Writes the document of an array with these attributes, with a time of an hour ago: a document of this moment may change again without
/// getting another version.
fn write_array(folder: &Path, attributes: &Value) {
    let mut document = array(&[12], 9);
    document["attributes"] = attributes.clone();
    write(folder, &document.to_string());
}

fn write(folder: &Path, document: &str) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("zarr.json"), document).unwrap();
    let before = SystemTime::now() - Duration::from_secs(3600);
    for path in [folder.join("zarr.json"), folder.to_owned()] {
        File::open(path).unwrap().set_modified(before).unwrap();
    }
}

/// A mount of a folder with array `t`.
fn mount() -> (Mount, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    write_array(&folder.path().join("t"), &json!({"a": 1}));
    write(folder.path(), GROUP);
    let mut options = Options::new("/data/sample.zarr", "/mnt");
    options.threads = 1;
    options.revalidate_seconds = 0.0;
    let store = Arc::new(DirectoryStore::open(folder.path(), false).unwrap());
    let fs = FileSystem::new(Arc::new(options), store);
    (Mount { store: Arc::default(), fs }, folder)
}

/// How many companion files were made.
fn made(mount: &Mount) -> u64 {
    let stats = String::from_utf8(mount.read("__zarrfs__/stats").unwrap()).unwrap();
    let count = stats.lines().find_map(|line| line.strip_prefix("zarrfs_companions_made_total "));
    count.unwrap().parse().unwrap()
}

#[test]
fn a_listing_makes_each_sidecar_once() {
    let (mount, folder) = mount();
    let size_bytes = mount.find("t.json").unwrap().size_bytes;
    mount.find("__group__.json").unwrap();
    assert_eq!(made(&mount), 2);
    for _ in 0..3 {
        mount.fs.expire();
        assert_eq!(mount.find("t.json").unwrap().size_bytes, size_bytes);
        mount.find("__group__.json").unwrap();
    }
    assert_eq!(made(&mount), 2, "the cache of nodes has read the documents again");
    assert_eq!(mount.read("t.json").unwrap().len() as u64, size_bytes);
    // A document of this moment may change again without getting another version.
    let document = array(&[12], 9).to_string();
    fs::write(folder.path().join("t/zarr.json"), document).unwrap();
    let before = made(&mount);
    for round in 1..=3 {
        mount.fs.expire();
        mount.find("t.json").unwrap();
        assert_eq!(made(&mount), before + round);
    }
}

#[test]
fn the_length_of_a_sidecar_follows_the_documents() {
    let (mount, folder) = mount();
    let node = folder.path().join("t");
    let first = mount.find("t.json").unwrap().size_bytes;
    let handle = mount.open("t.json").unwrap();
    for attributes in [json!({"a": "longer"}), json!({"a": 1}), json!({"a": 2, "b": [1, 2]}), json!({})] {
        write_array(&node, &attributes);
        let size_bytes = mount.find("t.json").unwrap().size_bytes;
        assert_eq!(mount.read("t.json").unwrap().len() as u64, size_bytes, "{attributes}");
        mount.fs.expire();
        assert_eq!(mount.find("t.json").unwrap().size_bytes, size_bytes, "{attributes}");
        assert_eq!(mount.json("t.json")["attributes"], attributes);
        let snapshot = mount.read_handle(handle, 0, 1 << 20).unwrap();
        assert_eq!(snapshot.len() as u64, first, "an open file stays as it was");
    }
    // A sidecar with an error is never taken for one of the same documents without it.
    write(&node, &array(&[12], 9).to_string().replace("crc32c", "squeeze"));
    let refused = mount.find("t.json").unwrap().size_bytes;
    mount.fs.expire();
    let before = made(&mount);
    assert_eq!(mount.find("t.json").unwrap().size_bytes, refused);
    assert_eq!(made(&mount), before + 1);
    assert_eq!(mount.read("t.json").unwrap().len() as u64, refused);
}
