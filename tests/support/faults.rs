//! The faults of tests/faults/corrupt, written out as stores.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::fixtures::errno_by_name;

/// When a fault shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Opening the array fails.
    Open,
    /// Opening is fine, reading the first bytes fails.
    Read,
    /// It must only not harm.
    Never,
}

/// One fault.
pub struct Fault {
    /// Name of its file.
    pub name: String,
    /// The errnos that are right.
    pub errnos: Vec<i32>,
    /// Whether reading may succeed as well.
    pub may_be_fine: bool,
    /// The bytes of the array, where it must be fine.
    pub flat: Option<Vec<u8>>,
    /// When it shows.
    pub when: When,
    /// What the error must name.
    pub names: Vec<String>,
    files: Vec<(String, Value)>,
}

/// Returns all faults, by name.
pub fn all() -> Vec<Fault> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/corrupt");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Fault {
    let document: Value = serde_json::from_slice(&fs::read(path).unwrap())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
    assert!(document["what"].as_str().is_some_and(|what| !what.is_empty()), "{name}: no 'what'");
    let words: Vec<&str> = document["expect"].as_str().unwrap().split('|').collect();
    let errnos = words.iter().filter(|word| !matches!(**word, "fine" | "any"));
    Fault {
        errnos: errnos.map(|word| errno_by_name(word)).collect(),
        may_be_fine: words.contains(&"fine") || words.contains(&"any"),
        flat: document["flat"].as_str().map(bytes_of),
        when: match document["when"].as_str() {
            _ if words == ["any"] => When::Never,
            Some("read") => When::Read,
            _ => When::Open,
        },
        names: document["names"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|n| n.as_str().unwrap().to_owned())
            .collect(),
        files: document["files"].as_object().unwrap().iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
        name,
    }
}

impl Fault {
    /// Writes the store NAME: the array `bad`, and next to it `good`, which holds 0, 1, 2, 3 as int32.
    pub fn write(&self, folder: &Path) {
        let store = folder.join(&self.name);
        for (key, object) in &self.files {
            let path = store.join("bad").join(key);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            write_object(&path, object);
        }
        let document = json!({
            "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "int32", "fill_value": 0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
            "chunk_key_encoding": {"name": "default"},
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        });
        fs::create_dir_all(store.join("good/c")).unwrap();
        fs::write(store.join("good/zarr.json"), document.to_string()).unwrap();
        fs::write(store.join("good/c/0"), good_bytes()).unwrap();
    }
}

/// Returns what the neighbour of every fault reads as.
pub fn good_bytes() -> Vec<u8> {
    (0..4i32).flat_map(i32::to_le_bytes).collect()
}

fn write_object(path: &Path, object: &Value) {
    let Value::Array(recipe) = object else {
        let text = object.as_str().map_or_else(|| object.to_string(), str::to_owned);
        return fs::write(path, text).unwrap();
    };
    let text = |at: usize| recipe[at].as_str().unwrap();
    let number = |at: usize| usize::try_from(recipe[at].as_u64().unwrap()).unwrap();
    match text(0) {
        "hex" => fs::write(path, bytes_of(text(1))).unwrap(),
        "repeat" => fs::write(path, text(1).to_owned() + &text(2).repeat(number(3)) + text(4)).unwrap(),
        "repeat-hex" => fs::write(path, bytes_of(text(1)).repeat(number(2))).unwrap(),
        "sparse" => {
            fs::write(path, bytes_of(text(1))).unwrap();
            fs::File::options().write(true).open(path).unwrap().set_len(number(2) as u64).unwrap();
        }
        "gzip-zeros" => {
            let level = flate2::Compression::best();
            write_zeros(flate2::write::GzEncoder::new(Vec::new(), level), number(1), path, |e| {
                e.finish().unwrap()
            });
        }
        "zlib-zeros" => {
            let level = flate2::Compression::best();
            write_zeros(flate2::write::ZlibEncoder::new(Vec::new(), level), number(1), path, |e| {
                e.finish().unwrap()
            });
        }
        "zstd-zeros" => {
            let encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
            write_zeros(encoder, number(1), path, |e| e.finish().unwrap());
        }
        "xz-zeros" => {
            let encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
            write_zeros(encoder, number(1), path, |e| e.finish().unwrap());
        }
        "link" => std::os::unix::fs::symlink(text(1), path).unwrap(),
        "fifo" => {
            let status = std::process::Command::new("mkfifo").arg(path).status().unwrap();
            assert!(status.success(), "mkfifo");
        }
        other => panic!("unknown recipe {other}"),
    }
}

fn write_zeros<E: Write>(mut encoder: E, mut left: usize, path: &Path, finish: impl FnOnce(E) -> Vec<u8>) {
    let zeros = vec![0; 1 << 20];
    while left > 0 {
        let part = left.min(zeros.len());
        encoder.write_all(&zeros[..part]).unwrap();
        left -= part;
    }
    fs::write(path, finish(encoder)).unwrap();
}

fn bytes_of(digits: &str) -> Vec<u8> {
    let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(pair).collect()
}
