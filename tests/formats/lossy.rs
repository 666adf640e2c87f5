//! What a mount shows of a written array is what the store has, wherever a codec that loses something stands in the chain.
//!
//! **To add a codec**: a line in [`CASES`], which says whether it gives back what it was given; without one, the first test fails.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::oracle::{Oracle, v2, v3};
use crate::support::library::{LAYOUTS, in_parallel, read_all};
use crate::support::mounted::Mount;
use crate::support::{level, own_process};
use serde_json::{Value, json};
use zarrfs::array::{Array, Engine, Layout};
use zarrfs::codec::registry;
use zarrfs::store::{MemoryStore, Store};

/// What a codec does to what it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fidelity {
    /// It is lossless.
    Lossless,
    /// It is lossy, and what is written here shows it.
    Lossy,
    /// It counts as lossy, though nothing here shows why.
    CountsAsLossy,
}
use Fidelity::{CountsAsLossy, Lossless, Lossy};

/// Names in v3 (`None`: v2 only) and v2 (`None`: v3 only), configuration, data types (v3 names), what it does.
type Case = (Option<&'static str>, Option<&'static str>, &'static str, &'static [&'static str], Fidelity);

const CASES: &[Case] = &[
    (Some("numcodecs.adler32"), Some("adler32"), "{}", &["int32"], Lossless),
    (
        Some("numcodecs.astype"),
        Some("astype"),
        r#"{"encode_dtype":"<i8","decode_dtype":"<i4"}"#,
        &["int32"],
        Lossless,
    ),
    (
        Some("numcodecs.astype"),
        Some("astype"),
        r#"{"encode_dtype":"<f4","decode_dtype":"<f8"}"#,
        &["float64"],
        Lossy,
    ),
    (
        Some("numcodecs.astype"),
        Some("astype"),
        r#"{"encode_dtype":"<i2","decode_dtype":"<i4"}"#,
        &["int32"],
        Lossy,
    ),
    (Some("numcodecs.base64"), Some("base64"), "{}", &["float32"], Lossless),
    (Some("bitround"), Some("bitround"), r#"{"keepbits":3}"#, &["float32", "float64"], Lossy),
    (Some("bitround"), None, r#"{"keepbits":3}"#, &["int32", "uint16", "complex64"], Lossy),
    (Some("bitround"), Some("bitround"), r#"{"keepbits":23}"#, &["float32"], Lossless),
    (Some("bitround"), None, r#"{"keepbits":64}"#, &["int32", "uint64"], Lossless),
    (
        Some("blosc"),
        Some("blosc"),
        r#"{"cname":"lz4","clevel":1,"shuffle":1,"blocksize":0}"#,
        &["float64"],
        Lossless,
    ),
    (Some("bytes"), None, r#"{"endian":"big"}"#, &["int16", "complex64", "float32"], Lossless),
    (Some("numcodecs.bz2"), Some("bz2"), r#"{"level":1}"#, &["int32"], Lossless),
    (Some("cast_value"), None, r#"{"data_type":"float32"}"#, &["float64"], Lossy),
    (Some("cast_value"), None, r#"{"data_type":"int32","rounding":"towards-zero"}"#, &["float32"], Lossy),
    (Some("cast_value"), None, r#"{"data_type":"int8","out_of_range":"clamp"}"#, &["int32"], Lossy),
    (Some("cast_value"), None, r#"{"data_type":"int64"}"#, &["int32"], CountsAsLossy),
    (None, Some("categorize"), r#"{"labels":["a","b"],"dtype":"<U2","astype":"|u1"}"#, &["U2"], Lossy),
    (Some("conditional"), None, r#"{"codecs":["numcodecs.shuffle","numcodecs.zlib"]}"#, &["int32"], Lossless),
    (Some("numcodecs.crc32"), Some("crc32"), "{}", &["int32"], Lossless),
    (Some("crc32c"), Some("crc32c"), "{}", &["int32"], Lossless),
    (Some("numcodecs.delta"), Some("delta"), r#"{"dtype":"<i4"}"#, &["int32"], Lossless),
    (Some("numcodecs.delta"), Some("delta"), r#"{"dtype":"<f4"}"#, &["float32"], Lossy),
    (
        Some("numcodecs.fixedscaleoffset"),
        Some("fixedscaleoffset"),
        r#"{"offset":0,"scale":2,"dtype":"<f4","astype":"<i4"}"#,
        &["float32"],
        Lossy,
    ),
    (Some("numcodecs.fletcher32"), Some("fletcher32"), "{}", &["int32"], Lossless),
    (Some("gzip"), Some("gzip"), r#"{"level":1}"#, &["int32"], Lossless),
    (Some("HorizontalDeltaCodec"), None, "{}", &["int32", "float32", "uint64"], Lossless),
    (Some("imagecodecs_delta"), Some("imagecodecs_delta"), r#"{"dtype":"<i4"}"#, &["int32"], Lossless),
    (
        Some("imagecodecs_floatpred"),
        Some("imagecodecs_floatpred"),
        r#"{"dtype":"<f4"}"#,
        &["float32"],
        Lossless,
    ),
    (Some("imagecodecs_lz4h5"), Some("imagecodecs_lz4h5"), r#"{"blocksize":100}"#, &["int32"], Lossless),
    (Some("imagecodecs_lzf"), Some("imagecodecs_lzf"), "{}", &["int32"], Lossless),
    (Some("imagecodecs_lzw"), Some("imagecodecs_lzw"), "{}", &["int32"], Lossless),
    (Some("imagecodecs_packbits"), Some("imagecodecs_packbits"), "{}", &["int32"], Lossless),
    (Some("numcodecs.jenkins_lookup3"), Some("jenkins_lookup3"), r#"{"initval":0}"#, &["int32"], Lossless),
    (Some("numcodecs.lz4"), Some("lz4"), r#"{"acceleration":1}"#, &["int32"], Lossless),
    (Some("numcodecs.lzma"), Some("lzma"), "{}", &["int32"], Lossless),
    (
        Some("n5_default"),
        None,
        r#"{"codecs":[{"name":"transpose","configuration":{"order":[1,0]}},{"name":"bytes","configuration":{"endian":"big"}}]}"#,
        &["int32", "float64"],
        Lossless,
    ),
    (Some("numcodecs.packbits"), Some("packbits"), "{}", &["bool"], CountsAsLossy),
    (
        Some("packbits"),
        None,
        "{}",
        &["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "uint2", "int4"],
        Lossy,
    ),
    (Some("packbits"), None, "{}", &["bool"], CountsAsLossy),
    (Some("packbits"), None, r#"{"first_bit":1,"last_bit":9}"#, &["int16"], Lossy),
    (Some("packbits"), None, "{}", &["int16", "complex64"], Lossless),
    (Some("numcodecs.pcodec"), Some("pcodec"), "{}", &["int32", "float32", "noise32", "noise64"], Lossless),
    (Some("numcodecs.quantize"), Some("quantize"), r#"{"digits":1,"dtype":"<f4"}"#, &["float32"], Lossy),
    (Some("reshape"), None, r#"{"shape":[-1]}"#, &["int32"], Lossless),
    (Some("scale_offset"), None, r#"{"offset":0.1,"scale":3.7}"#, &["float32"], Lossy),
    (Some("scale_offset"), None, "{}", &["float32"], Lossless),
    (Some("scale_offset"), None, r#"{"offset":5}"#, &["int32"], CountsAsLossy),
    (Some("numcodecs.shuffle"), Some("shuffle"), r#"{"elementsize":4}"#, &["int32"], Lossless),
    (Some("zarrs.squeeze"), None, "{}", &["int32"], Lossless),
    (Some("transpose"), None, r#"{"order":[1,0]}"#, &["int32"], Lossless),
    (Some("zfp"), None, r#"{"mode":"fixed_accuracy","tolerance":0.5}"#, &["float32", "float64"], Lossy),
    (Some("zfp"), None, r#"{"mode":"reversible"}"#, &["int32", "float32"], CountsAsLossy),
    (Some("numcodecs.zfpy"), Some("zfpy"), r#"{"mode":4,"tolerance":0.5}"#, &["float32"], Lossy),
    (Some("numcodecs.zlib"), Some("zlib"), r#"{"level":1}"#, &["int32"], Lossless),
    (Some("zstd"), Some("zstd"), r#"{"level":1,"checksum":true}"#, &["int32"], Lossless),
];

/// Tried at every place by the chains around the others.
const EVERYWHERE: &[&str] = &["sharding_indexed"];

/// Only read.
const READ_ONLY: &[&str] = &[
    "fill_hdf_strings",
    "flac",
    "grib",
    "imagecodecs_jpeg",
    "imagecodecs_png",
    "imagecodecs_webp",
    "optional",
    "record_member",
    "wavpack",
];

/// The shapes of the array and of its chunks (shards); inner shards are 4 × 4, inner chunks 4 × 2 and 2 × 2.
const SHAPE: [u64; 2] = [12, 8];
const CHUNK: [u64; 2] = [8, 8];

#[test]
fn every_codec_of_the_registry_is_in_the_matrix() {
    let mut tried: BTreeSet<&str> = EVERYWHERE.iter().chain(READ_ONLY).copied().collect();
    tried.extend(CASES.iter().flat_map(|case| [case.0, case.1]).flatten());
    for entry in registry::entries() {
        let mut names = entry.v3.iter().chain(entry.v2);
        assert!(names.any(|name| tried.contains(name)), "{:?} {:?} is not in the matrix", entry.v3, entry.v2);
    }
}

/// Returns elements that all codecs here take of the type, other ones for another `seed`.
fn elements(data_type: &str, count: usize, seed: u64) -> Vec<u8> {
    let mut numbers = crate::support::Numbers(seed);
    let mut bytes = Vec::new();
    for _ in 0..count {
        let number = numbers.below(4000) as i64 - 2000;
        let real = number as f64 * 0.037;
        match data_type {
            "bool" => bytes.push((number & 1) as u8),
            // More bits than the type has: whoever packs them must not keep them.
            "float4_e2m1fn" | "float6_e2m3fn" | "float6_e3m2fn" | "uint2" | "int4" => {
                bytes.push(number as u8)
            }
            "int16" => bytes.extend((number as i16).to_le_bytes()),
            "uint16" => bytes.extend((number as u16).to_le_bytes()),
            "int32" => bytes.extend((number as i32 * 70_001).to_le_bytes()),
            "uint64" => bytes.extend((number as u64).to_le_bytes()),
            "float32" => bytes.extend((real as f32).to_le_bytes()),
            "float64" => bytes.extend(real.to_le_bytes()),
            "complex64" => bytes.extend([real as f32, 1.1 - real as f32].map(f32::to_le_bytes).concat()),
            "noise32" => bytes.extend((numbers.next() as u32).to_le_bytes()),
            "noise64" => bytes.extend(numbers.next().to_le_bytes()),
            "U2" => {
                let text = ["a", "b", "c", "ab"][numbers.below(4) as usize];
                let mut points = text.chars().map(u32::from).chain([0, 0]);
                bytes.extend((0..2).flat_map(|_| points.next().unwrap().to_le_bytes()));
            }
            _ => panic!("{data_type}"),
        }
    }
    bytes
}

fn v3_type(data_type: &'static str) -> &'static str {
    match data_type {
        "noise32" => "float32",
        "noise64" => "float64",
        other => other,
    }
}

fn fill(data_type: &str) -> Value {
    match data_type {
        "bool" => json!(false),
        "complex64" => json!([0, 0]),
        _ => json!(0),
    }
}

fn shard(inner: [u64; 2], codecs: &[Value]) -> Value {
    let index = [json!({"name": "bytes", "configuration": {"endian": "little"}}), json!({"name": "crc32c"})];
    json!({"name": "sharding_indexed",
        "configuration": {"chunk_shape": inner, "codecs": codecs, "index_codecs": index}})
}

/// Returns the chains with this codec in them, by name of the place.
fn places(codec: &Value, data_type: &'static str) -> Vec<(&'static str, Value)> {
    let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let transpose = json!({"name": "transpose", "configuration": {"order": [1, 0]}});
    let gzip = json!({"name": "gzip", "configuration": {"level": 1}});
    let crc = json!({"name": "crc32c"});
    // The codec stands before `bytes`, in its place, or after it.
    let among = [vec![codec.clone(), bytes.clone()], vec![codec.clone()], vec![bytes.clone(), codec.clone()]];
    let of = |codecs: &[Value]| v3(json!(v3_type(data_type)), &CHUNK, fill(data_type), json!(codecs));
    let it = among.into_iter().find(|codecs| crate::oracle::pipeline(&of(codecs)).is_ok());
    let it = it.unwrap_or_else(|| panic!("{codec} cannot be built for {data_type}"));
    let with = |before: &[&Value], middle: &[Value], after: &[&Value]| {
        let mut codecs: Vec<Value> = before.iter().copied().cloned().collect();
        codecs.extend_from_slice(middle);
        codecs.extend(after.iter().copied().cloned());
        json!(codecs)
    };
    let inner = [shard([4, 2], &it)];
    let whole_inner = [shard([4, 4], &[shard([2, 2], &it), gzip.clone()])];
    let nested = [shard([4, 4], &[shard([2, 2], &it)])];
    let before = [codec.clone(), shard([4, 2], std::slice::from_ref(&bytes))];
    vec![
        ("plain", with(&[], &it, &[])),
        ("plain, gzip", with(&[], &it, &[&gzip])),
        ("transpose", with(&[&transpose], &it, &[])),
        ("shard", with(&[], &inner, &[])),
        ("shard, gzip", with(&[], &inner, &[&gzip])),
        ("shard, crc32c", with(&[], &inner, &[&crc])),
        ("transpose, shard", with(&[&transpose], &inner, &[])),
        ("transpose, shard, gzip", with(&[&transpose], &inner, &[&gzip])),
        ("nested", with(&[], &nested, &[])),
        ("nested, gzip", with(&[], &nested, &[&gzip])),
        ("whole in a shard", with(&[], &whole_inner, &[])),
        ("transpose, whole in a shard, gzip", with(&[&transpose], &whole_inner, &[&crc, &gzip])),
        // Only codecs from arrays to arrays can stand there.
        ("before a shard", with(&[], &before, &[])),
        ("transpose, before a shard, gzip", with(&[&transpose], &before, &[&gzip])),
    ]
}

struct Cell {
    what: String,
    document: Value,
    data_type: &'static str,
    fidelity: Fidelity,
    layout: Layout,
}

/// Returns all chains that can be built; how many of them each case has at least shows that its places were tried.
fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (v3_name, v2_name, configuration, data_types, fidelity) in CASES {
        let configuration: Value = serde_json::from_str(configuration).unwrap();
        for data_type in *data_types {
            let mut documents = Vec::new();
            if let Some(name) = v3_name {
                let codec = json!({"name": name, "configuration": configuration});
                for (place, codecs) in places(&codec, data_type) {
                    let mut document = v3(json!(v3_type(data_type)), &SHAPE, fill(data_type), codecs);
                    document["chunk_grid"]["configuration"]["chunk_shape"] = json!(CHUNK);
                    documents.push((format!("{name} {configuration} {data_type}: {place}"), document));
                }
            }
            let dtype = match *data_type {
                "int32" => "<i4",
                "float32" | "noise32" => "<f4",
                "float64" | "noise64" => "<f8",
                "bool" => "|b1",
                "U2" => "<U2",
                _ => "",
            };
            if let Some(name) = v2_name.filter(|_| !dtype.is_empty()) {
                let mut filter = configuration.clone();
                filter["id"] = json!(name);
                for order in ["C", "F"] {
                    for (filters, compressor) in [
                        (json!([filter]), json!(null)),
                        (json!([filter]), json!({"id": "zlib", "level": 1})),
                        (json!(null), filter.clone()),
                    ] {
                        let mut document = v2(json!(dtype), &SHAPE, order, filters, compressor);
                        document["chunks"] = json!(CHUNK);
                        let what = format!("v2 {name} {configuration} {data_type} {order}");
                        documents.push((what, document));
                    }
                }
            }
            let before = cells.len();
            for (what, document) in documents {
                for (named, layout) in [LAYOUTS[0], LAYOUTS[3]] {
                    let cell = Cell {
                        what: format!("{what} {named}"),
                        document: document.clone(),
                        data_type,
                        fidelity: *fidelity,
                        layout,
                    };
                    if open(&cell, &store(&cell)).is_ok() {
                        cells.push(cell);
                    }
                }
            }
            assert!(
                cells.len() >= before + 8,
                "{v3_name:?} {v2_name:?} {data_type}: {}",
                cells.len() - before
            );
        }
    }
    cells
}

fn store(cell: &Cell) -> Arc<dyn Store> {
    let store = MemoryStore::new();
    let key = if cell.document["zarr_format"] == 2 { ".zarray" } else { "zarr.json" };
    store.put(key, cell.document.to_string().into_bytes()).unwrap();
    Arc::new(store)
}

fn open(cell: &Cell, store: &Arc<dyn Store>) -> Result<Arc<Array>, String> {
    let metadata = Arc::new(crate::oracle::parse(&cell.document)?);
    Array::open(&Engine::new(1 << 20, 1), store, "", metadata, cell.layout).map_err(|error| error.to_string())
}

/// Writes all and then a part; after each what is read is what somebody else reads. What is wrong.
fn check(cell: &Cell) -> Option<String> {
    let store = store(cell);
    let array = open(cell, &store).unwrap();
    array.writer().open_for_writing().unwrap();
    let mut written = elements(cell.data_type, 96, 1);
    let mut loses = false;
    let part = elements(cell.data_type, 20, 2);
    for (offset, data) in [(0, written.clone()), (written.len() / 96 * 5, part)] {
        written[offset..offset + data.len()].copy_from_slice(&data);
        array.writer().write_at(offset as u64, &data).unwrap();
        if let Err(error) = array.writer().flush() {
            // The type does not have these bits: nothing is stored, and no success was reported.
            return (cell.fidelity == Lossless).then(|| format!("{}: {error}", cell.what));
        }
        if array.is_lossless() != (cell.fidelity == Lossless) {
            return Some(format!("{}: is_lossless is {}", cell.what, array.is_lossless()));
        }
        let shown = read_all(&array).unwrap();
        let stored = read_all(&open(cell, &store).unwrap()).unwrap();
        if shown != stored {
            return Some(format!("{}: it shows what is not stored", cell.what));
        }
        loses |= stored != written;
    }
    match cell.fidelity {
        Lossless if loses => Some(format!("{}: it lost something", cell.what)),
        Lossy if !loses => Some(format!("{}: it lost nothing", cell.what)),
        _ => None,
    }
}

#[test]
fn every_codec_at_every_place_shows_what_is_stored() {
    let cells = cells();
    let cells: Vec<Cell> = cells.into_iter().filter(|cell| level::is_in_sample(&cell.what, 3)).collect();
    let failures: Vec<String> = in_parallel(&cells, check).into_iter().flatten().collect();
    crate::support::say(format!("  {} chains and layouts", cells.len()));
    crate::support::library::assert_none(&failures, "the matrix of codecs");
}

/// Several pages, whole ones.
const PAGES: [u64; 2] = [64, 64];

/// Documents of float32 that zarr-python reads, too, with something that rounds at every kind of place.
fn rounded() -> Vec<(String, Value)> {
    let codec = json!({"name": "numcodecs.bitround", "configuration": {"keepbits": 3}});
    let mut documents: Vec<(String, Value)> = places(&codec, "float32")
        .into_iter()
        .enumerate()
        .map(|(number, (_, codecs))| {
            let mut document = v3(json!("float32"), &PAGES, json!(0), codecs);
            document["chunk_grid"]["configuration"]["chunk_shape"] = json!(CHUNK);
            (format!("v3_{number}"), document)
        })
        .collect();
    let filter = json!([{"id": "bitround", "keepbits": 3}]);
    let mut document = v2(json!("<f4"), &PAGES, "C", filter, json!({"id": "zlib", "level": 1}));
    document["chunks"] = json!(CHUNK);
    document["fill_value"] = json!(0);
    documents.push(("v2".to_owned(), document));
    documents
}

/// Returns every object of an array but its document, by key.
fn objects(folder: &Path, below: &str) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder.join(below)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let key = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(objects(folder, &key)),
            false if name == "zarr.json" || name == ".zarray" => {}
            false => found.push((key, fs::read(entry.path()).unwrap())),
        }
    }
    found
}

#[test]
fn a_mount_shows_after_fsync_and_close_what_zarr_python_reads() {
    if own_process::has_run() {
        return;
    }
    let Some(mut oracle) = Oracle::start() else { return };
    let store = tempfile::tempdir().unwrap();
    let documents = rounded();
    assert!(documents.len() > 12, "{}", documents.len());
    for (name, document) in &documents {
        let key = if document["zarr_format"] == 2 { ".zarray" } else { "zarr.json" };
        fs::create_dir(store.path().join(name)).unwrap();
        fs::write(store.path().join(name).join(key), document.to_string()).unwrap();
    }
    let Some(mount) = Mount::new(store.path(), &["--writable"], "lossy codecs") else { return };
    let read = |file: &File| {
        let mut bytes = vec![0; 64 * 64 * 4];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    let mut shown = Vec::new();
    for (name, document) in &documents {
        let reader = File::open(mount.path(name)).unwrap();
        let writer = File::options().read(true).write(true).open(mount.path(name)).unwrap();
        let mut stored = |bytes: Vec<u8>, when: &str| {
            let theirs = oracle.decode(document, &objects(&store.path().join(name), "")).unwrap();
            assert!(bytes == theirs, "{name} {document}: zarr-python reads something else after {when}");
            bytes
        };
        let data = elements("float32", 64 * 64, 3);
        writer.write_all_at(&data, 0).unwrap();
        assert!(read(&reader) == data && read(&writer) == data, "{name}: a write is seen at once");
        writer.sync_data().unwrap();
        assert!(stored(read(&writer), "fsync") != data, "{name}: nothing was rounded");
        writer.write_all_at(&elements("float32", 900, 4), 36).unwrap();
        read(&reader);
        drop(writer);
        shown.push(stored(read(&reader), "close"));
    }
    mount.unmount();
    let mount = Mount::new(store.path(), &[], "lossy codecs").unwrap();
    for ((name, _), shown) in documents.iter().zip(shown) {
        assert!(read(&File::open(mount.path(name)).unwrap()) == shown, "{name}: another mount shows another");
    }
    mount.unmount();
}
