//! Small arrays of many kinds to write to: plain, sharded, nested shards, big-endian, Fortran order, no fill value; no
//! length is a multiple of its chunk's.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::manifest::Region;

/// One array.
pub struct Kind {
    /// Its path in the store.
    pub name: &'static str,
    /// Length of its flat file.
    pub size_bytes: u64,
    /// One element that was never written, little-endian.
    pub fill: Vec<u8>,
}

impl Kind {
    /// Returns what it holds at first, cut into this many regions, none of which ends with a chunk or an element.
    pub fn regions(&self, count: u64, is_big_endian: bool) -> Vec<Region> {
        let mut item = self.fill.clone();
        if is_big_endian {
            item.reverse();
        }
        let fill: Vec<u8> = item.iter().copied().cycle().take(self.size_bytes as usize).collect();
        let even = |i: u64| self.size_bytes / count * i;
        let cut = |i: u64| if i == 0 || i == count { even(i) } else { even(i) | 1 };
        let end = |i: u64| if i + 1 == count { self.size_bytes } else { cut(i + 1) };
        let region = |i: u64| Region::new(cut(i), &fill[cut(i) as usize..end(i) as usize]);
        (0..count).map(region).collect()
    }
}

fn bytes(endian: &str) -> Value {
    json!({"name": "bytes", "configuration": {"endian": endian}})
}

fn shard(inner: &[u64], codecs: Value, location: &str) -> Value {
    json!({"name": "sharding_indexed", "configuration": {"chunk_shape": inner, "codecs": codecs,
        "index_codecs": [bytes("little"), {"name": "crc32c"}], "index_location": location}})
}

fn v3(shape: &[u64], chunk: &[u64], data_type: &str, fill: i64, codecs: Value) -> Value {
    json!({"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type, "fill_value": fill,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default"}, "codecs": codecs, "attributes": {}})
}

/// Makes a store of them in a folder of its own.
pub fn store() -> TempDir {
    let store = tempfile::Builder::new().suffix(".zarr").tempdir().unwrap();
    write(store.path());
    store
}

/// Writes the documents of all kinds into the folder `store`.
pub fn write(store: &Path) -> Vec<Kind> {
    let zstd = json!({"name": "zstd", "configuration": {"level": 1, "checksum": true}});
    let transpose = json!({"name": "transpose", "configuration": {"order": [1, 0]}});
    let nested = shard(&[8, 4], json!([{"name": "bytes"}, zstd]), "end");
    let documents = [
        ("plain", v3(&[60, 70], &[16, 32], "int32", 7, json!([bytes("little"), zstd]))),
        ("big", v3(&[40, 30], &[7, 9], "int64", -2, json!([bytes("big")]))),
        (
            "sharded",
            v3(
                &[90, 100],
                &[32, 48],
                "uint16",
                0,
                json!([shard(&[16, 16], json!([bytes("little"), zstd]), "end")]),
            ),
        ),
        (
            "nested",
            v3(
                &[50, 61],
                &[32, 32],
                "uint8",
                3,
                json!([transpose, shard(&[16, 16], json!([nested]), "start")]),
            ),
        ),
        (
            "fortran",
            json!({"zarr_format": 2, "shape": [50, 33], "chunks": [10, 7], "dtype": ">f8", "order": "F",
                "fill_value": 1.5, "compressor": {"id": "zlib", "level": 1}, "filters": null}),
        ),
        (
            "nofill",
            json!({"zarr_format": 2, "shape": [3000], "chunks": [97], "dtype": "<u4", "order": "C", "fill_value": null,
                "compressor": {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}, "filters": null}),
        ),
    ];
    for (name, document) in &documents {
        let is_v2 = document["zarr_format"] == 2;
        let path: PathBuf = store.join(name).join(if is_v2 { ".zarray" } else { "zarr.json" });
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, document.to_string()).unwrap();
    }
    let kind = |name, elements: u64, fill: &[u8]| Kind {
        name,
        size_bytes: elements * fill.len() as u64,
        fill: fill.to_vec(),
    };
    vec![
        kind("plain", 60 * 70, &7i32.to_le_bytes()),
        kind("big", 40 * 30, &(-2i64).to_le_bytes()),
        kind("sharded", 90 * 100, &[0; 2]),
        kind("nested", 50 * 61, &[3]),
        kind("fortran", 50 * 33, &1.5f64.to_le_bytes()),
        kind("nofill", 3000, &[0; 4]),
    ]
}

/// Returns unfinished files anywhere in a folder.
pub fn unfinished(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(unfinished(&entry.path()));
        } else if entry.file_name().to_str().is_some_and(|name| name.starts_with(".zarrfs-")) {
            found.push(entry.path());
        }
    }
    found
}
