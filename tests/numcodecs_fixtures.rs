//! numcodecs' golden files: every `encoded.NN.dat` decodes to its `array.NN.npy`.
//!
//! `ZARRFS_CORPUS` is the folder that holds `numcodecs/` (its `fixture` tree); without it the test says loudly that it
//! was skipped. **To add a codec**: add its folder to `CODECS`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use zarrfs::codec::{Pipeline, Representation};
use zarrfs::metadata::{CodecFamily, CodecSpec, DataType, FillValue};

/// Folders of the tree, named by the codec's id.
const CODECS: &[&str] = &["blosc", "crc32c", "gzip", "zlib", "zstd"];

#[test]
fn golden_files_decode_to_their_arrays() {
    let Ok(corpus) = std::env::var("ZARRFS_CORPUS") else {
        eprintln!("SKIPPED: ZARRFS_CORPUS is not set");
        return;
    };
    let root = Path::new(&corpus).join("numcodecs");
    let mut count = 0;
    for codec in CODECS {
        let before = count;
        decode_folder(&root.join(codec), &mut count);
        assert!(count > before, "no golden files for {codec}");
    }
    println!("{count} golden files");
}

/// The files of a codec; some have their arrays and codecs a folder deeper.
fn decode_folder(folder: &Path, count: &mut usize) {
    for path in sorted(folder) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with("codec.") {
            let config = fs::read_to_string(path.join("config.json")).unwrap();
            let config: Map<String, Value> = serde_json::from_str(&config).unwrap();
            for encoded in sorted(&path) {
                let file = encoded.file_name().unwrap().to_str().unwrap();
                if let Some(number) = file.strip_prefix("encoded.").and_then(|n| n.strip_suffix(".dat")) {
                    decode_file(&encoded, &folder.join(format!("array.{number}.npy")), &config);
                    *count += 1;
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

fn decode_file(encoded: &Path, array: &Path, config: &Map<String, Value>) {
    let expected = npy_data(&fs::read(array).unwrap());
    let mut configuration = config.clone();
    let name = configuration.remove("id").unwrap().as_str().unwrap().to_owned();
    let spec = |name: &str, configuration: Map<String, Value>| CodecSpec {
        family: CodecFamily::V2,
        name: name.into(),
        configuration,
        must_understand: true,
    };
    let decoded = Representation {
        shape: vec![expected.len() as u64],
        data_type: DataType::UInt8,
        fill_value: FillValue { bytes: vec![0], is_undefined: true },
    };
    let specs = [spec("bytes", Map::new()), spec(&name, configuration)];
    let pipeline = Pipeline::build(&specs, &decoded).unwrap_or_else(|error| panic!("{config:?}: {error}"));
    let bytes = fs::read(encoded).unwrap();
    let mut out = vec![0xa5; expected.len()];
    pipeline.decode(&bytes, &mut out).unwrap_or_else(|error| panic!("{}: {error}", encoded.display()));
    assert!(out == expected, "{} differs", encoded.display());
    // What we encode, we decode.
    let again = pipeline.encode(&expected).unwrap_or_else(|error| panic!("{config:?}: {error}"));
    out.fill(0xa5);
    pipeline.decode(&again, &mut out).unwrap_or_else(|error| panic!("{config:?}: {error}"));
    assert!(out == expected, "{config:?} does not come back");
}

/// The elements of an .npy file, as they lie.
fn npy_data(file: &[u8]) -> Vec<u8> {
    assert!(file.starts_with(b"\x93NUMPY"));
    let start = match file[6] {
        1 => 10 + u16::from_le_bytes([file[8], file[9]]) as usize,
        _ => 12 + u32::from_le_bytes([file[8], file[9], file[10], file[11]]) as usize,
    };
    file[start..].to_vec()
}
