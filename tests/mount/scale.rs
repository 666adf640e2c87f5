//! A store of 10,000 arrays: listed in seconds, and listing one folder opens nothing below the others.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use crate::support::mounted::Mount;
use crate::support::stores::Counting;
use crate::support::{folders, level, say};
use serde_json::json;
use zarrfs::hierarchy::{Node, Tree};

const GROUPS: usize = 100;

/// Returns 100 at the full level.
fn arrays_per_group() -> usize {
    level::pick(14, 100)
}

/// Groups `g00` to `g99` of arrays `a00` to `a99`, half of them v2, half v3.
fn write(store: &Path) {
    let v3 = json!({
        "zarr_format": 3, "node_type": "array", "shape": [100, 50], "data_type": "float32", "fill_value": 0.0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10, 50]}},
        "chunk_key_encoding": {"name": "default"}, "attributes": {"units": "m"},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd", "configuration": {"level": 1, "checksum": false}}],
    })
    .to_string();
    let v2 = json!({
        "zarr_format": 2, "shape": [100, 50], "chunks": [10, 50], "dtype": "<f4", "fill_value": 0.0, "order": "C",
        "filters": null, "compressor": {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0},
    })
    .to_string();
    fs::create_dir_all(store).unwrap();
    fs::write(store.join("zarr.json"), r#"{"zarr_format": 3, "node_type": "group"}"#).unwrap();
    for group in 0..GROUPS {
        let (document, text) = if group % 2 == 0 { ("zarr.json", &v3) } else { (".zarray", &v2) };
        for array in 0..arrays_per_group() {
            let folder = store.join(format!("g{group:02}/a{array:02}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(document), text).unwrap();
        }
    }
}

#[test]
fn ten_thousand_arrays() {
    // In memory where that is possible: some disks take minutes to delete so many files.
    let folder = folders::in_memory();
    let store = folder.path().join("large.zarr");
    let started = Instant::now();
    write(&store);
    say(format!(
        "scale: {} arrays written in {:.1} s",
        GROUPS * arrays_per_group(),
        started.elapsed().as_secs_f64()
    ));
    opens_nothing_elsewhere(&store);
    lists_in_seconds(&store);
}

/// Checks that listing `g07` through the library, as the mount does it, asks nothing below any other group.
fn opens_nothing_elsewhere(store: &Path) {
    let counting = Counting::new(zarrfs::store::open(store.to_str().unwrap(), false).unwrap());
    let tree = Tree::new(counting.clone() as Arc<dyn zarrfs::store::Store>);
    let children = tree.children("").unwrap();
    assert_eq!(children.len(), GROUPS);
    let asked = counting.take();
    let below = asked.keys().filter(|key| key.matches('/').count() > 1).count();
    assert_eq!(below, 0, "listing the root asked for {asked:?}");
    let names = tree.children("g07").unwrap();
    assert_eq!(names.len(), arrays_per_group());
    assert!(names.iter().all(|child| !child.is_group));
    assert!(matches!(tree.node("g07/a12").unwrap(), Some(Node::Array { .. })));
    let asked = counting.take();
    let elsewhere: Vec<&String> = asked
        .keys()
        .filter(|key| key.starts_with('g') && !key.starts_with("g07/") && *key != "g07")
        .collect();
    assert!(elsewhere.is_empty(), "listing g07 asked for {elsewhere:?}");
    let questions: u64 = asked.values().sum();
    say(format!(
        "scale: listing one group of {} arrays asks the store {questions} times, elsewhere never",
        arrays_per_group()
    ));
}

fn lists_in_seconds(store: &Path) {
    let Some(mount) = Mount::new(store, &[], "10,000 arrays") else { return };
    for (what, path, flags) in
        [("ls", "g07", "-1"), ("ls -l", "g08", "-l"), ("ls -lR", "", "-lR"), ("ls -lR again", "", "-lR")]
    {
        let started = Instant::now();
        let output = Command::new("ls").arg(flags).arg(mount.path(path)).output().unwrap();
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        let lines = output.stdout.iter().filter(|byte| **byte == b'\n').count();
        say(format!("scale: {what} of '{path}': {lines} lines in {:.2} s", started.elapsed().as_secs_f64()));
        let expected = if path.is_empty() { 2 * GROUPS * arrays_per_group() } else { 2 * arrays_per_group() };
        assert!(lines >= expected, "{what}: only {lines} lines");
    }
    say(format!("scale: the daemon holds {} MiB after that", mount.memory_kb("VmHWM") / 1024));
    let started = Instant::now();
    mount.unmount();
    say(format!("scale: unmounted in {:.2} s", started.elapsed().as_secs_f64()));
    let started = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_zarrfs")).arg("ls").arg(store).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    say(format!(
        "scale: zarrfs ls: {} bytes in {:.2} s",
        output.stdout.len(),
        started.elapsed().as_secs_f64()
    ));
}
