//! Every codec against zarr-python and numcodecs, in both directions.
//!
//! **To add a case**: write a test that starts an `Oracle`, makes a document with `v3(…)` or `v2(…)` (any document of one
//! chunk will do) and hands it with some elements to `both_directions`. Lossless codecs say `true`, so that the
//! elements must come back; the others `false`, so that both sides must only agree. `sample` makes elements.

use crate::oracle::{Oracle, both_directions, both_directions_tensorstore, sample, v2, v3};
use serde_json::{Value, json};

const V3_TYPES: &[(&str, usize)] = &[
    ("int8", 1),
    ("uint8", 1),
    ("int16", 2),
    ("uint16", 2),
    ("float16", 2),
    ("int32", 4),
    ("uint32", 4),
    ("float32", 4),
    ("int64", 8),
    ("uint64", 8),
    ("float64", 8),
    ("complex64", 8),
    ("complex128", 16),
];

fn bytes(endian: &str) -> Value {
    json!({"name": "bytes", "configuration": {"endian": endian}})
}

fn fill_of(data_type: &str) -> Value {
    if data_type.starts_with("complex") { json!([1.5, -2.0]) } else { json!(1) }
}

/// Checks one chain with every core type in both byte orders.
fn check_all_types(oracle: &mut Oracle, before: &[Value], behind: &[Value], shape: &[u64]) {
    for (seed, (data_type, item_size)) in V3_TYPES.iter().enumerate() {
        for endian in ["little", "big"] {
            let mut codecs = before.to_vec();
            codecs.push(bytes(endian));
            codecs.extend_from_slice(behind);
            let document = v3(json!(data_type), shape, fill_of(data_type), json!(codecs));
            let size = shape.iter().product::<u64>() as usize * item_size;
            both_directions(oracle, &document, &sample(size, *item_size, seed as u64), true);
        }
    }
}

#[test]
fn bytes_and_transpose() {
    let Some(mut oracle) = Oracle::start() else { return };
    check_all_types(&mut oracle, &[], &[], &[5, 7]);
    check_all_types(&mut oracle, &[], &[], &[]);
    for order in [[2, 1, 0], [1, 2, 0], [0, 2, 1], [0, 1, 2]] {
        let transpose = json!({"name": "transpose", "configuration": {"order": order}});
        check_all_types(&mut oracle, std::slice::from_ref(&transpose), &[], &[5, 40, 33]);
        let twice = [transpose, json!({"name": "transpose", "configuration": {"order": [1, 0, 2]}})];
        check_all_types(&mut oracle, &twice, &[], &[3, 4, 5]);
    }
    let data: Vec<u8> = sample(60, 1, 1).into_iter().map(|byte| byte & 1).collect();
    let document = v3(json!("bool"), &[60], json!(true), json!([{"name": "bytes"}]));
    both_directions(&mut oracle, &document, &data, true);
    let raw = json!({"name": "raw_bytes", "configuration": {"length_bytes": 3}});
    let document = v3(raw, &[20], json!("AQID"), json!([{"name": "bytes"}]));
    both_directions(&mut oracle, &document, &data, true);
}

#[test]
fn gzip_zlib_zstd_crc32c() {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut chains = Vec::new();
    for level in 0..=9 {
        chains.push(vec![json!({"name": "gzip", "configuration": {"level": level}})]);
        chains.push(vec![json!({"name": "numcodecs.zlib", "configuration": {"level": level}})]);
    }
    for (level, checksum) in [(-7, false), (0, true), (1, false), (3, true), (12, false), (22, true)] {
        let configuration = json!({"level": level, "checksum": checksum});
        chains.push(vec![json!({"name": "zstd", "configuration": configuration})]);
        chains.push(vec![json!({"name": "numcodecs.zstd", "configuration": configuration})]);
    }
    chains.push(vec![json!({"name": "numcodecs.gzip", "configuration": {"level": 1}})]);
    chains.push(vec![json!({"name": "crc32c"})]);
    for location in ["start", "end"] {
        chains.push(vec![json!({"name": "numcodecs.crc32c", "configuration": {"location": location}})]);
    }
    let gzip = json!({"name": "gzip", "configuration": {"level": 1}});
    let zstd = json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}});
    chains.push(vec![gzip.clone(), zstd.clone(), json!({"name": "crc32c"})]);
    chains.push(vec![json!({"name": "crc32c"}), zstd, json!({"name": "crc32c"}), gzip]);
    for chain in chains {
        check_all_types(&mut oracle, &[], &chain, &[31, 17]);
    }
}

#[test]
fn blosc() {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut seed = 0;
    for cname in ["blosclz", "lz4", "lz4hc", "zlib", "zstd"] {
        for shuffle in ["noshuffle", "shuffle", "bitshuffle"] {
            for (clevel, blocksize) in [(0, 0), (1, 0), (5, 0), (9, 0), (5, 256), (5, 1000), (3, 70000)] {
                for (data_type, item_size, typesize) in [
                    ("uint8", 1, 1),
                    ("int16", 2, 2),
                    ("float32", 4, 4),
                    ("float64", 8, 7),
                    ("complex128", 16, 16),
                ] {
                    seed += 1;
                    let length = [3u64, 1000, 30001][seed as usize % 3];
                    let blosc = json!({"name": "blosc", "configuration": {
                        "cname": cname, "clevel": clevel, "shuffle": shuffle, "typesize": typesize,
                        "blocksize": blocksize}});
                    let fill = fill_of(data_type);
                    let document = v3(json!(data_type), &[length], fill, json!([bytes("little"), blosc]));
                    let data = sample(length as usize * item_size, item_size, seed);
                    both_directions(&mut oracle, &document, &data, true);
                }
            }
        }
    }
}

/// numcodecs is built without snappy, tensorstore with it.
#[test]
fn blosc_snappy_against_tensorstore() {
    let Some(mut oracle) = Oracle::start() else { return };
    for (seed, shuffle) in [0, 1, 2].into_iter().enumerate() {
        for (length, blocksize) in [(10, 0), (5000, 0), (100_000, 0), (100_000, 5000)] {
            let compressor = json!({"id": "blosc", "cname": "snappy", "clevel": 5, "shuffle": shuffle,
                "blocksize": blocksize});
            let document = v2(json!("<f4"), &[length], "C", json!(null), compressor);
            both_directions_tensorstore(&mut oracle, &document, &sample(length as usize * 4, 4, seed as u64));
        }
    }
}

#[test]
fn v2_compressors_and_orders() {
    let Some(mut oracle) = Oracle::start() else { return };
    let compressors = [
        json!(null),
        json!({"id": "zlib", "level": -1}),
        json!({"id": "zlib", "level": 9}),
        json!({"id": "gzip", "level": 5}),
        json!({"id": "zstd", "level": 3}),
        json!({"id": "zstd", "level": 3, "checksum": true}),
        json!({"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}),
        json!({"id": "blosc", "cname": "zstd", "clevel": 1, "shuffle": 2, "blocksize": 0}),
        json!({"id": "blosc", "cname": "blosclz", "clevel": 9, "shuffle": -1, "blocksize": 0}),
        json!({"id": "blosc", "cname": "lz4hc", "clevel": 9, "shuffle": 0, "blocksize": 512}),
    ];
    let types = [
        (json!("|u1"), 1),
        (json!("<i2"), 2),
        (json!(">u2"), 2),
        (json!("<f4"), 4),
        (json!(">f8"), 8),
        (json!(">c16"), 16),
        (json!("<M8[ns]"), 8),
        (json!(">m8[s]"), 8),
        (json!("|V5"), 5),
        (json!([["x", "<f4"], ["y", ">i2"], ["z", "|u1"]]), 7),
        (json!([["x", ">f4"], ["y", ">i2"]]), 6),
    ];
    for (seed, compressor) in compressors.iter().enumerate() {
        for (dtype, item_size) in &types {
            for order in ["C", "F"] {
                for filters in [json!(null), json!([{"id": "crc32c"}])] {
                    let document = v2(dtype.clone(), &[13, 9, 4], order, filters, compressor.clone());
                    let data = sample(13 * 9 * 4 * item_size, *item_size, seed as u64);
                    both_directions(&mut oracle, &document, &data, true);
                }
            }
        }
    }
}

#[test]
fn sharding() {
    let Some(mut oracle) = Oracle::start() else { return };
    let crc = json!({"name": "crc32c"});
    let gzip = json!({"name": "gzip", "configuration": {"level": 1}});
    let indexes = [
        json!([bytes("little"), crc]),
        json!([bytes("little")]),
        json!([bytes("big"), crc]),
        json!([bytes("big"), crc, crc]),
    ];
    let inner_chains = [
        json!([bytes("little")]),
        json!([bytes("big"), gzip]),
        json!([{"name": "transpose", "configuration": {"order": [1, 0]}}, bytes("little"), crc]),
    ];
    for (seed, location) in ["start", "end"].into_iter().enumerate() {
        for index in &indexes {
            for inner in &inner_chains {
                for chunk_shape in [[4, 6], [2, 6], [4, 2], [1, 1], [12, 18]] {
                    let shard = json!({"name": "sharding_indexed", "configuration": {
                        "chunk_shape": chunk_shape, "codecs": inner, "index_codecs": index,
                        "index_location": location}});
                    let document = v3(json!("uint16"), &[12, 18], json!(7), json!([shard]));
                    let mut data = sample(12 * 18 * 2, 2, seed as u64);
                    // Some inner chunks are empty.
                    data[..200].chunks_exact_mut(2).for_each(|item| item.copy_from_slice(&[7, 0]));
                    both_directions(&mut oracle, &document, &data, true);
                }
            }
        }
    }
}

/// zarr-python refuses shards within shards and behind a transpose; tensorstore reads both.
#[test]
fn nested_and_transposed_sharding_against_tensorstore() {
    let Some(mut oracle) = Oracle::start() else { return };
    let crc = json!({"name": "crc32c"});
    let index = json!([bytes("little"), crc]);
    let transpose = |order: [u64; 2]| json!({"name": "transpose", "configuration": {"order": order}});
    let shard = |chunk: [u64; 2], codecs: Value, location: &str| {
        json!({"name": "sharding_indexed", "configuration": {
            "chunk_shape": chunk, "codecs": codecs, "index_codecs": index, "index_location": location}})
    };
    let gzip = json!({"name": "gzip", "configuration": {"level": 1}});
    let (mut chains, mut behind) = (Vec::new(), Vec::new());
    for location in ["start", "end"] {
        let innermost = json!([transpose([1, 0]), bytes("big"), gzip]);
        let nested = shard([2, 3], innermost.clone(), location);
        chains.push(json!([shard([4, 6], json!([nested]), "end")]));
        chains.push(json!([shard([4, 6], json!([nested]), "start")]));
        chains.push(json!([transpose([1, 0]), shard([6, 4], innermost.clone(), location)]));
        let turned = json!([transpose([1, 0]), shard([2, 3], innermost.clone(), location)]);
        chains.push(json!([transpose([1, 0]), shard([6, 4], turned, location)]));
        behind.push(json!([shard([4, 6], innermost, location), gzip]));
    }
    for (seed, chain) in chains.into_iter().enumerate() {
        let document = v3(json!("int32"), &[12, 18], json!(7), chain);
        let mut data = sample(12 * 18 * 4, 4, seed as u64);
        data[..300].chunks_exact_mut(4).for_each(|item| item.copy_from_slice(&[7, 0, 0, 0]));
        both_directions_tensorstore(&mut oracle, &document, &data);
    }
    // tensorstore refuses codecs behind a shard; zarr-python takes them.
    for chain in behind {
        let document = v3(json!("int32"), &[12, 18], json!(7), chain);
        both_directions(&mut oracle, &document, &sample(12 * 18 * 4, 4, 9), true);
    }
}

#[test]
fn types_beyond_the_core() {
    let Some(mut oracle) = Oracle::start() else { return };
    let named = |name: &str, configuration: Value| json!({"name": name, "configuration": configuration});
    let time = json!({"unit": "ms", "scale_factor": 10});
    let fields = json!({"fields": [
        {"name": "a", "data_type": "int16"}, {"name": "b", "data_type": "float64"}, {"name": "c", "data_type": "uint8"}]});
    let types = [
        (named("numpy.datetime64", time.clone()), 8, json!(5)),
        (named("numpy.timedelta64", time), 8, json!(5)),
        (named("fixed_length_utf32", json!({"length_bytes": 12})), 12, json!("a")),
        (named("null_terminated_bytes", json!({"length_bytes": 3})), 3, json!("YQ==")),
        (named("raw_bytes", json!({"length_bytes": 5})), 5, json!("AQIDBAU=")),
        (named("struct", fields), 11, json!({"a": 1, "b": 2.5, "c": 3})),
    ];
    for (data_type, item_size, fill) in types {
        for endian in ["little", "big"] {
            for before in [json!([]), json!([{"name": "transpose", "configuration": {"order": [1, 0]}}])] {
                let mut codecs = before.as_array().unwrap().clone();
                codecs.push(bytes(endian));
                codecs.push(json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}}));
                let document = v3(data_type.clone(), &[6, 9], fill.clone(), json!(codecs));
                // Valid as text, too: small code points and bytes.
                let mut data = sample(54 * item_size, item_size, 3);
                data.iter_mut().for_each(|byte| *byte = (*byte & 0x7f).max(1));
                if item_size == 12 {
                    data.chunks_exact_mut(4).for_each(|point| point[1..].fill(0));
                }
                both_directions(&mut oracle, &document, &data, true);
            }
        }
    }
}
