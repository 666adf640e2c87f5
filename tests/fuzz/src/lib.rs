//! What the fuzz targets share: a chain for every codec, and arrays over a store in memory.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use zarrfs::array::{Array, Engine, Layout};
use zarrfs::codec::{Pipeline, Representation};
use zarrfs::hierarchy::{Node, Tree};
use zarrfs::metadata::{ArrayMetadata, Document, parse_n5, parse_v2_array, parse_v3};
use zarrfs::store::{MemoryStore, Store};

/// How much of an array a target reads: enough for every chunk of the arrays here.
const READ_BYTES: u64 = 1 << 16;

/// One for all inputs: its threads take longer to start than most inputs to read.
static ENGINE: LazyLock<Arc<Engine>> = LazyLock::new(|| Engine::new(1 << 20, 1));

/// Chains that do not encode: name, type, columns of 6 × 40 elements, codec, and a chunk of another library
/// (`tests/fuzz/make_recorded.py`).
pub const RECORDED: [(&str, &str, u64, &str, &[u8]); 15] = [
    ("imagecodecs-jpeg", "|u1", 3, r#"{"id": "imagecodecs_jpeg"}"#, include_bytes!("../recorded/imagecodecs-jpeg")),
    ("imagecodecs-jpeg-grey", "|u1", 1, r#"{"id": "imagecodecs_jpeg"}"#, include_bytes!("../recorded/imagecodecs-jpeg-grey")),
    ("imagecodecs-jpeg-words", "<u2", 1, r#"{"id": "imagecodecs_jpeg"}"#, include_bytes!("../recorded/imagecodecs-jpeg-words")),
    ("imagecodecs-png", "<u2", 1, r#"{"id": "imagecodecs_png"}"#, include_bytes!("../recorded/imagecodecs-png")),
    ("imagecodecs-webp", "|u1", 3, r#"{"id": "imagecodecs_webp"}"#, include_bytes!("../recorded/imagecodecs-webp")),
    ("imagecodecs-webp-lossless", "|u1", 4, r#"{"id": "imagecodecs_webp"}"#, include_bytes!("../recorded/imagecodecs-webp-lossless")),
    ("flac", "<i2", 2, r#"{"id": "flac"}"#, include_bytes!("../recorded/flac")),
    ("grib1", "<f8", 1, r#"{"id": "grib", "var": "t"}"#, include_bytes!("../recorded/grib1")),
    ("grib2", "<f8", 1, r#"{"id": "grib", "var": "t"}"#, include_bytes!("../recorded/grib2")),
    ("grib2-complex", "<f4", 1, r#"{"id": "grib", "var": "t"}"#, include_bytes!("../recorded/grib2-complex")),
    ("grib2-differences", "<f8", 1, r#"{"id": "grib", "var": "t"}"#, include_bytes!("../recorded/grib2-differences")),
    ("grib2-png", "<f8", 1, r#"{"id": "grib", "var": "t"}"#, include_bytes!("../recorded/grib2-png")),
    ("grib2-grid", "<f8", 1, r#"{"id": "grib", "var": "longitude"}"#, include_bytes!("../recorded/grib2-grid")),
    ("wavpack", "<i2", 2, r#"{"id": "wavpack"}"#, include_bytes!("../recorded/wavpack")),
    ("wavpack-floats", "<f4", 2, r#"{"id": "imagecodecs_wavpack"}"#, include_bytes!("../recorded/wavpack-floats")),
];

/// The chain of a block of N5 without a compression.
pub const N5_BLOCK: &str = "n5-block";

/// Returns blocks of [`N5_BLOCK`] that are not as the chunk is: cut at the edge, padded, and of the mode that says how many elements
/// there are.
pub fn n5_blocks() -> [(&'static str, Vec<u8>); 4] {
    let block = |mode: u16, lengths: [u32; 2]| {
        let elements = lengths[0] * lengths[1];
        let count = (mode == 1).then(|| elements.to_be_bytes());
        let lengths = lengths.into_iter().flat_map(u32::to_be_bytes);
        let header = mode.to_be_bytes().into_iter().chain(2u16.to_be_bytes()).chain(lengths);
        let values = (0..elements).flat_map(|value| (value as f32).to_be_bytes());
        header.chain(count.into_iter().flatten()).chain(values).collect()
    };
    [("cut", block(0, [7, 3])), ("padded", block(0, [41, 9])), ("empty", block(0, [0, 6])), ("varlength", block(1, [40, 6]))]
}

fn v2(dtype: &str, filters: Value, compressor: Value) -> Value {
    json!({"zarr_format": 2, "shape": [6, 40], "chunks": [6, 40], "dtype": dtype, "fill_value": null, "order": "C",
           "filters": filters, "compressor": compressor})
}

fn v3(data_type: &str, codecs: Value) -> Value {
    let fill = if data_type == "bool" { json!(false) } else { json!(1) };
    json!({"zarr_format": 3, "node_type": "array", "shape": [6, 40], "data_type": data_type, "fill_value": fill,
           "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [6, 40]}},
           "chunk_key_encoding": {"name": "default"}, "codecs": codecs})
}

fn sharding(inner: [u64; 2], codecs: Value, location: &str) -> Value {
    json!({"name": "sharding_indexed", "configuration": {"chunk_shape": inner, "codecs": codecs, "index_location": location,
           "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]}})
}

/// Returns every decoder by name: an array of one chunk that goes through it.
pub fn chains() -> Vec<(String, Value)> {
    let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let big = json!({"name": "bytes", "configuration": {"endian": "big"}});
    let mut found: Vec<(String, Value)> = Vec::new();
    for (name, compressor) in [
        ("base64", json!({"id": "base64"})),
        ("blosc", json!({"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 256})),
        ("blosc-blosclz", json!({"id": "blosc", "cname": "blosclz", "clevel": 5, "shuffle": 0, "blocksize": 0})),
        ("blosc-snappy", json!({"id": "blosc", "cname": "snappy", "clevel": 5, "shuffle": 1, "blocksize": 0})),
        ("blosc-zlib", json!({"id": "blosc", "cname": "zlib", "clevel": 5, "shuffle": 1, "blocksize": 0})),
        ("blosc-zstd", json!({"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 2, "blocksize": 0})),
        ("bz2", json!({"id": "bz2"})),
        ("gzip", json!({"id": "gzip"})),
        ("imagecodecs-lz4h5", json!({"id": "imagecodecs_lz4h5", "blocksize": 256})),
        ("imagecodecs-lzf", json!({"id": "imagecodecs_lzf"})),
        ("imagecodecs-lzf-raw", json!({"id": "imagecodecs_lzf", "header": false})),
        ("imagecodecs-lzw", json!({"id": "imagecodecs_lzw"})),
        ("imagecodecs-packbits", json!({"id": "imagecodecs_packbits"})),
        ("lz4", json!({"id": "lz4"})),
        ("lzma", json!({"id": "lzma"})),
        ("lzma-alone", json!({"id": "lzma", "format": 2})),
        ("lzma-raw", json!({"id": "lzma", "format": 3, "filters": [{"id": 3, "dist": 4}, {"id": 33, "preset": 1}]})),
        ("pcodec", json!({"id": "pcodec"})),
        ("pcodec-lookback", json!({"id": "pcodec", "delta_spec": "try_lookback"})),
        ("zfpy", json!({"id": "zfpy"})),
        ("zfpy-accuracy", json!({"id": "zfpy", "mode": 4, "tolerance": 0.1})),
        ("zfpy-rate", json!({"id": "zfpy", "mode": 2, "rate": 8})),
        ("zlib", json!({"id": "zlib"})),
        ("zstd", json!({"id": "zstd"})),
    ] {
        found.push((name.to_owned(), v2("<f4", json!(null), compressor)));
    }
    for (name, dtype, filter) in [
        ("adler32", "<f4", json!({"id": "adler32"})),
        ("astype", "<i2", json!({"id": "astype", "decode_dtype": "<i2", "encode_dtype": ">f8"})),
        ("categorize", "<U3", json!({"id": "categorize", "labels": ["a", "bcd"], "dtype": "<U3", "astype": "<u2"})),
        ("crc32", "<f4", json!({"id": "crc32"})),
        ("delta", "<i4", json!({"id": "delta", "dtype": "<i4", "astype": "<i2"})),
        ("fixedscaleoffset", "<f4", json!({"id": "fixedscaleoffset", "offset": 1, "scale": 7, "dtype": "<f4", "astype": "<i2"})),
        ("fletcher32", "<f4", json!({"id": "fletcher32"})),
        ("imagecodecs-delta", "<i2", json!({"id": "imagecodecs_delta", "dtype": "<i2", "shape": [6, 40], "axis": 0})),
        ("imagecodecs-floatpred", "<f4", json!({"id": "imagecodecs_floatpred", "dtype": "<f4", "shape": [6, 40]})),
        ("fill_hdf_strings", "|O", json!({"id": "fill_hdf_strings", "dtype": "S2", "id_map": {"a": "one", "b": "two"}})),
        ("record_member", "<i2", json!({"id": "record_member", "member": "y", "dtype": [["x", "<f4"], ["y", "<i2"]]})),
        ("jenkins_lookup3", "<f4", json!({"id": "jenkins_lookup3"})),
        ("packbits-v2", "|b1", json!({"id": "packbits"})),
        ("quantize", "<f4", json!({"id": "quantize", "digits": 2, "dtype": "<f4", "astype": "<f2"})),
        ("shuffle", "<f4", json!({"id": "shuffle", "elementsize": 4})),
    ] {
        found.push((name.to_owned(), v2(dtype, json!([filter]), json!(null))));
    }
    for (name, dtype, length, compressor, _) in RECORDED {
        let mut document = v2(dtype, json!(null), serde_json::from_str(compressor).expect("JSON"));
        (document["shape"], document["chunks"]) = (json!([6, 40, length]), json!([6, 40, length]));
        found.push((name.to_owned(), document));
    }
    let map = json!({"encode": [["NaN", 0]], "decode": [[0, "NaN"]]});
    for (name, data_type, codecs) in [
        ("bytes-crc32c", "float64", json!([big, "crc32c"])),
        ("transpose", "int16", json!([{"name": "transpose", "configuration": {"order": [1, 0]}}, big])),
        ("packbits", "bool", json!([{"name": "packbits", "configuration": {"padding_encoding": "first_byte"}}])),
        ("bitround", "float32", json!([{"name": "bitround", "configuration": {"keepbits": 5}}, bytes])),
        ("reshape", "int32", json!([{"name": "reshape", "configuration": {"shape": [-1]}}, bytes])),
        ("scale_offset", "int16", json!([{"name": "scale_offset", "configuration": {"offset": 3, "scale": 1}}, bytes])),
        ("cast_value", "float32", json!([{"name": "cast_value", "configuration": {"data_type": "uint8", "scalar_map": map}}, "bytes"])),
        ("zfp", "float32", json!([{"name": "numcodecs.zfpy", "configuration": {"mode": 4, "tolerance": 0.1}}])),
        ("conditional", "int32", json!([bytes, {"name": "conditional", "configuration": {"codecs": ["numcodecs.shuffle", "zstd"]}}])),
        ("horizontal-delta", "int32", json!(["HorizontalDeltaCodec", bytes])),
        ("squeeze", "int32", json!([{"name": "zarrs.squeeze"}, bytes])),
        ("n5_default", "int32", json!([{"name": "n5_default", "configuration": {"codecs":
            [{"name": "transpose", "configuration": {"order": [1, 0]}}, big, "zstd"]}}])),
        ("sharding-end", "int32", json!([sharding([3, 10], json!([bytes, {"name": "zstd"}]), "end")])),
        ("sharding-start", "int32", json!([sharding([3, 10], json!([bytes, "crc32c"]), "start")])),
        ("sharding-nested", "int32", json!([sharding([3, 20], json!([sharding([3, 5], json!([bytes]), "start")]), "end")])),
        ("sharding-gzip", "int32", json!([sharding([2, 20], json!([bytes]), "end"), {"name": "gzip", "configuration": {"level": 1}}])),
    ] {
        found.push((name.to_owned(), v3(data_type, codecs)));
    }
    for (name, compression) in [
        (N5_BLOCK, json!({"type": "raw"})),
        ("n5-block-gzip", json!({"type": "gzip", "level": 1})),
        ("n5-block-blosc", json!({"type": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0})),
        ("n5-lz4-256", json!({"type": "lz4", "blockSize": 256})),
        ("n5-lz4-6", json!({"type": "lz4", "blockSize": 6})),
    ] {
        let n5 = json!({"dimensions": [40, 6], "blockSize": [40, 6], "dataType": "float32", "compression": compression});
        found.push((name.to_owned(), n5));
    }
    let mut optional = v3("int32", json!([{"name": "optional", "configuration": {"mask_codecs": ["packbits"], "data_codecs": [bytes]}}]));
    optional["data_type"] = json!({"name": "optional", "configuration": {"name": "int32"}});
    optional["fill_value"] = json!(null);
    found.push(("optional".to_owned(), optional));
    found
}

/// Returns the array that a document of [`chains`] describes.
pub fn metadata(document: &Value) -> ArrayMetadata {
    let text = document.to_string();
    if document["zarr_format"] == 2 {
        return parse_v2_array("a/.zarray", text.as_bytes(), None).expect("a sound document");
    }
    let parsed = if document["zarr_format"] == 3 {
        parse_v3("a/zarr.json", text.as_bytes())
    } else {
        parse_n5("a/attributes.json", text.as_bytes())
    };
    match parsed {
        Ok(Document::Array(metadata)) => metadata,
        other => panic!("no array: {other:?}"),
    }
}

/// Returns the codec chain for its one chunk.
pub fn pipeline(document: &Value) -> Pipeline {
    let metadata = metadata(document);
    let (data_type, fill_value) = (metadata.data_type, metadata.fill_value);
    let whole = Representation { shape: metadata.shape, data_type, fill_value };
    Pipeline::build(&metadata.codecs, &whole).expect("a sound chain")
}

/// Returns a store that holds an array's document and, as its first chunk, `chunk`.
pub fn store(document_name: &str, document: &[u8], chunk: &[u8]) -> Arc<dyn Store> {
    let store = MemoryStore::new();
    store.put(&format!("a/{document_name}"), document.to_vec()).expect("a key");
    if !chunk.is_empty() {
        for name in ["c/0/0", "c/0", "c", "0.0", "0"] {
            store.put(&format!("a/{name}"), chunk.to_vec()).expect("a key");
        }
    }
    Arc::new(store)
}

/// Opens the array of a store from [`store`] as the mount does, and reads its first bytes. Errors are fine.
pub fn read(store: &Arc<dyn Store>) {
    let Ok(Some(Node::Array { metadata, .. })) = Tree::new(store.clone()).node("a") else { return };
    let Ok(array) = Array::open(&ENGINE, store, "a", metadata, Layout::default()) else { return };
    let mut out = vec![0; array.size_bytes().min(READ_BYTES) as usize];
    let _ = array.read_at(0, &mut out);
}
