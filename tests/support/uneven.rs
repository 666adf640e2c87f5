//! Arrays with lengths that are not multiples of their chunks': compressed, sharded, in Fortran order, with an odd number of bytes, raw.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// Returns a document of v3.
pub fn v3(data_type: &str, shape: &[u64], chunk: &[u64], codecs: &Value) -> Value {
    json!({"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type, "fill_value": 3,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default"}, "codecs": codecs, "attributes": {}})
}

/// Writes the documents of the arrays into the folder `store`; `scale` makes them longer. Their names.
pub fn write_arrays(store: &Path, scale: u64) -> Vec<&'static str> {
    let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let zstd = json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}});
    let shards = json!({"name": "sharding_indexed", "configuration": {
        "chunk_shape": [16, 12], "codecs": [little, zstd], "index_location": "end",
        "index_codecs": [little, {"name": "crc32c"}]}});
    let fortran = json!({"zarr_format": 2, "shape": [150 * scale, 131], "chunks": [37, 29], "dtype": ">f4",
        "fill_value": 0.5, "order": "F", "filters": null, "compressor": {"id": "zlib", "level": 1}});
    let gzip = json!({"name": "gzip", "configuration": {"level": 1}});
    let documents = [
        ("uneven", "zarr.json", v3("int32", &[211 * scale, 97], &[32, 40], &json!([little, zstd]))),
        ("sharded", "zarr.json", v3("uint16", &[300 * scale, 201], &[128, 96], &json!([shards]))),
        ("fortran", ".zarray", fortran),
        ("odd", "zarr.json", v3("uint8", &[41 * scale, 37, 69], &[8, 8, 9], &json!([little, gzip]))),
        ("raw", "zarr.json", v3("float64", &[57 * scale, 203], &[16, 50], &json!([little]))),
    ];
    for (name, key, document) in &documents {
        fs::create_dir_all(store.join(name)).unwrap();
        fs::write(store.join(name).join(key), document.to_string()).unwrap();
    }
    documents.map(|(name, ..)| name).to_vec()
}
