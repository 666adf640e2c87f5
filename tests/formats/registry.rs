//! The names that Zarr's registry of extensions has: each is served, or refused with a reason.
//!
//! `registry.json` has the names of zarr-developers/zarr-extensions and the commit that they are from. **To renew it**: list the folders of
//! a newer commit; a name that is neither served nor in [`REFUSED`] fails here.
//!
//! Recorded arrays show that what others write is read: `tests/recorded/zarrs.zip` has the extensions of the zarrs crate and data types that
//! no Python library has (`zarrs_arrays` in `tests/bench`), `image_codecs.zip` those of imagecodecs, kerchunk and virtual-tiff
//! (`tests/programs/image_codecs.py`). `scripts/make_recorded.py` makes both. tensorstore writes the blocks of N5.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};
use zarrfs::array::VariableArray;
use zarrfs::codec::{Pipeline, Representation};
use zarrfs::metadata::{ArrayMetadata, Document, parse_v3};
use zarrfs::store::{MemoryStore, Store};

use crate::companions;
use crate::support::fixtures::recorded_folder;
use crate::support::json_of;
use crate::support::mounted::Mount;
use crate::support::say;

/// Names that are refused, and why.
const REFUSED: &[(&str, &str, &str)] = &[];

fn document(data_type: Value, fill_value: Value, codecs: Value) -> Value {
    json!({"zarr_format": 3, "node_type": "array", "shape": [4, 6], "data_type": data_type, "fill_value": fill_value,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": codecs})
}

fn little() -> Value {
    json!({"name": "bytes", "configuration": {"endian": "little"}})
}

/// Returns an array whose document has a registered name, as the name's own specification shows it.
fn example(kind: &str, name: &str) -> Value {
    let mut plain = document(json!("int32"), json!(0), json!([little()]));
    let configured = |configuration: Value| json!({"name": name, "configuration": configuration});
    match (kind, name) {
        ("chunk-grids", "rectilinear") => {
            plain["chunk_grid"] = configured(json!({"kind": "inline", "chunk_shapes": [[1, 3], 2]}));
        }
        ("chunk-grids", _) => plain["chunk_grid"] = configured(json!({"chunk_shape": [2, 3]})),
        ("chunk-key-encodings", _) => plain["chunk_key_encoding"] = json!({"name": name}),
        ("codecs", _) => return codec_example(name),
        ("data-types", _) => return data_type_example(name),
        (kind, _) => plain[kind.replace('-', "_")] = json!([{"name": name}]),
    }
    plain
}

fn codec_example(name: &str) -> Value {
    let codec = |configuration: Value| json!({"name": name, "configuration": configuration});
    let int32 = |codecs: Value| document(json!("int32"), json!(0), codecs);
    let float32 = |codecs: Value| document(json!("float32"), json!(0.0), codecs);
    match name {
        "bytes" => int32(json!([little()])),
        "bitround" => float32(json!([codec(json!({"keepbits": 10})), little()])),
        "cast_value" => float32(json!([codec(json!({"data_type": "int16"})), little()])),
        "scale_offset" => float32(json!([codec(json!({"scale": 2.0, "offset": 1.0})), little()])),
        "reshape" => int32(json!([codec(json!({"shape": [-1]})), little()])),
        "transpose" => int32(json!([codec(json!({"order": [1, 0]})), little()])),
        "packbits" => document(json!("bool"), json!(false), json!([name])),
        "zfp" => float32(json!([codec(json!({"mode": "reversible"}))])),
        "vlen-bytes" => document(json!("bytes"), json!(""), json!([name])),
        "vlen-utf8" => document(json!("string"), json!(""), json!([name])),
        "sharding_indexed" => int32(json!([codec(
            json!({"chunk_shape": [1, 3], "codecs": [little()], "index_codecs": [little(), "crc32c"]})
        )])),
        "n5_default" => {
            let transpose = json!({"name": "transpose", "configuration": {"order": [1, 0]}});
            let big = json!({"name": "bytes", "configuration": {"endian": "big"}});
            let zstd = json!({"name": "zstd", "configuration": {"level": 0, "checksum": false}});
            int32(json!([codec(json!({"codecs": [transpose, big, zstd]}))]))
        }
        "conditional" => {
            let zstd = json!({"name": "zstd", "configuration": {"level": 5, "checksum": false}});
            int32(json!([little(), codec(json!({"codecs": [zstd]}))]))
        }
        "gzip" => int32(json!([little(), codec(json!({"level": 1}))])),
        "zstd" => int32(json!([little(), codec(json!({"level": 1, "checksum": true}))])),
        "blosc" => int32(json!([
            little(),
            codec(json!({"cname": "lz4", "clevel": 1, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}))
        ])),
        _ => int32(json!([little(), name])),
    }
}

fn data_type_example(name: &str) -> Value {
    let configured = |configuration: Value| json!({"name": name, "configuration": configuration});
    let fixed = |data_type: Value, fill: Value| document(data_type, fill, json!([little()]));
    match name {
        "bytes" => document(json!(name), json!(""), json!(["vlen-bytes"])),
        "string" => document(json!(name), json!(""), json!(["vlen-utf8"])),
        "bool" => fixed(json!(name), json!(false)),
        "r" => fixed(json!("r16"), json!([1, 2])),
        "fixed_length_utf32" => fixed(configured(json!({"length_bytes": 8})), json!("a")),
        "numpy.datetime64" | "numpy.timedelta64" => {
            fixed(configured(json!({"unit": "s", "scale_factor": 1})), json!(0))
        }
        "struct" => fixed(
            configured(json!({"fields": [{"name": "x", "data_type": {"name": "int16"}}]})),
            json!({"x": 1}),
        ),
        "structured" => fixed(configured(json!({"fields": [["x", "int16"]]})), json!("AQA=")),
        _ if name.starts_with("complex") => fixed(json!(name), json!([1.0, 0.5])),
        _ => fixed(json!(name), json!(1)),
    }
}

/// Opens an array: its flat file, or its text if its elements have no fixed size.
fn open(document: &Value) -> Result<(), String> {
    let parsed =
        parse_v3("a/zarr.json", document.to_string().as_bytes()).map_err(|error| error.to_string())?;
    let Document::Array(metadata) = parsed else { return Err("not an array".to_owned()) };
    let ArrayMetadata { chunk_grid, data_type, fill_value, codecs, .. } = metadata.clone();
    if data_type.item_size().is_none() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        return VariableArray::open(&store, "a", &Arc::new(metadata))
            .map(drop)
            .map_err(|error| error.to_string());
    }
    let chunk = Representation { shape: chunk_grid.longest_chunk(), data_type, fill_value };
    let pipeline = Pipeline::build(&codecs, &chunk).map_err(|error| error.to_string())?;
    let elements = vec![1; pipeline.decoded_bytes()];
    let encoded = pipeline.encode(&elements).map_err(|error| error.to_string())?;
    let mut out = vec![0; elements.len()];
    pipeline.decode(&encoded, &mut out).map_err(|error| error.to_string())
}

#[test]
fn every_registered_name_is_served_or_refused_with_a_reason() {
    let names: Value = serde_json::from_str(include_str!("registry.json")).unwrap();
    assert_eq!(names["commit"].as_str().map(str::len), Some(40), "the commit that the names are from");
    let (mut faults, mut count) = (Vec::new(), 0);
    for kind in ["chunk-grids", "chunk-key-encodings", "codecs", "data-types", "storage-transformers"] {
        for name in names[kind].as_array().unwrap().iter().filter_map(Value::as_str) {
            count += 1;
            let refused = REFUSED.iter().find(|refused| (refused.0, refused.1) == (kind, name));
            match (open(&example(kind, name)), refused) {
                (Ok(()), None) => {}
                (Ok(()), Some(_)) => faults.push(format!("{kind}: {name} is served, and listed as refused")),
                (Err(error), Some((_, _, reason))) if error.contains(reason) => {}
                (Err(error), _) => faults.push(format!("{kind}: {name}: {error}")),
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    say(format!("{count} names of the registry at {}", names["commit"]));
}

/// Returns what `zarrfs cat` writes.
fn cat(store: &Path, array: &str, options: &[&str]) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
    let output = command.arg("cat").args(options).arg(store).arg(array).output().unwrap();
    assert!(output.status.success(), "{}: {}", store.display(), String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Unpacks recorded stores; returns their folder and the names of the arrays in them.
pub fn unpacked(archive: &str) -> (tempfile::TempDir, BTreeSet<String>) {
    let folder = tempfile::tempdir().unwrap();
    let file = fs::File::open(recorded_folder().join(archive)).unwrap();
    zip::ZipArchive::new(file).unwrap().extract(folder.path()).unwrap();
    let names = names_in(folder.path());
    (folder, names)
}

/// Returns the names of the arrays in a folder: those with expected elements.
pub fn names_in(folder: &Path) -> BTreeSet<String> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let suffixes = [".mask.bin", ".bin", ".jsonl"];
    let name = |file: String| suffixes.iter().find_map(|suffix| file.strip_suffix(suffix).map(str::to_owned));
    files.filter_map(name).collect()
}

/// Arrays of the zarrs crate, through a mount and with `zarrfs cat`.
#[test]
fn arrays_of_zarrs() {
    let (folder, names) = unpacked("zarrs.zip");
    let Some(mount) = Mount::new(folder.path(), &["--formats", "mask"], "recorded arrays of zarrs") else {
        return;
    };
    for name in &names {
        let expected = |suffix: &str| fs::read(folder.path().join(format!("{name}{suffix}"))).ok();
        let sidecar: Value = json_of(mount.path(&format!("{name}.json")));
        if let Some(bytes) = expected(".bin") {
            assert_eq!(fs::read(mount.path(name)).unwrap(), bytes, "{name}");
            assert_eq!(cat(&folder.path().join(name), "/", &[]), bytes, "{name}");
        }
        if let Some(mask) = expected(".mask.bin") {
            assert_eq!(sidecar["optional"]["mask"], json!(format!("{name}.mask")), "{name}");
            for file in [
                format!("{name}.mask"),
                format!("__formats__/mask/{name}.mask"),
                format!("__views__/mask/{name}"),
            ] {
                assert_eq!(fs::read(mount.path(&file)).unwrap(), mask, "{file}");
            }
            assert_eq!(cat(&folder.path().join(name), "/", &["--format", "mask"]), mask, "{name}");
        }
        if let Some(text) = expected(".jsonl") {
            assert_eq!(
                fs::read(mount.path(&format!("__formats__/jsonl/{name}.jsonl"))).unwrap(),
                text,
                "{name}"
            );
        }
        let is_proposal = ["optional", "suffix", "regular_bounded"].iter().any(|part| name.starts_with(part));
        assert_eq!(sidecar["proposals"].is_array(), is_proposal, "{name}: {}", sidecar["proposals"]);
    }
    mount.unmount();
    assert!(names.len() > 35, "{names:?}");
    say(format!("{} arrays of zarrs", names.len()));
}

#[test]
fn blocks_of_n5() {
    let Some(python) = crate::support::fixtures::python("blocks of N5") else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/n5.py");
    let output = Command::new(python).arg(program).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let Some(mount) = Mount::new(folder.path(), &[], "arrays of N5") else { return };
    let names = names_in(folder.path());
    for name in &names {
        let expected = fs::read(folder.path().join(format!("{name}.bin"))).unwrap();
        assert_eq!(fs::read(mount.path(name)).unwrap(), expected, "{name}");
    }
    mount.unmount();
    assert_eq!(names.len(), 48, "{names:?}");
}

/// Chunks in the folders of "fanout", which no library writes as the proposal is now.
#[test]
fn proposals_are_only_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut fanout = document(json!("int32"), json!(7), json!([little()]));
    fanout["chunk_key_encoding"] = json!({"name": "fanout", "configuration": {"max_children": 4}});
    fanout["shape"] = json!([4, 12]);
    let mut suffix = document(json!("int32"), json!(7), json!([little()]));
    let configuration = json!({"suffix": ".bin", "base_encoding": {"name": "v2"}});
    suffix["chunk_key_encoding"] = json!({"name": "suffix", "configuration": configuration});
    let chunk = |first: i32| (first..first + 6).flat_map(i32::to_le_bytes).collect::<Vec<u8>>();
    for (name, document, keys) in
        [("fanout", &fanout, ["d0/0/d1/0/c", "d0/1/d1/1/0/c"]), ("suffix", &suffix, ["0.0.bin", "1.1.bin"])]
    {
        let array = folder.path().join(name);
        for (key, first) in keys.into_iter().zip([0, 100]) {
            fs::create_dir_all(array.join(key).parent().unwrap()).unwrap();
            fs::write(array.join(key), chunk(first)).unwrap();
        }
        fs::write(array.join("zarr.json"), document.to_string()).unwrap();
    }
    let Some(mount) = Mount::new(folder.path(), &["--writable"], "proposals") else { return };
    for (name, columns, second) in [("fanout", 12, 9), ("suffix", 6, 3)] {
        let bytes = fs::read(mount.path(name)).unwrap();
        let elements: Vec<i32> =
            bytes.chunks(4).map(|four| i32::from_le_bytes(four.try_into().unwrap())).collect();
        assert_eq!(elements.len(), 4 * columns, "{name}");
        for (at, &element) in elements.iter().enumerate() {
            let (row, column) = (at / columns, at % columns);
            let expected = match (row / 2, column) {
                (0, 0..3) => row * 3 + column,
                (1, column) if (second..second + 3).contains(&column) => {
                    100 + (row - 2) * 3 + column - second
                }
                _ => 7,
            };
            assert_eq!(element, expected as i32, "{name}: {row}, {column}");
        }
        let error = fs::OpenOptions::new().write(true).open(mount.path(name)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{name}");
        let output = Command::new(env!("CARGO_BIN_EXE_zarrfs"))
            .arg("info")
            .arg(folder.path())
            .arg(name)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("stored        2 of"), "{text}");
    }
    mount.unmount();
    let resize = ["resize", "--discard"];
    let output = Command::new(env!("CARGO_BIN_EXE_zarrfs"))
        .args(resize)
        .arg(folder.path())
        .args(["suffix", "2,6"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("proposal"), "{text}");
}

/// References that are mounted, too: TIFF files (LZW with a predictor, zstd) and HDF5 files (LZF, records).
const MOUNTED: [&str; 6] =
    ["tiff_colour", "tiff_lzw", "tiff_zstd_floatpred", "hdf5_lzf", "hdf5_lzf_v3", "hdf5_records_deflated"];

/// Compares the arrays that `image_codecs.py` wrote to a folder with the elements next to them.
fn check_image_codecs(folder: &Path) -> usize {
    let names = names_in(folder);
    let Some(mount) = Mount::new(folder, &[], "arrays of imagecodecs") else { return 0 };
    let mut by_references = 0;
    for name in &names {
        let expected = fs::read(folder.join(format!("{name}.bin"))).unwrap();
        if folder.join(name).is_dir() {
            assert_eq!(fs::read(mount.path(name)).unwrap(), expected, "{name}");
            continue;
        }
        by_references += 1;
        if MOUNTED.contains(&name.as_str()) {
            let store = folder.join(format!("{name}.json"));
            let Some(references) = Mount::new(&store, &[], "references to other files") else { return 0 };
            assert_eq!(fs::read(references.path(name)).unwrap(), expected, "{name}");
            references.unmount();
        }
        assert_eq!(cat(&folder.join(format!("{name}.json")), name, &[]), expected, "{name}");
    }
    mount.unmount();
    assert!(names.len() > 60, "{names:?}");
    say(format!("{} arrays of imagecodecs, {by_references} of them by references", names.len()));
    by_references
}

#[test]
fn arrays_of_imagecodecs() {
    let (folder, _) = unpacked("image_codecs.zip");
    let by_references = check_image_codecs(folder.path());
    assert!(by_references == 0 || by_references > 10, "{by_references}");
}

#[test]
#[ignore = "full: needs imagecodecs, kerchunk and virtual-tiff"]
fn arrays_of_imagecodecs_as_it_is_now() {
    let Some(python) = companions::python_with_libraries("imagecodecs") else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/image_codecs.py");
    let output = Command::new(python).args(["-W", "ignore", program]).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check_image_codecs(folder.path());
}
