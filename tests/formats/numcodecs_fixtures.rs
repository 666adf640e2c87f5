//! numcodecs' golden files: every `encoded.NN.dat` decodes to its `array.NN.npy`, and what we encode with its configuration is
//! decoded by numcodecs to the same as the golden file.
//!
//! `ZARRFS_CORPUS` is the folder that holds `numcodecs/` (its `fixture` tree); without it the test says that it
//! was skipped. **To add a codec**: add its folder to `CODECS`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::oracle::{Oracle, unpack, v2};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// Folders of the tree, named by the codec's id.
const CODECS: &[&str] = &[
    "adler32",
    "astype",
    "base64",
    "blosc",
    "bz2",
    "categorize/U",
    "crc32",
    "crc32c",
    "delta",
    "fixedscaleoffset",
    "gzip",
    "lz4",
    "lzma",
    "packbits",
    "pcodec",
    "quantize",
    "shuffle",
    "zfpy",
    "zlib",
    "zstd",
];
/// Ids of codecs that do not give the array back; there our encoding must be numcodecs' byte for byte.
const LOSSY: &[&str] = &["astype", "fixedscaleoffset", "quantize"];

#[test]
#[ignore = "full: needs pcodec"]
fn golden_files_decode_to_their_arrays() {
    let Ok(corpus) = std::env::var("ZARRFS_CORPUS") else {
        eprintln!("SKIPPED: ZARRFS_CORPUS is not set");
        return;
    };
    let root = Path::new(&corpus).join("numcodecs");
    let mut count = Count { numcodecs: Oracle::start(), golden: 0, by_numcodecs: 0 };
    for codec in CODECS {
        let before = count.golden;
        decode_folder(&root.join(codec), &mut count);
        assert!(count.golden > before, "no golden files for {codec}");
    }
    let Count { golden, by_numcodecs, .. } = count;
    eprintln!("{golden} golden files decoded; {by_numcodecs} encoded again and decoded by numcodecs");
}

struct Count {
    /// `None` where Python has no numcodecs.
    numcodecs: Option<Oracle>,
    golden: usize,
    by_numcodecs: usize,
}

/// Decodes the files of a codec; some have their arrays and codecs a folder deeper.
fn decode_folder(folder: &Path, count: &mut Count) {
    for path in sorted(folder) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with("codec.") {
            let config = fs::read_to_string(path.join("config.json")).unwrap();
            let config: Map<String, Value> = serde_json::from_str(&config).unwrap();
            for encoded in sorted(&path) {
                let file = encoded.file_name().unwrap().to_str().unwrap();
                if let Some(number) = file.strip_prefix("encoded.").and_then(|n| n.strip_suffix(".dat")) {
                    decode_file(&encoded, &folder.join(format!("array.{number}.npy")), &config, count);
                    count.golden += 1;
                }
            }
        } else if path.is_dir() {
            decode_folder(&path, count);
        }
    }
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn decode_file(encoded: &Path, array: &Path, config: &Map<String, Value>, count: &mut Count) {
    let npy = Npy::read(&fs::read(array).unwrap());
    let document = v2(npy.dtype, &npy.shape, "C", json!(null), Value::Object(config.clone()));
    let pipeline = crate::oracle::pipeline(&document).unwrap_or_else(|error| panic!("{document}: {error}"));
    let bytes = fs::read(encoded).unwrap();
    let mut out = vec![0xa5; pipeline.decoded_bytes()];
    pipeline.decode(&bytes, &mut out).unwrap_or_else(|error| panic!("{}: {error}", encoded.display()));
    let again = pipeline.encode(&npy.data).unwrap_or_else(|error| panic!("{config:?}: {error}"));
    let mut twice = vec![0xa5; pipeline.decoded_bytes()];
    pipeline.decode(&again, &mut twice).unwrap_or_else(|error| panic!("{config:?}: {error}"));
    if LOSSY.contains(&config["id"].as_str().unwrap()) {
        assert!(*again == *bytes, "{} is encoded differently", encoded.display());
        assert!(twice == out, "{config:?} does not come back");
    } else {
        assert!(out == npy.data, "{} differs", encoded.display());
        assert!(twice == npy.data, "{config:?} does not come back");
    }
    // numcodecs' blosc is built without snappy.
    if let Some(numcodecs) =
        count.numcodecs.as_mut().filter(|_| config.get("cname") != Some(&json!("snappy")))
    {
        let mut decode = |data: &[u8]| {
            let request = json!({"op": "numcodecs_decode", "config": config, "data": STANDARD.encode(data)});
            numcodecs.ask(request).map(|answer| unpack(&answer["data"]))
        };
        let ours = decode(&again).unwrap_or_else(|error| panic!("{config:?}: {error}"));
        assert!(Ok(ours) == decode(&bytes), "{}: numcodecs reads ours differently", encoded.display());
        count.by_numcodecs += 1;
    }
}

/// An .npy file. Elements in F order are returned with the reversed shape in C order.
struct Npy {
    dtype: Value,
    shape: Vec<u64>,
    /// The elements as they lie.
    data: Vec<u8>,
}

impl Npy {
    fn read(file: &[u8]) -> Npy {
        assert!(file.starts_with(b"\x93NUMPY"));
        let (start, length) = match file[6] {
            1 => (10, u16::from_le_bytes([file[8], file[9]]) as usize),
            _ => (12, u32::from_le_bytes([file[8], file[9], file[10], file[11]]) as usize),
        };
        let header = std::str::from_utf8(&file[start..start + length]).unwrap();
        let between = |from: &str, to: &str| {
            let found = header.split_once(from).unwrap().1;
            found.split_once(to).unwrap().0.to_owned()
        };
        let shape = between("'shape': (", ")");
        let mut shape: Vec<u64> = shape.split(',').filter_map(|length| length.trim().parse().ok()).collect();
        if header.contains("'fortran_order': True") {
            shape.reverse();
        }
        Npy { dtype: json!(between("'descr': '", "'")), shape, data: file[start + length..].to_vec() }
    }
}
